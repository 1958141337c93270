/* SPDX-License-Identifier: Apache-2.0 */
/* test_env.c: every value that a LIBDECODE_* variable may and may not have. Under test: loader/env.c. */
#define _POSIX_C_SOURCE 200809L /* setenv under -std=c17 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "env.h"

static const char *const names[] = {"LIBDECODE_KERNEL", "LIBDECODE_BUNDLE_PATH", "LIBDECODE_BUNDLE_ONLY", "LIBDECODE_LOG",
                                    "LIBDECODE_STRICT"};

static int clear(void **state) {
    (void)state;
    for (size_t index = 0; index < sizeof names / sizeof names[0]; index++)
        (void)unsetenv(names[index]);
    (void)unsetenv("LIBDECODE_TEST_IMAGES"); /* tests read it */
    return 0;
}

static void an_empty_environment_leaves_every_default(void **state) {
    (void)state;
    struct environment read;
    memset(&read, 0xff, sizeof read);
    assert_int_equal(environment_read(&read), LIBDECODE_OK);
    assert_null(read.kernel_policy);
    assert_null(read.bundle_path);
    assert_false(read.bundle_only);
    assert_false(read.strict);
    assert_int_equal(read.log_level, LIBDECODE_LOG_DEFAULT);
}

static void an_empty_value_counts_as_not_set(void **state) {
    (void)state;
    struct environment read;
    for (size_t index = 0; index < sizeof names / sizeof names[0]; index++)
        (void)setenv(names[index], "", 1);
    assert_int_equal(environment_read(&read), LIBDECODE_OK);
    assert_null(read.kernel_policy);
    assert_null(read.bundle_path);
    assert_false(read.bundle_only);
    assert_int_equal(read.log_level, LIBDECODE_LOG_DEFAULT);
}

static void texts_are_handed_on_unchanged(void **state) {
    (void)state;
    struct environment read;
    (void)setenv("LIBDECODE_KERNEL", "force=*_r8_*", 1);
    (void)setenv("LIBDECODE_BUNDLE_PATH", "/a:/b", 1);
    assert_int_equal(environment_read(&read), LIBDECODE_OK);
    assert_string_equal(read.kernel_policy, "force=*_r8_*");
    assert_string_equal(read.bundle_path, "/a:/b");
}

static void switches_are_0_or_1(void **state) {
    (void)state;
    struct environment read;
    (void)setenv("LIBDECODE_BUNDLE_ONLY", "1", 1);
    (void)setenv("LIBDECODE_STRICT", "0", 1);
    assert_int_equal(environment_read(&read), LIBDECODE_OK);
    assert_true(read.bundle_only);
    assert_false(read.strict);
    (void)setenv("LIBDECODE_BUNDLE_ONLY", "0", 1);
    (void)setenv("LIBDECODE_STRICT", "1", 1);
    assert_int_equal(environment_read(&read), LIBDECODE_OK);
    assert_false(read.bundle_only);
    assert_true(read.strict);
}

static void every_log_level_has_its_word(void **state) {
    (void)state;
    static const char *const words[] = {"none", "error", "warn", "info", "debug"};
    struct environment read;
    for (int index = 0; index < 5; index++) {
        (void)setenv("LIBDECODE_LOG", words[index], 1);
        assert_int_equal(environment_read(&read), LIBDECODE_OK);
        assert_int_equal(read.log_level, LIBDECODE_LOG_NONE + index);
    }
}

static void any_other_value_is_an_error_that_names_variable_value_and_what_is_accepted(void **state) {
    (void)state;
    static const struct {
        const char *name, *value, *accepted;
    } rows[] = {
        {"LIBDECODE_BUNDLE_ONLY", "2", "0 or 1"},    {"LIBDECODE_BUNDLE_ONLY", "yes", "0 or 1"},
        {"LIBDECODE_BUNDLE_ONLY", " 1", "0 or 1"},   {"LIBDECODE_STRICT", "true", "0 or 1"},
        {"LIBDECODE_STRICT", "11", "0 or 1"},        {"LIBDECODE_LOG", "WARN", "none, error, warn, info or debug"},
        {"LIBDECODE_LOG", "3", "none, error, warn"}, {"LIBDECODE_LOG", "warning", "none, error, warn"},
    };
    for (size_t index = 0; index < sizeof rows / sizeof rows[0]; index++) {
        struct environment read = {.bundle_path = "kept"};
        (void)setenv(rows[index].name, rows[index].value, 1);
        assert_int_equal(environment_read(&read), LIBDECODE_ERROR_INVALID_ARGUMENT);
        assert_non_null(strstr(libdecode_error_message(), rows[index].name));
        assert_non_null(strstr(libdecode_error_message(), rows[index].value));
        assert_non_null(strstr(libdecode_error_message(), rows[index].accepted));
        assert_string_equal(read.bundle_path, "kept");
        (void)unsetenv(rows[index].name);
    }
}

struct told {
    char names[4][64];
    const char *near[4];
    size_t count;
};

