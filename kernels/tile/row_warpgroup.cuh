/* SPDX-License-Identifier: Apache-2.0 */
/*
 * row_warpgroup.cuh: a warpgroup's 64 rows on a tile of 64 tokens, with rows as the rows of the matrix instructions:
 *
 *     scores [64 rows, 64 tokens] = Q K^T           warp w has rows 16 w to 16 w + 15
 *     output [64 rows, dims] += p V                 likewise
 *
 * K and V are operands as they lie in lines of 128 bytes, and p comes from registers: so nothing of a row leaves its warp.
 * Registers of a thread: rows l/4 and l/4 + 8 of the warp's, of each 8 columns 2 (l%4) and the next. So a row lies in four neighbouring
 * lanes, and each row has its reference to itself.
 */
#pragma once

#include <cstdint>

#include "abi.h"
#include "ptx/matrix.cuh"
#include "ptx/wgmma.cuh"
#include "tile/element.cuh"
#include "tile/lanes.cuh"
#include "tile/score.cuh"
#include "tile/warpgroup.cuh"

namespace tile {

constexpr int lane_rows = 2; /* of a thread */

struct RowScores {
    float value[8][4];
};

/* Dims of a thread's rows, in eights. */
template <int dims>
struct RowOutput {
    float value[dims / 8][4];

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int n = 0; n < dims / 8; ++n) {
#pragma unroll
            for (int i = 0; i < 4; ++i)
                value[n][i] = 0.f;
        }
    }
    __device__ __forceinline__ void scale(const float (&factors)[lane_rows]) {
#pragma unroll
        for (int n = 0; n < dims / 8; ++n) {
#pragma unroll
            for (int i = 0; i < 4; ++i)
                value[n][i] *= factors[i / 2];
        }
    }
};

/* An operand of 64 rows and 64 columns in shared memory, or such a part of one, as the A operand of 16 of its columns. */
using SquareRows = OperandRows<group_rows>;

/* 64 columns of a warp's rows as A operands, of 16 columns each: weights of a tile, or output on its way out. */
struct RowSquare {
    uint32_t operand[group_token_fragments][4];

    template <int dtype>
    __device__ __forceinline__ void pack(const RowScores &columns) {
#pragma unroll
        for (int n = 0; n < 8; ++n) {
#pragma unroll
            for (int i = 0; i < lane_rows; ++i)
                operand[n / 2][n % 2 * 2 + i] = Element<dtype>::pack(columns.value[n][i * 2], columns.value[n][i * 2 + 1]);
        }
    }
    /* Into shared memory: [row][64 columns]; a fragment, so many behind its place. `warp`: of the group. */
    __device__ __forceinline__ void store(uint32_t square, int fragment, int warp, int lane, int behind = 0) const {
        ptx::stmatrix_x4(SquareRows::at(square, warp * 16 + lane % 16, (behind + fragment) * 32 + lane / 16 * 16),
                         operand[fragment]);
    }
};

/* d += a b over 16 tokens, of 128 dims or 64. `A`: registers, or shared memory. */
template <int dtype, class A>
__device__ __forceinline__ void row_output_mma(float (&d)[16][4], const A &a, uint64_t b) {
    if constexpr (dtype == KERNEL_DTYPE_BF16)
        ptx::wgmma_m64n128k16_bf16(d, a, b);
    else
        ptx::wgmma_m64n128k16_fp16(d, a, b);
}
template <int dtype, class A>
__device__ __forceinline__ void row_output_mma(float (&d)[8][4], const A &a, uint64_t b) {
    if constexpr (dtype == KERNEL_DTYPE_BF16)
        ptx::wgmma_m64n64k16_bf16_transposed(d, a, b);
    else
        ptx::wgmma_m64n64k16_fp16_transposed(d, a, b);
}

/*
 * The running softmax of a thread's rows: references, which are raised where a score exceeds them by far, and sums of the thread's own tokens. Of
 * warpgroups that hand each other weights a tile's raises them, and the other one follows: both have those behind the newest tile whose
 * weights went into their output.
 */
