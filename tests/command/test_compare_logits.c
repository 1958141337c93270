/* SPDX-License-Identifier: Apache-2.0 */
/* test_compare_logits.c: what `libdecode check` allows where a soft cap, ALiBi or RoPE changes the logits, and the base of the lse. */
#include "compare_scene.h"

#include <math.h>

/* Logits of 0 and 4 ln(2) become 0 and less; a cap of a million costs none of its own digits. */
static void a_soft_cap_is_exact_to_a_few_units_of_what_it_leaves(void **state) {
    static const float caps[] = {2, 1e6f};
    libdecode_problem problem = problem_of(LIBDECODE_DTYPE_FP16);
    const libdecode_tensors tensors = tensors_of(LIBDECODE_DTYPE_FP16, 4);
    (void)state;
    problem.features = LIBDECODE_FEATURE_SOFT_CAP;
    for (size_t index = 0; index < 2; index++) {
        const double cap = (double)caps[index], logit = cap * tanh(4 * log(2) / cap), lse = log2(1 + exp(logit));
        struct expectation expectation;
        problem.logits_soft_cap = caps[index];
        assert_true(expectation_make(&problem, &tensors, 1, NULL, &expectation));
        assert_true(fabs(expectation.lse[0] - lse) < 1e-6 && fabs(expectation.out[0] - (3 - 2 / (1 + exp(logit)))) < 1e-6);
        assert_int_equal(compare(&expectation, &problem, expectation.out[0], (float)lse).count, 0);
        assert_int_equal(compare(&expectation, &problem, expectation.out[0], (float)lse + 0.001f).count, 1);
        assert_int_equal(compare(&expectation, &problem, 3 - 2.0 / 17, (float)lse).count,
                         cap > 2 ? 0 : DIM); /* as without a cap */
        expectation_free(&expectation);
    }
}

/* Tokens that weigh the same, of scores of 2^20: one may be off by half a digit of them, 2^-4, and yet neither is missing. */
static void a_huge_score_may_lose_half_a_digit_of_f32(void **state) {
    static const float scale = 0x1p18f;
    libdecode_problem problem = problem_of(LIBDECODE_DTYPE_FP16);
    libdecode_tensors tensors = tensors_of(LIBDECODE_DTYPE_FP16, 4);
    const float lse = 0x1p20f + 1;
    struct expectation expectation;
    (void)state;
    memcpy(k, k + DIM, sizeof k[0]);
    tensors.bmm1_scale_log2_device = &scale;
    assert_true(expectation_make(&problem, &tensors, 1, NULL, &expectation));
    assert_true(expectation.out[0] == 2);
    assert_int_equal(compare(&expectation, &problem, 3 - 2 / (1 + exp2(0x1p-4)), lse).count, 0);
    assert_int_equal(compare(&expectation, &problem, 3 - 2 / (1 + exp2(-0x1p-4)), lse).count, 0);
    assert_int_equal(compare(&expectation, &problem, 3, lse).count, DIM);
    assert_int_equal(compare(&expectation, &problem, 1, lse).count, DIM);
    expectation_free(&expectation);
}

