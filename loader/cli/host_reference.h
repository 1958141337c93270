/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host_reference.c: libdecode_reference spread over all processors: a part for each request and KV head.
 * Used by check, bench and demo.
 */
#ifndef LIBDECODE_CLI_HOST_REFERENCE_H
#define LIBDECODE_CLI_HOST_REFERENCE_H

#include <stdbool.h>

#include "libdecode.h"
#include "reference.h"

/*
 * Takes what libdecode_reference takes. `label`, if not NULL, is shown as progress.
 * Only KV heads [first_kv_head, first_kv_head + num_kv_heads) are computed. Prints what is wrong and returns false.
 */
bool host_reference(const libdecode_problem *problem, const libdecode_tensors *tensors, int first_kv_head, int num_kv_heads,
                    const char *label);

/*
 * All heads, not rounded, into dense rows, with the lse in base 2, by `num_threads`. Where the tensors and the problem would have results is
 * not used.
 */
bool host_reference_exact(const libdecode_problem *problem, const libdecode_tensors *tensors, const struct exact_results *results,
                          int num_threads, const char *label);

/* Threads that host_reference uses: the processors at hand. */
int host_reference_threads(void);

#endif
