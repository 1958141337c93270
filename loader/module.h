/* SPDX-License-Identifier: Apache-2.0 */
/*
 * module.c: (kernel record, current CUDA context) in, CUfunction out: loaded once per context and image, thread-safe.
 * Before: bundle.c gives the image's bytes. Next: launch.c.
 */
#ifndef LIBDECODE_MODULE_H
#define LIBDECODE_MODULE_H

#include "kernel_table.h"
#include "driver.h"
#include "status.h"

struct module_cache;

libdecode_status module_cache_create(const struct log_sink *log, struct module_cache **ret_cache);

/* Unloads everything, under the relaxed capture mode; contexts that are gone are skipped. */
void module_cache_destroy(struct module_cache *cache);

/*
 * The function of a kernel in the current context, whose id (device_context_id) is `context_id`. Loading happens at the first
 * call per (context, image): concurrent first calls load once. The fast path is lock-free. `stream` is asked whether it is
 * capturing before a cold load: then the load is done under a relaxed capture mode and logged, or with `strict` refused with
 * COLD_IN_CAPTURE.
 * `preparing`: called by libdecode_prepare; `stream` is not looked at.
 */
libdecode_status module_function(struct module_cache *cache, const struct driver *driver, uint64_t context_id,
                                 const struct kernel_record *record, libdecode_stream stream, int strict, int preparing,
                                 cuda_function *ret_function);

#endif
