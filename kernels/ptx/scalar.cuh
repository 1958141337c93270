/* SPDX-License-Identifier: Apache-2.0 */
/* scalar.cuh: per-thread arithmetic and conversions, PTX ISA 9.7.3 "ex2", "rcp" and 9.7.9.21 "cvt". sm_80 and newer. */
#pragma once

#include <cstdint>

namespace ptx {

/* 2^x, relative error 2^-22.5; 0 for -infinity. */
__device__ __forceinline__ float exp2_approx(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* 1 / x, relative error 2^-23; 0 for infinity. */
__device__ __forceinline__ float reciprocal_approx(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* Of radians from -8 pi to 8 pi, absolute error 2^-19. Stays where it stands: what waits for it would take registers. */
__device__ __forceinline__ float sine_approx(float x) {
    float y;
    asm volatile("sin.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ __forceinline__ float cosine_approx(float x) {
    float y;
    asm volatile("cos.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* The larger one; NaN if either is. */
__device__ __forceinline__ float max_or_nan(float a, float b) {
    float largest;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(largest) : "f"(a), "f"(b));
    return largest;
}

/* Two floats rounded to nearest even, `low` in the low half. */
__device__ __forceinline__ uint32_t pack_bf16(float low, float high) {
    uint32_t packed;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}

__device__ __forceinline__ uint32_t pack_fp16(float low, float high) {
    uint32_t packed;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}

__device__ __forceinline__ void unpack_fp16(float &low, float &high, uint32_t packed) {
    asm("{\n"
        ".reg .b16 low, high;\n"
        "mov.b32 {low, high}, %2;\n"
        "cvt.f32.f16 %0, low;\n"
        "cvt.f32.f16 %1, high;\n"
        "}"
        : "=f"(low), "=f"(high)
        : "r"(packed));
}

/*
 * threadIdx.x, read here and now: what is computed from it stays where it stands. The compiler would carry addresses of an
 * epilogue in registers through the main loop before it, and spill there.
 */
__device__ __forceinline__ int thread_index_here() {
    int index;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(index));
    return index;
}

/* The value is computed here, not where it is used: there it would be waited for. */
__device__ __forceinline__ void compute_here(float &value) { asm volatile("" : "+f"(value)); }
__device__ __forceinline__ void compute_here(uint32_t &value) { asm volatile("" : "+r"(value)); }
__device__ __forceinline__ void compute_here(int64_t &value) { asm volatile("" : "+l"(value)); }

} // namespace ptx
