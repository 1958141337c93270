/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_module_failures.c: every call and every allocation of a load failing in turn, and the end of a cache with contexts
 * alive, dead and reused. Under test: loader/module.c, over the fake driver. What succeeds: test_module.c.
 */
#define _POSIX_C_SOURCE 200809L /* mkdtemp, fork under -std=c17 */

#include "module_scene.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "failing_malloc.h"

/* ---------------------------------------------------------------------------------------------------------- failures */

static void every_driver_call_may_fail_once_and_the_next_attempt_succeeds(void **state) {
    (void)state;
    size_t num_failures = 0;
    for (;; num_failures++) {
        cuda_function function = NULL;
        fake->fail_at(num_failures + 1, 2);
        libdecode_status status = get(LARGE_SHARED, &function);
        if (!fake->failed())
            break;
        assert_int_equal(status, LIBDECODE_ERROR_CUDA);
        assert_int_equal(libdecode_error_cuda_result(), 2);
        assert_null(function);
        assert_int_equal(get(LARGE_SHARED, &function), LIBDECODE_OK);
        assert_non_null(function);
        assert_int_equal(fake->live_modules(), 1);
        module_cache_destroy(cache);
        assert_int_equal(fake->live_modules(), 0);
        assert_int_equal(fake->misuses(), 0);
        assert_int_equal(scene_begin(NULL), 0);
    }
    assert_int_equal(num_failures, 9);
}

static void a_failed_load_says_which_kernel_and_what_to_do(void **state) {
    (void)state;
    static const struct {
        cuda_result result;
        const char *expected;
    } rows[] = {
        {2, "CUDA_ERROR_OUT_OF_MEMORY (2): loading kernel c_plain_sm90 of bundle memory; free device memory"},
        {200, "CUDA_ERROR_INVALID_IMAGE (200): loading kernel c_plain_sm90 of bundle memory; the image passed every check"},
        {209, "the current GPU is not the one that the plan was made for"},
        {700, "an earlier CUDA call may have failed"}};
    for (size_t index = 0; index < sizeof rows / sizeof rows[0]; index++) {
        cuda_function function = NULL;
        fake->fail_call("cuModuleLoadData", rows[index].result);
        assert_int_equal(get(PLAIN, &function), LIBDECODE_ERROR_CUDA);
        assert_int_equal(libdecode_error_cuda_result(), rows[index].result);
        assert_message_has(rows[index].expected);
    }
}

static void every_allocation_may_fail_once_and_the_next_attempt_succeeds(void **state) {
    (void)state;
    size_t num_failures = 0;
    for (;; num_failures++) {
        cuda_function function = NULL;
        fail_allocation(num_failures + 1);
        libdecode_status status = get(LARGE_SHARED, &function);
        if (!allocation_failed())
            break;
        assert_int_equal(status, LIBDECODE_ERROR_OUT_OF_MEMORY);
        assert_null(function);
        assert_int_equal(get(LARGE_SHARED, &function), LIBDECODE_OK);
        module_cache_destroy(cache);
        assert_int_equal(fake->live_modules(), 0);
        assert_int_equal(scene_begin(NULL), 0);
    }
    fail_allocation(0);
    assert_int_equal(num_failures, 5); /* slot, entry, image, zstd, list of kernels; 0: the test is not linked with --wrap */
    const struct log_sink sink = {.level = LIBDECODE_LOG_NONE};
    struct module_cache *none = NULL;
    fail_allocation(1);
    assert_int_equal(module_cache_create(&sink, &none), LIBDECODE_ERROR_OUT_OF_MEMORY);
    assert_null(none);
}

/* A bundle in a file that the test can damage and repair. */
struct file_bundle {
    char folder[64], path[128];
    struct bundle *bundle;
    struct kernel_table table;
};

static void open_file_bundle(struct file_bundle *file) {
    (void)snprintf(file->folder, sizeof file->folder, "/tmp/test_module_XXXXXX");
    assert_non_null(mkdtemp(file->folder));
    (void)snprintf(file->path, sizeof file->path, "%s/a.bundle", file->folder);
    fixture_write_file(file->path, bundle_data, bundle_bytes);
    assert_int_equal(bundle_open_file(file->path, &file->bundle), LIBDECODE_OK);
    assert_int_equal(kernel_table_build(&file->bundle, 1, &file->table), LIBDECODE_OK);
}

static void close_file_bundle(struct file_bundle *file) {
    kernel_table_destroy(&file->table);
    bundle_close(file->bundle);
    (void)unlink(file->path);
    (void)rmdir(file->folder);
}

