/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_format.cuh: what a row of K or V looks like in memory and in a tile, and how it becomes operands of the matrix
 * instructions. One file per format specialises KvFormat<dtype, head_dim>:
 *
 *     matrix_dtype            what the tensor cores compute with: KERNEL_DTYPE_BF16 or _FP16
 *     row_bytes, scale_bytes  of one token and KV head
 *     lines                   128-byte lines of a row
 *     steps                   matrix instructions over head_dim, 16 dims each
 *     k_address, v_address    where a lane starts to read a fragment of 16 tokens
 *     k_operand, v_operand    the A operand of one step: [16 tokens][16 dims], and [16 dims][16 tokens]
 *     query_dim, output_dim   the order in which a step deals out the dims to registers and lanes
 *
 * A tile is a sequence of boxes as the copy engine leaves them, each [lines][box_tokens][128 bytes], the 16-byte chunks of a line
 * permuted by its token % 8 (128-byte swizzle), so that ldmatrix meets no bank conflict. box_tokens is a power of two of at least
 * 16 and known at run time only, hence the two offsets that a warp computes once.
 */
#pragma once

#include <cstdint>

namespace tile {

template <int dtype, int head_dim>
struct KvFormat;

constexpr int line_bytes = 128;     /* one line of the swizzle */
constexpr int fragment_tokens = 16; /* tokens of one matrix instruction; never straddle a box */

/* The 16-token fragments of one warp within every tile. */
template <class Format, int fragments>
struct TokenFragments {
    uint32_t offset[fragments]; /* of each fragment's first line, in bytes from the start of the tile */
    uint32_t line_stride_bytes; /* from a token's first line to its next one */

    __device__ __forceinline__ TokenFragments(int first_token, int box_tokens) : line_stride_bytes(box_tokens * line_bytes) {
#pragma unroll
        for (int fragment = 0; fragment < fragments; ++fragment) {
            const int token = first_token + fragment * fragment_tokens;
            const int in_box = token & (box_tokens - 1);
            offset[fragment] = (token - in_box) * Format::lines * line_bytes + in_box * line_bytes;
        }
    }
};

} // namespace tile

#include "tile/kv_format_16bit.cuh"
