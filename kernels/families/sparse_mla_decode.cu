/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sparse MLA decode: each query token attends to rows of a paged cache that it names, by physical token ids.
 *
 *     k_i = row ids[t][i] of the cache, v_i = the first elements of it, for every column i that query token t uses and whose id
 *           names a row
 *     z_i = bmm1_scale * q . k_i        then as mla_decode.cu: soft cap, softmax with sink, out = bmm2_scale * sum p_i v_i, lse
 *
 * A unit is a query token and some of its heads, in passes of row_tile over its rows; the columns of its ids are what mla_decode.cu
 * calls its tokens (visible_range.cuh). Schedule, by role:
 *
 *     producer warps  each walks split_schedule.cuh and copies its part of the rows of every tile, a bulk copy each
 *                     (token_gather.cuh)
 *     announcer warp  walks the same schedule and hands the pieces to the consumers
 *     consumer warps  eight or sixteen, all at the same tile, or, as two teams, half of them at every other one (mla_decode.cu):
 *
 *         qk          warp = (some of the tokens, quarter of the dims)   scores, in four parts, to shared memory
 *         ----------  barrier
 *         weights     warp = its part of the rows                        adds the parts, masks what is missing, softmax; weights to
 *                                                                        shared memory
 *         ----------  barrier
 *         pv          warp = its part of the dims of V                   out of the tile that K was read from; gives it back
 *
 *     rows of 656 bytes: V is multiplied by its tokens' scales, in a unit of their block, and the output by that in the end
 *     (tile/block_scales.cuh); a warp's dims are of one block
 *
 *     at a unit's end partial.cuh: the cluster's sums fold, then those of the workers that share the unit, all in the registers and in
 *     the places where mma left them; what single CTAs leave for each other lies in scratch (fragment_slice_fold.cuh)
 *
 * Passes over one query token run beside each other, on workers of one group, so that all but one read the L2 cache. Memory answers an
 * SM in the order in which it was asked, so the announcer asks for the first queries while the ids of the first rows are on their way.
 *
 * Shared memory: struct SharedMemory below. What a unit needs at its beginning (query) and during its tiles (scores) takes turns in one
 * place. The first queries are sent to where they will lie, and from there go through registers.
 */
#include <algorithm>
#include <cstddef>
#include <type_traits>

#include "abi.h"
#include "pipeline/cluster_exchange.cuh"
#include "pipeline/fragment_result.cuh"
#include "pipeline/fragment_slice.cuh"
#include "pipeline/fragment_store.cuh"
#include "pipeline/kv_ring.cuh"
#include "pipeline/piece_queue.cuh"
#include "pipeline/tile_walk.cuh"
#include "pipeline/token_gather.cuh"
#include "tile/block_scales.cuh"
#include "tile/gathered_attention.cuh"
#include "tile/latent_query.cuh"
#include "tile/row_map.cuh"
#include "tile/team_attention.cuh"
#include "variant.cuh"

namespace {

/* --------------------------------------------------------------------------------------------------------------- traits */

struct Traits {
    static constexpr int dtype = VARIANT_KV_DTYPE;
    static constexpr int head_dim = VARIANT_HEAD_DIM, v_dim = head_dim == 512 ? head_dim : head_dim - 64;
    static constexpr int row_tile = VARIANT_ROW_TILE;
    static constexpr int cluster_size = VARIANT_CLUSTER_SIZE;
    using Format = tile::LatentRows<VARIANT_KV_ROW_FORMAT, dtype, head_dim>;
    static_assert(head_dim == 576 || head_dim == 512 || head_dim == 320, "head_dim in the .toml: 576, 512 or 320");
    static_assert(row_tile == 16 || row_tile == 32, "row_tile in the .toml: 16 or 32");

