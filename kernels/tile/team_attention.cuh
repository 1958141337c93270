/* SPDX-License-Identifier: Apache-2.0 */
/*
 * team_attention.cuh: the steps of latent_attention.cuh where warps take the dims in turns (DimSteps), and a warp all of its rows at once.
 */
#pragma once

#include <cmath>
#include <cstdint>

#include "ptx/scalar.cuh"
#include "tile/attention.cuh"
#include "tile/lanes.cuh"
#include "tile/latent_attention.cuh"
#include "tile/latent_query.cuh"
#include "tile/score.cuh"
#include "tile/softmax.cuh"
#include "tile/unit_rows.cuh"

namespace tile {

/* This warp's tokens, and the steps of its group. */
template <class Format, int groups, class Query, int tile_tokens, int token_fragments, int row_fragments>
__device__ __forceinline__ void qk_in_turns(ScoreFragment<token_fragments, row_fragments> &scores, const Query &query,
                                            uint32_t k_tile, const TokenFragments<Format, tile_tokens, token_fragments> &tokens,
                                            const DimSteps<Format, groups> &steps, int lane) {
    using Reader = typename Format::KeyReader;
    using Steps = DimSteps<Format, groups>;
    constexpr int chains =
        token_fragments == 1 && row_fragments == 2 ? 2 : 1; /* shorter ones, of instructions that wait for each other */
    ScoreFragment<token_fragments, row_fragments> part[chains];
#pragma unroll
    for (int chain = 0; chain < chains; ++chain)
        part[chain].clear();
    Reader first(k_tile, tokens, 0, lane, steps.first), second(k_tile, tokens, token_fragments - 1, lane, steps.first);
    static_assert(token_fragments <= 2, "a reader for each");
#pragma unroll
    for (int i = 0; i < Steps::most; ++i) {
        if (!steps.has(i))
            continue;
        uint32_t keys[token_fragments][4];
        first.operand(keys[0], Steps::further(i));
        if constexpr (token_fragments == 2)
            second.operand(keys[1], Steps::further(i));
#pragma unroll
        for (int n = 0; n < row_fragments / 2; ++n) {
            uint32_t words[4];
            const uint32_t(&of_rows)[4] = query.operands(i, n, words);
#pragma unroll
            for (int fragment = 0; fragment < token_fragments; ++fragment)
                mma_rows<Element<Format::matrix_dtype>>(part[i % chains].value[fragment], keys[fragment], n, of_rows);
        }
    }
#pragma unroll
    for (int fragment = 0; fragment < token_fragments; ++fragment) {
#pragma unroll
        for (int n = 0; n < row_fragments; ++n) {
#pragma unroll
            for (int i = 0; i < 4; ++i)
                scores.value[fragment][n][i] = chains == 1
                                                   ? part[0].value[fragment][n][i]
                                                   : part[0].value[fragment][n][i] + part[chains - 1].value[fragment][n][i];
        }
    }
}

/*
 * The running softmax of the rows of one warp, as OnlineSoftmax has it, all rows at once: some lanes for a row, some neighbouring tokens
 * of the tile for a lane.
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

    /* `scales`: of the rows' products, by which they become base 2. `cap`: a soft cap of natural logits, or 0. */
    template <int dtype, int row_tile, int tile_tokens, int groups>
    __device__ __forceinline__ void update(const ScoreParts<row_tile, tile_tokens, groups> &parts, const float *scales, float cap,
                                           const WarpTokens<row_tile, tile_tokens> &tokens, int first_row,
                                           SharedWeights<row_tile, tile_tokens> &weights, int lane) {
        constexpr int count = tile_tokens / row_lanes;
        const int its_row = first_row + row(lane), first_token = lane % row_lanes * count;
        float score[count], largest = -INFINITY;
        parts.sum(its_row, first_token, score);
        const float scale = scales[its_row];
#pragma unroll
        for (int i = 0; i < count; ++i)
            score[i] *= scale;
        if (cap > 0.f) {
            const float cap_log2 = cap * log2_e, cap_factor = __fdividef(1.f, cap_log2);
#pragma unroll
            for (int i = 0; i < count; ++i)
                score[i] = tanh_of(score[i] * cap_factor) * cap_log2;
        }
        if (!tokens.all_visible()) {
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

/* This warp's steps over the dims of V, as it has columns of the output. `masked` as in attention.cuh. */
template <bool masked, int warps, class Format, int steps, int row_tile, int tile_tokens>
__device__ __forceinline__ void pv_in_turns(OutputFragment<steps, row_tile / 8> &output,
                                            const SharedWeights<row_tile, tile_tokens> &weights, uint32_t v_tile,
                                            const TokenFragments<Format, tile_tokens, tile_tokens / fragment_tokens> &fragments,
                                            const WarpTokens<row_tile, tile_tokens> &tokens, int warp, int lane) {
    using Steps = DimSteps<Format, warps>;
    const auto seen = masked ? tokens.seen_by_any() : 0;
#pragma unroll
    for (int fragment = 0; fragment < tile_tokens / fragment_tokens; ++fragment) {
        typename Format::ValueReader reader(v_tile, fragments, fragment, lane, Steps(warp).first);
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
            reader.operand(values, Steps::further(step));
            if constexpr (masked) {
                values[0] &= visible.low;
                values[1] &= visible.low;
                values[2] &= visible.high;
                values[3] &= visible.high;
            }
#pragma unroll
            for (int n = 0; n < row_tile / 16; ++n)
                mma_rows<Element<Format::matrix_dtype>>(output.value[step], values, n, operand[n]);
        }
    }
}

} // namespace tile
