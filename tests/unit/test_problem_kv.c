/* SPDX-License-Identifier: Apache-2.0 */
/* test_problem_kv.c: where K, V and their scales lie, in pages and without, and how many tokens of them count. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>

#include "decode_fixture.h"
#include "problem_expect.h"

static void nvfp4_scales_have_strides_of_their_own(void **state) {
    (void)state;
    libdecode_problem problem = llama3_8b();
    problem.query_dtype = LIBDECODE_DTYPE_E4M3;
    problem.kv_dtype = LIBDECODE_DTYPE_NVFP4;
    problem.v_sf_layout = LIBDECODE_SF_V_INTERLEAVE4;
    problem.k_sf_token_stride = 16;
    struct problem checked = expect_accepted(&problem);
    assert_int_equal(checked.given.k_token_stride, 128);
    assert_int_equal(checked.given.k_sf_head_stride, 256);
    assert_int_equal(checked.given.k_sf_page_stride, 2048);
    assert_int_equal(checked.given.v_sf_token_stride, 8);
    assert_int_equal(checked.given.v_sf_page_stride, 2048);

    problem.v_sf_token_stride = 16;
    expect_refused(&problem, "v_sf_token_stride is 16", "dense");
    problem.v_sf_layout = LIBDECODE_SF_LINEAR;
    (void)expect_accepted(&problem);
    problem.k_sf_head_stride = -1;
    expect_refused(&problem, "k_sf_head_stride", "or more");
    problem = llama3_8b();
    problem.kv_dtype = LIBDECODE_DTYPE_NVFP4;
    problem.v_sf_layout = LIBDECODE_SF_V_INTERLEAVE4;
    problem.page_size = 2;
    expect_refused(&problem, "page_size 2", "multiple of 4");
    problem.page_size = 4;
    (void)expect_accepted(&problem);
    problem.v_sf_layout = LIBDECODE_SF_LINEAR;
    problem.page_size = 7;
    (void)expect_accepted(&problem);
}

/* Whole blocks of 16, and rows at multiples of 16 bytes: 80 elements, which are 40 bytes, are followed by a gap. */
static void nvfp4_rows_are_any_number_of_blocks(void **state) {
    (void)state;
    for (int32_t head_dim = 16; head_dim <= 512; head_dim += 16) {
        libdecode_problem problem = llama3_8b();
        problem.kv_dtype = LIBDECODE_DTYPE_NVFP4;
        problem.head_dim = head_dim;
        if (head_dim % 32 != 0)
            expect_refused(&problem, "problem.k_token_stride is ", "multiple of 32 elements, which are 16 bytes");
        problem.k_token_stride = (head_dim + 31) / 32 * 32;
        problem.k_sf_token_stride = head_dim % 64 == 0 ? 0 : 32;
        const struct problem checked = expect_accepted(&problem);
        assert_int_equal(checked.kv_token_bytes, 2 * (head_dim / 2 + head_dim / 16));
        assert_int_equal(checked.given.v_sf_head_stride, 16 * checked.given.k_sf_token_stride);
    }
    libdecode_problem problem = llama3_8b();
    problem.kv_dtype = LIBDECODE_DTYPE_NVFP4;
    problem.head_dim = 88;
    expect_refused(&problem, "problem.head_dim is 88", "multiples of 16 from 16 to 512");
}

/* Both halves of a row are loaded in 16 bytes, 32 elements, each. */
static void rope_takes_nvfp4_rows_of_multiples_of_64(void **state) {
    (void)state;
    for (int32_t head_dim = 16; head_dim <= 256; head_dim += 16) {
        libdecode_problem problem = llama3_8b();
        problem.kv_dtype = LIBDECODE_DTYPE_NVFP4;
        problem.head_dim = head_dim;
        problem.k_token_stride = 256;
        problem.k_sf_token_stride = 16;
        problem.features = LIBDECODE_FEATURE_ROPE;
        if (head_dim % 64 == 0)
            (void)expect_accepted(&problem);
        else
            expect_refused(&problem, "LIBDECODE_FEATURE_ROPE with kv_dtype nvfp4 and head_dim ", "multiple of 64");
        problem.kv_dtype = LIBDECODE_DTYPE_BF16;
        problem.k_sf_token_stride = 0;
        (void)expect_accepted(&problem);
    }
}

