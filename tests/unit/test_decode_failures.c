/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_decode_failures.c: every driver call and every allocation made to fail once, a damaged image, no CUDA context, a fork, no
 * driver: each a named error, and nothing broken by it.
 */
#define _POSIX_C_SOURCE 200809L /* fork, waitpid, unsetenv */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bundle_fixture.h"
#include "decode_scene.h"
#include "failing_malloc.h"
#include "run_again.h"

/* ------------------------------------------------------------------------------------------- everything fails once */

/* A life of the library, step by step. What a step writes only on success begins as a mark. */
struct life {
    struct grid_options options;
    libdecode_context *context;
    libdecode_plan *plan;
};

#define FEW_KERNELS "*_kvbf16_d*_r8_p16_c?_o0_*" /* of the grid: a life opens them anew, hundreds of times */

static char bundle_file[] = "/tmp/test_decode_failures_XXXXXX";

static libdecode_status open_step(struct life *life) {
    static const char *const paths[] = {bundle_file};
    grid_options(grid, &life->options);
    life->options.options.kernel_policy = "deny=*_c8_*";
    life->options.options.bundle_paths = paths;
    life->options.options.num_bundle_paths = 1;
    return libdecode_open(&life->options.options, &life->context);
}

static libdecode_status device_step(struct life *life) {
    libdecode_device device = LIBDECODE_DEVICE_INIT;
    libdecode_status status = libdecode_device_current(life->context, &device);
    assert_int_equal(device.sm_count, status == LIBDECODE_OK ? 132 : 0);
    return status;
}

static libdecode_status plan_step(struct life *life) {
    libdecode_problem problem = llama3_8b();
    return libdecode_plan_create(life->context, &problem, NULL, &life->plan);
}

static libdecode_status workspace_step(struct life *life) {
    libdecode_tensors tensors = some_tensors();
    return libdecode_workspace_init(life->context, tensors.workspace, tensors.workspace_bytes, NULL);
}

static libdecode_status prepare_step(struct life *life) { return libdecode_prepare(life->context, &life->plan, 1); }

static libdecode_status launch_step(struct life *life) {
    libdecode_tensors tensors = some_tensors();
    return libdecode_plan_launch(life->plan, &tensors, NULL);
}

static libdecode_status query_step(struct life *life) {
    libdecode_problem problem = llama3_8b();
    size_t bytes = 77;
    problem.batch_size = 5;
    libdecode_status status = libdecode_decode_workspace_bytes(life->context, &problem, &bytes);
    assert_int_equal(bytes == 77, status != LIBDECODE_OK);
    return status;
}

static libdecode_status decode_step(struct life *life) {
    libdecode_problem problem = llama3_8b();
    libdecode_tensors tensors = some_tensors();
    problem.head_dim = 64; /* cold */
    return libdecode_decode(life->context, &problem, &tensors, NULL);
}

static void count_verdict(void *cookie, const libdecode_verdict *verdict) { *(int *)cookie += verdict->chosen; }

static libdecode_status explain_step(struct life *life) {
    libdecode_problem problem = llama3_8b();
    libdecode_device device = preset("sm_120");
    int chosen = 0;
    libdecode_status status = libdecode_explain(life->context, &problem, &device, count_verdict, &chosen);
    assert_int_equal(chosen, status == LIBDECODE_OK);
    return status;
}

static libdecode_status verify_step(struct life *life) { return libdecode_verify(life->context); }

static libdecode_status (*const steps[])(struct life *life) = {
    open_step,  device_step, plan_step,    workspace_step, prepare_step, launch_step,
    query_step, decode_step, explain_step, verify_step,    launch_step,
};
enum { NUM_STEPS = sizeof steps / sizeof steps[0] };

struct outcome {
    libdecode_status status; /* of the first step that failed */
    size_t step;
    int cuda_result;
    char message[1024];
};

