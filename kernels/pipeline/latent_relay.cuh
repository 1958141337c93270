/* SPDX-License-Identifier: Apache-2.0 */
/*
 * latent_relay.cuh: the warpgroups that multiply tiles of MLA's KV in FP8 by 64 rows, and what they do at a unit's end; who brings the tiles is
 * the kernel's matter. Rows become fp16 in registers, as operands there (tile/gathered_warpgroup.cuh); for queries of e4m3, as K they are
 * operands as they lie, where a tile's lines have all of its tokens.
 *
 *     score warpgroup   scores of a tile of 64 tokens, softmax, weights to shared memory
 *     output warpgroups each with 256 dims of V: two, or one
 *     at a unit's end through shared memory and out, or to the workers that share it: pipeline/transposed_store.cuh
 *
 * What they do with tile i (time runs to the right); weights have two places:
 *
 *     score:     K i to registers, Q K i, the outputs of i - 2 are there | softmax i, weights i | Q K i+1 ...
 *     output:    ... p V i-2             | V i-1 to registers, p V, the tile goes back         | ...
 *
 * The tensor core takes 1152 clocks for the scores of a tile, and 1024 for its outputs. Weights are published when the scores of the next tile
 * are there, or all but a pair of steps of those that are converted: their outputs are then computed beside the softmax, beside which the
 * tensor core would have nothing to do. Published at once, a launch of 128 x 4,096 tokens and 128 heads took 282 us on an H200, not 265.
 * Scores of e4m3 with e4m3 take 576 clocks, and nothing is converted for them: such a launch took 218, not 257. Before queries
 * came by whole lines a unit took some 10,000 clocks before its first tile, most of it for them, and 5,000 behind its last one.
 */
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "abi.h"
#include "pipeline/kv_ring.cuh"
#include "pipeline/piece_queue.cuh"
#include "pipeline/transposed_store.cuh"
#include "pipeline/weight_turns.cuh"
#include "tile/byte_scores.cuh"
#include "tile/gathered_warpgroup.cuh"
#include "tile/operand_query.cuh"
#include "tile/row_map.cuh"
#include "variant.cuh"

namespace pipeline {

/* What output warpgroups are told of a tile beside its weights: of most tiles that they are not rare, and no more. */
struct RelayNotes {
    bool is_rare, is_raised;
    uint64_t seen;                  /* a bit for each token that a row sees */
    float shrink[tile::group_rows]; /* of the outputs before it, where references were raised */
};

/* What the warpgroups have of shared memory, but for the tiles. `unit_rows`: of PieceQueue. */
template <class Query, class ByteQuery, class Result, int stages, int unit_rows>
struct RelayMemory {
    static constexpr int weight_places = 2;
    union {
        struct {
            union {
                Query query;
                ByteQuery byte_query;
            };
            alignas(1024) uint8_t weights[weight_places][tile::group_weight_bytes];
        };
        typename Result::Memory result;
    };
    uint32_t next_slice; /* of a unit that is added up: pipeline::SliceDealer */
    tile::GroupReferences references;
    alignas(16) float row_scale[tile::group_rows];     /* of the rows' products with K; at the end of their results */
    alignas(16) float statistics[tile::group_rows][2]; /* reference and sum of the rows of a piece */
    alignas(16) RelayNotes notes[weight_places];
    /* Of each place: one arrival of each warp that wrote it, or read it. */
    uint64_t published[weight_places], taken[weight_places];
    KvRingBarriers<stages, 1> barriers;
    PieceQueue<unit_rows> pieces;
    Sequences sequences; /* for what is called rarely */
};

/*
 * `asking_warps`: that wait until the first queries are asked for. `other_bytes`: of shared memory, which tiles must leave. `stored_tiles`: by warps, not
 * by the copy engine, with lines of all of a tile's tokens, and zeros for a row that does not exist.
 */
template <class Format, int head_dim, int row_tile, int unit_rows, int asking_warps, int other_bytes, bool stored_tiles = false>
struct LatentRelay {
    static constexpr int v_dim = head_dim / 256 * 256, tile_tokens = tile::group_tokens;
    static_assert((head_dim == 576 || head_dim == 512 || head_dim == 320) && row_tile == tile::group_rows, "the .toml");
    static_assert(Format::converts_query && Format::scale_bytes == 0, "rows that are converted, without scales of their own");

