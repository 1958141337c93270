/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_mla.c: LIBDECODE_OP_MLA_DECODE: which problems it is, and the reference on cases whose result can be worked out by hand. Every
 * query row is 1 in dimension 0 and in the last one, logits are in base 2: a KV row weighs 2^(its first element + its last one),
 * and its first element is the first of its V, too.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "element.h"
#include "problem.h"

enum { LATENT = 256, ROPE = 64, DIM = LATENT + ROPE, PAGE = 4, PAGES = 3, HEADS = 3, TOKENS = 2 };
#define BF16_NAN 0x7fff

static struct {
    _Alignas(16) uint16_t query[TOKENS * HEADS][DIM];
    _Alignas(16) uint16_t latent[TOKENS * HEADS][LATENT], rope[TOKENS * HEADS][ROPE];
    _Alignas(16) uint16_t cache[PAGES * PAGE][DIM], out[TOKENS * HEADS][LATENT];
    float lse[TOKENS * HEADS];
    int32_t page_table[PAGES], seq_lens[1];
} scene;
static const float one = 1;

static libdecode_problem mla_problem(void) {
    return (libdecode_problem){.struct_size = sizeof(libdecode_problem),
                               .op = LIBDECODE_OP_MLA_DECODE,
                               .query_dtype = LIBDECODE_DTYPE_BF16,
                               .features = LIBDECODE_FEATURE_LSE,
                               .batch_size = 1,
                               .num_qo_heads = HEADS,
                               .head_dim = DIM,
                               .page_size = PAGE,
                               .q_len = TOKENS,
                               .page_table_request_stride = PAGES};
}

static libdecode_tensors mla_tensors(void) {
    return (libdecode_tensors){.struct_size = sizeof(libdecode_tensors),
                               .query = scene.query,
                               .k_cache = scene.cache,
                               .page_table = scene.page_table,
                               .seq_lens = scene.seq_lens,
                               .out = scene.out,
                               .lse = scene.lse,
                               .bmm1_scale_log2_device = &one};
}

/* Six tokens in pages 2 and 0; token j has the latent element j % 2 first, 2^j next, and the last one makes all weights alike. */
static void begin(void) {
    memset(&scene, 0, sizeof scene);
    memset(scene.cache, 0xff, sizeof scene.cache);
    for (size_t row = 0; row < TOKENS * HEADS; row++) {
        scene.query[row][0] = scene.query[row][DIM - 1] = bf16_encode(1);
        scene.latent[row][0] = scene.rope[row][ROPE - 1] = bf16_encode(1);
    }
    scene.page_table[0] = 2;
    scene.page_table[1] = 0;
    scene.page_table[2] = INT32_MAX;
    scene.seq_lens[0] = 6;
    for (int token = 0; token < 6; token++) {
        uint16_t *row = scene.cache[scene.page_table[token / PAGE] * PAGE + token % PAGE];
        memset(row, 0, DIM * sizeof row[0]);
        row[0] = bf16_encode(token % 2);
        row[1] = bf16_encode(ldexp(1, token));
        row[DIM - 1] = bf16_encode(-(token % 2));
    }
}

static void run(const libdecode_problem *problem, const libdecode_tensors *tensors) {
    if (libdecode_reference(problem, tensors) != LIBDECODE_OK)
        fail_msg("%s", libdecode_error_message());
}

/* The mean of tokens that weigh the same: 5 of them for the first query token, all 6 for the second. */
static void expect_means(void) {
    for (size_t row = 0; row < TOKENS * HEADS; row++) {
        const double count = row / HEADS == 0 ? 5 : 6, odd = row / HEADS == 0 ? 2 : 3;
        assert_int_equal(scene.out[row][0], bf16_encode(odd / count));
        assert_int_equal(scene.out[row][1], bf16_encode((ldexp(1, (int)count) - 1) / count));
        assert_int_equal(scene.out[row][2], 0);
        assert_float_equal(scene.lse[row], (float)log2(count), 0.0);
    }
}

static void k_and_v_are_the_same_row(void **state) {
    (void)state;
    begin();
    const libdecode_problem problem = mla_problem();
    const libdecode_tensors tensors = mla_tensors();
    run(&problem, &tensors);
    expect_means();
}

static void a_query_in_two_tensors_is_the_same(void **state) {
    (void)state;
    begin();
    libdecode_problem problem = mla_problem();
    libdecode_tensors tensors = mla_tensors();
    problem.features |= LIBDECODE_FEATURE_QUERY_ROPE;
    problem.num_qo_heads = 2; /* of three: rows lie apart */
    problem.query_token_stride = HEADS * LATENT;
    problem.query_rope_token_stride = HEADS * ROPE;
    problem.out_token_stride = HEADS * LATENT;
    problem.lse_token_stride = HEADS;
    tensors.query = scene.latent;
    tensors.query_rope = scene.rope;
    run(&problem, &tensors);
    for (size_t token = 0; token < TOKENS; token++) { /* the third head, which is not computed */
        memcpy(scene.out[token * HEADS + 2], scene.out[token * HEADS], sizeof scene.out[0]);
        scene.lse[token * HEADS + 2] = scene.lse[token * HEADS];
    }
    expect_means();
}

