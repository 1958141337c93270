/* SPDX-License-Identifier: Apache-2.0 */
/*
 * element.c: bytes of bf16, fp16, e4m3, e5m2 and NVFP4 rows in, float64 out, and back. Next: reference.c.
 * Every format here is a sign, an exponent field and a fraction, so that a magnitude's code counts the representable values from
 * zero up: one routine decodes all of them and one encodes all of them, and a carry of the rounding lands in the exponent.
 */
#include "element.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

/* A format: fraction bits, exponent of the smallest normal value, first magnitude that is no finite number. */
#define BF16_FRACTION_BITS 7
#define BF16_MIN_EXPONENT (-126)
#define BF16_INFINITY 0x7f80u
#define FP16_FRACTION_BITS 10
#define FP16_MIN_EXPONENT (-14)
#define FP16_INFINITY 0x7c00u
#define E4M3_FRACTION_BITS 3
#define E4M3_MIN_EXPONENT (-6)
#define E4M3_LARGEST 0x7eu /* 448 */
#define E4M3_NAN 0x7fu
#define E5M2_FRACTION_BITS 2
#define E5M2_MIN_EXPONENT (-14)
#define E5M2_INFINITY 0x7cu
#define E5M2_NAN 0x7fu
#define E2M1_FRACTION_BITS 1
#define E2M1_MIN_EXPONENT 0
#define E2M1_LARGEST 0x7u /* 6 */

#define FLOAT64_FRACTION_BITS 52
#define FLOAT64_MIN_EXPONENT (-1022)
#define FLOAT64_INFINITY (UINT64_C(0x7ff) << FLOAT64_FRACTION_BITS)

/*
 * Builds the bits of the float64: the loops over KV rows spend most of their time here. Signs look random, so there is no branch
 * on them; special and subnormal codes are rare, and the branches cost nothing. No subnormal float64 appears on the way, so
 * a caller's flush-to-zero mode does no harm.
 */
