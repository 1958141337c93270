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
    double *out;                 /* as saturated as the result's dtype is */
    double *out_tolerance;       /* of an NVFP4 result: of the value before it became scale and code */
    double *lse, *lse_tolerance; /* of the base that is asked for */
    size_t num_nan;              /* elements of out: only where a visible row has NaN */
};

/* Runs the reference by `num_threads`; out, out_sf and lse of the tensors are not used. Prints and returns false if that fails. */
bool expectation_make(const libdecode_problem *problem, const libdecode_tensors *tensors, int num_threads, const char *label,
                      struct expectation *ret_expectation);
void expectation_free(struct expectation *expectation);

/* The first element that is off, and how many are. */
struct mismatch {
    size_t count, compared;
    const char *tensor;          /* "out", "out_sf" or "lse" */
    size_t token, head, element; /* token: the row of out, which is the request where each has one query token */
    double got, expected, tolerance;
    double worst_ratio; /* largest error / tolerance over all elements; infinity with NaN */
    /* errors of out over the root mean square of out */
    double largest_error, rms_error;
};

/*
 * `results` are host tensors: out, out_sf and out_sf_scale, out_sf_start_token with an NVFP4 result, and lse or NULL, as the
 * problem's strides lay them out. An NVFP4 scale is an element of "out_sf", those of the padding columns belong to the last head.
 */
void expectation_compare(const struct expectation *expectation, const libdecode_problem *problem,
                         const libdecode_tensors *results, struct mismatch *ret_mismatch);

/* "out[token 3, head 5, element 17] is 0.1, expected 0.2, off by 0.1, allowed 0.004; 12 of 4096 are off" */
void mismatch_describe(const struct mismatch *mismatch, char *text, size_t size);

#endif
