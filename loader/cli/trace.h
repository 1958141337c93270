/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace.c: a file of recorded requests in, the lengths of a decode batch and who shares which prompt blocks out.
 * Next: problem_args.c (lengths) and kv_batch.c (page tables).
 */
#ifndef LIBDECODE_CLI_TRACE_H
#define LIBDECODE_CLI_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Prompt tokens that one hash id stands for. */
#define TRACE_BLOCK_TOKENS 512

struct trace_request {
    int32_t input_length, output_length; /* tokens */
    int32_t seq_len;                     /* KV tokens half way through the answer: input + output / 2 + 1 */
    size_t first_block, num_blocks;      /* in trace.block_ids */
};

struct trace {
    struct trace_request *requests;
    size_t num_requests;
    int32_t *block_ids; /* equal ids: the same 512 tokens after the same prefix, so the same KV */
    size_t num_block_ids;
    char *path;
};

/*
 * `where` is FILE or FILE:FIRST:COUNT (requests counted from 0). FILE holds the columns input_length,output_length,hash_ids
 * as CSV, or Mooncake's JSON lines with those keys. Prints what is wrong and returns false.
 */
bool trace_read(const char *where, struct trace *ret_trace);
void trace_free(struct trace *trace);

/* The trace that comes with libdecode: installed, or in the source tree. NULL, after saying so, if it is not there. */
const char *trace_shipped_path(void);

#endif
