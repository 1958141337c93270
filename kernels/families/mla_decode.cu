/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MLA decode: attention of the query tokens of each request over a paged cache of latent rows, which all query heads share.
 *
 *     k_j = all elements of row j, v_j = but the last 64 of them
 *     z_j = bmm1_scale * q . k_j        over the tokens j that the query token sees; z_j = cap * tanh(z_j / cap) where wanted
 *     m   = max_j z_j log2e,   l = sum_j 2^(z_j log2e - m) + 2^(sink log2e - m)
 *     out = bmm2_scale * sum_j 2^(z_j log2e - m) v_j / l
 *     lse = m + log2(l)
 *
 * Rows are the query tokens of a request and their heads, in passes of row_tile over the cache, as in gqa_decode.cu. Schedule, by role:
 *
 *     producer warp   walks split_schedule.cuh and page_stream.cuh, one copy per box of rows into the ring (producer.cuh)
 *     announcer warp  walks the same schedule and hands the pieces to the consumers (piece_queue.cuh)
 *     consumer warps  eight (latent_attention.cuh). Of 16 rows, a row of output has 512 elements: what one warp would hold for its
 *                     tokens alone is more than its registers. So the warps of a team are at the same tile, whose work is divided
 *                     anew for each step, with a barrier between:
 *
 *         qk          warp = (some of the tokens, a quarter of the dims)  scores, in four parts, to shared memory
 *         ----------  barrier
 *         weights     warp = some of the rows                             adds the parts, mask, softmax; weights to shared memory
 *         ----------  barrier
 *         pv          warp = some of the dims of V                        out of the tile that K was read from; gives it back
 *
 *     of 16 rows two teams of four warps take turns at the tiles: while one waits, the other computes. Of 32 rows one team of eight.
 *     Where K and queries are e4m3, Hopper's matrix instructions of warpgroups take both as they lie (byte_scores.cuh): qk is then all
 *     dims of 16 tokens a warp, and nothing is added up. Such a tile has 64 tokens. 128 requests of 8,192 tokens take an H200 149 us for 180.
 *     at a unit's end partial.cuh: the teams' sums fold, then the cluster's, then those of the workers that share the unit, all in the
 *     registers and in the places where mma left them; what single CTAs leave for each other lies in scratch (fragment_slice_fold.cuh)
 *
 * A tile is computed in half the time in which it comes, where all SMs read bf16. Memory answers an SM in the order in which it was
 * asked, so the producer asks for a piece's queries before its KV, and they come through the ring; but not where all but the newest rows
 * were promised to be final (history.cuh): then KV is read while the kernel ahead still runs, which makes the query. Passes over one
 * request run beside each other, on workers of one group, so that all but one read the L2 cache (loader/families/mla_decode.c).
 *
 * Shared memory: struct SharedMemory below. Tiles first: the copy engine's swizzle wants them 1024-byte aligned. What a unit needs at
 * its beginning (query), during its tiles (scores) and at its end (team_fold) takes turns in one place.
 */
#include <algorithm>
#include <cstddef>
#include <type_traits>

#include "abi.h"
#include "pipeline/cluster_exchange.cuh"
#include "pipeline/first_query.cuh"
#include "pipeline/fragment_result.cuh"
#include "pipeline/fragment_slice.cuh"
#include "pipeline/fragment_store.cuh"
#include "pipeline/history.cuh"
#include "pipeline/kv_ring.cuh"
#include "pipeline/page_stream.cuh"
#include "pipeline/piece_queue.cuh"
#include "pipeline/producer.cuh"
#include "pipeline/skip_votes.cuh"
#include "pipeline/tile_walk.cuh"
#include "tile/byte_scores.cuh"
#include "tile/latent_query.cuh"
#include "tile/row_map.cuh"
#include "tile/team_attention.cuh"
#include "variant.cuh"

