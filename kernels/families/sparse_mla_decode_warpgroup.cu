/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sparse MLA decode with 64 rows in one pass over the rows that a query token names: sparse_mla_decode.cu's formula, schedule and contract,
 * with the matrix instructions of warpgroups, which sm_90a has. Schedule, by role:
 *
 *     producer warps    three, as in sparse_mla_decode.cu, but with tiles of 32 tokens in turns
 *     announcer warp    likewise, and what K and V take of the scales of 64 tokens, two tiles (tile/scaled_tokens.cuh)
 *     score warpgroup   scores of 64 tokens, softmax, weights to shared memory
 *     output warpgroups two, each with a half of the dims of V (tile/gathered_warpgroup.cuh)
 *     at a unit's end through shared memory and out, or to the workers that share it: pipeline/transposed_store.cuh
 *
 * What they do with tokens i (time runs to the right); weights, and what is taken of scales, have two places:
 *
 *     announcer: tokens i are there, the scores of i - 2 are: factors of K | the outputs of i - 2 are: scales of V | ...
 *     score:     wait for the factors and the outputs of i - 2, K i to registers, Q K | softmax, weights i | Q K i+1 ...
 *     output:    wait for weights i and scales of V | V i to registers, p V, the tiles go back | ...
 *
 * So the scores of i + 1 are computed beside the outputs of i. The tensor core takes 1152 clocks for the scores of 64 tokens, and 1024 for
 * their outputs. The score warpgroup is what a tile waits for, at some 5 clocks for each of its instructions: hence two sums of scores, so
 * that no block of K waits for the end of the one before it; factors that another warp has worked out; logits and what lies between them and
 * references in one step; and sums of rows that come from shared memory and go back beside other things. Exponentials, 256 clocks, are most of what is
 * left behind the scores. Its vote on references stands in front of them. The first weights are there some 20,000 clocks after a CTA's
 * entry, when its queries, asked for at 7,000 ahead of all rows, and those of all other CTAs have come from memory; and from one unit to
 * the next go 13,000, for its end and the queries.
 *
 * V becomes fp16, of which a pair takes one instruction and its scale another; in bf16, whose exponents hold any scale, it took more than four. So
 * scales are counted in units of their block, which fp16 has room for.
 *
 * Registers: outputs have most of them. Beside the scores there is no room for sums of rows, which lie in shared memory then, and the
 * compiler spills some words of the other roles. It serialises the matrix instructions where it finds too few, for reasons that do not
 * show: tests/audit/test_instructions.py looks for that.
 *
 * Shared memory: struct SharedMemory below. Tiles have 32 tokens, not 64: a place is refilled as soon as the outputs have read half of their
 * tokens.
 */
#include <algorithm>
#include <cstddef>

#include "abi.h"
#include "pipeline/kv_ring.cuh"
#include "pipeline/piece_queue.cuh"
#include "pipeline/token_gather.cuh"
#include "pipeline/transposed_store.cuh"
#include "pipeline/weight_turns.cuh"
#include "ptx/registers.cuh"
#include "tile/gathered_warpgroup.cuh"
#include "tile/operand_query.cuh"
#include "tile/row_map.cuh"
#include "tile/scaled_tokens.cuh"
#include "variant.cuh"

namespace {

/* --------------------------------------------------------------------------------------------------------------- traits */

struct Traits {
    static constexpr int dtype = VARIANT_KV_DTYPE;
    static constexpr int head_dim = VARIANT_HEAD_DIM, v_dim = head_dim - 64;
    static constexpr int row_tile = VARIANT_ROW_TILE;
    using Format = tile::LatentRows<VARIANT_KV_ROW_FORMAT, dtype, head_dim>;
    static_assert(variant::target_sm == 90, "targets in the .toml: sm90 has wgmma");
    static_assert(head_dim == 576 && row_tile == tile::group_rows && VARIANT_CLUSTER_SIZE == 1, "the .toml: d576, r64, c1");

