/* SPDX-License-Identifier: Apache-2.0 */
/* module_scene.c: nothing in; fake driver, bundle and cache out. Next: test_module.c, test_module_failures.c. */
#include "module_scene.h"

#include <stdio.h>

const struct fake_cuda *fake;
const struct driver *driver;
uint8_t *bundle_data;
size_t bundle_bytes;
struct bundle *bundle;
struct kernel_record *kernels;
struct module_cache *cache;
libdecode_stream stream, other_stream;
struct caught_log caught;

static struct kernel_table table;

bool scene_find_fake(const char *program) {
    fake = fake_cuda();
    if (!fake)
        (void)fprintf(stderr, "%s: set LD_LIBRARY_PATH to the folder of the fake libcuda.so.1\n", program);
    return fake != NULL;
}

libdecode_status function_here(struct module_cache *of, const struct driver *by, const struct kernel_record *record,
                               libdecode_stream on, int strict, int preparing, cuda_function *ret_function) {
    uint64_t context_id;
    libdecode_status status = device_context_id(by, &context_id);
    return status != LIBDECODE_OK
               ? status
               : module_function(of, by, context_id, record,
                                 (struct load_site){.stream = on, .strict = strict != 0, .preparing = preparing != 0},
                                 ret_function);
}

static void catch_log(void *cookie, libdecode_log_level level, const char *message) {
    (void)cookie;
    if (level != LIBDECODE_LOG_WARN)
        return;
    caught.warnings++;
    (void)snprintf(caught.warning, sizeof caught.warning, "%s", message);
    if (caught.calls_back) {
        cuda_function function = NULL;
        assert_int_equal(function_here(cache, driver, &kernels[LARGE_SHARED], stream, 0, 0, &function), LIBDECODE_OK);
        assert_int_equal(function_here(cache, driver, &kernels[SECOND_PLAIN], NULL, 0, 0, &function), LIBDECODE_OK);
    }
}

int scene_make_bundle(void **state) {
    (void)state;
    struct libdecode_launch_contract large = fixture_contract(), wide = fixture_contract(), plain = fixture_contract();
    large.dynamic_shared_bytes = 100 * 1024;
    wide.dynamic_shared_bytes = 40 * 1024;
    wide.cluster_size = 16;
    plain.dynamic_shared_bytes = 48 * 1024;
    plain.cluster_size = 8;
    const struct fixture_kernel list[NUM_KERNELS] = {
        {.name = "a_large_sm90", .target = 90, .image = 1, .contract = large},
        {.name = "b_wide_sm90", .target = 90, .image = 1, .contract = wide},
        {.name = "c_plain_sm90", .target = 90, .contract = plain},
        {.name = "d_plain_sm90", .target = 90, .contract = plain},
    };
    stream = (libdecode_stream)(void *)&stream;
    other_stream = (libdecode_stream)(void *)&other_stream;
    bundle_data = fixture_bundle(list, NUM_KERNELS, &bundle_bytes);
    if (bundle_open_memory(bundle_data, bundle_bytes, "memory", &bundle) != LIBDECODE_OK ||
        kernel_table_build(&bundle, 1, &table) != LIBDECODE_OK || driver_get(&driver) != LIBDECODE_OK)
        return -1;
    kernels = table.records;
    return 0;
}

int scene_free_bundle(void **state) {
    (void)state;
    kernel_table_destroy(&table);
    bundle_close(bundle);
    free(bundle_data);
    return 0;
}

int scene_begin(void **state) {
    (void)state;
    const struct log_sink sink = {.function = catch_log, .level = LIBDECODE_LOG_WARN};
    memset(&caught, 0, sizeof caught);
    fake->reset();
    return module_cache_create(&sink, &cache) != LIBDECODE_OK;
}

int scene_end(void **state) {
    (void)state;
    module_cache_destroy(cache);
    cache = NULL;
    return fake->misuses() != 0;
}

libdecode_status get(int kernel, cuda_function *ret_function) {
    return function_here(cache, driver, &kernels[kernel], stream, 0, 0, ret_function);
}

libdecode_status get_strictly(int kernel, cuda_function *ret_function) {
    return function_here(cache, driver, &kernels[kernel], stream, 1, 0, ret_function);
}

void assert_message_has(const char *text) { assert_non_null(strstr(libdecode_error_message(), text)); }

int thread_capture_mode(void) {
    int version;
    (void)driver->driver_get_version(&version);
    return fake->last("cuDriverGetVersion")->capture_mode;
}
