/* SPDX-License-Identifier: Apache-2.0 */
/*
 * box_warpgroup.cuh: row_warpgroup.cuh on tiles of boxes, as TileRows has them: K and V of batch decode, of 16-bit elements, as they come or
 * converted (converted_box.cuh).
 *
 * A matrix instruction finds groups of 8 lines one stride apart, and boxes of few tokens are not that. So a tile is two halves of four
 * eights of tokens, of which either half is:
 *
 *     boxes of 16 tokens   halves: the first eights of the boxes, and the second ones
 *     larger ones          halves: tokens 0 to 31, and 32 to 63
 *
 * An instruction of K takes a half: its columns are eights 0 to 3 of that. One of V takes an eight of either half, by as many steps as the scores
 * of both have columns: weights are its operand as the scores left them.
 */
#pragma once

#include <cstdint>

#include "abi.h"
#include "ptx/wgmma.cuh"
#include "tile/query.cuh"
#include "tile/row_warpgroup.cuh"

namespace tile {

/* Where the tokens of a tile lie. */
template <class Format>
struct BoxOperands {
    using Rows = typename Format::Rows;
    static constexpr int line_bytes = 128, lines = Rows::lines, line_steps = line_bytes / 32, halves = 2;
    static_assert(Rows::line_bytes == line_bytes && Format::row_bytes == Format::steps * 32, "rows are operands as they lie");
    static constexpr int eight_bytes = 8 * line_bytes, half_tokens = group_tokens / halves;

    const uint32_t box_tokens, line_stride_bytes, eight_stride_bytes, half_stride_bytes;
    const bool halves_boxes; /* the halves of a tile are those of its boxes */

    /* `box_tokens`: a power of two from 16 to the tile's. */
    explicit __device__ __forceinline__ BoxOperands(uint32_t box_tokens)
        : box_tokens(box_tokens), line_stride_bytes(box_tokens * line_bytes),
          eight_stride_bytes(in_halves(box_tokens) ? fragment_tokens * Format::row_bytes : eight_bytes),
          half_stride_bytes(in_halves(box_tokens)       ? eight_bytes
                            : box_tokens == half_tokens ? half_tokens * Format::row_bytes
                                                        : half_tokens * line_bytes),
          halves_boxes(in_halves(box_tokens)) {}

    /* Of the eight columns n of the scores the first token. */
    __device__ __forceinline__ int first_token(int n) const {
        const int eight = n / halves, half = n % halves;
        return halves_boxes ? eight * fragment_tokens + half * 8 : half * half_tokens + eight * 8;
    }
    /* K of a half, its first 16 dims; and from there those of a later step. */
    __device__ __forceinline__ uint64_t first_keys(uint32_t tile, int half) const {
        return ptx::operand_computed_here(ptx::swizzled_operand(tile + half * half_stride_bytes, eight_stride_bytes));
    }
    __device__ __forceinline__ uint64_t keys(uint64_t first, int step) const {
        return ptx::operand_behind(first, step / line_steps * line_stride_bytes + step % line_steps * 32);
    }
    /* V of the first eight of either half, all dims; and from there of a later one. */
    __device__ __forceinline__ uint64_t first_values(uint32_t tile) const {
        return ptx::operand_computed_here(ptx::transposed_operand(tile, line_stride_bytes, half_stride_bytes));
    }
    __device__ __forceinline__ uint64_t values(uint64_t first, int eight) const {
        return ptx::operand_behind(first, eight * eight_stride_bytes);
    }

    /*
     * Rows of V that no row sees become zero: a weight of 0 does not help against NaN. By the 128 threads of a warpgroup, which then meet; `unseen`:
     * a bit for each token of the tile.
     */
    __device__ __forceinline__ void clear_unseen_values(uint32_t tile, uint64_t unseen, int thread) const {
        const uint32_t token = thread / 2, in_box = token & (box_tokens - 1);
        if ((unseen >> token & 1) == 0)
            return;
        const uint32_t row = tile + (token - in_box) * Format::row_bytes + in_box * line_bytes;
#pragma unroll
        for (int line = 0; line < lines; ++line) {
#pragma unroll
            for (int chunk = 0; chunk < line_bytes / 16; chunk += 2)
                ptx::store_shared_zeros(row + line * line_stride_bytes + (chunk + thread % 2) * 16);
        }
    }

  private:
    static __device__ __forceinline__ bool in_halves(uint32_t box_tokens) {
        return lines > 1 && box_tokens == fragment_tokens; /* of one line a tile is alike whatever its boxes are */
    }
};

/* A warp's 16 rows of Q as A operands, which stay in registers. */
template <class Format>
struct RowQuery {
    uint32_t operand[Format::steps][4];

    /* Of rows as QueryFragment::load_raw has them; scales: of the lane's rows, what makes logits of their products, which is `scale` beside what they
     * were multiplied by. */
    __device__ __forceinline__ void prepare(QueryFragment<Format, lane_rows> &rows, const query_params &params, float scale,
                                            float (&scales)[lane_rows], int lane) {
        rows.prepare(params, lane);
#pragma unroll
        for (int step = 0; step < Format::steps; ++step) {
#pragma unroll
            for (int i = 0; i < 4; ++i)
                operand[step][i] = rows.operand[step][i % 2][i / 2];
        }
#pragma unroll
        for (int i = 0; i < lane_rows; ++i)
            scales[i] = Format::converts_query ? scale * (of_own_row(rows.factor[i], lane) * Format::k_scale) : scale;
    }

  private:
    /* Of eight rows lane l has what belongs to rows 2 (l%4) and the next, and wants row l/4. */
    static __device__ __forceinline__ float of_own_row(const float (&factors)[2], int lane) {
        const float even = __shfl_sync(full_warp, factors[0], lane / 8), odd = __shfl_sync(full_warp, factors[1], lane / 8);
        return lane / 4 % 2 == 0 ? even : odd;
    }
};

/* Begins scores = Q K^T. */
template <class Format>
__device__ __forceinline__ void begin_row_qk(RowScores &scores, const RowQuery<Format> &query, uint32_t k_tile,
                                             const BoxOperands<Format> &boxes) {
    const uint64_t first = boxes.first_keys(k_tile, 0), second = boxes.first_keys(k_tile, 1);
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < Format::steps; ++step) {
        if constexpr (Format::matrix_dtype == KERNEL_DTYPE_BF16) {
            ptx::wgmma_m64n32k16_bf16<0>(scores.value, query.operand[step], boxes.keys(first, step), step > 0);
            ptx::wgmma_m64n32k16_bf16<1>(scores.value, query.operand[step], boxes.keys(second, step), step > 0);
        } else {
            ptx::wgmma_m64n32k16_fp16<0>(scores.value, query.operand[step], boxes.keys(first, step), step > 0);
            ptx::wgmma_m64n32k16_fp16<1>(scores.value, query.operand[step], boxes.keys(second, step), step > 0);
        }
    }
    ptx::wgmma_commit();
}

/* Begins output += p V. */
template <class Format, int dims>
__device__ __forceinline__ void begin_row_pv(RowOutput<dims> &output, const RowSquare &weights, uint32_t v_tile,
                                             const BoxOperands<Format> &boxes) {
    const uint64_t first = boxes.first_values(v_tile);
    ptx::wgmma_fence();
#pragma unroll
    for (int eight = 0; eight < group_token_fragments; ++eight)
        row_output_mma<Format::matrix_dtype>(output.value, weights.operand[eight], boxes.values(first, eight));
    ptx::wgmma_commit();
}

} // namespace tile
