/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The current GPU, a preset's name, or a device that the caller filled in by hand in; a checked libdecode_device out.
 * Next: select.c. The presets give `explain` an answer for GPUs that are not there.
 */
#include "device.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "cost.h"
#include "status.h"

/* Of cuda.h: CUdevice_attribute. */
enum {
    ATTRIBUTE_SM_COUNT = 16,
    ATTRIBUTE_MEMORY_CLOCK_KHZ = 36,
    ATTRIBUTE_MEMORY_BUS_BITS = 37,
    ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
    ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
    ATTRIBUTE_SHARED_BYTES_PER_SM = 81,
    ATTRIBUTE_SHARED_BYTES_PER_BLOCK_OPTIN = 97
};

/* Of the rate that clock and bus width give, what a kernel that only reads sustains. */
#define SUSTAINED_BANDWIDTH_PERCENT 95

#define DEVICE_MINIMUM_BYTES (offsetof(libdecode_device, resident_clusters_16) + sizeof(int32_t))

/*
 * GPUs by their names, those that stand for a compute capability first. Of memory_bandwidth_gbps 0 is the typical one; else 95 % of what
 * the data sheet says.
 */
static const struct {
    const char *capability, *name;
    int32_t compute_capability, sm_count, memory_bandwidth_gbps;
    int32_t resident_clusters[4]; /* of 2, 4, 8, 16; seen on the GPU itself, or 0 */
    bool is_fitted;               /* times of it are what the cost model was fitted to */
} presets[] = {{"sm_90", "H200", 90, 132, 0, {66, 30, 15, 7}, true},
               {"sm_100", "B200", 100, 148, 0, {0}, false},
               {"sm_103", "B300", 103, 148, 0, {0}, false},
               {"sm_120", "RTX 5090", 120, 170, 0, {0}, false},
               {"sm_121", "DGX Spark", 121, 48, 0, {0}, false},
               {NULL, "H100", 90, 132, 3182, {0}, false},
               {NULL, "H100 NVL", 90, 132, 3741, {0}, false},
               {NULL, "H100 PCIe", 90, 114, 1937, {0}, false},
               {NULL, "H20", 90, 78, 3800, {0}, false},
               {NULL, "GH200", 90, 132, 3800, {0}, false},
               {NULL, "GB200", 100, 148, 0, {0}, false},
               {NULL, "GB300", 103, 148, 0, {0}, false},
               {NULL, "RTX 5080", 120, 84, 912, {0}, false},
               {NULL, "RTX PRO 6000", 120, 188, 0, {0}, false},
               {NULL, "GB10", 121, 48, 0, {0}, false}};
#define NUM_PRESETS (sizeof presets / sizeof presets[0])

const char *device_preset_name(size_t index) {
    if (index < DEVICE_NUM_CAPABILITIES)
        return presets[index].capability;
    index -= DEVICE_NUM_CAPABILITIES;
    return index < NUM_PRESETS ? presets[index].name : NULL;
}

/* "DGX Spark" is "dgx-spark", too. */
static bool is_same_name(const char *a, const char *b) {
    for (;; a++, b++) {
        a += strspn(a, " -_");
        b += strspn(b, " -_");
        if (tolower((unsigned char)*a) != tolower((unsigned char)*b))
            return false;
        if (*a == '\0')
            return true;
    }
}

/* An index, or NUM_PRESETS. */
static size_t find_preset(const char *name) {
    for (size_t i = 0; i < NUM_PRESETS; i++)
        if ((presets[i].capability && strcmp(presets[i].capability, name) == 0) || is_same_name(presets[i].name, name))
            return i;
    return NUM_PRESETS;
}

bool device_is_fitted(const libdecode_device *device) {
    for (size_t i = 0; i < NUM_PRESETS; i++) {
        const char *found = strstr(device->name, presets[i].name);
        const size_t length = strlen(presets[i].name);
        if (presets[i].is_fitted && presets[i].compute_capability == device->compute_capability &&
            presets[i].sm_count == device->sm_count && found && (found == device->name || found[-1] == ' ') &&
            (found[length] == '\0' || found[length] == ' '))
            return true;
    }
    return false;
}

