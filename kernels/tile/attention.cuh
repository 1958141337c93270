/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attention.cuh: what one warp computes on its tokens of a tile, with swapped operands: tokens are the 16 rows of the matrix
 * instruction, query rows its 8 columns, so a group of 8 query heads wastes nothing.
 *
 *     scores^T [tokens, rows] = K [tokens, head_dim] Q^T          qk
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

#include "tile/element.cuh"
#include "tile/kv_format.cuh"
#include "tile/query.cuh"
#include "tile/score.cuh"
#include "tile/softmax.cuh"

namespace tile {

template <class Format, int tile_tokens, int token_fragments, int row_fragments>
__device__ __forceinline__ void qk(ScoreFragment<token_fragments, row_fragments> &scores,
                                   const QueryFragment<Format, row_fragments> &query, uint32_t k_tile,
                                   const TokenFragments<Format, tile_tokens, token_fragments> &tokens, int lane) {
    using Matrix = Element<Format::matrix_dtype>;
#pragma unroll
    for (int fragment = 0; fragment < token_fragments; ++fragment) {
        /*
         * With few scores, even and odd steps in accumulators of their own: chains of dependent instructions half as long. Rows of
         * 512 have no registers for that.
         */
        constexpr int chains = token_fragments * row_fragments < 4 && Format::steps <= 16 ? 2 : 1;
        float part[chains][row_fragments][4] = {};
        typename Format::KeyReader reader(k_tile, tokens, fragment, lane);
#pragma unroll
        for (int step = 0; step < Format::steps; ++step) {
            uint32_t keys[4];
            reader.operand(keys, step);
#pragma unroll
            for (int n = 0; n < row_fragments; ++n)
                Matrix::mma(part[step % chains][n], keys, query.operand[step][n]);
        }
#pragma unroll
        for (int n = 0; n < row_fragments; ++n) {
#pragma unroll
            for (int i = 0; i < 4; ++i)
                scores.value[fragment][n][i] = chains == 1 ? part[0][n][i] : part[0][n][i] + part[chains - 1][n][i];
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

  private:
    static __device__ __forceinline__ uint32_t halves(uint32_t bits) {
        return (bits & 1) * 0xffffu | (bits >> 1 & 1) * 0xffff0000u;
    }
};

/*
 * `masked`: rows of V that no row sees, and those from the end on, become zero on their way to the tensor core. A weight of 0 does
 * not help against NaN there: 0 * NaN is NaN.
 */
template <bool masked, class Format, int tile_tokens, int token_fragments, int row_fragments, int row_tile, int count>
__device__ __forceinline__ void pv(OutputFragment<Format::steps, row_fragments> &output,
                                   const WeightFragment<token_fragments, row_fragments> &weights, uint32_t v_tile,
                                   const TokenFragments<Format, tile_tokens, token_fragments> &fragments,
                                   const WarpTokens<row_tile, count> &tokens, int lane) {
    using Matrix = Element<Format::matrix_dtype>;
    const auto seen = masked ? tokens.seen_by_any() : 0;
#pragma unroll
    for (int fragment = 0; fragment < token_fragments; ++fragment) {
        typename Format::ValueReader reader(v_tile, fragments, fragment, lane);
        VisibleHalves visible;
        if constexpr (masked)
            visible = VisibleHalves(static_cast<uint32_t>(seen >> (fragment * fragment_tokens)), lane);
#pragma unroll
        for (int step = 0; step < Format::steps; ++step) {
            uint32_t values[4];
            reader.operand(values, step);
            if constexpr (masked) {
                values[0] &= visible.low;
                values[1] &= visible.low;
                values[2] &= visible.high;
                values[3] &= visible.high;
            }
#pragma unroll
            for (int n = 0; n < row_fragments; ++n)
                Matrix::mma(output.value[step][n], values, weights.operand[fragment][n]);
        }
    }
}

} // namespace tile
