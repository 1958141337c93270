/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gathered_warpgroup.cuh: what warpgroups compute on 64 tokens of MLA's KV, gathered rows, for 64 query rows; operands are swapped, as
 * in warpgroup.cuh:
 *
 *     scores^T [64 tokens, 64 rows] = K Q^T          one warpgroup; warp w has tokens 16 w to 16 w + 15
 *     output^T [256 dims, 64 rows] += V^T p^T        two of them, a half of the dims of V each; warp w has a quarter of every 128
 *
 * K and V are read from the rows into registers and converted there: no converted row ever lies in shared memory. Where blocks of 128 dims
 * have scales, K's are multiplied in f32, with the sum of a block's products, and V's in fp16, with its elements (ScaledValues).
 */
#pragma once

#include <cstdint>

#include "tile/latent_query.cuh"
#include "tile/latent_rows.cuh"
#include "tile/warpgroup.cuh"

namespace tile {

constexpr int latent_block_dims = 128, latent_blocks = 4;

/* What V's rows are multiplied by beside the weights: nothing. */
struct UnscaledValues {
    __device__ __forceinline__ void load(int, int, int) {}
};

/* Those of a fragment's tokens, of a warpgroup's two blocks: a lane's tokens 2 (l%4) and the next, and 8 further. */
struct ScaledValues {
    const uint32_t scales;
    uint32_t pair[latent_blocks / 2][2];

    explicit __device__ __forceinline__ ScaledValues(const uint16_t (&of_token)[latent_blocks][group_tokens])
        : scales(ptx::shared_address(of_token)) {}
    __device__ __forceinline__ void load(int group, int fragment, int lane) {
#pragma unroll
        for (int block = 0; block < latent_blocks / 2; ++block) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                uint32_t word[1];
                ptx::load_shared(
                    word,
                    scales + ((group * 2 + block) * group_tokens + fragment * fragment_tokens + half * 8 + (lane & 3) * 2) * 2);
                pair[block][half] = word[0];
            }
        }
    }
};

/* Of both tokens. */
__device__ __forceinline__ void multiply_tokens(ScoreFragment<1, group_row_fragments> &scores, const float (&factors)[2]) {
#pragma unroll
    for (int n = 0; n < group_row_fragments; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
            scores.value[0][n][i] *= factors[i / 2];
    }
}

/*
 * scores^T = K Q^T of mixed rows whose blocks have scales. `rows`: of the warp's 16 tokens. There are two sums, which take turns:
 *
 *     scores  ((rope / s1 + block 1) s1 / s3 + block 3) s3
 *     odd     (block 0 s0 / s2 + block 2) s2
 *
 * Their factors come from `factors`, KeyFactors::of_token. While one of the two is multiplied by one, the other's instructions are on their way, and
 * while a pair of steps is, the next one is converted, and the one after that read: the tensor core waits for nothing before the end.
 * meanwhile(): called once, with matrix instructions on their way.
 */
