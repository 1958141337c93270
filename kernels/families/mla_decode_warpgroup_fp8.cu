/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MLA decode of FP8 rows with 64 query rows in one pass: mla_decode.cu's formula, schedule and contract, with the matrix instructions of
 * warpgroups, which sm_90a has. Schedule, by role:
 *
 *     producer warp     as in mla_decode.cu
 *     announcer warp    likewise
 *     consumer warps    a score warpgroup and two output warpgroups (pipeline/latent_relay.cuh, which has their timeline)
 *
 * Shared memory: struct SharedMemory below.
 */
#include <cstddef>

#include "abi.h"
#include "pipeline/first_query.cuh"
#include "pipeline/history.cuh"
#include "pipeline/latent_relay.cuh"
#include "pipeline/page_stream.cuh"
#include "pipeline/producer.cuh"
#include "pipeline/skip_votes.cuh"
#include "ptx/registers.cuh"
#include "variant.cuh"

namespace {

/* --------------------------------------------------------------------------------------------------------------- traits */

struct Traits {
    static constexpr int dtype = VARIANT_KV_DTYPE, head_dim = VARIANT_HEAD_DIM, row_tile = VARIANT_ROW_TILE;
    using Format = tile::KvFormat<dtype, head_dim>;
    using Relay = pipeline::LatentRelay<Format, head_dim, row_tile, row_tile, 1, 0>;
    static_assert(variant::target_sm == 90 && VARIANT_CLUSTER_SIZE == 1, "the .toml: c1; sm90 has wgmma");

    static constexpr int producer_warp = Relay::warps, announcer_warp = producer_warp + 1;
    static constexpr int warps =
        Relay::warps + tile::group_warps; /* the last two have nothing to do: warpgroups give registers */
    static constexpr int threads = warps * 32;
    static_assert(threads == Relay::all_threads, "registers of each role");
};

using Format = Traits::Format;
using Relay = Traits::Relay;
using Ring = Relay::Ring;
using Schedule = pipeline::SplitSchedule<1, true>;
using Producer = pipeline::Producer<Format, Ring, Relay::tile_tokens, 1, 1, pipeline::NoVotes>;

struct SharedMemory {
    alignas(1024) uint8_t tiles[Relay::stages][Relay::TileLayout::bytes];
    alignas(1024) Relay::WorkMemory work;
};
/* Without the padding that the alignment adds to the end. */
constexpr int shared_bytes = offsetof(SharedMemory, work) + sizeof(Relay::WorkMemory);
static_assert(shared_bytes <= variant::max_shared_bytes, "shared memory of a CTA");

/* What rows see: all of the tiles between two tokens; of the others each row something of its own. */
class View {
  public:
    using Tile = int; /* its first token */

    __device__ __forceinline__ View(const mla_decode_params &params, const Relay::Unit &unit)
        : first_plain_(__shfl_sync(tile::full_warp, unit.common.first, 0)),
          end_plain_(__shfl_sync(tile::full_warp, params.query.soft_cap > 0.f ? 0 : unit.common.end, 0)) {}
    __device__ __forceinline__ Tile at(int token, const Ring &) const { return token; }
    __device__ __forceinline__ bool is_plain(Tile first_token) const {
        return first_token >= first_plain_ && first_token + Relay::tile_tokens <= end_plain_;
    }
    __device__ __forceinline__ void nothing_is_plain() { end_plain_ = 0; }
    static __device__ __forceinline__ uint64_t mask(Relay::Scores &scores, const Relay::Unit &unit, Tile first_token, int warp,
                                                    int lane) {
        const tile::WarpTokens<Traits::row_tile, Relay::tile_tokens> tokens{unit, unit.are_alike, first_token, unit.end_token,
                                                                            unit.common};
        if (tokens.all_visible())
            return ~uint64_t{0};
        tile::mask(scores,
                   tile::WarpTokens<Traits::row_tile, tile::fragment_tokens>{
                       unit, unit.are_alike, first_token + warp * tile::fragment_tokens, unit.end_token, unit.common},
                   0, lane);
        return tokens.seen_by_any();
    }

