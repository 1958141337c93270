/* SPDX-License-Identifier: Apache-2.0 */
/* query_rows.c: which query tokens a request has, and where their rows lie, in host memory. */
#ifndef LIBDECODE_QUERY_ROWS_H
#define LIBDECODE_QUERY_ROWS_H

#include "libdecode.h"

/* Elements from where a request's rows of query or out would lie to where they do, by offsets that are theirs, or NULL. */
int64_t request_shift(const int64_t *offsets, int64_t request, int64_t first_token, int64_t token_stride);

/* Of which request a query token is, where the one before it was of `request` or of an earlier one. */
int32_t request_of_token(const libdecode_problem *problem, const int32_t *cum_seq_lens_q, int64_t token, int32_t request);

/* Of a checked problem: where the row of a query token of `request` and of a head begins in out. */
int64_t out_element(const libdecode_problem *problem, const libdecode_tensors *tensors, int32_t request, int64_t token,
                    int64_t head);

/* Query tokens of all requests: rows of query, out and lse. `cum_seq_lens_q` is NULL without RAGGED_Q. */
int64_t query_tokens(const libdecode_problem *problem, const int32_t *cum_seq_lens_q);

/* The one thing about data in host memory that can be wrong and would lead outside the caller's buffers.: INVALID_ARGUMENT. */
libdecode_status query_lengths_check(const libdecode_problem *problem, const int32_t *cum_seq_lens_q);

#endif
