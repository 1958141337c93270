/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transposed_store.cuh: a whole unit's result of 16 bits out of the registers of warpgroups that have output^T (tile/gathered_warpgroup.cuh):
 * through shared memory, where a row's columns come together, and out by 16 bytes. It is what happens once for a unit: an H200 took
 * 5 clocks for each instruction of code without a loop, which it had to fetch; hence as few as can be.
 */
#pragma once

#include "pipeline/epilogue.cuh"
#include "tile/gathered_warpgroup.cuh"

namespace pipeline {

template <int columns>
struct TransposedRows {
    static constexpr int vector = 8, pitch = columns + vector; /* rows begin in different banks */
    alignas(16) uint16_t row[tile::group_rows][pitch];

    /* The columns of a warp of warpgroup `group`. `factors`: what each row is multiplied by, of FinishedRow. */
    template <class Format>
    __device__ __forceinline__ void put(int dtype, const float (&factors)[tile::group_rows],
                                        const tile::OutputFragment<4, tile::group_row_fragments> &result, int group, int warp,
                                        int lane) {
        static_assert(Format::output_dim(0, 1, 0) == Format::output_dim(0, 0, 0) + 1, "the halves of a fragment are neighbours");
        const int column = Format::output_dim(tile::value_step(group, warp, 0), 0, lane);
        const uint32_t first = ptx::shared_address(&row[tile::row_of(0, 0, 0, lane)][column]);
        const uint32_t first_factor = ptx::shared_address(&factors[tile::row_of(0, 0, 0, lane)]);
#pragma unroll
        for (int n = 0; n < tile::group_row_fragments; ++n) {
            uint32_t factor[2]; /* in this order: sooner they would take registers from the result */
            ptx::load_shared(factor, first_factor + n * 8 * sizeof(float));
#pragma unroll
            for (int step = 0; step < 4; ++step) {
#pragma unroll
                for (int odd = 0; odd < 2; ++odd) {
                    const float of_row = __uint_as_float(factor[odd]);
                    ptx::store_shared(
                        first + ((n * 8 + odd) * pitch + tile::value_step(0, 0, step) * 16) * sizeof(uint16_t),
                        tile::pack_output(dtype, result.value[step][n][odd] * of_row, result.value[step][n][2 + odd] * of_row));
                }
            }
        }
    }

    /* By `threads` threads, once all have put theirs. */
    template <int threads, class Rows>
    __device__ __forceinline__ void store(const output_params &output, const Rows &rows, int live_rows, int thread) const {
        constexpr int row_threads = columns / vector;
        static_assert(threads % row_threads == 0, "whole rows");
        const int column = thread % row_threads * vector;
#pragma unroll 1
        for (int r = thread / row_threads; r < live_rows; r += threads / row_threads)
            *reinterpret_cast<uint4 *>(static_cast<uint16_t *>(output.rows) + rows.output_offset(output, r) + column) =
                *reinterpret_cast<const uint4 *>(&row[r][column]);
    }
};

} // namespace pipeline
