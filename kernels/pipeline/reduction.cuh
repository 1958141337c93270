/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reduction.cuh: from the partial results of many warps to one, in one launch and always in the same order, so that equal
 * inputs give equal bits. Three levels, each optional but the first:
 *
 *     warps of a CTA          through shared memory
 *     CTAs of a cluster       every thread pushes its columns into the CTA that owns them (DSMEM); CTA i folds slice i
 *     workers                 partial records in global memory; the last to arrive folds them in the order of the workers
 *
 * A partial is (unnormalised output, maximum m, sum l) per row; partials fold as  m = max m_i,  w_i = 2^(m_i - m),
 * l = sum w_i l_i,  output = sum w_i output_i.
 * After the first level a thread holds some vectors of `slice` columns of the rows: Slice says which.
 */
#pragma once

#include <cstdint>

#include "abi.h"
#include "pipeline/split_schedule.cuh"
#include "ptx/bulk_copy.cuh"
#include "ptx/cluster.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/memory.cuh"
#include "tile/attention.cuh"

namespace pipeline {

/* How `rows` x `columns` results are dealt out to `threads`: vectors of `width` columns, thread t gets t, t + threads, ... */
template <int rows, int columns, int threads>
struct Slice {
    static constexpr int width = rows * columns >= threads * 4 ? 4 : rows * columns >= threads * 2 ? 2 : 1;
    static constexpr int vectors_per_row = columns / width;
    static constexpr int vectors = rows * vectors_per_row;
    static constexpr int per_thread = (vectors + threads - 1) / threads;
    static constexpr bool exact = vectors % threads == 0;

    float value[per_thread][width];
    float maximum[per_thread]; /* of the vector's row */
    float sum[per_thread];

    const int thread = ptx::thread_index_here();
    __device__ __forceinline__ int vector(int i) const { return thread + i * threads; }
    __device__ __forceinline__ bool live(int i) const { return exact || vector(i) < vectors; }
    __device__ __forceinline__ int row(int i) const { return vector(i) / vectors_per_row; }
    __device__ __forceinline__ int column(int i) const { return vector(i) % vectors_per_row * width; }

    /*
     * Folds `count` partial records in order; record(i) points at [rows][columns] output, then [rows][2] maximum and sum.
     * Some at a time, so that their loads travel together; the maximum may still rise from block to block.
     */
    template <class Load, class Record>
    __device__ __forceinline__ void fold(int count, Record record) {
        constexpr int block = width == 1 ? 8 : 4;
#pragma unroll
        for (int i = 0; i < per_thread; ++i) {
            if (!live(i)) continue;
            maximum[i] = -INFINITY;
            sum[i] = 0.f;
#pragma unroll
            for (int j = 0; j < width; ++j) value[i][j] = 0.f;
#pragma unroll 1
            for (int first = 0; first < count; first += block) {
                float part_maximum[block], part_sum[block], part_value[block][width];
#pragma unroll
                for (int k = 0; k < block; ++k) {
                    part_maximum[k] = -INFINITY; /* a part that is not there weighs nothing */
                    part_sum[k] = 0.f;
#pragma unroll
                    for (int j = 0; j < width; ++j) part_value[k][j] = 0.f;
                    if (first + k < count) {
                        const float *from = record(first + k);
                        float statistics[2];
                        Load::vector(statistics, from + rows * columns + row(i) * 2);
                        Load::vector(part_value[k], from + row(i) * columns + column(i));
                        part_maximum[k] = statistics[0];
                        part_sum[k] = statistics[1];
                    }
                }
                float largest = maximum[i];
#pragma unroll
                for (int k = 0; k < block; ++k) largest = fmaxf(largest, part_maximum[k]);
                const float reference = tile::OnlineSoftmax<1>::finite_reference(largest);
                const float before = ptx::exp2_approx(maximum[i] - reference);
                maximum[i] = largest;
                sum[i] *= before;
#pragma unroll
                for (int j = 0; j < width; ++j) value[i][j] *= before;
#pragma unroll
                for (int k = 0; k < block; ++k) {
                    const float weight = ptx::exp2_approx(part_maximum[k] - reference);
                    sum[i] += part_sum[k] * weight;
#pragma unroll
                    for (int j = 0; j < width; ++j) value[i][j] += part_value[k][j] * weight;
                }
            }
        }
    }

