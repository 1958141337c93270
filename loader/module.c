/* SPDX-License-Identifier: Apache-2.0 */
/*
 * module.c: (kernel record, current CUDA context) in, CUfunction out: loaded once per context and image.
 *
 * Two tables, both of lists that only grow until the cache is destroyed, so that readers need no lock:
 *     functions   (context id, kernel)        -> CUfunction; an entry appears when it is ready and never changes
 *     modules     (context id, bundle, image) -> CUmodule and its lock, which is held while the image is read and loaded
 * A context's id is never used again, its address may be: the id decides.
 *
 * Before: bundle.c gives the image's bytes. Next: launch.c.
 */
#include "module.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FUNCTION_LISTS 256u
#define MODULE_LISTS 64u
#define PORTABLE_SHARED_BYTES (48u * 1024u) /* beyond these, a function needs an attribute before it can be launched */
#define PORTABLE_CLUSTER_SIZE 8u

struct function_entry {
    struct function_entry *next;
    uint64_t context_id;
    const struct bundle_kernel *kernel; /* an address in its bundle's table: says bundle and name */
    cuda_function function;
};

struct module_slot {
    struct module_slot *next;
    uint64_t context_id;
    cuda_context context;
    const struct bundle *bundle;
    uint32_t image;
    pthread_mutex_t lock; /* guards what follows */
    cuda_module module;   /* NULL: not loaded */
    char *damage;         /* the message of an image that can never be loaded, or NULL */
};

struct module_cache {
    struct log_sink log;
    _Atomic(const struct driver *) driver; /* of the first load; NULL: nothing to unload */
    _Atomic(struct function_entry *) functions[FUNCTION_LISTS];
    _Atomic(struct module_slot *) modules[MODULE_LISTS];
};

/* One cold call on its way through the file. */
struct cold_load {
    struct module_cache *cache;
    const struct driver *driver;
    const struct kernel_record *record;
    struct module_slot *slot;
    bool capturing;
};

libdecode_status module_cache_create(const struct log_sink *log, struct module_cache **ret_cache) {
    struct module_cache *cache = calloc(1, sizeof *cache);
    if (!cache)
        return fail(LIBDECODE_ERROR_OUT_OF_MEMORY, "no memory for the cache of loaded kernels (%zu bytes); free memory",
                    sizeof *cache);
    cache->log = *log;
    *ret_cache = cache;
    return LIBDECODE_OK;
}

/* Which list: Fibonacci hashing of two words. */
static size_t list_of(uint64_t context_id, const void *address, uint32_t image, size_t num_lists) {
    uint64_t mixed = (context_id * 31 + image) ^ ((uint64_t)(uintptr_t)address >> 4);
    return (size_t)(mixed * 0x9e3779b97f4a7c15ull >> 32) % num_lists;
}

/* ------------------------------------------------------------------------------------------------------ the fast path */

static bool find_function(struct module_cache *cache, uint64_t context_id, const struct bundle_kernel *kernel,
                          cuda_function *ret_function) {
    size_t list = list_of(context_id, kernel, 0, FUNCTION_LISTS);
    const struct function_entry *entry = atomic_load_explicit(&cache->functions[list], memory_order_acquire);
    for (; entry; entry = entry->next) {
        if (entry->context_id == context_id && entry->kernel == kernel) {
            *ret_function = entry->function;
            return true;
        }
    }
    return false;
}

/* ------------------------------------------------------------------------------------------------------ the cold path */

static void publish_function(struct module_cache *cache, struct function_entry *entry) {
    _Atomic(struct function_entry *) *list = &cache->functions[list_of(entry->context_id, entry->kernel, 0, FUNCTION_LISTS)];
    entry->next = atomic_load_explicit(list, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(list, &entry->next, entry, memory_order_release, memory_order_relaxed))
        continue;
}

static struct module_slot *find_slot(struct module_slot *slot, uint64_t context_id, const struct kernel_record *record) {
    while (slot && (slot->context_id != context_id || slot->bundle != record->bundle || slot->image != record->kernel->image))
        slot = slot->next;
    return slot;
}

static struct module_slot *new_slot(uint64_t context_id, cuda_context context, const struct kernel_record *record) {
    struct module_slot *slot = calloc(1, sizeof *slot);
    if (!slot)
        return NULL;
    slot->context_id = context_id;
    slot->context = context;
    slot->bundle = record->bundle;
    slot->image = record->kernel->image;
    if (pthread_mutex_init(&slot->lock, NULL) != 0) {
        free(slot);
        return NULL;
    }
    return slot;
}

