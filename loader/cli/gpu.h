/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu.c: device memory, streams, events and graphs for the subcommands that run kernels, through libcuda.so.1 found at run
 * time. The library itself has loader/driver.h; this table holds what a caller of the library does for itself.
 * Every function prints what failed and returns false; after gpu->broken nothing more is worth trying.
 */
#ifndef LIBDECODE_CLI_GPU_H
#define LIBDECODE_CLI_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libdecode.h"

typedef struct gpu_event *gpu_event;       /* CUevent */
typedef struct gpu_graph *gpu_graph;       /* CUgraph */
typedef struct gpu_exec *gpu_exec;         /* CUgraphExec */
typedef struct gpu_node *gpu_node;         /* CUgraphNode */
typedef struct gpu_function *gpu_function; /* CUfunction */

/* CUDA_KERNEL_NODE_PARAMS_v2 */
struct gpu_node_params {
    gpu_function function;
    unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
    void **parameters;
    void **extra;
    void *kernel, *context;
};

/* CUlaunchAttribute with its value, and CUlaunchConfig */
struct gpu_launch_attribute {
    int id;
    char pad[4];
    _Alignas(8) char value[64];
};
struct gpu_launch_config {
    unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
    libdecode_stream stream;
    struct gpu_launch_attribute *attributes;
    unsigned num_attributes;
};

struct gpu_calls {
    int (*init)(unsigned flags);
    int (*driver_version)(int *version);
    int (*error_name)(int result, const char **name);
    int (*device_count)(int *count);
    int (*device_get)(int *device, int ordinal);
    int (*device_name)(char *name, int bytes, int device);
    int (*device_attribute)(int *value, int attribute, int device);
    int (*device_memory)(size_t *bytes, int device);
    int (*context_retain)(void **context, int device);
    int (*context_release)(int device);
    int (*context_set)(void *context);
    int (*memory_info)(size_t *free_bytes, size_t *total_bytes);
    int (*memory_alloc)(uint64_t *address, size_t bytes);
    int (*memory_free)(uint64_t address);
    int (*copy_to_device)(uint64_t to, const void *from, size_t bytes);
    int (*copy_from_device)(void *to, uint64_t from, size_t bytes);
    int (*copy_on_device)(uint64_t to, uint64_t from, size_t bytes);
    int (*fill)(uint64_t to, unsigned char byte, size_t bytes);
    int (*stream_create)(libdecode_stream *stream, unsigned flags);
    int (*stream_destroy)(libdecode_stream stream);
    int (*stream_wait)(libdecode_stream stream);
    int (*stream_query)(libdecode_stream stream);
    int (*capture_begin)(libdecode_stream stream, int mode);
    int (*capture_end)(libdecode_stream stream, gpu_graph *graph);
    int (*graph_nodes)(gpu_graph graph, gpu_node *nodes, size_t *count);
    int (*node_params)(gpu_node node, struct gpu_node_params *params);
    int (*node_attribute)(gpu_node node, int attribute, void *value);
    int (*graph_instantiate)(gpu_exec *exec, gpu_graph graph, unsigned long long flags);
    int (*graph_launch)(gpu_exec exec, libdecode_stream stream);
    int (*graph_destroy)(gpu_graph graph);
    int (*exec_destroy)(gpu_exec exec);
    int (*event_create)(gpu_event *event, unsigned flags);
    int (*event_record)(gpu_event event, libdecode_stream stream);
    int (*event_elapsed)(float *milliseconds, gpu_event begin, gpu_event end);
    int (*event_destroy)(gpu_event event);
    int (*launch)(const struct gpu_launch_config *config, gpu_function function, void **parameters, void **extra);
};

struct gpu {
    void *library;
    struct gpu_calls call;
    int driver_version; /* 13000 = 13.0 */
    int num_devices;
    int device;  /* opened; -1: none */
    bool broken; /* a call failed in a way that the context does not survive */
    bool
        hung; /* it is broken because what was launched does not end: no call may wait for it any more, so the program must exit */
    int patience_seconds; /* after which gpu_wait finds it so; 0: never */
};

enum gpu_presence { GPU_PRESENT, GPU_ABSENT, GPU_FAULTY };

/* Loads the driver and counts devices. ABSENT: no driver or no device; `ret_why` says which. Never prints. */
enum gpu_presence gpu_find(struct gpu *ret_gpu, char *ret_why, size_t why_size);
/* Makes the device's primary context current. */
bool gpu_open(struct gpu *gpu, int ordinal);
void gpu_close(struct gpu *gpu);

/* One line about a device, without a context. */
struct gpu_facts {
    char name[64];
    int compute_capability, sm_count;
    size_t memory_bytes;
};
bool gpu_get_facts(struct gpu *gpu, int ordinal, struct gpu_facts *ret_facts);

/* False, after printing "cuX: NAME (code)", if result is not 0. */
bool gpu_ok(struct gpu *gpu, int result, const char *call);

bool gpu_alloc(struct gpu *gpu, size_t bytes, const char *what, uint64_t *ret_address);
void gpu_free(struct gpu *gpu, uint64_t *address);
bool gpu_upload(struct gpu *gpu, uint64_t to, const void *from, size_t bytes);
bool gpu_download(struct gpu *gpu, void *to, uint64_t from, size_t bytes);
bool gpu_fill(struct gpu *gpu, uint64_t to, int byte, size_t bytes);
/* Repeats `block` all over [to, to + bytes). */
bool gpu_spread(struct gpu *gpu, uint64_t to, size_t bytes, const void *block, size_t block_bytes);

bool gpu_stream_create(struct gpu *gpu, libdecode_stream *ret_stream);
void gpu_stream_destroy(struct gpu *gpu, libdecode_stream *stream);
bool gpu_wait(struct gpu *gpu, libdecode_stream stream);
/* Whether something enqueued on `stream` still runs. */
bool gpu_busy(struct gpu *gpu, libdecode_stream stream, bool *ret_busy);

/* Everything enqueued on `stream` between the two goes into a graph instead. */
bool gpu_capture_begin(struct gpu *gpu, libdecode_stream stream);
bool gpu_capture_end(struct gpu *gpu, libdecode_stream stream, gpu_graph *ret_graph);

/* A device address as the library takes it. */
static inline void *gpu_pointer(uint64_t address) { return (void *)(uintptr_t)address; }

#endif
