/* SPDX-License-Identifier: Apache-2.0 */
/* nvfp4_codes.cuh: e2m1 codes of a block of NVFP4 that results are stored in. Integers and plain floats, which the processor runs, too. */
#pragma once

#include <cmath>
#include <cstdint>

namespace tile {

/* dividend / divisor from about the divisor's reciprocal, rounded as a division would be: what lies between two codes must not move. */
__device__ __forceinline__ float divide(float dividend, float divisor, float reciprocal) {
    const float quotient = dividend * reciprocal;
    return fmaf(fmaf(-divisor, quotient, dividend), reciprocal, quotient);
}
constexpr float largest_dividend = 0x1p100f; /* of which nothing above overflows */

/*
 * The codes nearest to value x factor / scale, ties to the even one. A scale of 0 has codes of 0; NaN, of either, the largest, without a sign
 * where it is the scale's. Each of a block's 16 columns takes this, so it is short: it has no threshold for each code, and no branch.
 */
class Nvfp4Codes {
  public:
    __device__ __forceinline__ Nvfp4Codes(float factor, float scale)
        : factor_(fabsf(factor)), eighth_scale_(fabsf(scale) / 8),
          reciprocal_(scale == 0.f ? 0.f : __fdividef(1.f, eighth_scale_)), sign_(fabsf(scale) > 0.f ? 8u : 0u) {}

    __device__ __forceinline__ uint32_t of(float value) const {
        const float scaled = value * factor_;
        /* Eight times what is rounded, at most eight times the largest, 6. fminf() drops NaN. */
        const float eightfold = fminf(divide(fminf(fabsf(scaled), largest_dividend), eighth_scale_, reciprocal_), 48.f);
        /*
         * From 1 on a code has one bit of fraction: its steps are half of the power of two below; under 1 they are 1/2, as from 1 to 2. A float of
         * 2^22 of these powers has the same steps, so to add it is to round. The last bits of the sum are then a number of steps, to which a code
         * adds 2 e for a power of 2^e; its exponent, from bit 23 on, is e + 152, and twice that is 2 e but for a multiple of eight.
         */
        const float power = fmaxf(__uint_as_float(__float_as_uint(eightfold) & 0x7f800000u), 8.f);
        const uint32_t rounded = __float_as_uint(fmaf(power, 0x1p22f, eightfold));
        return ((rounded + (rounded >> 22)) & 7u) | (__float_as_uint(scaled) >> 28 & sign_);
    }

  private:
    const float factor_, eighth_scale_, reciprocal_;
    const uint32_t sign_;
};

} // namespace tile
