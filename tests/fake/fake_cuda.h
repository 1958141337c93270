/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_cuda.c: a libcuda.so.1 without a GPU: scripted answers in, a record of every call out. loader/driver.c finds it with
 * its own dlopen, because the test runs with LD_LIBRARY_PATH set to the folder of the fake. A test reaches the controls so:
 *
 *     const struct fake_cuda *fake = fake_cuda();   // NULL: the libcuda.so.1 found first is not the fake
 *     fake->reset();                                // one H200, driver 13.0, one context, current in this thread
 *     fake->fail_at(3, 2);                          // the third driver call from now answers CUDA_ERROR_OUT_OF_MEMORY
 *     ... run the code under test ...
 *     assert_int_equal(fake->count("cuModuleLoadData"), 1);
 *     const struct fake_cuda_call *launch = fake->last("cuLaunchKernelEx");
 *
 * What the fake refuses, as a driver would: a launch of an unloaded function or one of another context, more than 48 KiB of
 * dynamic shared memory or a cluster above 8 without the function attribute, a tensor map that breaks a documented rule, an
 * image that is no fatbin, a kernel name that the image does not hold. What a driver may crash on (a handle used after its
 * context died) is answered with an error and counted by misuses(): a test ends with assert_int_equal(fake->misuses(), 0).
 */
#ifndef LIBDECODE_FAKE_CUDA_H
#define LIBDECODE_FAKE_CUDA_H

#include <dlfcn.h>
#include <string.h>

#include "driver.h"

#define FAKE_CUDA_MAX_ATTRIBUTES 4
#define FAKE_CUDA_MAX_PARAMETER_BYTES 1024

/* One driver call, as it was made. Fields that do not belong to the call are zero. */
struct fake_cuda_call {
    const char *name;                 /* the exported name, e.g. "cuModuleLoadData" */
    cuda_result result;               /* what the fake answered */
    unsigned long long context_id;    /* current in the calling thread; 0: none */
    int capture_mode;                 /* of the calling thread: 0 global, 1 thread-local, 2 relaxed */
    libdecode_stream stream;          /* launch, copy, memset, is-capturing */
    int capturing;                    /* launch, copy: into a capturing stream */
    cuda_module module;               /* load, unload, get-function */
    cuda_function function;           /* get-function, set-attribute, launch */
    char kernel[128];                 /* get-function, set-attribute, launch: the function's name */
    uint64_t image_hash;              /* load: FNV-1a over the whole fatbin, fake_cuda_hash(); */
    size_t image_bytes;               /* load: from the fatbin's header */
    int attribute, value;             /* set-attribute, device-get-attribute */
    cuda_address address;             /* copy, memset, tensor map */
    const void *source;               /* copy */
    size_t bytes;                     /* copy, memset */
    unsigned pattern;                 /* memset */
    struct cuda_launch_config config; /* launch; .attributes is NULL: see launch_attributes */
    struct cuda_launch_attribute launch_attributes[FAKE_CUDA_MAX_ATTRIBUTES];
    size_t parameter_bytes;                                         /* launch: set_parameter_bytes at the time */
    _Alignas(64) uint8_t parameters[FAKE_CUDA_MAX_PARAMETER_BYTES]; /* launch: copy of *parameters[0] */
    struct {                                                        /* cuTensorMapEncodeTiled */
        int data_type, interleave, swizzle, promotion, fill;
        uint32_t rank;
        uint64_t dims[5], strides[4]; /* strides in bytes, of dimension 1 and up */
        uint32_t box[5], element_strides[5];
    } tensor_map;
};

/* What the fake writes in a tensor map: opaque[0] is the mark, [1] the address, [2] the index of the call, the rest pattern. */
#define FAKE_CUDA_TENSOR_MAP_MARK 0x50414d524f534e45ull
#define FAKE_CUDA_TENSOR_MAP_PATTERN 0x5a5a5a5a5a5a5a5aull

