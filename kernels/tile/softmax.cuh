/* SPDX-License-Identifier: Apache-2.0 */
/* softmax.cuh: the running softmax of one warp's rows: weights from scores, the reference they are taken against, their sum. */
#pragma once

#include <cmath>
#include <cstdint>

#include "ptx/matrix.cuh"
#include "ptx/scalar.cuh"
#include "tile/constants.cuh"
#include "tile/element.cuh"
#include "tile/lanes.cuh"
#include "tile/score.cuh"

namespace tile {

/* -infinity minus itself is NaN: what has seen no visible token compares with 0 instead, and gets weights of 0. */
__device__ __forceinline__ float finite_reference(float reference) { return reference == -INFINITY ? 0.f : reference; }

/* Weights as the B operand of pv. */
template <int token_fragments, int row_fragments>
struct WeightFragment {
    uint32_t operand[token_fragments][row_fragments][2];

    /* Of `count` fragments of tokens from `first` on, a multiple of that, without addressing registers. */
    template <int count>
    __device__ __forceinline__ WeightFragment<count, row_fragments> part(int first) const {
        WeightFragment<count, row_fragments> result;
#pragma unroll
        for (int fragment = 0; fragment < token_fragments; ++fragment) {
#pragma unroll
            for (int n = 0; n < row_fragments; ++n) {
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    if (fragment < count || first == fragment / count * count)
                        result.operand[fragment % count][n][i] = operand[fragment][n][i];
                }
            }
        }
        return result;
    }
};

/* Unnormalised output of the rows: sum_j exp2(score_j - reference) v_j. */
template <int steps, int row_fragments>
struct OutputFragment {
    float value[steps][row_fragments][4];

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int step = 0; step < steps; ++step) {
#pragma unroll
            for (int n = 0; n < row_fragments; ++n) {
#pragma unroll
                for (int i = 0; i < 4; ++i)
                    value[step][n][i] = 0.f;
            }
        }
    }

    __device__ __forceinline__ void scale(int n, float even_row, float odd_row) {
#pragma unroll
        for (int step = 0; step < steps; ++step) {
            value[step][n][0] *= even_row;
            value[step][n][1] *= odd_row;
            value[step][n][2] *= even_row;
            value[step][n][3] *= odd_row;
        }
    }
    __device__ __forceinline__ void scale(float factor) {
#pragma unroll
        for (int n = 0; n < row_fragments; ++n)
            scale(n, factor, factor);
    }
};

/*
 * Of each row, in base 2, the reference that its weights are taken against, and their sum. The reference lags behind the largest
 * score: it is raised, and the output rescaled, only when a score exceeds it by more than rescale_threshold. Weights then stay
 * below 2^8, well inside every 16-bit type, and the result is the same after normalisation.
 */
template <int row_fragments>
struct OnlineSoftmax {
    static constexpr float rescale_threshold = 8.f;
    float reference[row_fragments][2]; /* -infinity before the first visible token */
    float sum[row_fragments][2];       /* of this lane's tokens only */

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int n = 0; n < row_fragments; ++n) {
            reference[n][0] = reference[n][1] = -INFINITY;
            sum[n][0] = sum[n][1] = 0.f;
        }
    }

    template <int dtype, int steps, int token_fragments>
    __device__ __forceinline__ void
    update(const ScoreFragment<token_fragments, row_fragments> &scores, OutputFragment<steps, row_fragments> &output,
           WeightFragment<token_fragments, row_fragments> &weights, float threshold = rescale_threshold) {
#pragma unroll
        for (int n = 0; n < row_fragments; ++n) {
            float even = -INFINITY, odd = -INFINITY;
#pragma unroll
            for (int fragment = 0; fragment < token_fragments; ++fragment) {
                const float(&score)[4] = scores.value[fragment][n];
                even = fmaxf(even, fmaxf(score[0], score[2]));
                odd = fmaxf(odd, fmaxf(score[1], score[3]));
            }
            /*
             * Each lane for the scores that it holds: what they come to over the warp is asked for only where one of them exceeds.
             * Differences: of scores beyond 2^27 a sum would lose the threshold. Nothing visible yet: -inf - -inf does not compare.
             */
            if (__any_sync(full_warp, even - reference[n][0] > threshold || odd - reference[n][1] > threshold))
                raise(n, even, odd, output);
            const float even_reference = finite_reference(reference[n][0]), odd_reference = finite_reference(reference[n][1]);
#pragma unroll
            for (int fragment = 0; fragment < token_fragments; ++fragment) {
                const float(&score)[4] = scores.value[fragment][n];
                const float p0 = ptx::exp2_approx(score[0] - even_reference), p1 = ptx::exp2_approx(score[1] - odd_reference);
                const float p2 = ptx::exp2_approx(score[2] - even_reference), p3 = ptx::exp2_approx(score[3] - odd_reference);
                sum[n][0] += p0 + p2;
                sum[n][1] += p1 + p3;
                weights.operand[fragment][n][0] = ptx::movmatrix_trans(Element<dtype>::pack(p0, p1));
                weights.operand[fragment][n][1] = ptx::movmatrix_trans(Element<dtype>::pack(p2, p3));
            }
        }
    }

    /*
     * Whether one of the scores reaches its row's reference plus `below`, or is NaN; of the first tokens that a row sees, every one
     * does. Rows from `live_rows` on, counted from this warp's first, want nothing.
     */
    template <int token_fragments>
    __device__ __forceinline__ bool wants(const ScoreFragment<token_fragments, row_fragments> &scores, float below, int live_rows,
                                          int lane) const {
        bool reaches = false;
#pragma unroll
        for (int n = 0; n < row_fragments; ++n) {
#pragma unroll
            for (int odd = 0; odd < 2; ++odd) {
                const bool live = row_of(0, n, odd, lane) < live_rows;
#pragma unroll
                for (int fragment = 0; fragment < token_fragments; ++fragment) {
#pragma unroll
                    for (int half = 0; half < 2; ++half) {
                        const float score = scores.value[fragment][n][half * 2 + odd];
                        reaches = reaches || (live && score != -INFINITY && !(score - reference[n][odd] < below));
                    }
                }
            }
        }
        return __any_sync(full_warp, reaches);
    }

    /* The sum over the warp's tokens, in every lane. */
    __device__ __forceinline__ float row_sum(int n, int odd) const { return sum_of_lanes<4, 32>(sum[n][odd]); }

  private:
    template <int steps>
    __device__ __forceinline__ void raise(int n, float even, float odd, OutputFragment<steps, row_fragments> &output) {
#pragma unroll
        for (int distance = 4; distance <= 16; distance *= 2) {
            even = fmaxf(even, __shfl_xor_sync(full_warp, even, distance));
            odd = fmaxf(odd, __shfl_xor_sync(full_warp, odd, distance));
        }
        const float new_even = fmaxf(reference[n][0], even), new_odd = fmaxf(reference[n][1], odd);
        const float shrink_even = ptx::exp2_approx(reference[n][0] - finite_reference(new_even));
        const float shrink_odd = ptx::exp2_approx(reference[n][1] - finite_reference(new_odd));
        reference[n][0] = new_even;
        reference[n][1] = new_odd;
        sum[n][0] *= shrink_even;
        sum[n][1] *= shrink_odd;
        output.scale(n, shrink_even, shrink_odd);
    }
};

} // namespace tile
