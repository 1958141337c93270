/* SPDX-License-Identifier: Apache-2.0 */
/*
 * column_fold.cuh: level 1 of partial.cuh where each warp of a CTA has columns of its own, of all rows: nothing is to be added up, the
 * columns change hands through shared memory, as Slice deals them out. They do so in blocks: a thread has
 * registers for a few vectors of them beside its output.
 */
#pragma once

#include <cstdint>

#include "pipeline/partial.cuh"
#include "ptx/memory.cuh"

namespace pipeline {

/* Lies in shared memory. Each of `warps` has `steps` steps of 16 columns; a block is those of some warps. */
template <class Format, int rows, int warps, int steps, int blocks>
struct ColumnExchange {
    static constexpr int block_columns = warps * steps * 16 / blocks, block_warps = warps / blocks;
    static constexpr int pitch = block_columns + 4; /* 4 more: the lanes of a fragment then fall into different banks */
    static_assert(warps % blocks == 0, "blocks of whole warps");
    float row[rows][pitch];

    /* By all warps, block by block. `statistics`: reference and sum of every row, stored before. */
    template <int barrier_id, int row_fragments, int threads>
    __device__ __forceinline__ void run(int block, const tile::OutputFragment<steps, row_fragments> &output,
                                        const float (*statistics)[2], int warp, int lane,
                                        Slice<rows, block_columns, threads> &result) {
        if (block > 0)
            ptx::named_barrier<barrier_id, threads>(); /* the one before has been taken */
        if (warp / block_warps == block)
            store(output, warp % block_warps * (steps * 16), lane);
        ptx::named_barrier<barrier_id, threads>();
        result.template fold_all<1>(0, [&](uint32_t r, uint32_t column, int) { return Partial{&row[r][column], statistics[r]}; });
    }

  private:
    template <int row_fragments>
    __device__ __forceinline__ void store(const tile::OutputFragment<steps, row_fragments> &output, int first_column, int lane) {
#pragma unroll
        for (int n = 0; n < row_fragments; ++n) {
#pragma unroll
            for (int odd = 0; odd < 2; ++odd) {
                float *const to = row[n * 8 + (lane & 3) * 2 + odd] + first_column;
#pragma unroll
                for (int step = 0; step < steps; ++step) {
#pragma unroll
                    for (int half = 0; half < 2; ++half)
                        to[Format::output_dim(step, half, lane)] = output.value[step][n][half * 2 + odd];
                }
            }
        }
    }
};

} // namespace pipeline
