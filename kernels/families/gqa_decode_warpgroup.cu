/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GQA decode with 64 or 128 rows in one pass: gqa_decode.cu's formula, schedule, producers and contract, with the matrix instructions of
 * warpgroups, which sm_90a has. Schedule, by role:
 *
 *     producer warps  one for K, one for V, as in gqa_decode.cu, and one for scales of NVFP4 that no box brings; or, of FP8 and where rows come
 *                     one by one (row_turns.cuh), three, which bring all of a tile
 *     announcer warp  likewise
 *     converter warps four, where KV is FP8 or NVFP4: tiles of fp16, which are operands, out of tiles as they come (tile/converted_box.cuh)
 *     consumer warps  two warpgroups of 64 rows each (tile/row_warpgroup.cuh). With 64 rows each takes every other tile, with 128 each takes
 *                     every tile, for half of the rows
 *     at a unit's end from the registers, into out, or into scratch (accumulator_fold.cuh); with 64 rows each warpgroup first hands the other
 *                     one half of its columns, and in a cluster each CTA the others theirs (warpgroup_result.cuh)
 *
 * What a warpgroup does with tile i (time runs to the right), and what the tensor core does of it meanwhile:
 *
 *     weights i of scores i   | wait for output i - 1 | begin scores i + 1, begin output i | wait for scores i + 1 | weights i + 1
 *     output i - 1 += p V     |                       | scores i + 1 = Q K                                         | output i += p V
 *
 * So the output of one tile runs beside the exponentials of the next, and the instructions of one warpgroup beside those of the other.
 * Queries and weights are operands in registers, K and V of 16 bits as they lie in tiles (tile/box_warpgroup.cuh).
 *
 * Shared memory: struct SharedMemory below. Tiles first: the swizzle wants them 1024-byte aligned.
 */
#include <cstddef>

#include "abi.h"
#include "pipeline/accumulator_fold.cuh"
#include "pipeline/accumulator_store.cuh"
#include "pipeline/cluster_exchange.cuh"
#include "pipeline/converted_tiles.cuh"
#include "pipeline/epilogue.cuh"
#include "pipeline/kv_ring.cuh"
#include "pipeline/page_stream.cuh"
#include "pipeline/piece_queue.cuh"
#include "pipeline/producer.cuh"
#include "pipeline/row_turns.cuh"
#include "pipeline/scale_gather.cuh"
#include "pipeline/skip_votes.cuh"
#include "pipeline/slice_dealer.cuh"
#include "pipeline/warpgroup_result.cuh"
#include "ptx/registers.cuh"
#include "tile/biased_rows.cuh"
#include "tile/box_warpgroup.cuh"
#include "tile/kv_format.cuh"
#include "tile/row_map.cuh"
#include "variant.cuh"

namespace {

/* --------------------------------------------------------------------------------------------------------------- traits */

struct Traits {
    static constexpr int dtype = VARIANT_KV_DTYPE;
    static constexpr int head_dim = VARIANT_HEAD_DIM;
    static constexpr int row_tile = VARIANT_ROW_TILE;
    static constexpr int cluster_size = VARIANT_CLUSTER_SIZE;
    static constexpr bool has_cluster = cluster_size > 1;
    using Format = tile::KvFormat<dtype, head_dim>;
    static_assert(variant::target_sm == 90, "targets in the .toml: sm90 has wgmma");
    static_assert(row_tile == 64 || row_tile == 128, "row_tile in the .toml: 64 or 128");
    static_assert(VARIANT_OPTIONS == 0 || VARIANT_OPTIONS == 3, "the .toml: o0, o3");
    static constexpr bool bends_scores = VARIANT_OPTIONS == 3; /* soft cap, ALiBi */
    static constexpr bool gathers_rows = VARIANT_MIN_PAGE_SIZE < tile::fragment_tokens;

