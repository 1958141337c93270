/* SPDX-License-Identifier: Apache-2.0 */
/*
 * module.c: (kernel record, current CUDA context) in, CUfunction out: loaded once per context and image, thread-safe.
 * Before: bundle.c gives the image's bytes. Next: launch.c.
 */
#ifndef LIBDECODE_MODULE_H
#define LIBDECODE_MODULE_H

#include <stdbool.h>

#include "driver.h"
#include "kernel_table.h"
#include "status.h"

struct module_cache;

libdecode_status module_cache_create(const struct log_sink *log, struct module_cache **ret_cache);

/* Unloads everything, under the relaxed capture mode; contexts that are gone are skipped. */
void module_cache_destroy(struct module_cache *cache);

/* Where a kernel is asked for that may have to be loaded. */
struct load_site {
    libdecode_stream stream; /* if it is capturing, the load is done under a relaxed capture mode and logged, */
    bool strict;             /* or refused with COLD_IN_CAPTURE */
    bool preparing;          /* not by a launch: nobody asks the stream */
};
static const struct load_site no_launch = {.preparing = true};

/*
 * The function of a kernel in the current context, whose id (device_context_id) is `context_id`. Loading happens at the first
 * call per (context, image): concurrent first calls load once. The fast path is lock-free.
 */
libdecode_status module_function(struct module_cache *cache, const struct driver *driver, uint64_t context_id,
                                 const struct kernel_record *record, struct load_site site, cuda_function *ret_function);

#endif
