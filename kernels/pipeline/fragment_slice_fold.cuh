/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fragment_slice_fold.cuh: level 3 of partial.cuh, as accumulator_fold.cuh, for results that lie in registers as mma left them, folded within a
 * CTA: FragmentSlice. A part is left as the threads hold it, and slices of a few pairs of each thread are added up by whichever worker has
 * time (slice_dealer.cuh), in the order of the parts.
 */
#pragma once

#include <cstdint>

#include "pipeline/fragment_slice.cuh"
#include "pipeline/partial.cuh"
#include "pipeline/slice_dealer.cuh"
#include "pipeline/split_schedule.cuh"
#include "ptx/memory.cuh"

namespace pipeline {

/* Of `Whole`, what a CTA has; in slices of `slice_pairs` pairs. */
template <class Format, class Whole, int slice_pairs>
class FragmentSliceFold {
    static constexpr int threads = Whole::threads;

  public:
    using Slice = FragmentSlice<Format, Whole::rows, slice_pairs, threads, 4>;
    static constexpr int slices = Whole::pairs / slice_pairs;
    static_assert(slices * slice_pairs == Whole::pairs && Slice::word_vectors == 1 && Slice::word_width <= Whole::word_width,
                  "a vector of every thread, of one of those that it leaves");

    /* As the threads hold it: a unit of the values that a warp has, with the sums, goes for all slices. */
    struct alignas(16) Part {
        float output[slices][threads][Slice::word_width];
        float statistics[threads][2];
    };

    /*
     * Leaves the part that `piece` is of its unit. `next_slice`: in shared memory. store(slice, its number): of one that has fallen to this
     * worker, all parts of it. meet(): all threads.
     */
    template <class Meet, class Store>
    static __device__ __forceinline__ void run(void *records, void *scratch, uint32_t &next_slice, const Piece &piece,
                                               const Whole &whole, Meet meet, Store store) {
        const DealtParts<Part> parts(records, scratch, piece.parts.records);
        leave(parts[piece.parts.own], whole);
        if (rarely(!piece.parts.ends_share))
            return;
        SliceDealer dealer(parts.counts(), piece.parts.num_workers, slices, next_slice, whole.thread == 0, meet);
        dealer.arrive(piece.is_last);
#pragma unroll 1
        for (uint32_t number = dealer.take(); number < slices; number = dealer.take()) {
            Slice slice(whole.live_rows, number * slice_pairs);
            add(parts, piece.parts.count, number, slice);
            dealer.ask();
            store(slice, number);
        }
    }

  private:
    static __device__ __forceinline__ void leave(Part &part, const Whole &whole) {
        if (!whole.live())
            return;
        const typename Whole::Words words = whole.words();
#pragma unroll
        for (int slice = 0; slice < slices; ++slice) {
            float of_slice[Slice::word_width];
#pragma unroll
            for (int j = 0; j < Slice::word_width; ++j) {
                const int word = slice * Slice::word_width + j;
                of_slice[j] = words.output[word / Whole::word_width][word % Whole::word_width];
            }
            ptx::store_relaxed(part.output[slice][whole.thread], of_slice);
        }
        ptx::store_relaxed(part.statistics[whole.thread], words.statistics[0]);
    }

    /* A slice of all parts, in order. */
    static __device__ __forceinline__ void add(const DealtParts<Part> &parts, uint32_t count, uint32_t number, Slice &slice) {
        constexpr uint32_t together = 4; /* parts that are on their way at a time */
        slice.clear();
        if (!slice.live())
            return;
#pragma unroll 1
        for (uint32_t first = 0; first < count; first += together) {
            typename Slice::Words words[together] = {};
#pragma unroll
            for (uint32_t k = 0; k < together; ++k) {
                if (first + k >= count)
                    continue;
                const Part &part = parts[first + k];
                ptx::load_relaxed(words[k].output[0], part.output[number][slice.thread]);
                ptx::load_relaxed(words[k].statistics[0], part.statistics[slice.thread]);
            }
            slice.fold(words, static_cast<int>(count - first));
        }
    }
};

} // namespace pipeline
