/* SPDX-License-Identifier: Apache-2.0 */
/* env.c: the process environment in, struct environment out. Next: decode.c, at libdecode_open. */
#define _GNU_SOURCE 1 /* secure_getenv: a setuid program must not be steered by its caller */

#include "env.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "glob.h"
#include "status.h"

#define PREFIX "LIBDECODE_"
#define PREFIX_BYTES (sizeof PREFIX - 1)
#define MAX_NAME_BYTES 64 /* of a name that may be a slip of the pen */

const struct environment_variable environment_variables[] = {
    {"LIBDECODE_KERNEL",
     "[op:]force=GLOB, prefer=GLOB or deny=GLOB, several with commas between them: of them the last that matches a "
     "kernel decides about it; op is batch_decode or mla_decode, without it a rule is for both"},
    {"LIBDECODE_BUNDLE_PATH", "more bundles: files or folders, separated by colons"},
    {"LIBDECODE_BUNDLE_ONLY", "1: only those"},
    {"LIBDECODE_LOG", "error, warn, info or debug, on standard error"},
    {"LIBDECODE_STRICT", "1: falling back to a slower class of kernel is an error"},
    {NULL, NULL}};

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

/* Letters that have changed places with each other count as two. */
static const char *nearest_variable(const char *name) {
    size_t nearest_distance = (strlen(name) - PREFIX_BYTES + 1) / 3 + 1;
    const char *nearest = NULL;
    for (const struct environment_variable *variable = environment_variables; variable->name; variable++) {
        size_t distance = glob_distance(name, variable->name);
        if (distance < nearest_distance) {
            nearest_distance = distance;
            nearest = variable->name;
        }
    }
    return nearest;
}

static bool is_read(const char *name) {
    for (const struct environment_variable *variable = environment_variables; variable->name; variable++)
        if (strcmp(name, variable->name) == 0)
            return true;
    return strcmp(name, "LIBDECODE_LIBRARY") == 0; /* by the Python package, which finds this library with it */
}

void environment_unknown(void (*report)(void *cookie, const char *name, const char *near), void *cookie) {
    for (char **entry = environ; entry && *entry; entry++) {
        char name[MAX_NAME_BYTES];
        const size_t length = strcspn(*entry, "=");
        if (strncmp(*entry, PREFIX, PREFIX_BYTES) != 0 || length >= sizeof name)
            continue;
        memcpy(name, *entry, length);
        name[length] = '\0';
        if (!is_read(name))
            report(cookie, name, nearest_variable(name));
    }
}
