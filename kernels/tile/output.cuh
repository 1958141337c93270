/* SPDX-License-Identifier: Apache-2.0 */
/* output.cuh: float results to the dtype of out. It is a property of the launch, not of the variant: predictable branches. */
#pragma once

#include <cmath>
#include <cstdint>

#include "abi.h"
#include "ptx/convert.cuh"
#include "ptx/scalar.cuh"
#include "tile/nvfp4_codes.cuh"
#include "tile/row_map.cuh"

namespace tile {

constexpr int block_dims = 16; /* of NVFP4 that share a scale */

__device__ __forceinline__ uint32_t pack_output(int dtype, float low, float high) {
    return dtype == KERNEL_DTYPE_FP16 ? ptx::pack_fp16(low, high) : ptx::pack_bf16(low, high);
}

/* Where the 128x4 swizzle has a scale: tiles of 128 rows and 4 columns, 512 bytes each. */
__device__ __forceinline__ int64_t swizzled_scale(int64_t row, int column, int columns) {
    const int64_t tile = row / 128 * (columns / 4) + column / 4;
    return tile * 512 + row % 32 * 16 + row % 128 / 32 * 4 + column % 4;
}

/* `width` neighbouring columns of a row; lanes that hold the rest of a block, every lane_stride-th, call together. */
template <int width, int lane_stride = 1, class Rows>
__device__ __forceinline__ void store_nvfp4(const output_params &output, const Rows &rows, int row, int column, int head_dim,
                                            const float (&value)[width]) {
    constexpr uint32_t lanes = block_dims / width;
    constexpr uint32_t reach = lanes * lane_stride; /* from the first lane of a block to the first of the next */
    constexpr uint32_t first_block = (UINT32_MAX >> (32 - reach)) / ((1u << lane_stride) - 1u);
    const uint32_t lane = threadIdx.x % 32, mask = first_block << (lane / reach * reach + lane % lane_stride);
    float largest = 0.f;
#pragma unroll
    for (int j = 0; j < width; ++j)
        largest = ptx::max_or_nan(largest, fabsf(value[j]));
#pragma unroll
    for (uint32_t distance = 1; distance < lanes; distance *= 2)
        largest = ptx::max_or_nan(largest, __shfl_xor_sync(mask, largest, static_cast<int>(distance * lane_stride)));

    const float scaled = output.scale_factor * largest;
    const float bounded = isnan(scaled) ? scaled : copysignf(fminf(fabsf(scaled), largest_dividend), scaled);
    const uint32_t scale_code = ptx::pack_e4m3(divide(bounded, 6.f, 1.f / 6.f), 0.f) & 0xffu;
    const Nvfp4Codes code(output.scale_factor, ptx::float_from_fp16_low(ptx::fp16x2_from_e4m3x2_low(scale_code)));
    constexpr int word_codes = width < 4 ? width : 4;
    uint32_t codes[width / word_codes] = {};
#pragma unroll
    for (int j = 0; j < width; ++j)
        codes[j / word_codes] |= code.of(value[j]) << (j % word_codes * 4);

    uint8_t *const out = static_cast<uint8_t *>(output.rows) + (rows.output_offset(output, row) + column) / 2;
    if constexpr (width == block_dims) {
        *reinterpret_cast<uint2 *>(out) = make_uint2(codes[0] | codes[1] << 16, codes[2] | codes[3] << 16);
    } else if constexpr (width >= 4) {
#pragma unroll
        for (int word = 0; word < width / 4; ++word)
            reinterpret_cast<uint16_t *>(out)[word] = static_cast<uint16_t>(codes[word]);
    } else if constexpr (width == 2) {
        *out = static_cast<uint8_t>(codes[0]);
    } else {
        codes[0] |= __shfl_xor_sync(mask, codes[0], 1) << 4;
        if (column % 2 == 0)
            *out = static_cast<uint8_t>(codes[0]);
    }
    if (column % block_dims != 0)
        return;
    const int columns = (output.scale_columns + 3) & -4, scale_column = (rows.head(row) * head_dim + column) / block_dims;
    const int64_t scale_row = static_cast<int64_t>(rows.token(row)) + output.first_scale_row;
    output.scales[swizzled_scale(scale_row, scale_column, columns)] = static_cast<uint8_t>(scale_code);
    for (int padding = scale_column + 1; padding >= output.scale_columns && padding < columns; ++padding)
        output.scales[swizzled_scale(scale_row, padding, columns)] = 0;
}

/* Neighbouring columns of one row of out, from `element` of it on. `rows`: a RowMap, or one like it. `dtypes`: those that may be asked for, a bit each. */
template <uint32_t dtypes, int width, class Rows>
__device__ __forceinline__ void store_output(const output_params &output, const Rows &rows, int row, int column, int head_dim,
                                             int64_t element, const float (&value)[width]) {
    if ((dtypes >> KERNEL_DTYPE_E4M3) == 0 || output.dtype <= KERNEL_DTYPE_FP16) {
        uint16_t *const out = static_cast<uint16_t *>(output.rows) + element;
        if constexpr (width == 1) {
            *out = static_cast<uint16_t>(pack_output(output.dtype, value[0], 0.f));
        } else {
#pragma unroll
            for (int j = 0; j < width; j += 2)
                reinterpret_cast<uint32_t *>(out)[j / 2] = pack_output(output.dtype, value[j], value[j + 1]);
        }
    } else if (output.dtype == KERNEL_DTYPE_E4M3) {
        uint8_t *const out = static_cast<uint8_t *>(output.rows) + element;
        if constexpr (width == 1) {
            *out = static_cast<uint8_t>(ptx::pack_e4m3(value[0], 0.f));
        } else {
#pragma unroll
            for (int j = 0; j < width; j += 2)
                reinterpret_cast<uint16_t *>(out)[j / 2] = static_cast<uint16_t>(ptx::pack_e4m3(value[j], value[j + 1]));
        }
    } else if constexpr ((dtypes >> KERNEL_DTYPE_NVFP4 & 1u) != 0) {
        store_nvfp4(output, rows, row, column, head_dim, value);
    }
}

/*
 * The same of a block's columns, e4m3 or NVFP4, with one store: an SM takes some 5 clocks for every line that an instruction of a warp touches, so eight
 * stores of two bytes took 64 rows of MLA 11 us longer.
 */
template <uint32_t dtypes, class Rows>
__device__ __forceinline__ void store_narrow_block(const output_params &output, const Rows &rows, int row, int column,
                                                   int head_dim, int64_t element, const float (&value)[block_dims]) {
    if (output.dtype == KERNEL_DTYPE_E4M3) {
        uint32_t words[block_dims / 4];
#pragma unroll
        for (int j = 0; j < block_dims; j += 4)
            words[j / 4] = ptx::pack_e4m3(value[j], value[j + 1]) | ptx::pack_e4m3(value[j + 2], value[j + 3]) << 16;
        *reinterpret_cast<uint4 *>(static_cast<uint8_t *>(output.rows) + element) =
            make_uint4(words[0], words[1], words[2], words[3]);
    } else if constexpr ((dtypes >> KERNEL_DTYPE_NVFP4 & 1u) != 0) {
        store_nvfp4(output, rows, row, column, head_dim, value);
    }
}

} // namespace tile
