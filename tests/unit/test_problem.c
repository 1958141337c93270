/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_problem.c: every field of a problem out of range, and the defaults made explicit. (test_problem_kv.c: where KV lies;
 * test_tensors.c: the pointers.)
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "decode_fixture.h"
#include "problem_expect.h"

#define FIELD(name) #name, offsetof(libdecode_problem, name), sizeof(((libdecode_problem *)0)->name)

static void each_field_out_of_range_is_named_with_value_and_what_is_accepted(void **state) {
    (void)state;
    static const struct {
        const char *field;
        size_t offset, bytes;
        int64_t value;
        const char *accepted;
    } wrong[] = {
        {FIELD(op), 3, "batch_decode"},
        {FIELD(op), -1, "batch_decode"},
        {FIELD(query_dtype), 0, "bf16"},
        {FIELD(query_dtype), LIBDECODE_DTYPE_NVFP4, "bf16"},
        {FIELD(query_dtype), 5, "bf16"},
        {FIELD(query_dtype), LIBDECODE_DTYPE_E5M2, "bf16"},
        {FIELD(kv_dtype), -1, "nvfp4"},
        {FIELD(kv_dtype), LIBDECODE_DTYPE_FP32, "1 to 4 and 6 (bf16, fp16, e4m3, nvfp4 and e5m2)"},
        {FIELD(kv_dtype), 7, "1 to 4 and 6"},
        {FIELD(kv_dtype), LIBDECODE_DTYPE_FP16, "its own dtype"},
        {FIELD(out_dtype), 5, "nvfp4"},
        {FIELD(out_dtype), LIBDECODE_DTYPE_E5M2, "nvfp4"},
        {FIELD(out_dtype), LIBDECODE_DTYPE_E4M3, "one of the two must be e4m3"},
        {FIELD(out_dtype), LIBDECODE_DTYPE_NVFP4, "needs an e4m3 query"},
        {FIELD(features), 1 << 14, "0x3f3fff"},
        {FIELD(batch_size), -1, "0 to 2147483647"},
        {FIELD(num_qo_heads), 0, "1 to 65535"},
        {FIELD(num_qo_heads), -8, "1 to 65535"},
        {FIELD(num_qo_heads), 65536, "1 to 65535"},
        {FIELD(num_kv_heads), 0, "1 to 65535"},
        {FIELD(num_kv_heads), 65536, "1 to 65535"},
        {FIELD(num_kv_heads), 5, "does not divide num_qo_heads 32"},
        {FIELD(num_kv_heads), 64, "does not divide num_qo_heads 32"},
        {FIELD(head_dim), 0, "16 to 512"},
        {FIELD(head_dim), 8, "16 to 512"},
        {FIELD(head_dim), 72, "multiples of 16"},
        {FIELD(head_dim), 528, "16 to 512"},
        {FIELD(page_size), 0, "1 to 1024"},
        {FIELD(page_size), 2048, "1 to 1024"},
        {FIELD(page_size), -16, "1 to 1024"},
        {FIELD(q_len), -1, "1 to 2147483647, 0 for 1"},
        {FIELD(q_len), INT32_MAX, "less than 2^31"},
        {FIELD(max_seq_len), -1, "0 for what the page table"},
        {FIELD(max_seq_len), 0, "page_table_request_stride"},
        {FIELD(window_left), 7, "LIBDECODE_FEATURE_WINDOW"},
        {FIELD(position_stride), -1, "0 for 1"},
        {FIELD(position_stride), INT32_MAX, "less than 2^31"},
        {FIELD(position_offset), -1, "0 to 2147483647"},
        {FIELD(position_offset), INT32_MAX, "less than 2^31"},
        {FIELD(num_pages), -1, "2147483647"},
        {FIELD(num_pages), (int64_t)1 << 31, "2147483647"},
        {FIELD(kv_layout), 2, "HND"},
        {FIELD(v_sf_layout), 2, "V_INTERLEAVE4"},
        {FIELD(v_sf_layout), 1, "without kv_dtype nvfp4"},
        {FIELD(query_token_stride), -4096, "0 (dense: 4096) or more"},
        {FIELD(query_token_stride), 4100, "multiple of 8"},
        {FIELD(query_token_stride), INT64_MAX - 7, "at most"},
        {FIELD(query_head_stride), 4, "multiple of 8"},
        {FIELD(query_head_stride), -1, "or more"},
        {FIELD(out_token_stride), 4097, "multiple of 8"},
        {FIELD(out_token_stride), -1, "or more"},
        {FIELD(out_head_stride), 130, "multiple of 8"},
        {FIELD(out_head_stride), INT64_MIN, "or more"},
        {FIELD(lse_token_stride), -1, "or more"},
        {FIELD(lse_head_stride), -1, "or more"},
        {FIELD(lse_head_stride), INT64_MAX, "at most"},
        {FIELD(k_page_stride), -1, "or more"},
        {FIELD(k_page_stride), (int64_t)1 << 32, "at most"},
        {FIELD(k_head_stride), -8, "or more"},
        {FIELD(k_token_stride), -8, "or more"},
        {FIELD(k_token_stride), (int64_t)1 << 60, "at most"},
        {FIELD(v_token_stride), -8, "or more"},
        {FIELD(k_sf_page_stride), 16, "without kv_dtype nvfp4"},
        {FIELD(k_sf_head_stride), 16, "without kv_dtype nvfp4"},
        {FIELD(k_sf_token_stride), 16, "without kv_dtype nvfp4"},
        {FIELD(v_sf_page_stride), 16, "without kv_dtype nvfp4"},
        {FIELD(v_sf_head_stride), 16, "without kv_dtype nvfp4"},
        {FIELD(v_sf_token_stride), 16, "without kv_dtype nvfp4"},
        {FIELD(page_table_request_stride), -1, "or more"},
        {FIELD(page_table_request_stride), INT64_MAX, "at most"},
        {FIELD(page_table_head_stride), -1, "or more"},
        {FIELD(page_table_head_stride), 256, "no default"},
        {FIELD(page_table_v_offset), -1, "LIBDECODE_FEATURE_V_PAGE_TABLE"},
        {FIELD(page_table_v_offset), 1, "LIBDECODE_FEATURE_V_PAGE_TABLE"},
        {FIELD(seq_lens_request_stride), -1, "or more"},
        {FIELD(seq_lens_head_stride), -1, "or more"},
        {FIELD(total_kv_tokens), -1, "0 for not known"},
        {FIELD(kv_capacity_tokens), 4097, "at most 4096"},
        {FIELD(kv_capacity_tokens), -1, "0 to 2147479552"},
        {FIELD(kv_capacity_tokens), ((int64_t)1 << 31) - 4095, "0 to 2147479552"},
        {FIELD(v_head_dim), 1, "accepted is 128, 0 for that"},
        {FIELD(query_rope_token_stride), 8, "does not know"},
        {FIELD(query_rope_head_stride), 8, "does not know"},
        {FIELD(reserved), 1, "leave it 0"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        libdecode_problem problem = llama3_8b();
        int32_t narrow = (int32_t)wrong[i].value;
        memcpy((char *)&problem + wrong[i].offset, wrong[i].bytes == 4 ? (const void *)&narrow : (const void *)&wrong[i].value,
               wrong[i].bytes);
        expect_refused(&problem, wrong[i].field, wrong[i].accepted);
    }
}

static void fields_of_a_feature_are_refused_out_of_range(void **state) {
    (void)state;
    libdecode_problem problem = llama3_8b();
    problem.features = LIBDECODE_FEATURE_WINDOW;
    problem.window_left = -1;
    expect_refused(&problem, "window_left is -1", "0 or more");
    problem = llama3_8b();
    problem.features = LIBDECODE_FEATURE_V_PAGE_TABLE;
    problem.page_table_request_stride = 512;
    expect_refused(&problem, "page_table_v_offset is 0", "1 to 2^60");
    problem = llama3_8b();
    problem.skip_softmax_threshold_scale_factor = 1;
    expect_refused(&problem, "skip_softmax_threshold_scale_factor is 1", "LIBDECODE_FEATURE_SKIP_SOFTMAX");
    problem.features = LIBDECODE_FEATURE_SKIP_SOFTMAX;
    (void)expect_accepted(&problem);
    const float bad[] = {-1.0f, NAN, INFINITY};
    for (size_t i = 0; i < 3; i++) {
        problem.skip_softmax_threshold_scale_factor = bad[i];
        expect_refused(&problem, "skip_softmax_threshold_scale_factor", "finite and 0 or more");
    }
}

static void caps_rotations_and_bases_are_refused_where_they_mean_nothing(void **state) {
    (void)state;
    static const float bad[] = {-1.0f, NAN, INFINITY};
    static const struct {
        const char *name;
        size_t offset;
        uint32_t feature;
    } fields[] = {{"logits_soft_cap", offsetof(libdecode_problem, logits_soft_cap), LIBDECODE_FEATURE_SOFT_CAP},
                  {"rope_scale", offsetof(libdecode_problem, rope_scale), LIBDECODE_FEATURE_ROPE},
                  {"rope_theta", offsetof(libdecode_problem, rope_theta), LIBDECODE_FEATURE_ROPE}};
    for (size_t i = 0; i < 3 * 3; i++) {
        const float good = 30.0f;
        libdecode_problem problem = llama3_8b();
        memcpy((char *)&problem + fields[i / 3].offset, &good, sizeof good);
        expect_refused(&problem, fields[i / 3].name, "without LIBDECODE_FEATURE_");
        problem.features = fields[i / 3].feature;
        (void)expect_accepted(&problem);
        memcpy((char *)&problem + fields[i / 3].offset, &bad[i % 3], sizeof bad[i % 3]);
        expect_refused(&problem, fields[i / 3].name, "finite and more than 0");
    }
    libdecode_problem problem = llama3_8b();
    problem.features = LIBDECODE_FEATURE_SOFT_CAP;
    expect_refused(&problem, "logits_soft_cap is 0", "more than 0");
    problem.features = LIBDECODE_FEATURE_ROPE;
    struct problem checked = expect_accepted(&problem);
    assert_true(checked.given.rope_scale == 1.0f && checked.given.rope_theta == 10000.0f);
}

static void a_convention_of_the_lse_needs_an_lse_and_that_of_alibi_alibi(void **state) {
    static const struct {
        uint32_t feature;
        const char *refusal;
    } conventions[] = {
        {LIBDECODE_FEATURE_LSE_NATURAL, "LIBDECODE_FEATURE_LSE_NATURAL without LIBDECODE_FEATURE_LSE:"},
        {LIBDECODE_FEATURE_LSE_WITHOUT_SINK, "LIBDECODE_FEATURE_LSE_WITHOUT_SINK without LIBDECODE_FEATURE_LSE:"},
        {LIBDECODE_FEATURE_LSE_EMPTY_INFINITY, "LIBDECODE_FEATURE_LSE_EMPTY_INFINITY without LIBDECODE_FEATURE_LSE:"},
        {LIBDECODE_FEATURE_LSE_ALIBI_FROM_ZERO, "LIBDECODE_FEATURE_LSE_ALIBI_FROM_ZERO without LIBDECODE_FEATURE_LSE:"}};
    (void)state;
    libdecode_problem problem = llama3_8b();
    for (size_t i = 0; i < sizeof conventions / sizeof conventions[0]; i++) {
        problem.features = conventions[i].feature | LIBDECODE_FEATURE_ALIBI;
        expect_refused(&problem, conventions[i].refusal, "both");
        problem.features |= LIBDECODE_FEATURE_LSE;
        (void)expect_accepted(&problem);
    }
    problem.features = LIBDECODE_FEATURE_LSE_ALIBI_FROM_ZERO | LIBDECODE_FEATURE_LSE;
    expect_refused(&problem, "LIBDECODE_FEATURE_LSE_ALIBI_FROM_ZERO without LIBDECODE_FEATURE_ALIBI:", "both");
}

static void a_null_problem_and_a_wrong_struct_size_are_refused(void **state) {
    (void)state;
    struct problem checked;
    libdecode_problem problem = llama3_8b();
    assert_int_equal(problem_check(NULL, &checked), LIBDECODE_ERROR_INVALID_ARGUMENT);
    problem.struct_size = 0;
    assert_int_equal(problem_check(&problem, &checked), LIBDECODE_ERROR_STRUCT_SIZE);
    problem.struct_size = offsetof(libdecode_problem, total_kv_tokens);
    assert_int_equal(problem_check(&problem, &checked), LIBDECODE_ERROR_STRUCT_SIZE);
    problem.struct_size += sizeof(int64_t);
    assert_int_equal(problem_check(&problem, &checked), LIBDECODE_OK);

    struct {
        libdecode_problem known;
        uint64_t later;
    } newer = {llama3_8b(), 0};
    newer.known.struct_size = sizeof newer;
    assert_int_equal(problem_check(&newer.known, &checked), LIBDECODE_OK);
    assert_int_equal(checked.given.struct_size, sizeof(libdecode_problem));
    newer.later = 1;
    assert_int_equal(problem_check(&newer.known, &checked), LIBDECODE_ERROR_STRUCT_SIZE);
}

static void every_default_becomes_explicit(void **state) {
    (void)state;
    libdecode_problem problem = llama3_8b();
    problem.op = (libdecode_op)0;
    struct problem checked = expect_accepted(&problem);
    const libdecode_problem *given = &checked.given;
    assert_int_equal(given->op, LIBDECODE_OP_BATCH_DECODE);
    assert_int_equal(given->kv_dtype, LIBDECODE_DTYPE_BF16);
    assert_int_equal(given->out_dtype, LIBDECODE_DTYPE_BF16);
    assert_int_equal(given->q_len, 1);
    assert_int_equal(given->window_left, -1);
    assert_int_equal(given->position_stride, 1);
    assert_int_equal(given->query_head_stride, 128);
    assert_int_equal(given->query_token_stride, 32 * 128);
    assert_int_equal(given->out_head_stride, 128);
    assert_int_equal(given->out_token_stride, 32 * 128);
    assert_int_equal(given->lse_head_stride, 1);
    assert_int_equal(given->lse_token_stride, 32);
    assert_int_equal(given->k_token_stride, 128);
    assert_int_equal(given->k_head_stride, 16 * 128);
    assert_int_equal(given->k_page_stride, 8 * 16 * 128);
    assert_int_equal(given->v_token_stride, 128);
    assert_int_equal(given->v_head_stride, 16 * 128);
    assert_int_equal(given->v_page_stride, 8 * 16 * 128);
    assert_int_equal(given->page_table_request_stride, 256);
    assert_int_equal(given->seq_lens_request_stride, 1);
    assert_int_equal(given->k_sf_page_stride, 0);
    assert_int_equal(checked.group_size, 4);
    assert_int_equal(checked.heads_per_sequence, 8);
}

static void nhd_strides_and_partly_given_strides_nest(void **state) {
    (void)state;
    libdecode_problem problem = llama3_8b();
    problem.kv_layout = LIBDECODE_KV_NHD;
    problem.v_page_stride = 4 * 16 * 8 * 128;
    problem.out_head_stride = 256;
    struct problem checked = expect_accepted(&problem);
    assert_int_equal(checked.given.k_head_stride, 128);
    assert_int_equal(checked.given.k_token_stride, 8 * 128);
    assert_int_equal(checked.given.k_page_stride, 16 * 8 * 128);
    assert_int_equal(checked.given.v_head_stride, 128);
    assert_int_equal(checked.given.v_page_stride, 4 * 16 * 8 * 128);
    assert_int_equal(checked.given.out_token_stride, 32 * 256);
}

static void the_longest_sequence_follows_from_the_page_table(void **state) {
    (void)state;
    libdecode_problem problem = llama3_8b();
    problem.max_seq_len = 0;
    problem.page_table_request_stride = 100;
    assert_int_equal(expect_accepted(&problem).given.max_seq_len, 1600);
    problem.features = LIBDECODE_FEATURE_V_PAGE_TABLE;
    problem.page_table_v_offset = 50;
    assert_int_equal(expect_accepted(&problem).given.max_seq_len, 800);
    problem.page_table_head_stride = 25;
    assert_int_equal(expect_accepted(&problem).given.max_seq_len, 400);
    problem.page_table_request_stride = problem.page_table_v_offset = problem.page_table_head_stride = (int64_t)1 << 40;
    assert_int_equal(expect_accepted(&problem).given.max_seq_len, INT32_MAX);
    problem = llama3_8b();
    problem.max_seq_len = 4097;
    assert_int_equal(expect_accepted(&problem).given.page_table_request_stride, 257);
    problem.max_seq_len = INT32_MAX;
    assert_int_equal(expect_accepted(&problem).given.page_table_request_stride, 1 << 27);
}

static void a_head_stride_of_lengths_gives_every_kv_head_its_own_sequence(void **state) {
    (void)state;
    libdecode_problem problem = llama3_8b();
    problem.seq_lens_head_stride = 16;
    assert_int_equal(expect_accepted(&problem).heads_per_sequence, 1);
}

static void everything_that_function_1_defines_is_accepted(void **state) {
    (void)state;
    enum {
        BF16 = LIBDECODE_DTYPE_BF16,
        FP16 = LIBDECODE_DTYPE_FP16,
        E4M3 = LIBDECODE_DTYPE_E4M3,
        NVFP4 = LIBDECODE_DTYPE_NVFP4,
        E5M2 = LIBDECODE_DTYPE_E5M2
    };
    static const int dtypes[][3] = {{BF16, BF16, BF16}, {FP16, FP16, FP16}, {BF16, E4M3, BF16},  {FP16, E4M3, FP16},
                                    {E4M3, E4M3, BF16}, {E4M3, E4M3, FP16}, {E4M3, E4M3, E4M3},  {E4M3, E4M3, NVFP4},
                                    {BF16, E4M3, E4M3}, {FP16, E4M3, E4M3}, {E4M3, NVFP4, E4M3}, {BF16, NVFP4, BF16},
                                    {BF16, E5M2, FP16}, {FP16, E5M2, FP16}, {E4M3, E5M2, BF16},  {E4M3, E5M2, NVFP4}};
    static const int pages[] = {1, 16, 64, 1024}, dims[] = {64, 128, 256, 512};
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
        for (size_t j = 0; j < 4; j++) {
            libdecode_problem problem = llama3_8b();
            problem.query_dtype = (libdecode_dtype)dtypes[i][0];
            problem.kv_dtype = (libdecode_dtype)dtypes[i][1];
            problem.out_dtype = (libdecode_dtype)dtypes[i][2];
            problem.page_size = pages[j];
            problem.head_dim = dims[j];
            problem.q_len = 5;
            problem.features = 0xff;
            problem.window_left = 127;
            problem.page_table_request_stride = 8192;
            problem.page_table_v_offset = 4096;
            (void)expect_accepted(&problem);
        }
    }
    libdecode_problem empty = llama3_8b();
    empty.batch_size = 0;
    (void)expect_accepted(&empty);
}

