/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_sparse_mla.c: MLA whose query tokens name the rows that they attend to: which problems it is, and the reference on cases whose
 * result can be worked out by hand. The query is 0 but for one case, so all rows that count weigh the same, and a result is their mean.
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

enum { LATENT = 512, DIM = 576, PAGE = 4, PAGES = 3, ROWS = PAGE * PAGES, HEADS = 2, TOKENS = 3, TOP_K = 5, STRIDE = TOP_K + 2 };
enum { SCALED_ROW = 656, NVFP4_ROW = 352 };

static struct {
    _Alignas(16) uint16_t query[TOKENS * HEADS][DIM];
    _Alignas(16) uint8_t cache[ROWS * DIM * 2];
    _Alignas(16) uint16_t out[TOKENS * HEADS][LATENT];
    float lse[TOKENS * HEADS];
    int32_t ids[TOKENS][STRIDE], lens[TOKENS], seq_lens[1], cum_seq_lens_q[2];
} scene;

static libdecode_problem sparse_problem(void) {
    return (libdecode_problem){.struct_size = sizeof(libdecode_problem),
                               .op = LIBDECODE_OP_MLA_DECODE,
                               .query_dtype = LIBDECODE_DTYPE_BF16,
                               .features = LIBDECODE_FEATURE_LSE,
                               .batch_size = 1,
                               .num_qo_heads = HEADS,
                               .head_dim = DIM,
                               .page_size = PAGE,
                               .num_pages = PAGES,
                               .q_len = TOKENS,
                               .sparse_top_k = TOP_K,
                               .sparse_token_ids_stride = STRIDE};
}

static libdecode_tensors sparse_tensors(void) {
    return (libdecode_tensors){.struct_size = sizeof(libdecode_tensors),
                               .query = scene.query,
                               .k_cache = scene.cache,
                               .seq_lens = scene.seq_lens,
                               .out = scene.out,
                               .lse = scene.lse,
                               .sparse_token_ids = scene.ids[0]};
}

/* Row `id` begins with 2^id; all others, as rows that no id names, are NaN. */
static void name_rows(const int32_t ids[TOKENS][TOP_K]) {
    memset(&scene, 0, sizeof scene);
    memset(scene.cache, 0xff, sizeof scene.cache);
    memset(scene.ids, 0x7f, sizeof scene.ids);
    scene.seq_lens[0] = ROWS;
    for (size_t token = 0; token < TOKENS; token++) {
        memcpy(scene.ids[token], ids[token], TOP_K * sizeof(int32_t));
        for (size_t column = 0; column < TOP_K; column++) {
            const int32_t id = ids[token][column];
            if (id < 0 || id >= ROWS)
                continue;
            uint16_t *row = (uint16_t *)scene.cache + id * DIM;
            memset(row, 0, DIM * sizeof *row);
            row[0] = bf16_encode(ldexp(1, id));
        }
    }
}

static void run(const libdecode_problem *problem, const libdecode_tensors *tensors) {
    if (libdecode_reference(problem, tensors) != LIBDECODE_OK)
        fail_msg("%s", libdecode_error_message());
}

static void expect_mean(size_t token, double sum, double count) {
    for (size_t head = 0; head < HEADS; head++) {
        const size_t row = token * HEADS + head;
        assert_int_equal(scene.out[row][0], bf16_encode(count > 0 ? sum / count : 0));
        assert_int_equal(scene.out[row][1], 0);
        assert_float_equal(scene.lse[row], count > 0 ? (float)log2(count) : -INFINITY, 0.0);
    }
}

static void a_query_token_attends_to_the_rows_that_it_names(void **state) {
    (void)state;
    static const int32_t ids[TOKENS][TOP_K] = {{11, 0, 3, 7, 1}, {2, 2, -1, 5, INT32_MAX}, {-1, INT32_MIN, ROWS, -7, 12}};
    name_rows(ids);
    const libdecode_problem problem = sparse_problem();
    const libdecode_tensors tensors = sparse_tensors();
    run(&problem, &tensors);
    expect_mean(0, 2048 + 1 + 8 + 128 + 2, 5);
    expect_mean(1, 4 + 4 + 32, 3); /* what is named twice counts twice */
    expect_mean(2, 0, 0);
}

static void of_a_short_sequence_the_first_ids_count(void **state) {
    (void)state;
    static const int32_t ids[TOKENS][TOP_K] = {{0, 1, 2, 3, 4}, {0, 1, 2, 3, 4}, {0, 1, 2, 3, 4}};
    const libdecode_problem problem = sparse_problem();
    const libdecode_tensors tensors = sparse_tensors();
    name_rows(ids);
    scene.seq_lens[0] = 4; /* 2, 3 and 4 of them */
    run(&problem, &tensors);
    expect_mean(0, 3, 2);
    expect_mean(1, 7, 3);
    expect_mean(2, 15, 4);
    scene.seq_lens[0] = 2; /* the first query token stands before the sequence */
    run(&problem, &tensors);
    expect_mean(0, 0, 0);
    expect_mean(1, 1, 1);
    expect_mean(2, 3, 2);
}

