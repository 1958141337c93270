/* SPDX-License-Identifier: Apache-2.0 */
/*
 * e5m2_pairs.cuh: bytes of e5m2 as pairs of fp16. An e5m2 is the upper byte of the fp16 of the same value, infinities and NaN too: to
 * move bytes is all there is to do. So it runs on the processor as well (tests/kernels/test_e5m2_pairs.cpp).
 */
#pragma once

#include <cstdint>

#include "ptx/bytes.cuh"

namespace tile {

/* As kv_format_fp8.cuh wants it. Byte 4 of these permutations is a zero, the lower byte of every fp16. */
struct E5m2Pairs {
    static __device__ __forceinline__ uint32_t lower(uint32_t bytes) { return ptx::permute_bytes(bytes, 0, 0x1404); }
    static __device__ __forceinline__ uint32_t upper(uint32_t bytes) { return ptx::permute_bytes(bytes, 0, 0x3424); }
    static __device__ __forceinline__ uint32_t sort(uint32_t bytes) { return bytes; }
    static __device__ __forceinline__ uint32_t even(uint32_t bytes) { return ptx::permute_bytes(bytes, 0, 0x2404); }
    static __device__ __forceinline__ uint32_t odd(uint32_t bytes) { return bytes & 0xff00ff00u; }
    /* A rotated e5m2 may be larger than any fp16 is: halved it is not. */
    static constexpr float rotation_scale = 0.5f;
    static constexpr int largest_value = 57344;
};

} // namespace tile