static void rows_of_results_that_overlap_are_refused(void **state) {
    (void)state;
    /* 16 requests of 32 heads of 128 unless said */
    static const struct {
        int32_t batch_size, q_len, heads;
        uint32_t features;
        int64_t head_stride, token_stride;
        bool overlap;
    } cases[] = {{16, 1, 32, 0, 128, 32 * 128, false},
                 {16, 1, 32, 0, 16 * 128, 128, false}, /* the tokens of a head side by side */
                 {16, 1, 32, 0, 16 * 128, 0, false},   /* and by default */
                 {16, 1, 32, 0, 16 * 128 - 8, 128, true},
                 {16, 1, 32, 0, 120, 0, true},
                 {16, 1, 32, 0, 8, 8192, true},
                 {16, 1, 32, 0, 128, 128, true},
                 {16, 1, 32, 0, 128, 32 * 128 - 8, true},
                 {1, 1, 32, 0, 128, 8, false}, /* of one token no step is taken */
                 {1, 2, 32, 0, 128, 8, true},
                 {16, 1, 1, 0, 8, 128, false},
                 {2, 1, 2, 0, 3 * 128, 2 * 128, false}, /* 0 and 3, between them 2 and 5 */
                 {3, 1, 2, 0, 3 * 128, 2 * 128, false}, /* 0 2 4 and 3 5 7 */
                 {3, 1, 3, 0, 3 * 128, 2 * 128, false},
                 {4, 1, 3, 0, 3 * 128, 2 * 128, true}, /* twice 3 is thrice 2 */
                 {0, 1, 32, 0, 8, 8, false},
                 {16, 4, 32, LIBDECODE_FEATURE_RAGGED_Q, 20 * 128, 128, false}, /* 20 tokens in all, which nobody has said */
                 {16, 4, 32, LIBDECODE_FEATURE_RAGGED_Q, 128, 120, true},
                 {16, 1, 32, LIBDECODE_FEATURE_QUERY_OFFSETS, 128, 8, false},
                 {16, 2, 32, LIBDECODE_FEATURE_QUERY_OFFSETS, 128, 128, true}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        libdecode_problem problem = llama3_8b();
        problem.batch_size = cases[i].batch_size;
        problem.q_len = cases[i].q_len;
        problem.num_qo_heads = cases[i].heads;
        problem.num_kv_heads = 1;
        problem.features = cases[i].features;
        problem.out_head_stride = cases[i].head_stride;
        problem.out_token_stride = cases[i].token_stride;
        if (cases[i].overlap)
            expect_refused(&problem, "problem.out_head_stride", "over each other");
        else
            (void)expect_accepted(&problem);
    }
    libdecode_problem problem = llama3_8b();
    problem.features = LIBDECODE_FEATURE_LSE;
    problem.lse_token_stride = 1;
    expect_refused(&problem, "problem.lse_head_stride is 1", "over each other");
    problem.lse_head_stride = 16;
    (void)expect_accepted(&problem);
    for (int further = 0; further < 4; further++) { /* requests begin elsewhere in query and out, not in lse */
        problem = llama3_8b();
        problem.batch_size = 4;
        problem.num_qo_heads = 8;
        problem.features = LIBDECODE_FEATURE_LSE | (further & 1 ? LIBDECODE_FEATURE_QUERY_OFFSETS : 0u) |
                           (further & 2 ? LIBDECODE_FEATURE_RAGGED_Q : 0u);
        problem.lse_head_stride = problem.lse_token_stride = 1;
        expect_refused(&problem, "problem.lse_head_stride is 1 and lse_token_stride 1", "over each other");
        problem.lse_head_stride = 4;
        (void)expect_accepted(&problem);
    }
}

