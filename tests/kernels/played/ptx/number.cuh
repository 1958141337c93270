/* SPDX-License-Identifier: Apache-2.0 */
/* number.cuh: between the number formats of kernels and float, one number at a time; as the instructions of ptx/ have them. */
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace played {

inline float float_from_bf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

inline float float_from_fp16(uint16_t bits) {
    const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16, magnitude = bits & 0x7fff;
    const uint32_t finite = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude << 13) * 0x1p112f); /* subnormals, too */
    return std::bit_cast<float>(sign | finite | (magnitude >= 0x7c00 ? 0x7f800000 : 0));
}

/* As many bits of the exponent less: the fraction and what is left of the exponent are where fp16 has them. */
inline float float_from_e4m3(uint8_t bits) {
    const uint32_t magnitude = bits & 0x7f;
    const float finite = float_from_fp16(static_cast<uint16_t>(magnitude << 7)) * 0x1p8f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude == 0x7f ? NAN : finite) | static_cast<uint32_t>(bits & 0x80)
                                                                                                << 24);
}

inline uint16_t bf16_from_float(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    if (std::isnan(value))
        return 0x7fff;
    return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* To nearest even, once. */
inline uint16_t fp16_from_double(double value) {
    const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
    const double magnitude = std::fabs(value);
    if (std::isnan(value))
        return 0x7fff;
    if (magnitude >= 65520)
        return sign | 0x7c00;
    const int exponent = std::max(static_cast<int>(std::bit_cast<uint64_t>(magnitude) >> 52) - 1023, -14);
    /* Beside a number that large the last bit of a double is the last one of fp16: the addition rounds. */
    const auto large = static_cast<uint64_t>(exponent - 10 + 52 + 1023) << 52;
    const auto steps = static_cast<uint16_t>(std::bit_cast<uint64_t>(magnitude + std::bit_cast<double>(large)) - large);
    /* In a binade the next number is the next word: what is rounded up to a power of two as well. */
    return sign | static_cast<uint16_t>(steps + ((exponent + 14) << 10));
}
inline uint16_t fp16_from_float(float value) { return fp16_from_double(static_cast<double>(value)); }

/* To nearest even, saturated. */
inline uint8_t e4m3_from_float(float value) {
    if (std::isnan(value))
        return 0x7f;
    const uint8_t sign = std::signbit(value) ? 0x80 : 0;
    const float magnitude = std::fabs(value);
    if (magnitude >= 448.f)
        return sign | 0x7e;
    int exponent;
    (void)std::frexp(magnitude, &exponent);
    const int scale = exponent - 4 < -9 ? -9 : exponent - 4; /* of the last bit of the fraction */
    const int steps = static_cast<int>(std::nearbyint(std::ldexp(magnitude, -scale)));
    if (steps < 8)
        return sign | static_cast<uint8_t>(steps); /* of a subnormal */
    const int normal = scale + 9 + (steps == 16 ? 1 : 0), fraction = steps == 16 ? 0 : steps - 8;
    const int biased = normal + 1;
    return biased > 15 || (biased == 15 && fraction == 7) ? sign | 0x7e : static_cast<uint8_t>(sign | biased << 3 | fraction);
}

} // namespace played
