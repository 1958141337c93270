/* SPDX-License-Identifier: Apache-2.0 */
/* kv_format_16bit.cuh: bf16 and fp16 rows are operands as they lie: ldmatrix reads them, no arithmetic. Of kv_format.cuh. */
#pragma once

#include <cstdint>

#include "abi.h"
#include "ptx/matrix.cuh"
#include "tile/kv_format.cuh"

namespace tile {

template <int dtype, int head_dim>
struct KvFormat16Bit {
    static constexpr int matrix_dtype = dtype;
    static constexpr int row_bytes = head_dim * 2, scale_bytes = 0;
    static constexpr int lines = row_bytes / line_bytes;
    static constexpr int steps = head_dim / 16;
    static_assert(row_bytes % line_bytes == 0, "rows are whole lines");

    /* Of one step a lane reads 16 bytes, 8 dims, of one token: chunk 2 * step + odd of its row. */
    static __device__ __forceinline__ uint32_t k_address(uint32_t fragment, int lane) {
        return first_chunk(fragment, lane & 15, lane >> 4);
    }
    static __device__ __forceinline__ void k_operand(uint32_t (&keys)[4], uint32_t address, uint32_t line_stride_bytes,
                                                     int step) {
        ptx::ldmatrix_x4(keys, chunk(address, line_stride_bytes, step));
    }

    static __device__ __forceinline__ uint32_t v_address(uint32_t fragment, int lane) {
        return first_chunk(fragment, (lane & 7) + ((lane >> 4) & 1) * 8, (lane >> 3) & 1);
    }
    static __device__ __forceinline__ void v_operand(uint32_t (&values)[4], uint32_t address, uint32_t line_stride_bytes,
                                                     int step) {
        ptx::ldmatrix_x4_trans(values, chunk(address, line_stride_bytes, step));
    }

    /* The first of two neighbouring dims in register `half` of the B operand of qk. */
    static __device__ __forceinline__ constexpr int query_dim(int step, int half, int lane) {
        return step * 16 + half * 8 + (lane & 3) * 2;
    }
    /* The dim of an accumulator's registers 2 * half and 2 * half + 1. */
    static __device__ __forceinline__ constexpr int output_dim(int step, int half, int lane) {
        return step * 16 + half * 8 + (lane >> 2);
    }

  private:
    /* A lane's first address once, then one exclusive or per step, because lines are aligned to 128 bytes. */
    static __device__ __forceinline__ uint32_t first_chunk(uint32_t fragment, int token, int odd) {
        return fragment + token * line_bytes + ((odd ^ (token & 7)) << 4);
    }
    static __device__ __forceinline__ uint32_t chunk(uint32_t address, uint32_t line_stride_bytes, int step) {
        return (address + (step >> 2) * line_stride_bytes) ^ ((step & 3) << 5);
    }
};

template <int head_dim>
struct KvFormat<KERNEL_DTYPE_BF16, head_dim> : KvFormat16Bit<KERNEL_DTYPE_BF16, head_dim> {};
template <int head_dim>
struct KvFormat<KERNEL_DTYPE_FP16, head_dim> : KvFormat16Bit<KERNEL_DTYPE_FP16, head_dim> {};

} // namespace tile
