/* SPDX-License-Identifier: Apache-2.0 */
/* case_offsets.c: where the requests of a test case begin in query, out, K and V, if each has a place of its own. Next: cases.c, case_cache.c. */
#ifndef LIBDECODE_CLI_CASE_OFFSETS_H
#define LIBDECODE_CLI_CASE_OFFSETS_H

#include "case_making.h"

/* Elements that pages of K and V are further apart, so that those of a request may lie so much farther on than their ids say. */
#define KV_OFFSET_ROOM 64

/*
 * Requests in any order, with gaps of whole `units` elements, which is what their rows are aligned to: offsets of `field`. Returns the elements
 * that all of them take, or without CASE_QUERY_OFFSETS as many as there are tokens; 0: out of memory.
 */
int64_t make_row_offsets(struct making *making, int64_t token_stride, int64_t unit, size_t field);

/* Of K or V, with CASE_KV_OFFSETS: any element. False: out of memory. */
bool make_kv_offsets(struct making *making, int64_t page_stride, size_t field);

/* Elements from where the page of a request would lie, which with contiguous KV is the request's number, to where it does. */
int64_t kv_shift(const int64_t *offsets, bool is_contiguous, int32_t request, int64_t page_stride);

#endif