static void lengths_of_query_tokens_win(void **state) {
    (void)state;
    static const int32_t ids[TOKENS][TOP_K] = {{0, 1, 2, 3, 4}, {0, 1, 2, 3, 4}, {0, 1, 2, 3, 4}};
    libdecode_problem problem = sparse_problem();
    libdecode_tensors tensors = sparse_tensors();
    name_rows(ids);
    scene.lens[0] = -3, scene.lens[1] = 1, scene.lens[2] = INT32_MAX;
    problem.features |= LIBDECODE_FEATURE_SPARSE_TOP_K_LENS;
    tensors.sparse_top_k_lens = scene.lens;
    tensors.seq_lens = NULL;
    run(&problem, &tensors);
    expect_mean(0, 0, 0);
    expect_mean(1, 1, 1);
    expect_mean(2, 31, 5);
}

static void ragged_query_tokens_have_ids_of_their_own(void **state) {
    (void)state;
    static const int32_t ids[TOKENS][TOP_K] = {{9, 9, 9, 9, 9}, {0, 1, 2, 3, 4}, {4, 3, 2, 1, 0}};
    libdecode_problem problem = sparse_problem();
    libdecode_tensors tensors = sparse_tensors();
    name_rows(ids);
    scene.cum_seq_lens_q[0] = 1, scene.cum_seq_lens_q[1] = 3;
    scene.seq_lens[0] = 4;
    problem.features |= LIBDECODE_FEATURE_RAGGED_Q;
    tensors.cum_seq_lens_q = scene.cum_seq_lens_q;
    run(&problem, &tensors);
    expect_mean(1, 7, 3);
    expect_mean(2, 16 + 8 + 4 + 2, 4);
}

static void rows_have_strides(void **state) {
    (void)state;
    static const int32_t ids[TOKENS][TOP_K] = {{0, 1, -1, -1, -1}, {-1, -1, 4, 4, -1}, {5, -1, -1, -1, -1}};
    libdecode_problem problem = sparse_problem();
    const libdecode_tensors tensors = sparse_tensors();
    name_rows(ids);
    problem.page_size = 2; /* rows 0 to 3 and 4 to 7 are then pages 0 and 1, of every second row */
    problem.num_pages = 3;
    problem.k_token_stride = 2 * DIM;
    uint16_t *row = (uint16_t *)scene.cache;
    memset(row, 0, sizeof scene.cache);
    for (int id = 0; id < 6; id++)
        row[id * 2 * DIM] = bf16_encode(ldexp(1, id));
    run(&problem, &tensors);
    expect_mean(0, 3, 2);
    expect_mean(1, 32, 2);
    expect_mean(2, 32, 1);
}

static void rows_of_656_bytes(void **state) {
    (void)state;
    static const int32_t ids[TOKENS][TOP_K] = {{7, -1, -1, -1, -1}, {-1, -1, -1, -1, -1}, {-1, -1, -1, -1, 3}};
    static const float scales[4] = {0.25F, 3, 1e-3F, 0};
    libdecode_problem problem = sparse_problem();
    const libdecode_tensors tensors = sparse_tensors();
    name_rows(ids);
    problem.kv_dtype = LIBDECODE_DTYPE_E4M3;
    problem.kv_row_format = LIBDECODE_KV_ROW_FP8_SCALED_656;
    memset(scene.cache, 0xff, sizeof scene.cache);
    for (size_t id = 3; id <= 7; id += 4) {
        uint8_t *row = scene.cache + id * SCALED_ROW;
        for (size_t d = 0; d < LATENT; d++)
            row[d] = e4m3_encode((double)(d % 7) + 1);
        memcpy(row + LATENT, scales, sizeof scales);
        for (size_t d = 0; d < DIM - LATENT; d++) { /* the logit is 64 * 2 * 0.5 */
            const uint16_t half = bf16_encode(0.5);
            memcpy(row + LATENT + sizeof scales + d * 2, &half, sizeof half);
            scene.query[0][LATENT + d] = bf16_encode(2);
        }
    }
    run(&problem, &tensors);
    for (size_t d = 0; d < LATENT; d++)
        assert_int_equal(scene.out[0][d], bf16_encode(((double)(d % 7) + 1) * (double)scales[d / 128]));
    assert_float_equal(scene.lse[0], (float)(64 * 1.4426950408889634), 0.0);
    assert_int_equal(scene.out[2][0], 0);
    assert_float_equal(scene.lse[4], 0, 0.0);
}

