/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compare_scene.h: two KV tokens of one head whose attention is worked out by hand, and what compare.c says of a result. Used by
 * test_compare.c and test_compare_logits.c.
 */
#ifndef LIBDECODE_COMPARE_SCENE_H
#define LIBDECODE_COMPARE_SCENE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "compare.h"
#include "dtype.h"
#include "element.h"

enum { DIM = 64, PAGE = 16 };
static const float one = 1;

/* Two tokens of one head: query 1 in dimension 0. K: 0 and the second logit. V: 1 and 3 in every dimension. */
static _Alignas(16) uint16_t query[DIM], k[PAGE * DIM], v[PAGE * DIM], out[DIM];
static const int32_t page_table[1] = {0}, seq_lens[1] = {2};

static inline libdecode_problem problem_of(libdecode_dtype dtype) {
    return (libdecode_problem){.struct_size = sizeof(libdecode_problem),
                               .query_dtype = dtype,
                               .batch_size = 1,
                               .num_qo_heads = 1,
                               .num_kv_heads = 1,
                               .head_dim = DIM,
                               .page_size = PAGE,
                               .page_table_request_stride = 1};
}

static inline libdecode_tensors tensors_of(libdecode_dtype dtype, double second_logit) {
    double row[DIM] = {1};
    memset(k, 0, sizeof k);
    element_encode_row(dtype, row, DIM, query);
    row[0] = second_logit;
    element_encode_row(dtype, row, DIM, (uint8_t *)k + DIM * dtype_bits(dtype) / 8);
    for (int token = 0; token < 2; token++) {
        for (int element = 0; element < DIM; element++)
            row[element] = token == 0 ? 1 : 3;
        element_encode_row(dtype, row, DIM, (uint8_t *)v + token * DIM * dtype_bits(dtype) / 8);
    }
    return (libdecode_tensors){.struct_size = sizeof(libdecode_tensors),
                               .query = query,
                               .k_cache = k,
                               .v_cache = v,
                               .page_table = page_table,
                               .seq_lens = seq_lens,
                               .bmm1_scale_log2_device = &one};
}

static inline struct mismatch compare(const struct expectation *expectation, const libdecode_problem *problem, double value,
                                      float lse) {
    struct mismatch mismatch;
    const libdecode_tensors results = {.out = out, .lse = &lse};
    double row[DIM];
    for (int element = 0; element < DIM; element++)
        row[element] = value;
    element_encode_row(problem->out_dtype != LIBDECODE_DTYPE_DEFAULT ? problem->out_dtype : problem->query_dtype, row, DIM, out);
    expectation_compare(expectation, problem, &results, &mismatch);
    return mismatch;
}

#endif
