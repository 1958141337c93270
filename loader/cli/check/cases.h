/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cases.c: a row of the table of test cases in, host tensors out, with NaN wherever a kernel must not look.
 * Before: case_table.c says which cases there are. Next: check.c and compare.c.
 */
#ifndef LIBDECODE_CLI_CASES_H
#define LIBDECODE_CLI_CASES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "case_formats.h"
#include "case_palettes.h"
#include "case_table.h"
#include "libdecode.h"

/* One buffer of a case, and the fields of libdecode_tensors that point into it. */
struct case_buffer {
    void *data;
    size_t bytes;
    size_t field;        /* offset in libdecode_tensors of the pointer to its begin */
    size_t second_field; /* likewise, to its begin + second_offset; 0: none */
    size_t second_offset;
};
#define CASE_MAX_BUFFERS 18

/* The KV cache of a case, or a copy of it. */
struct kv_pools {
    uint8_t *k_cache, *v_cache;
    uint8_t *k_sf, *v_sf; /* NVFP4 only */
};

struct host_case {
    const struct test_case *test;
    uint64_t seed;
    libdecode_problem problem;
    libdecode_tensors tensors; /* host pointers; out, out_sf, lse and workspace are the caller's */
    struct case_buffer buffers[CASE_MAX_BUFFERS];
    size_t num_buffers;
    int32_t longest;
    struct case_formats formats;
    struct test_case drawn; /* what a random case came to */
    int32_t drawn_lens[MAX_DRAWN_LENS];
    int32_t *lens; /* [request][table] as they count: 0 to what the page table holds */
};

/* `sm_count` places the split borders. False: out of memory. Free with host_case_free in any case. */
bool host_case_make(const struct test_case *test, const struct case_kind *kind, const struct case_palettes *palettes,
                    uint64_t seed, int sm_count, struct host_case *ret_case);
void host_case_free(struct host_case *host_case);

#endif