static void free_slot(struct module_slot *slot) {
    (void)pthread_mutex_destroy(&slot->lock);
    free(slot->damage);
    free(slot);
}

/* Finds the image's slot or adds it; of two threads that add at once, the second finds the first one's. */
static libdecode_status get_slot(struct cold_load *load, uint64_t context_id) {
    const struct kernel_record *record = load->record;
    size_t list_index = list_of(context_id, record->bundle, record->kernel->image, MODULE_LISTS);
    _Atomic(struct module_slot *) *list = &load->cache->modules[list_index];
    struct module_slot *head = atomic_load_explicit(list, memory_order_acquire);
    load->slot = find_slot(head, context_id, record);
    if (load->slot)
        return LIBDECODE_OK;
    cuda_context context = NULL;
    cuda_result result = load->driver->ctx_get_current(&context);
    if (result != CUDA_RESULT_SUCCESS)
        return driver_fail(load->driver, result, "cuCtxGetCurrent", "asking for the current context");
    struct module_slot *slot = new_slot(context_id, context, record);
    if (!slot)
        return fail(LIBDECODE_ERROR_OUT_OF_MEMORY, "kernel %s: no memory to keep track of it; free memory and try again",
                    record->name);
    for (;;) {
        slot->next = head;
        if (atomic_compare_exchange_weak_explicit(list, &head, slot, memory_order_release, memory_order_acquire))
            break;
        load->slot = find_slot(head, context_id, record);
        if (load->slot) {
            free_slot(slot);
            return LIBDECODE_OK;
        }
    }
    load->slot = slot;
    return LIBDECODE_OK;
}

static libdecode_status cold_in_capture(const struct cold_load *load, const char *reason) {
    return fail(LIBDECODE_ERROR_COLD_IN_CAPTURE,
                "kernel %s is not loaded yet, and %s; before the capture begins call libdecode_prepare for its plan, or "
                "libdecode_decode once for what it "
                "will be asked",
                load->record->name, reason);
}

static const char *remedy(cuda_result result) {
    switch (result) {
    case CUDA_RESULT_OUT_OF_MEMORY:
        return "free device memory and try again";
    case CUDA_RESULT_INVALID_IMAGE:
        return "the image passed every check, so the driver may be too old for it: update the driver";
    case CUDA_RESULT_NO_BINARY_FOR_GPU:
        return "the current GPU is not the one that the plan was made for";
    default:
        return "an earlier CUDA call may have failed; `libdecode doctor` checks this machine";
    }
}

static libdecode_status load_failed(const struct cold_load *load, cuda_result result, const char *call) {
    char what[512];
    if (result == CUDA_RESULT_STREAM_CAPTURE_UNSUPPORTED || result == CUDA_RESULT_STREAM_CAPTURE_INVALIDATED)
        return cold_in_capture(load, "this driver refuses to load it while a stream is captured");
    (void)snprintf(what, sizeof what, "loading kernel %s of bundle %s; %s", load->record->name, bundle_path(load->record->bundle),
                   remedy(result));
    return driver_fail(load->driver, result, call, what);
}

static libdecode_status check_capture(struct cold_load *load, struct load_site site) {
    int status = 0;
    cuda_result result = load->driver->stream_is_capturing(site.stream, &status);
    if (result != CUDA_RESULT_SUCCESS)
        return load_failed(load, result, "cuStreamIsCapturing");
    load->capturing = status != 0;
    if (load->capturing && site.strict)
        return cold_in_capture(load, "strict forbids to load it inside a stream capture");
    return LIBDECODE_OK;
}

/* Damage is final: bytes that were all there were wrong, and reading them again at every launch would be slow. What else goes
 * wrong, a file that is short for a moment among it, may pass. */
static libdecode_status read_image(const struct cold_load *load, void **ret_image) {
    struct module_slot *slot = load->slot;
    if (slot->damage)
        return fail(LIBDECODE_ERROR_BUNDLE_DAMAGED, "%s", slot->damage);
    libdecode_status status = bundle_read_image(slot->bundle, slot->image, ret_image);
    if (status == LIBDECODE_ERROR_BUNDLE_DAMAGED) {
        size_t bytes = strlen(libdecode_error_message()) + 1;
        slot->damage = malloc(bytes);
        if (slot->damage)
            memcpy(slot->damage, libdecode_error_message(), bytes);
    }
    return status;
}

