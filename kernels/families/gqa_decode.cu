/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GQA decode: attention of the query tokens of each request over a KV cache, paged or contiguous.
 *
 *     z_j = bmm1_scale * q . k_j        over the tokens j that the query token sees, both rotated by their positions where wanted
 *     z_j = cap * tanh(z_j / cap), then + slope * (position_j - position_q), where wanted
 *     m   = max_j z_j log2e,   l = sum_j 2^(z_j log2e - m) + 2^(sink log2e - m)
 *     out = bmm2_scale * sum_j 2^(z_j log2e - m) v_j / l
 *     lse = m + log2(l)
 *
 * Rows are the query tokens of a request and of each the query heads of one KV head (tile/row_map.cuh), a pass over the KV cache for
 * every row_tile of them (the last one padded with zero queries that are never stored). Schedule, by role:
 *
 *     producer warps  one or two for K, as many for V: walk split_schedule.cuh, the pieces of units that fall to this worker;
 *                     page_stream.cuh gives the boxes of a piece and their pages, one batch of 32 ahead; one 5-D copy per box
 *                     into the ring (producer.cuh, kv_ring.cuh), across pieces, so that short units keep the memory queue full.
 *                     With pages of any size several for K and for V, a copy per row (row_gather.cuh);
 *                     with NVFP4 one or two more, for scales that no copy of a box can bring (scale_gather.cuh)
 *     announcer warp  walks the same schedule and hands each piece to the consumers (piece_queue.cuh), with what every row of it
 *                     sees (describe_rows.cuh): what they alone need to know of a piece holds up no copy
 *     consumer warps  tile by tile: qk, scale, mask, softmax, pv (attention.cuh); teams of warps take turns at the tiles, a
 *                     warp takes its own tokens of a tile and keeps its own reference and sum: no barrier among consumers
 *     at a unit's end partial.cuh: warps, then the cluster, then the workers that share the unit; the last one stores
 *
 * A programmatic launch waits for the kernel ahead of it before anything else, or, where all but the newest rows were promised to be
 * final, role by role and as late as each can (history.cuh).
 *
 * Kernels with options (soft cap, ALiBi, skip-softmax; RoPE; all of these) are variants of their own: what few launches ask for costs the
 * others nothing. So are kernels with offsets, where each request's rows of query, out, K and V begin at a place of its own; those that copy
 * rows one by one take them from any address. With RoPE keys are turned between shared memory and the tensor core, queries when they
 * are loaded or for every tile (rotation.cuh); with skip-softmax V of a tile is asked for after the warps have voted on it
 * (skip_votes.cuh).
 *
 * A worker with two pieces, the first of tiles 0 to 2, the second of tiles 3 to 6, two teams, four stages (time runs to the right;
 * a copy lands long after it was issued, and the ring fills while the first lands):
 *
 *     K producer   issue 0 1 2 3 | wait for a free place: 4     5     6
 *     V producer   issue 0 1 2 3 | likewise                 4     5     6
 *     announcer    piece 0, piece 1, end
 *     team 0             qk 0, pv 0     qk 2, pv 2   fold 0      qk 4, pv 4     qk 6, pv 6   fold 1
 *     team 1                  qk 1, pv 1             fold 0  qk 3, pv 3    qk 5, pv 5        fold 1
 *
 * Shared memory: struct SharedMemory below. Tiles first: the copy engine's swizzle wants them 1024-byte aligned.
 */
#include <algorithm>
#include <cstddef>
#include <type_traits>

#include "abi.h"
#include "families/gqa_decode_traits.cuh"
#include "pipeline/cluster_exchange.cuh"
#include "pipeline/epilogue.cuh"
#include "pipeline/history.cuh"
#include "pipeline/kv_ring.cuh"
#include "pipeline/page_stream.cuh"
#include "pipeline/piece_queue.cuh"
#include "pipeline/producer.cuh"
#include "pipeline/row_gather.cuh"
#include "pipeline/row_part_fold.cuh"
#include "pipeline/scale_gather.cuh"
#include "pipeline/skip_votes.cuh"
#include "pipeline/tile_walk.cuh"
#include "pipeline/warp_fold.cuh"
#include "pipeline/worker_fold.cuh"
#include "ptx/registers.cuh"
#include "tile/attention.cuh"
#include "tile/biased_rows.cuh"
#include "tile/rotation.cuh"
#include "tile/row_map.cuh"
#include "variant.cuh"

