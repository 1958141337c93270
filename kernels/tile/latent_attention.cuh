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
#include <type_traits>

#include "ptx/matrix.cuh"
#include "ptx/memory.cuh"
#include "ptx/scalar.cuh"
#include "tile/attention.cuh"
#include "tile/latent_query.cuh"
#include "tile/score.cuh"
#include "tile/softmax.cuh"
#include "tile/unit_rows.cuh"

namespace tile {

/* The scores of a tile, in parts. Lies in shared memory. */
template <int row_tile, int tile_tokens, int groups>
struct ScoreParts {
    static constexpr int pitch = tile_tokens + 4; /* 4 more: the lanes of a fragment then fall into different banks */
    alignas(16) float part[groups][row_tile][pitch];

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
        using Vector = std::conditional_t<count % 4 == 0, float4, float2>;
        constexpr int width = sizeof(Vector) / sizeof(float);
        static_assert(count % width == 0, "tokens of a lane in whole vectors");
#pragma unroll
        for (int group = 0; group < groups; ++group) {
#pragma unroll
            for (int first = 0; first < count; first += width) {
                const Vector vector = *reinterpret_cast<const Vector *>(&part[group][row][first_token + first]);
                const float *const value = reinterpret_cast<const float *>(&vector);
#pragma unroll
                for (int i = 0; i < width; ++i)
                    scores[first + i] = group == 0 ? value[i] : scores[first + i] + value[i];
            }
        }
    }
};

/* The weights of a tile as numbers of the matrix dtype, and what is to become of the output so far. Lies in shared memory. */
template <int row_tile, int tile_tokens>
struct SharedWeights {
    static constexpr int pitch = tile_tokens + 8; /* 8 more: ldmatrix meets no bank conflict */
    alignas(16) uint16_t weight[row_tile][pitch];
    alignas(8) float shrink[row_tile]; /* the output of the row is multiplied by it first */

    /* Of neighbouring tokens of a row, two in a word. */
    template <int words>
    __device__ __forceinline__ void store(int row, int first_token, const uint32_t (&packed)[words]) {
        uint16_t *const to = &weight[row][first_token];
        if constexpr (words == 1)
            *reinterpret_cast<uint32_t *>(to) = packed[0];
        else if constexpr (words == 2)
            *reinterpret_cast<uint2 *>(to) = make_uint2(packed[0], packed[1]);
        else
            *reinterpret_cast<uint4 *>(to) = make_uint4(packed[0], packed[1], packed[2], packed[3]);
        static_assert(words == 1 || words == 2 || words == 4, "a vector");
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

/* This warp's tokens, and the steps of its group. */
template <class Format, int groups, class Query, int tile_tokens, int token_fragments, int row_fragments>
__device__ __forceinline__ void qk_part(ScoreFragment<token_fragments, row_fragments> &scores, const Query &query,
                                        uint32_t k_tile, const TokenFragments<Format, tile_tokens, token_fragments> &tokens,
                                        int group, int lane) {
    using Reader = typename Format::KeyReader;
    using Steps = DimSteps<Format, groups>;
    constexpr int chains =
        token_fragments == 1 && row_fragments == 2 ? 2 : 1; /* shorter ones, of instructions that wait for each other */
    ScoreFragment<token_fragments, row_fragments> part[chains];
#pragma unroll
    for (int chain = 0; chain < chains; ++chain)
        part[chain].clear();
    Reader first(k_tile, tokens, 0, lane, Steps::first(group)),
        second(k_tile, tokens, token_fragments - 1, lane, Steps::first(group));
    static_assert(token_fragments <= 2, "a reader for each");
#pragma unroll
    for (int i = 0; i < Steps::most; ++i) {
        if (!Steps::has(group, i))
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
struct RowSoftmax {
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
        uint32_t packed[count / 2];
#pragma unroll
        for (int i = 0; i < count; ++i) {
            score[i] = ptx::exp2_approx(score[i] - common);
            sum += score[i];
        }
#pragma unroll
        for (int i = 0; i < count / 2; ++i)
            packed[i] = Element<dtype>::pack(score[i * 2], score[i * 2 + 1]);
        weights.store(its_row, first_token, packed);
        if (lane % row_lanes == 0)
            weights.shrink[its_row] = shrink;
    }

    /* Of the lane's row, in every lane. */
    __device__ __forceinline__ float row_sum() const {
        float total = sum;
#pragma unroll
        for (int distance = 1; distance < row_lanes; distance *= 2)
            total += __shfl_xor_sync(full_warp, total, distance);
        return total;
    }

  private:
    /* Of all rows of the warp, where one exceeds. Returns what the sums so far shrink by. */
    __device__ __forceinline__ float raise(float largest) {
#pragma unroll
        for (int distance = 1; distance < row_lanes; distance *= 2)
            largest = fmaxf(largest, __shfl_xor_sync(full_warp, largest, distance));
        const float raised = fmaxf(reference, largest);
        const float shrink = ptx::exp2_approx(reference - finite_reference(raised));
        reference = raised;
        sum *= shrink;
        return shrink;
    }
};

/* This warp's steps over the dims of V, as it has columns of the output. `masked` as in attention.cuh. */
template <bool masked, int warps, class Format, int steps, int row_tile, int tile_tokens>
__device__ __forceinline__ void pv_part(OutputFragment<steps, row_tile / 8> &output,
                                        const SharedWeights<row_tile, tile_tokens> &weights, uint32_t v_tile,
                                        const TokenFragments<Format, tile_tokens, tile_tokens / fragment_tokens> &fragments,
                                        const WarpTokens<row_tile, tile_tokens> &tokens, int warp, int lane) {
    using Steps = DimSteps<Format, warps>;
    const auto seen = masked ? tokens.seen_by_any() : 0;
#pragma unroll
    for (int fragment = 0; fragment < tile_tokens / fragment_tokens; ++fragment) {
        typename Format::ValueReader reader(v_tile, fragments, fragment, lane, Steps::first(warp));
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

/* What the tile's new references make of the output so far. */
template <int steps, int row_tile, int tile_tokens>
__device__ __forceinline__ void shrink_output(OutputFragment<steps, row_tile / 8> &output,
                                              const SharedWeights<row_tile, tile_tokens> &weights, int lane) {
#pragma unroll
    for (int n = 0; n < row_tile / 8; ++n) {
        const float2 shrink = *reinterpret_cast<const float2 *>(&weights.shrink[row_of(0, n, 0, lane)]);
        if (__any_sync(full_warp, shrink.x != 1.f || shrink.y != 1.f))
            output.scale(n, shrink.x, shrink.y);
    }
}

} // namespace tile
