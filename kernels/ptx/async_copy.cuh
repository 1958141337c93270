/* SPDX-License-Identifier: Apache-2.0 */
/* async_copy.cuh: PTX ISA 9.7.9.25.3 "cp.async", a few bytes of every thread's own; sm_80 and newer. */
#pragma once

#include <cstdint>

namespace ptx {

/* `bytes` (4, 8 or 16, aligned to as many) from global to shared memory; not `live`: zeros, and nothing is read. */
template <int bytes>
__device__ __forceinline__ void copy_async(uint32_t destination, const void *source, bool live) {
    static_assert(bytes == 4 || bytes == 8 || bytes == 16, "sizes of cp.async");
    if constexpr (bytes == 16) /* past the first cache: nobody reads it again */
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(destination), "l"(source), "r"(live ? 16 : 0)
                     : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(destination), "l"(source), "n"(bytes),
                     "r"(live ? bytes : 0)
                     : "memory");
}

/* Of as many `bytes` (as before) the first `live`, none to all, and zeros behind them. */
template <int bytes>
__device__ __forceinline__ void copy_async_first(uint32_t destination, const void *source, int live) {
    static_assert(bytes == 4 || bytes == 8 || bytes == 16, "sizes of cp.async");
    if constexpr (bytes == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(destination), "l"(source), "r"(live) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(destination), "l"(source), "n"(bytes), "r"(live)
                     : "memory");
}

/* Arrives on the barrier once all copies that this thread has begun are in shared memory. */
__device__ __forceinline__ void mbarrier_arrive_after_copies(uint32_t barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

/* All copies that this thread has begun are in shared memory. */
__device__ __forceinline__ void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

} // namespace ptx
