/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sparse MLA decode with 64 rows in one pass over rows of bf16 or fp16, or of 352 bytes, that a query token names: sparse_mla_decode.cu's formula,
 * schedule and contract, with the matrix instructions of warpgroups, which sm_90a has. Schedule, by role:
 *
 *     list warp       token ids to where their rows lie, two tiles ahead (pipeline/token_list.cuh)
 *     copier warps    six: rows into tiles as dense MLA has them (pipeline/row_copier.cuh); those of 352 bytes as fp16, four of them V and two
 *                     the last line (pipeline/row_widener.cuh)
 *     announcer warp  as in sparse_mla_decode.cu
 *     consumer warps  the seesaw of dense MLA (pipeline/latent_seesaw.cuh, which has its timeline)
 *
 * Shared memory: struct SharedMemory below.
 */
#include <cstddef>
#include <type_traits>

#include "abi.h"
#include "pipeline/latent_seesaw.cuh"
#include "pipeline/row_copier.cuh"
#include "pipeline/row_widener.cuh"
#include "pipeline/token_gather.cuh"
#include "pipeline/token_list.cuh"
#include "ptx/registers.cuh"
#include "tile/widened_latent.cuh"
#include "variant.cuh"

namespace {

/* --------------------------------------------------------------------------------------------------------------- traits */

struct Traits {
    static constexpr int dtype = VARIANT_KV_DTYPE, head_dim = VARIANT_HEAD_DIM, row_tile = VARIANT_ROW_TILE;
    static constexpr bool widens = dtype == KERNEL_DTYPE_NVFP4; /* what lies in memory is not what is multiplied */
    using Format = std::conditional_t<widens, tile::WidenedLatent, tile::KvFormat<widens ? KERNEL_DTYPE_FP16 : dtype, head_dim>>;
    static_assert(variant::target_sm == 90, "targets in the .toml: sm90 has wgmma");
    static_assert(VARIANT_KV_ROW_FORMAT == (widens ? KERNEL_KV_ROW_NVFP352 : KERNEL_KV_ROW_PLAIN) && VARIANT_CLUSTER_SIZE == 1,
                  "the .toml: rows plain, or of 352 bytes; c1");

    static constexpr int copier_warps = 6;
    /* Of a row in the second cache: registers hold less of a tile ahead than copies on their way are. */
    static constexpr uint32_t asked_bytes = widens ? tile::WidenedLatent::Source::copied_bytes : 0;
    using Seesaw =
        pipeline::LatentSeesaw<Format, Format::matrix_dtype, head_dim, row_tile, 1, tile::rows_alike, copier_warps, true>;
    static constexpr int list_warp = Seesaw::warps + copier_warps, announcer_warp = list_warp + 1;
    static constexpr int warps = Seesaw::warps + 2 * tile::group_warps; /* warpgroups give registers */
    static_assert(announcer_warp < warps, "a warp for each role");
    static constexpr int threads = warps * 32;
    /* Of all threads at the start; then of those in each role. */
    static constexpr int registers = 65536 / threads & -8, consumer_registers = 208, other_registers = 48;
    static_assert(consumer_registers * Seesaw::threads + other_registers * (threads - Seesaw::threads) <= registers * threads,
                  "registers of an SM");
};

using Seesaw = Traits::Seesaw;
using Ring = Seesaw::Ring;
using Schedule = pipeline::SparseSchedule<1>;

/* Who brings V, or whole rows; and who brings the last line, where those are others. */
template <class Ring, class Format>
struct Copiers {
    using Values = pipeline::RowCopier<Ring, pipeline::PartCopies<Ring, Traits::copier_warps>, Traits::copier_warps>;
    using LastLine = Values;
    static constexpr int value_warps = Traits::copier_warps;
};
template <class Ring>
struct Copiers<Ring, tile::WidenedLatent> {
    using Values = pipeline::RowWidener<Ring, tile::WidenedLatent, true>;
    using LastLine = pipeline::RowWidener<Ring, tile::WidenedLatent, false>;
    static constexpr int value_warps = Values::value_warps;
    static_assert(value_warps + LastLine::last_line_warps == Traits::copier_warps, "warps of all");
};
using Values = Copiers<Ring, Traits::Format>::Values;
using LastLine = Copiers<Ring, Traits::Format>::LastLine;
constexpr int last_line_warp = Seesaw::warps + Copiers<Ring, Traits::Format>::value_warps;

struct SharedMemory {
    Seesaw::SharedMemory seesaw;
    pipeline::TokenList list;
    uint64_t seen[Ring::num_stages]; /* of the tile in each place: a bit for each token that there is */
};
constexpr int shared_bytes = sizeof(SharedMemory);
static_assert(shared_bytes <= variant::max_shared_bytes, "shared memory of a CTA");

/* What rows see: all tokens that there are. */
class View {
  public:
    static constexpr bool may_have_unseen_values = false; /* the copiers make them zeros */
    using Tile = uint64_t;                                /* a bit for each token */

