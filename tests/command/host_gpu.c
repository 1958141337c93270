/* SPDX-License-Identifier: Apache-2.0 */
/* host_gpu.c: the calls of libcuda.so.1 that libdecode and its command make, answered by the processor (host_gpu.h). */
#define _POSIX_C_SOURCE 200809L /* clock_gettime */
#include "host_gpu.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "driver.h"
#include "played/tensor_map.h"

#define EXPORT __attribute__((visibility("default")))
#define FREE_BYTES ((size_t)140 << 30)
#define NUM_SMS 8
enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    NOT_READY = 600,
    ILLEGAL_ADDRESS = 700
};

struct cuda_function {
    char name[128];
};
struct node {
    cuda_function function;
    struct cuda_launch_config config;
    struct cuda_launch_attribute attributes[2];
    _Alignas(64) unsigned char parameters[HOST_GPU_MAX_PARAMETER_BYTES];
    void *pointers[1];
};
struct graph {
    struct node *nodes[512];
    size_t num_nodes;
    int execs; /* what was made of it, and is not destroyed */
};
struct CUstream_st {
    struct graph *capture;
    int is_busy; /* with what was launched since somebody asked or waited last */
};
/* The legacy default stream: NULL in calls. */
static struct CUstream_st default_stream;
static int context_object, current; /* the one context; whether it is current */
static int broken, launches;

/* What an asynchronous error makes of every later call. */
static cuda_result answer(cuda_result result) { return broken != 0 ? ILLEGAL_ADDRESS : result; }

static void flush(void);

/* The environment is read once: this is asked for every token. */
int host_gpu_has_defect(const char *name) {
    static const char *defect;
    static int is_known;
    if (is_known == 0)
        defect = getenv("HOST_GPU_DEFECT");
    is_known = 1;
    return defect != NULL && strcmp(defect, name) == 0;
}

/* --------------------------------------------------------------------------------------------------- driver and device */

#define CALL EXPORT cuda_result
/* Every call is a prototype of its own, as the driver's header has them. */
CALL cuInit(unsigned flags);
CALL cuInit(unsigned flags) { return flags == 0 ? SUCCESS : INVALID_VALUE; }
CALL cuDriverGetVersion(int *version);
CALL cuDriverGetVersion(int *version) {
    *version = 13000;
    return SUCCESS;
}
CALL cuGetErrorName(cuda_result result, const char **name);
CALL cuGetErrorName(cuda_result result, const char **name) {
    *name = result == ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS"
            : result == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY"
                                      : "CUDA_ERROR_OTHER";
    return SUCCESS;
}
CALL cuDeviceGetCount(int *count);
CALL cuDeviceGetCount(int *count) {
    *count = 1;
    return SUCCESS;
}
CALL cuDeviceGet(cuda_device *device, int ordinal);
CALL cuDeviceGet(cuda_device *device, int ordinal) {
    *device = 0;
    return ordinal == 0 ? SUCCESS : INVALID_VALUE;
}
CALL cuDeviceGetName(char *name, int bytes, cuda_device device);
CALL cuDeviceGetName(char *name, int bytes, cuda_device device) {
    snprintf(name, (size_t)bytes, "this processor (%d)", device);
    return SUCCESS;
}
CALL cuDeviceTotalMem_v2(size_t *bytes, cuda_device device);
CALL cuDeviceTotalMem_v2(size_t *bytes, cuda_device device) {
    *bytes = device == 0 ? FREE_BYTES : 0;
    return SUCCESS;
}
CALL cuDeviceGetAttribute(int *value, int attribute, cuda_device device);
CALL cuDeviceGetAttribute(int *value, int attribute, cuda_device device) {
    const char *text = getenv("HOST_GPU_CAPABILITY");
    const int capability = text != NULL ? atoi(text) : 90;
    const int shared_bytes = capability >= 120 ? 102400 : 233472;
    switch (attribute) {
    case 16:
        *value = NUM_SMS;
        break; /* few, so that split borders come early */
    case 75:
        *value = capability / 10;
        break; /* compute capability */
    case 76:
        *value = capability % 10;
        break;
    case 81:
        *value = shared_bytes;
        break; /* shared memory of an SM */
    case 97:
        *value = shared_bytes - 1024;
        break; /* of a block, opt-in */
    case 8:
        *value = 49152;
        break;
    default:
        *value = 1024;
        break;
    }
    return device == 0 ? answer(SUCCESS) : INVALID_VALUE;
}

