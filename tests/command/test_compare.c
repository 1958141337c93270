/* SPDX-License-Identifier: Apache-2.0 */
/* test_compare.c: what `libdecode check` takes for right and for wrong, at the edges of what it allows. */
#include "compare_scene.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "dtype.h"
#include "element.h"
#include "problem.h"
#include "random.h"

/* --------------------------------------------------------------------------------------------- two tokens, by hand */

static void what_rounding_explains_is_right_and_a_forgotten_token_is_not(void **state) {
    static const double unit_roundoffs[] = {0, 0x1p-8, 0x1p-11, 0x1p-4};
    (void)state;
    for (libdecode_dtype dtype = LIBDECODE_DTYPE_BF16; dtype <= LIBDECODE_DTYPE_E4M3; dtype++) {
        const double u = unit_roundoffs[dtype];
        const libdecode_problem problem = problem_of(dtype);
        const libdecode_tensors tensors = tensors_of(dtype, 0);
        struct expectation expectation;
        assert_true(expectation_make(&problem, &tensors, 1, NULL, &expectation));
        assert_true(expectation.out[0] == 2 && expectation.lse[0] == 1 && expectation.num_nan == 0);
        assert_int_equal(compare(&expectation, &problem, 2, 1).count, 0);
        assert_int_equal(compare(&expectation, &problem, 2 - 2 * u, 1).count, 0); /* the next number below */
        assert_int_equal(compare(&expectation, &problem, 1, 1).count, DIM);
        assert_int_equal(compare(&expectation, &problem, 3, 1).count, DIM);
        assert_int_equal(compare(&expectation, &problem, (double)NAN, 1).count, DIM);
        const struct mismatch mismatch = compare(&expectation, &problem, 2, 0.99f);
        assert_int_equal(mismatch.count, 1);
        assert_string_equal(mismatch.tensor, "lse");
        assert_true(mismatch.token == 0 && mismatch.head == 0 && mismatch.largest_error == 0 && mismatch.rms_error == 0);
        assert_true(compare(&expectation, &problem, 3, 1).largest_error == 0.5 &&
                    compare(&expectation, &problem, 3, 1).rms_error == 0.5);
        expectation_free(&expectation);
    }
}

static void huge_scores_keep_their_differences(void **state) {
    const libdecode_problem problem = problem_of(LIBDECODE_DTYPE_BF16);
    const libdecode_tensors tensors = tensors_of(LIBDECODE_DTYPE_BF16, 0x1p28);
    struct expectation expectation;
    (void)state;
    assert_true(expectation_make(&problem, &tensors, 1, NULL, &expectation));
    assert_true(expectation.out[0] == 3 && expectation.lse[0] == 0x1p28);
    assert_true(expectation.out_tolerance[0] > 0 && expectation.out_tolerance[0] < 0.2);
    assert_int_equal(compare(&expectation, &problem, 3, 0x1p28f).count, 0);
    assert_int_equal(compare(&expectation, &problem, 3, 0x1p28f + 32).count, 0); /* the next float */
    assert_int_equal(compare(&expectation, &problem, 3, 0x1p28f + 64).count, 1);
    assert_int_equal(compare(&expectation, &problem, 2, 0x1p28f).count, DIM);
    expectation_free(&expectation);
}

static void e4m3_results_saturate_and_only_where_they_must(void **state) {
    const libdecode_problem problem = problem_of(LIBDECODE_DTYPE_E4M3);
    libdecode_tensors tensors = tensors_of(LIBDECODE_DTYPE_E4M3, 0);
    struct expectation expectation;
    (void)state;
    tensors.bmm2_scale = 1000;
    assert_true(expectation_make(&problem, &tensors, 1, NULL, &expectation));
    assert_true(expectation.out[0] == 448);
    assert_int_equal(compare(&expectation, &problem, 448, 1).count, 0);
    assert_int_equal(compare(&expectation, &problem, 384, 1).count, DIM);
    assert_int_equal(compare(&expectation, &problem, -448, 1).count, DIM);
    expectation_free(&expectation);
    tensors.bmm2_scale = 0x1p-11f; /* 2^-10: half of the smallest number, so 0 or 2^-9 */
    assert_true(expectation_make(&problem, &tensors, 1, NULL, &expectation));
    assert_int_equal(compare(&expectation, &problem, 0, 1).count, 0);
    assert_int_equal(compare(&expectation, &problem, 0x1p-9, 1).count, 0);
    assert_int_equal(compare(&expectation, &problem, 0x1p-8, 1).count, DIM);
    expectation_free(&expectation);
}

