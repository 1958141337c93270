/* SPDX-License-Identifier: Apache-2.0 */
/*
 * part_halves.cuh: results of many columns change hands as fp16, in units that are powers of two and go with them. What a CTA sends to others or
 * leaves in global memory goes at 13 to 15 bytes a clock, so half of the bytes is half of the time, which is most of what it takes to share a
 * unit.
 *
 * A value is rounded once, by 2^-11 of itself, as a weight of fp16 is. References and sums stay f32, and so do values that are added up.
 */
#pragma once

#include <cstdint>

#include "ptx/scalar.cuh"
#include "tile/power_of_two.cuh"

namespace pipeline {

/* Both are exact. What is larger than fp16 has room for becomes infinite; infinity and NaN stay what they are. */
struct HalvesUnit {
    float unit, per_unit;

    static __device__ __forceinline__ HalvesUnit of(float unit) {
        return {unit, tile::reciprocal_of_power(__float_as_uint(unit))};
    }
    /*
     * For values of a magnitude up to `largest`, which is 2^14 to 2^15 units then: fp16 has all digits down to 2^-29 of it, and its last digit is 2^-39
     * of it at most.
     */
    static __device__ __forceinline__ HalvesUnit up_to(float largest) { return of(__uint_as_float(tile::fp16_unit(largest))); }
};

/*
 * Where rows share a unit, their values are those over the power of two in the row's sum of weights: means of V, whatever the row's weights are.
 * Both are exact. A sum is 1 and more, as its largest weight was 1 when the reference was taken, or there is nothing in it.
 */
__device__ __forceinline__ uint32_t power_of_sum(float sum) { return max(tile::power_in(sum), 127 * tile::one_power); }
__device__ __forceinline__ float mean_unit(float sum) { return __uint_as_float(power_of_sum(sum)); }
__device__ __forceinline__ float per_mean_unit(float sum) { return tile::reciprocal_of_power(power_of_sum(sum)); }

/* What means of V up to `largest_value` are multiplied by so that fp16 has room for them, which are less than twice as much, and uses it. */
template <int largest_value>
constexpr float per_mean_of = 57344.f / (2 * largest_value); /* 448 * 2^7; fp16 ends at 65504 */

/* A sum and a unit as a word that is handled as a float: of the sum 15 bits behind the first, which leave its power of two as it was. */
__device__ __forceinline__ float sum_with_unit(float sum, float unit) {
    return __uint_as_float((__float_as_uint(sum) & ~255u) | __float_as_uint(unit) >> 23);
}
__device__ __forceinline__ float sum_in(float word) { return __uint_as_float(__float_as_uint(word) & ~255u); }
__device__ __forceinline__ float unit_in(float word) { return __uint_as_float((__float_as_uint(word) & 255u) << 23); }

/* Two values as a word that is handled as a float. */
__device__ __forceinline__ float pack_halves(float low, float high) { return __uint_as_float(ptx::pack_fp16(low, high)); }
__device__ __forceinline__ void unpack_halves(float &low, float &high, float word) {
    ptx::unpack_fp16(low, high, __float_as_uint(word));
}

} // namespace pipeline