    static constexpr int tile_tokens = tile::group_tokens;
    using Result = pipeline::WarpgroupResult<head_dim, row_tile, cluster_size>;
    static constexpr int groups = Result::groups;
    static constexpr int row_groups = Result::row_groups; /* that read the same tiles for other rows */
    static constexpr int teams = Result::teams;           /* that take turns at the tiles */
    static constexpr int team_warps = row_groups * tile::group_warps;
    static constexpr int consumer_warps = groups * tile::group_warps, consumer_threads = consumer_warps * 32;
    static constexpr bool converts = Format::converts_query; /* and so K and V */
    static constexpr int converter_warps = converts ? pipeline::converter_warps : 0;
    /* Of K and of V, each a warp, and of scales that no box brings; or three, by turns, of all. */
    static constexpr bool has_scales = Format::scale_bytes > 0, takes_turns = gathers_rows || (converts && !has_scales);
    static constexpr int tensor_warps = takes_turns ? 3 : 1, scale_warp = 2; /* of the producers */
    static constexpr int producer_warps = takes_turns || has_scales ? 3 : 2, producer_warp = consumer_warps + converter_warps;
    static constexpr int announcer_warp = producer_warp + producer_warps;
    /* In a cluster, those who fill what is multiplied (accumulator_exchange.cuh). */
    static constexpr int followers = !has_cluster ? 0 : converts ? converter_warps : producer_warps;
    static constexpr int warps = producer_warp + tile::group_warps; /* all of them: a whole warpgroup gives registers */
    static constexpr int threads = warps * 32;
    /*
     * Of all threads at the start; then of those that compute, that convert, and of the others. Where these compute the addresses of rows or scales
     * they take some of a converter's, which then reads half as far ahead; in a cluster, where all of these have more to know, of those that compute.
     */
    static constexpr int registers = 65536 / threads & -8;
    static constexpr bool lanes_copy = gathers_rows || has_scales;
    static constexpr int converting_registers = head_dim == 64 ? 184 : has_cluster ? 192 : 200;
    static constexpr int consumer_registers = converts ? converting_registers : lanes_copy ? 208 : 216;
    static constexpr int converter_registers = lanes_copy && !has_cluster ? 40 : 48;
    static constexpr int of_consumers = consumer_registers * consumer_warps,
                         of_converters = converter_registers * converter_warps;
    static constexpr int other_registers = (registers * warps - of_consumers - of_converters) / tile::group_warps & -8;
    static constexpr int chunks_ahead = lanes_copy ? 2 : 4; /* ConvertedTiles */

    using TileLayout = tile::TileLayout<Format, tile_tokens>;
    /*
     * 128 KiB in flight, beside what is being multiplied. A stage is one team's: a barrier whose rounds it does not all wait for tells it nothing, as of
     * two rounds one is like the other. Where tiles are converted that holds for what they become, which is 128 KiB, too; of FP8 64 KiB are in flight.
     */
    static constexpr int stages = converts ? 65536 / (tile_tokens * head_dim * 2) : 98304 / TileLayout::bytes / teams * teams;
    static constexpr int box_tokens = gathers_rows ? tile::fragment_tokens : tile_tokens; /* at most, that count as one */

