/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_decode.c: plans and launches through the public API on the fake libcuda.so.1: the right kernel on the right GPU, and
 * nothing but the launch on the launch path. (test_decode_failures.c: what goes wrong.)
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "bundle_fixture.h"
#include "decode_scene.h"
#include "device.h"
#include "watch.h"

/* ------------------------------------------------------------------------------------------------------------ plans */

static void a_plan_says_what_was_chosen(void **state) {
    (void)state;
    libdecode_problem problem = llama3_8b();
    libdecode_plan *plan = plan_for(&problem, NULL);
    libdecode_plan_info info = {.struct_size = sizeof info};
    expect_ok(libdecode_plan_get_info(plan, &info));
    assert_non_null(strstr(info.kernel, "gqa_decode_kvbf16_d128_r8_"));
    assert_string_equal(info.bundle, "memory");
    assert_non_null(strstr(info.reason, "predicted"));
    assert_int_equal(info.row_passes, 1);
    assert_int_equal(info.workspace_bytes, libdecode_plan_workspace_bytes(plan));
    assert_true(info.workspace_bytes > 16384);
    libdecode_kernel_info kernel = {.struct_size = sizeof kernel};
    for (size_t i = 0; i < libdecode_kernel_count(context); i++) {
        expect_ok(libdecode_kernel_get_info(context, i, &kernel));
        if (strcmp(kernel.name, info.kernel) == 0)
            break;
    }
    assert_memory_equal(kernel.image_sha256, info.image_sha256, 32);
    info.struct_size = 0;
    expect_error(libdecode_plan_get_info(plan, &info), LIBDECODE_ERROR_STRUCT_SIZE, "libdecode_plan_info");
    libdecode_plan_destroy(plan);
}

static void a_plan_for_another_gpu_needs_no_driver_and_is_refused_on_this_one(void **state) {
    (void)state;
    libdecode_problem problem = llama3_8b();
    libdecode_tensors tensors = some_tensors();
    static const char *const others[] = {"sm_100", "sm_103", "sm_120", "sm_121"};
    for (size_t i = 0; i < 4; i++) {
        libdecode_device device = preset(others[i]);
        fake->forget_calls();
        libdecode_plan *plan = plan_for(&problem, &device);
        assert_int_equal(fake->calls(), 0);
        expect_error(libdecode_plan_launch(plan, &tensors, NULL), LIBDECODE_ERROR_WRONG_DEVICE, "current GPU is sm_90 with 132");
        expect_error(libdecode_prepare(context, &plan, 1), LIBDECODE_ERROR_WRONG_DEVICE, "current GPU is sm_90");
        assert_int_equal(fake->count("cuLaunchKernelEx") + fake->count("cuModuleLoadData"), 0);
        libdecode_plan_destroy(plan);
    }
    libdecode_device smaller = preset("sm_90");
    smaller.sm_count = 114;
    smaller.resident_clusters_2 = smaller.resident_clusters_4 = smaller.resident_clusters_8 = smaller.resident_clusters_16 = 0;
    libdecode_plan *plan = plan_for(&problem, &smaller);
    expect_error(libdecode_plan_launch(plan, &tensors, NULL), LIBDECODE_ERROR_WRONG_DEVICE, "114 SMs");
    libdecode_plan_destroy(plan);
    libdecode_device same = preset("sm_90");
    plan = plan_for(&problem, &same);
    expect_ok(libdecode_plan_launch(plan, &tensors, NULL));
    libdecode_plan_destroy(plan);
}

