/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MLA decode with 64 rows in one pass over the latent rows: mla_decode.cu's formula, schedule and contract, with the matrix instructions of
 * warpgroups, which sm_90a has. Schedule, by role:
 *
 *     producer warps  as in mla_decode.cu, but a tile comes in parts (pipeline/part_ring.cuh), and where pages are smaller than a tile two
 *                     warps share them; the announcer warp as there
 *     consumer warps  two warpgroups, a seesaw: each has half of the columns of out, and computes the scores of every other tile
 *                     (pipeline/latent_seesaw.cuh, which has their timeline)
 *     at a unit's end from the registers, into out, or into scratch
 *
 * Shared memory: pipeline::SeesawMemory. p stands where the last line of Q was, which warps keep in registers.
 */
#include <cstddef>

#include "abi.h"
#include "pipeline/history.cuh"
#include "pipeline/latent_seesaw.cuh"
#include "pipeline/page_stream.cuh"
#include "pipeline/producer.cuh"
#include "pipeline/skip_votes.cuh"
#include "ptx/registers.cuh"
#include "variant.cuh"

namespace {

/* --------------------------------------------------------------------------------------------------------------- traits */

struct Traits {
    static constexpr int dtype = VARIANT_KV_DTYPE, head_dim = VARIANT_HEAD_DIM, row_tile = VARIANT_ROW_TILE;
    static constexpr int cluster_size = VARIANT_CLUSTER_SIZE;
    using Format = tile::KvFormat<dtype, head_dim>;
    using Seesaw = pipeline::LatentSeesaw<Format, dtype, head_dim, row_tile, cluster_size, row_tile, 1>;
    static_assert(variant::target_sm == 90, "targets in the .toml: sm90 has wgmma");

    static constexpr int producer_warps = 2, producer_barrier = Seesaw::query_barrier + 1;
    static constexpr int producer_warp = Seesaw::warps, announcer_warp = producer_warp + producer_warps;
    static constexpr int warps =
        Seesaw::warps + tile::group_warps; /* the last one has nothing to do: warpgroups give registers */
    static constexpr int threads = warps * 32;
    static constexpr int registers = 65536 / threads & -8, consumer_registers = 216, other_registers = 72;
    static_assert(consumer_registers * Seesaw::threads + other_registers * (threads - Seesaw::threads) <= registers * threads,
                  "registers of an SM");
};

using Format = Traits::Format;
using Seesaw = Traits::Seesaw;
using Ring = Seesaw::Ring;
using Schedule = pipeline::SplitSchedule<Traits::cluster_size, true>;
using Producer =
    pipeline::Producer<Format, Ring, Seesaw::tile_tokens, Traits::producer_warps, Traits::cluster_size, pipeline::NoVotes>;

using SharedMemory = Seesaw::SharedMemory;
/* Without the padding that the alignment adds to the end. */
constexpr int shared_bytes = offsetof(SharedMemory, sequences) + sizeof(pipeline::Sequences);
static_assert(shared_bytes <= variant::max_shared_bytes, "shared memory of a CTA");

/* What rows see: all of the tiles between two tokens; of the others each row something of its own. */
class View {
  public:
    static constexpr bool may_have_unseen_values = true;
    using Tile = int; /* its first token */

    __device__ __forceinline__ View(const mla_decode_params &params, const tile::UnitRows<Traits::row_tile> &unit,
                                    bool may_be_plain)
        : params_(params), unit_(unit), first_plain_(__shfl_sync(tile::full_warp, unit.common.first, 0)),
          end_plain_(__shfl_sync(tile::full_warp, may_be_plain ? unit.common.end : 0, 0)) {}
    __device__ __forceinline__ float soft_cap() const { return params_.query.soft_cap; }
    __device__ __forceinline__ Tile at(int token, const Ring &) const { return token; }
    __device__ __forceinline__ bool is_plain(Tile first_token) const {
        return first_token >= first_plain_ && first_token + Seesaw::tile_tokens <= end_plain_;
    }
    __device__ __forceinline__ void mask(tile::RowScores &scores, Tile first_token, const Seesaw::Place &place) const {
        tile::mask(
            scores, [&](int row) { return tokens(first_token).seen_by(row); }, place.first_row(), place.lane());
    }
    __device__ __forceinline__ uint64_t seen_by_any(Tile first_token) const { return tokens(first_token).seen_by_any(); }

  private:
    __device__ __forceinline__ tile::WarpTokens<Traits::row_tile, Seesaw::tile_tokens> tokens(Tile first_token) const {
        return {unit_, unit_.are_alike, first_token, unit_.end_token, unit_.common};
    }

    const mla_decode_params &params_;
    const tile::UnitRows<Traits::row_tile> &unit_;
    const int first_plain_, end_plain_;
};

} // namespace

