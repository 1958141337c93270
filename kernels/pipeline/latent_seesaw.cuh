/* SPDX-License-Identifier: Apache-2.0 */
/*
 * latent_seesaw.cuh: the two warpgroups that multiply tiles of MLA's KV in bf16 or fp16 by 64 rows, and what they do at a unit's end; who brings the
 * tiles is the kernel's matter. The weights p of a tile are operands of both: its warpgroup has them in registers, the other one reads them from
 * shared memory. Warpgroup a has tile i, b has tile i + 1; a step of one, the other half a step away (time runs to the right; K1: K's last line,
 * first half of V):
 *
 *     a:  Q K1(i) | p(i-1) V(i-1) | Q K2(i) | softmax i, store p(i) | p(i) V(i) | Q K1(i+2) | p(i+1) V(i+1)
 *     b:  softmax i - 1, store p(i-1) | p(i-1) V(i-1) | Q K1(i+1)   | p(i) V(i) | Q K2(i+1) | softmax i + 1, store p(i+1)
 *
 * So matrix instructions of one run under the softmax of the other. There is one place for p: who reads p(i-1) stores p(i) there, behind.
 * References go with p: the softmax of tile i begins with those of tile i - 1, and each warpgroup's output follows them. Every softmax
 * waits for the one before it, so it counts twice: it is short (RowSoftmax), and a tile that all rows see has a body to itself.
 *
 * Two tiles fit shared memory, so a tile's place is refilled in parts, as soon as its readers are done: a's half of V(i) behind p(i) V(i)
 * of a, b's behind that of b, piece by piece, and Q K(i+2) takes them in that order. What was read last comes back last: so p(i) V(i) of b
 * goes before half of Q K(i+1): an H200 took longer with all of that before it, or behind it.
 *
 * At a unit's end results leave from the registers: 64 columns of a warp's rows after the other, into out, or into scratch
 * (accumulator_fold.cuh); in a cluster first to the CTA that owns them (accumulator_exchange.cuh).
 */
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "abi.h"
#include "pipeline/accumulator_exchange.cuh"
#include "pipeline/accumulator_fold.cuh"
#include "pipeline/accumulator_store.cuh"
#include "pipeline/cluster_exchange.cuh"
#include "pipeline/part_ring.cuh"
#include "pipeline/piece_queue.cuh"
#include "pipeline/weight_turns.cuh"
#include "ptx/async_copy.cuh"
#include "tile/latent_warpgroup.cuh"
#include "tile/operand_query.cuh"
#include "tile/row_map.cuh"

namespace pipeline {

/*
 * What the two warpgroups have of shared memory. `unit_rows`: of PieceQueue; `Exchange`: what the CTAs of a cluster hand each other.
 */
template <class Ring, class Exchange, int row_tile, int unit_rows>
struct SeesawMemory {
    static constexpr int groups = 2;
    alignas(1024) uint8_t tiles[Ring::num_stages][Ring::tile_bytes];
    alignas(1024) uint8_t query[Ring::v_lines][Ring::line_bytes]; /* [line][row][128 bytes]; then columns on their way out */
    /* The last line of the query, if K has one, until all warps have it; then weights, [row][64 tokens]. */
    alignas(1024) uint8_t weights[Ring::line_bytes];
    float references[row_tile]; /* that belong to the weights */
    /* Of the rows of a piece; ahead of it the first has what products are multiplied by, where that is each row's own. */
    float sums[groups][row_tile];
    Exchange exchange;
    PartRingBarriers barriers;
    uint32_t next_slice;        /* of a unit that is added up: SliceDealer */
    uint64_t published[groups]; /* weights of a warpgroup's newest tile: one arrival of each of its warps */
    PieceQueue<unit_rows> pieces;
    Sequences sequences; /* for what is called rarely */
};

/*
 * `Format`: of the tiles, whose rows are operands as they lie, though queries may not be; `asking_warps`: that wait until the first queries are asked
 * for. `stored_tiles`: by warps, not by the copy engine.
 */
template <class Format, int dtype, int head_dim, int row_tile, int cluster_size, int unit_rows, int asking_warps,
          bool stored_tiles = false>
struct LatentSeesaw {
    using Ring = PartRing<head_dim / 64>;
    static constexpr int v_dim = Ring::v_lines * 64, tile_tokens = tile::group_tokens;
    static_assert((head_dim == 576 || head_dim == 512 || head_dim == 320) && row_tile == tile::group_rows, "the .toml");
    static_assert(Format::matrix_dtype == dtype && Format::scale_bytes == 0, "rows are operands as they lie");

