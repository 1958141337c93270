/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch.c: counts what the calling thread allocates and reads from the environment, and can make an allocation fail. Linked
 * into a test program, it takes the place of malloc and getenv for everything in it, libraries included.
 */
#ifndef LIBDECODE_WATCH_H
#define LIBDECODE_WATCH_H

#include <stdbool.h>
#include <stddef.h>

struct watch_counts {
    size_t allocations, environment_reads;
};

/* Starts counting in this thread from zero. */
void watch_begin(void);
struct watch_counts watch_end(void);

/* The n-th allocation of this thread from now (1: the next) fails, once. False where a sanitizer owns the allocator. */
bool watch_fail_allocation(size_t n);
/* Whether it has come; ends the waiting. */
bool watch_allocation_failed(void);

#endif
