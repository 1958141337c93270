/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compare.c: a test case in, the expected result of the reference and how far each element may lie from it; then the result of
 * a kernel in, the first element that lies too far out. Used by check, bench and demo.
 */
#ifndef LIBDECODE_CLI_COMPARE_H
#define LIBDECODE_CLI_COMPARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libdecode.h"

/* Dense: [rows][head_dim], and [rows] for lse, where row = query token * num_qo_heads + head. */
struct expectation {
    size_t num_rows;
    int32_t head_dim, num_qo_heads;
    double *out, *out_tolerance, *lse, *lse_tolerance;
};

/* What a comparison needs beside the tensors themselves. */
struct expectation_input {
    const libdecode_problem *problem;
    const libdecode_tensors *tensors; /* host; out and lse are not used */
    const void *v_cache_squared;      /* v_cache with every element squared */
    double largest_v;                 /* magnitude */
    int32_t longest;                  /* tokens */
};

/* Runs the reference twice (the comment on top of compare.c says why). Prints and returns false if that fails. */
bool expectation_make(const struct expectation_input *input, const char *label, struct expectation *ret_expectation);
void expectation_free(struct expectation *expectation);

/* The first element that is off, and how many are. */
struct mismatch {
    size_t count, compared;
    bool in_lse;
    size_t token, head, element; /* token: the row of out, which is the request where each has one query token */
    double got, expected, tolerance;
    double worst_ratio; /* largest error / tolerance over all elements; infinity with NaN */
};

/* `out` and `lse` as the problem's strides lay them out; lse may be NULL. Rows of head 0 .. num_qo_heads - 1 are compared. */
void expectation_compare(const struct expectation *expectation, const libdecode_problem *problem, const void *out,
                         const float *lse, struct mismatch *ret_mismatch);

/* "out[token 3, head 5, element 17] is 0.1, expected 0.2, off by 0.1, allowed 0.004; 12 of 4096 are off" */
void mismatch_describe(const struct mismatch *mismatch, char *text, size_t size);

#endif
