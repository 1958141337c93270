/* SPDX-License-Identifier: Apache-2.0 */
/* env.c: the process environment in, struct environment out. Next: decode.c, at libdecode_open. */
#define _GNU_SOURCE 1 /* secure_getenv: a setuid program must not be steered by its caller */

#include "env.h"

#include <stdlib.h>
#include <string.h>

#include "status.h"

/* An empty variable counts as not set, as everywhere on Unix. */
static const char *variable(const char *name) {
    const char *value = secure_getenv(name);
    return value && *value ? value : NULL;
}

static libdecode_status read_switch(const char *name, bool *ret_on) {
    const char *value = variable(name);
    if (value && strcmp(value, "0") != 0 && strcmp(value, "1") != 0)
        return fail(LIBDECODE_ERROR_INVALID_ARGUMENT, "environment variable %s is '%s', accepted is 0 or 1; correct or unset it",
                    name, value);
    *ret_on = value && value[0] == '1';
    return LIBDECODE_OK;
}

static libdecode_status read_log_level(libdecode_log_level *ret_level) {
    static const struct {
        const char *name;
        libdecode_log_level level;
    } levels[] = {{"none", LIBDECODE_LOG_NONE},
                  {"error", LIBDECODE_LOG_ERROR},
                  {"warn", LIBDECODE_LOG_WARN},
                  {"info", LIBDECODE_LOG_INFO},
                  {"debug", LIBDECODE_LOG_DEBUG}};
    const char *value = variable("LIBDECODE_LOG");
    if (!value) {
        *ret_level = LIBDECODE_LOG_DEFAULT;
        return LIBDECODE_OK;
    }
    for (size_t index = 0; index < sizeof levels / sizeof levels[0]; index++) {
        if (strcmp(value, levels[index].name) == 0) {
            *ret_level = levels[index].level;
            return LIBDECODE_OK;
        }
    }
    return fail(LIBDECODE_ERROR_INVALID_ARGUMENT,
                "environment variable LIBDECODE_LOG is '%s', accepted is none, error, warn, info or debug; correct or unset it",
                value);
}

libdecode_status environment_read(struct environment *ret_environment) {
    struct environment environment = {.kernel_policy = variable("LIBDECODE_KERNEL"),
                                      .bundle_path = variable("LIBDECODE_BUNDLE_PATH")};
    FORWARD(read_switch("LIBDECODE_BUNDLE_ONLY", &environment.bundle_only));
    FORWARD(read_switch("LIBDECODE_STRICT", &environment.strict));
    FORWARD(read_log_level(&environment.log_level));
    *ret_environment = environment;
    return LIBDECODE_OK;
}
