/* SPDX-License-Identifier: Apache-2.0 */
/* case_cache.c: lengths, page table and visibility of a test case in, its pools of K and V out. Next: cases.c. */
#ifndef LIBDECODE_CLI_CASE_CACHE_H
#define LIBDECODE_CLI_CASE_CACHE_H

#include "case_making.h"

/* Where the row of a token and its scales lie; NULL where the page id names no page. */
struct kv_row {
    uint8_t *elements, *scales;
    size_t scale_step; /* from the scale of a block to that of the next */
};
/* Of K, or of V; `ids`: the page table's row of that tensor. `shift`: elements that it lies farther on than its page says. */
struct kv_row case_kv_row(const libdecode_problem *problem, const struct kv_pools *pools, bool is_v, const int32_t *ids,
                          int64_t shift, int32_t token, int32_t head);

/* The pools of K and V and of their scales, NaN but for the rows that are visible. False: out of memory. */
bool make_kv_cache(struct making *making);

#endif
