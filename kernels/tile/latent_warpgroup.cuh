/* SPDX-License-Identifier: Apache-2.0 */
/*
 * latent_warpgroup.cuh: what a warpgroup computes on a tile of 64 tokens of MLA's KV for 64 rows:
 *
 *     scores [64 rows, 64 tokens] = Q K^T           warp w has rows 16 w to 16 w + 15
 *     output [64 rows, 256 dims] += p V             likewise; half of the dims of V, the other warpgroup has the other half
 *
 * All operands lie in shared memory, but p of the warpgroup's own tiles, which never leaves its registers, and the last line of Q,
 * which has given its place to what the warpgroups hand each other of p. K and V are the same bytes, [line][token][128 bytes], as the
 * copy engine leaves them: as K a line is read along the dims, as V across the tokens.
 * Registers of a thread: rows l/4 and l/4 + 8 of the warp's, of each 8 columns 2 (l%4) and the next. So a row lies in four neighbouring
 * lanes, and each row has its reference to itself.
 */
#pragma once

#include <cstdint>

#include "abi.h"
#include "ptx/matrix.cuh"
#include "ptx/wgmma.cuh"
#include "tile/element.cuh"
#include "tile/score.cuh"
#include "tile/warpgroup.cuh"

namespace tile {

constexpr int latent_lane_rows = 2; /* of a thread */
constexpr int latent_output_dims = 256;

/* d = a b over 16 dims, or += where it accumulates. */
template <int dtype, class A>
__device__ __forceinline__ void latent_scores_mma(float (&d)[8][4], const A &a, uint64_t b, bool accumulates) {
    if constexpr (dtype == KERNEL_DTYPE_BF16)
        ptx::wgmma_m64n64k16_bf16(d, a, b, accumulates);
    else
        ptx::wgmma_m64n64k16_fp16(d, a, b, accumulates);
}
/* d += a b over 16 tokens, of a piece of the output. */
template <int dtype, class A>
__device__ __forceinline__ void latent_output_mma(float (&d)[16][4], const A &a, uint64_t b) {
    if constexpr (dtype == KERNEL_DTYPE_BF16)
        ptx::wgmma_m64n128k16_bf16(d, a, b);
    else
        ptx::wgmma_m64n128k16_fp16(d, a, b);
}

/* An operand of 64 rows and 64 columns in shared memory, or such a part of one, as the A operand of 16 of its columns. */
using SquareRows = OperandRows<group_rows>;

struct LatentScores {
    float value[8][4];
};
struct LatentOutput {
    /* What one matrix instruction adds to. V is given back in as many pieces, so that the next tile begins to come earlier. */
    static constexpr int pieces = 2, piece_dims = latent_output_dims / pieces;
    float value[latent_output_dims / 8][4];

    __device__ __forceinline__ float (&piece(int i))[piece_dims / 8][4] {
        return reinterpret_cast<float(&)[piece_dims / 8][4]>(value[i * (piece_dims / 8)]);
    }

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int n = 0; n < latent_output_dims / 8; ++n) {
#pragma unroll
            for (int i = 0; i < 4; ++i)
                value[n][i] = 0.f;
        }
    }
    __device__ __forceinline__ void scale(const float (&factors)[latent_lane_rows]) {
#pragma unroll
        for (int n = 0; n < latent_output_dims / 8; ++n) {
#pragma unroll
            for (int i = 0; i < 4; ++i)
                value[n][i] *= factors[i / 2];
        }
    }
};

/* 64 columns of a warp's rows as A operands, of 16 columns each: weights of a tile, or output on its way out. */
struct LatentSquare {
    uint32_t operand[group_token_fragments][4];

    /* Into shared memory: [row][64 columns]; a fragment, so many behind its place. `warp`: of the group. */
    __device__ __forceinline__ void store(uint32_t square, int fragment, int warp, int lane, int behind = 0) const {
        ptx::stmatrix_x4(SquareRows::at(square, warp * 16 + lane % 16, (behind + fragment) * 32 + lane / 16 * 16),
                         operand[fragment]);
    }
};