namespace {

using gqa_decode::Traits;
using Format = Traits::Format;
using TileLayout = Traits::TileLayout;
using TokenFragments = tile::TokenFragments<Format, Traits::tile_tokens, Traits::token_fragments>;
using RowScales = tile::RowScales<Format, Traits::row_fragments>;
using Ring = pipeline::KvRing<Traits::stages, TileLayout::bytes, Traits::gathers_rows || Traits::has_scales>;
using Softmax = tile::OnlineSoftmax<Traits::row_fragments>;
using Schedule = pipeline::SplitSchedule<Traits::cluster_size>;
using Votes = std::conditional_t<Traits::skips, pipeline::SkipVotes<Traits::stages>, pipeline::NoVotes>;
using Producer = pipeline::Producer<Format, Ring, Traits::tile_tokens, Traits::tensor_warps, Traits::cluster_size, Votes,
                                    Traits::usual_stages>;
using RowGather = pipeline::RowGather<Format, Ring, Traits::tile_tokens, Traits::tensor_warps, Traits::cluster_size, Votes,
                                      Traits::has_offsets>;
using ScaleGather = pipeline::ScaleGather<Format, Ring, Traits::tile_tokens, TileLayout::rows_bytes, Traits::cluster_size,
                                          std::max(Traits::scale_warps, 1)>;

using KeyRotation = tile::KeyRotation<Format, Traits::head_dim, Traits::consumer_threads>;
using QueryRotation = tile::QueryRotation<Format, Traits::head_dim, Traits::consumer_threads, Traits::token_fragments,
                                          Traits::row_fragments, Traits::teams * Traits::tile_tokens, Traits::tiles_per_turn>;
using Rotation = std::conditional_t<Traits::turns_query, QueryRotation,
                                    std::conditional_t<Traits::computes_rope, KeyRotation, tile::NoRotation>>;

/* What folds the warps' partials in `parts` blocks of columns, and then those of a cluster. */
template <int cluster_size, int parts>
struct FoldIn {
    static constexpr int columns = Traits::head_dim / cluster_size; /* of one CTA */
    static constexpr int token_warps = Traits::teams * Traits::token_warps;
    using Partials =
        std::conditional_t<Traits::row_parts == 1, pipeline::WarpPartials<Format, Traits::row_tile, token_warps, parts>,
                           pipeline::RowPartPartials<Format, Traits::row_tile, token_warps, Traits::row_parts>>;
    using CtaSlice = pipeline::Slice<Traits::row_tile, Traits::head_dim, Traits::consumer_threads, parts>;
    using ClusterSlice = pipeline::Slice<Traits::row_tile, columns, Traits::consumer_threads>;
    using Result = std::conditional_t<cluster_size == 1, CtaSlice, ClusterSlice>;
    using Exchange = pipeline::ClusterExchange<CtaSlice, Result, Traits::row_tile, columns, cluster_size>;