namespace {

/* --------------------------------------------------------------------------------------------------------------- traits */

struct Traits {
    static constexpr int dtype = VARIANT_KV_DTYPE;
    static constexpr int head_dim = VARIANT_HEAD_DIM, v_dim = head_dim - 64;
    static constexpr int row_tile = VARIANT_ROW_TILE;
    static constexpr int cluster_size = VARIANT_CLUSTER_SIZE;
    using Format = tile::KvFormat<dtype, head_dim>;
    static_assert(head_dim == 576 || head_dim == 320, "head_dim in the .toml: 576 or 320");
    static_assert(row_tile == 16 || row_tile == 32, "row_tile in the .toml: 16 or 32");

    static constexpr bool small = variant::target_sm == 120; /* 99 KiB of shared memory, a fifth of the bandwidth */
    static constexpr int consumer_warps = 8, consumer_threads = consumer_warps * 32;
    /* Two take turns at the tiles, where registers have the output of 16 rows twice and shared memory what each needs. */
    static constexpr int teams = row_tile == 16 && !small ? 2 : 1;
    static constexpr int team_warps = consumer_warps / teams, team_threads = team_warps * 32;
    static constexpr int producer_warp = consumer_warps, announcer_warp = producer_warp + 1;
    static constexpr int threads = (announcer_warp + 1) * 32;

