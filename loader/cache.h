/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cache.c: where a row of K or V lies in host memory, and its elements in float64, exactly. Beside: element.c knows the elements.
 * Used by reference.c.
 */
#ifndef LIBDECODE_CACHE_H
#define LIBDECODE_CACHE_H

#include "problem.h"

/* K or V. Strides count elements, those of the scales bytes. */
struct cache {
    const uint8_t *rows;
    const uint8_t *scales; /* NVFP4 rows whose scales lie elsewhere */
    int64_t page_stride, head_stride, token_stride;
    int64_t sf_page_stride, sf_head_stride, sf_token_stride;
    libdecode_dtype dtype;
    libdecode_sf_layout sf_layout;
    libdecode_kv_row_format row_format;
    int64_t page_table_offset; /* its page ids, from those of K */
    const int64_t *offsets;    /* by request, elements from `rows` on; or NULL */
    size_t dim;                /* elements of a row */
};

/* Of a checked problem and its tensors. */
struct cache cache_of_k(const struct problem *problem, const libdecode_tensors *tensors);
struct cache cache_of_v(const struct problem *problem, const libdecode_tensors *tensors);

/* `shift`: elements that the row lies farther on than its page says. `ret_row` has room for `dim` elements. */
void cache_decode_row(const struct cache *cache, int64_t page, int64_t kv_head, int64_t page_token, int64_t shift,
                      double *ret_row);

#endif
