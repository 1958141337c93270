/* SPDX-License-Identifier: Apache-2.0 */
/* convert.cuh: kernels/ptx/convert.cuh, played. */
#pragma once

#include "../device.cuh"
#include "number.cuh"

namespace ptx {

inline uint32_t played_fp16x2(float low, float high) {
    return played::fp16_from_float(low) | static_cast<uint32_t>(played::fp16_from_float(high)) << 16;
}
inline float played_low(uint32_t pair) { return played::float_from_fp16(static_cast<uint16_t>(pair)); }
inline float played_high(uint32_t pair) { return played::float_from_fp16(static_cast<uint16_t>(pair >> 16)); }

inline uint32_t fp16x2_from_e4m3x2_low(uint32_t packed) {
    return played_fp16x2(played::float_from_e4m3(static_cast<uint8_t>(packed)),
                         played::float_from_e4m3(static_cast<uint8_t>(packed >> 8)));
}
inline uint32_t fp16x2_from_e4m3x2_high(uint32_t packed) { return fp16x2_from_e4m3x2_low(packed >> 16); }
inline uint32_t pack_e4m3(float low, float high) {
    return played::e4m3_from_float(low) | static_cast<uint32_t>(played::e4m3_from_float(high)) << 8;
}

inline uint32_t multiply_fp16x2(uint32_t a, uint32_t b) {
    return played_fp16x2(played_low(a) * played_low(b), played_high(a) * played_high(b));
}
inline uint32_t multiply_bf16x2(uint32_t a, uint32_t b) {
    const auto of = [](uint32_t x, uint32_t y) {
        return played::bf16_from_float(played::float_from_bf16(static_cast<uint16_t>(x)) *
                                       played::float_from_bf16(static_cast<uint16_t>(y)));
    };
    return of(a, b) | static_cast<uint32_t>(of(a >> 16, b >> 16)) << 16;
}
inline uint32_t larger_magnitude_bf16x2(uint32_t a, uint32_t b) {
    const auto of = [](uint32_t x, uint32_t y) {
        return played::bf16_from_float(std::fmax(played::float_from_bf16(static_cast<uint16_t>(x)),
                                                 std::fabs(played::float_from_bf16(static_cast<uint16_t>(y)))));
    };
    return of(a, b) | static_cast<uint32_t>(of(a >> 16, b >> 16)) << 16;
}
/* Products of fp16 are exact in double, and so is the sum but for what rounding to fp16 cannot see. */
inline uint32_t multiply_add_fp16x2(uint32_t a, uint32_t b, uint32_t c) {
    const auto once = [](float x, float y, float z) {
        return played::fp16_from_double(static_cast<double>(x) * static_cast<double>(y) + static_cast<double>(z));
    };
    return once(played_low(a), played_low(b), played_low(c)) |
           static_cast<uint32_t>(once(played_high(a), played_high(b), played_high(c))) << 16;
}
inline uint32_t negate_fp16x2(uint32_t a) { return a ^ 0x80008000u; }
inline uint32_t both_halves(uint32_t pair, bool upper) { return (upper ? pair >> 16 : pair & 0xffff) * 0x10001u; }
inline float float_from_fp16_low(uint32_t pair) { return played_low(pair); }
inline uint32_t select_bits(uint32_t a, uint32_t b, uint32_t mask) { return (a & mask) | (b & ~mask); }

} // namespace ptx