/* The steps from `first` on, up to one that fails. */
static struct outcome live(struct life *life, size_t first) {
    struct outcome outcome = {.step = first};
    for (; outcome.step < NUM_STEPS && outcome.status == LIBDECODE_OK; outcome.step++)
        outcome.status = steps[outcome.step](life);
    if (outcome.status != LIBDECODE_OK) {
        outcome.step--;
        outcome.cuda_result = libdecode_error_cuda_result();
        (void)snprintf(outcome.message, sizeof outcome.message, "%s", libdecode_error_message());
    }
    return outcome;
}

/* After a failure: nothing was made, the same call works now, and so does the rest. */
static void go_on(struct life *life, const struct outcome *outcome) {
    if (outcome->step == 0)
        assert_null(life->context);
    if (outcome->step <= 2)
        assert_null(life->plan);
    struct outcome rest = live(life, outcome->step);
    if (rest.status != LIBDECODE_OK)
        fail_msg("step %zu again: %s", rest.step, rest.message);
}

static void end_life(struct life *life) {
    libdecode_plan_destroy(life->plan);
    libdecode_close(life->context);
    assert_int_equal(fake->live_modules(), 0);
    assert_int_equal(fake->misuses(), 0);
}

/* So that only what a life does is counted: the driver is loaded once in a process (test_driver.c makes that fail). */
static void live_once(void) {
    struct life life = {.context = NULL};
    struct outcome outcome = live(&life, 0);
    if (outcome.status != LIBDECODE_OK)
        fail_msg("step %zu: %s", outcome.step, outcome.message);
    end_life(&life);
}

/* Two facts that a GPU may lack; and how many clusters fit, with the load of the kernel that is asked with. */
static bool may_be_ignored(const struct fake_cuda_call *call) {
    static const char *const names[] = {
        "cuCtxGetCurrent", "cuThreadExchangeStreamCaptureMode", "cuModuleLoadData", "cuFuncSetAttribute", "cuModuleGetFunction",
        "cuFuncLoad",      "cuOccupancyMaxActiveClusters"};
    if (strcmp(call->name, "cuDeviceGetAttribute") == 0)
        return call->attribute == 36 || call->attribute == 37;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(call->name, names[i]) == 0)
            return true;
    return false;
}

static void every_driver_call_may_fail_once(void **state) {
    (void)state;
    size_t failures = 0, ignored = 0, seen_in_step[NUM_STEPS] = {0};
    live_once();
    for (size_t call = 1;; call++) {
        struct life life = {.context = NULL};
        fake->reset();
        fake->fail_at(call, 999);
        struct outcome outcome = live(&life, 0);
        bool failed = fake->failed() != 0;
        fake->fail_at(0, 0);
        if (failed && outcome.status == LIBDECODE_OK) {
            ignored++;
            if (!may_be_ignored(fake->call(call - 1)))
                fail_msg("%s failed, and nobody noticed", fake->call(call - 1)->name);
        } else if (failed) {
            failures++;
            seen_in_step[outcome.step]++;
            assert_int_equal(outcome.status, LIBDECODE_ERROR_CUDA);
            assert_int_equal(outcome.cuda_result, 999);
            assert_non_null(strstr(outcome.message, fake->call(call - 1)->name));
            go_on(&life, &outcome);
        }
        end_life(&life);
        if (!failed)
            break;
    }
    assert_true(failures > 25);
    assert_in_range(ignored, 2 + 4, 2 + 8 + 2 + 4); /* facts; a load; two attributes; four questions */
    assert_true(seen_in_step[1] && seen_in_step[2] && seen_in_step[3] && seen_in_step[4] && seen_in_step[5] && seen_in_step[6] &&
                seen_in_step[7]);
    assert_int_equal(seen_in_step[0] + seen_in_step[8] + seen_in_step[9], 0); /* open, explain and verify need no driver */
}