/* Beyond, what kernels count in 32 bits would wrap at the end of the last tile. */
static void no_request_has_room_for_more_tokens_than_kernels_count(void **state) {
    (void)state;
    libdecode_problem problem = llama3_8b();
    problem.page_size = 1024;
    problem.page_table_request_stride = (1 << 21) - 5; /* 2^31 - 5120 */
    assert_int_equal(expect_accepted(&problem).max_tokens, 2147478528);
    for (int width = (1 << 21) - 4; width <= 1 << 22; width = width == 1 << 21 ? 1 << 22 : width + 1) {
        problem.page_table_request_stride = width;
        assert_int_equal(expect_accepted(&problem).max_tokens, 2147479552);
    }
    problem = some_mla();
    problem.num_pages = 1000;
    problem.sparse_top_k = 2147479552;
    (void)expect_accepted(&problem);
    problem.sparse_top_k++;
    expect_refused(&problem, "sparse_top_k", "0 to 2147479552");
}

static void what_follows_from_a_problem_is_derived_once(void **state) {
    (void)state;
    libdecode_problem problem = llama3_8b();
    problem.max_seq_len = 1000;
    problem.page_table_request_stride = 80;
    struct problem checked = expect_accepted(&problem);
    assert_int_equal(checked.qk_dim, 128);
    assert_int_equal(checked.v_dim, 128);
    assert_int_equal(checked.kv_token_bytes, 2 * 128 * 2);
    assert_int_equal(checked.page_table_width, 80);
    assert_int_equal(checked.planned_kv_tokens, 1000 * (int64_t)problem.batch_size);
    problem.total_kv_tokens = 77;
    assert_int_equal(expect_accepted(&problem).planned_kv_tokens, 77);
    problem.total_kv_tokens = INT64_MAX; /* more than the longest sequence allows */
    assert_int_equal(expect_accepted(&problem).planned_kv_tokens, 1000 * (int64_t)problem.batch_size);
    problem.kv_dtype = LIBDECODE_DTYPE_NVFP4;
    assert_int_equal(expect_accepted(&problem).kv_token_bytes, 2 * (128 / 2 + 128 / 16));
}