    /* Writes a partial record, in the layout that fold reads. */
    __device__ __forceinline__ void store(float *record) const {
#pragma unroll
        for (int i = 0; i < per_thread; ++i) {
            if (!live(i)) continue;
            float *to = record + row(i) * columns + column(i);
            if constexpr (width == 4)
                *reinterpret_cast<float4 *>(to) = make_float4(value[i][0], value[i][1], value[i][2], value[i][3]);
            else if constexpr (width == 2)
                *reinterpret_cast<float2 *>(to) = make_float2(value[i][0], value[i][1]);
            else
                *to = value[i][0];
            if (column(i) == 0) {
                record[rows * columns + row(i) * 2] = maximum[i];
                record[rows * columns + row(i) * 2 + 1] = sum[i];
            }
        }
    }
};

/* Reads of records that other CTAs wrote to global memory, and of those in shared memory. */
struct LoadGlobal {
    static __device__ __forceinline__ void vector(float (&to)[1], const float *from) { to[0] = ptx::load_l2(from); }
    static __device__ __forceinline__ void vector(float (&to)[2], const float *from) {
        const float2 v = ptx::load_l2(reinterpret_cast<const float2 *>(from));
        to[0] = v.x, to[1] = v.y;
    }
    static __device__ __forceinline__ void vector(float (&to)[4], const float *from) {
        const float4 v = ptx::load_l2(reinterpret_cast<const float4 *>(from));
        to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
    }
};
struct LoadShared {
    template <int width>
    static __device__ __forceinline__ void vector(float (&to)[width], const float *from) {
#pragma unroll
        for (int j = 0; j < width; ++j) to[j] = from[j];
    }
};

/* Level 1: the partials of the warps that share rows: head_dim columns of output, then the row's maximum and sum. */
template <int head_dim, int rows, int token_groups>
struct WarpPartials {
    static constexpr int pitch = head_dim + 4; /* 4 more: the lanes of a fragment then fall into different banks */
    float row[token_groups][rows][pitch];

    template <int row_tiles>
    __device__ __forceinline__ void store(const tile::OutputFragment<head_dim, row_tiles> &fragment,
                                          const tile::OnlineSoftmax<row_tiles> &softmax, int token_group, int first_row,
                                          int lane) {
#pragma unroll
        for (int n = 0; n < row_tiles; ++n) {
#pragma unroll
            for (int odd = 0; odd < 2; ++odd) {
                const float total = softmax.row_sum(n, odd);
                float *const partial = row[token_group][first_row + n * 8 + (lane & 3) * 2 + odd];
                if (lane < 4) {
                    partial[head_dim] = softmax.maximum[n][odd];
                    partial[head_dim + 1] = total;
                }
                float *const to = partial + (lane >> 2);
#pragma unroll
                for (int i = 0; i < head_dim / 16; ++i) {
                    to[i * 16] = fragment.value[i][n][odd];
                    to[i * 16 + 8] = fragment.value[i][n][odd + 2];
                }
            }
        }
    }

    template <int threads>
    __device__ __forceinline__ void fold(Slice<rows, head_dim, threads> &result) const {
        using S = Slice<rows, head_dim, threads>;
#pragma unroll
        for (int i = 0; i < S::per_thread; ++i) {
            const int r = result.row(i);
            float largest = row[0][r][head_dim];
#pragma unroll
            for (int group = 1; group < token_groups; ++group) largest = fmaxf(largest, row[group][r][head_dim]);
            const float reference = tile::OnlineSoftmax<1>::finite_reference(largest);
            float total = 0.f;
#pragma unroll
            for (int j = 0; j < S::width; ++j) result.value[i][j] = 0.f;
#pragma unroll
            for (int group = 0; group < token_groups; ++group) {
                const float weight = ptx::exp2_approx(row[group][r][head_dim] - reference);
                total += weight * row[group][r][head_dim + 1];
#pragma unroll
                for (int j = 0; j < S::width; ++j) result.value[i][j] += weight * row[group][r][result.column(i) + j];
            }
            result.maximum[i] = largest;
            result.sum[i] = total;
        }
    }
};

/*
 * Level 2, after cluster_arrive_relaxed by every thread of the cluster: one record per (sending CTA, slice). A round is one
 * piece; two barriers keep rounds apart: `received` completes when all slices are in, `consumed` when all CTAs have folded
 * what was sent to them.
 */
template <int head_dim, int rows, int cluster_size>
struct ClusterExchange {
    static constexpr int columns = head_dim / cluster_size;
    static constexpr int record_floats = GQA_PARTIAL_FLOATS(rows, head_dim, cluster_size);
    alignas(16) float receive[cluster_size][record_floats];
    alignas(8) uint64_t received;
    alignas(8) uint64_t consumed;

    __device__ __forceinline__ void initialise() {
        ptx::mbarrier_init(ptx::shared_address(&received), 1);
        ptx::mbarrier_init(ptx::shared_address(&consumed), cluster_size);
    }

