/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attention.cuh: what one warp computes on its tokens of a tile, with swapped operands: tokens are the 16 rows of the matrix
 * instruction, query rows its 8 columns, so a group of 8 query heads wastes nothing.
 *
 *     scores^T [tokens, rows] = K [tokens, head_dim] Q^T          qk, qk_rotated
 *     p^T = exp2(scores^T - reference)                            score.cuh, softmax.cuh
 *     output^T [head_dim, rows] += V^T [head_dim, tokens] p^T     pv
 *
 * Who holds what of a 16x8 accumulator (lane.register; of output^T read dims for tokens):
 *
 *                row 0   row 1   row 2   row 3    ...    row 6   row 7
 *     token  0    0.0     0.1     1.0     1.1             3.0     3.1
 *     token  1    4.0     4.1     5.0     5.1             7.0     7.1
 *       ...
 *     token  7   28.0    28.1    29.0    29.1            31.0    31.1
 *     token  8    0.2     0.3     1.2     1.3             3.2     3.3
 *       ...
 *     token 15   28.2    28.3    29.2    29.3            31.2    31.3
 *
 * So a maximum over tokens is two registers and three shuffles, and a lane's weights of one token are two neighbouring rows. As the
 * B operand of pv they are wanted the other way round: two neighbouring tokens of one row in a register, lane l those of row
 * l/4 and of tokens 2 (l%4), +1 (and 8 further in the second register). That is the transpose of each 8x8 half: one movmatrix
 * on the packed pair, in place of a trip through shared memory.
 */
#pragma once

#include <cstdint>

#include "ptx/mbarrier.cuh"
#include "ptx/memory.cuh"
#include "tile/element.cuh"
#include "tile/kv_format.cuh"
#include "tile/query.cuh"
#include "tile/rope.cuh"
#include "tile/score.cuh"
#include "tile/softmax.cuh"

namespace tile {

/*
 * With few scores, even and odd steps in accumulators of their own: chains of dependent instructions half as long. Rows of 512 have no
 * registers for that.
 */
template <class Format, int token_fragments, int row_fragments>
constexpr int qk_chains = token_fragments *row_fragments < 4 && Format::steps <= 16 ? 2 : 1;

template <int chains, int row_fragments>
__device__ __forceinline__ void add_chains(float (&scores)[row_fragments][4], const float (&part)[chains][row_fragments][4]) {
#pragma unroll
    for (int n = 0; n < row_fragments; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
            scores[n][i] = chains == 1 ? part[0][n][i] : part[0][n][i] + part[chains - 1][n][i];
    }
}

/* `at_once`: fragments of tokens whose instructions stand beside each other; others by the same code, one turn after the other. */
template <int at_once, class Format, int tile_tokens, int token_fragments, int row_fragments>
__device__ __forceinline__ void qk(ScoreFragment<token_fragments, row_fragments> &scores,
                                   const QueryFragment<Format, row_fragments> &query, uint32_t k_tile,
                                   const TokenFragments<Format, tile_tokens, token_fragments> &tokens, int lane) {
    using Matrix = Element<Format::matrix_dtype>;
    constexpr int chains = qk_chains<Format, token_fragments, row_fragments>;
#pragma unroll 1
    for (int first = 0; first < token_fragments; first += at_once) {
        const auto of_turn = tokens.further(first);
#pragma unroll
        for (int fragment = 0; fragment < at_once; ++fragment) {
            float part[chains][row_fragments][4] = {};
            typename Format::KeyReader reader(k_tile, of_turn, fragment, lane);
#pragma unroll
            for (int step = 0; step < Format::steps; ++step) {
                uint32_t keys[4];
                reader.operand(keys, step);
#pragma unroll
                for (int n = 0; n < row_fragments; ++n)
                    Matrix::mma(part[step % chains][n], keys, query.operand[step][n]);
            }
#pragma unroll
            for (int turn = 0; turn < token_fragments; turn += at_once) {
                if (turn == first)
                    add_chains(scores.value[turn + fragment], part);
            }
        }
    }
}

/* The pairs of dims that a lane turns in the steps of a chunk, two in each: for its first token, then for those 8, 16, ... further. */
template <class Format>
struct TurningPairs {
    const RopeFrequency *first;
    float angle[Format::rotated_steps][2];

    __device__ __forceinline__ TurningPairs(const RopeFrequency *frequencies, int chunk, uint32_t position, int lane)
        : first(frequencies + Format::rotated_dim(chunk * Format::rotated_steps, lane)) {
#pragma unroll
        for (int step = 0; step < Format::rotated_steps; ++step) {
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                uint32_t turn[2];
                ptx::load_shared(turn, ptx::shared_address(&frequency(step, i)));
                angle[step][i] = radians(turn[1] * position + __umulhi(turn[0], position));
            }
        }
    }

    /* `lower`, two neighbours, and their partners in the upper half of the row. */
    __device__ __forceinline__ void turn(uint32_t &lower, uint32_t &upper, int step) {
        float cosine[2], sine[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            sine[i] = ptx::sine_approx(angle[step][i]);
            cosine[i] = ptx::cosine_approx(angle[step][i]);
        }
        using Matrix = Element<Format::matrix_dtype>;
        Matrix::turn(lower, upper, typename Matrix::Turn(cosine, sine, Format::rotation_scale));
    }

