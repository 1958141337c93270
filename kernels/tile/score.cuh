/* SPDX-License-Identifier: Apache-2.0 */
/*
 * score.cuh: from products of query and key to logits in base 2: the scale first, then the soft cap, what ALiBi adds, and last the
 * mask. Only in this order is minus infinity what it means, whatever the sign and size of the scale.
 */
#pragma once

#include <cmath>

#include "abi.h"
#include "tile/constants.cuh"
#include "tile/kv_format.cuh"
#include "tile/query.cuh"
#include "tile/unit_rows.cuh"

namespace tile {

/* What a product is multiplied by; read after the preceding kernel, which may compute it. */
__device__ __forceinline__ float scale_log2(const query_params &query) {
    if (query.bmm1_scale_log2_device != nullptr)
        return *query.bmm1_scale_log2_device;
    return query.bmm1_scale_device != nullptr ? *query.bmm1_scale_device * log2_e : query.bmm1_scale_log2;
}

/* What the products of each row are multiplied by. */
template <class Format, int row_fragments>
struct RowScales {
    float value[row_fragments][2];

    __device__ __forceinline__ RowScales(float scale_log2, bool rotates, const QueryFragment<Format, row_fragments> &query) {
        const float operand_scale = rotates ? Format::rotated_scale : Format::k_scale;
#pragma unroll
        for (int n = 0; n < row_fragments; ++n) {
#pragma unroll
            for (int odd = 0; odd < 2; ++odd)
                value[n][odd] = scale_log2 * operand_scale * query.factor[n][odd];
        }
    }
};

/* Registers as the figure in attention.cuh has them: tokens l/4 and l/4 + 8 of a fragment, rows 2 (l%4) and the next. */
template <int token_fragments, int row_fragments>
struct ScoreFragment {
    float value[token_fragments][row_fragments][4];

    /* Each becomes what `function` makes of it, and of which row it is: fragment n, the even one of a pair or the odd one. */
    template <class Function>
    __device__ __forceinline__ void become(Function function) {
#pragma unroll
        for (int fragment = 0; fragment < token_fragments; ++fragment) {
#pragma unroll
            for (int n = 0; n < row_fragments; ++n) {
#pragma unroll
                for (int i = 0; i < 4; ++i)
                    value[fragment][n][i] = function(value[fragment][n][i], n, i % 2);
            }
        }
    }
    __device__ __forceinline__ void clear() {
        become([](float, int, int) { return 0.f; });
    }
};

template <class Format, int token_fragments, int row_fragments>
__device__ __forceinline__ void scale(ScoreFragment<token_fragments, row_fragments> &scores,
                                      const RowScales<Format, row_fragments> &scales) {
    scores.become([&](float score, int n, int odd) { return score * scales.value[n][odd]; });
}

/*
 * tanh(x): 1 - 2 / (e^2x + 1), whose error of 2^-23 is too much near 0: there the first terms of its series (Abramowitz and Stegun,
 * 4.5.64), right to 2^-26 at 1/4.
 */
__device__ __forceinline__ float tanh_of(float x) {
    const float square = x * x;
    float series = fmaf(square, 62.f / 2835.f, -17.f / 315.f);
    series = fmaf(fmaf(fmaf(series, square, 2.f / 15.f), square, -1.f / 3.f) * square, x, x);
    const float closed = 1.f - __fdividef(2.f, ptx::exp2_approx(x * (2.f * log2_e)) + 1.f);
    return fabsf(x) < 0.25f ? series : closed;
}

/* A score z becomes cap * tanh(z / cap); `cap` of natural logits. */
template <int token_fragments, int row_fragments>
__device__ __forceinline__ void soft_cap(ScoreFragment<token_fragments, row_fragments> &scores, float cap) {
    const float factor = __fdividef(1.f, cap * log2_e);
    scores.become([&](float score, int, int) { return tanh_of(score * factor) * (cap * log2_e); });
}

/*
 * By the closed form alone, of caps up to largest_closed_cap: its error is 2^-22 of the cap wherever the score lies, so that of a cap of 100 weights are
 * right to 2^-15, when they are rounded to 8 or 11 bits.
 */
constexpr float largest_closed_cap = 100.f;
struct ClosedCap {
    const float factor, limit;
    explicit __device__ __forceinline__ ClosedCap(float cap) : factor(__fdividef(2.f, cap)), limit(cap * log2_e) {}
    __device__ __forceinline__ float operator()(float score) const { /* e^2x = 2^(2 x log2e) */
        return fmaf(ptx::reciprocal_approx(ptx::exp2_approx(score * factor) + 1.f), -2.f * limit, limit);
    }
};

template <int token_fragments, int row_fragments>
__device__ __forceinline__ void closed_soft_cap(ScoreFragment<token_fragments, row_fragments> &scores, float cap) {
    const ClosedCap capped(cap);
    scores.become([&](float score, int, int) { return capped(score); });
}

/* The rows that a lane holds scores of: n, and the even one of a pair or the odd one. `first_row` of the warp. */
__device__ __forceinline__ int row_of(int first_row, int n, int odd, int lane) {
    return first_row + n * 8 + (lane & 3) * 2 + odd;
}

/* Adds to each score what its row's ALiBi slope makes of the distance between token and query. */
template <int token_fragments, int row_fragments, int row_tile, int count>
__device__ __forceinline__ void add_alibi(ScoreFragment<token_fragments, row_fragments> &scores,
                                          const WarpTokens<row_tile, count> &tokens, int first_row, int position_stride,
                                          int lane) {
#pragma unroll
    for (int n = 0; n < row_fragments; ++n) {
#pragma unroll
        for (int odd = 0; odd < 2; ++odd) {
            const RowPlace place = tokens.rows.place[row_of(first_row, n, odd, lane)];
            /* Of the lane's first token, whose distance is exact below 2^24, and of what eight further ones add. */
            const float first =
                place.alibi_slope * static_cast<float>((tokens.first_token + (lane >> 2)) * position_stride + place.distance);
            const float of_eight = place.alibi_slope * static_cast<float>(8 * position_stride);
#pragma unroll
            for (int fragment = 0; fragment < token_fragments; ++fragment) {
#pragma unroll
                for (int half = 0; half < 2; ++half)
                    scores.value[fragment][n][half * 2 + odd] += fmaf(of_eight, static_cast<float>(fragment * 2 + half), first);
            }
        }
    }
}

/* Scores of tokens that their row does not see become -infinity. */
template <int token_fragments, int row_fragments, int row_tile, int count>
__device__ __forceinline__ void mask(ScoreFragment<token_fragments, row_fragments> &scores,
                                     const WarpTokens<row_tile, count> &tokens, int first_row, int lane) {
#pragma unroll
    for (int n = 0; n < row_fragments; ++n) {
#pragma unroll
        for (int odd = 0; odd < 2; ++odd) {
            const auto seen = tokens.seen_by(row_of(first_row, n, odd, lane)) >> (lane >> 2);
#pragma unroll
            for (int fragment = 0; fragment < token_fragments; ++fragment) {
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    float &score = scores.value[fragment][n][half * 2 + odd];
                    score = (seen >> (fragment * fragment_tokens + half * 8) & 1) != 0 ? score : -INFINITY;
                }
            }
        }
    }
}

} // namespace tile
