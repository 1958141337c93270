/* SPDX-License-Identifier: Apache-2.0 */
/* env.c: the LIBDECODE_* variables, read once per libdecode_open with secure_getenv. No other file of the library reads any. */
#ifndef LIBDECODE_ENV_H
#define LIBDECODE_ENV_H

#include <stdbool.h>

#include "libdecode.h"

struct environment {
    const char *kernel_policy;     /* LIBDECODE_KERNEL or NULL */
    const char *bundle_path;       /* LIBDECODE_BUNDLE_PATH, ':'-separated, or NULL */
    bool bundle_only;              /* LIBDECODE_BUNDLE_ONLY=1 */
    bool strict;                   /* LIBDECODE_STRICT=1 */
    libdecode_log_level log_level; /* LIBDECODE_LOG_DEFAULT if not set */
};

struct environment_variable {
    const char *name, *meaning;
};
extern const struct environment_variable environment_variables[]; /* those that are read; a NULL name ends them */

/* A value that is not understood is INVALID_ARGUMENT, naming variable, value and what is accepted. */
libdecode_status environment_read(struct environment *ret_environment);

/*
 * Calls `report` for every variable that is set and has a name with LIBDECODE_ in front that nobody reads. `near`: the one that may be
 * meant, or NULL.
 */
void environment_unknown(void (*report)(void *cookie, const char *name, const char *near), void *cookie);

#endif