static void a_plan_notices_that_the_context_changed_to_another_gpu(void **state) {
    (void)state;
    libdecode_problem problem = llama3_8b();
    libdecode_tensors tensors = some_tensors();
    fake->set_device_count(3);
    fake->set_device(1, 100);
    fake->set_device(2, 90);
    cuda_context b200 = fake->context_create(1), h200 = fake->context_create(2);
    libdecode_plan *plan = plan_for(&problem, NULL);
    expect_ok(libdecode_plan_launch(plan, &tensors, NULL));
    fake->context_set_current(b200);
    expect_error(libdecode_plan_launch(plan, &tensors, NULL), LIBDECODE_ERROR_WRONG_DEVICE, "sm_100");
    fake->context_set_current(h200);
    fake->forget_calls();
    expect_ok(libdecode_plan_launch(plan, &tensors, NULL));
    assert_int_equal(fake->count("cuModuleLoadData"), 1);

    fake->context_set_current(b200); /* and the call that plans by itself takes the kernel of each GPU */
    expect_ok(libdecode_decode(context, &problem, &tensors, NULL));
    assert_non_null(strstr(fake->last("cuLaunchKernelEx")->kernel, "_sm100"));
    fake->context_set_current(h200);
    expect_ok(libdecode_decode(context, &problem, &tensors, NULL));
    assert_non_null(strstr(fake->last("cuLaunchKernelEx")->kernel, "_sm90"));
    libdecode_plan_destroy(plan);
}

static void null_arguments_are_named(void **state) {
    (void)state;
    libdecode_problem problem = llama3_8b();
    libdecode_tensors tensors = some_tensors();
    libdecode_device device = {.struct_size = sizeof device};
    libdecode_plan *plan = NULL, *none[1] = {NULL};
    size_t bytes = 77;
    const libdecode_status invalid = LIBDECODE_ERROR_INVALID_ARGUMENT;
    expect_error(libdecode_plan_create(NULL, &problem, NULL, &plan), invalid, "context is NULL");
    expect_error(libdecode_plan_create(context, NULL, NULL, &plan), invalid, "problem is NULL");
    expect_error(libdecode_plan_create(context, &problem, NULL, NULL), invalid, "ret_plan is NULL");
    expect_error(libdecode_plan_get_info(NULL, NULL), invalid, "plan is NULL");
    expect_error(libdecode_plan_launch(NULL, &tensors, NULL), invalid, "plan is NULL");
    expect_error(libdecode_prepare(NULL, none, 1), invalid, "context is NULL");
    expect_error(libdecode_prepare(context, NULL, 1), invalid, "plans is NULL");
    expect_error(libdecode_prepare(context, none, 1), invalid, "plans[0] is NULL");
    expect_error(libdecode_workspace_init(NULL, tensors.workspace, 1 << 20, NULL), invalid, "context is NULL");
    expect_error(libdecode_workspace_init(context, NULL, 1 << 20, NULL), invalid, "workspace is NULL");
    expect_error(libdecode_decode(NULL, &problem, &tensors, NULL), invalid, "context is NULL");
    expect_error(libdecode_decode(context, NULL, &tensors, NULL), invalid, "problem is NULL");
    expect_error(libdecode_decode(context, &problem, NULL, NULL), invalid, "tensors is NULL");
    expect_error(libdecode_decode_workspace_bytes(NULL, &problem, &bytes), invalid, "context is NULL");
    expect_error(libdecode_decode_workspace_bytes(context, &problem, NULL), invalid, "ret_bytes is NULL");
    expect_error(libdecode_device_current(NULL, &device), invalid, "context is NULL");
    expect_error(libdecode_device_current(context, NULL), invalid, "NULL");
    expect_error(libdecode_device_preset(NULL, &device), invalid, "name is NULL");
    expect_error(libdecode_explain(NULL, &problem, &device, NULL, NULL), invalid, "context is NULL");
    expect_error(libdecode_explain(context, &problem, NULL, NULL, NULL), invalid, "NULL");
    assert_null(plan);
    assert_int_equal(bytes, 77);
    libdecode_plan_destroy(NULL);
    libdecode_close(NULL);
    assert_int_equal(libdecode_plan_workspace_bytes(NULL), 0);
    expect_ok(libdecode_prepare(context, NULL, 0));
}