    struct SharedMemory {
        alignas(1024) uint8_t tiles[Traits::stages][2][TileLayout::bytes];
        alignas(16) Partials partials;
        Exchange exchange;
        pipeline::KvRingBarriers<Traits::stages> barriers;
        Votes votes;
        pipeline::PieceQueue<Traits::row_tile> pieces;
        Rotation rotation;
        pipeline::Sequences sequences; /* for what is called rarely */
    };
    /* Without the padding that the alignment adds to the end. */
    static constexpr int shared_bytes = offsetof(SharedMemory, sequences) + sizeof(pipeline::Sequences);
    static constexpr bool fits = shared_bytes <= variant::max_shared_bytes;
};

/* As few parts as fit: each further one is two more barriers. */
template <int cluster_size>
using FoldOf =
    std::conditional_t<FoldIn<cluster_size, 1>::fits, FoldIn<cluster_size, 1>,
                       std::conditional_t<FoldIn<cluster_size, 2>::fits, FoldIn<cluster_size, 2>, FoldIn<cluster_size, 4>>>;
using Fold = FoldOf<Traits::cluster_size>;
using SharedMemory = Fold::SharedMemory;
using WorkerFold = pipeline::WorkerFold<Fold::Result>;
template <class Rows>
using UnitStore = pipeline::UnitStore<Format, Fold::Result, Rows, (Traits::cluster_size > 1)>;
static_assert(FoldOf<1>::fits && Fold::fits && FoldOf<8>::fits, "shared memory of one CTA");
static_assert(Traits::ctas_per_sm * (Fold::shared_bytes + variant::reserved_shared_bytes) <= variant::sm_shared_bytes,
              "shared memory of ctas_per_sm CTAs");

/* Of every cluster size the largest, so that one workspace serves all of them. */
constexpr size_t record_bytes =
    std::max(sizeof(pipeline::WorkerRecord<FoldOf<1>::CtaSlice>), sizeof(pipeline::WorkerRecord<FoldOf<8>::CtaSlice>));
static_assert(sizeof(WorkerFold::Record) <= record_bytes, "the record that the contract announces");

constexpr int consumer_barrier = 1; /* named barrier of the consumer warps; 0 is __syncthreads */

/* ------------------------------------------------------------------------------------------- consumers: one piece of a unit */

__device__ __forceinline__ int cluster_rank() { return Traits::cluster_size > 1 ? static_cast<int>(ptx::cluster_rank()) : 0; }

__device__ __forceinline__ bool asks_rope(const gqa_decode_params &params) {
    return Traits::only_rope || (Traits::computes_rope && pipeline::rarely(params.query.rotates != 0));
}

/* What a consumer warp keeps over a piece. */
struct ConsumerState {
    tile::QueryFragment<Format, Traits::row_fragments> query;
    Rotation::State turned;
    tile::OnlineSoftmax<Traits::row_fragments> softmax;
    tile::OutputFragment<Format::steps, Traits::row_fragments> output;
};

/* Where a consumer warp stands: which tiles, which tokens of a tile, which rows. */
struct Place {
    int team, token_warp, first_row;