    /*
     * Where teams are warpgroups, queries of e4m3 multiply K as it lies: a tile is what their matrix instructions take. Larger clusters have
     * pieces of a few tiles, for which queries of bf16 wait the longer the larger these are.
     */
    static constexpr bool multiplies_bytes =
        variant::target_sm == 90 && dtype == KERNEL_DTYPE_E4M3 && teams > 1 && cluster_size <= 2;
    /* Fewer for teams otherwise, where shared memory is small, and where a cluster exchanges 32 rows. */
    static constexpr int tile_tokens = multiplies_bytes                         ? tile::byte_tile_tokens
                                       : teams > 1 || small || cluster_size > 1 ? 32
                                                                                : 64;
    static constexpr int dim_groups = 4, token_groups = team_warps / dim_groups; /* of the warps of qk */
    static constexpr int warp_fragments = tile_tokens / token_groups / tile::fragment_tokens;
    static constexpr int token_fragments = std::min(warp_fragments, 2); /* that registers have scores of at a time */
    /* Of plain tiles (attend_tile); 0: they have no code of their own, for want of registers. */
    static constexpr int largest_plain_box = multiplies_bytes || (Format::converts_query && row_tile == 32) ? 0 : tile_tokens;
    static constexpr int warp_rows = row_tile / team_warps;
    static constexpr int warp_steps = v_dim / 16 / team_warps; /* over the dims of V */
    /* Of these, of plain tiles, that are asked for ahead of the weights: as many as registers are left for. */
    static constexpr int steps_ahead = largest_plain_box == 0 ? 0 : warp_steps - 2;
    static constexpr int query_rows = row_tile / consumer_warps; /* that a warp loads */
    static constexpr int most_stages = 8;
    /* The first one, ahead of KV: where shared memory has a place for it, and, of FP8 in pairs, sm_100 the registers. */
    static constexpr bool sends_first_query =
        !small && !(variant::target_sm == 100 && Format::converts_query && cluster_size == 2);
    /* Beside the output of 32 rows, and the scores, registers hold no queries. */
    static constexpr bool keeps_query = row_tile == 16;
};

using Format = Traits::Format;
using TileLayout = tile::TileLayout<Format, Traits::tile_tokens>;
using KeyTokens = tile::TokenFragments<Format, Traits::tile_tokens, Traits::token_fragments>;
using ValueTokens = tile::TokenFragments<Format, Traits::tile_tokens, Traits::tile_tokens / tile::fragment_tokens>;
using Tokens = tile::WarpTokens<Traits::row_tile, Traits::tile_tokens>;
using SharedQuery = tile::LatentQuery<Format, Traits::row_tile>;
using SentQuery =
    std::conditional_t<Traits::sends_first_query, tile::SentLatentQuery<SharedQuery, Traits::row_tile>, tile::NoSentQuery>;
/* The others, too, through the ring, where a tile's place has room for one. */
constexpr bool sends_queries = Traits::sends_first_query && sizeof(SentQuery) <= TileLayout::bytes;
using Steps = tile::DimSteps<Format, Traits::dim_groups>;
using Query =
    std::conditional_t<Traits::keeps_query, tile::LatentQueryFragment<Format, Traits::row_tile, Traits::dim_groups, Steps>,
                       tile::LatentQueryReader<Format, Traits::row_tile, Traits::dim_groups, Steps>>;
using Softmax = tile::RowsSoftmax<Traits::warp_rows>;
using Scores = tile::ScoreParts<Traits::row_tile, Traits::tile_tokens, Traits::dim_groups>;
using Weights = tile::SharedWeights<Traits::row_tile, Traits::tile_tokens>;
using ValueSteps = tile::DimSteps<Format, Traits::team_warps>;
template <bool plain>
using TeamValues =
    tile::TeamValues<Format, ValueSteps, Traits::teams, Traits::warp_steps, Traits::tile_tokens, plain ? Traits::steps_ahead : 0>;
using Output = tile::OutputFragment<Traits::warp_steps, Traits::row_tile / 8>;
using Schedule = pipeline::SplitSchedule<Traits::cluster_size, true>;

/* What a thread has of its CTA's result, and what it has of the columns that its CTA folds and stores. */
constexpr int pairs = Traits::warp_steps / Traits::teams * (Traits::row_tile / 8) * 2, own_pairs = pairs / Traits::cluster_size;
constexpr int vector_width = std::min(own_pairs * 2, 4);
using Whole = pipeline::FragmentSlice<Format, Traits::row_tile, pairs, Traits::consumer_threads, vector_width>;
using Own = pipeline::FragmentSlice<Format, Traits::row_tile, own_pairs, Traits::consumer_threads, vector_width,
                                    (Traits::cluster_size > 1)>;
using TeamFold = pipeline::TeamFold<Whole, Traits::teams>;
using Exchange = pipeline::FragmentExchange<Whole, Own, Traits::cluster_size>;

struct Nothing {};

/* Where K is multiplied as it lies: the query, and scores without parts. */
template <bool exist>
struct ByteMemory {
    using Query = tile::ByteQuery<Format, Traits::row_tile, Traits::consumer_threads>;
    using Scores = tile::ScoreParts<Traits::row_tile, Traits::tile_tokens, 1>[Traits::teams];
};
template <>
struct ByteMemory<false> {
    using Query = Nothing;
    using Scores = Nothing;
};
using Bytes = ByteMemory<Traits::multiplies_bytes>;

/* All but the tiles. */
template <int stages>
struct WorkMemory {
    union { /* one after the other; but a query of bytes stays while there are tiles */
        struct {
            union {
                SentQuery sent_query; /* the first piece's */
                Bytes::Scores byte_scores;
            };
            union {
                std::conditional_t<Traits::keeps_query, SharedQuery, Nothing> query;
                Bytes::Query byte_query;
            };
        } passing;
        alignas(16) Scores scores[Traits::teams];
        TeamFold team_fold;
    };
    std::conditional_t<Traits::keeps_query, Nothing, SharedQuery> staying_query;
    Weights weights[Traits::teams];
    float scales[Traits::row_tile];                       /* of the rows' products with K */
    float statistics[Traits::teams][Traits::row_tile][2]; /* reference and sum of the rows of a piece */
    Exchange exchange;
    pipeline::KvRingBarriers<stages, 1> barriers;
    alignas(8) uint64_t query_sent; /* one arrival, and the bytes of the first unit's queries */
    uint32_t next_slice;            /* of a unit that is added up: SliceDealer */
    pipeline::PieceQueue<Traits::row_tile> pieces;
    pipeline::Sequences sequences; /* for what is called rarely */

    __device__ __forceinline__ SharedQuery &query() { return one_of(passing.query, staying_query); }