extern "C" __global__ void __launch_bounds__(Traits::threads, 1) VARIANT_NAME(const __grid_constant__ mla_decode_params params) {
    extern __shared__ __align__(1024) uint8_t shared_memory[];
    SharedMemory &shared = *reinterpret_cast<SharedMemory *>(shared_memory);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

    ptx::wait_for_preceding_kernel_unless(params.schedule.rare & SCHEDULE_HISTORY_FINAL);
    const bool is_consumer = warp < Seesaw::warps;
    Schedule schedule(params.schedule, shared.sequences, blockIdx.x / Traits::cluster_size, Seesaw::cluster_rank());
    if (!is_consumer) {
        schedule.issue_length_loads();
        ptx::prefetch_tensor_map(&params.map);
    } else if (threadIdx.x == 0) { /* while the lengths are on their way */
        shared.sequences = pipeline::Sequences(params.schedule);
        Seesaw::initialise(shared, Producer::shares_tiles(params.schedule) ? Traits::producer_warps : 1);
        ptx::fence_mbarrier_init();
    } else if (warp == 1) {
        pipeline::prefetch_page_table(params.schedule, lane);
    }
    __syncthreads();
    if constexpr (Seesaw::has_cluster)
        ptx::cluster_arrive_relaxed(); /* this CTA's barriers are initialised */

    const Ring ring(shared.barriers, shared.tiles);
    if (is_consumer) {
        ptx::take_registers<Traits::consumer_registers>();
        Seesaw::consume(
            params, shared, ring, [&](uint32_t number) { shared.pieces.wait_described(number); },
            [&](const auto &rows, bool may_be_plain) { return View(params, rows, may_be_plain); });
        return;
    }
    ptx::give_registers<Traits::other_registers>();
    schedule.count();
    if (warp == Traits::announcer_warp) {
        pipeline::announce<false, Seesaw::tile_tokens, 1>(params.schedule, params.query, schedule, shared.pieces, lane);
    } else if (warp == Traits::producer_warp || (warp < Traits::announcer_warp && Producer::shares_tiles(params.schedule))) {
        pipeline::NoVotes votes;
        Producer(params.schedule, &params.map, {}, 0.f, pipeline::tensor_k, warp - Traits::producer_warp, ring, votes)
            .run(schedule, lane, [&](const pipeline::Piece &, uint32_t number, Ring &) {
                shared.exchange.come_to(number, shared.pieces, lane);
                if (number > 0)
                    return;
                if (warp == Traits::producer_warp && pipeline::rarely(pipeline::is_history_final(params.schedule)))
                    Seesaw::go_ahead_of_query();
                else if (warp == Traits::producer_warp)
                    Seesaw::wait_until_query_is_asked_for();
                if (Producer::shares_tiles(params.schedule))
                    ptx::named_barrier<Traits::producer_barrier, Traits::producer_warps * 32>();
            });
    }
    pipeline::meet_cluster<Traits::cluster_size>();
}

extern "C" __device__ const libdecode_launch_contract VARIANT_CONTRACT = {
    .magic = LIBDECODE_CONTRACT_MAGIC,
    .abi = LIBDECODE_KERNEL_ABI,
    .family = KERNEL_FAMILY_MLA_DECODE,
    .parameter_bytes = sizeof(mla_decode_params),
    .threads = Traits::threads,
    .dynamic_shared_bytes = shared_bytes,
    .ctas_per_sm = 1,
    .cluster_size = Traits::cluster_size,
    .query_dtypes = 1u << Traits::dtype,
    .kv_dtype = Traits::dtype,
    .out_dtypes = pipeline::out_dtypes<Format, Seesaw::Slice>,
    .head_dim = Traits::head_dim,
    .row_tile = Traits::row_tile,
    .tile_tokens = Seesaw::tile_tokens,
    .max_box_tokens = Seesaw::tile_tokens,
    .stages = Ring::num_stages,
    .min_page_size = 16,
    .max_page_size = 1024,
    .max_q_len = 1024,
    .features = CONTRACT_FEATURE_WINDOW | CONTRACT_FEATURE_SINKS | CONTRACT_LSE | CONTRACT_FEATURE_RAGGED_Q |
                CONTRACT_FEATURE_DRAFT_MASK | CONTRACT_FEATURE_QUERY_POSITIONS | CONTRACT_FEATURE_SKIP_SOFTMAX |
                CONTRACT_FEATURE_SOFT_CAP | CONTRACT_FEATURE_QUERY_ROPE, /* not batch-invariant, as gqa_decode_warpgroup.cu */
    .flags = variant::contract_flags | CONTRACT_FLAG_LINE_COPIES,
    .record_bytes = Seesaw::record_bytes,
    .scratch_bytes = Seesaw::scratch_bytes,
    .consumer_warps = Seesaw::warps,
    .reserved = {},
};
