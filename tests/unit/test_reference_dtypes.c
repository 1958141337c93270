/* SPDX-License-Identifier: Apache-2.0 */
/* test_reference_dtypes.c: every dtype but bf16 into libdecode_reference and out of it, and the scales of NVFP4. */
#include "reference_scene.h"

/* window_left 0 makes query token t return V row t as it is: what the cache holds, after rounding to the result's dtype. */
static void scene_of_single_rows(int32_t tokens, int32_t head_dim) {
    scene_begin(tokens);
    scene.page_table[0] = 0;
    scene.problem.q_len = tokens;
    scene.problem.head_dim = head_dim;
    scene.problem.features |= LIBDECODE_FEATURE_WINDOW;
    memset(scene.query, 0, sizeof scene.query);
}

/* A row, and the scales of a page from 2^-2 on, which are all different. Rows of 48 and 80 elements begin at multiples of 16 bytes. */
static void check_nvfp4_rows(int32_t head_dim, libdecode_sf_layout layout) {
    enum { MAX_DIM = 80 };
    _Alignas(16) uint8_t codes[PAGE * MAX_DIM], scales[PAGE * 8], k_scales[PAGE * 8] = {0};
    const int32_t blocks = (head_dim / 16 + 3) / 4 * 4, row = (head_dim + 31) / 32 * 32; /* with gaps */
    scene_of_single_rows(PAGE, head_dim);
    scene.problem.query_dtype = LIBDECODE_DTYPE_E4M3;
    scene.problem.kv_dtype = LIBDECODE_DTYPE_NVFP4;
    scene.problem.out_dtype = LIBDECODE_DTYPE_FP16; /* holds every code * scale below exactly */
    scene.problem.v_sf_layout = layout;
    scene.problem.k_token_stride = row;
    scene.problem.k_sf_token_stride = blocks;
    for (size_t byte = 0; byte < sizeof codes; byte++)
        codes[byte] = (uint8_t)(byte * 37 + 11);
    for (size_t byte = 0; byte < sizeof scales; byte++)
        scales[byte] = (uint8_t)(0x28 + byte);
    scene.tensors.k_cache = scene.tensors.v_cache = codes;
    scene.tensors.k_sf = k_scales;
    scene.tensors.v_sf = scales;
    run();
    for (int32_t token = 0; token < PAGE; token++) {
        for (int32_t d = 0; d < head_dim; d++) {
            uint8_t code = codes[token * row / 2 + d / 2] >> (d % 2 * 4) & 15;
            int32_t where = layout == LIBDECODE_SF_LINEAR ? token * blocks + d / 16 : d / 16 * 4 + token;
            double expected = e2m1_decode(code) * e4m3_decode(scales[where]);
            assert_true(fp16_decode(scene.out[token * head_dim + d]) == expected);
        }
        assert_true(scene.lse[token] == 0);
    }
}

static void nvfp4_rows_are_codes_times_scales_in_both_layouts(void **state) {
    (void)state;
    static const int32_t head_dims[] = {64, 16, 32, 48, 80};
    for (size_t i = 0; i < sizeof head_dims / sizeof head_dims[0]; i++) {
        check_nvfp4_rows(head_dims[i], LIBDECODE_SF_LINEAR);
        check_nvfp4_rows(head_dims[i], LIBDECODE_SF_V_INTERLEAVE4);
    }
}

/* V of every code, one query token for each row of it. */
static void e5m2_rows_are_the_upper_bytes_of_fp16(void **state) {
    enum { DIM = 64 };
    _Alignas(16) uint8_t codes[PAGE * DIM], keys[PAGE * DIM] = {0};
    (void)state;
    scene_of_single_rows(PAGE, DIM);
    scene.problem.kv_dtype = LIBDECODE_DTYPE_E5M2;
    scene.problem.out_dtype = LIBDECODE_DTYPE_FP16;
    for (size_t byte = 0; byte < sizeof codes; byte++)
        codes[byte] = (uint8_t)(byte * 37 + 11); /* all 256 */
    scene.tensors.k_cache = keys;
    scene.tensors.v_cache = codes;
    run();
    for (int32_t element = 0; element < PAGE * DIM; element++) {
        const uint16_t expected = (uint16_t)(codes[element] << 8);
        if (isnan(fp16_decode(expected)))
            assert_true(isnan(fp16_decode(scene.out[element])));
        else if ((expected & 0x7fff) == 0)
            assert_int_equal(scene.out[element] & 0x7fff, 0);
        else
            assert_int_equal(scene.out[element], expected);
    }
}

