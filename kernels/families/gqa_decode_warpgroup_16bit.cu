/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GQA decode with 64 or 128 rows in one pass over a KV cache of bf16 or fp16: gqa_decode.cu's formula, schedule, producers and contract, with
 * the matrix instructions of warpgroups, which sm_90a has. Schedule, by role:
 *
 *     producer warps  one for K, one for V, as in gqa_decode.cu
 *     announcer warp  likewise
 *     consumer warps  two warpgroups of 64 rows each (tile/row_warpgroup.cuh). With 64 rows each takes every other tile, with 128 each takes
 *                     every tile, for half of the rows
 *     at a unit's end from the registers, into out, or into scratch (accumulator_fold.cuh); with 64 rows each warpgroup first hands the other
 *                     one half of its columns
 *
 * What a warpgroup does with tile i (time runs to the right), and what the tensor core does of it meanwhile:
 *
 *     weights i of scores i   | wait for output i - 1 | begin scores i + 1, begin output i | wait for scores i + 1 | weights i + 1
 *     output i - 1 += p V     |                       | scores i + 1 = Q K                                         | output i += p V
 *
 * So the output of one tile runs beside the exponentials of the next, and the instructions of one warpgroup beside those of the other.
 * Queries and weights are operands in registers, K and V as the copy engine leaves them (tile/box_warpgroup.cuh).
 *
 * Shared memory: struct SharedMemory below. Tiles first: the swizzle wants them 1024-byte aligned.
 */
#include <algorithm>
#include <cstddef>

#include "abi.h"
#include "families/gqa_decode_warpgroup.cuh"
#include "pipeline/accumulator_fold.cuh"
#include "pipeline/accumulator_store.cuh"
#include "pipeline/epilogue.cuh"
#include "pipeline/kv_ring.cuh"
#include "pipeline/page_stream.cuh"
#include "pipeline/piece_queue.cuh"
#include "pipeline/producer.cuh"
#include "pipeline/skip_votes.cuh"
#include "ptx/registers.cuh"
#include "tile/box_warpgroup.cuh"
#include "tile/row_map.cuh"
#include "variant.cuh"

namespace {

/* --------------------------------------------------------------------------------------------------------------- traits */

struct Traits : gqa_decode::WarpgroupTraits {
    /*
     * 128 KiB in flight, beside what is being multiplied. A stage is one team's: a barrier whose rounds it does not all wait for tells it nothing, as of
     * two rounds one is like the other.
     */
    static constexpr int stages = 98304 / TileLayout::bytes / teams * teams;

