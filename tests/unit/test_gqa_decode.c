/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_gqa_decode.c: which problems kernels of each KV dtype, head_dim and kind of page fit, and what the parameter block and the
 * maps of those say that only some launches have: rows narrower than the kernel's, results with scales.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "bundle_fixture.h"
#include "contract.h"
#include "judgement.h"
#include "decode_fixture.h"
#include "select.h"

static struct libdecode_launch_contract contract_for(uint32_t kv_dtype, uint32_t head_dim, uint32_t min_page_size) {
    struct libdecode_launch_contract contract = fixture_contract();
    bool is_16_bit = kv_dtype == KERNEL_DTYPE_BF16 || kv_dtype == KERNEL_DTYPE_FP16;
    contract.threads = 352;
    contract.ctas_per_sm = 1;
    contract.kv_dtype = kv_dtype;
    contract.query_dtypes =
        is_16_bit ? 1u << kv_dtype : 1u << KERNEL_DTYPE_BF16 | 1u << KERNEL_DTYPE_FP16 | 1u << KERNEL_DTYPE_E4M3;
    contract.out_dtypes = 1u << KERNEL_DTYPE_BF16 | 1u << KERNEL_DTYPE_FP16 | 1u << KERNEL_DTYPE_E4M3 | 1u << KERNEL_DTYPE_NVFP4;
    contract.head_dim = head_dim;
    contract.tile_tokens = 16384 * 8 / (head_dim * (uint32_t)dtype_bits((libdecode_dtype)kv_dtype));
    contract.max_box_tokens = contract.tile_tokens < 256 ? contract.tile_tokens : 256;
    contract.min_page_size = min_page_size;
    contract.flags = min_page_size == 1 ? CONTRACT_FLAG_ROW_GATHER : 0;
    return contract;
}

static libdecode_problem problem_for(libdecode_dtype kv_dtype, int32_t head_dim, int32_t page_size) {
    libdecode_problem problem = llama3_8b();
    bool is_16_bit = kv_dtype == LIBDECODE_DTYPE_BF16 || kv_dtype == LIBDECODE_DTYPE_FP16;
    problem.query_dtype = is_16_bit ? kv_dtype : LIBDECODE_DTYPE_E4M3;
    problem.kv_dtype = kv_dtype;
    problem.out_dtype = LIBDECODE_DTYPE_BF16;
    problem.head_dim = head_dim;
    problem.page_size = page_size;
    return problem;
}

static struct problem checked(const libdecode_problem *problem) {
    struct problem result;
    if (problem_check(problem, &result) != LIBDECODE_OK)
        fail_msg("refused: %s", libdecode_error_message());
    return result;
}

/* "" if it fits. */
static const char *misfit(const libdecode_problem *given, const struct libdecode_launch_contract *contract) {
    const struct problem problem = checked(given);
    uint32_t failing = judge_axes(&family_gqa_decode, &problem, contract);
    return failing == 0 ? "" : family_gqa_decode.axes[__builtin_ctz(failing)]->name;
}

