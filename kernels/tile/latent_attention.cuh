/* SPDX-License-Identifier: Apache-2.0 */
/*
 * latent_attention.cuh: what the warps of a CTA compute together on a tile of MLA's KV, with swapped operands as in attention.cuh.
 * A row of output has 512 elements, which no warp could hold for all its tokens, so each step divides the work anew, and scores and
 * weights go through shared memory in between:
 *
 *     qk          a warp takes some tokens and a part of the 576 dims: scores^T [tokens, rows] of that part alone
 *     weights     a warp takes some rows: it adds the parts up, and has all tokens of the tile for a row's maximum and sum
 *     pv          a warp takes some of the 512 dims: output^T [dims, rows] += V^T [dims, tokens] p^T of all tokens
 *
 * V is read out of the tile that K was read from.
 */
#pragma once

#include <cmath>
#include <cstdint>

#include "ptx/matrix.cuh"
#include "ptx/memory.cuh"
#include "ptx/scalar.cuh"
#include "tile/attention.cuh"
#include "tile/lanes.cuh"
#include "tile/latent_query.cuh"
#include "tile/score.cuh"
#include "tile/softmax.cuh"
#include "tile/unit_rows.cuh"

namespace tile {

/* The scores of a tile, in parts. Lies in shared memory. */
template <int row_tile, int tile_tokens, int groups>
struct ScoreParts {
    static constexpr int pitch = tile_tokens + 4; /* 4 more: the lanes of a fragment then fall into different banks */
    float part[groups][row_tile][pitch];

    template <int token_fragments, int row_fragments>
    __device__ __forceinline__ void store(const ScoreFragment<token_fragments, row_fragments> &scores, int group, int first_token,
                                          int lane) {
#pragma unroll
        for (int n = 0; n < row_fragments; ++n) {
#pragma unroll
            for (int odd = 0; odd < 2; ++odd) {
                float *const to = part[group][row_of(0, n, odd, lane)] + first_token + (lane >> 2);
#pragma unroll
                for (int fragment = 0; fragment < token_fragments; ++fragment) {
                    to[fragment * fragment_tokens] = scores.value[fragment][n][odd];
                    to[fragment * fragment_tokens + 8] = scores.value[fragment][n][2 + odd];
                }
            }
        }
    }

    /* Of neighbouring tokens of a row, all parts together. */
    template <int count>
    __device__ __forceinline__ void sum(int row, int first_token, float (&scores)[count]) const {
#pragma unroll
        for (int i = 0; i < count; ++i)
            scores[i] = part[0][row][first_token + i];
#pragma unroll
        for (int group = 1; group < groups; ++group) {
#pragma unroll
            for (int i = 0; i < count; ++i)
                scores[i] += part[group][row][first_token + i];
        }
    }
};

/* The weights of a tile as numbers of the matrix dtype, and what is to become of the output so far. Lies in shared memory. */
template <int row_tile, int tile_tokens>
struct SharedWeights {
    static constexpr int pitch = tile_tokens + 8; /* 8 more: ldmatrix meets no bank conflict */
    alignas(16) uint16_t weight[row_tile][pitch];
    alignas(8) float shrink[row_tile]; /* the output of the row is multiplied by it first */

    /* Of neighbouring tokens of a row. */
    template <int dtype, int count>
    __device__ __forceinline__ void store(int row, int first_token, const float (&weights)[count]) {
        uint16_t *const to = &weight[row][first_token];
        if constexpr (count == 1) {
            *to = static_cast<uint16_t>(Element<dtype>::pack(weights[0], 0.f));
        } else if constexpr (count == 2) {
            *reinterpret_cast<uint32_t *>(to) = Element<dtype>::pack(weights[0], weights[1]);
        } else {
            static_assert(count % 4 == 0, "whole vectors");
#pragma unroll
            for (int i = 0; i < count; i += 4)
                *reinterpret_cast<uint2 *>(to + i) = make_uint2(Element<dtype>::pack(weights[i], weights[i + 1]),
                                                                Element<dtype>::pack(weights[i + 2], weights[i + 3]));
        }
    }