    static_assert(stages % teams == 0 && stages >= 2 * teams, "stages of a team: ConvertedTiles");
    static_assert(converts || stages % tensor_warps == 0, "places of a warp: RowTurns");
    /* Whether the next unit's queries are asked for while squares are to come: there are registers for both. */
    static constexpr bool asks_early = Result::squares == 1 || !converts;
};

using Format = Traits::Format;
using TileLayout = Traits::TileLayout;
using Ring = pipeline::KvRing<Traits::stages, TileLayout::bytes, Traits::lanes_copy>;
using Operands = std::conditional_t<Traits::converts, pipeline::ConvertedTiles<Format, Ring, Traits::chunks_ahead>,
                                    pipeline::PlainTiles<Format, Ring>>;
using Schedule = pipeline::SplitSchedule<Traits::cluster_size>;
using Votes = pipeline::NoVotes;
using Producer = pipeline::Producer<Format, Ring, Traits::tile_tokens, Traits::tensor_warps, Traits::cluster_size, Votes,
                                    Traits::stages, Traits::takes_turns>;
using RowTurns = pipeline::RowTurns<Format, Ring, Traits::tile_tokens, Traits::tensor_warps, Traits::cluster_size>;
using ScaleGather =
    pipeline::ScaleGather<Format, Ring, Traits::tile_tokens, TileLayout::rows_bytes, Traits::cluster_size, 1, true>;
using Result = Traits::Result;
using Slice = Result::Slice;
using PartSlice = Result::PartSlice;
using Fold = pipeline::AccumulatorFold<PartSlice, Result::own_parts>;
template <class Rows>
using Store = pipeline::AccumulatorStore<Format, Result::group_columns, Rows>;

struct SharedMemory {
    alignas(1024) uint8_t tiles[Traits::stages][2][TileLayout::bytes];
    [[no_unique_address]] Operands operands; /* tiles as they are multiplied, where they come otherwise */
    Result::Memory result;
    [[no_unique_address]] Result::ClusterExchange cluster;
    pipeline::KvRingBarriers<Traits::stages> barriers;
    uint32_t next_slice; /* of a unit that is added up: SliceDealer */
    pipeline::PieceQueue<Traits::row_tile> pieces;
    pipeline::Sequences sequences; /* for what is called rarely */

