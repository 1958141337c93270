/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transposed_fold.cuh: level 3 of partial.cuh, for results of two warpgroups that have output^T (tile/gathered_warpgroup.cuh): a part of a unit
 * is left as their registers have it, all at once, and counted once for the CTA. The worker that comes last has all of them added up in the same
 * registers, in the order of the parts, whoever that is. A fence makes known what was left, so words may be zero here; but all become zeros
 * again, which the other files of this level rely on.
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

/* All threads of both warpgroups call together. */
template <int threads>
class TransposedFold {
    static constexpr int steps = 4;

  public:
    using Output = tile::OutputFragment<steps, tile::group_row_fragments>;

    /* A part, as the threads hold it. */
    struct alignas(16) Record {
        float output[steps * tile::group_row_fragments][threads][4];
        float statistics[tile::group_rows][2]; /* reference and sum */
        alignas(16) uint32_t arrivals;         /* of the workers, in part 0 */
    };

    /* Lies in shared memory. */
    struct Memory {
        float factors[2][tile::group_rows]; /* of a part's rows, and the next one's */
        bool is_last;
    };

    /* Leaves a part. Whether this worker is the last of those that share the unit: output and statistics are those of the unit then. */
    template <class Meet>
    static __device__ __forceinline__ bool run(void *of_parts, Memory &memory, float (&statistics)[tile::group_rows][2],
                                               const Piece &piece, Output &output, Meet meet) {
        Record *const records = static_cast<Record *>(of_parts);
        const int thread = ptx::thread_index_here();
        leave(records[piece.records.of(piece.part)], statistics, output, thread);
        if (rarely(!piece.ends_share)) {
            meet(); /* statistics have been read */
            return false;
        }
        ptx::fence_gpu();
        meet();
        if (thread == 0) {
            uint32_t &arrivals = records[piece.records.of(0)].arrivals;
            const bool is_last = ptx::atomic_add(&arrivals, 1u) == piece.num_workers - 1;
            if (is_last)
                arrivals = 0u;
            memory.is_last = is_last;
        }
        meet();
        if (!memory.is_last) {
            meet(); /* which has been read */
            return false;
        }
        ptx::fence_gpu();
        take(records, memory, statistics, piece, output, thread, meet);
        return true;
    }

  private:
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

    /* All parts, in order; what has been read becomes zeros. */
    template <class Meet>
    static __device__ __forceinline__ void take(Record *records, Memory &memory, float (&statistics)[tile::group_rows][2],
                                                const Piece &piece, Output &output, int thread, Meet meet) {
        constexpr int together = 2; /* fragments of rows, with four vectors each, that are on their way at a time */
        const int parts = static_cast<int>(piece.num_parts), lane = thread % 32;
        float largest = -INFINITY, total = 0.f;
        if (thread < tile::group_rows) {
#pragma unroll 1
            for (int part = 0; part < parts; ++part)
                largest = fmaxf(largest, statistics_of(records, piece, part, thread).x);
        }
        const float common = tile::finite_reference(largest);
        output.clear();
#pragma unroll 1
        for (int part = 0; part < parts; ++part) {
            Record &record = records[piece.records.of(part)];
            float(&factors)[tile::group_rows] = memory.factors[part % 2];
            if (thread < tile::group_rows) {
                const float2 of_part = statistics_of(records, piece, part, thread);
                factors[thread] = ptx::exp2_approx(of_part.x - common);
                total += factors[thread] * of_part.y;
            }
            meet();
#pragma unroll
            for (int first = 0; first < tile::group_row_fragments; first += together) {
                float vectors[together][steps][4];
#pragma unroll
                for (int i = 0; i < together * steps; ++i)
                    ptx::load_relaxed(vectors[i / steps][i % steps],
                                      record.output[i % steps * tile::group_row_fragments + first + i / steps][thread]);
#pragma unroll
                for (int n = 0; n < together; ++n) {
                    const float2 of_rows = tile::of_rows(factors, first + n, lane);
#pragma unroll
                    for (int step = 0; step < steps; ++step) {
#pragma unroll
                        for (int i = 0; i < 4; ++i)
                            output.value[step][first + n][i] += vectors[n][step][i] * (i % 2 == 0 ? of_rows.x : of_rows.y);
                    }
                }
            }
            clear(record, thread);
        }
        if (thread < tile::group_rows) {
            statistics[thread][0] = largest;
            statistics[thread][1] = total;
        }
        meet();
    }
    static __device__ __forceinline__ float2 statistics_of(const Record *records, const Piece &piece, int part, int row) {
        float of_row[2];
        ptx::load_relaxed(of_row, records[piece.records.of(part)].statistics[row]);
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