/* 1.75 - 0.5 + 3 = 4.25, beside a key of 0. */
static void e5m2_k_enters_the_logit(void **state) {
    enum { DIM = 16 };
    _Alignas(16) uint8_t keys[PAGE * DIM] = {0}, values[PAGE * DIM] = {0};
    (void)state;
    scene_begin(2);
    scene.page_table[0] = 0;
    scene.problem.kv_dtype = LIBDECODE_DTYPE_E5M2;
    scene.problem.head_dim = DIM;
    scene.query[1] = scene.query[2] = scene.query[3] = bf16_encode(1);
    keys[DIM + 1] = 0x3f; /* 1.75 */
    keys[DIM + 2] = 0xb8; /* -0.5 */
    keys[DIM + 3] = 0x42; /* 3 */
    values[0] = values[DIM] = 0x42;
    scene.tensors.k_cache = keys;
    scene.tensors.v_cache = values;
    run();
    assert_true(bf16_decode(scene.out[0]) == 3);
    assert_true(scene.lse[0] == (float)log2(1 + exp2(4.25)));
}

static void interleaved_scales_lie_head_by_head_in_an_nhd_cache_too(void **state) {
    enum { DIM = 64, BLOCKS = DIM / 16, HEADS = 2 };
    static _Alignas(16) uint8_t codes[PAGE * HEADS * DIM / 2], scales[HEADS * PAGE * BLOCKS], k_scales[PAGE * 16];
    (void)state;
    scene_of_single_rows(PAGE, DIM);
    scene.problem.query_dtype = LIBDECODE_DTYPE_E4M3;
    scene.problem.kv_dtype = LIBDECODE_DTYPE_NVFP4;
    scene.problem.out_dtype = LIBDECODE_DTYPE_FP16;
    scene.problem.kv_layout = LIBDECODE_KV_NHD;
    scene.problem.v_sf_layout = LIBDECODE_SF_V_INTERLEAVE4;
    scene.problem.k_sf_token_stride = 16;
    scene.problem.num_qo_heads = scene.problem.num_kv_heads = HEADS;
    memset(codes, 0x22, sizeof codes); /* 1 everywhere: results are the scales */
    for (size_t byte = 0; byte < sizeof scales; byte++)
        scales[byte] = (uint8_t)(0x28 + byte); /* all different */
    scene.tensors.k_cache = scene.tensors.v_cache = codes;
    scene.tensors.k_sf = k_scales;
    scene.tensors.v_sf = scales;
    run();
    for (int32_t token = 0; token < PAGE; token++)
        for (int32_t head = 0; head < HEADS; head++)
            for (int32_t block = 0; block < BLOCKS; block++)
                assert_true(fp16_decode(scene.out[(token * HEADS + head) * DIM + block * 16]) ==
                            e4m3_decode(scales[head * PAGE * BLOCKS + block * 4 + token]));
}

/* K of the second of two tokens is 3 at one element, whose block's scale is 2, and the query is half there: that token's logit is 3. Strides: 0 for none. */
static void expect_nvfp4_k_in_the_logit(int32_t head_dim, int32_t element, int32_t token_stride, int32_t sf_token_stride) {
    enum { MOST = 96 };
    _Alignas(16) uint8_t codes[PAGE * MOST / 2] = {0}, k_scales[PAGE * MOST / 8] = {0}, v_scales[PAGE * MOST / 8] = {0};
    _Alignas(16) uint8_t query[MOST] = {0};
    const int32_t row = token_stride != 0 ? token_stride : head_dim,
                  sf_row = sf_token_stride != 0 ? sf_token_stride : head_dim / 16;
    scene_begin(2);
    scene.page_table[0] = 0;
    scene.problem.head_dim = head_dim;
    scene.problem.k_token_stride = token_stride;
    scene.problem.k_sf_token_stride = sf_token_stride;
    scene.problem.query_dtype = LIBDECODE_DTYPE_E4M3;
    scene.problem.kv_dtype = LIBDECODE_DTYPE_NVFP4;
    scene.problem.v_sf_layout = LIBDECODE_SF_V_INTERLEAVE4; /* K has linear ones all the same */
    codes[(row + element) / 2] = 0x50;                      /* the upper of two */
    k_scales[sf_row + element / 16] = 0x40;
    query[element] = 0x30;
    scene.tensors.query = query;
    scene.tensors.k_cache = scene.tensors.v_cache = codes;
    scene.tensors.k_sf = k_scales;
    scene.tensors.v_sf = v_scales;
    run();
    assert_true(scene.lse[0] == (float)log2(1 + 8));
}

