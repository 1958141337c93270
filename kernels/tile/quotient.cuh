/* SPDX-License-Identifier: Apache-2.0 */
/* quotient.cuh: division by a number that the host knows: a multiplication by its reciprocal. */
#pragma once

#include <cstdint>

#include "abi.h"

namespace tile {

__device__ __forceinline__ uint32_t quotient(uint32_t dividend, const libdecode_divisor &divisor) {
    const uint32_t estimate = __umulhi(dividend, divisor.reciprocal); /* right, or one too small */
    return dividend - estimate * divisor.value >= divisor.value ? estimate + 1 : estimate;
}

} // namespace tile