/* ------------------------------------------------------------------------------------------------------------- context */

CALL cuDevicePrimaryCtxRetain(cuda_context *context, cuda_device device);
CALL cuDevicePrimaryCtxRetain(cuda_context *context, cuda_device device) {
    *context = (cuda_context)(void *)&context_object;
    return device == 0 ? SUCCESS : INVALID_VALUE;
}
CALL cuDevicePrimaryCtxRelease_v2(cuda_device device);
CALL cuDevicePrimaryCtxRelease_v2(cuda_device device) { return device == 0 ? SUCCESS : INVALID_VALUE; }
CALL cuCtxSetCurrent(cuda_context context);
CALL cuCtxSetCurrent(cuda_context context) {
    current = context != NULL;
    return SUCCESS;
}
CALL cuCtxGetCurrent(cuda_context *context);
CALL cuCtxGetCurrent(cuda_context *context) {
    *context = current != 0 ? (cuda_context)(void *)&context_object : NULL;
    return SUCCESS;
}
CALL cuCtxGetDevice(cuda_device *device);
CALL cuCtxGetDevice(cuda_device *device) {
    *device = 0;
    return current != 0 ? SUCCESS : CUDA_RESULT_INVALID_CONTEXT;
}
CALL cuCtxGetId(cuda_context context, unsigned long long *id);
CALL cuCtxGetId(cuda_context context, unsigned long long *id) {
    *id = context == NULL || context == (cuda_context)(void *)&context_object ? 1 : 0;
    return *id != 0 ? SUCCESS : CUDA_RESULT_INVALID_CONTEXT;
}
CALL cuCtxPushCurrent_v2(cuda_context context);
CALL cuCtxPushCurrent_v2(cuda_context context) { return cuCtxSetCurrent(context); }
CALL cuCtxPopCurrent_v2(cuda_context *context);
CALL cuCtxPopCurrent_v2(cuda_context *context) { return cuCtxGetCurrent(context); }

/* -------------------------------------------------------------------------------------------------------------- memory */

CALL cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes);
CALL cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes) {
    *free_bytes = *total_bytes = FREE_BYTES;
    return answer(SUCCESS);
}
/* What lies in front of memory that was given away; as long as its alignment. */
struct allocation {
    _Alignas(512) struct allocation *next;
    size_t bytes;
};
static struct allocation *allocations;
static pthread_mutex_t allocations_lock = PTHREAD_MUTEX_INITIALIZER;

