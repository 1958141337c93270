/* SPDX-License-Identifier: Apache-2.0 */
/* fake_state.h: what fake_cuda.c (the driver's calls) and fake_controls.c (the test's side) share. Tests include fake_cuda.h. */
#ifndef LIBDECODE_FAKE_STATE_H
#define LIBDECODE_FAKE_STATE_H

#include <pthread.h>
#include <sys/types.h>

#include "fake_cuda.h"

#define MAX_DEVICES 8
#define MAX_CONTEXTS 32
#define MAX_STREAMS 16
#define MAX_NAMED 32
#define MAX_STACK 8
#define NUM_ATTRIBUTES 256
#define PORTABLE_SHARED_BYTES (48u * 1024u)
#define PORTABLE_CLUSTER_SIZE 8u

enum {
    ATTRIBUTE_MAX_THREADS_PER_BLOCK = 1,
    ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK = 8,
    ATTRIBUTE_WARP_SIZE = 10,
    ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
    ATTRIBUTE_MEMORY_CLOCK_RATE = 36,
    ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH = 37,
    ATTRIBUTE_L2_CACHE_SIZE = 38,
    ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
    ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
    ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR = 81,
    ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97
};

struct device {
    char name[64];
    int attributes[NUM_ATTRIBUTES];
    char is_set[NUM_ATTRIBUTES];
    int resident_clusters[5]; /* of 1 << index CTAs */
};

struct cuda_context {
    unsigned long long id; /* 0: free; else unique for the life of the process */
    int ordinal;
};

/* A context as a thread remembers it: the id tells whether the address still means the same one. */
struct context_reference {
    struct cuda_context *context;
    unsigned long long id;
};

struct cuda_module {
    struct cuda_module *next;
    unsigned long long context_id;
    int is_unloaded;
    uint8_t *image;
    size_t image_bytes;
};

struct cuda_function {
    struct cuda_function *next;
    struct cuda_module *module;
    unsigned max_dynamic_shared_bytes;
    int non_portable_cluster;
    int is_loaded; /* cuFuncLoad, or a launch */
    char name[128];
};

struct named_value {
    char name[48];
    int value;
};

/* Only the driver's calls and fake_cuda_controls are exported: a test may have a `state` of its own. */
#define HIDDEN __attribute__((visibility("hidden")))

/* Everything that is scripted or recorded; `lock` guards it. */
struct fake_state {
    pthread_mutex_t lock;
    struct device devices[MAX_DEVICES];
    int num_devices;
    int driver_version;
    struct cuda_context contexts[MAX_CONTEXTS];
    unsigned long long last_context_id;
    struct {
        libdecode_stream stream;
        int status;
    } captures[MAX_STREAMS];
    cuda_result load_refusal;
    struct cuda_module *modules;
    struct cuda_function *functions;
    struct fake_cuda_call **records;
    size_t num_records, records_capacity;
    size_t fail_at_record; /* 1 + index; 0: off */
    cuda_result fail_at_result;
    int has_failed;
    struct named_value failures[MAX_NAMED], delays[MAX_NAMED];
    struct {
        char name[48];
        unsigned awaited; /* calls that have not come yet */
        int was_missed;   /* somebody waited in vain */
    } meeting;
    pthread_cond_t meeting_is_over;
    size_t parameter_bytes;
    size_t num_misuses;
    pid_t initialised_by; /* the process that called cuInit; reset() keeps it, as driver.c calls cuInit once */
};
HIDDEN extern struct fake_state state;

/* What belongs to a thread: its stack of contexts, the last one current, and its capture mode. */
struct fake_thread {
    struct context_reference stack[MAX_STACK];
    int stack_depth;
    int capture_mode;
};
HIDDEN extern _Thread_local struct fake_thread thread;

HIDDEN void lock_state(void);
HIDDEN void unlock_state(void);

/* All with the lock held. */
HIDDEN int named_value(const struct named_value *values, const char *name);
HIDDEN int is_alive(struct context_reference reference);
HIDDEN int context_id_is_alive(unsigned long long id);
HIDDEN struct context_reference current_context(void);
HIDDEN int capture_status(libdecode_stream stream);
HIDDEN void wait_at_meeting(const char *name); /* gives the lock up meanwhile */
HIDDEN struct fake_cuda_call *new_record(const char *name);

/* Without it. */
HIDDEN void sleep_microseconds(int microseconds);

/*
 * The driver's calls that the fake answers. Protected: the library itself does not look them up, so test_driver.c can make a
 * copy that lacks one.
 */
#define CALL __attribute__((visibility("protected"))) cuda_result
CALL cuInit(unsigned flags);
CALL cuDriverGetVersion(int *version);
CALL cuGetErrorName(cuda_result result, const char **name);
CALL cuDeviceGetCount(int *count);
CALL cuDeviceGet(cuda_device *device, int ordinal);
CALL cuDeviceGetAttribute(int *value, int attribute, cuda_device device);
CALL cuDeviceGetName(char *name, int bytes, cuda_device device);
CALL cuCtxGetCurrent(cuda_context *context);
CALL cuCtxGetDevice(cuda_device *device);
CALL cuCtxGetId(cuda_context context, unsigned long long *id);
CALL cuCtxPushCurrent_v2(cuda_context context);
CALL cuCtxPopCurrent_v2(cuda_context *context);
CALL cuModuleLoadData(cuda_module *ret_module, const void *image);
CALL cuModuleUnload(cuda_module handle);
CALL cuModuleGetFunction(cuda_function *ret_function, cuda_module handle, const char *name);
CALL cuFuncSetAttribute(cuda_function handle, int attribute, int value);
CALL cuFuncLoad(cuda_function handle);
CALL cuOccupancyMaxActiveClusters(int *count, cuda_function handle, const struct cuda_launch_config *config);
CALL cuLaunchKernelEx(const struct cuda_launch_config *config, cuda_function handle, void **parameters, void **extra);
CALL cuStreamIsCapturing(libdecode_stream stream, int *status);
CALL cuThreadExchangeStreamCaptureMode(int *mode);
CALL cuMemcpyHtoDAsync_v2(cuda_address to, const void *from, size_t bytes, libdecode_stream stream);
CALL cuMemsetD8Async(cuda_address address, unsigned char value, size_t bytes, libdecode_stream stream);
CALL cuTensorMapEncodeTiled(struct libdecode_tensor_map *map, int data_type, uint32_t rank, void *address, const uint64_t *dims,
                            const uint64_t *strides, const uint32_t *box, const uint32_t *element_strides, int interleave,
                            int swizzle, int promotion, int fill);

#endif
