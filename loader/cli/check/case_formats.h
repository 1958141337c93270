/* SPDX-License-Identifier: Apache-2.0 */
/*
 * case_formats.c: a kind of kernel and a test case in, the formats that the case leaves open out: the dtypes of query and out, the
 * head_dim, the layout of V's scales. Before: case_table.c. Next: cases.c.
 */
#ifndef LIBDECODE_CLI_CASE_FORMATS_H
#define LIBDECODE_CLI_CASE_FORMATS_H

#include "case_table.h"
#include "libdecode.h"

/* Kernels that can do the same cases. */
struct case_kind {
    libdecode_op op;
    libdecode_dtype kv_dtype;
    int32_t head_dim; /* the widest that they serve */
    bool is_sparse;   /* by token ids */
    libdecode_kv_row_format kv_row_format;
};

struct case_formats {
    libdecode_op op;
    libdecode_dtype query_dtype, kv_dtype, out_dtype;
    int32_t head_dim;
    libdecode_sf_layout v_sf_layout;
    bool is_sparse;
    libdecode_kv_row_format kv_row_format;
};

/* Of `test`, which is no longer random. The same for every kernel of a kind, so that they share tensors and expectation. */
struct case_formats draw_case_formats(const struct case_kind *kind, const struct test_case *test, uint64_t seed);

#endif
