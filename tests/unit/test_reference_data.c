/* SPDX-License-Identifier: Apache-2.0 */
/* test_reference_data.c: where libdecode_reference finds its rows, and what it must not touch. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */

#include "cache.h"
#include "query_rows.h"
#include "reference_scene.h"

#include <sys/mman.h>

/* ------------------------------------------------------------------------------------------------------- layouts */

static void query_heads_are_grouped_by_kv_head(void **state) {
    (void)state;
    scene_begin(1);
    scene.problem.num_qo_heads = 4;
    scene.problem.num_kv_heads = 2;
    scene.page_table[0] = 3;
    put(3, 0, 0, 1, 10, 11);
    put(3, 1, 0, 0, 20, 21);
    scene.query[1 * D] = bf16_encode(2); /* a head's own query: its own lse */
    run();
    expect(0, 0, 10, 11, 1);
    expect(0, 1, 10, 11, 2);
    expect(0, 2, 20, 21, 0);
    expect(0, 3, 20, 21, 0);
}

static void pages_are_found_through_the_table(void **state) {
    (void)state;
    scene_begin(5);
    put_tokens(5);
    memcpy(scene.k + 6 * PAGE * D, scene.k, PAGE * D * 2); /* page 0 -> 6, page 1 -> 2; what was there becomes poison */
    memcpy(scene.v + 6 * PAGE * D, scene.v, PAGE * D * 2);
    put(2, 0, 0, 0, 16, 1);
    for (int32_t element = 0; element < 2 * PAGE * D; element++)
        scene.k[element] = scene.v[element] = BF16_NAN;
    scene.page_table[0] = 6;
    scene.page_table[1] = 2;
    run();
    expect_seen(0, 31);
}

static void heads_may_have_tables_and_lengths_of_their_own_and_v_its_own_pages(void **state) {
    (void)state;
    scene_begin(1);
    scene.problem.num_qo_heads = scene.problem.num_kv_heads = 2;
    scene.problem.features |= LIBDECODE_FEATURE_V_PAGE_TABLE;
    scene.problem.page_table_request_stride = 4;
    scene.problem.page_table_head_stride = 8;
    scene.problem.page_table_v_offset = 2;
    scene.problem.seq_lens_request_stride = 3;
    scene.problem.seq_lens_head_stride = 4;
    scene.problem.batch_size = 2;
    scene.seq_lens[0] = 1;     /* request 0, head 0 */
    scene.seq_lens[0 + 4] = 2; /* request 0, head 1 */
    scene.seq_lens[3] = 0;
    scene.seq_lens[3 + 4] = 1;
    scene.page_table[0] = 1, scene.page_table[2] = 2;
    scene.page_table[8] = 3, scene.page_table[10] = 4;
    scene.page_table[4 + 8] = 5, scene.page_table[4 + 10] = 6;
    put(1, 0, 0, 1, 99, 99), put(2, 0, 0, 99, 5, 6); /* K from the one, V from the other */
    put(3, 1, 0, 1, 99, 99), put(4, 1, 0, 99, 4, 2);
    put(3, 1, 1, 1, 99, 99), put(4, 1, 1, 99, 8, 6);
    put(5, 1, 0, 3, 99, 99), put(6, 1, 0, 99, 7, 8);
    run();
    expect(0, 0, 5, 6, 1);
    expect(0, 1, 6, 4, 2);
    expect(1, 0, 0, 0, -(double)INFINITY);
    expect(1, 1, 7, 8, 3);
}

static void page_ids_outside_the_pool_give_zero_rows_that_count(void **state) {
    (void)state;
    scene_begin(8);
    put_tokens(4); /* values 1 + 2 + 4 + 8 = 15, and 4 */
    scene.page_table[1] = -1;
    run();
    expect(0, 0, 1.875, 0.5, 3); /* 15 / 8, 4 / 8 */
    scene.page_table[1] = 5;
    scene.problem.num_pages = 5;
    run();
    expect(0, 0, 1.875, 0.5, 3);
    scene.problem.num_pages = 6;
    run();
    assert_true(isnan(out_at(0, 0, 0)));
}

