/* SPDX-License-Identifier: Apache-2.0 */
/* tensor_map.c: a paged K or V cache in, what the driver must be told of it out. Before: families/. Next: launch.c. */
#include "tensor_map.h"

#include <stddef.h>

#include "dtype.h"

/* Of cuda.h. */
enum {
    TENSOR_MAP_UINT8 = 0,
    TENSOR_MAP_FLOAT16 = 6,
    TENSOR_MAP_BFLOAT16 = 9,
    TENSOR_MAP_SWIZZLE_32B = 1,
    TENSOR_MAP_SWIZZLE_64B = 2,
    TENSOR_MAP_SWIZZLE_128B = 3
};

static uint64_t pages_of(int64_t num_pages) { return num_pages > 0 ? (uint64_t)num_pages : INT32_MAX; }

/* --------------------------------------------------------------------------------------------------------------- rows */

#define LINE_BYTES 128u

/* How the copy engine takes each dtype: as elements of which type and size. */
static const struct format {
    libdecode_dtype dtype;
    int data_type;
    uint32_t element_bytes;
} formats[] = {{LIBDECODE_DTYPE_BF16, TENSOR_MAP_BFLOAT16, 2},
               {LIBDECODE_DTYPE_FP16, TENSOR_MAP_FLOAT16, 2},
               {LIBDECODE_DTYPE_E4M3, TENSOR_MAP_UINT8, 1},
               {LIBDECODE_DTYPE_E5M2, TENSOR_MAP_UINT8, 1},
               {LIBDECODE_DTYPE_NVFP4, TENSOR_MAP_UINT8, 1}};

static const struct format *format_of(uint32_t dtype) {
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        if ((uint32_t)formats[i].dtype == dtype)
            return &formats[i];
    return NULL;
}

static uint32_t row_bytes(libdecode_dtype dtype, uint32_t head_dim) { return head_dim * (uint32_t)dtype_bits(dtype) / 8; }

/* The widest line that divides a kernel's rows: as wide as a swizzle, which has 128, 64 or 32 bytes. 0: there is none. */
static uint32_t line_bytes_of(uint32_t row_bytes) {
    for (uint32_t bytes = LINE_BYTES; bytes >= 32; bytes /= 2)
        if (row_bytes > 0 && row_bytes % bytes == 0)
            return bytes;
    return 0;
}

bool tensor_map_serves(uint32_t dtype, uint32_t kernel_head_dim) {
    const struct format *format = format_of(dtype);
    if (!format || kernel_head_dim > PROBLEM_MAX_HEAD_DIM)
        return false;
    return line_bytes_of(row_bytes(format->dtype, kernel_head_dim)) > 0;
}

static int swizzle_of(uint32_t line_bytes) {
    if (line_bytes == 32)
        return TENSOR_MAP_SWIZZLE_32B;
    return line_bytes == 64 ? TENSOR_MAP_SWIZZLE_64B : TENSOR_MAP_SWIZZLE_128B;
}

int32_t tensor_map_of_pages(const struct paged_cache *cache, struct tensor_map *ret_map) {
    const struct format *format = format_of((uint32_t)cache->dtype);
    uint32_t bytes = row_bytes(cache->dtype, (uint32_t)cache->head_dim);
    uint32_t kernel_bytes = row_bytes(cache->dtype, cache->kernel_head_dim);
    uint32_t line_bytes = line_bytes_of(kernel_bytes), kernel_lines = kernel_bytes / line_bytes;
    bool whole_lines = bytes % line_bytes == 0, whole_boxes = whole_lines && !cache->line_by_line;
    uint64_t stride_bits = (uint64_t)dtype_bits(cache->dtype);
    *ret_map = (struct tensor_map){
        .address = cache->address,
        .data_type = format->data_type,
        .swizzle = swizzle_of(line_bytes),
        .rank = 5,
        .dims = {(whole_lines ? line_bytes : bytes) / format->element_bytes, (uint64_t)cache->page_size,
                 whole_lines ? bytes / line_bytes : 1, (uint64_t)cache->num_kv_heads, pages_of(cache->num_pages)},
        /* Strides in elements are multiples of 16 bytes, so of 8 elements. */
        .strides_bytes = {(uint64_t)cache->token_stride / 8 * stride_bits, line_bytes,
                          (uint64_t)cache->head_stride / 8 * stride_bits, (uint64_t)cache->page_stride / 8 * stride_bits},
        .box = {line_bytes / format->element_bytes, cache->box_tokens, whole_boxes ? kernel_lines : 1, 1, 1},
    };
    return whole_boxes ? 1 : (int32_t)kernel_lines;
}
