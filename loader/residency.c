/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A GPU in, the number of clusters that are resident at once out, for each of four sizes. A list that only grows: one entry a
 * GPU. Before: device_cache.c. Beside: module.c loads the kernel that is asked with, as a launch would.
 */
#include "residency.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "target.h"

#define NUM_SIZES 4 /* clusters of 2, 4, 8, 16 */

struct residency_entry {
    struct residency_entry *next;
    cuda_device device;
    int32_t clusters[NUM_SIZES];
};

struct residency {
    _Atomic(struct residency_entry *) entries;
};

libdecode_status residency_create(struct residency **ret_residency) {
    struct residency *residency = calloc(1, sizeof *residency);
    if (!residency)
        return fail(LIBDECODE_ERROR_OUT_OF_MEMORY, "no memory for what fits on GPUs (%zu bytes); free memory", sizeof *residency);
    *ret_residency = residency;
    return LIBDECODE_OK;
}

void residency_destroy(struct residency *residency) {
    if (!residency)
        return;
    for (struct residency_entry *entry = atomic_load(&residency->entries); entry;) {
        struct residency_entry *next = entry->next;
        free(entry);
        entry = next;
    }
    free(residency);
}

static const struct kernel_record *kernel_with_clusters(const struct kernel_table *table, const libdecode_device *facts) {
    for (size_t i = 0; i < table->count; i++)
        if (table->records[i].family && table->records[i].kernel->contract.cluster_size > 1 &&
            (table->gpus[i] & gpu_bit(facts->compute_capability)) != 0 &&
            bundle_runs_on(table->records[i].bundle, facts->driver_version))
            return &table->records[i];
    return NULL;
}

/* More than half of an SM's shared memory, so that a second CTA never fits beside the first. */
static uint32_t filling_shared_bytes(const struct libdecode_launch_contract *contract, const libdecode_device *facts) {
    uint32_t half = (uint32_t)facts->shared_bytes_per_sm / 2 + 1;
    return contract->dynamic_shared_bytes > half ? contract->dynamic_shared_bytes : half;
}

/* 0 if the driver does not say, -1 if it says that none fits: in a part of a GPU, say. */
static int32_t resident_clusters(const struct driver *driver, cuda_function function, uint32_t cluster_size, uint32_t threads,
                                 uint32_t shared_bytes, int32_t sm_count) {
    struct cuda_launch_attribute attribute = {.id = CUDA_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION};
    attribute.value.cluster.x = cluster_size;
    attribute.value.cluster.y = attribute.value.cluster.z = 1;
    const struct cuda_launch_config config = {.grid_x = cluster_size,
                                              .grid_y = 1,
                                              .grid_z = 1,
                                              .block_x = threads,
                                              .block_y = 1,
                                              .block_z = 1,
                                              .shared_bytes = shared_bytes,
                                              .attributes = &attribute,
                                              .num_attributes = 1};
    int count = 0;
    if (driver->occupancy_max_active_clusters(&count, function, &config) != CUDA_RESULT_SUCCESS)
        return 0;
    if (count == 0)
        return -1;
    return count > 0 && count <= sm_count / (int32_t)cluster_size ? count : 0;
}

/* False if no kernel can be asked with. The attributes only allow more than the kernel's own launches need. */
static bool ask(const struct driver *driver, struct module_cache *modules, const struct kernel_table *table,
                const struct known_device *device, struct load_site site, int32_t ret_clusters[NUM_SIZES]) {
    cuda_function function;
    const struct kernel_record *record = kernel_with_clusters(table, &device->facts);
    if (!record || module_function(modules, driver, device->context_id, record, site, &function) != LIBDECODE_OK)
        return false;
    const struct libdecode_launch_contract *contract = &record->kernel->contract;
    uint32_t shared_bytes = filling_shared_bytes(contract, &device->facts);
    (void)driver->func_set_attribute(function, CUDA_FUNC_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)shared_bytes);
    (void)driver->func_set_attribute(function, CUDA_FUNC_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1);
    for (uint32_t i = 0; i < NUM_SIZES; i++)
        ret_clusters[i] = resident_clusters(driver, function, 2u << i, contract->threads, shared_bytes, device->facts.sm_count);
    return true;
}

static const struct residency_entry *find(const struct residency_entry *entry, cuda_device device) {
    while (entry && entry->device != device)
        entry = entry->next;
    return entry;
}

/* Two threads that ask at once both add their answer, which is the same. Without memory it is asked again. */
static void remember(struct residency *residency, cuda_device device, const int32_t clusters[NUM_SIZES]) {
    struct residency_entry *entry = malloc(sizeof *entry);
    if (!entry)
        return;
    entry->device = device;
    for (int i = 0; i < NUM_SIZES; i++)
        entry->clusters[i] = clusters[i];
    entry->next = atomic_load_explicit(&residency->entries, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&residency->entries, &entry->next, entry, memory_order_release,
                                                  memory_order_relaxed))
        continue;
}

void residency_find(struct residency *residency, const struct driver *driver, struct module_cache *modules,
                    const struct kernel_table *table, const struct known_device *device, struct load_site site,
                    libdecode_device *ret_facts) {
    int32_t asked[NUM_SIZES] = {0};
    const int32_t *clusters = asked;
    const struct residency_entry *entry = find(atomic_load_explicit(&residency->entries, memory_order_acquire), device->handle);
    if (entry) {
        clusters = entry->clusters;
    } else {
        struct error_state saved; /* that the kernel cannot be loaded is no error of this call */
        error_save(&saved);
        if (ask(driver, modules, table, device, site, asked))
            remember(residency, device->handle, asked);
        error_restore(&saved);
    }
    ret_facts->resident_clusters_2 = clusters[0];
    ret_facts->resident_clusters_4 = clusters[1];
    ret_facts->resident_clusters_8 = clusters[2];
    ret_facts->resident_clusters_16 = clusters[3];
}
