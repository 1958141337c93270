/* SPDX-License-Identifier: Apache-2.0 */
/* case_palettes.c: a shape in, stocks of random elements for its test cases out. Next: cases.c and case_cache.c. */
#include "case_palettes.h"

#include <stdlib.h>

/* Factors of outliers. With them scores stay below about 100 and values below 255, whose square fp16 still holds. */
#define K_CHANNEL_FACTOR 12.0
#define K_TOKEN_FACTOR 3.0
#define V_CHANNEL_FACTOR 10.0
#define V_TOKEN_FACTOR 5.0

struct case_palettes *case_palettes_make(const struct case_shape *shape) {
    struct case_palettes *palettes = malloc(sizeof *palettes);
    if (palettes == NULL)
        return NULL;
    palette_make(&palettes->query, shape->query_dtype, 1.0, false);
    for (int token = 0; token < 2; token++) {
        for (int channel = 0; channel < 2; channel++) {
            double k_factor = (token != 0 ? K_TOKEN_FACTOR : 1.0) * (channel != 0 ? K_CHANNEL_FACTOR : 1.0);
            double v_factor = (token != 0 ? V_TOKEN_FACTOR : 1.0) * (channel != 0 ? V_CHANNEL_FACTOR : 1.0);
            palette_make(&palettes->k[token][channel], shape->kv_dtype, k_factor, false);
            palette_make(&palettes->v[token][channel], shape->kv_dtype, v_factor, false);
            palette_make(&palettes->squared[token][channel], shape->kv_dtype, v_factor, true);
        }
    }
    return palettes;
}
