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

#define POISON_BYTE 0xff       /* 0xffff is NaN in bf16 and fp16, 0xff in e4m3 and e5m2 */
#define POISON_OTHER_BYTE 0x7f /* the other NaN of e4m3, one of e5m2; 0x7fff is one of bf16 and fp16, but 0xff7f is none */
#define POISON_INFINITY 0x7c   /* of e5m2 */
/* Huge tokens and split borders lie at multiples of this: the tiles of all variants are such multiples. */
#define TILE_TOKENS 64

/*
 * Scores of 2^27 in base 2 that differ by 16, the distance of two f32 there: 2^11 * (2^8 * 2^8 + 2^-7 * step), by two channels in
 * different blocks of 16. Every product and sum is exact in f32 and every operand in every dtype, so that a kernel has no
 * rounding of its own to blame.
 */
#define HUGE_QUERY 256.0
#define HUGE_QUERY_STEP 0x1p-7
#define HUGE_KEY 256.0
#define HUGE_STEP_CHANNEL 16
#define HUGE_SCALE_LOG2 2048.0f
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
    int32_t *cum_seq_lens_q; /* NULL without CASE_RAGGED_Q */
    uint16_t *draft_mask;    /* NULL without CASE_DRAFT_MASK */
    bool **named;            /* [request][token] by a token id that counts; NULL where the case is not sparse */
    const struct case_formats *formats;
    struct kv_pools pools;
};

/* K and V are one tensor. */
static inline bool is_mla(const struct making *making) { return making->formats->op == LIBDECODE_OP_MLA_DECODE; }

static inline bool is_sparse(const struct making *making) { return making->formats->is_sparse; }

static inline bool has(const struct making *making, uint64_t flag) { return (making->test->flags & flag) != 0; }

/* A poisoned buffer, and its place in the case's list; NULL: out of memory. */
void *new_buffer(struct making *making, size_t bytes, size_t field);
#define NEW_BUFFER(making, count, element_bytes, name)                                                                           \
    new_buffer(making, (size_t)(count) * (element_bytes), offsetof(libdecode_tensors, name))

/* Makes every other byte of FP8 poison the other NaN of e4m3, or an infinity of e5m2: times a weight of 0 that is NaN, too. */
void poison_fp8(libdecode_dtype dtype, void *data, size_t bytes);

/* The query tokens of a request, and their first row of query, out and draft_mask. */
struct query_rows {
    int64_t first;
    int32_t count;
};
struct query_rows query_rows_of(const struct making *making, int32_t request);

/* Of the draft mask, that many query tokens take. */
int64_t draft_mask_words(const struct making *making, int64_t query_rows);

/* The 16 bits that say whether a query token sees draft token `draft` and its neighbours. */
uint16_t *draft_mask_word(const struct making *making, int64_t query_row, int32_t draft);

/* Whether any query token of `request` sees that token of that sequence. */
bool is_visible(const struct making *making, int32_t request, int32_t sequence, int32_t token);

#endif