  private:
    static __device__ __forceinline__ SharedQuery &one_of(SharedQuery &query, Nothing &) { return query; }
    static __device__ __forceinline__ SharedQuery &one_of(Nothing &, SharedQuery &query) { return query; }
};

/* So many for every team: the next tile in a stage is then its own, and no phase of the barriers passes it by. */
constexpr int stages =
    std::min((variant::max_shared_bytes - static_cast<int>(sizeof(WorkMemory<Traits::most_stages>))) / TileLayout::bytes,
             Traits::most_stages) /
    Traits::teams * Traits::teams;
static_assert(stages >= 2 && stages % Traits::teams == 0, "shared memory of a CTA; every stage is one team's");

struct SharedMemory {
    alignas(1024) uint8_t tiles[stages][TileLayout::bytes];
    alignas(Traits::multiplies_bytes ? 1024 : 16) WorkMemory<stages> work;
};
/* Without the padding that the alignment adds to the end. */
constexpr int shared_bytes = offsetof(SharedMemory, work) + sizeof(WorkMemory<stages>);
static_assert(shared_bytes <= variant::max_shared_bytes, "shared memory of a CTA");

using Ring = pipeline::KvRing<stages, TileLayout::bytes, false, 1>;
using TileWalk = pipeline::TileWalk<Traits::row_tile, Traits::tile_tokens, Traits::teams, Traits::keeps_query, Ring>;
using Producer = pipeline::Producer<Format, Ring, Traits::tile_tokens, 1, Traits::cluster_size, pipeline::NoVotes>;

/* Named barriers: of the consumer warps, and from there on of each team; 0 is __syncthreads. */
constexpr int consumer_barrier = 1, team_barrier = 2;

__device__ __forceinline__ void meet_consumers() { ptx::named_barrier<consumer_barrier, Traits::consumer_threads>(); }
__device__ __forceinline__ void meet_team(int team) { ptx::named_barrier<Traits::team_threads>(team_barrier + team); }

__device__ __forceinline__ int cluster_rank() { return Traits::cluster_size > 1 ? static_cast<int>(ptx::cluster_rank()) : 0; }

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
};

/* Where this warp's columns are: of its team's half of the steps, those of its turns. */
struct OutputSteps {
    int team, warp;

    __device__ __forceinline__ int operator()(int i) const {
        return ValueSteps(warp).first + ValueSteps::further(team * (Traits::warp_steps / Traits::teams) + i);
    }
};

template <class Result, bool ahead>
using Store = pipeline::FragmentStore<Format, Result, tile::RowMap, OutputSteps, ahead>;

/* Not where KV is read while the kernel ahead, whose query this is, still runs. */
__device__ __forceinline__ bool sends_query(const mla_decode_params &params, uint32_t number) {
    return (number == 0 ? Traits::sends_first_query : sends_queries) && !pipeline::is_history_final(params.schedule);
}

/*
 * A piece's queries as they are, ahead of its KV, behind all of which they would come: by the producer warp, which knows the piece
 * first. Through the ring, but for the first piece's, which take no place from its tiles.
 */
__device__ __forceinline__ void send_query(const mla_decode_params &params, SharedMemory &shared, const Schedule &schedule,
                                           const pipeline::Piece &piece, uint32_t number, Ring &ring, int lane) {
    const pipeline::QueryTokens query(schedule.sequences(), piece.request);
    const tile::RowMap rows(params.schedule.group_size, query.first, piece.kv_head, piece.row_pass * Traits::row_tile);
    const int live_rows = pipeline::live_rows<Traits::row_tile>(params.schedule, query, piece);
    if (number == 0) {
        shared.work.passing.sent_query.send(params, rows, live_rows, ptx::shared_address(&shared.work.query_sent), lane);
        return;
    }
    ring.wait_empty(pipeline::tensor_k);
    reinterpret_cast<SentQuery *>(shared.tiles[ring.stage()])
        ->send(params, rows, live_rows, ring.full_barrier(pipeline::tensor_k), lane);
    ring.advance();
}

