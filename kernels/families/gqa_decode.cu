/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GQA decode: attention of one query token per request over a paged KV cache, 16-bit K and V.
 *
 *     z_j = bmm1_scale * q . k_j        over the visible tokens j of the request
 *     m   = max_j z_j log2e,   l = sum_j 2^(z_j log2e - m) + 2^(sink log2e - m)
 *     out = bmm2_scale * sum_j 2^(z_j log2e - m) v_j / l
 *     lse = m + log2(l)
 *
 * Rows are the query heads of one KV head (padded to row_tile with zero queries that are never stored). Schedule, by role:
 *
 *     producer warps  one for K, one for V: walk split_schedule.cuh, the pieces of units that fall to this worker;
 *                     page_stream.cuh gives the boxes of a piece and their pages, one batch of 32 ahead; one 5-D copy per box
 *                     into the ring (kv_ring.cuh), across pieces, so that short units keep the memory queue full
 *     announcer warp  walks the same schedule and hands each piece to the consumers (piece_queue.cuh): what they alone need
 *                     to know of a piece holds up no copy
 *     consumer warps  tile by tile: qk, mask, softmax, pv (attention.cuh); two teams of warps take turns at the tiles, a warp
 *                     takes its own tokens of a tile and keeps its own maximum and sum: no barrier among consumers
 *     at a unit's end reduction.cuh: warps, then the cluster, then the workers that share the unit; the last one stores
 *
 * Shared memory: struct SharedMemory below. Tiles first: the copy engine's swizzle wants them 1024-byte aligned.
 */
#include <cstddef>

#include "abi.h"
#include "pipeline/kv_ring.cuh"
#include "pipeline/page_stream.cuh"
#include "pipeline/piece_queue.cuh"
#include "pipeline/reduction.cuh"
#include "tile/attention.cuh"
#include "variant.cuh"

namespace {

struct Traits {
    static constexpr int dtype = VARIANT_KV_DTYPE;
    static constexpr int head_dim = VARIANT_HEAD_DIM;
    static constexpr int row_tile = VARIANT_ROW_TILE;
    static constexpr int cluster_size = VARIANT_CLUSTER_SIZE;
    static_assert(VARIANT_QUERY_DTYPE == VARIANT_KV_DTYPE, "query_dtype, kv_dtype in the .toml: 16-bit KV takes its own dtype");
    static_assert(head_dim == 64 || head_dim == 128, "head_dim in the .toml: 64 or 128");
    static_assert(row_tile == 8 || row_tile == 16 || row_tile == 32, "row_tile in the .toml: 8, 16 or 32");

    /* 16 KiB of K and of V a stage. On sm_120, with 99 KiB of shared memory and a fifth of the bandwidth, half of that. */
    static constexpr bool small = variant::target_sm == 120;
    static constexpr int tile_bytes = small ? 8192 : 16384;
    static constexpr int tile_tokens = tile_bytes / tile::KvFormat<dtype, head_dim>::row_bytes;
    static constexpr int rows_per_warp = row_tile < 16 ? 8 : 16; /* two instructions share every K and V fragment */
    static constexpr int row_warps = row_tile / rows_per_warp;   /* warps that read the same tokens for other rows */
    /* Two where rows are divided as well, which leaves warps for a second team; sm_100 is two registers short of that. */
    static constexpr int token_warps = small || (row_warps > 1 && variant::target_sm == 90) ? 2 : 4;
    static constexpr int team_warps = row_warps * token_warps;
    /*
     * Teams take turns at the tiles. The steps of one tile wait for each other, some 1000 clocks of it: four warps, one tile at a
     * time, take in 32 bytes a clock, fewer than an SM can get from memory.
     */
    static constexpr int teams = small ? 1 : 8 / team_warps;
    static constexpr int consumer_warps = teams * team_warps;
    static constexpr int consumer_threads = consumer_warps * 32;
    static constexpr int producer_warps = 2; /* one for K, one for V, whose first copies so go out together */
    static constexpr int announcer_warp = consumer_warps + producer_warps;
    static constexpr int threads = (announcer_warp + 1) * 32;
    static constexpr int tokens_per_warp = tile_tokens / token_warps;
    static constexpr int token_fragments = tokens_per_warp / tile::fragment_tokens;
    static constexpr int row_fragments = rows_per_warp / 8;

