/* SPDX-License-Identifier: Apache-2.0 */
/*
 * team_columns.cuh: level 1 of partial.cuh where each warp of a team has columns of its own, of all rows: they change hands through shared
 * memory, as Slice deals them out, and the partials of the teams fold. In blocks: a thread has registers, and shared memory room, for
 * a few vectors of them beside its output.
 */
#pragma once

#include <cstdint>

#include "pipeline/partial.cuh"
#include "ptx/memory.cuh"
#include "tile/latent_query.cuh"
#include "tile/score.cuh"

namespace pipeline {

/* Lies in shared memory. Each of the `warps` of a team has its tile::DimSteps of 16 columns; a block is `block_steps` of every warp. */
template <class Format, int rows, int teams, int warps, int block_steps>
struct TeamColumns {
    static constexpr int block_columns = warps * block_steps * 16;
    static constexpr int pitch = block_columns + 4; /* 4 more: the lanes of a fragment then fall into different banks */
    static_assert(block_steps % Format::pair_steps == 0, "blocks of neighbouring columns");
    alignas(16) float row[teams][rows][pitch];

    /* By all warps, block by block. `statistics`: reference and sum of every row, stored before the first. */
    template <int barrier_id, int threads, int steps, int row_fragments>
    __device__ __forceinline__ void put(int block, const tile::OutputFragment<steps, row_fragments> &output, int team, int warp,
                                        int lane) {
        if (block > 0)
            ptx::named_barrier<barrier_id, threads>(); /* the one before has been taken */
        store(block, output, row[team], warp, lane);
        ptx::named_barrier<barrier_id, threads>();
    }

    /* Some of the block's columns, from its column `first` on. Partials fold in order from that of `first_team` on. */
    template <class S>
    __device__ __forceinline__ void take(int first, const float (*statistics)[rows][2], int first_team, S &result) const {
        result.template fold_all<teams>(0, [&](uint32_t r, uint32_t column, int k) {
            const int of_team = teams == 1 ? 0 : (first_team + k) % teams;
            return Partial{&row[of_team][r][first + column], statistics[of_team][r]};
        });
    }

  private:
    template <int steps, int row_fragments>
    static __device__ __forceinline__ void store(int block, const tile::OutputFragment<steps, row_fragments> &output,
                                                 float (*to)[pitch], int warp, int lane) {
        using Steps = tile::DimSteps<Format, warps>;
#pragma unroll
        for (int step = 0; step < steps; ++step) {
            if (step / block_steps != block)
                continue;
            const int of_block = Steps(warp).first + Steps::further(step % block_steps);
#pragma unroll
            for (int n = 0; n < row_fragments; ++n) {
#pragma unroll
                for (int odd = 0; odd < 2; ++odd) {
#pragma unroll
                    for (int half = 0; half < 2; ++half)
                        to[tile::row_of(0, n, odd, lane)][Format::output_dim(of_block, half, lane)] =
                            output.value[step][n][half * 2 + odd];
                }
            }
        }
    }
};

} // namespace pipeline