  private:
    const int first_plain_;
    int end_plain_;
};

} // namespace

extern "C" __global__ void __launch_bounds__(Traits::threads, 1) VARIANT_NAME(const __grid_constant__ mla_decode_params params) {
    extern __shared__ __align__(1024) uint8_t shared_memory[];
    SharedMemory &shared = *reinterpret_cast<SharedMemory *>(shared_memory);
    Relay::WorkMemory &work = shared.work;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

    ptx::wait_for_preceding_kernel_unless(params.schedule.rare & SCHEDULE_HISTORY_FINAL);
    const bool is_consumer = warp < Relay::warps;
    Schedule schedule(params.schedule, work.sequences, blockIdx.x, 0);
    if (!is_consumer) {
        schedule.issue_length_loads();
        ptx::prefetch_tensor_map(&params.map);
    } else if (threadIdx.x == 0) { /* while the lengths are on their way */
        work.sequences = pipeline::Sequences(params.schedule);
        Relay::initialise(work, 1);
        ptx::fence_mbarrier_init();
    } else if (warp == 1) {
        pipeline::prefetch_page_table(params.schedule, lane);
    }
    __syncthreads();

    const Ring ring(work.barriers, shared.tiles);
    if (warp < Relay::score_warp) {
        ptx::take_registers<Relay::output_registers>();
        pipeline::prefetch_first_query<Relay::Query, Traits::row_tile>(params, blockIdx.x, Relay::output_threads);
        Relay::consume_output(params, work, ring);
        return;
    }
    if (is_consumer) {
        ptx::give_registers<Relay::score_registers>();
        Relay::consume_scores(params, work, ring, [&](const Relay::Unit &unit) { return View(params, unit); });
        return;
    }
    ptx::give_registers<Relay::other_registers>();
    schedule.count();
    if (warp == Traits::announcer_warp) {
        pipeline::announce<false, Relay::tile_tokens, 1>(params.schedule, params.query, schedule, work.pieces, lane);
    } else if (warp == Traits::producer_warp) {
        pipeline::NoVotes votes;
        Producer(params.schedule, &params.map, {}, 0.f, pipeline::tensor_k, 0, ring, votes)
            .run(schedule, lane, [&](const pipeline::Piece &, uint32_t number, Ring &) {
                if (number == 0 && pipeline::rarely(pipeline::is_history_final(params.schedule)))
                    Relay::go_ahead_of_query();
                else if (number == 0)
                    Relay::wait_until_query_is_asked_for();
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
    .out_dtypes = pipeline::out_dtypes<Format, Relay::Result::Slice>,
    .head_dim = Traits::head_dim,
    .row_tile = Traits::row_tile,
    .tile_tokens = Relay::tile_tokens,
    .max_box_tokens = Relay::tile_tokens,
    .stages = Relay::stages,
    .min_page_size = 16,
    .max_page_size = 1024,
    .max_q_len = 1024,
    .features = CONTRACT_FEATURE_WINDOW | CONTRACT_FEATURE_SINKS | CONTRACT_LSE | CONTRACT_FEATURE_RAGGED_Q |
                CONTRACT_FEATURE_DRAFT_MASK | CONTRACT_FEATURE_QUERY_POSITIONS | CONTRACT_FEATURE_SKIP_SOFTMAX |
                CONTRACT_FEATURE_SOFT_CAP | CONTRACT_FEATURE_QUERY_ROPE, /* not batch-invariant, as gqa_decode_warpgroup.cu */
    .flags = variant::contract_flags,
    .record_bytes = Relay::Result::record_bytes,
    .scratch_bytes = Relay::Result::scratch_bytes,
    .consumer_warps = Relay::warps,
    .reserved = {},
};