struct RowSoftmax {
    static constexpr float lowest = GroupReferences::lowest, rescale_threshold = GroupSoftmax::rescale_threshold;
    static constexpr float largest_sum = 256.f; /* 2^rescale_threshold: no weight is larger then */
    float reference[lane_rows], sum[lane_rows];

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int i = 0; i < lane_rows; ++i) {
            reference[i] = lowest;
            sum[i] = 0.f;
        }
    }

    /* The other warpgroup's references, of the warp's rows; no instruction that adds to the output is under way. */
    template <int dims>
    __device__ __forceinline__ void follow(const float *references, RowOutput<dims> &output, int lane) {
        move({references[lane / 4], references[lane / 4 + 8]}, output);
    }
    __device__ __forceinline__ void leave(float *references, int lane) const {
        if (lane % 4 == 0) {
            references[lane / 4] = reference[0];
            references[lane / 4 + 8] = reference[1];
        }
    }

    /*
     * Raises the references of rows in which a score, times `scale`, exceeds them by far. That is rare, and known without what the other lanes
     * of a row have. No instruction that adds to the output is under way.
     */
    template <int dims>
    __device__ __forceinline__ void raise(const RowScores &scores, const float (&scale)[lane_rows], RowOutput<dims> &output) {
        float largest[lane_rows];
#pragma unroll
        for (int i = 0; i < lane_rows; ++i) {
            largest[i] = -INFINITY;
#pragma unroll
            for (int n = 0; n < 8; ++n)
                largest[i] = fmaxf(largest[i], fmaxf(scores.value[n][i * 2], scores.value[n][i * 2 + 1]));
            largest[i] *= scale[i];
        }
        if (!__any_sync(full_warp,
                        largest[0] - reference[0] > rescale_threshold || largest[1] - reference[1] > rescale_threshold))
            return;
#pragma unroll
        for (int i = 0; i < lane_rows; ++i) {
            largest[i] = largest_of_lanes<1, 4>(largest[i]);
            largest[i] = largest[i] - reference[i] > rescale_threshold ? largest[i] : reference[i];
        }
        move(largest, output);
    }

    /*
     * Weights of the scores, times `scale` of their rows, and their sums; leave(fragment) is called when the weights of its tokens are there. Products are
     * rounded, as in `raise`: else the largest of huge scores would not be its own reference.
     */
    template <int dtype, class Leave>
    __device__ __forceinline__ void weigh(const RowScores &scores, const float (&scale)[lane_rows], RowSquare &weights,
                                          Leave leave) {
#pragma unroll
        for (int fragment = 0; fragment < group_token_fragments; ++fragment) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const float(&score)[4] = scores.value[fragment * 2 + half];
#pragma unroll
                for (int i = 0; i < lane_rows; ++i) {
                    const float p0 = ptx::exp2_approx(__fmul_rn(score[i * 2], scale[i]) - reference[i]);
                    const float p1 = ptx::exp2_approx(__fmul_rn(score[i * 2 + 1], scale[i]) - reference[i]);
                    sum[i] += p0 + p1;
                    weights.operand[fragment][half * 2 + i] = Element<dtype>::pack(p0, p1);
                }
            }
            leave(fragment);
        }
    }

    /*
     * Weights of products, which `scale` of their rows makes logits in the same step, and their sums, of one tile. True: a score exceeds its reference by far, or all
     * together do, so that references are to be raised, and the weights taken again. Not with references that are large, unless `scale` is 1.
     */
    __device__ __forceinline__ bool weigh(const RowScores &products, const float (&scale)[lane_rows], RowScores &weights,
                                          float (&sums)[lane_rows]) const {
        bool exceeds = false;
#pragma unroll
        for (int i = 0; i < lane_rows; ++i) {
            sums[i] = 0.f;
#pragma unroll
            for (int n = 0; n < 8; ++n) {
                const float p0 = ptx::exp2_approx(fmaf(products.value[n][i * 2], scale[i], -reference[i]));
                const float p1 = ptx::exp2_approx(fmaf(products.value[n][i * 2 + 1], scale[i], -reference[i]));
                weights.value[n][i * 2] = p0;
                weights.value[n][i * 2 + 1] = p1;
                sums[i] += p0 + p1;
            }
            exceeds |= sums[i] > largest_sum;
        }
        return __any_sync(full_warp, exceeds);
    }
    /* Whether one of the warp's references is beyond what GroupSoftmax says of it. */
    __device__ __forceinline__ bool is_large() const {
        return __any_sync(full_warp, (fabsf(reference[0]) > GroupSoftmax::largest_reference && reference[0] != lowest) ||
                                         (fabsf(reference[1]) > GroupSoftmax::largest_reference && reference[1] != lowest));
    }

    /* Of a row's tokens in the warpgroup's tiles, in each of its four lanes. */
    __device__ __forceinline__ float row_sum(int i) const { return sum_of_lanes<1, 4>(sum[i]); }

  private:
    template <int dims>
    __device__ __forceinline__ void move(const float (&to)[lane_rows], RowOutput<dims> &output) {
        if (!__any_sync(full_warp, to[0] != reference[0] || to[1] != reference[1]))
            return;
        ptx::wgmma_wait(); /* rarely: instructions would be serialised if others wrote to accumulators while some are under way */
        ptx::accumulator_is_ready(output.value);
        float factors[lane_rows];
#pragma unroll
        for (int i = 0; i < lane_rows; ++i) {
            factors[i] = to[i] == reference[i] ? 1.f : ptx::exp2_approx(reference[i] - to[i]);
            reference[i] = to[i];
            sum[i] *= factors[i];
        }
        output.scale(factors);
    }
};