/* The driver's part, inside the relaxed capture mode. `image` is NULL if the module is there already. */
static libdecode_status load_function(const struct cold_load *load, const void *image, cuda_function *ret_function) {
    const struct driver *driver = load->driver;
    const struct libdecode_launch_contract *contract = &load->record->kernel->contract;
    struct module_slot *slot = load->slot;
    cuda_function function = NULL;
    if (image) {
        cuda_module module = NULL;
        cuda_result result = driver->module_load_data(&module, image);
        if (result != CUDA_RESULT_SUCCESS)
            return load_failed(load, result, "cuModuleLoadData");
        slot->module = module;
    }
    cuda_result result = driver->module_get_function(&function, slot->module, load->record->name);
    if (result != CUDA_RESULT_SUCCESS)
        return load_failed(load, result, "cuModuleGetFunction");
    if (contract->dynamic_shared_bytes > PORTABLE_SHARED_BYTES)
        result =
            driver->func_set_attribute(function, CUDA_FUNC_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)contract->dynamic_shared_bytes);
    if (result == CUDA_RESULT_SUCCESS && contract->cluster_size > PORTABLE_CLUSTER_SIZE)
        result = driver->func_set_attribute(function, CUDA_FUNC_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1);
    if (result != CUDA_RESULT_SUCCESS)
        return load_failed(load, result, "cuFuncSetAttribute");
    /* Under lazy loading the code would come with the first launch, which may be in a capture. */
    if (driver->func_load)
        result = driver->func_load(function);
    if (result != CUDA_RESULT_SUCCESS)
        return load_failed(load, result, "cuFuncLoad");
    *ret_function = function;
    return LIBDECODE_OK;
}

/*
 * Relaxed always: another thread may be capturing in global mode, and its capture must survive our load.
 * The thread's own mode comes back even if the load fails.
 */
static libdecode_status load_function_relaxed(const struct cold_load *load, const void *image, cuda_function *ret_function) {
    int mode = CUDA_CAPTURE_MODE_RELAXED;
    cuda_result result = load->driver->thread_exchange_stream_capture_mode(&mode);
    if (result != CUDA_RESULT_SUCCESS)
        return load_failed(load, result, "cuThreadExchangeStreamCaptureMode");
    libdecode_status status = load_function(load, image, ret_function);
    result = load->driver->thread_exchange_stream_capture_mode(&mode);
    FORWARD(status);
    return result == CUDA_RESULT_SUCCESS ? LIBDECODE_OK : load_failed(load, result, "cuThreadExchangeStreamCaptureMode");
}

/* With the slot locked. */
static libdecode_status load_locked(struct cold_load *load, cuda_function *ret_function) {
    const struct bundle_header *header = bundle_header(load->record->bundle);
    void *image = NULL;
    if (!bundle_runs_on(load->record->bundle, load->driver->version))
        return fail(LIBDECODE_ERROR_DRIVER_TOO_OLD,
                    "kernel %s of bundle %s needs a driver for CUDA %u.%u, this one is for %d.%d; update "
                    "the driver",
                    load->record->name, bundle_path(load->record->bundle), header->min_driver / 1000,
                    header->min_driver % 1000 / 10, load->driver->version / 1000, load->driver->version % 1000 / 10);
    struct function_entry *entry = malloc(sizeof *entry);
    if (!entry)
        return fail(LIBDECODE_ERROR_OUT_OF_MEMORY, "kernel %s: no memory to remember it; free memory and try again",
                    load->record->name);
    cuda_function function = NULL;
    libdecode_status status = load->slot->module ? LIBDECODE_OK : read_image(load, &image);
    if (status == LIBDECODE_OK)
        status = load_function_relaxed(load, image, &function);
    free(image); /* the driver has made its own copy */
    if (status != LIBDECODE_OK) {
        free(entry);
        return status;
    }
    *entry = (struct function_entry){.context_id = load->slot->context_id, .kernel = load->record->kernel, .function = function};
    publish_function(load->cache, entry);
    *ret_function = function;
    return LIBDECODE_OK;
}

static void log_load(const struct cold_load *load) {
    if (load->capturing)
        log_message(&load->cache->log, LIBDECODE_LOG_WARN,
                    "kernel %s was loaded inside a stream capture; libdecode_prepare before the capture avoids that",
                    load->record->name);
    log_message(&load->cache->log, LIBDECODE_LOG_DEBUG, "kernel %s loaded from bundle %s into context %llu", load->record->name,
                bundle_path(load->record->bundle), (unsigned long long)load->slot->context_id);
}

