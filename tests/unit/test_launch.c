/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_launch.c: what reaches the driver: the parameter block field by field, the two tensor maps, grid, cluster and attributes,
 * read back from the records of the fake libcuda.so.1.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "decode_scene.h"
#include "launch.h"

/* Launches once and gives the record and the parameter block. */
static const struct fake_cuda_call *launch(const libdecode_problem *problem, const libdecode_tensors *tensors,
                                           libdecode_stream stream, struct gqa_decode_params *ret_params) {
    libdecode_plan *plan;
    fake->forget_calls();
    expect_ok(libdecode_plan_create(context, problem, NULL, &plan));
    expect_ok(libdecode_plan_launch(plan, tensors, stream));
    libdecode_plan_destroy(plan);
    const struct fake_cuda_call *call = fake->last("cuLaunchKernelEx");
    assert_non_null(call);
    assert_int_equal(fake->count("cuLaunchKernelEx"), 1);
    memcpy(ret_params, call->parameters, sizeof *ret_params);
    return call;
}

static const float *a_float(uintptr_t address) { return (const float *)address; }

/* Right for every dividend if it is for those around multiples: the kernel corrects an estimate that is one too small. */
static void assert_divisor(struct libdecode_divisor divisor, uint32_t value) {
    assert_int_equal(divisor.value, value);
    static const uint32_t dividends[] = {0, 1, 2, 3, 76, 1000003, UINT32_MAX / 3, UINT32_MAX - 1, UINT32_MAX};
    for (size_t i = 0; i < sizeof dividends / sizeof dividends[0]; i++) {
        uint32_t estimate = (uint32_t)((uint64_t)dividends[i] * divisor.reciprocal >> 32), quotient = dividends[i] / value;
        assert_true(estimate == quotient || estimate + 1 == quotient);
    }
}

