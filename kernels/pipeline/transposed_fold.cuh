/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transposed_fold.cuh: level 3 of partial.cuh, for results of two warpgroups that have output^T (tile/gathered_warpgroup.cuh): a part of a unit
 * is left as their registers have it, all at once, and counted once for the CTA. Slices of eight rows are then added up by whichever worker
 * (slice_dealer.cuh), in the order of the parts, whoever that is. A fence makes known what was left, so words may be zero here; but all become
 * zeros again, which the other files of this level rely on.
 */
#pragma once

#include <cmath>
#include <cstdint>

#include "pipeline/partial.cuh"
#include "pipeline/slice_dealer.cuh"
#include "pipeline/split_schedule.cuh"
#include "ptx/memory.cuh"
#include "ptx/scalar.cuh"
#include "tile/warpgroup.cuh"

namespace pipeline {

/* All threads of both warpgroups call together. */
template <int threads>
class TransposedFold {
    static constexpr int steps = 4, slices = tile::group_row_fragments;

  public:
    using Output = tile::OutputFragment<steps, slices>;
    using SliceOutput = tile::OutputFragment<steps, 1>;

    /* A part, as the threads hold it. */
    struct alignas(16) Record {
        float output[slices][steps][threads][4];
        float statistics[tile::group_rows][2]; /* reference and sum */
        SliceCounts counts;                    /* of the unit, in its first part */
    };

    /*
     * Leaves a part. `next_slice`: in shared memory. store(slice, rows): of a slice that has fallen to this worker, whose statistics are those of
     * the unit then. meet(): all threads.
     */
    template <class Meet, class Store>
    static __device__ __forceinline__ void run(void *of_parts, uint32_t &next_slice, float (&statistics)[tile::group_rows][2],
                                               const Piece &piece, const Output &output, Meet meet, Store store) {
        Record *const records = static_cast<Record *>(of_parts);
        const int thread = ptx::thread_index_here();
        leave(records[piece.parts.records.of(piece.parts.own)], statistics, output, thread);
        SliceDealer dealer(records[piece.parts.records.of(0)].counts, piece.parts.num_workers, slices, next_slice, thread == 0,
                           meet);
        dealer.arrive(piece.is_last);
#pragma unroll 1
        for (uint32_t slice = dealer.take(); slice < slices; slice = dealer.take()) {
            SliceOutput sum;
            add(records, piece, slice, sum, statistics, thread);
            dealer.ask();
            meet(); /* statistics are there, and those of the parts have been read */
            clear_statistics(records, piece, slice, thread);
            store(static_cast<int>(slice), sum);
        }
    }

  private:
    static __device__ __forceinline__ void leave(Record &record, const float (&statistics)[tile::group_rows][2],
                                                 const Output &output, int thread) {
#pragma unroll
        for (int step = 0; step < steps; ++step) {
#pragma unroll
            for (int n = 0; n < slices; ++n)
                ptx::store_relaxed(record.output[n][step][thread], output.value[step][n]);
        }
        if (thread < tile::group_rows)
            ptx::store_relaxed(record.statistics[thread], statistics[thread]);
    }

    /* A slice of all parts, in order; what this thread alone has read becomes zeros. Every warp computes the statistics for itself. */
    static __device__ __forceinline__ void add(Record *records, const Piece &piece, uint32_t slice, SliceOutput &sum,
                                               float (&statistics)[tile::group_rows][2], int thread) {
        constexpr uint32_t together = 4;                                          /* parts that are on their way at a time */
        const int row = tile::row_of(0, static_cast<int>(slice), 0, thread % 32); /* and the next one */
        const auto record_of = [&](uint32_t part) -> Record & { return records[piece.parts.records.of(part)]; };
        float largest[2] = {-INFINITY, -INFINITY}, total[2] = {};
#pragma unroll 4
        for (uint32_t part = 0; part < piece.parts.count; ++part) {
            float of_rows[4];
            ptx::load_relaxed(of_rows, record_of(part).statistics[row]);
            largest[0] = fmaxf(largest[0], of_rows[0]);
            largest[1] = fmaxf(largest[1], of_rows[2]);
        }
        const float common[2] = {tile::finite_reference(largest[0]), tile::finite_reference(largest[1])};
        sum.clear();
#pragma unroll 1
        for (uint32_t first = 0; first < piece.parts.count; first += together) {
            float of_rows[together][4] = {}, vectors[together][steps][4] = {};
#pragma unroll
            for (uint32_t i = 0; i < together; ++i) {
                if (first + i >= piece.parts.count)
                    continue;
                const Record &record = record_of(first + i);
                ptx::load_relaxed(of_rows[i], record.statistics[row]);
#pragma unroll
                for (int step = 0; step < steps; ++step)
                    ptx::load_relaxed(vectors[i][step], record.output[slice][step][thread]);
            }
#pragma unroll
            for (uint32_t i = 0; i < together; ++i) {
                if (first + i >= piece.parts.count)
                    continue;
                const float factor[2] = {ptx::exp2_approx(of_rows[i][0] - common[0]),
                                         ptx::exp2_approx(of_rows[i][2] - common[1])};
                total[0] += factor[0] * of_rows[i][1];
                total[1] += factor[1] * of_rows[i][3];
                Record &record = record_of(first + i);
#pragma unroll
                for (int step = 0; step < steps; ++step) {
#pragma unroll
                    for (int k = 0; k < 4; ++k)
                        sum.value[step][0][k] += vectors[i][step][k] * factor[k % 2];
                    ptx::store_relaxed(record.output[slice][step][thread], {0.f, 0.f, 0.f, 0.f});
                }
            }
        }
        if (thread < 4) { /* lanes of a warp that have all rows of the slice */
#pragma unroll
            for (int odd = 0; odd < 2; ++odd) {
                statistics[row + odd][0] = largest[odd];
                statistics[row + odd][1] = total[odd];
            }
        }
    }

    static __device__ __forceinline__ void clear_statistics(Record *records, const Piece &piece, uint32_t slice, int thread) {
#pragma unroll 1
        for (uint32_t i = thread; i < piece.parts.count * 8; i += threads)
            ptx::store_relaxed(records[piece.parts.records.of(i / 8)].statistics[slice * 8 + i % 8], {0.f, 0.f});
    }
};

} // namespace pipeline