/* The bias is as long as the distance: what f32 loses of it is allowed for, and the next token is not taken for this one. */
static void alibi_is_exact_to_a_few_units_of_the_bias(void **state) {
    libdecode_problem problem = problem_of(LIBDECODE_DTYPE_FP16);
    libdecode_tensors tensors = tensors_of(LIBDECODE_DTYPE_FP16, 0);
    static const int32_t position[1] = {100001};
    const float slope = -0.125f;
    struct expectation expectation;
    (void)state;
    problem.features = LIBDECODE_FEATURE_ALIBI | LIBDECODE_FEATURE_QUERY_POSITIONS;
    tensors.alibi_slopes = &slope;
    tensors.query_positions = position;
    assert_true(expectation_make(&problem, &tensors, 1, NULL, &expectation));
    /* biases of 12500.125 and 12500: weights e^0.125 and 1 */
    const double lse = (12500.125 + log(1 + exp(-0.125))) / log(2), expected = 3 - 2 / (1 + exp(-0.125));
    assert_true(fabs(expectation.lse[0] - lse) < 1e-6 && fabs(expectation.out[0] - expected) < 1e-6);
    assert_int_equal(compare(&expectation, &problem, expected, (float)lse).count, 0);
    assert_int_equal(compare(&expectation, &problem, expected, (float)(lse * (1 + 0x1p-22))).count, 0);
    assert_int_equal(compare(&expectation, &problem, expected, (float)(lse * (1 + 0x1p-20))).count, 1);
    assert_int_equal(compare(&expectation, &problem, 3 - 2 / (1 + exp(0.125)), (float)lse).count, DIM); /* the other sign */
    assert_int_equal(compare(&expectation, &problem, 2, (float)lse).count, DIM);                        /* no bias */
    expectation_free(&expectation);
}

/* The bias of the nearer token is 12500 behind, and the query 100000 from position 0: the lse may be off by units of both, and no more. */
static void an_lse_of_biases_from_position_0_is_exact_to_a_few_units_of_the_shift(void **state) {
    libdecode_problem problem = problem_of(LIBDECODE_DTYPE_FP16);
    libdecode_tensors tensors = tensors_of(LIBDECODE_DTYPE_FP16, 0);
    static const float slopes[1] = {-0.125f};
    static const int32_t position[1] = {100001};
    struct expectation expectation, plain;
    (void)state;
    problem.features = LIBDECODE_FEATURE_LSE | LIBDECODE_FEATURE_ALIBI | LIBDECODE_FEATURE_QUERY_POSITIONS;
    tensors.alibi_slopes = slopes;
    tensors.query_positions = position;
    assert_true(expectation_make(&problem, &tensors, 1, NULL, &plain));
    problem.features |= LIBDECODE_FEATURE_LSE_ALIBI_FROM_ZERO;
    assert_true(expectation_make(&problem, &tensors, 1, NULL, &expectation));
    const double lse = log2(1 + exp(-0.125)), shift = 12500.125 / log(2);
    assert_true(fabs(expectation.lse[0] - lse) < 1e-6);
    const double expected = expectation.out[0];
    assert_int_equal(compare(&expectation, &problem, expected, (float)lse).count, 0);
    assert_int_equal(compare(&expectation, &problem, expected, (float)(lse + shift * 0x1p-22)).count, 0);
    assert_int_equal(compare(&expectation, &problem, expected, (float)(lse + shift * 0x1p-19)).count, 1);
    assert_memory_equal(expectation.out_tolerance, plain.out_tolerance, DIM * sizeof(double)); /* the lse alone has it */
    expectation_free(&plain);
    expectation_free(&expectation);
}

/* Weights 16 and 1 of V 3 and 1: that the lesser token is missing is allowed where its weight is that of a whole factor. */
static void skipping_may_lose_what_the_factor_says(void **state) {
    libdecode_problem problem = problem_of(LIBDECODE_DTYPE_FP16);
    const libdecode_tensors tensors = tensors_of(LIBDECODE_DTYPE_FP16, 4);
    static const struct {
        float factor;
        bool may_lose;
    } factors[] = {{0.001f, false}, {0.07f, true}, {1.9f, true}, {2, false}}; /* 2 tokens: a threshold of 1 is none */
    (void)state;
    problem.features = LIBDECODE_FEATURE_SKIP_SOFTMAX;
    for (size_t index = 0; index < sizeof factors / sizeof factors[0]; index++) {
        struct expectation expectation;
        problem.skip_softmax_threshold_scale_factor = factors[index].factor;
        assert_true(expectation_make(&problem, &tensors, 1, NULL, &expectation));
        assert_int_equal(compare(&expectation, &problem, 3 - 2.0 / 17, (float)log2(17)).count, 0);
        assert_int_equal(compare(&expectation, &problem, 3, 4).count, factors[index].may_lose ? 0 : DIM + 1);
        expectation_free(&expectation);
    }
}