    /* 96-128 KiB in flight per SM reach the read ceiling with random 16-token pages. */
    static constexpr int stages = small && row_tile == 32 ? 2 : 4;
    static_assert(stages % teams == 0, "a stage must be one team's: a warp that skips one cannot tell its phases apart");
    /* All of it for one CTA: half as many workers as with two, so half as many units that are split between them. */
    static constexpr int ctas_per_sm = 1;
};

using Format = tile::KvFormat<Traits::dtype, Traits::head_dim>;
using TokenFragments = tile::TokenFragments<Format, Traits::token_fragments>;
using Ring = pipeline::KvRing<Traits::stages, Traits::tile_bytes>;
using Schedule = pipeline::SplitSchedule<Traits::cluster_size>;
using Stream = pipeline::PageStream<Traits::cluster_size>;
using Partials = pipeline::WarpPartials<Traits::head_dim, Traits::row_tile, Traits::teams * Traits::token_warps>;
using CtaSlice = pipeline::Slice<Traits::row_tile, Traits::head_dim, Traits::consumer_threads>;
using WorkerSlice = pipeline::Slice<Traits::row_tile, Traits::head_dim / Traits::cluster_size, Traits::consumer_threads>;
using WorkerFold = pipeline::WorkerFold<Traits::cluster_size, WorkerSlice,
                                        pipeline::WorkerRecord<Traits::row_tile, Traits::head_dim / Traits::cluster_size>>;
using Exchange = pipeline::ClusterExchange<Traits::head_dim, Traits::row_tile, Traits::cluster_size>;

struct SharedMemory {
    alignas(1024) uint8_t tiles[Traits::stages][2][Traits::tile_bytes];
    alignas(16) Partials partials;
    Exchange exchange;
    pipeline::KvRingBarriers<Traits::stages> barriers;
    pipeline::PieceQueue pieces;
    pipeline::Sequences sequences; /* for what is called rarely */
};
/* Without the padding that the alignment adds to the end. */
constexpr int shared_bytes = offsetof(SharedMemory, sequences) + sizeof(pipeline::Sequences);
static_assert(shared_bytes <= variant::max_shared_bytes, "shared memory of one CTA");
static_assert(Traits::ctas_per_sm * (shared_bytes + variant::reserved_shared_bytes) <= variant::sm_shared_bytes,
              "shared memory of ctas_per_sm CTAs");

/* Named barrier of the consumer warps; 0 is __syncthreads. */
constexpr int consumer_barrier = 1;
__device__ __forceinline__ void consumers_meet() { ptx::named_barrier<consumer_barrier, Traits::consumer_threads>(); }

/*
 * Every thread calls it once, after it has arrived: then the barriers of the other CTAs of the cluster are initialised, too.
 * PTX would let only those wait that need to know; racecheck of compute-sanitizer 2025.3 then never ends.
 */
__device__ __forceinline__ void meet_cluster() {
    if constexpr (Traits::cluster_size > 1)
        ptx::cluster_wait();
}

/* ------------------------------------------------------------------------------------------------------ producer: load */

/* `boxes` boxes of a batch, at most a tile of them, from its box `first` on into the ring: lane i copies box first + i. */
__device__ __forceinline__ void load_tile(const gqa_decode_params &params, const Ring &ring, pipeline::Tensor tensor,
                                          const pipeline::PageBatch &batch, int first, int boxes, int lane) {
    const int box = batch.first_box + first, source = (first + lane) & 31;
    const uint32_t barrier = ring.full_barrier(tensor);
    const int box_bytes = params.schedule.box_tokens * Format::row_bytes;
    ring.wait_empty(tensor);
    const int page = __shfl_sync(tile::full_warp, batch.page, source);
    if (lane < boxes) {
        const int token_in_page = ((box + lane) * params.schedule.box_tokens) & (params.schedule.page_size - 1);
        ptx::copy_tensor_5d(ring.tile(tensor) + lane * box_bytes, tensor == pipeline::tensor_k ? &params.k_map : &params.v_map, 0,
                            token_in_page, 0, batch.piece.kv_head, page, barrier);
    }
    /*
     * After the copies, which so go out earlier. Until this arrival the barrier stays open, whatever has come; its count of bytes
     * may be below zero meanwhile (PTX ISA 9.7.13.15, contents of the mbarrier object).
     */
    if (lane == 0)
        ptx::mbarrier_arrive_expect_tx(barrier, boxes * box_bytes);
    __syncwarp();
}

__device__ __forceinline__ void produce(const gqa_decode_params &params, Schedule &schedule, pipeline::Tensor tensor, Ring ring,
                                        int lane) {
    schedule.begin();
    Stream stream(params.schedule, schedule, tensor == pipeline::tensor_v ? params.schedule.page_table_v_offset : 0);
    const int boxes_per_tile = Traits::tile_tokens >> (__ffs(params.schedule.box_tokens) - 1);
    pipeline::PageBatch batch = stream.next();
    meet_cluster(); /* while the page ids are on their way */
    while (!batch.piece.end_of_work) {
        /*
         * When the next page ids are sent for: they hold up the copies that follow, since a warp that waits for any page id
         * waits for all. So once the ring is full, or else after the last tile of the batch.
         */
        const int last_tile = (max(batch.num_boxes, 1) - 1) & -boxes_per_tile;
        const int ring_is_full = min((Traits::stages - 1) * boxes_per_tile, last_tile);
        pipeline::PageBatch upcoming;
        int box = 0;
        do {
            const int boxes = min(boxes_per_tile, batch.num_boxes - box);
            if (boxes > 0) {
                load_tile(params, ring, tensor, batch, box, boxes, lane);
                ring.advance();
            }
            if (box == ring_is_full)
                upcoming = stream.next();
            box += boxes_per_tile;
        } while (box < batch.num_boxes);
        batch = upcoming;
    }
}

/* ------------------------------------------------------------------------------------------- announcer: pieces, one by one */

__device__ __forceinline__ void announce(Schedule &schedule, pipeline::PieceQueue &pieces, int lane) {
    schedule.begin();
    meet_cluster();
    pipeline::Piece piece;
    uint32_t count = 0;
    do {
        piece = schedule.next();
        if (!piece.end_of_work)
            schedule.find_workers(piece);
        pieces.push(count++, piece, lane);
    } while (!piece.end_of_work);
}

/* ------------------------------------------------------------------------------------------- consumers: one piece of a unit */

/* What a consumer warp keeps over a piece. */
struct ConsumerState {
    tile::QueryFragment<Format, Traits::row_fragments> query;
    tile::OnlineSoftmax<Traits::row_fragments> softmax;
    tile::OutputFragment<Format::steps, Traits::row_fragments> output;
};

__device__ __forceinline__ void load_query(const gqa_decode_params &params, const pipeline::Piece &piece, int first_row,
                                           ConsumerState &state, int lane) {
    const int first_head = piece.kv_head * params.query.group_size + piece.row_group * Traits::row_tile + first_row;
    const int live_rows = params.query.group_size - piece.row_group * Traits::row_tile - first_row;
    const uint16_t *rows = static_cast<const uint16_t *>(params.query.rows) + piece.request * params.query.token_stride +
                           first_head * params.query.head_stride;
    state.query.load(rows, params.query.head_stride, live_rows, lane);
}

/* Attention of this warp's rows over its tokens of the piece's tiles. */
__device__ __forceinline__ void attend(const gqa_decode_params &params, const pipeline::Piece &piece, float scale_log2,
                                       Ring &ring, const TokenFragments &tokens, int team, int first_warp_token,
                                       ConsumerState &state, int lane) {
    const int box_shift = __ffs(params.schedule.box_tokens) - 1;
    const int first_token = piece.first_token, end_token = min(piece.end_token, piece.end_box << box_shift);
    int token = (piece.first_box << box_shift) + first_warp_token; /* this warp's first of the tile */
    for (; token - first_warp_token < end_token; token += Traits::tile_tokens, ring.advance()) {
        if (Traits::teams > 1 && ring.stage() % Traits::teams != team)
            continue;
        const int first_visible = first_token - token, end_visible = end_token - token;
        const bool any_visible = first_visible < Traits::tokens_per_warp && end_visible > 0;
        const bool all_visible = first_visible <= 0 && end_visible >= Traits::tokens_per_warp;

        tile::ScoreFragment<Traits::token_fragments, Traits::row_fragments> scores;
        tile::WeightFragment<Traits::token_fragments, Traits::row_fragments> weights;
        ring.wait_full(pipeline::tensor_k);
        if (any_visible)
            tile::qk(scores, state.query, ring.tile(pipeline::tensor_k), tokens, lane);
        ring.release(pipeline::tensor_k, lane);
        if (any_visible) {
            tile::scale(scores, scale_log2);
            if (!all_visible)
                tile::mask(scores, first_visible, end_visible, lane);
            state.softmax.update<Format::matrix_dtype>(scores, state.output, weights);
        }
        ring.wait_full(pipeline::tensor_v);
        const uint32_t v_tile = ring.tile(pipeline::tensor_v);
        if (all_visible)
            tile::pv<false>(state.output, weights, v_tile, tokens, first_visible, end_visible, lane);
        else if (any_visible)
            tile::pv<true>(state.output, weights, v_tile, tokens, first_visible, end_visible, lane);
        ring.release(pipeline::tensor_v, lane);
    }
}

/* ------------------------------------------------------------------------------------------------------------ epilogue */

/* Normalises, adds the sink, and stores out and lse of a finished unit: this CTA's columns. */
__device__ __forceinline__ void store_output(const gqa_decode_params &params, const pipeline::Piece &piece,
                                             const WorkerSlice &result, int rank) {
    using S = WorkerSlice;
    const float bmm2_scale =
        params.output.bmm2_scale_device != nullptr ? *params.output.bmm2_scale_device : params.output.bmm2_scale;
    const int first_row = piece.row_group * Traits::row_tile;
#pragma unroll
    for (int i = 0; i < S::per_thread; ++i) {
        if (!result.live(i))
            continue;
        const int head = piece.kv_head * params.query.group_size + first_row + result.row(i);
        float maximum = result.maximum[i], total = result.sum[i], weight = 1.f;
        if (params.output.sinks != nullptr) {
            const float sink = params.output.sinks[head] * tile::log2_e;
            const float reference = tile::finite_reference(fmaxf(maximum, sink));
            weight = ptx::exp2_approx(maximum - reference);
            /* A sink of +infinity takes all the weight; its difference to itself would be NaN. */
            total = total * weight + (sink == reference ? 1.f : ptx::exp2_approx(sink - reference));
            maximum = fmaxf(maximum, sink);
        }
        const bool empty = total == 0.f; /* NaN is not: it propagates */
        const float scale = empty ? 0.f : __fdividef(bmm2_scale * weight, total);
        uint16_t *out = static_cast<uint16_t *>(params.output.rows) + piece.request * params.output.token_stride +
                        head * params.output.head_stride + rank * (Traits::head_dim / Traits::cluster_size) + result.column(i);
        if constexpr (S::width == 1) {
            *out = static_cast<uint16_t>(tile::pack_output(params.output.dtype, result.value[i][0] * scale, 0.f));
        } else {
#pragma unroll
            for (int j = 0; j < S::width; j += 2) {
                reinterpret_cast<uint32_t *>(out)[j / 2] =
                    tile::pack_output(params.output.dtype, result.value[i][j] * scale, result.value[i][j + 1] * scale);
            }
        }
        if (params.output.lse != nullptr && rank == 0 && result.column(i) == 0) {
            params.output.lse[piece.request * params.output.lse_token_stride + head * params.output.lse_head_stride] =
                empty ? -INFINITY : maximum + log2f(total);
        }
    }
}

__device__ __forceinline__ void consume(const gqa_decode_params &params, SharedMemory &shared, Ring ring, int worker, int rank,
                                        int warp, int lane) {
    const int team = warp / Traits::team_warps;
    const int token_warp = warp % Traits::token_warps;
    const int first_row = warp % Traits::team_warps / Traits::token_warps * Traits::rows_per_warp;
    const int first_warp_token = token_warp * Traits::tokens_per_warp;
    const TokenFragments tokens(first_warp_token, params.schedule.box_tokens);
    const float scale_log2 = params.query.bmm1_scale_log2_device != nullptr ? *params.query.bmm1_scale_log2_device
                             : params.query.bmm1_scale_device != nullptr    ? *params.query.bmm1_scale_device * tile::log2_e
                                                                            : params.query.bmm1_scale_log2;
    meet_cluster();
    uint32_t count = 0;
    for (;; ++count) {
        const pipeline::Piece &piece = shared.pieces.front(count);
        if (piece.end_of_work)
            break;
        ConsumerState state;
        load_query(params, piece, first_row, state, lane);
        state.softmax.clear();
        state.output.clear();
        attend(params, piece, scale_log2, ring, tokens, team, first_warp_token, state, lane);

        const int live_rows = min(params.query.group_size - piece.row_group * Traits::row_tile, Traits::row_tile);
        CtaSlice own(live_rows);
        WorkerSlice result(live_rows);
        if (count > 0)
            consumers_meet(); /* the partials of the piece before have been folded */
        shared.partials.store(state.output, state.softmax, team * Traits::token_warps + token_warp, first_row, lane);
        consumers_meet();
        shared.partials.fold(own);
        shared.exchange.template run<consumer_barrier>(own, result, rank, count, piece.is_last);
        if (piece.num_workers == 1) {
            store_output(params, piece, result, rank);
        } else {
            WorkerFold others(params.records, piece, rank);
            if (others.run(result, worker - piece.first_worker)) {
                store_output(params, piece, result, rank);
                others.clear(result);
            }
        }
        shared.pieces.pop(count);
    }
}

} // namespace

