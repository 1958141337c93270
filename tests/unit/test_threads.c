/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_threads.c: many threads on one context, in several CUDA contexts that come and go: open, plan, prepare, launch, decode,
 * explain, close, more problems than can be remembered, and a log function that calls the library. For ThreadSanitizer above
 * all (-Db_sanitize=thread); without it, everything must still add up.
 */
#include "decode_scene.h"

#include <pthread.h>
#include <stdatomic.h>

enum { NUM_THREADS = 8, NUM_ROUNDS = 1500, NUM_LASTING = 3 };

static libdecode_plan *shared_plan;
static cuda_context lasting[NUM_LASTING];
static atomic_size_t num_launches, num_lines; /* relaxed: they must not order the threads for ThreadSanitizer */

struct worker {
    pthread_t thread;
    int number;
    libdecode_status worst;
    char message[512];
};

static void expect(struct worker *worker, libdecode_status status, libdecode_status expected) {
    if (status == expected || worker->worst != LIBDECODE_OK)
        return;
    worker->worst = status != LIBDECODE_OK ? status : LIBDECODE_ERROR_INTERNAL;
    (void)snprintf(worker->message, sizeof worker->message, "%s", libdecode_error_message());
}

static void call_back(void *cookie, libdecode_log_level level, const char *message) {
    libdecode_device device = LIBDECODE_DEVICE_INIT;
    (void)cookie, (void)level, (void)message;
    atomic_fetch_add_explicit(&num_lines, 1, memory_order_relaxed);
    (void)libdecode_device_preset("sm_0", &device);
}

static void launch_shared(struct worker *worker) {
    libdecode_tensors tensors = some_tensors();
    expect(worker, libdecode_plan_launch(shared_plan, &tensors, NULL), LIBDECODE_OK);
    atomic_fetch_add_explicit(&num_launches, 1, memory_order_relaxed);
}

/* Some of the same problems in all threads, and some that no other thread has: more than the memo has room for. */
static void decode_one(struct worker *worker, int round) {
    libdecode_problem problem = llama3_8b();
    libdecode_tensors tensors = some_tensors();
    problem.batch_size = round % 4 == 0 ? 1 + round % 32 : 100 + round * NUM_THREADS + worker->number;
    expect(worker, libdecode_decode(context, &problem, &tensors, NULL), LIBDECODE_OK);
    atomic_fetch_add_explicit(&num_launches, 1, memory_order_relaxed);
}

static void plan_one(struct worker *worker, int round) {
    libdecode_problem problem = llama3_8b();
    libdecode_tensors tensors = some_tensors();
    libdecode_plan *plan = NULL;
    size_t bytes = 0;
    problem.head_dim = round % 3 == 0 ? 64 : 128;
    problem.query_dtype = round % 2 == 0 ? LIBDECODE_DTYPE_FP16 : LIBDECODE_DTYPE_BF16;
    expect(worker, libdecode_plan_create(context, &problem, NULL, &plan), LIBDECODE_OK);
    expect(worker, libdecode_decode_workspace_bytes(context, &problem, &bytes), LIBDECODE_OK);
    expect(worker, libdecode_prepare(context, &plan, 1), LIBDECODE_OK);
    expect(worker, libdecode_plan_launch(plan, &tensors, NULL), LIBDECODE_OK);
    atomic_fetch_add_explicit(&num_launches, 1, memory_order_relaxed);
    libdecode_plan_destroy(plan);
}

static void look_inside(struct worker *worker) {
    libdecode_problem problem = llama3_8b();
    libdecode_device device = preset("sm_121");
    libdecode_kernel_info info = LIBDECODE_KERNEL_INFO_INIT;
    expect(worker, libdecode_explain(context, &problem, &device, NULL, NULL), LIBDECODE_OK);
    expect(worker, libdecode_kernel_get_info(context, (size_t)worker->number, &info), LIBDECODE_OK);
    problem.q_len = 2000;
    expect(worker, libdecode_explain(context, &problem, &device, NULL, NULL), LIBDECODE_ERROR_UNSUPPORTED);
    if (!strstr(libdecode_error_message(), "q_len")) /* and not what the log function's own call said */
        expect(worker, LIBDECODE_ERROR_INTERNAL, LIBDECODE_OK);
}

/* A CUDA context of this thread's own, which ends with its modules in it. */
static void come_and_go(struct worker *worker, int round) {
    cuda_context cuda = fake->context_create(0);
    fake->context_set_current(cuda);
    decode_one(worker, round);
    launch_shared(worker);
    fake->context_set_current(lasting[worker->number % NUM_LASTING]);
    fake->context_destroy(cuda);
}

static void open_another(struct worker *worker) {
    struct grid_options options;
    libdecode_context *opened = NULL;
    libdecode_problem problem = llama3_8b();
    libdecode_tensors tensors = some_tensors();
    grid_options(grid, &options);
    options.options.log_level = LIBDECODE_LOG_NONE;
    expect(worker, libdecode_open(&options.options, &opened), LIBDECODE_OK);
    expect(worker, libdecode_decode(opened, &problem, &tensors, NULL), LIBDECODE_OK);
    atomic_fetch_add_explicit(&num_launches, 1, memory_order_relaxed);
    libdecode_close(opened);
}

static void *work(void *argument) {
    struct worker *worker = argument;
    for (int round = 0; round < NUM_ROUNDS; round++) {
        fake->context_set_current(lasting[(worker->number + round / 10) % NUM_LASTING]);
        decode_one(worker, round);
        if (round % 8 == 1)
            launch_shared(worker);
        if (round % 50 == 7)
            plan_one(worker, round / 50);
        if (round % 100 == 3)
            come_and_go(worker, round);
        if (round % 200 == 9)
            look_inside(worker);
        if (round % 500 == 11)
            open_another(worker);
    }
    return NULL;
}

static void everything_at_once_adds_up(void **state) {
    (void)state;
    struct grid_options options;
    struct worker workers[NUM_THREADS];
    libdecode_close(context); /* of the scene: this one talks */
    grid_options(grid, &options);
    options.options.log_level = LIBDECODE_LOG_INFO;
    options.options.log = call_back;
    expect_ok(libdecode_open(&options.options, &context));
    for (int i = 0; i < NUM_LASTING; i++)
        lasting[i] = fake->context_create(0);
    libdecode_problem problem = llama3_8b();
    libdecode_device device = preset("sm_90");
    shared_plan = plan_for(&problem, &device);
    for (int i = 0; i < NUM_THREADS; i++) {
        workers[i] = (struct worker){.number = i, .worst = LIBDECODE_OK};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < NUM_THREADS; i++) {
        assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
        if (workers[i].worst != LIBDECODE_OK)
            fail_msg("thread %d: status %d, %s", i, (int)workers[i].worst, workers[i].message);
    }
    assert_int_equal(fake->count("cuLaunchKernelEx"), atomic_load(&num_launches));
    assert_true(atomic_load(&num_lines) > NUM_THREADS * NUM_ROUNDS / 2);
    libdecode_plan_destroy(shared_plan);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(everything_at_once_adds_up, begin, end)};
    return cmocka_run_group_tests_name("threads", tests, create_grid, destroy_grid);
}