static void every_field_of_the_parameter_block_comes_from_its_source(void **state) {
    (void)state;
    libdecode_problem problem = llama3_8b();
    problem.num_qo_heads = 40;
    problem.out_dtype = LIBDECODE_DTYPE_FP16;
    problem.features = LIBDECODE_FEATURE_WINDOW | LIBDECODE_FEATURE_SINKS | LIBDECODE_FEATURE_LSE |
                       LIBDECODE_FEATURE_V_PAGE_TABLE | LIBDECODE_FEATURE_QUERY_POSITIONS | LIBDECODE_FEATURE_RAGGED_Q |
                       LIBDECODE_FEATURE_DRAFT_MASK | LIBDECODE_FEATURE_SOFT_CAP | LIBDECODE_FEATURE_ALIBI |
                       LIBDECODE_FEATURE_SKIP_SOFTMAX | LIBDECODE_FEATURE_ROPE | LIBDECODE_FEATURE_LSE_NATURAL |
                       LIBDECODE_FEATURE_LSE_WITHOUT_SINK | LIBDECODE_FEATURE_LSE_EMPTY_INFINITY |
                       LIBDECODE_FEATURE_LSE_ALIBI_FROM_ZERO;
    problem.rope_scale = 8.0f;
    problem.rope_theta = 65536.0f;
    problem.q_len = 9;
    problem.logits_soft_cap = 30.0f;
    problem.skip_softmax_threshold_scale_factor = 0.25f;
    problem.batch_size = 5;
    problem.page_size = 128;
    problem.window_left = 77;
    problem.position_stride = 3;
    problem.position_offset = 2;
    problem.query_token_stride = 8000;
    problem.query_head_stride = 136;
    problem.out_token_stride = 16000;
    problem.out_head_stride = 144;
    problem.lse_token_stride = 91;
    problem.lse_head_stride = 2;
    problem.page_table_request_stride = 1001;
    problem.page_table_head_stride = 102;
    problem.page_table_v_offset = 51;
    problem.seq_lens_request_stride = 9;
    problem.seq_lens_head_stride = 1;
    libdecode_tensors tensors = some_tensors();
    tensors.lse = (float *)(uintptr_t)0x10100;
    tensors.sinks = a_float(0x10200);
    tensors.query_positions = (const int32_t *)(uintptr_t)0x10300;
    tensors.cum_seq_lens_q = (const int32_t *)(uintptr_t)0x10700;
    tensors.draft_mask = (const uint16_t *)(uintptr_t)0x10800;
    tensors.alibi_slopes = a_float(0x10900);
    tensors.bmm1_scale = 0.125f;
    tensors.bmm2_scale = 3.0f;
    tensors.bmm1_scale_device = a_float(0x10400);
    tensors.bmm1_scale_log2_device = a_float(0x10500);
    tensors.bmm2_scale_device = a_float(0x10600);
    struct gqa_decode_params params;
    const struct fake_cuda_call *call = launch(&problem, &tensors, (libdecode_stream)(uintptr_t)0x77, &params);

    assert_ptr_equal(call->stream, (void *)(uintptr_t)0x77);
    assert_ptr_equal(params.query.rows, tensors.query);
    assert_ptr_equal(params.output.rows, tensors.out);
    assert_ptr_equal(params.output.lse, tensors.lse);
    assert_ptr_equal(params.output.sinks, tensors.sinks);
    assert_ptr_equal(params.schedule.seq_lens, tensors.seq_lens);
    assert_ptr_equal(params.schedule.page_table, tensors.page_table);
    assert_ptr_equal(params.schedule.query_positions, tensors.query_positions);
    assert_ptr_equal(params.schedule.cum_seq_lens_q, tensors.cum_seq_lens_q);
    assert_ptr_equal(params.schedule.draft_mask, tensors.draft_mask);
    assert_int_equal(params.schedule.rare, SCHEDULE_EXACT_RANGES);
    assert_ptr_equal(params.query.alibi_slopes, tensors.alibi_slopes);
    assert_true(params.query.soft_cap == 30.0f);
    assert_true(params.query.skip_factor == 0.25f);
    assert_int_equal(params.query.rotates, 1);
    assert_true(fabs(params.query.rope_frequency * 8 * 2 * acos(-1) - 1) < 1e-15);
    assert_true(fabs(params.query.rope_ratio - exp2(-16.0 / 64)) < 1e-15); /* of 64 pairs */
    assert_true(fabs((double)params.output.lse_factor - log(2)) < 1e-8);
    assert_int_equal(params.output.lse_features, CONTRACT_LSE | CONTRACT_FEATURE_LSE_ALIBI_FROM_ZERO);
    assert_ptr_equal(params.query.bmm1_scale_device, tensors.bmm1_scale_device);
    assert_ptr_equal(params.query.bmm1_scale_log2_device, tensors.bmm1_scale_log2_device);
    assert_ptr_equal(params.output.bmm2_scale_device, tensors.bmm2_scale_device);
    assert_ptr_equal(params.records, tensors.workspace);
    assert_int_equal(params.query.token_stride, 8000);
    assert_int_equal(params.query.head_stride, 136);
    assert_int_equal(params.output.token_stride, 16000);
    assert_int_equal(params.output.head_stride, 144);
    assert_int_equal(params.output.lse_token_stride, 91);
    assert_int_equal(params.output.lse_head_stride, 2);
    assert_int_equal(params.schedule.page_table_request_stride, 1001);
    assert_int_equal(params.schedule.page_table_head_stride, 102);
    assert_int_equal(params.schedule.page_table_v_offset, 51);
    assert_int_equal(params.schedule.seq_lens_request_stride, 9);
    assert_int_equal(params.schedule.seq_lens_head_stride, 1);
    assert_true(fabs(params.query.bmm1_scale_log2 - 0.125 * log2(exp(1))) < 1e-8);
    assert_true(params.output.bmm2_scale == 3.0f);
    assert_int_equal(params.schedule.batch_size, 5);
    assert_divisor(params.schedule.group_size, 5);
    assert_int_equal(params.schedule.q_len, 9);
    assert_int_equal(params.schedule.row_tile, 8);   /* of all options at once */
    assert_int_equal(params.schedule.row_passes, 6); /* of 45 rows */
    assert_divisor(params.schedule.heads_per_worker, 1);
    assert_int_equal(params.schedule.heads_per_sequence, 1);
    assert_divisor(params.schedule.page_size, 128);
    assert_int_equal(params.schedule.box_tokens, 64);
    assert_int_equal(params.schedule.max_tokens, 51 * 128);
    assert_int_equal(params.schedule.window_left, 77);
    assert_int_equal(params.schedule.window_reach, 77 / 3 + 8); /* of the first query token */
    assert_divisor(params.schedule.position_stride, 3);
    assert_int_equal(params.schedule.position_offset, 2);
    assert_int_equal(params.output.dtype, KERNEL_DTYPE_FP16);
    assert_divisor(params.schedule.sequences_per_request, 8);
}

