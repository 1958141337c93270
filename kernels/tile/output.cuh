/* SPDX-License-Identifier: Apache-2.0 */
/* output.cuh: float results to the dtype of out. It is a property of the launch, not of the variant: one predictable branch. */
#pragma once

#include <cstdint>

#include "abi.h"
#include "ptx/scalar.cuh"

namespace tile {

__device__ __forceinline__ uint32_t pack_output(int dtype, float low, float high) {
    return dtype == KERNEL_DTYPE_FP16 ? ptx::pack_fp16(low, high) : ptx::pack_bf16(low, high);
}

/* Neighbouring columns of one row, from `element` of out on. */
template <int width>
__device__ __forceinline__ void store_output(const output_params &output, int64_t element, const float (&value)[width],
                                             float scale) {
    uint16_t *out = static_cast<uint16_t *>(output.rows) + element;
    if constexpr (width == 1) {
        *out = static_cast<uint16_t>(pack_output(output.dtype, value[0] * scale, 0.f));
    } else {
#pragma unroll
        for (int j = 0; j < width; j += 2)
            reinterpret_cast<uint32_t *>(out)[j / 2] = pack_output(output.dtype, value[j] * scale, value[j + 1] * scale);
    }
}

} // namespace tile
