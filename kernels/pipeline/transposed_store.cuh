/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transposed_store.cuh: a unit's result out of the registers of warpgroups that have output^T (tile/gathered_warpgroup.cuh): of bf16, fp16
 * or e4m3 through shared memory, where a row's columns come together, and out by 16 bytes. It is what happens once for a unit: an H200 took 5
 * clocks for each instruction of code without a loop, which it had to fetch; hence as few as can be. NVFP4, of which neighbours share
 * scales, through shared memory to the threads, a block of columns after the other.
 *
 * Parts of a unit are left as the registers have them, TransposedRecord. The worker that comes last has all of them added up in the same
 * registers, in the order of the parts, whoever that is, and goes on as with a whole unit.
 */
#pragma once

#include "pipeline/epilogue.cuh"
#include "pipeline/partial.cuh"
#include "pipeline/split_schedule.cuh"
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

/* A part, as the threads hold it. Zeros, but for the time of a launch: as all that keeps records here. */
template <int vectors, int threads>
struct alignas(16) TransposedRecord {
    float output[vectors][threads][4];
    float statistics[tile::group_rows][2]; /* reference and sum */
    alignas(16) uint32_t arrivals;         /* of the workers, in part 0 */
};

/* Of two warpgroups, with a half of V's columns each. All their threads call together. */
template <class Format, int v_dim>
class TransposedResult {
    static constexpr int groups = 2, threads = groups * tile::group_threads;
    /* Columns pass through shared memory in rounds, from there to threads in blocks: what they have registers for. */
    static constexpr int rounds = 2, block_columns = 64, blocks = v_dim / block_columns;

  public:
    using Slice = pipeline::Slice<tile::group_rows, block_columns, threads>;
    using Output = tile::OutputFragment<4, tile::group_row_fragments>;
    using Record = TransposedRecord<4 * tile::group_row_fragments, threads>;
    static constexpr uint32_t record_bytes = sizeof(Record);

    /* Lies in shared memory. */
    union Memory {
        /* Of each warpgroup a block of V, 128 columns. 4 more: the lanes of a store then fall into different banks. */
        alignas(16) float columns[groups][tile::group_rows][tile::latent_block_dims + 4];
        TransposedRows<v_dim> rows;
        struct {
            float factors[2][tile::group_rows]; /* of a part's rows, and the next one's */
            bool is_last;
        } parts;
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
        if (announced.piece.num_parts > 1 && !fold_parts(params, memory, statistics, announced.piece, output, meet))
            return;
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
    /* Leaves a part. Whether this worker is the last of those that share the unit: output and statistics are those of the unit then. */
    template <class Params, class Meet>
    static __device__ __forceinline__ bool fold_parts(const Params &params, Memory &memory,
                                                      float (&statistics)[tile::group_rows][2], const Piece &piece,
                                                      Output &output, Meet meet) {
        Record *const records = static_cast<Record *>(params.records);
        const int thread = ptx::thread_index_here();
        leave(records[piece.records.of(piece.part)], statistics, output, thread);
        if (rarely(!piece.ends_share)) {
            meet(); /* statistics have been read */
            return false;
        }
        ptx::fence_gpu();
        meet();
        if (thread == 0) {
            uint32_t &arrivals = records[piece.records.of(0)].arrivals;
            const bool is_last = ptx::atomic_add(&arrivals, 1u) == piece.num_workers - 1;
            if (is_last)
                arrivals = 0u;
            memory.parts.is_last = is_last;
        }
        meet();
        if (!memory.parts.is_last) {
            meet(); /* which has been read */
            return false;
        }
        ptx::fence_gpu();
        take(records, memory, statistics, piece, output, thread, meet);
        return true;
    }

    static __device__ __forceinline__ void leave(Record &record, const float (&statistics)[tile::group_rows][2],
                                                 const Output &output, int thread) {
#pragma unroll
        for (int step = 0; step < 4; ++step) {
#pragma unroll
            for (int n = 0; n < tile::group_row_fragments; ++n)
                ptx::store_relaxed(record.output[step * tile::group_row_fragments + n][thread], output.value[step][n]);
        }
        if (thread < tile::group_rows)
            ptx::store_relaxed(record.statistics[thread], statistics[thread]);
    }

    /* All parts, in order; what has been read becomes zeros. */
    template <class Meet>
    static __device__ __forceinline__ void take(Record *records, Memory &memory, float (&statistics)[tile::group_rows][2],
                                                const Piece &piece, Output &output, int thread, Meet meet) {
        constexpr int together = 2; /* fragments of rows, with four vectors each, that are on their way at a time */
        const int parts = static_cast<int>(piece.num_parts), lane = thread % 32;
        float largest = -INFINITY, total = 0.f;
        if (thread < tile::group_rows) {
#pragma unroll 1
            for (int part = 0; part < parts; ++part)
                largest = fmaxf(largest, statistics_of(records, piece, part, thread).x);
        }
        const float common = tile::finite_reference(largest);
        output.clear();
#pragma unroll 1
        for (int part = 0; part < parts; ++part) {
            Record &record = records[piece.records.of(part)];
            float(&factors)[tile::group_rows] = memory.parts.factors[part % 2];
            if (thread < tile::group_rows) {
                const float2 of_part = statistics_of(records, piece, part, thread);
                factors[thread] = ptx::exp2_approx(of_part.x - common);
                total += factors[thread] * of_part.y;
            }
            meet();
#pragma unroll
            for (int first = 0; first < tile::group_row_fragments; first += together) {
                float vectors[together][4][4];
#pragma unroll
                for (int i = 0; i < together * 4; ++i)
                    ptx::load_relaxed(vectors[i / 4][i % 4],
                                      record.output[i % 4 * tile::group_row_fragments + first + i / 4][thread]);
#pragma unroll
                for (int n = 0; n < together; ++n) {
                    const float2 of_rows = tile::of_rows(factors, first + n, lane);
#pragma unroll
                    for (int step = 0; step < 4; ++step) {
#pragma unroll
                        for (int i = 0; i < 4; ++i)
                            output.value[step][first + n][i] += vectors[n][step][i] * (i % 2 == 0 ? of_rows.x : of_rows.y);
                    }
                }
            }
            clear(record, thread);
        }
        if (thread < tile::group_rows) {
            statistics[thread][0] = largest;
            statistics[thread][1] = total;
        }
        meet();
    }
    static __device__ __forceinline__ float2 statistics_of(const Record *records, const Piece &piece, int part, int row) {
        float of_row[2];
        ptx::load_relaxed(of_row, records[piece.records.of(part)].statistics[row]);
        return {of_row[0], of_row[1]};
    }
    static __device__ __forceinline__ void clear(Record &record, int thread) {
        const float zeros[4] = {};
#pragma unroll 4
        for (int i = 0; i < 4 * tile::group_row_fragments; ++i)
            ptx::store_relaxed(record.output[i][thread], zeros);
        if (thread < tile::group_rows)
            ptx::store_relaxed(record.statistics[thread], {0.f, 0.f});
    }

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