static void a_plan_of_another_context_is_refused(void **state) {
    (void)state;
    libdecode_problem problem = llama3_8b();
    libdecode_context *other = open_grid(0, LIBDECODE_LOG_NONE, NULL);
    libdecode_plan *plan = plan_for(&problem, NULL);
    expect_error(libdecode_prepare(other, &plan, 1), LIBDECODE_ERROR_INVALID_ARGUMENT, "another context");
    libdecode_plan_destroy(plan);
    libdecode_close(other);
}

/* --------------------------------------------------------------------------------------------------------- launches */

static void a_workspace_is_made_ready_by_one_memset(void **state) {
    (void)state;
    libdecode_tensors tensors = some_tensors();
    expect_ok(libdecode_workspace_init(context, tensors.workspace, (1 << 20) + 3, (libdecode_stream)(uintptr_t)0x99));
    const struct fake_cuda_call *call = fake->last("cuMemsetD8Async");
    assert_int_equal(call->address, (uintptr_t)tensors.workspace);
    assert_int_equal(call->bytes, (1 << 20) + 3); /* every byte that was given */
    assert_int_equal(call->pattern, 0);
    assert_ptr_equal(call->stream, (void *)(uintptr_t)0x99);
    expect_error(libdecode_workspace_init(context, tensors.workspace, 255, NULL), LIBDECODE_ERROR_WORKSPACE_TOO_SMALL, "256");
}

static void prepare_loads_once_and_launches_load_no_more(void **state) {
    (void)state;
    libdecode_problem problem = llama3_8b(), other = llama3_8b();
    libdecode_tensors tensors = some_tensors();
    other.head_dim = 64;
    libdecode_plan *plans[3] = {plan_for(&problem, NULL), plan_for(&other, NULL), plan_for(&problem, NULL)};
    fake->forget_calls();
    expect_ok(libdecode_prepare(context, plans, 3));
    assert_in_range(fake->count("cuModuleLoadData"), 1, 2); /* one of them may have told how many clusters fit */
    fake->forget_calls();
    for (size_t i = 0; i < 3; i++)
        expect_ok(libdecode_plan_launch(plans[i], &tensors, NULL));
    assert_int_equal(fake->count("cuModuleLoadData"), 0);
    assert_int_equal(fake->count("cuLaunchKernelEx"), 3);
    for (size_t i = 0; i < 3; i++)
        libdecode_plan_destroy(plans[i]);
}

static void a_cold_launch_in_a_capture_works_and_under_strict_says_what_to_do(void **state) {
    (void)state;
    libdecode_problem problem = llama3_8b();
    libdecode_tensors tensors = some_tensors();
    libdecode_stream stream = (libdecode_stream)(uintptr_t)0x55;
    libdecode_context *strict = open_grid(LIBDECODE_OPEN_STRICT, LIBDECODE_LOG_NONE, NULL);
    fake->set_capture(stream, 1);
    expect_error(libdecode_decode(strict, &problem, &tensors, stream), LIBDECODE_ERROR_COLD_IN_CAPTURE, "libdecode_prepare");
    assert_non_null(strstr(libdecode_error_message(), "libdecode_decode once"));
    assert_int_equal(fake->count("cuModuleLoadData"), 0); /* nor a kernel to ask the driver with how many clusters fit */
    assert_int_equal(fake->capture(stream), 1);
    expect_ok(libdecode_decode(context, &problem, &tensors, stream));
    assert_int_equal(fake->capture(stream), 1);
    assert_true(fake->last("cuLaunchKernelEx")->capturing);
    libdecode_close(strict);
}

/* What the fake allocates to record one call. */
static size_t allocations_per_record(void) {
    void *symbol = dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), "cuCtxGetId");
    cuda_result (*context_id)(cuda_context, unsigned long long *);
    unsigned long long id;
    memcpy(&context_id, &symbol, sizeof symbol);
    watch_begin();
    (void)context_id(NULL, &id);
    return watch_end().allocations;
}