/* The piece's queries, once they are there; nullptr: they were not sent. */
__device__ __forceinline__ const SentQuery *await_query(const mla_decode_params &params, SharedMemory &shared, uint32_t number,
                                                        const Ring &ring) {
    if (!sends_query(params, number))
        return nullptr;
    if (number > 0) {
        ring.wait_full(pipeline::tensor_k);
        return reinterpret_cast<const SentQuery *>(shared.tiles[ring.stage()]);
    }
    while (!ptx::mbarrier_try_wait(ptx::shared_address(&shared.work.query_sent), 0)) {
    }
    return &shared.work.passing.sent_query;
}

/* Their place is free: all consumers have met since they read them. One team says so, as of any tile. */
__device__ __forceinline__ void give_back_query(const mla_decode_params &params, uint32_t number, Ring &ring, const Place &place,
                                                int lane) {
    if (number == 0 || !sends_query(params, number))
        return;
    if (place.team == 0)
        ring.release(pipeline::tensor_k, lane);
    ring.advance();
}

__device__ __forceinline__ tile::RowMap map_rows(const mla_decode_params &params, const tile::UnitRows<Traits::row_tile> &unit,
                                                 const pipeline::Piece &piece) {
    return {params.schedule.group_size, unit.first_query_token, piece.kv_head, piece.row_pass * Traits::row_tile};
}

/* The unit's queries, by way of shared memory; complete before scores take their place. */
__device__ __forceinline__ void load_query(const mla_decode_params &params, SharedMemory &shared,
                                           const pipeline::AnnouncedPiece<Traits::row_tile> &announced, uint32_t number,
                                           Ring &ring, const Place &place, Query &ret, int lane) {
    WorkMemory<stages> &work = shared.work;
    const tile::UnitRows<Traits::row_tile> &unit = announced.rows;
    const tile::RowMap rows = map_rows(params, unit, announced.piece);
    const float scale = tile::scale_log2(params.query) * Format::k_scale;
    const SentQuery *const sent = await_query(params, shared, number, ring);
    SharedQuery::Vectors vectors[Traits::query_rows];
#pragma unroll
    for (int r = 0; r < Traits::query_rows; ++r) {
        const int row = place.first_query_row() + r;
        if (sent != nullptr)
            sent->fetch(params, row, row < unit.live_rows, lane, vectors[r]);
        else
            SharedQuery::fetch(params, rows, row, row < unit.live_rows, lane, vectors[r]);
    }
#pragma unroll
    for (int r = 0; r < Traits::query_rows; ++r) {
        const int row = place.first_query_row() + r;
        const float factor = work.query().put(params.query, row, vectors[r], lane);
        if (lane == 0)
            work.scales[row] = scale * factor;
    }
    meet_consumers();
    give_back_query(params, number, ring, place, lane);
    ret.load(work.query(), Steps(place.dim_group), lane);
    meet_consumers();
}

/* The same of e4m3, which stay there as they are. */
template <class Shared>
__device__ __forceinline__ void load_bytes(const mla_decode_params &params, Shared &shared,
                                           const pipeline::AnnouncedPiece<Traits::row_tile> &announced, uint32_t number,
                                           Ring &ring, const Place &place, int lane) {
    auto &query = shared.work.passing.byte_query;
    const int thread = ptx::thread_index_here();
    const SentQuery *const sent = await_query(params, shared, number, ring);
    if (sent != nullptr)
        query.take(*sent, params, announced.rows.live_rows, thread);
    else
        query.load(params, map_rows(params, announced.rows, announced.piece), announced.rows.live_rows, thread, [] {});
    if (thread < Traits::row_tile)
        shared.work.scales[thread] = tile::scale_log2(params.query) * Format::k_scale;
    ptx::fence_async_proxy();
    meet_consumers();
    give_back_query(params, number, ring, place, lane);
}