    static constexpr int output_groups = v_dim / 256, output_threads = output_groups * tile::group_threads;
    static constexpr int score_warp = output_groups * tile::group_warps; /* the first of its warpgroup */
    static constexpr int warps = score_warp + tile::group_warps, threads = warps * 32;

    /* Of the CTA, which has one more warpgroup: registers of all of them at the start; then of those in each role. */
    static constexpr int all_threads = threads + tile::group_threads, registers = 65536 / all_threads & -8;
    static constexpr int output_registers = output_groups == 1 ? 216 : 176, score_registers = output_groups == 1 ? 168 : 104,
                         other_registers = 56;
    static_assert(output_registers * output_groups + score_registers + other_registers <=
                      registers * (all_threads / tile::group_threads),
                  "registers of an SM");
    static_assert(output_registers > registers && score_registers <= registers && other_registers < registers,
                  "which roles take registers and which give some, as the instructions have it");

    using Query = tile::OperandQuery<Format, output_threads>;
    using ByteQuery = tile::ByteQuery<Format, row_tile, output_threads>;
    using Scores = tile::GroupSoftmax::Scores;
    using Result = TransposedResult<Format, v_dim, Format::largest_value, false>;
    using Output = typename Result::Output;
    using TileLayout = tile::TileLayout<Format, tile_tokens>;
    using KeyTokens = tile::TokenFragments<Format, tile_tokens, 1>;
    using ValueTokens = tile::TokenFragments<Format, tile_tokens, tile::group_token_fragments>;
    using Announced = AnnouncedPiece<unit_rows>;
    using Unit = tile::UnitRows<unit_rows>;
    using Place = GroupPlace;

    static constexpr int most_stages = 4;
    template <int stages>
    using Memory = RelayMemory<Query, ByteQuery, Result, stages, unit_rows>;
    static constexpr int stages =
        std::min((variant::max_shared_bytes - other_bytes - static_cast<int>(sizeof(Memory<most_stages>))) / TileLayout::bytes,
                 most_stages);
    static_assert(stages >= 3, "shared memory of a CTA: scores and outputs have a tile each, and one comes");
    using WorkMemory = Memory<stages>;
    using Turn = WeightTurn<WorkMemory::weight_places>;
    using Ring = KvRing<stages, TileLayout::bytes, false, 1>;

    /* Named barriers: of the consumer warps, of the output warpgroups together, of the score warpgroup, of outputs and who waits for queries; 0 is
     * __syncthreads. */
    static constexpr int consumer_barrier = 1, output_barrier = 2, score_barrier = 3, query_barrier = 4;
    static constexpr int query_barrier_threads = output_threads + asking_warps * 32;

    static __device__ __forceinline__ void meet_consumers() { ptx::named_barrier<consumer_barrier, threads>(); }
    static __device__ __forceinline__ void meet_output() { ptx::named_barrier<output_barrier, output_threads>(); }

    /* By one thread, before the CTA meets. `arrivals`: of who brings a tile. */
    static __device__ __forceinline__ void initialise(WorkMemory &work, int arrivals) {
        Ring::initialise(work.barriers, arrivals, warps);
        for (int place = 0; place < WorkMemory::weight_places; ++place) {
            ptx::mbarrier_init(ptx::shared_address(&work.published[place]), tile::group_warps);
            ptx::mbarrier_init(ptx::shared_address(&work.taken[place]), score_warp);
        }
        work.pieces.initialise(threads);
    }
    /* Who brings the tiles: returns when the first queries are on their way, behind a ring full of which they would come. */
    static __device__ __forceinline__ void wait_until_query_is_asked_for() {
        ptx::named_barrier<query_barrier, query_barrier_threads>();
    }
    /* In place of that, where tiles are to come at once. */
    static __device__ __forceinline__ void go_ahead_of_query() {
        ptx::named_barrier_arrive<query_barrier_threads>(query_barrier);
    }