/* A line of Q as A operands, which stay in registers. */
struct LatentQueryLine {
    uint32_t operand[4][4];

    __device__ __forceinline__ void load(uint32_t line, int warp, int lane) {
#pragma unroll
        for (int step = 0; step < 4; ++step)
            ptx::ldmatrix_x4(operand[step], SquareRows::at(line, warp * 16 + lane % 16, step * 32 + lane / 16 * 16));
    }
};

/* Of K's line at `line`, the operand of step 0 to 3. */
__device__ __forceinline__ uint64_t key_operand(uint32_t line, int step) { return ptx::swizzled_operand(line + step * 32); }

/*
 * Begins output += p V of a tile's 64 tokens, a piece of the output after the other, each as a group of its own; `values`: the first of the
 * four lines of V. p: registers, or in shared memory.
 */
template <int dtype, class OperandOf>
__device__ __forceinline__ void begin_latent_pv_pieces(LatentOutput &output, OperandOf weights, uint32_t values) {
    constexpr int line_bytes = group_tokens * 128;
    values = ptx::computed_here(values); /* descriptors kept over the loop would take registers from it */
    ptx::wgmma_fence();
#pragma unroll
    for (int piece = 0; piece < LatentOutput::pieces; ++piece) {
        const uint32_t of_piece = values + piece * (LatentOutput::piece_dims / 64 * line_bytes);
#pragma unroll
        for (int fragment = 0; fragment < group_token_fragments; ++fragment)
            latent_output_mma<dtype>(output.piece(piece), weights(fragment),
                                     ptx::transposed_operand<line_bytes>(of_piece + fragment * (fragment_tokens * 128)));
        ptx::wgmma_commit();
    }
}
template <int dtype>
__device__ __forceinline__ void begin_latent_pv(LatentOutput &output, const LatentSquare &weights, uint32_t values) {
    begin_latent_pv_pieces<dtype>(
        output, [&](int fragment) -> const uint32_t(&)[4] { return weights.operand[fragment]; }, values);
}
template <int dtype>
__device__ __forceinline__ void begin_latent_pv(LatentOutput &output, uint32_t weights, uint32_t values) {
    weights = ptx::computed_here(weights);
    begin_latent_pv_pieces<dtype>(
        output, [&](int fragment) { return SquareRows::operand(weights, 0, fragment); }, values);
}

/* Rows of V that no row sees become zero: a weight of 0 does not help against NaN. By the 128 threads of a warpgroup, which then meet. */
__device__ __forceinline__ void clear_unseen_values(uint32_t tile, int v_lines, uint64_t seen, int thread) {
    const int token = thread / 2;
    if ((seen >> token & 1) != 0)
        return;
#pragma unroll 1
    for (int line = thread % 2; line < v_lines; line += 2) {
#pragma unroll
        for (int chunk = 0; chunk < 8; ++chunk)
            ptx::store_shared_zeros(tile + line * (group_tokens * 128) + token * 128 + chunk * 16);
    }
}

/*
 * The running softmax of a thread's rows. Both warpgroups have the same references, those behind the newest tile whose weights went into
 * their output: a tile's warpgroup raises them, where a score exceeds them by far, the other one follows. Sums are of the thread's own
 * tokens, in the warpgroup's own tiles.
 */
