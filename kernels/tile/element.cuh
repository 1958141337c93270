/* SPDX-License-Identifier: Apache-2.0 */
/* element.cuh: the 16-bit element types of the tensor cores: packing, multiplying, turning pairs of them. */
#pragma once

#include "abi.h"
#include "ptx/convert.cuh"
#include "ptx/matrix.cuh"
#include "ptx/scalar.cuh"

namespace tile {

template <int dtype>
struct Element;

template <>
struct Element<KERNEL_DTYPE_BF16> {
    static __device__ __forceinline__ uint32_t pack(float low, float high) { return ptx::pack_bf16(low, high); }
    static __device__ __forceinline__ void mma(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
        ptx::mma_m16n8k16_bf16(c, a, b);
    }
    /* Of two dims, in f32: products of bf16 would lose as much again as the result does. It multiplies by 1. */
    struct alignas(16) Turn {
        float cosine[2], sine[2];

        __device__ __forceinline__ Turn(const float (&cosine)[2], const float (&sine)[2], float)
            : cosine{cosine[0], cosine[1]}, sine{sine[0], sine[1]} {}
    };
    /* (x, y), of two dims each: x cos - y sin, y cos + x sin. */
    static __device__ __forceinline__ void turn(uint32_t &x, uint32_t &y, const Turn &by) {
        const float x0 = low(x), x1 = high(x), y0 = low(y), y1 = high(y);
        x = pack(fmaf(x0, by.cosine[0], -y0 * by.sine[0]), fmaf(x1, by.cosine[1], -y1 * by.sine[1]));
        y = pack(fmaf(y0, by.cosine[0], x0 * by.sine[0]), fmaf(y1, by.cosine[1], x1 * by.sine[1]));
    }

  private:
    static __device__ __forceinline__ float low(uint32_t pair) { return __uint_as_float(pair << 16); }
    static __device__ __forceinline__ float high(uint32_t pair) { return __uint_as_float(pair & 0xffff0000u); }
};

template <>
struct Element<KERNEL_DTYPE_FP16> {
    static __device__ __forceinline__ uint32_t pack(float low, float high) { return ptx::pack_fp16(low, high); }
    static __device__ __forceinline__ void mma(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
        ptx::mma_m16n8k16_fp16(c, a, b);
    }
    /* Likewise, and multiplies by a power of two; in fp16: half the instructions, and three roundings more (compare.c). */
    struct alignas(8) Turn {
        uint32_t cosines, sines;

        __device__ __forceinline__ Turn(const float (&cosine)[2], const float (&sine)[2], float scale)
            : cosines(pack(cosine[0], cosine[1])), sines(pack(sine[0], sine[1])) {
            if (scale != 1.f) {
                cosines = ptx::multiply_fp16x2(cosines, pack(scale, scale));
                sines = ptx::multiply_fp16x2(sines, pack(scale, scale));
            }
        }
    };
    static __device__ __forceinline__ void turn(uint32_t &x, uint32_t &y, const Turn &by) {
        const uint32_t x_sine = ptx::multiply_fp16x2(x, by.sines), y_sine = ptx::multiply_fp16x2(y, by.sines);
        x = ptx::multiply_add_fp16x2(x, by.cosines, ptx::negate_fp16x2(y_sine));
        y = ptx::multiply_add_fp16x2(y, by.cosines, x_sine);
    }
};

} // namespace tile
