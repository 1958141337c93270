/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attention.cuh: what one warp computes on its tokens of a tile, with swapped operands: tokens are the 16 rows of the matrix
 * instruction, query rows its 8 columns, so a group of 8 query heads wastes nothing.
 *
 *     scores^T [tokens, rows] = K [tokens, head_dim] Q^T          qk
 *     p^T = exp2(scores^T - reference)                            OnlineSoftmax
 *     output^T [head_dim, rows] += V^T [head_dim, tokens] p^T     pv
 *
 * Fragment layout, lane l of the warp: of a 16x8 accumulator it holds tokens l/4 and l/4 + 8 (of output^T: dims), each for
 * the rows 2*(l%4) and 2*(l%4) + 1.
 */
#pragma once

#include <cmath>
#include <cstdint>

#include "tile/element.cuh"
#include "tile/kv_tile.cuh"

namespace tile {

constexpr unsigned full_warp = 0xffffffffu;
constexpr float log2_e = 1.4426950408889634f;

/* Rows of Q as the B operand of qk, for all of head_dim; rows past `live_rows` are zero. */
template <int head_dim, int row_tiles>
struct QueryFragment {
    uint32_t operand[head_dim / 16][row_tiles][2];

    __device__ __forceinline__ void load(const uint16_t *rows, int64_t row_stride, int live_rows, int lane) {
#pragma unroll
        for (int n = 0; n < row_tiles; ++n) {
            const int row = n * 8 + (lane >> 2);
            const uint16_t *elements = rows + row * row_stride + (lane & 3) * 2;
#pragma unroll
            for (int k = 0; k < head_dim / 16; ++k) {
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    operand[k][n][half] =
                        row < live_rows ? *reinterpret_cast<const uint32_t *>(elements + k * 16 + half * 8) : 0u;
                }
            }
        }
    }
};

template <int groups, int row_tiles>
struct ScoreFragment {
    float value[groups][row_tiles][4];
};

template <int groups, int row_tiles>
struct ProbabilityFragment {
    uint32_t operand[groups][row_tiles][2];
};

template <int dtype, int head_dim, int groups, int row_tiles>
__device__ __forceinline__ void qk(ScoreFragment<groups, row_tiles> &scores, const QueryFragment<head_dim, row_tiles> &query,
                                   uint32_t k_tile, const TokenGroups<head_dim, groups> &tokens, int lane) {
#pragma unroll
    for (int group = 0; group < groups; ++group) {
        /* With few scores, even and odd k in accumulators of their own: chains of dependent instructions half as long. */
        constexpr int chains = groups * row_tiles < 4 ? 2 : 1;
        float part[chains][row_tiles][4] = {};
        const uint32_t first_chunk = first_chunk_address(k_tile + tokens.offset[group], lane & 15, lane >> 4);
#pragma unroll
        for (int k = 0; k < head_dim / 16; ++k) {
            uint32_t keys[4];
            ptx::ldmatrix_x4(keys, chunk_address(first_chunk, tokens.half_bytes, k));
#pragma unroll
            for (int n = 0; n < row_tiles; ++n)
                Element<dtype>::mma(part[k % chains][n], keys, query.operand[k][n]);
        }
#pragma unroll
        for (int n = 0; n < row_tiles; ++n) {
#pragma unroll
            for (int i = 0; i < 4; ++i)
                scores.value[group][n][i] = chains == 1 ? part[0][n][i] : part[0][n][i] + part[chains - 1][n][i];
        }
    }
}

/* Before the mask: only then is minus infinity what it means, whatever the sign and size of the scale. */
template <int groups, int row_tiles>
__device__ __forceinline__ void scale(ScoreFragment<groups, row_tiles> &scores, float scale_log2) {
#pragma unroll
    for (int group = 0; group < groups; ++group) {
#pragma unroll
        for (int n = 0; n < row_tiles; ++n) {
#pragma unroll
            for (int i = 0; i < 4; ++i)
                scores.value[group][n][i] *= scale_log2;
        }
    }
}

