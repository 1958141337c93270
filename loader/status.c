/* SPDX-License-Identifier: Apache-2.0 */
/* status.c: what went wrong in; a status, the thread's message and a log line out. Used by every stage. */
#include "status.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* A struct_size beyond this is taken for an uninitialised field: nothing behind it is read. */
#define MAX_STRUCT_BYTES 4096

static _Thread_local char thread_message[ERROR_MESSAGE_BYTES];
static _Thread_local int thread_cuda_result;

const char *libdecode_status_name(libdecode_status status) {
    switch (status) {
    case LIBDECODE_OK:
        return "LIBDECODE_OK";
    case LIBDECODE_ERROR_INVALID_ARGUMENT:
        return "LIBDECODE_ERROR_INVALID_ARGUMENT";
    case LIBDECODE_ERROR_STRUCT_SIZE:
        return "LIBDECODE_ERROR_STRUCT_SIZE";
    case LIBDECODE_ERROR_WORKSPACE_TOO_SMALL:
        return "LIBDECODE_ERROR_WORKSPACE_TOO_SMALL";
    case LIBDECODE_ERROR_WRONG_DEVICE:
        return "LIBDECODE_ERROR_WRONG_DEVICE";
    case LIBDECODE_ERROR_UNSUPPORTED:
        return "LIBDECODE_ERROR_UNSUPPORTED";
    case LIBDECODE_ERROR_NOT_IN_BUNDLE:
        return "LIBDECODE_ERROR_NOT_IN_BUNDLE";
    case LIBDECODE_ERROR_NO_GPU_IMAGE:
        return "LIBDECODE_ERROR_NO_GPU_IMAGE";
    case LIBDECODE_ERROR_OVERRIDE:
        return "LIBDECODE_ERROR_OVERRIDE";
    case LIBDECODE_ERROR_STRICT:
        return "LIBDECODE_ERROR_STRICT";
    case LIBDECODE_ERROR_BUNDLE_NOT_FOUND:
        return "LIBDECODE_ERROR_BUNDLE_NOT_FOUND";
    case LIBDECODE_ERROR_BUNDLE_DAMAGED:
        return "LIBDECODE_ERROR_BUNDLE_DAMAGED";
    case LIBDECODE_ERROR_BUNDLE_VERSION:
        return "LIBDECODE_ERROR_BUNDLE_VERSION";
    case LIBDECODE_ERROR_IO:
        return "LIBDECODE_ERROR_IO";
    case LIBDECODE_ERROR_NO_DRIVER:
        return "LIBDECODE_ERROR_NO_DRIVER";
    case LIBDECODE_ERROR_DRIVER_TOO_OLD:
        return "LIBDECODE_ERROR_DRIVER_TOO_OLD";
    case LIBDECODE_ERROR_NO_DEVICE:
        return "LIBDECODE_ERROR_NO_DEVICE";
    case LIBDECODE_ERROR_CUDA:
        return "LIBDECODE_ERROR_CUDA";
    case LIBDECODE_ERROR_COLD_IN_CAPTURE:
        return "LIBDECODE_ERROR_COLD_IN_CAPTURE";
    case LIBDECODE_ERROR_FORKED:
        return "LIBDECODE_ERROR_FORKED";
    case LIBDECODE_ERROR_OUT_OF_MEMORY:
        return "LIBDECODE_ERROR_OUT_OF_MEMORY";
    case LIBDECODE_ERROR_INTERNAL:
        return "LIBDECODE_ERROR_INTERNAL";
    }
    return "LIBDECODE_ERROR_?";
}

const char *libdecode_error_message(void) { return thread_message; }

int libdecode_error_cuda_result(void) { return thread_cuda_result; }