struct LatentSoftmax {
    static constexpr float lowest = GroupReferences::lowest, rescale_threshold = GroupSoftmax::rescale_threshold;
    float reference[latent_lane_rows], sum[latent_lane_rows];

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int i = 0; i < latent_lane_rows; ++i) {
            reference[i] = lowest;
            sum[i] = 0.f;
        }
    }

    /* The other warpgroup's references, of the warp's rows; no instruction that adds to the output is under way. */
    __device__ __forceinline__ void follow(const float *references, LatentOutput &output, int lane) {
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
    __device__ __forceinline__ void raise(const LatentScores &scores, float scale, LatentOutput &output) {
        float largest[latent_lane_rows];
#pragma unroll
        for (int i = 0; i < latent_lane_rows; ++i) {
            largest[i] = -INFINITY;
#pragma unroll
            for (int n = 0; n < 8; ++n)
                largest[i] = fmaxf(largest[i], fmaxf(scores.value[n][i * 2], scores.value[n][i * 2 + 1]));
            largest[i] *= scale;
        }
        if (!__any_sync(full_warp,
                        largest[0] - reference[0] > rescale_threshold || largest[1] - reference[1] > rescale_threshold))
            return;
#pragma unroll
        for (int i = 0; i < latent_lane_rows; ++i) {
#pragma unroll
            for (int distance = 1; distance < 4; distance *= 2)
                largest[i] = fmaxf(largest[i], __shfl_xor_sync(full_warp, largest[i], distance));
            largest[i] = largest[i] - reference[i] > rescale_threshold ? largest[i] : reference[i];
        }
        move(largest, output);
    }

    /*
     * Weights of the scores, times `scale`, and their sums; the weights go to `square` in shared memory, too. Products are rounded, as in
     * `raise`: else the largest of huge scores would not be its own reference. `warp`: of the group.
     */
    template <int dtype>
    __device__ __forceinline__ void weigh(const LatentScores &scores, float scale, LatentSquare &weights, uint32_t square,
                                          int warp, int lane) {
#pragma unroll
        for (int fragment = 0; fragment < group_token_fragments; ++fragment) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const float(&score)[4] = scores.value[fragment * 2 + half];
#pragma unroll
                for (int i = 0; i < latent_lane_rows; ++i) {
                    const float p0 = ptx::exp2_approx(__fmul_rn(score[i * 2], scale) - reference[i]);
                    const float p1 = ptx::exp2_approx(__fmul_rn(score[i * 2 + 1], scale) - reference[i]);
                    sum[i] += p0 + p1;
                    weights.operand[fragment][half * 2 + i] = Element<dtype>::pack(p0, p1);
                }
            }
            weights.store(square, fragment, warp, lane);
        }
    }

    /* Of a row's tokens in the warpgroup's tiles, in each of its four lanes. */
    __device__ __forceinline__ float row_sum(int i) const {
        float total = sum[i];
#pragma unroll
        for (int distance = 1; distance < 4; distance *= 2)
            total += __shfl_xor_sync(full_warp, total, distance);
        return total;
    }

  private:
    __device__ __forceinline__ void move(const float (&to)[latent_lane_rows], LatentOutput &output) {
        if (!__any_sync(full_warp, to[0] != reference[0] || to[1] != reference[1]))
            return;
        ptx::wgmma_wait(); /* rarely: instructions would be serialised if others wrote to accumulators while some are under way */
        ptx::accumulator_is_ready(output.value);
        float factors[latent_lane_rows];
#pragma unroll
        for (int i = 0; i < latent_lane_rows; ++i) {
            factors[i] = to[i] == reference[i] ? 1.f : ptx::exp2_approx(reference[i] - to[i]);
            reference[i] = to[i];
            sum[i] *= factors[i];
        }
        output.scale(factors);
    }
};

/* From products to logits in base 2, as score.cuh has it: `scale`, then a soft cap, where there is one. */
__device__ __forceinline__ void scale(LatentScores &scores, float scale) {
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
            scores.value[n][i] *= scale;
    }
}
__device__ __forceinline__ void cap(LatentScores &scores, float cap) {
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

/* Scores of tokens that their row does not see become -infinity. `first_row`: of the warp; seen_by(row): a bit for each of the tile's. */
template <class SeenBy>
__device__ __forceinline__ void mask(LatentScores &scores, SeenBy seen_by, int first_row, int lane) {
#pragma unroll
    for (int i = 0; i < latent_lane_rows; ++i) {
        const uint64_t seen = seen_by(first_row + lane / 4 + i * 8) >> (lane % 4 * 2);
#pragma unroll
        for (int n = 0; n < 8; ++n) {
#pragma unroll
            for (int odd = 0; odd < 2; ++odd) {
                float &score = scores.value[n][i * 2 + odd];
                score = (seen >> (n * 8 + odd) & 1) != 0 ? score : -INFINITY;
            }
        }
    }
}

} // namespace tile
