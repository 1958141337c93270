/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GQA decode with 64 or 128 rows in one pass over a KV cache whose rows are converted on their way to the tensor core: gqa_decode.cu's formula,
 * schedule, producers and contract, with the matrix instructions of warpgroups, which sm_90a has; rows of 16 bits have
 * gqa_decode_warpgroup_16bit.cu. Schedule, by role:
 *
 *     producer warps  one for K, one for V, as in gqa_decode.cu
 *     announcer warp  likewise
 *     consumer warps  two warpgroups. With 64 rows each takes every other tile, for all rows, so that one's exponentials run beside the
 *                     other's matrix instructions; with 128 rows each takes every tile, for half of the rows (tile/warpgroup.cuh)
 *     at a unit's end group_fold.cuh, a block of columns after the other; then, if workers share the unit, row_slice_fold.cuh
 *
 * What a warpgroup does with tile i (time runs to the right; at each bar its four warps meet, at the second one also for their turn):
 *
 *     differences of scores i to their references, any too large? | weights i, V i to registers | output i and scores i + 1, side by side
 *
 * Shared memory: struct SharedMemory below. Tiles first, then matrix operands: the swizzle wants them 1024-byte aligned.
 */
#include <algorithm>
#include <cstddef>

#include "abi.h"
#include "families/gqa_decode_warpgroup.cuh"
#include "pipeline/epilogue.cuh"
#include "pipeline/group_fold.cuh"
#include "pipeline/kv_ring.cuh"
#include "pipeline/page_stream.cuh"
#include "pipeline/piece_queue.cuh"
#include "pipeline/producer.cuh"
#include "pipeline/row_slice_fold.cuh"
#include "pipeline/skip_votes.cuh"
#include "pipeline/tile_walk.cuh"
#include "ptx/registers.cuh"
#include "tile/row_map.cuh"
#include "tile/warpgroup.cuh"
#include "variant.cuh"

namespace {

/* --------------------------------------------------------------------------------------------------------------- traits */

struct Traits : gqa_decode::WarpgroupTraits {
    static_assert(Format::converts_query && Format::scale_bytes == 0, "the .toml: FP8");
    static_assert(Format::steps / tile::group_warps % 2 == 0, "a chunk of e4m3 is two steps");

    /* 128 KiB in flight; a stage is one team's. */
    static constexpr int stages = std::min(65536 / TileLayout::bytes, 16) / teams * teams;
    /* Of the result at a time: what registers hold beside a record of another worker. */
    static constexpr int block_columns = std::min(head_dim, 64 * 64 / row_tile);
};

using Format = Traits::Format;
using TileLayout = Traits::TileLayout;
using Ring = pipeline::KvRing<Traits::stages, TileLayout::bytes, false>;
using Schedule = pipeline::SplitSchedule<1>;
using Votes = pipeline::NoVotes;
using Producer = pipeline::Producer<Format, Ring, Traits::tile_tokens, 1, 1, Votes>;
using Partials = pipeline::GroupPartials<Format, Traits::row_tile, Traits::teams, Traits::block_columns>;
using Slice = pipeline::Slice<Traits::row_tile, Traits::block_columns, Traits::consumer_threads>;
using PartFold = pipeline::RowSliceFold<Traits::row_tile, Traits::head_dim, Traits::consumer_threads>;
using QueryRows = tile::OperandRows<Traits::row_tile>;

struct SharedMemory {
    alignas(1024) uint8_t tiles[Traits::stages][2][TileLayout::bytes];
    alignas(1024) uint8_t query[Traits::row_tile * Traits::head_dim * 2];
    alignas(1024) uint8_t weights[Traits::groups][tile::group_weight_bytes];
    alignas(16) Partials partials;
    tile::GroupReferences references[Traits::groups];
    alignas(16) float row_scale[Traits::row_tile]; /* what the products of each row are multiplied by */
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

using TileTokens = tile::WarpTokens<Traits::row_tile, tile::group_tokens>;
using KeyTokens = tile::TokenFragments<Format, Traits::tile_tokens, 1>;
using ValueTokens = tile::TokenFragments<Format, Traits::tile_tokens, tile::group_token_fragments>;
using Scores = tile::ScoreFragment<1, tile::group_row_fragments>;

/* What a consumer warp keeps over a piece. */
struct ConsumerState {
    tile::GroupSoftmax softmax;
    tile::OutputFragment<Partials::steps, tile::group_row_fragments> output;
};

/*
 * Warpgroups that read the same tiles would come to the matrix instructions together, and to the exponentials together. So they take
 * turns: one issues while the other weighs. Those that read different tiles are apart as it is.
 */
struct Turns {
    static constexpr bool exist = Traits::row_groups > 1;
    static_assert(Traits::groups == 2, "one waits for the other");

