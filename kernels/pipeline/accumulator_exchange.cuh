/* SPDX-License-Identifier: Apache-2.0 */
/*
 * accumulator_exchange.cuh: level 2 of partial.cuh, as cluster_exchange.cuh, for results that lie in registers as matrix instructions of
 * warpgroups left them (AccumulatorSlice): every thread hands the squares of columns that another CTA owns to the thread of its place
 * there, and folds those of its own.
 *
 * What arrives takes the place of the tiles, of which a CTA needs none at a unit's end: messages[rank of the sender]. So nobody sends
 * before the other CTAs have said that theirs are free, and no tile of the next piece is filled before what arrived has been read (tile_loan.cuh). A
 * round is one piece.
 */
#pragma once

#include <cstddef>
#include <cstdint>

#include "pipeline/accumulator_fold.cuh"
#include "pipeline/partial.cuh"
#include "pipeline/tile_loan.cuh"
#include "ptx/cluster.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/memory.cuh"

namespace pipeline {

/* What one CTA sends to another, as the threads hold it. `squares`: that a CTA owns of a warpgroup's columns. */
template <class S, int squares, int rows>
struct alignas(16) AccumulatorMessage {
    float output[squares][S::word_vectors][S::threads][S::word_width];
    float sums[squares][S::threads][S::statistics]; /* of the rows' weights, with the square's units */
    float references[rows];

    static constexpr size_t row_bytes = sizeof references;
    __device__ __forceinline__ float reference(uint32_t row) const { return references[row]; }
    __device__ __forceinline__ float sum(uint32_t, int square, uint32_t thread, int i) const { return sums[square][thread][i]; }
};
template <class S, int squares, int rows>
requires(!S::in_halves) struct alignas(16) AccumulatorMessage<S, squares, rows> {
    float output[squares][S::word_vectors][S::threads][S::word_width];
    float statistics[rows][2]; /* reference and sum */

    static constexpr size_t row_bytes = sizeof statistics;
    __device__ __forceinline__ float reference(uint32_t row) const { return statistics[row][0]; }
    __device__ __forceinline__ float sum(uint32_t row, int, uint32_t, int) const { return statistics[row][1]; }
};

/*
 * Lies in shared memory; its barriers count rounds. `rows`: 64 where the warpgroups have columns of the same ones each; of more each has 64 of its own.
 * `owning_groups`: warpgroups of a CTA to which its squares belong.
 */
template <class S, int squares_, int cluster_size_, int rows_ = 64, int owning_groups = 2>
struct AccumulatorExchange {
    static constexpr int cluster_size = cluster_size_, squares = squares_, rows = rows_;
    static constexpr int warps = S::threads / 32, group_rows = 64;
    using Message = AccumulatorMessage<S, squares, rows>;

    alignas(8) uint64_t ready;    /* one arrival of every CTA: what it would be sent has a place */
    alignas(8) uint64_t received; /* this CTA's arrival, and the bytes from the others */
    TileLoan loan;                /* until it has read what arrived */

    __device__ __forceinline__ void initialise() {
        ptx::mbarrier_init(ptx::shared_address(&ready), cluster_size);
        ptx::mbarrier_init(ptx::shared_address(&received), 1);
        loan.initialise(warps);
    }

    /*
     * By all threads, when no warp of this CTA needs the tiles any more: the others may send, if it owns anything. It counts here, too: they do not
     * wait for a warp without live rows, and without this CTA could be through with the next round before that has looked at this one.
     */
    __device__ __forceinline__ void open(const S &own, bool owns_any = true) {
        if (own.thread == 0) {
            const uint32_t live_warps = (own.live_rows + 15) / 16 * (owning_groups * group_rows / rows);
            ptx::mbarrier_arrive_expect_tx(
                ptx::shared_address(&received),
                (owns_any ? cluster_size - 1 : 0) *
                    ((sizeof(Message) - Message::row_bytes) / warps * live_warps + Message::row_bytes));
        }
        if (own.thread < cluster_size)
            ptx::mbarrier_arrive_remote(ptx::map_shared_rank(ptx::shared_address(&ready), own.thread));
    }
    __device__ __forceinline__ void wait_ready(uint32_t round) { wait(&ready, round); }

