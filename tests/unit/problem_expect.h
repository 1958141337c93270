/* SPDX-License-Identifier: Apache-2.0 */
/* problem_expect.h: a problem that problem.c must refuse, with what its message must hold, or must accept. */
#ifndef LIBDECODE_PROBLEM_EXPECT_H
#define LIBDECODE_PROBLEM_EXPECT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "problem.h"

static inline void expect_refused(const libdecode_problem *problem, const char *field, const char *accepted) {
    struct problem checked, untouched;
    memset(&checked, 0xa5, sizeof checked);
    memset(&untouched, 0xa5, sizeof untouched);
    libdecode_status status = problem_check(problem, &checked);
    if (status != LIBDECODE_ERROR_INVALID_ARGUMENT || !strstr(libdecode_error_message(), field) ||
        !strstr(libdecode_error_message(), accepted))
        fail_msg("status %d, message '%s', expected '%s' and '%s' in it", (int)status, libdecode_error_message(), field,
                 accepted);
    assert_memory_equal(&checked, &untouched, sizeof checked);
}

static inline struct problem expect_accepted(const libdecode_problem *problem) {
    struct problem checked;
    if (problem_check(problem, &checked) != LIBDECODE_OK)
        fail_msg("refused: %s", libdecode_error_message());
    return checked;
}

#endif
