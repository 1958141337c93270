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
#include "tile/row_map.cuh"
#include "tile/score.cuh"
#include "tile/softmax.cuh"

namespace tile {

/* Rows of Q as the B operand of qk, for all of head_dim; rows past the live ones are zero. */
template <class Format, int row_fragments>
struct QueryFragment {
    uint32_t operand[Format::steps][row_fragments][2];

    __device__ __forceinline__ void load(const query_params &query, const RowMap &rows, int lane) {
        const uint16_t *const first_row = rows.first_query_row(query);
#pragma unroll
        for (int n = 0; n < row_fragments; ++n) {
            const int row = n * 8 + (lane >> 2);
            const uint16_t *elements = first_row + row * query.head_stride;
#pragma unroll
            for (int step = 0; step < Format::steps; ++step) {
#pragma unroll
                for (int half = 0; half < 2; ++half)
                    operand[step][n][half] =
                        row < rows.live_rows()
                            ? *reinterpret_cast<const uint32_t *>(elements + Format::query_dim(step, half, lane))
                            : 0u;
            }
        }
    }
};

template <class Format, int token_fragments, int row_fragments>
__device__ __forceinline__ void qk(ScoreFragment<token_fragments, row_fragments> &scores,
                                   const QueryFragment<Format, row_fragments> &query, uint32_t k_tile,
                                   const TokenFragments<Format, token_fragments> &tokens, int lane) {
    using Matrix = Element<Format::matrix_dtype>;
#pragma unroll
    for (int fragment = 0; fragment < token_fragments; ++fragment) {
        /* With few scores, even and odd steps in accumulators of their own: chains of dependent instructions half as long. */
        constexpr int chains = token_fragments * row_fragments < 4 ? 2 : 1;
        float part[chains][row_fragments][4] = {};
        const uint32_t address = Format::k_address(k_tile + tokens.offset[fragment], lane);
#pragma unroll
        for (int step = 0; step < Format::steps; ++step) {
            uint32_t keys[4];
            Format::k_operand(keys, address, tokens.line_stride_bytes, step);
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

/* For the lane's tokens of a V operand: all ones in the halves of visible ones. */
struct VisibleHalves {
    uint32_t low, high; /* tokens 2*(l%4) and the next; those 8 further */

    __device__ __forceinline__ VisibleHalves(int first_visible, int end_visible, int fragment, int lane) {
        const int token = fragment * fragment_tokens + (lane & 3) * 2;
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
template <bool masked, class Format, int token_fragments, int row_fragments>
__device__ __forceinline__ void
pv(OutputFragment<Format::steps, row_fragments> &output, const WeightFragment<token_fragments, row_fragments> &weights,
   uint32_t v_tile, const TokenFragments<Format, token_fragments> &tokens, int first_visible, int end_visible, int lane) {
    using Matrix = Element<Format::matrix_dtype>;
#pragma unroll
    for (int fragment = 0; fragment < token_fragments; ++fragment) {
        const uint32_t address = Format::v_address(v_tile + tokens.offset[fragment], lane);
        const VisibleHalves visible(first_visible, end_visible, fragment, lane);
#pragma unroll
        for (int step = 0; step < Format::steps; ++step) {
            uint32_t values[4];
            Format::v_operand(values, address, tokens.line_stride_bytes, step);
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
