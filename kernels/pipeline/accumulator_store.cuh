/* SPDX-License-Identifier: Apache-2.0 */
/* accumulator_store.cuh: the epilogue, as epilogue.cuh has it, of results that lie in registers as warpgroups left them (AccumulatorSlice). */
#pragma once

#include <cstdint>

#include "pipeline/accumulator_fold.cuh"
#include "pipeline/epilogue.cuh"
#include "ptx/memory.cuh"
#include "tile/output.cuh"
#include "tile/row_map.cuh"
#include "tile/row_warpgroup.cuh"

namespace pipeline {

/*
 * Where a unit's rows go: of those whose columns this lane stores, the elements of out; and what is multiplied and stored of each. Of a
 * warpgroup with `group_columns`. `Rows`: a RowMap, or one like it. Place: of the calling thread, with group, first_row(), warp() and lane().
 */
template <class Format, int group_columns, class Rows = tile::RowMap>
struct AccumulatorStore {
    static constexpr int vector = 8, of_lane = 4; /* columns of a store; rows of a lane, every fourth of the warp's */
    static constexpr int square_columns = 64;     /* as many as a line has */
    static_assert(square_columns / vector * of_lane == 32 && of_lane * 4 == 16, "a warp's stores: 4 rows each");

    const output_params &output;
    const Rows &rows;
    const int live_rows;
    int64_t element[of_lane];

    template <class Place>
    __device__ __forceinline__ AccumulatorStore(const output_params &output, const Rows &rows, int live_rows, const Place &place)
        : output(output), rows(rows), live_rows(live_rows) {
#pragma unroll
        for (int i = 0; i < of_lane; ++i)
            element[i] = rows.output_offset(output, row(i, place)) + place.group * group_columns + column(place);
    }
    template <class Place>
    static __device__ __forceinline__ int row(int i, const Place &place) {
        return place.first_row() + i * 4 + place.lane() / 8;
    }
    template <class Place>
    static __device__ __forceinline__ int column(const Place &place) {
        return place.lane() % 8 * vector;
    }

    /* What the rows of a thread's accumulators are multiplied by. With `stores_lse` their lse, too. `scale_of_all`: output_scale. */
    template <class S, class Place>
    __device__ __forceinline__ void finish(const S &result, const Place &place, bool stores_lse, float scale_of_all,
                                           float (&scale)[tile::lane_rows]) const {
#pragma unroll
        for (int i = 0; i < tile::lane_rows; ++i) {
            const int row = static_cast<int>(result.row(i));
            const auto sink = [&] { return row < live_rows ? sink_of(output, rows, row) : 0.f; };
            const FinishedRow finished(output, sink, result.reference[i], result.sum[i], scale_of_all);
            scale[i] = finished.scale;
            if (stores_lse && output.lse != nullptr && place.lane() % 4 == 0 && row < live_rows)
                finished.store_lse(output, rows, row);
        }
    }

    /*
     * The result's columns from `first_column` of the warpgroup's on, of one square, but for those from `end_column` on, a multiple of `vector`. They
     * pass through `line`, where a line of Q was, say: there the warp finds together what its lanes have of a row.
     */
    template <class S, class Place>
    __device__ __forceinline__ void store(const S &result, const float (&scale)[tile::lane_rows], const Place &place,
                                          int first_column, uint32_t line, int end_column = group_columns) const {
        if constexpr (Format::converts_query) {
            if (output.dtype > KERNEL_DTYPE_FP16)
                return store_narrow(result, scale, place, first_column, line, end_column);
        }
        constexpr int fragments = S::part_columns / 16;
        const int part = first_column % square_columns / S::part_columns; /* of the square */
        tile::RowSquare columns;
#pragma unroll
        for (int i = 0; i < S::per_thread; ++i) {
            const float of_row = scale[i % 2];
#pragma unroll
            for (int half = 0; half < 2; ++half)
                columns.operand[i / 2][half * 2 + i % 2] =
                    tile::pack_output(output.dtype, result.value[i][half * 2] * of_row, result.value[i][half * 2 + 1] * of_row);
        }
#pragma unroll
        for (int i = 0; i < fragments; ++i)
            columns.store(line, i, place.warp(), place.lane(), part * fragments);
        __syncwarp();
        if (S::part_columns < square_columns && column(place) / S::part_columns != part)
            return;
        if (end_column < group_columns && first_column / square_columns * square_columns + column(place) >= end_column)
            return;
        uint16_t *const out = static_cast<uint16_t *>(output.rows) + first_column - part * S::part_columns;
#pragma unroll
        for (int i = 0; i < of_lane; ++i) {
            uint32_t words[4];
            ptx::load_shared(words, tile::SquareRows::at(line, row(i, place), column(place) * 2));
            if (row(i, place) < live_rows)
                *reinterpret_cast<uint4 *>(out + element[i]) = make_uint4(words[0], words[1], words[2], words[3]);
        }
    }

  private:
    /*
     * FP8 and NVFP4: 32 columns at a time pass through `line` in f32, of which a lane has sixteen of a row, as many as have a scale of NVFP4.
     */
    template <class S, class Place>
    __device__ __forceinline__ void store_narrow(const S &result, const float (&scale)[tile::lane_rows], const Place &place,
                                                 int first_column, uint32_t line, int end_column) const {
        constexpr int columns = S::part_columns < 32 ? S::part_columns : 32, width = tile::block_dims;
        const int of_row = place.first_row() + place.lane() / 2, in_line = place.lane() % 2 * width;
        const int of_group = place.group * group_columns;
        /* Columns are one exclusive or further, and the thread's second row lies where its first one does, eight rows on. */
        const uint32_t put = tile::SquareRows::at(line, static_cast<int>(result.row(0)), place.lane() % 4 * 8);
        const uint32_t take = tile::SquareRows::at(line, of_row, in_line * 4);
#pragma unroll
        for (int first = 0; first < S::part_columns; first += columns) {
#pragma unroll
            for (int i = first / 8; i < (first + columns) / 8; ++i) {
#pragma unroll
                for (int half = 0; half < 2; ++half)
                    ptx::store_shared((put ^ ((i - first / 8) / 2 * 2 + half) * 32) + i % 2 * 8 * tile::SquareRows::line_bytes,
                                      {__float_as_uint(result.value[i][half * 2] * scale[i % 2]),
                                       __float_as_uint(result.value[i][half * 2 + 1] * scale[i % 2])});
            }
            __syncwarp();
            const int column = first_column + first + in_line;
            if (of_row < live_rows && in_line < columns && column < end_column) {
                float value[width];
#pragma unroll
                for (int j = 0; j < width; j += 4) {
                    uint32_t words[4];
                    ptx::load_shared(words, take ^ j * 4);
#pragma unroll
                    for (int k = 0; k < 4; ++k)
                        value[j + k] = __uint_as_float(words[k]);
                }
                tile::store_narrow_block<out_dtypes<Format, S>>(output, rows, of_row, of_group + column, of_group + end_column,
                                                                rows.output_offset(output, of_row) + of_group + column, value);
            }
            __syncwarp();
        }
    }
};

} // namespace pipeline
