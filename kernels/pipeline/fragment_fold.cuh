/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fragment_fold.cuh: level 3 of partial.cuh, as worker_fold.cuh, whose rules hold, for results that lie in registers as mma left them, folded
 * within a cluster: FragmentSlice. Those of single CTAs are larger: fragment_slice_fold.cuh.
 *
 * A warp may keep its part, and is counted before it has left it: if it came last, it folds that part from its registers, and nobody reads
 * the record; if not, it leaves the part at once, and who came last waits for it as for any that is on its way.
 */
#pragma once

#include <cstdint>

#include "pipeline/partial.cuh"
#include "pipeline/split_schedule.cuh"
#include "pipeline/worker_fold.cuh"
#include "ptx/memory.cuh"

namespace pipeline {

/* As the threads hold it. */
template <class S>
struct alignas(16) FragmentRecord {
    float output[S::word_vectors][S::threads][S::word_width];
    float statistics[S::statistics][S::threads][2]; /* reference and sum */
    uint32_t arrivals[S::threads / 32];             /* of every warp */
};

/* The parts of a piece's unit. */
template <class S>
class FragmentFold {
  public:
    using Record = FragmentRecord<S>;

    __device__ __forceinline__ FragmentFold(void *records, const Piece &piece)
        : records_(static_cast<Record *>(records)), piece_(piece), parts_(piece.parts.count) {}

    __device__ __forceinline__ void leave(const S &result) {
        if (!result.live())
            return;
        Record *const of_part = record(piece_.parts.own);
        const Words words = marked_words(result);
#pragma unroll
        for (int i = 0; i < S::word_vectors; ++i)
            ptx::store_relaxed(of_part->output[i][result.thread], words.output[i]);
#pragma unroll
        for (int i = 0; i < S::statistics; ++i)
            ptx::store_relaxed(of_part->statistics[i][result.thread], words.statistics[i]);
    }

    /* What was counted before this warp, in lane 0. Behind `leave`; ahead of it where take_others_if_last follows. */
    __device__ __forceinline__ uint32_t count(uint32_t thread) {
        __syncwarp();
        return piece_.parts.ends_share && piece_.parts.num_workers > 1 && thread % 32 == 0
                   ? ptx::atomic_add(&record(0)->arrivals[thread / 32], 1u)
                   : 0u;
    }
    /* Whether this warp was counted last, and is to fold the parts. */
    __device__ __forceinline__ bool came_last(uint32_t counted, uint32_t thread) {
        if (rarely(!piece_.parts.ends_share) || __shfl_sync(tile::full_warp, counted, 0) != piece_.parts.num_workers - 1)
            return false;
        if (thread % 32 == 0)
            record(0)->arrivals[thread / 32] = 0u;
        return true;
    }
    /*
     * All parts, in order, if `counted` says that this warp came last; else nothing changes. `together` of them are on their way at a time, and
     * the count together with the first.
     */
    template <int together>
    __device__ __forceinline__ bool take_if_last(S &result, uint32_t counted) {
        return take<together, false>(result, [&] { return came_last(counted, result.thread); });
    }
    /*
     * The same with this piece's part as `result` has it, which was not left: if `counted`, before it would have been, says that this warp
     * came last. Otherwise nothing changes, and it is to be left. The count is on its way together with the first of the others' parts.
     */
    template <int together>
    __device__ __forceinline__ bool take_others_if_last(S &result, uint32_t counted) {
        return take<together, true>(result, [&] { return came_last(counted, result.thread); });
    }

    /* Clears what this thread has read of the records: of all parts, or of those of the others. */
    __device__ __forceinline__ void clear(const S &result) { clear_but(-1, result); }
    __device__ __forceinline__ void clear_others(const S &result) { clear_but(static_cast<int>(piece_.parts.own), result); }

  private:
    using Words = typename S::Words;

    /* As they are left: so the bits do not tell whether they were. */
    static __device__ __forceinline__ Words marked_words(const S &result) {
        Words words = result.words();
#pragma unroll
        for (int i = 0; i < S::word_vectors; ++i) {
#pragma unroll
            for (int j = 0; j < S::word_width; ++j)
                words.output[i][j] = marked(words.output[i][j]);
        }
#pragma unroll
        for (int i = 0; i < S::statistics; ++i) {
#pragma unroll
            for (int j = 0; j < 2; ++j)
                words.statistics[i][j] = marked(words.statistics[i][j]);
        }
        return words;
    }

    __device__ __forceinline__ void clear_but(int kept_part, const S &result) {
        if (!result.live())
            return;
#pragma unroll 1
        for (int part = 0; part < parts_; ++part) {
            if (part == kept_part)
                continue;
            Record *const of_part = record(part);
            const Words zeros = {};
#pragma unroll
            for (int i = 0; i < S::word_vectors; ++i)
                ptx::store_relaxed(of_part->output[i][result.thread], zeros.output[i]);
#pragma unroll
            for (int i = 0; i < S::statistics; ++i)
                ptx::store_relaxed(of_part->statistics[i][result.thread], zeros.statistics[i]);
        }
    }

    template <int together, bool has_own, class IsLast>
    __device__ __forceinline__ bool take(S &result, IsLast is_last) {
        const int own_part = has_own ? static_cast<int>(piece_.parts.own) : -1;
        Words own = {};
        if constexpr (has_own)
            own = marked_words(result);
        if (!result.live())
            return is_last();
#pragma unroll 1
        for (int first = 0; first < parts_; first += together) {
            Words words[together] = {};
#pragma unroll
            for (int k = 0; k < together; ++k) {
                if (first + k < parts_ && first + k != own_part)
                    load(first + k, result.thread, words[k]);
            }
            if (first == 0) {
                if (!is_last())
                    return false;
                result.clear();
            }
#pragma unroll
            for (int k = 0; k < together; ++k) {
                if (first + k >= parts_)
                    continue;
                if (first + k == own_part)
                    words[k] = own;
                for (int tries = 0; rarely(!are_complete(words[k])); ++tries) { /* as wait_for_words */
                    if (tries == most_tries)
                        __trap();
                    load(first + k, result.thread, words[k]);
                }
            }
            result.fold(words, parts_ - first);
        }
        return true;
    }

    __device__ __forceinline__ void load(int part, uint32_t thread, Words &words) const {
        const Record *const of_part = record(part);
#pragma unroll
        for (int i = 0; i < S::word_vectors; ++i)
            ptx::load_relaxed(words.output[i], of_part->output[i][thread]);
#pragma unroll
        for (int i = 0; i < S::statistics; ++i)
            ptx::load_relaxed(words.statistics[i], of_part->statistics[i][thread]);
    }
    static __device__ __forceinline__ bool are_complete(const Words &words) {
        bool all = true;
#pragma unroll
        for (int i = 0; i < S::word_vectors; ++i) {
#pragma unroll
            for (int j = 0; j < S::word_width; ++j)
                all = all && __float_as_uint(words.output[i][j]) != 0u;
        }
#pragma unroll
        for (int i = 0; i < S::statistics; ++i)
            all = all && __float_as_uint(words.statistics[i][0]) != 0u && __float_as_uint(words.statistics[i][1]) != 0u;
        return all;
    }
    __device__ __forceinline__ Record *record(int part) const { return records_ + piece_.parts.records.of(part); }

    Record *const records_;
    const Piece &piece_;
    const int parts_;
};

} // namespace pipeline
