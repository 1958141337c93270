/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_cuda.c: built with fake_controls.c as libcuda.so.1; a driver call in, its record and a scripted answer out.
 * One mutex guards everything, so a call's record and its effect are one step; delays are slept outside of it.
 * Before: loader/driver.c finds it with dlopen. Beside it: fake_controls.c, the test's side; fake_cuda.h says how to use it.
 */
#define _POSIX_C_SOURCE 200809L /* getpid under -std=c17 */

#include "fake_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define PORTABLE_CLUSTER_SIZE 8u
#define FATBIN_MAGIC 0xBA55ED50u

enum { INVALID_VALUE = 1, NOT_INITIALIZED = 3, INVALID_DEVICE = 101, INVALID_IMAGE = 200, INVALID_HANDLE = 400, NOT_FOUND = 500 };

static struct cuda_module *find_module(cuda_module handle) {
    for (struct cuda_module *module = state.modules; module; module = module->next)
        if (module == handle)
            return module;
    return NULL;
}

static struct cuda_function *find_function(cuda_function handle) {
    for (struct cuda_function *function = state.functions; function; function = function->next)
        if (function == handle)
            return function;
    return NULL;
}

static cuda_result misuse(cuda_result result) {
    state.num_misuses++;
    return result;
}

static int any_capture(void) {
    for (int index = 0; index < MAX_STREAMS; index++)
        if (state.captures[index].status == 1)
            return 1;
    return 0;
}

static void invalidate_captures(void) {
    for (int index = 0; index < MAX_STREAMS; index++)
        if (state.captures[index].status)
            state.captures[index].status = 2;
}

/* Opens the record of a call and takes the state.lock until finish(). record->result is the scripted failure, if one is due. */
static struct fake_cuda_call *begin(const char *name) {
    lock_state();
    int microseconds = named_value(state.delays, name);
    if (microseconds) {
        unlock_state();
        sleep_microseconds(microseconds);
        lock_state();
    }
    wait_at_meeting(name);
    struct fake_cuda_call *record = new_record(name);
    if (state.initialised_by && state.initialised_by != getpid() && strcmp(name, "cuInit") != 0 &&
        strcmp(name, "cuDriverGetVersion") != 0)
        state.num_misuses++;
    record->result = named_value(state.failures, name);
    if (state.fail_at_record && state.num_records == state.fail_at_record) {
        record->result = state.fail_at_result;
        state.has_failed = 1;
    }
    return record;
}

/* As begin, for the calls that need cuInit. */
static struct fake_cuda_call *begin_initialised(const char *name) {
    struct fake_cuda_call *record = begin(name);
    if (!record->result && !state.initialised_by)
        record->result = misuse(NOT_INITIALIZED);
    return record;
}

/* As begin, for the calls that need a living current context. */
static struct fake_cuda_call *begin_in_context(const char *name) {
    struct fake_cuda_call *record = begin_initialised(name);
    if (!record->result && !current_context().context)
        record->result = CUDA_RESULT_INVALID_CONTEXT;
    else if (!record->result && !is_alive(current_context()))
        record->result = CUDA_RESULT_CONTEXT_IS_DESTROYED;
    return record;
}

static cuda_result finish(struct fake_cuda_call *record, cuda_result result) {
    record->result = result;
    unlock_state();
    return result;
}

cuda_result cuInit(unsigned flags) {
    struct fake_cuda_call *call = begin("cuInit");
    if (!call->result && flags != 0)
        call->result = INVALID_VALUE;
    if (!call->result && state.initialised_by && state.initialised_by != getpid())
        call->result = NOT_INITIALIZED; /* as in the child of a fork */
    if (!call->result && state.num_devices == 0)
        call->result = CUDA_RESULT_NO_DEVICE;
    if (!call->result)
        state.initialised_by = getpid();
    return finish(call, call->result);
}