/* A number in (-2, 2) that looks random; equal arguments, equal numbers. */
static double noise(uint32_t index) {
    uint32_t x = index * 2654435761u + 12345u;
    x = (x ^ x >> 15) * 2246822519u;
    return (double)(x >> 20) / 1024 - 2;
}

static void nhd_and_other_strides_give_the_bits_of_hnd(void **state) {
    static _Alignas(16) uint16_t k_nhd[PAGES * PAGE * KV_HEADS * D], v_wide[PAGES * PAGE * KV_HEADS * 3 * D];
    static _Alignas(16) uint16_t query_wide[2 * Q_HEADS * 2 * D];
    static uint16_t expected[2 * Q_HEADS * D];
    static float expected_lse[2 * Q_HEADS];
    (void)state;
    scene_begin(PAGES * PAGE - 1);
    scene.problem.num_qo_heads = Q_HEADS;
    scene.problem.num_kv_heads = KV_HEADS;
    scene.problem.q_len = 2;
    for (uint32_t page = 0; page < PAGES; page++)
        scene.page_table[page] = (int32_t)(page * 3 % PAGES);
    for (uint32_t element = 0; element < PAGES * KV_HEADS * PAGE * D; element++) {
        uint32_t d = element % D, slot = element / D % PAGE;
        uint32_t head = element / D / PAGE % KV_HEADS, page = element / D / PAGE / KV_HEADS;
        scene.k[element] = k_nhd[((page * PAGE + slot) * KV_HEADS + head) * D + d] = bf16_encode(noise(element));
        scene.v[element] = v_wide[((head * PAGES + page) * PAGE + slot) * 3 * D + d] = bf16_encode(noise(element + 100000));
    }
    for (uint32_t element = 0; element < 2 * Q_HEADS * D; element++)
        scene.query[element] = query_wide[element / D * 2 * D + element % D] = bf16_encode(noise(element + 200000));
    run();
    memcpy(expected, scene.out, sizeof expected);
    memcpy(expected_lse, scene.lse, sizeof expected_lse);
    assert_true(scene.lse[2 * Q_HEADS - 1] != POISON_LSE);

    scene.problem.kv_layout = LIBDECODE_KV_NHD;
    scene.problem.v_token_stride = 3 * D; /* V: heads outermost, two rows of three unused; query heads: every other */
    scene.problem.v_page_stride = PAGE * 3 * D;
    scene.problem.v_head_stride = PAGES * PAGE * 3 * D;
    scene.problem.query_head_stride = 2 * D;
    scene.problem.out_head_stride = 2 * D; /* results head by head: lse [heads, tokens] */
    scene.problem.out_token_stride = 16 * D;
    scene.problem.lse_token_stride = 1;
    scene.problem.lse_head_stride = 2;
    scene.tensors.k_cache = k_nhd;
    scene.tensors.v_cache = v_wide;
    scene.tensors.query = query_wide;
    run();
    for (int32_t row = 0; row < 2 * Q_HEADS; row++) {
        int32_t token = row / Q_HEADS, head = row % Q_HEADS;
        assert_memory_equal(scene.out + token * 16 * D + head * 2 * D, expected + row * D, D * 2);
        assert_memory_equal(scene.lse + token + head * 2, expected_lse + row, sizeof(float));
    }
}

/* ----------------------------------------------------------------------------------------- what must not be read */

/* A KV row whose first element is any of the pools. */
static void put_anywhere(size_t k, size_t v, double logit, double v0, double v1) {
    memset(scene.k + k, 0, D * 2);
    memset(scene.v + v, 0, D * 2);
    scene.k[k] = bf16_encode(logit);
    scene.v[v] = bf16_encode(v0);
    scene.v[v + 1] = bf16_encode(v1);
}

