/* SPDX-License-Identifier: Apache-2.0 */
/*
 * failing_malloc.c: lets the n-th allocation of the code under test fail, so that a loop over n covers every such path:
 *
 *     for (size_t n = 1; fail_allocation(n), !is_done; n++)
 *         is_done = code_under_test() == LIBDECODE_OK && !allocation_failed();
 *
 * Works on what is linked into the test itself, by the linker's --wrap (meson.build names the functions). ZSTD_createDCtx is
 * one of them, because libzstd allocates for itself; what else the C library allocates for itself is not reached.
 */
#ifndef LIBDECODE_FAILING_MALLOC_H
#define LIBDECODE_FAILING_MALLOC_H

#include <stdbool.h>
#include <stddef.h>

#include "libdecode.h"

/* The n-th allocation from now fails, once; 0: none does. */
void fail_allocation(size_t n);

/* Whether it has come. */
bool allocation_failed(void);

/* Runs it with every allocation of it failing in turn, which it must answer with OUT_OF_MEMORY, then with none. How many there are. */
size_t fail_each_allocation(libdecode_status (*run)(void));

#endif
