/* SPDX-License-Identifier: Apache-2.0 */
/* scalar.cuh: kernels/ptx/scalar.cuh, played. */
#pragma once

#include "../device.cuh"
#include "number.cuh"

namespace ptx {

inline float exp2_approx(float x) {
    const float y = std::exp2(x);
    return std::fpclassify(y) == FP_SUBNORMAL ? 0.f : y;
}
inline float reciprocal_approx(float x) { return 1.f / x; }
inline float sine_approx(float x) { return std::sin(x); }
inline float cosine_approx(float x) { return std::cos(x); }
inline float max_or_nan(float a, float b) { return std::isnan(a) || std::isnan(b) ? NAN : std::fmax(a, b); }

inline uint32_t pack_bf16(float low, float high) {
    return played::bf16_from_float(low) | static_cast<uint32_t>(played::bf16_from_float(high)) << 16;
}
inline uint32_t pack_fp16(float low, float high) {
    return played::fp16_from_float(low) | static_cast<uint32_t>(played::fp16_from_float(high)) << 16;
}
inline void unpack_fp16(float &low, float &high, uint32_t packed) {
    low = played::float_from_fp16(static_cast<uint16_t>(packed));
    high = played::float_from_fp16(static_cast<uint16_t>(packed >> 16));
}

inline int thread_index_here() { return static_cast<int>(threadIdx.x); }
template <class T>
inline void compute_here(T &) {}

} // namespace ptx
