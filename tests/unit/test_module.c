/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_module.c: kernels loaded once per context, in any number of threads, inside captures. Under test: loader/module.c, over
 * the fake driver. What fails, and the end: test_module_failures.c.
 */
#include "module_scene.h"

#include <pthread.h>
#include <stdio.h>

static void assert_calls(const char *const *names, size_t num_names) {
    for (size_t index = 0; index < num_names; index++) {
        assert_non_null(fake->call(index));
        assert_string_equal(fake->call(index)->name, names[index]);
    }
    assert_int_equal(fake->calls(), num_names);
}

/* ----------------------------------------------------------------------------------------------------------- loading */

static void the_first_call_loads_and_every_later_one_asks_only_for_the_context(void **state) {
    (void)state;
    static const char *const cold[] = {"cuCtxGetId",
                                       "cuCtxGetCurrent",
                                       "cuStreamIsCapturing",
                                       "cuThreadExchangeStreamCaptureMode",
                                       "cuModuleLoadData",
                                       "cuModuleGetFunction",
                                       "cuFuncSetAttribute",
                                       "cuFuncLoad",
                                       "cuThreadExchangeStreamCaptureMode"};
    static const char *const warm[] = {"cuCtxGetId"};
    cuda_function function = NULL, again = NULL;
    assert_int_equal(get(LARGE_SHARED, &function), LIBDECODE_OK);
    assert_calls(cold, sizeof cold / sizeof cold[0]);
    assert_string_equal(fake->last("cuModuleGetFunction")->kernel, "a_large_sm90");
    assert_ptr_equal(fake->last("cuModuleGetFunction")->function, function);
    assert_ptr_equal(fake->last("cuStreamIsCapturing")->stream, stream);
    fake->forget_calls();
    assert_int_equal(get(LARGE_SHARED, &again), LIBDECODE_OK);
    assert_calls(warm, 1);
    assert_ptr_equal(again, function);
    assert_int_equal(caught.warnings, 0);
}

static void the_driver_gets_the_bytes_of_the_image(void **state) {
    (void)state;
    void *image = NULL;
    cuda_function function = NULL;
    assert_int_equal(bundle_read_image(bundle, kernels[PLAIN].kernel->image, &image), LIBDECODE_OK);
    assert_int_equal(get(PLAIN, &function), LIBDECODE_OK);
    size_t image_bytes = (size_t)bundle_images(bundle)[kernels[PLAIN].kernel->image].image_bytes;
    assert_int_equal(fake->last("cuModuleLoadData")->image_bytes, image_bytes);
    assert_int_equal(fake->last("cuModuleLoadData")->image_hash, fake_cuda_hash(image, image_bytes));
    free(image);
}

static void attributes_are_set_where_the_contract_exceeds_what_is_portable(void **state) {
    (void)state;
    cuda_function function = NULL;
    assert_int_equal(get(PLAIN, &function), LIBDECODE_OK); /* 48 KiB and 8 CTAs: just portable */
    assert_int_equal(fake->count("cuFuncSetAttribute"), 0);
    assert_int_equal(get(LARGE_SHARED, &function), LIBDECODE_OK);
    assert_int_equal(fake->count("cuFuncSetAttribute"), 1);
    assert_int_equal(fake->last("cuFuncSetAttribute")->attribute, CUDA_FUNC_MAX_DYNAMIC_SHARED_SIZE_BYTES);
    assert_int_equal(fake->last("cuFuncSetAttribute")->value, 100 * 1024);
    assert_int_equal(get(WIDE_CLUSTER, &function), LIBDECODE_OK);
    assert_int_equal(fake->count("cuFuncSetAttribute"), 2);
    assert_int_equal(fake->last("cuFuncSetAttribute")->attribute, CUDA_FUNC_NON_PORTABLE_CLUSTER_SIZE_ALLOWED);
    assert_ptr_equal(fake->last("cuFuncSetAttribute")->function, function);
}

