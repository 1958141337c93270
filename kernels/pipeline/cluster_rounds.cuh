/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cluster_rounds.cuh: keeps the rounds of an exchange apart, in which every CTA of a cluster sends to every other. Two barriers, both
 * completed by the bytes of stores from the CTAs: `received` when all that a CTA is sent is there, `consumed` when all CTAs have said that
 * they have folded what was sent to them.
 */
#pragma once

#include <cstdint>

#include "ptx/cluster.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/memory.cuh"

namespace pipeline {

/* Lies in shared memory, at the same place of every CTA. */
template <int cluster_size>
struct ClusterRounds {
    float says_consumed[cluster_size]; /* their values mean nothing */
    alignas(8) uint64_t received;
    alignas(8) uint64_t consumed;

    __device__ __forceinline__ void initialise() {
        ptx::mbarrier_init(ptx::shared_address(&received), 1);
        ptx::mbarrier_init(ptx::shared_address(&consumed), 1);
    }

    /* By every thread, before it sends. `bytes`: that the CTA will have received. */
    __device__ __forceinline__ void begin(uint32_t round, uint32_t bytes, uint32_t thread) {
        if (round > 0)
            wait(&consumed, round - 1);
        if (thread == 0) {
            ptx::mbarrier_arrive_expect_tx(ptx::shared_address(&received), bytes);
            ptx::mbarrier_arrive_expect_tx(ptx::shared_address(&consumed), sizeof says_consumed);
        }
    }
    __device__ __forceinline__ void wait_received(uint32_t round) { wait(&received, round); }

    /*
     * By every thread, once it has folded what arrived. After the last round nothing more is on its way to this CTA, so it may end, and says
     * nothing.
     */
    template <int barrier_id, int threads>
    __device__ __forceinline__ void end(uint32_t rank, bool is_last_round, uint32_t thread) {
        if (is_last_round)
            return;
        ptx::named_barrier<barrier_id, threads>();
        if (thread < cluster_size)
            ptx::store_async(ptx::map_shared_rank(ptx::shared_address(&says_consumed[rank]), thread), {0.f},
                             ptx::map_shared_rank(ptx::shared_address(&consumed), thread));
    }

  private:
    static __device__ __forceinline__ void wait(uint64_t *barrier, uint32_t round) {
        while (!ptx::mbarrier_try_wait_cluster(ptx::shared_address(barrier), round & 1u)) {
        }
    }
};

} // namespace pipeline