libdecode_status module_function(struct module_cache *cache, const struct driver *driver, uint64_t context_id,
                                 const struct kernel_record *record, struct load_site site, cuda_function *ret_function) {
    if (find_function(cache, context_id, record->kernel, ret_function))
        return LIBDECODE_OK;

    struct cold_load load = {.cache = cache, .driver = driver, .record = record};
    bool loaded = false;
    atomic_store_explicit(&cache->driver, driver, memory_order_relaxed);
    FORWARD(get_slot(&load, context_id));
    (void)pthread_mutex_lock(&load.slot->lock);
    libdecode_status status = LIBDECODE_OK;
    if (!find_function(cache, context_id, record->kernel, ret_function)) {
        if (!site.preparing)
            status = check_capture(&load, site);
        if (status == LIBDECODE_OK)
            status = load_locked(&load, ret_function);
        loaded = status == LIBDECODE_OK;
    }
    (void)pthread_mutex_unlock(&load.slot->lock);
    if (loaded)
        log_load(&load); /* not under the lock: the caller's log function may call libdecode */
    return status;
}

/* ---------------------------------------------------------------------------------------------------------- the end */

/* A context that died took its modules along. */
static bool is_gone(cuda_result result) {
    return result == CUDA_RESULT_DEINITIALIZED || result == CUDA_RESULT_INVALID_CONTEXT ||
           result == CUDA_RESULT_CONTEXT_IS_DESTROYED;
}

/*
 * A module is unloaded with its own context current, and only if that context lives: a stale module handle must never reach
 * the driver. cuCtxGetId answers for a destroyed context with an error (a documented result), or with another id if the
 * address was used again.
 */
static cuda_result unload_module(const struct driver *driver, const struct module_slot *slot) {
    unsigned long long id = 0;
    if (driver->ctx_get_id(NULL, &id) == CUDA_RESULT_SUCCESS && id == slot->context_id)
        return driver->module_unload(slot->module);
    cuda_result result = driver->ctx_get_id(slot->context, &id);
    if (result != CUDA_RESULT_SUCCESS || id != slot->context_id)
        return CUDA_RESULT_CONTEXT_IS_DESTROYED;
    result = driver->ctx_push_current(slot->context);
    if (result != CUDA_RESULT_SUCCESS)
        return result;
    result = driver->module_unload(slot->module);
    cuda_context popped = NULL;
    cuda_result pop_result = driver->ctx_pop_current(&popped);
    return result != CUDA_RESULT_SUCCESS ? result : pop_result;
}

static void unload_modules(struct module_cache *cache, const struct driver *driver) {
    int mode = CUDA_CAPTURE_MODE_RELAXED;
    if (driver->thread_exchange_stream_capture_mode(&mode) != CUDA_RESULT_SUCCESS)
        return; /* the driver is shutting down */
    for (size_t list = 0; list < MODULE_LISTS; list++) {
        for (struct module_slot *slot = atomic_load(&cache->modules[list]); slot; slot = slot->next) {
            cuda_result result = slot->module ? unload_module(driver, slot) : CUDA_RESULT_SUCCESS;
            if (result != CUDA_RESULT_SUCCESS && !is_gone(result))
                log_message(&cache->log, LIBDECODE_LOG_WARN, "image %u of bundle %s could not be unloaded: CUresult %d",
                            slot->image, bundle_path(slot->bundle), result);
        }
    }
    (void)driver->thread_exchange_stream_capture_mode(&mode);
}

void module_cache_destroy(struct module_cache *cache) {
    if (!cache)
        return;
    const struct driver *driver = atomic_load(&cache->driver);
    if (driver && !driver_forked())
        unload_modules(cache, driver);
    for (size_t list = 0; list < MODULE_LISTS; list++) {
        for (struct module_slot *slot = atomic_load(&cache->modules[list]); slot;) {
            struct module_slot *next = slot->next;
            free_slot(slot);
            slot = next;
        }
    }
    for (size_t list = 0; list < FUNCTION_LISTS; list++) {
        for (struct function_entry *entry = atomic_load(&cache->functions[list]); entry;) {
            struct function_entry *next = entry->next;
            free(entry);
            entry = next;
        }
    }
    free(cache);
}
