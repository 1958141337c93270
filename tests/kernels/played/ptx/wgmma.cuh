/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wgmma.cuh: kernels/ptx/wgmma.cuh, played, a warp at a time: it has 16 of the 64 rows to itself. The b operand is read, and the
 * accumulators are written, when it is issued or when the warp waits for it: chance tells.
 */
#pragma once

#include "../device.cuh"
#include "matrix.cuh"

namespace ptx {

inline uint64_t swizzled_operand(uint32_t address) { return address; }

template <int registers>
void give_registers() {}
template <int registers>
void take_registers() {}

inline void wgmma_fence() {}
inline void wgmma_commit() {}
inline void wgmma_wait() { played::warp_waits_for_matrices(); }
template <int columns>
void accumulator_is_ready(float (&)[columns][4]) {}
inline uint32_t computed_here(uint32_t value) { return value; }
inline void fence_async_proxy() {}

/* Line `line` of the operand, 16 elements of its k dimension: swizzled by 128 bytes. */
inline void played_operand_row(uint16_t (&elements)[16], uint32_t address, int line) {
    for (int chunk = 0; chunk < 2; ++chunk) {
        const uint32_t plain = address + static_cast<uint32_t>(line) * 128 + static_cast<uint32_t>(chunk) * 16;
        std::memcpy(&elements[chunk * 8], played::shared_pointer(plain ^ (plain >> 7 & 7) << 4, 16), 16);
    }
}

template <float (*decode)(uint16_t), int columns>
void played_wgmma(float (&d)[columns][4], const uint32_t (&a)[4], uint64_t b, bool accumulates) {
    struct Call {
        float (*d)[4];
        const uint32_t (&a)[4];
        uint32_t b;
        bool accumulates;
    } own{d, a, static_cast<uint32_t>(b), accumulates};
    played::warp_meets("wgmma", played::all_lanes, &own, [](void *(&of_lanes)[played::lanes], uint32_t) {
        struct Issued {
            float a[16][16];
            float (*d[played::lanes])[4];
        };
        Issued issued;
        const Call &first = *static_cast<Call *>(of_lanes[0]);
        for (int lane = 0; lane < played::lanes; ++lane) {
            const Call &call = *static_cast<Call *>(of_lanes[lane]);
            if (call.b != first.b || call.accumulates != first.accumulates)
                played::stop("wgmma: lanes name different operands");
            played_unpack_a<decode>(issued.a, call.a, lane);
            issued.d[lane] = call.d;
        }
        played::warp_later([issued, b = first.b, accumulates = first.accumulates] {
            float of_b[16][columns * 8], product[16][columns * 8] = {};
            for (int column = 0; column < columns * 8; ++column) {
                uint16_t elements[16];
                played_operand_row(elements, b, column);
                for (int k = 0; k < 16; ++k)
                    of_b[k][column] = decode(elements[k]);
            }
            for (int row = 0; row < 16; ++row)
                for (int k = 0; k < 16; ++k)
                    for (int column = 0; column < columns * 8; ++column)
                        product[row][column] += issued.a[row][k] * of_b[k][column];
            for (int lane = 0; lane < played::lanes; ++lane) {
                for (int n = 0; n < columns; ++n) {
                    for (int i = 0; i < 4; ++i) {
                        float &sum = issued.d[lane][n][i];
                        sum = (accumulates ? sum : 0.f) + product[lane / 4 + i / 2 * 8][n * 8 + lane % 4 * 2 + i % 2];
                    }
                }
            }
        });
    });
}

inline void wgmma_m64n64k16_bf16(float (&d)[8][4], const uint32_t (&a)[4], uint64_t b, bool accumulates) {
    played_wgmma<played::float_from_bf16>(d, a, b, accumulates);
}
inline void wgmma_m64n64k16_fp16(float (&d)[8][4], const uint32_t (&a)[4], uint64_t b, bool accumulates) {
    played_wgmma<played::float_from_fp16>(d, a, b, accumulates);
}

} // namespace ptx
