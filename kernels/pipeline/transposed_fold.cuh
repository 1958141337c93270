/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transposed_fold.cuh: level 3 of partial.cuh, for results of two warpgroups that have output^T (tile/gathered_warpgroup.cuh): a part of a unit
 * is left as their registers have it, all at once, and counted once for the CTA. The worker that comes last has all of them added up in the same
 * registers, in the order of the parts, whoever that is. A fence makes known what was left, so words may be zero here; but all become zeros
 * again, which the other files of this level rely on.
 *
 * Many parts are folded in groups, so that several workers add up: who comes last in a group leaves its sum in the place of the first part,
 * and the last of those that did so adds up the groups. Of 12 parts in groups of 4:
 *
 *     parts    0 1 2 3   4 5 6 7   8 9 10 11
 *     groups   0         4         8           each by the last of its four
 *     unit     0                               by the last of the three
 */
#pragma once

#include <cmath>
#include <cstdint>

#include "pipeline/partial.cuh"
#include "pipeline/split_schedule.cuh"
#include "ptx/memory.cuh"
#include "ptx/scalar.cuh"
#include "tile/warpgroup.cuh"

namespace pipeline {

/* All threads of both warpgroups call together. `groups_parts`: many parts are folded in groups. */
template <int threads, bool groups_parts>
class TransposedFold {
    static constexpr int steps = 4, turns = threads / tile::group_rows;
    static constexpr uint32_t most_factors = 32;
    static constexpr uint32_t few_parts = 5; /* in groups: to leave a sum takes as long as to add one */

  public:
    using Output = tile::OutputFragment<steps, tile::group_row_fragments>;

    /* A part, as the threads hold it. */
    struct alignas(16) Record {
        float output[steps * tile::group_row_fragments][threads][4];
        float statistics[tile::group_rows][2]; /* reference and sum */
        alignas(16) uint32_t arrivals;         /* of the workers of a group, in its first part */
        uint32_t group_arrivals;               /* in part 0 */
    };

    /* Every step-th part from the first on. */
    struct Parts {
        uint32_t first, step, count;
    };

    /* Lies in shared memory. */
    struct Memory {
        float factors[most_factors][tile::group_rows]; /* of parts, by rows */
        float of_turn[turns][tile::group_rows];        /* of rows: the largest reference of parts, then their sum */
        bool is_last;
    };

    /*
     * Leaves a part. Whether this worker is the last of those that share the unit: output and statistics are those of the unit then.
     * `may_group`: parts are the workers', one each.
     */
    template <class Meet>
    static __device__ __forceinline__ bool run(void *of_parts, Memory &memory, float (&statistics)[tile::group_rows][2],
                                               const Piece &piece, bool may_group, Output &output, Meet meet) {
        Record *const records = static_cast<Record *>(of_parts);
        const int thread = ptx::thread_index_here();
        uint32_t own = piece.part, size = piece.num_parts;
        if (groups_parts && may_group && piece.num_parts > few_parts)
            size = group_size(piece.num_parts);
        Parts parts = {0, 1, size}; /* of this one's group */
        if (groups_parts) {
            parts.first = own - own % size;
            parts.count = min(size, piece.num_parts - parts.first);
        }
#pragma unroll 1
        for (;;) { /* once, or once more with the groups */
            leave(records[piece.records.of(own)], statistics, output, thread);
            if (rarely(!piece.ends_share)) {
                meet(); /* statistics have been read */
                return false;
            }
            ptx::fence_gpu();
            Record &first = records[piece.records.of(parts.first)];
            if (!is_last(groups_parts && parts.step > 1 ? first.group_arrivals : first.arrivals,
                         groups_parts && may_group ? parts.count : piece.num_workers, memory, thread, meet))
                return false;
            ptx::fence_gpu();
            take(records, memory, statistics, piece, parts, output, thread, meet);
            if (!groups_parts || parts.count * parts.step >= piece.num_parts)
                return true;
            own = parts.first;
            parts = {0, size, (piece.num_parts + size - 1) / size};
        }
    }

  private:
    /* So many parts that there are about as many groups. */
    static __device__ __forceinline__ uint32_t group_size(uint32_t parts) {
        uint32_t size = 3;
#pragma unroll 1
        while (size * size < parts)
            ++size;
        return size;
    }

    /* Counts this worker, behind the fence; the last one of them leaves zero. */
    template <class Meet>
    static __device__ __forceinline__ bool is_last(uint32_t &counter, uint32_t arrivals, Memory &memory, int thread, Meet meet) {
        meet();
        if (thread == 0) {
            const bool is_last = ptx::atomic_add(&counter, 1u) == arrivals - 1;
            if (is_last)
                counter = 0u;
            memory.is_last = is_last;
        }
        meet();
        if (!memory.is_last) {
            meet(); /* which has been read */
            return false;
        }
        return true;
    }