    /* What a warpgroup hands over of a unit, so many at a time; and of what parts come to. */
    static constexpr int group_columns = head_dim / teams, square_columns = std::min(group_columns, 64);
    static constexpr int squares = group_columns / square_columns, part_columns = 16;
};

using Format = Traits::Format;
using TileLayout = Traits::TileLayout;
using Ring = pipeline::KvRing<Traits::stages, TileLayout::bytes, false>;
using Schedule = pipeline::SplitSchedule<1>;
using Votes = pipeline::NoVotes;
using Producer = pipeline::Producer<Format, Ring, Traits::tile_tokens, 1, 1, Votes>;
using Slice = pipeline::AccumulatorSlice<Traits::consumer_threads, Traits::square_columns, false>;
using FoldSlice = pipeline::AccumulatorSlice<Traits::consumer_threads, Traits::part_columns, false>;
using Fold = pipeline::AccumulatorFold<FoldSlice, Traits::group_columns / Traits::part_columns>;
using Store = pipeline::AccumulatorStore<Format, Traits::group_columns>;

/* A result on its way out, 64 columns of a warpgroup's rows at a time. */
using Lines = uint8_t[Traits::groups][tile::group_rows * 128];

/* What warpgroups with tiles of their own hand each other of the same rows: as much as there is room for at a time. */
struct Exchange {
    static constexpr int vectors =
        std::min<int>(Slice::per_thread, sizeof(Lines) / (Traits::groups * tile::group_threads * Slice::width * sizeof(float)));
    static constexpr int rounds = Slice::per_thread / vectors;
    static_assert(rounds * vectors == Slice::per_thread, "whole rounds");
    float output[Traits::groups][vectors][tile::group_threads][Slice::width];
};

struct SharedMemory {
    alignas(1024) uint8_t tiles[Traits::stages][2][TileLayout::bytes];
    union {
        alignas(1024) Lines lines;
        alignas(1024) Exchange exchange; /* before that */
    };
    float statistics[Traits::groups][tile::group_rows][2]; /* likewise, of each row: reference and sum */
    pipeline::KvRingBarriers<Traits::stages> barriers;
    uint32_t next_slice; /* of a unit that is added up: SliceDealer */
    pipeline::PieceQueue<Traits::row_tile> pieces;
    pipeline::Sequences sequences; /* for what is called rarely */
};
/* Without the padding that the alignment adds to the end. */
constexpr int shared_bytes = offsetof(SharedMemory, sequences) + sizeof(pipeline::Sequences);
static_assert(shared_bytes <= variant::max_shared_bytes, "shared memory of one CTA");

using gqa_decode::consumer_barrier, gqa_decode::Place;

/* ------------------------------------------------------------------------------------------- consumers: one piece of a unit */

using Boxes = tile::BoxOperands<Format>;
using Query = tile::RowQuery<Format>;

/* What a consumer warp keeps over a piece. */
struct ConsumerState {
    Query query;
    tile::RowSoftmax softmax;
    tile::RowOutput<Traits::head_dim> output;
};

/* The tokens of a tile from `token` on, and which rows see them. */
using TileTokens = tile::WarpTokens<Traits::row_tile, Traits::tile_tokens>;

/*
 * Attention of this warpgroup's rows over those of the piece's tiles that are its team's. What is asked for every tile is read here, once, and alike
 * for all lanes, as the compiler knows then.
 */
__device__ __forceinline__ void attend(const tile::UnitRows<Traits::row_tile> &rows, uint32_t first_team, Ring &ring,
                                       float bmm1_scale, const Boxes &boxes, const Place &place, ConsumerState &state, int lane) {
    int token = __shfl_sync(tile::full_warp, rows.first_token, 0);
    const int end_token = __shfl_sync(tile::full_warp, rows.end_token, 0);
    const int first_plain = __shfl_sync(tile::full_warp, rows.common.first, 0);
    int end_plain = __shfl_sync(tile::full_warp, bmm1_scale >= 0.f ? rows.common.end : 0, 0);
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
    const auto begin_scores = [&] {
        ring.wait_full(pipeline::tensor_k);
        tile::begin_row_qk(scores, state.query, ring.tile(pipeline::tensor_k), boxes);
    };
    Ring behind = ring; /* at the tile whose output is under way */
    begin_scores();
    ptx::wgmma_wait();
    for (bool is_first = true;; is_first = false) {
        ptx::accumulator_is_ready(scores.value);
        ring.release(pipeline::tensor_k, lane);
        float scale = bmm1_scale;
        const auto make_logits = [&] {
            tile::scale(scores, scale);
            scale = 1.f;
        };
        uint64_t unseen = 0; /* by any row */
        if (token < first_plain || token + Traits::tile_tokens > end_plain) {
            const TileTokens tokens{rows, rows.are_alike, token, end_token, rows.common};
            make_logits();
            if (!tokens.all_visible()) {
                tile::mask(
                    scores, [&](int row) { return tokens.seen_by(row); }, [&](int n) { return boxes.first_token(n); },
                    place.first_row_of_group() + place.warp * 16, lane);
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
        ring.wait_full(pipeline::tensor_v); /* here: else ptxas takes the next wait ahead of exponentials */
        ptx::wgmma_wait();
        ptx::accumulator_is_ready(state.output.value);
        if (!is_first)
            behind.release(pipeline::tensor_v, lane);
        weights.pack<Traits::dtype>(p);
        if (unseen != 0) {
            boxes.clear_unseen_values(ring.tile(pipeline::tensor_v), unseen, place.warp * 32 + lane);
            ptx::fence_async_proxy();
            ptx::named_barrier<tile::group_threads>(place.barrier());
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

/* A square of the warpgroup's columns. */
__device__ __forceinline__ void take_square(Slice &result, const ConsumerState &state, int square) {
    result.take(state.output.value, 0);
#pragma unroll
    for (int i = 1; i < Traits::head_dim / Traits::square_columns; ++i) {
        if (i == square)
            result.take(state.output.value, i * (Traits::square_columns / 8));
    }
}

/*
 * Of either warpgroup's tiles together, half of the columns: result's statistics, which are this one's, become those of both. Products are rounded before
 * they are added, so that it does not matter which of the two had which tiles.
 */
template <class Meet>
__device__ __forceinline__ void fold_teams(SharedMemory &shared, Slice &result, const ConsumerState &state, const Place &place,
                                           int lane, Meet meet) {
    const int other = 1 - place.group, thread = place.warp * 32 + lane, row = place.warp * 16 + lane / 4;
    meet(); /* all lines of the unit before have left */
#pragma unroll
    for (int i = 0; i < Slice::statistics; ++i) {
        if (lane % 4 == 0)
            *reinterpret_cast<float2 *>(shared.statistics[place.group][row + i * 8]) =
                make_float2(result.reference[i], result.sum[i]);
    }
    Slice sent(0);
    take_square(sent, state, other);
    take_square(result, state, place.group);
    float own_weight[Slice::statistics], other_weight[Slice::statistics];
#pragma unroll
    for (int round = 0; round < Exchange::rounds; ++round) {
        constexpr int vectors = Exchange::vectors;
#pragma unroll
        for (int i = 0; i < vectors; ++i) {
            const float(&vector)[Slice::width] = sent.value[round * vectors + i];
            *reinterpret_cast<float4 *>(shared.exchange.output[other][i][thread]) =
                make_float4(vector[0], vector[1], vector[2], vector[3]);
        }
        meet();
#pragma unroll
        for (int i = 0; round == 0 && i < Slice::statistics; ++i) {
            const float2 statistics = *reinterpret_cast<const float2 *>(shared.statistics[other][row + i * 8]);
            const float largest = fmaxf(result.reference[i], statistics.x), common = tile::finite_reference(largest);
            own_weight[i] = ptx::exp2_approx(result.reference[i] - common);
            other_weight[i] = ptx::exp2_approx(statistics.x - common);
            result.reference[i] = largest;
            result.sum[i] = __fadd_rn(__fmul_rn(result.sum[i], own_weight[i]), __fmul_rn(statistics.y, other_weight[i]));
        }
#pragma unroll
        for (int i = 0; i < vectors; ++i) {
            const float4 vector = *reinterpret_cast<const float4 *>(shared.exchange.output[place.group][i][thread]);
            const float of_other[Slice::width] = {vector.x, vector.y, vector.z, vector.w};
            float(&own)[Slice::width] = result.value[round * vectors + i];
#pragma unroll
            for (int j = 0; j < Slice::width; ++j)
                own[j] = __fadd_rn(__fmul_rn(own[j], own_weight[i % 2]), __fmul_rn(of_other[j], other_weight[i % 2]));
        }
        meet(); /* what was exchanged has been read */
    }
}

/*
 * The piece's result out of the registers, a square of columns after the other: a whole unit's into out, a part into scratch, whose slices
 * fall to whichever worker has time. `rows`: of the warpgroup's.
 */
template <class ResultIsTaken>
__device__ __forceinline__ void finish(const gqa_decode_params &params, SharedMemory &shared,
                                       const pipeline::AnnouncedPiece<Traits::row_tile> &announced, const tile::RowMap &rows,
                                       const ConsumerState &state, float output_scale, ResultIsTaken result_is_taken) {
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
    if constexpr (Traits::teams == 2)
        fold_teams(shared, result, state, place, lane, meet);
    result_is_taken();
    const auto take = [&](int square) {
        if constexpr (Traits::teams == 1)
            take_square(result, state, square);
    };

    const Store output(params.output, rows, live_rows, store_place);
    const int end_column = params.query.head_dim - store_place.group * Traits::group_columns;
    float scale[tile::lane_rows] = {};
    const auto store = [&](const auto &columns, int column) {
        __syncwarp(); /* the columns before have left */
        output.store(columns, scale, store_place, column, ptx::shared_address(shared.lines[place.group]), end_column);
    };
    if (piece.parts.count == 1) {
        output.finish(result, store_place, store_place.group == 0, output_scale, scale);
#pragma unroll 1
        for (int square = 0; square < Traits::squares; ++square) {
            take(square);
            store(result, square * Traits::square_columns);
        }
        return;
    }
    const Fold fold(params.records, params.scratch, piece);
#pragma unroll 1
    for (int square = 0; square < Traits::squares; ++square) {
        take(square);
        fold.leave(result, square * (Traits::square_columns / Traits::part_columns));
    }
    constexpr uint32_t slices = Traits::group_columns / Traits::part_columns;
    pipeline::SliceDealer dealer(fold.counts(), piece.parts.num_workers, slices, shared.next_slice, ptx::thread_index_here() == 0,
                                 meet);
    dealer.arrive(piece.is_last);
#pragma unroll 1
    for (uint32_t slice = dealer.take(); slice < slices; slice = dealer.take()) {
        FoldSlice sum(live_rows);
        fold.take(sum, static_cast<int>(slice));
        dealer.ask();
        output.finish(sum, store_place, store_place.group == 0 && slice == 0, output_scale, scale);
        store(sum, static_cast<int>(slice) * Traits::part_columns);
    }
}

__device__ __forceinline__ void consume(const gqa_decode_params &params, SharedMemory &shared, Ring ring, int warp, int lane) {
    const Place place(warp * 32);
    const Boxes boxes(params.schedule.box_tokens);
    const auto rows_of = [&](const pipeline::AnnouncedPiece<Traits::row_tile> &announced) {
        return tile::RowMap(params.schedule.group_size, announced.rows.first_query_token, announced.piece.kv_head,
                            announced.piece.row_pass * Traits::row_tile + Place(ptx::thread_index_here()).first_row_of_group());
    };
    /* Asked for while the piece before is handed over. */
    const auto load_query = [&](const pipeline::AnnouncedPiece<Traits::row_tile> &announced, Query &query) {
        if (!announced.piece.end_of_work)
            query.load(params.query, rows_of(announced), place.warp * 16,
                       max(announced.rows.live_rows - place.first_row_of_group(), 0), lane);
    };
    /* Read here, once: memory answers late. */
    const float bmm1_scale = tile::scale_log2(params.query), output_scale = pipeline::output_scale<Format>(params.output);
    ConsumerState state;
    load_query(shared.pieces.wait_named(0), state.query);
    for (uint32_t number = 0;; ++number) {
        const auto &announced = shared.pieces.wait_named(number);
        if (announced.piece.end_of_work)
            break;
        state.softmax.clear();
        state.output.clear();
        shared.pieces.wait_described(number);
        attend(announced.rows, announced.first_team, ring, bmm1_scale, boxes, place, state, lane);
        number = announced.number; /* anew: kept over the loop it would take a register from it */
        finish(params, shared, announced, rows_of(announced), state, output_scale,
               [&] { load_query(shared.pieces.wait_named(number + 1), state.query); });
        shared.pieces.pop(number);
    }
}

} // namespace

extern "C" __global__ void __launch_bounds__(Traits::threads, 1) VARIANT_NAME(const __grid_constant__ gqa_decode_params params) {
    extern __shared__ __align__(1024) uint8_t shared_memory[];
    SharedMemory &shared = *reinterpret_cast<SharedMemory *>(shared_memory);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

    ptx::wait_for_preceding_kernel();
    const bool is_consumer = warp < Traits::consumer_warps;
    const pipeline::Tensor tensor = warp == Traits::consumer_warps ? pipeline::tensor_k : pipeline::tensor_v;
    const void *const map = tensor == pipeline::tensor_k ? &params.k_map : &params.v_map;
    Schedule schedule(params.schedule, shared.sequences, blockIdx.x, 0);
    if (!is_consumer) {
        schedule.issue_length_loads();
        ptx::prefetch_tensor_map(map);
    } else if (threadIdx.x == 0) { /* while the lengths are on their way */
        shared.sequences = pipeline::Sequences(params.schedule);
        Ring::initialise(shared.barriers, 1, Traits::team_warps);
        shared.pieces.initialise(Traits::consumer_threads);
        ptx::fence_mbarrier_init();
    } else if (warp == 1) {
        pipeline::prefetch_page_table(params.schedule, lane);
    }
    __syncthreads();

    const Ring ring(shared.barriers, shared.tiles);
    Votes votes;
    if (is_consumer) {
        ptx::take_registers<Traits::consumer_registers>();
        consume(params, shared, ring, warp, lane);
        return;
    }
    ptx::give_registers<Traits::other_registers>();
    schedule.count();
    if (warp == Traits::announcer_warp)
        pipeline::announce<false, Traits::tile_tokens, Traits::teams>(params.schedule, params.query, schedule, shared.pieces,
                                                                      lane);
    else if (warp < Traits::announcer_warp)
        Producer(params.schedule, map, {}, 0.f, tensor, 0, ring, votes).run(schedule, lane);
}

extern "C" __device__ const libdecode_launch_contract VARIANT_CONTRACT =
    gqa_decode::contract<Slice>(shared_bytes, Traits::stages, 1u << Traits::dtype, sizeof(Fold::Part));