    explicit __device__ __forceinline__ Place(int warp)
        : team(warp / Traits::team_warps), token_warp(warp % Traits::token_warps),
          first_row(warp % Traits::team_warps / Traits::token_warps * Traits::rows_per_warp) {}
    __device__ __forceinline__ int first_token() const { return token_warp * Traits::tokens_per_warp; }
};

using Tokens = tile::WarpTokens<Traits::row_tile, Traits::tokens_per_warp>;
using Scores = tile::ScoreFragment<Traits::token_fragments, Traits::row_fragments>;
using Weights = tile::WeightFragment<Traits::token_fragments, Traits::row_fragments>;

/* Wide row tiles and options have no registers to keep what every tile asks for. */
using TileWalk =
    pipeline::TileWalk<Traits::row_tile, Traits::tile_tokens, Traits::teams, Traits::row_tile == 8 && !Traits::has_options, Ring>;

using AnnouncedPiece = pipeline::AnnouncedPiece<Traits::row_tile>;

__device__ __forceinline__ auto row_map(const gqa_decode_params &params, const AnnouncedPiece &announced) {
    const int request = announced.piece.request, first_query_token = announced.rows.first_query_token;
    const tile::RowMap rows(params.schedule.group_size, first_query_token, announced.piece.kv_head,
                            announced.piece.row_pass * Traits::row_tile);
    if constexpr (Traits::has_offsets)
        return tile::OffsetRowMap(
            rows, tile::request_shift(params.query_offsets, request, first_query_token, params.query.token_stride),
            tile::request_shift(params.out_offsets, request, first_query_token, params.output.token_stride));
    else
        return rows;
}

/* The same, of what is stored. */
__device__ __forceinline__ auto stored_rows(const gqa_decode_params &params, const AnnouncedPiece &announced) {
    const auto rows = row_map(params, announced);
    if constexpr (Traits::bends_scores)
        return tile::BiasedRows(rows, announced.rows.place, params.schedule.position_offset);
    else
        return rows;
}

__device__ __forceinline__ auto rotated_rows(const gqa_decode_params &params, const AnnouncedPiece &announced,
                                             const Place &place) {
    using Map = decltype(row_map(params, announced));
    return tile::RotatedRows<Map>{params.query,    row_map(params, announced), announced.rows.place,
                                  place.first_row, announced.rows.live_rows,   params.schedule.position_stride.value};
}

/* As it lies in memory. Addresses anew for every piece: kept from piece to piece they would take registers from the loop over tiles. */
__device__ __forceinline__ void load_query(const gqa_decode_params &params, const AnnouncedPiece &announced, const Place &place,
                                           ConsumerState &state) {
    const auto rows = row_map(params, announced);
    const int live_rows = announced.rows.live_rows, lane = ptx::thread_index_here() % 32;
    if (asks_rope(params))
        state.query.load_unrotated(params.query, rows, place.first_row, live_rows, lane);
    else
        state.query.load_raw(params.query, rows, place.first_row, live_rows, lane);
}

/* What few launches ask for. */
[[maybe_unused]] __device__ __forceinline__ void bend(const gqa_decode_params &params, Scores &scores, const Tokens &tokens,
                                                      const Place &place, int lane) {
    if (params.query.soft_cap > tile::largest_closed_cap)
        tile::soft_cap(scores, params.query.soft_cap);
    else if (params.query.soft_cap > 0.f)
        tile::closed_soft_cap(scores, params.query.soft_cap);
    if (params.query.alibi_slopes != nullptr)
        tile::add_alibi(scores, tokens, place.first_row, params.schedule.position_stride.value, lane);
}

/* Takes V of a tile in, where one of its tokens has weight; and gives the place back. */
__device__ __forceinline__ void add_values(const Ring &ring, const Tokens &tokens, bool is_weighed, const Weights &weights,
                                           const TokenFragments &fragments, ConsumerState &state, int lane) {
    ring.wait_full(pipeline::tensor_v);
    const uint32_t v_tile = ring.tile(pipeline::tensor_v);
    if (is_weighed && tokens.all_visible())
        tile::pv<false, Traits::fragments_at_once>(state.output, weights, v_tile, fragments, tokens, lane);
    else if (is_weighed)
        tile::pv<true, Traits::fragments_at_once>(state.output, weights, v_tile, fragments, tokens, lane);
    ring.release(pipeline::tensor_v, lane);
}

/*
 * Attention of this warp's rows over its tokens of the piece's tiles. Where tiles may be passed over, V of a tile comes a trip to memory
 * after the votes about it, so the scores of the next one are computed first, if there are places for both in the ring, and registers.
 */
__device__ __forceinline__ void attend(const gqa_decode_params &params, const AnnouncedPiece &piece, const RowScales &scales,
                                       Ring &ring, Votes &votes, const TokenFragments &fragments, const Rotation &rotation,
                                       const Place &place, ConsumerState &state, int lane) {
    const bool may_skip = Traits::skips && params.query.skip_factor > 0.f;
    const bool has_rope = asks_rope(params);
    const tile::UnitRows<Traits::row_tile> &rows = piece.rows;
    Ring ring_behind = ring;
    TileWalk walk(rows, piece.first_team, place.team, ring), behind(rows, piece.first_team, place.team, ring_behind);
    Weights weights;
    bool is_weighed = false; /* the tile behind */
    const auto catch_up = [&] {
        add_values(ring_behind, behind.tokens<Traits::tokens_per_warp>(place.first_token()), is_weighed, weights, fragments,
                   state, lane);
        behind.next();
    };
    for (bool is_first = true; walk.has_tile(); walk.next(), is_first = false) {
        const Tokens tokens = walk.tokens<Traits::tokens_per_warp>(place.first_token());
        bool wanted = tokens.any_visible();
        Scores scores;
        if (has_rope && !is_first)
            rotation.turn(state.turned, state.query, rotated_rows(params, piece, place), tokens.first_token,
                          ptx::thread_index_here() % 32);
        ring.wait_full(pipeline::tensor_k);
        if (wanted && has_rope)
            rotation.scores(scores, state.query, ring.tile(pipeline::tensor_k), fragments, params.query.head_dim / 2,
                            tokens.first_token, (tokens.first_token + (lane >> 2)) * params.schedule.position_stride.value, lane);
        else if (wanted)
            tile::qk<Traits::fragments_at_once>(scores, state.query, ring.tile(pipeline::tensor_k), fragments, lane);
        ring.release(pipeline::tensor_k, lane);
        if (wanted) {
            tile::scale(scores, scales);
            if constexpr (Traits::bends_scores)
                bend(params, scores, tokens, place, lane);
            if (!tokens.all_visible())
                tile::mask(scores, tokens, place.first_row, lane);
        }
        if (may_skip) {
            wanted = wanted && state.softmax.wants(scores, rows.skip_below, rows.live_rows - place.first_row, lane);
            votes.vote(ring.stage(), ring.phase(), wanted, place.first_token() == 0 && place.first_row == 0, lane);
        }
        if (may_skip && !is_first)
            catch_up();
        if (wanted) /* tiles are judged by the largest score itself */
            state.softmax.update<Format::matrix_dtype>(scores, state.output, weights,
                                                       may_skip ? 0.f : Softmax::rescale_threshold);
        is_weighed = wanted;
        if (!may_skip)
            add_values(ring, tokens, wanted, weights, fragments, state, lane);
    }
    if (may_skip && behind.has_tile())
        catch_up();
}

__device__ __forceinline__ void consume(const gqa_decode_params &params, SharedMemory &shared, Ring ring, int warp, int lane) {
    const Place place(warp);
    const TokenFragments fragments(place.first_token(), params.schedule.box_tokens, params.v_scales_interleaved != 0, lane);
    if (asks_rope(params)) /* while the first piece is looked for */
        shared.rotation.begin_tables(params.query, params.schedule.position_stride.value, threadIdx.x);
    pipeline::meet_cluster<Traits::cluster_size>();
    ConsumerState state;
    for (uint32_t number = 0;; ++number) {
        const auto &announced = shared.pieces.wait_named(number);
        const pipeline::Piece &piece = announced.piece;
        const auto &unit = announced.rows;
        if (piece.end_of_work)
            break;
        if (variant::only_copies) {
            shared.pieces.wait_described(number);
            pipeline::release_tiles(TileWalk(announced.rows, announced.first_team, place.team, ring), ring, lane);
            shared.pieces.pop(number);
            continue;
        }
        if (number == 0 || !Traits::loads_query_ahead) /* before all copies have been asked for, behind which it would come */
            load_query(params, announced, place, state);
        if (asks_rope(params)) {
            if (number == 0)
                shared.rotation.complete_tables(params.schedule.position_stride.value, threadIdx.x,
                                                [] { ptx::named_barrier<consumer_barrier, Traits::consumer_threads>(); });
            shared.pieces.wait_described(number);
            Ring ahead = ring; /* a walk advances the ring that it is given */
            const TileWalk walk(unit, announced.first_team, place.team, ahead);
            shared.rotation.begin(state.turned, state.query, rotated_rows(params, announced, place),
                                  walk.tokens<Traits::tokens_per_warp>(place.first_token()).first_token,
                                  ptx::thread_index_here() % 32);
        } else {
            state.query.prepare(params.query, lane);
        }
        const RowScales scales(tile::scale_log2(params.query), asks_rope(params), state.query);
        shared.pieces.wait_described(number);
        state.softmax.clear();
        state.output.clear();
        attend(params, announced, scales, ring, shared.votes, fragments, shared.rotation, place, state, lane);

        /* Anew: kept over the loop they would take registers from it. */
        number = announced.number;
        const auto rows = stored_rows(params, announced);
        const int thread = ptx::thread_index_here();
        const Place here(thread / 32);
        if (Traits::loads_query_ahead && !piece.is_last) { /* while this one is folded */
            const auto &next = shared.pieces.wait_named(number + 1);
            if (!next.piece.end_of_work)
                load_query(params, next, here, state);
        }
        const int rank = cluster_rank(), live_rows = unit.live_rows;
        Fold::CtaSlice own(live_rows);
        Fold::Result result(live_rows);
        if (number > 0)
            ptx::named_barrier<consumer_barrier, Traits::consumer_threads>(); /* the piece before has been folded */
        /* Teams fold in the order of their first tiles. */
        const int turn = here.team - static_cast<int>(announced.first_team);
        shared.partials.run<consumer_barrier>(state.output, state.softmax,
                                              (turn < 0 ? turn + Traits::teams : turn) * Traits::token_warps + here.token_warp,
                                              here.first_row, thread % 32, own);
        const bool is_part = piece.parts.count > 1, is_last = piece.is_last; /* read while nothing waits for it */
        const auto store = shared.exchange.template run<consumer_barrier>(own, result, rank, number, is_last, [&] {
            return UnitStore<decltype(rows)>(params.output, rows, result, rank * Fold::columns, params.query.head_dim);
        });
        if (!is_part || WorkerFold(params.records, piece).run(result)) {
            store.run(result);
            if (is_part)
                WorkerFold(params.records, piece).clear(result);
        }
        if (is_last)
            break;
        shared.pieces.pop(number);
    }
}

/* ------------------------------------------------------------------------------------------------------------ producers */

__device__ __forceinline__ bool gathers_scales(const gqa_decode_params &params) {
    return Traits::has_scales && (Traits::gathers_rows || params.scale_blocks == 0);
}

/* Arrivals that complete a tile, beside its bytes. */
__device__ __forceinline__ int producers_of_a_tile(const gqa_decode_params &params) {
    const int of_boxes = Producer::shares_tiles(params.schedule) ? Traits::tensor_warps : 1;
    const int of_rows = Traits::gathers_rows ? RowGather::arrivals : of_boxes;
    if (!Traits::has_scales)
        return of_rows;
    return of_rows + (gathers_scales(params) ? ScaleGather::arrivals : Producer::scale_arrivals);
}

/* Copies of rows narrower than the kernel's leave the rest of each as it was: zeros, as those of boxes bring. */
__device__ __forceinline__ void clear_tiles(SharedMemory &shared) {
    for (int byte = threadIdx.x * 16; byte < static_cast<int>(sizeof shared.tiles); byte += Traits::threads * 16)
        ptx::store_shared_zeros(ptx::shared_address(shared.tiles) + byte);
}

/* Producer warp number `producer`: those that bring K's rows, those that bring V's, those that bring scales. */
__device__ __forceinline__ void produce(const gqa_decode_params &params, Schedule &schedule, const void *map,
                                        pipeline::Tensor tensor, int producer, const Ring &ring, Votes &votes, int lane) {
    if constexpr (Traits::has_scales) {
        if (producer >= 2 * Traits::tensor_warps) {
            if (gathers_scales(params))
                ScaleGather(params, producer - 2 * Traits::tensor_warps, ring).run(schedule, lane);
            return;
        }
    }
    if constexpr (Traits::gathers_rows)
        RowGather(params.schedule, tensor == pipeline::tensor_k ? params.k_rows : params.v_rows,
                  RowGather::Offsets(tensor == pipeline::tensor_k ? params.k_offsets : params.v_offsets), params.num_pages,
                  params.query.head_dim, params.query.skip_factor, tensor, producer % Traits::tensor_warps, ring, votes)
            .run(schedule, lane);
    else
        Producer(params.schedule, map,
                 {tensor == pipeline::tensor_k ? &params.k_scales : &params.v_scales, params.scale_blocks != 0,
                  static_cast<uint32_t>(params.num_pages)},
                 params.query.skip_factor, tensor, producer % Traits::tensor_warps, ring, votes)
            .run(schedule, lane);
}

} // namespace

