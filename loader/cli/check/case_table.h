/* SPDX-License-Identifier: Apache-2.0 */
/* case_table.c: which test cases there are, as rows of a table; random ones are drawn from a seed. Next: cases.c, check.c. */
#ifndef LIBDECODE_CLI_CASE_TABLE_H
#define LIBDECODE_CLI_CASE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CASE_LSE = 1u << 0,
    CASE_SINKS = 1u << 1,
    CASE_WINDOW = 1u << 2,
    CASE_NHD = 1u << 3,
    CASE_COMBINED_POOL = 1u << 4,   /* a page of K and the page of V side by side */
    CASE_PADDED_STRIDES = 1u << 5,  /* K as HND, V as NHD, gaps in every axis, query and out strided */
    CASE_PER_HEAD = 1u << 6,        /* a length and a page table for every KV head */
    CASE_V_PAGE_TABLE = 1u << 7,    /* V has page ids of its own */
    CASE_QUERY_POSITIONS = 1u << 8, /* before, at and after the last token, one before every token */
    CASE_POSITION_RULE = 1u << 9,   /* position_stride 3, position_offset 2 */
    CASE_NEGATIVE_IDS = 1u << 10,   /* every third page: zero rows */
    CASE_FOREIGN_IDS = 1u << 11,    /* every third page lies outside the pool: zero rows */
    CASE_OUTLIERS = 1u << 12,       /* a few huge channels, and huge keys at the borders of tiles */
    CASE_DEVICE_SCALES = 1u << 13,
    CASE_DEVICE_SCALE_LOG2 = 1u << 14,
    CASE_PAGE_EDGES = 1u << 15,   /* lengths 0, 1, page - 1, page, page + 1, ... */
    CASE_SPLIT_EDGES = 1u << 16,  /* one request of two tiles for every SM, and lens[0] tokens more */
    CASE_LOW_HINT = 1u << 17,     /* max_seq_len says far less than there is */
    CASE_UNKNOWN_POOL = 1u << 18, /* num_pages is 0 */
    CASE_REPEAT = 1u << 19,       /* also repeated under load for equal bits */
    CASE_GRAPH = 1u << 20,        /* launched from a CUDA graph */
    CASE_PROGRAMMATIC = 1u << 21, /* launched with programmatic dependent launch, also back to back */
    CASE_QUICK = 1u << 22,        /* part of --quick */
    CASE_RANDOM = 1u << 23,       /* everything drawn from the seed */
    CASE_NEGATIVE_SCALE = 1u << 24,
    CASE_ZERO_SCALE = 1u << 25,     /* with a device scale: a host scale of 0 means 1 */
    CASE_INFINITE_SINKS = 1u << 26, /* of every three heads one +infinity, one -infinity */
    CASE_ODD_LENGTHS = 1u << 27,    /* BEYOND_TABLE and BELOW_ZERO stand among the lengths */
    CASE_HUGE_SCORES = 1u << 28,    /* with CASE_DEVICE_SCALE_LOG2: 2^27 and some steps of 16 */
    CASE_OTHER_OUT = 1u << 29       /* out of the other 16-bit dtype */
};

/* Lengths of a case with CASE_ODD_LENGTHS that stand for several: they count as what the page table holds, and as 0. */
#define BEYOND_TABLE INT32_MAX
#define BELOW_ZERO (-1)

struct test_case {
    const char *name;
    int32_t num_kv_heads, group_size, page_size, window_left;
    uint32_t flags;
    const int32_t *lens;
    int32_t num_lens;
};
extern const struct test_case test_cases[];
extern const size_t num_test_cases;

/* Fills the fields that a random case draws from seed and name; `lens` has room for MAX_DRAWN_LENS. */
#define MAX_DRAWN_LENS 100
void draw_test_case(const struct test_case *test, uint64_t seed, struct test_case *ret_drawn, int32_t lens[MAX_DRAWN_LENS]);

/* There is a random case for every number: "random_17". `name` must outlive the case. False: another name. */
#define RANDOM_CASE_PREFIX "random_"
bool random_case_named(const char *name, struct test_case *ret_test);

#endif
