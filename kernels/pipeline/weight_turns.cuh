/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weight_turns.cuh: where warpgroups stand that compute scores and outputs for each other: which of them a warp belongs to, and which place
 * of the weights has its turn.
 */
#pragma once

#include <cstdint>

#include "ptx/mbarrier.cuh"
#include "ptx/memory.cuh"
#include "ptx/scalar.cuh"
#include "tile/constants.cuh"
#include "tile/warpgroup.cuh"

namespace pipeline {

/* Of the weights of all pieces so far: where the next ones lie, and which round of that place it is. */
template <uint32_t places>
struct WeightTurn {
    uint32_t number = 0;
    __device__ __forceinline__ uint32_t place() const { return number % places; }
    __device__ __forceinline__ uint32_t parity() const { return number / places & 1; }
    __device__ __forceinline__ WeightTurn before() const { return {number - 1}; }
};

/* Where a consumer warp stands. */
struct GroupPlace {
    int group; /* of output warpgroups */

    explicit __device__ __forceinline__ GroupPlace(int thread) {
        group =
            __shfl_sync(tile::full_warp, thread / tile::group_threads, 0); /* alike for all lanes, as the compiler then knows */
    }
    /* Kept, they would take registers. Of a number that is not negative, as the compiler has to know: what comes of them is shorter. */
    __device__ __forceinline__ int lane() const { return thread_here() % 32; }
    __device__ __forceinline__ int warp() const { return thread_here() / 32 % tile::group_warps; }
    __device__ __forceinline__ int thread() const { return thread_here() % tile::group_threads; }

  private:
    static __device__ __forceinline__ uint32_t thread_here() { return ptx::thread_index_here(); }
};

/* Until a barrier in shared memory has completed the phase of that parity. */
__device__ __forceinline__ void wait_for(uint64_t &barrier, uint32_t parity) {
    while (!ptx::mbarrier_try_wait(ptx::shared_address(&barrier), parity)) {
    }
}

} // namespace pipeline
