/* SPDX-License-Identifier: Apache-2.0 */
/* header_problem_cxx.cpp: the same program in C++. */
#include "header_problem_c99.c"
