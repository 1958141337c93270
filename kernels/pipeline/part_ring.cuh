/* SPDX-License-Identifier: Apache-2.0 */
/*
 * part_ring.cuh: kv_ring.cuh for tiles that are refilled, and waited for, part by part: where a tile of MLA takes so much of shared
 * memory that only two fit, and one half of V is needed long after the other. A tile is [line][64 tokens][128 bytes]; its last line, where
 * it is no part of V, is part 0, then come the pieces of the half of V that is given back first, then those of the other one. Every part is
 * given back by itself: a piece of V before the next one of its half has been multiplied.
 *
 *     stage 0:  part 0: last line    1, 2: half 0    3, 4: half 1
 *     stage 1:  part 0: last line    1, 2: half 1    3, 4: half 0
 */
#pragma once

#include <cstdint>

#include "ptx/mbarrier.cuh"
#include "ptx/wgmma.cuh"

namespace pipeline {

/* Lies in shared memory. */
struct PartRingBarriers {
    static constexpr int stages = 2, parts = 5;
    uint64_t full[stages][parts];  /* arrivals of who brings the part, and its bytes, where the copy engine does */
    uint64_t empty[stages][parts]; /* the last line, then V from its first piece on: one arrival per warp of who reads it last */
};

/* One warp's place in the ring. `lines`: of a tile; where their number is odd, the last one is no part of V, and else there is no part 0. */
template <int lines_>
class PartRing {
  public:
    static constexpr int num_stages = PartRingBarriers::stages, num_tensors = 1, parts = PartRingBarriers::parts;
    static constexpr int lines = lines_, v_lines = lines / 2 * 2, first_part = lines == v_lines ? 1 : 0;
    static constexpr bool has_last_line = lines != v_lines;
    static constexpr int half_lines = v_lines / 2, half_pieces = 2, piece_lines = half_lines / half_pieces;
    static constexpr int line_bytes = 64 * 128, tile_bytes = lines * line_bytes;
    static_assert(1 + 2 * half_pieces == parts && 2 * half_pieces * piece_lines == v_lines, "a line and two halves");

    __device__ __forceinline__ PartRing(PartRingBarriers &barriers, const void *tiles)
        : full_(ptx::shared_address(barriers.full)), empty_(ptx::shared_address(barriers.empty)),
          tiles_(ptx::shared_address(tiles)) {}

    /* `arrivals`: of who brings a part; `reading_warps`: of one of the two warpgroups. */
    static __device__ __forceinline__ void initialise(PartRingBarriers &barriers, int arrivals, int reading_warps) {
        for (int stage = 0; stage < num_stages; ++stage) {
            for (int part = 0; part < parts; ++part) {
                ptx::mbarrier_init(ptx::shared_address(&barriers.full[stage][part]), arrivals);
                ptx::mbarrier_init(ptx::shared_address(&barriers.empty[stage][part]), reading_warps);
            }
        }
    }

    /* First line of part `part` of a stage; its lines. Of parts without a sign where the compiler does not know them: their remainder is a mask. */
    template <class Part>
    static __device__ __forceinline__ Part first_line(uint32_t stage, Part part) {
        return part == 0 ? lines - 1 : ((part - 1) * piece_lines + static_cast<Part>(stage) * half_lines) % v_lines;
    }
    static __device__ __forceinline__ constexpr int lines_of(int part) { return part == 0 ? 1 : piece_lines; }

    __device__ __forceinline__ uint32_t stage() const { return number_ % num_stages; }
    __device__ __forceinline__ uint32_t tile(uint32_t stage) const { return tiles_ + stage * tile_bytes; }
    __device__ __forceinline__ uint32_t full_barrier(int part) const { return full_ + (stage() * parts + part) * 8; }

    /* Consumer: the part is in shared memory; this warp has read the last line, or a piece of a half of V. */
    __device__ __forceinline__ void wait_full(int part) const { wait(full_barrier(part), phase()); }
    __device__ __forceinline__ void release_last_line(uint32_t stage, int lane) const { release(stage, 0, lane); }
    __device__ __forceinline__ void release_piece(uint32_t stage, int half, int piece, int lane) const {
        release(stage, 1 + half * half_pieces + piece, lane);
    }
    /* Producer: what was there has been read; in the first round nothing was. */
    __device__ __forceinline__ void wait_empty(int part) const {
        const int place = part == 0 ? 0 : 1 + first_line(stage(), part) / piece_lines;
        wait(empty_ + (stage() * parts + place) * 8, phase() ^ 1u);
    }

    /* Of the stage of the tile before this one, when that was there. */
    __device__ __forceinline__ uint32_t phase_before() const { return (number_ - 1) / num_stages & 1u; }
    __device__ __forceinline__ void advance(int tiles = 1) { number_ += tiles; }

  private:
    __device__ __forceinline__ uint32_t phase() const { return number_ / num_stages & 1u; }
    __device__ __forceinline__ void release(uint32_t stage, int place, int lane) const {
        __syncwarp();
        if (lane == 0)
            ptx::mbarrier_arrive(empty_ + (stage * parts + place) * 8);
    }
    static __device__ __forceinline__ void wait(uint32_t barrier, uint32_t parity) {
        while (!ptx::mbarrier_try_wait(barrier, parity)) {
        }
    }

    uint32_t full_, empty_, tiles_;
    uint32_t number_ = 0; /* of the tile, from the first one of the worker on */
};

} // namespace pipeline
