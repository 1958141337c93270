/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sparse MLA decode with 64 rows in one pass over plain rows of FP8 that a query token names: sparse_mla_decode.cu's formula, schedule and
 * contract, with the matrix instructions of warpgroups, which sm_90a has. Schedule, by role:
 *
 *     list warp       token ids to where their rows lie, two tiles ahead (pipeline/token_list.cuh)
 *     copier warps    two: rows into tiles as dense MLA has them (pipeline/row_copier.cuh)
 *     announcer warp  as in sparse_mla_decode.cu
 *     consumer warps  the score warpgroup and the output warpgroups of dense MLA (pipeline/latent_relay.cuh, which has their timeline)
 *
 * Shared memory: struct SharedMemory below.
 */
#include <cstddef>

#include "abi.h"
#include "pipeline/latent_relay.cuh"
#include "pipeline/row_copier.cuh"
#include "pipeline/token_gather.cuh"
#include "pipeline/token_list.cuh"
#include "ptx/registers.cuh"
#include "variant.cuh"

namespace {

/* --------------------------------------------------------------------------------------------------------------- traits */

/* Beside what the consumers have of shared memory; `stages`: of their ring. */
template <int stages>
struct Lists {
    pipeline::TokenList list;
    uint64_t seen[stages]; /* of the tile in each place: a bit for each token that there is */
};

struct Traits {
    static constexpr int dtype = VARIANT_KV_DTYPE, head_dim = VARIANT_HEAD_DIM, row_tile = VARIANT_ROW_TILE;
    /* Rows of 512, too, in lines of 64 bytes, as the queries beside which they are operands. */
    using Format = tile::Fp8Format<tile::E4m3Pairs, head_dim, tile::TileRows<head_dim, 64>>;
    static_assert(variant::target_sm == 90, "targets in the .toml: sm90 has wgmma");
    static_assert(VARIANT_KV_ROW_FORMAT == KERNEL_KV_ROW_PLAIN && VARIANT_CLUSTER_SIZE == 1, "the .toml: rows plain, c1");
    static_assert(dtype == KERNEL_DTYPE_E4M3, "the .toml: e4m3");

    static constexpr int copier_warps = 2, most_stages = 4;
    using Relay =
        pipeline::LatentRelay<Format, head_dim, row_tile, tile::rows_alike, copier_warps, sizeof(Lists<most_stages>), true>;
    static_assert(Relay::stages <= most_stages, "room for their lists");
    static constexpr int list_warp = Relay::warps + copier_warps, announcer_warp = list_warp + 1, warps = announcer_warp + 1;
    static_assert(warps % tile::group_warps == 0, "warpgroups give registers");
    static constexpr int threads = warps * 32;
    static_assert(threads == Relay::all_threads, "registers of each role");
};

using Format = Traits::Format;
using Relay = Traits::Relay;
using Ring = Relay::Ring;
using Schedule = pipeline::SparseSchedule<1>;
using Copier = pipeline::RowCopier<Ring, pipeline::ByteCopies<Ring, Format, Traits::copier_warps>, Traits::copier_warps>;

struct SharedMemory {
    alignas(1024) uint8_t tiles[Relay::stages][Relay::TileLayout::bytes];
    alignas(1024) Relay::WorkMemory work;
    Lists<Relay::stages> lists;
};
/* Without the padding that the alignment adds to the end. */
constexpr int shared_bytes = offsetof(SharedMemory, lists) + sizeof(Lists<Relay::stages>);
static_assert(shared_bytes <= variant::max_shared_bytes, "shared memory of a CTA");

/* What rows see: all tokens that there are. */
class View {
  public:
    using Tile = uint64_t; /* a bit for each token */