    __device__ __forceinline__ Result::LentTiles &lent() { return *static_cast<Result::LentTiles *>(operands.multiplied(tiles)); }
};
static_assert(!Traits::has_cluster ||
                  sizeof(Result::LentTiles) <= Traits::stages * 2 * Traits::tile_tokens * Operands::Operands::row_bytes,
              "tiles that are multiplied");
/* Without the padding that the alignment adds to the end. */
constexpr int shared_bytes = offsetof(SharedMemory, sequences) + sizeof(pipeline::Sequences);
static_assert(shared_bytes <= variant::max_shared_bytes, "shared memory of one CTA");

/* Named barrier of the consumer warps; 0 is __syncthreads, from 2 on one for each warpgroup. */
constexpr int consumer_barrier = 1;

struct Place : Result::Place {
    using Result::Place::Place;
    __device__ __forceinline__ int barrier() const { return consumer_barrier + 1 + group; }
};

/* ------------------------------------------------------------------------------------------- consumers: one piece of a unit */

using Boxes = tile::BoxOperands<Operands::Operands>;
using QueryRows = tile::QueryFragment<Operands::Operands, tile::lane_rows>;

/* What a consumer warp keeps over a piece. */
struct ConsumerState {
    tile::RowQuery<Operands::Operands> query;
    tile::RowSoftmax softmax;
    tile::RowOutput<Traits::head_dim> output;
};

/* The tokens of a tile from `token` on, and which rows see them. */
using TileTokens = tile::WarpTokens<Traits::row_tile, Traits::tile_tokens>;

/* What few launches ask for, of logits. `token`: the tile's first. */
[[maybe_unused]] __device__ __forceinline__ void bend(const gqa_decode_params &params, tile::RowScores &scores,
                                                      const tile::UnitRows<Traits::row_tile> &rows, int token,
                                                      const Boxes &boxes) {
    const float cap = params.query.soft_cap;
    if (cap > tile::largest_closed_cap)
        tile::cap(scores, cap);
    else if (cap > 0.f)
        tile::closed_cap(scores, cap);
    if (params.query.alibi_slopes == nullptr)
        return;
    const int thread = ptx::thread_index_here(); /* anew: what follows from it would take registers from the tiles */
    const Place here(thread);
    tile::add_alibi(
        scores, token, params.schedule.position_stride.value, rows.place + here.first_row_of_group() + here.warp * 16,
        [&](int n) { return boxes.first_token(n); }, thread % 32);
}

/*
 * Attention of this warpgroup's rows over those of the piece's tiles that are its team's. What is asked for every tile is read here, once, and alike
 * for all lanes, as the compiler knows then. `is_rising`: the largest product of a row makes its largest logit, which its own scale does not tell: that
 * may be too small to have a sign.
 */
__device__ __forceinline__ void attend(const gqa_decode_params &params, const tile::UnitRows<Traits::row_tile> &rows,
                                       uint32_t first_team, Operands::Ring &ring, const float (&logit_scale)[tile::lane_rows],
                                       bool is_rising, const Boxes &boxes, const Place &place, ConsumerState &state, int lane) {
    int token = __shfl_sync(tile::full_warp, rows.first_token, 0);
    const int end_token = __shfl_sync(tile::full_warp, rows.end_token, 0);
    const int first_plain = __shfl_sync(tile::full_warp, rows.common.first, 0);
    int end_plain = __shfl_sync(tile::full_warp, is_rising ? rows.common.end : 0, 0);
    const auto pass_tiles = [&](int tiles) {
        ring.advance(Traits::teams == 1 || token + Traits::tile_tokens < end_token ? tiles : 1);
        token += tiles * Traits::tile_tokens;
    };
    if (Traits::teams == 2 && token < end_token && __any_sync(tile::full_warp, first_team != static_cast<uint32_t>(place.team())))
        pass_tiles(1);
    if (token >= end_token)
        return;
    tile::RowScores scores, p;
    tile::RowSquare weights;
    const auto wait_full = [&](pipeline::Tensor tensor) {
        ring.wait_full(tensor);
        if (Traits::gathers_rows && !Traits::converts) /* what lanes have written becomes operands */
            ptx::fence_async_proxy();
    };
    const auto begin_scores = [&] {
        wait_full(pipeline::tensor_k);
        tile::begin_row_qk(scores, state.query, ring.tile(pipeline::tensor_k), boxes);
    };
    Operands::Ring behind = ring; /* at the tile whose output is under way */
    begin_scores();
    ptx::wgmma_wait();
    for (bool is_first = true;; is_first = false) {
        ptx::accumulator_is_ready(scores.value);
        ring.release(pipeline::tensor_k, lane);
        float scale[tile::lane_rows] = {logit_scale[0], logit_scale[1]};
        const auto make_logits = [&] {
            tile::scale(scores, scale);
            scale[0] = scale[1] = 1.f;
        };
        if constexpr (Traits::bends_scores) {
            make_logits();
            bend(params, scores, rows, token, boxes);
        }
        uint64_t unseen = 0; /* by any row */
        if (token < first_plain || token + Traits::tile_tokens > end_plain) {
            const TileTokens tokens{rows, rows.are_alike, token, end_token, rows.common};
            make_logits();
            if (!tokens.all_visible()) {
                const int thread = ptx::thread_index_here(); /* anew: what follows from it would take registers from the tiles */
                const Place here(thread);
                tile::mask(
                    scores, [&](int row) { return tokens.seen_by(row); }, [&](int n) { return boxes.first_token(n); },
                    here.first_row_of_group() + here.warp * 16, thread % 32);
                unseen = ~tokens.seen_by_any();
            }
        }
        float sums[tile::lane_rows];
        if (is_first || state.softmax.weigh(scores, scale, p, sums)) {
            state.softmax.raise(scores, scale, state.output);
            if (state.softmax.is_large()) {
                make_logits();
                end_plain = 0; /* from now on logits are made before references are taken from them */
            }
            (void)state.softmax.weigh(scores, scale, p, sums);
        }
        state.softmax.sum[0] += sums[0];
        state.softmax.sum[1] += sums[1];
        wait_full(pipeline::tensor_v); /* here: else ptxas takes the next wait ahead of exponentials */
        ptx::wgmma_wait();
        ptx::accumulator_is_ready(state.output.value);
        if (!is_first)
            behind.release(pipeline::tensor_v, lane);
        weights.pack<Format::matrix_dtype>(p);
        if (unseen != 0) {
            const int thread = ptx::thread_index_here();
            boxes.clear_unseen_values(ring.tile(pipeline::tensor_v), unseen, thread % tile::group_threads);
            ptx::fence_async_proxy();
            ptx::named_barrier<tile::group_threads>(Place(thread).barrier());
        }
        behind = ring;
        pass_tiles(Traits::teams);
        if (token >= end_token)
            break;
        begin_scores();
        tile::begin_row_pv(state.output, weights, behind.tile(pipeline::tensor_v), boxes);
        ptx::wgmma_wait_but<1>();
    }
    tile::begin_row_pv(state.output, weights, behind.tile(pipeline::tensor_v), boxes);
    ptx::wgmma_wait();
    ptx::accumulator_is_ready(state.output.value);
    behind.release(pipeline::tensor_v, lane);
}

/* Where results go: their stores count rows and columns from the warpgroup's first on. */
struct StorePlace {
    const int group; /* of the columns */

