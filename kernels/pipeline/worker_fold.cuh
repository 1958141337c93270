/* SPDX-License-Identifier: Apache-2.0 */
/*
 * worker_fold.cuh: level 3 of partial.cuh: the workers that share a unit, through records in global memory.
 *
 * Every part of a unit has a record (SplitSchedule::find_parts), and the first one's counts which of the unit's workers have left
 * their last part. Every warp does so for itself: a thread's part of a record is its own. What folds is always the records of all
 * parts in order, so the bits do not tell who came last, nor who computed which; and in one loop, since where the same sums stood twice the
 * compiler has fused their products differently.
 *
 * Nothing orders a record before its worker is counted, which would cost a round trip to memory. Instead the last to be
 * counted knows that all records are on their way, and reads until they are complete: no word of a complete record is zero, and
 * all are zero before. It clears them for the next launch.
 */
#pragma once

#include <cstdint>

#include "pipeline/partial.cuh"
#include "pipeline/split_schedule.cuh"
#include "ptx/memory.cuh"

namespace pipeline {

/* One vector of a record, and reference and sum of its row. */
template <int width>
struct RecordWords {
    float output[width];
    float statistics[2];

    __device__ __forceinline__ bool is_complete() const {
        bool all = __float_as_uint(statistics[0]) != 0u && __float_as_uint(statistics[1]) != 0u;
#pragma unroll
        for (int j = 0; j < width; ++j)
            all = all && __float_as_uint(output[j]) != 0u;
        return all;
    }
};

/* Zero with a sign: the same number, but not a cleared word. */
__device__ __forceinline__ float marked(float value) { return value == 0.f ? -0.f : value; }

/* As the threads hold it: for vector i of every thread its columns and the statistics of its row. */
template <class S>
struct alignas(16) WorkerRecord {
    float output[S::per_thread][S::threads][S::width];
    float statistics[S::per_thread][S::threads][2]; /* reference and sum */
    uint32_t arrivals[S::threads / 32];             /* of every warp */

    __device__ __forceinline__ void load(int i, uint32_t thread, RecordWords<S::width> &words) const {
        ptx::load_relaxed(words.output, output[i][thread]);
        ptx::load_relaxed(words.statistics, statistics[i][thread]);
    }

    __device__ __forceinline__ void store(const S &result) {
#pragma unroll
        for (int i = 0; i < S::per_thread; ++i) {
            if (!result.live(i))
                continue;
            float value[S::width];
#pragma unroll
            for (int j = 0; j < S::width; ++j)
                value[j] = marked(result.value[i][j]);
            ptx::store_relaxed(output[i][result.thread], value);
            ptx::store_relaxed(statistics[i][result.thread], {marked(result.reference[i]), marked(result.sum[i])});
        }
    }

    __device__ __forceinline__ void clear(const S &result) {
#pragma unroll
        for (int i = 0; i < S::per_thread; ++i) {
            if (!result.live(i))
                continue;
            const float zeros[S::width] = {};
            ptx::store_relaxed(output[i][result.thread], zeros);
            ptx::store_relaxed(statistics[i][result.thread], {0.f, 0.f});
        }
    }
};

/* Some microseconds at most; launches that use one workspace at the same time would wait forever, and get an error instead. */
constexpr int most_tries = 1 << 22;
template <class Record, int width>
__device__ __noinline__ RecordWords<width> wait_for_words(const Record *record, int i, uint32_t thread) {
    RecordWords<width> words;
    for (int tries = 0; tries < most_tries; ++tries) {
        record->load(i, thread, words);
        if (words.is_complete())
            return words;
    }
    __trap();
    return words;
}

/* The parts of a piece's unit. */
template <class S>
class WorkerFold {
  public:
    using Record = WorkerRecord<S>;

    __device__ __forceinline__ WorkerFold(void *records, const Piece &piece)
        : records_(static_cast<Record *>(records)), piece_(piece), parts_(piece.parts.count) {}

    /* Leaves this warp's part of the piece's result. Whether it came last; then `result` is the whole unit's. */
    __device__ __forceinline__ bool run(S &result) {
        record(piece_.parts.own)->store(result);
        if (rarely(!piece_.parts.ends_share))
            return false;
        __syncwarp();
        const uint32_t others = piece_.parts.num_workers - 1;
        uint32_t *const arrivals = &record(0)->arrivals[result.thread / 32];
        uint32_t before = 0;
        if (result.thread % 32 == 0 && others > 0)
            before = ptx::atomic_add(arrivals, 1u);

        constexpr int at_most = 48 / (S::per_thread * (S::width + 2)); /* registers allow */
        constexpr int together = at_most > 4 ? 4 : at_most > 1 ? at_most : 1;
#pragma unroll 1
        for (int first = 0; first < parts_; first += together) {
            RecordWords<S::width> words[together][S::per_thread] = {};
#pragma unroll
            for (int k = 0; k < together; ++k) {
#pragma unroll
                for (int i = 0; i < S::per_thread; ++i) {
                    if (first + k < parts_ && result.live(i))
                        record(first + k)->load(i, result.thread, words[k][i]);
                }
            }
            if (first == 0) { /* the count has been on its way together with them */
                if (__shfl_sync(tile::full_warp, before, 0) != others)
                    return false;
                if (result.thread % 32 == 0)
                    *arrivals = 0u;
                result.clear();
            }
            fold_words(result, first, words);
        }
        return true;
    }

    /* Clears what this thread has read of the records. */
    __device__ __forceinline__ void clear(const S &result) {
#pragma unroll 1
        for (int part = 0; part < parts_; ++part)
            record(part)->clear(result);
    }

  private:
    /* Parts from `first` on. */
    template <int together>
    __device__ __forceinline__ void fold_words(S &result, int first, RecordWords<S::width> (&words)[together][S::per_thread]) {
#pragma unroll
        for (int k = 0; k < together; ++k) {
#pragma unroll
            for (int i = 0; i < S::per_thread; ++i) {
                if (first + k >= parts_ || !result.live(i))
                    continue;
                if (rarely(!words[k][i].is_complete()))
                    words[k][i] = wait_for_words<Record, S::width>(record(first + k), i, result.thread);
                result.fold(i, words[k][i].output, words[k][i].statistics[0], words[k][i].statistics[1]);
            }
        }
    }

    __device__ __forceinline__ Record *record(int part) const { return records_ + piece_.parts.records.of(part); }

    Record *const records_;
    const Piece &piece_;
    const int parts_;
};

} // namespace pipeline