/* Scores of the tokens outside [first_visible, end_visible) become -infinity; the bounds count from the warp's first token. */
template <int groups, int row_tiles>
__device__ __forceinline__ void mask(ScoreFragment<groups, row_tiles> &scores, int first_visible, int end_visible, int lane) {
#pragma unroll
    for (int group = 0; group < groups; ++group) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int token = group * group_tokens + half * 8 + (lane >> 2);
            const bool visible = token >= first_visible && token < end_visible;
#pragma unroll
            for (int n = 0; n < row_tiles; ++n) {
                scores.value[group][n][half * 2] = visible ? scores.value[group][n][half * 2] : -INFINITY;
                scores.value[group][n][half * 2 + 1] = visible ? scores.value[group][n][half * 2 + 1] : -INFINITY;
            }
        }
    }
}

/* Unnormalised output of the rows: sum_j exp2(score_j - reference) v_j. */
template <int head_dim, int row_tiles>
struct OutputFragment {
    float value[head_dim / 16][row_tiles][4];

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int i = 0; i < head_dim / 16; ++i) {
#pragma unroll
            for (int n = 0; n < row_tiles; ++n) {
#pragma unroll
                for (int j = 0; j < 4; ++j)
                    value[i][n][j] = 0.f;
            }
        }
    }

    __device__ __forceinline__ void scale(int n, float even_row, float odd_row) {
#pragma unroll
        for (int i = 0; i < head_dim / 16; ++i) {
            value[i][n][0] *= even_row;
            value[i][n][1] *= odd_row;
            value[i][n][2] *= even_row;
            value[i][n][3] *= odd_row;
        }
    }
};

/*
 * Running maximum and sum of each row in base 2. The output is rescaled only when a row's maximum rises by more than
 * rescale_threshold over the reference: weights then stay below 2^8, well inside every 16-bit type, and the result is the
 * same after normalisation.
 */
template <int row_tiles>
struct OnlineSoftmax {
    static constexpr float rescale_threshold = 8.f;
    float maximum[row_tiles][2]; /* the reference; -infinity before the first visible token */
    float sum[row_tiles][2];     /* of this lane's tokens only */

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int n = 0; n < row_tiles; ++n) {
            maximum[n][0] = maximum[n][1] = -INFINITY;
            sum[n][0] = sum[n][1] = 0.f;
        }
    }

    template <int dtype, int head_dim, int groups>
    __device__ __forceinline__ void update(const ScoreFragment<groups, row_tiles> &scores,
                                           OutputFragment<head_dim, row_tiles> &output,
                                           ProbabilityFragment<groups, row_tiles> &probabilities) {
#pragma unroll
        for (int n = 0; n < row_tiles; ++n) {
            float even = -INFINITY, odd = -INFINITY;
#pragma unroll
            for (int group = 0; group < groups; ++group) {
                const float(&score)[4] = scores.value[group][n];
                even = fmaxf(even, fmaxf(score[0], score[2]));
                odd = fmaxf(odd, fmaxf(score[1], score[3]));
            }
#pragma unroll
            for (int distance = 4; distance <= 16; distance *= 2) {
                even = fmaxf(even, __shfl_xor_sync(full_warp, even, distance));
                odd = fmaxf(odd, __shfl_xor_sync(full_warp, odd, distance));
            }
            /* Differences: of scores beyond 2^27 a sum would lose the threshold. Nothing visible yet: -inf - -inf does not compare. */
            if (__any_sync(full_warp, even - maximum[n][0] > rescale_threshold || odd - maximum[n][1] > rescale_threshold))
                raise(n, even, odd, output);
            const float even_reference = finite_reference(maximum[n][0]), odd_reference = finite_reference(maximum[n][1]);
#pragma unroll
            for (int group = 0; group < groups; ++group) {
                const float(&score)[4] = scores.value[group][n];
                const float p0 = ptx::exp2_approx(score[0] - even_reference), p1 = ptx::exp2_approx(score[1] - odd_reference);
                const float p2 = ptx::exp2_approx(score[2] - even_reference), p3 = ptx::exp2_approx(score[3] - odd_reference);
                sum[n][0] += p0 + p2;
                sum[n][1] += p1 + p3;
                probabilities.operand[group][n][0] = ptx::movmatrix_trans(Element<dtype>::pack(p0, p1));
                probabilities.operand[group][n][1] = ptx::movmatrix_trans(Element<dtype>::pack(p2, p3));
            }
        }
    }

    /* The sum over the warp's tokens, in every lane. */
    __device__ __forceinline__ float row_sum(int n, int odd) const {
        float total = sum[n][odd];
#pragma unroll
        for (int distance = 4; distance <= 16; distance *= 2)
            total += __shfl_xor_sync(full_warp, total, distance);
        return total;
    }

    /* -infinity minus itself is NaN: a row that has seen no visible token compares with 0 instead, and gets weights of 0. */
    static __device__ __forceinline__ float finite_reference(float maximum) { return maximum == -INFINITY ? 0.f : maximum; }

  private:
    template <int head_dim>
    __device__ __forceinline__ void raise(int n, float even, float odd, OutputFragment<head_dim, row_tiles> &output) {
        const float new_even = fmaxf(maximum[n][0], even), new_odd = fmaxf(maximum[n][1], odd);
        const float shrink_even = ptx::exp2_approx(maximum[n][0] - finite_reference(new_even));
        const float shrink_odd = ptx::exp2_approx(maximum[n][1] - finite_reference(new_odd));
        maximum[n][0] = new_even;
        maximum[n][1] = new_odd;
        sum[n][0] *= shrink_even;
        sum[n][1] *= shrink_odd;
        output.scale(n, shrink_even, shrink_odd);
    }
};