static void nvfp4_k_enters_the_logit_with_its_linear_scales(void **state) {
    (void)state;
    expect_nvfp4_k_in_the_logit(64, 33, 0, 0); /* its scale is at 6; interleaved, it would lie at 9 */
}

/* Of 80 elements, five scales a token: those of token 1 begin behind a gap of three. */
static void nvfp4_k_of_five_blocks_enters_the_logit(void **state) {
    (void)state;
    expect_nvfp4_k_in_the_logit(80, 65, 96, 8);
}

static void nvfp4_scales_have_strides_of_their_own(void **state) {
    enum { DIM = 64, HEADS = 2, SF_PAGE = 80, SF_HEAD = 8, SF_TOKEN = 20 };
    static _Alignas(16) uint8_t codes[2 * PAGE * HEADS * DIM / 2], k_scales[2 * PAGE * SF_TOKEN], v_scales[2 * SF_PAGE];
    (void)state;
    scene_of_single_rows(PAGE, DIM);
    scene.page_table[0] = 1;
    scene.problem.query_dtype = LIBDECODE_DTYPE_E4M3;
    scene.problem.kv_dtype = LIBDECODE_DTYPE_NVFP4;
    scene.problem.out_dtype = LIBDECODE_DTYPE_FP16;
    scene.problem.kv_layout = LIBDECODE_KV_NHD;
    scene.problem.num_qo_heads = scene.problem.num_kv_heads = HEADS;
    scene.problem.k_sf_token_stride = SF_TOKEN;
    scene.problem.v_sf_page_stride = SF_PAGE;
    scene.problem.v_sf_head_stride = SF_HEAD;
    scene.problem.v_sf_token_stride = SF_TOKEN;
    memset(codes, 0x22, sizeof codes); /* 1 everywhere: results are the scales */
    memset(k_scales, 0, sizeof k_scales);
    for (size_t byte = 0; byte < sizeof v_scales; byte++)
        v_scales[byte] = (uint8_t)(byte % 101 + 1);
    for (size_t token = 0; token < PAGE; token++)
        k_scales[(PAGE + token) * SF_TOKEN + 4 + 1] = (uint8_t)(0x38 + 8 * token); /* 2^token: NHD, page 1, head 1, block 1 */
    static _Alignas(16) uint8_t query[PAGE * HEADS * DIM];
    for (size_t row = 0; row < PAGE * HEADS; row++)
        query[row * DIM + 16] = 0x38;
    scene.tensors.query = query;
    scene.tensors.k_cache = scene.tensors.v_cache = codes;
    scene.tensors.k_sf = k_scales;
    scene.tensors.v_sf = v_scales;
    run();
    for (int32_t row = 0; row < PAGE * HEADS; row++) {
        int32_t token = row / HEADS, head = row % HEADS;
        const uint8_t *scales = v_scales + SF_PAGE + head * SF_HEAD + token * SF_TOKEN;
        assert_true(fp16_decode(scene.out[row * DIM]) == e4m3_decode(scales[0]));
        assert_true(fp16_decode(scene.out[row * DIM + 63]) == e4m3_decode(scales[3]));
        assert_true(scene.lse[row] == (head == 1 ? (float)(1 << token) : 0)); /* one token each: its logit */
    }
}

static void e4m3_results_saturate_and_o_scale_changes_nothing(void **state) {
    _Alignas(16) uint8_t rows[PAGE * D] = {0x7e, 0xfe, 0x38, 0x01}; /* 448, -448, 1, 2^-9 */
    uint8_t *out = (uint8_t *)scene.out;
    (void)state;
    scene_of_single_rows(1, D);
    scene.problem.query_dtype = LIBDECODE_DTYPE_E4M3;
    scene.tensors.k_cache = scene.tensors.v_cache = rows;
    scene.tensors.bmm2_scale = 1.5f;
    scene.tensors.o_scale = 7;
    run();
    assert_int_equal(out[0], 0x7e);
    assert_int_equal(out[1], 0xfe);
    assert_int_equal(out[2], 0x3c); /* 1.5 */
    assert_int_equal(out[3], 0x02); /* 1.5 * 2^-9: a tie between 1 and 2 steps, to the even one */
    assert_int_equal(out[D], POISON_OUT & 0xff);
}