static void a_damaged_image_is_final(void **state) {
    (void)state;
    struct file_bundle file;
    cuda_function function = NULL;
    char message[1024];
    open_file_bundle(&file);
    const struct kernel_record *record = &file.table.records[PLAIN];
    uint8_t *damaged = malloc(bundle_bytes);
    assert_non_null(damaged);
    memcpy(damaged, bundle_data, bundle_bytes);
    memset(damaged + bundle_images(file.bundle)[record->kernel->image].offset, 0, 4);
    fixture_write_file(file.path, damaged, bundle_bytes);
    assert_int_equal(function_here(cache, driver, record, stream, 0, 0, &function), LIBDECODE_ERROR_BUNDLE_DAMAGED);
    (void)snprintf(message, sizeof message, "%s", libdecode_error_message());
    fixture_write_file(file.path, bundle_data, bundle_bytes);
    assert_int_equal(function_here(cache, driver, record, stream, 0, 0, &function), LIBDECODE_ERROR_BUNDLE_DAMAGED);
    assert_string_equal(libdecode_error_message(), message);
    assert_int_equal(function_here(cache, driver, &file.table.records[LARGE_SHARED], stream, 0, 0, &function), LIBDECODE_OK);
    assert_int_equal(fake->count("cuModuleLoadData"), 1); /* the honest image */
    assert_int_equal(fake->count("cuThreadExchangeStreamCaptureMode"), 2);
    free(damaged);
    close_file_bundle(&file);
}

/* The one descriptor that is open on the file. */
static int descriptor_of(const char *path) {
    struct stat facts, other;
    assert_int_equal(stat(path, &facts), 0);
    for (int descriptor = 3; descriptor < 256; descriptor++)
        if (fstat(descriptor, &other) == 0 && other.st_ino == facts.st_ino && other.st_dev == facts.st_dev)
            return descriptor;
    return -1;
}

static void a_file_that_cannot_be_read_may_be_read_later(void **state) {
    (void)state;
    struct file_bundle file;
    cuda_function function = NULL;
    open_file_bundle(&file);
    const struct kernel_record *record = &file.table.records[PLAIN];
    int descriptor = descriptor_of(file.path), good = dup(descriptor), bad = open("/dev/null", O_WRONLY);
    assert_true(descriptor >= 0 && good >= 0 && bad >= 0);
    assert_int_equal(dup2(bad, descriptor), descriptor);
    assert_int_equal(function_here(cache, driver, record, stream, 0, 0, &function), LIBDECODE_ERROR_IO);
    assert_message_has(file.path);
    assert_int_equal(dup2(good, descriptor), descriptor);
    assert_int_equal(function_here(cache, driver, record, stream, 0, 0, &function), LIBDECODE_OK);
    (void)close(good);
    (void)close(bad);
    close_file_bundle(&file);
}

/* As where somebody copies a new file over the old one: for a moment it is short, afterwards whole again. */
static void a_file_that_was_short_for_a_moment_is_read_again(void **state) {
    (void)state;
    struct file_bundle file;
    cuda_function function = NULL;
    open_file_bundle(&file);
    const struct kernel_record *record = &file.table.records[PLAIN];
    assert_int_equal(truncate(file.path, (off_t)bundle_images(file.bundle)[record->kernel->image].offset + 1), 0);
    assert_int_equal(function_here(cache, driver, record, stream, 0, 0, &function), LIBDECODE_ERROR_IO);
    assert_message_has("bytes long when opened");
    fixture_write_file(file.path, bundle_data, bundle_bytes);
    assert_int_equal(function_here(cache, driver, record, stream, 0, 0, &function), LIBDECODE_OK);
    close_file_bundle(&file);
}

/* ----------------------------------------------------------------------------------------------------------- the end */

static void load_in(cuda_context context, int kernel) {
    cuda_function function = NULL;
    fake->context_set_current(context);
    assert_int_equal(get(kernel, &function), LIBDECODE_OK);
}

static void the_end_unloads_every_module_in_its_own_context(void **state) {
    (void)state;
    cuda_context first = fake->context_create(0), second = fake->context_create(0), current = NULL;
    load_in(first, PLAIN);
    load_in(first, LARGE_SHARED);
    load_in(second, PLAIN);
    load_in(second, SECOND_PLAIN);
    assert_int_equal(fake->live_modules(), 4);
    fake->set_capture(other_stream, 1);
    module_cache_destroy(cache);
    assert_int_equal(fake->live_modules(), 0);
    assert_int_equal(fake->count("cuModuleUnload"), 4);
    assert_int_equal(fake->count("cuCtxPushCurrent_v2"), 2);
    assert_int_equal(fake->count("cuCtxPopCurrent_v2"), 2);
    assert_int_equal(fake->last("cuModuleUnload")->capture_mode, CUDA_CAPTURE_MODE_RELAXED);
    assert_int_equal(fake->capture(other_stream), 1); /* somebody's capture outlives us */
    assert_int_equal(thread_capture_mode(), 0);
    (void)driver->ctx_get_current(&current);
    assert_ptr_equal(current, second);
    assert_int_equal(caught.warnings, 0);
    cache = NULL;
}