/* Everything but the rows of the two requests' results. */
static void expect_out_at(size_t first, size_t second, double of_first, double of_second) {
    for (size_t element = 0; element < TOKENS * Q_HEADS * D; element++) {
        if ((element >= first && element < first + D) || (element >= second && element < second + D))
            continue;
        assert_int_equal(scene.out[element], POISON_OUT);
    }
    assert_true(bf16_decode(scene.out[first]) == of_first && bf16_decode(scene.out[second]) == of_second);
}

/* Rows of KV at odd elements, in place of a stride between requests. */
static void requests_of_contiguous_kv_begin_at_their_offsets(void **state) {
    static const int64_t query_offsets[] = {5 * D, D}, out_offsets[] = {8 * D, 2 * D}, k_offsets[] = {101, 7},
                         v_offsets[] = {3, 155};
    (void)state;
    scene_begin(0);
    scene.problem.features |= LIBDECODE_FEATURE_CONTIGUOUS_KV | LIBDECODE_FEATURE_QUERY_OFFSETS | LIBDECODE_FEATURE_KV_OFFSETS;
    scene.problem.batch_size = 2;
    scene.problem.kv_capacity_tokens = 2;
    scene.problem.page_size = 0;
    scene.problem.page_table_request_stride = 0;
    scene.problem.k_token_stride = D + 1;
    scene.problem.v_token_stride = D + 3;
    scene.tensors.page_table = NULL;
    scene.seq_lens[0] = 1, scene.seq_lens[1] = 2;
    scene.tensors.query_offsets = query_offsets;
    scene.tensors.out_offsets = out_offsets;
    scene.tensors.k_offsets = k_offsets;
    scene.tensors.v_offsets = v_offsets;
    scene.query[5 * D] = bf16_encode(3);
    put_anywhere(101, 3, 2, 10, 1);
    put_anywhere(7, 155, 1, 4, 1);
    put_anywhere(7 + D + 1, 155 + D + 3, 1, 8, 1);
    run();
    expect_out_at(8 * D, 2 * D, 10, 6);
    assert_true(scene.lse[0] == 6 && scene.lse[1] == 2); /* where they would be */
}

/* With pages they are added; query tokens of a request stay together, and one tensor may have none. */
static void offsets_move_the_pages_of_a_request(void **state) {
    static const int64_t k_offsets[] = {9, 0}, out_offsets[] = {12 * D, 0};
    (void)state;
    scene_begin(1);
    scene.problem.features |= LIBDECODE_FEATURE_QUERY_OFFSETS | LIBDECODE_FEATURE_KV_OFFSETS | LIBDECODE_FEATURE_RAGGED_Q;
    scene.problem.batch_size = 2;
    scene.problem.q_len = 2;
    scene.seq_lens[0] = 2;
    scene.cum_seq_lens_q[1] = 2, scene.cum_seq_lens_q[2] = 3;
    scene.tensors.cum_seq_lens_q = scene.cum_seq_lens_q;
    scene.tensors.k_offsets = k_offsets;
    scene.tensors.out_offsets = out_offsets;
    scene.page_table[0] = 1, scene.page_table[TABLE] = 3;
    put_anywhere(PAGE * D + 9, PAGE * D, 1, 5, 1);
    put_anywhere(PAGE * D + 9 + D, PAGE * D + D, 1, 7, 1);
    put(3, 0, 0, 4, 20, 1);
    run();
    assert_true(scene.lse[0] == 1 && scene.lse[1] == 2 && scene.lse[2] == 4);
    assert_true(bf16_decode(scene.out[12 * D]) == 5 && bf16_decode(scene.out[13 * D]) == 6);
    assert_true(bf16_decode(scene.out[0]) == 20 && scene.out[D] == POISON_OUT);
}

static void nan_among_the_visible_shows(void **state) {
    (void)state;
    scene_begin(4);
    put_tokens(4);
    scene.v[1 * D + 5] = BF16_NAN;
    run();
    expect_seen(0, 15);
    assert_true(isnan(out_at(0, 0, 5)));
    scene.k[2 * D + 7] = BF16_NAN;
    run();
    assert_true(isnan(out_at(0, 0, 0)) && isnan(out_at(0, 0, 15)) && isnan(scene.lse[0]));
}