    static constexpr bool has_cluster = cluster_size > 1;
    static constexpr int groups = 2, group_columns = v_dim / groups;
    using Output = tile::LatentOutput<group_columns>;
    static constexpr int warps = groups * tile::group_warps, threads = warps * 32;

    /* A warp's columns leave in squares, of which each has a record. A CTA of a cluster owns some of them, side by side. */
    static constexpr int square_columns = 64, all_squares = group_columns / square_columns, squares = all_squares / cluster_size;
    static_assert(all_squares % cluster_size == 0, "as many for each CTA");

    using Slice = AccumulatorSlice<threads>;
    using FoldSlice = AccumulatorSlice<threads, 32>;
    static constexpr int square_slices = square_columns / FoldSlice::part_columns, fold_slices = squares * square_slices;
    using Fold = AccumulatorFold<FoldSlice, fold_slices>;
    static constexpr uint32_t record_bytes = sizeof(SliceCounts);
    static constexpr uint32_t scratch_bytes = cluster_size * sizeof(typename Fold::Part); /* of every cluster size as much */
    using Exchange = AccumulatorExchange<Slice, squares, cluster_size>;
    using Store = AccumulatorStore<Format, group_columns>;
    using Announced = AnnouncedPiece<unit_rows>;
    using SharedMemory = SeesawMemory<Ring, Exchange, row_tile, unit_rows>;
    static_assert(sizeof(typename Exchange::Message[cluster_size]) <= sizeof SharedMemory::tiles, "lent tiles");

    /* Named barriers: of the consumer warps, from 2 on of each warpgroup, of the consumers and those who wait for queries; 0 is __syncthreads. */
    static constexpr int consumer_barrier = 1, query_barrier = 2 + groups, query_barrier_threads = threads + asking_warps * 32;

    static __device__ __forceinline__ void meet_consumers() { ptx::named_barrier<consumer_barrier, threads>(); }
    static __device__ __forceinline__ uint32_t cluster_rank() { return has_cluster ? ptx::cluster_rank() : 0u; }

    /* By one thread, before the CTA meets. `arrivals`: of who brings a part of a tile. */
    static __device__ __forceinline__ void initialise(SharedMemory &shared, int arrivals) {
        Ring::initialise(shared.barriers, arrivals, tile::group_warps);
        for (uint64_t &of_group : shared.published)
            ptx::mbarrier_init(ptx::shared_address(&of_group), tile::group_warps);
        shared.pieces.initialise(threads, has_cluster ? arrivals : 0);
        shared.exchange.initialise();
    }
    /* Who brings the tiles: returns when the first queries are on their way, behind a ring full of which they would come. */
    static __device__ __forceinline__ void wait_until_query_is_asked_for() {
        ptx::named_barrier<query_barrier, query_barrier_threads>();
    }
    /* In place of that, where tiles are to come at once. */
    static __device__ __forceinline__ void go_ahead_of_query() {
        ptx::named_barrier_arrive<query_barrier_threads>(query_barrier);
    }

    /* Where a consumer warp stands: its warpgroup, and its place among the four. */
    struct Place : GroupPlace {
        using GroupPlace::GroupPlace;
        __device__ __forceinline__ int first_row() const { return warp() * 16; }
        __device__ __forceinline__ void meet_group() const {
            ptx::named_barrier<tile::group_threads>(consumer_barrier + 1 + group);
        }
    };

    /* What a consumer warp keeps over a piece. */
    struct ConsumerState {
        tile::LatentQueryLine last_line;
        tile::RowSoftmax softmax;
        float scale[tile::lane_rows]; /* products become logits in base 2 */
        Output output;
    };

