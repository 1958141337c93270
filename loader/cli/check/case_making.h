/* SPDX-License-Identifier: Apache-2.0 */
/*
 * case_making.c: what the makers of a test case's tensors share: the state of the making, poisoned buffers, and who sees what.
 * Next: case_cache.c and cases.c.
 */
#ifndef LIBDECODE_CLI_CASE_MAKING_H
#define LIBDECODE_CLI_CASE_MAKING_H

#include <stdbool.h>
#include <stdint.h>

#include "cases.h"
#include "random.h"

#define POISON_BYTE 0xff /* 0xffff is NaN in bf16 and fp16, 0xff in e4m3 */
/* Huge tokens and split borders lie at multiples of this: the tiles of all variants are such multiples. */
#define TILE_TOKENS 64

/*
 * Scores of 2^27 in base 2 that differ by 16, the distance of two f32 there: 16 * (2^12 * 2^11 + step). Every product and sum is
 * exact in f32, in bf16 and in fp16, so that a kernel has no rounding of its own to blame.
 */
#define HUGE_QUERY 4096.0
#define HUGE_KEY 2048.0
#define HUGE_SCALE_LOG2 16.0f
#define HUGE_STEPS 8

struct making {
    struct host_case *result;
    const struct test_case *test;
    const struct case_palettes *palettes;
    struct random random;
    libdecode_problem *problem;
    int32_t tables_per_request; /* 1, or one for every KV head */
    int32_t *seq_lens;          /* [request][table] as they count, which is not what the device gets with CASE_ODD_LENGTHS */
    int32_t *page_table;
    int32_t table_width; /* of K's entries */
    int32_t *query_positions;
    size_t element_bytes; /* of the KV cache */
    uint8_t *k_cache, *v_cache, *v_squared;
};

static inline bool has(const struct making *making, uint32_t flag) { return (making->test->flags & flag) != 0; }

/* A poisoned buffer, and its place in the case's list; NULL: out of memory. */
void *new_buffer(struct making *making, size_t bytes, size_t field);
#define NEW_BUFFER(making, count, element_bytes, name)                                                                           \
    new_buffer(making, (size_t)(count) * (element_bytes), offsetof(libdecode_tensors, name))

/* Whether the query of `request` sees that token of that sequence. */
bool is_visible(const struct making *making, int32_t request, int32_t sequence, int32_t token);

#endif