/* What this warp has of the scores of a tile, to where its team finds them. */
__device__ __forceinline__ void score(int box_tokens, WorkMemory<stages> &work, const Query &query, uint32_t tile,
                                      const Place &place, int lane) {
#pragma unroll
    for (int i = 0; i < Traits::warp_fragments; i += Traits::token_fragments) {
        const int first_token = place.first_token() + i * tile::fragment_tokens;
        const KeyTokens keys(first_token, box_tokens, false, lane);
        tile::ScoreFragment<Traits::token_fragments, Traits::row_tile / 8> scores;
        tile::qk_in_turns<Format, Traits::dim_groups>(scores, query, tile, keys, Steps(place.dim_group), lane);
        work.scores[place.team].store(scores, place.dim_group, first_token, lane);
    }
}
template <class Memory>
__device__ __forceinline__ void score_bytes(Memory &work, uint32_t tile, const Place &place, int lane) {
    tile::ScoreFragment<1, Traits::row_tile / 8> scores;
    tile::byte_qk<Format>(scores, ptx::alike_in_warp(ptx::shared_address(&work.passing.byte_query)), ptx::alike_in_warp(tile),
                          [] {});
    work.passing.byte_scores[place.team].store(scores, 0, place.warp * tile::fragment_tokens, lane);
}

/*
 * Attention of all rows over a tile. With `plain_box` the tile is plain: every row sees all of it, there is no soft cap, and its boxes have so many
 * tokens. Nearly all are, so they have code of their own: the addresses of what a warp reads differ by constants, and it jumps over nothing.
 */
template <bool bytes, int plain_box, class Memory>
__device__ __forceinline__ void attend_tile(const mla_decode_params &params, Memory &work, uint32_t tile, const Tokens &tokens,
                                            const Place &place, const Query &query, Softmax &softmax, Output &output, int lane) {
    constexpr bool plain = plain_box != 0;
    const int box_tokens = plain ? plain_box : bytes ? Traits::tile_tokens : params.schedule.box_tokens;
    Weights &weights = work.weights[place.team];
    if constexpr (bytes)
        score_bytes(work, tile, place, lane);
    else
        score(box_tokens, work, query, tile, place, lane);
    meet_team(place.team);
    const auto weigh = [&](const auto &scores) {
        softmax.update<plain, Format::matrix_dtype>(scores, work.scales, params.query.soft_cap, tokens, place.first_row(),
                                                    weights, lane);
    };
    if constexpr (bytes)
        weigh(work.passing.byte_scores[place.team]);
    else
        weigh(work.scores[place.team]);
    uint32_t value_lane = lane; /* so that no address of V is computed together with those of K, beside the scores */
    ptx::compute_here(value_lane);
    const TeamValues<plain> values(tile, ValueTokens(0, box_tokens, false, value_lane), place.team, ValueSteps(place.warp).first,
                                   value_lane);
    meet_team(place.team);
    if (plain || tokens.all_visible())
        values.template multiply<false>(output, weights, tokens);
    else
        values.template multiply<true>(output, weights, tokens);
}

/* The same by the boxes that a tile is made of: of `box` tokens at most. */
template <bool bytes, int box, class Memory>
__device__ __forceinline__ void attend_tile_of(uint32_t plain_box, const mla_decode_params &params, Memory &work, uint32_t tile,
                                               const Tokens &tokens, const Place &place, const Query &query, Softmax &softmax,
                                               Output &output, int lane) {
    if constexpr (box < tile::fragment_tokens) {
        if (tokens.any_visible()) /* alike for all warps */
            attend_tile<bytes, 0>(params, work, tile, tokens, place, query, softmax, output, lane);
    } else if (plain_box == box) {
        attend_tile<bytes, box>(params, work, tile, tokens, place, query, softmax, output, lane);
    } else {
        attend_tile_of<bytes, box / 2>(plain_box, params, work, tile, tokens, place, query, softmax, output, lane);
    }
}