cuda_result cuDriverGetVersion(int *version) {
    struct fake_cuda_call *call = begin("cuDriverGetVersion");
    if (!call->result)
        *version = state.driver_version;
    return finish(call, call->result);
}

cuda_result cuGetErrorName(cuda_result result, const char **name) {
    static const struct {
        cuda_result result;
        const char *name;
    } names[] = {{0, "CUDA_SUCCESS"},
                 {1, "CUDA_ERROR_INVALID_VALUE"},
                 {2, "CUDA_ERROR_OUT_OF_MEMORY"},
                 {3, "CUDA_ERROR_NOT_INITIALIZED"},
                 {4, "CUDA_ERROR_DEINITIALIZED"},
                 {100, "CUDA_ERROR_NO_DEVICE"},
                 {101, "CUDA_ERROR_INVALID_DEVICE"},
                 {200, "CUDA_ERROR_INVALID_IMAGE"},
                 {201, "CUDA_ERROR_INVALID_CONTEXT"},
                 {209, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
                 {400, "CUDA_ERROR_INVALID_HANDLE"},
                 {500, "CUDA_ERROR_NOT_FOUND"},
                 {700, "CUDA_ERROR_ILLEGAL_ADDRESS"},
                 {709, "CUDA_ERROR_CONTEXT_IS_DESTROYED"},
                 {719, "CUDA_ERROR_LAUNCH_FAILED"},
                 {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
                 {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"},
                 {906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT"},
                 {999, "CUDA_ERROR_UNKNOWN"}};
    struct fake_cuda_call *call = begin("cuGetErrorName");
    if (call->result)
        return finish(call, call->result);
    for (size_t index = 0; index < sizeof names / sizeof names[0]; index++) {
        if (names[index].result == result) {
            *name = names[index].name;
            return finish(call, CUDA_RESULT_SUCCESS);
        }
    }
    *name = NULL;
    return finish(call, INVALID_VALUE);
}

cuda_result cuDeviceGetCount(int *count) {
    struct fake_cuda_call *call = begin_initialised("cuDeviceGetCount");
    if (!call->result)
        *count = state.num_devices;
    return finish(call, call->result);
}

cuda_result cuDeviceGet(cuda_device *device, int ordinal) {
    struct fake_cuda_call *call = begin_initialised("cuDeviceGet");
    if (!call->result && (ordinal < 0 || ordinal >= state.num_devices))
        call->result = INVALID_DEVICE;
    if (!call->result)
        *device = ordinal;
    return finish(call, call->result);
}

cuda_result cuDeviceGetAttribute(int *value, int attribute, cuda_device device) {
    struct fake_cuda_call *call = begin_initialised("cuDeviceGetAttribute");
    call->attribute = attribute;
    if (!call->result && (device < 0 || device >= state.num_devices))
        call->result = INVALID_DEVICE;
    if (!call->result && (attribute < 0 || attribute >= NUM_ATTRIBUTES || !state.devices[device].is_set[attribute]))
        call->result = INVALID_VALUE;
    if (!call->result)
        *value = call->value = state.devices[device].attributes[attribute];
    return finish(call, call->result);
}

cuda_result cuDeviceGetName(char *name, int bytes, cuda_device device) {
    struct fake_cuda_call *call = begin_initialised("cuDeviceGetName");
    if (!call->result && (device < 0 || device >= state.num_devices))
        call->result = INVALID_DEVICE;
    if (!call->result && bytes < 1)
        call->result = INVALID_VALUE;
    if (!call->result)
        (void)snprintf(name, (size_t)bytes, "%s", state.devices[device].name);
    return finish(call, call->result);
}

cuda_result cuCtxGetCurrent(cuda_context *context) {
    struct fake_cuda_call *call = begin_initialised("cuCtxGetCurrent");
    if (!call->result)
        *context = current_context().context;
    return finish(call, call->result);
}

cuda_result cuCtxGetDevice(cuda_device *device) {
    struct fake_cuda_call *call = begin_in_context("cuCtxGetDevice");
    if (!call->result)
        *device = current_context().context->ordinal;
    return finish(call, call->result);
}

cuda_result cuCtxGetId(cuda_context context, unsigned long long *id) {
    struct fake_cuda_call *call = context ? begin_initialised("cuCtxGetId") : begin_in_context("cuCtxGetId");
    if (!call->result && context && !context->id)
        call->result = CUDA_RESULT_CONTEXT_IS_DESTROYED;
    if (!call->result)
        *id = context ? context->id : current_context().id;
    return finish(call, call->result);
}

cuda_result cuCtxPushCurrent_v2(cuda_context context) {
    struct fake_cuda_call *call = begin_initialised("cuCtxPushCurrent_v2");
    if (!call->result && (!context || !context->id || thread.stack_depth == MAX_STACK))
        call->result = misuse(CUDA_RESULT_INVALID_CONTEXT);
    if (!call->result)
        thread.stack[thread.stack_depth++] = (struct context_reference){context, context->id};
    return finish(call, call->result);
}

cuda_result cuCtxPopCurrent_v2(cuda_context *context) {
    struct fake_cuda_call *call = begin_initialised("cuCtxPopCurrent_v2");
    if (!call->result && thread.stack_depth == 0)
        call->result = misuse(CUDA_RESULT_INVALID_CONTEXT);
    if (!call->result)
        *context = thread.stack[--thread.stack_depth].context;
    return finish(call, call->result);
}

/* The driver has no length to go by either: it believes the fatbin's header. */
static size_t fatbin_bytes(const void *image) {
    struct {
        uint32_t magic;
        uint16_t version, header_bytes;
        uint64_t bytes;
    } header;
    memcpy(&header, image, sizeof header);
    return header.magic == FATBIN_MAGIC && header.header_bytes == sizeof header ? sizeof header + (size_t)header.bytes : 0;
}

cuda_result cuModuleLoadData(cuda_module *ret_module, const void *image) {
    struct fake_cuda_call *call = begin_in_context("cuModuleLoadData");
    call->image_bytes = fatbin_bytes(image);
    call->image_hash = fake_cuda_hash(image, call->image_bytes);
    if (!call->result && any_capture())
        call->result = state.load_refusal;
    if (!call->result && !call->image_bytes)
        call->result = INVALID_IMAGE;
    if (call->result)
        return finish(call, call->result);
    struct cuda_module *module = calloc(1, sizeof *module);
    if (!module || !(module->image = malloc(call->image_bytes)))
        abort();
    memcpy(module->image, image, call->image_bytes);
    module->image_bytes = call->image_bytes;
    module->context_id = current_context().id;
    module->next = state.modules;
    state.modules = module;
    *ret_module = call->module = module;
    return finish(call, CUDA_RESULT_SUCCESS);
}

cuda_result cuModuleUnload(cuda_module handle) {
    struct fake_cuda_call *call = begin_in_context("cuModuleUnload");
    struct cuda_module *module = find_module(handle);
    call->module = handle;
    if (!call->result && any_capture() && thread.capture_mode != CUDA_CAPTURE_MODE_RELAXED) {
        invalidate_captures();
        call->result = CUDA_RESULT_STREAM_CAPTURE_UNSUPPORTED;
    }
    if (!call->result && (!module || module->is_unloaded))
        call->result = misuse(INVALID_HANDLE);
    if (!call->result && !context_id_is_alive(module->context_id))
        call->result = misuse(CUDA_RESULT_CONTEXT_IS_DESTROYED);
    if (!call->result && module->context_id != current_context().id)
        call->result = misuse(CUDA_RESULT_INVALID_CONTEXT);
    if (!call->result)
        module->is_unloaded = 1;
    return finish(call, call->result);
}

static int image_holds(const struct cuda_module *module, const char *name) {
    size_t bytes = strlen(name) + 1; /* a symbol's name ends there */
    for (size_t offset = 0; offset + bytes <= module->image_bytes; offset++)
        if (memcmp(module->image + offset, name, bytes) == 0)
            return 1;
    return 0;
}

cuda_result cuModuleGetFunction(cuda_function *ret_function, cuda_module handle, const char *name) {
    struct fake_cuda_call *call = begin_in_context("cuModuleGetFunction");
    struct cuda_module *module = find_module(handle);
    call->module = handle;
    (void)snprintf(call->kernel, sizeof call->kernel, "%s", name);
    if (!call->result && (!module || module->is_unloaded || !context_id_is_alive(module->context_id)))
        call->result = misuse(INVALID_HANDLE);
    if (!call->result && !image_holds(module, name))
        call->result = NOT_FOUND;
    if (call->result)
        return finish(call, call->result);
    struct cuda_function *function = calloc(1, sizeof *function);
    if (!function)
        abort();
    function->module = module;
    function->max_dynamic_shared_bytes = PORTABLE_SHARED_BYTES;
    memcpy(function->name, call->kernel, sizeof function->name);
    function->next = state.functions;
    state.functions = function;
    *ret_function = call->function = function;
    return finish(call, CUDA_RESULT_SUCCESS);
}

static int is_usable(const struct cuda_function *function) {
    return function && !function->module->is_unloaded && context_id_is_alive(function->module->context_id);
}

cuda_result cuFuncSetAttribute(cuda_function handle, int attribute, int value) {
    struct fake_cuda_call *call = begin_in_context("cuFuncSetAttribute");
    struct cuda_function *function = find_function(handle);
    call->function = handle;
    call->attribute = attribute;
    call->value = value;
    if (!is_usable(function))
        return finish(call, call->result ? call->result : misuse(INVALID_HANDLE));
    memcpy(call->kernel, function->name, sizeof call->kernel);
    if (!call->result && attribute == CUDA_FUNC_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
        const struct device *device = &state.devices[current_context().context->ordinal];
        if (value < 0 || value > device->attributes[ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN])
            call->result = INVALID_VALUE;
        else
            function->max_dynamic_shared_bytes = (unsigned)value;
    } else if (!call->result && attribute == CUDA_FUNC_NON_PORTABLE_CLUSTER_SIZE_ALLOWED) {
        function->non_portable_cluster = value;
    } else if (!call->result) {
        call->result = INVALID_VALUE;
    }
    return finish(call, call->result);
}

/* What a driver checks of a launch, as far as the loader can get it wrong. */
static cuda_result check_launch(const struct cuda_launch_config *config, const struct cuda_function *function) {
    unsigned cluster_size = 1;
    if (config->num_attributes > FAKE_CUDA_MAX_ATTRIBUTES || (config->num_attributes && !config->attributes))
        return INVALID_VALUE;
    for (unsigned index = 0; index < config->num_attributes; index++) {
        const struct cuda_launch_attribute *attribute = &config->attributes[index];
        if (attribute->id == 4)
            cluster_size = attribute->value.cluster.x * attribute->value.cluster.y * attribute->value.cluster.z;
        else if (attribute->id != 6)
            return INVALID_VALUE;
    }
    unsigned threads = config->block_x * config->block_y * config->block_z;
    if (!config->grid_x || !config->grid_y || !config->grid_z || !threads || threads > 1024)
        return INVALID_VALUE;
    if (!cluster_size || config->grid_x % cluster_size || config->shared_bytes > function->max_dynamic_shared_bytes)
        return INVALID_VALUE;
    return cluster_size > PORTABLE_CLUSTER_SIZE && !function->non_portable_cluster ? INVALID_VALUE : CUDA_RESULT_SUCCESS;
}

cuda_result cuFuncLoad(cuda_function handle) {
    struct fake_cuda_call *call = begin_in_context("cuFuncLoad");
    struct cuda_function *function = find_function(handle);
    call->function = handle;
    if (!is_usable(function))
        return finish(call, call->result ? call->result : misuse(INVALID_HANDLE));
    memcpy(call->kernel, function->name, sizeof call->kernel);
    if (!call->result)
        function->is_loaded = 1;
    return finish(call, call->result);
}

/* Where one CTA fills an SM, as the scripted device has it; where several do, as many times that. */
cuda_result cuOccupancyMaxActiveClusters(int *count, cuda_function handle, const struct cuda_launch_config *config) {
    struct fake_cuda_call *call = begin_in_context("cuOccupancyMaxActiveClusters");
    struct cuda_function *function = find_function(handle);
    call->function = handle;
    call->config = *config;
    call->config.attributes = NULL;
    if (!is_usable(function))
        return finish(call, call->result ? call->result : misuse(INVALID_HANDLE));
    memcpy(call->kernel, function->name, sizeof call->kernel);
    if (!call->result)
        call->result = check_launch(config, function);
    if (!call->result && config->num_attributes == 0)
        call->result = INVALID_VALUE;
    if (call->result)
        return finish(call, call->result);
    const struct device *device = &state.devices[current_context().context->ordinal];
    unsigned cluster_size = config->attributes[0].value.cluster.x, index = 0;
    while (index < 4 && 1u << index < cluster_size)
        index++;
    unsigned per_sm =
        (unsigned)device->attributes[ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR] / (config->shared_bytes + 1024);
    call->value = *count = device->resident_clusters[index] * (int)(per_sm > 0 ? per_sm : 1);
    return finish(call, CUDA_RESULT_SUCCESS);
}

cuda_result cuLaunchKernelEx(const struct cuda_launch_config *config, cuda_function handle, void **parameters, void **extra) {
    struct fake_cuda_call *call = begin_in_context("cuLaunchKernelEx");
    struct cuda_function *function = find_function(handle);
    call->function = handle;
    call->stream = config->stream;
    call->config = *config;
    call->config.attributes = NULL;
    call->capturing = capture_status(config->stream) != 0;
    for (unsigned index = 0; index < config->num_attributes && index < FAKE_CUDA_MAX_ATTRIBUTES && config->attributes; index++)
        call->launch_attributes[index] = config->attributes[index];
    if (!is_usable(function))
        return finish(call, call->result ? call->result : misuse(INVALID_HANDLE));
    memcpy(call->kernel, function->name, sizeof call->kernel);
    if (!call->result && function->module->context_id != current_context().id)
        call->result = misuse(INVALID_HANDLE);
    if (!call->result && (!parameters || !parameters[0] || extra))
        call->result = INVALID_VALUE;
    if (!call->result)
        call->result = check_launch(config, function);
    if (!call->result) {
        call->parameter_bytes = state.parameter_bytes;
        memcpy(call->parameters, parameters[0], state.parameter_bytes);
    }
    return finish(call, call->result);
}

cuda_result cuStreamIsCapturing(libdecode_stream stream, int *status) {
    struct fake_cuda_call *call = begin_in_context("cuStreamIsCapturing");
    call->stream = stream;
    if (!call->result)
        *status = capture_status(stream);
    return finish(call, call->result);
}

cuda_result cuThreadExchangeStreamCaptureMode(int *mode) {
    struct fake_cuda_call *call = begin_initialised("cuThreadExchangeStreamCaptureMode");
    call->value = *mode;
    if (!call->result && (*mode < 0 || *mode > CUDA_CAPTURE_MODE_RELAXED))
        call->result = INVALID_VALUE;
    if (!call->result) {
        *mode = thread.capture_mode;
        thread.capture_mode = call->value;
    }
    return finish(call, call->result);
}

cuda_result cuMemcpyHtoDAsync_v2(cuda_address to, const void *from, size_t bytes, libdecode_stream stream) {
    struct fake_cuda_call *call = begin_in_context("cuMemcpyHtoDAsync_v2");
    call->address = to;
    call->source = from;
    call->bytes = bytes;
    call->stream = stream;
    call->capturing = capture_status(stream) != 0;
    if (!call->result && (!to || !from))
        call->result = INVALID_VALUE;
    return finish(call, call->result);
}

cuda_result cuMemsetD8Async(cuda_address address, unsigned char value, size_t bytes, libdecode_stream stream) {
    struct fake_cuda_call *call = begin_in_context("cuMemsetD8Async");
    call->address = address;
    call->pattern = value;
    call->bytes = bytes;
    call->stream = stream;
    if (!call->result && !address)
        call->result = INVALID_VALUE;
    return finish(call, call->result);
}

/* The documented rules of cuTensorMapEncodeTiled for INTERLEAVE_NONE and whole-byte types. */
static cuda_result check_tensor_map(const struct fake_cuda_call *call) {
    static const unsigned element_bytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
    static const unsigned swizzle_bytes[] = {256 * 8, 32, 64, 128, 128, 128, 128};
    if (call->tensor_map.data_type < 0 || call->tensor_map.data_type > 12 || call->tensor_map.interleave != 0 ||
        call->tensor_map.swizzle < 0 || call->tensor_map.swizzle > 6 || call->tensor_map.promotion < 0 ||
        call->tensor_map.promotion > 3 || call->tensor_map.fill < 0 || call->tensor_map.fill > 1 || !call->address ||
        call->address % 16)
        return INVALID_VALUE;
    for (uint32_t axis = 0; axis < call->tensor_map.rank; axis++) {
        if (!call->tensor_map.dims[axis] || call->tensor_map.dims[axis] > 1ull << 32 || !call->tensor_map.box[axis] ||
            call->tensor_map.box[axis] > 256 || !call->tensor_map.element_strides[axis] ||
            call->tensor_map.element_strides[axis] > 8)
            return INVALID_VALUE;
        if (axis && (call->tensor_map.strides[axis - 1] % 16 || call->tensor_map.strides[axis - 1] >= 1ull << 40))
            return INVALID_VALUE;
    }
    unsigned inner_bytes = call->tensor_map.box[0] * element_bytes[call->tensor_map.data_type];
    return inner_bytes % 16 || inner_bytes > swizzle_bytes[call->tensor_map.swizzle] ? INVALID_VALUE : CUDA_RESULT_SUCCESS;
}

cuda_result cuTensorMapEncodeTiled(struct libdecode_tensor_map *map, int data_type, uint32_t rank, void *address,
                                   const uint64_t *dims, const uint64_t *strides, const uint32_t *box,
                                   const uint32_t *element_strides, int interleave, int swizzle, int promotion, int fill) {
    struct fake_cuda_call *call = begin_initialised("cuTensorMapEncodeTiled");
    call->address = (cuda_address)(uintptr_t)address;
    call->tensor_map.data_type = data_type;
    call->tensor_map.rank = rank;
    call->tensor_map.interleave = interleave;
    call->tensor_map.swizzle = swizzle;
    call->tensor_map.promotion = promotion;
    call->tensor_map.fill = fill;
    if (!call->result && (rank < 1 || rank > 5 || (uintptr_t)map % 64))
        call->result = INVALID_VALUE;
    if (call->result)
        return finish(call, call->result);
    memcpy(call->tensor_map.dims, dims, rank * sizeof *dims);
    memcpy(call->tensor_map.strides, strides, (rank - 1) * sizeof *strides);
    memcpy(call->tensor_map.box, box, rank * sizeof *box);
    memcpy(call->tensor_map.element_strides, element_strides, rank * sizeof *element_strides);
    call->result = check_tensor_map(call);
    if (call->result)
        return finish(call, call->result);
    for (size_t word = 0; word < 16; word++)
        map->opaque[word] = FAKE_CUDA_TENSOR_MAP_PATTERN;
    map->opaque[0] = FAKE_CUDA_TENSOR_MAP_MARK;
    map->opaque[1] = call->address;
    map->opaque[2] = state.num_records - 1;
    return finish(call, CUDA_RESULT_SUCCESS);
}
