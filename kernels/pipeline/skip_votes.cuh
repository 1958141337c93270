/* SPDX-License-Identifier: Apache-2.0 */
/*
 * skip_votes.cuh: skip-softmax (BLASST, arXiv 2512.12087): a tile whose scores lie far below what its rows have seen adds next to
 * nothing, and its V need not be read. The warps that share a tile say so before V is asked for; if one wants it, it comes.
 *
 *     consumer warp   qk(tile), score - largest score so far < skip_below in every row?  vote  ...  pv, if it wants the tile
 *     V producer                                                                   wait for all votes, copy or pass over
 *
 * V then comes a trip to memory after the scores; the tiles of other teams, and K of those to come, fill the time.
 */
#pragma once

#include <cmath>
#include <cstdint>

#include "abi.h"
#include "ptx/mbarrier.cuh"

namespace pipeline {

/* Lies in shared memory. `stages` of the ring; a stage's rounds alternate between two words. */
template <int stages>
struct SkipVotes {
    static constexpr bool exist = true;
    uint64_t voted[stages];     /* one arrival per warp that reads the tile */
    uint32_t wanted[stages][2]; /* not 0: one of them wants V */

    __device__ __forceinline__ void initialise(int reading_warps) {
        for (int stage = 0; stage < stages; ++stage) {
            ptx::mbarrier_init(ptx::shared_address(&voted[stage]), reading_warps);
            wanted[stage][0] = wanted[stage][1] = 0;
        }
    }

    /*
     * Consumer warp. `clears`: one of those that share the tile makes the other word ready for the next round. All who read it have
     * done so: the V that they then brought was waited for before this round.
     */
    __device__ __forceinline__ void vote(int stage, uint32_t phase, bool wants, bool clears, int lane) {
        __syncwarp();
        if (lane != 0)
            return;
        if (clears)
            wanted[stage][phase ^ 1u] = 0;
        if (wants)
            atomicOr(&wanted[stage][phase], 1u);
        ptx::mbarrier_arrive(ptx::shared_address(&voted[stage]));
    }

    /* V producer: whether the tile's V is to be copied. */
    __device__ __forceinline__ bool wait(int stage, uint32_t phase) {
        while (!ptx::mbarrier_try_wait(ptx::shared_address(&voted[stage]), phase)) {
        }
        return *static_cast<volatile uint32_t *>(&wanted[stage][phase]) != 0;
    }
};

/* Of kernels that pass over nothing. */
struct NoVotes {
    static constexpr bool exist = false;
    __device__ __forceinline__ void initialise(int) {}
    __device__ __forceinline__ void vote(int, uint32_t, bool, bool, int) {}
    __device__ __forceinline__ bool wait(int, uint32_t) { return true; }
};

/*
 * How far below the largest score so far, in base 2, every score of a tile must lie: log2(factor / tokens), tokens of the sequence.
 * Not below 1, the ratio would leave nothing to keep: then no tile is passed over.
 */
__device__ __forceinline__ float skip_below(float factor, int tokens) {
    const float ratio = factor / static_cast<float>(tokens);
    return ratio < 1.f ? log2f(ratio) : -INFINITY;
}

} // namespace pipeline