extern "C" __global__ void __launch_bounds__(Traits::threads, Traits::ctas_per_sm)
    VARIANT_NAME(const __grid_constant__ gqa_decode_params params) {
    extern __shared__ __align__(1024) uint8_t shared_memory[];
    SharedMemory &shared = *reinterpret_cast<SharedMemory *>(shared_memory);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int rank = Traits::cluster_size > 1 ? static_cast<int>(ptx::cluster_rank()) : 0;
    const int worker = blockIdx.x / Traits::cluster_size;

    ptx::wait_for_preceding_kernel();
    const bool is_consumer = warp < Traits::consumer_warps;
    const pipeline::Tensor tensor = warp == Traits::consumer_warps ? pipeline::tensor_k : pipeline::tensor_v;
    Schedule schedule(params.schedule, shared.sequences, worker, rank);
    if (!is_consumer) {
        schedule.issue_length_loads();
        ptx::prefetch_tensor_map(tensor == pipeline::tensor_k ? &params.k_map : &params.v_map);
    } else if (threadIdx.x == 0) { /* while the lengths are on their way */
        shared.sequences = pipeline::Sequences(params.schedule);
        Ring::initialise(shared.barriers, Traits::team_warps);
        shared.pieces.initialise(Traits::consumer_threads);
        shared.exchange.initialise();
        ptx::fence_mbarrier_init();
    }
    __syncthreads();
    if constexpr (Traits::cluster_size > 1)
        ptx::cluster_arrive_relaxed(); /* this CTA's barriers are initialised */

    const Ring ring(shared.barriers, shared.tiles);
    if (is_consumer)
        consume(params, shared, ring, worker, rank, warp, lane);
    else if (warp == Traits::announcer_warp)
        announce(schedule, shared.pieces, lane);
    else
        produce(params, schedule, tensor, ring, lane);
}

