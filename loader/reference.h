/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reference.c: libdecode_reference in parts, for callers inside the project that spread it over threads: what libdecode_reference
 * can do, a part can do.
 */
#ifndef LIBDECODE_REFERENCE_H
#define LIBDECODE_REFERENCE_H

#include "problem.h"
#include "query_rows.h"

/*
 * Where results go before they are rounded, and what the rounding of a kernel is measured by. A row is a query token and head,
 * w_j the weight of KV token j: exp(z_j) over the sum of all and the sink.
 */
struct exact_results {
    double *out;     /* [rows][v_dim] */
    double *lse;     /* [rows] base 2 */
    double *shift;   /* [rows] what FEATURE_LSE_ALIBI_FROM_ZERO has added to it; else 0 */
    double *spread;  /* [rows][v_dim] |bmm2_scale| * sqrt(sum_j (w_j v_j)^2) */
    double *weight;  /* [rows] sqrt(sum_j w_j^2) */
    double *tokens;  /* [rows] that it sees */
    double *largest; /* [rows] |bmm2_scale| * the largest |v| of these */
    /* [rows] with RoPE, and MLA of e4m3 with e4m3, the largest |bmm1_scale| * sqrt(sum_i |q_i|^2 |k_i|^2) of a visible token, of pairs i; else 0 */
    double *turned;
};

/* One call, checked. Equal for all of its parts, and not changed by them. */
struct reference {
    struct problem problem;
    libdecode_tensors tensors;
    struct exact_results exact; /* all or none; if given, out, out_sf and lse of the tensors are not written */
};

/* Without exact results. Errors: INVALID_ARGUMENT, STRUCT_SIZE. */
libdecode_status reference_begin(const libdecode_problem *problem, const libdecode_tensors *tensors,
                                 struct reference *ret_reference);

/*
 * Writes the rows of results that belong to one request and one KV head, and nothing else: parts may run in any
 * order, and at the same time. Error: OUT_OF_MEMORY.
 */
libdecode_status reference_part(const struct reference *reference, int64_t request, int64_t kv_head);

#endif
