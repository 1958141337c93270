/* SPDX-License-Identifier: Apache-2.0 */
/*
 * score.cuh: from products of query and key to logits in base 2: the scale first, then the mask. Only in this order is minus
 * infinity what it means, whatever the sign and size of the scale.
 */
#pragma once

#include <cmath>

#include "abi.h"
#include "tile/kv_format.cuh"
#include "tile/query.cuh"

namespace tile {

constexpr float log2_e = 1.4426950408889634f;

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

    __device__ __forceinline__ RowScales(float scale_log2, const QueryFragment<Format, row_fragments> &query) {
#pragma unroll
        for (int n = 0; n < row_fragments; ++n) {
#pragma unroll
            for (int odd = 0; odd < 2; ++odd)
                value[n][odd] = scale_log2 * Format::k_scale * query.factor[n][odd];
        }
    }
};

/* Registers as the figure in attention.cuh has them: tokens l/4 and l/4 + 8 of a fragment, rows 2 (l%4) and the next. */
template <int token_fragments, int row_fragments>
struct ScoreFragment {
    float value[token_fragments][row_fragments][4];
};

template <class Format, int token_fragments, int row_fragments>
__device__ __forceinline__ void scale(ScoreFragment<token_fragments, row_fragments> &scores,
                                      const RowScales<Format, row_fragments> &scales) {
#pragma unroll
    for (int fragment = 0; fragment < token_fragments; ++fragment) {
#pragma unroll
        for (int n = 0; n < row_fragments; ++n) {
#pragma unroll
            for (int i = 0; i < 4; ++i)
                scores.value[fragment][n][i] *= scales.value[n][i % 2];
        }
    }
}

/* Scores of the tokens outside [first_visible, end_visible) become -infinity; the bounds count from the warp's first token. */
template <int token_fragments, int row_fragments>
__device__ __forceinline__ void mask(ScoreFragment<token_fragments, row_fragments> &scores, int first_visible, int end_visible,
                                     int lane) {
#pragma unroll
    for (int fragment = 0; fragment < token_fragments; ++fragment) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int token = fragment * fragment_tokens + half * 8 + (lane >> 2);
            const bool visible = token >= first_visible && token < end_visible;
#pragma unroll
            for (int n = 0; n < row_fragments; ++n) {
                scores.value[fragment][n][half * 2] = visible ? scores.value[fragment][n][half * 2] : -INFINITY;
                scores.value[fragment][n][half * 2 + 1] = visible ? scores.value[fragment][n][half * 2 + 1] : -INFINITY;
            }
        }
    }
}

} // namespace tile
