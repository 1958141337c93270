/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MLA decode of FP8 rows with 64 query rows in one pass: mla_decode.cu's formula, schedule and contract, with the matrix instructions of
 * warpgroups, which sm_90a has. Rows become fp16 in registers, as operands there (tile/gathered_warpgroup.cuh); for queries of e4m3 and pages of
 * 64 tokens and more, as K they are operands as they lie. Schedule, by role:
 *
 *     producer warp     as in mla_decode.cu
 *     announcer warp    likewise
 *     score warpgroup   scores of a tile of 64 tokens, softmax, weights to shared memory
 *     output warpgroups two, each with a half of the dims of V
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
 *
 * Shared memory: struct SharedMemory below.
 */
#include <algorithm>
#include <cstddef>

#include "abi.h"
#include "pipeline/first_query.cuh"
#include "pipeline/history.cuh"
#include "pipeline/kv_ring.cuh"
#include "pipeline/page_stream.cuh"
#include "pipeline/piece_queue.cuh"
#include "pipeline/producer.cuh"
#include "pipeline/skip_votes.cuh"
#include "pipeline/transposed_store.cuh"
#include "pipeline/weight_turns.cuh"
#include "ptx/registers.cuh"
#include "tile/byte_scores.cuh"
#include "tile/gathered_warpgroup.cuh"
#include "tile/operand_query.cuh"
#include "tile/row_map.cuh"
#include "variant.cuh"

namespace {

/* --------------------------------------------------------------------------------------------------------------- traits */

struct Traits {
    static constexpr int dtype = VARIANT_KV_DTYPE;
    static constexpr int head_dim = VARIANT_HEAD_DIM, v_dim = head_dim - 64;
    static constexpr int row_tile = VARIANT_ROW_TILE, tile_tokens = tile::group_tokens;
    using Format = tile::KvFormat<dtype, head_dim>;
    static_assert(variant::target_sm == 90, "targets in the .toml: sm90 has wgmma");
    static_assert(head_dim == 576 && row_tile == tile::group_rows && VARIANT_CLUSTER_SIZE == 1, "the .toml: d576, r64, c1");
    static_assert(Format::converts_query && Format::scale_bytes == 0, "rows that are converted, without scales of their own");

    static constexpr int output_groups = 2, output_threads = output_groups * tile::group_threads;
    static constexpr int score_warp = output_groups * tile::group_warps; /* the first of its warpgroup */
    static constexpr int consumer_warps = score_warp + tile::group_warps, consumer_threads = consumer_warps * 32;
    static constexpr int producer_warp = consumer_warps, announcer_warp = producer_warp + 1;
    static constexpr int warps =
        consumer_warps + tile::group_warps; /* the last two have nothing to do: warpgroups give registers */
    static constexpr int threads = warps * 32;
    /* Of all threads at the start; then of those in each role. */
    static constexpr int registers = 65536 / threads & -8;
    static constexpr int output_registers = 176, score_registers = 104, other_registers = 56;
    static_assert(output_registers * output_groups + score_registers + other_registers <=
                      registers * (threads / tile::group_threads),
                  "registers of an SM");
    static_assert(output_registers > registers && score_registers <= registers && other_registers < registers,
                  "which roles take registers and which give some, as the instructions have it");