/* Kernels copy the scales of a token in units of a power of two that divides them, 4 bytes at least. */
static void nvfp4_scales_lie_at_multiples_of_what_a_copy_takes(void **state) {
    (void)state;
    static const struct {
        int32_t head_dim;
        int64_t unit;
    } cases[] = {{64, 4},   {128, 8}, {192, 4}, {256, 16}, {320, 4}, {384, 8}, {448, 4},
                 {512, 16}, {16, 4},  {80, 4},  {96, 4},   {112, 4}, {240, 4}, {480, 4}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        libdecode_problem problem = llama3_8b();
        char of_unit[64];
        (void)snprintf(of_unit, sizeof of_unit, "multiple of %d elements, which are %d bytes", (int)cases[i].unit,
                       (int)cases[i].unit);
        problem.kv_dtype = LIBDECODE_DTYPE_NVFP4;
        problem.head_dim = cases[i].head_dim;
        problem.k_token_stride = 512;
        for (int step = 1; step <= 2; step++) {
            const int64_t extra = cases[i].unit / step;
            problem.k_sf_page_stride = problem.v_sf_page_stride = 16384 + extra;
            problem.k_sf_head_stride = problem.v_sf_head_stride = 1024 + extra;
            problem.k_sf_token_stride = problem.v_sf_token_stride = 32 + extra;
            if (step == 1)
                (void)expect_accepted(&problem);
            int64_t *const strides[] = {&problem.k_sf_page_stride, &problem.k_sf_head_stride, &problem.k_sf_token_stride,
                                        &problem.v_sf_page_stride, &problem.v_sf_head_stride, &problem.v_sf_token_stride};
            static const char *const names[] = {"k_sf_page_stride", "k_sf_head_stride", "k_sf_token_stride",
                                                "v_sf_page_stride", "v_sf_head_stride", "v_sf_token_stride"};
            for (size_t at = 0; step == 2 && at < 6; at++) {
                libdecode_problem one = problem;
                for (size_t other = 0; other < 6; other++)
                    if (other != at)
                        *(int64_t *)((char *)&one + ((char *)strides[other] - (char *)&problem)) -= extra;
                expect_refused(&one, names[at], of_unit);
            }
        }
    }
}

/* Of 80 dims a token has five scales, no whole number of words: dense they are refused, but for V's where four tokens are a word. */
static void nvfp4_scales_that_are_no_whole_words_need_a_gap(void **state) {
    (void)state;
    static const int32_t head_dims[] = {16, 32, 48, 80, 96, 112, 144, 160, 176, 208, 224, 240};
    for (size_t i = 0; i < sizeof head_dims / sizeof head_dims[0]; i++) {
        libdecode_problem problem = llama3_8b();
        problem.kv_dtype = LIBDECODE_DTYPE_NVFP4;
        problem.head_dim = head_dims[i];
        problem.k_token_stride = 256;
        expect_refused(&problem, "problem.k_sf_token_stride is ", "multiple of 4 elements, which are 4 bytes");
        problem.kv_layout = LIBDECODE_KV_NHD;
        problem.k_token_stride = 0, problem.k_head_stride = 256;
        expect_refused(&problem, "problem.k_sf_head_stride is ", "multiple of 4 elements, which are 4 bytes");
        problem.kv_layout = LIBDECODE_KV_HND;
        problem.k_token_stride = 256, problem.k_head_stride = 0;
        problem.k_sf_token_stride = 16;
        assert_int_equal(expect_accepted(&problem).given.v_sf_token_stride, 16);
        problem.v_sf_layout = LIBDECODE_SF_V_INTERLEAVE4;
        assert_int_equal(expect_accepted(&problem).given.v_sf_token_stride, head_dims[i] / 16);
        problem.v_sf_head_stride = 1026;
        expect_refused(&problem, "problem.v_sf_head_stride is 1026 elements", "multiple of 4 elements, which are 4 bytes");
        problem.v_sf_head_stride = 0, problem.v_sf_page_stride = 16382;
        expect_refused(&problem, "problem.v_sf_page_stride is 16382 elements", "multiple of 4 elements, which are 4 bytes");
        problem.v_sf_page_stride = 0, problem.v_sf_token_stride = 36;
        expect_refused(&problem, "problem.v_sf_token_stride is 36", "dense");
    }
}