    __device__ __forceinline__ StorePlace(const Place &place, int lane)
        : group(place.group / Traits::row_groups), warp_(place.warp), lane_(lane) {}
    __device__ __forceinline__ int warp() const { return warp_; }
    __device__ __forceinline__ int lane() const { return lane_; }
    __device__ __forceinline__ int first_row() const { return warp_ * 16; }

  private:
    const int warp_, lane_;
};

/*
 * The piece's result out of the registers, a square of columns after the other, or in a cluster what this CTA owns of them, part by part: a whole unit's
 * into out, a part of one into scratch, whose slices fall to whichever worker has time. `rows`: of the warpgroup's. ask_for_next(): the next unit's queries, once there is room for them.
 */
template <class Rows, class AskForNext>
__device__ __forceinline__ void finish(const gqa_decode_params &params, SharedMemory &shared,
                                       const pipeline::AnnouncedPiece<Traits::row_tile> &announced, const Rows &rows,
                                       const ConsumerState &state, float output_scale, AskForNext ask_for_next) {
    const int thread = ptx::thread_index_here(),
              lane = thread % 32; /* anew: else ptxas keeps what follows from it over the tiles */
    const Place place(thread);
    const pipeline::Piece &piece = announced.piece;
    const StorePlace store_place(place, lane);
    const auto meet = [] { ptx::named_barrier<consumer_barrier, Traits::consumer_threads>(); };
    const int live_rows = max(announced.rows.live_rows - place.first_row_of_group(), 0);
    Slice result(live_rows);
#pragma unroll
    for (int i = 0; i < Slice::statistics; ++i) {
        result.reference[i] = state.softmax.reference[i] == tile::RowSoftmax::lowest ? -INFINITY : state.softmax.reference[i];
        result.sum[i] = state.softmax.row_sum(i);
    }
    const Result::Shared of_result{shared.result, shared.cluster, shared.lent()};
    if constexpr (Traits::teams == 2)
        Result::fold_teams(of_result, result, state.output, place, lane, meet);
    const int own_rows = Result::owns_columns_of(Result::cluster_rank(), place) ? live_rows : 0; /* that this CTA hands over */
    const Store<Rows> output(params.output, rows, own_rows, store_place);
    const int end_column = params.query.head_dim - store_place.group * Result::group_columns;
    float scale[tile::lane_rows] = {};
    const auto store = [&](const auto &columns, int column) {
        __syncwarp(); /* the columns before have left */
        output.store(columns, scale, store_place, column, ptx::shared_address(shared.result.lines[place.group]), end_column);
    };
    const Fold fold(params.records, params.scratch, piece);
    const bool is_part = piece.parts.count > 1;
    const int first_part = Result::first_part_of(Result::cluster_rank());
    const auto finish_part = [&](const PartSlice &columns, int part) {
        output.finish(columns, store_place, store_place.group == 0 && first_part + part == 0, output_scale, scale);
        store(columns, (first_part + part) * Result::part_columns);
    };
    if (Traits::asks_early)
        ask_for_next();
    if constexpr (Traits::has_cluster) {
        Result::exchange_parts(of_result, result, state.output, place, lane, announced.number, meet);
#pragma unroll 1
        for (int part = 0; part < Result::own_parts; ++part) {
            PartSlice columns(own_rows);
            Result::take_own_part(columns, of_result, result, state.output, part);
            if (is_part)
                fold.leave(columns, part);
            else
                finish_part(columns, part);
        }
        shared.cluster.give_back(lane);
    } else {
        if (!is_part)
            output.finish(result, store_place, store_place.group == 0, output_scale, scale);
#pragma unroll 1
        for (int square = 0; square < Result::squares; ++square) {
            if constexpr (Traits::teams == 1)
                Result::take_square(result, state.output, square);
            if (is_part)
                fold.leave(result, square * (Result::square_columns / Result::part_columns));
            else
                store(result, square * Result::square_columns);
        }
    }
    if (!Traits::asks_early)
        ask_for_next();
    if (!is_part)
        return;
    pipeline::SliceDealer dealer(fold.counts(), piece.parts.num_workers, Result::own_parts, shared.next_slice,
                                 ptx::thread_index_here() == 0, meet);
    dealer.arrive(piece.is_last);
#pragma unroll 1
    for (uint32_t slice = dealer.take(); slice < Result::own_parts; slice = dealer.take()) {
        PartSlice sum(own_rows);
        fold.take(sum, static_cast<int>(slice));
        dealer.ask();
        finish_part(sum, static_cast<int>(slice));
    }
}

/* Whether KV comes while the kernel ahead still runs. What copies row by row does not tell the newest rows from others: all wait at once. */
__device__ __forceinline__ bool reads_ahead(const gqa_decode_params &params) {
    return !Traits::gathers_rows && (!Traits::has_scales || params.scale_blocks != 0) &&
           pipeline::is_history_final(params.schedule);
}

__device__ __forceinline__ void consume(const gqa_decode_params &params, SharedMemory &shared, Operands::Ring ring, int warp,
                                        int lane) {
    const Place place(warp * 32);
    const Boxes boxes(Traits::converts       ? Traits::tile_tokens
                      : Traits::gathers_rows ? Traits::box_tokens
                                             : params.schedule.box_tokens);
    const auto rows_of = [&](const pipeline::AnnouncedPiece<Traits::row_tile> &announced) {
        return tile::RowMap(params.schedule.group_size, announced.rows.first_query_token, announced.piece.kv_head,
                            announced.piece.row_pass * Traits::row_tile + Place(ptx::thread_index_here()).first_row_of_group());
    };
    const auto stored_rows_of = [&](const pipeline::AnnouncedPiece<Traits::row_tile> &announced) {
        if constexpr (Traits::bends_scores)
            return tile::BiasedRows(rows_of(announced),
                                    announced.rows.place + Place(ptx::thread_index_here()).first_row_of_group(),
                                    params.schedule.position_offset);
        else
            return rows_of(announced);
    };
    pipeline::meet_cluster<Traits::cluster_size>();
    /* Asked for while the piece before is handed over. */
    QueryRows query_rows;
    const auto load_query = [&](const pipeline::AnnouncedPiece<Traits::row_tile> &announced) {
        const Place here(ptx::thread_index_here());
        if (!announced.piece.end_of_work)
            query_rows.load_raw(params.query, rows_of(announced), here.warp * 16,
                                max(announced.rows.live_rows - here.first_row_of_group(), 0), lane);
    };
    if (pipeline::rarely(reads_ahead(params)))
        shared.pieces.wait_named(0); /* the kernel ahead may write scales */
    /* Read here, once: memory answers late. */
    const float bmm1_scale = tile::scale_log2(params.query), output_scale = pipeline::output_scale<Format>(params.output);
    ConsumerState state;
    load_query(shared.pieces.wait_named(0));
    for (uint32_t number = 0;; ++number) {
        const auto &announced = shared.pieces.wait_named(number);
        if (announced.piece.end_of_work)
            break;
        float logit_scale[tile::lane_rows]; /* of the lane's rows */
        state.query.prepare(query_rows, params.query, bmm1_scale, logit_scale, lane);
        state.softmax.clear();
        state.output.clear();
        shared.pieces.wait_described(number);
        attend(params, announced.rows, announced.first_team, ring, logit_scale, bmm1_scale >= 0.f, boxes, place, state, lane);
        number = announced.number; /* anew: kept over the loop it would take a register from it */
        finish(params, shared, announced, stored_rows_of(announced), state, output_scale,
               [&] { load_query(shared.pieces.wait_named(number + 1)); });
        shared.pieces.pop(number);
    }
}

/* ------------------------------------------------------------------------------------------------------------- producers */

/* Arrivals that complete a tile, beside its bytes. */
__device__ __forceinline__ int producers_of_a_tile(const gqa_decode_params &params) {
    if (Traits::gathers_rows)
        return RowTurns::arrivals;
    if (Traits::has_scales)
        return 1 + (params.scale_blocks != 0 ? Producer::scale_arrivals : ScaleGather::arrivals);
    return 1;
}

/* `warp`: of the producers. */
__device__ __forceinline__ void produce(const gqa_decode_params &params, SharedMemory &shared, Schedule &schedule,
                                        const Ring &ring, int warp, int lane) {
    const auto before_piece = [&](uint32_t number) {
        if (!Traits::converts)
            shared.cluster.come_to(number, shared.pieces, lane);
    };
    if constexpr (Traits::gathers_rows) {
        RowTurns(params, warp, ring, lane).run(schedule, before_piece);
    } else if (Traits::has_scales && warp == Traits::scale_warp) {
        if constexpr (Traits::has_scales) {
            if (params.scale_blocks == 0)
                ScaleGather(params, 0, ring).run(schedule, lane);
        }
    } else {
        Votes votes;
        const bool is_of_k = Traits::takes_turns || warp == 0;
        Producer(
            params.schedule, is_of_k ? &params.k_map : &params.v_map,
            {is_of_k ? &params.k_scales : &params.v_scales, params.scale_blocks != 0, static_cast<uint32_t>(params.num_pages)},
            0.f, is_of_k ? pipeline::tensor_k : pipeline::tensor_v, Traits::takes_turns ? warp : 0, ring, votes, &params.v_map)
            .run(schedule, lane, [&](const pipeline::Piece &, uint32_t number, Ring &) { before_piece(number); });
    }
}

} // namespace

