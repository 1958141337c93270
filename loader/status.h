/* SPDX-License-Identifier: Apache-2.0 */
/* status.h: every error is made by fail() where it happens and handed on by FORWARD(); every log line passes log_message(). */
#ifndef LIBDECODE_STATUS_H
#define LIBDECODE_STATUS_H

#include "libdecode.h"

/* Where a context's log lines go; NULL function = standard error. */
struct log_sink {
    libdecode_log_function function;
    void *cookie;
    libdecode_log_level level; /* never LIBDECODE_LOG_DEFAULT */
};

/* Stores the thread's message (cut at 1 KiB) and returns `status`. */
__attribute__((format(printf, 2, 3))) libdecode_status fail(libdecode_status status, const char *format, ...);

/* As fail(LIBDECODE_ERROR_CUDA, ...), and keeps the CUresult for libdecode_error_cuda_result. */
__attribute__((format(printf, 2, 3))) libdecode_status fail_cuda(int cuda_result, const char *format, ...);

/* The thread's last error, put aside while something else may fail that is not the caller's business. */
enum { ERROR_MESSAGE_BYTES = 1024 };
struct error_state {
    int cuda_result;
    char message[ERROR_MESSAGE_BYTES];
};
void error_save(struct error_state *ret_saved);
void error_restore(const struct error_state *saved);

/*
 * Nothing happens below the sink's level: check log_enabled() before preparing costly text. The sink's function may call the
 * library: the thread's last error survives it.
 */
__attribute__((format(printf, 3, 4))) void log_message(const struct log_sink *sink, libdecode_log_level level, const char *format,
                                                       ...);
static inline int log_enabled(const struct log_sink *sink, libdecode_log_level level) { return level <= sink->level; }

/* One "must" of libdecode.h: what it names, what was given, what is accepted. */
#define REQUIRE(condition, ...)                                                                                                  \
    do {                                                                                                                         \
        if (!(condition))                                                                                                        \
            return fail(LIBDECODE_ERROR_INVALID_ARGUMENT, __VA_ARGS__);                                                          \
    } while (0)

#define FORWARD(expression)                                                                                                      \
    do {                                                                                                                         \
        libdecode_status forwarded_status_ = (expression);                                                                       \
        if (forwarded_status_ != LIBDECODE_OK)                                                                                   \
            return forwarded_status_;                                                                                            \
    } while (0)

/*
 * Reads a caller-filled struct of any known age: copies what the caller knows into `ret` (of `known_bytes`), zero-fills the
 * rest. A longer struct than known is accepted if its unknown tail is zero. STRUCT_SIZE otherwise; `name` goes in the message.
 */
libdecode_status read_caller_struct(void *ret, size_t known_bytes, const void *caller, size_t minimum_bytes, const char *name);

/* The other direction, for libdecode_*_info: writes at most the caller's struct_size bytes and keeps struct_size. */
libdecode_status write_caller_struct(void *caller, const void *value, size_t known_bytes, const char *name);

#endif
