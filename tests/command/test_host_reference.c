/* SPDX-License-Identifier: Apache-2.0 */
/* test_host_reference.c: the reference in parts and on threads gives what libdecode_reference gives, whatever the problem. */
#include "host_reference.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "element.h"
#include "random.h"
#include "reference.h"

/* Ragged queries with a draft mask, e4m3 in, NVFP4 KV with interleaved scales, NVFP4 out from row 5 on, sinks, lse. */
enum { REQUESTS = 3, Q_LEN = 3, QO_HEADS = 6, KV_HEADS = 3, DIM = 64, PAGE = 8, PAGES = 12, WIDTH = 4, TOKENS = 5, ROWS = 128 };

struct tensors_in_memory {
    _Alignas(16) uint8_t query[TOKENS * QO_HEADS * DIM];
    _Alignas(16) uint8_t k[PAGES * KV_HEADS * PAGE * DIM / 2], v[PAGES * KV_HEADS * PAGE * DIM / 2];
    _Alignas(16) uint8_t k_sf[PAGES * KV_HEADS * PAGE * DIM / 16], v_sf[PAGES * KV_HEADS * PAGE * DIM / 16];
    _Alignas(16) uint8_t out[TOKENS * QO_HEADS * DIM / 2];
    uint8_t out_sf[ROWS * QO_HEADS * DIM / 16];
    float lse[TOKENS * QO_HEADS], sinks[QO_HEADS];
    int32_t page_table[REQUESTS * WIDTH], seq_lens[REQUESTS], cum_seq_lens_q[REQUESTS + 1];
    uint16_t draft_mask[TOKENS * 2];
};

static void fill(struct random *random, uint8_t *bytes, size_t count) {
    for (size_t index = 0; index < count; index++)
        bytes[index] = (uint8_t)(random_bits(random) & 0x77); /* neither NaN nor negative as e4m3 */
}

static void make(struct tensors_in_memory *memory, libdecode_problem *problem, libdecode_tensors *tensors) {
    static const int32_t seq_lens[REQUESTS] = {30, 7, 2}, cum_seq_lens_q[REQUESTS + 1] = {0, 3, 3, 5};
    struct random random = {11};
    memset(memory, 0x5a, sizeof *memory);
    fill(&random, memory->query, sizeof memory->query);
    fill(&random, memory->k, sizeof memory->k);
    fill(&random, memory->v, sizeof memory->v);
    fill(&random, memory->k_sf, sizeof memory->k_sf);
    fill(&random, memory->v_sf, sizeof memory->v_sf);
    fill(&random, (uint8_t *)memory->draft_mask, sizeof memory->draft_mask);
    random_permutation(&random, memory->page_table, REQUESTS * WIDTH);
    memcpy(memory->seq_lens, seq_lens, sizeof seq_lens);
    memcpy(memory->cum_seq_lens_q, cum_seq_lens_q, sizeof cum_seq_lens_q);
    for (int head = 0; head < QO_HEADS; head++)
        memory->sinks[head] = (float)head;
    *problem = (libdecode_problem){.struct_size = sizeof *problem,
                                   .query_dtype = LIBDECODE_DTYPE_E4M3,
                                   .kv_dtype = LIBDECODE_DTYPE_NVFP4,
                                   .out_dtype = LIBDECODE_DTYPE_NVFP4,
                                   .features = LIBDECODE_FEATURE_LSE | LIBDECODE_FEATURE_SINKS | LIBDECODE_FEATURE_RAGGED_Q |
                                               LIBDECODE_FEATURE_DRAFT_MASK,
                                   .batch_size = REQUESTS,
                                   .num_qo_heads = QO_HEADS,
                                   .num_kv_heads = KV_HEADS,
                                   .head_dim = DIM,
                                   .page_size = PAGE,
                                   .q_len = Q_LEN,
                                   .v_sf_layout = LIBDECODE_SF_V_INTERLEAVE4,
                                   .page_table_request_stride = WIDTH};
    *tensors = (libdecode_tensors){.struct_size = sizeof *tensors,
                                   .query = memory->query,
                                   .k_cache = memory->k,
                                   .v_cache = memory->v,
                                   .k_sf = memory->k_sf,
                                   .v_sf = memory->v_sf,
                                   .page_table = memory->page_table,
                                   .seq_lens = memory->seq_lens,
                                   .out = memory->out,
                                   .out_sf = memory->out_sf,
                                   .lse = memory->lse,
                                   .sinks = memory->sinks,
                                   .cum_seq_lens_q = memory->cum_seq_lens_q,
                                   .draft_mask = memory->draft_mask,
                                   .bmm1_scale = 0.01f,
                                   .out_sf_start_token = 5};
}

