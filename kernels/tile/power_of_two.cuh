/* SPDX-License-Identifier: Apache-2.0 */
/* power_of_two.cuh: units that numbers are counted in, powers of two, which change no digit: by their exponent, and as the bits of a float. */
#pragma once

#include <cstdint>

namespace tile {

/* 2^exponent, of a normal number. */
__device__ __forceinline__ float power_of_two(int exponent) {
    return __uint_as_float(static_cast<uint32_t>(exponent + 127) << 23);
}

/* Of the power of two that puts a row's largest element just below 2^15. It and its inverse stay normal numbers: -114 for an infinity. */
__device__ __forceinline__ int fp16_exponent(float largest) {
    return min(14 + 127 - static_cast<int>(__float_as_uint(largest) >> 23), 126);
}

/* In the bits of a float: from a power of two to the next, what a magnitude has of it, and 1 over a power of two. */
constexpr uint32_t one_power = 1u << 23;
__device__ __forceinline__ uint32_t power_in(float magnitude) { return __float_as_uint(magnitude) & 255 * one_power; }
__device__ __forceinline__ float reciprocal_of_power(uint32_t power) { return __uint_as_float(254 * one_power - power); }

/* 2^-fp16_exponent(largest). */
__device__ __forceinline__ uint32_t fp16_unit(float largest) { return max(power_in(largest), 15 * one_power) - 14 * one_power; }

} // namespace tile