static void rows_lie_where_the_strides_say(void **state) {
    (void)state;
    begin();
    libdecode_problem problem = mla_problem();
    const libdecode_tensors tensors = mla_tensors();
    struct problem checked;
    assert_int_equal(problem_check(&problem, &checked), LIBDECODE_OK);
    assert_int_equal(checked.given.v_head_dim, LATENT);
    assert_int_equal(checked.given.num_kv_heads, 1);
    assert_int_equal(checked.given.k_token_stride, DIM);
    assert_int_equal(checked.given.k_page_stride, PAGE * DIM);
    assert_int_equal(checked.given.query_token_stride, HEADS * DIM);
    assert_int_equal(checked.given.out_token_stride, HEADS * LATENT);
    assert_int_equal(checked.kv_token_bytes, DIM * 2);
    problem.v_head_dim = LATENT;
    problem.num_kv_heads = 1;
    problem.k_token_stride = DIM;
    problem.query_head_stride = DIM;
    run(&problem, &tensors);
    expect_means();
}

/* What is asked of the field or pointer, and what the message says. */
static void expect_refused(const libdecode_problem *problem, const libdecode_tensors *tensors, const char *words) {
    assert_int_equal(libdecode_reference(problem, tensors), LIBDECODE_ERROR_INVALID_ARGUMENT);
    if (!strstr(libdecode_error_message(), words))
        fail_msg("message '%s', expected '%s' in it", libdecode_error_message(), words);
}

#define REFUSED(change, words)                                                                                                   \
    do {                                                                                                                         \
        libdecode_problem problem = mla_problem();                                                                               \
        libdecode_tensors tensors = mla_tensors();                                                                               \
        change;                                                                                                                  \
        expect_refused(&problem, &tensors, words);                                                                               \
    } while (0)

static void what_mla_does_not_know_is_refused_by_name(void **state) {
    (void)state;
    begin();
    REFUSED(problem.head_dim = 512, "problem.head_dim is 512 with op mla_decode: accepted are 576 and 320");
    REFUSED(problem.v_head_dim = 320, "problem.v_head_dim is 320 with head_dim 320: accepted is 256");
    REFUSED(problem.num_kv_heads = 3, "problem.num_kv_heads is 3 with op mla_decode: accepted is 1");
    REFUSED(problem.kv_dtype = LIBDECODE_DTYPE_NVFP4, "problem.kv_dtype is nvfp4 with op mla_decode");
    REFUSED(problem.v_token_stride = DIM, "problem.v_token_stride is 320: mla_decode does not know this field");
    REFUSED(problem.seq_lens_head_stride = 1, "problem.seq_lens_head_stride is 1: mla_decode does not know");
    REFUSED(problem.query_rope_head_stride = ROPE, "problem.query_rope_head_stride is 64 without LIBDECODE_FEATURE_QUERY_ROPE");
    REFUSED(problem.features |= LIBDECODE_FEATURE_ALIBI, "that mla_decode does not know");
    REFUSED(tensors.v_cache = scene.cache, "tensors.v_cache is given: mla_decode does not know it");
    REFUSED(tensors.query_rope = scene.rope, "tensors.query_rope is given without LIBDECODE_FEATURE_QUERY_ROPE");
    REFUSED(problem.features |= LIBDECODE_FEATURE_QUERY_ROPE,
            "tensors.query_rope is NULL: LIBDECODE_FEATURE_QUERY_ROPE needs it");
    REFUSED(
        (problem.features |= LIBDECODE_FEATURE_QUERY_ROPE, problem.query_rope_head_stride = 4, tensors.query_rope = scene.rope),
        "problem.query_rope_head_stride is 4 elements: it must be a multiple of 8");
    REFUSED(problem.op = (libdecode_op)3, "accepted are 1 (batch_decode), 2 (mla_decode), 0 for batch_decode");
}

static void the_rope_part_is_dense_over_its_head_stride(void **state) {
    (void)state;
    begin();
    libdecode_problem problem = mla_problem();
    struct problem checked;
    problem.features |= LIBDECODE_FEATURE_QUERY_ROPE;
    problem.query_rope_head_stride = ROPE + 8;
    assert_int_equal(problem_check(&problem, &checked), LIBDECODE_OK);
    assert_int_equal(checked.given.query_rope_token_stride, HEADS * (ROPE + 8));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(k_and_v_are_the_same_row),
        cmocka_unit_test(a_query_in_two_tensors_is_the_same),
        cmocka_unit_test(rows_lie_where_the_strides_say),
        cmocka_unit_test(what_mla_does_not_know_is_refused_by_name),
        cmocka_unit_test(the_rope_part_is_dense_over_its_head_stride),
    };
    return cmocka_run_group_tests_name("mla", tests, NULL, NULL);
}