    static constexpr bool small = variant::target_sm == 120; /* 99 KiB of shared memory, a fifth of the bandwidth */
    /*
     * Two take turns at the tiles, as in mla_decode.cu, where rows are FP8: others take longer so. Pieces of larger clusters are a few tiles,
     * which are over sooner by all warps at once.
     */
    static constexpr int teams = dtype == KERNEL_DTYPE_E4M3 && row_tile == 16 && !small && cluster_size <= 2 ? 2 : 1;
    /* Sixteen where their registers have room, and the output of a warp is no less than what its format reads at a time. */
    static constexpr bool is_wide = !small && row_tile == 16 && teams == 1 && v_dim == 512 && dtype != KERNEL_DTYPE_NVFP4;
    static constexpr int consumer_warps = is_wide ? 16 : 8, consumer_threads = consumer_warps * 32;
    static constexpr int team_warps = consumer_warps / teams, team_threads = team_warps * 32;
    /* Registers of all warps are alike: fewer beside sixteen, and beside 32 rows, which take longer to compute than to come. */
    static constexpr int producer_warps = row_tile == 32 || is_wide || teams > 1 ? 2 : 4;
    static constexpr int announcer_warp = consumer_warps + producer_warps;
    static constexpr int threads = (announcer_warp + 1) * 32;

    /* Fewer for teams, where shared memory is small, and where a cluster exchanges 32 rows. */
    static constexpr int tile_tokens = teams > 1 || small || (row_tile == 32 && cluster_size > 1) ? 32 : 64;
    static constexpr int dim_groups = 4, token_groups = team_warps / dim_groups; /* of the warps of qk */
    static constexpr int token_fragments = tile_tokens / token_groups / tile::fragment_tokens;
    static constexpr int warp_rows = row_tile / team_warps;
    static constexpr int warp_steps = v_dim / 16 / team_warps; /* over the dims of V */
    /* Of these, of plain tiles of teams, that are asked for ahead of the weights: as many as registers are left for. */
    static constexpr int steps_ahead = Format::has_block_scales ? 4 : warp_steps - 2;
    static constexpr int query_rows = row_tile / consumer_warps; /* that a warp loads */
    static constexpr int most_stages = 8;
    /* Beside the output of 32 rows, and the scores, registers hold no queries; nor, but for teams, beside rows that are converted. */
    static constexpr bool keeps_query =
        teams > 1 ? !(variant::target_sm == 100 && Format::has_block_scales) : row_tile == 16 && !Format::converts_query;
};

using Format = Traits::Format;
using TileLayout = tile::TileLayout<Format, Traits::tile_tokens>;
using KeyTokens = tile::TokenFragments<Format, Traits::tile_tokens, Traits::token_fragments>;
using ValueTokens = tile::TokenFragments<Format, Traits::tile_tokens, Traits::tile_tokens / tile::fragment_tokens>;
using Tokens = tile::GatheredTokens<Traits::tile_tokens>;
using Steps = tile::StepRange<Format, Traits::dim_groups>;
using SharedQuery = tile::LatentQuery<Format, Traits::row_tile>;
using SentQuery = tile::SentLatentQuery<SharedQuery, Traits::row_tile>;
using Query = std::conditional_t<Traits::keeps_query, tile::LatentQueryFragment<Format, Traits::row_tile, Traits::dim_groups>,
                                 tile::LatentQueryReader<Format, Traits::row_tile, Traits::dim_groups>>;
using Softmax = tile::RowsSoftmax<Traits::warp_rows>;
using Output = tile::OutputFragment<Traits::warp_steps, Traits::row_tile / 8>;
using Schedule = pipeline::SparseSchedule<Traits::cluster_size>;

using Scores = tile::ScoreParts<Traits::row_tile, Traits::tile_tokens, Traits::dim_groups>;
using Weights = tile::SharedWeights<Traits::row_tile, Traits::tile_tokens>;
template <bool plain>
using TeamValues = tile::TeamValues<Format, tile::StepsInOrder, Traits::teams, Traits::warp_steps, Traits::tile_tokens,
                                    plain ? Traits::steps_ahead : 0>;
using Scales = std::conditional_t<Format::has_block_scales, tile::BlockScales<Format, Traits::tile_tokens>, tile::NoBlockScales>;

constexpr bool has_cluster = Traits::cluster_size > 1;
/* What a thread has of its CTA's result, and what it has of the columns that its CTA folds and stores. */
constexpr int pairs = Traits::warp_steps / Traits::teams * (Traits::row_tile / 8) * 2, own_pairs = pairs / Traits::cluster_size;
constexpr int vector_width = std::min(own_pairs * 2, 4);
using Whole = pipeline::FragmentSlice<Format, Traits::row_tile, pairs, Traits::consumer_threads, vector_width>;
using Own = pipeline::FragmentSlice<Format, Traits::row_tile, own_pairs, Traits::consumer_threads, vector_width, has_cluster>;
using TeamFold = pipeline::TeamFold<Whole, Traits::teams>;
using Exchange = pipeline::FragmentExchange<Whole, Own, Traits::cluster_size>;

/* One after the other; of the first unit alone both. */
union QueryMemory {
    SentQuery sent;
    SharedQuery rows;
};
struct Nothing {};

/* All but the tiles. */
template <int stages>
struct WorkMemory {
    union { /* one after the other */
        std::conditional_t<Traits::keeps_query, QueryMemory, Nothing> passing_query;
        alignas(16) Scores scores[Traits::teams];
        TeamFold team_fold;
    };
    std::conditional_t<Traits::keeps_query, Nothing, QueryMemory> staying_query;
    Weights weights[Traits::teams];
    float scales[Traits::row_tile];                       /* of the rows' products with K */
    float statistics[Traits::teams][Traits::row_tile][2]; /* reference and sum of the rows of a piece */
    Exchange exchange;
    pipeline::TileBits<stages, Traits::tile_tokens, Traits::producer_warps> bits;
    pipeline::KvRingBarriers<stages, 1> barriers;
    alignas(8) uint64_t query_sent; /* one arrival, and the bytes of the first unit's queries */
    uint32_t next_slice;            /* of a unit that is added up: SliceDealer */
    pipeline::PieceQueue<tile::rows_alike> pieces;
    pipeline::Sequences sequences; /* for what is called rarely */