    static __device__ __forceinline__ void leave(Record &record, const float (&statistics)[tile::group_rows][2],
                                                 const Output &output, int thread) {
#pragma unroll
        for (int step = 0; step < steps; ++step) {
#pragma unroll
            for (int n = 0; n < tile::group_row_fragments; ++n)
                ptx::store_relaxed(record.output[step * tile::group_row_fragments + n][thread], output.value[step][n]);
        }
        if (thread < tile::group_rows)
            ptx::store_relaxed(record.statistics[thread], statistics[thread]);
    }

    /*
     * Of these parts the sum, in order; what has been read becomes zeros. References and sums of all rows and parts come side by side, a
     * thread for each: one trip to memory, not one for each part.
     */
    template <class Meet>
    static __device__ __forceinline__ void take(Record *records, Memory &memory, float (&statistics)[tile::group_rows][2],
                                                const Piece &piece, const Parts &parts, Output &output, int thread, Meet meet) {
        const auto record_of = [&](uint32_t i) -> Record & { return records[piece.records.of(parts.first + i * parts.step)]; };
        {
            const uint32_t row = thread % tile::group_rows, turn = thread / tile::group_rows;
            float largest = -INFINITY;
#pragma unroll 4
            for (uint32_t i = turn; i < parts.count; i += turns)
                largest = fmaxf(largest, statistics_of(record_of(i), row).x);
            memory.of_turn[turn][row] = largest;
            meet();
        }
        output.clear();
#pragma unroll 1
        for (uint32_t begin = 0; begin < parts.count; begin += most_factors) {
            const uint32_t end = min(begin + most_factors, parts.count);
            weigh(memory, statistics, record_of, begin, end, thread, meet);
#pragma unroll 1
            for (uint32_t part = begin; part < end; ++part) {
                Record &record = record_of(part);
                add(record, memory.factors[part - begin], output, thread);
                clear(record, thread);
            }
            meet(); /* factors have been read */
        }
        if (thread < tile::group_rows)
            statistics[thread][1] = of_turns(memory.of_turn, thread, [](float a, float b) { return a + b; });
        meet();
    }

    /* What the rows of each part are multiplied by. */
    template <class RecordOf, class Meet>
    static __device__ __forceinline__ void weigh(Memory &memory, float (&statistics)[tile::group_rows][2], RecordOf record_of,
                                                 uint32_t begin, uint32_t end, int thread, Meet meet) {
        const uint32_t row = thread % tile::group_rows, turn = thread / tile::group_rows;
        if (begin == 0) {
            const float largest = of_turns(memory.of_turn, row, [](float a, float b) { return fmaxf(a, b); });
            meet(); /* all have read it */
            if (turn == 0)
                statistics[row][0] = largest;
            memory.of_turn[turn][row] = 0.f;
            meet();
        }
        const float common = tile::finite_reference(statistics[row][0]);
        float total = memory.of_turn[turn][row];
#pragma unroll 4
        for (uint32_t i = begin + turn; i < end; i += turns) {
            const float2 of_part = statistics_of(record_of(i), row);
            const float factor = ptx::exp2_approx(of_part.x - common);
            memory.factors[i - begin][row] = factor;
            total += factor * of_part.y;
        }
        memory.of_turn[turn][row] = total;
        meet();
    }

    template <class Join>
    static __device__ __forceinline__ float of_turns(const float (&values)[turns][tile::group_rows], uint32_t row, Join join) {
        float all = values[0][row];
#pragma unroll
        for (int turn = 1; turn < turns; ++turn)
            all = join(all, values[turn][row]);
        return all;
    }

    static __device__ __forceinline__ void add(const Record &record, const float (&factors)[tile::group_rows], Output &output,
                                               int thread) {
        constexpr int together = 2; /* fragments of rows, with four vectors each, that are on their way at a time */
#pragma unroll
        for (int first = 0; first < tile::group_row_fragments; first += together) {
            float vectors[together][steps][4];
#pragma unroll
            for (int i = 0; i < together * steps; ++i)
                ptx::load_relaxed(vectors[i / steps][i % steps],
                                  record.output[i % steps * tile::group_row_fragments + first + i / steps][thread]);
#pragma unroll
            for (int n = 0; n < together; ++n) {
                const float2 of_rows = tile::of_rows(factors, first + n, thread % 32);
#pragma unroll
                for (int step = 0; step < steps; ++step) {
#pragma unroll
                    for (int i = 0; i < 4; ++i)
                        output.value[step][first + n][i] += vectors[n][step][i] * (i % 2 == 0 ? of_rows.x : of_rows.y);
                }
            }
        }
    }
    static __device__ __forceinline__ float2 statistics_of(const Record &record, int row) {
        float of_row[2];
        ptx::load_relaxed(of_row, record.statistics[row]);
        return {of_row[0], of_row[1]};
    }
    static __device__ __forceinline__ void clear(Record &record, int thread) {
        const float zeros[4] = {};
#pragma unroll 4
        for (int i = 0; i < steps * tile::group_row_fragments; ++i)
            ptx::store_relaxed(record.output[i][thread], zeros);
        if (thread < tile::group_rows)
            ptx::store_relaxed(record.statistics[thread], {0.f, 0.f});
    }
};

} // namespace pipeline