/* The same of the tiles of the piece that are this team's. */
template <bool bytes, class Memory>
__device__ __forceinline__ void attend(const mla_decode_params &params, Memory &work,
                                       const pipeline::AnnouncedPiece<Traits::row_tile> &announced, Ring &ring,
                                       const Place &place, const Query &query, Softmax &softmax, Output &output, int lane) {
    uint32_t plain_box = 0;
    if constexpr (Traits::largest_plain_box > 0) {
        plain_box = params.query.soft_cap <= 0.f ? params.schedule.box_tokens : 0;
        ptx::compute_here(plain_box); /* not in every turn */
    }
    const int first_team = static_cast<int>(ring.stage()) % Traits::teams; /* queries take their turn in the ring, too */
    for (TileWalk walk(announced.rows, first_team, place.team, ring); walk.has_tile(); walk.next()) {
        const Tokens tokens = walk.tokens<Traits::tile_tokens>(0);
        ring.wait_full(pipeline::tensor_k);
        const uint32_t tile = ring.tile(pipeline::tensor_k);
        attend_tile_of<bytes, Traits::largest_plain_box>(tokens.all_visible() ? plain_box : 0, params, work, tile, tokens, place,
                                                         query, softmax, output, lane);
        ring.release(pipeline::tensor_k, lane);
    }
}

/* Parts of a cluster on their way at a time: more code to fetch than for that takes longer, and more of FP8 has no registers. */
constexpr int parts_together = Own::word_vectors > 1 ? 1 : 4;

struct Ending : pipeline::FragmentEnding<Format, Whole, Own, Traits::cluster_size, parts_together, Traits::cluster_size == 2> {
    template <bool ahead, class Result>
    static __device__ __forceinline__ Store<Result, ahead>
    prepare_store(const mla_decode_params &params, const pipeline::AnnouncedPiece<Traits::row_tile> &announced,
                  const Result &result, const Place &place, bool has_first_rows) {
        const bool stores_lse = has_first_rows && cluster_rank() == 0 && place.team == 0 && place.warp == 0;
        return {params.output, map_rows(params, announced.rows, announced.piece),
                result,        params.v_head_dim,
                stores_lse,    OutputSteps{place.team, place.warp}};
    }
};

/* The sums of all warps, folded. */
__device__ __forceinline__ void finish(const mla_decode_params &params, WorkMemory<stages> &work,
                                       const pipeline::AnnouncedPiece<Traits::row_tile> &announced, const Softmax &softmax,
                                       const Output &output) {
    const int lane = ptx::thread_index_here() % 32;
    const Place place(ptx::thread_index_here() / 32);
    const float sum = softmax.row_sum();
    if (lane % Softmax::row_lanes == 0) {
        float(&statistics)[2] = work.statistics[place.team][place.first_row() + Softmax::row(lane)];
        statistics[0] = softmax.reference;
        statistics[1] = sum;
    }
    meet_consumers(); /* and the scores of both teams are done with */
    Whole whole(announced.rows.live_rows);
    work.team_fold.template run<consumer_barrier>(output, work.statistics, place.team, whole);
    if constexpr (Traits::cluster_size == 1)
        pipeline::deal_fragments<Ending>(params, work, announced, whole, place, meet_consumers);
    else
        pipeline::hand_over_fragments<Ending, consumer_barrier>(params, work, announced, whole, place, cluster_rank());
}

/* What is kept over a piece is declared here: kept from piece to piece it would take registers from its end. */
template <bool bytes>
__device__ __forceinline__ void consume_piece(const mla_decode_params &params, SharedMemory &shared,
                                              const pipeline::AnnouncedPiece<Traits::row_tile> &announced, uint32_t number,
                                              Ring &ring) {
    const int lane = ptx::thread_index_here() % 32;
    const Place place(ptx::thread_index_here() / 32);
    Query query;
    Softmax softmax;
    Output output;
    if constexpr (bytes)
        load_bytes(params, shared, announced, number, ring, place, lane);
    else
        load_query(params, shared, announced, number, ring, place, query, lane);
    shared.work.pieces.wait_described(number);
    softmax.clear();
    output.clear();
    attend<bytes>(params, shared.work, announced, ring, place, query, softmax, output, lane);
    finish(params, shared.work, announced, softmax, output);
}

