/* SPDX-License-Identifier: Apache-2.0 */
/*
 * block_scales.cuh: scales of V, of which rows have one for each block of 128 dims (LatentRows). Any float may be one, and V's elements are
 * fp16, as are those of all other converted rows: so scales are counted in a unit of their block, and outputs are in that unit, too.
 *
 * The unit of a block is a power of two, the same for all tokens of a piece so far. The first tokens' largest scale says what it is, and
 * it is raised where a later one exceeds what fp16 has room for: 448 times the scale over the unit is to be a number. So scales down to 2^-18
 * of the largest keep the 11 bits of fp16, and what elements of fp16's subnormal numbers lose is below 2^-29 of what the largest make of an element.
 */
#pragma once

#include <cmath>
#include <cstdint>

#include "abi.h"
#include "tile/constants.cuh"
#include "tile/element.cuh"
#include "tile/power_of_two.cuh"

namespace tile {

/* Scales are below as many units: 448 times that is below 65504. Of a unit as the bits of a float, 0 before the first scale. */
constexpr int scale_room = 128;
__device__ __forceinline__ bool exceeds_room(float scale, uint32_t unit) { return scale >= __uint_as_float(unit) * scale_room; }

/*
 * The unit for scales of which the largest is `power` and more: 16 to 32 of it, where it was 128 or more of `before`. Its reciprocal is a
 * number, too.
 */
__device__ __forceinline__ uint32_t raised_unit(uint32_t before, uint32_t power) {
    return before == 0 || power >= before + 7 * one_power ? max(power, 5 * one_power) - 4 * one_power : before;
}

/* Of one block of V, the scales of a tile's tokens and the unit so far: for a warp whose columns are of that block. */
template <class Format, int tile_tokens>
class BlockScales {
  public:
    static constexpr bool exist = true;

    /* Before the tokens of a piece. */
    __device__ __forceinline__ void begin() { unit_ = 0; }

    /* Those of a tile's tokens, `seen`: a bit for each that is there. Returns what outputs so far, in units until then, are to be multiplied by. */
    template <class Bits>
    __device__ __forceinline__ float load(uint32_t tile, int block, Bits seen, int lane) {
        float scale[2] = {0.f, 0.f};
        const int token = lane * 2;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            if (token < tile_tokens && (seen >> (token + i) & 1) != 0)
                scale[i] = Format::block_scale(tile + (token + i) * Format::row_bytes, block);
        }
        const float largest = fmaxf(fabsf(scale[0]), fabsf(scale[1])); /* of numbers */
        const uint32_t before = unit_;
        if (__any_sync(full_warp, exceeds_room(largest, before)))
            unit_ = raised_unit(before, __reduce_max_sync(full_warp, power_in(largest)));
        const float units = reciprocal_of_power(unit_);
        pair_ = Element<KERNEL_DTYPE_FP16>::pack(scale[0] * units, scale[1] * units);
        return unit_ == before ? 1.f : __uint_as_float(before) * units;
    }

    /* Of a fragment's tokens: a lane's 2 (l%4) and the next, and 8 further. */
    __device__ __forceinline__ void of_fragment(uint32_t (&pairs)[2], int fragment, int lane) const {
#pragma unroll
        for (int half = 0; half < 2; ++half)
            pairs[half] = __shfl_sync(full_warp, pair_, fragment * 8 + half * 4 + (lane & 3));
    }

    /* What outputs are multiplied by in the end. */
    __device__ __forceinline__ float unit() const { return __uint_as_float(unit_); }

  private:
    uint32_t unit_;
    uint32_t pair_; /* fp16 of the scales of tokens 2 l and 2 l + 1, in units */
};

/* Of rows without. */
struct NoBlockScales {
    static constexpr bool exist = false;
    __device__ __forceinline__ void begin() {}
    template <class Bits>
    __device__ __forceinline__ float load(uint32_t, int, Bits, int) {
        return 1.f;
    }
    __device__ __forceinline__ float unit() const { return 1.f; }
};

} // namespace tile