/* A sink far above the scores leaves less than f32 holds: the kernel's 0 is right. What f32 holds has to be there. */
static void what_a_sink_leaves_may_vanish_where_f32_ends(void **state) {
    libdecode_problem problem = problem_of(LIBDECODE_DTYPE_FP16);
    libdecode_tensors tensors = tensors_of(LIBDECODE_DTYPE_FP16, 0);
    struct expectation expectation;
    float sink = 200;
    (void)state;
    problem.features = LIBDECODE_FEATURE_SINKS;
    problem.out_dtype = LIBDECODE_DTYPE_BF16;
    tensors.sinks = &sink;
    assert_true(expectation_make(&problem, &tensors, 1, NULL, &expectation));
    assert_true(expectation.out[0] > 1e-88 && expectation.out[0] < 1e-86); /* 4 e^-200 */
    assert_int_equal(compare(&expectation, &problem, 0, (float)expectation.lse[0]).count, 0);
    assert_int_equal(compare(&expectation, &problem, 1e-30, (float)expectation.lse[0]).count, DIM);
    expectation_free(&expectation);
    sink = 60;
    assert_true(expectation_make(&problem, &tensors, 1, NULL, &expectation));
    assert_int_equal(compare(&expectation, &problem, 4 * exp(-60), (float)expectation.lse[0]).count, 0);
    assert_int_equal(compare(&expectation, &problem, 0, (float)expectation.lse[0]).count, DIM);
    expectation_free(&expectation);
}

static void nan_is_right_where_it_is_expected_and_nowhere_else(void **state) {
    const libdecode_problem problem = problem_of(LIBDECODE_DTYPE_FP16);
    const libdecode_tensors tensors = tensors_of(LIBDECODE_DTYPE_FP16, 0);
    struct expectation expectation;
    (void)state;
    v[7] = 0x7fff;
    assert_true(expectation_make(&problem, &tensors, 1, NULL, &expectation));
    assert_true(isnan(expectation.out[7]) && expectation.num_nan == 1);
    assert_int_equal(compare(&expectation, &problem, 2, 1).count, 1);
    assert_int_equal(compare(&expectation, &problem, (double)NAN, 1).count, DIM - 1);
    assert_int_equal(compare(&expectation, &problem, 2, NAN).count, 2);
    expectation_free(&expectation);
    k[3] = 0x7fff;
    assert_true(expectation_make(&problem, &tensors, 1, NULL, &expectation));
    assert_int_equal(expectation.num_nan, DIM);
    assert_int_equal(compare(&expectation, &problem, (double)NAN, NAN).count, 0);
    assert_int_equal(compare(&expectation, &problem, (double)NAN, 1).count, 1);
    expectation_free(&expectation);
}

/* One dim of V is infinite: what the others may lose has nothing to do with that. */
static void an_infinite_value_excuses_nothing_beside_it(void **state) {
    (void)state;
    for (libdecode_dtype dtype = LIBDECODE_DTYPE_BF16; dtype <= LIBDECODE_DTYPE_FP16; dtype++) {
        const libdecode_problem problem = problem_of(dtype);
        const libdecode_tensors tensors = tensors_of(dtype, 0);
        struct expectation expectation;
        v[7] = dtype == LIBDECODE_DTYPE_BF16 ? 0x7f80 : 0x7c00;
        assert_true(expectation_make(&problem, &tensors, 1, NULL, &expectation));
        assert_true(expectation.out[7] == (double)INFINITY && expectation.out[6] == 2);
        assert_true(expectation.out_tolerance[6] < 0.1);
        assert_true(compare(&expectation, &problem, 3, 1).count >= DIM - 1);
        expectation_free(&expectation);
    }
}

