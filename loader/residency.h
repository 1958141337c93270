/* SPDX-License-Identifier: Apache-2.0 */
/*
 * residency.c: a GPU in, how many clusters of 2, 4, 8 and 16 CTAs it holds at once out. Only the driver knows: a cluster lies
 * within one part of the GPU, and which SMs of a part work differs from card to card. It answers for a kernel, so the first
 * one of the table that uses clusters is loaded to ask with.
 * Before: device_cache.c. Next: cost.c, which must not plan a second wave.
 */
#ifndef LIBDECODE_RESIDENCY_H
#define LIBDECODE_RESIDENCY_H

#include "bundle.h"
#include "device_cache.h"
#include "module.h"

struct residency;

libdecode_status residency_create(struct residency **ret_residency);
void residency_destroy(struct residency *residency);

/*
 * Fills in resident_clusters_2, _4, _8 and _16 of the facts, -1 where not one fits, or leaves them 0: not known, where no kernel can be asked with or
 * the driver does not say, or where `site` forbids to load one. Never fails, touches no error. Asked once per GPU, then remembered: no lock, no
 * allocation.
 */
void residency_find(struct residency *residency, const struct driver *driver, struct module_cache *modules,
                    const struct kernel_table *table, const struct known_device *device, struct load_site site,
                    libdecode_device *ret_facts);

#endif
