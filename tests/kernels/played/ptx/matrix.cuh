/* SPDX-License-Identifier: Apache-2.0 */
/* matrix.cuh: kernels/ptx/matrix.cuh, played: who holds which element of a fragment is PTX ISA 9.7.14.5's. */
#pragma once

#include "../device.cuh"
#include "number.cuh"

namespace ptx {

struct PlayedMatrices {
    uint32_t *words;
    uint32_t address;
};

inline void played_ldmatrix(uint32_t (&d)[4], uint32_t address, bool transposed) {
    struct Call : PlayedMatrices {
        bool transposed;
    } own{{d, address}, transposed};
    played::warp_meets("ldmatrix", played::all_lanes, &own, [](void *(&of_lanes)[played::lanes], uint32_t) {
        uint16_t element[4][8][8];
        for (int lane = 0; lane < played::lanes; ++lane) {
            const uint32_t from = static_cast<Call *>(of_lanes[lane])->address;
            if (from % 16 != 0)
                played::stop("ldmatrix of a row that is not aligned to 16 bytes");
            std::memcpy(element[lane / 8][lane % 8], played::shared_pointer(from, 16), 16);
        }
        for (int lane = 0; lane < played::lanes; ++lane) {
            const Call &call = *static_cast<Call *>(of_lanes[lane]);
            for (int matrix = 0; matrix < 4; ++matrix) {
                const int row = lane / 4, column = lane % 4 * 2;
                const uint32_t low = call.transposed ? element[matrix][column][row] : element[matrix][row][column];
                const uint32_t high = call.transposed ? element[matrix][column + 1][row] : element[matrix][row][column + 1];
                call.words[matrix] = low | high << 16;
            }
        }
    });
}

inline void ldmatrix_x4(uint32_t (&d)[4], uint32_t address) { played_ldmatrix(d, address, false); }
inline void ldmatrix_x4_trans(uint32_t (&d)[4], uint32_t address) { played_ldmatrix(d, address, true); }

inline void played_stmatrix(uint32_t address, const uint32_t (&s)[4], bool transposed) {
    struct Call : PlayedMatrices {
        bool transposed;
    };
    uint32_t words[4] = {s[0], s[1], s[2], s[3]};
    Call own{{words, address}, transposed};
    played::warp_meets("stmatrix", played::all_lanes, &own, [](void *(&of_lanes)[played::lanes], uint32_t) {
        uint16_t element[4][8][8];
        for (int lane = 0; lane < played::lanes; ++lane) {
            for (int matrix = 0; matrix < 4; ++matrix) {
                const Call &call = *static_cast<Call *>(of_lanes[lane]);
                for (int i = 0; i < 2; ++i) {
                    const int row = lane / 4, column = lane % 4 * 2 + i;
                    uint16_t &to = call.transposed ? element[matrix][column][row] : element[matrix][row][column];
                    to = static_cast<uint16_t>(call.words[matrix] >> (i * 16));
                }
            }
        }
        for (int lane = 0; lane < played::lanes; ++lane) {
            const uint32_t to = static_cast<PlayedMatrices *>(of_lanes[lane])->address;
            if (to % 16 != 0)
                played::stop("stmatrix to a row that is not aligned to 16 bytes");
            std::memcpy(played::shared_pointer(to, 16), element[lane / 8][lane % 8], 16);
        }
    });
}

inline void stmatrix_x4(uint32_t address, const uint32_t (&s)[4]) { played_stmatrix(address, s, false); }
inline void stmatrix_x4_trans(uint32_t address, const uint32_t (&s)[4]) { played_stmatrix(address, s, true); }

inline uint32_t movmatrix_trans(uint32_t a) {
    uint32_t own = a;
    played::warp_meets("movmatrix", played::all_lanes, &own, [](void *(&of_lanes)[played::lanes], uint32_t) {
        uint16_t element[8][8];
        for (int lane = 0; lane < played::lanes; ++lane)
            std::memcpy(&element[lane / 4][lane % 4 * 2], of_lanes[lane], 4);
        for (int lane = 0; lane < played::lanes; ++lane) {
            const int row = lane / 4, column = lane % 4 * 2;
            *static_cast<uint32_t *>(of_lanes[lane]) = element[column][row] | static_cast<uint32_t>(element[column + 1][row])
                                                                                  << 16;
        }
    });
    return own;
}

/* d (16 x columns) += a (16 x 16) b (16 x columns); d[lane][n]: rows lane / 4 and 8 more, columns 8 n + lane % 4 * 2 and the next. */
template <float (*decode)(uint16_t)>
void played_unpack_a(float (&a)[16][16], const uint32_t (&words)[4], int lane) {
    for (int i = 0; i < 4; ++i)
        for (int half = 0; half < 2; ++half)
            a[lane / 4 + i % 2 * 8][lane % 4 * 2 + half + i / 2 * 8] = decode(static_cast<uint16_t>(words[i] >> (half * 16)));
}

template <float (*decode)(uint16_t)>
void played_mma(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    struct Call {
        float (&c)[4];
        const uint32_t (&a)[4];
        const uint32_t (&b)[2];
    } own{c, a, b};
    played::warp_meets("mma", played::all_lanes, &own, [](void *(&of_lanes)[played::lanes], uint32_t) {
        float of_a[16][16], of_b[16][8], product[16][8] = {};
        for (int lane = 0; lane < played::lanes; ++lane) {
            const Call &call = *static_cast<Call *>(of_lanes[lane]);
            played_unpack_a<decode>(of_a, call.a, lane);
            for (int i = 0; i < 2; ++i)
                for (int half = 0; half < 2; ++half)
                    of_b[lane % 4 * 2 + half + i * 8][lane / 4] = decode(static_cast<uint16_t>(call.b[i] >> (half * 16)));
        }
        for (int row = 0; row < 16; ++row)
            for (int k = 0; k < 16; ++k)
                for (int column = 0; column < 8; ++column)
                    product[row][column] += of_a[row][k] * of_b[k][column];
        for (int lane = 0; lane < played::lanes; ++lane) {
            float(&sums)[4] = static_cast<Call *>(of_lanes[lane])->c;
            for (int i = 0; i < 4; ++i)
                sums[i] += product[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
        }
    });
}

inline void mma_m16n8k16_bf16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    played_mma<played::float_from_bf16>(c, a, b);
}
inline void mma_m16n8k16_fp16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    played_mma<played::float_from_fp16>(c, a, b);
}

} // namespace ptx