/* ------------------------------------------------------------------------------------------------------ NVFP4 results */

/* One token and one head of 64: a result is V's row, so blocks can be chosen. 4 scales, one column each. */
struct nvfp4_scene {
    libdecode_problem problem;
    libdecode_tensors results;
    struct expectation expectation;
    _Alignas(16) uint8_t codes[DIM / 2];
    uint8_t scales[128 * 4];
};

static void nvfp4_begin(struct nvfp4_scene *scene, const double row[DIM], float factor) {
    static const int32_t length[1] = {1};
    libdecode_tensors tensors = tensors_of(LIBDECODE_DTYPE_E4M3, 0);
    element_encode_row(LIBDECODE_DTYPE_E4M3, row, DIM, v);
    tensors.seq_lens = length;
    scene->problem = problem_of(LIBDECODE_DTYPE_E4M3);
    scene->problem.out_dtype = LIBDECODE_DTYPE_NVFP4;
    memset(scene->codes, 0xff, sizeof scene->codes);
    memset(scene->scales, 0xff, sizeof scene->scales);
    assert_true(expectation_make(&scene->problem, &tensors, 1, NULL, &scene->expectation));
    tensors.out = scene->codes;
    tensors.out_sf = scene->scales;
    tensors.out_sf_scale = factor;
    if (libdecode_reference(&scene->problem, &tensors) != LIBDECODE_OK)
        fail_msg("%s", libdecode_error_message());
    scene->results = tensors;
}

static struct mismatch nvfp4_compare(const struct nvfp4_scene *scene) {
    struct mismatch mismatch;
    expectation_compare(&scene->expectation, &scene->problem, &scene->results, &mismatch);
    return mismatch;
}

static void a_code_may_move_only_where_its_value_lies_on_the_border(void **state) {
    struct nvfp4_scene scene;
    double row[DIM] = {6, 2.5, 3, -0.75, 0.25, -5, 1.75};
    (void)state;
    row[16] = 6;
    nvfp4_begin(&scene, row, 1);
    assert_int_equal(nvfp4_compare(&scene).count, 0);
    for (int element = 0; element < 16; element++) {
        const bool on_border = element == 1 || element == 3 || element == 4 || element == 5 || element == 6;
        const int shift = element % 2 * 4;
        const uint8_t before = scene.codes[element / 2], code = (uint8_t)(before >> shift & 15);
        unsigned moved = 0;
        for (uint8_t other = 0; other < 16; other++) {
            scene.codes[element / 2] = (uint8_t)((before & ~(15 << shift)) | other << shift);
            const size_t count = nvfp4_compare(&scene).count;
            if (count == 0 && other != code && e2m1_decode(other) != e2m1_decode(code))
                moved++;
            else if (count > 0)
                assert_int_equal(count, 1);
        }
        assert_int_equal(moved, on_border ? 1 : 0);
        scene.codes[element / 2] = before;
    }
    expectation_free(&scene.expectation);
}

static void a_scale_may_not_move_nor_be_nan_nor_lie_elsewhere(void **state) {
    struct nvfp4_scene scene;
    double row[DIM] = {6, 1, 2};
    (void)state;
    row[20] = 3;
    nvfp4_begin(&scene, row, 16);
    assert_int_equal(scene.scales[0], 0x58); /* 16 */
    for (int code = 0; code < 256; code++) {
        scene.scales[0] = (uint8_t)code;
        const struct mismatch mismatch = nvfp4_compare(&scene);
        if (code == 0x58)
            assert_int_equal(mismatch.count, 0);
        else
            assert_true(mismatch.count > 0);
        if (code != 0x58)
            assert_string_equal(mismatch.tensor, "out_sf");
    }
    scene.scales[0] = 0x58;
    scene.results.out_sf_start_token = 1; /* nothing was written there */
    assert_true(nvfp4_compare(&scene).count > 0);
    expectation_free(&scene.expectation);
}

