/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lanes.cuh: over lanes that hold parts of one thing, `first` apart from their next, up to half of `end` apart: the same in each of them. Lanes 0 to 3
 * are <1, 4>, and so are 4 to 7; every fourth lane, <4, 32>. The whole warp calls together.
 */
#pragma once

#include "tile/constants.cuh"

namespace tile {

template <int first, int end>
__device__ __forceinline__ float sum_of_lanes(float value) {
#pragma unroll
    for (int distance = first; distance < end; distance *= 2)
        value += __shfl_xor_sync(full_warp, value, distance);
    return value;
}
template <int first, int end>
__device__ __forceinline__ float largest_of_lanes(float value) {
#pragma unroll
    for (int distance = first; distance < end; distance *= 2)
        value = fmaxf(value, __shfl_xor_sync(full_warp, value, distance));
    return value;
}

} // namespace tile