static void every_allocation_may_fail_once(void **state) {
    (void)state;
    size_t failures = 0, ignored = 0, seen_in_step[NUM_STEPS] = {0};
    live_once();
    for (size_t n = 1;; n++) {
        struct life life = {.context = NULL};
        fake->reset();
        fail_allocation(n);
        struct outcome outcome = live(&life, 0);
        bool failed = allocation_failed();
        fail_allocation(0);
        if (failed && outcome.status == LIBDECODE_OK) {
            ignored++; /* how many clusters fit: the answer, or the load of the kernel that is asked with */
        } else if (failed) {
            failures++;
            seen_in_step[outcome.step]++;
            if (outcome.status != LIBDECODE_ERROR_OUT_OF_MEMORY)
                fail_msg("allocation %zu, step %zu: status %d, %s", n, outcome.step, (int)outcome.status, outcome.message);
            go_on(&life, &outcome);
        }
        end_life(&life);
        if (!failed)
            break;
    }
    assert_true(seen_in_step[0] > 15 && seen_in_step[1] && seen_in_step[2] && seen_in_step[4] && seen_in_step[6] &&
                seen_in_step[7] && seen_in_step[9]);
    assert_int_equal(seen_in_step[3] + seen_in_step[5] + seen_in_step[8] + seen_in_step[10], 0); /* and these allocate nothing */
    assert_true(ignored <= 7);
}

static void an_altered_image_never_reaches_the_driver(void **state) {
    (void)state;
    struct fixture_kernel kernel = {.name = "gqa_decode_kvbf16_d128_r8_p16_c1_o0_sm90", .target = 90};
    size_t bytes;
    uint8_t *data = fixture_bundle(&kernel, 1, &bytes);
    struct bundle_image *image = &fixture_images(data)[0];
    data[image->offset + image->frame_bytes / 2] ^= 1;
    libdecode_memory_bundle memory = {data, bytes};
    libdecode_open_options options = {.struct_size = sizeof options,
                                      .flags = LIBDECODE_OPEN_IGNORE_ENVIRONMENT | LIBDECODE_OPEN_BUNDLES_ONLY,
                                      .memory_bundles = &memory,
                                      .num_memory_bundles = 1};
    libdecode_context *opened;
    libdecode_problem problem = llama3_8b();
    libdecode_tensors tensors = some_tensors();
    expect_ok(libdecode_open(&options, &opened));
    expect_error(libdecode_verify(opened), LIBDECODE_ERROR_BUNDLE_DAMAGED, "memory");
    expect_error(libdecode_decode(opened, &problem, &tensors, NULL), LIBDECODE_ERROR_BUNDLE_DAMAGED, "memory");
    assert_int_equal(fake->count("cuModuleLoadData"), 0);
    libdecode_close(opened);
    free(data);
    expect_ok(libdecode_verify(context));
}

static void a_thread_without_a_cuda_context_is_told_so(void **state) {
    (void)state;
    libdecode_problem problem = llama3_8b();
    libdecode_tensors tensors = some_tensors();
    libdecode_plan *plan = plan_for(&problem, NULL), *other = NULL;
    fake->context_set_current(NULL);
    expect_error(libdecode_plan_launch(plan, &tensors, NULL), LIBDECODE_ERROR_NO_DEVICE, "no current CUDA context");
    expect_error(libdecode_plan_create(context, &problem, NULL, &other), LIBDECODE_ERROR_NO_DEVICE, "no current CUDA context");
    expect_error(libdecode_decode(context, &problem, &tensors, NULL), LIBDECODE_ERROR_NO_DEVICE, "no current CUDA context");
    libdecode_plan_destroy(plan);
}

/* In the child: exit status 0 if all is as it should be. */
static int use_after_fork(libdecode_plan *plan) {
    libdecode_problem problem = llama3_8b();
    libdecode_tensors tensors = some_tensors();
    libdecode_device device = preset("sm_90");
    libdecode_plan *other = NULL;
    if (libdecode_plan_launch(plan, &tensors, NULL) != LIBDECODE_ERROR_FORKED || !strstr(libdecode_error_message(), "fork"))
        return 1;
    if (libdecode_decode(context, &problem, &tensors, NULL) != LIBDECODE_ERROR_FORKED)
        return 2;
    if (libdecode_prepare(context, &plan, 1) != LIBDECODE_ERROR_FORKED)
        return 3;
    if (libdecode_plan_create(context, &problem, &device, &other) != LIBDECODE_OK)
        return 4;
    libdecode_plan_destroy(other);
    libdecode_plan_destroy(plan);
    libdecode_close(context);
    return 0;
}

