/* SPDX-License-Identifier: Apache-2.0 */
/* convert.cuh: between FP8 and wider types, PTX ISA 9.7.9.21 "cvt", and arithmetic on pairs of fp16. sm_89 and newer. */
#pragma once

#include <cstdint>

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 890
#error "conversions of e4m3 need sm_89"
#endif

namespace ptx {

/* Two e4m3, the lower or upper half of `packed`, as two fp16: exact, NaN stays NaN. */
__device__ __forceinline__ uint32_t fp16x2_from_e4m3x2_low(uint32_t packed) {
    uint32_t pair;
    asm("{\n"
        ".reg .b16 low, high;\n"
        "mov.b32 {low, high}, %1;\n"
        "cvt.rn.f16x2.e4m3x2 %0, low;\n"
        "}"
        : "=r"(pair)
        : "r"(packed));
    return pair;
}
__device__ __forceinline__ uint32_t fp16x2_from_e4m3x2_high(uint32_t packed) {
    uint32_t pair;
    asm("{\n"
        ".reg .b16 low, high;\n"
        "mov.b32 {low, high}, %1;\n"
        "cvt.rn.f16x2.e4m3x2 %0, high;\n"
        "}"
        : "=r"(pair)
        : "r"(packed));
    return pair;
}

/* Rounded to nearest even, saturated at 448, NaN stays NaN; in the low 16 bits, `low` in the lowest 8. */
__device__ __forceinline__ uint32_t pack_e4m3(float low, float high) {
    uint16_t packed;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(packed) : "f"(high), "f"(low));
    return packed;
}

__device__ __forceinline__ uint32_t multiply_fp16x2(uint32_t a, uint32_t b) {
    uint32_t product;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
    return product;
}

/* Of bf16; subnormal numbers are kept. */
__device__ __forceinline__ uint32_t multiply_bf16x2(uint32_t a, uint32_t b) {
    uint32_t product;
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
    return product;
}

/* Of both halves: the larger of `a`, which is not negative, and the magnitude of `b`; a NaN counts as nothing. */
__device__ __forceinline__ uint32_t larger_magnitude_bf16x2(uint32_t a, uint32_t b) {
    uint32_t larger;
    asm("{\n"
        ".reg .b32 magnitude;\n"
        "abs.bf16x2 magnitude, %2;\n"
        "max.bf16x2 %0, %1, magnitude;\n"
        "}"
        : "=r"(larger)
        : "r"(a), "r"(b));
    return larger;
}

/* a * b + c of both halves, rounded once. */
__device__ __forceinline__ uint32_t multiply_add_fp16x2(uint32_t a, uint32_t b, uint32_t c) {
    uint32_t sum;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(b), "r"(c));
    return sum;
}
/* Part of the instruction that uses it. */
__device__ __forceinline__ uint32_t negate_fp16x2(uint32_t a) {
    uint32_t negated;
    asm("neg.f16x2 %0, %1;" : "=r"(negated) : "r"(a));
    return negated;
}

/* A half of a pair, the upper or the lower one, as both: part of the instruction that uses it. */
__device__ __forceinline__ uint32_t both_halves(uint32_t pair, bool upper) {
    uint32_t both;
    if (upper)
        asm("{\n"
            ".reg .b16 low, high;\n"
            "mov.b32 {low, high}, %1;\n"
            "mov.b32 %0, {high, high};\n"
            "}"
            : "=r"(both)
            : "r"(pair));
    else
        asm("{\n"
            ".reg .b16 low, high;\n"
            "mov.b32 {low, high}, %1;\n"
            "mov.b32 %0, {low, low};\n"
            "}"
            : "=r"(both)
            : "r"(pair));
    return both;
}

/* The lower half of a pair. */
__device__ __forceinline__ float float_from_fp16_low(uint32_t pair) {
    float value;
    asm("{\n"
        ".reg .b16 low, high;\n"
        "mov.b32 {low, high}, %1;\n"
        "cvt.f32.f16 %0, low;\n"
        "}"
        : "=f"(value)
        : "r"(pair));
    return value;
}

/* Bits of a where the mask has ones, of b where it has zeros. One instruction, which the compiler would take apart again. */
__device__ __forceinline__ uint32_t select_bits(uint32_t a, uint32_t b, uint32_t mask) {
    uint32_t selected;
    asm("lop3.b32 %0, %1, %2, %3, 0xe4;" : "=r"(selected) : "r"(a), "r"(b), "r"(mask));
    return selected;
}

} // namespace ptx
