/* SPDX-License-Identifier: Apache-2.0 */
/*
 * token_gather.cuh: the pieces of sparse attention, whose units are query tokens: which one a piece is of, and some warps that fill the
 * ring with the rows that its ids name, a bulk copy for each, by two warps or more, each with a part of a tile, or whole tiles in turns. An
 * id that names no row is not copied: of each tile the consumers are told which rows there are, and whatever lies in place of the others is
 * masked.
 */
#pragma once

#include <cstdint>
#include <type_traits>

#include "abi.h"
#include "pipeline/kv_ring.cuh"
#include "pipeline/piece_queue.cuh"
#include "pipeline/split_schedule.cuh"
#include "ptx/bulk_copy.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/memory.cuh"
#include "tile/constants.cuh"

namespace pipeline {

/* What every kernel of sparse attention does. */
constexpr uint32_t sparse_features = CONTRACT_FEATURE_SINKS | CONTRACT_LSE | CONTRACT_FEATURE_RAGGED_Q |
                                     CONTRACT_FEATURE_SOFT_CAP | CONTRACT_FEATURE_QUERY_ROPE | CONTRACT_FEATURE_SPARSE_TOP_K_LENS;

/* A piece's query token, of those of the launch, and which of the groups that its heads are dealt out to. */
struct PieceQuery {
    int token, head_group;
    bool exists; /* false: its request has fewer */

    __device__ __forceinline__ PieceQuery(const schedule_params &params, const Sequences &sequences, const Piece &piece) {
        const QueryTokens query(sequences, piece.request);
        const int of_request = quotient(piece.kv_head >> params.head_shift, params.heads_per_worker);
        token = query.first + of_request;
        head_group = piece.kv_head - of_request * params.heads_per_sequence;
        exists = of_request < query.count;
    }
};

/*
 * The announcer warp: every piece of this worker in order, then the end of work; described is who shares its unit. Consumers see what there
 * is to see of a tile with it.
 * behind_name(piece) is called for each that is named, before it is described; for the first one the ids of its first rows are on their way then, and
 * no row yet.
 */
template <int row_tile, int cluster_size, class BehindName>
__device__ __forceinline__ void announce_query_tokens(const schedule_params &params, SparseSchedule<cluster_size> &schedule,
                                                      PieceQueue<tile::rows_alike> &pieces, int lane, BehindName behind_name) {
    for (uint32_t number = 0;; ++number) {
        Piece piece = schedule.next();
        AnnouncedPiece<tile::rows_alike> &slot = pieces.wait_empty(number);
        if (lane == 0) {
            slot.number = number;
            if (!piece.end_of_work) {
                const PieceQuery query(params, schedule.sequences(), piece);
                const int rows = params.group_size.value - piece.row_pass * row_tile, box_shift = __ffs(params.box_tokens) - 1;
                slot.rows.first_query_token = query.token;
                slot.rows.live_rows = query.exists ? min(rows, row_tile) : 0;
                slot.rows.first_token = piece.first_box << box_shift;
                slot.rows.end_token = min(piece.end_token, piece.end_box << box_shift);
                piece.kv_head = query.head_group;
            }
            slot.piece = piece;
            pieces.name(number);
        }
        if (piece.end_of_work)
            return;
        __syncwarp();
        behind_name(slot);
        schedule.find_parts(piece); /* consumers need no parts before the piece ends */
        if (lane == 0)
            slot.piece.parts = piece.parts;
        pieces.describe(number);
    }
}
template <int row_tile, int cluster_size>
__device__ __forceinline__ void announce_query_tokens(const schedule_params &params, SparseSchedule<cluster_size> &schedule,
                                                      PieceQueue<tile::rows_alike> &pieces, int lane) {
    announce_query_tokens<row_tile>(params, schedule, pieces, lane, [](const AnnouncedPiece<tile::rows_alike> &) {});
}

/* Which rows a tile has: a bit each. Lies in shared memory; `warps` write it, in front of their arrival on the tile's barrier. */
template <int stages, int tile_tokens, int warps>
struct TileBits {
    static constexpr int warp_tokens = tile_tokens / warps;
    using Part = std::conditional_t<warp_tokens == 8, uint8_t, std::conditional_t<warp_tokens == 16, uint16_t, uint32_t>>;
    using Whole = std::conditional_t<tile_tokens == 64, uint64_t, uint32_t>;
    static_assert(sizeof(Part) * 8 == warp_tokens && sizeof(Whole) * 8 == tile_tokens, "words of as many bits as tokens");
    alignas(8) Part part[stages][warps];

    __device__ __forceinline__ Whole of(uint32_t stage) const { return *reinterpret_cast<const Whole *>(part[stage]); }
};

/*
 * `warps` share a tile; `turns` of those take tiles in turns. `hurries`: rows are what consumers wait for. Copies take less of a warp's time
 * then, without a jump between them, and ids are there when they are asked for; elsewhere that has cost more than it wins.
 */
template <class Format, class Ring, class Bits, int tile_tokens, int warps, int cluster_size, int turns = 1, bool hurries = false>
class TokenGather {
    static constexpr int warp_tokens = tile_tokens / warps;
    static constexpr uint32_t all_rows = ~0u >> (32 - warp_tokens);
    static_assert(warp_tokens <= 32, "a lane for each");