    __device__ __forceinline__ View(const sparse_mla_decode_params &params, const uint64_t *seen, bool may_be_plain)
        : params_(params), seen_(ptx::shared_address(seen)), may_be_plain_(may_be_plain) {}
    __device__ __forceinline__ float soft_cap() const { return params_.query.soft_cap; }
    __device__ __forceinline__ Tile at(int, const Ring &ring) const {
        ring.wait_full(Ring::first_part);
        uint32_t words[2];
        ptx::load_shared(words, seen_ + ring.stage() * sizeof(uint64_t));
        return static_cast<uint64_t>(words[1]) << 32 | words[0];
    }
    __device__ __forceinline__ bool is_plain(Tile seen) const {
        return !__any_sync(tile::full_warp, !may_be_plain_ || seen != ~uint64_t{0});
    }
    __device__ __forceinline__ void mask(tile::RowScores &scores, Tile seen, const Seesaw::Place &place) const {
        tile::mask(
            scores, [&](int) { return seen; }, place.first_row(), place.lane());
    }

  private:
    const sparse_mla_decode_params &params_;
    const uint32_t seen_;
    const bool may_be_plain_;
};

} // namespace

extern "C" __global__ void __launch_bounds__(Traits::threads, 1)
    VARIANT_NAME(const __grid_constant__ sparse_mla_decode_params params) {
    extern __shared__ __align__(1024) uint8_t shared_memory[];
    SharedMemory &shared = *reinterpret_cast<SharedMemory *>(shared_memory);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

    ptx::wait_for_preceding_kernel();
    Schedule schedule(params.schedule, shared.seesaw.sequences, blockIdx.x, 0);
    if (warp >= Seesaw::warps) {
        schedule.issue_length_loads();
    } else if (threadIdx.x == 0) { /* while the lengths are on their way */
        shared.seesaw.sequences = pipeline::Sequences(params.schedule);
        Seesaw::initialise(shared.seesaw, Values::arrivals);
        shared.list.initialise(Traits::copier_warps);
        ptx::fence_mbarrier_init();
    }
    __syncthreads();

    const Ring ring(shared.seesaw.barriers, shared.seesaw.tiles);
    if (warp < Seesaw::warps) {
        ptx::take_registers<Traits::consumer_registers>();
        Seesaw::consume(
            params, shared.seesaw, ring, [&](uint32_t number) { shared.seesaw.pieces.wait_described(number); },
            [&](const auto &, bool may_be_plain) { return View(params, shared.seen, may_be_plain); });
        return;
    }
    /*
     * Each role gives registers for itself: the compiler finds room for more then. The first queries are asked for ahead of the first rows: all CTAs
     * begin at once.
     */
    if (warp < last_line_warp) {
        ptx::give_registers<Traits::other_registers>();
        Values(shared.list, ring, shared.seen, warp - Seesaw::warps, lane).run(Seesaw::wait_until_query_is_asked_for);
        return;
    }
    if (warp < Traits::list_warp) {
        ptx::give_registers<Traits::other_registers>();
        LastLine(shared.list, ring, shared.seen, warp - last_line_warp, lane).run(Seesaw::wait_until_query_is_asked_for);
        return;
    }
    ptx::give_registers<Traits::other_registers>();
    if (warp == Traits::announcer_warp) {
        schedule.count(); /* each for itself: what the copiers do takes 2 % longer otherwise */
        pipeline::announce_query_tokens<Traits::row_tile>(params.schedule, schedule, shared.seesaw.pieces, lane);
    } else if (warp == Traits::list_warp) {
        schedule.count();
        pipeline::TokenListWriter<Traits::asked_bytes>(params.schedule, params.sparse, shared.list).run(schedule, lane);
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
    .query_dtypes =
        Traits::widens ? 1u << KERNEL_DTYPE_BF16 | 1u << KERNEL_DTYPE_FP16 | 1u << KERNEL_DTYPE_E4M3 : 1u << Traits::dtype,
    .kv_dtype = Traits::dtype,
    .out_dtypes = pipeline::out_dtypes<Traits::Format, Seesaw::Slice>,
    .head_dim = Traits::head_dim,
    .row_tile = Traits::row_tile,
    .tile_tokens = Seesaw::tile_tokens,
    .max_box_tokens = Seesaw::tile_tokens, /* of columns: a piece ends at a multiple of it */
    .stages = Ring::num_stages,
    .min_page_size = 1,
    .max_page_size = 1 << 20,
    .max_q_len = 1024,
    .features = pipeline::sparse_features, /* not batch-invariant, as gqa_decode_warpgroup.cu */
    .flags = variant::contract_flags | CONTRACT_FLAG_ROW_GATHER,
    .record_bytes = Seesaw::record_bytes,
    .scratch_bytes = Seesaw::scratch_bytes,
    .consumer_warps = Seesaw::warps,
    .kv_row_format = VARIANT_KV_ROW_FORMAT,
    .reserved = {},
};