static void a_kernel_is_loaded_for_good_where_the_driver_can(void **state) {
    (void)state;
    static struct driver without; /* before CUDA 12.4 */
    cuda_function function = NULL;
    assert_int_equal(get(PLAIN, &function), LIBDECODE_OK);
    assert_ptr_equal(fake->last("cuFuncLoad")->function, function);
    assert_int_equal(fake->last("cuFuncLoad")->capture_mode, CUDA_CAPTURE_MODE_RELAXED);
    without = *driver;
    without.func_load = NULL;
    assert_int_equal(function_here(cache, &without, &kernels[SECOND_PLAIN], stream, 0, 0, &function), LIBDECODE_OK);
    assert_int_equal(fake->count("cuFuncLoad"), 1);
}

static void kernels_of_one_image_share_its_module(void **state) {
    (void)state;
    cuda_function first = NULL, second = NULL;
    assert_int_equal(get(LARGE_SHARED, &first), LIBDECODE_OK);
    assert_int_equal(get(WIDE_CLUSTER, &second), LIBDECODE_OK);
    assert_int_equal(fake->count("cuModuleLoadData"), 1);
    assert_int_equal(fake->count("cuModuleGetFunction"), 2);
    assert_ptr_not_equal(first, second);
}

static void every_context_has_its_own_module_and_a_reused_address_is_another_context(void **state) {
    (void)state;
    cuda_function first = NULL, second = NULL, third = NULL, again = NULL;
    cuda_context context = NULL;
    assert_int_equal(get(PLAIN, &first), LIBDECODE_OK);
    cuda_context other = fake->context_create(0);
    fake->context_set_current(other);
    assert_int_equal(get(PLAIN, &second), LIBDECODE_OK);
    assert_ptr_not_equal(first, second);
    fake->context_destroy(other);
    assert_ptr_equal(fake->context_create(0), other);
    fake->context_set_current(other);
    assert_int_equal(get(PLAIN, &third), LIBDECODE_OK);
    assert_ptr_not_equal(second, third);
    assert_int_equal(fake->count("cuModuleLoadData"), 3);
    assert_int_equal(get(PLAIN, &again), LIBDECODE_OK);
    assert_ptr_equal(again, third);
    assert_int_equal(driver->ctx_get_current(&context), 0);
    assert_ptr_equal(context, other);
}

/* So many that every list of the cache holds several of them. */
static void contexts_that_come_and_go_never_get_each_others_kernels(void **state) {
    (void)state;
    enum { NUM_CONTEXTS = 400, NUM_IMAGES = 3 };
    for (int index = 1; index <= NUM_CONTEXTS; index++) {
        cuda_context context = fake->context_create(0);
        fake->context_set_current(context);
        fake->forget_calls();
        for (int kernel = 0; kernel < NUM_KERNELS; kernel++) {
            cuda_function function = NULL;
            assert_int_equal(get(kernel, &function), LIBDECODE_OK);
            assert_ptr_equal(fake->last("cuModuleGetFunction")->function, function);
            assert_string_equal(fake->last("cuModuleGetFunction")->kernel, kernels[kernel].name);
        }
        assert_int_equal(fake->count("cuModuleLoadData"), NUM_IMAGES);
        assert_int_equal(fake->live_modules(), NUM_IMAGES);
        fake->context_destroy(context);
    }
}