    static constexpr int weight_places = 2;
    static constexpr int most_stages = 4;
};

using Format = Traits::Format;
using Query = tile::OperandQuery<Format>;
using ByteQuery = tile::ByteQuery<Format, Traits::row_tile, Traits::output_threads>;
using Scores = tile::GroupSoftmax::Scores;
using Result = pipeline::TransposedResult<Format, Traits::v_dim, Format::largest_value, false>;
using Output = Result::Output;
using Schedule = pipeline::SplitSchedule<1, true>;
using Turn = pipeline::WeightTurn<Traits::weight_places>;
using Place = pipeline::GroupPlace;
using TileLayout = tile::TileLayout<Format, Traits::tile_tokens>;
using KeyTokens = tile::TokenFragments<Format, Traits::tile_tokens, 1>;
using ValueTokens = tile::TokenFragments<Format, Traits::tile_tokens, tile::group_token_fragments>;
using TileTokens = tile::WarpTokens<Traits::row_tile, Traits::tile_tokens>;
using WarpTokens = tile::WarpTokens<Traits::row_tile, tile::fragment_tokens>;

/* What output warpgroups are told of a tile beside its weights: of most tiles that they are not rare, and no more. */
struct TileNotes {
    bool is_rare, is_raised;
    uint64_t seen;                  /* a bit for each token that a row sees */
    float shrink[Traits::row_tile]; /* of the outputs before it, where references were raised */
};

/* All but the tiles. */
template <int stages>
struct WorkMemory {
    union {
        struct {
            union {
                Query query;
                ByteQuery byte_query;
            };
            alignas(1024) uint8_t weights[Traits::weight_places][tile::group_weight_bytes];
        };
        Result::Memory result;
    };
    uint32_t next_slice; /* of a unit that is added up: pipeline::SliceDealer */
    tile::GroupReferences references;
    alignas(16) float row_scale[Traits::row_tile];     /* of the rows' products with K; at the end of their results */
    alignas(16) float statistics[Traits::row_tile][2]; /* reference and sum of the rows of a piece */
    alignas(16) TileNotes notes[Traits::weight_places];
    /* Of each place: one arrival of each warp that wrote it, or read it. */
    uint64_t published[Traits::weight_places], taken[Traits::weight_places];
    pipeline::KvRingBarriers<stages, 1> barriers;
    pipeline::PieceQueue<Traits::row_tile> pieces;
    pipeline::Sequences sequences; /* for what is called rarely */
};

constexpr int stages =
    std::min((variant::max_shared_bytes - static_cast<int>(sizeof(WorkMemory<Traits::most_stages>))) / TileLayout::bytes,
             Traits::most_stages);
static_assert(stages >= 3, "shared memory of a CTA: scores and outputs have a tile each, and one comes");

struct SharedMemory {
    alignas(1024) uint8_t tiles[stages][TileLayout::bytes];
    alignas(1024) WorkMemory<stages> work;
};
/* Without the padding that the alignment adds to the end. */
constexpr int shared_bytes = offsetof(SharedMemory, work) + sizeof(WorkMemory<stages>);
static_assert(shared_bytes <= variant::max_shared_bytes, "shared memory of a CTA");

using Ring = pipeline::KvRing<stages, TileLayout::bytes, false, 1>;
using Producer = pipeline::Producer<Format, Ring, Traits::tile_tokens, 1, 1, pipeline::NoVotes>;

/* Named barriers: of the consumer warps, of the output warpgroups together, of the score warpgroup, of outputs and producer; 0 is __syncthreads. */
enum : int { consumer_barrier = 1, output_barrier, score_barrier, query_barrier };
constexpr int query_barrier_threads = Traits::output_threads + 32;

__device__ __forceinline__ void meet_consumers() { ptx::named_barrier<consumer_barrier, Traits::consumer_threads>(); }
__device__ __forceinline__ void meet_output() { ptx::named_barrier<output_barrier, Traits::output_threads>(); }

/* ------------------------------------------------------------------------------------------- consumers: one piece of a unit */

__device__ __forceinline__ tile::RowMap map_rows(const mla_decode_params &params, const tile::UnitRows<Traits::row_tile> &unit,
                                                 const pipeline::Piece &piece, int first_row = 0) {
    return {params.schedule.group_size, unit.first_query_token, piece.kv_head, piece.row_pass * Traits::row_tile + first_row};
}

/* Whether scores are those of e4m3 with e4m3, which lie as the tensor core wants them: a tile is one box. */
__device__ __forceinline__ bool multiplies_bytes(const mla_decode_params &params) {
    return params.query.dtype == KERNEL_DTYPE_E4M3 && params.schedule.box_tokens == Traits::tile_tokens;
}

/* ----------------------------------------------------------------------------------------------------- the score warpgroup */

/* Products become logits in base 2. */
__device__ __forceinline__ void scale_and_cap(Scores &scores, const float (&row_scale)[tile::group_rows], float cap, int lane) {
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
__device__ __forceinline__ void publish(WorkMemory<stages> &work, const Turn &newest, int lane) {
    if (lane == 0)
        ptx::mbarrier_arrive(ptx::shared_address(&work.published[newest.place()]));
}

/*
 * What few tiles need, those that a row does not see all of, or that raise references, and any with a soft cap: from products to weights, and
 * notes of it. Whether references are so large now that all that follow need it. Not inlined: what the loop jumps over, it waits for.
 * `scores`: products, then weights; they and `softmax` come through memory.
 */
__device__ __noinline__ bool weigh_rare(float cap, WorkMemory<stages> &work, const tile::UnitRows<Traits::row_tile> &unit,
                                        int token, TileNotes &notes, Scores &scores, tile::GroupSoftmax &softmax) {
    const Place place(ptx::thread_index_here());
    const int lane = place.lane(), warp = place.warp();
    Scores logits = scores;
    scale_and_cap(logits, work.row_scale, cap, lane);
    uint64_t seen = ~uint64_t{0};
    const TileTokens tokens{unit, unit.are_alike, token, unit.end_token, unit.common};
    if (!tokens.all_visible()) {
        tile::mask(logits, WarpTokens{unit, unit.are_alike, token + warp * tile::fragment_tokens, unit.end_token, unit.common}, 0,
                   lane);
        seen = tokens.seen_by_any();
    }
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
template <bool bytes>
__device__ __forceinline__ void attend_scores(const mla_decode_params &params, WorkMemory<stages> &work,
                                              const tile::UnitRows<Traits::row_tile> &unit, Ring &ring, const Place &place,
                                              tile::GroupSoftmax &softmax, Turn &turn) {
    int token = __shfl_sync(tile::full_warp, unit.first_token, 0);
    const int end_token = __shfl_sync(tile::full_warp, unit.end_token, 0);
    const int first_plain = __shfl_sync(tile::full_warp, unit.common.first, 0);
    int end_plain = __shfl_sync(tile::full_warp, params.query.soft_cap > 0.f ? 0 : unit.common.end, 0);
    tile::GroupRowValues factors, references;
    if constexpr (bytes) /* rows have none of their own */
        factors.fill(__shfl_sync(tile::full_warp, work.row_scale[0], 0));
    bool is_waiting = false; /* what is to be published */
    for (; token < end_token; token += Traits::tile_tokens) {
        Scores scores, weights;
        const auto meanwhile = [&] {
            if (!bytes && is_waiting)
                publish(work, turn.before(), place.lane());
            pipeline::wait_for(work.taken[turn.place()], turn.parity() ^ 1);
            if constexpr (!bytes)
                factors.load(work.row_scale, place.lane());
        };
        ring.wait_full(pipeline::tensor_k);
        if constexpr (bytes)
            tile::byte_qk<Format>(scores, ptx::shared_address(&work.byte_query), ring.tile(pipeline::tensor_k), meanwhile);
        else
            tile::group_latent_qk<Format, Traits::tile_tokens>(
                scores, ptx::shared_address(&work.query), ring.tile(pipeline::tensor_k), place.warp() * tile::fragment_tokens,
                params.schedule.box_tokens, place.lane(), meanwhile);
        if (bytes && is_waiting)
            publish(work, turn.before(), place.lane());
        references.load(work.references.reference, place.lane());
        ring.release(pipeline::tensor_k, place.lane());
        TileNotes &notes = work.notes[turn.place()];
        bool is_rare = token < first_plain || token + Traits::tile_tokens > end_plain;
        is_rare |= tile::GroupSoftmax::weigh(scores, factors, references, weights);
        is_rare = ptx::named_barrier_any<tile::group_threads>(score_barrier, is_rare);
        if (is_rare) {
            Scores finished = scores; /* in memory, the others stay in registers */
            tile::GroupSoftmax raised = softmax;
            if (weigh_rare(params.query.soft_cap, work, unit, token, notes, finished, raised))
                end_plain = 0;
            weights = finished;
            softmax = raised;
        }
        softmax.add<Format::matrix_dtype>(weights, ptx::shared_address(work.weights[turn.place()]), place.warp(), place.lane());
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

__device__ __forceinline__ void consume_scores(const mla_decode_params &params, WorkMemory<stages> &work, Ring ring) {
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
        if (multiplies_bytes(params))
            attend_scores<true>(params, work, announced.rows, ring, place, softmax, turn);
        else
            attend_scores<false>(params, work, announced.rows, ring, place, softmax, turn);
        auto &sums = work.references.largest; /* which nobody reads any more */
        softmax.store_statistics(
            work.references, work.statistics, [&](int row, int warp) -> float & { return sums[warp][row]; }, place.thread(),
            score_barrier);
        meet_consumers(); /* the last weights have been taken; statistics are there */
        number = announced.number;
        work.pieces.pop(number);
    }
}

/* -------------------------------------------------------------------------------------------------- the output warpgroups */

/*
 * Rows of Q into shared memory, by the output warpgroups. The first unit's are asked for ahead of KV, behind a ring full of which they would
 * come.
 */
__device__ __forceinline__ void load_query(const mla_decode_params &params, WorkMemory<stages> &work, const tile::RowMap &rows,
                                           int live_rows, bool is_first) {
    static_assert(Query::threads == Traits::output_threads, "all threads of the output warpgroups");
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
        if (thread < Traits::row_tile)
            work.row_scale[thread] = scale;
    }
    ptx::fence_async_proxy();
}

/* Outputs of all rows over the piece's tiles, which are there when their weights are. */
__device__ __forceinline__ void attend_output(const mla_decode_params &params, WorkMemory<stages> &work,
                                              const tile::UnitRows<Traits::row_tile> &unit, Ring &ring, const Place &place,
                                              Output &output, Turn &turn) {
    const int in_tiles = (unit.end_token - unit.first_token + Traits::tile_tokens - 1) / Traits::tile_tokens;
    for (int tiles = __shfl_sync(tile::full_warp, in_tiles, 0); tiles > 0; --tiles) {
        uint32_t chunks[2][4];
        const ValueTokens tokens(0, params.schedule.box_tokens, false, place.lane());
        ring.wait_full(pipeline::tensor_k);
        tile::load_first_values(chunks, ring.tile(pipeline::tensor_k), tokens, place.group, place.warp(), place.lane());
        pipeline::wait_for(work.published[turn.place()], turn.parity());
        const TileNotes &notes = work.notes[turn.place()];
        const uint32_t weights = ptx::shared_address(work.weights[turn.place()]);
        const auto tile_of = [&](int) { return ring.tile(pipeline::tensor_k); };
        if (!__any_sync(tile::full_warp, notes.is_rare)) {
            tile::group_latent_pv<false>(output, weights, chunks, tokens, tile::UnscaledValues(), 0, place.group, place.warp(),
                                         place.lane(), tile_of);
        } else {
            if (__any_sync(tile::full_warp, notes.is_raised))
                tile::shrink_output(output, notes.shrink, place.lane());
            tile::group_latent_pv<true>(output, weights, chunks, tokens, tile::UnscaledValues(), notes.seen, place.group,
                                        place.warp(), place.lane(), tile_of);
        }
        ring.release(pipeline::tensor_k, place.lane());
        if (place.lane() == 0)
            ptx::mbarrier_arrive(ptx::shared_address(&work.taken[turn.place()]));
        ring.advance();
        ++turn.number;
    }
}

__device__ __forceinline__ void consume_output(const mla_decode_params &params, WorkMemory<stages> &work, Ring ring) {
    const Place place(ptx::thread_index_here());
    Turn turn;
    pipeline::prefetch_first_query<Query, Traits::row_tile>(params, blockIdx.x, Traits::output_threads);
    for (uint32_t number = 0;; ++number) {
        const auto &announced = work.pieces.wait_named(number);
        if (announced.piece.end_of_work)
            break;
        load_query(params, work, map_rows(params, announced.rows, announced.piece), announced.rows.live_rows, number == 0);
        Output output;
        output.clear();
        meet_consumers(); /* Q is there */
        attend_output(params, work, announced.rows, ring, place, output, turn);
        meet_consumers(); /* statistics are there, and nobody reads query and weights any more */
        const auto rows_of = [&](int first_row) { return map_rows(params, announced.rows, announced.piece, first_row); };
        Result::hand_over(
            params, work.result, work.next_slice, work.statistics, work.row_scale, announced, rows_of, place, output,
            [](int) { return 1.f; }, meet_output);
        number = announced.number; /* anew: kept over the loop it would take a register from it */
        work.pieces.wait_described(number);
        work.pieces.pop(number);
    }
}

} // namespace

extern "C" __global__ void __launch_bounds__(Traits::threads, 1) VARIANT_NAME(const __grid_constant__ mla_decode_params params) {
    extern __shared__ __align__(1024) uint8_t shared_memory[];
    SharedMemory &shared = *reinterpret_cast<SharedMemory *>(shared_memory);
    WorkMemory<stages> &work = shared.work;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

    ptx::wait_for_preceding_kernel_unless(params.schedule.rare & SCHEDULE_HISTORY_FINAL);
    const bool is_consumer = warp < Traits::consumer_warps;
    Schedule schedule(params.schedule, work.sequences, blockIdx.x, 0);
    if (!is_consumer) {
        schedule.issue_length_loads();
        ptx::prefetch_tensor_map(&params.map);
    } else if (threadIdx.x == 0) { /* while the lengths are on their way */
        work.sequences = pipeline::Sequences(params.schedule);
        Ring::initialise(work.barriers, 1, Traits::consumer_warps);
        for (int place = 0; place < Traits::weight_places; ++place) {
            ptx::mbarrier_init(ptx::shared_address(&work.published[place]), tile::group_warps);
            ptx::mbarrier_init(ptx::shared_address(&work.taken[place]), Traits::score_warp);
        }
        work.pieces.initialise(Traits::consumer_threads);
        ptx::fence_mbarrier_init();
    } else if (warp == 1) {
        pipeline::prefetch_page_table(params.schedule, lane);
    }
    __syncthreads();

    const Ring ring(work.barriers, shared.tiles);
    if (warp < Traits::score_warp) {
        ptx::take_registers<Traits::output_registers>();
        consume_output(params, work, ring);
        return;
    }
    if (is_consumer) {
        ptx::give_registers<Traits::score_registers>();
        consume_scores(params, work, ring);
        return;
    }
    ptx::give_registers<Traits::other_registers>();
    schedule.count();
    if (warp == Traits::announcer_warp) {
        pipeline::announce<false, Traits::tile_tokens, 1>(params.schedule, params.query, schedule, work.pieces, lane);
    } else if (warp == Traits::producer_warp) {
        pipeline::NoVotes votes;
        Producer(params.schedule, &params.map, {}, 0.f, pipeline::tensor_k, 0, ring, votes)
            .run(schedule, lane, [&](const pipeline::Piece &, uint32_t number, Ring &) {
                if (number == 0 && pipeline::rarely(pipeline::is_history_final(params.schedule)))
                    ptx::named_barrier_arrive<query_barrier_threads>(query_barrier);
                else if (number == 0)
                    ptx::named_barrier<query_barrier, query_barrier_threads>();
            });
    }
}

extern "C" __device__ const libdecode_launch_contract VARIANT_CONTRACT = {
    .magic = LIBDECODE_CONTRACT_MAGIC,
    .abi = LIBDECODE_KERNEL_ABI,
    .family = KERNEL_FAMILY_MLA_DECODE,
    .parameter_bytes = sizeof(mla_decode_params),
    .threads = Traits::threads,
    .dynamic_shared_bytes = shared_bytes,
    .ctas_per_sm = 1,
    .cluster_size = 1,
    .query_dtypes = 1u << KERNEL_DTYPE_BF16 | 1u << KERNEL_DTYPE_FP16 | 1u << KERNEL_DTYPE_E4M3,
    .kv_dtype = Traits::dtype,
    .out_dtypes = pipeline::out_dtypes<Format, Result::Slice>,
    .head_dim = Traits::head_dim,
    .row_tile = Traits::row_tile,
    .tile_tokens = Traits::tile_tokens,
    .max_box_tokens = Traits::tile_tokens,
    .stages = stages,
    .min_page_size = 16,
    .max_page_size = 1024,
    .max_q_len = 1024,
    .features = CONTRACT_FEATURE_WINDOW | CONTRACT_FEATURE_SINKS | CONTRACT_LSE | CONTRACT_FEATURE_RAGGED_Q |
                CONTRACT_FEATURE_DRAFT_MASK | CONTRACT_FEATURE_QUERY_POSITIONS | CONTRACT_FEATURE_SKIP_SOFTMAX |
                CONTRACT_FEATURE_SOFT_CAP | CONTRACT_FEATURE_QUERY_ROPE, /* not batch-invariant, as gqa_decode_warpgroup.cu */
    .flags = variant::contract_flags,
    .record_bytes = Result::record_bytes,
    .scratch_bytes = Result::scratch_bytes,
    .consumer_warps = Traits::consumer_warps,
    .reserved = {},
};