/* Heads and pages of any number: a token's scales are copied by themselves. */
static void dense_nvfp4_scales_are_always_accepted(void **state) {
    (void)state;
    for (int32_t head_dim = 64; head_dim <= 512; head_dim += 64) {
        for (int32_t heads = 1; heads <= 5; heads++) {
            for (int32_t page_size = 1; page_size <= 17; page_size++) {
                libdecode_problem problem = llama3_8b();
                problem.kv_dtype = LIBDECODE_DTYPE_NVFP4;
                problem.head_dim = head_dim;
                problem.num_qo_heads = problem.num_kv_heads = heads;
                problem.page_size = page_size;
                (void)expect_accepted(&problem);
                problem.kv_layout = LIBDECODE_KV_NHD;
                (void)expect_accepted(&problem);
                problem.v_sf_layout = page_size % 4 == 0 ? LIBDECODE_SF_V_INTERLEAVE4 : LIBDECODE_SF_LINEAR;
                (void)expect_accepted(&problem);
            }
        }
    }
}

static libdecode_problem nvfp4_nhd_interleaved(void) {
    libdecode_problem problem = llama3_8b();
    problem.kv_dtype = LIBDECODE_DTYPE_NVFP4;
    problem.kv_layout = LIBDECODE_KV_NHD;
    problem.v_sf_layout = LIBDECODE_SF_V_INTERLEAVE4;
    return problem;
}

static void nvfp4_results_are_aligned_to_a_block_and_others_to_16_bytes(void **state) {
    (void)state;
    libdecode_problem problem = llama3_8b();
    problem.query_dtype = LIBDECODE_DTYPE_E4M3;
    problem.out_dtype = LIBDECODE_DTYPE_NVFP4;
    problem.head_dim = 80; /* 40 bytes */
    (void)expect_accepted(&problem);
    problem.out_head_stride = 88;
    expect_refused(&problem, "out_head_stride is 88", "multiple of 16 elements, which are 8 bytes");
    problem.out_dtype = LIBDECODE_DTYPE_E4M3;
    expect_refused(&problem, "out_head_stride is 88", "multiple of 16 elements, which are 16 bytes");
    problem.out_head_stride = 96;
    (void)expect_accepted(&problem);
}

static void pages_may_have_any_size(void **state) {
    (void)state;
    for (int32_t page_size = 1; page_size <= 1024; page_size++) {
        libdecode_problem problem = llama3_8b();
        problem.page_size = page_size;
        struct problem checked = expect_accepted(&problem);
        assert_int_equal(checked.given.page_table_request_stride, (4096 + page_size - 1) / page_size);
    }
}

/* 16 tokens of 128 / 16 scales are one block, in which tokens are mixed: no other head may lie between them. */
static void interleaved_v_scales_are_one_block_to_a_head_in_either_kv_layout(void **state) {
    enum { ROW = 8, BLOCK = 16 * ROW, PAGE = 8 * BLOCK };
    (void)state;
    libdecode_problem problem = nvfp4_nhd_interleaved();
    struct problem checked = expect_accepted(&problem);
    assert_int_equal(checked.given.k_sf_head_stride, ROW);
    assert_int_equal(checked.given.k_sf_token_stride, 8 * ROW);
    assert_int_equal(checked.given.k_sf_page_stride, PAGE);
    assert_int_equal(checked.given.v_sf_token_stride, ROW);
    assert_int_equal(checked.given.v_sf_head_stride, BLOCK);
    assert_int_equal(checked.given.v_sf_page_stride, PAGE);
    problem.kv_layout = LIBDECODE_KV_HND;
    checked = expect_accepted(&problem);
    assert_int_equal(checked.given.v_sf_token_stride, ROW);
    assert_int_equal(checked.given.v_sf_head_stride, BLOCK);
    assert_int_equal(checked.given.v_sf_page_stride, PAGE);

    problem = nvfp4_nhd_interleaved();
    problem.k_sf_page_stride = 2 * PAGE; /* as where K's scales and V's take turns in one pool */
    checked = expect_accepted(&problem);
    assert_int_equal(checked.given.v_sf_head_stride, BLOCK);
    assert_int_equal(checked.given.v_sf_page_stride, 2 * PAGE);
}

