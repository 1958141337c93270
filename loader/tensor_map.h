/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensor_map.c: a paged K or V cache in, what cuTensorMapEncodeTiled must be told of it out: a row of a table for each dtype.
 * Pure; a family asks for its maps (families/), launch.c has the driver encode them.
 */
#ifndef LIBDECODE_TENSOR_MAP_H
#define LIBDECODE_TENSOR_MAP_H

#include <stdbool.h>

#include "problem.h"

#define TENSOR_MAP_RANK 5
#define TENSOR_MAP_MAX_BOX 256u                        /* elements of a box along one dimension */
#define TENSOR_MAP_MAX_STRIDE_BYTES ((int64_t)1 << 40) /* less than this */

/* One map: dimensions and box from the innermost out, strides without that of the innermost. */
struct tensor_map {
    const void *address;
    int data_type, swizzle; /* of cuda.h */
    uint64_t dims[TENSOR_MAP_RANK];
    uint64_t strides_bytes[TENSOR_MAP_RANK - 1];
    uint32_t box[TENSOR_MAP_RANK];
};

/* Whether the copy engine can bring rows of this dtype and length: whole swizzle rows of them. `dtype` is any number. */
bool tensor_map_serves(uint32_t dtype, uint32_t row_elements);

/* K or V of a paged cache, by its strides in elements. */
struct paged_cache {
    const void *address;
    libdecode_dtype dtype;
    int32_t row_elements, page_size, num_kv_heads;
    int64_t num_pages; /* 0: not known */
    int64_t page_stride, head_stride, token_stride;
};

/*
 * {elements of a swizzle row, tokens of a page, swizzle rows of a row, KV heads, pages}, the box one head's `box_tokens` of a
 * page. A page id outside the pool is outside the map: its rows are zeros. `cache` is one that tensor_map_serves.
 */
void tensor_map_of_pages(const struct paged_cache *cache, uint32_t box_tokens, struct tensor_map *ret_map);

#endif