static void what_is_not_announced_is_null_and_defaults_are_filled_in(void **state) {
    (void)state;
    libdecode_problem problem = llama3_8b();
    libdecode_tensors tensors = some_tensors();
    struct gqa_decode_params params;
    (void)launch(&problem, &tensors, NULL, &params);
    assert_null(params.output.lse);
    assert_null(params.output.sinks);
    assert_null(params.schedule.query_positions);
    assert_null(params.schedule.cum_seq_lens_q);
    assert_null(params.schedule.draft_mask);
    assert_int_equal(params.schedule.rare, 0);
    assert_null(params.query.alibi_slopes);
    assert_true(params.query.soft_cap == 0.0f);
    assert_true(params.query.skip_factor == 0.0f);
    assert_true(params.query.rotates == 0 && params.query.rope_frequency == 0 && params.query.rope_ratio == 0);
    assert_true(params.output.lse_factor == 1.0f);
    assert_int_equal(params.output.lse_features, 0);
    assert_divisor(params.schedule.heads_per_worker, 8 >> params.schedule.head_shift);
    assert_int_equal(params.schedule.q_len, 1);
    assert_int_equal(params.schedule.row_passes, 1);
    assert_null(params.query.bmm1_scale_device);
    assert_null(params.query.bmm1_scale_log2_device);
    assert_null(params.output.bmm2_scale_device);
    assert_int_equal(params.schedule.window_left, -1);
    assert_int_equal(params.schedule.window_reach, INT32_MAX);
    assert_divisor(params.schedule.position_stride, 1);
    assert_divisor(params.schedule.sequences_per_request, 1);
    assert_int_equal(params.schedule.heads_per_sequence, 8);
    assert_int_equal(params.schedule.box_tokens, 16);
    assert_int_equal(params.output.dtype, KERNEL_DTYPE_BF16);
    assert_true(fabs(params.query.bmm1_scale_log2 - log2(exp(1))) < 1e-6);
    assert_true(params.output.bmm2_scale == 1.0f);
}

static void the_maps_describe_k_and_v_by_their_own_strides(void **state) {
    (void)state;
    static const uint32_t ones[5] = {1, 1, 1, 1, 1};
    libdecode_problem problem = llama3_8b();
    libdecode_tensors tensors = some_tensors();
    struct gqa_decode_params params;
    problem.query_dtype = LIBDECODE_DTYPE_FP16;
    problem.page_size = 256;
    problem.num_pages = 1234;
    problem.kv_layout = LIBDECODE_KV_NHD;
    problem.v_page_stride = (int64_t)3 * 256 * 8 * 128;
    (void)launch(&problem, &tensors, NULL, &params);
    assert_int_equal(fake->count("cuTensorMapEncodeTiled"), 2);
    size_t seen = 0;
    for (size_t i = 0; i < fake->calls(); i++) {
        const struct fake_cuda_call *call = fake->call(i);
        if (strcmp(call->name, "cuTensorMapEncodeTiled") != 0)
            continue;
        const uint64_t dims[5] = {64, 256, 2, 8, 1234};
        const uint64_t page_stride = (seen == 0 ? 1u : 3u) * (uint64_t)256 * 8 * 128 * 2;
        const uint64_t strides[4] = {8 * 128 * 2, 128, 128 * 2, page_stride};
        const uint32_t box[5] = {64, 64, 2, 1, 1};
        assert_int_equal(call->address, (uintptr_t)(seen == 0 ? tensors.k_cache : tensors.v_cache));
        assert_int_equal(call->tensor_map.rank, 5);
        assert_int_equal(call->tensor_map.data_type, 6); /* FLOAT16 */
        assert_int_equal(call->tensor_map.interleave, 0);
        assert_int_equal(call->tensor_map.swizzle, 3);   /* 128B */
        assert_int_equal(call->tensor_map.promotion, 2); /* L2_128B */
        assert_int_equal(call->tensor_map.fill, 0);
        assert_memory_equal(call->tensor_map.dims, dims, sizeof dims);
        assert_memory_equal(call->tensor_map.strides, strides, sizeof strides);
        assert_memory_equal(call->tensor_map.box, box, sizeof box);
        assert_memory_equal(call->tensor_map.element_strides, ones, sizeof ones);
        const struct libdecode_tensor_map *map = seen == 0 ? &params.k_map : &params.v_map;
        assert_int_equal(map->opaque[0], FAKE_CUDA_TENSOR_MAP_MARK);
        assert_int_equal(map->opaque[1], call->address);
        seen++;
    }
    assert_int_equal(seen, 2);
}

