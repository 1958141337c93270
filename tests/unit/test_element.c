/* SPDX-License-Identifier: Apache-2.0 */
/* test_element.c: every code of every element format against formulas written another way, and the rounding at every midpoint. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "element.h"

static void expect_same(double actual, double expected, uint32_t code) {
    if (isnan(expected) ? !isnan(actual) : actual != expected || signbit(actual) != signbit(expected))
        fail_msg("code 0x%x: got %.17g, expected %.17g", code, actual, expected);
}

/* (-1)^sign * 2^(exponent - bias) * 1.fraction, with pow() instead of bit arithmetic. */
static double formula(uint32_t sign, uint32_t exponent, uint32_t fraction, double fraction_steps, int bias) {
    double magnitude = exponent == 0 ? pow(2, 1 - bias) * (fraction / fraction_steps)
                                     : pow(2, (int)exponent - bias) * (1 + fraction / fraction_steps);
    return sign != 0 ? -magnitude : magnitude;
}

static void every_bf16_code_is_the_upper_half_of_a_float(void **state) {
    (void)state;
    for (uint32_t code = 0; code < 65536; code++) {
        uint32_t bits = code << 16;
        float value;
        memcpy(&value, &bits, sizeof value);
        expect_same(bf16_decode((uint16_t)code), (double)value, code);
    }
}

static void every_fp16_code_follows_the_formula(void **state) {
    (void)state;
    for (uint32_t code = 0; code < 65536; code++) {
        uint32_t sign = code >> 15, exponent = code >> 10 & 31, fraction = code & 1023;
        double expected = formula(sign, exponent, fraction, 1024, 15);
        if (exponent == 31)
            expected = fraction != 0 ? (double)NAN : sign != 0 ? -(double)INFINITY : (double)INFINITY;
        expect_same(fp16_decode((uint16_t)code), expected, code);
    }
    expect_same(fp16_decode(0x3c00), 1, 0x3c00);
    expect_same(fp16_decode(0x7bff), 65504, 0x7bff);
}

static void every_e4m3_code_follows_the_formula(void **state) {
    (void)state;
    for (uint32_t code = 0; code < 256; code++) {
        double expected = formula(code >> 7, code >> 3 & 15, code & 7, 8, 7);
        expect_same(e4m3_decode((uint8_t)code), (code & 127) == 127 ? (double)NAN : expected, code);
    }
    expect_same(e4m3_decode(0x01), 0.001953125, 0x01); /* 2^-9 */
    expect_same(e4m3_decode(0x38), 1, 0x38);
    expect_same(e4m3_decode(0x7e), 448, 0x7e);
    expect_same(e4m3_decode(0xfe), -448, 0xfe);
}

static void every_e5m2_code_follows_the_formula_and_is_the_upper_byte_of_an_fp16(void **state) {
    (void)state;
    for (uint32_t code = 0; code < 256; code++) {
        uint32_t sign = code >> 7, exponent = code >> 2 & 31, fraction = code & 3;
        double expected = formula(sign, exponent, fraction, 4, 15);
        if (exponent == 31)
            expected = fraction != 0 ? (double)NAN : sign != 0 ? -(double)INFINITY : (double)INFINITY;
        expect_same(e5m2_decode((uint8_t)code), expected, code);
        expect_same(e5m2_decode((uint8_t)code), fp16_decode((uint16_t)(code << 8)), code);
    }
    expect_same(e5m2_decode(0x01), 0x1p-16, 0x01);
    expect_same(e5m2_decode(0x3d), 1.25, 0x3d);
    expect_same(e5m2_decode(0x7b), 57344, 0x7b);
    expect_same(e5m2_decode(0xfc), -(double)INFINITY, 0xfc);
}

static void every_e2m1_code_is_in_the_table(void **state) {
    static const double table[16] = {0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6};
    (void)state;
    for (uint8_t code = 0; code < 16; code++)
        expect_same(e2m1_decode(code), table[code], code);
    expect_same(e2m1_decode(0xf2), 1, 0xf2); /* the high four bits are another element's */
}

static uint32_t encode_e4m3(double value) { return e4m3_encode(value); }
static uint32_t encode_e5m2(double value) { return e5m2_encode(value); }
static uint32_t encode_e2m1(double value) { return e2m1_encode(value); }
static uint32_t encode_bf16(double value) { return bf16_encode(value); }
static uint32_t encode_fp16(double value) { return fp16_encode(value); }
static double decode_e4m3(uint32_t code) { return e4m3_decode((uint8_t)code); }
static double decode_e5m2(uint32_t code) { return e5m2_decode((uint8_t)code); }
static double decode_e2m1(uint32_t code) { return e2m1_decode((uint8_t)code); }
static double decode_bf16(uint32_t code) { return bf16_decode((uint16_t)code); }
static double decode_fp16(uint32_t code) { return fp16_decode((uint16_t)code); }