/* libdecode_problem.h: v strides default to those of K, each by itself; a pool of K and V in one tensor gives K's page stride alone. */
static void each_stride_of_v_defaults_to_that_of_k(void **state) {
    (void)state;
    for (int layout = LIBDECODE_KV_HND; layout <= LIBDECODE_KV_NHD; layout++) {
        libdecode_problem problem = llama3_8b();
        problem.kv_layout = (libdecode_kv_layout)layout;
        problem.k_page_stride = 2 * 8 * 16 * 128; /* [pages, 2, ...] */
        struct problem checked = expect_accepted(&problem);
        assert_int_equal(checked.given.v_page_stride, problem.k_page_stride);
        problem.k_page_stride = 0;
        problem.k_head_stride = 17 * 8 * 128;
        checked = expect_accepted(&problem);
        assert_int_equal(checked.given.v_head_stride, problem.k_head_stride);
        problem.k_head_stride = 0;
        problem.k_token_stride = 16 * 128;
        checked = expect_accepted(&problem);
        assert_int_equal(checked.given.v_token_stride, problem.k_token_stride);
        problem.v_token_stride = 8 * 128; /* given: its own */
        assert_int_equal(expect_accepted(&problem).given.v_token_stride, 8 * 128);
    }
}

static void token_strides_are_dense_over_the_head_strides_that_are_given(void **state) {
    (void)state;
    libdecode_problem problem = llama3_8b();
    problem.features = LIBDECODE_FEATURE_LSE;
    problem.query_head_stride = 136;
    problem.lse_head_stride = 3;
    const struct problem checked = expect_accepted(&problem);
    assert_int_equal(checked.given.query_token_stride, 32 * 136);
    assert_int_equal(checked.given.lse_token_stride, 32 * 3);
}

