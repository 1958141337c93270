/* SPDX-License-Identifier: Apache-2.0 */
/*
 * warp_fold.cuh: level 1 of partial.cuh: the partials of the warps of a CTA that share rows, through shared memory. Where all
 * columns of all warps at once do not fit, they pass through in parts.
 */
#pragma once

#include <cstdint>

#include "pipeline/partial.cuh"
#include "ptx/memory.cuh"

namespace pipeline {

/* Lies in shared memory. `token_warps`: warps that hold partials of the same rows. */
template <class Format, int rows, int token_warps, int parts>
struct WarpPartials {
    static constexpr int part_steps = Format::steps / parts;
    static constexpr int columns = part_steps * 16;
    static constexpr int pitch = columns + 4; /* 4 more: the lanes of a fragment then fall into different banks */
    static_assert(Format::steps % parts == 0, "parts of whole steps");

    float row[token_warps][rows][pitch]; /* output, then reference and sum of the row */

    /*
     * All warps of the CTA leave their partials, each at its place in the order in which they fold, and fold those of all, thread by thread
     * as Slice deals them out.
     */
    template <int barrier_id, int row_fragments, int threads>
    __device__ __forceinline__ void run(const tile::OutputFragment<Format::steps, row_fragments> &output,
                                        const tile::OnlineSoftmax<row_fragments> &softmax, int place, int first_row, int lane,
                                        Slice<rows, Format::steps * 16, threads, parts> &result) {
#pragma unroll
        for (int part = 0; part < parts; ++part) {
            if (part > 0)
                ptx::named_barrier<barrier_id, threads>(); /* the part before has been folded */
            store(part, output, softmax, place, first_row, lane);
            ptx::named_barrier<barrier_id, threads>();
            result.template fold_all<token_warps>(part, [&](uint32_t r, uint32_t column, int k) {
                return Partial{&row[k][r][column - part * columns], &row[k][r][columns]};
            });
        }
    }

  private:
    template <int row_fragments>
    __device__ __forceinline__ void store(int part, const tile::OutputFragment<Format::steps, row_fragments> &output,
                                          const tile::OnlineSoftmax<row_fragments> &softmax, int place, int first_row, int lane) {
        float(*const partial)[pitch] = &row[place][first_row + (lane & 3) * 2];
#pragma unroll
        for (int n = 0; n < row_fragments; ++n) {
#pragma unroll
            for (int odd = 0; odd < 2; ++odd) {
                const float total = part == 0 ? softmax.row_sum(n, odd) : 0.f; /* on its way while the output is stored */
                float *const to = partial[n * 8 + odd];
#pragma unroll
                for (int step = part * part_steps; step < (part + 1) * part_steps; ++step) {
#pragma unroll
                    for (int half = 0; half < 2; ++half)
                        to[Format::output_dim(step, half, lane) - part * columns] = output.value[step][n][half * 2 + odd];
                }
                if (part == 0 && lane < 4) {
                    to[columns] = softmax.reference[n][odd];
                    to[columns + 1] = total;
                }
            }
        }
    }
};

} // namespace pipeline