static void the_launch_path_neither_allocates_nor_reads_the_environment(void **state) {
    (void)state;
    libdecode_problem problem = llama3_8b();
    libdecode_tensors tensors = some_tensors();
    libdecode_plan *plan = plan_for(&problem, NULL);
    fake->reset();
    for (int i = 0; i < 3; i++) { /* warm: loads, remembers, and makes room for the fake's records */
        expect_ok(libdecode_plan_launch(plan, &tensors, NULL));
        expect_ok(libdecode_decode(context, &problem, &tensors, NULL));
    }
    size_t per_record = allocations_per_record();
    fake->forget_calls();
    watch_begin();
    void *volatile probe = malloc(1);
    free(probe);
    char *volatile home = getenv("HOME");
    (void)home;
    libdecode_status first = libdecode_plan_launch(plan, &tensors, NULL);
    libdecode_status second = libdecode_decode(context, &problem, &tensors, NULL);
    struct watch_counts counts = watch_end();
    expect_ok(first);
    expect_ok(second);
    assert_int_equal(counts.allocations, 1 + per_record * fake->calls()); /* 1 of this test's own: counting works */
    assert_int_equal(counts.environment_reads, 1);

    /* In two CUDA contexts in turn as in one. */
    size_t calls = fake->calls();
    fake->context_set_current(fake->context_create(0));
    expect_ok(libdecode_plan_launch(plan, &tensors, NULL));
    cuda_context contexts[2] = {fake->context_create(0), fake->context_create(0)};
    for (int i = 0; i < 6; i++) {
        fake->context_set_current(contexts[i % 2]);
        fake->forget_calls();
        expect_ok(libdecode_plan_launch(plan, &tensors, NULL));
        expect_ok(libdecode_decode(context, &problem, &tensors, NULL));
        if (i >= 2)
            assert_int_equal(fake->calls(), calls);
    }

    /* And of the driver it asks what it must: where it is, two maps, the launch. */
    static const char *const allowed[] = {"cuCtxGetCurrent", "cuCtxGetId", "cuTensorMapEncodeTiled", "cuLaunchKernelEx"};
    for (size_t i = 0; i < fake->calls(); i++) {
        bool known = false;
        for (size_t j = 0; j < 4; j++)
            known = known || strcmp(fake->call(i)->name, allowed[j]) == 0;
        if (!known)
            fail_msg("%s on the launch path", fake->call(i)->name);
    }
    libdecode_plan_destroy(plan);
}

/* ------------------------------------------------------------------------------------------------- in a single call */

static void decode_remembers_its_plan(void **state) {
    (void)state;
    struct log log = {0};
    libdecode_context *logging = open_grid(0, LIBDECODE_LOG_INFO, &log);
    libdecode_problem problem = llama3_8b();
    libdecode_tensors tensors = some_tensors();
    size_t bytes = 0;
    expect_ok(libdecode_decode_workspace_bytes(logging, &problem, &bytes));
    tensors.workspace_bytes = bytes;
    problem.page_table_request_stride = 8192;
    for (int length = 4096; length > 2048; length--) { /* a hint that changes with every step keeps the plan */
        problem.max_seq_len = length;
        expect_ok(libdecode_decode(logging, &problem, &tensors, NULL));
    }
    size_t plans = log.lines[LIBDECODE_LOG_INFO];
    assert_true(plans <= 2 + 2); /* the query's and this one, and what module.c says of loading */
    assert_int_equal(fake->count("cuLaunchKernelEx"), 2048);
    problem.batch_size++;
    expect_ok(libdecode_decode(logging, &problem, &tensors, NULL));
    assert_int_equal(log.lines[LIBDECODE_LOG_INFO], plans + 1);
    assert_non_null(strstr(log.last[LIBDECODE_LOG_INFO], "batch_decode, batch 17, heads 32/8"));
    libdecode_close(logging);
}