static inline double decode(uint32_t sign, uint32_t magnitude, int fraction_bits, int min_exponent, uint32_t first_special) {
    uint64_t bits = (uint64_t)magnitude << (FLOAT64_FRACTION_BITS - fraction_bits);
    double value;

    if (magnitude >= first_special) {
        bits |= FLOAT64_INFINITY; /* a fraction makes it NaN, here as in the narrow formats */
    } else if (magnitude >> fraction_bits == 0) {
        value = ldexp((double)magnitude, min_exponent - fraction_bits);
        memcpy(&bits, &value, sizeof bits);
    } else {
        bits += (uint64_t)(min_exponent - FLOAT64_MIN_EXPONENT) << FLOAT64_FRACTION_BITS;
    }
    bits |= (uint64_t)sign << 63;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Nearest integer, ties to even, whatever rounding mode the caller's thread is in. `value` in [0, 2^32). */
static inline uint32_t round_half_even(double value) {
    uint32_t below = (uint32_t)value;
    double rest = value - (double)below;
    bool up = rest > 0.5 || (rest == 0.5 && (below & 1u) != 0);
    return below + (up ? 1u : 0u);
}

/* 2^exponent, of a normal float64. */
static inline double power_of_two(int exponent) {
    const uint64_t bits = (uint64_t)(exponent - FLOAT64_MIN_EXPONENT + 1) << FLOAT64_FRACTION_BITS;
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The code nearest to a magnitude, at most `largest`. */
static uint32_t magnitude_encode(double magnitude, int fraction_bits, int min_exponent, uint32_t largest) {
    if (magnitude > 1e300)
        return largest; /* beyond every format here, and the arithmetic below stays among normal numbers */
    uint64_t bits;
    memcpy(&bits, &magnitude, sizeof bits);
    int exponent = (int)(bits >> FLOAT64_FRACTION_BITS) + FLOAT64_MIN_EXPONENT - 1; /* zero and subnormal: below every format's */
    if (exponent < min_exponent)
        exponent = min_exponent;
    uint32_t steps = round_half_even(magnitude * power_of_two(fraction_bits - exponent));
    uint32_t code = ((uint32_t)(exponent - min_exponent) << fraction_bits) + steps;
    return code < largest ? code : largest;
}

double bf16_decode(uint16_t code) {
    return decode(code >> 15, code & 0x7fffu, BF16_FRACTION_BITS, BF16_MIN_EXPONENT, BF16_INFINITY);
}

double fp16_decode(uint16_t code) {
    return decode(code >> 15, code & 0x7fffu, FP16_FRACTION_BITS, FP16_MIN_EXPONENT, FP16_INFINITY);
}

double e4m3_decode(uint8_t code) { return decode(code >> 7, code & 0x7fu, E4M3_FRACTION_BITS, E4M3_MIN_EXPONENT, E4M3_NAN); }

double e5m2_decode(uint8_t code) { return decode(code >> 7, code & 0x7fu, E5M2_FRACTION_BITS, E5M2_MIN_EXPONENT, E5M2_INFINITY); }

double e2m1_decode(uint8_t code) {
    return decode(code >> 3 & 1u, code & 0x7u, E2M1_FRACTION_BITS, E2M1_MIN_EXPONENT, E2M1_LARGEST + 1);
}

uint16_t bf16_encode(double value) {
    uint32_t sign = signbit(value) ? 0x8000u : 0;
    if (isnan(value))
        return 0x7fffu; /* the NaN that the GPU's conversions give */
    return (uint16_t)(sign | magnitude_encode(fabs(value), BF16_FRACTION_BITS, BF16_MIN_EXPONENT, BF16_INFINITY));
}

uint16_t fp16_encode(double value) {
    uint32_t sign = signbit(value) ? 0x8000u : 0;
    if (isnan(value))
        return 0x7fffu;
    return (uint16_t)(sign | magnitude_encode(fabs(value), FP16_FRACTION_BITS, FP16_MIN_EXPONENT, FP16_INFINITY));
}

uint8_t e4m3_encode(double value) {
    uint32_t sign = signbit(value) ? 0x80u : 0;
    if (isnan(value))
        return E4M3_NAN;
    return (uint8_t)(sign | magnitude_encode(fabs(value), E4M3_FRACTION_BITS, E4M3_MIN_EXPONENT, E4M3_LARGEST));
}

uint8_t e5m2_encode(double value) {
    uint32_t sign = signbit(value) ? 0x80u : 0;
    if (isnan(value))
        return E5M2_NAN;
    return (uint8_t)(sign | magnitude_encode(fabs(value), E5M2_FRACTION_BITS, E5M2_MIN_EXPONENT, E5M2_INFINITY));
}

uint8_t e2m1_encode(double value) {
    uint32_t sign = signbit(value) ? 0x8u : 0;
    if (isnan(value))
        return E2M1_LARGEST;
    return (uint8_t)(sign | magnitude_encode(fabs(value), E2M1_FRACTION_BITS, E2M1_MIN_EXPONENT, E2M1_LARGEST));
}

void element_decode_row(libdecode_dtype dtype, const void *row, size_t count, double *ret_values) {
    const uint16_t *halves = row;
    const uint8_t *bytes = row;
    const float *floats = row;

    switch (dtype) {
    case LIBDECODE_DTYPE_BF16:
        for (size_t d = 0; d < count; d++)
            ret_values[d] = bf16_decode(halves[d]);
        return;
    case LIBDECODE_DTYPE_FP16:
        for (size_t d = 0; d < count; d++)
            ret_values[d] = fp16_decode(halves[d]);
        return;
    case LIBDECODE_DTYPE_E4M3:
        for (size_t d = 0; d < count; d++)
            ret_values[d] = e4m3_decode(bytes[d]);
        return;
    case LIBDECODE_DTYPE_E5M2:
        for (size_t d = 0; d < count; d++)
            ret_values[d] = e5m2_decode(bytes[d]);
        return;
    case LIBDECODE_DTYPE_FP32:
        for (size_t d = 0; d < count; d++)
            ret_values[d] = (double)floats[d];
        return;
    case LIBDECODE_DTYPE_NVFP4:
    case LIBDECODE_DTYPE_DEFAULT:
        break;
    }
    for (size_t d = 0; d < count; d++)
        ret_values[d] = (double)NAN;
}

void element_encode_row(libdecode_dtype dtype, const double *values, size_t count, void *ret_row) {
    uint16_t *halves = ret_row;
    uint8_t *bytes = ret_row;
    float *floats = ret_row;

    switch (dtype) {
    case LIBDECODE_DTYPE_BF16:
        for (size_t d = 0; d < count; d++)
            halves[d] = bf16_encode(values[d]);
        return;
    case LIBDECODE_DTYPE_FP16:
        for (size_t d = 0; d < count; d++)
            halves[d] = fp16_encode(values[d]);
        return;
    case LIBDECODE_DTYPE_E4M3:
        for (size_t d = 0; d < count; d++)
            bytes[d] = e4m3_encode(values[d]);
        return;
    case LIBDECODE_DTYPE_E5M2:
        for (size_t d = 0; d < count; d++)
            bytes[d] = e5m2_encode(values[d]);
        return;
    case LIBDECODE_DTYPE_FP32:
        for (size_t d = 0; d < count; d++)
            floats[d] = (float)values[d];
        return;
    case LIBDECODE_DTYPE_NVFP4:
    case LIBDECODE_DTYPE_DEFAULT:
        return;
    }
}

void nvfp4_decode_row(const uint8_t *codes, const uint8_t *scales, size_t scale_step, size_t count, double *ret_values) {
    for (size_t block = 0; block < count / NVFP4_BLOCK; block++) {
        double scale = e4m3_decode(scales[block * scale_step]);
        const uint8_t *pairs = codes + block * NVFP4_BLOCK / 2;
        double *values = ret_values + block * NVFP4_BLOCK;

        for (size_t pair = 0; pair < NVFP4_BLOCK / 2; pair++) {
            values[2 * pair] = e2m1_decode(pairs[pair] & 0xfu) * scale;
            values[2 * pair + 1] = e2m1_decode(pairs[pair] >> 4) * scale;
        }
    }
}

size_t nvfp4_scale_offset(libdecode_sf_layout layout, int64_t token_stride, size_t token, size_t head_dim, size_t *ret_step) {
    size_t num_blocks = head_dim / NVFP4_BLOCK;

    if (layout == LIBDECODE_SF_V_INTERLEAVE4) {
        *ret_step = 4;
        return token / 4 * 4 * num_blocks + token % 4;
    }
    *ret_step = 1;
    return token * (size_t)token_stride;
}

uint8_t nvfp4_encode_block(const double values[NVFP4_BLOCK], double global_scale, uint8_t ret_codes[NVFP4_BLOCK / 2]) {
    double largest = 0;
    for (size_t d = 0; d < NVFP4_BLOCK; d++)
        if (isnan(values[d]) || fabs(values[d]) > largest)
            largest = isnan(largest) ? largest : fabs(values[d]);

    uint8_t scale_code = e4m3_encode(global_scale * largest / 6);
    double scale = e4m3_decode(scale_code);
    memset(ret_codes, 0, NVFP4_BLOCK / 2);
    if (scale == 0)
        return scale_code;
    for (size_t d = 0; d < NVFP4_BLOCK; d++) {
        uint32_t code = e2m1_encode(values[d] * global_scale / scale);
        ret_codes[d / 2] = (uint8_t)(ret_codes[d / 2] | code << (d % 2 * 4));
    }
    return scale_code;
}

size_t nvfp4_swizzled_offset(size_t row, size_t column, size_t num_columns) {
    size_t tile = row / 128 * (num_columns / 4) + column / 4;
    return tile * 512 + row % 32 * 16 + row % 128 / 32 * 4 + column % 4;
}
