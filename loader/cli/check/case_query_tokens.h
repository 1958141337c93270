/* SPDX-License-Identifier: Apache-2.0 */
/*
 * case_query_tokens.c: the lengths of a test case in; how many query tokens each request has, where they stand and what their
 * draft masks say out. Before: case_making.c. Next: cases.c.
 */
#ifndef LIBDECODE_CLI_CASE_QUERY_TOKENS_H
#define LIBDECODE_CLI_CASE_QUERY_TOKENS_H

#include "case_making.h"

/* False: out of memory. */
bool make_query_tokens(struct making *making);

#endif