static void tell(void *cookie, const char *name, const char *near) {
    struct told *told = cookie;
    assert_in_range(told->count, 0, 3);
    assert_true(strlen(name) < sizeof told->names[0]);
    strcpy(told->names[told->count], name);
    told->near[told->count++] = near;
}

static void what_nobody_reads_is_told_with_what_may_be_meant(void **state) {
    (void)state;
    static const struct {
        const char *name, *near;
    } rows[] = {{"LIBDECODE_KERNAL", "LIBDECODE_KERNEL"},
                {"LIBDECODE_BUNDEL_PATH", "LIBDECODE_BUNDLE_PATH"},
                {"LIBDECODE_LOGS", "LIBDECODE_LOG"},
                {"LIBDECODE_", NULL},
                {"LIBDECODE_WINDOW", NULL}};
    for (size_t index = 0; index < sizeof rows / sizeof rows[0]; index++) {
        struct told told = {.count = 0};
        (void)setenv(rows[index].name, "1", 1);
        environment_unknown(tell, &told);
        (void)unsetenv(rows[index].name);
        assert_int_equal(told.count, 1);
        assert_string_equal(told.names[0], rows[index].name);
        if (rows[index].near)
            assert_string_equal(told.near[0], rows[index].near);
        else
            assert_null(told.near[0]);
    }
}

static void what_is_read_is_not_told(void **state) {
    (void)state;
    struct told told = {.count = 0};
    for (size_t index = 0; index < sizeof names / sizeof names[0]; index++)
        (void)setenv(names[index], "1", 1);
    (void)setenv("LIBDECODE_LIBRARY", "/a", 1); /* the Python package reads it */
    (void)setenv("XLIBDECODE_KERNAL", "1", 1);
    environment_unknown(tell, &told);
    (void)unsetenv("LIBDECODE_LIBRARY");
    (void)unsetenv("XLIBDECODE_KERNAL");
    assert_int_equal(told.count, 0);
}

static void every_variable_has_a_meaning(void **state) {
    (void)state;
    size_t count = 0;
    for (; environment_variables[count].name; count++)
        assert_true(strlen(environment_variables[count].meaning) > 0);
    assert_int_equal(count, sizeof names / sizeof names[0]);
}

/* One byte more would not leave room for the end of the name. */
static void a_name_of_64_characters_is_too_long_to_be_a_slip(void **state) {
    (void)state;
    char name[66] = "LIBDECODE_";
    memset(name + strlen(name), 'A', 64 - strlen(name));
    for (size_t length = 64; length >= 63; length--) {
        struct told told = {.count = 0};
        name[length] = '\0';
        (void)setenv(name, "1", 1);
        environment_unknown(tell, &told);
        (void)unsetenv(name);
        assert_int_equal(told.count, length < 64);
    }
}

extern char **environ;

static void no_environment_at_all_is_an_empty_one(void **state) {
    (void)state;
    struct told told = {.count = 0};
    char **before = environ;
    environ = NULL; /* as clearenv leaves it */
    environment_unknown(tell, &told);
    environ = before;
    assert_int_equal(told.count, 0);
}

/* secure_getenv answers nothing in a setuid program, which this one is when it likes. */
static bool is_setuid;
char *__real_secure_getenv(const char *name);
char *__wrap_secure_getenv(const char *name);
char *__wrap_secure_getenv(const char *name) { return is_setuid ? NULL : __real_secure_getenv(name); }

static void a_setuid_program_is_not_steered(void **state) {
    (void)state;
    struct environment read;
    for (size_t index = 0; index < sizeof names / sizeof names[0]; index++)
        (void)setenv(names[index], strcmp(names[index], "LIBDECODE_LOG") == 0 ? "debug" : "1", 1);
    is_setuid = true;
    const libdecode_status status = environment_read(&read);
    is_setuid = false;
    assert_int_equal(status, LIBDECODE_OK);
    assert_null(read.kernel_policy);
    assert_null(read.bundle_path);
    assert_false(read.bundle_only);
    assert_false(read.strict);
    assert_int_equal(read.log_level, LIBDECODE_LOG_DEFAULT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(an_empty_environment_leaves_every_default, clear),
        cmocka_unit_test_setup(an_empty_value_counts_as_not_set, clear),
        cmocka_unit_test_setup(texts_are_handed_on_unchanged, clear),
        cmocka_unit_test_setup(switches_are_0_or_1, clear),
        cmocka_unit_test_setup(every_log_level_has_its_word, clear),
        cmocka_unit_test_setup(what_nobody_reads_is_told_with_what_may_be_meant, clear),
        cmocka_unit_test_setup(what_is_read_is_not_told, clear),
        cmocka_unit_test_setup(every_variable_has_a_meaning, clear),
        cmocka_unit_test_setup(any_other_value_is_an_error_that_names_variable_value_and_what_is_accepted, clear),
        cmocka_unit_test_setup(a_name_of_64_characters_is_too_long_to_be_a_slip, clear),
        cmocka_unit_test_setup(no_environment_at_all_is_an_empty_one, clear),
        cmocka_unit_test_setup(a_setuid_program_is_not_steered, clear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
