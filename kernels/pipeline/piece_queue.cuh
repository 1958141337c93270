/* SPDX-License-Identifier: Apache-2.0 */
/*
 * piece_queue.cuh: hands pieces from the announcer warp to the consumer warps through shared memory, so that consumers need not
 * walk the schedule and keep their registers for the arithmetic.
 */
#pragma once

#include <cstdint>

#include "pipeline/describe_rows.cuh"
#include "pipeline/history.cuh"
#include "pipeline/skip_votes.cuh"
#include "pipeline/split_schedule.cuh"
#include "ptx/mbarrier.cuh"

namespace pipeline {

/* A piece, and what the rows of its unit see. */
template <int row_tile>
struct AnnouncedPiece {
    Piece piece;
    tile::UnitRows<row_tile> rows;
    uint32_t number;     /* of this worker's pieces */
    uint32_t first_team; /* of consumers: takes the first tile, in turns across pieces, if the ring has tiles alone */
};

/* Lies in shared memory. */
template <int row_tile>
struct PieceQueue {
    static constexpr uint32_t capacity = 4;
    alignas(8) uint64_t named[capacity];     /* one arrival: the piece, and which rows its unit has; its UnitParts may follow */
    alignas(8) uint64_t described[capacity]; /* one per lane of the announcer: what these rows see, the UnitParts; of followers */
    alignas(8) uint64_t empty[capacity];     /* one per consumer thread: each has read all that for itself */
    AnnouncedPiece<row_tile> slots[capacity];

    /* `followers`: warps other than the announcer that say of each piece that they have come to it: each an arrival on `described`. */
    __device__ __forceinline__ void initialise(int consumer_threads, int followers = 0) {
        for (uint32_t i = 0; i < capacity; ++i) {
            ptx::mbarrier_init(ptx::shared_address(&named[i]), 1);
            ptx::mbarrier_init(ptx::shared_address(&described[i]), 32 + followers);
            ptx::mbarrier_init(ptx::shared_address(&empty[i]), consumer_threads);
        }
    }

    /* Announcer: the slot of the piece of that number, as soon as it is free. */
    __device__ __forceinline__ AnnouncedPiece<row_tile> &wait_empty(uint32_t number) {
        wait(empty[number % capacity], (number / capacity & 1u) ^ 1u);
        return slots[number % capacity];
    }
    /* By the one lane that writes the piece; by every lane, behind what it has written of the rows. */
    __device__ __forceinline__ void name(uint32_t number) {
        ptx::mbarrier_arrive(ptx::shared_address(&named[number % capacity]));
    }
    __device__ __forceinline__ void describe(uint32_t number) {
        ptx::mbarrier_arrive(ptx::shared_address(&described[number % capacity]));
    }
    /* By one lane of a follower: consumers do not get further ahead of it. */
    __device__ __forceinline__ void come_to(uint32_t number) { describe(number); }

    /* Consumer: the piece of that number, readable until this thread pops it; until its rows are described; done with it. */
    __device__ __forceinline__ const AnnouncedPiece<row_tile> &wait_named(uint32_t number) {
        wait(named[number % capacity], number / capacity & 1u);
        return slots[number % capacity];
    }
    __device__ __forceinline__ void wait_described(uint32_t number) {
        wait(described[number % capacity], number / capacity & 1u);
    }
    __device__ __forceinline__ void pop(uint32_t number) { ptx::mbarrier_arrive(ptx::shared_address(&empty[number % capacity])); }

  private:
    static __device__ __forceinline__ void wait(uint64_t &barrier, uint32_t parity) {
        while (!ptx::mbarrier_try_wait(ptx::shared_address(&barrier), parity)) {
        }
    }
};

/* The announcer warp: every piece of this worker and the rows of its unit, in order, then the end of work. */
template <bool has_options, int tile_tokens, int teams, int row_tile, class Schedule>
__device__ __forceinline__ void announce(const schedule_params &params, const query_params &query_rows, Schedule &schedule,
                                         PieceQueue<row_tile> &pieces, int lane) {
    uint32_t tiles = 0; /* of the pieces so far */
    for (uint32_t number = 0;; ++number) {
        Piece piece = schedule.next();
        if (!piece.end_of_work)
            schedule.find_parts(piece);
        const QueryTokens query(schedule.sequences(), piece.request);
        if (rarely(number == 0 && is_history_final(params)))
            await_the_rest(params);
        AnnouncedPiece<row_tile> &slot = pieces.wait_empty(number);
        if (lane == 0) {
            slot.piece = piece;
            slot.number = number;
            slot.first_team = tiles % teams;
            name_rows(params, query, piece, slot.rows);
            if (has_options && query_rows.skip_factor > 0.f)
                slot.rows.skip_below = skip_below(query_rows.skip_factor, tokens_of_unit(params, schedule.sequences(), piece));
            pieces.name(number);
        }
        if (piece.end_of_work)
            return;
        if (rarely(!are_rows_alike(params) || (has_options && asks_places(query_rows))))
            describe_rows<has_options>(params, query_rows, schedule.sequences(), query, piece, slot.rows, lane);
        pieces.describe(number);
        __syncwarp();
        const uint32_t boxes_per_tile = tile_tokens >> (__ffs(params.box_tokens) - 1);
        tiles += (piece.end_box - piece.first_box + boxes_per_tile - 1) / boxes_per_tile;
    }
}

} // namespace pipeline
