/* SPDX-License-Identifier: Apache-2.0 */
/*
 * problem.c: libdecode_problem in, struct problem out: validated, every default made explicit. Pure; no CUDA.
 * Next: select.c (on a GPU) or reference.c (on the host).
 */
#ifndef LIBDECODE_PROBLEM_H
#define LIBDECODE_PROBLEM_H

#include <stdbool.h>

#include "libdecode.h"
#include "operation.h"

/* A libdecode_problem without a single default left, and what follows from it. */
struct problem {
    const struct operation_rules *operation;
    struct pointer_set pointers; /* that its tensors may and must have */
    libdecode_problem given;     /* every field explicit, dtypes, lengths and strides included; window_left is -1 if none */
    int32_t group_size;          /* num_qo_heads / num_kv_heads */
    int32_t heads_per_sequence;  /* KV heads that share one entry of seq_lens */
    int32_t qk_dim;              /* elements of a query row and a K row */
    int32_t query_dim;           /* of the query row, those that tensors.query has: the others come from tensors.query_rope */
    int32_t v_dim;               /* elements of a V row and an output row */
    int64_t kv_token_bytes;    /* read for one token and KV head: its rows of K and V, with their NVFP4 scales; of MLA one row */
    int64_t page_table_width;  /* entries of a row that belong to one request, KV head and tensor */
    int32_t max_tokens;        /* of a request: what its row of the page table has room for, or its capacity */
    bool needs_out_offsets;    /* where requests begin by default they would be written over each other */
    int64_t host_lens_bytes;   /* of tensors.seq_lens, with FEATURE_HOST_SEQ_LENS; 0: it is device memory */
    double rope_frequency;     /* with FEATURE_ROPE: revolutions a position of the first pair of dims */
    double rope_ratio;         /* likewise: of a pair's frequency to that of the pair before it; both 0 without */
    int64_t planned_kv_tokens; /* sum of the lengths: total_kv_tokens, or what max_seq_len allows if that is less or not known */
};

/*
 * The caller's struct as this library knows it. It has no padding: equal problems are equal bytes.
 * Errors: INVALID_ARGUMENT (NULL), STRUCT_SIZE.
 */
libdecode_status problem_read(const libdecode_problem *problem, libdecode_problem *ret_problem);

/* Errors: INVALID_ARGUMENT (names field, value, what is accepted), STRUCT_SIZE. Nothing is written on error. */
libdecode_status problem_check(const libdecode_problem *problem, struct problem *ret_problem);

/*
 * Checks the pointers of one launch against the problem: required ones present, none given that the problem does not
 * announce, alignment, o_scale. `ret_tensors` gets the defaults (scales 1). Used by decode.c and reference.c alike; the
 * workspace is launch.c's own. Errors: INVALID_ARGUMENT, STRUCT_SIZE.
 */
libdecode_status tensors_check(const struct problem *problem, const libdecode_tensors *tensors, libdecode_tensors *ret_tensors);

/* Of a checked problem with contiguous KV page_size is the capacity, num_pages batch_size, and the width of the page table 1. */
static inline bool problem_is_contiguous(const libdecode_problem *problem) {
    return (problem->features & LIBDECODE_FEATURE_CONTIGUOUS_KV) != 0;
}

/* Of a problem with token ids page_table_request_stride and page_table_width are 0. */
static inline bool problem_is_sparse(const libdecode_problem *problem) { return problem->sparse_top_k > 0; }

#endif
