/* SPDX-License-Identifier: Apache-2.0 */
/*
 * driver.c: libcuda.so.1 in, a table of its calls out; opened once per process, at the first need, and never closed.
 * Next: module.c and launch.c call through the table.
 */
#define _POSIX_C_SOURCE 200809L /* pthread_atfork under -std=c17 */

#include "driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "status.h"

#define LIBRARY "libcuda.so.1"

/* `since` of a call that a driver may lack. */
#define OPTIONAL 0

/*
 * The exported names. cuda.h maps cuCtxPushCurrent, cuCtxPopCurrent and cuMemcpyHtoDAsync to _v2; for the rest the plain name is
 * the present one. (The _ptsz forms only change what the NULL stream means; ours is the legacy default stream.) `since` = 1000 * major +
 * 10 * minor of the first driver that has the call, or OPTIONAL.
 */
static const struct {
    const char *symbol;
    int since;
    size_t offset;
} calls[] = {
    {"cuInit", 2000, offsetof(struct driver, init)},
    {"cuDriverGetVersion", 2020, offsetof(struct driver, driver_get_version)},
    {"cuGetErrorName", 6000, offsetof(struct driver, get_error_name)},
    {"cuDeviceGetCount", 2000, offsetof(struct driver, device_get_count)},
    {"cuDeviceGet", 2000, offsetof(struct driver, device_get)},
    {"cuDeviceGetAttribute", 2000, offsetof(struct driver, device_get_attribute)},
    {"cuDeviceGetName", 2000, offsetof(struct driver, device_get_name)},
    {"cuCtxGetCurrent", 4000, offsetof(struct driver, ctx_get_current)},
    {"cuCtxGetDevice", 2000, offsetof(struct driver, ctx_get_device)},
    {"cuCtxGetId", 12000, offsetof(struct driver, ctx_get_id)},
    {"cuCtxPushCurrent_v2", 4000, offsetof(struct driver, ctx_push_current)},
    {"cuCtxPopCurrent_v2", 4000, offsetof(struct driver, ctx_pop_current)},
    {"cuModuleLoadData", 2000, offsetof(struct driver, module_load_data)},
    {"cuModuleUnload", 2000, offsetof(struct driver, module_unload)},
    {"cuModuleGetFunction", 2000, offsetof(struct driver, module_get_function)},
    {"cuFuncSetAttribute", 9000, offsetof(struct driver, func_set_attribute)},
    {"cuFuncLoad", OPTIONAL, offsetof(struct driver, func_load)},
    {"cuOccupancyMaxActiveClusters", 11080, offsetof(struct driver, occupancy_max_active_clusters)},
    {"cuLaunchKernelEx", 11060, offsetof(struct driver, launch_kernel_ex)},
    {"cuStreamIsCapturing", 10000, offsetof(struct driver, stream_is_capturing)},
    {"cuThreadExchangeStreamCaptureMode", 10010, offsetof(struct driver, thread_exchange_stream_capture_mode)},
    {"cuMemcpyHtoDAsync_v2", 3020, offsetof(struct driver, memcpy_htod_async)},
    {"cuMemsetD8Async", 3020, offsetof(struct driver, memset_d8_async)},
    {"cuTensorMapEncodeTiled", 12000, offsetof(struct driver, tensor_map_encode_tiled)},
};

_Static_assert(sizeof(void *) == sizeof(void (*)(void)), "POSIX: dlsym's result is a function pointer");

/* The table, once it is complete and the driver has started; until then under the lock. */
static struct driver table;
static _Atomic(const struct driver *) loaded_driver;
static pthread_mutex_t load_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool handles_forks;

/* Whether the driver runs in this process, and whether this process is the child of one where it did. */
static atomic_bool is_started, is_forked;

/* A lock that another thread held at the fork is nobody's in the child. */
static void note_fork(void) {
    static const pthread_mutex_t unlocked = PTHREAD_MUTEX_INITIALIZER;
    if (atomic_load_explicit(&is_started, memory_order_relaxed))
        atomic_store_explicit(&is_forked, true, memory_order_relaxed);
    load_lock = unlocked;
}

bool driver_forked(void) { return atomic_load_explicit(&is_forked, memory_order_relaxed); }

static libdecode_status forked(const char *what) {
    return fail(LIBDECODE_ERROR_FORKED,
                "%sthis process is a fork of one that used CUDA, which does not survive fork(); fork before the first CUDA call, "
                "or start workers by spawn (fork and exec)",
                what);
}