    __device__ __forceinline__ QueryMemory &query() { return one_of(passing_query, staying_query); }

  private:
    static __device__ __forceinline__ QueryMemory &one_of(QueryMemory &query, Nothing &) { return query; }
    static __device__ __forceinline__ QueryMemory &one_of(Nothing &, QueryMemory &query) { return query; }
};

/* So many for every team: the next tile in a stage is then its own, and no phase of the barriers passes it by. */
constexpr int stages =
    std::min((variant::max_shared_bytes - static_cast<int>(sizeof(WorkMemory<Traits::most_stages>))) / TileLayout::bytes,
             Traits::most_stages) /
    Traits::teams * Traits::teams;
static_assert(stages >= 2, "shared memory of a CTA; every stage is one team's");

struct SharedMemory {
    alignas(128) uint8_t tiles[stages][TileLayout::bytes];
    alignas(16) WorkMemory<stages> work;
};
/* Without the padding that the alignment adds to the end. */
constexpr int shared_bytes = offsetof(SharedMemory, work) + sizeof(WorkMemory<stages>);
static_assert(shared_bytes <= variant::max_shared_bytes, "shared memory of a CTA");

using Ring = pipeline::KvRing<stages, TileLayout::bytes, false, 1>;
using Tiles = pipeline::TeamTiles<Traits::tile_tokens, Traits::teams, Ring>;
using Gather = pipeline::TokenGather<Format, Ring, decltype(WorkMemory<stages>::bits), Traits::tile_tokens,
                                     Traits::producer_warps, Traits::cluster_size, 1, (Traits::teams > 1)>;

/* Named barriers: of the consumer warps, and from there on of each team; 0 is __syncthreads. */
constexpr int consumer_barrier = 1, team_barrier = 2;

__device__ __forceinline__ void meet_consumers() { ptx::named_barrier<consumer_barrier, Traits::consumer_threads>(); }
__device__ __forceinline__ void meet_team(int team) {
    if constexpr (Traits::teams == 1)
        meet_consumers();
    else
        ptx::named_barrier<Traits::team_threads>(team_barrier + team);
}

__device__ __forceinline__ int cluster_rank() { return has_cluster ? static_cast<int>(ptx::cluster_rank()) : 0; }

/* ------------------------------------------------------------------------------------------- consumers: one piece of a unit */

/* What a consumer warp does in each step of a tile. */
struct Place {
    int team, warp; /* of the team */
    int token_group, dim_group;

    explicit __device__ __forceinline__ Place(int consumer)
        : team(consumer / Traits::team_warps), warp(consumer % Traits::team_warps), token_group(warp / Traits::dim_groups),
          dim_group(warp % Traits::dim_groups) {}
    __device__ __forceinline__ int first_token() const { return token_group * (Traits::tile_tokens / Traits::token_groups); }
    __device__ __forceinline__ int first_row() const { return warp * Traits::warp_rows; }
    __device__ __forceinline__ int first_query_row() const { return (team * Traits::team_warps + warp) * Traits::query_rows; }
    __device__ __forceinline__ int first_value_step() const { return warp * Traits::warp_steps; }
    /* Of V, whose columns have scales of their own. */
    __device__ __forceinline__ int block() const { return warp * 4 / Traits::team_warps; }
};

/* Where this warp's columns are: its team's half of the steps. */
struct OutputSteps {
    int team, first_value_step;