/* One line, cut to fit: a message may quote file names and bytes of a damaged bundle, so control characters become '?'. */
__attribute__((format(printf, 2, 0))) static void format_line(char line[ERROR_MESSAGE_BYTES], const char *format,
                                                              va_list arguments) {
    if (vsnprintf(line, ERROR_MESSAGE_BYTES, format, arguments) < 0)
        line[0] = '\0';
    for (char *c = line; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
}

/* Formats aside first: an argument may be the thread's present message. */
__attribute__((format(printf, 1, 0))) static void store_message(const char *format, va_list arguments) {
    char line[ERROR_MESSAGE_BYTES];
    format_line(line, format, arguments);
    memcpy(thread_message, line, sizeof line);
}

libdecode_status fail(libdecode_status status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    store_message(format, arguments);
    va_end(arguments);
    thread_cuda_result = 0;
    return status;
}

libdecode_status fail_cuda(int cuda_result, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    store_message(format, arguments);
    va_end(arguments);
    thread_cuda_result = cuda_result;
    return LIBDECODE_ERROR_CUDA;
}

void error_save(struct error_state *ret_saved) {
    ret_saved->cuda_result = thread_cuda_result;
    memcpy(ret_saved->message, thread_message, sizeof thread_message);
}

void error_restore(const struct error_state *saved) {
    thread_cuda_result = saved->cuda_result;
    memcpy(thread_message, saved->message, sizeof thread_message);
}

static const char *level_name(libdecode_log_level level) {
    switch (level) {
    case LIBDECODE_LOG_ERROR:
        return "error";
    case LIBDECODE_LOG_WARN:
        return "warn";
    case LIBDECODE_LOG_INFO:
        return "info";
    case LIBDECODE_LOG_DEBUG:
        return "debug";
    case LIBDECODE_LOG_DEFAULT:
    case LIBDECODE_LOG_NONE:
        break;
    }
    return "log";
}

void log_message(const struct log_sink *sink, libdecode_log_level level, const char *format, ...) {
    if (!log_enabled(sink, level))
        return;
    char line[ERROR_MESSAGE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    format_line(line, format, arguments);
    va_end(arguments);
    if (!sink->function) {
        (void)fprintf(stderr, "libdecode: %s: %s\n", level_name(level), line);
        return;
    }
    struct error_state saved;
    error_save(&saved);
    sink->function(sink->cookie, level, line);
    error_restore(&saved);
}

/* Checks the struct_size that every caller's struct starts with. */
static libdecode_status caller_struct_bytes(const void *caller, size_t minimum_bytes, size_t known_bytes, const char *name,
                                            size_t *ret_bytes) {
    if (!caller)
        return fail(LIBDECODE_ERROR_INVALID_ARGUMENT, "%s is NULL; pass a %s with struct_size set", name, name);
    size_t bytes;
    memcpy(&bytes, caller, sizeof bytes);
    if (bytes == 0)
        return fail(LIBDECODE_ERROR_STRUCT_SIZE, "%s.struct_size is 0; set it to sizeof(%s) (%zu in this version)", name, name,
                    known_bytes);
    if (bytes < minimum_bytes || bytes > MAX_STRUCT_BYTES)
        return fail(LIBDECODE_ERROR_STRUCT_SIZE, "%s.struct_size is %zu, accepted is %zu to %d; set it to sizeof(%s)", name,
                    bytes, minimum_bytes, MAX_STRUCT_BYTES, name);
    *ret_bytes = bytes;
    return LIBDECODE_OK;
}

libdecode_status read_caller_struct(void *ret, size_t known_bytes, const void *caller, size_t minimum_bytes, const char *name) {
    size_t bytes = 0;
    FORWARD(caller_struct_bytes(caller, minimum_bytes, known_bytes, name, &bytes));
    const uint8_t *source = caller;
    for (size_t offset = known_bytes; offset < bytes; offset++)
        if (source[offset] != 0)
            return fail(
                LIBDECODE_ERROR_STRUCT_SIZE,
                "%s has a non-zero field at byte %zu, this version knows %zu bytes; leave newer fields zero or use a newer "
                "libdecode",
                name, offset, known_bytes);
    size_t copied_bytes = bytes < known_bytes ? bytes : known_bytes;
    memcpy(ret, caller, copied_bytes);
    memset((uint8_t *)ret + copied_bytes, 0, known_bytes - copied_bytes);
    memcpy(ret, &known_bytes, sizeof known_bytes);
    return LIBDECODE_OK;
}

libdecode_status write_caller_struct(void *caller, const void *value, size_t known_bytes, const char *name) {
    size_t bytes = 0;
    FORWARD(caller_struct_bytes(caller, sizeof(size_t), known_bytes, name, &bytes));
    size_t copied_bytes = bytes < known_bytes ? bytes : known_bytes;
    memcpy((uint8_t *)caller + sizeof(size_t), (const uint8_t *)value + sizeof(size_t), copied_bytes - sizeof(size_t));
    memset((uint8_t *)caller + copied_bytes, 0, bytes - copied_bytes);
    return LIBDECODE_OK;
}