/* From products to logits in base 2, as score.cuh has it: `scale`, then a soft cap, where there is one. */
__device__ __forceinline__ void scale(RowScores &scores, const float (&scale)[lane_rows]) {
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
            scores.value[n][i] *= scale[i / 2];
    }
}
__device__ __forceinline__ void cap(RowScores &scores, float cap) {
    if (cap > 0.f) {
        const float cap_log2 = cap * log2_e, factor = __fdividef(1.f, cap_log2);
#pragma unroll
        for (int n = 0; n < 8; ++n) {
#pragma unroll
            for (int i = 0; i < 4; ++i)
                scores.value[n][i] = tanh_of(scores.value[n][i] * factor) * cap_log2;
        }
    }
}

__device__ __forceinline__ void closed_cap(RowScores &scores, float cap) {
    const ClosedCap capped(cap);
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
            scores.value[n][i] = capped(scores.value[n][i]);
    }
}

/*
 * Adds to each score what its row's ALiBi slope makes of the distance between token and query, as score.cuh has it. `token`: the tile's first; `places`: of
 * the warp's rows; first_token(n): of the scores' eight columns n.
 */
template <class FirstToken>
__device__ __forceinline__ void add_alibi(RowScores &scores, int token, int position_stride, const RowPlace *places,
                                          FirstToken first_token, int lane) {
#pragma unroll
    for (int i = 0; i < lane_rows; ++i) {
        const RowPlace place = places[lane / 4 + i * 8];
        const float first = place.alibi_slope * static_cast<float>((token + lane % 4 * 2) * position_stride + place.distance);
        const float of_token = place.alibi_slope * static_cast<float>(position_stride);
#pragma unroll
        for (int n = 0; n < 8; ++n) {
#pragma unroll
            for (int odd = 0; odd < 2; ++odd)
                scores.value[n][i * 2 + odd] += fmaf(of_token, static_cast<float>(first_token(n) + odd), first);
        }
    }
}

/*
 * Scores of tokens that their row does not see become -infinity. `first_row`: of the warp; seen_by(row): a bit for each of the tile's; first_token(n):
 * of the scores' eight columns n.
 */
template <class SeenBy, class FirstToken>
__device__ __forceinline__ void mask(RowScores &scores, SeenBy seen_by, FirstToken first_token, int first_row, int lane) {
#pragma unroll
    for (int i = 0; i < lane_rows; ++i) {
        const uint64_t seen = seen_by(first_row + lane / 4 + i * 8) >> (lane % 4 * 2);
#pragma unroll
        for (int n = 0; n < 8; ++n) {
#pragma unroll
            for (int odd = 0; odd < 2; ++odd) {
                float &score = scores.value[n][i * 2 + odd];
                score = (seen >> (first_token(n) + odd) & 1) != 0 ? score : -INFINITY;
            }
        }
    }
}

/* The same of tokens in order. */
template <class SeenBy>
__device__ __forceinline__ void mask(RowScores &scores, SeenBy seen_by, int first_row, int lane) {
    mask(
        scores, seen_by, [](int n) { return n * 8; }, first_row, lane);
}

} // namespace tile