    static constexpr int output_groups = 2, output_threads = output_groups * tile::group_threads;
    static constexpr int score_warp = output_groups * tile::group_warps; /* the first of its warpgroup */
    static constexpr int consumer_warps = score_warp + tile::group_warps, consumer_threads = consumer_warps * 32;
    static constexpr int producer_warps = 3, announcer_warp = consumer_warps + producer_warps;
    static constexpr int warps = announcer_warp + 1;
    static_assert(warps % tile::group_warps == 0, "warpgroups give registers");
    static constexpr int threads = warps * 32;
    /* Of all threads at the start; then of those in each role. */
    static constexpr int registers = 65536 / threads & -8;
    static constexpr int output_registers = 176, score_registers = 112, other_registers = 48;
    static_assert(output_registers * output_groups + score_registers + other_registers <=
                      registers * (threads / tile::group_threads),
                  "registers of an SM");

    static_assert(output_registers > registers && score_registers <= registers && other_registers < registers,
                  "which roles take registers and which give some, as the instructions have it");

    static constexpr int tile_tokens = 32, score_tokens = tile::group_tokens;
    static constexpr int weight_places = 2;
    static constexpr int most_stages = 8;
};

using Format = Traits::Format;
using Query = tile::OperandQuery<Format>;
using Scores = tile::GroupSoftmax::Scores;
using Result = pipeline::TransposedResult<Format, Traits::v_dim, tile::ValueScales::largest_value, true>;
using Output = Result::Output;
using Schedule = pipeline::SparseSchedule<1>;
using Turn = pipeline::WeightTurn<Traits::weight_places>;
using Place = pipeline::GroupPlace;

constexpr int tile_bytes = Traits::tile_tokens * Format::row_bytes;

/* What output warpgroups are told of 64 tokens beside their weights. */
struct alignas(16) WeightNotes {
    float shrink[Traits::row_tile]; /* of the outputs before them, where references were raised */
    bool is_raised, has_second;     /* of two tiles */
};

/* All but the tiles. */
template <int stages>
struct WorkMemory {
    union {
        struct {
            Query query;
            alignas(1024) uint8_t weights[Traits::weight_places][tile::group_weight_bytes];
        };
        Result::Memory result;
    };
    uint32_t next_slice; /* of a unit that is added up: pipeline::SliceDealer */
    tile::GroupReferences references;
    alignas(16) float row_scale[Traits::row_tile];     /* of the rows' products with K; at the end of their results */
    alignas(16) float statistics[Traits::row_tile][2]; /* reference and sum of the rows of a piece */
    tile::SharedSums sums;
    tile::KeyFactors key_factors[Traits::weight_places];
    tile::ValueScales value_scales[Traits::weight_places];
    WeightNotes notes[Traits::weight_places];
    /* Of each place: one arrival of the announcer with what K takes and what V takes, of each warp that wrote weights, of each that read them. */
    uint64_t scaled[2][Traits::weight_places], published[Traits::weight_places], taken[Traits::weight_places];
    uint64_t asked; /* one arrival of each output warp: the first queries are on their way */
    pipeline::TileBits<stages, Traits::tile_tokens, 1> bits;
    pipeline::KvRingBarriers<stages, 1> barriers;
    pipeline::PieceQueue<tile::rows_alike> pieces;
    pipeline::Sequences sequences; /* for what is called rarely */
};

constexpr int stages = std::min(
    (variant::max_shared_bytes - static_cast<int>(sizeof(WorkMemory<Traits::most_stages>))) / tile_bytes, Traits::most_stages);
static_assert(stages >= 4, "shared memory of a CTA: scores and outputs have two tiles each");

struct SharedMemory {
    WorkMemory<stages> work;
    alignas(128) uint8_t tiles[stages][tile_bytes];
};
constexpr int shared_bytes = offsetof(SharedMemory, tiles) + sizeof(SharedMemory::tiles);
static_assert(shared_bytes <= variant::max_shared_bytes, "shared memory of a CTA");

using Ring = pipeline::KvRing<stages, tile_bytes, false, 1>;
using Gather =
    pipeline::TokenGather<Format, Ring, decltype(WorkMemory<stages>::bits), Traits::tile_tokens, 1, 1, Traits::producer_warps>;

/* Named barriers: of the consumer warps, of the output warpgroups together, of the score warpgroup; 0 is __syncthreads. */
enum : int { consumer_barrier = 1, output_barrier, score_barrier };

__device__ __forceinline__ void meet_consumers() { ptx::named_barrier<consumer_barrier, Traits::consumer_threads>(); }
__device__ __forceinline__ void meet_output() { ptx::named_barrier<output_barrier, Traits::output_threads>(); }

/* ------------------------------------------------------------------------------------------- consumers: one piece of a unit */

__device__ __forceinline__ tile::RowMap map_rows(const sparse_mla_decode_params &params,
                                                 const tile::UnitRows<tile::rows_alike> &unit, const pipeline::Piece &piece,
                                                 int first_row = 0) {
    return {params.schedule.group_size, unit.first_query_token, piece.kv_head, piece.row_pass * Traits::row_tile + first_row};
}

/* ----------------------------------------------------------------------------------------------------- the score warpgroup */

/*
 * What few tokens need, those of which some are missing, or that raise references, and any with a soft cap: from products to weights, and notes
 * of it. Whether references are so large now that all that follow need it. Not inlined: what the loop jumps over, it waits for. `seen`: of
 * the warp's 16 tokens. `scores`: products, then weights; they and `softmax` come through memory.
 */
__device__ __noinline__ bool weigh_rare(float cap, WorkMemory<stages> &work, uint32_t seen, WeightNotes &notes, Scores &scores,
                                        tile::GroupSoftmax &softmax) {
    const Place place(ptx::thread_index_here());
    const int lane = place.lane();
    Scores logits = scores;
#pragma unroll
    for (int n = 0; n < tile::group_row_fragments; ++n) {
        const float2 factors = tile::of_rows(work.row_scale, n, lane);
#pragma unroll
        for (int i = 0; i < 4; ++i)
            logits.value[0][n][i] *= i % 2 == 0 ? factors.x : factors.y;
    }
    if (cap > 0.f)
        tile::soft_cap(logits, cap);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const bool is_there = (seen >> (lane / 4 + half * 8) & 1) != 0;
#pragma unroll
        for (int n = 0; n < tile::group_row_fragments; ++n) {
            logits.value[0][n][half * 2] = is_there ? logits.value[0][n][half * 2] : -INFINITY;
            logits.value[0][n][half * 2 + 1] = is_there ? logits.value[0][n][half * 2 + 1] : -INFINITY;
        }
    }
    bool raises = tile::GroupSoftmax::weigh(logits, work.references, scores, lane);
    raises = ptx::named_barrier_any<tile::group_threads>(score_barrier, raises);
    if (raises) {
        softmax.raise(logits, work.references, place.warp(), lane, score_barrier);
        if (place.thread() < tile::group_rows)
            notes.shrink[place.thread()] = work.references.shrink[place.thread()];
        (void)tile::GroupSoftmax::weigh(logits, work.references, scores, lane);
    }
    if (place.thread() == 0)
        notes.is_raised = raises;
    return tile::GroupSoftmax::is_large(work.references, lane);
}