extern "C" __global__ void __launch_bounds__(Traits::threads, Traits::ctas_per_sm)
    VARIANT_NAME(const __grid_constant__ gqa_decode_params params) {
    extern __shared__ __align__(1024) uint8_t shared_memory[];
    SharedMemory &shared = *reinterpret_cast<SharedMemory *>(shared_memory);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int rank = cluster_rank();
    const int worker = blockIdx.x / Traits::cluster_size;

    if (!pipeline::is_history_final(params.schedule))
        ptx::wait_for_preceding_kernel();
    const bool is_consumer = warp < Traits::consumer_warps;
    const int producer = warp - Traits::consumer_warps;
    const pipeline::Tensor tensor = producer < Traits::tensor_warps ? pipeline::tensor_k : pipeline::tensor_v;
    const void *const map = tensor == pipeline::tensor_k ? &params.k_map : &params.v_map;
    Schedule schedule(params.schedule, shared.sequences, worker, rank);
    if (!is_consumer) {
        schedule.issue_length_loads();
        if (!Traits::gathers_rows)
            ptx::prefetch_tensor_map(map);
    } else if (threadIdx.x == 0) { /* while the lengths are on their way */
        if (pipeline::rarely(pipeline::needs_shared_sequences(params.schedule)))
            shared.sequences = pipeline::Sequences(params.schedule);
        Ring::initialise(shared.barriers, producers_of_a_tile(params), Traits::team_warps);
        if (Traits::skips && params.query.skip_factor > 0.f)
            shared.votes.initialise(Traits::team_warps);
        shared.pieces.initialise(Traits::consumer_threads);
        shared.exchange.initialise();
        ptx::fence_mbarrier_init();
    } else if (warp == 1) {
        pipeline::prefetch_page_table(params.schedule, lane);
    }
    if (Traits::gathers_rows && params.query.head_dim < Traits::head_dim)
        clear_tiles(shared);
    __syncthreads();
    if constexpr (Traits::cluster_size > 1)
        ptx::cluster_arrive_relaxed(); /* this CTA's barriers are initialised */

    const Ring ring(shared.barriers, shared.tiles);
    if (is_consumer) {
        if constexpr (Traits::moves_registers)
            ptx::take_registers<Traits::consumer_registers>();
        consume(params, shared, ring, warp, lane);
        return;
    }
    if constexpr (Traits::moves_registers)
        ptx::give_registers<Traits::other_registers>();
    schedule.begin();
    if (warp == Traits::announcer_warp)
        pipeline::announce<Traits::has_options, Traits::tile_tokens, Traits::teams>(params.schedule, params.query, schedule,
                                                                                    shared.pieces, lane);
    else if (Traits::idle_warps == 0 || warp < Traits::announcer_warp)
        produce(params, schedule, map, tensor, producer, ring, shared.votes, lane);
    pipeline::meet_cluster<Traits::cluster_size>();
}

