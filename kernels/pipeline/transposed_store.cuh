/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transposed_store.cuh: a unit's result out of the registers of warpgroups that have output^T (tile/gathered_warpgroup.cuh): of bf16, fp16
 * or e4m3 through shared memory, where a row's columns come together, and out by 16 bytes. It is what happens once for a unit: an H200 took 5
 * clocks for each instruction of code without a loop, which it had to fetch; hence as few as can be. NVFP4, of which neighbours share
 * scales, through shared memory to the threads, a block of columns after the other.
 *
 * Of a unit that workers share they have slices of eight rows in their registers (transposed_fold.cuh), and go on as with a whole unit's 64.
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

/* Rows of a result, of which it has eight for each fragment: all, or a slice. */
template <int columns>
struct TransposedRows {
    static constexpr int vector = 8, pitch = columns + vector; /* rows begin in different banks */
    template <int fragments>
    using Result = tile::OutputFragment<4, fragments>;
    alignas(16) uint16_t row[tile::group_rows][pitch];

    /*
     * The columns of a warp of warpgroup `group`. `factors`: what each row is multiplied by, of FinishedRow; unit_of(block): each column. Two
     * neighbours are a word, of which e4m3 have the lower half. One dtype after the other, and not one value: so no instruction is fetched for
     * another one.
     */
    template <class Format, int fragments, class UnitOf>
    __device__ __forceinline__ void put(int dtype, const float *factors, UnitOf unit_of, const Result<fragments> &result,
                                        int group, int warp, int lane) {
        if (dtype == KERNEL_DTYPE_BF16)
            put_as<Format>(factors, unit_of, result, group, warp, lane,
                           [](float low, float high) { return ptx::pack_bf16(low, high); });
        else if (dtype == KERNEL_DTYPE_FP16)
            put_as<Format>(factors, unit_of, result, group, warp, lane,
                           [](float low, float high) { return ptx::pack_fp16(low, high); });
        else
            put_as<Format>(factors, unit_of, result, group, warp, lane,
                           [](float low, float high) { return ptx::pack_e4m3(low, high); });
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
    template <class Format, int fragments, class UnitOf, class Pack>
    __device__ __forceinline__ void put_as(const float *factors, UnitOf unit_of, const Result<fragments> &result, int group,
                                           int warp, int lane, Pack pack) {
        static_assert(Format::output_dim(0, 1, 0) == Format::output_dim(0, 0, 0) + 1, "the halves of a fragment are neighbours");
        const int column = Format::output_dim(tile::value_step(group, warp, 0), 0, lane);
        const uint32_t first = ptx::shared_address(&row[tile::row_of(0, 0, 0, lane)][column]);
        const uint32_t first_factor = ptx::shared_address(&factors[tile::row_of(0, 0, 0, lane)]);
        const float units[] = {unit_of(group * 2), unit_of(group * 2 + 1)};
#pragma unroll
        for (int n = 0; n < fragments; ++n) {
            uint32_t factor[2]; /* in this order: sooner they would take registers from the result */
            ptx::load_shared(factor, first_factor + n * 8 * sizeof(float));
#pragma unroll
            for (int step = 0; step < 4; ++step) {
#pragma unroll
                for (int odd = 0; odd < 2; ++odd) {
                    const float of_row = __uint_as_float(factor[odd]) * units[step / 2];
                    ptx::store_shared(first + ((n * 8 + odd) * pitch + tile::value_step(0, 0, step) * 16) * sizeof(uint16_t),
                                      static_cast<uint32_t>(
                                          pack(result.value[step][n][odd] * of_row, result.value[step][n][2 + odd] * of_row)));
                }
            }
        }
    }
};

/*
 * Of one warpgroup or two, with 256 of V's columns each. All their threads call together. V is below `largest_value`, in units of its blocks if
 * `has_units`.
 */
template <class Format, int v_dim, int largest_value, bool has_units>
class TransposedResult {
    static constexpr int groups = v_dim / 256, threads = groups * tile::group_threads;
    /* Columns pass through shared memory in rounds, from there to threads in blocks: what they have registers for. */
    static constexpr int rounds = 2, block_columns = 64;

  public:
    using Slice = pipeline::Slice<tile::group_rows, block_columns, threads>;
    using Output = tile::OutputFragment<4, tile::group_row_fragments>;
    using Fold = TransposedFold<threads, largest_value, has_units>;
    static constexpr uint32_t record_bytes = sizeof(SliceCounts), scratch_bytes = sizeof(typename Fold::Part);

    /* Lies in shared memory. */
    union Memory {
        /* Of each warpgroup a block of V, 128 columns. 4 more: the lanes of a store then fall into different banks. */
        alignas(16) float columns[groups][tile::group_rows][tile::latent_block_dims + 4];
        TransposedRows<v_dim> rows;
    };

