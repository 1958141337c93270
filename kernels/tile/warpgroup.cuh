/* SPDX-License-Identifier: Apache-2.0 */
/*
 * warpgroup.cuh: what warpgroups have on a tile of 64 tokens for 64 rows: operands in shared memory, [row][128 bytes], swizzled, and the softmax of
 * those with swapped operands, as in attention.cuh: of scores^T [64 tokens, 64 rows] warp w has tokens 16 w to 16 w + 15 (gathered_warpgroup.cuh;
 * rows that stay rows: row_warpgroup.cuh). A row's tokens lie in four warps: they share its reference, which is raised only when a score exceeds it by
 * far, and a barrier that they need anyhow tells whether one does.
 */
#pragma once

#include <cstdint>

#include "ptx/memory.cuh"
#include "ptx/wgmma.cuh"
#include "tile/attention.cuh"
#include "tile/lanes.cuh"

namespace tile {

constexpr int group_warps = 4, group_threads = group_warps * 32;
constexpr int group_rows = 64, group_tokens = 64;
constexpr int group_row_fragments = group_rows / 8, group_token_fragments = group_tokens / fragment_tokens;
constexpr int group_weight_bytes = group_rows * group_tokens * 2; /* of a tile */

template <int dtype>
__device__ __forceinline__ void group_mma(float (&d)[group_row_fragments][4], const uint32_t (&a)[4], uint64_t b,
                                          bool accumulates) {
    if constexpr (dtype == KERNEL_DTYPE_BF16)
        ptx::wgmma_m64n64k16_bf16(d, a, b, accumulates);
    else
        ptx::wgmma_m64n64k16_fp16(d, a, b, accumulates);
}

/* Rows of an operand in shared memory: lines of 128 bytes, [line][row][128 bytes]. */
template <int rows>
struct OperandRows {
    static constexpr int line_bytes = 128, line_stride_bytes = rows * line_bytes;
    static_assert(rows % 8 == 0, "the swizzle repeats every 8 rows");

    /* Where byte `byte` of a row lies. */
    static __device__ __forceinline__ uint32_t at(uint32_t operand, int row, int byte) {
        return operand + byte / line_bytes * line_stride_bytes + row * line_bytes + (byte % line_bytes ^ row % 8 * 16);
    }
    /* Elements 16 * step and the next 15 of 64 rows from `first_row` on, a multiple of 8. */
    static __device__ __forceinline__ uint64_t operand(uint32_t operand, int first_row, int step) {
        const int byte = step * 32;
        return ptx::swizzled_operand(operand + byte / line_bytes * line_stride_bytes + first_row * line_bytes +
                                     byte % line_bytes);
    }
    /* The same, counted from the operand of the first row's first step. */
    static __device__ __forceinline__ uint64_t operand_behind(uint64_t first, int step) {
        const int byte = step * 32;
        return ptx::operand_behind(first, byte / line_bytes * line_stride_bytes + byte % line_bytes);
    }
};

/*
 * Of a warpgroup's rows what its warps share, in shared memory: the reference of each, as OnlineSoftmax has it, but for the lowest number
 * before the first visible token: differences to that are no NaN. And while references are raised, the largest scores of each warp,
 * and what the sums and the output shrink by.
 */
struct alignas(16) GroupReferences {
    static constexpr float lowest = -3.40282347e38f;
    float reference[group_rows];
    float largest[group_warps][group_rows], shrink[group_rows];
};

/* Neighbouring rows of a lane, the even one and the odd one. */
__device__ __forceinline__ float2 of_rows(const float (&values)[group_rows], int n, int lane) {
    return *reinterpret_cast<const float2 *>(&values[row_of(0, n, 0, lane)]);
}

/* What stands in shared memory for each row, of the lane's: two of each fragment. */
struct GroupRowValues {
    float value[group_row_fragments][2];

    __device__ __forceinline__ void load(const float (&values)[group_rows], int lane) {
#pragma unroll
        for (int n = 0; n < group_row_fragments; ++n) {
            const float2 of_lane = of_rows(values, n, lane);
            value[n][0] = of_lane.x;
            value[n][1] = of_lane.y;
        }
    }
    __device__ __forceinline__ void fill(float same) {
#pragma unroll
        for (int n = 0; n < group_row_fragments; ++n)
            value[n][0] = value[n][1] = same;
    }
};

/* The running softmax of a warpgroup's rows: references of all warps, sums of each warp's own tokens. */
struct GroupSoftmax {
    using Scores = ScoreFragment<1, group_row_fragments>;
    static constexpr float rescale_threshold = 8.f;
    /*
     * Beyond it a product becomes a logit, which is rounded, before its reference is taken from it, as where references are raised: else the difference of
     * the largest from its own reference would be what rounding left out. Up to it that is less than 2^-4.
     */
    static constexpr float largest_reference = 0x1p20f;

    float sum[group_row_fragments][2];

