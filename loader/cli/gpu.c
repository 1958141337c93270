/* SPDX-License-Identifier: Apache-2.0 */
/* gpu.c: libcuda.so.1 in, device memory, streams and graphs out, every call checked. Used by check, bench, demo and doctor. */
#define _POSIX_C_SOURCE 200809L /* nanosleep under -std=c17 */
#include "gpu.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "options.h"
#include "report.h"

enum {
    RESULT_OUT_OF_MEMORY = 2,
    RESULT_NO_DEVICE = 100,
    RESULT_NOT_READY = 600,
    ATTRIBUTE_SM_COUNT = 16,
    ATTRIBUTE_CAPABILITY_MAJOR = 75,
    ATTRIBUTE_CAPABILITY_MINOR = 76,
    CAPTURE_THREAD_LOCAL = 1,
    STREAM_NON_BLOCKING = 1
};

/* Where in struct gpu_calls the driver's function of that name goes. */
struct symbol {
    const char *name;
    size_t offset;
};
#define SYMBOL(name, field)                                                                                                      \
    { name, offsetof(struct gpu_calls, field) }
static const struct symbol symbols[] = {
    SYMBOL("cuInit", init),
    SYMBOL("cuDriverGetVersion", driver_version),
    SYMBOL("cuGetErrorName", error_name),
    SYMBOL("cuDeviceGetCount", device_count),
    SYMBOL("cuDeviceGet", device_get),
    SYMBOL("cuDeviceGetName", device_name),
    SYMBOL("cuDeviceGetAttribute", device_attribute),
    SYMBOL("cuDeviceTotalMem_v2", device_memory),
    SYMBOL("cuDevicePrimaryCtxRetain", context_retain),
    SYMBOL("cuDevicePrimaryCtxRelease_v2", context_release),
    SYMBOL("cuCtxSetCurrent", context_set),
    SYMBOL("cuMemGetInfo_v2", memory_info),
    SYMBOL("cuMemAlloc_v2", memory_alloc),
    SYMBOL("cuMemFree_v2", memory_free),
    SYMBOL("cuMemcpyHtoD_v2", copy_to_device),
    SYMBOL("cuMemcpyDtoH_v2", copy_from_device),
    SYMBOL("cuMemcpyDtoD_v2", copy_on_device),
    SYMBOL("cuMemsetD8_v2", fill),
    SYMBOL("cuStreamCreate", stream_create),
    SYMBOL("cuStreamDestroy_v2", stream_destroy),
    SYMBOL("cuStreamSynchronize", stream_wait),
    SYMBOL("cuStreamQuery", stream_query),
    SYMBOL("cuStreamBeginCapture_v2", capture_begin),
    SYMBOL("cuStreamEndCapture", capture_end),
    SYMBOL("cuGraphGetNodes", graph_nodes),
    SYMBOL("cuGraphKernelNodeGetParams_v2", node_params),
    SYMBOL("cuGraphKernelNodeGetAttribute", node_attribute),
    SYMBOL("cuGraphInstantiateWithFlags", graph_instantiate),
    SYMBOL("cuGraphLaunch", graph_launch),
    SYMBOL("cuGraphDestroy", graph_destroy),
    SYMBOL("cuGraphExecDestroy", exec_destroy),
    SYMBOL("cuEventCreate", event_create),
    SYMBOL("cuEventRecord", event_record),
    SYMBOL("cuEventElapsedTime", event_elapsed),
    SYMBOL("cuEventDestroy_v2", event_destroy),
    SYMBOL("cuLaunchKernelEx", launch),
};

static const char *result_name(const struct gpu *gpu, int result) {
    const char *name = NULL;
    if (gpu->call.error_name == NULL || gpu->call.error_name(result, &name) != 0 || name == NULL)
        return "unknown error";
    return name;
}

/* Fills the table; the name of the first call that the driver lacks, or NULL. */
static const char *find_symbols(struct gpu *gpu) {
    for (size_t index = 0; index < sizeof symbols / sizeof symbols[0]; index++) {
        void *address = dlsym(gpu->library, symbols[index].name);
        if (address == NULL)
            return symbols[index].name;
        /* POSIX guarantees that a function pointer survives this; ISO C has no cast for it */
        memcpy((char *)&gpu->call + symbols[index].offset, &address, sizeof address);
    }
    return NULL;
}

static enum gpu_presence give_up(struct gpu *gpu, enum gpu_presence presence) {
    dlclose(gpu->library);
    gpu->library = NULL;
    return presence;
}

