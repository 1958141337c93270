/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rotation.cuh: what a kernel does about RoPE: nothing (NoRotation), turn keys by their positions (KeyRotation, attention.cuh), or the
 * query for every few tiles and keys by what they lie behind their beginning (QueryRotation, turned_query.cuh). Lies in shared memory:
 *
 *     begin_tables      what a launch turns by, by the threads that read it, before the first unit is known
 *     complete_tables   the rest of it, while the first query is on its way; `synchronise` is a barrier of theirs
 *     State     what a warp keeps from tile to tile
 *     begin     rows of the query that load_unrotated (query.cuh) has left, for the warp's tokens of a tile from `first_token` on
 *     turn      the same, once they were for the tile before
 *     scores    of these tokens, by the `position` of the lane's first, from token 0 of the cache
 */
#pragma once

#include <cstdint>

#include "tile/attention.cuh"
#include "tile/rope.cuh"
#include "tile/row_map.cuh"
#include "tile/turned_query.cuh"
#include "tile/unit_rows.cuh"

namespace tile {

/* The rows of a unit that a warp loads, from `first_row` on. */
template <class Map>
struct RotatedRows {
    const query_params &query;
    const Map map;
    const RowPlace *const places;
    const int first_row, live_rows;
    const uint32_t position_stride;
};

struct NoRotation {
    struct State {};

    __device__ __forceinline__ void begin_tables(const query_params &, uint32_t, int) {}
    template <class Synchronise>
    __device__ __forceinline__ void complete_tables(uint32_t, int, Synchronise) {}
    template <class Query, class Rows>
    __device__ __forceinline__ void begin(State &, Query &, const Rows &, int, int) const {}
    template <class Query, class Rows>
    __device__ __forceinline__ void turn(State &, Query &, const Rows &, int, int) const {}
    template <class Scores, class Query, class Tokens>
    __device__ __forceinline__ void scores(Scores &, const Query &, uint32_t, const Tokens &, int, int, uint32_t, int) const {}
};

/* `threads`: that fill tables, here and below. */
template <int head_dim, int threads>
struct PairFrequencies {
    __device__ __forceinline__ void fill(const query_params &query, uint32_t position_stride, int thread) {
        fill_rope_frequencies(of_pair, head_dim / 2, query.head_dim / 2, query.rope_frequency, query.rope_ratio, position_stride,
                              thread, threads);
    }

    RopeFrequency of_pair[head_dim / 2];
};

template <class Format, int head_dim, int threads>
struct KeyRotation {
    struct State {};

    __device__ __forceinline__ void begin_tables(const query_params &query, uint32_t position_stride, int thread) {
        frequencies.fill(query, position_stride, thread);
    }
    template <class Synchronise>
    __device__ __forceinline__ void complete_tables(uint32_t, int, Synchronise synchronise) {
        synchronise();
    }
    template <class Query, class Rows>
    __device__ __forceinline__ void begin(State &, Query &query, const Rows &rows, int, int lane) const {
        query.rotate(rows.query, rows.places, frequencies.of_pair, rows.first_row, 0u, lane,
                     [](int, int, const float(&)[2], const float(&)[2]) {});
    }
    template <class Query, class Rows>
    __device__ __forceinline__ void turn(State &, Query &, const Rows &, int, int) const {}
    template <class Scores, class Query, class Tokens>
    __device__ __forceinline__ void scores(Scores &scores, const Query &query, uint32_t k_tile, const Tokens &tokens,
                                           int half_dim, int, uint32_t position, int lane) const {
        qk_rotated(scores, query, k_tile, tokens, frequencies.of_pair, half_dim, position, lane);
    }

    PairFrequencies<head_dim, threads> frequencies;
};

/* `step_tokens`: from a tile of a warp to its next. A query is turned for `tiles` of them at once. */
template <class Format, int head_dim, int threads, int token_fragments, int row_fragments, int step_tokens, int tiles>
struct QueryRotation {
    using State = TurnedQuery<Format, row_fragments>;
    /* Turns are right to 2^-20.5 (PTX ISA 9.7.3.19 "sin"), so what is left of a query until it is loaded again to 2^-16.5. */
    static constexpr int renewal_turns = 64;

    __device__ __forceinline__ void begin_tables(const query_params &query, uint32_t position_stride, int thread) {
        frequencies.fill(query, position_stride, thread);
    }
    template <class Synchronise>
    __device__ __forceinline__ void complete_tables(uint32_t position_stride, int thread, Synchronise synchronise) {
        synchronise();
        turns.template fill<threads>(frequencies.of_pair, position_stride, step_tokens * position_stride, thread);
        synchronise();
    }
    template <class Query, class Rows>
    __device__ __forceinline__ void begin(State &state, Query &query, const Rows &rows, int first_token, int lane) const {
        const int first_of_tiles = first_token - tile_of(first_token) * step_tokens;
        query.rotate(rows.query, rows.places, frequencies.of_pair, rows.first_row, first_of_tiles * rows.position_stride, lane,
                     [&](int step, int n, const float(&lower)[2], const float(&upper)[2]) { state.keep(step, n, lower, upper); });
    }
    template <class Query, class Rows>
    __device__ __forceinline__ void turn(State &state, Query &query, const Rows &rows, int first_token, int lane) const {
        if (tile_of(first_token) != 0)
            return;
        if (first_token / step_tokens / tiles % renewal_turns != 0) {
            state.advance(turns, query, lane);
            return;
        }
        query.load_unrotated(rows.query, rows.map, rows.first_row, rows.live_rows, lane);
        begin(state, query, rows, first_token, lane);
    }
    template <class Scores, class Query, class Tokens>
    __device__ __forceinline__ void scores(Scores &scores, const Query &query, uint32_t k_tile, const Tokens &tokens,
                                           int half_dim, int first_token, uint32_t, int lane) const {
        qk_turned(scores, query, k_tile, tokens, turns, tile_of(first_token), half_dim, lane);
    }

    PairFrequencies<head_dim, threads> frequencies;
    Turns<Format, token_fragments, tiles> turns;

  private:
    static __device__ __forceinline__ int tile_of(int first_token) {
        return static_cast<uint32_t>(first_token) / step_tokens % tiles;
    }
};

} // namespace tile