int host_gpu_is_allocated(const void *address) {
    (void)pthread_mutex_lock(&allocations_lock);
    const struct allocation *allocation = allocations;
    while (allocation != NULL && (uintptr_t)address - (uintptr_t)(allocation + 1) >= allocation->bytes)
        allocation = allocation->next;
    (void)pthread_mutex_unlock(&allocations_lock);
    return allocation != NULL;
}
CALL cuMemAlloc_v2(cuda_address *address, size_t bytes);
CALL cuMemAlloc_v2(cuda_address *address, size_t bytes) {
    const size_t rounded = (bytes + sizeof(struct allocation) - 1) / sizeof(struct allocation) * sizeof(struct allocation);
    struct allocation *allocation = bytes <= FREE_BYTES ? aligned_alloc(sizeof *allocation, sizeof *allocation + rounded) : NULL;
    *address = 0;
    if (allocation == NULL)
        return answer(OUT_OF_MEMORY);
    *address = (uintptr_t)(allocation + 1);
    allocation->bytes = bytes;
    (void)pthread_mutex_lock(&allocations_lock);
    allocation->next = allocations;
    allocations = allocation;
    (void)pthread_mutex_unlock(&allocations_lock);
    return answer(SUCCESS);
}
CALL cuMemFree_v2(cuda_address address);
CALL cuMemFree_v2(cuda_address address) {
    struct allocation *allocation = address != 0 ? (struct allocation *)(uintptr_t)address - 1 : NULL, **place = &allocations;
    (void)pthread_mutex_lock(&allocations_lock);
    while (*place != NULL && *place != allocation)
        place = &(*place)->next;
    const int is_known = allocation != NULL && *place == allocation;
    if (is_known)
        *place = allocation->next;
    (void)pthread_mutex_unlock(&allocations_lock);
    if (!is_known)
        return answer(INVALID_VALUE);
    free(allocation);
    return answer(SUCCESS);
}
CALL cuMemcpyHtoD_v2(cuda_address to, const void *from, size_t bytes);
CALL cuMemcpyHtoD_v2(cuda_address to, const void *from, size_t bytes) {
    memcpy((void *)(uintptr_t)to, from, bytes);
    return answer(SUCCESS);
}
CALL cuMemcpyDtoH_v2(void *to, cuda_address from, size_t bytes);
CALL cuMemcpyDtoH_v2(void *to, cuda_address from, size_t bytes) {
    memcpy(to, (const void *)(uintptr_t)from, bytes);
    return answer(SUCCESS);
}
CALL cuMemcpyDtoD_v2(cuda_address to, cuda_address from, size_t bytes);
CALL cuMemcpyDtoD_v2(cuda_address to, cuda_address from, size_t bytes) {
    memcpy((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes);
    return answer(SUCCESS);
}
CALL cuMemsetD8_v2(cuda_address to, unsigned char byte, size_t bytes);
CALL cuMemsetD8_v2(cuda_address to, unsigned char byte, size_t bytes) {
    memset((void *)(uintptr_t)to, byte, bytes);
    return answer(SUCCESS);
}
CALL cuMemcpyHtoDAsync_v2(cuda_address to, const void *from, size_t bytes, libdecode_stream stream);
CALL cuMemcpyHtoDAsync_v2(cuda_address to, const void *from, size_t bytes, libdecode_stream stream) {
    flush(); /* what comes behind a kernel does so after all of it */
    if (stream != NULL && stream->capture != NULL)
        return INVALID_VALUE; /* no copy is played in a graph */
    if (!host_gpu_has_defect("uncopied"))
        memcpy((void *)(uintptr_t)to, from, bytes);
    return answer(SUCCESS);
}
CALL cuMemsetD8Async(cuda_address to, unsigned char value, size_t bytes, libdecode_stream stream);
CALL cuMemsetD8Async(cuda_address to, unsigned char value, size_t bytes, libdecode_stream stream) {
    (void)stream;
    flush();
    memset((void *)(uintptr_t)to, value, bytes);
    return answer(SUCCESS);
}

/* ------------------------------------------------------------------------------------------------ modules and launches */

CALL cuModuleLoadData(cuda_module *module, const void *image);
CALL cuModuleLoadData(cuda_module *module, const void *image) {
    *module = (cuda_module)(void *)&context_object;
    return answer(image != NULL ? SUCCESS : INVALID_VALUE);
}
CALL cuModuleUnload(cuda_module module);
CALL cuModuleUnload(cuda_module module) { return answer(module != NULL ? SUCCESS : INVALID_HANDLE); }
CALL cuModuleGetFunction(cuda_function *function, cuda_module module, const char *name);
CALL cuModuleGetFunction(cuda_function *function, cuda_module module, const char *name) {
    static struct cuda_function functions[512]; /* handles that outlive their modules do no harm here */
    static size_t num_functions;
    if (module == NULL || host_gpu_parameter_bytes(name) == 0)
        return NOT_FOUND;
    for (size_t index = 0; index < num_functions; index++) {
        if (strcmp(functions[index].name, name) == 0) {
            *function = &functions[index];
            return answer(SUCCESS);
        }
    }
    if (num_functions == sizeof functions / sizeof functions[0])
        return OUT_OF_MEMORY;
    *function = &functions[num_functions++];
    snprintf((*function)->name, sizeof(*function)->name, "%s", name);
    return answer(SUCCESS);
}
CALL cuFuncSetAttribute(cuda_function function, int attribute, int value);
CALL cuFuncSetAttribute(cuda_function function, int attribute, int value) {
    (void)attribute;
    return answer(function != NULL && value >= 0 ? SUCCESS : INVALID_VALUE);
}
CALL cuFuncLoad(cuda_function function);
CALL cuFuncLoad(cuda_function function) { return answer(function != NULL ? SUCCESS : INVALID_VALUE); }
CALL cuOccupancyMaxActiveClusters(int *count, cuda_function function, const struct cuda_launch_config *config);
CALL cuOccupancyMaxActiveClusters(int *count, cuda_function function, const struct cuda_launch_config *config) {
    if (function == NULL || config->num_attributes == 0)
        return answer(INVALID_VALUE);
    *count = NUM_SMS / (int)config->attributes[0].value.cluster.x;
    return answer(SUCCESS);
}
CALL cuTensorMapEncodeTiled(struct libdecode_tensor_map *map, int data_type, uint32_t rank, void *address, const uint64_t *dims,
                            const uint64_t *strides, const uint32_t *box, const uint32_t *element_strides, int interleave,
                            int swizzle, int promotion, int fill);
CALL cuTensorMapEncodeTiled(struct libdecode_tensor_map *map, int data_type, uint32_t rank, void *address, const uint64_t *dims,
                            const uint64_t *strides, const uint32_t *box, const uint32_t *element_strides, int interleave,
                            int swizzle, int promotion, int fill) {
    struct played_tensor_map told = {
        .address = (uintptr_t)address,
        .element_bytes = data_type == 0 ? 1 : 2, /* CU_TENSOR_MAP_DATA_TYPE_UINT8, or FLOAT16, BFLOAT16 */
        .swizzle_bytes = 16u << swizzle,         /* CU_TENSOR_MAP_SWIZZLE_NONE, 32B, 64B, 128B */
    };
    (void)interleave, (void)promotion;
    if (rank != 5 || box[0] == 0 || element_strides[0] != 1 || fill != 0)
        return INVALID_VALUE;
    for (int axis = 0; axis < 4; axis++) {
        if (strides[axis] % 16 != 0)
            return INVALID_VALUE;
    }
    memcpy(told.dims, dims, sizeof told.dims);
    memcpy(told.strides_bytes, strides, sizeof told.strides_bytes);
    memcpy(told.box, box, sizeof told.box);
    _Static_assert(sizeof told <= sizeof map->opaque, "room in a map");
    memcpy(map->opaque, &told, sizeof told);
    return answer(SUCCESS);
}

static void execute(const struct node *node) {
    unsigned cluster_size = 1;
    for (unsigned index = 0; index < node->config.num_attributes; index++) {
        if (node->attributes[index].id == CUDA_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
            cluster_size = node->attributes[index].value.cluster.x;
    }
    launches++;
    if (host_gpu_play(node->function->name, node->parameters, node->config.grid_x, cluster_size, node->config.block_x,
                      node->config.shared_bytes) == 0)
        host_gpu_execute(node->function->name, node->parameters);
    if (host_gpu_has_defect("crash"))
        broken = 1;
}

/* With the defects "early" and "unwritten": the last launch, which has not begun yet. */
static struct node *held;

static void flush(void) {
    struct node *node = held;
    held = NULL;
    if (node == NULL)
        return;
    execute(node);
    free(node);
}

static int may_begin_early(const struct node *node) {
    if (node->config.num_attributes == 0 ||
        node->attributes[node->config.num_attributes - 1].id != CUDA_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
        return 0;
    return host_gpu_has_defect("early") || host_gpu_knows_history(node->function->name, node->parameters);
}

static void execute_late(struct node *node) {
    if (held != NULL && may_begin_early(node)) {
        execute(node);
        flush();
        free(node);
        return;
    }
    flush();
    held = node;
}

CALL cuLaunchKernelEx(const struct cuda_launch_config *config, cuda_function function, void **parameters, void **extra);
CALL cuLaunchKernelEx(const struct cuda_launch_config *config, cuda_function function, void **parameters, void **extra) {
    struct node *node = calloc(1, sizeof *node);
    if (function == NULL || extra != NULL || config->grid_x == 0 || config->block_x == 0 || config->num_attributes > 2 ||
        node == NULL) {
        free(node);
        return INVALID_VALUE;
    }
    struct CUstream_st *stream = config->stream != NULL ? config->stream : &default_stream;
    node->function = function;
    node->config = *config;
    if (config->num_attributes > 0)
        memcpy(node->attributes, config->attributes, config->num_attributes * sizeof node->attributes[0]);
    memcpy(node->parameters, parameters[0], host_gpu_parameter_bytes(function->name));
    node->pointers[0] = node->parameters;
    if (stream->capture != NULL) {
        stream->capture->nodes[stream->capture->num_nodes++ % 512] = node;
        return answer(SUCCESS);
    }
    if (host_gpu_has_defect("early") || host_gpu_has_defect("unwritten")) {
        execute_late(node);
        return SUCCESS;
    }
    stream->is_busy = 1;
    execute(node);
    free(node);
    return SUCCESS; /* what went wrong shows at the next call */
}

/* --------------------------------------------------------------------------------------------- streams, graphs, events */

CALL cuStreamCreate(libdecode_stream *stream, unsigned flags);
CALL cuStreamCreate(libdecode_stream *stream, unsigned flags) {
    *stream = calloc(1, sizeof **stream);
    return answer(*stream != NULL && flags <= 1 ? SUCCESS : INVALID_VALUE);
}
CALL cuStreamDestroy_v2(libdecode_stream stream);
CALL cuStreamDestroy_v2(libdecode_stream stream) {
    free(stream);
    return answer(SUCCESS);
}
CALL cuStreamSynchronize(libdecode_stream stream);
CALL cuStreamSynchronize(libdecode_stream stream) {
    flush();
    if (stream != NULL)
        stream->is_busy = 0;
    return answer(stream == NULL || stream->capture == NULL ? SUCCESS : INVALID_VALUE);
}
CALL cuStreamQuery(libdecode_stream stream);
CALL cuStreamQuery(libdecode_stream stream) {
    flush();
    if (stream == NULL || stream->is_busy == 0)
        return answer(SUCCESS);
    stream->is_busy = host_gpu_has_defect("endless");
    return answer(NOT_READY);
}
CALL cuStreamIsCapturing(libdecode_stream stream, int *status);
CALL cuStreamIsCapturing(libdecode_stream stream, int *status) {
    *status = stream != NULL && stream->capture != NULL;
    return answer(SUCCESS);
}
CALL cuThreadExchangeStreamCaptureMode(int *mode);
CALL cuThreadExchangeStreamCaptureMode(int *mode) {
    static int thread_mode;
    int before = thread_mode;
    thread_mode = *mode;
    *mode = before;
    return answer(SUCCESS);
}
CALL cuStreamBeginCapture_v2(libdecode_stream stream, int mode);
CALL cuStreamBeginCapture_v2(libdecode_stream stream, int mode) {
    if (stream == NULL || stream->capture != NULL || mode < 0 || mode > 2)
        return INVALID_VALUE;
    stream->capture = calloc(1, sizeof *stream->capture);
    return answer(stream->capture != NULL ? SUCCESS : OUT_OF_MEMORY);
}
CALL cuStreamEndCapture(libdecode_stream stream, struct graph **graph);
CALL cuStreamEndCapture(libdecode_stream stream, struct graph **graph) {
    *graph = stream->capture;
    stream->capture = NULL;
    return answer(*graph != NULL ? SUCCESS : INVALID_VALUE);
}
CALL cuGraphGetNodes(struct graph *graph, struct node **nodes, size_t *count);
CALL cuGraphGetNodes(struct graph *graph, struct node **nodes, size_t *count) {
    for (size_t index = 0; nodes != NULL && index < *count && index < graph->num_nodes; index++)
        nodes[index] = graph->nodes[index];
    *count = graph->num_nodes;
    return answer(SUCCESS);
}
/* CUDA_KERNEL_NODE_PARAMS_v2 */
struct node_params {
    cuda_function function;
    unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
    void **parameters, **extra;
    void *kernel, *context;
};
CALL cuGraphKernelNodeGetParams_v2(struct node *node, struct node_params *params);
CALL cuGraphKernelNodeGetParams_v2(struct node *node, struct node_params *params) {
    *params = (struct node_params){.function = node->function,
                                   .grid_x = node->config.grid_x,
                                   .grid_y = node->config.grid_y,
                                   .grid_z = node->config.grid_z,
                                   .block_x = node->config.block_x,
                                   .block_y = node->config.block_y,
                                   .block_z = node->config.block_z,
                                   .shared_bytes = node->config.shared_bytes,
                                   .parameters = node->pointers};
    return answer(SUCCESS);
}
CALL cuGraphKernelNodeGetAttribute(struct node *node, int attribute, void *value);
CALL cuGraphKernelNodeGetAttribute(struct node *node, int attribute, void *value) {
    memset(value, 0, sizeof node->attributes[0].value);
    for (unsigned index = 0; index < node->config.num_attributes; index++) {
        if (node->attributes[index].id == attribute)
            memcpy(value, &node->attributes[index].value, sizeof node->attributes[index].value);
    }
    return answer(SUCCESS);
}
CALL cuGraphInstantiateWithFlags(struct graph **exec, struct graph *graph, unsigned long long flags);
CALL cuGraphInstantiateWithFlags(struct graph **exec, struct graph *graph, unsigned long long flags) {
    *exec = graph;
    graph->execs++;
    return answer(flags == 0 ? SUCCESS : INVALID_VALUE);
}
CALL cuGraphLaunch(struct graph *exec, libdecode_stream stream);
CALL cuGraphLaunch(struct graph *exec, libdecode_stream stream) {
    for (size_t index = 0; index < exec->num_nodes; index++)
        execute(exec->nodes[index]);
    (void)stream;
    return answer(SUCCESS);
}
CALL cuGraphDestroy(struct graph *graph);
CALL cuGraphDestroy(struct graph *graph) {
    if (graph->execs-- > 0)
        return answer(SUCCESS);
    for (size_t index = 0; index < graph->num_nodes; index++)
        free(graph->nodes[index]);
    free(graph);
    return answer(SUCCESS);
}
CALL cuGraphExecDestroy(struct graph *exec);
CALL cuGraphExecDestroy(struct graph *exec) { return exec != NULL ? cuGraphDestroy(exec) : INVALID_VALUE; }

struct event {
    struct timespec time;
};
CALL cuEventCreate(struct event **event, unsigned flags);
CALL cuEventCreate(struct event **event, unsigned flags) {
    *event = calloc(1, sizeof **event);
    return answer(*event != NULL && flags == 0 ? SUCCESS : INVALID_VALUE);
}
CALL cuEventRecord(struct event *event, libdecode_stream stream);
CALL cuEventRecord(struct event *event, libdecode_stream stream) {
    (void)stream;
    clock_gettime(CLOCK_MONOTONIC, &event->time);
    return answer(SUCCESS);
}
CALL cuEventElapsedTime(float *milliseconds, struct event *begin, struct event *end);
CALL cuEventElapsedTime(float *milliseconds, struct event *begin, struct event *end) {
    *milliseconds =
        (float)(1e3 * (double)(end->time.tv_sec - begin->time.tv_sec) + 1e-6 * (double)(end->time.tv_nsec - begin->time.tv_nsec));
    return answer(SUCCESS);
}
/* The name that cuda.h of CUDA 13 gives it. */
CALL cuEventElapsedTime_v2(float *milliseconds, struct event *begin, struct event *end);
CALL cuEventElapsedTime_v2(float *milliseconds, struct event *begin, struct event *end) {
    return cuEventElapsedTime(milliseconds, begin, end);
}
CALL cuEventDestroy_v2(struct event *event);
CALL cuEventDestroy_v2(struct event *event) {
    free(event);
    return answer(SUCCESS);
}