    /*
     * Rows of Q into shared memory, zeros where they are not live, with all copies of a thread, 16 bytes each of one row, on their way at a time.
     * The first unit's are sent for ahead of KV, behind a ring full of which they would come.
     */
    template <class Params>
    static __device__ __forceinline__ void load_query(const Params &params, SharedMemory &shared, const tile::RowMap &rows,
                                                      int live_rows, bool is_first) {
        const auto asked = [&] {
            if (is_first)
                ptx::named_barrier_arrive<query_barrier_threads>(query_barrier);
        };
        if constexpr (Format::converts_query) {
            using Query = tile::OperandQuery<Format, threads>;
            static_assert(sizeof(Query) == sizeof SharedMemory::query + sizeof SharedMemory::weights,
                          "its last line lies behind");
            reinterpret_cast<Query *>(shared.query)
                ->load(params, rows, live_rows, ptx::thread_index_here(), asked, logit_scale(params.query), shared.sums[0]);
        } else {
            copy_query(params, shared, rows, live_rows);
            asked();
            ptx::wait_for_copies();
        }
        ptx::fence_async_proxy();
    }
    template <class Params>
    static __device__ __forceinline__ void copy_query(const Params &params, SharedMemory &shared, const tile::RowMap &rows,
                                                      int live_rows) {
        constexpr int vector = 8, row_threads = threads / row_tile;
        static_assert(head_dim % (vector * row_threads) == 0, "as many copies for every thread");
        const int row = ptx::thread_index_here() / row_threads;
        const uint16_t *const of_row = static_cast<const uint16_t *>(params.query.rows) + rows.query_offset(params.query, row);
        const uint16_t *const rope = static_cast<const uint16_t *>(params.query_rope) +
                                     rows.token(row) * params.query_rope_token_stride +
                                     rows.head(row) * params.query_rope_head_stride - params.query_dim;
        const uint32_t query = ptx::shared_address(shared.query);
#pragma unroll 3
        for (int dim = ptx::thread_index_here() % row_threads * vector; dim < head_dim; dim += row_threads * vector)
            ptx::copy_async<16>(tile::SquareRows::at(query, row, dim * 2), (dim < params.query_dim ? of_row : rope) + dim,
                                row < live_rows);
    }

    /* Products become logits in base 2. */
    static __device__ __forceinline__ float logit_scale(const query_params &query) {
        return tile::scale_log2(query) * Format::k_scale;
    }
    /* The same of the lane's rows, with the powers of two of their queries. */
    static __device__ __forceinline__ void load_scales(const SharedMemory &shared, const Place &place, ConsumerState &state) {
        static_assert(Ring::has_last_line, "consumers meet before the first tile");
#pragma unroll
        for (int i = 0; i < tile::lane_rows; ++i)
            state.scale[i] = shared.sums[0][place.first_row() + place.lane() / 4 + i * 8];
    }

    /* Begins the scores of the ring's tile, or goes on with them: parts from `first_part` on. */
    template <int first_part, int end_part>
    static __device__ __forceinline__ void begin_scores(tile::RowScores &scores, const tile::LatentQueryLine &last_line,
                                                        uint32_t query, const Ring &ring, int group) {
        /* Descriptors kept over the loop would take registers from it. */
        const uint64_t queries = tile::SquareRows::operand(ptx::computed_here(query), 0, 0);
        const uint64_t keys = tile::key_operand(ptx::computed_here(ring.tile(group)), 0);
        if constexpr (stored_tiles) {
#pragma unroll
            for (int part = first_part; part < end_part; ++part)
                ring.wait_full(part);
            ptx::fence_async_proxy();
        }
        ptx::wgmma_fence();
#pragma unroll
        for (int part = first_part; part < end_part; ++part) {
            /* In clusters of four, which exchange most, where the parts lie would be kept, too. */
            const int group_here = cluster_size == 4 ? static_cast<int>(ptx::computed_here(group)) : group;
            const uint32_t first_byte = Ring::first_line(group_here, part) * Ring::line_bytes;
            const uint64_t part_queries = ptx::operand_behind(queries, first_byte),
                           part_keys = ptx::operand_behind(keys, first_byte);
            if constexpr (!stored_tiles)
                ring.wait_full(part);
#pragma unroll
            for (int line = 0; line < Ring::lines_of(part); ++line) {
#pragma unroll
                for (int step = 0; step < 4; ++step) {
                    const uint32_t offset = line * Ring::line_bytes + step * 32;
                    const uint64_t key = ptx::operand_behind(part_keys, offset);
                    if (part == 0)
                        tile::latent_scores_mma<dtype>(scores.value, last_line.operand[step], key, step > 0);
                    else
                        tile::latent_scores_mma<dtype>(scores.value, ptx::operand_behind(part_queries, offset), key,
                                                       part > Ring::first_part || line + step > 0);
                }
            }
        }
        ptx::wgmma_commit();
    }

