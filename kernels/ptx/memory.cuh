/* SPDX-License-Identifier: Apache-2.0 */
/* memory.cuh: global memory across CTAs, named barriers, and the dependency on the preceding kernel. sm_90 and newer. */
#pragma once

#include <cstdint>

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#error "griddepcontrol needs sm_90"
#endif

namespace ptx {

/* Adds at the GPU's scope: what this CTA wrote is visible to whoever sees the sum, and the reverse. PTX ISA 9.7.13.5 "atom". */
__device__ __forceinline__ uint32_t atomic_add_acquire_release(uint32_t *address, uint32_t value) {
    uint32_t before;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(address), "r"(value) : "memory");
    return before;
}

/* Loads that bypass L1, for data that another CTA wrote in this launch. PTX ISA 9.7.9.8 "ld". */
__device__ __forceinline__ float load_l2(const float *address) {
    float value;
    asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(value) : "l"(address) : "memory");
    return value;
}
__device__ __forceinline__ float2 load_l2(const float2 *address) {
    float2 value;
    asm volatile("ld.global.cg.v2.f32 {%0, %1}, [%2];" : "=f"(value.x), "=f"(value.y) : "l"(address) : "memory");
    return value;
}
__device__ __forceinline__ float4 load_l2(const float4 *address) {
    float4 value;
    asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
                 : "l"(address)
                 : "memory");
    return value;
}

/* Barrier `id` of this CTA among `threads` threads. PTX ISA 9.7.13.1 "bar". */
template <int id, int threads>
__device__ __forceinline__ void named_barrier() {
    asm volatile("bar.sync %0, %1;" ::"n"(id), "n"(threads) : "memory");
}

/* Programmatic dependent launch, PTX ISA 9.7.13.13 "griddepcontrol"; without the launch attribute both do nothing. */
__device__ __forceinline__ void launch_dependents() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
__device__ __forceinline__ void wait_for_preceding_kernel() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

} // namespace ptx
