/* SPDX-License-Identifier: Apache-2.0 */
/*
 * group_fold.cuh: level 1 of partial.cuh where a warpgroup shares rows (tile/warpgroup.cuh): of the warps' sums one, of the warpgroups'
 * partials one. Outputs pass through shared memory a block of columns at a time.
 */
#pragma once

#include <cstdint>

#include "pipeline/partial.cuh"
#include "ptx/memory.cuh"
#include "tile/warpgroup.cuh"

namespace pipeline {

/* Lies in shared memory. `rows` of a unit, a warpgroup for every 64 of them; `teams`: that hold partials of the same rows. */
template <class Format, int rows, int teams, int block_columns>
struct GroupPartials {
    static constexpr int steps = Format::steps / tile::group_warps; /* of a warp */
    static constexpr int blocks = Format::steps * 16 / block_columns;
    static constexpr int pitch = block_columns + 4; /* 4 more: the lanes of a fragment then fall into different banks */

    float output[teams][rows][pitch];
    float statistics[teams][rows][2]; /* reference and sum */
    float sums[teams][rows][tile::group_warps];

    /* By all warps of a group: `row` is its first. */
    __device__ __forceinline__ void store_statistics(const tile::GroupSoftmax &softmax, const tile::GroupReferences &references,
                                                     int team, int row, int barrier_id) {
        softmax.store_statistics(
            references, &statistics[team][row],
            [&](int of_group, int warp) -> float & { return sums[team][row + of_group][warp]; },
            ptx::thread_index_here() % tile::group_threads, barrier_id);
    }

    /* What a warp has of the block's columns. */
    __device__ __forceinline__ void store_output(const tile::OutputFragment<steps, tile::group_row_fragments> &result, int block,
                                                 int team, int row) {
        const int thread = ptx::thread_index_here() % tile::group_threads, warp = thread / 32, lane = thread % 32;
#pragma unroll
        for (int step = 0; step < steps; ++step) {
            const int of_head = warp * steps + step;
            if (of_head * 16 / block_columns != block)
                continue;
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int column = Format::output_dim(of_head, half, lane) - block * block_columns;
#pragma unroll
                for (int n = 0; n < tile::group_row_fragments; ++n) {
#pragma unroll
                    for (int odd = 0; odd < 2; ++odd)
                        output[team][tile::row_of(row, n, odd, lane)][column] = result.value[step][n][half * 2 + odd];
                }
            }
        }
    }

    /* All partials of a block, from that of `first_team` on; `result` is a Slice of the block's columns. */
    template <class S>
    __device__ __forceinline__ void fold(S &result, int first_team) const {
        result.template fold_all<teams>(0, [&](uint32_t r, uint32_t column, int k) {
            const int from_first = first_team + k, team = from_first < teams ? from_first : from_first - teams;
            return Partial{&output[team][r][column], statistics[team][r]};
        });
    }
};

} // namespace pipeline