/* With V's entries in a table of its own behind K's, the width of a row says nothing of where the next request's begin. */
static void a_page_table_of_k_and_v_has_no_default_width(void **state) {
    (void)state;
    libdecode_problem problem = llama3_8b();
    problem.features = LIBDECODE_FEATURE_V_PAGE_TABLE;
    problem.page_table_v_offset = 256;
    expect_refused(&problem, "page_table_request_stride is 0", "page_table_v_offset 256");
    problem.page_table_request_stride = 512;
    (void)expect_accepted(&problem);
}

static void the_last_position_may_be_the_largest_number(void **state) {
    (void)state;
    libdecode_problem problem = llama3_8b();
    problem.page_table_request_stride = 4; /* 64 tokens */
    problem.position_offset = INT32_MAX - 63;
    (void)expect_accepted(&problem);
    problem.position_offset++;
    expect_refused(&problem, "position_offset 2147483585 with room for 64 tokens", "less than 2^31, so at most 63 tokens");
    problem.kv_capacity_tokens = 63; /* what the message names */
    (void)expect_accepted(&problem);
    problem.kv_capacity_tokens = problem.position_offset = 0;
    problem.position_stride = INT32_MAX / 63;
    (void)expect_accepted(&problem);
    problem.position_stride++;
    expect_refused(&problem, "position_stride is 34087043", "at most 63 tokens");
    problem = llama3_8b();
    problem.max_seq_len = INT32_MAX; /* in place of a width: 2^31 - 4096 tokens */
    problem.position_offset = 4096;
    (void)expect_accepted(&problem);
    problem.position_offset = 4097;
    expect_refused(&problem, "position_offset 4097", "less than 2^31");
}

