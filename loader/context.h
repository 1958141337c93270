/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a libdecode_context and a libdecode_plan are. open.c makes and ends contexts, decode.c makes and launches plans,
 * inspect.c shows both. A context does not change after libdecode_open, but for its caches, which see to threads themselves.
 */
#ifndef LIBDECODE_CONTEXT_H
#define LIBDECODE_CONTEXT_H

#include "bundle_search.h"
#include "device_cache.h"
#include "module.h"
#include "plan_memo.h"
#include "problem.h"
#include "residency.h"
#include "select.h"
#include "status.h"

struct libdecode_context {
    struct log_sink log;
    struct bundle **bundles; /* each overlays those before it */
    size_t num_bundles;
    struct bundle_place *places; /* this and what follows as in struct bundle_list */
    size_t num_places;
    char **passed_over;
    size_t num_passed_over;
    struct kernel_table table;
    struct policy policy;
    struct device_cache *devices;
    struct residency *residency;
    struct module_cache *modules;
    struct plan_memo *memo;
};

struct libdecode_plan {
    libdecode_context *context;
    struct problem problem;
    libdecode_device device;
    struct selection selection;
};

/*
 * libdecode_open, which after most errors still gives a context: with the places where bundles were looked for until then, for doctor.
 * *ret_context may be NULL. End it with libdecode_close.
 */
libdecode_status context_open(const libdecode_open_options *options, libdecode_context **ret_context);

/* Hands `status` on and logs its message if it is an error: what a public function returns. */
libdecode_status context_result(const libdecode_context *context, libdecode_status status);

/* Hands `status` on; behind the message of a refusal (2xx) it adds the bundles that were found and passed over, and why. */
libdecode_status context_refusal(const libdecode_context *context, libdecode_status status);

/* INVALID_ARGUMENT if a pointer argument of a public function is NULL. */
libdecode_status require_pointer(const void *pointer, const char *name);

#endif