/* 64 tokens, two tiles of the ring, and which of them there are. */
struct Tokens {
    uint32_t tile[2]; /* the first one twice where there is no second */
    uint32_t seen[2];

    __device__ __forceinline__ uint32_t rows(int warp) const {
        return (warp < 2 ? tile[0] : tile[1]) + warp % 2 * (tile::fragment_tokens * Format::row_bytes);
    }
    __device__ __forceinline__ uint32_t seen_by(int warp) const {
        return (warp < 2 ? seen[0] : seen[1]) >> (warp % 2 * tile::fragment_tokens) & 0xffffu;
    }
};

/*
 * Scores and weights of all rows over the piece's tiles, two at a time, which are there when their scales are. What is alike for all lanes
 * comes from where the compiler knows that: matrix instructions in what it takes for a divergent path are serialised.
 */
__device__ __forceinline__ void attend_scores(const sparse_mla_decode_params &params, WorkMemory<stages> &work,
                                              const tile::UnitRows<tile::rows_alike> &unit, Ring &ring, const Place &place,
                                              Turn &turn) {
    int token = __shfl_sync(tile::full_warp, unit.first_token, 0);
    const int end_token = __shfl_sync(tile::full_warp, unit.end_token, 0);
    bool all_are_rare = params.query.soft_cap > 0.f;
    for (; token < end_token; token += Traits::score_tokens) {
        Tokens tokens;
        Scores scores, weights;
        pipeline::wait_for(work.scaled[pipeline::tensor_k][turn.place()], turn.parity());
        tokens.tile[0] = tokens.tile[1] = ring.tile(pipeline::tensor_k);
        tokens.seen[0] = work.bits.of(ring.stage());
        tokens.seen[1] = 0;
        const Ring first = ring;
        ring.advance();
        const bool has_second = end_token - token > Traits::tile_tokens;
        if (has_second) {
            tokens.tile[1] = ring.tile(pipeline::tensor_k);
            tokens.seen[1] = work.bits.of(ring.stage());
        }
        pipeline::wait_for(work.taken[turn.place()], turn.parity() ^ 1);
        WeightNotes &notes = work.notes[turn.place()];
        tile::group_latent_qk<Format>(scores, ptx::shared_address(&work.query), tokens.rows(place.warp()),
                                      work.key_factors[turn.place()].of_token, place.warp(), place.lane(), [&] {
                                          if (place.thread() == 0) {
                                              notes.has_second = has_second;
                                              notes.is_raised = false;
                                          }
                                      });
        const int lane = place.lane(), warp = place.warp(); /* anew: what is computed from them takes no registers above */
        tile::GroupSoftmax softmax;
        work.sums.load(softmax, place.thread());
        bool is_rare = all_are_rare || tokens.seen_by(warp) != 0xffffu;
        is_rare |= tile::GroupSoftmax::weigh(scores, work.row_scale, work.references, weights, lane);
        is_rare = ptx::named_barrier_any<tile::group_threads>(score_barrier, is_rare);
        if (pipeline::rarely(is_rare)) {
            Scores finished = scores; /* in memory, the others stay in registers */
            tile::GroupSoftmax raised = softmax;
            all_are_rare |= weigh_rare(params.query.soft_cap, work, tokens.seen_by(warp), notes, finished, raised);
            weights = finished;
            softmax = raised;
        }
        softmax.add<Format::matrix_dtype>(weights, ptx::shared_address(work.weights[turn.place()]), warp, lane);
        ptx::fence_async_proxy();
        __syncwarp();
        if (lane == 0)
            ptx::mbarrier_arrive(ptx::shared_address(&work.published[turn.place()]));
        work.sums.store(softmax, place.thread());
        ++turn.number;
        first.release(pipeline::tensor_k, place.lane());
        if (has_second) {
            ring.release(pipeline::tensor_k, place.lane());
            ring.advance();
        }
    }
}