/* max_seq_len is a hint, and lengths on the device may be anything: what counts is how many tokens there is room for. */
static void no_hint_decides_which_positions_there_are(void **state) {
    (void)state;
    libdecode_problem problem = llama3_8b();
    problem.page_table_request_stride = 4;
    problem.max_seq_len = INT32_MAX;
    problem.position_offset = 2;
    (void)expect_accepted(&problem);
    problem.position_offset = 0;
    problem.position_stride = 2;
    (void)expect_accepted(&problem);
    problem.page_table_request_stride = 1 << 27;
    problem.max_seq_len = 16;
    expect_refused(&problem, "problem.position_stride is 2 and position_offset 0 with room for 2147479552 tokens",
                   "at most 1073741824 tokens");
    problem.kv_capacity_tokens = 1 << 30;
    problem.position_offset = 1; /* the last one is 2^31 - 1 */
    (void)expect_accepted(&problem);
    problem.features = LIBDECODE_FEATURE_CONTIGUOUS_KV;
    problem.page_size = 0;
    problem.page_table_request_stride = 0;
    (void)expect_accepted(&problem);
    problem.kv_capacity_tokens++;
    expect_refused(&problem, "with room for 1073741825 tokens", "at most 1073741824 tokens");
    problem.kv_capacity_tokens = 0;
    problem.position_offset = INT32_MAX;
    (void)expect_accepted(&problem);
}

