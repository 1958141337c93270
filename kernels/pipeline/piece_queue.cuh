/* SPDX-License-Identifier: Apache-2.0 */
/*
 * piece_queue.cuh: hands pieces from the announcer warp to the consumer warps through shared memory, so that consumers need not
 * walk the schedule and keep their registers for the arithmetic.
 */
#pragma once

#include <cstdint>

#include "pipeline/cluster_exchange.cuh"
#include "pipeline/split_schedule.cuh"
#include "ptx/mbarrier.cuh"

namespace pipeline {

/* Lies in shared memory. */
struct PieceQueue {
    static constexpr uint32_t capacity = 4;
    alignas(8) uint64_t full[capacity];  /* one arrival */
    alignas(8) uint64_t empty[capacity]; /* one arrival per consumer thread: each has read the piece for itself */
    Piece pieces[capacity];

    __device__ __forceinline__ void initialise(int consumer_threads) {
        for (uint32_t i = 0; i < capacity; ++i) {
            ptx::mbarrier_init(ptx::shared_address(&full[i]), 1);
            ptx::mbarrier_init(ptx::shared_address(&empty[i]), consumer_threads);
        }
    }

    /* Announcer, all lanes: the `count`th piece. */
    __device__ __forceinline__ void push(uint32_t count, const Piece &piece, int lane) {
        const uint32_t slot = count % capacity;
        wait(empty[slot], (count / capacity & 1u) ^ 1u);
        if (lane == 0) {
            pieces[slot] = piece;
            ptx::mbarrier_arrive(ptx::shared_address(&full[slot]));
        }
        __syncwarp();
    }

    /* Consumer: the `count`th piece stays readable until this thread pops it. */
    __device__ __forceinline__ const Piece &front(uint32_t count) {
        wait(full[count % capacity], count / capacity & 1u);
        return pieces[count % capacity];
    }
    __device__ __forceinline__ void pop(uint32_t count) { ptx::mbarrier_arrive(ptx::shared_address(&empty[count % capacity])); }

  private:
    static __device__ __forceinline__ void wait(uint64_t &barrier, uint32_t parity) {
        while (!ptx::mbarrier_try_wait(ptx::shared_address(&barrier), parity)) {
        }
    }
};

/* The announcer warp: every piece of this worker, in order, then the end of work. */
template <int cluster_size>
__device__ __forceinline__ void announce(SplitSchedule<cluster_size> &schedule, PieceQueue &pieces, int lane) {
    schedule.begin();
    meet_cluster<cluster_size>();
    Piece piece;
    uint32_t count = 0;
    do {
        piece = schedule.next();
        if (!piece.end_of_work)
            schedule.find_workers(piece);
        pieces.push(count++, piece, lane);
    } while (!piece.end_of_work);
}

} // namespace pipeline