/* The fake refuses a kernel that the image does not hold. */
static void every_kernel_of_many_images_comes_from_its_own(void **state) {
    (void)state;
    enum { NUM_IMAGES = 300 };
    static char names[NUM_IMAGES][24];
    static struct fixture_kernel list[NUM_IMAGES];
    struct bundle *many = NULL;
    struct kernel_table records = {0};
    size_t bytes;
    for (int index = 0; index < NUM_IMAGES; index++) {
        (void)snprintf(names[index], sizeof names[index], "k%03d_sm90", index);
        list[index] = (struct fixture_kernel){.name = names[index], .target = 90};
    }
    uint8_t *data = fixture_bundle(list, NUM_IMAGES, &bytes);
    assert_int_equal(bundle_open_memory(data, bytes, "many", &many), LIBDECODE_OK);
    assert_int_equal(kernel_table_build(&many, 1, &records), LIBDECODE_OK);
    for (int index = 0; index < NUM_IMAGES; index++) {
        cuda_function function = NULL;
        assert_int_equal(function_here(cache, driver, &records.records[index], stream, 0, 0, &function), LIBDECODE_OK);
        assert_string_equal(fake->last("cuModuleGetFunction")->kernel, names[index]);
    }
    assert_int_equal(fake->live_modules(), NUM_IMAGES);
    module_cache_destroy(cache); /* while its bundle is still there */
    cache = NULL;
    assert_int_equal(fake->live_modules(), 0);
    kernel_table_destroy(&records);
    bundle_close(many);
    free(data);
}

static void without_a_living_context_there_is_no_device(void **state) {
    (void)state;
    cuda_function function = NULL;
    cuda_context context = fake->context_create(0);
    fake->context_set_current(NULL);
    assert_int_equal(get(PLAIN, &function), LIBDECODE_ERROR_NO_DEVICE);
    assert_message_has("no current CUDA context");
    fake->context_set_current(context);
    fake->context_destroy(context);
    assert_int_equal(get(PLAIN, &function), LIBDECODE_ERROR_NO_DEVICE);
    assert_null(function);
}

static void a_driver_older_than_the_bundle_needs_is_refused_before_it_sees_the_image(void **state) {
    (void)state;
    static struct driver old; /* the cache keeps a pointer to the driver, which lives as long as the process */
    cuda_function function = NULL;
    old = *driver;
    old.version = 12080;
    assert_int_equal(function_here(cache, &old, &kernels[PLAIN], stream, 0, 0, &function), LIBDECODE_ERROR_DRIVER_TOO_OLD);
    assert_message_has("kernel c_plain_sm90 of bundle memory needs a driver for CUDA 13.0, this one is for 12.8");
    assert_int_equal(fake->count("cuModuleLoadData"), 0);
}

/* ----------------------------------------------------------------------------------------------------------- threads */

struct worker {
    pthread_t thread;
    cuda_context context;
    int kernel;
    cuda_function function;
    libdecode_status status;
};

static void *work(void *argument) {
    struct worker *worker = argument;
    fake->context_set_current(worker->context);
    worker->status = get(worker->kernel, &worker->function);
    for (int repeat = 0; repeat < 50 && worker->status == LIBDECODE_OK; repeat++) {
        cuda_function again = NULL;
        worker->status = get(worker->kernel, &again);
        if (again != worker->function)
            worker->function = NULL;
    }
    return NULL;
}

static void start_worker(struct worker *worker, cuda_context context, int kernel) {
    *worker = (struct worker){.context = context, .kernel = kernel};
    assert_int_equal(pthread_create(&worker->thread, NULL, work, worker), 0);
}

static void join_worker(struct worker *worker) {
    assert_int_equal(pthread_join(worker->thread, NULL), 0);
    assert_int_equal(worker->status, LIBDECODE_OK);
    assert_non_null(worker->function);
}

static void threads_that_race_for_a_kernel_load_it_once(void **state) {
    (void)state;
    enum { NUM_THREADS = 8 };
    struct worker workers[NUM_THREADS];
    cuda_context context = NULL;
    (void)driver->ctx_get_current(&context);
    fake->delay_call("cuModuleLoadData", 30000);
    for (int index = 0; index < NUM_THREADS; index++)
        start_worker(&workers[index], context, index % 2 ? LARGE_SHARED : WIDE_CLUSTER); /* of the same image */
    for (int index = 0; index < NUM_THREADS; index++)
        join_worker(&workers[index]);
    for (int index = 2; index < NUM_THREADS; index++)
        assert_ptr_equal(workers[index].function, workers[index - 2].function);
    assert_int_equal(fake->count("cuModuleLoadData"), 1);
    assert_int_equal(fake->count("cuModuleGetFunction"), 2);
}

