/* SPDX-License-Identifier: Apache-2.0 */
/* biased_rows.cuh: a map of rows to whose scores ALiBi may have added: of each it knows what its lse lacks where biases count from position 0. */
#pragma once

#include <cstdint>

#include "abi.h"
#include "ptx/memory.cuh"
#include "tile/unit_rows.cuh"

namespace tile {

/* `Map`: a RowMap, or one like it. `places`: of its rows. */
template <class Map>
class BiasedRows : public Map {
  public:
    static constexpr bool have_biases = true;

    __device__ __forceinline__ BiasedRows(const Map &rows, const RowPlace *places, int position_offset)
        : Map(rows), places_(ptx::shared_address(places)), position_offset_(position_offset) {}

    /* In base 2: the slope for every position from 0 to the query, whose distance from token 0 is the place's. */
    __device__ __forceinline__ float lse_shift(const output_params &output, int row) const {
        if ((output.lse_features & CONTRACT_FEATURE_LSE_ALIBI_FROM_ZERO) == 0)
            return 0.f;
        static_assert(sizeof(RowPlace) == 8, "slope and distance");
        uint32_t place[2];
        ptx::load_shared(place, places_ + row * sizeof(RowPlace));
        return __uint_as_float(place[0]) * static_cast<float>(position_offset_ - static_cast<int32_t>(place[1]));
    }

  private:
    const uint32_t places_; /* kernels with options have no registers for 64 bits, nor above for a position of as many */
    const int position_offset_;
};

} // namespace tile
