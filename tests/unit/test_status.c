/* SPDX-License-Identifier: Apache-2.0 */
/* test_status.c: the thread's message, log lines, and structs that callers of another age fill. Under test: loader/status.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#undef fail /* status.h has a function of that name */

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "status.h"

static void status_name_is_the_enumerator(void **state) {
    (void)state;
    static const struct {
        libdecode_status status;
        const char *name;
    } names[] = {
#define ROW(name) {name, #name}
        ROW(LIBDECODE_OK),
        ROW(LIBDECODE_ERROR_INVALID_ARGUMENT),
        ROW(LIBDECODE_ERROR_STRUCT_SIZE),
        ROW(LIBDECODE_ERROR_WORKSPACE_TOO_SMALL),
        ROW(LIBDECODE_ERROR_WRONG_DEVICE),
        ROW(LIBDECODE_ERROR_UNSUPPORTED),
        ROW(LIBDECODE_ERROR_NOT_IN_BUNDLE),
        ROW(LIBDECODE_ERROR_NO_GPU_IMAGE),
        ROW(LIBDECODE_ERROR_OVERRIDE),
        ROW(LIBDECODE_ERROR_STRICT),
        ROW(LIBDECODE_ERROR_BUNDLE_NOT_FOUND),
        ROW(LIBDECODE_ERROR_BUNDLE_DAMAGED),
        ROW(LIBDECODE_ERROR_BUNDLE_VERSION),
        ROW(LIBDECODE_ERROR_IO),
        ROW(LIBDECODE_ERROR_NO_DRIVER),
        ROW(LIBDECODE_ERROR_DRIVER_TOO_OLD),
        ROW(LIBDECODE_ERROR_NO_DEVICE),
        ROW(LIBDECODE_ERROR_CUDA),
        ROW(LIBDECODE_ERROR_COLD_IN_CAPTURE),
        ROW(LIBDECODE_ERROR_FORKED),
        ROW(LIBDECODE_ERROR_OUT_OF_MEMORY),
        ROW(LIBDECODE_ERROR_INTERNAL),
#undef ROW
    };
    for (size_t index = 0; index < sizeof names / sizeof names[0]; index++)
        assert_string_equal(libdecode_status_name(names[index].status), names[index].name);
    assert_string_equal(libdecode_status_name((libdecode_status)7), "LIBDECODE_ERROR_?");
}

static void fail_keeps_the_message_and_returns_the_status(void **state) {
    (void)state;
    assert_int_equal(fail(LIBDECODE_ERROR_IO, "file %s: %d", "a", 5), LIBDECODE_ERROR_IO);
    assert_string_equal(libdecode_error_message(), "file a: 5");
}

static void fail_accepts_the_present_message_as_an_argument(void **state) {
    (void)state;
    (void)fail(LIBDECODE_ERROR_IO, "inner");
    (void)fail(LIBDECODE_ERROR_IO, "outer: %s", libdecode_error_message());
    assert_string_equal(libdecode_error_message(), "outer: inner");
}

