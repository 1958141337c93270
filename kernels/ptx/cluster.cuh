/* SPDX-License-Identifier: Apache-2.0 */
/* cluster.cuh: thread block clusters, PTX ISA 9.7.13.4 "barrier.cluster" and 9.7.9.23 "mapa". sm_90 and newer. */
#pragma once

#include <cstdint>

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#error "clusters need sm_90"
#endif

namespace ptx {

__device__ __forceinline__ uint32_t cluster_rank() {
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

/* The address, in the cluster's window, of this CTA's `address` in the CTA of that rank. */
__device__ __forceinline__ uint32_t map_shared_rank(uint32_t address, uint32_t rank) {
    uint32_t remote;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(rank));
    return remote;
}

/* Without release, which would wait for all memory: what it is to publish has a fence of its own (fence_mbarrier_init). */
__device__ __forceinline__ void cluster_arrive_relaxed() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

/* Stores into another CTA of the cluster; their bytes complete on a barrier of that CTA. PTX ISA 9.7.9.12 "st.async". */
__device__ __forceinline__ void store_async(uint32_t remote, const float (&value)[4], uint32_t remote_barrier) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(remote),
                 "f"(value[0]), "f"(value[1]), "f"(value[2]), "f"(value[3]), "r"(remote_barrier)
                 : "memory");
}
__device__ __forceinline__ void store_async(uint32_t remote, const float (&value)[2], uint32_t remote_barrier) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(remote),
                 "f"(value[0]), "f"(value[1]), "r"(remote_barrier)
                 : "memory");
}
__device__ __forceinline__ void store_async(uint32_t remote, const float (&value)[1], uint32_t remote_barrier) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(remote), "f"(value[0]),
                 "r"(remote_barrier)
                 : "memory");
}

} // namespace ptx