static void as_many_query_tokens_as_a_number_counts_are_accepted(void **state) {
    (void)state;
    libdecode_problem problem = llama3_8b();
    problem.batch_size = INT32_MAX;
    (void)expect_accepted(&problem);
    problem.q_len = 2;
    expect_refused(&problem, "problem.q_len is 2 with batch_size 2147483647", "less than 2^31");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_field_out_of_range_is_named_with_value_and_what_is_accepted),
        cmocka_unit_test(fields_of_a_feature_are_refused_out_of_range),
        cmocka_unit_test(caps_rotations_and_bases_are_refused_where_they_mean_nothing),
        cmocka_unit_test(a_convention_of_the_lse_needs_an_lse_and_that_of_alibi_alibi),
        cmocka_unit_test(a_null_problem_and_a_wrong_struct_size_are_refused),
        cmocka_unit_test(every_default_becomes_explicit),
        cmocka_unit_test(nhd_strides_and_partly_given_strides_nest),
        cmocka_unit_test(the_longest_sequence_follows_from_the_page_table),
        cmocka_unit_test(a_head_stride_of_lengths_gives_every_kv_head_its_own_sequence),
        cmocka_unit_test(everything_that_function_1_defines_is_accepted),
        cmocka_unit_test(rows_of_results_that_overlap_are_refused),
        cmocka_unit_test(no_request_has_room_for_more_tokens_than_kernels_count),
        cmocka_unit_test(what_follows_from_a_problem_is_derived_once),
        cmocka_unit_test(each_stride_of_v_defaults_to_that_of_k),
        cmocka_unit_test(token_strides_are_dense_over_the_head_strides_that_are_given),
        cmocka_unit_test(a_page_table_of_k_and_v_has_no_default_width),
        cmocka_unit_test(the_last_position_may_be_the_largest_number),
        cmocka_unit_test(no_hint_decides_which_positions_there_are),
        cmocka_unit_test(as_many_query_tokens_as_a_number_counts_are_accepted),
    };
    return cmocka_run_group_tests_name("problem", tests, NULL, NULL);
}