/* The controls. All of them may be called from any thread. Records stay valid until reset(). */
struct fake_cuda {
    /* Forgets everything: one device (an H200), driver 13.0, one context on it, current in the calling thread; no failures. */
    void (*reset)(void);

    /* Devices. compute_capability 90, 100, 103, 120 or 121 sets name, SM count, shared memory and clocks of such a GPU. */
    void (*set_device_count)(int count);
    void (*set_device)(int ordinal, int compute_capability);
    void (*set_device_name)(int ordinal, const char *name);
    void (*set_resident_clusters)(int ordinal, unsigned cluster_size, int count); /* of 1, 2, 4, 8, 16 CTAs, at once */
    void (*set_device_attribute)(int ordinal, int attribute, int value); /* one never set is refused with INVALID_VALUE */
    void (*set_driver_version)(int version);                             /* 12080 = 12.8 */

    /* Contexts. A new context takes the lowest free address, so that of a context just destroyed, but always a new id. */
    cuda_context (*context_create)(int ordinal);       /* not made current; NULL: no room (32 at a time) */
    void (*context_destroy)(cuda_context context);     /* its modules die with it; may be current, as in CUDA */
    void (*context_set_current)(cuda_context context); /* of the calling thread; NULL: none. New threads have none. */
    unsigned long long (*context_id)(cuda_context context);

    /* Capture. status: 0 none, 1 active, 2 invalidated. */
    void (*set_capture)(libdecode_stream stream, int status);
    int (*capture)(libdecode_stream stream);
    /* While a stream captures, module loads answer `result` (900, say) even in relaxed mode, as another driver might. 0: off */
    void (*refuse_loads_in_capture)(cuda_result result);

    /* Failures and delays. */
    void (*fail_at)(size_t call, cuda_result result);        /* the call-th call from now (1 = the next) fails, once; 0: off */
    int (*failed)(void);                                     /* whether fail_at's call has come */
    void (*fail_call)(const char *name, cuda_result result); /* every call of that name fails until result 0 */
    void (*delay_call)(const char *name, unsigned microseconds); /* every call of that name takes so long */

    /* The next `threads` calls of that name wait for each other (10 s at most): proof that nothing keeps them apart. */
    void (*meet_call)(const char *name, unsigned threads);
    int (*met)(void); /* whether they all came */

    /* Records. index counts from 0 over all calls since reset(). */
    void (*set_parameter_bytes)(size_t bytes); /* of every launch's parameter block: sizeof(struct gqa_decode_params), say */
    size_t (*calls)(void);
    const struct fake_cuda_call *(*call)(size_t index);
    size_t (*count)(const char *name);                      /* calls of that name, failed ones included */
    const struct fake_cuda_call *(*last)(const char *name); /* NULL: none */
    void (*forget_calls)(void);                             /* empties the record; keeps everything else */
    size_t (*live_modules)(void);                           /* loaded, not unloaded, context alive */
    size_t (*misuses)(void);                                /* uses of a dead handle; unbalanced pushes and pops */
};

/* The one exported control symbol. */
const struct fake_cuda *fake_cuda_controls(void);

/* The controls of the fake that driver.c will find, or NULL. */
static inline const struct fake_cuda *fake_cuda(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    void *symbol = library ? dlsym(library, "fake_cuda_controls") : NULL;
    const struct fake_cuda *(*controls)(void) = NULL;
    memcpy(&controls, &symbol, sizeof symbol);
    return controls ? controls() : NULL;
}

/* FNV-1a, 64 bits. */
static inline uint64_t fake_cuda_hash(const void *data, size_t bytes) {
    const uint8_t *byte = (const uint8_t *)data;
    uint64_t hash = 0xcbf29ce484222325ull;
    for (size_t index = 0; index < bytes; index++)
        hash = (hash ^ byte[index]) * 0x100000001b3ull;
    return hash;
}

#endif
