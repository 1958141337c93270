/* SPDX-License-Identifier: Apache-2.0 */
/* case_palettes.c: a dtype of the KV cache in, the random values that test cases are made of out. Next: case_cache.c. */
#ifndef LIBDECODE_CLI_CASE_PALETTES_H
#define LIBDECODE_CLI_CASE_PALETTES_H

#include "random.h"

/* Factors of outliers by [outlier token][outlier channel]. The channels of NVFP4 are blocks of 16, so there are more of them. */
struct case_factors {
    double k[2][2], v[2][2];
};
extern const struct case_factors case_factors, case_factors_nvfp4;

/* The random values that the cases of one KV dtype are made of, by [outlier token][outlier channel]. */
struct case_palettes {
    struct palette query[LIBDECODE_DTYPE_NVFP4]; /* by dtype */
    struct palette k[2][2], v[2][2], special;
};
/* NULL: out of memory. Free with free(). */
struct case_palettes *case_palettes_make(libdecode_dtype kv_dtype);

#endif