static void the_dtypes_that_need_no_scales_are_served_in_every_head_dim(void **state) {
    (void)state;
    static const uint32_t head_dims[] = {64, 128, 256, 512};
    for (uint32_t dtype = KERNEL_DTYPE_BF16; dtype <= KERNEL_DTYPE_NVFP4; dtype++) {
        for (size_t i = 0; i < 4; i++) {
            char reason[FAMILY_REASON_BYTES];
            struct libdecode_launch_contract contract = contract_for(dtype, head_dims[i], 16);
            assert_true(contract_is_sane(&contract));
            assert_int_equal(contract_family(&contract, reason) != NULL, dtype != KERNEL_DTYPE_NVFP4);
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

/* ------------------------------------------------------------------------------------------------------------- launch */

static struct kernel_arguments arguments;

static const struct gqa_decode_params *fill(const libdecode_problem *given, const struct libdecode_launch_contract *contract) {
    const struct problem problem = checked(given);
    struct bundle_kernel kernel = {.contract = *contract};
    struct kernel_record record = {.name = "filled", .kernel = &kernel, .family = &family_gqa_decode};
    struct selection selection = {.record = &record, .row_passes = 1, .num_workers = 8, .min_tiles_per_worker = 2};
    libdecode_tensors tensors = some_tensors();
    assert_string_equal(misfit(given, contract), "");
    tensors.out_sf = (void *)(uintptr_t)0x20300;
    tensors.out_sf_scale = 2.5f;
    tensors.out_sf_start_token = 77;
    memset(&arguments, 0, sizeof arguments);
    family_gqa_decode.fill(&problem, &selection, &tensors, &arguments);
    return (const struct gqa_decode_params *)(const void *)arguments.block;
}

static void the_block_says_what_query_and_result_are(void **state) {
    (void)state;
    libdecode_problem problem = problem_for(LIBDECODE_DTYPE_E4M3, 128, 64);
    problem.out_dtype = LIBDECODE_DTYPE_NVFP4;
    struct libdecode_launch_contract contract = contract_for(KERNEL_DTYPE_E4M3, 128, 16);
    const struct gqa_decode_params *params = fill(&problem, &contract);
    assert_int_equal(arguments.num_maps, 2);
    assert_int_equal(arguments.maps[0].offset, offsetof(struct gqa_decode_params, k_map));
    assert_int_equal(arguments.maps[1].offset, offsetof(struct gqa_decode_params, v_map));
    assert_int_equal(params->copies_per_box, 1);
    assert_int_equal((uintptr_t)params->output.scales, 0x20300);
    assert_true(params->output.scale_factor == 2.5f);
    assert_int_equal(params->output.first_scale_row, 77);
    assert_int_equal(params->output.scale_columns, 32 * 8);
    assert_int_equal(params->output.dtype, KERNEL_DTYPE_NVFP4);
    assert_int_equal(params->query.dtype, KERNEL_DTYPE_E4M3);
    assert_int_equal(params->query.head_dim, 128);
}

static void narrow_rows_are_told_and_copied_line_by_line(void **state) {
    (void)state;
    libdecode_problem problem = problem_for(LIBDECODE_DTYPE_BF16, 80, 16);
    struct libdecode_launch_contract contract = contract_for(KERNEL_DTYPE_BF16, 128, 16);
    const struct gqa_decode_params *params = fill(&problem, &contract);
    assert_int_equal(params->copies_per_box, 2);
    assert_int_equal(params->query.head_dim, 80);
    assert_int_equal(arguments.maps[1].map.dims[0], 80);
}

/* --------------------------------------------------------------------------------------------------------------- cost */

static int64_t predicted_on(const libdecode_device *device, const libdecode_problem *given,
                            const struct libdecode_launch_contract *contract) {
    const struct problem problem = checked(given);
    struct cost cost;
    assert_true(family_gqa_decode.cost(&problem, device, contract, &cost));
    return cost.predicted_ns;
}

static int64_t predicted(const libdecode_problem *given, const struct libdecode_launch_contract *contract) {
    libdecode_device device = preset("sm_90");
    return predicted_on(&device, given, contract);
}

static void boxes_are_preferred_to_rows_where_both_serve(void **state) {
    (void)state;
    static const struct { int32_t batch_size, max_seq_len; } shapes[] = {{1, 4096}, {16, 4096}, {64, 4096}, {128, 8192}};
    for (size_t i = 0; i < 4 * 4; i++) {
        uint32_t dtype = 1 + (uint32_t)i % 4;
        libdecode_problem problem = problem_for((libdecode_dtype)dtype, 128, 16);
        problem.batch_size = shapes[i / 4].batch_size;
        problem.max_seq_len = shapes[i / 4].max_seq_len;
        struct libdecode_launch_contract boxes = contract_for(dtype, 128, 16), rows = contract_for(dtype, 128, 1);
        assert_true(predicted(&problem, &boxes) < predicted(&problem, &rows));
    }
    libdecode_problem problem = problem_for(LIBDECODE_DTYPE_BF16, 128, 16);
    struct libdecode_launch_contract boxes = contract_for(KERNEL_DTYPE_BF16, 128, 16);
    struct libdecode_launch_contract rows = contract_for(KERNEL_DTYPE_BF16, 128, 1);
    problem.batch_size = 128;
    problem.max_seq_len = 8192;
    assert_in_range(predicted(&problem, &rows) * 1000 / predicted(&problem, &boxes), 1035, 1040);
}

/* Tokens a second, of which every halving of the bytes brings less. */
static void narrower_formats_are_faster_by_less_than_their_bytes(void **state) {
    (void)state;
    int64_t ns[5];
    for (uint32_t dtype = KERNEL_DTYPE_BF16; dtype <= KERNEL_DTYPE_NVFP4; dtype++) {
        libdecode_problem problem = problem_for((libdecode_dtype)dtype, 128, 16);
        struct libdecode_launch_contract contract = contract_for(dtype, 128, 16);
        problem.batch_size = 64;
        ns[dtype] = predicted(&problem, &contract);
    }
    assert_int_equal(ns[KERNEL_DTYPE_BF16], ns[KERNEL_DTYPE_FP16]);
    assert_in_range(ns[KERNEL_DTYPE_BF16] * 100 / ns[KERNEL_DTYPE_E4M3], 170, 199);
    assert_in_range(ns[KERNEL_DTYPE_E4M3] * 100 / ns[KERNEL_DTYPE_NVFP4], 120, 177);
}

/* Zeros cost no memory traffic, but all the kernel's arithmetic: few SMs, which that holds up, gain nothing. */
static void a_narrow_row_is_read_as_it_is_and_computed_like_a_wide_one(void **state) {
    (void)state;
    libdecode_device many = preset("sm_90"), few = many;
    libdecode_problem narrow = problem_for(LIBDECODE_DTYPE_BF16, 80, 16), wide = problem_for(LIBDECODE_DTYPE_BF16, 128, 16);
    struct libdecode_launch_contract contract = contract_for(KERNEL_DTYPE_BF16, 128, 16);
    narrow.batch_size = wide.batch_size = 128;
    few.sm_count = 8;
    assert_true(predicted_on(&many, &narrow, &contract) * 100 < predicted_on(&many, &wide, &contract) * 80);
    assert_true(predicted_on(&few, &narrow, &contract) * 100 > predicted_on(&few, &wide, &contract) * 98);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_dtypes_that_need_no_scales_are_served_in_every_head_dim),
        cmocka_unit_test(a_head_dim_runs_on_the_next_wider_kernel_and_no_other),
        cmocka_unit_test(boxes_take_powers_of_two_from_16_and_rows_take_every_page),
        cmocka_unit_test(what_has_too_many_boxes_does_not_fit),
        cmocka_unit_test(the_block_says_what_query_and_result_are),
        cmocka_unit_test(narrow_rows_are_told_and_copied_line_by_line),
        cmocka_unit_test(boxes_are_preferred_to_rows_where_both_serve),
        cmocka_unit_test(narrower_formats_are_faster_by_less_than_their_bytes),
        cmocka_unit_test(a_narrow_row_is_read_as_it_is_and_computed_like_a_wide_one),
    };
    return cmocka_run_group_tests_name("gqa_decode", tests, NULL, NULL);
}