__device__ __forceinline__ void consume(const mla_decode_params &params, SharedMemory &shared, Ring ring) {
    WorkMemory<stages> &work = shared.work;
    pipeline::prefetch_first_query<SharedQuery, Traits::row_tile>(params, blockIdx.x / Traits::cluster_size,
                                                                  Traits::consumer_threads);
    pipeline::meet_cluster<Traits::cluster_size>();
    for (uint32_t number = 0;; ++number) {
        const auto &announced = work.pieces.wait_named(number);
        if (announced.piece.end_of_work)
            break;
        if (number > 0)
            meet_consumers(); /* what teams passed of the piece before has been taken */
        if (Traits::multiplies_bytes && params.query.dtype == KERNEL_DTYPE_E4M3 &&
            params.schedule.box_tokens == Traits::tile_tokens) /* a tile is one box: its lines have all of its tokens */
            consume_piece<Traits::multiplies_bytes>(params, shared, announced, number, ring);
        else
            consume_piece<false>(params, shared, announced, number, ring);
        number = announced.number;
        work.pieces.pop(number);
    }
}

} // namespace

extern "C" __global__ void __launch_bounds__(Traits::threads, 1) VARIANT_NAME(const __grid_constant__ mla_decode_params params) {
    extern __shared__ __align__(1024) uint8_t shared_memory[];
    SharedMemory &shared = *reinterpret_cast<SharedMemory *>(shared_memory);
    WorkMemory<stages> &work = shared.work;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int rank = cluster_rank();
    const int worker = blockIdx.x / Traits::cluster_size;

    if (!pipeline::is_history_final(params.schedule))
        ptx::wait_for_preceding_kernel();
    Schedule schedule(params.schedule, work.sequences, worker, rank);
    if (warp >= Traits::consumer_warps) {
        schedule.issue_length_loads();
        ptx::prefetch_tensor_map(&params.map);
    } else if (threadIdx.x == 0) { /* while the lengths are on their way */
        work.sequences = pipeline::Sequences(params.schedule);
        Ring::initialise(work.barriers, 1, Traits::team_warps);
        ptx::mbarrier_init(ptx::shared_address(&work.query_sent), 1);
        work.pieces.initialise(Traits::consumer_threads);
        work.exchange.initialise();
        ptx::fence_mbarrier_init();
    } else if (warp == 1) {
        pipeline::prefetch_page_table(params.schedule, lane);
    }
    __syncthreads();
    if constexpr (Traits::cluster_size > 1)
        ptx::cluster_arrive_relaxed(); /* this CTA's barriers are initialised */

    const Ring ring(work.barriers, shared.tiles);
    if (warp < Traits::consumer_warps) {
        consume(params, shared, ring);
        return;
    }
    schedule.begin();
    if (warp == Traits::announcer_warp) {
        pipeline::announce<false, Traits::tile_tokens, Traits::teams>(params.schedule, params.query, schedule, work.pieces, lane);
    } else {
        pipeline::NoVotes votes;
        Producer(params.schedule, &params.map, {}, 0.f, pipeline::tensor_k, 0, ring, votes)
            .run(schedule, lane, [&](const pipeline::Piece &piece, uint32_t number, Ring &tiles) {
                if (sends_query(params, number))
                    send_query(params, shared, schedule, piece, number, tiles, lane);
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
    .query_dtypes = Format::converts_query ? 1u << KERNEL_DTYPE_BF16 | 1u << KERNEL_DTYPE_FP16 | 1u << KERNEL_DTYPE_E4M3
                                           : 1u << Traits::dtype,
    .kv_dtype = Traits::dtype,
    .out_dtypes = pipeline::out_dtypes<Format, Own>,
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
                CONTRACT_FEATURE_SOFT_CAP | CONTRACT_FEATURE_QUERY_ROPE |
                (Traits::cluster_size == 1 ? CONTRACT_FEATURE_BATCH_INVARIANT : 0u),
    .flags = variant::contract_flags,
    .record_bytes = Ending::record_bytes,
    .scratch_bytes = Ending::scratch_bytes,
    .consumer_warps = Traits::consumer_warps,
    .reserved = {},
};