    __device__ __forceinline__ View(const sparse_mla_decode_params &params, const uint64_t (&seen)[Relay::stages])
        : seen_(ptx::shared_address(seen)), may_be_plain_(!__any_sync(tile::full_warp, params.query.soft_cap > 0.f)) {}
    __device__ __forceinline__ Tile at(int, const Ring &ring) const {
        uint32_t words[2];
        ptx::load_shared(words, seen_ + ring.stage() * sizeof(uint64_t));
        return static_cast<uint64_t>(words[1]) << 32 | words[0];
    }
    __device__ __forceinline__ bool is_plain(Tile seen) const { return may_be_plain_ && seen == ~uint64_t{0}; }
    __device__ __forceinline__ void nothing_is_plain() { may_be_plain_ = false; }
    static __device__ __forceinline__ uint64_t mask(Relay::Scores &scores, const Relay::Unit &, Tile seen, int warp, int lane) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            if ((seen >> (warp * tile::fragment_tokens + lane / 4 + half * 8) & 1) != 0)
                continue;
#pragma unroll
            for (int n = 0; n < tile::group_row_fragments; ++n)
                scores.value[0][n][half * 2] = scores.value[0][n][half * 2 + 1] = -INFINITY;
        }
        return seen;
    }

  private:
    const uint32_t seen_;
    bool may_be_plain_;
};

} // namespace

extern "C" __global__ void __launch_bounds__(Traits::threads, 1)
    VARIANT_NAME(const __grid_constant__ sparse_mla_decode_params params) {
    extern __shared__ __align__(1024) uint8_t shared_memory[];
    SharedMemory &shared = *reinterpret_cast<SharedMemory *>(shared_memory);
    Relay::WorkMemory &work = shared.work;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

    ptx::wait_for_preceding_kernel();
    Schedule schedule(params.schedule, work.sequences, blockIdx.x, 0);
    if (warp >= Relay::warps) {
        schedule.issue_length_loads();
    } else if (threadIdx.x == 0) { /* while the lengths are on their way */
        work.sequences = pipeline::Sequences(params.schedule);
        Relay::initialise(work, Copier::arrivals);
        shared.lists.list.initialise(Traits::copier_warps);
        ptx::fence_mbarrier_init();
    }
    __syncthreads();

    const Ring ring(work.barriers, shared.tiles);
    if (warp < Relay::score_warp) {
        ptx::take_registers<Relay::output_registers>();
        Relay::consume_output(params, work, ring);
        return;
    }
    if (warp < Relay::warps) {
        ptx::give_registers<Relay::score_registers>();
        Relay::consume_scores(params, work, ring, [&](const Relay::Unit &) { return View(params, shared.lists.seen); });
        return;
    }
    ptx::give_registers<Relay::other_registers>();
    if (warp == Traits::announcer_warp) {
        schedule.count(); /* each for itself: what the copiers do takes longer otherwise */
        pipeline::announce_query_tokens<Traits::row_tile>(params.schedule, schedule, work.pieces, lane);
    } else if (warp == Traits::list_warp) {
        schedule.count();
        pipeline::TokenListWriter<>(params.schedule, params.sparse, shared.lists.list).run(schedule, lane);
    } else {
        /* The first queries are asked for ahead of the first rows: all CTAs begin at once. */
        Copier(shared.lists.list, ring, shared.lists.seen, warp - Relay::warps, lane).run(Relay::wait_until_query_is_asked_for);
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
    .query_dtypes = 1u << KERNEL_DTYPE_BF16 | 1u << KERNEL_DTYPE_FP16 | 1u << KERNEL_DTYPE_E4M3,
    .kv_dtype = Traits::dtype,
    .out_dtypes = pipeline::out_dtypes<Format, Relay::Result::Slice>,
    .head_dim = Traits::head_dim,
    .row_tile = Traits::row_tile,
    .tile_tokens = Relay::tile_tokens,
    .max_box_tokens = Relay::tile_tokens, /* of columns: a piece ends at a multiple of it */
    .stages = Relay::stages,
    .min_page_size = 1,
    .max_page_size = 1 << 20,
    .max_q_len = 1024,
    .features = pipeline::sparse_features, /* not batch-invariant, as gqa_decode_warpgroup.cu */
    .flags = variant::contract_flags | CONTRACT_FLAG_ROW_GATHER,
    .record_bytes = Relay::Result::record_bytes,
    .scratch_bytes = Relay::Result::scratch_bytes,
    .consumer_warps = Relay::warps,
    .kv_row_format = VARIANT_KV_ROW_FORMAT,
    .reserved = {},
};