static void threads_load_everything_in_every_context(void **state) {
    (void)state;
    enum { NUM_THREADS = 12 };
    struct worker workers[NUM_THREADS];
    cuda_context contexts[3];
    for (int index = 0; index < 3; index++)
        contexts[index] = fake->context_create(0);
    for (int index = 0; index < NUM_THREADS; index++)
        start_worker(&workers[index], contexts[index % 3], index / 3);
    for (int index = 0; index < NUM_THREADS; index++)
        join_worker(&workers[index]);
    assert_int_equal(fake->count("cuModuleLoadData"), 9); /* three images in three contexts */
    assert_int_equal(fake->live_modules(), 9);
}

/* Both loads are inside the driver at once, or neither would return: and meanwhile a warm kernel is served. */
static void different_images_load_at_the_same_time_and_no_load_holds_up_a_warm_kernel(void **state) {
    (void)state;
    struct worker first, second;
    cuda_function function = NULL;
    cuda_context context = NULL;
    (void)driver->ctx_get_current(&context);
    assert_int_equal(get(LARGE_SHARED, &function), LIBDECODE_OK);
    fake->meet_call("cuModuleLoadData", 2);
    start_worker(&first, context, PLAIN);
    assert_int_equal(get(LARGE_SHARED, &function), LIBDECODE_OK);
    assert_false(fake->met());
    start_worker(&second, context, SECOND_PLAIN);
    join_worker(&first);
    join_worker(&second);
    assert_true(fake->met());
}

/* ----------------------------------------------------------------------------------------------------------- capture */

static void a_cold_load_in_a_capture_is_relaxed_keeps_the_capture_and_warns(void **state) {
    (void)state;
    cuda_function function = NULL;
    fake->set_capture(stream, 1);
    assert_int_equal(get(LARGE_SHARED, &function), LIBDECODE_OK);
    assert_int_equal(fake->last("cuModuleLoadData")->capture_mode, CUDA_CAPTURE_MODE_RELAXED);
    assert_int_equal(fake->last("cuModuleGetFunction")->capture_mode, CUDA_CAPTURE_MODE_RELAXED);
    assert_int_equal(fake->last("cuFuncSetAttribute")->capture_mode, CUDA_CAPTURE_MODE_RELAXED);
    assert_int_equal(thread_capture_mode(), 0);
    assert_int_equal(fake->capture(stream), 1);
    assert_int_equal(caught.warnings, 1);
    assert_string_equal(caught.warning,
                        "kernel a_large_sm90 was loaded inside a stream capture; libdecode_prepare before the capture "
                        "avoids that");
    assert_int_equal(get(LARGE_SHARED, &function), LIBDECODE_OK);
    assert_int_equal(caught.warnings, 1);
}

static void every_load_is_relaxed_because_another_thread_may_be_capturing(void **state) {
    (void)state;
    cuda_function function = NULL;
    int mode = 1;
    assert_int_equal(driver->thread_exchange_stream_capture_mode(&mode), 0); /* the caller's own mode must come back */
    fake->set_capture(other_stream, 1);
    assert_int_equal(get(PLAIN, &function), LIBDECODE_OK);
    assert_int_equal(fake->last("cuModuleLoadData")->capture_mode, CUDA_CAPTURE_MODE_RELAXED);
    assert_int_equal(thread_capture_mode(), 1);
    assert_int_equal(caught.warnings, 0);
}

static void strict_refuses_a_cold_load_in_a_capture_and_names_the_remedy(void **state) {
    (void)state;
    cuda_function function = NULL;
    for (int status = 1; status <= 2; status++) {
        fake->set_capture(stream, status);
        assert_int_equal(get_strictly(PLAIN, &function), LIBDECODE_ERROR_COLD_IN_CAPTURE);
        assert_message_has("kernel c_plain_sm90");
        assert_message_has("call libdecode_prepare");
    }
    assert_null(function);
    assert_int_equal(fake->count("cuModuleLoadData"), 0);
    fake->set_capture(stream, 0);
    assert_int_equal(get_strictly(PLAIN, &function), LIBDECODE_OK);
    fake->set_capture(stream, 1);
    assert_int_equal(get_strictly(PLAIN, &function), LIBDECODE_OK);
}