static void the_end_works_without_a_current_context(void **state) {
    (void)state;
    load_in(fake->context_create(0), PLAIN);
    fake->context_set_current(NULL);
    module_cache_destroy(cache);
    assert_int_equal(fake->live_modules(), 0);
    assert_int_equal(caught.warnings, 0);
    cache = NULL;
}

static void modules_of_dead_contexts_are_left_alone(void **state) {
    (void)state;
    cuda_context dead = fake->context_create(0), reused = fake->context_create(0), alive = fake->context_create(0);
    load_in(dead, PLAIN);
    load_in(reused, PLAIN);
    load_in(alive, PLAIN);
    fake->context_destroy(reused);
    assert_ptr_equal(fake->context_create(0), reused);
    fake->context_destroy(dead);
    fake->context_set_current(reused);
    module_cache_destroy(cache);
    assert_int_equal(fake->count("cuModuleUnload"), 1);
    assert_int_equal(fake->live_modules(), 0);
    assert_int_equal(caught.warnings, 0);
    cache = NULL;
}

static void a_module_that_cannot_be_unloaded_is_logged(void **state) {
    (void)state;
    cuda_function function = NULL;
    assert_int_equal(get(PLAIN, &function), LIBDECODE_OK);
    fake->fail_call("cuModuleUnload", 700);
    module_cache_destroy(cache);
    assert_int_equal(caught.warnings, 1);
    assert_non_null(strstr(caught.warning, "of bundle memory could not be unloaded: CUresult 700"));
    cache = NULL;
}

static void a_driver_that_is_shutting_down_takes_its_modules_along(void **state) {
    (void)state;
    static const char *const names[] = {"cuThreadExchangeStreamCaptureMode", "cuCtxGetId", "cuModuleUnload"};
    for (size_t index = 0; index < sizeof names / sizeof names[0]; index++) {
        cuda_function function = NULL;
        assert_int_equal(get(PLAIN, &function), LIBDECODE_OK);
        fake->fail_call(names[index], CUDA_RESULT_DEINITIALIZED);
        module_cache_destroy(cache);
        assert_int_equal(caught.warnings, 0);
        assert_int_equal(scene_begin(NULL), 0);
    }
}

static void every_driver_call_of_the_end_may_fail(void **state) {
    (void)state;
    size_t num_failures = 0;
    for (;; num_failures++) {
        cuda_context first = fake->context_create(0), second = fake->context_create(0);
        load_in(first, PLAIN);
        load_in(second, PLAIN);
        fake->fail_at(num_failures + 1, 999);
        module_cache_destroy(cache);
        assert_int_equal(fake->misuses(), 0);
        int failed = fake->failed();
        assert_int_equal(scene_begin(NULL), 0);
        if (!failed)
            break;
    }
    assert_true(num_failures >= 8); /* exchange twice, ids, push, two unloads, pop */
}

static void an_unused_cache_ends_without_a_driver_call(void **state) {
    (void)state;
    module_cache_destroy(cache);
    module_cache_destroy(NULL);
    assert_int_equal(fake->calls(), 0);
    cache = NULL;
}

static void after_a_fork_the_child_frees_its_memory_and_leaves_the_driver_alone(void **state) {
    (void)state;
    cuda_function function = NULL;
    int status = -1;
    assert_int_equal(get(PLAIN, &function), LIBDECODE_OK);
    pid_t child = fork();
    if (child == 0) {
        size_t calls = fake->calls();
        module_cache_destroy(cache);
        _exit(fake->calls() == calls && fake->misuses() == 0 ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_equal(fake->live_modules(), 1);
}

int main(void) {
    if (!scene_find_fake("test_module_failures"))
        return 1;
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, scene_begin, scene_end)
        TEST(every_driver_call_may_fail_once_and_the_next_attempt_succeeds),
        TEST(a_failed_load_says_which_kernel_and_what_to_do),
        TEST(every_allocation_may_fail_once_and_the_next_attempt_succeeds),
        TEST(a_damaged_image_is_final),
        TEST(a_file_that_cannot_be_read_may_be_read_later),
        TEST(a_file_that_was_short_for_a_moment_is_read_again),
        TEST(the_end_unloads_every_module_in_its_own_context),
        TEST(the_end_works_without_a_current_context),
        TEST(modules_of_dead_contexts_are_left_alone),
        TEST(a_module_that_cannot_be_unloaded_is_logged),
        TEST(a_driver_that_is_shutting_down_takes_its_modules_along),
        TEST(every_driver_call_of_the_end_may_fail),
        TEST(an_unused_cache_ends_without_a_driver_call),
        TEST(after_a_fork_the_child_frees_its_memory_and_leaves_the_driver_alone),
#undef TEST
    };
    return cmocka_run_group_tests(tests, scene_make_bundle, scene_free_bundle);
}
