/* SPDX-License-Identifier: Apache-2.0 */
/* mla_scene.h: contracts and problems of MLA with rows of 576, for test_mla_decode.c and test_mla_choice.c. */
#ifndef LIBDECODE_MLA_SCENE_H
#define LIBDECODE_MLA_SCENE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "bundle.h"
#include "family.h"
#include "kernel_table.h"
#include "select.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static inline struct libdecode_launch_contract contract_of(uint32_t row_tile, uint32_t kv_dtype) {
    return (struct libdecode_launch_contract){.family = KERNEL_FAMILY_MLA_DECODE,
                                              .kv_dtype = kv_dtype,
                                              .head_dim = 576,
                                              .row_tile = row_tile,
                                              .consumer_warps = 8,
                                              .tile_tokens = 64,
                                              .max_box_tokens = 64,
                                              .min_page_size = 16};
}

static inline struct problem checked_problem(int32_t heads, int32_t q_len, libdecode_dtype kv_dtype) {
    const libdecode_problem problem = {.struct_size = sizeof problem,
                                       .op = LIBDECODE_OP_MLA_DECODE,
                                       .query_dtype = LIBDECODE_DTYPE_BF16,
                                       .kv_dtype = kv_dtype,
                                       .features = LIBDECODE_FEATURE_QUERY_ROPE,
                                       .batch_size = 3,
                                       .num_qo_heads = heads,
                                       .head_dim = 576,
                                       .page_size = 32,
                                       .q_len = q_len,
                                       .max_seq_len = 1000};
    struct problem checked;
    if (problem_check(&problem, &checked) != LIBDECODE_OK)
        fail_msg("%s", libdecode_error_message());
    return checked;
}

static inline struct problem bf16_batch(int32_t heads, int32_t batch_size, int32_t tokens) {
    struct problem problem = checked_problem(heads, 1, LIBDECODE_DTYPE_BF16);
    libdecode_problem given = problem.given;
    given.batch_size = batch_size;
    given.max_seq_len = tokens;
    assert_int_equal(problem_check(&given, &problem), LIBDECODE_OK);
    return problem;
}

#endif