/* The largest lies where e4m3 rounds a scale up or down: both are right, with the codes that belong to them. */
static void a_scale_on_the_border_may_be_either(void **state) {
    struct nvfp4_scene scene;
    const double row[DIM] = {6, 3};
    (void)state;
    nvfp4_begin(&scene, row, 1.0625f); /* between 1 and 1.125 */
    assert_int_equal(scene.scales[0], 0x38);
    assert_int_equal(nvfp4_compare(&scene).count, 0);
    scene.scales[0] = 0x39;
    assert_int_equal(nvfp4_compare(&scene).count, 0); /* 6 * 1.0625 / 1.125 = 5.7 is 6, and half of it 3 */
    scene.scales[0] = 0x3a;
    assert_true(nvfp4_compare(&scene).count > 0);
    expectation_free(&scene.expectation);
}

static void padding_columns_are_zero(void **state) {
    struct nvfp4_scene scene;
    const double row[DIM] = {6};
    _Alignas(16) uint8_t wide_codes[5 * DIM / 2];
    uint8_t scales[128 * 8];
    (void)state;
    nvfp4_begin(&scene, row, 1);
    expectation_free(&scene.expectation);
    libdecode_tensors tensors = scene.results;
    scene.problem.head_dim = 16; /* 5 heads: 5 columns, and 3 of padding */
    scene.problem.num_qo_heads = 5;
    scene.problem.out_head_stride = 32;
    static _Alignas(16) uint8_t queries[5 * 16];
    memset(scales, 0xff, sizeof scales);
    tensors.query = queries;
    tensors.out = wide_codes;
    tensors.out_sf = scales;
    assert_true(expectation_make(&scene.problem, &tensors, 1, NULL, &scene.expectation));
    if (libdecode_reference(&scene.problem, &tensors) != LIBDECODE_OK)
        fail_msg("%s", libdecode_error_message());
    scene.results = tensors;
    assert_int_equal(nvfp4_compare(&scene).count, 0);
    for (size_t column = 5; column < 8; column++) {
        scales[nvfp4_swizzled_offset(0, column, 8)] = 1;
        assert_int_equal(nvfp4_compare(&scene).count, 1);
        scales[nvfp4_swizzled_offset(0, column, 8)] = 0;
    }
    expectation_free(&scene.expectation);
}

static void nan_in_a_block_makes_it_nan(void **state) {
    struct nvfp4_scene scene;
    double row[DIM] = {6, 1, 2};
    (void)state;
    row[5] = (double)NAN;
    nvfp4_begin(&scene, row, 1);
    assert_int_equal(nvfp4_compare(&scene).count, 0);
    scene.scales[0] = 0xff; /* the other NaN */
    assert_int_equal(nvfp4_compare(&scene).count, 0);
    scene.scales[0] = 0x38;
    assert_int_equal(nvfp4_compare(&scene).count, 17); /* the scale, and what it makes of 16 codes */
    scene.scales[0] = 0x7f;
    scene.scales[1] = 0x7f;
    assert_int_equal(nvfp4_compare(&scene).count, 17);
    expectation_free(&scene.expectation);
}

/* ------------------------------------------------------------------------------- what a kernel may round, and what not */

enum { TOKENS = 1000, PAGES = (TOKENS + PAGE - 1) / PAGE, BLOCKS = DIM / NVFP4_BLOCK };

/* A thousand tokens of one head, and the same in float64. */
struct long_scene {
    libdecode_problem problem;
    libdecode_tensors tensors;
    int32_t page_table[PAGES], seq_lens[1];
    _Alignas(16) uint8_t query[DIM * 2], k[PAGES * PAGE * DIM * 2], v[PAGES * PAGE * DIM * 2];
    _Alignas(16) uint8_t k_sf[PAGES * PAGE * BLOCKS], v_sf[PAGES * PAGE * BLOCKS];
    _Alignas(16) uint8_t out[DIM * 2];
    uint8_t out_sf[128 * BLOCKS];
    double query_values[DIM], k_values[TOKENS][DIM], v_values[TOKENS][DIM];
};