    /* To the next token. From shared memory each time: there are no registers to keep that. */
    __device__ __forceinline__ void advance(int step) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            uint32_t further[1];
            ptx::load_shared(further, ptx::shared_address(&frequency(step, i).eight_tokens));
            angle[step][i] += __uint_as_float(further[0]);
        }
    }

  private:
    __device__ __forceinline__ const RopeFrequency &frequency(int step, int i) const {
        return first[Format::rotated_dim(step, 0) + i * Format::rotated_neighbour];
    }
};

/*
 * The same of rotated rows: K is turned between the reader and the tensor core, a query was when it was loaded. `position`: of the
 * lane's first token, from token 0 of the cache.
 */
template <class Format, int tile_tokens, int token_fragments, int row_fragments>
__device__ __forceinline__ void qk_rotated(ScoreFragment<token_fragments, row_fragments> &scores,
                                           const QueryFragment<Format, row_fragments> &query, uint32_t k_tile,
                                           const TokenFragments<Format, tile_tokens, token_fragments> &tokens,
                                           const RopeFrequency *frequencies, int half_dim, uint32_t position, int lane) {
    using Matrix = Element<Format::matrix_dtype>;
    constexpr int chunk_steps = Format::rotated_steps;
    scores.clear();
#pragma unroll
    for (int chunk = 0; chunk < Format::steps / chunk_steps; ++chunk) {
        TurningPairs<Format> pairs(frequencies, chunk, position, lane);
#pragma unroll
        for (int fragment = 0; fragment < token_fragments; ++fragment) {
            typename Format::RotatedKeyReader reader(k_tile, tokens, fragment, half_dim, lane);
            reader.load(chunk);
#pragma unroll
            for (int i = 0; i < chunk_steps; ++i) {
                const int step = chunk * chunk_steps + i;
                uint32_t keys[4];
                reader.operand(keys, step);
                pairs.turn(keys[0], keys[2], i);
                pairs.advance(i);
                pairs.turn(keys[1], keys[3], i);
                if (fragment + 1 < token_fragments)
                    pairs.advance(i);
#pragma unroll
                for (int n = 0; n < row_fragments; ++n)
                    Matrix::mma(scores.value[fragment][n], keys, query.operand[step][n]);
                /* What follows is not begun before: it would take more registers than there are beside the conversion. */
                if constexpr (Format::converts_query)
                    __syncwarp();
            }
        }
    }
}

/* For the lane's tokens of a V operand: all ones in the halves of those whose bit is set. */
struct VisibleHalves {
    uint32_t low, high; /* tokens 2*(l%4) and the next; those 8 further */

    VisibleHalves() = default;
    __device__ __forceinline__ VisibleHalves(uint32_t seen, int lane) {
        const uint32_t bits = seen >> ((lane & 3) * 2);
        low = halves(bits);
        high = halves(bits >> 8);
    }
    /* What is left of a V operand: the others' values are zeros. */
    __device__ __forceinline__ void keep_visible(uint32_t (&values)[4]) const {
        values[0] &= low;
        values[1] &= low;
        values[2] &= high;
        values[3] &= high;
    }

  private:
    static __device__ __forceinline__ uint32_t halves(uint32_t bits) {
        return (bits & 1) * 0xffffu | (bits >> 1 & 1) * 0xffff0000u;
    }
};

/*
 * `masked`: rows of V that no row sees, and those from the end on, become zero on their way to the tensor core. A weight of 0 does
 * not help against NaN there: 0 * NaN is NaN.
 */
template <bool masked, int at_once, class Format, int tile_tokens, int token_fragments, int row_fragments, int row_tile,
          int count>
__device__ __forceinline__ void pv(OutputFragment<Format::steps, row_fragments> &output,
                                   const WeightFragment<token_fragments, row_fragments> &weights, uint32_t v_tile,
                                   const TokenFragments<Format, tile_tokens, token_fragments> &fragments,
                                   const WarpTokens<row_tile, count> &tokens, int lane) {
    using Matrix = Element<Format::matrix_dtype>;
    const auto seen = masked ? tokens.seen_by_any() : 0;
#pragma unroll 1
    for (int first = 0; first < token_fragments; first += at_once) {
        const auto of_turn = fragments.further(first);
        const auto turn_weights = weights.template part<at_once>(first);
#pragma unroll
        for (int fragment = 0; fragment < at_once; ++fragment) {
            typename Format::ValueReader reader(v_tile, of_turn, fragment, lane);
            VisibleHalves visible;
            if constexpr (masked)
                visible = VisibleHalves(static_cast<uint32_t>(seen >> ((first + fragment) * fragment_tokens)), lane);
#pragma unroll
            for (int step = 0; step < Format::steps; ++step) {
                uint32_t values[4];
                reader.operand(values, step);
                if constexpr (masked)
                    visible.keep_visible(values);
#pragma unroll
                for (int n = 0; n < row_fragments; ++n)
                    Matrix::mma(output.value[step][n], values, turn_weights.operand[fragment][n]);
            }
        }
    }
}

} // namespace tile