/* Token ids have no page table, whose width max_seq_len could be. */
static void a_hint_that_changes_keeps_the_plan_of_sparse_attention(void **state) {
    (void)state;
    struct fixture_kernel kernel = {
        .name = "sparse_mla_decode_kvbf16_d576_r16_c1_sm90", .target = 90, .contract = fixture_contract()};
    kernel.contract.family = KERNEL_FAMILY_SPARSE_MLA_DECODE;
    kernel.contract.parameter_bytes = sizeof(struct sparse_mla_decode_params);
    kernel.contract.head_dim = 576;
    kernel.contract.max_box_tokens = 32;
    kernel.contract.min_page_size = 1;
    kernel.contract.flags = CONTRACT_FLAG_ROW_GATHER;
    size_t bytes;
    uint8_t *data = fixture_bundle(&kernel, 1, &bytes);
    const libdecode_memory_bundle memory = {data, bytes};
    struct log log = {0};
    libdecode_open_options options = LIBDECODE_OPEN_OPTIONS_INIT;
    options.flags = LIBDECODE_OPEN_IGNORE_ENVIRONMENT | LIBDECODE_OPEN_BUNDLES_ONLY;
    options.memory_bundles = &memory;
    options.num_memory_bundles = 1;
    options.log_level = LIBDECODE_LOG_INFO;
    options.log = keep_log;
    options.log_cookie = &log;
    libdecode_context *sparse;
    expect_ok(libdecode_open(&options, &sparse));
    fake->set_parameter_bytes(sizeof(struct sparse_mla_decode_params));
    libdecode_problem problem = some_mla();
    problem.num_pages = 1000;
    problem.sparse_top_k = 2048;
    libdecode_tensors tensors = some_tensors();
    tensors.v_cache = NULL;
    tensors.page_table = NULL;
    tensors.sparse_token_ids = tensors.seq_lens;
    for (problem.max_seq_len = 4096; problem.max_seq_len > 2048; problem.max_seq_len--)
        expect_ok(libdecode_decode(sparse, &problem, &tensors, NULL));
    assert_int_equal(log.lines[LIBDECODE_LOG_INFO], 1);
    libdecode_close(sparse);
    free(data);
}

static void the_sum_of_the_lengths_may_change_with_every_step_too(void **state) {
    (void)state;
    struct log log = {0};
    libdecode_context *logging = open_grid(0, LIBDECODE_LOG_INFO, &log);
    libdecode_problem problem = llama3_8b();
    libdecode_tensors tensors = some_tensors();
    problem.page_table_request_stride = 8192;
    problem.max_seq_len = 4096;
    for (int64_t tokens = 20000; tokens <= 40000; tokens += problem.batch_size) {
        problem.total_kv_tokens = tokens;
        expect_ok(libdecode_decode(logging, &problem, &tensors, NULL));
    }
    assert_in_range(log.lines[LIBDECODE_LOG_INFO], 4, 5); /* four plans while it doubles */
    libdecode_close(logging);
}

static void thousands_of_problems_are_planned_once_each(void **state) {
    (void)state;
    enum { NUM_PROBLEMS = 3000 };
    struct log log = {0};
    libdecode_context *logging = open_grid(0, LIBDECODE_LOG_INFO, &log);
    libdecode_problem problem = llama3_8b();
    libdecode_tensors tensors = some_tensors();
    for (int round = 1; round <= 2; round++) {
        for (int batch = 1; batch <= NUM_PROBLEMS; batch++) {
            problem.batch_size = batch;
            expect_ok(libdecode_decode(logging, &problem, &tensors, NULL));
        }
        assert_int_equal(log.lines[LIBDECODE_LOG_INFO], NUM_PROBLEMS);
        assert_int_equal(fake->count("cuLaunchKernelEx"), round * NUM_PROBLEMS);
    }
    struct gqa_decode_params params;
    memcpy(&params, fake->last("cuLaunchKernelEx")->parameters, sizeof params);
    assert_int_equal(params.schedule.batch_size, NUM_PROBLEMS);
    assert_int_equal(log.lines[LIBDECODE_LOG_WARN], 0);
    libdecode_close(logging);
}