    /*
     * `statistics`: reference and sum of each row. `row_scale`: where what whole rows are multiplied by finds a place. `next_slice`: for the fold.
     * rows_of(first_row): the RowMap of the unit's rows from that one on, anew where it is used. `place`: of the calling thread, with group,
     * warp() and lane(). unit_of(block): of a block of the output's columns. meet(): all threads of both warpgroups.
     */
    template <class Params, class Announced, class RowsOf, class Place, class UnitOf, class Meet>
    static __device__ __forceinline__ void
    hand_over(const Params &params, Memory &memory, uint32_t &next_slice, float (&statistics)[tile::group_rows][2],
              float (&row_scale)[tile::group_rows], const Announced &announced, RowsOf rows_of, const Place &place,
              Output &output, UnitOf unit_of, Meet meet) {
        const int live_rows = announced.rows.live_rows;
        if (announced.piece.parts.count == 1) {
            store(
                params, memory, statistics, row_scale, live_rows, [&] { return rows_of(0); }, place, output, unit_of, meet);
            return;
        }
        Fold::run(params.records, params.scratch, next_slice, statistics, announced.piece, output, unit_of, meet,
                  [&](int slice, typename Fold::SliceOutput &slice_output) {
                      const int first_row = slice * 8;
                      if (first_row < live_rows)
                          store(
                              params, memory, statistics + first_row, row_scale + first_row, live_rows - first_row,
                              [&] { return rows_of(first_row); }, place, slice_output, [](int) { return 1.f; }, meet);
                  });
    }

  private:
    /* Eight rows for each fragment, of which the first live ones are query heads. */
    template <class Params, class RowsOf, class Place, class UnitOf, class Meet, int fragments>
    static __device__ __forceinline__ void store(const Params &params, Memory &memory, const float (*statistics)[2],
                                                 float *row_scale, int live_rows, RowsOf rows_of, const Place &place,
                                                 tile::OutputFragment<4, fragments> &output, UnitOf unit_of, Meet meet) {
        static_assert(rounds == 2, "in a loop, columns whose turn comes later would not stay in registers");
        if (fragments == 1 || params.output.dtype <= KERNEL_DTYPE_E4M3) {
            finish_rows(params.output, statistics, row_scale, min(live_rows, fragments * 8), rows_of());
            meet();
            if (fragments == 1 && params.output.dtype > KERNEL_DTYPE_E4M3)
                store_slice_blocks(params, row_scale, live_rows, rows_of(), place, output);
            else
                store_rows(params, memory, row_scale, min(live_rows, fragments * 8), rows_of(), place, output, unit_of, meet);
            meet(); /* they have been taken */
            return;
        }
        if (has_units)
            tile::multiply_blocks(output, unit_of, place.group);
        put_columns<0>(memory, place, output);
        meet();
        store_round(params, memory, statistics, live_rows, rows_of, 0);
        meet(); /* they have been taken */
        put_columns<1>(memory, place, output);
        meet();
        store_round(params, memory, statistics, live_rows, rows_of, 1);
        meet();
    }

    /* What a warp has of a round's columns, those of one block of V. */
    template <int round, class Place, int fragments>
    static __device__ __forceinline__ void put_columns(Memory &memory, const Place &place,
                                                       const tile::OutputFragment<4, fragments> &output) {
        const int lane = place.lane();
#pragma unroll
        for (int i = 0; i < 2; ++i) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int column = Format::output_dim(tile::value_step(0, place.warp(), i), half, lane);
#pragma unroll
                for (int n = 0; n < fragments; ++n) {
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
    static __device__ __forceinline__ void store_round(const Params &params, Memory &memory, const float (*statistics)[2],
                                                       int live_rows, RowsOf rows_of, int round) {
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

    /* What rows are multiplied by, and their lse. */
    static __device__ __forceinline__ void finish_rows(const output_params &output, const float (*statistics)[2],
                                                       float *row_scale, int live_rows, const tile::RowMap rows) {
        const int thread = ptx::thread_index_here();
        if (thread >= live_rows)
            return;
        const auto sink = [&] { return sink_of(output, rows, thread); };
        const FinishedRow row(output, sink, statistics[thread][0], statistics[thread][1], output_scale<Format>(output));
        row_scale[thread] = row.scale;
        if (output.lse != nullptr)
            row.store_lse(output, rows, thread);
    }

    template <class Params, class Place, class UnitOf, class Meet, int fragments>
    static __device__ __forceinline__ void
    store_rows(const Params &params, Memory &memory, const float *row_scale, int live_rows, const tile::RowMap rows,
               const Place &place, const tile::OutputFragment<4, fragments> &output, UnitOf unit_of, Meet meet) {
        memory.rows.template put<Format>(params.output.dtype, row_scale, unit_of, output, place.group, place.warp(),
                                         place.lane());
        meet();
        memory.rows.template store<threads>(params.output, rows, live_rows, ptx::thread_index_here());
    }

    /* NVFP4 of eight rows, straight from the registers: eight lanes have the columns of a block, two neighbours each. */
    template <class Params, class Place, int fragments>
    static __device__ __forceinline__ void store_slice_blocks(const Params &params, const float *row_scale, int live_rows,
                                                              const tile::RowMap rows, const Place &place,
                                                              const tile::OutputFragment<4, fragments> &output) {
        const int lane = place.lane();
#pragma unroll
        for (int step = 0; step < 4; ++step) {
            const int column = Format::output_dim(tile::value_step(place.group, place.warp(), step), 0, lane);
#pragma unroll
            for (int odd = 0; odd < 2; ++odd) {
                const int row = tile::row_of(0, 0, odd, lane);
                const float values[2] = {output.value[step][0][odd] * row_scale[row],
                                         output.value[step][0][2 + odd] * row_scale[row]};
                if (row < live_rows)
                    tile::store_nvfp4<2, 4>(params.output, rows, row, column, params.v_head_dim, values);
            }
        }
    }
};

} // namespace pipeline