static void parts_write_the_bytes_that_one_call_writes(void **state) {
    static struct tensors_in_memory whole, parts;
    libdecode_problem problem;
    libdecode_tensors tensors;
    (void)state;
    make(&whole, &problem, &tensors);
    if (libdecode_reference(&problem, &tensors) != LIBDECODE_OK)
        fail_msg("%s", libdecode_error_message());
    make(&parts, &problem, &tensors);
    /* as demo does: one head first, then the others */
    assert_true(host_reference(&problem, &tensors, 0, 1, NULL));
    assert_memory_not_equal(&parts, &whole, sizeof whole);
    assert_true(host_reference(&problem, &tensors, 1, KV_HEADS - 1, NULL));
    assert_memory_equal(&parts, &whole, sizeof whole);
}

static void exact_results_are_those_that_are_rounded(void **state) {
    static struct tensors_in_memory whole, exact;
    static double out[TOKENS * QO_HEADS * DIM], lse[TOKENS * QO_HEADS], spread[TOKENS * QO_HEADS * DIM];
    static double weight[TOKENS * QO_HEADS], tokens[TOKENS * QO_HEADS], largest[TOKENS * QO_HEADS], turned[TOKENS * QO_HEADS];
    static double shift[TOKENS * QO_HEADS];
    const struct exact_results results = {.out = out,
                                          .lse = lse,
                                          .shift = shift,
                                          .spread = spread,
                                          .weight = weight,
                                          .tokens = tokens,
                                          .largest = largest,
                                          .turned = turned};
    libdecode_problem problem;
    libdecode_tensors tensors;
    (void)state;
    make(&whole, &problem, &tensors);
    assert_int_equal(query_tokens(&problem, tensors.cum_seq_lens_q), TOKENS);
    if (libdecode_reference(&problem, &tensors) != LIBDECODE_OK)
        fail_msg("%s", libdecode_error_message());
    make(&exact, &problem, &tensors);
    assert_true(host_reference_exact(&problem, &tensors, &results, 3, NULL));
    for (size_t row = 0; row < TOKENS * QO_HEADS; row++) {
        uint8_t codes[DIM / 2];
        for (int block = 0; block < DIM / NVFP4_BLOCK; block++)
            nvfp4_encode_block(out + row * DIM + (size_t)block * NVFP4_BLOCK, 1.0, codes + block * NVFP4_BLOCK / 2);
        assert_memory_equal(codes, whole.out + row * DIM / 2, sizeof codes);
        assert_true((float)lse[row] == whole.lse[row]);
    }
    make(&whole, &problem, &tensors);
    assert_memory_equal(&exact, &whole, sizeof whole); /* and nothing was written where results are rounded */
}

/* One row over two tokens, all zeros, and what is measured of it. */
enum { ROW_DIM = 16 };
struct one_row {
    _Alignas(16) uint16_t query[ROW_DIM], k[PAGE * ROW_DIM], v[PAGE * ROW_DIM];
    double out[ROW_DIM], lse, shift, spread[ROW_DIM], weight, tokens, largest, turned;
    libdecode_problem problem;
    libdecode_tensors tensors;
};

