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
/* For a thing of that name: other numbers than another's of the same seed. */
struct random random_named(const char *name, uint64_t seed);
uint64_t random_bits(struct random *random);
/* 0 .. limit - 1; `limit` is 1 or more. */
uint32_t random_below(struct random *random, uint32_t limit);
/* Mean 0, variance 1. */
double random_normal(struct random *random);
/* A random order of 0 .. count - 1. */
void random_permutation(struct random *random, int32_t *ret_order, size_t count);

/*
 * A stock of normally distributed values, encoded once, so that filling gigabytes is a matter of table look-ups.
 */
#define PALETTE_SIZE 8192u
struct palette {
    uint16_t codes[PALETTE_SIZE]; /* an 8-bit dtype uses the low byte, NVFP4 the low four bits */
};

/* A scale of NVFP4, factor / 4 to factor, so that elements have a variance of about factor^2. */
uint8_t random_scale(struct random *random, double factor);
/* Elements are factor * x for x of mean 0 and variance 1. NVFP4: the e2m1 codes of 2 * x, the factor is that of their scales. */
void palette_make(struct palette *ret_palette, libdecode_dtype dtype, double factor);
/* Elements are every finite e4m3 number, subnormals, zeros of both signs and +-448, or of e5m2, to +-57344; or every code of e2m1. */
void palette_make_special(struct palette *ret_palette, libdecode_dtype dtype);
/* `bytes` of random elements of `dtype` at `to`. */
void palette_fill(const struct palette *palette, libdecode_dtype dtype, struct random *random, void *to, size_t bytes);

#endif
