/* SPDX-License-Identifier: Apache-2.0 */
/* kv_format_16bit.cuh: bf16 and fp16 rows are operands as they lie: ldmatrix reads them, no arithmetic. Of kv_format.cuh. */
#pragma once

#include <cstdint>

#include "abi.h"
#include "ptx/matrix.cuh"
#include "tile/kv_format.cuh"

namespace tile {

/* A pair of chunks is one step. */
template <int dtype, int head_dim, class Rows_ = TileRows<head_dim * 2>>
struct KvFormat16Bit {
    static constexpr int matrix_dtype = dtype;
    using Rows = Rows_;
    static constexpr int row_bytes = Rows::row_bytes, scale_bytes = 0, copied_element_bytes = 2;
    static constexpr int steps = head_dim / 16, pair_steps = 1;
    using Scales = NoScales;
    static constexpr float k_scale = 1.f, v_scale = 1.f;
    static constexpr int largest_value = 0;

    struct KeyReader {
        const uint32_t address, line_stride_bytes;
        template <class Tokens>
        __device__ __forceinline__ KeyReader(uint32_t tile, const Tokens &tokens, int fragment, int lane, int first_step = 0)
            : address(Rows::pair(Rows::first_pair(tile + tokens.offset[fragment], lane & 15, lane >> 4), tokens.line_stride_bytes,
                                 first_step)),
              line_stride_bytes(tokens.line_stride_bytes) {}
        __device__ __forceinline__ void operand(uint32_t (&keys)[4], int step, int first = 0) {
            ptx::ldmatrix_x4(keys, Rows::pair(address, line_stride_bytes, first + step));
        }
    };

    /* The eight dims of a chunk, and of the chunk half a row further. */
    static constexpr int rotated_steps = 1, rotated_neighbour = 1;
    static __device__ __forceinline__ constexpr int rotated_dim(int step, int lane) { return step * 8 + (lane & 3) * 2; }
    struct RotatedKeyReader {
        const uint32_t fragment, line_stride_bytes, first_byte;
        const int token;
        uint32_t chunks[4];
        template <class Tokens>
        __device__ __forceinline__ RotatedKeyReader(uint32_t tile, const Tokens &tokens, int fragment, int half_dim, int lane)
            : fragment(tile + tokens.offset[fragment]), line_stride_bytes(tokens.line_stride_bytes),
              first_byte(lane < 16 ? 0 : half_dim * 2), token(lane & 15) {}
        __device__ __forceinline__ void load(int chunk) {
            ptx::ldmatrix_x4(chunks, Rows::byte(fragment, line_stride_bytes, token, first_byte + chunk * 16));
        }
        __device__ __forceinline__ void operand(uint32_t (&keys)[4], int) const {
#pragma unroll
            for (int i = 0; i < 4; ++i)
                keys[i] = chunks[i];
        }
    };
    /* A rotated fp16 may be larger than any fp16 is: halved it is not, of K nor of the query. */
    static constexpr float rotation_scale = dtype == KERNEL_DTYPE_FP16 ? 0.5f : 1.f;
    static constexpr float rotated_scale = 1.f / (rotation_scale * rotation_scale);

    struct ValueReader {
        const uint32_t address, line_stride_bytes;
        template <class Tokens>
        __device__ __forceinline__ ValueReader(uint32_t tile, const Tokens &tokens, int fragment, int lane, int first_step = 0)
            : address(Rows::pair(
                  Rows::first_pair(tile + tokens.offset[fragment], (lane & 7) + ((lane >> 4) & 1) * 8, (lane >> 3) & 1),
                  tokens.line_stride_bytes, first_step)),
              line_stride_bytes(tokens.line_stride_bytes) {}
        __device__ __forceinline__ void operand(uint32_t (&values)[4], int step, int first = 0) { load(values, first + step); }
        /* In two, as of formats that are converted. */
        __device__ __forceinline__ void load(uint32_t (&chunks)[4], int pair) const {
            ptx::ldmatrix_x4_trans(chunks, Rows::pair(address, line_stride_bytes, pair));
        }
        static __device__ __forceinline__ void convert(uint32_t (&values)[4], const uint32_t (&chunks)[4], int) {
#pragma unroll
            for (int i = 0; i < 4; ++i)
                values[i] = chunks[i];
        }
    };

    /* Queries are operands as they lie, too: two neighbouring dims a register, this one the first. */
    static constexpr bool converts_query = false;
    static __device__ __forceinline__ constexpr int query_dim(int step, int half, int lane) {
        return step * 16 + half * 8 + (lane & 3) * 2;
    }
    static __device__ __forceinline__ constexpr int output_dim(int step, int half, int lane) {
        return step * 16 + half * 8 + (lane >> 2);
    }
};

template <int head_dim>
struct KvFormat<KERNEL_DTYPE_BF16, head_dim> : KvFormat16Bit<KERNEL_DTYPE_BF16, head_dim> {};
template <int head_dim>
struct KvFormat<KERNEL_DTYPE_FP16, head_dim> : KvFormat16Bit<KERNEL_DTYPE_FP16, head_dim> {};

} // namespace tile
