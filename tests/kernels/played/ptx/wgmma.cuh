/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wgmma.cuh: kernels/ptx/wgmma.cuh, played, a warp at a time: it has 16 of the 64 rows to itself. The b operand is read, and the
 * accumulators are written, when it is issued or when the warp waits for it: chance tells.
 */
#pragma once

#include "../device.cuh"
#include "matrix.cuh"

namespace ptx {

/* Address; from bit 32 on, in 16 bytes, what lies between groups of 8 lines; from bit 48 on between lines, 0 where a line is a column. */
inline uint64_t swizzled_operand(uint32_t address, uint32_t group_stride_bytes = 1024) {
    return uint64_t{group_stride_bytes / 16} << 32 | address;
}
inline uint64_t short_swizzled_operand(uint32_t address) { return address; }
inline uint64_t transposed_operand(uint32_t address, uint32_t line_stride_bytes, uint32_t group_stride_bytes) {
    return uint64_t{line_stride_bytes / 16} << 48 | swizzled_operand(address, group_stride_bytes);
}
template <uint32_t line_stride_bytes>
uint64_t transposed_operand(uint32_t address) {
    return transposed_operand(address, line_stride_bytes, 1024);
}
inline uint64_t operand_behind(uint64_t operand, uint32_t bytes) { return operand + bytes; }

inline void wgmma_fence() {}
inline void wgmma_commit() {}
inline void wgmma_wait() { played::warp_waits_for_matrices(); }
/* Waits for more than it need: chance has done that to others, too. */
template <int groups>
void wgmma_wait_but() {
    played::warp_waits_for_matrices();
}
template <int columns>
void accumulator_is_ready(float (&)[columns][4]) {}
inline uint32_t computed_here(uint32_t value) { return value; }
inline uint64_t operand_computed_here(uint64_t operand) { return operand; }
inline uint32_t alike_in_warp(uint32_t value) {
    if (__shfl_sync(0xffffffffu, value, 0) != value)
        played::stop("lanes have different values of what is alike in a warp");
    return value;
}
inline void fence_async_proxy() {}

/* Elements of an operand of shared memory that lie behind each other, of a line swizzled by 128 bytes. */
template <int count>
void played_operand_row(uint16_t (&elements)[count], uint32_t plain) {
    for (int chunk = 0; chunk < count / 8; ++chunk, plain += 16)
        std::memcpy(&elements[chunk * 8], played::shared_pointer(plain ^ (plain >> 7 & 7) << 4, 16), 16);
}

/* 16 x columns of b: as swizzled_operand says, where a line is a column; as transposed_operand does, where it is a part of a row of b. */
template <float (*decode)(uint16_t), int columns>
void played_operand_b(float (&b)[16][columns], uint64_t operand) {
    const uint32_t address = static_cast<uint32_t>(operand), group_stride = static_cast<uint32_t>(operand >> 32 & 0xffff) * 16,
                   line_stride = static_cast<uint32_t>(operand >> 48) * 16;
    const auto of_group = [&](uint32_t line) { return address + line / 8 * group_stride + line % 8 * 128; };
    if (line_stride == 0) {
        for (uint32_t column = 0; column < columns; ++column) {
            uint16_t elements[16];
            played_operand_row(elements, of_group(column));
            for (int k = 0; k < 16; ++k)
                b[k][column] = decode(elements[k]);
        }
        return;
    }
    for (uint32_t k = 0; k < 16; ++k) {
        for (uint32_t line = 0; line < columns / 64; ++line) {
            uint16_t elements[64];
            played_operand_row(elements, of_group(k) + line * line_stride);
            for (int i = 0; i < 64; ++i)
                b[k][line * 64 + i] = decode(elements[i]);
        }
    }
}

/* a b, 16 columns at a time: as many sums as fit the registers of this processor. */
template <int columns>
void played_product(float (&product)[16][columns], const float (&a)[16][16], const float (&b)[16][columns]) {
    for (int row = 0; row < 16; ++row) {
        for (int first = 0; first < columns; first += 16) {
            float sums[16] = {};
            for (int k = 0; k < 16; ++k)
                for (int column = 0; column < 16; ++column)
                    sums[column] += a[row][k] * b[k][first + column];
            std::copy_n(sums, 16, &product[row][first]);
        }
    }
}

/* 16 rows of a, those of this warp: of its lanes' registers, or of 64 lines in shared memory, when the instruction runs. */
struct PlayedA {
    const uint32_t *words; /* or NULL */
    uint32_t address;
};

/* `distance`: from eight columns of d to the next ones. */
template <float (*decode)(uint16_t), int columns, int distance = 1>
void played_wgmma(float (&d)[columns][4], const PlayedA &a, uint64_t b, bool accumulates) {
    struct Call {
        float (*d)[4];
        PlayedA a;
        uint64_t b;
        bool accumulates;
    } own{d, a, b, accumulates};
    if (a.words == nullptr)
        own.a.address += threadIdx.x / 32 % 4 * 16 * 128;
    played::warp_meets("wgmma", played::all_lanes, &own, [](void *(&of_lanes)[played::lanes], uint32_t) {
        struct Issued {
            float a[16][16];
            float (*d[played::lanes])[4];
        };
        Issued issued;
        const Call &first = *static_cast<Call *>(of_lanes[0]);
        for (int lane = 0; lane < played::lanes; ++lane) {
            const Call &call = *static_cast<Call *>(of_lanes[lane]);
            if (call.b != first.b || call.a.address != first.a.address || call.accumulates != first.accumulates)
                played::stop("wgmma: lanes name different operands");
            if (call.a.words != nullptr)
                played_unpack_a<decode>(issued.a, *reinterpret_cast<const uint32_t(*)[4]>(call.a.words), lane);
            issued.d[lane] = call.d;
        }
        const bool a_is_shared = first.a.words == nullptr;
        played::warp_later([issued, a_is_shared, a = first.a.address, b = first.b, accumulates = first.accumulates]() mutable {
            float of_b[16][columns * 8], product[16][columns * 8];
            if (a_is_shared) {
                for (uint32_t row = 0; row < 16; ++row) {
                    uint16_t elements[16];
                    played_operand_row(elements, a + row * 128);
                    for (int k = 0; k < 16; ++k)
                        issued.a[row][k] = decode(elements[k]);
                }
            }
            played_operand_b<decode>(of_b, b);
            played_product(product, issued.a, of_b);
            for (int lane = 0; lane < played::lanes; ++lane) {
                for (int n = 0; n < columns; ++n) {
                    for (int i = 0; i < 4; ++i) {
                        float &sum = issued.d[lane][n * distance][i];
                        sum = (accumulates ? sum : 0.f) + product[lane / 4 + i / 2 * 8][n * 8 + lane % 4 * 2 + i % 2];
                    }
                }
            }
        });
    });
}

/* 32 bytes of a line of 64 that is swizzled by as many. */
inline void played_short_row(float (&elements)[32], uint32_t plain) {
    for (uint32_t chunk = 0; chunk < 32; chunk += 16) {
        uint8_t bytes[16];
        std::memcpy(bytes, played::shared_pointer((plain + chunk) ^ ((plain + chunk) >> 7 & 3) << 4, 16), 16);
        for (uint32_t i = 0; i < 16; ++i)
            elements[chunk + i] = played::float_from_e4m3(bytes[i]);
    }
}

template <int eights>
void played_wgmma_e4m3(float (&d)[eights][4], uint64_t a, uint64_t b, bool accumulates) {
    struct Call {
        float (*d)[4];
        uint32_t a, b;
        bool accumulates;
    } own{d, static_cast<uint32_t>(a) + threadIdx.x / 32 % 4 * 16 * 64, static_cast<uint32_t>(b), accumulates};
    played::warp_meets("wgmma", played::all_lanes, &own, [](void *(&of_lanes)[played::lanes], uint32_t) {
        struct Issued {
            float (*d[played::lanes])[4];
        } issued;
        const Call first = *static_cast<Call *>(of_lanes[0]);
        for (int lane = 0; lane < played::lanes; ++lane) {
            const Call &call = *static_cast<Call *>(of_lanes[lane]);
            if (call.b != first.b || call.a != first.a || call.accumulates != first.accumulates)
                played::stop("wgmma: lanes name different operands");
            issued.d[lane] = call.d;
        }
        played::warp_later([issued, first] {
            float of_a[16][32], of_b[eights * 8][32];
            for (uint32_t row = 0; row < 16; ++row)
                played_short_row(of_a[row], first.a + row * 64);
            for (uint32_t column = 0; column < eights * 8; ++column)
                played_short_row(of_b[column], first.b + column * 64);
            for (int lane = 0; lane < played::lanes; ++lane) {
                for (int n = 0; n < eights; ++n) {
                    for (int i = 0; i < 4; ++i) {
                        float &sum = issued.d[lane][n][i], product = 0.f;
                        for (int k = 0; k < 32; ++k)
                            product += of_a[lane / 4 + i / 2 * 8][k] * of_b[n * 8 + lane % 4 * 2 + i % 2][k];
                        sum = (first.accumulates ? sum : 0.f) + product;
                    }
                }
            }
        });
    });
}

inline void wgmma_m64n64k32_e4m3(float (&d)[8][4], uint64_t a, uint64_t b, bool accumulates) {
    played_wgmma_e4m3(d, a, b, accumulates);
}
inline void wgmma_m64n16k32_e4m3(float (&d)[2][4], uint64_t a, uint64_t b, bool accumulates) {
    played_wgmma_e4m3(d, a, b, accumulates);
}

inline void wgmma_m64n64k16_bf16(float (&d)[8][4], const uint32_t (&a)[4], uint64_t b, bool accumulates) {
    played_wgmma<played::float_from_bf16>(d, {a, 0}, b, accumulates);
}
inline void wgmma_m64n64k16_fp16(float (&d)[8][4], const uint32_t (&a)[4], uint64_t b, bool accumulates) {
    played_wgmma<played::float_from_fp16>(d, {a, 0}, b, accumulates);
}
inline void wgmma_m64n64k16_bf16(float (&d)[8][4], uint64_t a, uint64_t b, bool accumulates) {
    played_wgmma<played::float_from_bf16>(d, {nullptr, static_cast<uint32_t>(a)}, b, accumulates);
}
inline void wgmma_m64n64k16_fp16(float (&d)[8][4], uint64_t a, uint64_t b, bool accumulates) {
    played_wgmma<played::float_from_fp16>(d, {nullptr, static_cast<uint32_t>(a)}, b, accumulates);
}
template <int first, float (*decode)(uint16_t)>
void played_wgmma_n32(float (&d)[8][4], const uint32_t (&a)[4], uint64_t b, bool accumulates) {
    played_wgmma<decode, 4, 2>(*reinterpret_cast<float(*)[4][4]>(&d[first]), {a, 0}, b, accumulates);
}
template <int first>
void wgmma_m64n32k16_bf16(float (&d)[8][4], const uint32_t (&a)[4], uint64_t b, bool accumulates) {
    played_wgmma_n32<first, played::float_from_bf16>(d, a, b, accumulates);
}
template <int first>
void wgmma_m64n32k16_fp16(float (&d)[8][4], const uint32_t (&a)[4], uint64_t b, bool accumulates) {
    played_wgmma_n32<first, played::float_from_fp16>(d, a, b, accumulates);
}
inline void wgmma_m64n64k16_bf16_transposed(float (&d)[8][4], const uint32_t (&a)[4], uint64_t b) {
    played_wgmma<played::float_from_bf16>(d, {a, 0}, b, true);
}
inline void wgmma_m64n64k16_fp16_transposed(float (&d)[8][4], const uint32_t (&a)[4], uint64_t b) {
    played_wgmma<played::float_from_fp16>(d, {a, 0}, b, true);
}
inline void wgmma_m64n128k16_bf16(float (&d)[16][4], const uint32_t (&a)[4], uint64_t b) {
    played_wgmma<played::float_from_bf16>(d, {a, 0}, b, true);
}
inline void wgmma_m64n128k16_fp16(float (&d)[16][4], const uint32_t (&a)[4], uint64_t b) {
    played_wgmma<played::float_from_fp16>(d, {a, 0}, b, true);
}
inline void wgmma_m64n128k16_bf16(float (&d)[16][4], uint64_t a, uint64_t b) {
    played_wgmma<played::float_from_bf16>(d, {nullptr, static_cast<uint32_t>(a)}, b, true);
}
inline void wgmma_m64n128k16_fp16(float (&d)[16][4], uint64_t a, uint64_t b) {
    played_wgmma<played::float_from_fp16>(d, {nullptr, static_cast<uint32_t>(a)}, b, true);
}

} // namespace ptx
