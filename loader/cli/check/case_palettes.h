/* SPDX-License-Identifier: Apache-2.0 */
/* case_palettes.c: the shape of a kernel in, the random values that its test cases are made of out. Next: case_cache.c. */
#ifndef LIBDECODE_CLI_CASE_PALETTES_H
#define LIBDECODE_CLI_CASE_PALETTES_H

#include "random.h"

/* The variant-independent half of a kernel's identity. */
struct case_shape {
    libdecode_dtype query_dtype, kv_dtype;
    int32_t head_dim;
};

/* The random values that the cases of one shape are made of, by [outlier token][outlier channel]. */
struct case_palettes {
    struct palette query, k[2][2], v[2][2], squared[2][2];
};
/* NULL: out of memory. Free with free(). */
struct case_palettes *case_palettes_make(const struct case_shape *shape);

#endif
