/* SPDX-License-Identifier: Apache-2.0 */
/* token_range.cuh: KV tokens of a sequence that lie one behind the other. */
#pragma once

#include <cstdint>

namespace tile {

/* The tokens from `first` on that lie before `end`. */
struct TokenRange {
    int first, end;

    __device__ __forceinline__ uint32_t num_boxes(int box_shift) const {
        if (end <= first)
            return 0;
        return ((end - 1) >> box_shift) - (first >> box_shift) + 1;
    }
};

} // namespace tile