    /* The other warpgroup's newest weights are there; begins what they add to this one's output. */
    static __device__ __forceinline__ void begin_others_output(SharedMemory &shared, const Ring &ring, uint32_t values,
                                                               const Place &place, ConsumerState &state) {
        const uint32_t published = ptx::shared_address(&shared.published[1 - place.group]);
        while (!ptx::mbarrier_try_wait(published, ring.phase_before())) {
        }
        state.softmax.follow(shared.references + place.first_row(), state.output, place.lane());
        tile::begin_latent_pv<dtype>(state.output, ptx::shared_address(shared.weights), values);
    }

    /* Waits until this warpgroup's half of V of a tile is part of its output, and gives it back. `begun_since`: groups of instructions. */
    template <int begun_since>
    static __device__ __forceinline__ void give_values_back(const Ring &ring, uint32_t stage, const Place &place) {
        static_assert(Ring::half_pieces == Output::pieces && Ring::half_pieces == 2, "a wait for each");
        ptx::wgmma_wait_but<begun_since + 1>();
        ring.release_piece(stage, place.group, 0, place.lane());
        ptx::wgmma_wait_but<begun_since>();
        ring.release_piece(stage, place.group, 1, place.lane());
    }

    /*
     * One tile of this warpgroup's own, and what the other one's newest adds to this one's output. `masked`: some rows do not see all of its tokens,
     * or scores have a soft cap or a negative scale. Most tiles have nothing of that, and a body to themselves: what runs waits for its instructions
     * to be fetched, and longest where it jumps over others.
     */
    template <bool masked, class View>
    static __device__ __forceinline__ void attend_tile(SharedMemory &shared, const View &view, const typename View::Tile &seen,
                                                       bool follows, const Ring &ring, const Place &place, ConsumerState &state) {
        constexpr int first_parts = 1 + Ring::half_pieces; /* of K1 */
        const uint32_t query = ptx::shared_address(shared.query);
        const uint32_t other = 1 - place.group, first_value = place.group * (Ring::half_lines * Ring::line_bytes);
        tile::RowScores scores;
        begin_scores<Ring::first_part, first_parts>(scores, state.last_line, query, ring, place.group);
        if (follows)
            begin_others_output(shared, ring, ring.tile(other) + first_value, place, state);
        begin_scores<first_parts, Ring::parts>(scores, state.last_line, query, ring, place.group);
        if (follows)
            give_values_back<1>(ring, other, place);
        ptx::wgmma_wait();
        ptx::accumulator_is_ready(state.output.value);
        ptx::accumulator_is_ready(scores.value);
        if constexpr (Ring::has_last_line)
            ring.release_last_line(place.group, place.lane());

        float scale[tile::lane_rows] = {state.scale[0], state.scale[1]};
        if constexpr (masked) {
            tile::scale(scores, scale);
            tile::cap(scores, view.soft_cap());
            view.mask(scores, seen, place);
            scale[0] = scale[1] = 1.f;
        }
        tile::RowSquare weights;
        state.softmax.raise(scores, scale, state.output);
        const uint32_t square = ptx::shared_address(shared.weights);
        const int warp = place.warp(), lane = place.lane();
        state.softmax.template weigh<dtype>(scores, scale, weights,
                                            [&](int fragment) { weights.store(square, fragment, warp, lane); });
        if constexpr (masked && View::may_have_unseen_values) {
            place.meet_group(); /* all four warps have read K */
            tile::clear_unseen_values(ring.tile(place.group), Ring::lines - 1, view.seen_by_any(seen), place.thread());
            ptx::fence_async_proxy();
            place.meet_group();
        }

        state.softmax.leave(shared.references + place.first_row(), place.lane());
        ptx::fence_async_proxy();
        __syncwarp();
        if (place.lane() == 0)
            ptx::mbarrier_arrive(ptx::shared_address(&shared.published[place.group]));
        tile::begin_latent_pv<dtype>(state.output, weights, ring.tile(place.group) + first_value);
        give_values_back<0>(ring, place.group, place);
        ptx::accumulator_is_ready(state.output.value);
    }