libdecode_status libdecode_device_preset(const char *name, libdecode_device *ret_device) {
    static const char accepted[] = "accepted are sm_90, sm_100, sm_103, sm_120, sm_121, and names of GPUs like H200 and RTX 5090";
    if (!name)
        return fail(LIBDECODE_ERROR_INVALID_ARGUMENT, "name is NULL: %s", accepted);
    const size_t i = find_preset(name);
    if (i == NUM_PRESETS)
        return fail(LIBDECODE_ERROR_INVALID_ARGUMENT, "name is '%s': %s", name, accepted);
    const int32_t compute_capability = presets[i].compute_capability;
    const bool is_small = compute_capability >= 120; /* without the shared memory of the GPUs for data centres */
    libdecode_device device = {.compute_capability = compute_capability,
                               .sm_count = presets[i].sm_count,
                               .shared_bytes_per_sm = is_small ? 102400 : 233472,
                               .max_shared_bytes_per_block = is_small ? 101376 : 232448,
                               .memory_bandwidth_gbps = presets[i].memory_bandwidth_gbps > 0
                                                            ? presets[i].memory_bandwidth_gbps
                                                            : typical_bandwidth_gbps(compute_capability),
                               .resident_clusters_2 = presets[i].resident_clusters[0],
                               .resident_clusters_4 = presets[i].resident_clusters[1],
                               .resident_clusters_8 = presets[i].resident_clusters[2],
                               .resident_clusters_16 = presets[i].resident_clusters[3]};
    (void)snprintf(device.name, sizeof device.name, "%s", presets[i].name);
    return write_caller_struct(ret_device, &device, sizeof device, "libdecode_device");
}

static libdecode_status check_range(const char *field, int32_t value, int32_t low, int32_t high) {
    if (value < low || value > high)
        return fail(LIBDECODE_ERROR_INVALID_ARGUMENT, "device.%s is %d: accepted are %d to %d", field, value, low, high);
    return LIBDECODE_OK;
}

libdecode_status device_read(const libdecode_device *device, libdecode_device *ret_device) {
    libdecode_device read;
    FORWARD(read_caller_struct(&read, sizeof read, device, DEVICE_MINIMUM_BYTES, "libdecode_device"));
    if (!memchr(read.name, '\0', sizeof read.name))
        return fail(LIBDECODE_ERROR_INVALID_ARGUMENT, "device.name does not end: its %zu bytes must hold a NUL",
                    sizeof read.name);
    FORWARD(check_range("compute_capability", read.compute_capability, 10, 999));
    FORWARD(check_range("sm_count", read.sm_count, 1, 4096));
    FORWARD(check_range("shared_bytes_per_sm", read.shared_bytes_per_sm, 0, 1 << 24));
    FORWARD(check_range("max_shared_bytes_per_block", read.max_shared_bytes_per_block, 1, 1 << 24));
    FORWARD(check_range("memory_bandwidth_gbps", read.memory_bandwidth_gbps, 0, 1 << 24));
    FORWARD(check_range("driver_version", read.driver_version, 0, 1000000));
    /* A preset whose sm_count was changed must not keep clusters that no longer fit. */
    FORWARD(check_range("resident_clusters_2", read.resident_clusters_2, -1, read.sm_count / 2));
    FORWARD(check_range("resident_clusters_4", read.resident_clusters_4, -1, read.sm_count / 4));
    FORWARD(check_range("resident_clusters_8", read.resident_clusters_8, -1, read.sm_count / 8));
    FORWARD(check_range("resident_clusters_16", read.resident_clusters_16, -1, read.sm_count / 16));
    *ret_device = read;
    return LIBDECODE_OK;
}

static bool means_no_context(cuda_result result) {
    return result == CUDA_RESULT_INVALID_CONTEXT || result == CUDA_RESULT_CONTEXT_IS_DESTROYED;
}

