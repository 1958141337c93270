/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_tensor_map.c: what the driver is told of a cache, for every dtype and head_dim in both layouts. What is expected is written out, not computed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tensor_map.h"

enum {
    BF16 = LIBDECODE_DTYPE_BF16,
    FP16 = LIBDECODE_DTYPE_FP16,
    E4M3 = LIBDECODE_DTYPE_E4M3,
    NVFP4 = LIBDECODE_DTYPE_NVFP4,
    E5M2 = LIBDECODE_DTYPE_E5M2
};
enum { IS_UINT8 = 0, IS_FLOAT16 = 6, IS_BFLOAT16 = 9 }; /* of cuda.h */
enum { SWIZZLE_32 = 1, SWIZZLE_64 = 2, SWIZZLE_128 = 3 };
enum { PAGE_SIZE = 32, HEADS = 4, PAGES = 9, BOX = 16 };

static const struct {
    int dtype, head_dim, kernel_head_dim, row_bytes, data_type, swizzle, line_bytes;
    uint32_t line_elements, row_lines; /* of the tensor */
    uint32_t box_elements, box_lines;
    int copies;
} rows[] = {
    {BF16, 16, 64, 32, IS_BFLOAT16, SWIZZLE_128, 128, 16, 1, 64, 1, 1},
    {BF16, 64, 64, 128, IS_BFLOAT16, SWIZZLE_128, 128, 64, 1, 64, 1, 1},
    {BF16, 80, 128, 160, IS_BFLOAT16, SWIZZLE_128, 128, 80, 1, 64, 1, 2},
    {BF16, 96, 128, 192, IS_BFLOAT16, SWIZZLE_128, 128, 96, 1, 64, 1, 2},
    {BF16, 112, 128, 224, IS_BFLOAT16, SWIZZLE_128, 128, 112, 1, 64, 1, 2},
    {BF16, 128, 128, 256, IS_BFLOAT16, SWIZZLE_128, 128, 64, 2, 64, 2, 1},
    {BF16, 192, 256, 384, IS_BFLOAT16, SWIZZLE_128, 128, 64, 3, 64, 4, 1}, /* the fourth line of a box leaves the tensor */
    {BF16, 256, 256, 512, IS_BFLOAT16, SWIZZLE_128, 128, 64, 4, 64, 4, 1},
    {BF16, 336, 512, 672, IS_BFLOAT16, SWIZZLE_128, 128, 336, 1, 64, 1, 8},
    {BF16, 512, 512, 1024, IS_BFLOAT16, SWIZZLE_128, 128, 64, 8, 64, 8, 1},
    {FP16, 64, 64, 128, IS_FLOAT16, SWIZZLE_128, 128, 64, 1, 64, 1, 1},
    {FP16, 80, 128, 160, IS_FLOAT16, SWIZZLE_128, 128, 80, 1, 64, 1, 2},
    {FP16, 96, 128, 192, IS_FLOAT16, SWIZZLE_128, 128, 96, 1, 64, 1, 2},
    {FP16, 112, 128, 224, IS_FLOAT16, SWIZZLE_128, 128, 112, 1, 64, 1, 2},
    {FP16, 128, 128, 256, IS_FLOAT16, SWIZZLE_128, 128, 64, 2, 64, 2, 1},
    {FP16, 192, 256, 384, IS_FLOAT16, SWIZZLE_128, 128, 64, 3, 64, 4, 1},
    {FP16, 256, 256, 512, IS_FLOAT16, SWIZZLE_128, 128, 64, 4, 64, 4, 1},
    {FP16, 512, 512, 1024, IS_FLOAT16, SWIZZLE_128, 128, 64, 8, 64, 8, 1},
    {E4M3, 64, 64, 64, IS_UINT8, SWIZZLE_64, 64, 64, 1, 64, 1, 1},
    {E4M3, 80, 128, 80, IS_UINT8, SWIZZLE_128, 128, 80, 1, 128, 1, 1},
    {E4M3, 96, 128, 96, IS_UINT8, SWIZZLE_128, 128, 96, 1, 128, 1, 1},
    {E4M3, 112, 128, 112, IS_UINT8, SWIZZLE_128, 128, 112, 1, 128, 1, 1},
    {E4M3, 128, 128, 128, IS_UINT8, SWIZZLE_128, 128, 128, 1, 128, 1, 1},
    {E4M3, 192, 256, 192, IS_UINT8, SWIZZLE_128, 128, 192, 1, 128, 1, 2},
    {E4M3, 256, 256, 256, IS_UINT8, SWIZZLE_128, 128, 128, 2, 128, 2, 1},
    {E4M3, 512, 512, 512, IS_UINT8, SWIZZLE_128, 128, 128, 4, 128, 4, 1},
    {E5M2, 64, 64, 64, IS_UINT8, SWIZZLE_64, 64, 64, 1, 64, 1, 1},
    {E5M2, 128, 128, 128, IS_UINT8, SWIZZLE_128, 128, 128, 1, 128, 1, 1},
    {E5M2, 192, 256, 192, IS_UINT8, SWIZZLE_128, 128, 192, 1, 128, 1, 2},
    {E5M2, 256, 256, 256, IS_UINT8, SWIZZLE_128, 128, 128, 2, 128, 2, 1},
    {NVFP4, 32, 64, 16, IS_UINT8, SWIZZLE_32, 32, 16, 1, 32, 1, 1},
    {NVFP4, 64, 64, 32, IS_UINT8, SWIZZLE_32, 32, 32, 1, 32, 1, 1},
    {NVFP4, 96, 128, 48, IS_UINT8, SWIZZLE_64, 64, 48, 1, 64, 1, 1},
    {NVFP4, 128, 128, 64, IS_UINT8, SWIZZLE_64, 64, 64, 1, 64, 1, 1},
    {NVFP4, 192, 256, 96, IS_UINT8, SWIZZLE_128, 128, 96, 1, 128, 1, 1},
    {NVFP4, 256, 256, 128, IS_UINT8, SWIZZLE_128, 128, 128, 1, 128, 1, 1},
};