    /* Until every CTA has folded what was sent to it in `round`: its memory is free, and nothing more is on its way here. */
    __device__ __forceinline__ void wait_consumed(uint32_t round) {
        while (!ptx::mbarrier_try_wait_cluster(ptx::shared_address(&consumed), round & 1u)) {
        }
    }

    /*
     * Sends every column of the CTA's result to the CTA that owns it and folds the slices that arrive here. The caller waits
     * for the last round to be consumed before it ends.
     */
    template <int threads, int barrier_id>
    __device__ __forceinline__ void run(const Slice<rows, head_dim, threads> &own, Slice<rows, columns, threads> &result,
                                        int rank, uint32_t round) {
        using S = Slice<rows, head_dim, threads>;
        const uint32_t own_received = ptx::shared_address(&received), own_record = ptx::shared_address(receive[rank]);
        if (threadIdx.x == 0) ptx::mbarrier_arrive_expect_tx(own_received, sizeof(receive));
        if (round == 0)
            ptx::cluster_wait(); /* the barriers of the other CTAs are initialised */
        else
            wait_consumed(round - 1);
#pragma unroll
        for (int i = 0; i < S::per_thread; ++i) {
            const uint32_t owner = own.column(i) / columns;
            const uint32_t record = ptx::map_shared_rank(own_record, owner), barrier = ptx::map_shared_rank(own_received, owner);
            ptx::store_async(record + (own.row(i) * columns + own.column(i) % columns) * 4, own.value[i], barrier);
            if (own.column(i) % columns == 0)
                ptx::store_async(record + (rows * columns + own.row(i) * 2) * 4, {own.maximum[i], own.sum[i]}, barrier);
        }
        while (!ptx::mbarrier_try_wait_cluster(own_received, round & 1u)) {
        }
        result.template fold<LoadShared>(cluster_size, [this](int part) { return receive[part]; });
        ptx::named_barrier<barrier_id, threads>();
        if (threadIdx.x < cluster_size)
            ptx::mbarrier_arrive_remote(ptx::map_shared_rank(ptx::shared_address(&consumed), threadIdx.x));
    }
};

/* A cluster of one CTA has nothing to exchange. */
template <int head_dim, int rows>
struct ClusterExchange<head_dim, rows, 1> {
    __device__ __forceinline__ void initialise() {}
    __device__ __forceinline__ void wait_consumed(uint32_t) {}
    template <int threads, int barrier_id>
    __device__ __forceinline__ void run(const Slice<rows, head_dim, threads> &own, Slice<rows, head_dim, threads> &result, int,
                                        uint32_t) {
        for (int i = 0; i < own.per_thread; ++i) {
            for (int j = 0; j < own.width; ++j) result.value[i][j] = own.value[i][j];
            result.maximum[i] = own.maximum[i];
            result.sum[i] = own.sum[i];
        }
    }
};

/*
 * Level 3. A worker has at most two pieces of units that it shares: the last of its range, if the unit goes on (slot 1 of its
 * records), and the first, if the unit began before (slot 0). So of a unit's workers the first uses slot 1, the others slot 0,
 * and the unit's counter is that of its first worker. Returns whether this CTA came last; then `result` is the whole unit's.
 */
template <int rows, int columns, int threads, int cluster_size, int barrier_id>
__device__ __forceinline__ bool fold_workers(const gqa_decode_params &params, const WorkSplit &split, const Piece &piece,
                                             uint32_t worker, uint32_t rank, Slice<rows, columns, threads> &result,
                                             uint32_t *is_last) {
    constexpr int record_floats = GQA_PARTIAL_FLOATS(rows, columns * cluster_size, cluster_size);
    constexpr int worker_floats = cluster_size * 2 * record_floats;
    const uint32_t first = split.worker_of(piece.unit_start);
    float *const first_record = params.partials + first * static_cast<int64_t>(worker_floats) + (rank * 2 + 1) * record_floats;
    const auto record = [&](int part) { return first_record + part * worker_floats - (part == 0 ? 0 : record_floats); };
    result.store(record(worker - first));
    ptx::named_barrier<barrier_id, threads>();
    const uint32_t parts = split.worker_of(piece.unit_start + piece.unit_boxes - 1) - first + 1;
    if (threadIdx.x == 0) {
        uint32_t *counter = params.counters + first * cluster_size + rank;
        const bool last = ptx::atomic_add_acquire_release(counter, 1u) == parts - 1;
        if (last) *counter = 0u; /* ready for the next launch */
        *is_last = last;
    }
    ptx::named_barrier<barrier_id, threads>();
    if (*is_last == 0u) return false;
    result.template fold<LoadGlobal>(parts, record);
    return true;
}

} // namespace pipeline
