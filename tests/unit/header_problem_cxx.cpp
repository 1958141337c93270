/* SPDX-License-Identifier: Apache-2.0 */
/* header_problem_cxx.cpp: libdecode_problem.h alone, in C++. */
#include "libdecode_problem.h"

int main() {
    libdecode_problem problem = LIBDECODE_PROBLEM_INIT;
    libdecode_tensors tensors = LIBDECODE_TENSORS_INIT;
    problem.query_dtype = LIBDECODE_DTYPE_BF16;
    problem.features = LIBDECODE_FEATURE_LSE;
    tensors.launch_flags = LIBDECODE_LAUNCH_PROGRAMMATIC;
    return problem.struct_size == sizeof problem && tensors.struct_size == sizeof tensors && !tensors.query ? 0 : 1;
}
