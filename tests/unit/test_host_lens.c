/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_host_lens.c: lengths in host memory, and none at all: what a launch copies, where to, and what it clears; each driver call of it
 * made to fail; a captured stream.
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

static const libdecode_stream stream = (libdecode_stream)(uintptr_t)0x77;
static const int32_t lens[8 * 16] = {100, 37};

static libdecode_problem with_host_lens(void) {
    libdecode_problem problem = llama3_8b();
    problem.features |= LIBDECODE_FEATURE_HOST_SEQ_LENS;
    return problem;
}

static libdecode_plan *plan_of(const libdecode_problem *problem) {
    libdecode_plan *plan = plan_for(problem, NULL);
    expect_ok(libdecode_prepare(context, &plan, 1));
    fake->forget_calls();
    return plan;
}

static libdecode_tensors tensors_for(const libdecode_plan *plan) {
    libdecode_tensors tensors = some_tensors();
    tensors.workspace_bytes = libdecode_plan_workspace_bytes(plan);
    tensors.seq_lens = lens;
    return tensors;
}

static struct schedule_params schedule_of(const struct fake_cuda_call *launch) {
    struct gqa_decode_params params;
    memcpy(&params, launch->parameters, sizeof params);
    return params.schedule;
}

static size_t records_bytes(const libdecode_problem *problem) {
    libdecode_problem on_device = *problem;
    on_device.features &= ~(uint32_t)LIBDECODE_FEATURE_HOST_SEQ_LENS;
    libdecode_plan *plan = plan_of(&on_device);
    const size_t bytes = libdecode_plan_workspace_bytes(plan);
    libdecode_plan_destroy(plan);
    return bytes;
}

/* Numbers of the calls of a launch, which must be one after the other: is-capturing, copy, launch, memset. */
static size_t index_of(const char *name) {
    for (size_t index = 0; index < fake->calls(); index++)
        if (strcmp(fake->call(index)->name, name) == 0)
            return index;
    fail_msg("%s was not called", name);
    return 0;
}