template <Mixed Format, class Meanwhile>
__device__ __forceinline__ void group_latent_qk(ScoreFragment<1, group_row_fragments> &scores, uint32_t query, uint32_t rows,
                                                const float (&factors)[latent_blocks + 1][group_tokens], int warp, int lane,
                                                Meanwhile meanwhile) {
    static_assert(Format::has_block_scales && latent_blocks == 4, "a format whose blocks have scales");
    constexpr int together = 2, sets = 3, rope_steps = Format::steps - Format::latent_steps;
    constexpr int block_steps = Format::latent_steps / latent_blocks;
    static_assert(block_steps % together == 0 && rope_steps % together == 0, "pairs of steps");
    ScoreFragment<1, group_row_fragments> odd;
    uint32_t keys[sets][together][4], chunks[4];
    const uint64_t queries = ptx::operand_computed_here(ptx::swizzled_operand(query));
    const TokenFragments<Format, fragment_tokens, 1> tokens(0, fragment_tokens, false, lane);
    const typename Format::Latent::KeyReader latent(rows, tokens, 0, lane);
    typename Format::Rope::KeyReader rope(rows + Format::rope_byte, tokens, 0, lane);
    const auto load_factors = [&](float(&of_lane)[2], int number) {
        const int token = warp * fragment_tokens + (lane >> 2);
        of_lane[0] = factors[number][token];
        of_lane[1] = factors[number][token + 8];
    };
    latent.load(chunks, 0);
#pragma unroll
    for (int step = 0; step < rope_steps; step += together) {
        uint32_t(&operands)[together][4] = keys[step / together];
#pragma unroll
        for (int i = 0; i < together; ++i)
            rope.operand(operands[i], step + i);
        ptx::wgmma_fence();
#pragma unroll
        for (int i = 0; i < together; ++i)
            group_mma<Format::Rope::matrix_dtype>(
                scores.value[0], operands[i], OperandRows<group_rows>::operand_behind(queries, Format::latent_steps + step + i),
                step + i > 0);
        ptx::wgmma_commit();
    }
#pragma unroll
    for (int step = 0; step < Format::latent_steps; step += together) {
        const int block = step / block_steps, of_block = step % block_steps;
        ScoreFragment<1, group_row_fragments> &sum = block % 2 == 0 ? odd : scores;
        uint32_t(&operands)[together][4] = keys[(step + rope_steps) / together % sets];
#pragma unroll
        for (int i = 0; i < together; ++i)
            latent.convert(operands[i], chunks, i);
        if (const int next = step + together; next < Format::latent_steps)
            latent.load(chunks, next / together);
        ptx::wgmma_wait_but<1>();
        ptx::wgmma_fence();
#pragma unroll
        for (int i = 0; i < together; ++i)
            group_mma<Format::Latent::matrix_dtype>(sum.value[0], operands[i],
                                                    OperandRows<group_rows>::operand_behind(queries, step + i),
                                                    block > 0 || of_block + i > 0);
        ptx::wgmma_commit();
        if (of_block == together * 2 && block < latent_blocks - 1) { /* all of the other sum are done */
            float of_lane[2];
            load_factors(of_lane, block);
            ScoreFragment<1, group_row_fragments> &other = block % 2 == 0 ? scores : odd;
            ptx::accumulator_is_ready(other.value[0]);
            multiply_tokens(other, of_lane);
        }
        if (step == block_steps)
            meanwhile();
    }
    float of_odd[2], of_scores[2];
    load_factors(of_odd, latent_blocks - 1);
    load_factors(of_scores, latent_blocks);
    ptx::wgmma_wait();
    ptx::accumulator_is_ready(scores.value[0]);
    ptx::accumulator_is_ready(odd.value[0]);
    multiply_tokens(scores, of_scores);
#pragma unroll
    for (int n = 0; n < group_row_fragments; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
            scores.value[0][n][i] = fmaf(odd.value[0][n][i], of_odd[i / 2], scores.value[0][n][i]);
    }
}

/*
 * scores^T = K Q^T of rows of one format, of the warp's 16 tokens of a tile from `first_token` on. While a pair of steps is on its way, the next
 * is converted, and the two after that read: shared memory answers late. meanwhile(): called once, while the last pair is on its way.
 */
template <class Format, int tile_tokens, class Meanwhile>
__device__ __forceinline__ void group_latent_qk(ScoreFragment<1, group_row_fragments> &scores, uint32_t query, uint32_t k_tile,
                                                int first_token, int box_tokens, int lane, Meanwhile meanwhile) {
    constexpr int together = 2;
    static_assert(Format::steps % together == 0 && Format::pair_steps == together, "pairs of steps");
    constexpr int pairs = Format::steps / together;
    uint32_t keys[3][together][4], chunks[2][4];
    const uint64_t queries = ptx::operand_computed_here(ptx::swizzled_operand(query));
    const TokenFragments<Format, tile_tokens, 1> tokens(first_token, box_tokens, false, lane);
    const typename Format::KeyReader reader(k_tile, tokens, 0, lane);
    reader.load(chunks[0], 0);
    reader.load(chunks[1], 1);
#pragma unroll
    for (int pair = 0; pair < pairs; ++pair) {
        const int step = pair * together;
        uint32_t(&operands)[together][4] = keys[pair % 3];
#pragma unroll
        for (int i = 0; i < together; ++i)
            reader.convert(operands[i], chunks[pair % 2], i);
        if (pair + 2 < pairs)
            reader.load(chunks[pair % 2], pair + 2);
        ptx::wgmma_wait_but<1>();
        ptx::wgmma_fence();
#pragma unroll
        for (int i = 0; i < together; ++i)
            group_mma<Format::matrix_dtype>(scores.value[0], operands[i],
                                            OperandRows<group_rows>::operand_behind(queries, step + i), step + i > 0);
        ptx::wgmma_commit();
    }
    ptx::wgmma_wait_but<1>();
    meanwhile();
    ptx::wgmma_wait();
    ptx::accumulator_is_ready(scores.value[0]);
}

