/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_cache.c: a CUDA context in, the facts of its GPU out: asked of the driver at the first need, since a context keeps its
 * device. Entries are only added until the cache ends, so that readers need no lock.
 * Beside: device.c asks, residency.c adds how many clusters fit.
 */
#ifndef LIBDECODE_DEVICE_CACHE_H
#define LIBDECODE_DEVICE_CACHE_H

#include "driver.h"

struct device_cache;

/* One CUDA context and its GPU. Lives as long as the cache. */
struct known_device {
    const struct known_device *next;
    uint64_t context_id;
    cuda_context context;
    cuda_device handle;
    libdecode_device facts; /* without the resident clusters */
};

libdecode_status device_cache_create(struct device_cache **ret_cache);
void device_cache_destroy(struct device_cache *cache);

/*
 * Of the current context, whose id (device_context_id) is `context_id`. After the first call for it: no driver call, no lock, no
 * allocation. Errors: NO_DEVICE, CUDA, OUT_OF_MEMORY.
 */
libdecode_status device_cache_get(struct device_cache *cache, const struct driver *driver, uint64_t context_id,
                                  const struct known_device **ret_device);

/* Whether a context that device_cache_get once answered for has ended. */
bool device_cache_context_ended(const struct device_cache *cache, uint64_t context_id);

#endif
