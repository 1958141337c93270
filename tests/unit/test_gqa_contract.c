/* SPDX-License-Identifier: Apache-2.0 */
/* test_gqa_contract.c: which problems kernels of batch decode of each KV dtype, head_dim and kind of page fit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "gqa_scene.h"

static void every_kv_dtype_is_served_in_every_head_dim_and_kind_of_page(void **state) {
    (void)state;
    static const uint32_t head_dims[] = {64, 128, 256, 512}, page_sizes[] = {1, 16};
    static const uint32_t dtypes[] = {KERNEL_DTYPE_BF16, KERNEL_DTYPE_FP16, KERNEL_DTYPE_E4M3, KERNEL_DTYPE_NVFP4,
                                      KERNEL_DTYPE_E5M2};
    for (size_t dtype = 0; dtype < sizeof dtypes / sizeof dtypes[0]; dtype++) {
        for (size_t i = 0; i < 4 * 2; i++) {
            char reason[FAMILY_REASON_BYTES];
            struct libdecode_launch_contract contract = contract_for(dtypes[dtype], head_dims[i / 2], page_sizes[i % 2]);
            assert_true(contract_is_sane(&contract));
            assert_ptr_equal(contract_family(&contract, reason), &family_gqa_decode);
            assert_string_equal(reason, "");
        }
    }
}

static void a_head_dim_runs_on_the_next_wider_kernel_and_no_other(void **state) {
    (void)state;
    static const struct {
        int32_t head_dim;
        uint32_t kernel;
    } cases[] = {{16, 64},   {48, 64},   {64, 64},   {80, 128},  {96, 128},  {112, 128},
                 {128, 128}, {144, 256}, {192, 256}, {256, 256}, {272, 512}, {512, 512}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (uint32_t kernel = 64; kernel <= 512; kernel *= 2) {
            libdecode_problem problem = problem_for(LIBDECODE_DTYPE_E4M3, cases[i].head_dim, 16);
            struct libdecode_launch_contract contract = contract_for(KERNEL_DTYPE_E4M3, kernel, 16);
            assert_string_equal(misfit(&problem, &contract), kernel == cases[i].kernel ? "" : "head_dim");
        }
    }
}

static void boxes_take_powers_of_two_from_16_and_rows_take_every_page(void **state) {
    (void)state;
    struct libdecode_launch_contract boxes = contract_for(KERNEL_DTYPE_BF16, 128, 16);
    struct libdecode_launch_contract rows = contract_for(KERNEL_DTYPE_BF16, 128, 1);
    for (int32_t page_size = 1; page_size <= 1024; page_size++) {
        libdecode_problem problem = problem_for(LIBDECODE_DTYPE_BF16, 128, page_size);
        bool fits_boxes = page_size >= 16 && (page_size & (page_size - 1)) == 0;
        assert_string_equal(misfit(&problem, &boxes), fits_boxes ? "" : "page_size");
        assert_string_equal(misfit(&problem, &rows), "");
    }
}

static void what_has_too_many_boxes_does_not_fit(void **state) {
    (void)state;
    libdecode_problem problem = problem_for(LIBDECODE_DTYPE_E4M3, 128, 16);
    struct libdecode_launch_contract boxes = contract_for(KERNEL_DTYPE_E4M3, 128, 16);
    problem.page_table_request_stride = ((int64_t)1 << 31) / (16 * 8);
    assert_string_equal(misfit(&problem, &boxes), "size of the batch");
    problem.page_table_request_stride--;
    assert_string_equal(misfit(&problem, &boxes), "");
}

static void contracts_of_the_longest_pages_and_queries_are_served(void **state) {
    (void)state;
    const struct family *const families[] = {&family_gqa_decode, &family_mla_decode};
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        assert_int_equal(families[i]->reach.max_page_size, 1024); /* as README.md says */
        assert_int_equal(families[i]->reach.max_q_len, 1024);
    }
    char reason[FAMILY_REASON_BYTES] = "";
    struct libdecode_launch_contract contract = contract_for(KERNEL_DTYPE_BF16, 128, 16);
    contract.tile_tokens = contract.max_box_tokens = 256;
    assert_true(family_gqa_decode.serves(&contract, reason));
    contract.tile_tokens = contract.max_box_tokens = 512; /* more than a copy takes */
    assert_false(family_gqa_decode.serves(&contract, reason));
    assert_non_null(strstr(reason, "copies boxes of 512 tokens"));
}

/* A mask has 64 bits; without one there may be more query tokens. */
static void a_mask_is_for_64_query_tokens_at_most(void **state) {
    (void)state;
    struct libdecode_launch_contract contract = contract_for(KERNEL_DTYPE_BF16, 128, 16);
    contract.features |= CONTRACT_FEATURE_DRAFT_MASK;
    contract.max_q_len = 1024;
    libdecode_problem problem = problem_for(LIBDECODE_DTYPE_BF16, 128, 16);
    problem.q_len = 1024;
    assert_string_equal(misfit(&problem, &contract), "");
    problem.features = LIBDECODE_FEATURE_DRAFT_MASK;
    assert_string_equal(misfit(&problem, &contract), "draft_mask");
    problem.q_len = 65;
    assert_string_equal(misfit(&problem, &contract), "draft_mask");
    problem.q_len = 64;
    assert_string_equal(misfit(&problem, &contract), "");
}

static void a_contract_has_a_longest_page_but_of_contiguous_kv(void **state) {
    (void)state;
    struct libdecode_launch_contract contract = contract_for(KERNEL_DTYPE_BF16, 128, 16);
    contract.max_page_size = 64;
    contract.features |= CONTRACT_FEATURE_CONTIGUOUS_KV;
    libdecode_problem problem = problem_for(LIBDECODE_DTYPE_BF16, 128, 64);
    assert_string_equal(misfit(&problem, &contract), "");
    problem.page_size = 128;
    assert_string_equal(misfit(&problem, &contract), "page_size");
    problem.features = LIBDECODE_FEATURE_CONTIGUOUS_KV;
    problem.page_size = 0;
    problem.kv_capacity_tokens = 100001;
    assert_string_equal(misfit(&problem, &contract), "");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kv_dtype_is_served_in_every_head_dim_and_kind_of_page),
        cmocka_unit_test(a_head_dim_runs_on_the_next_wider_kernel_and_no_other),
        cmocka_unit_test(boxes_take_powers_of_two_from_16_and_rows_take_every_page),
        cmocka_unit_test(what_has_too_many_boxes_does_not_fit),
        cmocka_unit_test(contracts_of_the_longest_pages_and_queries_are_served),
        cmocka_unit_test(a_mask_is_for_64_query_tokens_at_most),
        cmocka_unit_test(a_contract_has_a_longest_page_but_of_contiguous_kv),
    };
    return cmocka_run_group_tests_name("gqa_contract", tests, NULL, NULL);
}
