/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists that only grow, one of many picked by the context's id: a reader walks one, a writer puts a new entry in front with a
 * compare-and-swap. Before: decode.c, with the current context. Next: select.c decides by the facts.
 */
#include "device_cache.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "device.h"
#include "status.h"

#define NUM_LISTS 64u

struct device_cache {
    _Atomic(const struct driver *) driver;
    _Atomic(const struct known_device *) lists[NUM_LISTS];
};

libdecode_status device_cache_create(struct device_cache **ret_cache) {
    struct device_cache *cache = calloc(1, sizeof *cache);
    if (!cache)
        return fail(LIBDECODE_ERROR_OUT_OF_MEMORY, "no memory for the facts of GPUs (%zu bytes); free memory", sizeof *cache);
    *ret_cache = cache;
    return LIBDECODE_OK;
}

void device_cache_destroy(struct device_cache *cache) {
    if (!cache)
        return;
    for (size_t list = 0; list < NUM_LISTS; list++) {
        for (const struct known_device *device = atomic_load(&cache->lists[list]); device;) {
            const struct known_device *next = device->next;
            free((void *)(uintptr_t)device);
            device = next;
        }
    }
    free(cache);
}

static const struct known_device *find(const struct known_device *device, uint64_t context_id) {
    while (device && device->context_id != context_id)
        device = device->next;
    return device;
}

static libdecode_status ask(const struct driver *driver, uint64_t context_id, struct known_device *ret_device) {
    struct known_device device = {.context_id = context_id};
    FORWARD(device_query(driver, &device.handle, &device.facts));
    cuda_result result = driver->ctx_get_current(&device.context);
    if (result != CUDA_RESULT_SUCCESS)
        return driver_fail(driver, result, "cuCtxGetCurrent", "asking for the current context");
    *ret_device = device;
    return LIBDECODE_OK;
}

libdecode_status device_cache_get(struct device_cache *cache, const struct driver *driver, uint64_t context_id,
                                  const struct known_device **ret_device) {
    _Atomic(const struct known_device *) *list = &cache->lists[context_id % NUM_LISTS];
    const struct known_device *head = atomic_load_explicit(list, memory_order_acquire);
    *ret_device = find(head, context_id);
    if (*ret_device)
        return LIBDECODE_OK;
    struct known_device asked;
    FORWARD(ask(driver, context_id, &asked));
    struct known_device *device = malloc(sizeof *device);
    if (!device)
        return fail(LIBDECODE_ERROR_OUT_OF_MEMORY, "no memory for the facts of the current GPU (%zu bytes); free memory",
                    sizeof *device);
    *device = asked;
    atomic_store_explicit(&cache->driver, driver, memory_order_relaxed);
    for (;;) {
        device->next = head;
        if (atomic_compare_exchange_weak_explicit(list, &head, device, memory_order_release, memory_order_acquire))
            break;
        *ret_device = find(head, context_id); /* another thread was faster */
        if (*ret_device) {
            free(device);
            return LIBDECODE_OK;
        }
    }
    *ret_device = device;
    return LIBDECODE_OK;
}

/* cuCtxGetId answers for an ended context with an error, or with another id if its address was used again. */
bool device_cache_context_ended(const struct device_cache *cache, uint64_t context_id) {
    const struct known_device *device =
        find(atomic_load_explicit(&cache->lists[context_id % NUM_LISTS], memory_order_acquire), context_id);
    if (!device)
        return false;
    const struct driver *driver = atomic_load_explicit(&cache->driver, memory_order_relaxed);
    unsigned long long id = 0;
    return driver->ctx_get_id(device->context, &id) != CUDA_RESULT_SUCCESS || id != context_id;
}
