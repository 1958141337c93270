/* SPDX-License-Identifier: Apache-2.0 */
/* header_cxx.cpp: libdecode.h alone, in C++, and a first use of it that needs no GPU. */
#include "libdecode.h"

int main() {
    libdecode_context *context = nullptr;
    libdecode_open_options options = LIBDECODE_OPEN_OPTIONS_INIT;
    libdecode_problem problem = LIBDECODE_PROBLEM_INIT;
    libdecode_tensors tensors = LIBDECODE_TENSORS_INIT;
    options.flags = LIBDECODE_OPEN_IGNORE_ENVIRONMENT | LIBDECODE_OPEN_BUNDLES_ONLY;
    if (libdecode_open(&options, &context) != LIBDECODE_OK)
        return 1;
    libdecode_close(context);
    return problem.struct_size == sizeof problem && tensors.struct_size == sizeof tensors && !tensors.query ? 0 : 1;
}
