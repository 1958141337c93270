/* SPDX-License-Identifier: Apache-2.0 */
/* random.c: seeds in, normally distributed tensor elements out, the same everywhere. Next: cases.c, kv_batch.c. */
#include "random.h"

#include <math.h>

#include "element.h"
#include "problem.h"

#define TWO_PI 6.283185307179586

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
    element_encode_row(dtype, &value, 1, &code);
    return code;
}

void palette_make(struct palette *ret_palette, libdecode_dtype dtype, double factor, bool squared) {
    struct random random = {1};
    ret_palette->largest = 0;
    for (size_t index = 0; index < PALETTE_SIZE; index++) {
        double value = factor * random_normal(&random);
        value = squared ? value * value : value;
        ret_palette->codes[index] = encode(dtype, value);
        ret_palette->largest = fmax(ret_palette->largest, fabs(value));
    }
}

void palette_fill(const struct palette *palette, libdecode_dtype dtype, struct random *random, void *to, size_t bytes) {
    const bool wide = dtype_bits(dtype) == 16;
    const size_t count = wide ? bytes / 2 : bytes;
    uint16_t *words = to;
    uint8_t *octets = to;
    uint64_t bits = 0;
    for (size_t index = 0; index < count; index++) {
        /* one draw feeds four elements of 13 bits */
        bits = index % 4 == 0 ? random_bits(random) : bits >> 16;
        uint16_t code = palette->codes[bits % PALETTE_SIZE];
        if (wide)
            words[index] = code;
        else
            octets[index] = (uint8_t)code;
    }
}