static void fill_long(libdecode_dtype dtype, struct random *random, uint8_t *rows, uint8_t *scales, double values[TOKENS][DIM]) {
    static struct palette palette;
    palette_make(&palette, dtype, 1.0);
    palette_fill(&palette, dtype, random, rows, (size_t)(PAGES * PAGE * DIM) * (size_t)dtype_bits(dtype) / 8);
    for (size_t index = 0; index < PAGES * PAGE * BLOCKS; index++)
        scales[index] = random_scale(random, 1.0);
    for (size_t token = 0; token < TOKENS; token++) {
        if (dtype == LIBDECODE_DTYPE_NVFP4)
            nvfp4_decode_row(rows + token * DIM / 2, scales + token * BLOCKS, 1, DIM, values[token]);
        else
            element_decode_row(dtype, rows + token * DIM * (size_t)dtype_bits(dtype) / 8, DIM, values[token]);
    }
}

static void long_begin(struct long_scene *scene, libdecode_dtype query_dtype, libdecode_dtype kv, libdecode_dtype out_dtype) {
    static struct palette palette;
    struct random random = {3};
    fill_long(kv, &random, scene->k, scene->k_sf, scene->k_values);
    fill_long(kv, &random, scene->v, scene->v_sf, scene->v_values);
    palette_make(&palette, query_dtype, 1.0);
    palette_fill(&palette, query_dtype, &random, scene->query, (size_t)DIM * (size_t)dtype_bits(query_dtype) / 8);
    element_decode_row(query_dtype, scene->query, DIM, scene->query_values);
    for (int32_t page = 0; page < PAGES; page++)
        scene->page_table[page] = page;
    scene->seq_lens[0] = TOKENS;
    scene->problem = problem_of(query_dtype);
    scene->problem.kv_dtype = kv;
    scene->problem.out_dtype = out_dtype;
    scene->problem.page_table_request_stride = PAGES;
    scene->tensors = (libdecode_tensors){.struct_size = sizeof scene->tensors,
                                         .query = scene->query,
                                         .k_cache = scene->k,
                                         .v_cache = scene->v,
                                         .k_sf = kv == LIBDECODE_DTYPE_NVFP4 ? scene->k_sf : NULL,
                                         .v_sf = kv == LIBDECODE_DTYPE_NVFP4 ? scene->v_sf : NULL,
                                         .page_table = scene->page_table,
                                         .seq_lens = scene->seq_lens,
                                         .out = scene->out,
                                         .out_sf = out_dtype == LIBDECODE_DTYPE_NVFP4 ? scene->out_sf : NULL,
                                         .bmm1_scale = 0.125f,
                                         .out_sf_scale = out_dtype == LIBDECODE_DTYPE_NVFP4 ? 500.0f : 0.0f};
}

/* What a kernel does to each operand: rounds it to fp16 or bf16 (nothing is lost, or P as it must be) or to e4m3. */
struct rounding {
    libdecode_dtype query, k, v, p;
};

static double rounded(libdecode_dtype dtype, double value) {
    double result = value;
    uint8_t code[2];
    if (dtype == LIBDECODE_DTYPE_DEFAULT)
        return value;
    element_encode_row(dtype, &value, 1, code);
    element_decode_row(dtype, code, 1, &result);
    return result;
}

/* Attention as a kernel with these roundings computes it; `magnify` errs on purpose. P of e4m3 is scaled by 448, as others do. */
static void long_compute(struct long_scene *scene, const struct rounding *rounding, double magnify) {
    double scores[TOKENS], sums[DIM] = {0}, max = -(double)INFINITY, sum = 0;
    const double p_scale = rounding->p == LIBDECODE_DTYPE_E4M3 ? 448 : 1;
    for (size_t token = 0; token < TOKENS; token++) {
        scores[token] = 0;
        for (size_t d = 0; d < DIM; d++)
            scores[token] += rounded(rounding->query, scene->query_values[d]) * rounded(rounding->k, scene->k_values[token][d]);
        scores[token] *= 0.125;
        max = fmax(max, scores[token]);
    }
    for (size_t token = 0; token < TOKENS; token++) {
        const double p = exp(scores[token] - max);
        sum += p;
        for (size_t d = 0; d < DIM; d++)
            sums[d] += rounded(rounding->p, p * p_scale) / p_scale * rounded(rounding->v, scene->v_values[token][d]);
    }
    for (size_t d = 0; d < DIM; d++)
        sums[d] *= magnify / sum;
    if (scene->problem.out_dtype != LIBDECODE_DTYPE_NVFP4) {
        element_encode_row(scene->problem.out_dtype, sums, DIM, scene->out);
        return;
    }
    for (size_t block = 0; block < BLOCKS; block++)
        scene->out_sf[nvfp4_swizzled_offset(0, block, BLOCKS)] =
            nvfp4_encode_block(sums + block * NVFP4_BLOCK, 500.0, scene->out + block * NVFP4_BLOCK / 2);
}

