/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cluster_exchange.cuh: level 2 of partial.cuh: every thread pushes its columns into the CTA of the cluster that owns them
 * (distributed shared memory), and CTA i folds the columns of slice i.
 *
 * One record per (sending CTA, slice): output, then reference and sum of the rows. A round (cluster_rounds.cuh)
 * is one piece.
 */
#pragma once

#include <cstddef>
#include <cstdint>

#include "pipeline/cluster_rounds.cuh"
#include "pipeline/partial.cuh"
#include "ptx/cluster.cuh"
#include "ptx/memory.cuh"

namespace pipeline {

/*
 * Every thread calls it once, after it has arrived: then the barriers of the other CTAs of the cluster are initialised, too. Who has
 * nothing to do with these calls it at its end, and waits for nobody.
 * PTX would let only those wait that need to know; racecheck of compute-sanitizer 2025.3 then never ends.
 */
template <int cluster_size>
__device__ __forceinline__ void meet_cluster() {
    if constexpr (cluster_size > 1)
        ptx::cluster_wait();
}

/* Lies in shared memory. `Own`: the slices of the whole head_dim; `Result`: those of this CTA's columns. */
template <class Own, class Result, int rows, int columns, int cluster_size>
struct ClusterExchange {
    static_assert(columns % Own::width == 0, "a vector has one owner");
    struct Record {
        float output[rows][columns];
        float statistics[rows][2];
    };
    alignas(16) Record receive[cluster_size];
    ClusterRounds<cluster_size> rounds;

    __device__ __forceinline__ void initialise() { rounds.initialise(); }

    /*
     * Sends every column of the CTA's result to the CTA that owns it and folds the slices that arrive here. Returns what `meanwhile`
     * returns, which is called while the slices are on their way.
     */
    template <int barrier_id, class Meanwhile>
    __device__ __forceinline__ auto run(const Own &own, Result &result, int rank, uint32_t round, bool is_last_round,
                                        Meanwhile meanwhile) {
        rounds.begin(round, cluster_size * own.live_rows * (columns + 2) * sizeof(float), threadIdx.x);
        push(own, rank);
        const auto prepared = meanwhile();
        rounds.wait_received(round);
        result.template fold_all<cluster_size>(0, [&](uint32_t row, uint32_t column, int k) {
            return Partial{&receive[k].output[row][column], receive[k].statistics[row]};
        });
        rounds.template end<barrier_id, Own::threads>(rank, is_last_round, threadIdx.x);
        return prepared;
    }

  private:
    __device__ __forceinline__ void push(const Own &own, int rank) {
        const uint32_t own_received = ptx::shared_address(&rounds.received), own_record = ptx::shared_address(&receive[rank]);
#pragma unroll
        for (int i = 0; i < Own::per_thread; ++i) {
            if (!own.live(i))
                continue;
            const uint32_t owner = own.column(i) / columns;
            const uint32_t record = ptx::map_shared_rank(own_record, owner), barrier = ptx::map_shared_rank(own_received, owner);
            ptx::store_async(record + (own.row(i) * columns + own.column(i) % columns) * 4, own.value[i], barrier);
            if (own.column(i) % columns == 0)
                ptx::store_async(record + offsetof(Record, statistics) + own.row(i) * 8, {own.reference[i], own.sum[i]}, barrier);
        }
    }
};

/* A cluster of one CTA has nothing to exchange. */
template <class Own, int rows, int columns>
struct ClusterExchange<Own, Own, rows, columns, 1> {
    __device__ __forceinline__ void initialise() {}
    template <int barrier_id, class Meanwhile>
    __device__ __forceinline__ auto run(const Own &own, Own &result, int, uint32_t, bool, Meanwhile meanwhile) {
        for (int i = 0; i < Own::per_thread; ++i) {
            for (int j = 0; j < Own::width; ++j)
                result.value[i][j] = own.value[i][j];
            result.reference[i] = own.reference[i];
            result.sum[i] = own.sum[i];
        }
        return meanwhile();
    }
};

} // namespace pipeline