__device__ __forceinline__ void consume_scores(const sparse_mla_decode_params &params, WorkMemory<stages> &work, Ring ring) {
    const Place place(ptx::thread_index_here());
    Turn turn;
    for (uint32_t number = 0;; ++number) {
        const auto &announced = work.pieces.wait_named(number);
        if (announced.piece.end_of_work)
            break;
        tile::GroupSoftmax softmax;
        softmax.clear(work.references, place.thread());
        work.sums.store(softmax, place.thread());
        meet_consumers(); /* Q is there */
        attend_scores(params, work, announced.rows, ring, place, turn);
        work.sums.load(softmax, place.thread());
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

/* Rows of Q into shared memory, by the output warpgroups. */
__device__ __forceinline__ void load_query(const sparse_mla_decode_params &params, WorkMemory<stages> &work,
                                           const tile::RowMap &rows, int live_rows, bool is_first) {
    static_assert(Query::threads == Traits::output_threads, "all threads of the output warpgroups");
    const int thread = ptx::thread_index_here();
    const auto asked = [&] {
        __syncwarp();
        if (is_first && thread % 32 == 0)
            ptx::mbarrier_arrive(ptx::shared_address(&work.asked));
    };
    work.query.load(params, rows, live_rows, thread, asked, tile::scale_log2(params.query) * Format::k_scale, work.row_scale);
    ptx::fence_async_proxy();
}

/* Outputs of all rows over the piece's tiles, which are there when their weights are, in units of the warpgroup's blocks. */
__device__ __forceinline__ void attend_output(WorkMemory<stages> &work, const tile::UnitRows<tile::rows_alike> &unit, Ring &ring,
                                              const Place &place, Output &output, float (&units)[tile::latent_blocks / 2],
                                              Turn &turn) {
    const int in_turns = (unit.end_token - unit.first_token + Traits::score_tokens - 1) / Traits::score_tokens;
    const auto give_back = [&] {
        if (place.lane() == 0)
            ptx::mbarrier_arrive(ptx::shared_address(&work.taken[turn.place()]));
        ++turn.number;
    };
    for (int turns = __shfl_sync(tile::full_warp, in_turns, 0); turns > 0; --turns) {
        pipeline::wait_for(work.scaled[pipeline::tensor_v][turn.place()], turn.parity());
        pipeline::wait_for(work.published[turn.place()], turn.parity());
        const WeightNotes &notes = work.notes[turn.place()];
        const tile::ValueScales &scales = work.value_scales[turn.place()];
        if (__any_sync(tile::full_warp, notes.is_raised))
            tile::shrink_output(output, notes.shrink, place.lane());
        if (__any_sync(tile::full_warp, scales.is_raised))
            tile::multiply_blocks(
                output, [&](int block) { return scales.shrink[block]; }, place.group);
        const bool has_second = __any_sync(tile::full_warp, notes.has_second);
        const tile::TokenFragments<Format, Traits::tile_tokens, Traits::tile_tokens / tile::fragment_tokens> tokens(
            0, Traits::tile_tokens, false, place.lane());
        /* A place is refilled as soon as its tile has been read. Where there is no second tile, weights and scales are zeros. */
        const auto tile_of = [&](int fragment) {
            if (fragment * tile::fragment_tokens == Traits::tile_tokens && has_second) {
                ring.release(pipeline::tensor_k, place.lane());
                ring.advance();
            }
            return ring.tile(pipeline::tensor_k);
        };
        uint32_t chunks[2][4];
        tile::load_first_values(chunks, ring.tile(pipeline::tensor_k), tokens, place.group, place.warp(), place.lane());
        tile::group_latent_pv<false>(output, ptx::shared_address(work.weights[turn.place()]), chunks, tokens,
                                     tile::ScaledValues(scales.of_token), 0, place.group, place.warp(), place.lane(), tile_of);
        ring.release(pipeline::tensor_k, place.lane());
        ring.advance();
        if (turns > 1)
            give_back();
    }
    units[0] = units[1] = 1.f;
    if (!__any_sync(tile::full_warp, in_turns > 0))
        return;
    const float(&of_blocks)[tile::latent_blocks] = work.value_scales[turn.place()].unit;
    units[0] = of_blocks[place.group * 2];
    units[1] = of_blocks[place.group * 2 + 1];
    __syncwarp();
    give_back();
}

__device__ __forceinline__ void consume_output(const sparse_mla_decode_params &params, WorkMemory<stages> &work, Ring ring) {
    const Place place(ptx::thread_index_here());
    Turn turn;
    for (uint32_t number = 0;; ++number) {
        const auto &announced = work.pieces.wait_named(number);
        if (announced.piece.end_of_work)
            break;
        load_query(params, work, map_rows(params, announced.rows, announced.piece), announced.rows.live_rows, number == 0);
        Output output;
        output.clear();
        meet_consumers(); /* Q is there */
        float units[tile::latent_blocks / 2];
        attend_output(work, announced.rows, ring, place, output, units, turn);
        work.pieces.wait_described(announced.number);
        meet_consumers(); /* statistics are there, and nobody reads query and weights any more */
        const auto rows_of = [&](int first_row) { return map_rows(params, announced.rows, announced.piece, first_row); };
        Result::hand_over(
            params, work.result, work.next_slice, work.statistics, work.row_scale, announced, rows_of, place, output,
            [&](int block) { return units[block % 2]; }, meet_output);
        number = announced.number; /* anew: kept over the loop it would take a register from it */
        work.pieces.pop(number);
    }
}

/* --------------------------------------------------------------------------------------------------------- the announcer warp */

/* What all others need of the scales of a piece's tokens, two tiles at a time, once they are there. */
__device__ __forceinline__ void scale_tokens(WorkMemory<stages> &work, const tile::UnitRows<tile::rows_alike> &unit, Ring &ring,
                                             Turn &turn, int lane) {
    constexpr int lane_tokens = 2, half_lanes = Traits::tile_tokens / lane_tokens;
    tile::ScaledTokensWriter<Format> writer;
    writer.begin();
    for (int token = unit.first_token; token < unit.end_token; token += Traits::score_tokens) {
        uint32_t row = 0, seen = 0; /* of the lane's two tokens */
        for (int half = 0; half < 2 && token + half * Traits::tile_tokens < unit.end_token; ++half) {
            ring.wait_full(pipeline::tensor_k);
            if (half == lane / half_lanes) {
                row = ring.tile(pipeline::tensor_k) + lane % half_lanes * (lane_tokens * Format::row_bytes);
                seen = work.bits.of(ring.stage()) >> (lane % half_lanes * lane_tokens) & 3;
            }
            ring.advance();
        }
        const uint32_t at = turn.place(), before = turn.parity() ^ 1;
        writer.load(row, seen);
        pipeline::wait_for(work.published[at], before); /* and so nobody reads the factors any more */
        writer.write(work.key_factors[at], lane);
        __syncwarp();
        if (lane == 0)
            ptx::mbarrier_arrive(ptx::shared_address(&work.scaled[pipeline::tensor_k][at]));
        pipeline::wait_for(work.taken[at], before);
        writer.write(work.value_scales[at], lane);
        __syncwarp();
        if (lane == 0)
            ptx::mbarrier_arrive(ptx::shared_address(&work.scaled[pipeline::tensor_v][at]));
        ++turn.number;
    }
}

} // namespace

extern "C" __global__ void __launch_bounds__(Traits::threads, 1)
    VARIANT_NAME(const __grid_constant__ sparse_mla_decode_params params) {
    extern __shared__ __align__(1024) uint8_t shared_memory[];
    SharedMemory &shared = *reinterpret_cast<SharedMemory *>(shared_memory);
    WorkMemory<stages> &work = shared.work;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

    ptx::wait_for_preceding_kernel();
    Schedule schedule(params.schedule, work.sequences, blockIdx.x, 0);
    if (warp >= Traits::consumer_warps) {
        schedule.issue_length_loads();
    } else if (threadIdx.x == 0) { /* while the lengths are on their way */
        work.sequences = pipeline::Sequences(params.schedule);
        Ring::initialise(work.barriers, 1, Traits::consumer_warps);
        for (int place = 0; place < Traits::weight_places; ++place) {
            ptx::mbarrier_init(ptx::shared_address(&work.scaled[pipeline::tensor_k][place]), 1);
            ptx::mbarrier_init(ptx::shared_address(&work.scaled[pipeline::tensor_v][place]), 1);
            ptx::mbarrier_init(ptx::shared_address(&work.published[place]), tile::group_warps);
            ptx::mbarrier_init(ptx::shared_address(&work.taken[place]), Traits::score_warp);
        }
        ptx::mbarrier_init(ptx::shared_address(&work.asked), Traits::score_warp);
        work.pieces.initialise(Traits::consumer_threads);
        ptx::fence_mbarrier_init();
    }
    __syncthreads();

    const Ring ring(work.barriers, shared.tiles);
    if (warp < Traits::score_warp) {
        ptx::take_registers<Traits::output_registers>();
        consume_output(params, work, ring);
        return;
    }
    if (warp < Traits::consumer_warps) {
        ptx::give_registers<Traits::score_registers>();
        consume_scores(params, work, ring);
        return;
    }
    ptx::give_registers<Traits::other_registers>();
    if (warp == Traits::announcer_warp) {
        schedule.count(); /* each for itself: the gather has no registers for what both would keep */
        Ring ahead = ring;
        Turn turn;
        pipeline::announce_query_tokens<Traits::row_tile>(params.schedule, schedule, work.pieces, lane, [&](const auto &piece) {
            scale_tokens(work, piece.rows, ahead, turn, lane);
        });
    } else if (warp < Traits::announcer_warp) {
        schedule.count();
        /* The first queries are asked for ahead of the first rows: all CTAs begin at once, and behind six tiles of each they come late. */
        Gather(params.schedule, params.sparse, warp - Traits::consumer_warps, ring, work.bits).run(schedule, lane, [&] {
            pipeline::wait_for(work.asked, 0);
        });
    }
}

extern "C" __device__ const libdecode_launch_contract VARIANT_CONTRACT = {
    .magic = LIBDECODE_CONTRACT_MAGIC,
    .abi = LIBDECODE_KERNEL_ABI,
    .family = KERNEL_FAMILY_SPARSE_MLA_DECODE,
    .parameter_bytes = sizeof(sparse_mla_decode_params),
    .threads = Traits::threads,
    .dynamic_shared_bytes = shared_bytes,
    .ctas_per_sm = 1,
    .cluster_size = 1,
    .query_dtypes = VARIANT_KV_ROW_FORMAT == KERNEL_KV_ROW_SCALED656
                        ? 1u << KERNEL_DTYPE_BF16
                        : 1u << KERNEL_DTYPE_BF16 | 1u << KERNEL_DTYPE_FP16 | 1u << KERNEL_DTYPE_E4M3,
    .kv_dtype = Traits::dtype,
    .out_dtypes = pipeline::out_dtypes<Format, Result::Slice>,
    .head_dim = Traits::head_dim,
    .row_tile = Traits::row_tile,
    .tile_tokens = Traits::score_tokens,
    .max_box_tokens = Traits::tile_tokens, /* of columns: a piece ends at a multiple of it */
    .stages = stages,
    .min_page_size = 1,
    .max_page_size = 1 << 20,
    .max_q_len = 1024,
    .features = pipeline::sparse_features, /* not batch-invariant, as gqa_decode_warpgroup.cu */
    .flags = variant::contract_flags | CONTRACT_FLAG_ROW_GATHER,
    .record_bytes = Result::record_bytes,
    .scratch_bytes = Result::scratch_bytes,
    .consumer_warps = Traits::consumer_warps,
    .kv_row_format = VARIANT_KV_ROW_FORMAT,
    .reserved = {},
};
