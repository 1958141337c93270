/* SPDX-License-Identifier: Apache-2.0 */
/*
 * row_slice_fold.cuh: level 3 of partial.cuh, as accumulator_fold.cuh, for results of many rows that a CTA has folded to Slices, a block of columns
 * after the other: a part has its rows one behind the other, whatever block they come from, and slices of whole rows are added up by
 * whichever worker has time (slice_dealer.cuh), in the order of the parts.
 */
#pragma once

#include <cstdint>

#include "pipeline/partial.cuh"
#include "pipeline/slice_dealer.cuh"
#include "pipeline/split_schedule.cuh"
#include "ptx/memory.cuh"

namespace pipeline {

template <int rows, int columns>
struct alignas(16) RowPart {
    float output[rows][columns];
    float statistics[rows][2]; /* reference and sum */
};

/* The parts of a piece's unit. */
template <int rows, int columns, int threads>
class RowSliceFold {
    static constexpr int width = 4;

  public:
    using Part = RowPart<rows, columns>;
    /* A vector for every thread. */
    static constexpr int slice_rows = threads * width / columns, slices = rows / slice_rows;
    static_assert(slice_rows * slices == rows, "whole slices");
    using Slice = pipeline::Slice<slice_rows, columns, threads>;
    static_assert(Slice::width == width && Slice::per_thread == 1, "a vector for every thread");

    __device__ __forceinline__ RowSliceFold(void *records, void *scratch, const Piece &piece)
        : parts_(records, scratch, piece.parts.records), piece_(piece) {}

    __device__ __forceinline__ SliceCounts &counts() const { return parts_.counts(); }

    /* Leaves a block of columns, from `first_column` on. */
    template <class Block>
    __device__ __forceinline__ void leave(const Block &result, int first_column) const {
        Part &own = parts_[piece_.parts.own];
#pragma unroll
        for (int i = 0; i < Block::per_thread; ++i) {
            if (!result.live(i))
                continue;
            const uint32_t row = result.row(i), column = first_column + result.column(i);
            ptx::store_relaxed(&own.output[row][column], result.value[i]);
            if (column == 0)
                ptx::store_relaxed(own.statistics[row], {result.reference[i], result.sum[i]});
        }
    }

    /* Rows from slice * slice_rows on, of all parts in order. */
    __device__ __forceinline__ void take(Slice &result, uint32_t slice) const {
        constexpr uint32_t together = 4; /* parts that are on their way at a time */
        result.clear();
        if (!result.live(0))
            return;
        const uint32_t row = slice * slice_rows + result.row(0), column = result.column(0);
#pragma unroll 1
        for (uint32_t first = 0; first < piece_.parts.count; first += together) {
            float output[together][width] = {}, statistics[together][2] = {};
#pragma unroll
            for (uint32_t k = 0; k < together; ++k) {
                if (first + k >= piece_.parts.count)
                    continue;
                const Part &part = parts_[first + k];
                ptx::load_relaxed(output[k], &part.output[row][column]);
                ptx::load_relaxed(statistics[k], part.statistics[row]);
            }
#pragma unroll
            for (uint32_t k = 0; k < together; ++k) {
                if (first + k < piece_.parts.count)
                    result.fold(0, output[k], statistics[k][0], statistics[k][1]);
            }
        }
    }

  private:
    const DealtParts<Part> parts_;
    const Piece &piece_;
};

} // namespace pipeline