    static __device__ __forceinline__ tile::RowMap map_rows(const schedule_params &schedule, const Unit &unit, const Piece &piece,
                                                            int first_row = 0) {
        return {schedule.group_size, unit.first_query_token, piece.kv_head, piece.row_pass * row_tile + first_row};
    }

    /* Tokens of a tile's lines. */
    static __device__ __forceinline__ int box_tokens(const schedule_params &schedule) {
        return stored_tiles ? tile_tokens : schedule.box_tokens;
    }
    /* Whether scores are those of e4m3 with e4m3, which lie as the tensor core wants them. */
    template <class Params>
    static __device__ __forceinline__ bool multiplies_bytes(const Params &params) {
        return params.query.dtype == KERNEL_DTYPE_E4M3 && box_tokens(params.schedule) == tile_tokens;
    }

    /* ------------------------------------------------------------------------------------------------- the score warpgroup */

    /* Products become logits in base 2. */
    static __device__ __forceinline__ void scale_and_cap(Scores &scores, const float (&row_scale)[tile::group_rows], float cap,
                                                         int lane) {
#pragma unroll
        for (int n = 0; n < tile::group_row_fragments; ++n) {
            const float2 factors = tile::of_rows(row_scale, n, lane);
#pragma unroll
            for (int i = 0; i < 4; ++i)
                scores.value[0][n][i] *= i % 2 == 0 ? factors.x : factors.y;
        }
        if (cap > 0.f)
            tile::soft_cap(scores, cap);
    }

    /* The output warpgroups may have the newest weights, and what belongs to them. */
    static __device__ __forceinline__ void publish(WorkMemory &work, const Turn &newest, int lane) {
        if (lane == 0)
            ptx::mbarrier_arrive(ptx::shared_address(&work.published[newest.place()]));
    }

    /*
     * What few tiles need, those that a row does not see all of, or that raise references, and any with a soft cap: from products to weights, and
     * notes of it. Whether references are so large now that all that follow need it. Not inlined: what the loop jumps over, it waits for.
     * `scores`: products, then weights; they and `softmax` come through memory.
     */
    template <class View>
    static __device__ __noinline__ bool weigh_rare(float cap, WorkMemory &work, const Unit &unit, typename View::Tile tile_seen,
                                                   RelayNotes &notes, Scores &scores, tile::GroupSoftmax &softmax) {
        const Place place(ptx::thread_index_here());
        const int lane = place.lane(), warp = place.warp();
        Scores logits = scores;
        scale_and_cap(logits, work.row_scale, cap, lane);
        const uint64_t seen = View::mask(logits, unit, tile_seen, warp, lane);
        bool raises = tile::GroupSoftmax::weigh(logits, work.references, scores, lane);
        raises = ptx::named_barrier_any<tile::group_threads>(score_barrier, raises);
        if (raises) {
            softmax.raise(logits, work.references, warp, lane, score_barrier);
            if (place.thread() < tile::group_rows)
                notes.shrink[place.thread()] = work.references.shrink[place.thread()];
            (void)tile::GroupSoftmax::weigh(logits, work.references, scores, lane);
        }
        if (place.thread() == 0) {
            notes.seen = seen;
            notes.is_raised = raises;
        }
        return tile::GroupSoftmax::is_large(work.references, lane);
    }