    static __device__ __forceinline__ int barrier(int group) { return consumer_barrier + 1 + Traits::groups + group; }
    /* The first turn is that of group 0, and so is the last one, which nobody takes. */
    static __device__ __forceinline__ void open(const Place &place) {
        if (exist && place.group == 1)
            ptx::named_barrier_arrive<Traits::consumer_threads>(barrier(0));
    }
    static __device__ __forceinline__ void close(const Place &place) {
        if (exist && place.group == 0)
            ptx::named_barrier<Traits::consumer_threads>(barrier(0));
    }
    /* The warps of the group meet, too. */
    static __device__ __forceinline__ void wait(const Place &place) {
        if (exist)
            ptx::named_barrier<Traits::consumer_threads>(barrier(place.group));
        else
            ptx::named_barrier<tile::group_threads>(place.barrier());
    }
    static __device__ __forceinline__ void pass(const Place &place) {
        if (exist)
            ptx::named_barrier_arrive<Traits::consumer_threads>(barrier(1 - place.group));
    }
};

/* The rows of a unit as operand, a warp's eight at a time. */
__device__ __forceinline__ void load_query(const gqa_decode_params &params, SharedMemory &shared, const tile::RowMap &rows,
                                           int live_rows, float scale) {
    const int thread = ptx::thread_index_here(), lane = thread % 32;
#pragma unroll 1
    for (int row = thread / 32 * 8; row < Traits::row_tile; row += Traits::consumer_warps * 8) {
        tile::QueryFragment<Format, 1> query;
        query.load(params.query, rows, row, live_rows, lane);
        tile::store_query<Format, Traits::row_tile>(ptx::shared_address(shared.query), row, query, lane);
        if (lane < 4) {
            shared.row_scale[tile::row_of(row, 0, 0, lane)] = scale * query.factor[0][0];
            shared.row_scale[tile::row_of(row, 0, 1, lane)] = scale * query.factor[0][1];
        }
    }
    ptx::fence_async_proxy();
}

/* The products of each row, from the warpgroup's first on, by what that row's are to be multiplied by. */
__device__ __forceinline__ void scale(Scores &scores, const float *row_scale, int lane) {
#pragma unroll
    for (int n = 0; n < tile::group_row_fragments; ++n) {
        const float2 factors = *reinterpret_cast<const float2 *>(&row_scale[tile::row_of(0, n, 0, lane)]);
#pragma unroll
        for (int i = 0; i < 4; ++i)
            scores.value[0][n][i] *= i % 2 == 0 ? factors.x : factors.y;
    }
}

using TileWalk = pipeline::TileWalk<Traits::row_tile, Traits::tile_tokens, Traits::teams, false, Ring>;

/*
 * Attention of this warpgroup's rows over those of the piece's tiles that are its team's. While the output takes in V of a tile, the
 * scores of the next one are begun.
 */
__device__ __forceinline__ void attend(const pipeline::AnnouncedPiece<Traits::row_tile> &piece, SharedMemory &shared, Ring &ring,
                                       const KeyTokens &key_tokens, const ValueTokens &value_tokens, const Place &place,
                                       ConsumerState &state, int lane) {
    const uint32_t query = ptx::shared_address(shared.query), weights = ptx::shared_address(shared.weights[place.group]);
    const int first_step = place.warp * Partials::steps;
    tile::GroupReferences &references = shared.references[place.group];
    TileWalk walk(piece.rows, piece.first_team, place.team(), ring);
    Scores scores;
    const auto begin_scores = [&] {
        ring.wait_full(pipeline::tensor_k);
        tile::begin_group_qk<Format, Traits::row_tile>(scores, query, place.first_row_of_group(), ring.tile(pipeline::tensor_k),
                                                       key_tokens, lane, [&] { ring.release(pipeline::tensor_k, lane); });
    };
    if (!walk.has_tile())
        return;
    begin_scores();
    ptx::wgmma_wait();
    ptx::accumulator_is_ready(scores.value[0]);
    for (;;) {
        const TileTokens tokens = walk.tokens<tile::group_tokens>(0);
        scale(scores, shared.row_scale + place.first_row_of_group(), lane);
        if (!tokens.all_visible())
            tile::mask(scores, walk.tokens<tile::fragment_tokens>(place.warp * tile::fragment_tokens), place.first_row_of_group(),
                       lane);
        Scores differences;
        const bool exceeds = tile::GroupSoftmax::subtract(scores, references, differences, lane);
        /* Behind this barrier all warps are done with the weights of the tile before, too. */
        if (ptx::named_barrier_any<tile::group_threads>(place.barrier(), exceeds)) {
            state.softmax.raise(scores, references, place.warp, lane, place.barrier());
            tile::shrink_output(state.output, references.shrink, lane);
            (void)tile::GroupSoftmax::subtract(scores, references, differences, lane);
        }
        state.softmax.weigh<Format::matrix_dtype>(differences, weights, place.warp, lane);
        ptx::fence_async_proxy();

        tile::GroupValues<Partials::steps> values; /* while the other warps come to the barrier */
        ring.wait_full(pipeline::tensor_v);
        if (tokens.all_visible())
            values.load<false, Format>(ring.tile(pipeline::tensor_v), value_tokens, tokens, first_step, lane);
        else
            values.load<true, Format>(ring.tile(pipeline::tensor_v), value_tokens, tokens, first_step, lane);
        Turns::wait(place);
        tile::begin_group_pv<Format>(state.output, values, weights);
        ring.release(pipeline::tensor_v, lane);

        walk.next();
        const bool has_next = walk.has_tile();
        if (has_next)
            begin_scores();
        Turns::pass(place);
        ptx::wgmma_wait();
#pragma unroll
        for (int step = 0; step < Partials::steps; ++step)
            ptx::accumulator_is_ready(state.output.value[step]);
        if (!has_next)
            break;
        ptx::accumulator_is_ready(scores.value[0]);
    }
}

/*
 * The piece's result, from what the warpgroups have of it, a block of columns after the other: a whole unit's into out, a part into scratch,
 * whose slices fall to whichever worker has time. row_map(row): of the unit's rows from that one on.
 */
template <class MakeRowMap>
__device__ __forceinline__ void finish(const gqa_decode_params &params, SharedMemory &shared,
                                       const pipeline::AnnouncedPiece<Traits::row_tile> &announced, MakeRowMap row_map,
                                       const ConsumerState &state) {
    const auto meet = [] { ptx::named_barrier<consumer_barrier, Traits::consumer_threads>(); };
    const pipeline::Piece &piece = announced.piece;
    const int live_rows = announced.rows.live_rows;
    const Place place(ptx::thread_index_here());
    const PartFold parts(params.records, params.scratch, piece);
    const bool is_part = piece.parts.count > 1;
    shared.partials.store_statistics(state.softmax, shared.references[place.group], place.team(), place.first_row_of_group(),
                                     place.barrier());
#pragma unroll 1
    for (int block = 0; block < Partials::blocks; ++block) {
        shared.partials.store_output(state.output, block, place.team(), place.first_row_of_group());
        meet();
        Slice result(live_rows);
        shared.partials.fold(result, announced.first_team);
        const int first_column = block * Traits::block_columns;
        if (is_part)
            parts.leave(result, first_column);
        else
            pipeline::store_unit<Format>(params.output, row_map(0), result, first_column, params.query.head_dim);
        meet(); /* the block has been folded */
    }
    if (!is_part)
        return;
    pipeline::SliceDealer dealer(parts.counts(), piece.parts.num_workers, PartFold::slices, shared.next_slice,
                                 ptx::thread_index_here() == 0, meet);
    dealer.arrive(piece.is_last);
#pragma unroll 1
    for (uint32_t slice = dealer.take(); slice < PartFold::slices; slice = dealer.take()) {
        const int first_row = static_cast<int>(slice) * PartFold::slice_rows;
        PartFold::Slice result(max(live_rows - first_row, 0));
        parts.take(result, slice);
        dealer.ask();
        pipeline::store_unit<Format>(params.output, row_map(first_row), result, 0, params.query.head_dim);
    }
}

__device__ __forceinline__ void consume(const gqa_decode_params &params, SharedMemory &shared, Ring ring, int warp, int lane) {
    const Place place(warp * 32);
    const int box_tokens = params.schedule.box_tokens;
    const KeyTokens key_tokens(place.warp * tile::fragment_tokens, box_tokens, false, lane);
    const ValueTokens value_tokens(0, box_tokens, false, lane);
    Turns::open(place);
    for (uint32_t number = 0;; ++number) {
        const auto &announced = shared.pieces.wait_named(number);
        const pipeline::Piece &piece = announced.piece;
        if (piece.end_of_work)
            break;
        const auto row_map = [&](int first_row) {
            return tile::RowMap(params.schedule.group_size, announced.rows.first_query_token, piece.kv_head,
                                piece.row_pass * Traits::row_tile + first_row);
        };
        load_query(params, shared, row_map(0), announced.rows.live_rows, tile::scale_log2(params.query) * Format::k_scale);
        shared.pieces.wait_described(number);
        ConsumerState state;
        state.softmax.clear(shared.references[place.group], place.warp * 32 + lane);
        state.output.clear();
        ptx::named_barrier<consumer_barrier, Traits::consumer_threads>(); /* Q is there */
        attend(announced, shared, ring, key_tokens, value_tokens, place, state, lane);
        number = announced.number; /* anew: kept over the loop it would take a register from it */
        finish(params, shared, announced, row_map, state);
        shared.pieces.pop(number);
    }
    Turns::close(place);
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

extern "C" __device__ const libdecode_launch_contract VARIANT_CONTRACT = gqa_decode::contract<Slice>(
    shared_bytes, Traits::stages, 1u << KERNEL_DTYPE_BF16 | 1u << KERNEL_DTYPE_FP16 | 1u << KERNEL_DTYPE_E4M3,
    sizeof(PartFold::Part));