/* Codes 0 .. largest are the magnitudes in rising order: checks each, the midpoint to the next, and a hair to both its sides. */
static void check_rounding(uint32_t (*encode)(double), double (*decode)(uint32_t), uint32_t largest, uint32_t sign) {
    for (uint32_t code = 0; code <= largest; code++) {
        double value = decode(code);
        assert_int_equal(encode(value), code);
        assert_int_equal(encode(-value), code | sign);
        if (code == largest)
            break;
        double middle = (value + decode(code + 1)) / 2;
        uint32_t even = code + (code & 1);
        assert_int_equal(encode(middle), even);
        assert_int_equal(encode(-middle), even | sign);
        assert_int_equal(encode(nextafter(middle, 0)), code);
        assert_int_equal(encode(nextafter(middle, (double)INFINITY)), code + 1);
    }
}

static void encoding_takes_the_nearest_value_and_the_even_one_of_two(void **state) {
    (void)state;
    check_rounding(encode_bf16, decode_bf16, 0x7f7f, 0x8000);
    check_rounding(encode_fp16, decode_fp16, 0x7bff, 0x8000);
    check_rounding(encode_e4m3, decode_e4m3, 0x7e, 0x80);
    check_rounding(encode_e5m2, decode_e5m2, 0x7b, 0x80);
    check_rounding(encode_e2m1, decode_e2m1, 7, 8);
}

static void encoding_rounds_once_not_by_way_of_float(void **state) {
    (void)state;
    /* 1 + 2^-8 is the midpoint of two bf16; 2^-40 more decides, and a float would lose it. */
    assert_int_equal(bf16_encode(1 + 0x1p-8 + 0x1p-40), 0x3f81);
    assert_int_equal(fp16_encode(1 + 0x1p-11 + 0x1p-40), 0x3c01);
    assert_int_equal(e4m3_encode(1 + 0x1p-4 + 0x1p-40), 0x39);
    assert_int_equal(e5m2_encode(1 + 0x1p-3 + 0x1p-40), 0x3d);
}

static void values_out_of_range_become_infinite_or_saturate(void **state) {
    (void)state;
    assert_int_equal(bf16_encode(0x1.ffp127), 0x7f80); /* midpoint to 2^128, whose code is even */
    assert_int_equal(bf16_encode(0x1.fefffp127), 0x7f7f);
    assert_int_equal(bf16_encode(-1e308), 0xff80);
    assert_int_equal(bf16_encode((double)INFINITY), 0x7f80);
    assert_int_equal(fp16_encode(65519.99), 0x7bff);
    assert_int_equal(fp16_encode(65520), 0x7c00);
    assert_int_equal(e4m3_encode(464), 0x7e);
    assert_int_equal(e4m3_encode(480), 0x7e);
    assert_int_equal(e4m3_encode(-1e308), 0xfe);
    assert_int_equal(e4m3_encode((double)INFINITY), 0x7e);
    assert_int_equal(e5m2_encode(61439.99), 0x7b);
    assert_int_equal(e5m2_encode(61440), 0x7c);
    assert_int_equal(e5m2_encode(-1e308), 0xfc);
    assert_int_equal(e5m2_encode((double)INFINITY), 0x7c);
    assert_int_equal(e2m1_encode(1000), 7);
    assert_int_equal(e2m1_encode(-(double)INFINITY), 15);
    assert_int_equal(bf16_encode(1e-300), 0);
    assert_int_equal(fp16_encode(-1e-300), 0x8000);
}

static void nan_stays_nan(void **state) {
    (void)state;
    assert_true(isnan(bf16_decode(bf16_encode((double)NAN))));
    assert_true(isnan(fp16_decode(fp16_encode((double)NAN))));
    assert_true(isnan(e4m3_decode(e4m3_encode((double)NAN))));
    assert_true(isnan(e5m2_decode(e5m2_encode((double)NAN))));
    assert_int_equal(e2m1_encode((double)NAN), 7);
}