    /*
     * Attention of all rows over the piece's tiles. Tiles of stage 0 are warpgroup 0's. `token`, `end_token`: alike for all lanes, as the compiler
     * knows: matrix instructions in what it takes for a divergent path are serialised.
     */
    template <class View>
    static __device__ __forceinline__ void attend(SharedMemory &shared, const View &view, int token, int end_token, Ring &ring,
                                                  const Place &place, ConsumerState &state) {
        const uint32_t other = 1 - place.group;
        bool follows = __any_sync(tile::full_warp, token < end_token && ring.stage() == other); /* behind a tile of this piece */
        if (follows) {
            ring.advance();
            token += tile_tokens;
        }
        while (token < end_token) {
            const typename View::Tile seen = view.at(token, ring);
            if (view.is_plain(seen))
                attend_tile<false>(shared, view, seen, follows, ring, place, state);
            else
                attend_tile<true>(shared, view, seen, follows, ring, place, state);
            follows = true;
            ring.advance(token + tile_tokens < end_token ? 2 : 1);
            token += 2 * tile_tokens;
        }
        if (__any_sync(tile::full_warp, follows && ring.stage() == place.group)) { /* the last tile is the other's */
            begin_others_output(shared, ring, ring.tile(other) + place.group * (Ring::half_lines * Ring::line_bytes), place,
                                state);
            give_values_back<0>(ring, other, place);
            ptx::accumulator_is_ready(state.output.value);
        }
    }

    /* A square of the accumulators, whose number the compiler does not know: registers have no index. */
    static __device__ __forceinline__ void take_square(Slice &result, const Output &output, int square) {
        constexpr int square_eights = square_columns / 8;
        result.take(output.value, 0);
#pragma unroll
        for (int i = 1; i < all_squares; ++i) {
            if (i == square)
                result.take(output.value, i * square_eights);
        }
    }

    /* What this CTA has of a piece goes to the CTAs of the cluster that own it, and what they have of its own squares comes. */
    static __device__ __forceinline__ void exchange_squares(SharedMemory &shared, Slice &own, const Output &output,
                                                            const Place &place, uint32_t round) {
        const uint32_t rank = cluster_rank();
        auto &exchange = shared.exchange;
        exchange.open(own);
        exchange.wait_ready(round);
#pragma unroll 1
        for (uint32_t turn = 1; turn < cluster_size; ++turn) {
            const uint32_t owner = rank ^ turn;
            if (place.group == 0 && place.lane() % 4 == 0)
                exchange.send_statistics(own, shared.tiles, rank, owner);
#pragma unroll 1
            for (int square = 0; square < squares; ++square) {
                take_square(own, output, static_cast<int>(owner) * squares + square);
                exchange.send(own, shared.tiles, square, rank, owner);
            }
        }
        exchange.wait_received(round);
    }

    /*
     * The piece's result out of the registers, a square of columns after the other: a whole unit's into out, a part into scratch, whose slices
     * fall to whichever worker has time.
     */
    template <class Params>
    static __device__ __forceinline__ void finish(const Params &params, SharedMemory &shared, const Announced &announced,
                                                  const tile::RowMap &rows, const ConsumerState &state) {
        const int first_square = static_cast<int>(cluster_rank()) * squares;
        const Place place(ptx::thread_index_here());
        const Piece &piece = announced.piece;
        const int first_row = place.first_row() + place.lane() / 4, live_rows = announced.rows.live_rows;
        Slice result(live_rows);
#pragma unroll
        for (int i = 0; i < tile::lane_rows; ++i) {
            result.reference[i] = state.softmax.reference[i] == tile::RowSoftmax::lowest ? -INFINITY : state.softmax.reference[i];
            result.sum[i] = state.softmax.row_sum(i);
            if (place.lane() % 4 == 0)
                shared.sums[place.group][first_row + i * 8] = result.sum[i];
        }
        meet_consumers(); /* and nobody reads query and weights any more */
#pragma unroll
        for (int i = 0; i < tile::lane_rows; ++i)
            result.sum[i] += shared.sums[1 - place.group][first_row + i * 8];
        if constexpr (has_cluster)
            exchange_squares(shared, result, state.output, place, announced.number);
        const float own_reference[] = {result.reference[0], result.reference[1]}, own_sum[] = {result.sum[0], result.sum[1]};
        const auto take = [&](int square) {
            take_square(result, state.output, first_square + square);
            if constexpr (has_cluster) {
                for (int i = 0; i < tile::lane_rows; ++i) {
                    result.reference[i] = own_reference[i];
                    result.sum[i] = own_sum[i];
                }
                shared.exchange.fold(result, shared.tiles, square, cluster_rank());
            }
        };

        const Store output(params.output, rows, live_rows, place);
        const bool is_part = piece.parts.count > 1;
        float scale[tile::lane_rows] = {};
        if (!is_part && !has_cluster)
            output.finish(result, place, place.group == 0, output_scale<Format>(params.output), scale);
        /* Columns from the first of those of this CTA on. Statistics are folded for each of them, but for those of a whole unit of one CTA. */
        const auto store = [&](const auto &columns, int column) {
            if (is_part || has_cluster)
                output.finish(columns, place, place.group == 0 && first_square * square_columns + column == 0,
                              output_scale<Format>(params.output), scale);
            output.store(columns, scale, place, first_square * square_columns + column,
                         ptx::shared_address(shared.query[place.group * squares + column / square_columns]),
                         Format::converts_query ? v_dim - place.group * group_columns : group_columns); /* NVFP4 asks for v_dim */
        };
#pragma unroll 1
        for (int square = 0; !is_part && square < squares; ++square) {
            take(square);
            store(result, square * square_columns);
        }
        if (is_part) {
            const Fold fold(params.records, params.scratch, piece);
#pragma unroll 1
            for (int square = 0; square < squares; ++square) {
                take(square);
                fold.leave(result, square * square_slices);
            }
            SliceDealer dealer(fold.counts(), piece.parts.num_workers, fold_slices, shared.next_slice, result.thread == 0,
                               meet_consumers);
            dealer.arrive(piece.is_last);
            for (uint32_t slice = dealer.take(); slice < fold_slices; slice = dealer.take()) {
                FoldSlice sum(live_rows);
                fold.take(sum, static_cast<int>(slice));
                dealer.ask();
                store(sum, static_cast<int>(slice) * FoldSlice::part_columns);
            }
        }
        if constexpr (has_cluster)
            shared.exchange.give_back(place.lane());
        meet_consumers(); /* Q of the next piece may come */
    }

