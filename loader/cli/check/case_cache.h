/* SPDX-License-Identifier: Apache-2.0 */
/* case_cache.c: lengths, page table and visibility of a test case in, its pools of K and V out. Next: cases.c. */
#ifndef LIBDECODE_CLI_CASE_CACHE_H
#define LIBDECODE_CLI_CASE_CACHE_H

#include "case_making.h"

/* The pools of K and V and of their scales, NaN but for the rows that are visible. False: out of memory. */
bool make_kv_cache(struct making *making);

#endif