/* For the lane's tokens of a V operand: all ones in the halves of visible ones. */
struct VisibleHalves {
    uint32_t low, high; /* tokens 2*(l%4) and the next; those 8 further */

    __device__ __forceinline__ VisibleHalves(int first_visible, int end_visible, int group, int lane) {
        const int token = group * group_tokens + (lane & 3) * 2;
        low = halves(token, first_visible, end_visible);
        high = halves(token + 8, first_visible, end_visible);
    }

  private:
    static __device__ __forceinline__ uint32_t halves(int token, int first_visible, int end_visible) {
        return (token >= first_visible && token < end_visible ? 0x0000ffffu : 0u) |
               (token + 1 >= first_visible && token + 1 < end_visible ? 0xffff0000u : 0u);
    }
};

/*
 * `masked`: rows of V outside [first_visible, end_visible) become zero on their way to the tensor core. A weight of 0 does not
 * help against NaN there: 0 * NaN is NaN.
 */
template <int dtype, bool masked, int head_dim, int groups, int row_tiles>
__device__ __forceinline__ void pv(OutputFragment<head_dim, row_tiles> &output,
                                   const ProbabilityFragment<groups, row_tiles> &probabilities, uint32_t v_tile,
                                   const TokenGroups<head_dim, groups> &tokens, int first_visible, int end_visible, int lane) {
    const int row = (lane & 7) + ((lane >> 4) & 1) * 8;
#pragma unroll
    for (int group = 0; group < groups; ++group) {
        const uint32_t first_chunk = first_chunk_address(v_tile + tokens.offset[group], row, (lane >> 3) & 1);
        const VisibleHalves visible(first_visible, end_visible, group, lane);
#pragma unroll
        for (int i = 0; i < head_dim / 16; ++i) {
            uint32_t values[4];
            ptx::ldmatrix_x4_trans(values, chunk_address(first_chunk, tokens.half_bytes, i));
            if constexpr (masked) {
                values[0] &= visible.low;
                values[1] &= visible.low;
                values[2] &= visible.high;
                values[3] &= visible.high;
            }
#pragma unroll
            for (int n = 0; n < row_tiles; ++n)
                Element<dtype>::mma(output.value[i][n], values, probabilities.operand[group][n]);
        }
    }
}

} // namespace tile