extern "C" __device__ const libdecode_launch_contract VARIANT_CONTRACT = {
    .magic = LIBDECODE_CONTRACT_MAGIC,
    .abi = LIBDECODE_KERNEL_ABI,
    .family = variant::only_copies ? KERNEL_FAMILY_PAGE_CEILING : KERNEL_FAMILY_GQA_DECODE,
    .parameter_bytes = sizeof(gqa_decode_params),
    .threads = Traits::threads,
    .dynamic_shared_bytes = Fold::shared_bytes,
    .ctas_per_sm = Traits::ctas_per_sm,
    .cluster_size = Traits::cluster_size,
    .query_dtypes = Format::converts_query ? 1u << KERNEL_DTYPE_BF16 | 1u << KERNEL_DTYPE_FP16 | 1u << KERNEL_DTYPE_E4M3
                                           : 1u << Traits::dtype,
    .kv_dtype = Traits::dtype,
    .out_dtypes = pipeline::out_dtypes<Format, Fold::Result>,
    .head_dim = Traits::head_dim,
    .row_tile = Traits::row_tile,
    .tile_tokens = Traits::tile_tokens,
    .max_box_tokens = Traits::box_tokens,
    .stages = Traits::stages,
    .min_page_size = Traits::min_page_size,
    .max_page_size = 1024,
    .max_q_len = 1024,
    .features = CONTRACT_FEATURE_WINDOW | CONTRACT_FEATURE_SINKS | CONTRACT_LSE | CONTRACT_FEATURE_RAGGED_Q |
                CONTRACT_FEATURE_DRAFT_MASK | CONTRACT_FEATURE_V_PAGE_TABLE | CONTRACT_FEATURE_QUERY_POSITIONS |
                (Traits::gathers_rows && !Traits::has_offsets ? 0u : CONTRACT_FEATURE_CONTIGUOUS_KV) |
                (Traits::has_offsets ? CONTRACT_FEATURE_QUERY_OFFSETS : 0u) |
                (Traits::has_offsets && Traits::gathers_rows ? CONTRACT_FEATURE_KV_OFFSETS : 0u) |
                (Traits::cluster_size == 1 ? CONTRACT_FEATURE_BATCH_INVARIANT : 0u) |
                (Traits::bends_scores ? CONTRACT_OPTIONS & ~(unsigned)CONTRACT_FEATURE_ROPE : 0u) |
                (Traits::computes_rope ? CONTRACT_FEATURE_ROPE : 0u),
    .flags = variant::contract_flags | (Traits::gathers_rows ? CONTRACT_FLAG_ROW_GATHER : 0u) |
             (Traits::gathers_rows && Traits::has_offsets ? CONTRACT_FLAG_ANY_ROWS : 0u) |
             (Traits::only_rope ? CONTRACT_FLAG_ONLY_ROPE : 0u),
    .record_bytes = record_bytes,
    .consumer_warps = Traits::consumer_warps,
    .reserved = {},
};
