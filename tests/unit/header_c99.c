/* SPDX-License-Identifier: Apache-2.0 */
/* header_c99.c: libdecode.h alone, in strict C99 (-std=c99 -pedantic-errors), and a first use of it that needs no GPU. */
#include "libdecode.h"

int main(void) {
    libdecode_context *context;
    libdecode_open_options options = LIBDECODE_OPEN_OPTIONS_INIT;
    libdecode_problem problem = LIBDECODE_PROBLEM_INIT;
    libdecode_tensors tensors = LIBDECODE_TENSORS_INIT;
    options.flags = LIBDECODE_OPEN_IGNORE_ENVIRONMENT | LIBDECODE_OPEN_BUNDLES_ONLY;
    if (libdecode_open(&options, &context) != LIBDECODE_OK)
        return 1;
    libdecode_close(context);
    return problem.struct_size == sizeof problem && tensors.struct_size == sizeof tensors && !tensors.query ? 0 : 1;
}
