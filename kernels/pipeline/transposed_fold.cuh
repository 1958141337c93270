/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transposed_fold.cuh: level 3 of partial.cuh, for results of two warpgroups that have output^T (tile/gathered_warpgroup.cuh): a part of a unit
 * is left as their registers have it, all at once, and counted once for the CTA. Slices of eight rows are then added up by whichever worker
 * (slice_dealer.cuh), in the order of the parts, whoever that is.
 *
 * Values are left as fp16 (part_halves.cuh), as means, which are less than twice the largest number that V may be, in the units that its blocks of
 * columns have. So none has to be looked at for a unit.
 */
#pragma once

#include <cmath>
#include <cstdint>

#include "pipeline/part_halves.cuh"
#include "pipeline/partial.cuh"
#include "pipeline/slice_dealer.cuh"
#include "pipeline/split_schedule.cuh"
#include "ptx/memory.cuh"
#include "ptx/scalar.cuh"
#include "tile/gathered_warpgroup.cuh"

namespace pipeline {

/*
 * All threads of both warpgroups call together. V is below `largest_value` block units, of which a unit's every part may have others, if `has_units`.
 */
template <int threads, int largest_value, bool has_units>
class TransposedFold {
    static constexpr int steps = 4, slices = tile::group_row_fragments;
    static constexpr float per_mean = per_mean_of<largest_value>;

  public:
    using Output = tile::OutputFragment<steps, slices>;
    using SliceOutput = tile::OutputFragment<steps, 1>;

    /* A part, as the threads hold it. */
    struct alignas(16) Part {
        float output[slices][steps / 2][threads][4]; /* pairs of fp16: of two steps, which are of one block */
        float statistics[tile::group_rows][2];       /* reference and sum */
        float block_units[tile::latent_blocks];
    };

    /*
     * Leaves a part. `next_slice`: in shared memory. unit_of(block): of the output's columns, of which a thread knows its warpgroup's.
     * store(slice, rows): of a slice that has fallen to this worker, whose statistics are those of the unit then, and the units 1. meet(): all
     * threads.
     */
    template <class UnitOf, class Meet, class Store>
    static __device__ __forceinline__ void run(void *records, void *scratch, uint32_t &next_slice,
                                               float (&statistics)[tile::group_rows][2], const Piece &piece, const Output &output,
                                               UnitOf unit_of, Meet meet, Store store) {
        const DealtParts<Part> parts(records, scratch, piece.parts.records);
        const int thread = ptx::thread_index_here();
        Part &own = parts[piece.parts.own];
        leave(own, statistics, output, thread);
        if (has_units && thread % tile::group_threads == 0) {
            const int block = thread / tile::group_threads * (steps / 2);
            ptx::store_relaxed(&own.block_units[block], {unit_of(block), unit_of(block + 1)});
        }
        SliceDealer dealer(parts.counts(), piece.parts.num_workers, slices, next_slice, thread == 0, meet);
        dealer.arrive(piece.is_last);
#pragma unroll 1
        for (uint32_t slice = dealer.take(); slice < slices; slice = dealer.take()) {
            SliceOutput sum;
            add(parts, piece.parts.count, slice, sum, statistics, thread);
            dealer.ask();
            meet(); /* statistics are there */
            store(static_cast<int>(slice), sum);
        }
    }

  private:
    static __device__ __forceinline__ void leave(Part &part, const float (&statistics)[tile::group_rows][2], const Output &output,
                                                 int thread) {
#pragma unroll
        for (int n = 0; n < slices; ++n) {
            const int row = tile::row_of(0, n, 0, thread % 32); /* and the next one */
            const float4 of_rows = *reinterpret_cast<const float4 *>(statistics[row]);
            const float factor[2] = {per_mean_unit(of_rows.y) * per_mean, per_mean_unit(of_rows.w) * per_mean};
#pragma unroll
            for (int pair = 0; pair < steps / 2; ++pair) {
                float words[4];
#pragma unroll
                for (int k = 0; k < 4; ++k)
                    words[k] = pack_halves(output.value[pair * 2][n][k] * factor[k % 2],
                                           output.value[pair * 2 + 1][n][k] * factor[k % 2]);
                ptx::store_relaxed(part.output[n][pair][thread], words);
            }
        }
        if (thread < tile::group_rows)
            ptx::store_relaxed(part.statistics[thread], statistics[thread]);
    }

    /* A slice of all parts, in order. Every warp computes the statistics for itself. */
    static __device__ __forceinline__ void add(const DealtParts<Part> &parts, uint32_t count, uint32_t slice, SliceOutput &sum,
                                               float (&statistics)[tile::group_rows][2], int thread) {
        constexpr uint32_t together = 4;                                          /* parts that are on their way at a time */
        const int row = tile::row_of(0, static_cast<int>(slice), 0, thread % 32); /* and the next one */
        float largest[2] = {-INFINITY, -INFINITY}, total[2] = {};
#pragma unroll 4
        for (uint32_t part = 0; part < count; ++part) {
            float of_rows[4];
            ptx::load_relaxed(of_rows, parts[part].statistics[row]);
            largest[0] = fmaxf(largest[0], of_rows[0]);
            largest[1] = fmaxf(largest[1], of_rows[2]);
        }
        const float common[2] = {tile::finite_reference(largest[0]), tile::finite_reference(largest[1])};
        sum.clear();
#pragma unroll 1
        for (uint32_t first = 0; first < count; first += together) {
            float of_rows[together][4] = {}, units[together][2] = {}, vectors[together][steps / 2][4] = {};
#pragma unroll
            for (uint32_t i = 0; i < together; ++i) {
                if (first + i >= count)
                    continue;
                const Part &part = parts[first + i];
                ptx::load_relaxed(of_rows[i], part.statistics[row]);
                if (has_units)
                    ptx::load_relaxed(units[i], &part.block_units[thread / tile::group_threads * (steps / 2)]);
#pragma unroll
                for (int pair = 0; pair < steps / 2; ++pair)
                    ptx::load_relaxed(vectors[i][pair], part.output[slice][pair][thread]);
            }
#pragma unroll
            for (uint32_t i = 0; i < together; ++i) {
                if (first + i >= count)
                    continue;
                const float factor[2] = {ptx::exp2_approx(of_rows[i][0] - common[0]),
                                         ptx::exp2_approx(of_rows[i][2] - common[1])};
                total[0] += factor[0] * of_rows[i][1];
                total[1] += factor[1] * of_rows[i][3];
                const float of_row[2] = {factor[0] * (mean_unit(of_rows[i][1]) * (1.f / per_mean)),
                                         factor[1] * (mean_unit(of_rows[i][3]) * (1.f / per_mean))};
#pragma unroll
                for (int pair = 0; pair < steps / 2; ++pair) {
                    const float unit = has_units ? units[i][pair] : 1.f;
#pragma unroll
                    for (int k = 0; k < 4; ++k) {
                        float values[2];
                        unpack_halves(values[0], values[1], vectors[i][pair][k]);
#pragma unroll
                        for (int step = 0; step < 2; ++step)
                            sum.value[pair * 2 + step][0][k] += values[step] * (of_row[k % 2] * unit);
                    }
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
};

} // namespace pipeline