    /* By all threads of the warpgroup, which then meet. */
    __device__ __forceinline__ void clear(GroupReferences &references, int thread) {
        if (thread < group_rows)
            references.reference[thread] = GroupReferences::lowest;
#pragma unroll
        for (int n = 0; n < group_row_fragments; ++n)
            sum[n][0] = sum[n][1] = 0.f;
    }

    /*
     * What lies between scores and references. Whether one of the lane's scores exceeds its reference by so much that references are to be
     * raised, and the differences taken again.
     */
    static __device__ __forceinline__ bool subtract(const Scores &scores, const GroupReferences &references, Scores &differences,
                                                    int lane) {
        float largest = -INFINITY;
#pragma unroll
        for (int n = 0; n < group_row_fragments; ++n) {
            const float2 reference = of_rows(references.reference, n, lane);
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                differences.value[0][n][i] = scores.value[0][n][i] - (i % 2 == 0 ? reference.x : reference.y);
            }
            const float(&of_four)[4] = differences.value[0][n]; /* not one after the other: each would wait for the one before */
            largest = fmaxf(largest, fmaxf(fmaxf(of_four[0], of_four[1]), fmaxf(of_four[2], of_four[3])));
        }
        return largest > rescale_threshold;
    }

    /* The same, and at once what they are without that: the weights. */
    static __device__ __forceinline__ bool weigh(const Scores &scores, const GroupReferences &references, Scores &weights,
                                                 int lane) {
        const bool exceeds = subtract(scores, references, weights, lane);
#pragma unroll
        for (int n = 0; n < group_row_fragments; ++n) {
#pragma unroll
            for (int i = 0; i < 4; ++i)
                weights.value[0][n][i] = ptx::exp2_approx(weights.value[0][n][i]);
        }
        return exceeds;
    }

    /* Of products, which `factors` make logits in the same step; with what was read of both before. Not with references that are large. */
    static __device__ __forceinline__ bool weigh(const Scores &products, const GroupRowValues &factors,
                                                 const GroupRowValues &references, Scores &weights) {
        float largest = -INFINITY;
#pragma unroll
        for (int n = 0; n < group_row_fragments; ++n) {
            float differences[4];
#pragma unroll
            for (int i = 0; i < 4; ++i)
                differences[i] = fmaf(products.value[0][n][i], factors.value[n][i % 2], -references.value[n][i % 2]);
            largest = fmaxf(largest, fmaxf(fmaxf(differences[0], differences[1]), fmaxf(differences[2], differences[3])));
#pragma unroll
            for (int i = 0; i < 4; ++i)
                weights.value[0][n][i] = ptx::exp2_approx(differences[i]);
        }
        return largest > rescale_threshold;
    }

    /* The same, which reads both. */
    static __device__ __forceinline__ bool weigh(const Scores &products, const float (&factors)[group_rows],
                                                 const GroupReferences &references, Scores &weights, int lane) {
        float largest = -INFINITY;
#pragma unroll
        for (int n = 0; n < group_row_fragments; ++n) {
            const float2 factor = of_rows(factors, n, lane), reference = of_rows(references.reference, n, lane);
            float differences[4];
#pragma unroll
            for (int i = 0; i < 4; ++i)
                differences[i] = i % 2 == 0 ? fmaf(products.value[0][n][i], factor.x, -reference.x)
                                            : fmaf(products.value[0][n][i], factor.y, -reference.y);
            largest = fmaxf(largest, fmaxf(fmaxf(differences[0], differences[1]), fmaxf(differences[2], differences[3])));
#pragma unroll
            for (int i = 0; i < 4; ++i)
                weights.value[0][n][i] = ptx::exp2_approx(differences[i]);
        }
        return largest > rescale_threshold;
    }

    /* Whether a row's reference is beyond largest_reference, or it has none yet; of all rows, which a warp has. */
    static __device__ __forceinline__ bool is_large(const GroupReferences &references, int lane) {
        bool some = false;
#pragma unroll
        for (int n = 0; n < group_row_fragments; ++n) {
            const float2 of_lane = of_rows(references.reference, n, lane);
            some |= fabsf(of_lane.x) > largest_reference || fabsf(of_lane.y) > largest_reference;
        }
        return __any_sync(full_warp, some);
    }

    /* By all warps, where one of their scores exceeds: no score is above the references then. The output is to follow, shrink_output. */
    __device__ __forceinline__ void raise(const Scores &scores, GroupReferences &references, int warp, int lane, int barrier_id) {
#pragma unroll
        for (int n = 0; n < group_row_fragments; ++n) {
#pragma unroll
            for (int odd = 0; odd < 2; ++odd) {
                const float largest = largest_of_lanes<4, 32>(fmaxf(scores.value[0][n][odd], scores.value[0][n][2 + odd]));
                if (lane < 4)
                    references.largest[warp][row_of(0, n, odd, lane)] = largest;
            }
        }
        ptx::named_barrier<group_threads>(barrier_id);
        if (const int row = warp * 32 + lane; row < group_rows) {
            const float before = references.reference[row];
            float after = before;
#pragma unroll
            for (int other = 0; other < group_warps; ++other)
                after = fmaxf(after, references.largest[other][row]);
            references.reference[row] = after;
            references.shrink[row] = ptx::exp2_approx(before - after);
        }
        ptx::named_barrier<group_threads>(barrier_id);
#pragma unroll
        for (int n = 0; n < group_row_fragments; ++n) {
            const float2 shrink = of_rows(references.shrink, n, lane);
            sum[n][0] *= shrink.x;
            sum[n][1] *= shrink.y;
        }
    }