/* The step over the dims of V that a warp of warpgroup `group` has as its step `i` of four: half a block's quarter. */
__device__ __forceinline__ constexpr int value_step(int group, int warp, int i) {
    return (group * 2 + i / 2) * (latent_block_dims / 16) + warp * 2 + i % 2;
}

/* A warpgroup's half of the blocks of an output, each by its factor. */
template <class FactorOf, int fragments>
__device__ __forceinline__ void multiply_blocks(OutputFragment<4, fragments> &output, FactorOf factor_of, int group) {
#pragma unroll
    for (int step = 0; step < 4; ++step) {
        const float factor = factor_of(group * 2 + step / 2);
#pragma unroll
        for (int n = 0; n < fragments; ++n) {
#pragma unroll
            for (int i = 0; i < 4; ++i)
                output.value[step][n][i] *= factor;
        }
    }
}

/* The first chunks of V that group_latent_pv converts, a fragment's; they may be read before the weights are there. */
template <class Format, int tile_tokens, int fragments>
__device__ __forceinline__ void load_first_values(uint32_t (&chunks)[2][4], uint32_t tile,
                                                  const TokenFragments<Format, tile_tokens, fragments> &tokens, int group,
                                                  int warp, int lane) {
    const typename Format::ValueReader reader(tile, tokens, 0, lane, value_step(group, warp, 0));
    reader.load(chunks[0], 0);
    reader.load(chunks[1], value_step(0, 0, 2) / 2);
}

/*
 * output^T += V^T p^T of 64 tokens, whose weights lie at `weights`. `chunks`: of load_first_values. tile_of(fragment): where their rows lie
 * that `tokens` counts from, or nothing more is read of the fragments before: called once for each. `scales`: UnscaledValues, or
 * ScaledValues. While two steps are on their way, the next is converted, and those a fragment further are read. `masked`: tokens that
 * are not in `seen` count as zeros. Ends when all is added.
 */
template <bool masked, class Format, int tile_tokens, int fragments, class Scales, class TileOf>
__device__ __forceinline__ void group_latent_pv(OutputFragment<4, group_row_fragments> &output, uint32_t weights,
                                                uint32_t (&chunks)[2][4],
                                                const TokenFragments<Format, tile_tokens, fragments> &tokens, Scales scales,
                                                uint64_t seen, int group, int warp, int lane, TileOf tile_of) {
    constexpr int block_steps = 2, steps = latent_blocks / 2 * block_steps;
    uint32_t values[3][4], tile = 0;
    const uint64_t operands = ptx::operand_computed_here(ptx::swizzled_operand(weights));
    const auto load = [&](int fragment, int step) {
        if (step == 0)
            tile = tile_of(fragment);
        const typename Format::ValueReader reader(tile, tokens, fragment % fragments, lane, value_step(group, warp, 0));
        reader.load(chunks[step / block_steps], value_step(0, 0, step) / block_steps);
    };
    tile = tile_of(0);
#pragma unroll
    for (int number = 0; number < group_token_fragments * steps; ++number) {
        const int fragment = number / steps, step = number % steps;
        uint32_t(&operand)[4] = values[number % 3];
        if (step == 0)
            scales.load(group, fragment, lane);
        if constexpr (requires { scales.pair; })
            Format::ValueReader::convert(operand, chunks[step / block_steps], step, scales.pair[step / block_steps]);
        else
            Format::ValueReader::convert(operand, chunks[step / block_steps], step);
        if constexpr (masked)
            VisibleHalves(static_cast<uint32_t>(seen >> (fragment * fragment_tokens)), lane).keep_visible(operand);
        if (const int next = number + 1 - block_steps + steps; next % block_steps == 0 && next < group_token_fragments * steps)
            load(next / steps, next % steps);
        ptx::wgmma_wait_but<1>();
        ptx::wgmma_fence();
        group_mma<Format::matrix_dtype>(output.value[step], operand, OperandRows<group_rows>::operand_behind(operands, fragment),
                                        true);
        ptx::wgmma_commit();
    }
    ptx::wgmma_wait();
#pragma unroll
    for (int step = 0; step < steps; ++step)
        ptx::accumulator_is_ready(output.value[step]);
}

} // namespace tile