static void a_launch_copies_the_lengths_and_clears_them_behind_the_kernel(void **state) {
    (void)state;
    libdecode_problem problem = with_host_lens();
    const size_t records = records_bytes(&problem);
    libdecode_plan *plan = plan_of(&problem);
    libdecode_tensors tensors = tensors_for(plan);
    assert_int_equal(tensors.workspace_bytes, records + 256);
    tensors.launch_flags = LIBDECODE_LAUNCH_PROGRAMMATIC | LIBDECODE_LAUNCH_HISTORY_FINAL;
    expect_ok(libdecode_plan_launch(plan, &tensors, stream));
    const cuda_address at = (cuda_address)(uintptr_t)tensors.workspace + records;
    const struct fake_cuda_call *copy = fake->last("cuMemcpyHtoDAsync_v2"), *launch = fake->last("cuLaunchKernelEx"),
                                *clear = fake->last("cuMemsetD8Async");
    assert_true(index_of("cuMemcpyHtoDAsync_v2") < index_of("cuLaunchKernelEx"));
    assert_true(index_of("cuLaunchKernelEx") < index_of("cuMemsetD8Async"));
    assert_int_equal(copy->address, at);
    assert_ptr_equal(copy->source, lens);
    assert_int_equal(copy->bytes, 16 * 4);
    assert_ptr_equal(copy->stream, stream);
    assert_int_equal(clear->address, at);
    assert_int_equal(clear->bytes, 16 * 4);
    assert_int_equal(clear->pattern, 0);
    assert_ptr_equal(clear->stream, stream);
    const struct schedule_params schedule = schedule_of(launch);
    assert_int_equal((uintptr_t)schedule.seq_lens, at);
    assert_int_equal(schedule.seq_lens_request_stride, 1);
    assert_int_equal(schedule.rare & SCHEDULE_HISTORY_FINAL, 0);
    for (unsigned index = 0; index < launch->config.num_attributes; index++)
        assert_int_not_equal(launch->launch_attributes[index].id, CUDA_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
    libdecode_plan_destroy(plan);
}

static void lengths_of_every_head_are_copied(void **state) {
    (void)state;
    libdecode_problem problem = with_host_lens();
    problem.seq_lens_head_stride = problem.batch_size;
    const size_t records = records_bytes(&problem);
    libdecode_plan *plan = plan_of(&problem);
    libdecode_tensors tensors = tensors_for(plan);
    assert_int_equal(tensors.workspace_bytes, records + 8 * 16 * 4);
    expect_ok(libdecode_plan_launch(plan, &tensors, stream));
    assert_int_equal(fake->last("cuMemcpyHtoDAsync_v2")->bytes, 8 * 16 * 4);
    tensors.workspace_bytes--;
    assert_int_equal(libdecode_plan_launch(plan, &tensors, stream), LIBDECODE_ERROR_WORKSPACE_TOO_SMALL);
    libdecode_plan_destroy(plan);
}

static void lengths_on_the_device_are_not_copied(void **state) {
    (void)state;
    libdecode_problem problem = llama3_8b();
    libdecode_plan *plan = plan_of(&problem);
    libdecode_tensors tensors = tensors_for(plan);
    expect_ok(libdecode_plan_launch(plan, &tensors, stream));
    assert_int_equal(fake->count("cuMemcpyHtoDAsync_v2"), 0);
    assert_int_equal(fake->count("cuMemsetD8Async"), 0);
    assert_int_equal(fake->count("cuStreamIsCapturing"), 0);
    assert_ptr_equal(schedule_of(fake->last("cuLaunchKernelEx")).seq_lens, lens);
    libdecode_plan_destroy(plan);
}

static void a_captured_stream_is_refused_before_anything_is_enqueued(void **state) {
    (void)state;
    libdecode_problem problem = with_host_lens();
    libdecode_plan *plan = plan_of(&problem);
    libdecode_tensors tensors = tensors_for(plan);
    size_t workspace_bytes;
    expect_ok(libdecode_decode_workspace_bytes(context, &problem, &workspace_bytes));
    assert_int_equal(workspace_bytes, tensors.workspace_bytes);
    for (int status = 1; status <= 2; status++) {
        fake->set_capture(stream, status);
        assert_int_equal(libdecode_plan_launch(plan, &tensors, stream), LIBDECODE_ERROR_INVALID_ARGUMENT);
        assert_int_equal(libdecode_decode(context, &problem, &tensors, stream), LIBDECODE_ERROR_INVALID_ARGUMENT);
        assert_non_null(strstr(libdecode_error_message(), "tensors.seq_lens"));
        assert_non_null(strstr(libdecode_error_message(), "LIBDECODE_FEATURE_HOST_SEQ_LENS"));
        assert_int_equal(fake->count("cuMemcpyHtoDAsync_v2") + fake->count("cuLaunchKernelEx"), 0);
        assert_int_equal(fake->capture(stream), status);
    }
    fake->set_capture(stream, 0);
    expect_ok(libdecode_plan_launch(plan, &tensors, stream));
    libdecode_plan_destroy(plan);
}

/* After the copy the workspace is cleared whatever happened, and the next launch works. */
static void every_driver_call_may_fail(void **state) {
    (void)state;
    libdecode_problem problem = with_host_lens();
    libdecode_plan *plan = plan_of(&problem);
    libdecode_tensors tensors = tensors_for(plan);
    size_t failures = 0;
    for (size_t call = 1;; call++) {
        fake->forget_calls();
        fake->fail_at(call, 700);
        const libdecode_status status = libdecode_plan_launch(plan, &tensors, stream);
        if (!fake->failed())
            break;
        failures++;
        assert_int_equal(status, LIBDECODE_ERROR_CUDA);
        assert_int_equal(libdecode_error_cuda_result(), 700);
        const struct fake_cuda_call *copy = fake->last("cuMemcpyHtoDAsync_v2");
        assert_int_equal(fake->count("cuMemsetD8Async"), copy && copy->result == 0);
        fake->fail_at(0, 0);
        expect_ok(libdecode_plan_launch(plan, &tensors, stream));
    }
    fake->fail_at(0, 0);
    assert_true(failures >= 7); /* context, is-capturing, copy, two maps, launch, memset */
    libdecode_plan_destroy(plan);
}

static void without_lengths_every_request_has_its_capacity(void **state) {
    (void)state;
    libdecode_problem problem = with_host_lens();
    libdecode_plan *plan = plan_of(&problem);
    libdecode_tensors tensors = tensors_for(plan);
    tensors.seq_lens = NULL;
    assert_int_equal(libdecode_plan_launch(plan, &tensors, stream), LIBDECODE_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(libdecode_error_message(), "tensors.seq_lens is NULL"));
    assert_non_null(strstr(libdecode_error_message(), "kv_capacity_tokens"));
    libdecode_plan_destroy(plan);

    problem.kv_capacity_tokens = 4090;
    plan = plan_of(&problem);
    expect_ok(libdecode_plan_launch(plan, &tensors, stream));
    assert_int_equal(fake->count("cuMemcpyHtoDAsync_v2") + fake->count("cuMemsetD8Async"), 0);
    const struct schedule_params schedule = schedule_of(fake->last("cuLaunchKernelEx"));
    assert_null(schedule.seq_lens);
    assert_int_equal(schedule.max_tokens, 4090);
    libdecode_plan_destroy(plan);
}

/* There is nothing to copy, so nothing that a replay would read. */
static void without_lengths_a_launch_may_be_captured(void **state) {
    (void)state;
    libdecode_problem problem = with_host_lens();
    problem.kv_capacity_tokens = 4090;
    libdecode_plan *plan = plan_of(&problem);
    libdecode_tensors tensors = tensors_for(plan);
    tensors.seq_lens = NULL;
    fake->set_capture(stream, 1);
    expect_ok(libdecode_plan_launch(plan, &tensors, stream));
    fake->set_capture(stream, 0);
    libdecode_plan_destroy(plan);
}

static libdecode_problem without_room(void) {
    libdecode_problem problem = llama3_8b();
    problem.features = LIBDECODE_FEATURE_CONTIGUOUS_KV;
    problem.page_size = problem.max_seq_len = 0;
    return problem;
}

/* Nothing is copied through maps of no rows; the fake driver refuses one without an address, as a driver may. */
static void without_room_for_a_token_a_launch_needs_no_caches(void **state) {
    (void)state;
    libdecode_problem problem = without_room();
    libdecode_plan *plan = plan_of(&problem);
    libdecode_tensors tensors = tensors_for(plan);
    tensors.page_table = tensors.seq_lens = NULL;
    tensors.k_cache = tensors.v_cache = NULL;
    expect_ok(libdecode_plan_launch(plan, &tensors, stream));
    assert_int_equal(fake->count("cuTensorMapEncodeTiled"), 2);
    assert_int_equal(schedule_of(fake->last("cuLaunchKernelEx")).max_tokens, 0);
    libdecode_plan_destroy(plan);

    problem.batch_size = 0; /* however much room there would be */
    problem.kv_capacity_tokens = 1048576;
    plan = plan_of(&problem);
    tensors = tensors_for(plan);
    tensors.page_table = NULL;
    tensors.query = tensors.k_cache = tensors.v_cache = NULL;
    expect_ok(libdecode_plan_launch(plan, &tensors, stream));
    assert_int_equal(fake->count("cuLaunchKernelEx"), 0);
    libdecode_plan_destroy(plan);
}

static void without_room_for_a_token_the_reference_needs_no_caches(void **state) {
    (void)state;
    static _Alignas(16) uint16_t query[32][128], out[32][128];
    static float lse[32];
    libdecode_problem problem = without_room();
    problem.features |= LIBDECODE_FEATURE_LSE;
    problem.batch_size = 1;
    memset(out, 0xff, sizeof out);
    const libdecode_tensors tensors = {.struct_size = sizeof tensors, .query = query, .out = out, .lse = lse};
    expect_ok(libdecode_reference(&problem, &tensors));
    for (int head = 0; head < 32; head++) {
        assert_true(lse[head] == -INFINITY);
        for (int d = 0; d < 128; d++)
            assert_int_equal(out[head][d], 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_launch_copies_the_lengths_and_clears_them_behind_the_kernel),
        cmocka_unit_test(lengths_of_every_head_are_copied),
        cmocka_unit_test(lengths_on_the_device_are_not_copied),
        cmocka_unit_test(a_captured_stream_is_refused_before_anything_is_enqueued),
        cmocka_unit_test(every_driver_call_may_fail),
        cmocka_unit_test(without_lengths_every_request_has_its_capacity),
        cmocka_unit_test(without_lengths_a_launch_may_be_captured),
        cmocka_unit_test(without_room_for_a_token_a_launch_needs_no_caches),
        cmocka_unit_test(without_room_for_a_token_the_reference_needs_no_caches),
    };
    return cmocka_run_group_tests_name("host_lens", tests, begin_group, end_group);
}