    /*
     * The consumer warps. wait_described(number) returns when what the rows of a piece see is known, then make_view(rows, may_be_plain) says
     * it, with all threads together: `may_be_plain`: scores need no more than their scale. Of a view:
     *     at(token, ring)        a Tile, which it understands: what is seen of the ring's, from its first token on
     *     is_plain(tile)         all rows see all of it, and it may be plain
     *     mask(scores, tile, place), soft_cap()
     *     seen_by_any(tile)      if may_have_unseen_values: where no row sees a token its V may be NaN, which must be kept out
     */
    template <class Params, class WaitDescribed, class MakeView>
    static __device__ __forceinline__ void consume(const Params &params, SharedMemory &shared, Ring ring,
                                                   WaitDescribed wait_described, MakeView make_view) {
        meet_cluster<cluster_size>();
        for (uint32_t number = 0;; ++number) {
            const Announced &announced = shared.pieces.wait_named(number);
            const Piece &piece = announced.piece;
            if (piece.end_of_work)
                break;
            const auto row_map = [&] {
                return tile::RowMap(params.schedule.group_size, announced.rows.first_query_token, piece.kv_head,
                                    piece.row_pass * row_tile);
            };
            load_query(params, shared, row_map(), announced.rows.live_rows, number == 0);
            const Place place(ptx::thread_index_here());
            ConsumerState state;
            meet_consumers();                     /* Q is there */
            if constexpr (Format::converts_query) /* ahead of the piece's sums, which have their place */
                load_scales(shared, place, state);
            if constexpr (Ring::has_last_line)
                state.last_line.load(ptx::shared_address(shared.weights), place.warp(), place.lane());
            state.softmax.clear();
            state.output.clear();
            wait_described(number);
            if constexpr (Ring::has_last_line)
                meet_consumers(); /* it may give way to weights */
            {
                /* Read here, once: while matrix instructions run, shared memory answers late. */
                const float scale = logit_scale(params.query);
                const int token = __shfl_sync(tile::full_warp, announced.rows.first_token, 0);
                const int end_token = __shfl_sync(tile::full_warp, announced.rows.end_token, 0);
                if constexpr (!Format::converts_query)
                    state.scale[0] = state.scale[1] = scale;
                const auto view = make_view(announced.rows, scale >= 0.f && !(params.query.soft_cap > 0.f));
                attend(shared, view, token, end_token, ring, place, state);
            }
            finish(params, shared, announced, row_map(), state);
            number = announced.number; /* anew: kept over the loop it would take a register from it */
            shared.pieces.pop(number);
        }
    }
};

} // namespace pipeline
