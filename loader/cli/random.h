/* SPDX-License-Identifier: Apache-2.0 */
/* random.c: a seed in, the same normally distributed tensor elements on every machine out. Used by cases.c and kv_batch.c. */
#ifndef LIBDECODE_CLI_RANDOM_H
#define LIBDECODE_CLI_RANDOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libdecode.h"

/* splitmix64: one 64-bit state, every seed is good. */
struct random {
    uint64_t state;
};
uint64_t random_bits(struct random *random);
/* 0 .. limit - 1; `limit` is 1 or more. */
uint32_t random_below(struct random *random, uint32_t limit);
/* Mean 0, variance 1. */
double random_normal(struct random *random);
/* A random order of 0 .. count - 1. */
void random_permutation(struct random *random, int32_t *ret_order, size_t count);

/*
 * A stock of normally distributed values, encoded once, so that filling gigabytes is a matter of table look-ups.
 * codes[n] of two palettes made with different factors belong to the same value before the factor.
 */
#define PALETTE_SIZE 8192u
struct palette {
    uint16_t codes[PALETTE_SIZE]; /* an 8-bit dtype uses the low byte */
    double largest;               /* magnitude */
};
/* Elements are factor * x, or (factor * x)^2, for x of mean 0 and variance 1. `dtype`: bf16, fp16 or e4m3. */
void palette_make(struct palette *ret_palette, libdecode_dtype dtype, double factor, bool squared);
/* `bytes` of random elements of `dtype` at `to`. */
void palette_fill(const struct palette *palette, libdecode_dtype dtype, struct random *random, void *to, size_t bytes);

#endif