static void infinity_in_a_logit_shows_as_nan(void **state) {
    (void)state;
    scene_begin(4);
    put_tokens(4);
    put(0, 0, 1, (double)INFINITY, 1, 1);
    run();
    assert_true(isnan(out_at(0, 0, 0)) && isnan(scene.lse[0]));
}

/* Pages of one memory page for each tensor and head; all but the visible ones may not be touched, nor what follows the table. */
static void invisible_pages_and_table_entries_are_never_touched(void **state) {
    enum { MEMORY_PAGE = 4096, DIM = 128, PAGE_TOKENS = 16, POOL = 8 };
    uint8_t *pool = mmap(NULL, (POOL + 2) * MEMORY_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int32_t *table = (int32_t *)(pool + (POOL + 1) * MEMORY_PAGE) - 4; /* the last four entries of a memory page */
    (void)state;
    assert_true(pool != MAP_FAILED);
    scene_begin(62); /* pages 0..3; the window keeps the tokens 20..61 */
    scene.problem.head_dim = DIM;
    scene.problem.page_size = PAGE_TOKENS;
    scene.problem.page_table_request_stride = 100;
    scene.problem.features |= LIBDECODE_FEATURE_WINDOW;
    scene.problem.window_left = 41;
    scene.tensors.k_cache = scene.tensors.v_cache = pool;
    scene.tensors.page_table = table;
    memcpy(table, (int32_t[]){0, 5, 1, 7}, 4 * sizeof(int32_t));
    for (size_t page = 0; page < POOL; page++)
        if (page != 5 && page != 1 && page != 7)
            assert_int_equal(mprotect(pool + page * MEMORY_PAGE, MEMORY_PAGE, PROT_NONE), 0);
    assert_int_equal(mprotect(pool + (POOL + 1) * MEMORY_PAGE, MEMORY_PAGE, PROT_NONE), 0);
    memset(pool + 5 * MEMORY_PAGE, 0xff, 4 * DIM * 2);                /* NaN before the window */
    memset(pool + 7 * MEMORY_PAGE + 14 * DIM * 2, 0xff, 2 * DIM * 2); /* and after the end */
    run();
    for (int32_t d = 0; d < DIM; d++)
        assert_int_equal(scene.out[d], 0);
    assert_true(scene.lse[0] == (float)log2(42));
    munmap(pool, (POOL + 2) * MEMORY_PAGE);
}

/* ------------------------------------------------------------------------------------------------------- refusals */

static void an_empty_batch_needs_no_tensors(void **state) {
    (void)state;
    scene_begin(0);
    scene.problem.batch_size = 0;
    scene.tensors = (libdecode_tensors){.struct_size = sizeof scene.tensors};
    run();
}

static void query_lengths_that_leave_the_buffers_are_refused_before_anything_is_written(void **state) {
    static const int32_t bad[][4] = {{0, 1, 0, 1}, {0, 1, 4, 4}, {-1, 0, 1, 1}};
    (void)state;
    scene_begin(4);
    put_tokens(4);
    scene.problem.batch_size = 3;
    scene.problem.q_len = 2;
    scene.problem.features |= LIBDECODE_FEATURE_RAGGED_Q;
    scene.tensors.cum_seq_lens_q = scene.cum_seq_lens_q;
    for (size_t row = 0; row < sizeof bad / sizeof bad[0]; row++) {
        memcpy(scene.cum_seq_lens_q, bad[row], sizeof bad[row]);
        assert_int_equal(libdecode_reference(&scene.problem, &scene.tensors), LIBDECODE_ERROR_INVALID_ARGUMENT);
        assert_non_null(strstr(libdecode_error_message(), "cum_seq_lens_q"));
        assert_int_equal(scene.out[0], POISON_OUT);
    }
}

/* V's scales lie by strides of V's scales, each of them. */
static void the_reference_reads_v_by_its_own_strides(void **state) {
    (void)state;
    const libdecode_tensors tensors = {.struct_size = sizeof tensors};
    struct problem problem = {.given = {.k_page_stride = 1,
                                        .k_head_stride = 2,
                                        .k_token_stride = 3,
                                        .k_sf_page_stride = 4,
                                        .k_sf_head_stride = 5,
                                        .k_sf_token_stride = 6,
                                        .v_page_stride = 7,
                                        .v_head_stride = 8,
                                        .v_token_stride = 9,
                                        .v_sf_page_stride = 10,
                                        .v_sf_head_stride = 11,
                                        .v_sf_token_stride = 12}};
    const struct cache k = cache_of_k(&problem, &tensors), v = cache_of_v(&problem, &tensors);
    const int64_t of_k[] = {k.page_stride, k.head_stride, k.token_stride, k.sf_page_stride, k.sf_head_stride, k.sf_token_stride};
    const int64_t of_v[] = {v.page_stride, v.head_stride, v.token_stride, v.sf_page_stride, v.sf_head_stride, v.sf_token_stride};
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(of_k[i], 1 + i);
        assert_int_equal(of_v[i], 7 + i);
    }
}