libdecode_status driver_fail(const struct driver *driver, cuda_result result, const char *call, const char *what) {
    const char *name = NULL;
    if (driver->get_error_name(result, &name) != CUDA_RESULT_SUCCESS || !name)
        name = "unknown CUresult";
    return fail_cuda(result, "%s: %s (%d): %s", call, name, result, what);
}

static libdecode_status find_calls(struct driver *driver) {
    for (size_t index = 0; index < sizeof calls / sizeof calls[0]; index++) {
        void *symbol = dlsym(driver->library, calls[index].symbol);
        memcpy((char *)driver + calls[index].offset, &symbol, sizeof symbol);
    }
    if (driver->driver_get_version) {
        cuda_result result = driver->driver_get_version(&driver->version);
        if (result != CUDA_RESULT_SUCCESS)
            return fail_cuda(result,
                             "cuDriverGetVersion: CUresult %d: " LIBRARY " does not say its version; reinstall the NVIDIA driver",
                             result);
    }
    for (size_t index = 0; index < sizeof calls / sizeof calls[0]; index++) {
        void *symbol;
        memcpy(&symbol, (char *)driver + calls[index].offset, sizeof symbol);
        if (!symbol && calls[index].since != OPTIONAL)
            return fail(LIBDECODE_ERROR_DRIVER_TOO_OLD,
                        LIBRARY " (CUDA %d.%d) lacks %s, which came with CUDA %d.%d; install a newer NVIDIA driver (CUDA 12.0, "
                                "525.60 or newer)",
                        driver->version / 1000, driver->version % 1000 / 10, calls[index].symbol, calls[index].since / 1000,
                        calls[index].since % 1000 / 10);
    }
    return LIBDECODE_OK;
}

static libdecode_status start_driver(const struct driver *driver) {
    atomic_store_explicit(&is_started, true, memory_order_relaxed); /* before: a child must not find half a driver */
    cuda_result result = driver->init(0);
    if (result == CUDA_RESULT_SUCCESS)
        return LIBDECODE_OK;
    atomic_store_explicit(&is_started, false, memory_order_relaxed);
    if (result == CUDA_RESULT_NOT_INITIALIZED) /* what the driver says where it was started by the parent, not by libdecode */
        return forked("cuInit: CUDA_ERROR_NOT_INITIALIZED: ");
    if (result == CUDA_RESULT_NO_DEVICE)
        return fail(LIBDECODE_ERROR_NO_DEVICE,
                    "cuInit: CUDA_ERROR_NO_DEVICE: the driver (CUDA %d.%d) sees no GPU; check nvidia-smi and "
                    "CUDA_VISIBLE_DEVICES",
                    driver->version / 1000, driver->version % 1000 / 10);
    return driver_fail(driver, result, "cuInit", "the NVIDIA driver does not start; check nvidia-smi, then try again");
}

/* With the lock held. What an earlier attempt reached is not done again; the library is never closed. */
static libdecode_status load_driver(void) {
    if (!table.library)
        table.library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!table.library) {
        const char *reason = dlerror();
        return fail(LIBDECODE_ERROR_NO_DRIVER,
                    LIBRARY " cannot be loaded (%s); install the NVIDIA driver, or in a container pass the GPU through",
                    reason ? reason : "no reason given");
    }
    FORWARD(find_calls(&table));
    FORWARD(start_driver(&table));
    atomic_store_explicit(&loaded_driver, &table, memory_order_release);
    return LIBDECODE_OK;
}

/*
 * Before the lock, which a child would find held by nobody. A library that is never closed may leave a handler behind; two that do the same, too, where
 * threads come at once.
 */
static libdecode_status handle_forks(void) {
    if (!atomic_load_explicit(&handles_forks, memory_order_acquire) && pthread_atfork(NULL, NULL, note_fork) != 0)
        return fail(LIBDECODE_ERROR_OUT_OF_MEMORY, "pthread_atfork: no memory for the handler that detects a fork; free memory");
    atomic_store_explicit(&handles_forks, true, memory_order_release);
    return LIBDECODE_OK;
}

libdecode_status driver_get(const struct driver **ret_driver) {
    if (driver_forked())
        return forked("");
    const struct driver *driver = atomic_load_explicit(&loaded_driver, memory_order_acquire);
    if (!driver) {
        FORWARD(handle_forks());
        (void)pthread_mutex_lock(&load_lock);
        driver = atomic_load_explicit(&loaded_driver, memory_order_relaxed);
        libdecode_status status = driver ? LIBDECODE_OK : load_driver();
        (void)pthread_mutex_unlock(&load_lock);
        FORWARD(status);
        driver = &table;
    }
    *ret_driver = driver;
    return LIBDECODE_OK;
}