/* What operands of 16 bits lose of a rotated score is allowed for, and an angle of the next token is not. */
static void rope_is_exact_to_what_its_operands_are_rounded_to(void **state) {
    static const struct {
        libdecode_dtype dtype;
        double rounding;
    } formats[] = {{LIBDECODE_DTYPE_FP16, 0x1p-11}, {LIBDECODE_DTYPE_BF16, 0x1p-8}};
    (void)state;
    for (size_t index = 0; index < 2; index++) {
        libdecode_problem problem = problem_of(formats[index].dtype);
        libdecode_tensors tensors = tensors_of(formats[index].dtype, 0);
        static const int32_t position[1] = {3};
        struct expectation expectation;
        problem.features = LIBDECODE_FEATURE_ROPE | LIBDECODE_FEATURE_QUERY_POSITIONS;
        tensors.query_positions = position;
        element_encode_row(formats[index].dtype, (const double[]){4}, 1, (uint8_t *)k); /* logits 4 cos(3) and 0, to base 2 */
        assert_true(expectation_make(&problem, &tensors, 1, NULL, &expectation));
        const double logit = 4 * cos(3), lse = log2(exp2(logit) + 1), expected = 3 - 2 * exp2(logit - lse);
        assert_true(fabs(expectation.lse[0] - lse) < 1e-6 && fabs(expectation.out[0] - expected) < 1e-6);
        assert_int_equal(compare(&expectation, &problem, expected, (float)lse).count, 0);
        /* |q| |k| is 4, times ln(2) */
        const double allowed = 8 * 2 * formats[index].rounding / sqrt(3) * 4;
        assert_int_equal(compare(&expectation, &problem, expected, (float)(lse + 0.9 * allowed)).count, 0);
        assert_int_equal(compare(&expectation, &problem, expected, (float)(lse + 1.1 * allowed + 0.001)).count, 1);
        assert_int_equal(compare(&expectation, &problem, 1 + 2.0 / 17, (float)lse).count, DIM); /* logits 4 and 0: not rotated */
        expectation_free(&expectation);
    }
}

static void an_lse_of_base_e_is_expected_where_it_is_asked_for(void **state) {
    libdecode_problem problem = problem_of(LIBDECODE_DTYPE_BF16);
    const libdecode_tensors tensors = tensors_of(LIBDECODE_DTYPE_BF16, 0);
    struct expectation expectation;
    (void)state;
    problem.features = LIBDECODE_FEATURE_LSE | LIBDECODE_FEATURE_LSE_NATURAL;
    assert_true(expectation_make(&problem, &tensors, 1, NULL, &expectation));
    assert_true(fabs(expectation.lse[0] - log(2)) < 1e-12);
    assert_int_equal(compare(&expectation, &problem, 2, (float)log(2)).count, 0);
    assert_int_equal(compare(&expectation, &problem, 2, 1).count, 1);
    expectation_free(&expectation);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_soft_cap_is_exact_to_a_few_units_of_what_it_leaves),
        cmocka_unit_test(a_huge_score_may_lose_half_a_digit_of_f32),
        cmocka_unit_test(alibi_is_exact_to_a_few_units_of_the_bias),
        cmocka_unit_test(an_lse_of_biases_from_position_0_is_exact_to_a_few_units_of_the_shift),
        cmocka_unit_test(skipping_may_lose_what_the_factor_says),
        cmocka_unit_test(rope_is_exact_to_what_its_operands_are_rounded_to),
        cmocka_unit_test(an_lse_of_base_e_is_expected_where_it_is_asked_for),
    };
    return cmocka_run_group_tests_name("compare_logits", tests, NULL, NULL);
}
