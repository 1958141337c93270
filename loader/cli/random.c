/* SPDX-License-Identifier: Apache-2.0 */
/* random.c: seeds in, normally distributed tensor elements out, the same everywhere. Next: cases.c, kv_batch.c. */
#include "random.h"

#include <math.h>

#include "dtype.h"
#include "element.h"

#define TWO_PI 6.283185307179586

struct random random_named(const char *name, uint64_t seed) {
    struct random random = {seed};
    for (const char *letter = name; *letter != '\0'; letter++)
        random.state = random.state * 31 + (unsigned char)*letter;
    return random;
}

uint64_t random_bits(struct random *random) {
    uint64_t bits = random->state += 0x9e3779b97f4a7c15u;
    bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9u;
    bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebu;
    return bits ^ (bits >> 31);
}

uint32_t random_below(struct random *random, uint32_t limit) { return (uint32_t)(((random_bits(random) >> 32) * limit) >> 32); }

double random_normal(struct random *random) {
    /* Box-Muller; both uniforms lie strictly inside (0, 1) */
    double radius = ((double)(random_bits(random) >> 12) + 0.5) / 4503599627370496.0;
    double angle = ((double)(random_bits(random) >> 12) + 0.5) / 4503599627370496.0;
    return sqrt(-2.0 * log(radius)) * cos(TWO_PI * angle);
}

void random_permutation(struct random *random, int32_t *ret_order, size_t count) {
    for (size_t index = 0; index < count; index++) {
        size_t other = random_below(random, (uint32_t)index + 1);
        ret_order[index] = ret_order[other];
        ret_order[other] = (int32_t)index;
    }
}

static uint16_t encode(libdecode_dtype dtype, double value) {
    uint16_t code = UINT16_MAX; /* NaN, where the dtype is none that a palette can be made of */
    if (dtype == LIBDECODE_DTYPE_NVFP4)
        return e2m1_encode(value);
    element_encode_row(dtype, &value, 1, &code);
    return code;
}

void palette_make(struct palette *ret_palette, libdecode_dtype dtype, double factor) {
    struct random random = {1};
    for (size_t index = 0; index < PALETTE_SIZE; index++)
        ret_palette->codes[index] = encode(dtype, (dtype == LIBDECODE_DTYPE_NVFP4 ? 2.0 : factor) * random_normal(&random));
}

void palette_make_special(struct palette *ret_palette, libdecode_dtype dtype) {
    for (size_t index = 0; index < PALETTE_SIZE; index++) {
        const uint8_t code = (uint8_t)index;
        const double value = dtype == LIBDECODE_DTYPE_E5M2 ? e5m2_decode(code) : e4m3_decode(code);
        ret_palette->codes[index] = dtype == LIBDECODE_DTYPE_NVFP4 ? code & 0xfu : encode(dtype, isfinite(value) ? value : 0.0);
    }
}

uint8_t random_scale(struct random *random, double factor) {
    return e4m3_encode(factor * e4m3_decode((uint8_t)(0x28 + random_below(random, 0x11)))); /* 0.25 to 1 */
}

void palette_fill(const struct palette *palette, libdecode_dtype dtype, struct random *random, void *to, size_t bytes) {
    const int bits_each = dtype_bits(dtype);
    const size_t count = bytes * 8 / (size_t)bits_each;
    uint16_t *words = to;
    uint8_t *octets = to;
    uint64_t bits = 0;
    for (size_t index = 0; index < count; index++) {
        /* one draw feeds four elements of 13 bits */
        bits = index % 4 == 0 ? random_bits(random) : bits >> 16;
        uint16_t code = palette->codes[bits % PALETTE_SIZE];
        if (bits_each == 16)
            words[index] = code;
        else if (bits_each == 8)
            octets[index] = (uint8_t)code;
        else
            octets[index / 2] = (uint8_t)(index % 2 == 0 ? code : octets[index / 2] | code << 4);
    }
}