static void heads_whose_interleaved_v_scales_would_overlap_are_refused(void **state) {
    (void)state;
    libdecode_problem problem = nvfp4_nhd_interleaved();
    problem.v_sf_head_stride = 8;
    expect_refused(&problem, "v_sf_head_stride is 8", "128 or more");
    problem.v_sf_head_stride = 120;
    expect_refused(&problem, "v_sf_head_stride is 120", "128 or more");
    problem.v_sf_head_stride = 132;
    expect_refused(&problem, "v_sf_head_stride is 132", "multiple of 8 elements");
    problem.v_sf_head_stride = 136;
    (void)expect_accepted(&problem);
    problem.v_sf_head_stride = 128;
    (void)expect_accepted(&problem);
    problem.v_sf_head_stride = -1;
    expect_refused(&problem, "v_sf_head_stride is -1", "dense: 128");

    problem = nvfp4_nhd_interleaved();
    problem.kv_layout = LIBDECODE_KV_HND; /* by name alone: the strides of K's scales are those of NHD */
    problem.k_sf_head_stride = 8;
    problem.k_sf_token_stride = 64;
    problem.k_sf_page_stride = 1024;
    expect_refused(&problem, "v_sf_head_stride is 8", "128 or more");
    problem.num_kv_heads = 1; /* nothing to overlap with */
    (void)expect_accepted(&problem);
    problem.num_kv_heads = 8;
    problem.v_sf_layout = LIBDECODE_SF_LINEAR;
    (void)expect_accepted(&problem);
}

static void a_checked_problem_checks_to_itself(void **state) {
    (void)state;
    libdecode_problem problem = llama3_8b();
    struct problem once = expect_accepted(&problem), twice = expect_accepted(&once.given);
    assert_memory_equal(&once, &twice, sizeof once);
    problem = nvfp4_nhd_interleaved();
    once = expect_accepted(&problem);
    twice = expect_accepted(&once.given);
    assert_memory_equal(&once, &twice, sizeof once);
}

static libdecode_problem contiguous(int32_t kv_capacity_tokens) {
    libdecode_problem problem = llama3_8b();
    problem.features |= LIBDECODE_FEATURE_CONTIGUOUS_KV;
    problem.page_size = 0;
    problem.num_pages = problem.page_table_request_stride = 0;
    problem.max_seq_len = 0;
    problem.kv_capacity_tokens = kv_capacity_tokens;
    return problem;
}

static void contiguous_kv_is_a_page_for_each_request(void **state) {
    (void)state;
    libdecode_problem problem = contiguous(1237);
    struct problem checked = expect_accepted(&problem);
    assert_int_equal(checked.given.k_token_stride, 128);
    assert_int_equal(checked.given.k_head_stride, 1237 * 128);
    assert_int_equal(checked.given.v_page_stride, 8 * 1237 * 128);
    assert_int_equal(checked.given.max_seq_len, 1237);
    assert_int_equal(checked.max_tokens, 1237);
    problem.kv_layout = LIBDECODE_KV_NHD;
    problem.max_seq_len = 5000; /* a hint, and no more than there is room for */
    checked = expect_accepted(&problem);
    assert_int_equal(checked.given.k_head_stride, 128);
    assert_int_equal(checked.given.k_token_stride, 8 * 128);
    assert_int_equal(checked.given.max_seq_len, 1237);
    problem = contiguous(PROBLEM_MAX_TOKENS);
    assert_int_equal(expect_accepted(&problem).max_tokens, PROBLEM_MAX_TOKENS);
    problem = contiguous(0);
    assert_int_equal(expect_accepted(&problem).max_tokens, 0);
}

