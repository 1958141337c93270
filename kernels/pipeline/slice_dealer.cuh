/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slice_dealer.cuh: who adds up the parts of a unit where that is much: not the worker that comes last alone, which would read and clear all of
 * them at what one SM gets from the second cache. What there is to add up is cut into slices, and whoever has time takes the next one.
 *
 * A worker leaves its part and is counted. Who has further pieces goes on with them; who has none waits for the others, and the last to come
 * has nobody to wait for. These take slices until there are none. Nobody relies on who waits: a worker that others may keep from running
 * is waited for a little while only, and then the last one does without.
 */
#pragma once

#include <cstdint>

#include "ptx/memory.cuh"

namespace pipeline {

/* Of a unit, in global memory. All zero before a launch, and after. */
struct SliceCounts {
    /* How many workers have arrived, until the last of them has no slice to take any more; from `waiter` on how many wait, and take slices. */
    uint32_t state;
    uint32_t taken; /* slices, and more where workers found none */
};

/* Of one CTA and one unit; all of the threads that add up call together. `word`: in shared memory; meet(): all these threads. */
template <class Meet>
class SliceDealer {
  public:
    __device__ __forceinline__ SliceDealer(SliceCounts &counts, uint32_t workers, uint32_t &word, bool is_leader, Meet meet)
        : counts_(counts), workers_(workers), word_(word), is_leader_(is_leader), meet_(meet) {}

    /*
     * Counts this worker, behind all that its threads have left. Whether it is to take slices: all parts are there then, and this worker
     * says when it has found none. `may_wait`: it has nothing else to do.
     */
    __device__ __forceinline__ bool arrive(bool may_wait) {
        ptx::fence_gpu();
        meet_();
        if (is_leader_)
            word_ = counted(may_wait);
        own_ = shared_word();
        ptx::fence_gpu();
        return own_ != 0;
    }

    /* The next slice; as many as there are, or more: there is none. */
    __device__ __forceinline__ uint32_t take() {
        if (is_leader_)
            word_ = ptx::atomic_add(&counts_.taken, 1u);
        return shared_word();
    }

    /* No slice is to be taken any more. */
    __device__ __forceinline__ void leave() {
        if (is_leader_ && ptx::atomic_add(&counts_.state, 0u - own_) == own_)
            counts_.taken = 0u;
    }

  private:
    static constexpr uint32_t waiter = 1u << 16;
    static constexpr int most_looks = 128; /* of a trip to the second cache each, so some 50 us on an H200 */

    /* All workers have arrived; it may be that the last of them has left. */
    __device__ __forceinline__ bool is_time(uint32_t state) const {
        const uint32_t arrivals = state % waiter;
        return arrivals == workers_ || arrivals == 0;
    }

    /* What this worker takes from the state in the end; 0: it takes no slices. */
    __device__ __forceinline__ uint32_t counted(bool may_wait) {
        const uint32_t wait = may_wait ? waiter : 0u;
        uint32_t state = ptx::atomic_add(&counts_.state, wait + 1);
        if (state % waiter == workers_ - 1)
            return wait + workers_;
        if (!may_wait)
            return 0;
#pragma unroll 1
        for (int looks = 0; looks < most_looks; ++looks) {
            state = ptx::load_count(&counts_.state);
            if (is_time(state))
                return wait;
        }
#pragma unroll 1
        for (;;) {
            const uint32_t before = ptx::compare_and_swap(&counts_.state, state, state - waiter);
            if (before == state)
                return 0;
            state = before;
            if (is_time(state))
                return wait;
        }
    }

    __device__ __forceinline__ uint32_t shared_word() {
        meet_();
        const uint32_t word = word_;
        meet_(); /* all have read it */
        return word;
    }

    SliceCounts &counts_;
    const uint32_t workers_;
    uint32_t &word_;
    const bool is_leader_;
    Meet meet_;
    uint32_t own_ = 0;
};

} // namespace pipeline