static void fp16_goes_in_and_out(void **state) {
    (void)state;
    scene_of_single_rows(1, D);
    scene.problem.query_dtype = LIBDECODE_DTYPE_FP16;
    memset(scene.k, 0, sizeof scene.k);
    memcpy(scene.v, (uint16_t[D]){0x3c01, 0x0001, 0x7bff}, D * 2);
    run();
    assert_memory_equal(scene.out, scene.v, D * 2);
}

static void nvfp4_results_have_swizzled_scales_from_the_start_row_on(void **state) {
    enum { DIM = 32, HEADS = 3, COLUMNS = 8, ROWS = 256 }; /* 3 * 32 / 16 = 6 columns, padded to 8 */
    static _Alignas(16) uint8_t rows[PAGE * DIM], scales[ROWS * COLUMNS], expected[ROWS * COLUMNS];
    const uint8_t *out = (const uint8_t *)scene.out;
    (void)state;
    scene_of_single_rows(2, DIM);
    scene.problem.query_dtype = LIBDECODE_DTYPE_E4M3;
    scene.problem.out_dtype = LIBDECODE_DTYPE_NVFP4;
    scene.problem.num_qo_heads = HEADS;
    for (int32_t d = 0; d < 16; d++) {
        rows[d] = 0x4c;           /* token 0, block 0: 6, so the scale is 1 and the codes are 7 */
        rows[16 + d] = 0x4c + 8;  /* block 1: 12, scale 2 */
        rows[DIM + d] = 0xcc - 8; /* token 1, block 0: -3, scale 0.5, codes 15; block 1 stays 0 */
    }
    rows[1] = 0x38; /* 1: code 2 */
    memset(scales, 0xee, sizeof scales);
    memset(expected, 0xee, sizeof expected);
    scene.tensors.k_cache = scene.tensors.v_cache = rows;
    scene.tensors.out_sf = scales;
    scene.tensors.out_sf_start_token = 159;
    scene.tensors.out_sf_scale = 2; /* doubles the scales, not the codes */
    run();
    for (int32_t head = 0; head < HEADS; head++) {
        assert_int_equal(out[head * DIM / 2], 0x27);
        assert_int_equal(out[head * DIM / 2 + 1], 0x77);
        assert_int_equal(out[head * DIM / 2 + 8], 0x77);
        assert_int_equal(out[(HEADS + head) * DIM / 2], 0xff);
        assert_int_equal(out[(HEADS + head) * DIM / 2 + 8], 0);
    }
    /* Row 159 = 128 + 31: second tile row, 31 * 16 + 0 * 4; row 160 = 128 + 32: 0 * 16 + 1 * 4. Two tiles a tile row. */
    const uint8_t row_159[COLUMNS] = {0x40, 0x48, 0x40, 0x48, 0x40, 0x48, 0, 0}; /* 2, 4 */
    const uint8_t row_160[COLUMNS] = {0x38, 0, 0x38, 0, 0x38, 0, 0, 0};          /* 1, 0 */
    for (size_t tile = 0; tile < 2; tile++) {
        memcpy(expected + 1024 + tile * 512 + 31 * 16, row_159 + tile * 4, 4);
        memcpy(expected + 1024 + tile * 512 + 4, row_160 + tile * 4, 4);
    }
    assert_memory_equal(scales, expected, sizeof scales);
    assert_int_equal(out[2 * HEADS * DIM / 2], POISON_OUT & 0xff);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nvfp4_rows_are_codes_times_scales_in_both_layouts),
        cmocka_unit_test(e5m2_rows_are_the_upper_bytes_of_fp16),
        cmocka_unit_test(e5m2_k_enters_the_logit),
        cmocka_unit_test(interleaved_scales_lie_head_by_head_in_an_nhd_cache_too),
        cmocka_unit_test(nvfp4_k_enters_the_logit_with_its_linear_scales),
        cmocka_unit_test(nvfp4_k_of_five_blocks_enters_the_logit),
        cmocka_unit_test(nvfp4_k_of_five_blocks_enters_the_logit),
        cmocka_unit_test(nvfp4_scales_have_strides_of_their_own),
        cmocka_unit_test(e4m3_results_saturate_and_o_scale_changes_nothing),
        cmocka_unit_test(fp16_goes_in_and_out),
        cmocka_unit_test(nvfp4_results_have_swizzled_scales_from_the_start_row_on),
    };
    return cmocka_run_group_tests_name("reference_dtypes", tests, NULL, NULL);
}