/* Of no request no step is taken: how many pages there are is known, and is 0. */
static void an_empty_batch_has_as_much_room_for_each_request_as_another(void **state) {
    (void)state;
    for (int layout = LIBDECODE_KV_HND; layout <= LIBDECODE_KV_NHD; layout++) {
        libdecode_problem problem = contiguous(1048576);
        problem.kv_layout = (libdecode_kv_layout)layout;
        problem.batch_size = 0;
        const struct problem checked = expect_accepted(&problem);
        assert_int_equal(checked.given.k_page_stride, 8 * 1048576 * 128);
        assert_int_equal(checked.given.num_pages, 0);
        problem.kv_dtype = LIBDECODE_DTYPE_NVFP4;
        (void)expect_accepted(&problem);
    }
}

static void contiguous_kv_has_no_pages(void **state) {
    (void)state;
    libdecode_problem problem = contiguous(64);
    problem.page_size = 16;
    expect_refused(&problem, "problem.page_size is 16", "no pages");
    problem = contiguous(64);
    problem.num_pages = 9;
    expect_refused(&problem, "problem.num_pages is 9", "no pages");
    problem = contiguous(64);
    problem.page_table_request_stride = 4;
    expect_refused(&problem, "problem.page_table_request_stride is 4", "no pages");
    problem = contiguous(64);
    problem.features |= LIBDECODE_FEATURE_V_PAGE_TABLE;
    expect_refused(&problem, "LIBDECODE_FEATURE_V_PAGE_TABLE", "leave one of the two out");
    problem = contiguous(62);
    problem.kv_dtype = LIBDECODE_DTYPE_NVFP4;
    problem.v_sf_layout = LIBDECODE_SF_V_INTERLEAVE4;
    expect_refused(&problem, "kv_capacity_tokens 62", "multiple of 4");
}

static void a_request_in_pages_has_no_more_tokens_than_its_capacity(void **state) {
    (void)state;
    libdecode_problem problem = llama3_8b(); /* 256 pages of 16 tokens */
    assert_int_equal(expect_accepted(&problem).max_tokens, 4096);
    problem.kv_capacity_tokens = 4090;
    assert_int_equal(expect_accepted(&problem).max_tokens, 4090);
    problem.max_seq_len = 0;
    problem.page_table_request_stride = 256;
    assert_int_equal(expect_accepted(&problem).given.max_seq_len, 4090);
    problem.kv_capacity_tokens = 4096;
    (void)expect_accepted(&problem);
    problem.kv_capacity_tokens = 4097;
    expect_refused(&problem, "problem.kv_capacity_tokens is 4097 with rows of the page table of 256 pages of 16", "at most 4096");
}

static void lengths_on_the_host_lie_side_by_side(void **state) {
    (void)state;
    libdecode_problem problem = llama3_8b();
    assert_int_equal(expect_accepted(&problem).host_lens_bytes, 0);
    problem.features |= LIBDECODE_FEATURE_HOST_SEQ_LENS;
    assert_int_equal(expect_accepted(&problem).host_lens_bytes, 16 * 4);
    problem.seq_lens_head_stride = 16;
    assert_int_equal(expect_accepted(&problem).host_lens_bytes, 8 * 16 * 4);
    problem.seq_lens_head_stride = 17;
    expect_refused(&problem, "problem.seq_lens_head_stride is 17", "0 (one for all KV heads) and batch_size");
    problem.seq_lens_head_stride = 0;
    problem.seq_lens_request_stride = 2;
    expect_refused(&problem, "problem.seq_lens_request_stride is 2", "1 is accepted");
}