static libdecode_status no_context(void) {
    return fail(LIBDECODE_ERROR_NO_DEVICE,
                "the calling thread has no current CUDA context; make one current (cuCtxSetCurrent, or "
                "cudaSetDevice and any runtime call) before");
}

static libdecode_status attribute(const struct driver *driver, cuda_device device, int id, int32_t *ret_value) {
    int value = 0;
    cuda_result result = driver->device_get_attribute(&value, id, device);
    if (result != CUDA_RESULT_SUCCESS)
        return driver_fail(driver, result, "cuDeviceGetAttribute",
                           "a fact about the current GPU cannot be read; check nvidia-smi");
    *ret_value = value;
    return LIBDECODE_OK;
}

static libdecode_status current_device(const struct driver *driver, cuda_device *ret_device) {
    cuda_result result = driver->ctx_get_device(ret_device);
    if (means_no_context(result))
        return no_context();
    if (result != CUDA_RESULT_SUCCESS)
        return driver_fail(driver, result, "cuCtxGetDevice", "the GPU of the current CUDA context is not known");
    return LIBDECODE_OK;
}

libdecode_status device_query(const struct driver *driver, cuda_device *ret_handle, libdecode_device *ret_device) {
    int32_t major = 0, minor = 0;
    cuda_device handle = 0;
    libdecode_device device;
    memset(&device, 0, sizeof device);
    device.struct_size = sizeof device;
    FORWARD(current_device(driver, &handle));
    FORWARD(attribute(driver, handle, ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &major));
    FORWARD(attribute(driver, handle, ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &minor));
    device.compute_capability = major * 10 + minor;
    FORWARD(attribute(driver, handle, ATTRIBUTE_SM_COUNT, &device.sm_count));
    FORWARD(attribute(driver, handle, ATTRIBUTE_SHARED_BYTES_PER_SM, &device.shared_bytes_per_sm));
    FORWARD(attribute(driver, handle, ATTRIBUTE_SHARED_BYTES_PER_BLOCK_OPTIN, &device.max_shared_bytes_per_block));
    cuda_result result = driver->device_get_name(device.name, sizeof device.name, handle);
    if (result != CUDA_RESULT_SUCCESS)
        return driver_fail(driver, result, "cuDeviceGetName", "the name of the current GPU cannot be read; check nvidia-smi");

    /* Integrated GPUs may know neither; then the typical rate of the compute capability stands in. Two transfers a clock. */
    int clock_khz = 0, bus_bits = 0;
    (void)driver->device_get_attribute(&clock_khz, ATTRIBUTE_MEMORY_CLOCK_KHZ, handle);
    (void)driver->device_get_attribute(&bus_bits, ATTRIBUTE_MEMORY_BUS_BITS, handle);
    if (clock_khz > 0 && bus_bits > 0)
        device.memory_bandwidth_gbps =
            (int32_t)((int64_t)2 * clock_khz * (bus_bits / 8) / 1000000 * SUSTAINED_BANDWIDTH_PERCENT / 100 & INT32_MAX);
    device.driver_version = driver->version;
    *ret_handle = handle;
    *ret_device = device;
    return LIBDECODE_OK;
}

libdecode_status device_context_id(const struct driver *driver, uint64_t *ret_id) {
    unsigned long long id = 0;
    cuda_result result = driver->ctx_get_id(NULL, &id);
    if (means_no_context(result))
        return no_context();
    if (result != CUDA_RESULT_SUCCESS)
        return driver_fail(driver, result, "cuCtxGetId", "the current CUDA context has no identity");
    *ret_id = id;
    return LIBDECODE_OK;
}

libdecode_status device_compare(const libdecode_device *planned, const libdecode_device *current) {
    if (current->compute_capability != planned->compute_capability || current->sm_count != planned->sm_count)
        return fail(
            LIBDECODE_ERROR_WRONG_DEVICE,
            "the plan was made for sm_%d with %d SMs (%s), the current GPU is sm_%d with %d; make a plan for each kind of GPU",
            planned->compute_capability, planned->sm_count, planned->name[0] ? planned->name : "unnamed",
            current->compute_capability, current->sm_count);
    return LIBDECODE_OK;
}
