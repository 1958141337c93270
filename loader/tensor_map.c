/* SPDX-License-Identifier: Apache-2.0 */
/* tensor_map.c: a paged K or V cache in, what the driver must be told of it out. Before: families/. Next: launch.c. */
#include "tensor_map.h"

#include <stddef.h>

/* Of cuda.h. */
enum { TENSOR_MAP_FLOAT16 = 6, TENSOR_MAP_BFLOAT16 = 9, TENSOR_MAP_SWIZZLE_128B = 3 };

/* How the copy engine takes each dtype: as elements of which type and size, swizzled in rows of how many bytes. */
static const struct format {
    libdecode_dtype dtype;
    int data_type;
    uint32_t element_bytes;
    int swizzle;
    uint32_t swizzle_bytes;
} formats[] = {{LIBDECODE_DTYPE_BF16, TENSOR_MAP_BFLOAT16, 2, TENSOR_MAP_SWIZZLE_128B, 128},
               {LIBDECODE_DTYPE_FP16, TENSOR_MAP_FLOAT16, 2, TENSOR_MAP_SWIZZLE_128B, 128}};

static const struct format *format_of(uint32_t dtype) {
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        if ((uint32_t)formats[i].dtype == dtype)
            return &formats[i];
    return NULL;
}

bool tensor_map_serves(uint32_t dtype, uint32_t row_elements) {
    const struct format *format = format_of(dtype);
    return format && row_elements > 0 && row_elements % (format->swizzle_bytes / format->element_bytes) == 0;
}

void tensor_map_of_pages(const struct paged_cache *cache, uint32_t box_tokens, struct tensor_map *ret_map) {
    const struct format *format = format_of((uint32_t)cache->dtype);
    uint64_t element_bytes = format->element_bytes;
    uint32_t swizzle_elements = format->swizzle_bytes / format->element_bytes;
    uint32_t swizzle_rows = (uint32_t)cache->row_elements / swizzle_elements;
    *ret_map = (struct tensor_map){
        .address = cache->address,
        .data_type = format->data_type,
        .swizzle = format->swizzle,
        .dims = {swizzle_elements, (uint64_t)cache->page_size, swizzle_rows, (uint64_t)cache->num_kv_heads,
                 cache->num_pages > 0 ? (uint64_t)cache->num_pages : INT32_MAX},
        .strides_bytes = {(uint64_t)cache->token_stride * element_bytes, format->swizzle_bytes,
                          (uint64_t)cache->head_stride * element_bytes, (uint64_t)cache->page_stride * element_bytes},
        .box = {swizzle_elements, box_tokens, swizzle_rows, 1, 1},
    };
}