/* Requests of 2, 0 and 3 query tokens; and of 3 tokens each. */
static void a_query_token_belongs_to_its_request(void **state) {
    (void)state;
    static const int32_t begins[] = {0, 2, 2, 5}, of_ragged[] = {0, 0, 2, 2, 2}, of_even[] = {0, 0, 0, 1, 1, 1};
    static const int64_t offsets[] = {1000, 2000, 3000};
    const libdecode_problem problem = {.batch_size = 3, .q_len = 3, .out_token_stride = 10, .out_head_stride = 4};
    libdecode_tensors tensors = {.out_offsets = offsets};
    for (int64_t token = 0; token < 5; token++)
        assert_int_equal(request_of_token(&problem, begins, token, 0), of_ragged[token]);
    for (int64_t token = 0; token < 6; token++)
        assert_int_equal(request_of_token(&problem, NULL, token, 0), of_even[token]);
    assert_int_equal(out_element(&problem, &tensors, 1, 4, 2), 2000 + 10 + 2 * 4); /* the second token of request 1 */
    tensors.cum_seq_lens_q = begins;
    assert_int_equal(out_element(&problem, &tensors, 2, 4, 2), 3000 + 2 * 10 + 2 * 4);
    tensors.out_offsets = NULL;
    assert_int_equal(out_element(&problem, &tensors, 2, 4, 2), 4 * 10 + 2 * 4);
    assert_int_equal(query_tokens(&problem, begins), 5);
    assert_int_equal(query_tokens(&problem, NULL), 9);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(query_heads_are_grouped_by_kv_head),
        cmocka_unit_test(pages_are_found_through_the_table),
        cmocka_unit_test(heads_may_have_tables_and_lengths_of_their_own_and_v_its_own_pages),
        cmocka_unit_test(page_ids_outside_the_pool_give_zero_rows_that_count),
        cmocka_unit_test(nhd_and_other_strides_give_the_bits_of_hnd),
        cmocka_unit_test(requests_of_contiguous_kv_begin_at_their_offsets),
        cmocka_unit_test(offsets_move_the_pages_of_a_request),
        cmocka_unit_test(nan_among_the_visible_shows),
        cmocka_unit_test(infinity_in_a_logit_shows_as_nan),
        cmocka_unit_test(invisible_pages_and_table_entries_are_never_touched),
        cmocka_unit_test(an_empty_batch_needs_no_tensors),
        cmocka_unit_test(query_lengths_that_leave_the_buffers_are_refused_before_anything_is_written),
        cmocka_unit_test(the_reference_reads_v_by_its_own_strides),
        cmocka_unit_test(a_query_token_belongs_to_its_request),
    };
    return cmocka_run_group_tests_name("reference_data", tests, NULL, NULL);
}
