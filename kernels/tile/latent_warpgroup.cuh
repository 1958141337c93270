/* SPDX-License-Identifier: Apache-2.0 */
/*
 * latent_warpgroup.cuh: row_warpgroup.cuh on a tile of MLA's KV: a warpgroup has half of the dims of V, the other one the other half.
 *
 * All operands lie in shared memory, but p of the warpgroup's own tiles, which never leaves its registers, and the last line of Q,
 * which has given its place to what the warpgroups hand each other of p. K and V are the same bytes, [line][token][128 bytes], as the
 * copy engine leaves them: as K a line is read along the dims, as V across the tokens.
 */
#pragma once

#include <cstdint>

#include "abi.h"
#include "ptx/matrix.cuh"
#include "ptx/wgmma.cuh"
#include "tile/row_warpgroup.cuh"
#include "tile/warpgroup.cuh"

namespace tile {

/* d = a b over 16 dims, or += where it accumulates. */
template <int dtype, class A>
__device__ __forceinline__ void latent_scores_mma(float (&d)[8][4], const A &a, uint64_t b, bool accumulates) {
    if constexpr (dtype == KERNEL_DTYPE_BF16)
        ptx::wgmma_m64n64k16_bf16(d, a, b, accumulates);
    else
        ptx::wgmma_m64n64k16_fp16(d, a, b, accumulates);
}
/* A half of the dims of V. */
template <int dims>
struct LatentOutput : RowOutput<dims> {
    /* What one matrix instruction adds to. V is given back in as many pieces, so that the next tile begins to come earlier. */
    static constexpr int pieces = 2, piece_dims = dims / pieces;

    __device__ __forceinline__ float (&piece(int i))[piece_dims / 8][4] {
        return reinterpret_cast<float(&)[piece_dims / 8][4]>(this->value[i * (piece_dims / 8)]);
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
 * lines of its half of V. p: registers, or in shared memory.
 */
template <int dtype, int dims, class OperandOf>
__device__ __forceinline__ void begin_latent_pv_pieces(LatentOutput<dims> &output, OperandOf weights, uint32_t values) {
    constexpr int line_bytes = group_tokens * 128;
    values = ptx::computed_here(values); /* descriptors kept over the loop would take registers from it */
    ptx::wgmma_fence();
#pragma unroll
    for (int piece = 0; piece < LatentOutput<dims>::pieces; ++piece) {
        const uint32_t of_piece = values + piece * (LatentOutput<dims>::piece_dims / 64 * line_bytes);
#pragma unroll
        for (int fragment = 0; fragment < group_token_fragments; ++fragment)
            row_output_mma<dtype>(output.piece(piece), weights(fragment),
                                  ptx::transposed_operand<line_bytes>(of_piece + fragment * (fragment_tokens * 128)));
        ptx::wgmma_commit();
    }
}
template <int dtype, int dims>
__device__ __forceinline__ void begin_latent_pv(LatentOutput<dims> &output, const RowSquare &weights, uint32_t values) {
    begin_latent_pv_pieces<dtype>(
        output, [&](int fragment) -> const uint32_t(&)[4] { return weights.operand[fragment]; }, values);
}
template <int dtype, int dims>
__device__ __forceinline__ void begin_latent_pv(LatentOutput<dims> &output, uint32_t weights, uint32_t values) {
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

} // namespace tile