static void a_forked_child_may_plan_but_not_launch(void **state) {
    (void)state;
    libdecode_problem problem = llama3_8b();
    libdecode_tensors tensors = some_tensors();
    libdecode_plan *plan = plan_for(&problem, NULL);
    expect_ok(libdecode_plan_launch(plan, &tensors, NULL));
    pid_t child = fork();
    if (child == 0)
        _exit(use_after_fork(plan));
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    expect_ok(libdecode_plan_launch(plan, &tensors, NULL));
    libdecode_plan_destroy(plan);
}

/* ------------------------------------------------------------------------------------------- without libcuda.so.1 */

/* In a process of its own, since the driver is looked for once. Exit status 0 if all is as it should be. */
static int use_without_driver(void) {
    if (dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL))
        return 0; /* a machine with a real driver cannot show its absence */
    grid = grid_create_part(7, FEW_KERNELS);
    context = open_grid(0, LIBDECODE_LOG_NONE, NULL);
    libdecode_problem problem = llama3_8b();
    libdecode_tensors tensors = some_tensors();
    libdecode_device device = {.struct_size = sizeof device};
    libdecode_plan *plan = NULL;
    if (libdecode_device_current(context, &device) != LIBDECODE_ERROR_NO_DRIVER ||
        !strstr(libdecode_error_message(), "libcuda.so.1"))
        return 1;
    if (libdecode_plan_create(context, &problem, NULL, &plan) != LIBDECODE_ERROR_NO_DRIVER || plan)
        return 2;
    if (libdecode_decode(context, &problem, &tensors, NULL) != LIBDECODE_ERROR_NO_DRIVER)
        return 3;
    if (libdecode_workspace_init(context, tensors.workspace, 1 << 20, NULL) != LIBDECODE_ERROR_NO_DRIVER)
        return 4;
    device = preset("sm_121");
    if (libdecode_plan_create(context, &problem, &device, &plan) != LIBDECODE_OK)
        return 5;
    if (libdecode_plan_launch(plan, &tensors, NULL) != LIBDECODE_ERROR_NO_DRIVER)
        return 6;
    if (libdecode_explain(context, &problem, &device, NULL, NULL) != LIBDECODE_OK || libdecode_verify(context) != LIBDECODE_OK)
        return 7;
    libdecode_plan_destroy(plan);
    libdecode_close(context);
    grid_destroy(grid);
    return 0;
}

static void without_a_driver_plans_and_explanations_work_and_launches_say_so(void **state) {
    (void)state;
    FILE *child = run_again("", "--without-driver");
    assert_non_null(child);
    assert_int_equal(pclose(child), 0);
}

static int create_grid_and_file(void **state) {
    if (create_grid(state) != 0)
        return -1;
    grid_destroy(grid);
    grid = grid_create_part(7, FEW_KERNELS);
    int descriptor = mkstemp(bundle_file);
    if (descriptor < 0 || close(descriptor) != 0)
        return -1;
    fixture_write_file(bundle_file, grid->data[0], grid->bytes[0]);
    return 0;
}

static int destroy_grid_and_file(void **state) {
    (void)unlink(bundle_file);
    return destroy_grid(state);
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "--without-driver") == 0)
        return use_without_driver();
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(every_driver_call_may_fail_once),           TEST(every_allocation_may_fail_once),
        TEST(an_altered_image_never_reaches_the_driver), TEST(a_thread_without_a_cuda_context_is_told_so),
        TEST(a_forked_child_may_plan_but_not_launch),    TEST(without_a_driver_plans_and_explanations_work_and_launches_say_so),
    };
    return cmocka_run_group_tests_name("decode_failures", tests, create_grid_and_file, destroy_grid_and_file);
}
