/* SPDX-License-Identifier: Apache-2.0 */
/* fake_controls.c: the state of the fake driver and the test's side of it; what a test scripts in, what it reads back out. */
#define _POSIX_C_SOURCE 200809L /* nanosleep, clock_gettime under -std=c17 */

#include "fake_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define MEETING_SECONDS 10

struct fake_state state = {.lock = PTHREAD_MUTEX_INITIALIZER, .meeting_is_over = PTHREAD_COND_INITIALIZER};
_Thread_local struct fake_thread thread;

/*
 * One lock around every call orders the threads of a test, so ThreadSanitizer would see none of the races of the code under test.
 * What happens inside the fake is kept from it: a real driver promises no such order.
 */
void AnnotateIgnoreSyncBegin(const char *file, int line) __attribute__((weak));
void AnnotateIgnoreSyncEnd(const char *file, int line) __attribute__((weak));
void AnnotateIgnoreReadsBegin(const char *file, int line) __attribute__((weak));
void AnnotateIgnoreReadsEnd(const char *file, int line) __attribute__((weak));
void AnnotateIgnoreWritesBegin(const char *file, int line) __attribute__((weak));
void AnnotateIgnoreWritesEnd(const char *file, int line) __attribute__((weak));

void lock_state(void) {
    if (AnnotateIgnoreSyncBegin) {
        AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
        AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
        AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
    }
    (void)pthread_mutex_lock(&state.lock);
}

void unlock_state(void) {
    (void)pthread_mutex_unlock(&state.lock);
    if (AnnotateIgnoreSyncEnd) {
        AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
        AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
        AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
    }
}

int named_value(const struct named_value *values, const char *name) {
    for (int index = 0; index < MAX_NAMED; index++)
        if (strcmp(values[index].name, name) == 0)
            return values[index].value;
    return 0;
}

int is_alive(struct context_reference reference) { return reference.context && reference.context->id == reference.id; }

int context_id_is_alive(unsigned long long id) {
    for (int index = 0; index < MAX_CONTEXTS; index++)
        if (state.contexts[index].id == id)
            return 1;
    return 0;
}

struct context_reference current_context(void) {
    return thread.stack_depth ? thread.stack[thread.stack_depth - 1] : (struct context_reference){NULL, 0};
}

int capture_status(libdecode_stream stream) {
    for (int index = 0; index < MAX_STREAMS; index++)
        if (state.captures[index].status && state.captures[index].stream == stream)
            return state.captures[index].status;
    return 0;
}

void sleep_microseconds(int microseconds) {
    struct timespec time = {microseconds / 1000000, microseconds % 1000000 * 1000L};
    (void)nanosleep(&time, NULL);
}

void wait_at_meeting(const char *name) {
    struct timespec deadline;
    if (!state.meeting.awaited || strcmp(state.meeting.name, name) != 0)
        return;
    if (--state.meeting.awaited == 0)
        (void)pthread_cond_broadcast(&state.meeting_is_over);
    (void)clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += MEETING_SECONDS;
    while (state.meeting.awaited && !state.meeting.was_missed)
        if (pthread_cond_timedwait(&state.meeting_is_over, &state.lock, &deadline) != 0)
            state.meeting.was_missed = 1;
}

struct fake_cuda_call *new_record(const char *name) {
    if (state.num_records == state.records_capacity) {
        state.records_capacity = state.records_capacity ? 2 * state.records_capacity : 256;
        state.records = realloc(state.records, state.records_capacity * sizeof *state.records);
        if (!state.records)
            abort();
    }
    struct fake_cuda_call *record = aligned_alloc(64, sizeof *record);
    if (!record)
        abort();
    memset(record, 0, sizeof *record);
    record->name = name;
    record->capture_mode = thread.capture_mode;
    if (is_alive(current_context()))
        record->context_id = current_context().id;
    state.records[state.num_records++] = record;
    return record;
}

static void set_named(struct named_value *values, const char *name, int value) {
    int free_index = -1;
    for (int index = MAX_NAMED - 1; index >= 0; index--) {
        if (strcmp(values[index].name, name) == 0) {
            values[index].value = value;
            return;
        }
        if (!values[index].name[0])
            free_index = index;
    }
    if (free_index < 0)
        abort(); /* a test scripts more names than the driver has calls */
    (void)snprintf(values[free_index].name, sizeof values[free_index].name, "%s", name);
    values[free_index].value = value;
}

static void set_current_context(cuda_context context) {
    if (!thread.stack_depth)
        thread.stack_depth = 1;
    thread.stack[thread.stack_depth - 1] = (struct context_reference){context, context ? context->id : 0};
}

static void set_attribute(int ordinal, int attribute, int value) {
    state.devices[ordinal].attributes[attribute] = value;
    state.devices[ordinal].is_set[attribute] = 1;
}

