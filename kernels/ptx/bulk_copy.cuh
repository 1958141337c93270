/* SPDX-License-Identifier: Apache-2.0 */
/* bulk_copy.cuh: PTX ISA 9.7.9.25 "cp.async.bulk" and "cp.async.bulk.tensor". sm_90 and newer. */
#pragma once

#include <cstdint>

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#error "bulk copies need sm_90"
#endif

namespace ptx {

/* One box of a 5-D tensor map into shared memory; coordinates outside the tensor bring zeros. */
__device__ __forceinline__ void copy_tensor_5d(uint32_t destination, const void *tensor_map, int x0, int x1, int x2, int x3,
                                               int x4, uint32_t barrier) {
    asm volatile("cp.async.bulk.tensor.5d.shared::cta.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4, %5, %6}], [%7];" ::"r"(destination),
                 "l"(tensor_map), "r"(x0), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(barrier)
                 : "memory");
}

/*
 * The same, of what is not read again soon: it gives way first in the second cache, where it would else drive out the query, records and
 * the kernel itself. PTX ISA "createpolicy".
 */
__device__ __forceinline__ void stream_tensor_5d(uint32_t destination, const void *tensor_map, int x0, int x1, int x2, int x3,
                                                 int x4, uint32_t barrier) {
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    asm volatile("cp.async.bulk.tensor.5d.shared::cta.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint "
                 "[%0], [%1, {%2, %3, %4, %5, %6}], [%7], %8;" ::"r"(destination),
                 "l"(tensor_map), "r"(x0), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(barrier), "l"(policy)
                 : "memory");
}

/* Global to shared memory; everything 16-byte aligned. */
__device__ __forceinline__ void copy_bulk(uint32_t destination, const void *source, uint32_t bytes, uint32_t barrier) {
    asm volatile("cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(destination),
                 "l"(source), "r"(bytes), "r"(barrier)
                 : "memory");
}

/* The same, once, by a warp whose lanes are all here and all say the same: the compiler then need not go from lane to lane. PTX ISA "elect.sync". */
__device__ __forceinline__ void copy_bulk_of_warp(uint32_t destination, const void *source, uint32_t bytes, uint32_t barrier) {
    asm volatile("{\n"
                 ".reg .pred elected;\n"
                 "elect.sync _|elected, 0xffffffff;\n"
                 "@elected cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];\n"
                 "}" ::"r"(destination),
                 "l"(source), "r"(bytes), "r"(barrier)
                 : "memory");
}

__device__ __forceinline__ void prefetch_tensor_map(const void *tensor_map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(tensor_map) : "memory");
}

} // namespace ptx