    /* B operands of pv, of 16 tokens and two fragments of rows from `n` on. */
    __device__ __forceinline__ void operands(uint32_t (&words)[4], int fragment, int n, int lane) const {
        const int row = n * 8 + (lane & 7) + (lane >> 4) * 8, token = fragment * fragment_tokens + (lane >> 3 & 1) * 8;
        ptx::ldmatrix_x4(words, ptx::shared_address(&weight[row][token]));
    }
};

/* Two fragments of rows: what SharedWeights and LatentQuery give at a time. */
template <class Matrix, int row_fragments>
__device__ __forceinline__ void mma_rows(float (&sums)[row_fragments][4], const uint32_t (&values)[4], int n,
                                         const uint32_t (&of_rows)[4]) {
#pragma unroll
    for (int i = 0; i < 2; ++i)
        Matrix::mma(sums[n * 2 + i], values, {of_rows[i * 2], of_rows[i * 2 + 1]});
}

/* This warp's tokens and steps. */
template <class Format, class Query, int tile_tokens, int token_fragments, int row_fragments, int groups>
__device__ __forceinline__ void qk_part(ScoreFragment<token_fragments, row_fragments> &scores, const Query &query,
                                        uint32_t k_tile, const TokenFragments<Format, tile_tokens, token_fragments> &tokens,
                                        const StepRange<Format, groups> &steps, int lane) {
    using Reader = typename Format::KeyReader;
    scores.clear();
    Reader first(k_tile, tokens, 0, lane), second(k_tile, tokens, token_fragments - 1, lane);
    static_assert(token_fragments <= 2, "a reader for each");
#pragma unroll
    for (int i = 0; i < StepRange<Format, groups>::most; ++i) {
        if (!steps.has(i))
            continue;
        uint32_t keys[token_fragments][4];
        first.operand(keys[0], i, steps.first);
        if constexpr (token_fragments == 2)
            second.operand(keys[1], i, steps.first);
#pragma unroll
        for (int n = 0; n < row_fragments / 2; ++n) {
            uint32_t words[4];
            const uint32_t(&of_rows)[4] = query.operands(i, n, words);
#pragma unroll
            for (int fragment = 0; fragment < token_fragments; ++fragment)
                mma_rows<Element<Format::matrix_dtype>>(scores.value[fragment], keys[fragment], n, of_rows);
        }
    }
}

/*
 * The running softmax of the rows of one warp, as OnlineSoftmax has it, all rows at once: some lanes for a row, some neighbouring tokens
 * of the tile for a lane. `Tokens` say who sees which, as WarpTokens do.
 */
template <int rows>
struct RowsSoftmax {
    static constexpr int row_lanes = 32 / rows;
    float reference; /* of this lane's row; alike for all lanes of a row */
    float sum;       /* of this lane's tokens only */

    static __device__ __forceinline__ int row(int lane) { return lane / row_lanes; } /* of the warp's */

    __device__ __forceinline__ void clear() {
        reference = -INFINITY;
        sum = 0.f;
    }

    /*
     * `scales`: of the rows' products, by which they become base 2. `cap`: a soft cap of natural logits, or 0. `plain`: there is none, and every
     * row sees all tokens.
     */
    template <bool plain, int dtype, int row_tile, int tile_tokens, int groups, class Tokens>
    __device__ __forceinline__ void update(const ScoreParts<row_tile, tile_tokens, groups> &parts, const float *scales, float cap,
                                           const Tokens &tokens, int first_row, SharedWeights<row_tile, tile_tokens> &weights,
                                           int lane) {
        constexpr int count = tile_tokens / row_lanes;
        const int its_row = first_row + row(lane), first_token = lane % row_lanes * count;
        float score[count], largest = -INFINITY;
        parts.sum(its_row, first_token, score);
        const float scale = scales[its_row];
#pragma unroll
        for (int i = 0; i < count; ++i)
            score[i] *= scale;
        if (!plain && cap > 0.f) {
            const float cap_log2 = cap * log2_e, cap_factor = __fdividef(1.f, cap_log2);
#pragma unroll
            for (int i = 0; i < count; ++i)
                score[i] = tanh_of(score[i] * cap_factor) * cap_log2;
        }
        if (!plain && !tokens.all_visible()) {
            const auto seen = tokens.seen_by(its_row) >> first_token;
#pragma unroll
            for (int i = 0; i < count; ++i)
                score[i] = (seen >> i & 1) != 0 ? score[i] : -INFINITY;
        }
#pragma unroll
        for (int i = 0; i < count; ++i)
            largest = fmaxf(largest, score[i]);
        float shrink = 1.f;
        if (__any_sync(full_warp, largest - reference > OnlineSoftmax<1>::rescale_threshold))
            shrink = raise(largest);
        const float common = finite_reference(reference);
#pragma unroll
        for (int i = 0; i < count; ++i) {
            score[i] = ptx::exp2_approx(score[i] - common);
            sum += score[i];
        }
        weights.template store<dtype>(its_row, first_token, score);
        if (lane % row_lanes == 0)
            weights.shrink[its_row] = shrink;
    }