    __device__ __forceinline__ int operator()(int i) const {
        return first_value_step + team * (Traits::warp_steps / Traits::teams) + i;
    }
};

template <class Result, bool ahead>
using Store = pipeline::FragmentStore<Format, Result, tile::RowMap, OutputSteps, ahead>;

/* What a consumer warp keeps over a piece. */
struct ConsumerState {
    Query query;
    Softmax softmax;
    Output output;
    Scales scales; /* of V */
};

__device__ __forceinline__ tile::RowMap map_rows(const sparse_mla_decode_params &params,
                                                 const tile::UnitRows<tile::rows_alike> &unit, const pipeline::Piece &piece) {
    return {params.schedule.group_size, unit.first_query_token, piece.kv_head, piece.row_pass * Traits::row_tile};
}

/* The first unit's queries as they are, ahead of its rows, behind all of which they would come. */
__device__ __forceinline__ void send_query(const sparse_mla_decode_params &params, WorkMemory<stages> &work,
                                           const pipeline::AnnouncedPiece<tile::rows_alike> &first, int lane) {
    work.query().sent.send(params, map_rows(params, first.rows, first.piece), first.rows.live_rows,
                           ptx::shared_address(&work.query_sent), lane);
}

/* The unit's queries, by way of shared memory; complete before scores take their place. */
__device__ __forceinline__ void load_query(const sparse_mla_decode_params &params, WorkMemory<stages> &work,
                                           const tile::UnitRows<tile::rows_alike> &unit, const pipeline::Piece &piece,
                                           bool was_sent, const Place &place, const Steps &steps, ConsumerState &state,
                                           int lane) {
    const tile::RowMap rows = map_rows(params, unit, piece);
    const float scale = tile::scale_log2(params.query) * Format::k_scale;
    SharedQuery::Vectors vectors[Traits::query_rows];
    if (was_sent) {
        while (!ptx::mbarrier_try_wait(ptx::shared_address(&work.query_sent), 0)) {
        }
    }
#pragma unroll
    for (int r = 0; r < Traits::query_rows; ++r) {
        const int row = place.first_query_row() + r;
        if (was_sent)
            work.query().sent.fetch(params, row, row < unit.live_rows, lane, vectors[r]);
        else
            SharedQuery::fetch(params, rows, row, row < unit.live_rows, lane, vectors[r]);
    }
    if (was_sent)
        meet_consumers(); /* all have been fetched that lie in the place of these */
#pragma unroll
    for (int r = 0; r < Traits::query_rows; ++r) {
        const int row = place.first_query_row() + r;
        const float factor = work.query().rows.put(params.query, row, vectors[r], lane);
        if (lane == 0)
            work.scales[row] = scale * factor;
    }
    meet_consumers();
    state.query.load(work.query().rows, steps, lane);
    meet_consumers();
}

/* Attention of all rows over a tile; `plain`, as in mla_decode.cu: every token is there, and there is no soft cap. */
template <bool plain>
__device__ __forceinline__ void attend_tile(const sparse_mla_decode_params &params, WorkMemory<stages> &work, uint32_t tile,
                                            const Tokens &tokens, const Place &place, const Steps &steps, ConsumerState &state,
                                            int lane) {
    Scores &parts = work.scores[place.team];
    Weights &weights = work.weights[place.team];
    const float shrink = state.scales.load(tile, place.block(), tokens.seen, lane);
    if (shrink != 1.f) /* seldom */
        state.output.scale(shrink);
    {
        const KeyTokens keys(place.first_token(), Traits::tile_tokens, false, lane);
        tile::ScoreFragment<Traits::token_fragments, Traits::row_tile / 8> scores;
        tile::qk_part<Format>(scores, state.query, tile, keys, steps, lane);
        parts.store(scores, place.dim_group, place.first_token(), lane);
    }
    meet_team(place.team);
    state.softmax.update<plain, Format::matrix_dtype>(parts, work.scales, params.query.soft_cap, tokens, place.first_row(),
                                                      weights, lane);
    uint32_t value_lane = lane; /* so that no address of V is computed together with those of K, beside the scores */
    ptx::compute_here(value_lane);
    const ValueTokens fragments(0, Traits::tile_tokens, false, value_lane);
    if constexpr (Traits::teams > 1) {
        const TeamValues<plain> values(tile, fragments, place.team, place.first_value_step(), value_lane);
        meet_team(place.team);
        if (plain || tokens.all_visible())
            values.template multiply<false>(state.output, weights, tokens, state.scales);
        else
            values.template multiply<true>(state.output, weights, tokens, state.scales);
    } else {
        meet_consumers();
        tile::shrink_output(state.output, weights, lane);
        if (tokens.all_visible())
            tile::pv_part<false>(state.output, weights, tile, fragments, tokens, state.scales, place.first_value_step(),
                                 value_lane);
        else
            tile::pv_part<true>(state.output, weights, tile, fragments, tokens, state.scales, place.first_value_step(),
                                value_lane);
    }
}

/* The same of the tiles of the piece that are this team's. */
__device__ __forceinline__ void attend(const sparse_mla_decode_params &params, WorkMemory<stages> &work,
                                       const tile::UnitRows<tile::rows_alike> &unit, Ring &ring, const Place &place,
                                       const Steps &steps, ConsumerState &state, int lane) {
    const int end = unit.end_token, first_team = static_cast<int>(ring.stage()) % Traits::teams;
    for (Tiles tiles(unit.first_token, end, first_team, place.team, ring); tiles.token() < end; tiles.next(end)) {
        ring.wait_full(pipeline::tensor_k);
        const Tokens tokens{work.bits.of(ring.stage())};
        const uint32_t tile = ring.tile(pipeline::tensor_k);
        if (Traits::teams > 1 && tokens.all_visible() && params.query.soft_cap <= 0.f)
            attend_tile<true>(params, work, tile, tokens, place, steps, state, lane);
        else if (tokens.any_visible()) /* alike for all warps */
            attend_tile<false>(params, work, tile, tokens, place, steps, state, lane);
        ring.release(pipeline::tensor_k, lane);
    }
}

struct Ending
    : pipeline::FragmentEnding<Format, Whole, Own, Traits::cluster_size, (Own::per_thread > 2 ? 1 : 4 / Own::per_thread), false> {
    template <bool ahead, class Result>
    static __device__ __forceinline__ Store<Result, ahead>
    prepare_store(const sparse_mla_decode_params &params, const pipeline::AnnouncedPiece<tile::rows_alike> &announced,
                  const Result &result, const Place &place, bool has_first_rows) {
        const bool stores_lse = has_first_rows && cluster_rank() == 0 && place.team == 0 && place.warp == 0;
        return {params.output, map_rows(params, announced.rows, announced.piece), result, params.v_head_dim,
                stores_lse,    OutputSteps{place.team, place.first_value_step()}};
    }
};

/* The sums of all warps, folded. */
__device__ __forceinline__ void finish(const sparse_mla_decode_params &params, WorkMemory<stages> &work,
                                       const pipeline::AnnouncedPiece<tile::rows_alike> &announced, ConsumerState &state) {
    const int lane = ptx::thread_index_here() % 32;
    const Place place(ptx::thread_index_here() / 32);
    state.output.scale(state.scales.unit());
    const float sum = state.softmax.row_sum();
    if (lane % Softmax::row_lanes == 0) {
        float(&statistics)[2] = work.statistics[place.team][place.first_row() + Softmax::row(lane)];
        statistics[0] = state.softmax.reference;
        statistics[1] = sum;
    }
    meet_consumers(); /* and the scores of all teams are done with */
    Whole whole(announced.rows.live_rows);
    work.team_fold.template run<consumer_barrier>(state.output, work.statistics, place.team, whole);
    if constexpr (has_cluster)
        pipeline::hand_over_fragments<Ending, consumer_barrier>(params, work, announced, whole, place, cluster_rank());
    else
        pipeline::deal_fragments<Ending>(params, work, announced, whole, place, meet_consumers);
}

__device__ __forceinline__ void consume(const sparse_mla_decode_params &params, SharedMemory &shared, Ring ring) {
    WorkMemory<stages> &work = shared.work;
    pipeline::meet_cluster<Traits::cluster_size>();
    for (uint32_t number = 0;; ++number) {
        const auto &announced = work.pieces.wait_named(number);
        if (announced.piece.end_of_work)
            break;
        if (Traits::teams > 1 && number > 0)
            meet_consumers(); /* what teams passed of the piece before has been taken */
        /* Anew for every piece: kept from piece to piece they would take registers from its end. */
        const int lane = ptx::thread_index_here() % 32;
        const Place place(ptx::thread_index_here() / 32);
        const Steps steps(place.dim_group);
        ConsumerState state;
        load_query(params, work, announced.rows, announced.piece, number == 0, place, steps, state, lane);
        state.softmax.clear();
        state.output.clear();
        state.scales.begin();
        attend(params, work, announced.rows, ring, place, steps, state, lane);
        work.pieces.wait_described(announced.number);
        finish(params, work, announced, state);
        number = announced.number;
        work.pieces.pop(number);
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
    Schedule schedule(params.schedule, work.sequences, blockIdx.x / Traits::cluster_size, cluster_rank());
    if (warp >= Traits::consumer_warps) {
        schedule.issue_length_loads();
    } else if (threadIdx.x == 0) { /* while the lengths are on their way */
        work.sequences = pipeline::Sequences(params.schedule);
        Ring::initialise(work.barriers, Traits::producer_warps, Traits::team_warps);
        ptx::mbarrier_init(ptx::shared_address(&work.query_sent), 1);
        work.pieces.initialise(Traits::consumer_threads);
        work.exchange.initialise();
        ptx::fence_mbarrier_init();
    }
    __syncthreads();
    if constexpr (has_cluster)
        ptx::cluster_arrive_relaxed(); /* this CTA's barriers are initialised */

    const Ring ring(work.barriers, shared.tiles);
    if (warp < Traits::consumer_warps) {
        consume(params, shared, ring);
        return;
    }
    schedule.begin();
    if (warp == Traits::announcer_warp)
        pipeline::announce_query_tokens<Traits::row_tile>(params.schedule, schedule, work.pieces, lane,
                                                          [&](const pipeline::AnnouncedPiece<tile::rows_alike> &piece) {
                                                              if (piece.number == 0)
                                                                  send_query(params, work, piece, lane);
                                                          });
    else
        Gather(params.schedule, params.sparse, warp - Traits::consumer_warps, ring, work.bits).run(schedule, lane);
    pipeline::meet_cluster<Traits::cluster_size>();
}

extern "C" __device__ const libdecode_launch_contract VARIANT_CONTRACT = {
    .magic = LIBDECODE_CONTRACT_MAGIC,
    .abi = LIBDECODE_KERNEL_ABI,
    .family = KERNEL_FAMILY_SPARSE_MLA_DECODE,
    .parameter_bytes = sizeof(sparse_mla_decode_params),
    .threads = Traits::threads,
    .dynamic_shared_bytes = shared_bytes,
    .ctas_per_sm = 1,
    .cluster_size = Traits::cluster_size,
    .query_dtypes = VARIANT_KV_ROW_FORMAT == KERNEL_KV_ROW_SCALED656 ? 1u << KERNEL_DTYPE_BF16
                    : Format::converts_query ? 1u << KERNEL_DTYPE_BF16 | 1u << KERNEL_DTYPE_FP16 | 1u << KERNEL_DTYPE_E4M3
                                             : 1u << Traits::dtype,
    .kv_dtype = Traits::dtype,
    .out_dtypes = pipeline::out_dtypes<Format, Own>,
    .head_dim = Traits::head_dim,
    .row_tile = Traits::row_tile,
    .tile_tokens = Traits::tile_tokens,
    .max_box_tokens = 32, /* of columns: a piece ends at a multiple of it */
    .stages = stages,
    .min_page_size = 1,
    .max_page_size = 1 << 20,
    .max_q_len = 1024,
    .features = pipeline::sparse_features | (has_cluster ? 0u : CONTRACT_FEATURE_BATCH_INVARIANT),
    .flags = variant::contract_flags | CONTRACT_FLAG_ROW_GATHER,
    .record_bytes = Ending::record_bytes,
    .scratch_bytes = Ending::scratch_bytes,
    .consumer_warps = Traits::consumer_warps,
    .kv_row_format = VARIANT_KV_ROW_FORMAT,
    .reserved = {},
};
