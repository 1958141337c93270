/* SPDX-License-Identifier: Apache-2.0 */
/*
 * token_list.cuh: where the rows of the next tiles of sparse attention lie. A warp that walks the schedule and the token ids writes it, ahead of
 * the warps that copy the rows (row_copier.cuh), which then need no more than the list. An id that names no row is not followed.
 */
#pragma once

#include <cstdint>

#include "abi.h"
#include "pipeline/split_schedule.cuh"
#include "pipeline/token_gather.cuh"
#include "pipeline/weight_turns.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/memory.cuh"
#include "tile/constants.cuh"

namespace pipeline {

/* Lies in shared memory. */
struct TokenList {
    static constexpr int tile_tokens = 64;
    static constexpr uint32_t num_places = 4;
    struct Tile {
        const uint8_t *row[tile_tokens]; /* nullptr: there is none */
        uint64_t seen;                   /* a bit for every row: there is one */
        bool end_of_work;                /* not a tile: there are no more */
    };
    Tile tiles[num_places];
    uint64_t full[num_places];  /* one arrival per lane of the writer */
    uint64_t empty[num_places]; /* one per reading warp */

    __device__ __forceinline__ void initialise(int reading_warps) {
        for (uint32_t i = 0; i < num_places; ++i) {
            ptx::mbarrier_init(ptx::shared_address(&full[i]), 32);
            ptx::mbarrier_init(ptx::shared_address(&empty[i]), reading_warps);
        }
    }
};

/* One warp's place in the list. */
class TokenListTurn {
  public:
    explicit __device__ __forceinline__ TokenListTurn(TokenList &list) : list_(list) {}

    __device__ __forceinline__ TokenList::Tile &tile() const { return list_.tiles[place()]; }
    /* The writer: every lane, behind what it has written. */
    __device__ __forceinline__ void wait_empty() const { wait_for(list_.empty[place()], parity() ^ 1u); }
    __device__ __forceinline__ void publish() const { ptx::mbarrier_arrive(ptx::shared_address(&list_.full[place()])); }
    /* A reading warp. */
    __device__ __forceinline__ void wait_full() const { wait_for(list_.full[place()], parity()); }
    __device__ __forceinline__ void release(int lane) const {
        __syncwarp();
        if (lane == 0)
            ptx::mbarrier_arrive(ptx::shared_address(&list_.empty[place()]));
    }
    __device__ __forceinline__ void advance() { ++number_; }

  private:
    __device__ __forceinline__ uint32_t place() const { return number_ % TokenList::num_places; }
    __device__ __forceinline__ uint32_t parity() const { return number_ / TokenList::num_places & 1u; }

    TokenList &list_;
    uint32_t number_ = 0; /* of the worker's tiles */
};

/* The warp that writes the list. Lane l has rows l and l + 32 of a tile. `asked_bytes`: of every row, that it asks for in the second cache. */
template <uint32_t asked_bytes = 0>
class TokenListWriter {
    static constexpr int lane_rows = TokenList::tile_tokens / 32;

  public:
    __device__ __forceinline__ TokenListWriter(const schedule_params &schedule, const sparse_params &params, TokenList &list)
        : schedule_params_(schedule), params_(params), turn_(list) {}

    __device__ __forceinline__ void run(SparseSchedule<1> &schedule, int lane) {
        /* Two tiles ahead: where memory is busy, one tile is over before the ids come. */
        Batch batch = next(schedule, lane), second = next(schedule, lane);
        while (!batch.end_of_work) {
            const Batch upcoming = next(schedule, lane);
            write(batch, lane);
            turn_.advance();
            batch = second;
            second = upcoming;
        }
        turn_.wait_empty();
        if (lane == 0)
            turn_.tile().end_of_work = true;
        turn_.publish();
    }

  private:
    struct Batch {
        bool end_of_work;
        int id[lane_rows]; /* may name no row: negative, or beyond the last */
    };

    __device__ __forceinline__ Batch next(SparseSchedule<1> &schedule, int lane) {
        while (column_ >= end_column_) {
            const Piece piece = schedule.next();
            if (piece.end_of_work)
                return {true, {-1, -1}};
            const int box_shift = __ffs(schedule_params_.box_tokens) - 1;
            column_ = piece.first_box << box_shift;
            end_column_ = piece.first_box < piece.end_box ? min(piece.end_token, piece.end_box << box_shift) : column_;
            const PieceQuery query(schedule_params_, schedule.sequences(), piece);
            ids_ = params_.token_ids + query.token * params_.token_ids_stride;
        }
        Batch batch = {false, {-1, -1}};
#pragma unroll
        for (int i = 0; i < lane_rows; ++i) {
            if (const int own = column_ + i * 32 + lane; own < end_column_)
                batch.id[i] = ids_[own];
        }
        column_ += TokenList::tile_tokens;
        return batch;
    }

    __device__ __forceinline__ void write(const Batch &batch, int lane) {
        TokenList::Tile &tile = turn_.tile();
        uint32_t seen[lane_rows];
        if constexpr (asked_bytes > 0) {
#pragma unroll
            for (const int id : batch.id)
                ask_for(row_of(static_cast<uint32_t>(id)));
        }
        turn_.wait_empty();
#pragma unroll
        for (int i = 0; i < lane_rows; ++i) {
            const uint32_t id = static_cast<uint32_t>(batch.id[i]);
            const uint8_t *const row = row_of(id);
            tile.row[i * 32 + lane] = row;
            /* One is as true as the other: the kernels have been measured with these. */
            seen[i] = __ballot_sync(tile::full_warp, asked_bytes > 0 ? row != nullptr : id < params_.num_tokens);
        }
        if (lane == 0) {
            tile.seen = static_cast<uint64_t>(seen[1]) << 32 | seen[0];
            tile.end_of_work = false;
        }
        turn_.publish();
    }

    __device__ __forceinline__ const uint8_t *row_of(uint32_t id) const {
        const bool exists = id < params_.num_tokens;
        const uint32_t page = tile::quotient(exists ? id : 0u, params_.page_size);
        const uint32_t in_page = id - page * params_.page_size.value;
        return exists ? params_.rows.rows + page * params_.rows.page_stride + in_page * params_.rows.token_stride : nullptr;
    }
    static __device__ __forceinline__ void ask_for(const uint8_t *row) {
        constexpr uint32_t line_bytes = 128;
        if (row == nullptr)
            return;
#pragma unroll
        for (uint32_t byte = 0; byte < asked_bytes; byte += line_bytes)
            ptx::prefetch(row + byte);
        ptx::prefetch(row + asked_bytes - 1);
    }

    const schedule_params &schedule_params_;
    const sparse_params &params_;
    TokenListTurn turn_;
    int column_ = 0, end_column_ = 0; /* of the piece's */
    const int32_t *ids_ = nullptr;
};

} // namespace pipeline
