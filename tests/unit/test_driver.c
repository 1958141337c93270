/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_driver.c: libcuda.so.1 absent, too old, failing, forked away from. Under test: loader/driver.c, with the fake driver.
 * driver.c opens the driver once per process, so every case is a process of its own: a fork of this one, which never calls
 * driver_get, or where another libcuda.so.1 must be found, this program again as `test_driver probe`.
 */
#define _GNU_SOURCE 1 /* dladdr: where the fake lies */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver.h"
#include "fake_cuda.h"
#include "run_again.h"

#if defined(__has_include)
#if __has_include(<cuda.h>)
#include <cuda.h>

/* Our own declarations against the toolkit's, where there is one. */
#define SAME_SIZE(ours, theirs) _Static_assert(sizeof(ours) == sizeof(theirs), #ours " has the size of " #theirs)
#define SAME_PLACE(ours, our_field, theirs, their_field)                                                                         \
    _Static_assert(offsetof(struct ours, our_field) == offsetof(theirs, their_field) &&                                          \
                       sizeof(((struct ours *)0)->our_field) == sizeof(((theirs *)0)->their_field),                              \
                   #ours "." #our_field " lies where " #theirs "." #their_field " does")
SAME_SIZE(struct cuda_launch_config, CUlaunchConfig);
SAME_SIZE(struct cuda_launch_attribute, CUlaunchAttribute);
SAME_SIZE(struct libdecode_tensor_map, CUtensorMap);
SAME_SIZE(cuda_address, CUdeviceptr);
SAME_SIZE(cuda_device, CUdevice);
SAME_SIZE(cuda_result, CUresult);
_Static_assert(_Alignof(struct cuda_launch_attribute) == _Alignof(CUlaunchAttribute), "arrays of attributes are aligned alike");
SAME_PLACE(cuda_launch_config, grid_x, CUlaunchConfig, gridDimX);
SAME_PLACE(cuda_launch_config, grid_z, CUlaunchConfig, gridDimZ);
SAME_PLACE(cuda_launch_config, block_x, CUlaunchConfig, blockDimX);
SAME_PLACE(cuda_launch_config, block_z, CUlaunchConfig, blockDimZ);
SAME_PLACE(cuda_launch_config, shared_bytes, CUlaunchConfig, sharedMemBytes);
SAME_PLACE(cuda_launch_config, stream, CUlaunchConfig, hStream);
SAME_PLACE(cuda_launch_config, attributes, CUlaunchConfig, attrs);
SAME_PLACE(cuda_launch_config, num_attributes, CUlaunchConfig, numAttrs);
SAME_PLACE(cuda_launch_attribute, id, CUlaunchAttribute, id);
SAME_PLACE(cuda_launch_attribute, value, CUlaunchAttribute, value);
SAME_PLACE(cuda_launch_attribute, value.cluster.z, CUlaunchAttribute, value.clusterDim.z);
SAME_PLACE(cuda_launch_attribute, value.programmatic, CUlaunchAttribute, value.programmaticStreamSerializationAllowed);
#define SAME_NUMBER(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #ours " is " #theirs)
SAME_NUMBER(CUDA_RESULT_SUCCESS, CUDA_SUCCESS);
SAME_NUMBER(CUDA_RESULT_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
SAME_NUMBER(CUDA_RESULT_DEINITIALIZED, CUDA_ERROR_DEINITIALIZED);
SAME_NUMBER(CUDA_RESULT_NO_DEVICE, CUDA_ERROR_NO_DEVICE);
SAME_NUMBER(CUDA_RESULT_INVALID_IMAGE, CUDA_ERROR_INVALID_IMAGE);
SAME_NUMBER(CUDA_RESULT_INVALID_CONTEXT, CUDA_ERROR_INVALID_CONTEXT);
SAME_NUMBER(CUDA_RESULT_NO_BINARY_FOR_GPU, CUDA_ERROR_NO_BINARY_FOR_GPU);
SAME_NUMBER(CUDA_RESULT_CONTEXT_IS_DESTROYED, CUDA_ERROR_CONTEXT_IS_DESTROYED);
SAME_NUMBER(CUDA_RESULT_STREAM_CAPTURE_UNSUPPORTED, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
SAME_NUMBER(CUDA_RESULT_STREAM_CAPTURE_INVALIDATED, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
SAME_NUMBER(CUDA_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED);
SAME_NUMBER(CUDA_FUNC_MAX_DYNAMIC_SHARED_SIZE_BYTES, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
SAME_NUMBER(CUDA_FUNC_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED);
#endif
#endif

#define UNKNOWN_RESULT 999

/* ------------------------------------------------------------------------------------------------ a process per case */

/* In a child a failed check cannot reach cmocka: it says so and ends the case. */
#define CHECK(condition)                                                                                                         \
    do {                                                                                                                         \
        if (!(condition)) {                                                                                                      \
            (void)fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, libdecode_error_message());                 \
            return 1;                                                                                                            \
        }                                                                                                                        \
    } while (0)

static int run_in_child(int (*body)(const struct fake_cuda *fake)) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const struct fake_cuda *fake = fake_cuda();
        fake->reset();
        _exit(body(fake));
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

/* What `test_driver probe` prints: whether dlopen finds any libcuda.so.1, then status and message of driver_get. */
struct probe {
    int has_library;
    int status;
    char message[1024];
};

static int run_probe(void) {
    const struct driver *driver = NULL;
    int has_library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL) != NULL;
    libdecode_status status = driver_get(&driver);
    (void)printf("%d %d %s\n", has_library, (int)status, libdecode_error_message());
    return 0;
}

/* Runs this program as a probe that looks for the driver in `folder` first. */
static struct probe probe_in(const char *folder) {
    struct probe probe = {.status = -1};
    FILE *output = run_again(folder, "probe");
    assert_non_null(output);
    assert_int_equal(fscanf(output, "%d %d %1023[^\n]", &probe.has_library, &probe.status, probe.message) >= 2, 1);
    assert_int_equal(pclose(output), 0);
    return probe;
}

/* --------------------------------------------------------------------------------------- a libcuda.so.1 lacks a symbol */

struct file_bytes {
    char *bytes;
    size_t size;
};

static struct file_bytes read_fake(void) {
    Dl_info where;
    struct file_bytes file = {0};
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    assert_non_null(library);
    assert_int_not_equal(dladdr(dlsym(library, "fake_cuda_controls"), &where), 0);
    FILE *stream = fopen(where.dli_fname, "rb");
    assert_non_null(stream);
    assert_int_equal(fseek(stream, 0, SEEK_END), 0);
    file.size = (size_t)ftell(stream);
    rewind(stream);
    file.bytes = malloc(file.size);
    assert_non_null(file.bytes);
    assert_int_equal(fread(file.bytes, 1, file.size, stream), file.size);
    (void)fclose(stream);
    return file;
}

/* Wherever the whole string stands in the file, also in the table that dlsym looks through. */
static size_t replace_first_letter(struct file_bytes file, const char *name, char from, char to) {
    size_t bytes = strlen(name) + 1, count = 0;
    for (size_t offset = 1; offset + bytes <= file.size; offset++) {
        if (file.bytes[offset - 1] == '\0' && file.bytes[offset] == from &&
            memcmp(file.bytes + offset + 1, name + 1, bytes - 1) == 0) {
            file.bytes[offset] = to;
            count++;
        }
    }
    return count;
}

static void write_library(const char *folder, const void *bytes, size_t size) {
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/libcuda.so.1", folder);
    FILE *stream = fopen(path, "wb");
    assert_non_null(stream);
    assert_int_equal(fwrite(bytes, 1, size, stream), size);
    assert_int_equal(fclose(stream), 0);
}

static void remove_folder(const char *folder) {
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/libcuda.so.1", folder);
    (void)unlink(path);
    (void)rmdir(folder);
}

static void a_driver_without_one_of_the_calls_is_too_old_and_the_message_names_the_call(void **state) {
    (void)state;
    static const struct {
        const char *symbol, *since;
    } rows[] = {
        {"cuInit", "2.0"},
        {"cuDriverGetVersion", "2.2"},
        {"cuGetErrorName", "6.0"},
        {"cuDeviceGetCount", "2.0"},
        {"cuDeviceGet", "2.0"},
        {"cuDeviceGetAttribute", "2.0"},
        {"cuDeviceGetName", "2.0"},
        {"cuCtxGetCurrent", "4.0"},
        {"cuCtxGetDevice", "2.0"},
        {"cuCtxGetId", "12.0"},
        {"cuCtxPushCurrent_v2", "4.0"},
        {"cuCtxPopCurrent_v2", "4.0"},
        {"cuModuleLoadData", "2.0"},
        {"cuModuleUnload", "2.0"},
        {"cuModuleGetFunction", "2.0"},
        {"cuFuncSetAttribute", "9.0"},
        {"cuLaunchKernelEx", "11.6"},
        {"cuStreamIsCapturing", "10.0"},
        {"cuThreadExchangeStreamCaptureMode", "10.1"},
        {"cuMemcpyHtoDAsync_v2", "3.2"},
        {"cuMemsetD8Async", "3.2"},
        {"cuOccupancyMaxActiveClusters", "11.8"},
        {"cuTensorMapEncodeTiled", "12.0"},
    };
    char folder[] = "/tmp/test_driver_XXXXXX", expected[128];
    assert_non_null(mkdtemp(folder));
    struct file_bytes file = read_fake();
    for (size_t index = 0; index < sizeof rows / sizeof rows[0]; index++) {
        assert_true(replace_first_letter(file, rows[index].symbol, 'c', 'x') > 0);
        write_library(folder, file.bytes, file.size);
        struct probe probe = probe_in(folder);
        assert_int_equal(probe.status, LIBDECODE_ERROR_DRIVER_TOO_OLD);
        (void)snprintf(expected, sizeof expected, "libcuda.so.1 (CUDA %s) lacks %s, which came with CUDA %s;",
                       strcmp(rows[index].symbol, "cuDriverGetVersion") == 0 ? "0.0" : "13.0", rows[index].symbol,
                       rows[index].since);
        assert_memory_equal(probe.message, expected, strlen(expected));
        (void)replace_first_letter(file, rows[index].symbol, 'x', 'c');
    }
    write_library(folder, file.bytes, file.size);
    assert_int_equal(probe_in(folder).status, LIBDECODE_OK);
    free(file.bytes);
    remove_folder(folder);
}

static void without_a_driver_the_message_says_what_dlopen_said(void **state) {
    (void)state;
    char folder[] = "/tmp/test_driver_XXXXXX";
    assert_non_null(mkdtemp(folder));
    struct probe absent = probe_in(folder); /* unless this machine has a driver of its own */
    assert_int_equal(absent.status == LIBDECODE_ERROR_NO_DRIVER, !absent.has_library);
    write_library(folder, "no library", 10);
    struct probe garbage = probe_in(folder);
    assert_int_equal(garbage.status, LIBDECODE_ERROR_NO_DRIVER);
    assert_non_null(strstr(garbage.message, "libcuda.so.1 cannot be loaded ("));
    assert_non_null(strstr(garbage.message, folder));
    assert_non_null(strstr(garbage.message, "install the NVIDIA driver"));
    remove_folder(folder);
}

/* ----------------------------------------------------------------------------------------------- the driver is there */

static int find_every_call(const struct fake_cuda *fake) {
    const struct driver *driver = NULL, *again = NULL;
    fake->set_driver_version(12080);
    CHECK(driver_get(&driver) == LIBDECODE_OK);
    CHECK(driver->version == 12080);
    CHECK(driver->init && driver->driver_get_version && driver->get_error_name && driver->device_get_count);
    CHECK(driver->device_get && driver->device_get_attribute && driver->device_get_name && driver->ctx_get_current);
    CHECK(driver->ctx_get_device && driver->ctx_get_id && driver->ctx_push_current && driver->ctx_pop_current);
    CHECK(driver->module_load_data && driver->module_unload && driver->module_get_function && driver->func_set_attribute);
    CHECK(driver->launch_kernel_ex && driver->stream_is_capturing && driver->thread_exchange_stream_capture_mode);
    CHECK(driver->memcpy_htod_async && driver->memset_d8_async && driver->tensor_map_encode_tiled && driver->func_load &&
          driver->occupancy_max_active_clusters);
    CHECK(driver_get(&again) == LIBDECODE_OK && again == driver);
    CHECK(fake->count("cuInit") == 1);
    CHECK(!driver_forked());
    return 0;
}

/* Each pointer leads to the call it is named after: the fake records the exported name. */
static int call_by_call(const struct fake_cuda *fake) {
    const struct driver *driver = NULL;
    CHECK(driver_get(&driver) == LIBDECODE_OK);
#define LEADS_TO(name, ...)                                                                                                      \
    do {                                                                                                                         \
        fake->forget_calls();                                                                                                    \
        (void)driver->__VA_ARGS__;                                                                                               \
        CHECK(fake->calls() == 1 && fake->count(name) == 1);                                                                     \
    } while (0)
    int number = 0;
    char text[8];
    const char *error_name = NULL;
    unsigned long long id = 0;
    cuda_context context = NULL;
    cuda_module module = NULL;
    cuda_function function = NULL;
    struct cuda_launch_config config = {0};
    struct libdecode_tensor_map map;
    const char no_image[16] = {0};
    LEADS_TO("cuInit", init(0));
    LEADS_TO("cuDriverGetVersion", driver_get_version(&number));
    LEADS_TO("cuGetErrorName", get_error_name(0, &error_name));
    LEADS_TO("cuDeviceGetCount", device_get_count(&number));
    LEADS_TO("cuDeviceGet", device_get(&number, 0));
    LEADS_TO("cuDeviceGetAttribute", device_get_attribute(&number, 16, 0));
    LEADS_TO("cuDeviceGetName", device_get_name(text, sizeof text, 0));
    LEADS_TO("cuCtxGetCurrent", ctx_get_current(&context));
    LEADS_TO("cuCtxGetDevice", ctx_get_device(&number));
    LEADS_TO("cuCtxGetId", ctx_get_id(NULL, &id));
    LEADS_TO("cuCtxPushCurrent_v2", ctx_push_current(context));
    LEADS_TO("cuCtxPopCurrent_v2", ctx_pop_current(&context));
    LEADS_TO("cuModuleLoadData", module_load_data(&module, no_image));
    LEADS_TO("cuModuleUnload", module_unload(NULL));
    LEADS_TO("cuModuleGetFunction", module_get_function(&function, NULL, "k"));
    LEADS_TO("cuFuncSetAttribute", func_set_attribute(NULL, 8, 0));
    LEADS_TO("cuLaunchKernelEx", launch_kernel_ex(&config, NULL, NULL, NULL));
    LEADS_TO("cuStreamIsCapturing", stream_is_capturing(NULL, &number));
    number = 0;
    LEADS_TO("cuThreadExchangeStreamCaptureMode", thread_exchange_stream_capture_mode(&number));
    LEADS_TO("cuMemcpyHtoDAsync_v2", memcpy_htod_async(4, text, 1, NULL));
    LEADS_TO("cuMemsetD8Async", memset_d8_async(4, 0, 1, NULL));
    LEADS_TO("cuFuncLoad", func_load(NULL));
    LEADS_TO("cuOccupancyMaxActiveClusters", occupancy_max_active_clusters(&number, NULL, &config));
    LEADS_TO("cuTensorMapEncodeTiled", tensor_map_encode_tiled(&map, 0, 0, NULL, NULL, NULL, NULL, NULL, 0, 0, 0, 0));
#undef LEADS_TO
    return 0;
}

static int exit_status_of_fork(int (*body)(void)) {
    int status = -1;
    pid_t child = fork();
    if (child == 0)
        _exit(body());
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

static int has_a_driver_of_its_own(void) {
    const struct driver *driver = NULL;
    CHECK(driver_get(&driver) == LIBDECODE_OK);
    return 0;
}

static int has_a_driver_of_its_own_in_time(void) {
    (void)alarm(20);
    return has_a_driver_of_its_own();
}

static int sees_init_fail(void) {
    const struct driver *driver = NULL;
    CHECK(driver_get(&driver) == LIBDECODE_ERROR_CUDA && libdecode_error_cuda_result() == UNKNOWN_RESULT);
    return 0;
}

static int try_a_failing_init_again(const struct fake_cuda *fake) {
    const struct driver *driver = NULL;
    fake->fail_call("cuInit", UNKNOWN_RESULT);
    for (int attempt = 0; attempt < 2; attempt++) {
        (void)libdecode_error_message();
        CHECK(driver_get(&driver) == LIBDECODE_ERROR_CUDA);
        CHECK(libdecode_error_cuda_result() == UNKNOWN_RESULT);
        CHECK(strncmp(libdecode_error_message(), "cuInit: CUDA_ERROR_UNKNOWN (999): ", 34) == 0);
    }
    CHECK(driver == NULL);
    CHECK(fake->count("cuInit") == 2);
    CHECK(exit_status_of_fork(sees_init_fail) == 0); /* the failure is the child's too, the fork is none of it */
    fake->fail_call("cuInit", 0);
    CHECK(exit_status_of_fork(has_a_driver_of_its_own) == 0);
    CHECK(driver_get(&driver) == LIBDECODE_OK);
    CHECK(fake->count("cuInit") == 3 && fake->misuses() == 0);
    return 0;
}

static int see_no_gpu(const struct fake_cuda *fake) {
    const struct driver *driver = NULL;
    fake->set_device_count(0);
    CHECK(driver_get(&driver) == LIBDECODE_ERROR_NO_DEVICE);
    CHECK(strstr(libdecode_error_message(), "sees no GPU") != NULL);
    CHECK(libdecode_error_cuda_result() == 0);
    fake->set_device_count(1);
    CHECK(driver_get(&driver) == LIBDECODE_OK);
    return 0;
}

static size_t failing_call; /* which of the calls of driver_get fails in the child */

/* Exit status 3 says that driver_get has fewer calls than that. */
static int fail_one_call(const struct fake_cuda *fake) {
    const struct driver *driver = NULL;
    fake->fail_at(failing_call, UNKNOWN_RESULT);
    libdecode_status status = driver_get(&driver);
    if (!fake->failed()) {
        CHECK(status == LIBDECODE_OK);
        return 3;
    }
    CHECK(status == LIBDECODE_ERROR_CUDA && libdecode_error_cuda_result() == UNKNOWN_RESULT && !driver);
    return 0;
}

static int describe_results(const struct fake_cuda *fake) {
    const struct driver *driver = NULL;
    (void)fake;
    CHECK(driver_get(&driver) == LIBDECODE_OK);
    CHECK(driver_fail(driver, 700, "cuX", "doing it; remedy") == LIBDECODE_ERROR_CUDA);
    CHECK(strcmp(libdecode_error_message(), "cuX: CUDA_ERROR_ILLEGAL_ADDRESS (700): doing it; remedy") == 0);
    CHECK(libdecode_error_cuda_result() == 700);
    (void)driver_fail(driver, 12345, "cuX", "doing it");
    CHECK(strcmp(libdecode_error_message(), "cuX: unknown CUresult (12345): doing it") == 0);
    return 0;
}

static int is_told_of_the_fork(void) {
    const struct driver *driver = NULL;
    CHECK(driver_forked());
    CHECK(driver_get(&driver) == LIBDECODE_ERROR_FORKED);
    CHECK(strstr(libdecode_error_message(), "fork before the first CUDA call") != NULL);
    CHECK(driver == NULL);
    CHECK(fake_cuda()->misuses() == 0);
    return 0;
}

static int is_told_of_a_fork_it_did_not_see(void) {
    const struct driver *driver = NULL;
    CHECK(driver_get(&driver) == LIBDECODE_ERROR_FORKED);
    CHECK(strstr(libdecode_error_message(), "cuInit: CUDA_ERROR_NOT_INITIALIZED: this process is a fork of one") != NULL);
    CHECK(driver == NULL);
    CHECK(fake_cuda()->misuses() == 0);
    return 0;
}

static int is_told_in_the_second_generation_too(void) { return exit_status_of_fork(is_told_of_the_fork); }

static int fork_after_the_driver(const struct fake_cuda *fake) {
    const struct driver *driver = NULL;
    CHECK(exit_status_of_fork(has_a_driver_of_its_own) == 0);
    CHECK(driver_get(&driver) == LIBDECODE_OK);
    CHECK(exit_status_of_fork(is_told_of_the_fork) == 0);
    CHECK(exit_status_of_fork(is_told_in_the_second_generation_too) == 0);
    CHECK(driver_get(&driver) == LIBDECODE_OK && !driver_forked());
    CHECK(fake->misuses() == 0);
    return 0;
}

/* Somebody else in the parent, PyTorch say, started the driver; libdecode first comes to it in the child. */
static int fork_before_libdecode_comes_to_the_driver(const struct fake_cuda *fake) {
    cuda_result (*init)(unsigned) = NULL;
    void *symbol = dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), "cuInit");
    memcpy(&init, &symbol, sizeof init);
    CHECK(init && init(0) == CUDA_RESULT_SUCCESS);
    CHECK(exit_status_of_fork(is_told_of_a_fork_it_did_not_see) == 0);
    CHECK(fake->misuses() == 0);
    return 0;
}

static void *get_driver(void *ret_driver) {
    if (driver_get(ret_driver) != LIBDECODE_OK)
        *(const struct driver **)ret_driver = NULL;
    return NULL;
}

static int race_for_the_driver(const struct fake_cuda *fake) {
    enum { NUM_THREADS = 8 };
    pthread_t threads[NUM_THREADS];
    const struct driver *drivers[NUM_THREADS] = {0};
    fake->delay_call("cuInit", 20000);
    for (int index = 0; index < NUM_THREADS; index++)
        CHECK(pthread_create(&threads[index], NULL, get_driver, &drivers[index]) == 0);
    for (int index = 0; index < NUM_THREADS; index++) {
        CHECK(pthread_join(threads[index], NULL) == 0);
        CHECK(drivers[index] && drivers[index] == drivers[0]);
    }
    CHECK(fake->count("cuInit") == 1);
    return 0;
}

/* A thread is loading the driver, and holds what the child would wait for. */
static int fork_while_the_driver_is_loaded(const struct fake_cuda *fake) {
    pthread_t loader;
    const struct driver *driver = NULL;
    fake->delay_call("cuDriverGetVersion", 300000);
    CHECK(pthread_create(&loader, NULL, get_driver, &driver) == 0);
    (void)usleep(100000);
    CHECK(exit_status_of_fork(has_a_driver_of_its_own_in_time) == 0);
    CHECK(pthread_join(loader, NULL) == 0 && driver);
    return 0;
}

static void every_call_is_found_and_the_driver_is_initialised_once(void **state) {
    (void)state;
    assert_int_equal(run_in_child(find_every_call), 0);
}

static void every_pointer_leads_to_the_call_it_is_named_after(void **state) {
    (void)state;
    assert_int_equal(run_in_child(call_by_call), 0);
}

static void a_failing_init_is_tried_again_by_the_next_call(void **state) {
    (void)state;
    assert_int_equal(run_in_child(try_a_failing_init_again), 0);
}

static void a_driver_without_a_gpu_is_no_device(void **state) {
    (void)state;
    assert_int_equal(run_in_child(see_no_gpu), 0);
}

static void every_failing_call_of_the_start_is_an_error(void **state) {
    (void)state;
    int exit_status = 0;
    for (failing_call = 1; exit_status == 0; failing_call++)
        exit_status = run_in_child(fail_one_call);
    assert_int_equal(exit_status, 3);
    assert_true(failing_call > 3); /* cuDriverGetVersion and cuInit at least */
}

static void a_failed_call_is_described_with_the_name_of_its_result(void **state) {
    (void)state;
    assert_int_equal(run_in_child(describe_results), 0);
}

static void a_fork_of_a_process_that_used_the_driver_is_told_so(void **state) {
    (void)state;
    assert_int_equal(run_in_child(fork_after_the_driver), 0);
}

static void a_fork_before_the_first_driver_call_is_named_too(void **state) {
    (void)state;
    assert_int_equal(run_in_child(fork_before_libdecode_comes_to_the_driver), 0);
}

static void a_fork_while_the_driver_is_loaded_leaves_no_lock_behind(void **state) {
    (void)state;
    assert_int_equal(run_in_child(fork_while_the_driver_is_loaded), 0);
}

static void threads_that_race_for_the_driver_get_the_same_one(void **state) {
    (void)state;
    assert_int_equal(run_in_child(race_for_the_driver), 0);
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "probe") == 0)
        return run_probe();
    if (!fake_cuda()) {
        (void)fprintf(stderr, "test_driver: set LD_LIBRARY_PATH to the folder of the fake libcuda.so.1\n");
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_driver_without_one_of_the_calls_is_too_old_and_the_message_names_the_call),
        cmocka_unit_test(without_a_driver_the_message_says_what_dlopen_said),
        cmocka_unit_test(every_call_is_found_and_the_driver_is_initialised_once),
        cmocka_unit_test(every_pointer_leads_to_the_call_it_is_named_after),
        cmocka_unit_test(a_failing_init_is_tried_again_by_the_next_call),
        cmocka_unit_test(a_driver_without_a_gpu_is_no_device),
        cmocka_unit_test(every_failing_call_of_the_start_is_an_error),
        cmocka_unit_test(a_failed_call_is_described_with_the_name_of_its_result),
        cmocka_unit_test(a_fork_of_a_process_that_used_the_driver_is_told_so),
        cmocka_unit_test(a_fork_before_the_first_driver_call_is_named_too),
        cmocka_unit_test(a_fork_while_the_driver_is_loaded_leaves_no_lock_behind),
        cmocka_unit_test(threads_that_race_for_the_driver_get_the_same_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