    /*
     * Scores and weights of all rows over the piece's tiles. What is alike for all lanes comes from where the compiler knows that: matrix
     * instructions in what it takes for a divergent path are serialised. And what is read of shared memory for the softmax is read while the last
     * scores are computed, or before the loop: it answers late while matrix instructions run. But references come behind: registers would not
     * suffice, and keep the weights before from being published behind what does not need references. Weights are computed as most tiles have
     * them; then the warps vote whether one of them has seen that this tile is another.
     */
    template <bool bytes, class Params, class View>
    static __device__ __forceinline__ void attend_scores(const Params &params, WorkMemory &work, const Unit &unit, View &view,
                                                         Ring &ring, const Place &place, tile::GroupSoftmax &softmax,
                                                         Turn &turn) {
        int token = __shfl_sync(tile::full_warp, unit.first_token, 0);
        const int end_token = __shfl_sync(tile::full_warp, unit.end_token, 0);
        tile::GroupRowValues factors, references;
        if constexpr (bytes) /* rows have none of their own */
            factors.fill(__shfl_sync(tile::full_warp, work.row_scale[0], 0));
        bool is_waiting = false; /* what is to be published */
        for (; token < end_token; token += tile_tokens) {
            Scores scores, weights;
            const auto meanwhile = [&] {
                if (!bytes && is_waiting)
                    publish(work, turn.before(), place.lane());
                wait_for(work.taken[turn.place()], turn.parity() ^ 1);
                if constexpr (!bytes)
                    factors.load(work.row_scale, place.lane());
            };
            ring.wait_full(tensor_k);
            const typename View::Tile seen = view.at(token, ring);
            if constexpr (bytes && stored_tiles)
                ptx::fence_async_proxy();
            if constexpr (bytes)
                tile::byte_qk<Format>(scores, ptx::shared_address(&work.byte_query), ring.tile(tensor_k), meanwhile);
            else
                tile::group_latent_qk<Format, tile_tokens>(scores, ptx::shared_address(&work.query), ring.tile(tensor_k),
                                                           place.warp() * tile::fragment_tokens, box_tokens(params.schedule),
                                                           place.lane(), meanwhile);
            if (bytes && is_waiting)
                publish(work, turn.before(), place.lane());
            references.load(work.references.reference, place.lane());
            ring.release(tensor_k, place.lane());
            RelayNotes &notes = work.notes[turn.place()];
            bool is_rare = !view.is_plain(seen);
            is_rare |= tile::GroupSoftmax::weigh(scores, factors, references, weights);
            is_rare = ptx::named_barrier_any<tile::group_threads>(score_barrier, is_rare);
            if (is_rare) {
                Scores finished = scores; /* in memory, the others stay in registers */
                tile::GroupSoftmax raised = softmax;
                if (weigh_rare<View>(params.query.soft_cap, work, unit, seen, notes, finished, raised))
                    view.nothing_is_plain();
                weights = finished;
                softmax = raised;
            }
            softmax.template add<Format::matrix_dtype>(weights, ptx::shared_address(work.weights[turn.place()]), place.warp(),
                                                       place.lane());
            if (place.thread() == 0)
                notes.is_rare = is_rare;
            ptx::fence_async_proxy();
            __syncwarp();
            is_waiting = true;
            ++turn.number;
            ring.advance();
        }
        if (is_waiting)
            publish(work, turn.before(), place.lane());
    }

    /*
     * The score warpgroup. make_view(rows): what the rows of a unit see, once it has been described:
     *     at(token, ring)      a Tile, which it understands: what is seen of the ring's, from its first token on
     *     is_plain(tile)       all rows see all of it, and there is no soft cap; until nothing_is_plain()
     *     mask(scores, rows, tile, warp, lane)   of the warp's 16 tokens; returns a bit for each token of the tile that a row sees
     */
    template <class Params, class MakeView>
    static __device__ __forceinline__ void consume_scores(const Params &params, WorkMemory &work, Ring ring, MakeView make_view) {
        const Place place(ptx::thread_index_here());
        Turn turn;
        for (uint32_t number = 0;; ++number) {
            const auto &announced = work.pieces.wait_named(number);
            if (announced.piece.end_of_work)
                break;
            tile::GroupSoftmax softmax;
            softmax.clear(work.references, place.thread());
            work.pieces.wait_described(number);
            meet_consumers(); /* Q is there */
            auto view = make_view(announced.rows);
            if (multiplies_bytes(params))
                attend_scores<true>(params, work, announced.rows, view, ring, place, softmax, turn);
            else
                attend_scores<false>(params, work, announced.rows, view, ring, place, softmax, turn);
            auto &sums = work.references.largest; /* which nobody reads any more */
            softmax.store_statistics(
                work.references, work.statistics, [&](int row, int warp) -> float & { return sums[warp][row]; }, place.thread(),
                score_barrier);
            meet_consumers(); /* the last weights have been taken; statistics are there */
            number = announced.number;
            work.pieces.pop(number);
        }
    }

    /* ---------------------------------------------------------------------------------------------- the output warpgroups */