static void an_nvfp4_row_is_code_times_scale_with_the_even_element_in_the_low_nibble(void **state) {
    uint8_t codes[16] = {0x21, 0x9f};                   /* 0.5, 1, -6, -0.5, then zeros; second block: below */
    uint8_t scales[5] = {0x40, 0x7e, 0x7e, 0x7e, 0x30}; /* blocks lie 4 bytes apart: 2 and 0.5 */
    double values[32];
    (void)state;
    codes[8] = 0x57; /* 6, 3 */
    nvfp4_decode_row(codes, scales, 4, 32, values);
    assert_true(values[0] == 1 && values[1] == 2 && values[2] == -12 && values[3] == -1 && values[4] == 0);
    assert_true(values[16] == 3 && values[17] == 1.5 && values[18] == 0);
}

static void scales_lie_linear_or_interleaved_by_four_tokens(void **state) {
    size_t step;
    (void)state;
    assert_int_equal(nvfp4_scale_offset(LIBDECODE_SF_LINEAR, 24, 5, 128, &step), 120);
    assert_int_equal(step, 1);
    /* head_dim 128: 8 blocks. Token 6 lies in the second group of four, (6/4)*4*8 + 6%4. */
    assert_int_equal(nvfp4_scale_offset(LIBDECODE_SF_V_INTERLEAVE4, 8, 6, 128, &step), 34);
    assert_int_equal(nvfp4_scale_offset(LIBDECODE_SF_V_INTERLEAVE4, 5, 6, 80, &step), 22);
    assert_int_equal(step, 4);
}

static void a_block_is_scaled_so_that_its_largest_value_becomes_six(void **state) {
    double values[16] = {12, -6, 1, 0.4, -12};
    uint8_t codes[8];
    (void)state;
    assert_int_equal(nvfp4_encode_block(values, 1, codes), 0x40); /* 12 / 6 = 2 */
    /* 12/2 = 6, -6/2 = -3, 1/2 = 0.5, 0.4/2 = 0.2 -> 0, -6 */
    assert_int_equal(codes[0], 0xd7);
    assert_int_equal(codes[1], 0x01);
    assert_int_equal(codes[2], 0x0f);
    assert_int_equal(nvfp4_encode_block(values, 0.25, codes), 0x30); /* 0.25 * 12 / 6 = 0.5; the codes are the same */
    assert_int_equal(codes[0], 0xd7);
    assert_int_equal(nvfp4_encode_block(values, 1000, codes), 0x7e); /* 2000 saturates at 448; 12 * 1000 / 448 = 26.8 at 6 */
    assert_int_equal(codes[0], 0xf7);
    assert_int_equal(codes[1], 0x24); /* 1000 / 448 = 2.23 -> 2 (code 4, low nibble); 400 / 448 = 0.89 -> 1 (code 2) */
}

