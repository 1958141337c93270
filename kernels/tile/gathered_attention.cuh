/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gathered_attention.cuh: what latent_attention.cuh has not, for tiles of gathered rows: tokens of which some are missing, and scores of
 * mixed rows.
 */
#pragma once

#include <cstdint>
#include <type_traits>

#include "tile/latent_attention.cuh"
#include "tile/latent_query.cuh"
#include "tile/latent_rows.cuh"

namespace tile {

/* The tokens of a tile that are there: for all rows the same. As WarpTokens. */
template <int tile_tokens>
struct GatheredTokens {
    using Bits = std::conditional_t<(tile_tokens > 32), uint64_t, uint32_t>;
    static_assert(sizeof(Bits) * 8 == tile_tokens, "a bit for every token");
    const Bits seen;

    __device__ __forceinline__ bool all_visible() const { return seen == static_cast<Bits>(~Bits{0}); }
    __device__ __forceinline__ bool any_visible() const { return seen != 0; }
    __device__ __forceinline__ Bits seen_by(int) const { return seen; }
    __device__ __forceinline__ Bits seen_by_any() const { return seen; }
};

/* This warp's tokens and steps, of mixed rows: the scaled part first, and on top of it the other. */
template <Mixed Format, class Query, int tile_tokens, int token_fragments, int row_fragments, int groups>
__device__ __forceinline__ void qk_part(ScoreFragment<token_fragments, row_fragments> &scores, const Query &query,
                                        uint32_t k_tile, const TokenFragments<Format, tile_tokens, token_fragments> &tokens,
                                        const StepRange<Format, groups> &steps, int lane) {
    using Reader = typename Format::LatentKeyReader;
    constexpr int latent = StepRange<Format, groups>::latent;
    scores.clear();
    Reader first(k_tile, tokens, 0, steps.group, lane), second(k_tile, tokens, token_fragments - 1, steps.group, lane);
    static_assert(token_fragments <= 2, "a reader for each");
#pragma unroll
    for (int i = 0; i < latent; ++i) {
        uint32_t keys[token_fragments][4];
        first.operand(keys[0], i);
        if constexpr (token_fragments == 2)
            second.operand(keys[1], i);
#pragma unroll
        for (int n = 0; n < row_fragments / 2; ++n) {
            uint32_t words[4];
            const uint32_t(&of_rows)[4] = query.operands(i, n, words);
#pragma unroll
            for (int fragment = 0; fragment < token_fragments; ++fragment)
                mma_rows<Element<Format::Latent::matrix_dtype>>(scores.value[fragment], keys[fragment], n, of_rows);
        }
    }
#pragma unroll
    for (int fragment = 0; fragment < token_fragments; ++fragment) {
        Format::scale_latent(scores.value[fragment], k_tile + tokens.offset[fragment], steps.group, lane);
        typename Format::Rope::KeyReader reader(k_tile + Format::rope_byte + steps.group * Format::rope_step_bytes, tokens,
                                                fragment, lane);
        uint32_t keys[4];
        reader.operand(keys, 0);
#pragma unroll
        for (int n = 0; n < row_fragments / 2; ++n) {
            uint32_t words[4];
            mma_rows<Element<Format::Rope::matrix_dtype>>(scores.value[fragment], keys, n, query.operands(latent, n, words));
        }
    }
}

} // namespace tile
