/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transposed_store.cuh: a whole unit's result of bf16, fp16 or e4m3 out of the registers of warpgroups that have output^T (tile/gathered_warpgroup.cuh):
 * through shared memory, where a row's columns come together, and out by 16 bytes. It is what happens once for a unit: an H200 took
 * 5 clocks for each instruction of code without a loop, which it had to fetch; hence as few as can be.
 */
#pragma once

#include "pipeline/epilogue.cuh"
#include "ptx/bytes.cuh"
#include "ptx/convert.cuh"
#include "tile/gathered_warpgroup.cuh"

namespace pipeline {

template <int columns>
struct TransposedRows {
    static constexpr int vector = 8, pitch = columns + vector; /* rows begin in different banks */
    using Result = tile::OutputFragment<4, tile::group_row_fragments>;
    alignas(16) uint16_t row[tile::group_rows][pitch];

    /*
     * The columns of a warp of warpgroup `group`. `factors`: what each row is multiplied by, of FinishedRow. Two neighbours are a word, of
     * which e4m3 have the lower half. One dtype after the other, and not one value: so no instruction is fetched for another one.
     */
    template <class Format>
    __device__ __forceinline__ void put(int dtype, const float (&factors)[tile::group_rows], const Result &result, int group,
                                        int warp, int lane) {
        if (dtype == KERNEL_DTYPE_BF16)
            put_as<Format>(factors, result, group, warp, lane, [](float low, float high) { return ptx::pack_bf16(low, high); });
        else if (dtype == KERNEL_DTYPE_FP16)
            put_as<Format>(factors, result, group, warp, lane, [](float low, float high) { return ptx::pack_fp16(low, high); });
        else
            put_as<Format>(factors, result, group, warp, lane, [](float low, float high) { return ptx::pack_e4m3(low, high); });
    }

    /* By `threads` threads, once all have put theirs. */
    template <int threads, class Rows>
    __device__ __forceinline__ void store(const output_params &output, const Rows &rows, int live_rows, int thread) const {
        constexpr int row_threads = columns / vector;
        static_assert(threads % row_threads == 0, "whole rows");
        const int column = thread % row_threads * vector;
#pragma unroll 1
        for (int r = thread / row_threads; r < live_rows; r += threads / row_threads) {
            const uint4 words = *reinterpret_cast<const uint4 *>(&row[r][column]);
            const int64_t element = rows.output_offset(output, r) + column;
            if (output.dtype == KERNEL_DTYPE_E4M3)
                *reinterpret_cast<uint2 *>(static_cast<uint8_t *>(output.rows) + element) =
                    make_uint2(ptx::permute_bytes(words.x, words.y, 0x5410), ptx::permute_bytes(words.z, words.w, 0x5410));
            else
                *reinterpret_cast<uint4 *>(static_cast<uint16_t *>(output.rows) + element) = words;
        }
    }

  private:
    template <class Format, class Pack>
    __device__ __forceinline__ void put_as(const float (&factors)[tile::group_rows], const Result &result, int group, int warp,
                                           int lane, Pack pack) {
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
                    ptx::store_shared(first + ((n * 8 + odd) * pitch + tile::value_step(0, 0, step) * 16) * sizeof(uint16_t),
                                      static_cast<uint32_t>(
                                          pack(result.value[step][n][odd] * of_row, result.value[step][n][2 + odd] * of_row)));
                }
            }
        }
    }
};

} // namespace pipeline