static struct mismatch long_compare(struct long_scene *scene, const struct rounding *rounding, double magnify) {
    struct expectation expectation;
    struct mismatch mismatch;
    long_compute(scene, rounding, magnify);
    assert_true(expectation_make(&scene->problem, &scene->tensors, 1, NULL, &expectation));
    expectation_compare(&expectation, &scene->problem, &scene->tensors, &mismatch);
    expectation_free(&expectation);
    return mismatch;
}

/* Every combination of dtypes: P as the matrix operands have it is right; e4m3 anywhere, as other libraries have it, is not. */
static void operands_of_16_bits_are_right_and_of_8_bits_are_not(void **state) {
    static struct long_scene scene;
    const libdecode_dtype e4m3 = LIBDECODE_DTYPE_E4M3;
    size_t combinations = 0;
    (void)state;
    for (libdecode_dtype kv = LIBDECODE_DTYPE_BF16; kv <= LIBDECODE_DTYPE_E5M2; kv++) {
        if (kv == LIBDECODE_DTYPE_FP32)
            continue;
        for (libdecode_dtype of_query = LIBDECODE_DTYPE_BF16; of_query <= LIBDECODE_DTYPE_E4M3; of_query++) {
            for (libdecode_dtype of_out = LIBDECODE_DTYPE_BF16; of_out <= LIBDECODE_DTYPE_NVFP4; of_out++) {
                struct problem checked;
                long_begin(&scene, of_query, kv, of_out);
                if (problem_check(&scene.problem, &checked) != LIBDECODE_OK)
                    continue;
                combinations++;
                const libdecode_dtype p = kv == LIBDECODE_DTYPE_BF16 ? LIBDECODE_DTYPE_BF16 : LIBDECODE_DTYPE_FP16;
                const struct mismatch right = long_compare(&scene, &(struct rounding){.p = p}, 1);
                if (right.count > 0) {
                    char text[256];
                    mismatch_describe(&right, text, sizeof text);
                    fail_msg("query %s, KV %s, out %s: %s", dtype_name(of_query), dtype_name(kv), dtype_name(of_out), text);
                }
                const struct {
                    const char *name;
                    struct rounding rounding;
                } wrong[] = {{"P", {.p = e4m3}},
                             {"the query", {.query = e4m3, .p = p}},
                             {"K", {.k = e4m3, .p = p}},
                             {"V", {.v = e4m3, .p = p}}};
                for (size_t index = 0; index < sizeof wrong / sizeof wrong[0]; index++) {
                    const struct rounding *rounding = &wrong[index].rounding;
                    if ((rounding->query == e4m3 && of_query == e4m3) ||
                        ((rounding->k == e4m3 || rounding->v == e4m3) && (kv == e4m3 || kv == LIBDECODE_DTYPE_E5M2)))
                        continue; /* it is e4m3 already; so are all e5m2 but the largest and the smallest */
                    if (long_compare(&scene, rounding, 1).count == 0)
                        fail_msg("query %s, KV %s, out %s: %s rounded to e4m3 is not noticed", dtype_name(of_query),
                                 dtype_name(kv), dtype_name(of_out), wrong[index].name);
                }
            }
        }
    }
    assert_true(combinations >= 25);
}

