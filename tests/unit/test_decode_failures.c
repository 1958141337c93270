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
#include "watch.h"

/* One whole use of the library. Stops at the first error. */
static libdecode_status whole_use(libdecode_context *used) {
    libdecode_problem problem = llama3_8b();
    libdecode_tensors tensors = some_tensors();
    libdecode_device device = {.struct_size = sizeof device};
    libdecode_plan *plan = NULL;
    libdecode_status status = libdecode_device_current(used, &device);
    if (status == LIBDECODE_OK)
        status = libdecode_plan_create(used, &problem, NULL, &plan);
    if (status == LIBDECODE_OK)
        status = libdecode_workspace_init(used, tensors.workspace, tensors.workspace_bytes, NULL);
    if (status == LIBDECODE_OK)
        status = libdecode_prepare(used, &plan, 1);
    if (status == LIBDECODE_OK)
        status = libdecode_plan_launch(plan, &tensors, NULL);
    problem.head_dim = 64; /* cold */
    if (status == LIBDECODE_OK)
        status = libdecode_decode(used, &problem, &tensors, NULL);
    libdecode_plan_destroy(plan);
    return status;
}

static void every_driver_call_may_fail_once(void **state) {
    (void)state;
    size_t call = 1, failures = 0, ignored = 0;
    expect_ok(whole_use(context)); /* loads the driver, which happens once in a process (test_driver.c makes that fail) */
    for (;; call++) {
        libdecode_context *used = open_grid(0, LIBDECODE_LOG_NONE, NULL);
        fake->reset();
        fake->fail_at(call, 999);
        libdecode_status status = whole_use(used);
        bool failed = fake->failed() != 0;
        fake->fail_at(0, 0);
        if (failed && status == LIBDECODE_OK) {
            ignored++; /* two facts that a GPU may lack; and how many clusters fit, with the load of the kernel that is asked with */
            const struct fake_cuda_call *refused = fake->call(call - 1);
            assert_true(strcmp(refused->name, "cuDeviceGetAttribute") != 0 || refused->attribute == 36 ||
                        refused->attribute == 37);
            expect_ok(whole_use(used));
        } else if (failed) {
            failures++;
            assert_int_equal(status, LIBDECODE_ERROR_CUDA);
            assert_int_equal(libdecode_error_cuda_result(), 999);
            assert_non_null(strstr(libdecode_error_message(), fake->call(call - 1)->name));
            expect_ok(whole_use(used)); /* and nothing is broken by it */
        }
        libdecode_close(used);
        assert_int_equal(fake->live_modules(), 0);
        assert_int_equal(fake->misuses(), 0);
        if (!failed) {
            expect_ok(status);
            break;
        }
    }
    assert_true(failures > 15);
    assert_true(ignored <= 2 + 8 + 2 + 4); /* the two facts; loading; two attributes; four questions */
}

static void every_allocation_may_fail_once(void **state) {
    (void)state;
    struct grid_options options;
    libdecode_problem problem = llama3_8b();
    libdecode_device device = preset("sm_90");
    grid_options(grid, &options);
    options.options.kernel_policy = "deny=*_r32_*";
    size_t refused = 0;
    for (size_t n = 1; watch_fail_allocation(n); n++) {
        libdecode_context *opened = NULL;
        libdecode_plan *plan = NULL;
        libdecode_status status = libdecode_open(&options.options, &opened);
        if (status == LIBDECODE_OK)
            status = libdecode_plan_create(opened, &problem, &device, &plan);
        bool failed = watch_allocation_failed();
        if (status != LIBDECODE_OK || !failed) /* qsort, for one, manages without what it asked for */
            assert_int_equal(status, failed ? LIBDECODE_ERROR_OUT_OF_MEMORY : LIBDECODE_OK);
        refused += status != LIBDECODE_OK;
        libdecode_plan_destroy(plan);
        libdecode_close(opened);
        if (!failed) {
            assert_true(refused > 8);
            return;
        }
    }
    skip(); /* a sanitizer owns the allocator */
}

static void an_altered_image_never_reaches_the_driver(void **state) {
    (void)state;
    struct fixture_kernel kernel = {.name = "gqa_decode_qbf16_kvbf16_d128_r8_c1_sm90", .target = 90};
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
    grid = grid_create(7);
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
    pid_t child = fork();
    if (child == 0) {
        (void)unsetenv("LD_LIBRARY_PATH");
        (void)execl("/proc/self/exe", "test_decode_failures", "--without-driver", (char *)NULL);
        _exit(126);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
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
    return cmocka_run_group_tests_name("decode_failures", tests, create_grid, destroy_grid);
}
