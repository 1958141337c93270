/* SPDX-License-Identifier: Apache-2.0 */
/*
 * driver.c: libcuda.so.1, found at run time with dlopen: the calls that libdecode makes, as a table of pointers.
 * The few types and constants of the driver interface that are needed stand here, so that building needs no CUDA header.
 */
#ifndef LIBDECODE_DRIVER_H
#define LIBDECODE_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi.h"
#include "libdecode.h"

typedef int cuda_result;       /* CUresult */
typedef int cuda_device;       /* CUdevice */
typedef uint64_t cuda_address; /* CUdeviceptr */
typedef struct cuda_context *cuda_context;
typedef struct cuda_module *cuda_module;
typedef struct cuda_function *cuda_function;

enum {
    CUDA_RESULT_SUCCESS = 0,
    CUDA_RESULT_OUT_OF_MEMORY = 2,
    CUDA_RESULT_NOT_INITIALIZED = 3,
    CUDA_RESULT_DEINITIALIZED = 4,
    CUDA_RESULT_NO_DEVICE = 100,
    CUDA_RESULT_INVALID_IMAGE = 200,
    CUDA_RESULT_INVALID_CONTEXT = 201,
    CUDA_RESULT_NO_BINARY_FOR_GPU = 209,
    CUDA_RESULT_CONTEXT_IS_DESTROYED = 709,
    CUDA_RESULT_STREAM_CAPTURE_UNSUPPORTED = 900,
    CUDA_RESULT_STREAM_CAPTURE_INVALIDATED = 901
};

/* CUstreamCaptureMode, CUlaunchAttributeID and CUfunction_attribute, as far as they are used. */
enum { CUDA_CAPTURE_MODE_RELAXED = 2 };
enum { CUDA_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION = 4, CUDA_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION = 6 };
enum { CUDA_FUNC_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8, CUDA_FUNC_NON_PORTABLE_CLUSTER_SIZE_ALLOWED = 14 };

/* CUlaunchConfig and its attributes, as in CUDA 12 and 13 (ABI-stable). */
struct cuda_launch_attribute {
    int id;
    char pad[4];
    union {
        _Alignas(8) char bytes[64];
        struct {
            unsigned x, y, z;
        } cluster;
        int programmatic;
    } value;
};
struct cuda_launch_config {
    unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
    libdecode_stream stream;
    struct cuda_launch_attribute *attributes;
    unsigned num_attributes;
};

struct driver {
    void *library;
    int version; /* cuDriverGetVersion */
    cuda_result (*init)(unsigned flags);
    cuda_result (*driver_get_version)(int *version);
    cuda_result (*get_error_name)(cuda_result result, const char **name);
    cuda_result (*device_get_count)(int *count);
    cuda_result (*device_get)(cuda_device *device, int ordinal);
    cuda_result (*device_get_attribute)(int *value, int attribute, cuda_device device);
    cuda_result (*device_get_name)(char *name, int bytes, cuda_device device);
    cuda_result (*ctx_get_current)(cuda_context *context);
    cuda_result (*ctx_get_device)(cuda_device *device);
    cuda_result (*ctx_get_id)(cuda_context context, unsigned long long *id); /* NULL: the current one */
    cuda_result (*ctx_push_current)(cuda_context context);
    cuda_result (*ctx_pop_current)(cuda_context *context);
    cuda_result (*module_load_data)(cuda_module *module, const void *image);
    cuda_result (*module_unload)(cuda_module module);
    cuda_result (*module_get_function)(cuda_function *function, cuda_module module, const char *name);
    cuda_result (*func_set_attribute)(cuda_function function, int attribute, int value);
    cuda_result (*func_load)(cuda_function function); /* NULL if the driver has none (before CUDA 12.4) */
    cuda_result (*occupancy_max_active_clusters)(int *count, cuda_function function, const struct cuda_launch_config *config);
    cuda_result (*launch_kernel_ex)(const struct cuda_launch_config *config, cuda_function function, void **parameters,
                                    void **extra);
    cuda_result (*stream_is_capturing)(libdecode_stream stream, int *status);
    cuda_result (*thread_exchange_stream_capture_mode)(int *mode);
    cuda_result (*memcpy_htod_async)(cuda_address to, const void *from, size_t bytes, libdecode_stream stream);
    cuda_result (*memset_d8_async)(cuda_address address, unsigned char value, size_t bytes, libdecode_stream stream);
    cuda_result (*tensor_map_encode_tiled)(struct libdecode_tensor_map *map, int data_type, uint32_t rank, void *address,
                                           const uint64_t *dims, const uint64_t *strides, const uint32_t *box,
                                           const uint32_t *element_strides, int interleave, int swizzle, int promotion, int fill);
};

/*
 * Loads libcuda.so.1 and calls cuInit, once per process; later calls return the same table. What failed is tried again by the
 * next call: a driver may be starting. Thread-safe; the fast path takes no lock. Errors: NO_DRIVER (with what dlopen said), DRIVER_TOO_OLD (names the missing call and version),
 * NO_DEVICE, CUDA, FORKED (this process is a fork of one that had called it).
 */
libdecode_status driver_get(const struct driver **ret_driver);

/* Whether driver_get would say FORKED; sets no message. */
bool driver_forked(void);

/* fail_cuda with the driver's name for the result: "cuModuleLoadData: CUDA_ERROR_INVALID_IMAGE (200): <what>". */
libdecode_status driver_fail(const struct driver *driver, cuda_result result, const char *call, const char *what);

#endif