/* The largest error that is allowed of the largest element; results that lie twice as far off are wrong. */
static void twice_what_is_allowed_is_wrong(void **state) {
    static struct long_scene scene;
    (void)state;
    for (libdecode_dtype of_out = LIBDECODE_DTYPE_BF16; of_out <= LIBDECODE_DTYPE_E4M3; of_out++) {
        struct expectation expectation;
        struct mismatch mismatch;
        long_begin(&scene, LIBDECODE_DTYPE_E4M3, LIBDECODE_DTYPE_E4M3, of_out);
        assert_true(expectation_make(&scene.problem, &scene.tensors, 1, NULL, &expectation));
        for (size_t d = 0; d < DIM; d++) {
            const double toward = expectation.out[d] > 0 ? 1 : -1;
            double row[DIM];
            memcpy(row, expectation.out, sizeof row);
            row[d] += toward * 2 * expectation.out_tolerance[d];
            /* rounded to out, the error is at least three halves of what is allowed */
            element_encode_row(of_out, row, DIM, scene.out);
            expectation_compare(&expectation, &scene.problem, &scene.tensors, &mismatch);
            assert_int_equal(mismatch.count, 1);
            assert_int_equal(mismatch.element, d);
            assert_true(mismatch.worst_ratio > 1.2 && mismatch.worst_ratio < 2.8);
        }
        expectation_free(&expectation);
    }
}

/* With another dtype's tolerance a comparison would say nothing. */
static void the_tolerance_follows_the_kv_cache_and_the_result(void **state) {
    static struct long_scene scene;
    double largest[LIBDECODE_DTYPE_NVFP4 + 1][LIBDECODE_DTYPE_NVFP4 + 1] = {{0}};
    (void)state;
    for (libdecode_dtype kv = LIBDECODE_DTYPE_BF16; kv <= LIBDECODE_DTYPE_E4M3; kv++) {
        for (libdecode_dtype of_out = LIBDECODE_DTYPE_BF16; of_out <= LIBDECODE_DTYPE_FP16; of_out++) {
            struct expectation expectation;
            long_begin(&scene, kv == LIBDECODE_DTYPE_FP16 ? LIBDECODE_DTYPE_FP16 : LIBDECODE_DTYPE_BF16, kv, of_out);
            assert_true(expectation_make(&scene.problem, &scene.tensors, 1, NULL, &expectation));
            for (size_t d = 0; d < DIM; d++)
                largest[kv][of_out] = fmax(largest[kv][of_out], expectation.out_tolerance[d]);
            expectation_free(&expectation);
        }
    }
    /* a bf16 query does not make P bf16 */
    assert_true(largest[LIBDECODE_DTYPE_E4M3][LIBDECODE_DTYPE_FP16] < largest[LIBDECODE_DTYPE_BF16][LIBDECODE_DTYPE_FP16] / 4);
    assert_true(largest[LIBDECODE_DTYPE_FP16][LIBDECODE_DTYPE_FP16] < largest[LIBDECODE_DTYPE_BF16][LIBDECODE_DTYPE_FP16] / 4);
    assert_true(largest[LIBDECODE_DTYPE_E4M3][LIBDECODE_DTYPE_FP16] < largest[LIBDECODE_DTYPE_E4M3][LIBDECODE_DTYPE_BF16]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_rounding_explains_is_right_and_a_forgotten_token_is_not),
        cmocka_unit_test(huge_scores_keep_their_differences),
        cmocka_unit_test(e4m3_results_saturate_and_only_where_they_must),
        cmocka_unit_test(what_a_sink_leaves_may_vanish_where_f32_ends),
        cmocka_unit_test(nan_is_right_where_it_is_expected_and_nowhere_else),
        cmocka_unit_test(an_infinite_value_excuses_nothing_beside_it),
        cmocka_unit_test(a_code_may_move_only_where_its_value_lies_on_the_border),
        cmocka_unit_test(a_scale_may_not_move_nor_be_nan_nor_lie_elsewhere),
        cmocka_unit_test(a_scale_on_the_border_may_be_either),
        cmocka_unit_test(padding_columns_are_zero),
        cmocka_unit_test(nan_in_a_block_makes_it_nan),
        cmocka_unit_test(operands_of_16_bits_are_right_and_of_8_bits_are_not),
        cmocka_unit_test(twice_what_is_allowed_is_wrong),
        cmocka_unit_test(the_tolerance_follows_the_kv_cache_and_the_result),
    };
    return cmocka_run_group_tests_name("compare", tests, NULL, NULL);
}
