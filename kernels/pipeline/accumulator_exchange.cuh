/* SPDX-License-Identifier: Apache-2.0 */
/*
 * accumulator_exchange.cuh: level 2 of partial.cuh, as cluster_exchange.cuh, for results that lie in registers as matrix instructions of
 * warpgroups left them (AccumulatorSlice): every thread hands the squares of columns that another CTA owns to the thread of its place
 * there, and folds those of its own.
 *
 * What arrives takes the place of the tiles, of which a CTA needs none at a unit's end: messages[rank of the sender]. So nobody sends
 * before the other CTAs have said that theirs are free, and no tile of the next piece is copied before what arrived has been read
 * (PartRing::give_back). A round is one piece.
 */
#pragma once

#include <cstdint>

#include "pipeline/accumulator_fold.cuh"
#include "pipeline/partial.cuh"
#include "ptx/cluster.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/memory.cuh"

namespace pipeline {

/* What one CTA sends to another, as the threads hold it. `squares`: that a CTA owns of each warpgroup's columns. */
template <class S, int squares>
struct alignas(16) AccumulatorMessage {
    float output[squares][S::word_vectors][S::threads][S::word_width];
    float sums[squares][S::threads][S::statistics]; /* of the rows' weights, with the square's units */
};

/* Lies in shared memory; its barriers count rounds. */
template <class S, int squares_, int cluster_size_>
struct AccumulatorExchange {
    static constexpr int cluster_size = cluster_size_, squares = squares_;
    static constexpr int warps = S::threads / 32, rows = 64;
    using Message = AccumulatorMessage<S, squares>;

    alignas(16) float references[cluster_size][rows]; /* of the CTA of that rank */
    alignas(8) uint64_t ready;                        /* one arrival of every CTA: what it would be sent has a place */
    alignas(8) uint64_t received;                     /* this CTA's arrival, and the bytes from the others */

    __device__ __forceinline__ void initialise() {
        ptx::mbarrier_init(ptx::shared_address(&ready), cluster_size);
        ptx::mbarrier_init(ptx::shared_address(&received), 1);
    }

    /*
     * By all threads, when no warp of this CTA needs the tiles any more: the others may send. It counts here, too: they do not wait for a warp
     * without live rows, and without this CTA could be through with the next round before that has looked at this one.
     */
    __device__ __forceinline__ void open(const S &own) {
        if (own.thread == 0) {
            const uint32_t live_warps = (own.live_rows + 15) / 16 * 2;
            ptx::mbarrier_arrive_expect_tx(ptx::shared_address(&received),
                                           (cluster_size - 1) * (sizeof(Message) / warps * live_warps + sizeof references[0]));
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
        ptx::store_async(ptx::map_shared_rank(ptx::shared_address(message.sums[square][own.thread]), owner),
                         {words.statistics[0][1], words.statistics[1][1]}, barrier);
    }
    /* The references of this thread's rows: one of the threads that have a row calls it. */
    __device__ __forceinline__ void send_references(const S &own, uint32_t rank, uint32_t owner) {
        const uint32_t barrier = ptx::map_shared_rank(ptx::shared_address(&received), owner);
#pragma unroll
        for (int i = 0; i < S::statistics; ++i)
            ptx::store_async(ptx::map_shared_rank(ptx::shared_address(&references[rank][own.row(i)]), owner), {own.reference[i]},
                             barrier);
    }
    __device__ __forceinline__ void wait_received(uint32_t round) { wait(&received, round); }

    /* Adds what the others sent of a square to this CTA's own. */
    __device__ __forceinline__ void fold(S &result, const void *tiles, int square, uint32_t rank) const {
        if (!result.live())
            return;
#pragma unroll 1
        for (uint32_t turn = 1; turn < cluster_size; ++turn) {
            const uint32_t sender = rank ^ turn;
            const Message &message = static_cast<const Message *>(tiles)[sender];
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
                words.statistics[i][0] = references[sender][result.row(i)];
                words.statistics[i][1] = message.sums[square][result.thread][i];
            }
            result.fold(words);
        }
    }

  private:
    static __device__ __forceinline__ void wait(uint64_t *barrier, uint32_t round) {
        while (!ptx::mbarrier_try_wait_cluster(ptx::shared_address(barrier), round & 1u)) {
        }
    }
};

/* A cluster of one CTA has nothing to exchange. */
template <class S, int squares>
struct AccumulatorExchange<S, squares, 1> {
    using Message = AccumulatorMessage<S, squares>;
    __device__ __forceinline__ void initialise() {}
};

} // namespace pipeline
