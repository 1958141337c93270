/* SPDX-License-Identifier: Apache-2.0 */
/* element.cuh: the 16-bit element types of the tensor cores: packing, multiplying. */
#pragma once

#include "abi.h"
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
};

template <>
struct Element<KERNEL_DTYPE_FP16> {
    static __device__ __forceinline__ uint32_t pack(float low, float high) { return ptx::pack_fp16(low, high); }
    static __device__ __forceinline__ void mma(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
        ptx::mma_m16n8k16_fp16(c, a, b);
    }
};

} // namespace tile
