/* SPDX-License-Identifier: Apache-2.0 */
/*
 * failing_malloc.c: lets the n-th allocation of the code under test fail, so that a loop over n covers every such path:
 *
 *     for (size_t n = 1; fail_allocation(n), !is_done; n++)
 *         is_done = code_under_test() == LIBDECODE_OK && !allocation_failed();
 *
 * Works on what is linked into the test itself, by the linker: the test is linked with FAILING_MALLOC_LINK_ARGS, which are
 * -Wl,--wrap=malloc -Wl,--wrap=calloc -Wl,--wrap=aligned_alloc -Wl,--wrap=ZSTD_decompress
 * (the last, because libzstd allocates for itself).
 */
#ifndef LIBDECODE_FAILING_MALLOC_H
#define LIBDECODE_FAILING_MALLOC_H

#include <stdbool.h>
#include <stddef.h>

/* The n-th allocation from now fails, once; 0: none does. */
void fail_allocation(size_t n);

/* Whether it has come. */
bool allocation_failed(void);

#endif