extern "C" __global__ void __launch_bounds__(Traits::threads, 1) VARIANT_NAME(const __grid_constant__ gqa_decode_params params) {
    extern __shared__ __align__(1024) uint8_t shared_memory[];
    SharedMemory &shared = *reinterpret_cast<SharedMemory *>(shared_memory);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

    ptx::wait_for_preceding_kernel_unless(reads_ahead(params));
    const bool is_consumer = warp < Traits::consumer_warps;
    Schedule schedule(params.schedule, shared.sequences, blockIdx.x / Traits::cluster_size, Result::cluster_rank());
    if (warp >= Traits::producer_warp) {
        schedule.issue_length_loads();
        if (!Traits::gathers_rows) {
            ptx::prefetch_tensor_map(&params.k_map);
            ptx::prefetch_tensor_map(&params.v_map);
        }
    } else if (threadIdx.x == 0) { /* while the lengths are on their way */
        shared.sequences = pipeline::Sequences(params.schedule);
        Ring::initialise(shared.barriers, producers_of_a_tile(params),
                         Traits::converts ? pipeline::tensor_converter_warps : Traits::team_warps);
        shared.operands.initialise(Traits::team_warps);
        shared.cluster.initialise();
        shared.pieces.initialise(Traits::consumer_threads + Traits::converter_warps * 32, Traits::followers);
        ptx::fence_mbarrier_init();
    } else if (warp == 1) {
        pipeline::prefetch_page_table(params.schedule, lane);
    }
    __syncthreads();
    if constexpr (Traits::has_cluster)
        ptx::cluster_arrive_relaxed(); /* this CTA's barriers are initialised */

    const Ring ring(shared.barriers, shared.tiles);
    if (is_consumer) {
        ptx::take_registers<Traits::consumer_registers>();
        consume(params, shared, shared.operands.ring(ring), warp, lane);
        return;
    }
    if (warp < Traits::producer_warp) {
        ptx::give_registers<Traits::converter_registers>();
        shared.operands.convert(shared.pieces, ring, Traits::has_scales && params.v_scales_interleaved != 0,
                                warp - Traits::consumer_warps, lane,
                                [&](uint32_t number) { shared.cluster.come_to(number, shared.pieces, lane); });
        pipeline::meet_cluster<Traits::cluster_size>();
        return;
    }
    ptx::give_registers<Traits::other_registers>();
    schedule.count();
    if (warp == Traits::announcer_warp)
        pipeline::announce<Traits::bends_scores, Traits::tile_tokens, Traits::teams>(params.schedule, params.query, schedule,
                                                                                     shared.pieces, lane);
    else if (warp < Traits::announcer_warp)
        produce(params, shared, schedule, ring, warp - Traits::producer_warp, lane);
    pipeline::meet_cluster<Traits::cluster_size>();
}

