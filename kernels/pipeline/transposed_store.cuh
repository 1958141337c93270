/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transposed_store.cuh: a unit's result out of the registers of warpgroups that have output^T (tile/gathered_warpgroup.cuh): of bf16, fp16
 * or e4m3 through shared memory, where a row's columns come together, and out by 16 bytes. It is what happens once for a unit: an H200 took 5
 * clocks for each instruction of code without a loop, which it had to fetch; hence as few as can be. NVFP4, of which neighbours share
 * scales, through shared memory to the threads, a block of columns after the other.
 *
 * Of a unit that workers share the last one has the whole result in its registers (transposed_fold.cuh), and goes on as with a whole unit.
 */
#pragma once

#include "pipeline/epilogue.cuh"
#include "pipeline/partial.cuh"
#include "pipeline/transposed_fold.cuh"
#include "ptx/bytes.cuh"
#include "ptx/convert.cuh"
#include "tile/gathered_warpgroup.cuh"
#include "tile/row_map.cuh"

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

/* Of two warpgroups, with a half of V's columns each. All their threads call together. */
template <class Format, int v_dim, bool groups_parts>
class TransposedResult {
    static constexpr int groups = 2, threads = groups * tile::group_threads;
    /* Columns pass through shared memory in rounds, from there to threads in blocks: what they have registers for. */
    static constexpr int rounds = 2, block_columns = 64;

  public:
    using Slice = pipeline::Slice<tile::group_rows, block_columns, threads>;
    using Output = tile::OutputFragment<4, tile::group_row_fragments>;
    using Fold = TransposedFold<threads, groups_parts>;
    static constexpr uint32_t record_bytes = sizeof(typename Fold::Record);

    /* Lies in shared memory. */
    union Memory {
        /* Of each warpgroup a block of V, 128 columns. 4 more: the lanes of a store then fall into different banks. */
        alignas(16) float columns[groups][tile::group_rows][tile::latent_block_dims + 4];
        TransposedRows<v_dim> rows;
        Fold::Memory fold;
    };

    /*
     * `statistics`: reference and sum of each row. `row_scale`: where what whole rows are multiplied by finds a place. rows_of(): the unit's
     * RowMap, anew where it is used. `place`: of the calling thread, with group, warp() and lane(); meet(): all threads of both warpgroups.
     */
    template <class Params, class Announced, class RowsOf, class Place, class Meet>
    static __device__ __forceinline__ void hand_over(const Params &params, Memory &memory,
                                                     float (&statistics)[tile::group_rows][2],
                                                     float (&row_scale)[tile::group_rows], const Announced &announced,
                                                     RowsOf rows_of, const Place &place, Output &output, Meet meet) {
        if (announced.piece.num_parts > 1) {
            const bool may_group = (params.schedule.rare & SCHEDULE_FIXED_CHUNKS) == 0;
            if (!Fold::run(params.records, memory.fold, statistics, announced.piece, may_group, output, meet))
                return;
        }
        if (params.output.dtype <= KERNEL_DTYPE_E4M3) {
            store_whole(params, memory, statistics, row_scale, announced.rows.live_rows, rows_of(), place, output, meet);
            return;
        }
        static_assert(rounds == 2, "in a loop, columns whose turn comes later would not stay in registers");
        put_columns<0>(memory, place, output);
        meet();
        store_round(params, memory, statistics, announced.rows.live_rows, rows_of, 0);
        meet(); /* they have been taken */
        put_columns<1>(memory, place, output);
        meet();
        store_round(params, memory, statistics, announced.rows.live_rows, rows_of, 1);
        meet();
    }

  private:
    /* What a warp has of a round's columns, those of one block of V. */
    template <int round, class Place>
    static __device__ __forceinline__ void put_columns(Memory &memory, const Place &place, const Output &output) {
        const int lane = place.lane();
#pragma unroll
        for (int i = 0; i < 2; ++i) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int column = Format::output_dim(tile::value_step(0, place.warp(), i), half, lane);
#pragma unroll
                for (int n = 0; n < tile::group_row_fragments; ++n) {
#pragma unroll
                    for (int odd = 0; odd < 2; ++odd)
                        memory.columns[place.group][tile::row_of(0, n, odd, lane)][column] =
                            output.value[round * 2 + i][n][half * 2 + odd];
                }
            }
        }
    }

    /* A round's columns, stored a block after the other. */
    template <class Params, class RowsOf>
    static __device__ __forceinline__ void store_round(const Params &params, Memory &memory,
                                                       const float (&statistics)[tile::group_rows][2], int live_rows,
                                                       RowsOf rows_of, int round) {
        constexpr int block_parts = tile::latent_block_dims / block_columns;
#pragma unroll 1
        for (int i = 0; i < groups * block_parts; ++i) {
            const int group = i / block_parts, part = i % block_parts, block = (group * rounds + round) * block_parts + part;
            Slice result(live_rows);
            result.template fold_all<1>(0, [&](uint32_t row, uint32_t column, int) {
                return Partial{&memory.columns[group][row][part * block_columns + column], statistics[row]};
            });
            store_unit<Format>(params.output, rows_of(), result, block * block_columns, params.v_head_dim);
        }
    }

    template <class Params, class Place, class Meet>
    static __device__ __forceinline__ void
    store_whole(const Params &params, Memory &memory, const float (&statistics)[tile::group_rows][2],
                float (&row_scale)[tile::group_rows], int live_rows, const tile::RowMap rows, const Place &place,
                const Output &output, Meet meet) {
        const int thread = ptx::thread_index_here();
        if (thread < live_rows) {
            const auto sink = [&] { return sink_of(params.output, rows, thread); };
            const FinishedRow row(params.output, sink, statistics[thread][0], statistics[thread][1],
                                  output_scale<Format>(params.output));
            row_scale[thread] = row.scale;
            if (params.output.lse != nullptr)
                params.output.lse[rows.lse_offset(params.output, thread)] = row.lse(params.output);
        }
        meet();
        memory.rows.template put<Format>(params.output.dtype, row_scale, output, place.group, place.warp(), place.lane());
        meet();
        memory.rows.template store<threads>(params.output, rows, live_rows, thread);
        meet(); /* they have been taken */
    }
};

} // namespace pipeline