static void a_message_is_one_line_of_at_most_1023_bytes(void **state) {
    (void)state;
    char text[3000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    text[1] = '\n';
    text[2] = '\x1b';
    (void)fail(LIBDECODE_ERROR_IO, "%s", text);
    assert_int_equal(strlen(libdecode_error_message()), 1023);
    assert_memory_equal(libdecode_error_message(), "x??x", 4);
}

static void cuda_result_is_that_of_the_last_error_only(void **state) {
    (void)state;
    assert_int_equal(fail_cuda(700, "cuX: %d", 700), LIBDECODE_ERROR_CUDA);
    assert_int_equal(libdecode_error_cuda_result(), 700);
    (void)fail(LIBDECODE_ERROR_IO, "other");
    assert_int_equal(libdecode_error_cuda_result(), 0);
}

static void *message_of_a_new_thread(void *ret_message) {
    memcpy(ret_message, libdecode_error_message(), 1);
    (void)fail_cuda(1, "of the thread");
    return NULL;
}

static void every_thread_has_its_own_message(void **state) {
    (void)state;
    pthread_t thread;
    char first = 'x';
    (void)fail(LIBDECODE_ERROR_IO, "mine");
    assert_int_equal(pthread_create(&thread, NULL, message_of_a_new_thread, &first), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(first, '\0');
    assert_string_equal(libdecode_error_message(), "mine");
    assert_int_equal(libdecode_error_cuda_result(), 0);
}

static libdecode_status forwarder(libdecode_status status) {
    FORWARD(status);
    return LIBDECODE_ERROR_INTERNAL;
}

static void forward_returns_errors_and_goes_on_after_success(void **state) {
    (void)state;
    assert_int_equal(forwarder(LIBDECODE_ERROR_FORKED), LIBDECODE_ERROR_FORKED);
    assert_int_equal(forwarder(LIBDECODE_OK), LIBDECODE_ERROR_INTERNAL);
}

struct caught_log {
    int lines;
    libdecode_log_level level;
    char message[64];
};

static void catch_log(void *cookie, libdecode_log_level level, const char *message) {
    struct caught_log *caught = cookie;
    caught->lines++;
    caught->level = level;
    (void)snprintf(caught->message, sizeof caught->message, "%s", message);
}

static void log_lines_above_the_level_are_dropped(void **state) {
    (void)state;
    struct caught_log caught = {0};
    struct log_sink sink = {.function = catch_log, .cookie = &caught, .level = LIBDECODE_LOG_WARN};
    log_message(&sink, LIBDECODE_LOG_INFO, "no");
    assert_int_equal(caught.lines, 0);
    log_message(&sink, LIBDECODE_LOG_WARN, "kernel %d\n", 3);
    assert_int_equal(caught.lines, 1);
    assert_int_equal(caught.level, LIBDECODE_LOG_WARN);
    assert_string_equal(caught.message, "kernel 3?");
    assert_true(log_enabled(&sink, LIBDECODE_LOG_ERROR));
    assert_false(log_enabled(&sink, LIBDECODE_LOG_DEBUG));
    sink.level = LIBDECODE_LOG_NONE;
    log_message(&sink, LIBDECODE_LOG_ERROR, "no");
    assert_int_equal(caught.lines, 1);
}

static void without_a_function_log_lines_go_to_standard_error(void **state) {
    (void)state;
    struct log_sink sink = {.level = LIBDECODE_LOG_DEBUG};
    char text[256] = {0};
    FILE *file = tmpfile();
    assert_non_null(file);
    FILE *standard_error = stderr;
    stderr = file; /* a variable in glibc and musl */
    log_message(&sink, LIBDECODE_LOG_ERROR, "a");
    log_message(&sink, LIBDECODE_LOG_WARN, "b");
    log_message(&sink, LIBDECODE_LOG_INFO, "c");
    log_message(&sink, LIBDECODE_LOG_DEBUG, "d");
    stderr = standard_error;
    rewind(file);
    assert_true(fread(text, 1, sizeof text - 1, file) > 0);
    (void)fclose(file);
    assert_string_equal(text, "libdecode: error: a\nlibdecode: warn: b\nlibdecode: info: c\nlibdecode: debug: d\n");
}

static void fail_again(void *cookie, libdecode_log_level level, const char *message) {
    (void)level;
    (void)fail_cuda(1, "from the log function: %s", message);
    *(int *)cookie += libdecode_error_cuda_result();
}

static void the_error_being_reported_survives_a_log_function_that_fails_itself(void **state) {
    (void)state;
    int calls = 0;
    const struct log_sink sink = {.function = fail_again, .cookie = &calls, .level = LIBDECODE_LOG_DEBUG};
    (void)fail_cuda(700, "the first error");
    log_message(&sink, LIBDECODE_LOG_ERROR, "%s", libdecode_error_message());
    assert_int_equal(calls, 1);
    assert_string_equal(libdecode_error_message(), "the first error");
    assert_int_equal(libdecode_error_cuda_result(), 700);
}

/* A struct as three versions of a header might have it: the library knows `known`. */
struct older {
    size_t struct_size;
    int32_t first, second;
};
struct known {
    size_t struct_size;
    int32_t first, second, third, fourth;
};
struct newer {
    size_t struct_size;
    int32_t first, second, third, fourth, fifth, sixth;
};

static void an_older_struct_is_read_with_its_missing_fields_zero(void **state) {
    (void)state;
    struct older caller = {sizeof caller, 1, 2};
    struct known read;
    memset(&read, 0xff, sizeof read);
    assert_int_equal(read_caller_struct(&read, sizeof read, &caller, sizeof caller, "libdecode_thing"), LIBDECODE_OK);
    assert_int_equal(read.struct_size, sizeof read);
    assert_int_equal(read.first, 1);
    assert_int_equal(read.second, 2);
    assert_int_equal(read.third, 0);
    assert_int_equal(read.fourth, 0);
}

static void a_newer_struct_is_read_if_its_unknown_fields_are_zero(void **state) {
    (void)state;
    struct newer caller = {sizeof caller, 1, 2, 3, 4, 0, 0};
    struct known read = {.first = 77};
    caller.sixth = 9;
    assert_int_equal(read_caller_struct(&read, sizeof read, &caller, sizeof(struct older), "libdecode_thing"),
                     LIBDECODE_ERROR_STRUCT_SIZE);
    assert_non_null(strstr(libdecode_error_message(), "libdecode_thing has a non-zero field at byte 28"));
    assert_int_equal(read.first, 77);
    caller.sixth = 0;
    assert_int_equal(read_caller_struct(&read, sizeof read, &caller, sizeof(struct older), "libdecode_thing"), LIBDECODE_OK);
    assert_int_equal(read.fourth, 4);
}

static void a_struct_size_that_cannot_be_is_refused_and_nothing_is_written(void **state) {
    (void)state;
    const size_t sizes[] = {0, 1, sizeof(struct older) - 1, 4097, SIZE_MAX};
    struct known read = {.first = 77}, caller = {.first = 1};
    for (size_t index = 0; index < sizeof sizes / sizeof sizes[0]; index++) {
        caller.struct_size = sizes[index];
        assert_int_equal(read_caller_struct(&read, sizeof read, &caller, sizeof(struct older), "libdecode_thing"),
                         LIBDECODE_ERROR_STRUCT_SIZE);
        assert_non_null(strstr(libdecode_error_message(), "libdecode_thing.struct_size is"));
    }
    assert_int_equal(read_caller_struct(&read, sizeof read, NULL, sizeof(struct older), "libdecode_thing"),
                     LIBDECODE_ERROR_INVALID_ARGUMENT);
    assert_int_equal(read.first, 77);
}

static void a_result_struct_gets_what_its_size_allows(void **state) {
    (void)state;
    const struct known value = {sizeof value, 1, 2, 3, 4};
    struct {
        struct older caller;
        int32_t guard;
    } old = {{sizeof(struct older), 0, 0}, 0x5a5a5a5a};
    assert_int_equal(write_caller_struct(&old.caller, &value, sizeof value, "libdecode_thing"), LIBDECODE_OK);
    assert_int_equal(old.caller.struct_size, sizeof(struct older));
    assert_int_equal(old.caller.second, 2);
    assert_int_equal(old.guard, 0x5a5a5a5a);

    struct newer new = {sizeof new, 9, 9, 9, 9, 9, 9};
    assert_int_equal(write_caller_struct(&new, &value, sizeof value, "libdecode_thing"), LIBDECODE_OK);
    assert_int_equal(new.struct_size, sizeof new);
    assert_int_equal(new.fourth, 4);
    assert_int_equal(new.fifth, 0);
    assert_int_equal(new.sixth, 0);

    new.struct_size = 0;
    assert_int_equal(write_caller_struct(&new, &value, sizeof value, "libdecode_thing"), LIBDECODE_ERROR_STRUCT_SIZE);
    assert_int_equal(write_caller_struct(NULL, &value, sizeof value, "libdecode_thing"), LIBDECODE_ERROR_INVALID_ARGUMENT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(status_name_is_the_enumerator),
        cmocka_unit_test(fail_keeps_the_message_and_returns_the_status),
        cmocka_unit_test(fail_accepts_the_present_message_as_an_argument),
        cmocka_unit_test(a_message_is_one_line_of_at_most_1023_bytes),
        cmocka_unit_test(cuda_result_is_that_of_the_last_error_only),
        cmocka_unit_test(every_thread_has_its_own_message),
        cmocka_unit_test(forward_returns_errors_and_goes_on_after_success),
        cmocka_unit_test(log_lines_above_the_level_are_dropped),
        cmocka_unit_test(without_a_function_log_lines_go_to_standard_error),
        cmocka_unit_test(the_error_being_reported_survives_a_log_function_that_fails_itself),
        cmocka_unit_test(an_older_struct_is_read_with_its_missing_fields_zero),
        cmocka_unit_test(a_newer_struct_is_read_if_its_unknown_fields_are_zero),
        cmocka_unit_test(a_struct_size_that_cannot_be_is_refused_and_nothing_is_written),
        cmocka_unit_test(a_result_struct_gets_what_its_size_allows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