static void describe_device(int ordinal, int compute_capability) {
    static const struct {
        int compute_capability;
        const char *name;
        int sm_count, shared_bytes_per_sm, memory_clock_khz, bus_bits, l2_bytes;
    } gpus[] = {{90, "NVIDIA H200", 132, 233472, 3201000, 6144, 60 << 20},
                {100, "NVIDIA B200", 148, 233472, 3996000, 8192, 126 << 20},
                {103, "NVIDIA B300", 148, 233472, 3996000, 8192, 126 << 20},
                {120, "NVIDIA GeForce RTX 5090", 170, 102400, 14001000, 512, 96 << 20},
                {121, "NVIDIA GB10", 48, 102400, 4266000, 256, 24 << 20}};
    static const int h200_clusters[5] = {132, 66, 30, 15, 7}; /* measured */
    for (size_t gpu = 0; gpu < sizeof gpus / sizeof gpus[0]; gpu++) {
        if (gpus[gpu].compute_capability != compute_capability)
            continue;
        memset(&state.devices[ordinal], 0, sizeof state.devices[ordinal]);
        (void)snprintf(state.devices[ordinal].name, sizeof state.devices[ordinal].name, "%s", gpus[gpu].name);
        for (int index = 0; index < 5; index++)
            state.devices[ordinal].resident_clusters[index] =
                compute_capability == 90 ? h200_clusters[index] : gpus[gpu].sm_count >> index;
        set_attribute(ordinal, ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024);
        set_attribute(ordinal, ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, (int)PORTABLE_SHARED_BYTES);
        set_attribute(ordinal, ATTRIBUTE_WARP_SIZE, 32);
        set_attribute(ordinal, ATTRIBUTE_MULTIPROCESSOR_COUNT, gpus[gpu].sm_count);
        set_attribute(ordinal, ATTRIBUTE_MEMORY_CLOCK_RATE, gpus[gpu].memory_clock_khz);
        set_attribute(ordinal, ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, gpus[gpu].bus_bits);
        set_attribute(ordinal, ATTRIBUTE_L2_CACHE_SIZE, gpus[gpu].l2_bytes);
        set_attribute(ordinal, ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, compute_capability / 10);
        set_attribute(ordinal, ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, compute_capability % 10);
        set_attribute(ordinal, ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, gpus[gpu].shared_bytes_per_sm);
        set_attribute(ordinal, ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, gpus[gpu].shared_bytes_per_sm - 1024);
        return;
    }
    abort(); /* a test asks for a GPU that is none of the five; set its attributes one by one instead */
}

static void free_records(void) {
    for (size_t index = 0; index < state.num_records; index++)
        free(state.records[index]);
    state.num_records = 0;
    state.fail_at_record = 0;
}

static void free_modules(void) {
    while (state.functions) {
        struct cuda_function *next = state.functions->next;
        free(state.functions);
        state.functions = next;
    }
    while (state.modules) {
        struct cuda_module *next = state.modules->next;
        free(state.modules->image);
        free(state.modules);
        state.modules = next;
    }
}

static cuda_context create_context(int ordinal) {
    for (int index = 0; index < MAX_CONTEXTS; index++) {
        if (state.contexts[index].id)
            continue;
        state.contexts[index] = (struct cuda_context){++state.last_context_id, ordinal};
        return &state.contexts[index];
    }
    return NULL;
}

static void reset(void) {
    lock_state();
    free_records();
    free_modules();
    memset(state.devices, 0, sizeof state.devices);
    memset(state.contexts, 0, sizeof state.contexts);
    memset(state.captures, 0, sizeof state.captures);
    memset(state.failures, 0, sizeof state.failures);
    memset(state.delays, 0, sizeof state.delays);
    memset(&state.meeting, 0, sizeof state.meeting);
    state.num_devices = 1;
    state.driver_version = 13000;
    state.load_refusal = 0;
    state.has_failed = 0;
    state.parameter_bytes = 0;
    state.num_misuses = 0;
    describe_device(0, 90);
    thread.capture_mode = 0;
    thread.stack_depth = 0;
    set_current_context(create_context(0));
    unlock_state();
}

__attribute__((constructor)) static void start(void) { reset(); }

#define LOCKED(statement)                                                                                                        \
    do {                                                                                                                         \
        lock_state();                                                                                                            \
        statement;                                                                                                               \
        unlock_state();                                                                                                          \
    } while (0)

static void set_device_count(int count) { LOCKED(state.num_devices = count); }
static void set_device(int ordinal, int compute_capability) { LOCKED(describe_device(ordinal, compute_capability)); }
static void set_resident_clusters(int ordinal, unsigned cluster_size, int count) {
    LOCKED(state.devices[ordinal].resident_clusters[__builtin_ctz(cluster_size)] = count);
}