static void blocks_of_zero_or_nan_are_told_apart(void **state) {
    double values[16] = {0};
    uint8_t codes[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    static const uint8_t zeros[8] = {0};
    (void)state;
    assert_int_equal(nvfp4_encode_block(values, 1, codes), 0);
    assert_memory_equal(codes, zeros, 8);
    values[3] = 1e-6; /* its scale rounds to 0 */
    assert_int_equal(nvfp4_encode_block(values, 1, codes), 0);
    assert_memory_equal(codes, zeros, 8);
    values[2] = (double)NAN;
    assert_int_equal(nvfp4_encode_block(values, 1, codes), 0x7f);
}

static void swizzled_scales_fill_tiles_of_128_rows_by_4_columns(void **state) {
    static uint8_t hits[256 * 8];
    (void)state;
    assert_int_equal(nvfp4_swizzled_offset(0, 0, 8), 0);
    assert_int_equal(nvfp4_swizzled_offset(1, 0, 8), 16);
    assert_int_equal(nvfp4_swizzled_offset(32, 0, 8), 4);
    assert_int_equal(nvfp4_swizzled_offset(0, 3, 8), 3);
    assert_int_equal(nvfp4_swizzled_offset(0, 4, 8), 512);
    assert_int_equal(nvfp4_swizzled_offset(128, 0, 8), 1024);
    assert_int_equal(nvfp4_swizzled_offset(165, 6, 8), 1024 + 512 + 80 + 4 + 2);
    for (size_t row = 0; row < 256; row++)
        for (size_t column = 0; column < 8; column++)
            hits[nvfp4_swizzled_offset(row, column, 8)]++;
    for (size_t offset = 0; offset < sizeof hits; offset++)
        assert_int_equal(hits[offset], 1);
}

static void rows_of_each_dtype_survive_decoding_and_encoding(void **state) {
    uint16_t halves[4] = {0x3f80, 0xbf00, 0x0001, 0x7f7f}, halves_again[4];
    uint8_t bytes[4] = {0x38, 0xb0, 0x01, 0x7e}, bytes_again[4];
    double values[4];
    (void)state;
    element_decode_row(LIBDECODE_DTYPE_BF16, halves, 4, values);
    assert_true(values[0] == 1 && values[1] == -0.5);
    element_encode_row(LIBDECODE_DTYPE_BF16, values, 4, halves_again);
    assert_memory_equal(halves, halves_again, sizeof halves);
    halves[3] = 0x7bff;
    element_decode_row(LIBDECODE_DTYPE_FP16, halves, 4, values);
    assert_true(values[0] == 1.875);
    element_encode_row(LIBDECODE_DTYPE_FP16, values, 4, halves_again);
    assert_memory_equal(halves, halves_again, sizeof halves);
    element_decode_row(LIBDECODE_DTYPE_E4M3, bytes, 4, values);
    assert_true(values[0] == 1 && values[1] == -0.5 && values[3] == 448);
    element_encode_row(LIBDECODE_DTYPE_E4M3, values, 4, bytes_again);
    assert_memory_equal(bytes, bytes_again, sizeof bytes);
    element_decode_row(LIBDECODE_DTYPE_E5M2, bytes, 4, values);
    assert_true(values[0] == 0.5 && values[1] == -0.125 && values[2] == 0x1p-16 && isnan(values[3]));
    bytes[3] = 0x7f;
    element_encode_row(LIBDECODE_DTYPE_E5M2, values, 4, bytes_again);
    assert_memory_equal(bytes, bytes_again, sizeof bytes);
}

static void an_fp32_row_is_floats(void **state) {
    (void)state;
    const float row[] = {1.5f, -0x1p-149f, INFINITY};
    double values[3];
    float again[3];
    element_decode_row(LIBDECODE_DTYPE_FP32, row, 3, values);
    assert_true(values[0] == 1.5 && values[1] == -0x1p-149 && isinf(values[2]));
    element_encode_row(LIBDECODE_DTYPE_FP32, values, 3, again);
    assert_memory_equal(again, row, sizeof row);
    element_encode_row(LIBDECODE_DTYPE_FP32, (const double[]){1.0 + 0x1p-24, 1.0 + 0x1.8p-23, 1e300}, 3,
                       again); /* ties to even */
    assert_true(again[0] == 1.0f && again[1] == 1.0f + 0x1p-22f && isinf(again[2]));
}

static void a_dtype_that_has_no_rows_decodes_as_nan_and_encodes_nothing(void **state) {
    static const libdecode_dtype others[] = {LIBDECODE_DTYPE_DEFAULT, LIBDECODE_DTYPE_NVFP4, (libdecode_dtype)7};
    (void)state;
    for (size_t index = 0; index < sizeof others / sizeof others[0]; index++) {
        uint8_t row[4] = {0x38, 0x38, 0x38, 0x38}, before[4] = {0x38, 0x38, 0x38, 0x38};
        double values[2] = {7, 7};
        element_decode_row(others[index], row, 2, values);
        assert_true(isnan(values[0]) && isnan(values[1]));
        element_encode_row(others[index], (const double[]){1, 2}, 2, row);
        assert_memory_equal(row, before, sizeof row);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_bf16_code_is_the_upper_half_of_a_float),
        cmocka_unit_test(every_fp16_code_follows_the_formula),
        cmocka_unit_test(every_e4m3_code_follows_the_formula),
        cmocka_unit_test(every_e5m2_code_follows_the_formula_and_is_the_upper_byte_of_an_fp16),
        cmocka_unit_test(every_e2m1_code_is_in_the_table),
        cmocka_unit_test(encoding_takes_the_nearest_value_and_the_even_one_of_two),
        cmocka_unit_test(encoding_rounds_once_not_by_way_of_float),
        cmocka_unit_test(values_out_of_range_become_infinite_or_saturate),
        cmocka_unit_test(nan_stays_nan),
        cmocka_unit_test(an_nvfp4_row_is_code_times_scale_with_the_even_element_in_the_low_nibble),
        cmocka_unit_test(scales_lie_linear_or_interleaved_by_four_tokens),
        cmocka_unit_test(a_block_is_scaled_so_that_its_largest_value_becomes_six),
        cmocka_unit_test(blocks_of_zero_or_nan_are_told_apart),
        cmocka_unit_test(swizzled_scales_fill_tiles_of_128_rows_by_4_columns),
        cmocka_unit_test(rows_of_each_dtype_survive_decoding_and_encoding),
        cmocka_unit_test(an_fp32_row_is_floats),
        cmocka_unit_test(a_dtype_that_has_no_rows_decodes_as_nan_and_encodes_nothing),
    };
    return cmocka_run_group_tests_name("element", tests, NULL, NULL);
}