    /* Of the lane's row, in every lane. */
    __device__ __forceinline__ float row_sum() const { return sum_of_lanes<1, row_lanes>(sum); }

  private:
    /* Of all rows of the warp, where one exceeds. Returns what the sums so far shrink by. */
    __device__ __forceinline__ float raise(float largest) {
        const float raised = fmaxf(reference, largest_of_lanes<1, row_lanes>(largest));
        const float shrink = ptx::exp2_approx(reference - finite_reference(raised));
        reference = raised;
        sum *= shrink;
        return shrink;
    }
};

/*
 * This warp's steps over the dims of V, from `first_step` on. `scales`: BlockScales, of formats that have them. `masked` as in
 * attention.cuh.
 */
template <bool masked, class Format, int steps, int row_tile, int tile_tokens, class Tokens, class Scales>
__device__ __forceinline__ void pv_part(OutputFragment<steps, row_tile / 8> &output,
                                        const SharedWeights<row_tile, tile_tokens> &weights, uint32_t v_tile,
                                        const TokenFragments<Format, tile_tokens, tile_tokens / fragment_tokens> &fragments,
                                        const Tokens &tokens, const Scales &scales, int first_step, int lane) {
    const auto seen = masked ? tokens.seen_by_any() : 0;
#pragma unroll
    for (int fragment = 0; fragment < tile_tokens / fragment_tokens; ++fragment) {
        typename Format::ValueReader reader(v_tile, fragments, fragment, lane);
        if constexpr (Scales::exist)
            scales.of_fragment(reader.scales, fragment, lane);
        uint32_t operand[row_tile / 16][4];
#pragma unroll
        for (int n = 0; n < row_tile / 16; ++n)
            weights.operands(operand[n], fragment, n * 2, lane);
        VisibleHalves visible;
        if constexpr (masked)
            visible = VisibleHalves(static_cast<uint32_t>(seen >> (fragment * fragment_tokens)), lane);
#pragma unroll
        for (int step = 0; step < steps; ++step) {
            uint32_t values[4];
            reader.operand(values, step, first_step);
            if constexpr (masked)
                visible.keep_visible(values);
#pragma unroll
            for (int n = 0; n < row_tile / 16; ++n)
                mma_rows<Element<Format::matrix_dtype>>(output.value[step], values, n, operand[n]);
        }
    }
}

/* What the tile's new references make of the output so far; seldom anything. */
template <int steps, int row_tile, int tile_tokens>
__device__ __forceinline__ void shrink_output(OutputFragment<steps, row_tile / 8> &output,
                                              const SharedWeights<row_tile, tile_tokens> &weights, int lane) {
    float2 shrink[row_tile / 8];
    bool shrinks = false;
#pragma unroll
    for (int n = 0; n < row_tile / 8; ++n) {
        shrink[n] = *reinterpret_cast<const float2 *>(&weights.shrink[row_of(0, n, 0, lane)]);
        shrinks |= shrink[n].x != 1.f || shrink[n].y != 1.f;
    }
    if (!__any_sync(full_warp, shrinks))
        return;
#pragma unroll
    for (int n = 0; n < row_tile / 8; ++n)
        output.scale(n, shrink[n].x, shrink[n].y);
}

} // namespace tile