static void rows_of_352_bytes(void **state) {
    (void)state;
    static const int32_t ids[TOKENS][TOP_K] = {{11, -1, -1, -1, -1}, {11, -1, -1, -1, -1}, {11, 11, -1, -1, -1}};
    libdecode_problem problem = sparse_problem();
    const libdecode_tensors tensors = sparse_tensors();
    name_rows(ids);
    problem.kv_dtype = LIBDECODE_DTYPE_NVFP4;
    problem.kv_row_format = LIBDECODE_KV_ROW_NVFP4_352;
    memset(scene.cache, 0xff, sizeof scene.cache);
    uint8_t *row = scene.cache + 11 * NVFP4_ROW;
    for (size_t d = 0; d < LATENT; d += 2) /* element d has the magnitude of code d % 8, the odd ones a sign */
        row[d / 2] = (uint8_t)(d % 8 | ((d + 1) % 8 | 8) << 4);
    for (size_t d = 0; d < 64; d++) {
        row[256 + d] = e4m3_encode(1);
        scene.query[0][LATENT + d] = bf16_encode(0.25);
    }
    for (size_t block = 0; block < 32; block++)
        row[320 + 8 * (block % 4) + block / 4] = e4m3_encode((double)block / 4);
    run(&problem, &tensors);
    static const double magnitudes[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    for (size_t d = 0; d < LATENT; d++) {
        const double scale = e4m3_decode(e4m3_encode((double)(d / 16) / 4)), sign = d % 2 == 0 ? 1 : -1;
        assert_int_equal(bf16_decode(scene.out[0][d]) == bf16_decode(bf16_encode(sign * magnitudes[d % 8] * scale)), 1);
    }
    assert_float_equal(scene.lse[0], (float)(16 * 1.4426950408889634), 0.0);
    struct problem checked;
    assert_int_equal(problem_check(&problem, &checked), LIBDECODE_OK);
    assert_int_equal(checked.given.k_token_stride, 2 * NVFP4_ROW);
    assert_int_equal(checked.kv_token_bytes, NVFP4_ROW);
}

static void rows_may_be_latent_alone(void **state) {
    (void)state;
    static const int32_t ids[TOKENS][TOP_K] = {{0, 0, 0, 0, 0}, {0, 0, 0, 0, 0}, {0, 0, 0, 0, 0}};
    libdecode_problem problem = sparse_problem();
    name_rows(ids);
    problem.head_dim = LATENT;
    struct problem checked;
    assert_int_equal(problem_check(&problem, &checked), LIBDECODE_OK);
    assert_int_equal(checked.v_dim, LATENT);
    assert_int_equal(checked.given.query_head_stride, LATENT);
    assert_int_equal(checked.given.k_token_stride, LATENT);
}

/* What is asked of the field or pointer, and what the message says. */
static void expect_refused(const libdecode_problem *problem, const libdecode_tensors *tensors, const char *words) {
    assert_int_equal(libdecode_reference(problem, tensors), LIBDECODE_ERROR_INVALID_ARGUMENT);
    if (!strstr(libdecode_error_message(), words))
        fail_msg("message '%s', expected '%s' in it", libdecode_error_message(), words);
}

#define REFUSED(change, words)                                                                                                   \
    do {                                                                                                                         \
        libdecode_problem problem = sparse_problem();                                                                            \
        libdecode_tensors tensors = sparse_tensors();                                                                            \
        change;                                                                                                                  \
        expect_refused(&problem, &tensors, words);                                                                               \
    } while (0)

static void what_has_no_meaning_for_token_ids_is_refused_by_name(void **state) {
    (void)state;
    REFUSED(problem.sparse_top_k = -1, "problem.sparse_top_k is -1: accepted are 0 to");
    REFUSED(problem.sparse_top_k = 0, "problem.sparse_token_ids_stride is 7 without sparse_top_k");
    REFUSED((problem.sparse_top_k = 0, problem.sparse_token_ids_stride = 0, problem.page_table_request_stride = PAGES),
            "tensors.page_table is NULL: a problem without sparse_top_k needs it");
    REFUSED(problem.sparse_token_ids_stride = -1, "problem.sparse_token_ids_stride is -1: strides are");
    REFUSED(problem.num_pages = 0, "problem.num_pages is 0 with sparse_top_k 5");
    REFUSED((problem.op = LIBDECODE_OP_BATCH_DECODE, problem.num_kv_heads = 1, problem.head_dim = 512),
            "does not know this field");
    REFUSED(problem.page_table_request_stride = PAGES, "problem.page_table_request_stride is 3 with sparse_top_k 5");
    REFUSED(tensors.page_table = scene.ids[0], "tensors.page_table is given with problem.sparse_top_k");
    REFUSED(tensors.sparse_token_ids = NULL, "tensors.sparse_token_ids is NULL: sparse_top_k needs it");
    REFUSED(tensors.sparse_top_k_lens = scene.lens,
            "tensors.sparse_top_k_lens is given without LIBDECODE_FEATURE_SPARSE_TOP_K_LENS");
    REFUSED(problem.features |= LIBDECODE_FEATURE_SPARSE_TOP_K_LENS,
            "tensors.sparse_top_k_lens is NULL: LIBDECODE_FEATURE_SPARSE_TOP_K_LENS needs it");
    REFUSED(
        (problem.sparse_top_k = 0, problem.sparse_token_ids_stride = 0, problem.features |= LIBDECODE_FEATURE_SPARSE_TOP_K_LENS),
        "LIBDECODE_FEATURE_SPARSE_TOP_K_LENS with sparse_top_k 0");
    REFUSED(tensors.seq_lens = NULL, "tensors.seq_lens is NULL");
    REFUSED(problem.features |= LIBDECODE_FEATURE_WINDOW, "LIBDECODE_FEATURE_WINDOW with sparse_top_k 5");
    REFUSED(problem.features |= LIBDECODE_FEATURE_SKIP_SOFTMAX, "LIBDECODE_FEATURE_SKIP_SOFTMAX with sparse_top_k 5");
    REFUSED(problem.features |= LIBDECODE_FEATURE_DRAFT_MASK, "LIBDECODE_FEATURE_DRAFT_MASK with sparse_top_k 5");
    REFUSED(problem.features |= LIBDECODE_FEATURE_QUERY_POSITIONS, "LIBDECODE_FEATURE_QUERY_POSITIONS with sparse_top_k 5");
    REFUSED(problem.position_offset = 1, "position_offset 1 with sparse_top_k 5");
    REFUSED(problem.features |= LIBDECODE_FEATURE_SPARSE_TOP_K_LENS | LIBDECODE_FEATURE_HOST_SEQ_LENS,
            "LIBDECODE_FEATURE_HOST_SEQ_LENS with LIBDECODE_FEATURE_SPARSE_TOP_K_LENS");
    REFUSED((problem.head_dim = LATENT, problem.features |= LIBDECODE_FEATURE_QUERY_ROPE),
            "LIBDECODE_FEATURE_QUERY_ROPE with head_dim 512");
    REFUSED(problem.kv_row_format = LIBDECODE_KV_ROW_FP8_SCALED_656,
            "problem.kv_row_format is 1 with kv_dtype bf16 and head_dim 576: such rows are of e4m3 and 576");
    REFUSED((problem.kv_row_format = LIBDECODE_KV_ROW_NVFP4_352, problem.kv_dtype = LIBDECODE_DTYPE_E4M3),
            "problem.kv_row_format is 2 with kv_dtype e4m3");
    REFUSED((problem.sparse_top_k = 0, problem.sparse_token_ids_stride = 0, problem.kv_row_format = LIBDECODE_KV_ROW_NVFP4_352),
            "problem.kv_row_format is 2 without sparse_top_k");
    REFUSED(problem.k_token_stride = DIM + 4, "problem.k_token_stride is 580 elements");
}

/* Rows of 656 and 352 bytes have 512 latent elements and 64 of RoPE, whatever the problem says. */
static void rows_of_bytes_are_of_576_elements(void **state) {
    (void)state;
    REFUSED((problem.kv_row_format = LIBDECODE_KV_ROW_FP8_SCALED_656, problem.kv_dtype = LIBDECODE_DTYPE_E4M3,
             problem.head_dim = 320),
            "problem.kv_row_format is 1 with kv_dtype e4m3 and head_dim 320: such rows are of e4m3 and 576");
    REFUSED(
        (problem.kv_row_format = LIBDECODE_KV_ROW_NVFP4_352, problem.kv_dtype = LIBDECODE_DTYPE_NVFP4, problem.head_dim = LATENT),
        "such rows are of nvfp4 and 576");
    REFUSED(problem.position_stride = 2, "problem.position_stride is 2 and position_offset 0 with sparse_top_k 5");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_query_token_attends_to_the_rows_that_it_names),
        cmocka_unit_test(of_a_short_sequence_the_first_ids_count),
        cmocka_unit_test(lengths_of_query_tokens_win),
        cmocka_unit_test(ragged_query_tokens_have_ids_of_their_own),
        cmocka_unit_test(rows_have_strides),
        cmocka_unit_test(rows_of_656_bytes),
        cmocka_unit_test(rows_of_352_bytes),
        cmocka_unit_test(rows_may_be_latent_alone),
        cmocka_unit_test(what_has_no_meaning_for_token_ids_is_refused_by_name),
        cmocka_unit_test(rows_of_bytes_are_of_576_elements),
    };
    return cmocka_run_group_tests_name("sparse_mla", tests, NULL, NULL);
}