static void preparing_asks_no_stream(void **state) {
    (void)state;
    cuda_function function = NULL;
    fake->set_capture(NULL, 1);
    assert_int_equal(function_here(cache, driver, &kernels[PLAIN], NULL, 1, 1, &function), LIBDECODE_OK);
    assert_int_equal(fake->count("cuStreamIsCapturing"), 0);
    assert_int_equal(caught.warnings, 0);
}

static void a_driver_that_refuses_the_load_in_a_capture_is_cold_in_capture(void **state) {
    (void)state;
    cuda_function function = NULL;
    for (cuda_result result = 900; result <= 901; result++) {
        fake->set_capture(stream, 1);
        fake->refuse_loads_in_capture(result);
        assert_int_equal(get(PLAIN, &function), LIBDECODE_ERROR_COLD_IN_CAPTURE);
        assert_message_has("kernel c_plain_sm90");
        assert_message_has("call libdecode_prepare");
        assert_int_equal(thread_capture_mode(), 0);
    }
    fake->set_capture(stream, 0);
    assert_int_equal(get(PLAIN, &function), LIBDECODE_OK);
}

static void a_stream_that_cannot_say_whether_it_captures_is_a_cuda_error(void **state) {
    (void)state;
    cuda_function function = NULL;
    fake->fail_call("cuStreamIsCapturing", 906);
    assert_int_equal(get(PLAIN, &function), LIBDECODE_ERROR_CUDA);
    assert_int_equal(libdecode_error_cuda_result(), 906);
    assert_message_has("cuStreamIsCapturing: CUDA_ERROR_STREAM_CAPTURE_IMPLICIT (906): loading kernel c_plain_sm90");
}

static void the_log_function_may_call_libdecode(void **state) {
    (void)state;
    cuda_function function = NULL;
    caught.calls_back = true;
    fake->set_capture(stream, 1);
    assert_int_equal(get(LARGE_SHARED, &function), LIBDECODE_OK);
    assert_int_equal(fake->count("cuModuleLoadData"), 2);
}

int main(void) {
    if (!scene_find_fake("test_module"))
        return 1;
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, scene_begin, scene_end)
        TEST(the_first_call_loads_and_every_later_one_asks_only_for_the_context),
        TEST(the_driver_gets_the_bytes_of_the_image),
        TEST(attributes_are_set_where_the_contract_exceeds_what_is_portable),
        TEST(a_kernel_is_loaded_for_good_where_the_driver_can),
        TEST(kernels_of_one_image_share_its_module),
        TEST(every_context_has_its_own_module_and_a_reused_address_is_another_context),
        TEST(contexts_that_come_and_go_never_get_each_others_kernels),
        TEST(every_kernel_of_many_images_comes_from_its_own),
        TEST(without_a_living_context_there_is_no_device),
        TEST(a_driver_older_than_the_bundle_needs_is_refused_before_it_sees_the_image),
        TEST(threads_that_race_for_a_kernel_load_it_once),
        TEST(threads_load_everything_in_every_context),
        TEST(different_images_load_at_the_same_time_and_no_load_holds_up_a_warm_kernel),
        TEST(a_cold_load_in_a_capture_is_relaxed_keeps_the_capture_and_warns),
        TEST(every_load_is_relaxed_because_another_thread_may_be_capturing),
        TEST(strict_refuses_a_cold_load_in_a_capture_and_names_the_remedy),
        TEST(preparing_asks_no_stream),
        TEST(a_driver_that_refuses_the_load_in_a_capture_is_cold_in_capture),
        TEST(a_stream_that_cannot_say_whether_it_captures_is_a_cuda_error),
        TEST(the_log_function_may_call_libdecode),
#undef TEST
    };
    return cmocka_run_group_tests(tests, scene_make_bundle, scene_free_bundle);
}
