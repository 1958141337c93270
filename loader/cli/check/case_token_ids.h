/* SPDX-License-Identifier: Apache-2.0 */
/*
 * case_token_ids.c: lengths, page table and query tokens of a test case in; of sparse attention the token ids of every query token, and
 * which KV tokens are named by one, out. Before: case_query_tokens.c. Next: case_cache.c, which leaves NaN in all other rows.
 */
#ifndef LIBDECODE_CLI_CASE_TOKEN_IDS_H
#define LIBDECODE_CLI_CASE_TOKEN_IDS_H

#include "case_making.h"

/* Nothing, for a case that is not sparse. False: out of memory. */
bool make_token_ids(struct making *making);

/* What was made as pages of requests, in the words of token ids: no page table. */
void drop_page_table(struct making *making);

#endif
