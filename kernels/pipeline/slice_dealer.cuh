/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slice_dealer.cuh: who adds up the parts of a unit where that is much: not the worker that comes last alone, which would read all of
 * them at what one SM gets from the second cache. What there is to add up is cut into slices, and whoever has time takes the next one.
 *
 * A worker leaves its part and is counted. Who has further pieces goes on with them; who has none waits for the others, and the last to come
 * has nobody to wait for. These take slices until there are none. Nobody relies on who waits: a worker that others may keep from running
 * is waited for a little while only, and then the last one does without.
 */
#pragma once

#include <cstdint>

#include "pipeline/split_schedule.cuh"
#include "ptx/memory.cuh"

namespace pipeline {

/*
 * Of a unit, in the record of its first part: how many workers have arrived, how many of them are to take slices, and how many slices were
 * asked for. Every taker asks once in vain, and the last of these leaves zero, which it was before the launch.
 */
struct alignas(8) SliceCounts {
    static constexpr uint32_t arrival = 1, taker = 1u << 10, slice = 1u << 20;
    uint32_t word;

    static __device__ __forceinline__ uint32_t arrivals(uint32_t word) { return word % taker; }
    static __device__ __forceinline__ uint32_t takers(uint32_t word) { return word / taker % (slice / taker); }
    static __device__ __forceinline__ uint32_t asked(uint32_t word) { return word / slice; }
};

/*
 * Where the parts of a piece's unit lie: each in scratch, as the threads hold it, since the fence ahead of the counts makes known what was
 * left, whatever was there before; and the counts in the record of the first.
 */
template <class Part>
class DealtParts {
  public:
    __device__ __forceinline__ DealtParts(void *records, void *scratch, const UnitRecords &places)
        : counts_(static_cast<SliceCounts *>(records)), parts_(static_cast<Part *>(scratch)), places_(places) {}

    __device__ __forceinline__ SliceCounts &counts() const { return counts_[places_.of(0)]; }
    __device__ __forceinline__ Part &operator[](uint32_t part) const { return parts_[places_.of(part)]; }

  private:
    SliceCounts *const counts_;
    Part *const parts_;
    const UnitRecords &places_;
};

/*
 * Of one CTA and one unit, which `workers` share; all of the threads that add up call together. `shared_next`: in shared memory; meet(): all
 * these threads; `is_leader`: one of them.
 */
template <class Meet>
class SliceDealer {
  public:
    __device__ __forceinline__ SliceDealer(SliceCounts &counts, uint32_t workers, uint32_t slices, uint32_t &shared_next,
                                           bool is_leader, Meet meet)
        : word_(counts.word), workers_(workers), slices_(slices), shared_next_(shared_next), is_leader_(is_leader), meet_(meet) {}

    /* Counts this worker, behind all that its threads have left. Asks for the first slice, if it is to take any: all parts are there then. */
    __device__ __forceinline__ void arrive(bool may_wait) {
        meet_();
        if (!is_leader_)
            return;
        ptx::fence_gpu();
        next_ = arrived(may_wait) ? asked() : slices_;
        ptx::fence_gpu();
    }

    /* The next slice, which was asked for before; as many as there are: there is none. */
    __device__ __forceinline__ uint32_t take() {
        if (is_leader_)
            shared_next_ = next_;
        meet_();
        const uint32_t slice = shared_next_;
        meet_(); /* all have read it */
        return slice;
    }
    /* Asks for another one: ahead of what does not depend on it, as it comes from far. */
    __device__ __forceinline__ void ask() {
        if (is_leader_)
            next_ = asked();
    }

  private:
    static constexpr int most_looks = 128; /* of a trip to the second cache each, so some 50 us on an H200 */

    /* Whether this worker is a taker, which it says at first and may take back, as long as it is not time. */
    __device__ __forceinline__ bool arrived(bool may_wait) {
        constexpr uint32_t own = SliceCounts::arrival + SliceCounts::taker;
        uint32_t word = ptx::atomic_add(&word_, own) + own;
        is_alone_ = word == SliceCounts::arrival * (workers_ - 1) + own;
        if (is_alone_)
            word_ = 0u; /* nobody will look at it any more */
#pragma unroll 1
        for (int looks = 0; SliceCounts::arrivals(word) != workers_; ++looks) {
            const bool gives_up = !may_wait || looks >= most_looks;
            const uint32_t before =
                gives_up ? ptx::compare_and_swap(&word_, word, word - SliceCounts::taker) : ptx::load_count(&word_);
            if (gives_up && before == word)
                return false;
            word = before;
        }
        return true;
    }

    __device__ __forceinline__ uint32_t asked() {
        if (is_alone_)
            return taken_++;
        const uint32_t word = ptx::atomic_add(&word_, SliceCounts::slice), slice = SliceCounts::asked(word);
        if (slice + 1 == slices_ + SliceCounts::takers(word))
            word_ = 0u;
        return min(slice, slices_);
    }

    uint32_t &word_;
    const uint32_t workers_, slices_;
    uint32_t &shared_next_;
    const bool is_leader_;
    Meet meet_;
    uint32_t next_ = 0, taken_ = 0; /* of the leader */
    bool is_alone_ = false;         /* the only taker */
};

} // namespace pipeline