static void plans_of_cuda_contexts_that_ended_are_given_up(void **state) {
    (void)state;
    libdecode_problem problem = llama3_8b();
    libdecode_tensors tensors = some_tensors();
    for (int i = 0; i < 200; i++) { /* more contexts than the memo has places for one problem's neighbours */
        cuda_context cuda = fake->context_create(0);
        fake->context_set_current(cuda);
        for (int batch = 1; batch <= 60; batch++) {
            problem.batch_size = batch;
            expect_ok(libdecode_decode(context, &problem, &tensors, NULL));
        }
        fake->context_destroy(cuda);
    }
    assert_int_equal(fake->count("cuLaunchKernelEx"), 200 * 60);
    fake->context_set_current(fake->context_create(0));
}

struct worker {
    pthread_t thread;
    cuda_context cuda;
    int number;
    libdecode_status worst;
};

static void *decode_often(void *argument) {
    struct worker *worker = argument;
    libdecode_tensors tensors = some_tensors();
    fake->context_set_current(worker->cuda);
    for (int i = 0; i < 200; i++) {
        libdecode_problem problem = llama3_8b();
        problem.batch_size = 1 + i % 20; /* the same problems in all threads */
        libdecode_status status = libdecode_decode(context, &problem, &tensors, NULL);
        if (status != LIBDECODE_OK)
            worker->worst = status;
    }
    return NULL;
}

static void many_threads_share_a_context(void **state) {
    (void)state;
    struct worker workers[8];
    cuda_context cuda = fake->context_create(0);
    for (int i = 0; i < 8; i++) {
        workers[i] = (struct worker){.cuda = cuda, .number = i, .worst = LIBDECODE_OK};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, decode_often, &workers[i]), 0);
    }
    for (int i = 0; i < 8; i++) {
        assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
        assert_int_equal(workers[i].worst, LIBDECODE_OK);
    }
    assert_int_equal(fake->count("cuLaunchKernelEx"), 1600);
    assert_true(fake->count("cuModuleLoadData") <= 5); /* each kernel once: one for each cluster size, one that is asked with */
}

/* Where max_seq_len says more than how long sequences are expected to be, it is taken as it is. */
static void max_seq_len_is_rounded_only_where_it_is_a_hint(void **state) {
    (void)state;
    libdecode_problem problem = llama3_8b();
    const libdecode_tensors tensors = some_tensors();
    struct gqa_decode_params params;
    fake->forget_calls();
    problem.max_seq_len = 1000; /* and with no stride given the width of the page table: 63 pages, not the 64 of 1024 tokens */
    expect_ok(libdecode_decode(context, &problem, &tensors, NULL));
    memcpy(&params, fake->last("cuLaunchKernelEx")->parameters, sizeof params);
    assert_int_equal(params.schedule.page_table_request_stride, 63);

    problem.page_table_request_stride = 1 << 20;
    problem.max_seq_len = (1 << 29) + 1; /* of 2^30 tokens the last position would be beyond 2^31 */
    problem.position_stride = 2;
    problem.position_offset = 1;
    expect_ok(libdecode_decode(context, &problem, &tensors, NULL));
    problem.position_stride = 1;
    problem.max_seq_len = (1 << 30) - 5;
    problem.position_offset = (1 << 30) + 1;
    expect_ok(libdecode_decode(context, &problem, &tensors, NULL));
}

/* Contiguous KV has no page table whose width it could be. */
static void a_growing_batch_of_contiguous_kv_keeps_its_plan(void **state) {
    (void)state;
    struct log log = {0};
    libdecode_context *logging = open_grid(0, LIBDECODE_LOG_INFO, &log);
    libdecode_problem problem = llama3_8b();
    libdecode_tensors tensors = some_tensors();
    problem.features = LIBDECODE_FEATURE_CONTIGUOUS_KV;
    problem.page_size = 0;
    problem.kv_capacity_tokens = 8192;
    tensors.page_table = NULL;
    for (int length = 4096; length > 4000; length--) {
        problem.max_seq_len = length;
        expect_ok(libdecode_decode(logging, &problem, &tensors, NULL));
    }
    assert_int_equal(log.lines[LIBDECODE_LOG_INFO], 1);
    libdecode_close(logging);
}

