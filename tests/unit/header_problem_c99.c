/* SPDX-License-Identifier: Apache-2.0 */
/* header_problem_c99.c: libdecode_problem.h alone, in strict C99 (-std=c99 -pedantic-errors); and in C++, by header_problem_cxx.cpp. */
#include "libdecode_problem.h"

int main(void) {
    libdecode_problem problem = LIBDECODE_PROBLEM_INIT;
    libdecode_tensors tensors = LIBDECODE_TENSORS_INIT;
    problem.query_dtype = LIBDECODE_DTYPE_BF16;
    problem.features = LIBDECODE_FEATURE_LSE;
    tensors.launch_flags = LIBDECODE_LAUNCH_PROGRAMMATIC;
    return problem.struct_size == sizeof problem && tensors.struct_size == sizeof tensors && !tensors.query ? 0 : 1;
}
