/* SPDX-License-Identifier: Apache-2.0 */
/* case_palettes.c: a dtype of the KV cache in, stocks of random elements for its test cases out. Next: cases.c, case_cache.c. */
#include "case_palettes.h"

#include <stdlib.h>

/* Scores stay below about 100 with them, and values below the 448 that e4m3 holds. */
const struct case_factors case_factors = {.k = {{1, 12}, {3, 36}}, .v = {{1, 10}, {5, 50}}};
const struct case_factors case_factors_nvfp4 = {.k = {{1, 4}, {3, 12}}, .v = {{1, 10}, {5, 50}}};

struct case_palettes *case_palettes_make(libdecode_dtype kv_dtype) {
    struct case_palettes *palettes = calloc(1, sizeof *palettes);
    if (palettes == NULL)
        return NULL;
    for (libdecode_dtype dtype = LIBDECODE_DTYPE_BF16; dtype <= LIBDECODE_DTYPE_E4M3; dtype++)
        palette_make(&palettes->query[dtype], dtype, 1.0);
    for (int token = 0; token < 2; token++) {
        for (int channel = 0; channel < 2; channel++) {
            palette_make(&palettes->k[token][channel], kv_dtype, case_factors.k[token][channel]);
            palette_make(&palettes->v[token][channel], kv_dtype, case_factors.v[token][channel]);
        }
    }
    palette_make_special(&palettes->special, kv_dtype);
    return palettes;
}
