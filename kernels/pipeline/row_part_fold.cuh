/* SPDX-License-Identifier: Apache-2.0 */
/*
 * row_part_fold.cuh: level 1 of partial.cuh, as warp_fold.cuh, where shared memory has room for a part of the rows alone. Parts of rows in
 * place of parts of columns: those that no query row falls into are passed over, and groups of four heads take no more barriers than
 * all rows at once would.
 */
#pragma once

#include <cstdint>

#include "pipeline/partial.cuh"
#include "ptx/memory.cuh"

namespace pipeline {

/* Lies in shared memory. `token_warps`: warps that hold partials of the same rows; `parts`: of the rows. */
template <class Format, int rows, int token_warps, int parts>
struct RowPartPartials {
    static constexpr int part_rows = rows / parts, columns = Format::steps * 16;
    static constexpr int pitch = columns + 4; /* 4 more: the lanes of a fragment then fall into different banks */
    static_assert(rows % parts == 0 && part_rows % 2 == 0, "the two neighbouring rows of a lane are of one part");

    float row[token_warps][part_rows][pitch]; /* output, then reference and sum of the row */

    /*
     * All warps of the CTA leave their partials, each at its place in the order in which they fold, and fold those of all, thread by thread
     * as Slice deals them out.
     */
    template <int barrier_id, int threads>
    __device__ __forceinline__ void run(const tile::OutputFragment<Format::steps, 1> &output,
                                        const tile::OnlineSoftmax<1> &softmax, int place, int first_row, int lane,
                                        Slice<rows, columns, threads> &result) {
        static_assert(Slice<rows, columns, threads>::per_thread == 1, "the vector of a thread is of one part");
        const float totals[2] = {softmax.row_sum(0, 0), softmax.row_sum(0, 1)}; /* all lanes, whichever part theirs is */
        const uint32_t lane_row = first_row + (lane & 3) * 2;                   /* and the next */
#pragma unroll 1
        for (uint32_t part_row = 0;;) {
            if (lane_row - part_row < part_rows)
                store(row[place][lane_row - part_row], row[place][lane_row - part_row + 1], output, softmax, totals, lane);
            ptx::named_barrier<barrier_id, threads>();
            if (result.row(0) - part_row < part_rows)
                result.template fold_all<token_warps>(0, [&](uint32_t r, uint32_t column, int k) {
                    return Partial{&row[k][r - part_row][column], &row[k][r - part_row][columns]};
                });
            part_row += part_rows;
            if (part_row >= result.live_rows)
                break;
            ptx::named_barrier<barrier_id, threads>(); /* the part before has been folded */
        }
    }

  private:
    /* What a lane holds of its two rows. */
    static __device__ __forceinline__ void store(float (&even)[pitch], float (&odd)[pitch],
                                                 const tile::OutputFragment<Format::steps, 1> &output,
                                                 const tile::OnlineSoftmax<1> &softmax, const float (&totals)[2], int lane) {
#pragma unroll
        for (int step = 0; step < Format::steps; ++step) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                even[Format::output_dim(step, half, lane)] = output.value[step][0][half * 2];
                odd[Format::output_dim(step, half, lane)] = output.value[step][0][half * 2 + 1];
            }
        }
        if (lane < 4) {
            even[columns] = softmax.reference[0][0];
            even[columns + 1] = totals[0];
            odd[columns] = softmax.reference[0][1];
            odd[columns + 1] = totals[1];
        }
    }
};

} // namespace pipeline