static void a_head_dim_of_64_and_an_unknown_pool_make_valid_maps(void **state) {
    (void)state;
    libdecode_problem problem = llama3_8b();
    libdecode_tensors tensors = some_tensors();
    struct gqa_decode_params params;
    problem.head_dim = 64;
    (void)launch(&problem, &tensors, NULL, &params);
    const struct fake_cuda_call *call = fake->last("cuTensorMapEncodeTiled");
    const uint64_t dims[5] = {64, 16, 1, 8, INT32_MAX}, strides[4] = {128, 128, 2048, 16384};
    assert_int_equal(call->tensor_map.data_type, 9); /* BFLOAT16 */
    assert_memory_equal(call->tensor_map.dims, dims, sizeof dims);
    assert_memory_equal(call->tensor_map.strides, strides, sizeof strides);
    assert_int_equal(call->tensor_map.box[1], 16);
}

/* With a policy that forces one kernel. */
static const struct fake_cuda_call *launch_forced(const char *force, uint32_t flags, struct gqa_decode_params *ret_params,
                                                  libdecode_plan_info *ret_info) {
    struct grid_options options;
    libdecode_context *forcing;
    libdecode_plan *plan;
    libdecode_problem problem = llama3_8b();
    libdecode_tensors tensors = some_tensors();
    grid_options(grid, &options);
    options.options.kernel_policy = force;
    expect_ok(libdecode_open(&options.options, &forcing));
    expect_ok(libdecode_plan_create(forcing, &problem, NULL, &plan));
    ret_info->struct_size = sizeof *ret_info;
    expect_ok(libdecode_plan_get_info(plan, ret_info));
    tensors.launch_flags = flags;
    fake->forget_calls();
    expect_ok(libdecode_plan_launch(plan, &tensors, NULL));
    libdecode_plan_destroy(plan);
    libdecode_close(forcing);
    const struct fake_cuda_call *call = fake->last("cuLaunchKernelEx");
    memcpy(ret_params, call->parameters, sizeof *ret_params);
    return call;
}

static void a_balanced_kernel_is_launched_with_one_cta_per_worker(void **state) {
    (void)state;
    struct gqa_decode_params params;
    libdecode_plan_info info;
    const struct fake_cuda_call *call = launch_forced("force=*_d128_r8_p16_c1_*", 0, &params, &info);
    assert_string_equal(call->kernel, "gqa_decode_kvbf16_d128_r8_p16_c1_o0_sm90");
    assert_int_equal(call->config.grid_x, 128);
    assert_int_equal(call->config.grid_y, 1);
    assert_int_equal(call->config.grid_z, 1);
    assert_int_equal(call->config.block_x, 352);
    assert_int_equal(call->config.block_y, 1);
    assert_int_equal(call->config.block_z, 1);
    assert_int_equal(call->config.shared_bytes, 180224);
    assert_int_equal(call->config.num_attributes, 0);
    assert_int_equal(params.schedule.head_shift, 3);
    assert_divisor(params.schedule.num_workers, 128 / 8);
    assert_int_equal(params.schedule.min_boxes_per_worker, 2 * 64 / 16);
    assert_int_equal(info.workers, 128);
    assert_int_equal(info.cluster_size, 1);
    assert_true(info.workspace_bytes >= (size_t)128 * 2 * 4192);
}

