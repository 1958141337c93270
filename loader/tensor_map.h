/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensor_map.c: a paged K or V cache in, what cuTensorMapEncodeTiled must be told of it out: a row of a table for each dtype.
 * Pure; a family asks for its maps (families/), launch.c has the driver encode them.
 */
#ifndef LIBDECODE_TENSOR_MAP_H
#define LIBDECODE_TENSOR_MAP_H

#include <stdbool.h>

#include "abi.h"
#include "problem.h"

#define TENSOR_MAP_MAX_RANK 5
#define TENSOR_MAP_MAX_BOX 256u                        /* elements of a box along one dimension */
#define TENSOR_MAP_MAX_STRIDE_BYTES ((int64_t)1 << 40) /* less than this */

/* One map: dimensions and box from the innermost out, strides without that of the innermost. */
struct tensor_map {
    const void *address;
    int data_type, swizzle; /* of cuda.h */
    uint32_t rank;
    uint64_t dims[TENSOR_MAP_MAX_RANK];
    uint64_t strides_bytes[TENSOR_MAP_MAX_RANK - 1];
    uint32_t box[TENSOR_MAP_MAX_RANK];
};

/* Whether the copy engine can bring rows of this dtype for a kernel of this head_dim. Both are any number. */
bool tensor_map_serves(uint32_t dtype, uint32_t kernel_head_dim);

/* K or V of a paged cache, by its strides in elements, and the boxes in which a kernel takes it. */
struct paged_cache {
    const void *address;
    libdecode_dtype dtype;
    int32_t head_dim, page_size, num_kv_heads;
    int64_t num_pages; /* 0: not known */
    int64_t page_stride, head_stride, token_stride;
    uint32_t kernel_head_dim, box_tokens;
    bool line_by_line; /* a box has one line, though all lines of a row are whole */
};

/*
 * As struct gqa_decode_params describes it (kernels/abi.h). A page id outside the pool is outside the map: its rows are zeros.
 * Returns the copies that a box takes. `cache` is one that tensor_map_serves.
 */
int32_t tensor_map_of_pages(const struct paged_cache *cache, struct tensor_map *ret_map);

#endif