static void make_row(struct one_row *row, uint32_t features) {
    static const int32_t page_table[1] = {0}, seq_lens[1] = {2};
    *row = (struct one_row){.problem = {.struct_size = sizeof row->problem,
                                        .query_dtype = LIBDECODE_DTYPE_BF16,
                                        .features = features,
                                        .batch_size = 1,
                                        .num_qo_heads = 1,
                                        .num_kv_heads = 1,
                                        .head_dim = ROW_DIM,
                                        .page_size = PAGE,
                                        .page_table_request_stride = 1},
                            .tensors = {.struct_size = sizeof row->tensors,
                                        .query = row->query,
                                        .k_cache = row->k,
                                        .v_cache = row->v,
                                        .page_table = page_table,
                                        .seq_lens = seq_lens}};
}

static void measure_row(struct one_row *row) {
    const struct exact_results results = {.out = row->out,
                                          .lse = &row->lse,
                                          .shift = &row->shift,
                                          .spread = row->spread,
                                          .weight = &row->weight,
                                          .tokens = &row->tokens,
                                          .largest = &row->largest,
                                          .turned = &row->turned};
    assert_true(host_reference_exact(&row->problem, &row->tensors, &results, 3, NULL));
}

/* One pair of lengths 5 (the query) and 13, another of lengths 1 and 2; a scale of -2. */
static void the_measure_of_a_rotation_is_that_of_the_pairs(void **state) {
    struct one_row row;
    (void)state;
    make_row(&row, LIBDECODE_FEATURE_ROPE);
    row.tensors.bmm1_scale = -2;
    row.query[0] = bf16_encode(3);
    row.query[ROW_DIM / 2] = bf16_encode(4);
    row.query[1] = bf16_encode(1);
    row.k[0] = bf16_encode(12);
    row.k[ROW_DIM / 2] = bf16_encode(-5);
    row.k[ROW_DIM / 2 + 1] = bf16_encode(2);
    row.k[ROW_DIM] = bf16_encode(1); /* of token 1, a smaller one */
    measure_row(&row);
    assert_true(fabs(row.turned - 2 * sqrt(25.0 * 169 + 4)) < 1e-4);
    row.problem.features = 0;
    measure_row(&row);
    assert_true(row.turned == 0);
}

/* Two tokens of logits 0 and log2(3), with V 1 and -3, a sink of log2(4): weights 1/8 and 3/8 of the whole. */
static void the_measures_of_rounding_are_those_of_the_weights(void **state) {
    static const float scale = 1.5849625007f, sink = 1.3862943611f; /* log2(3), in base 2; ln(4) */
    struct one_row row;
    (void)state;
    make_row(&row, LIBDECODE_FEATURE_SINKS);
    row.tensors.sinks = &sink;
    row.tensors.bmm2_scale = -2;
    row.tensors.bmm1_scale_log2_device = &scale;
    row.query[0] = row.k[ROW_DIM] = bf16_encode(1);
    row.v[0] = bf16_encode(1);
    row.v[ROW_DIM] = bf16_encode(-3);
    measure_row(&row);
    assert_true(fabs(row.out[0] - (-2 * (0.125 - 3 * 0.375))) < 1e-6);
    assert_true(fabs(row.lse - 3) < 1e-6);
    assert_true(fabs(row.weight - sqrt(0.125 * 0.125 + 0.375 * 0.375)) < 1e-6);
    assert_true(fabs(row.spread[0] - (2 * sqrt(0.125 * 0.125 + 9 * 0.375 * 0.375))) < 1e-6);
    assert_true(row.out[1] == 0 && row.spread[1] == 0);
    assert_true(row.tokens == 2 && fabs(row.largest - 2 * 3) < 1e-6);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_write_the_bytes_that_one_call_writes),
        cmocka_unit_test(exact_results_are_those_that_are_rounded),
        cmocka_unit_test(the_measures_of_rounding_are_those_of_the_weights),
        cmocka_unit_test(the_measure_of_a_rotation_is_that_of_the_pairs),
    };
    return cmocka_run_group_tests_name("host_reference", tests, NULL, NULL);
}