static void a_cluster_kernel_gets_the_cluster_attribute(void **state) {
    (void)state;
    struct gqa_decode_params params;
    libdecode_plan_info info;
    const struct fake_cuda_call *call = launch_forced("force=*_d128_r8_p16_c8_*", 0, &params, &info);
    assert_int_equal(params.schedule.head_shift, 0);
    assert_divisor(params.schedule.num_workers, 15);
    assert_int_equal(params.schedule.min_boxes_per_worker, 64 / 16);
    assert_int_equal(call->config.grid_x, 15 * 8);
    assert_int_equal(call->config.num_attributes, 1);
    assert_int_equal(call->launch_attributes[0].id, 4);
    assert_int_equal(call->launch_attributes[0].value.cluster.x, 8);
    assert_int_equal(call->launch_attributes[0].value.cluster.y, 1);
    assert_int_equal(call->launch_attributes[0].value.cluster.z, 1);
}

static void a_programmatic_launch_gets_its_attribute(void **state) {
    (void)state;
    struct gqa_decode_params params;
    libdecode_plan_info info;
    const struct fake_cuda_call *call = launch_forced("force=*_d128_r8_p16_c1_*", LIBDECODE_LAUNCH_PROGRAMMATIC, &params, &info);
    assert_int_equal(call->config.num_attributes, 1);
    assert_int_equal(call->launch_attributes[0].id, 6);
    assert_int_equal(call->launch_attributes[0].value.programmatic, 1);
    assert_int_equal(params.schedule.rare, 0);
    call = launch_forced("force=*_d128_r8_p16_c8_*", LIBDECODE_LAUNCH_PROGRAMMATIC, &params, &info);
    assert_int_equal(call->config.num_attributes, 2);
    assert_int_equal(call->launch_attributes[1].id, 6);
    launch_forced("force=*_d128_r8_p16_c1_*", LIBDECODE_LAUNCH_PROGRAMMATIC | LIBDECODE_LAUNCH_HISTORY_FINAL, &params, &info);
    assert_int_equal(params.schedule.rare, SCHEDULE_HISTORY_FINAL | SCHEDULE_LETS_NEXT_BEGIN);
}

static void an_empty_batch_launches_nothing(void **state) {
    (void)state;
    libdecode_problem problem = llama3_8b();
    libdecode_tensors tensors = {.struct_size = sizeof tensors};
    libdecode_plan *plan;
    problem.batch_size = 0;
    expect_ok(libdecode_plan_create(context, &problem, NULL, &plan));
    fake->forget_calls();
    expect_ok(libdecode_plan_launch(plan, &tensors, NULL));
    assert_int_equal(fake->calls(), 0);
    libdecode_plan_destroy(plan);
    expect_ok(libdecode_decode(context, &problem, &tensors, NULL));
    assert_int_equal(fake->count("cuLaunchKernelEx"), 0);
}

static void a_workspace_that_is_missing_unaligned_or_small_is_refused(void **state) {
    (void)state;
    libdecode_problem problem = llama3_8b();
    libdecode_tensors tensors = some_tensors();
    libdecode_plan *plan;
    expect_ok(libdecode_plan_create(context, &problem, NULL, &plan));
    size_t needed = libdecode_plan_workspace_bytes(plan);
    fake->forget_calls();
    tensors.workspace = NULL;
    assert_int_equal(libdecode_plan_launch(plan, &tensors, NULL), LIBDECODE_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(libdecode_error_message(), "tensors.workspace is NULL"));
    tensors = some_tensors();
    tensors.workspace = (char *)tensors.workspace + 128;
    assert_int_equal(libdecode_plan_launch(plan, &tensors, NULL), LIBDECODE_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(libdecode_error_message(), "tensors.workspace is 0x"));
    assert_non_null(strstr(libdecode_error_message(), "256 bytes"));
    tensors = some_tensors();
    tensors.workspace_bytes = needed - 1;
    assert_int_equal(libdecode_plan_launch(plan, &tensors, NULL), LIBDECODE_ERROR_WORKSPACE_TOO_SMALL);
    assert_int_equal(fake->count("cuLaunchKernelEx"), 0);
    tensors.workspace_bytes = needed;
    expect_ok(libdecode_plan_launch(plan, &tensors, NULL));
    libdecode_plan_destroy(plan);
}