static void rows_of_every_dtype_and_head_dim_come_line_by_line(void **state) {
    (void)state;
    static const char memory[16];
    for (size_t i = 0; i < 2 * sizeof rows / sizeof rows[0]; i++) {
        bool nhd = i % 2 != 0;
        int64_t row = rows[i / 2].head_dim;
        uint64_t bytes = (uint64_t)rows[i / 2].row_bytes;
        struct paged_cache cache = {.address = memory,
                                    .dtype = (libdecode_dtype)rows[i / 2].dtype,
                                    .head_dim = (int32_t)row,
                                    .page_size = PAGE_SIZE,
                                    .num_kv_heads = HEADS,
                                    .num_pages = PAGES,
                                    .page_stride = 128 * row,
                                    .head_stride = nhd ? row : 32 * row,
                                    .token_stride = nhd ? 4 * row : row,
                                    .kernel_head_dim = (uint32_t)rows[i / 2].kernel_head_dim,
                                    .box_tokens = BOX};
        const uint64_t dims[5] = {rows[i / 2].line_elements, 32, rows[i / 2].row_lines, 4, 9};
        const uint64_t strides[4] = {nhd ? 4 * bytes : bytes, (uint64_t)rows[i / 2].line_bytes, nhd ? bytes : 32 * bytes,
                                     128 * bytes};
        const uint32_t box[5] = {rows[i / 2].box_elements, 16, rows[i / 2].box_lines, 1, 1};
        struct tensor_map map;
        assert_true(tensor_map_serves((uint32_t)rows[i / 2].dtype, (uint32_t)rows[i / 2].kernel_head_dim));
        assert_int_equal(tensor_map_of_pages(&cache, &map), rows[i / 2].copies);
        assert_ptr_equal(map.address, memory);
        assert_int_equal(map.rank, 5);
        assert_int_equal(map.data_type, rows[i / 2].data_type);
        assert_int_equal(map.swizzle, rows[i / 2].swizzle);
        assert_memory_equal(map.dims, dims, sizeof dims);
        assert_memory_equal(map.strides_bytes, strides, sizeof strides);
        assert_memory_equal(map.box, box, sizeof box);
    }
}

static void a_pool_of_unknown_size_has_as_many_pages_as_ids(void **state) {
    (void)state;
    struct paged_cache cache = {.dtype = LIBDECODE_DTYPE_E4M3,
                                .head_dim = 128,
                                .page_size = 1,
                                .num_kv_heads = 1,
                                .page_stride = 128,
                                .head_stride = 128,
                                .token_stride = 128,
                                .kernel_head_dim = 128,
                                .box_tokens = 1};
    struct tensor_map map;
    (void)tensor_map_of_pages(&cache, &map);
    assert_int_equal(map.dims[4], INT32_MAX);
    assert_int_equal(map.box[1], 1);
}

static void what_no_copy_brings_is_not_served(void **state) {
    (void)state;
    assert_false(tensor_map_serves(0, 128));
    assert_false(tensor_map_serves(5, 128));
    assert_false(tensor_map_serves(UINT32_MAX, 128));
    assert_false(tensor_map_serves(LIBDECODE_DTYPE_BF16, 0));
    assert_false(tensor_map_serves(LIBDECODE_DTYPE_BF16, 72));  /* 144 bytes: no line divides them */
    assert_false(tensor_map_serves(LIBDECODE_DTYPE_NVFP4, 32)); /* lines of 16 bytes: no swizzle is as narrow */
    assert_false(tensor_map_serves(LIBDECODE_DTYPE_E4M3, UINT32_MAX));
}

static void rows_of_every_kernel_are_served_and_no_wider_ones(void **state) {
    (void)state;
    static const uint32_t head_dims[] = {64, 128, 256, 320, 512, 576};
    for (size_t i = 0; i < sizeof head_dims / sizeof head_dims[0]; i++) {
        assert_true(tensor_map_serves(BF16, head_dims[i]));
        assert_true(tensor_map_serves(E4M3, head_dims[i]));
    }
    assert_false(tensor_map_serves(BF16, 640));
    assert_false(tensor_map_serves(BF16, 1u << 31));
    assert_false(tensor_map_serves(LIBDECODE_DTYPE_FP32, 128));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_every_dtype_and_head_dim_come_line_by_line),
        cmocka_unit_test(a_pool_of_unknown_size_has_as_many_pages_as_ids),
        cmocka_unit_test(what_no_copy_brings_is_not_served),
        cmocka_unit_test(rows_of_every_kernel_are_served_and_no_wider_ones),
    };
    return cmocka_run_group_tests_name("tensor_map", tests, NULL, NULL);
}