/* What it is for: kernels are there before a capture begins, on whatever stream. */
static void preparing_is_allowed_whatever_a_stream_does(void **state) {
    (void)state;
    libdecode_context *strict = open_grid(LIBDECODE_OPEN_STRICT, LIBDECODE_LOG_NONE, NULL);
    const libdecode_problem problem = llama3_8b();
    libdecode_plan *plan = NULL;
    expect_ok(libdecode_plan_create(strict, &problem, NULL, &plan));
    fake->forget_calls();
    fake->set_capture(NULL, 1);
    expect_ok(libdecode_prepare(strict, &plan, 1));
    fake->set_capture(NULL, 0);
    assert_int_equal(fake->count("cuStreamIsCapturing"), 0);
    libdecode_plan_destroy(plan);
    libdecode_close(strict);
}

static void a_plan_tells_its_passes_and_its_prediction(void **state) {
    (void)state;
    libdecode_problem problem = llama3_8b();
    const libdecode_device device = preset("sm_90");
    libdecode_plan_info info = {.struct_size = sizeof info};
    libdecode_plan *plan = NULL;
    problem.num_qo_heads = 400;
    problem.num_kv_heads = 1;
    expect_ok(libdecode_plan_create(context, &problem, &device, &plan));
    expect_ok(libdecode_plan_get_info(plan, &info));
    int passes = 0, microseconds = 0;
    assert_int_equal(sscanf(info.reason, "predicted %d.%*d us at 4096 tokens a request: %d passes", &microseconds, &passes), 2);
    assert_true(passes > 1);
    assert_int_equal(info.row_passes, passes);
    assert_int_equal(info.predicted_ns / 1000, microseconds);
    libdecode_plan_destroy(plan);
}

/* Each gives back what it held the plan by, as a launch does. */
static void asking_for_the_workspace_again_allocates_nothing(void **state) {
    (void)state;
    const libdecode_problem problem = llama3_8b();
    size_t bytes = 0, again = 0;
    expect_ok(libdecode_decode_workspace_bytes(context, &problem, &bytes));
    expect_ok(libdecode_decode_workspace_bytes(context, &problem, &bytes));
    const size_t per_record = allocations_per_record();
    fake->forget_calls();
    watch_begin();
    const libdecode_status status = libdecode_decode_workspace_bytes(context, &problem, &again);
    const struct watch_counts counts = watch_end();
    expect_ok(status);
    assert_int_equal(again, bytes);
    assert_int_equal(counts.allocations, per_record * fake->calls());
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(a_plan_says_what_was_chosen),
        TEST(a_plan_for_another_gpu_needs_no_driver_and_is_refused_on_this_one),
        TEST(a_plan_notices_that_the_context_changed_to_another_gpu),
        TEST(null_arguments_are_named),
        TEST(a_plan_of_another_context_is_refused),
        TEST(a_workspace_is_made_ready_by_one_memset),
        TEST(prepare_loads_once_and_launches_load_no_more),
        TEST(a_cold_launch_in_a_capture_works_and_under_strict_says_what_to_do),
        TEST(the_launch_path_neither_allocates_nor_reads_the_environment),
        TEST(decode_remembers_its_plan),
        TEST(a_hint_that_changes_keeps_the_plan_of_sparse_attention),
        TEST(the_sum_of_the_lengths_may_change_with_every_step_too),
        TEST(thousands_of_problems_are_planned_once_each),
        TEST(plans_of_cuda_contexts_that_ended_are_given_up),
        TEST(many_threads_share_a_context),
        TEST(max_seq_len_is_rounded_only_where_it_is_a_hint),
        TEST(a_growing_batch_of_contiguous_kv_keeps_its_plan),
        TEST(preparing_is_allowed_whatever_a_stream_does),
        TEST(a_plan_tells_its_passes_and_its_prediction),
        TEST(asking_for_the_workspace_again_allocates_nothing),
    };
    return cmocka_run_group_tests_name("decode", tests, create_grid, destroy_grid);
}
