/* SPDX-License-Identifier: Apache-2.0 */
/*
 * problem_args.c: the options that describe a problem in, a libdecode_problem and its lengths out.
 * Used by explain and bench, so that the same words mean the same in both.
 */
#ifndef LIBDECODE_CLI_PROBLEM_ARGS_H
#define LIBDECODE_CLI_PROBLEM_ARGS_H

#include "libdecode.h"
#include "options.h"
#include "trace.h"

/* As given on the command line. */
struct problem_args {
    int32_t batch, head_dim, page, len, q_len, window, max_len, position_stride, position_offset, sparse_top_k, row_gap;
    const char *kv_row, *heads, *query, *kv, *out, *layout, *sf_layout, *lens, *trace;
    float soft_cap, skip_softmax, rope_scale, rope_theta;
    bool sinks, lse, alibi, batch_invariant, rope, mla, contiguous, query_offsets, kv_offsets;
};

/* 64 requests of 8192 tokens, bf16, pages of 16 (DEFAULT_PAGE_SIZE, where the page is 0); heads and head_dim of Llama-3-8B, 32 query and 8 KV heads of 128, or DeepSeek's. */
#define DEFAULT_PAGE_SIZE 16
#define PROBLEM_ARGS_DEFAULT                                                                                                     \
    ((struct problem_args){.batch = 64,                                                                                          \
                           .len = 8192,                                                                                          \
                           .q_len = 1,                                                                                           \
                           .window = -1,                                                                                         \
                           .position_stride = 1,                                                                                 \
                           .query = "bf16",                                                                                      \
                           .layout = "hnd",                                                                                      \
                           .sf_layout = "linear",                                                                                \
                           .kv_row = "plain"})
extern const struct option problem_options[];

/* A problem and what only the device sees of it. */
struct workload {
    libdecode_problem problem;
    int32_t *seq_lens; /* [problem.batch_size] */
    int64_t total_tokens;
    int32_t quiet_percent; /* of the pages, whose scores lie far below those of the others: bench alone */
    struct trace trace;    /* num_requests is 0 without --trace */
};

/* Prints what is wrong and returns false. Free with workload_free. */
bool workload_make(const char *command, const struct problem_args *args, struct workload *ret_workload);
void workload_free(struct workload *workload);

/* Room for so many tokens of every request: the width of the page table, or the capacity of contiguous KV. */
void workload_give_room(libdecode_problem *problem, int32_t tokens);

/* "32/8 heads of 128, bf16 KV, page 16, 64 requests of 8192 tokens", into `text`. */
void workload_describe(const struct workload *workload, char *text, size_t size);

/* Bytes of K and V that one call must read, NVFP4 scales included: those of every visible token, once. */
uint64_t workload_kv_bytes(const struct workload *workload);

/* What a KV cache holds, in words; and the dtype of such a word, LIBDECODE_DTYPE_DEFAULT of NULL. */
#define KV_DTYPES "bf16|fp16|e4m3|fp8|e5m2|nvfp4"
#define OUT_DTYPES "bf16|fp16|e4m3|fp8|nvfp4"
libdecode_dtype dtype_from_name(const char *name);

#endif