  public:
    /* `warp`: of those that copy. */
    __device__ __forceinline__ TokenGather(const schedule_params &schedule, const sparse_params &params, int warp, Ring ring,
                                           Bits &bits)
        : schedule_params_(schedule), params_(params), warp_(warp % warps), ring_(ring), bits_(bits),
          tiles_before_(warp / warps) {
        ring_.advance(tiles_before_);
    }

    __device__ __forceinline__ void run(SparseSchedule<cluster_size> &schedule, int lane) {
        run(schedule, lane, [] {});
    }
    /* may_copy(): returns once the first copy may be made; the ids are on their way then. */
    template <class MayCopy>
    __device__ __forceinline__ void run(SparseSchedule<cluster_size> &schedule, int lane, MayCopy may_copy) {
        /* Two tiles ahead: where memory is busy, one tile is over before the ids come. */
        Batch batch = next(schedule, lane), second = next(schedule, lane);
        if (!batch.end_of_work)
            may_copy();
        while (!batch.end_of_work) {
            const Batch upcoming = next(schedule, lane);
            load_tile(batch.id, lane);
            ring_.advance(turns);
            batch = second;
            second = upcoming;
        }
    }

  private:
    struct Batch {
        bool end_of_work;
        int id; /* of this lane's row; may be none: negative, or beyond the last */
    };

    __device__ __forceinline__ Batch next(SparseSchedule<cluster_size> &schedule, int lane) {
        while (column_ >= end_column_ || (turns > 1 && tiles_before_ > 0)) {
            if (column_ < end_column_) {
                column_ += tile_tokens;
                --tiles_before_;
                continue;
            }
            const Piece piece = schedule.next();
            if (piece.end_of_work)
                return {true, -1};
            const int box_shift = __ffs(schedule_params_.box_tokens) - 1;
            column_ = piece.first_box << box_shift;
            end_column_ = piece.first_box < piece.end_box ? min(piece.end_token, piece.end_box << box_shift) : column_;
            const PieceQuery query(schedule_params_, schedule.sequences(), piece);
            ids_ = params_.token_ids + query.token * params_.token_ids_stride;
        }
        /* What memory answers comes behind all copies that were asked for before: ids of as many tiles ahead, so that none waits for that. */
        constexpr int ahead = Ring::num_stages * tile_tokens;
        const int own = column_ + warp_ * warp_tokens + lane;
        const int id = lane < warp_tokens && own < end_column_ ? ids_[own] : -1;
        if (hurries && lane < warp_tokens && own + ahead < end_column_)
            ptx::prefetch_to_sm(ids_ + own + ahead);
        column_ += tile_tokens;
        tiles_before_ = turns - 1;
        return {false, id};
    }

    __device__ __forceinline__ void load_tile(int id, int lane) {
        const bool exists = static_cast<uint32_t>(id) < params_.num_tokens;
        const uint32_t existing = __ballot_sync(tile::full_warp, exists), barrier = ring_.full_barrier(tensor_k);
        const uint32_t page = tile::quotient(exists ? static_cast<uint32_t>(id) : 0u, params_.page_size);
        const uint32_t in_page = id - page * params_.page_size.value;
        const uint8_t *const from = params_.rows.rows + page * params_.rows.page_stride + in_page * params_.rows.token_stride;
        const uint32_t to = ring_.tile(tensor_k) + warp_ * warp_tokens * Format::row_bytes;
        ring_.wait_empty(tensor_k);
        if (hurries && existing == all_rows) {
#pragma unroll
            for (int row = 0; row < warp_tokens; ++row) {
                const uint64_t its = __shfl_sync(tile::full_warp, reinterpret_cast<uint64_t>(from), row);
                ptx::copy_bulk_of_warp(to + row * Format::row_bytes, reinterpret_cast<const void *>(its), Format::copied_bytes,
                                       barrier);
            }
        } else if (exists) { /* some 54 clocks each */
            ptx::copy_bulk(to + lane * Format::row_bytes, from, Format::copied_bytes, barrier);
        }
        /* After the copies, as in producer.cuh. */
        if (lane == 0) {
            bits_.part[ring_.stage()][warp_] = static_cast<typename Bits::Part>(existing);
            ptx::mbarrier_arrive_expect_tx(barrier, __popc(existing) * Format::copied_bytes);
        }
        __syncwarp();
    }

    const schedule_params &schedule_params_;
    const sparse_params &params_;
    const int warp_;
    Ring ring_;
    Bits &bits_;
    int column_ = 0, end_column_ = 0; /* of the piece's */
    int tiles_before_;                /* of other warps, before the next one of this warp */
    const int32_t *ids_ = nullptr;
};

} // namespace pipeline