extern "C" __device__ const libdecode_launch_contract VARIANT_CONTRACT = {
    .magic = LIBDECODE_CONTRACT_MAGIC,
    .abi = LIBDECODE_KERNEL_ABI,
    .family = KERNEL_FAMILY_GQA_DECODE,
    .parameter_bytes = sizeof(gqa_decode_params),
    .threads = Traits::threads,
    .dynamic_shared_bytes = shared_bytes,
    .ctas_per_sm = Traits::ctas_per_sm,
    .cluster_size = Traits::cluster_size,
    .query_dtype = VARIANT_QUERY_DTYPE,
    .kv_dtype = VARIANT_KV_DTYPE,
    .out_dtypes = 1u << KERNEL_DTYPE_BF16 | 1u << KERNEL_DTYPE_FP16,
    .head_dim = Traits::head_dim,
    .row_tile = Traits::row_tile,
    .tile_tokens = Traits::tile_tokens,
    .max_box_tokens = Traits::tile_tokens,
    .stages = Traits::stages,
    .min_page_size = 16,
    .max_page_size = 1024,
    .max_q_len = 1,
    .features = CONTRACT_FEATURE_WINDOW | CONTRACT_FEATURE_SINKS | CONTRACT_FEATURE_LSE | CONTRACT_FEATURE_V_PAGE_TABLE |
                CONTRACT_FEATURE_QUERY_POSITIONS | CONTRACT_FEATURE_SKIP_SOFTMAX,
    .flags = variant::contract_flags,
    .record_bytes = sizeof(pipeline::WorkerRecord<Traits::row_tile, Traits::head_dim>), /* the largest: of a cluster of one */
    .reserved = {},
};
