/* SPDX-License-Identifier: Apache-2.0 */
/*
 * team_attention.cuh: the steps of latent_attention.cuh where warps take the dims in turns (DimSteps), or are teams, which have a tile each.
 */
#pragma once

#include <algorithm>
#include <cstdint>

#include "tile/attention.cuh"
#include "tile/block_scales.cuh"
#include "tile/latent_attention.cuh"
#include "tile/latent_query.cuh"
#include "tile/score.cuh"
#include "tile/softmax.cuh"

namespace tile {

/* This warp's tokens, and the steps of its group. */
template <class Format, int groups, class Query, int tile_tokens, int token_fragments, int row_fragments>
__device__ __forceinline__ void qk_in_turns(ScoreFragment<token_fragments, row_fragments> &scores, const Query &query,
                                            uint32_t k_tile, const TokenFragments<Format, tile_tokens, token_fragments> &tokens,
                                            const DimSteps<Format, groups> &steps, int lane) {
    using Reader = typename Format::KeyReader;
    using Steps = DimSteps<Format, groups>;
    constexpr int chains =
        token_fragments == 1 && row_fragments == 2 ? 2 : 1; /* shorter ones, of instructions that wait for each other */
    ScoreFragment<token_fragments, row_fragments> part[chains];
#pragma unroll
    for (int chain = 0; chain < chains; ++chain)
        part[chain].clear();
    Reader first(k_tile, tokens, 0, lane, steps.first), second(k_tile, tokens, token_fragments - 1, lane, steps.first);
    static_assert(token_fragments <= 2, "a reader for each");
#pragma unroll
    for (int i = 0; i < Steps::most; ++i) {
        if (!steps.has(i))
            continue;
        uint32_t keys[token_fragments][4];
        first.operand(keys[0], Steps::further(i));
        if constexpr (token_fragments == 2)
            second.operand(keys[1], Steps::further(i));
#pragma unroll
        for (int n = 0; n < row_fragments / 2; ++n) {
            uint32_t words[4];
            const uint32_t(&of_rows)[4] = query.operands(i, n, words);
#pragma unroll
            for (int fragment = 0; fragment < token_fragments; ++fragment)
                mma_rows<Element<Format::matrix_dtype>>(part[i % chains].value[fragment], keys[fragment], n, of_rows);
        }
    }
#pragma unroll
    for (int fragment = 0; fragment < token_fragments; ++fragment) {
#pragma unroll
        for (int n = 0; n < row_fragments; ++n) {
#pragma unroll
            for (int i = 0; i < 4; ++i)
                scores.value[fragment][n][i] = chains == 1
                                                   ? part[0].value[fragment][n][i]
                                                   : part[0].value[fragment][n][i] + part[chains - 1].value[fragment][n][i];
        }
    }
}

/*
 * This warp's steps over the dims of V, as it has columns of the output: those of its team's half first (pipeline::TeamFold). Steps::further: from
 * its first to each. `steps_ahead` of the tile's first tokens are asked for when the object is made: ahead of the barrier that weights are waited
 * for at.
 */
template <class Format, class Steps, int teams, int steps, int tile_tokens, int steps_ahead>
class TeamValues {
    static constexpr int team_steps = steps / teams;
    using Reader = typename Format::ValueReader;
    using Fragments = TokenFragments<Format, tile_tokens, tile_tokens / fragment_tokens>;
    static_assert(teams <= 2 && team_steps % Format::pair_steps == 0);

  public:
    __device__ __forceinline__ TeamValues(uint32_t v_tile, const Fragments &fragments, int team, int first_step, int lane)
        : v_tile_(v_tile), fragments_(fragments), team_(team), first_step_(first_step), lane_(lane) {
        const Readers readers(*this, 0);
#pragma unroll
        for (int step = 0; step < steps_ahead; step += Format::pair_steps)
            readers.of_half[step / team_steps].load(first_[step / Format::pair_steps], pair(step));
    }

    /* output^T += V^T p^T, what is in `output` shrunk before. `masked` as in attention.cuh; `scales` of V, BlockScales, where there are any. */
    template <bool masked, int row_tile, class Tokens, class Scales = NoBlockScales>
    __device__ __forceinline__ void multiply(OutputFragment<steps, row_tile / 8> &output,
                                             const SharedWeights<row_tile, tile_tokens> &weights, const Tokens &tokens,
                                             const Scales &scales = {}) const {
        const auto seen = masked ? tokens.seen_by_any() : 0;
        uint32_t operand[row_tile / 16][4];
        const auto load_weights = [&](int fragment) {
#pragma unroll
            for (int n = 0; n < row_tile / 16; ++n)
                weights.operands(operand[n], fragment, n * 2, lane_);
        };
        load_weights(0);
        shrink_output(output, weights, lane_);
#pragma unroll
        for (int fragment = 0; fragment < tile_tokens / fragment_tokens; ++fragment) {
            const Readers readers(*this, fragment);
            uint32_t chunks[4], of_tokens[2];
            if (fragment > 0)
                load_weights(fragment);
            if constexpr (Scales::exist)
                scales.of_fragment(of_tokens, fragment, lane_);
            const auto convert = [&](uint32_t(&values)[4], const uint32_t(&its)[4], int step) {
                if constexpr (Scales::exist)
                    Reader::convert(values, its, step, of_tokens);
                else
                    Reader::convert(values, its, step);
            };
            VisibleHalves visible;
            if constexpr (masked)
                visible = VisibleHalves(static_cast<uint32_t>(seen >> (fragment * fragment_tokens)), lane_);
#pragma unroll
            for (int step = 0; step < steps; ++step) {
                const bool is_ahead = fragment == 0 && step < steps_ahead;
                if (!is_ahead && step % Format::pair_steps == 0)
                    readers.of_half[step / team_steps].load(chunks, pair(step));
                uint32_t values[4];
                if (is_ahead)
                    convert(values, first_[step / Format::pair_steps], step);
                else
                    convert(values, chunks, step);
                if constexpr (masked)
                    visible.keep_visible(values);
#pragma unroll
                for (int n = 0; n < row_tile / 16; ++n)
                    mma_rows<Element<Format::matrix_dtype>>(output.value[step], values, n, operand[n]);
            }
        }
    }

  private:
    /* Of its steps in the team's half, and in the other. */
    struct Readers {
        Reader of_half[teams];

        __device__ __forceinline__ Readers(const TeamValues &values, int fragment) requires(teams == 1)
            : of_half{values.reader(fragment, 0)} {}
        __device__ __forceinline__ Readers(const TeamValues &values, int fragment) requires(teams == 2)
            : of_half{values.reader(fragment, values.team_), values.reader(fragment, 1 - values.team_)} {}
    };

    /* Within a half. */
    static __device__ __forceinline__ constexpr int pair(int step) {
        return Steps::further(step % team_steps) / Format::pair_steps;
    }
    __device__ __forceinline__ Reader reader(int fragment, int half) const {
        return Reader(v_tile_, fragments_, fragment, lane_, first_step_ + Steps::further(team_steps) * half);
    }

    const uint32_t v_tile_;
    const Fragments fragments_;
    const int team_, first_step_, lane_;
    uint32_t first_[std::max(steps_ahead / Format::pair_steps, 1)][4];
};

} // namespace tile