static void set_device_attribute(int ordinal, int attribute, int value) { LOCKED(set_attribute(ordinal, attribute, value)); }
static void set_driver_version(int version) { LOCKED(state.driver_version = version); }
static void context_set_current(cuda_context context) { LOCKED(set_current_context(context)); }
static void context_destroy(cuda_context context) { LOCKED(context->id = 0); }
static void refuse_loads_in_capture(cuda_result result) { LOCKED(state.load_refusal = result); }
static void fail_call(const char *name, cuda_result result) { LOCKED(set_named(state.failures, name, result)); }
static void delay_call(const char *name, unsigned microseconds) { LOCKED(set_named(state.delays, name, (int)microseconds)); }
static void set_parameter_bytes(size_t bytes) {
    LOCKED(state.parameter_bytes = bytes < FAKE_CUDA_MAX_PARAMETER_BYTES ? bytes : FAKE_CUDA_MAX_PARAMETER_BYTES);
}

static void set_device_name(int ordinal, const char *name) {
    LOCKED((void)snprintf(state.devices[ordinal].name, sizeof state.devices[ordinal].name, "%s", name));
}

static cuda_context context_create(int ordinal) {
    cuda_context context;
    LOCKED(context = create_context(ordinal));
    return context;
}

static unsigned long long context_id(cuda_context context) {
    unsigned long long id;
    LOCKED(id = context->id);
    return id;
}

static void set_capture(libdecode_stream stream, int status) {
    lock_state();
    int slot = 0;
    while (slot < MAX_STREAMS && !(state.captures[slot].status && state.captures[slot].stream == stream))
        slot++;
    for (int index = 0; slot == MAX_STREAMS && index < MAX_STREAMS; index++)
        if (!state.captures[index].status)
            slot = index;
    if (slot == MAX_STREAMS)
        abort(); /* a test captures more streams at once than there is room for */
    state.captures[slot].stream = stream;
    state.captures[slot].status = status;
    unlock_state();
}

static int capture(libdecode_stream stream) {
    int status;
    LOCKED(status = capture_status(stream));
    return status;
}

static void fail_at(size_t call, cuda_result result) {
    LOCKED(state.fail_at_record = call ? state.num_records + call : 0; state.fail_at_result = result; state.has_failed = 0);
}

static void meet_call(const char *name, unsigned threads) {
    LOCKED((void)snprintf(state.meeting.name, sizeof state.meeting.name, "%s", name); state.meeting.awaited = threads;
           state.meeting.was_missed = 0);
}

static int met(void) {
    int answer;
    LOCKED(answer = state.meeting.awaited == 0 && !state.meeting.was_missed);
    return answer;
}

static int failed(void) {
    int answer;
    LOCKED(answer = state.has_failed);
    return answer;
}

static size_t calls(void) {
    size_t count;
    LOCKED(count = state.num_records);
    return count;
}

static const struct fake_cuda_call *call_at(size_t index) {
    const struct fake_cuda_call *call;
    LOCKED(call = index < state.num_records ? state.records[index] : NULL);
    return call;
}

static size_t count_calls(const char *name) {
    size_t count = 0;
    lock_state();
    for (size_t index = 0; index < state.num_records; index++)
        count += strcmp(state.records[index]->name, name) == 0;
    unlock_state();
    return count;
}

static const struct fake_cuda_call *last_call(const char *name) {
    const struct fake_cuda_call *call = NULL;
    lock_state();
    for (size_t index = state.num_records; index > 0 && !call; index--)
        if (strcmp(state.records[index - 1]->name, name) == 0)
            call = state.records[index - 1];
    unlock_state();
    return call;
}

static void forget_calls(void) { LOCKED(free_records()); }

static size_t live_modules(void) {
    size_t count = 0;
    lock_state();
    for (const struct cuda_module *module = state.modules; module; module = module->next)
        count += !module->is_unloaded && context_id_is_alive(module->context_id);
    unlock_state();
    return count;
}

static size_t misuses(void) {
    size_t count;
    LOCKED(count = state.num_misuses);
    return count;
}

const struct fake_cuda *fake_cuda_controls(void) {
    static const struct fake_cuda controls = {
        .reset = reset,
        .set_device_count = set_device_count,
        .set_device = set_device,
        .set_device_name = set_device_name,
        .set_resident_clusters = set_resident_clusters,
        .set_device_attribute = set_device_attribute,
        .set_driver_version = set_driver_version,
        .context_create = context_create,
        .context_destroy = context_destroy,
        .context_set_current = context_set_current,
        .context_id = context_id,
        .set_capture = set_capture,
        .capture = capture,
        .refuse_loads_in_capture = refuse_loads_in_capture,
        .fail_at = fail_at,
        .failed = failed,
        .fail_call = fail_call,
        .delay_call = delay_call,
        .meet_call = meet_call,
        .met = met,
        .set_parameter_bytes = set_parameter_bytes,
        .calls = calls,
        .call = call_at,
        .count = count_calls,
        .last = last_call,
        .forget_calls = forget_calls,
        .live_modules = live_modules,
        .misuses = misuses,
    };
    return &controls;
}
