/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gathered_warpgroup.cuh: what warpgroups compute on 64 tokens of MLA's KV, gathered rows, for 64 query rows; operands are swapped, as
 * in warpgroup.cuh:
 *
 *     scores^T [64 tokens, 64 rows] = K Q^T          one warpgroup; warp w has tokens 16 w to 16 w + 15
 *     output^T [256 dims, 64 rows] += V^T p^T        two of them, a half of the dims of V each; warp w has a quarter of every 128
 *
 * K and V are read from the rows into registers and converted there: no converted row ever lies in shared memory. Where blocks of 128 dims
 * have scales, these are multiplied in f32: with the sum of a block's products, and with the weights, of which every block has a version.
 */
#pragma once

#include <cstdint>

#include "tile/latent_query.cuh"
#include "tile/latent_rows.cuh"
#include "tile/warpgroup.cuh"

namespace tile {

constexpr int latent_block_dims = 128, latent_blocks = 4;

/* Query rows as a B operand, OperandRows. */
template <int row_tile, int head_dim>
struct OperandQueryRows {
    alignas(1024) uint16_t line[head_dim / 64][row_tile][64];

    __device__ __forceinline__ uint16_t *at(int r, int element) { return &line[element / 64][r][element % 64 ^ r % 8 * 8]; }
};

/* Of the lane's tokens, l/4 and 8 further of the fragment at `rows`, what block `block` is multiplied by. */
template <class Format>
__device__ __forceinline__ void load_block_scales(float (&scales)[2], uint32_t rows, int block, int lane) {
    const uint32_t row = rows + (lane >> 2) * Format::row_bytes;
    scales[0] = Format::block_scale(row, block);
    scales[1] = Format::block_scale(row + 8 * Format::row_bytes, block);
}

/*
 * scores^T = K Q^T of mixed rows whose blocks have scales. `rows`: of the warp's 16 tokens. While a pair of steps is on its way, the next
 * is converted, and the one after that read. A block is complete before it is added, and the next begins: there are no registers for two.
 */
template <Mixed Format>
__device__ __forceinline__ void group_latent_qk(ScoreFragment<1, group_row_fragments> &scores, uint32_t query, uint32_t rows,
                                                int lane) {
    static_assert(Format::has_block_scales, "a format whose blocks have scales");
    constexpr int together = 2, block_steps = Format::latent_steps / latent_blocks;
    static_assert(block_steps % together == 0 && (Format::steps - Format::latent_steps) % together == 0, "pairs of steps");
    uint32_t keys[2][together][4], chunks[2][4];
    query = ptx::computed_here(query); /* descriptors kept over the loop would take registers from it */
    const TokenFragments<Format, fragment_tokens, 1> tokens(0, fragment_tokens, false, lane);
    const typename Format::Latent::KeyReader latent(rows, tokens, 0, lane);
    typename Format::Rope::KeyReader rope(rows + Format::rope_byte, tokens, 0, lane);
    latent.load(chunks[0], 0);
#pragma unroll
    for (int step = 0; step < Format::steps - Format::latent_steps; step += together) {
        uint32_t(&operands)[together][4] = keys[step / together % 2];
#pragma unroll
        for (int i = 0; i < together; ++i)
            rope.operand(operands[i], step + i);
        ptx::wgmma_fence();
#pragma unroll
        for (int i = 0; i < together; ++i)
            group_mma<Format::Rope::matrix_dtype>(scores.value[0], operands[i],
                                                  OperandRows<group_rows>::operand(query, 0, Format::latent_steps + step + i),
                                                  step + i > 0);
        ptx::wgmma_commit();
        ptx::wgmma_wait_but<1>();
    }
#pragma unroll
    for (int block = 0; block < latent_blocks; ++block) {
        ScoreFragment<1, group_row_fragments> of_block;
        float scales[2];
#pragma unroll
        for (int i = 0; i < block_steps; i += together) {
            const int step = block * block_steps + i;
            uint32_t(&operands)[together][4] = keys[step / together % 2];
            if (step + together < Format::latent_steps)
                latent.load(chunks[step / together % 2 ^ 1], step / together + 1);
#pragma unroll
            for (int j = 0; j < together; ++j)
                latent.convert(operands[j], chunks[step / together % 2], j);
            if (i + together == block_steps)
                load_block_scales<Format>(scales, rows, block, lane);
            ptx::wgmma_fence();
#pragma unroll
            for (int j = 0; j < together; ++j)
                group_mma<Format::Latent::matrix_dtype>(of_block.value[0], operands[j],
                                                        OperandRows<group_rows>::operand(query, 0, step + j), i + j > 0);
            ptx::wgmma_commit();
            ptx::wgmma_wait_but<1>();
        }
        ptx::wgmma_wait();
        ptx::accumulator_is_ready(scores.value[0]);
        ptx::accumulator_is_ready(of_block.value[0]);
#pragma unroll
        for (int n = 0; n < group_row_fragments; ++n) {
#pragma unroll
            for (int i = 0; i < 4; ++i)
                scores.value[0][n][i] = fmaf(of_block.value[0][n][i], scales[i / 2], scores.value[0][n][i]);
        }
    }
}

/*
 * scores^T = K Q^T of rows of one format, of the warp's 16 tokens of a tile from `first_token` on. While a pair of steps is on its way, the next
 * is converted, and the one after that read.
 */
template <class Format, int tile_tokens>
__device__ __forceinline__ void group_latent_qk(ScoreFragment<1, group_row_fragments> &scores, uint32_t query, uint32_t k_tile,
                                                int first_token, int box_tokens, int lane) {
    constexpr int together = 2;
    static_assert(Format::steps % together == 0 && Format::pair_steps == together, "pairs of steps");
    uint32_t keys[3][together][4], chunks[2][4];
    query = ptx::computed_here(query); /* descriptors kept over the loop would take registers from it */
    const TokenFragments<Format, tile_tokens, 1> tokens(first_token, box_tokens, false, lane);
    const typename Format::KeyReader reader(k_tile, tokens, 0, lane);
    reader.load(chunks[0], 0);
#pragma unroll
    for (int step = 0; step < Format::steps; step += together) {
        uint32_t(&operands)[together][4] = keys[step / together % 3];
        if (step + together < Format::steps)
            reader.load(chunks[step / together % 2 ^ 1], step / together + 1);
#pragma unroll
        for (int i = 0; i < together; ++i)
            reader.convert(operands[i], chunks[step / together % 2], i);
        ptx::wgmma_fence();
#pragma unroll
        for (int i = 0; i < together; ++i)
            group_mma<Format::matrix_dtype>(scores.value[0], operands[i], OperandRows<group_rows>::operand(query, 0, step + i),
                                            step + i > 0);
        ptx::wgmma_commit();
        ptx::wgmma_wait_but<1>();
    }
    ptx::wgmma_wait();
    ptx::accumulator_is_ready(scores.value[0]);
}

/* The step over the dims of V that a warp of warpgroup `group` has as its step `i` of four: half a block's quarter. */
__device__ __forceinline__ constexpr int value_step(int group, int warp, int i) {
    return (group * 2 + i / 2) * (latent_block_dims / 16) + warp * 2 + i % 2;
}

/*
 * output^T += V^T p^T of a tile's tokens, whose weights begin at `weights`: of `versions` of 64 tokens' weights the first one,
 * which lie one behind the other, one for every block of V; or one for all. While two steps are on their way, the next is converted. `masked`: tokens that are not in `seen` count as zeros. Ends when all is added.
 */
template <bool masked, int versions, class Format, int tile_tokens, int fragments>
__device__ __forceinline__ void group_latent_pv(OutputFragment<4, group_row_fragments> &output, uint32_t weights, uint32_t v_tile,
                                                const TokenFragments<Format, tile_tokens, fragments> &tokens, uint64_t seen,
                                                int group, int warp, int lane) {
    static_assert(versions == 1 || versions == latent_blocks, "of weights");
    constexpr int group_blocks = latent_blocks / 2, block_steps = 2, steps = group_blocks * block_steps;
    uint32_t values[3][4], chunks[4];
    weights = ptx::computed_here(weights);
    const auto load = [&](int fragment, int step) {
        const typename Format::ValueReader reader(v_tile, tokens, fragment, lane, value_step(group, warp, 0));
        reader.load(chunks, value_step(0, 0, step) / block_steps);
    };
    load(0, 0);
#pragma unroll
    for (int number = 0; number < fragments * steps; ++number) {
        const int fragment = number / steps, step = number % steps;
        uint32_t(&operand)[4] = values[number % 3];
        Format::ValueReader::convert(operand, chunks, step);
        if constexpr (masked) {
            const VisibleHalves visible(static_cast<uint32_t>(seen >> (fragment * fragment_tokens)), lane);
            operand[0] &= visible.low;
            operand[1] &= visible.low;
            operand[2] &= visible.high;
            operand[3] &= visible.high;
        }
        if (const int next = number + 1; next % block_steps == 0 && next < fragments * steps)
            load(next / steps, next % steps);
        const uint32_t version =
            versions == 1 ? weights : weights + (group * group_blocks + step / block_steps) * group_weight_bytes;
        ptx::wgmma_wait_but<1>();
        ptx::wgmma_fence();
        group_mma<Format::matrix_dtype>(output.value[step], operand, OperandRows<group_rows>::operand(version, 0, fragment), true);
        ptx::wgmma_commit();
    }
    ptx::wgmma_wait();
#pragma unroll
    for (int step = 0; step < steps; ++step)
        ptx::accumulator_is_ready(output.value[step]);
}

/* Of an element of V. */
template <class Format>
constexpr int value_bytes = Format::copied_element_bytes;
template <Mixed Format>
constexpr int value_bytes<Format> = Format::Latent::copied_element_bytes;

/*
 * Rows of V that are missing become zero, the bytes of it that warpgroup `group` reads: a weight of 0 does not help against NaN. By all its
 * threads, which then meet.
 */
template <class Format, int tile_tokens>
__device__ __forceinline__ void clear_missing_values(uint32_t tile, uint32_t seen, int group, int thread) {
    constexpr int token_threads = group_threads / tile_tokens,
                  chunks = latent_blocks / 2 * latent_block_dims * value_bytes<Format> / 16;
    const int token = thread / token_threads;
    if ((seen >> token & 1) != 0)
        return;
    const uint32_t row = tile + token * Format::row_bytes + group * (chunks * 16);
#pragma unroll 1
    for (int chunk = thread % token_threads; chunk < chunks; chunk += token_threads)
        ptx::store_shared_zeros(row + chunk * 16);
}

} // namespace tile