    /*
     * Rows of Q into shared memory, by the output warpgroups. The first unit's are asked for ahead of KV, behind a ring full of which they would
     * come.
     */
    template <class Params>
    static __device__ __forceinline__ void load_query(const Params &params, WorkMemory &work, const tile::RowMap &rows,
                                                      int live_rows, bool is_first) {
        static_assert(Query::threads == output_threads, "all threads of the output warpgroups");
        const int thread = ptx::thread_index_here();
        const auto asked = [&] {
            if (is_first)
                ptx::named_barrier_arrive<query_barrier_threads>(query_barrier);
        };
        const float scale = tile::scale_log2(params.query) * Format::k_scale;
        if (!multiplies_bytes(params)) {
            work.query.load(params, rows, live_rows, thread, asked, scale, work.row_scale);
        } else {
            work.byte_query.load(params, rows, live_rows, thread, asked);
            if (thread < row_tile)
                work.row_scale[thread] = scale;
        }
        ptx::fence_async_proxy();
    }

    /* Outputs of all rows over the piece's tiles, which are there when their weights are. What no row sees may be NaN, but in stored tiles. */
    template <class Params>
    static __device__ __forceinline__ void attend_output(const Params &params, WorkMemory &work, const Unit &unit, Ring &ring,
                                                         const Place &place, Output &output, Turn &turn) {
        const int in_tiles = (unit.end_token - unit.first_token + tile_tokens - 1) / tile_tokens;
        for (int tiles = __shfl_sync(tile::full_warp, in_tiles, 0); tiles > 0; --tiles) {
            uint32_t chunks[2][4];
            const ValueTokens tokens(0, box_tokens(params.schedule), false, place.lane());
            ring.wait_full(tensor_k);
            tile::load_first_values(chunks, ring.tile(tensor_k), tokens, place.group, place.warp(), place.lane());
            wait_for(work.published[turn.place()], turn.parity());
            const RelayNotes &notes = work.notes[turn.place()];
            const uint32_t weights = ptx::shared_address(work.weights[turn.place()]);
            const auto tile_of = [&](int) { return ring.tile(tensor_k); };
            const auto add = [&](auto masked, uint64_t seen) {
                tile::group_latent_pv<masked>(output, weights, chunks, tokens, tile::UnscaledValues(), seen, place.group,
                                              place.warp(), place.lane(), tile_of);
            };
            if (!__any_sync(tile::full_warp, notes.is_rare)) {
                add(std::false_type(), 0);
            } else {
                if (__any_sync(tile::full_warp, notes.is_raised))
                    tile::shrink_output(output, notes.shrink, place.lane());
                add(std::bool_constant<!stored_tiles>(), notes.seen);
            }
            ring.release(tensor_k, place.lane());
            if (place.lane() == 0)
                ptx::mbarrier_arrive(ptx::shared_address(&work.taken[turn.place()]));
            ring.advance();
            ++turn.number;
        }
    }

    template <class Params>
    static __device__ __forceinline__ void consume_output(const Params &params, WorkMemory &work, Ring ring) {
        const Place place(ptx::thread_index_here());
        Turn turn;
        for (uint32_t number = 0;; ++number) {
            const auto &announced = work.pieces.wait_named(number);
            if (announced.piece.end_of_work)
                break;
            load_query(params, work, map_rows(params.schedule, announced.rows, announced.piece), announced.rows.live_rows,
                       number == 0);
            Output output;
            output.clear();
            meet_consumers(); /* Q is there */
            attend_output(params, work, announced.rows, ring, place, output, turn);
            meet_consumers(); /* statistics are there, and nobody reads query and weights any more */
            const auto rows_of = [&](int first_row) {
                return map_rows(params.schedule, announced.rows, announced.piece, first_row);
            };
            Result::hand_over(
                params, work.result, work.next_slice, work.statistics, work.row_scale, announced, rows_of, place, output,
                [](int) { return 1.f; }, meet_output);
            number = announced.number; /* anew: kept over the loop it would take a register from it */
            work.pieces.wait_described(number);
            work.pieces.pop(number);
        }
    }
};

} // namespace pipeline