    /* The weights of the warp's tokens into shared memory, [row][64 tokens], as the B operand of pv, and to the sums. */
    template <int dtype>
    __device__ __forceinline__ void add(const Scores &p, uint32_t weights, int warp, int lane) {
#pragma unroll
        for (int n = 0; n < group_row_fragments; n += 2) {
            float pair[2][4];
#pragma unroll
            for (int i = 0; i < 2; ++i) {
#pragma unroll
                for (int j = 0; j < 4; ++j)
                    pair[i][j] = p.value[0][n + i][j];
            }
            add_to_sums(pair, n);
            store<dtype>(pair, weights, n, warp, lane);
        }
    }
    /* The sum over the warp's tokens, in every lane. */
    __device__ __forceinline__ float row_sum(int n, int odd) const { return sum_of_lanes<4, 32>(sum[n][odd]); }

    /*
     * Reference and sum of each row, by all warps. `statistics`: of the group's first row; sum_of(row, warp): where a warp leaves what it
     * has of a row's sum, that nobody else uses any more.
     */
    template <class SumOf>
    __device__ __forceinline__ void store_statistics(const GroupReferences &references, float (*statistics)[2], SumOf sum_of,
                                                     int thread, int barrier_id) const {
        const int warp = thread / 32, lane = thread % 32;
#pragma unroll
        for (int n = 0; n < group_row_fragments; ++n) {
#pragma unroll
            for (int odd = 0; odd < 2; ++odd) {
                const float total = row_sum(n, odd);
                if (lane < 4)
                    sum_of(row_of(0, n, odd, lane), warp) = total;
            }
        }
        ptx::named_barrier<group_threads>(barrier_id);
        if (thread < group_rows) {
            const float reference = references.reference[thread];
            statistics[thread][0] = reference == GroupReferences::lowest ? -INFINITY : reference;
            statistics[thread][1] = (sum_of(thread, 0) + sum_of(thread, 1)) + (sum_of(thread, 2) + sum_of(thread, 3));
        }
    }

  private:
    __device__ __forceinline__ void add_to_sums(const float (&p)[2][4], int n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            sum[n + i][0] += p[i][0] + p[i][2];
            sum[n + i][1] += p[i][1] + p[i][3];
        }
    }

    template <int dtype>
    static __device__ __forceinline__ void store(const float (&p)[2][4], uint32_t weights, int n, int warp, int lane) {
        uint32_t packed[4]; /* rows 8 n: tokens 0 to 7, 8 to 15; rows 8 n + 8: likewise */
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            packed[i * 2] = Element<dtype>::pack(p[i][0], p[i][1]);
            packed[i * 2 + 1] = Element<dtype>::pack(p[i][2], p[i][3]);
        }
        const int row = n * 8 + lane / 16 * 8 + lane % 8, token = warp * fragment_tokens + lane / 8 % 2 * 8;
        ptx::stmatrix_x4_trans(OperandRows<group_rows>::at(weights, row, token * 2), packed);
    }
};

/* A warpgroup's sums in shared memory, for where registers are needed for something else. */
struct SharedSums {
    float4 of_pair[group_row_fragments / 2][group_threads];

    __device__ __forceinline__ void load(GroupSoftmax &softmax, int thread) const {
#pragma unroll
        for (int n = 0; n < group_row_fragments; n += 2) {
            const float4 sums = of_pair[n / 2][thread];
            softmax.sum[n][0] = sums.x;
            softmax.sum[n][1] = sums.y;
            softmax.sum[n + 1][0] = sums.z;
            softmax.sum[n + 1][1] = sums.w;
        }
    }
    __device__ __forceinline__ void store(const GroupSoftmax &softmax, int thread) {
#pragma unroll
        for (int n = 0; n < group_row_fragments; n += 2)
            of_pair[n / 2][thread] =
                make_float4(softmax.sum[n][0], softmax.sum[n][1], softmax.sum[n + 1][0], softmax.sum[n + 1][1]);
    }
};

/* What the references that were raised last make of the output so far. */
template <int steps>
__device__ __forceinline__ void shrink_output(OutputFragment<steps, group_row_fragments> &output,
                                              const float (&shrink)[group_rows], int lane) {
#pragma unroll
    for (int n = 0; n < group_row_fragments; ++n) {
        const float2 of_lane = of_rows(shrink, n, lane);
        output.scale(n, of_lane.x, of_lane.y);
    }
}

} // namespace tile