    /* A square of the CTA of rank `owner`, into the message from this CTA, which lies in its `tiles`. */
    __device__ __forceinline__ void send(const S &own, const void *tiles, int square, uint32_t rank, uint32_t owner) {
        if (!own.live())
            return;
        const Message &message = static_cast<const Message *>(tiles)[rank];
        const auto &place = message.output[square];
        const uint32_t there = ptx::map_shared_rank(ptx::shared_address(place[0][own.thread]), owner);
        const uint32_t barrier = ptx::map_shared_rank(ptx::shared_address(&received), owner);
        const typename S::Words words = own.words();
#pragma unroll
        for (int i = 0; i < S::word_vectors; ++i)
            ptx::store_async(there + i * sizeof place[0], words.output[i], barrier);
        if constexpr (S::in_halves)
            ptx::store_async(ptx::map_shared_rank(ptx::shared_address(message.sums[square][own.thread]), owner),
                             {words.statistics[0][1], words.statistics[1][1]}, barrier);
    }
    /* The statistics of this thread's rows: one of the threads that have a row calls it. */
    __device__ __forceinline__ void send_statistics(const S &own, const void *tiles, uint32_t rank, uint32_t owner) {
        const Message &message = static_cast<const Message *>(tiles)[rank];
        const uint32_t barrier = ptx::map_shared_rank(ptx::shared_address(&received), owner);
#pragma unroll
        for (int i = 0; i < S::statistics; ++i) {
            if constexpr (S::in_halves)
                ptx::store_async(ptx::map_shared_rank(ptx::shared_address(&message.references[row(own, i)]), owner),
                                 {own.reference[i]}, barrier);
            else
                ptx::store_async(ptx::map_shared_rank(ptx::shared_address(message.statistics[row(own, i)]), owner),
                                 {own.reference[i], own.sum[i]}, barrier);
        }
    }
    __device__ __forceinline__ void wait_received(uint32_t round) { wait(&received, round); }

    /* Adds what the others sent of a square to this CTA's own. */
    __device__ __forceinline__ void fold(S &result, const void *tiles, int square, uint32_t rank) const {
        if (!result.live())
            return;
#pragma unroll 1
        for (uint32_t turn = 1; turn < cluster_size; ++turn) {
            const Message &message = static_cast<const Message *>(tiles)[rank ^ turn];
            typename S::Words words;
#pragma unroll
            for (int i = 0; i < S::word_vectors; ++i) {
                const float4 vector = *reinterpret_cast<const float4 *>(message.output[square][i][result.thread]);
                words.output[i][0] = vector.x;
                words.output[i][1] = vector.y;
                words.output[i][2] = vector.z;
                words.output[i][3] = vector.w;
            }
#pragma unroll
            for (int i = 0; i < S::statistics; ++i) {
                words.statistics[i][0] = message.reference(row(result, i));
                words.statistics[i][1] = message.sum(row(result, i), square, result.thread, i);
            }
            result.fold(words);
        }
    }

    __device__ __forceinline__ void give_back(int lane) { loan.give_back(lane); }
    template <class Pieces>
    __device__ __forceinline__ void come_to(uint32_t piece, Pieces &pieces, int lane) {
        loan.come_to(piece, pieces, lane);
    }

  private:
    static __device__ __forceinline__ uint32_t row(const S &own, int i) {
        return own.row(i) + (rows > group_rows ? own.thread / 128 * group_rows : 0);
    }
    static __device__ __forceinline__ void wait(uint64_t *barrier, uint32_t round) {
        while (!ptx::mbarrier_try_wait_cluster(ptx::shared_address(barrier), round & 1u)) {
        }
    }
};

/* A cluster of one CTA has nothing to exchange. */
template <class S, int squares, int rows, int owning_groups>
struct AccumulatorExchange<S, squares, 1, rows, owning_groups> {
    using Message = AccumulatorMessage<S, squares, rows>;
    __device__ __forceinline__ void initialise() {}
    __device__ __forceinline__ void open(const S &, bool) {}
    __device__ __forceinline__ void give_back(int) {}
    template <class Pieces>
    __device__ __forceinline__ void come_to(uint32_t, Pieces &, int) {}
};

} // namespace pipeline
