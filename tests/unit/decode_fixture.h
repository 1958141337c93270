/* SPDX-License-Identifier: Apache-2.0 */
/*
 * decode_fixture.c: what the tests of selection and launching start from: a Llama-3 problem, tensors for it, and bundles that
 * hold every variant of kernels/families/gqa_decode.toml around no code (bundle_fixture.h).
 */
#ifndef LIBDECODE_DECODE_FIXTURE_H
#define LIBDECODE_DECODE_FIXTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernel_table.h"
#include "libdecode.h"

/* 16 requests of up to 4096 tokens, 32 query heads on 8 KV heads, head_dim 128, bf16, pages of 16. */
libdecode_problem llama3_8b(void);
/* The same of MLA, rows of 576. */
libdecode_problem some_mla(void);

/* Distinct aligned addresses for everything that every launch needs; nothing is behind them. */
libdecode_tensors some_tensors(void);

/* The grid: one bundle per target, in memory, and the table over all. */
#define GRID_TARGETS 3
struct grid {
    uint8_t *data[GRID_TARGETS];
    size_t bytes[GRID_TARGETS];
    struct bundle *bundles[GRID_TARGETS];
    struct kernel_table table;
};
/* Of batch decode. `targets`: bits 0 sm90, 1 sm100, 2 sm120. Ends the program when something fails. */
struct grid *grid_create(unsigned targets);
/* Only the variants that the glob matches, of MLA, too: for tests that open it hundreds of times. */
struct grid *grid_create_part(unsigned targets, const char *glob);
void grid_destroy(struct grid *grid);

/* libdecode_open_options with the grid's bundles and nothing else: no environment, no installed bundle. */
struct grid_options {
    libdecode_open_options options;
    libdecode_memory_bundle bundles[GRID_TARGETS];
};
void grid_options(const struct grid *grid, struct grid_options *ret_options);

/* A device that libdecode_device_preset knows. */
libdecode_device preset(const char *name);

#endif