static void clusters_of_every_size_get_their_attribute(void **state) {
    (void)state;
    static const char *const force[] = {"force=*_d128_r8_p16_c2_*", "force=*_d128_r8_p16_c4_*", "force=*_d128_r8_p16_c8_*"};
    for (uint32_t i = 0; i < sizeof force / sizeof force[0]; i++) {
        struct gqa_decode_params params;
        libdecode_plan_info info;
        const struct fake_cuda_call *call = launch_forced(force[i], 0, &params, &info);
        assert_int_equal(info.cluster_size, 2u << i);
        assert_int_equal(call->config.num_attributes, 1);
        assert_int_equal(call->launch_attributes[0].id, 4);
        assert_int_equal(call->launch_attributes[0].value.cluster.x, 2u << i);
        assert_int_equal(call->config.grid_x, (uint32_t)info.workers << (i + 1));
    }
}

/* Either alone makes ranges that differ by request. */
static void ragged_queries_and_positions_each_ask_for_exact_ranges(void **state) {
    (void)state;
    const int32_t *const some = (const int32_t *)(uintptr_t)0x10300;
    struct gqa_decode_params params;
    libdecode_problem problem = llama3_8b();
    libdecode_tensors tensors = some_tensors();
    problem.q_len = 4;
    problem.features = LIBDECODE_FEATURE_RAGGED_Q;
    tensors.cum_seq_lens_q = some;
    (void)launch(&problem, &tensors, NULL, &params);
    assert_int_equal(params.schedule.rare, SCHEDULE_EXACT_RANGES);
    problem.features = LIBDECODE_FEATURE_QUERY_POSITIONS;
    tensors.cum_seq_lens_q = NULL;
    tensors.query_positions = some;
    (void)launch(&problem, &tensors, NULL, &params);
    assert_int_equal(params.schedule.rare, SCHEDULE_EXACT_RANGES);
}

static void a_soft_cap_and_its_reciprocal_stay_finite(void **state) {
    (void)state;
    struct gqa_decode_params params;
    libdecode_problem problem = llama3_8b();
    const libdecode_tensors tensors = some_tensors();
    problem.features = LIBDECODE_FEATURE_SOFT_CAP;
    problem.logits_soft_cap = 3e38f;
    (void)launch(&problem, &tensors, NULL, &params);
    assert_true(isfinite(params.query.soft_cap * 1.44269504f));
    static const float small[] = {1e-45f, 1e-40f, 5e-39f, 1.17549435e-38f};
    for (size_t i = 0; i < sizeof small / sizeof small[0]; i++) { /* times an infinite reciprocal, a score of 0 would be NaN */
        problem.logits_soft_cap = small[i];
        (void)launch(&problem, &tensors, NULL, &params);
        assert_true(isfinite(2.0f / params.query.soft_cap) && params.query.soft_cap < 1e-30f);
    }
    problem.logits_soft_cap = 1e-30f;
    (void)launch(&problem, &tensors, NULL, &params);
    assert_true(params.query.soft_cap == 1e-30f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_field_of_the_parameter_block_comes_from_its_source),
        cmocka_unit_test(what_is_not_announced_is_null_and_defaults_are_filled_in),
        cmocka_unit_test(the_maps_describe_k_and_v_by_their_own_strides),
        cmocka_unit_test(a_head_dim_of_64_and_an_unknown_pool_make_valid_maps),
        cmocka_unit_test(a_balanced_kernel_is_launched_with_one_cta_per_worker),
        cmocka_unit_test(a_cluster_kernel_gets_the_cluster_attribute),
        cmocka_unit_test(a_programmatic_launch_gets_its_attribute),
        cmocka_unit_test(an_empty_batch_launches_nothing),
        cmocka_unit_test(a_workspace_that_is_missing_unaligned_or_small_is_refused),
        cmocka_unit_test(clusters_of_every_size_get_their_attribute),
        cmocka_unit_test(ragged_queries_and_positions_each_ask_for_exact_ranges),
        cmocka_unit_test(a_soft_cap_and_its_reciprocal_stay_finite),
    };
    return cmocka_run_group_tests_name("launch", tests, begin_group, end_group);
}