enum gpu_presence gpu_find(struct gpu *ret_gpu, char *ret_why, size_t why_size) {
    *ret_gpu = (struct gpu){.device = -1};
    struct gpu *gpu = ret_gpu;
    gpu->library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (gpu->library == NULL) {
        const char *error = dlerror();
        const bool missing_file = error == NULL || strstr(error, "No such file") != NULL;
        snprintf(ret_why, why_size, "no NVIDIA driver: %s", missing_file ? "there is no libcuda.so.1" : error);
        return GPU_ABSENT;
    }
    const char *missing = find_symbols(gpu);
    if (missing != NULL) {
        snprintf(ret_why, why_size, "the NVIDIA driver is too old: libcuda.so.1 has no %s; one for CUDA 12.0 or newer is needed",
                 missing);
        return give_up(gpu, GPU_FAULTY);
    }
    int result = gpu->call.init(0);
    if (result == 0)
        result = gpu->call.driver_version(&gpu->driver_version);
    if (result == 0)
        result = gpu->call.device_count(&gpu->num_devices);
    if (result == RESULT_NO_DEVICE || (result == 0 && gpu->num_devices == 0)) {
        snprintf(ret_why, why_size, "an NVIDIA driver, but no GPU");
        return give_up(gpu, GPU_ABSENT);
    }
    if (result != 0) {
        snprintf(ret_why, why_size,
                 "the NVIDIA driver does not start: %s (%d); is its kernel module loaded, and of the same version?",
                 result_name(gpu, result), result);
        return give_up(gpu, GPU_FAULTY);
    }
    return GPU_PRESENT;
}

bool gpu_ok(struct gpu *gpu, int result, const char *call) {
    if (result == 0)
        return true;
    /* Everything but a refused allocation may be the echo of a kernel that crashed: the context is lost then. */
    if (result != RESULT_OUT_OF_MEMORY)
        gpu->broken = true;
    return complain("%s: %s (%d)", call, result_name(gpu, result), result);
}

bool gpu_open(struct gpu *gpu, int ordinal) {
    if (ordinal < 0 || ordinal >= gpu->num_devices)
        return complain("--device %d: this machine has %d GPU%s, counted from 0", ordinal, gpu->num_devices,
                        gpu->num_devices == 1 ? "" : "s");
    int device;
    void *context;
    if (!gpu_ok(gpu, gpu->call.device_get(&device, ordinal), "cuDeviceGet"))
        return false;
    if (!gpu_ok(gpu, gpu->call.context_retain(&context, device), "cuDevicePrimaryCtxRetain"))
        return false;
    gpu->device = device;
    return gpu_ok(gpu, gpu->call.context_set(context), "cuCtxSetCurrent");
}

void gpu_close(struct gpu *gpu) {
    if (gpu->library == NULL)
        return;
    if (gpu->device >= 0) {
        gpu->call.context_set(NULL);
        gpu->call.context_release(gpu->device);
    }
    /* the driver stays loaded: unloading it under its own threads is not safe */
    gpu->library = NULL;
}

bool gpu_get_facts(struct gpu *gpu, int ordinal, struct gpu_facts *ret_facts) {
    struct gpu_facts facts = {0};
    int device, major, minor;
    if (!gpu_ok(gpu, gpu->call.device_get(&device, ordinal), "cuDeviceGet") ||
        !gpu_ok(gpu, gpu->call.device_name(facts.name, (int)sizeof facts.name, device), "cuDeviceGetName") ||
        !gpu_ok(gpu, gpu->call.device_attribute(&major, ATTRIBUTE_CAPABILITY_MAJOR, device), "cuDeviceGetAttribute") ||
        !gpu_ok(gpu, gpu->call.device_attribute(&minor, ATTRIBUTE_CAPABILITY_MINOR, device), "cuDeviceGetAttribute") ||
        !gpu_ok(gpu, gpu->call.device_attribute(&facts.sm_count, ATTRIBUTE_SM_COUNT, device), "cuDeviceGetAttribute") ||
        !gpu_ok(gpu, gpu->call.device_memory(&facts.memory_bytes, device), "cuDeviceTotalMem_v2"))
        return false;
    facts.compute_capability = 10 * major + minor;
    *ret_facts = facts;
    return true;
}