/* Of single CTAs, which own the most, so that one workspace serves all cluster sizes. */
constexpr size_t scratch_bytes = sizeof(pipeline::AccumulatorFold<PartSlice, Result::group_parts>::Part);
static_assert(sizeof(Fold::Part) <= scratch_bytes, "the part that the contract announces");

/* What is converted anyway may be of any dtype, as queries. */
constexpr uint32_t query_dtypes =
    Traits::converts ? 1u << KERNEL_DTYPE_BF16 | 1u << KERNEL_DTYPE_FP16 | 1u << KERNEL_DTYPE_E4M3 : 1u << Traits::dtype;

extern "C" __device__ const libdecode_launch_contract VARIANT_CONTRACT = {
    .magic = LIBDECODE_CONTRACT_MAGIC,
    .abi = LIBDECODE_KERNEL_ABI,
    .family = KERNEL_FAMILY_GQA_DECODE,
    .parameter_bytes = sizeof(gqa_decode_params),
    .threads = Traits::threads,
    .dynamic_shared_bytes = shared_bytes,
    .ctas_per_sm = 1,
    .cluster_size = Traits::cluster_size,
    .query_dtypes = query_dtypes,
    .kv_dtype = Traits::dtype,
    .out_dtypes = pipeline::out_dtypes<Format, Slice>,
    .head_dim = Traits::head_dim,
    .row_tile = Traits::row_tile,
    .tile_tokens = Traits::tile_tokens,
    .max_box_tokens = Traits::box_tokens,
    .stages = Traits::stages,
    .min_page_size = VARIANT_MIN_PAGE_SIZE,
    .max_page_size = 1024,
    .max_q_len = 1024,
    /* Not batch-invariant: of so many rows the records of 16 chunks would fill memory. */
    .features = CONTRACT_FEATURE_WINDOW | CONTRACT_FEATURE_SINKS | CONTRACT_LSE | CONTRACT_FEATURE_RAGGED_Q |
                CONTRACT_FEATURE_DRAFT_MASK | CONTRACT_FEATURE_V_PAGE_TABLE | CONTRACT_FEATURE_QUERY_POSITIONS |
                (Traits::gathers_rows ? 0u : CONTRACT_FEATURE_CONTIGUOUS_KV) |
                (Traits::bends_scores ? CONTRACT_OPTIONS & ~(unsigned)CONTRACT_FEATURE_ROPE : 0u),
    .flags = variant::contract_flags | (Traits::gathers_rows ? CONTRACT_FLAG_ROW_GATHER : 0u),
    .record_bytes = sizeof(pipeline::SliceCounts),
    .scratch_bytes = scratch_bytes,
    .consumer_warps = Traits::consumer_warps,
    .reserved = {},
};