/* Which kernel serves them is another question; but no row of NVFP4 begins within a byte, nor one of MLA where no kernel finds it. */
static void strides_of_kv_may_be_any_number_of_whole_elements(void **state) {
    (void)state;
    for (int32_t capacity = 0; capacity <= 100; capacity += 100) {
        libdecode_problem problem = capacity > 0 ? contiguous(capacity) : llama3_8b();
        problem.k_token_stride = 131;
        problem.v_head_stride = 12813;
        problem.v_page_stride = 8 * 12813 + 1;
        assert_int_equal(expect_accepted(&problem).given.k_token_stride, 131);
        problem.kv_dtype = LIBDECODE_DTYPE_E5M2;
        (void)expect_accepted(&problem);
        problem.kv_dtype = LIBDECODE_DTYPE_NVFP4;
        expect_refused(&problem, "problem.k_token_stride is 131 elements", "multiple of 32 elements, which are 16 bytes");
    }
    libdecode_problem latent = some_mla();
    latent.k_token_stride = 580;
    expect_refused(&latent, "problem.k_token_stride is 580 elements", "multiple of 8 elements, which are 16 bytes");
    libdecode_problem problem = contiguous(100);
    problem.k_page_stride = ((int64_t)1 << 56) + 8; /* 16 requests of it stay in the address space by one step */
    expect_refused(&problem, "problem.k_page_stride is 72057594037927944", "at most 72057594037927936");
    problem.k_page_stride = (int64_t)1 << 56; /* a problem; whether a kernel does it is another question */
    (void)expect_accepted(&problem);
}

static void kv_offsets_say_nothing_of_scales(void **state) {
    (void)state;
    libdecode_problem problem = llama3_8b();
    problem.features = LIBDECODE_FEATURE_KV_OFFSETS | LIBDECODE_FEATURE_QUERY_OFFSETS;
    (void)expect_accepted(&problem);
    problem.kv_dtype = LIBDECODE_DTYPE_NVFP4;
    expect_refused(&problem, "LIBDECODE_FEATURE_KV_OFFSETS with kv_dtype nvfp4", "where scales are");
    problem.features = LIBDECODE_FEATURE_QUERY_OFFSETS;
    (void)expect_accepted(&problem);
}

static void scales_of_v_have_the_token_stride_of_those_of_k(void **state) {
    (void)state;
    libdecode_problem problem = llama3_8b();
    problem.kv_dtype = LIBDECODE_DTYPE_NVFP4;
    problem.k_sf_token_stride = 16;
    const struct problem checked = expect_accepted(&problem);
    assert_int_equal(checked.given.v_sf_token_stride, 16);
    assert_int_equal(checked.given.v_sf_head_stride, 16 * 16);
    assert_int_equal(checked.given.v_sf_page_stride, 8 * 16 * 16);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nvfp4_scales_have_strides_of_their_own),
        cmocka_unit_test(nvfp4_rows_are_any_number_of_blocks),
        cmocka_unit_test(rope_takes_nvfp4_rows_of_multiples_of_64),
        cmocka_unit_test(nvfp4_scales_lie_at_multiples_of_what_a_copy_takes),
        cmocka_unit_test(nvfp4_scales_that_are_no_whole_words_need_a_gap),
        cmocka_unit_test(dense_nvfp4_scales_are_always_accepted),
        cmocka_unit_test(nvfp4_results_are_aligned_to_a_block_and_others_to_16_bytes),
        cmocka_unit_test(pages_may_have_any_size),
        cmocka_unit_test(interleaved_v_scales_are_one_block_to_a_head_in_either_kv_layout),
        cmocka_unit_test(heads_whose_interleaved_v_scales_would_overlap_are_refused),
        cmocka_unit_test(a_checked_problem_checks_to_itself),
        cmocka_unit_test(contiguous_kv_is_a_page_for_each_request),
        cmocka_unit_test(an_empty_batch_has_as_much_room_for_each_request_as_another),
        cmocka_unit_test(contiguous_kv_has_no_pages),
        cmocka_unit_test(a_request_in_pages_has_no_more_tokens_than_its_capacity),
        cmocka_unit_test(lengths_on_the_host_lie_side_by_side),
        cmocka_unit_test(strides_of_kv_may_be_any_number_of_whole_elements),
        cmocka_unit_test(kv_offsets_say_nothing_of_scales),
        cmocka_unit_test(scales_of_v_have_the_token_stride_of_those_of_k),
    };
    return cmocka_run_group_tests_name("problem_kv", tests, NULL, NULL);
}