bool gpu_alloc(struct gpu *gpu, size_t bytes, const char *what, uint64_t *ret_address) {
    uint64_t address = 0;
    int result = gpu->call.memory_alloc(&address, bytes > 0 ? bytes : 1);
    if (result == RESULT_OUT_OF_MEMORY) {
        size_t free_bytes = 0, total_bytes = 0;
        gpu->call.memory_info(&free_bytes, &total_bytes);
        return complain("%s needs %.2f GB of device memory, %.2f GB of %.2f GB are free; ask for less, or free the GPU", what,
                        (double)bytes / 1e9, (double)free_bytes / 1e9, (double)total_bytes / 1e9);
    }
    if (!gpu_ok(gpu, result, "cuMemAlloc_v2"))
        return false;
    *ret_address = address;
    return true;
}

void gpu_free(struct gpu *gpu, uint64_t *address) {
    /* not checked: what a lost context answers is known, and nothing could be done about it */
    if (*address != 0 && !gpu->hung)
        gpu->call.memory_free(*address);
    *address = 0;
}

bool gpu_upload(struct gpu *gpu, uint64_t to, const void *from, size_t bytes) {
    /* a copy from pageable memory may return before it has arrived, and streams made here do not wait for it: so wait */
    return bytes == 0 || (gpu_ok(gpu, gpu->call.copy_to_device(to, from, bytes), "cuMemcpyHtoD_v2") && gpu_wait(gpu, NULL));
}

bool gpu_download(struct gpu *gpu, void *to, uint64_t from, size_t bytes) {
    return bytes == 0 || gpu_ok(gpu, gpu->call.copy_from_device(to, from, bytes), "cuMemcpyDtoH_v2");
}

bool gpu_fill(struct gpu *gpu, uint64_t to, int byte, size_t bytes) {
    return bytes == 0 || (gpu_ok(gpu, gpu->call.fill(to, (unsigned char)byte, bytes), "cuMemsetD8_v2") && gpu_wait(gpu, NULL));
}

bool gpu_spread(struct gpu *gpu, uint64_t to, size_t bytes, const void *block, size_t block_bytes) {
    size_t done = bytes < block_bytes ? bytes : block_bytes;
    if (!gpu_upload(gpu, to, block, done))
        return false;
    for (; done < bytes;) {
        size_t part = bytes - done < block_bytes ? bytes - done : block_bytes;
        if (!gpu_ok(gpu, gpu->call.copy_on_device(to + done, to, part), "cuMemcpyDtoD_v2"))
            return false;
        done += part;
    }
    return gpu_wait(gpu, NULL);
}

bool gpu_stream_create(struct gpu *gpu, libdecode_stream *ret_stream) {
    return gpu_ok(gpu, gpu->call.stream_create(ret_stream, STREAM_NON_BLOCKING), "cuStreamCreate");
}

void gpu_stream_destroy(struct gpu *gpu, libdecode_stream *stream) {
    if (*stream != NULL && !gpu->hung)
        gpu->call.stream_destroy(*stream);
    *stream = NULL;
}

bool gpu_wait(struct gpu *gpu, libdecode_stream stream) {
    const struct timespec pause = {.tv_nsec = 50000};
    const double begin = seconds_now();
    bool busy = true;
    if (gpu->hung)
        return false;
    if (gpu->patience_seconds == 0)
        return gpu_ok(gpu, gpu->call.stream_wait(stream), "cuStreamSynchronize");
    for (;;) {
        if (!gpu_busy(gpu, stream, &busy))
            return false;
        if (!busy)
            return true;
        const double waited = seconds_now() - begin;
        if (waited > gpu->patience_seconds) {
            gpu->broken = gpu->hung = true;
            return complain("what was launched has not ended after %d seconds", gpu->patience_seconds);
        }
        if (waited > 0.001)
            (void)nanosleep(&pause, NULL);
    }
}

bool gpu_busy(struct gpu *gpu, libdecode_stream stream, bool *ret_busy) {
    int result = gpu->call.stream_query(stream);
    *ret_busy = result == RESULT_NOT_READY;
    return *ret_busy || gpu_ok(gpu, result, "cuStreamQuery");
}

bool gpu_capture_begin(struct gpu *gpu, libdecode_stream stream) {
    return gpu_ok(gpu, gpu->call.capture_begin(stream, CAPTURE_THREAD_LOCAL), "cuStreamBeginCapture_v2");
}

bool gpu_capture_end(struct gpu *gpu, libdecode_stream stream, gpu_graph *ret_graph) {
    return gpu_ok(gpu, gpu->call.capture_end(stream, ret_graph), "cuStreamEndCapture");
}
