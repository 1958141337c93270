/* SPDX-License-Identifier: Apache-2.0 */
/* test_mla_choice.c: of the kernels of MLA the one that is predicted to be the fastest is so, or nearly, by what each was measured to take. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernel_choice.h"
#include "mla_scene.h"

enum { MOST_KERNELS = 9 };
struct measured_case {
    int32_t heads, batch_size, tokens;
    double measured_us[MOST_KERNELS];
};

static void expect_fast_choices(const libdecode_device *device, const struct kernel_shape *kernels, size_t num_kernels,
                                const struct measured_case *cases, size_t num_cases, double most, double within) {
    for (size_t i = 0; i < num_cases; i++) {
        const struct problem problem = bf16_batch(cases[i].heads, cases[i].batch_size, cases[i].tokens);
        expect_fast_choice(&family_mla_decode, &problem, device, contract_of(16, KERNEL_DTYPE_BF16), kernels,
                           cases[i].measured_us, num_kernels, most, within);
    }
}

static const struct kernel_shape kernels_16_bit[] = {{16, 1, 32}, {16, 2, 32}, {16, 4, 32}, {16, 8, 32}, {32, 1, 64},
                                                     {32, 8, 64}, {64, 1, 64}, {64, 2, 64}, {64, 4, 64}};

/* us, all kernels in turns, since single CTAs of 16 and 32 rows deal out parts: the one that is predicted to be the fastest is so, or nearly. */
static void the_fastest_kernel_of_an_h200_is_predicted(void **state) {
    (void)state;
    static const struct measured_case cases[] = {
        {16, 1, 1024, {10.7, 11.1, 8.2, 8.4, 13.3, 9.2, 13.5, 13.1, 12.5}},
        {16, 1, 4096, {15.0, 16.4, 11.2, 9.9, 17.9, 12.7, 18.1, 16.6, 15.0}},
        {16, 1, 32768, {28.0, 35.3, 22.4, 20.1, 36.2, 25.9, 35.1, 30.5, 26.8}},
        {16, 4, 4096, {15.7, 18.5, 14.2, 13.5, 20.7, 17.8, 19.4, 19.7, 18.5}},
        {16, 16, 4096, {27.9, 28.8, 26.6, 30.4, 30.9, 40.0, 29.9, 30.5, 33.5}},
        {16, 64, 4096, {78.4, 74.4, 81.7, 82.5, 85.8, 125.7, 83.2, 78.5, 90.0}},
        {16, 128, 4096, {141.3, 143.6, 152.7, 152.8, 149.4, 240.4, 144.4, 152.0, 164.1}},
        {64, 1, 4096, {15.6, 17.3, 12.9, 12.2, 18.6, 14.2, 19.7, 18.2, 16.7}},
        {64, 1, 32768, {33.7, 36.9, 32.8, 34.8, 36.7, 38.3, 36.9, 32.7, 28.6}},
        {64, 4, 4096, {19.6, 20.6, 26.0, 24.9, 20.8, 29.6, 20.8, 21.7, 19.9}},
        {64, 8, 4096, {28.7, 29.1, 34.7, 39.9, 28.2, 39.9, 24.6, 23.4, 24.1}},
        {64, 16, 4096, {50.2, 46.0, 60.0, 80.8, 46.3, 69.4, 32.4, 32.2, 34.5}},
        {64, 24, 4096, {73.3, 77.4, 89.3, 115.5, 70.2, 98.2, 42.8, 42.3, 38.8}},
        {64, 32, 4096, {87.0, 90.4, 116.1, 165.9, 82.9, 127.2, 50.4, 50.6, 55.3}},
        {64, 64, 4096, {169.0, 175.7, 212.5, 288.1, 146.6, 243.4, 90.6, 83.0, 96.4}},
        {64, 128, 4096, {347.5, 361.9, 425.5, 567.0, 301.7, 494.3, 147.7, 156.8, 177.8}},
        {128, 1, 1024, {12.2, 12.3, 9.9, 8.8, 14.7, 11.2, 15.5, 14.9, 13.9}},
        {128, 1, 4096, {15.9, 17.8, 14.7, 15.9, 18.8, 17.0, 20.1, 19.2, 16.8}},
        {128, 1, 32768, {50.7, 51.4, 55.1, 54.8, 48.7, 62.4, 38.0, 33.0, 31.4}},
        {128, 4, 4096, {29.0, 28.4, 34.4, 39.5, 27.9, 39.2, 22.2, 21.7, 22.8}},
        {128, 4, 8192, {48.7, 48.2, 55.8, 60.5, 44.9, 63.0, 27.9, 27.4, 30.0}},
        {128, 8, 4096, {49.7, 46.0, 59.2, 69.4, 45.7, 68.2, 26.6, 26.7, 32.8}},
        {128, 8, 8192, {89.9, 84.6, 103.7, 114.4, 79.8, 116.3, 39.3, 39.4, 47.9}},
        {128, 16, 4096, {86.8, 88.4, 109.8, 148.3, 82.2, 126.8, 40.2, 40.6, 50.5}},
        {128, 24, 4096, {133.3, 132.7, 161.1, 216.3, 142.6, 185.3, 58.2, 62.5, 71.0}},
        {128, 32, 4096, {171.4, 177.4, 213.8, 286.1, 147.3, 245.5, 68.1, 63.1, 85.6}},
        {128, 64, 4096, {344.2, 359.9, 423.6, 562.6, 295.6, 485.1, 112.9, 124.8, 158.5}},
        {128, 128, 4096, {681.9, 727.8, 868.1, 1112.0, 606.2, 1000.9, 224.8, 249.3, 308.4}},
        {128, 128, 8192, {1362.0, 1421.7, 1693.8, 2208.6, 1245.1, 1903.0, 435.7, 468.7, 541.8}},
    };
    const libdecode_device device = measured_h200();
    expect_fast_choices(&device, kernels_16_bit, COUNT(kernels_16_bit), cases, COUNT(cases), 1.05, 0.2);
}

struct fp8_case {
    libdecode_dtype query_dtype;
    struct measured_case of;
};

/* Pages of 64 tokens, where queries of e4m3 multiply K of e4m3 as it lies. */
static struct problem batch_of(libdecode_dtype query_dtype, libdecode_dtype kv_dtype, int32_t head_dim,
                               const struct measured_case *of) {
    struct problem problem = bf16_batch(of->heads, of->batch_size, of->tokens);
    libdecode_problem given = problem.given;
    given.query_dtype = query_dtype;
    given.kv_dtype = kv_dtype;
    given.head_dim = head_dim;
    given.v_head_dim = 0; /* as head_dim has it */
    given.page_size = 64;
    assert_int_equal(problem_check(&given, &problem), LIBDECODE_OK);
    return problem;
}

static void expect_fast_choices_of_fp8(const libdecode_device *device, const struct fp8_case *cases, size_t num_cases) {
    static const struct kernel_shape kernels[] = {{16, 1, 64}, {16, 2, 64}, {16, 4, 32}, {16, 8, 32}, {64, 1, 64}};
    for (size_t i = 0; i < num_cases; i++) {
        const struct problem problem = batch_of(cases[i].query_dtype, LIBDECODE_DTYPE_E4M3, 576, &cases[i].of);
        expect_fast_choice(&family_mla_decode, &problem, device, contract_of(16, KERNEL_DTYPE_E4M3), kernels,
                           cases[i].of.measured_us, COUNT(kernels), 1.05, 0.2);
    }
}

/*
 * FP8 KV on an H200 and on an H100, in those runs. Single CTAs and pairs of 16 rows have tiles of 64 tokens, which queries of e4m3 multiply
 * as they lie.
 */
static void the_fastest_kernel_of_fp8_is_predicted(void **state) {
    (void)state;
    static const struct fp8_case cases[] = {
        {LIBDECODE_DTYPE_E4M3, {16, 1, 1024, {9.8, 9.6, 8.4, 8.1, 15.9}}},
        {LIBDECODE_DTYPE_E4M3, {16, 1, 4096, {13.0, 14.0, 11.1, 9.5, 21.0}}},
        {LIBDECODE_DTYPE_E4M3, {16, 1, 32768, {24.7, 29.2, 22.5, 17.4, 38.7}}},
        {LIBDECODE_DTYPE_E4M3, {16, 4, 4096, {14.4, 16.3, 14.8, 12.4, 22.2}}},
        {LIBDECODE_DTYPE_E4M3, {16, 16, 4096, {19.5, 20.1, 24.6, 25.0, 29.5}}},
        {LIBDECODE_DTYPE_E4M3, {16, 32, 4096, {28.5, 29.0, 36.6, 40.4, 41.3}}},
        {LIBDECODE_DTYPE_E4M3, {16, 64, 4096, {48.2, 44.4, 66.3, 74.1, 65.7}}},
        {LIBDECODE_DTYPE_E4M3, {16, 128, 4096, {80.5, 83.7, 122.0, 139.6, 102.9}}},
        {LIBDECODE_DTYPE_E4M3, {16, 128, 8192, {146.0, 151.7, 322.9, 228.6, 185.9}}},
        {LIBDECODE_DTYPE_E4M3, {64, 1, 4096, {13.9, 15.2, 12.9, 11.9, 21.5}}},
        {LIBDECODE_DTYPE_E4M3, {64, 1, 32768, {26.9, 30.8, 35.0, 37.0, 39.7}}},
        {LIBDECODE_DTYPE_E4M3, {64, 4, 4096, {16.9, 17.9, 24.1, 25.4, 23.0}}},
        {LIBDECODE_DTYPE_E4M3, {64, 8, 4096, {22.0, 23.0, 35.8, 40.2, 25.7}}},
        {LIBDECODE_DTYPE_E4M3, {64, 16, 4096, {36.6, 33.9, 65.3, 74.2, 30.7}}},
        {LIBDECODE_DTYPE_E4M3, {64, 64, 4096, {112.3, 121.1, 226.3, 260.3, 68.9}}},
        {LIBDECODE_DTYPE_E4M3, {64, 128, 4096, {223.0, 240.7, 442.2, 513.8, 109.2}}},
        {LIBDECODE_DTYPE_E4M3, {128, 1, 1024, {11.5, 10.8, 10.3, 9.3, 17.3}}},
        {LIBDECODE_DTYPE_E4M3, {128, 1, 4096, {14.5, 15.8, 15.6, 17.4, 21.8}}},
        {LIBDECODE_DTYPE_E4M3, {128, 1, 32768, {37.1, 38.5, 59.8, 58.9, 40.6}}},
        {LIBDECODE_DTYPE_E4M3, {128, 4, 4096, {22.8, 23.4, 36.2, 40.7, 24.6}}},
        {LIBDECODE_DTYPE_E4M3, {128, 8, 8192, {62.0, 59.1, 110.8, 120.2, 38.5}}},
        {LIBDECODE_DTYPE_E4M3, {128, 16, 4096, {58.0, 62.5, 118.4, 136.5, 39.6}}},
        {LIBDECODE_DTYPE_E4M3, {128, 32, 4096, {111.1, 119.2, 224.5, 258.3, 63.5}}},
        {LIBDECODE_DTYPE_E4M3, {128, 64, 4096, {218.6, 235.9, 438.7, 510.5, 96.2}}},
        {LIBDECODE_DTYPE_E4M3, {128, 128, 4096, {435.5, 465.1, 875.1, 1015.5, 189.5}}},
        {LIBDECODE_DTYPE_E4M3, {128, 128, 8192, {834.7, 869.1, 1630.0, 1788.4, 355.0}}},
        {LIBDECODE_DTYPE_BF16, {16, 1, 1024, {11.3, 11.0, 8.7, 8.3, 18.3}}},
        {LIBDECODE_DTYPE_BF16, {16, 1, 4096, {15.3, 16.4, 11.4, 9.7, 24.0}}},
        {LIBDECODE_DTYPE_BF16, {16, 1, 32768, {27.3, 35.2, 22.9, 17.4, 44.2}}},
        {LIBDECODE_DTYPE_BF16, {16, 4, 4096, {16.6, 17.7, 15.6, 12.5, 25.6}}},
        {LIBDECODE_DTYPE_BF16, {16, 16, 4096, {21.0, 21.6, 24.8, 25.5, 35.6}}},
        {LIBDECODE_DTYPE_BF16, {16, 32, 4096, {30.1, 30.6, 37.0, 41.3, 49.0}}},
        {LIBDECODE_DTYPE_BF16, {16, 64, 4096, {51.1, 47.8, 67.2, 75.4, 78.0}}},
        {LIBDECODE_DTYPE_BF16, {16, 128, 4096, {90.0, 95.8, 124.0, 142.1, 122.8}}},
        {LIBDECODE_DTYPE_BF16, {16, 128, 8192, {168.0, 176.3, 237.7, 231.9, 220.7}}},
        {LIBDECODE_DTYPE_BF16, {64, 1, 4096, {16.3, 17.0, 13.2, 12.2, 24.7}}},
        {LIBDECODE_DTYPE_BF16, {64, 1, 32768, {33.4, 36.7, 35.0, 37.3, 44.9}}},
        {LIBDECODE_DTYPE_BF16, {64, 4, 4096, {20.2, 20.7, 24.7, 26.0, 26.5}}},
        {LIBDECODE_DTYPE_BF16, {64, 8, 4096, {28.8, 28.8, 36.4, 41.0, 30.4}}},
        {LIBDECODE_DTYPE_BF16, {64, 16, 4096, {50.3, 47.2, 66.2, 75.4, 36.6}}},
        {LIBDECODE_DTYPE_BF16, {64, 64, 4096, {168.5, 178.1, 228.0, 263.5, 82.3}}},
        {LIBDECODE_DTYPE_BF16, {64, 128, 4096, {337.8, 352.7, 445.5, 520.5, 132.9}}},
        {LIBDECODE_DTYPE_BF16, {128, 1, 1024, {12.7, 12.3, 10.6, 9.6, 19.9}}},
        {LIBDECODE_DTYPE_BF16, {128, 1, 4096, {16.3, 17.5, 15.9, 17.7, 25.4}}},
        {LIBDECODE_DTYPE_BF16, {128, 1, 32768, {50.9, 52.2, 60.8, 59.9, 46.9}}},
        {LIBDECODE_DTYPE_BF16, {128, 4, 4096, {29.8, 29.5, 37.0, 41.8, 29.1}}},
        {LIBDECODE_DTYPE_BF16, {128, 8, 8192, {90.2, 87.3, 111.9, 121.8, 48.0}}},
        {LIBDECODE_DTYPE_BF16, {128, 16, 4096, {86.1, 91.1, 120.3, 139.7, 49.1}}},
        {LIBDECODE_DTYPE_BF16, {128, 32, 4096, {168.4, 178.2, 228.0, 263.4, 79.1}}},
        {LIBDECODE_DTYPE_BF16, {128, 64, 4096, {335.6, 350.6, 444.2, 518.6, 123.5}}},
        {LIBDECODE_DTYPE_BF16, {128, 128, 4096, {657.1, 689.8, 880.6, 1029.4, 244.1}}},
        {LIBDECODE_DTYPE_BF16, {128, 128, 8192, {1276.2, 1308.8, 1620.7, 1782.1, 457.1}}},
    };
    static const struct fp8_case on_h100[] = {
        {LIBDECODE_DTYPE_E4M3, {16, 1, 1024, {10.3, 9.7, 8.5, 8.1, 16.4}}},
        {LIBDECODE_DTYPE_E4M3, {16, 1, 4096, {12.8, 13.9, 10.9, 9.4, 20.6}}},
        {LIBDECODE_DTYPE_E4M3, {16, 1, 32768, {24.4, 28.5, 21.4, 18.7, 38.7}}},
        {LIBDECODE_DTYPE_E4M3, {16, 4, 4096, {15.1, 17.0, 13.8, 12.8, 22.7}}},
        {LIBDECODE_DTYPE_E4M3, {16, 16, 4096, {24.3, 24.4, 29.6, 27.9, 33.8}}},
        {LIBDECODE_DTYPE_E4M3, {16, 64, 4096, {64.5, 60.7, 69.0, 75.6, 78.3}}},
        {LIBDECODE_DTYPE_E4M3, {16, 128, 4096, {111.8, 113.5, 123.8, 138.4, 123.0}}},
        {LIBDECODE_DTYPE_E4M3, {64, 1, 4096, {13.8, 15.2, 12.8, 11.8, 21.2}}},
        {LIBDECODE_DTYPE_E4M3, {64, 1, 32768, {26.4, 30.1, 35.2, 35.9, 39.2}}},
        {LIBDECODE_DTYPE_E4M3, {64, 4, 4096, {16.8, 17.7, 23.5, 24.7, 23.3}}},
        {LIBDECODE_DTYPE_E4M3, {64, 16, 4096, {36.0, 33.6, 64.0, 75.8, 34.8}}},
        {LIBDECODE_DTYPE_E4M3, {64, 64, 4096, {110.2, 119.6, 222.6, 258.4, 80.9}}},
        {LIBDECODE_DTYPE_E4M3, {64, 128, 4096, {219.0, 236.8, 434.4, 505.6, 127.1}}},
        {LIBDECODE_DTYPE_E4M3, {128, 1, 1024, {11.6, 10.9, 10.3, 9.3, 17.3}}},
        {LIBDECODE_DTYPE_E4M3, {128, 1, 4096, {14.6, 15.7, 15.3, 17.0, 21.8}}},
        {LIBDECODE_DTYPE_E4M3, {128, 1, 32768, {36.5, 37.7, 58.4, 57.4, 40.8}}},
        {LIBDECODE_DTYPE_E4M3, {128, 4, 4096, {22.5, 23.2, 35.0, 39.5, 25.1}}},
        {LIBDECODE_DTYPE_E4M3, {128, 8, 8192, {60.5, 57.7, 107.4, 119.1, 40.0}}},
        {LIBDECODE_DTYPE_E4M3, {128, 16, 4096, {56.6, 60.9, 115.2, 135.5, 41.1}}},
        {LIBDECODE_DTYPE_E4M3, {128, 32, 4096, {108.7, 117.2, 219.9, 255.3, 64.9}}},
        {LIBDECODE_DTYPE_E4M3, {128, 64, 4096, {213.8, 230.3, 437.7, 512.2, 99.3}}},
        {LIBDECODE_DTYPE_E4M3, {128, 128, 4096, {435.4, 476.9, 875.4, 1022.0, 196.4}}},
        {LIBDECODE_DTYPE_E4M3, {128, 128, 8192, {835.5, 897.8, 1661.2, 1832.3, 366.7}}},
        {LIBDECODE_DTYPE_BF16, {16, 1, 1024, {11.7, 11.0, 8.7, 8.3, 18.9}}},
        {LIBDECODE_DTYPE_BF16, {16, 1, 4096, {15.0, 16.2, 11.2, 9.6, 24.2}}},
        {LIBDECODE_DTYPE_BF16, {16, 1, 32768, {27.6, 34.9, 21.6, 18.9, 44.4}}},
        {LIBDECODE_DTYPE_BF16, {16, 4, 4096, {17.5, 18.3, 13.8, 12.8, 26.5}}},
        {LIBDECODE_DTYPE_BF16, {16, 16, 4096, {25.5, 25.5, 29.7, 28.5, 39.8}}},
        {LIBDECODE_DTYPE_BF16, {16, 64, 4096, {66.4, 62.1, 70.4, 77.9, 84.5}}},
        {LIBDECODE_DTYPE_BF16, {16, 128, 4096, {114.8, 118.9, 128.9, 145.5, 128.8}}},
        {LIBDECODE_DTYPE_BF16, {64, 1, 4096, {16.4, 16.9, 13.2, 12.1, 24.9}}},
        {LIBDECODE_DTYPE_BF16, {64, 1, 32768, {33.0, 36.2, 35.5, 36.8, 45.0}}},
        {LIBDECODE_DTYPE_BF16, {64, 4, 4096, {19.7, 20.3, 24.0, 25.2, 27.0}}},
        {LIBDECODE_DTYPE_BF16, {64, 16, 4096, {49.5, 46.3, 65.3, 77.5, 40.6}}},
        {LIBDECODE_DTYPE_BF16, {64, 64, 4096, {169.4, 178.9, 229.0, 267.2, 89.2}}},
        {LIBDECODE_DTYPE_BF16, {64, 128, 4096, {335.2, 350.1, 441.0, 517.2, 139.5}}},
        {LIBDECODE_DTYPE_BF16, {128, 1, 1024, {12.7, 12.3, 10.6, 9.6, 19.8}}},
        {LIBDECODE_DTYPE_BF16, {128, 1, 4096, {16.1, 17.3, 15.6, 17.2, 25.4}}},
        {LIBDECODE_DTYPE_BF16, {128, 1, 32768, {50.0, 50.7, 59.3, 58.6, 48.1}}},
        {LIBDECODE_DTYPE_BF16, {128, 4, 4096, {28.6, 28.8, 35.8, 40.5, 29.4}}},
        {LIBDECODE_DTYPE_BF16, {128, 8, 8192, {87.3, 84.5, 108.8, 119.9, 48.1}}},
        {LIBDECODE_DTYPE_BF16, {128, 16, 4096, {83.8, 88.4, 117.0, 137.6, 49.2}}},
        {LIBDECODE_DTYPE_BF16, {128, 32, 4096, {164.4, 173.8, 222.7, 260.1, 78.8}}},
        {LIBDECODE_DTYPE_BF16, {128, 64, 4096, {333.8, 347.3, 436.0, 509.2, 123.3}}},
        {LIBDECODE_DTYPE_BF16, {128, 128, 4096, {658.9, 689.3, 873.9, 1036.0, 247.9}}},
        {LIBDECODE_DTYPE_BF16, {128, 128, 8192, {1277.3, 1308.8, 1646.4, 1809.8, 463.1}}},
    };
    const libdecode_device h200 = measured_h200(), h100 = measured_h100();
    expect_fast_choices_of_fp8(&h200, cases, COUNT(cases));
    expect_fast_choices_of_fp8(&h100, on_h100, COUNT(on_h100));
}

/*
 * The same of an H100, whose memory gives 70 % of an H200's, but not its second cache: with several groups of heads more is read from that.
 */
static void the_fastest_kernel_of_an_h100_is_predicted(void **state) {
    (void)state;
    static const struct measured_case cases[] = {
        {16, 1, 1024, {11.0, 11.0, 8.2, 8.3, 13.7, 9.2, 13.9, 13.3, 12.4}},
        {16, 1, 4096, {14.4, 16.1, 11.6, 10.2, 17.7, 12.9, 17.8, 16.5, 15.1}},
        {16, 1, 32768, {29.7, 34.6, 25.3, 23.4, 37.1, 27.3, 35.9, 32.2, 29.1}},
        {16, 4, 4096, {17.3, 18.9, 15.3, 14.8, 22.2, 18.4, 20.4, 20.5, 19.5}},
        {16, 16, 4096, {35.5, 35.8, 32.7, 35.6, 38.9, 41.0, 38.1, 38.5, 37.6}},
        {16, 64, 4096, {108.3, 106.9, 117.9, 129.3, 116.3, 122.8, 116.5, 111.9, 117.9}},
        {16, 128, 4096, {205.8, 207.4, 232.7, 217.3, 209.7, 234.3, 210.7, 217.6, 222.4}},
        {64, 1, 4096, {15.2, 16.8, 12.7, 12.0, 18.2, 14.4, 19.3, 18.0, 16.5}},
        {64, 1, 32768, {32.5, 36.9, 32.1, 33.7, 36.7, 37.4, 37.4, 33.6, 30.5}},
        {64, 4, 4096, {19.4, 20.8, 25.3, 25.2, 21.5, 29.3, 21.8, 21.9, 20.8}},
        {64, 16, 4096, {49.0, 46.1, 64.9, 112.1, 46.2, 69.2, 41.0, 40.2, 38.5}},
        {64, 64, 4096, {165.8, 173.9, 233.7, 419.7, 146.5, 240.0, 124.0, 115.5, 121.6}},
        {64, 128, 4096, {329.7, 349.0, 461.4, 829.7, 296.0, 476.9, 215.0, 222.4, 233.4}},
        {128, 1, 1024, {11.9, 12.0, 9.9, 8.5, 14.2, 10.9, 15.0, 14.6, 13.6}},
        {128, 1, 4096, {15.7, 17.7, 14.5, 15.2, 19.0, 16.7, 19.9, 18.9, 16.8}},
        {128, 1, 32768, {49.9, 50.0, 53.8, 54.0, 47.9, 61.4, 39.4, 34.3, 32.2}},
        {128, 4, 4096, {28.4, 28.7, 34.0, 39.7, 27.7, 38.8, 23.9, 22.5, 23.2}},
        {128, 8, 8192, {90.8, 83.2, 102.2, 161.3, 80.3, 118.7, 43.8, 43.1, 49.8}},
        {128, 16, 4096, {85.3, 87.3, 122.1, 212.5, 82.6, 127.5, 44.6, 44.1, 52.2}},
        {128, 32, 4096, {164.0, 174.3, 234.8, 418.4, 144.1, 238.2, 75.8, 69.1, 87.9}},
        {128, 64, 4096, {333.1, 344.4, 459.9, 830.6, 295.2, 479.3, 122.5, 133.0, 163.3}},
        {128, 128, 4096, {661.1, 699.6, 917.8, 1653.1, 596.1, 958.2, 249.7, 275.8, 325.4}},
        {128, 128, 8192, {1355.1, 1717.8, 1782.3, 3269.5, 1156.6, 1733.9, 475.3, 505.5, 561.6}},
    };
    const libdecode_device device = measured_h100();
    expect_fast_choices(&device, kernels_16_bit, COUNT(kernels_16_bit), cases, COUNT(cases), 1.02, 0.2);
}

/* Rows of 320 elements, whose parts and results are half as wide, on an H200, all kernels in turns. */
static void expect_fast_choices_of_320(libdecode_dtype query_dtype, libdecode_dtype kv_dtype, const struct kernel_shape *kernels,
                                       const struct measured_case *cases, size_t num_cases) {
    enum { NUM_KERNELS = 6 };
    const libdecode_device device = measured_h200();
    struct libdecode_launch_contract contract =
        contract_of(16, kv_dtype == LIBDECODE_DTYPE_E4M3 ? KERNEL_DTYPE_E4M3 : KERNEL_DTYPE_BF16);
    contract.head_dim = 320;
    for (size_t i = 0; i < num_cases; i++) {
        const struct problem problem = batch_of(query_dtype, kv_dtype, 320, &cases[i]);
        expect_fast_choice(&family_mla_decode, &problem, &device, contract, kernels, cases[i].measured_us, NUM_KERNELS, 1.09,
                           0.2);
    }
}

static void the_fastest_kernel_of_320_elements_is_predicted(void **state) {
    (void)state;
    static const struct kernel_shape of_16_bit[] = {{16, 1, 32}, {16, 2, 32}, {16, 4, 32}, {16, 8, 32}, {32, 1, 64}, {64, 1, 64}};
    static const struct kernel_shape of_fp8[] = {{16, 1, 64}, {16, 2, 64}, {16, 4, 32}, {16, 8, 32}, {32, 1, 64}, {64, 1, 64}};
    static const struct measured_case bf16[] = {
        {16, 1, 1024, {9.0, 8.8, 8.4, 7.0, 11.3, 11.2}},
        {16, 1, 4096, {12.4, 13.1, 8.8, 9.1, 15.2, 15.2}},
        {16, 1, 32768, {24.0, 24.2, 16.6, 16.5, 30.9, 30.0}},
        {16, 4, 4096, {13.1, 14.8, 11.1, 12.0, 17.3, 16.0}},
        {16, 8, 4096, {15.4, 16.7, 14.3, 13.0, 18.7, 17.3}},
        {16, 16, 4096, {19.6, 21.0, 19.9, 22.8, 24.3, 21.6}},
        {16, 64, 4096, {49.3, 46.5, 70.8, 55.9, 65.1, 55.3}},
        {16, 128, 4096, {86.4, 88.2, 92.8, 101.5, 116.5, 96.4}},
        {64, 1, 1024, {9.7, 9.4, 8.5, 7.1, 11.8, 11.9}},
        {64, 1, 4096, {12.7, 14.0, 10.0, 10.3, 15.7, 16.0}},
        {64, 1, 32768, {26.5, 29.1, 24.2, 27.7, 31.1, 30.9}},
        {64, 4, 4096, {15.7, 16.8, 19.7, 22.8, 17.5, 16.8}},
        {64, 8, 4096, {22.4, 23.3, 26.5, 31.5, 23.1, 18.4}},
        {64, 16, 4096, {36.8, 34.3, 45.8, 55.3, 35.9, 22.5}},
        {64, 64, 4096, {121.4, 125.6, 153.7, 184.2, 113.3, 56.5}},
        {64, 128, 4096, {239.6, 249.6, 300.0, 358.0, 224.5, 97.0}},
        {128, 1, 1024, {10.0, 10.6, 8.6, 7.1, 12.1, 12.3}},
        {128, 1, 4096, {13.9, 15.2, 11.8, 12.5, 15.9, 16.2}},
        {128, 1, 32768, {38.6, 37.3, 45.0, 41.2, 39.6, 31.3}},
        {128, 4, 4096, {22.5, 23.1, 26.3, 31.2, 22.7, 17.4}},
        {128, 8, 4096, {36.9, 34.2, 44.5, 53.2, 35.8, 20.3}},
        {128, 16, 4096, {63.3, 64.6, 80.9, 97.9, 63.9, 29.0}},
        {128, 64, 4096, {237.1, 246.8, 298.4, 357.1, 222.5, 78.9}},
        {128, 128, 4096, {466.1, 487.5, 585.0, 698.2, 436.1, 154.4}},
    };
    static const struct measured_case e4m3[] = {
        {16, 1, 1024, {9.8, 9.2, 9.4, 7.7, 12.6, 16.0}},
        {16, 1, 4096, {13.1, 12.8, 9.2, 8.3, 16.6, 19.6}},
        {16, 1, 32768, {24.9, 26.4, 17.7, 14.5, 31.8, 35.2}},
        {16, 4, 4096, {13.4, 14.7, 12.3, 10.5, 17.3, 20.5}},
        {16, 8, 4096, {14.4, 17.2, 13.3, 14.0, 18.5, 22.1}},
        {16, 16, 4096, {16.5, 17.8, 21.7, 25.0, 24.3, 25.2}},
        {16, 64, 4096, {37.3, 34.0, 49.5, 56.8, 66.2, 56.4}},
        {16, 128, 4096, {62.9, 66.6, 91.5, 106.0, 123.0, 83.4}},
        {64, 1, 1024, {10.6, 9.7, 9.4, 7.7, 12.8, 16.0}},
        {64, 1, 4096, {13.4, 13.8, 10.6, 9.9, 16.6, 20.0}},
        {64, 1, 32768, {27.3, 27.1, 26.9, 28.9, 32.0, 35.8}},
        {64, 4, 4096, {16.3, 16.9, 21.6, 25.0, 17.9, 21.1}},
        {64, 8, 4096, {23.1, 24.3, 29.0, 32.8, 24.0, 23.3}},
        {64, 16, 4096, {37.5, 34.5, 49.0, 56.8, 37.1, 26.9}},
        {64, 64, 4096, {121.3, 122.3, 170.2, 201.4, 116.8, 58.1}},
        {64, 128, 4096, {235.3, 240.3, 334.8, 396.0, 234.2, 86.1}},
        {128, 1, 1024, {11.0, 10.9, 9.4, 7.7, 13.1, 16.7}},
        {128, 1, 4096, {13.8, 13.6, 12.6, 13.7, 16.8, 20.6}},
        {128, 1, 32768, {39.4, 37.6, 45.7, 44.6, 41.2, 36.5}},
        {128, 4, 4096, {23.0, 24.3, 29.1, 32.8, 24.0, 22.6}},
        {128, 8, 4096, {37.8, 34.8, 49.3, 57.0, 37.7, 25.8}},
        {128, 16, 4096, {64.5, 64.1, 89.5, 104.7, 66.1, 35.5}},
        {128, 64, 4096, {233.2, 237.5, 331.3, 391.4, 229.1, 82.1}},
        {128, 128, 4096, {446.6, 463.7, 657.6, 780.2, 455.8, 163.9}},
    };
    static const struct measured_case e4m3_queries[] = {
        {16, 1, 1024, {8.6, 9.4, 9.1, 7.5, 11.7, 13.5}},
        {16, 1, 4096, {11.3, 11.5, 9.1, 8.2, 15.6, 17.0}},
        {16, 1, 32768, {20.7, 20.8, 17.6, 14.4, 30.9, 30.7}},
        {16, 4, 4096, {12.2, 12.7, 11.8, 10.2, 16.3, 18.1}},
        {16, 8, 4096, {13.7, 15.1, 13.1, 13.9, 17.6, 20.2}},
        {16, 16, 4096, {15.0, 16.4, 21.5, 24.6, 23.2, 21.8}},
        {16, 64, 4096, {32.4, 29.5, 48.7, 55.5, 65.5, 45.4}},
        {16, 128, 4096, {50.6, 51.9, 90.5, 103.3, 120.4, 66.4}},
        {64, 1, 1024, {9.6, 9.7, 9.2, 7.5, 12.4, 13.7}},
        {64, 1, 4096, {11.7, 11.9, 10.3, 9.7, 16.1, 17.2}},
        {64, 1, 32768, {21.6, 23.7, 26.8, 28.6, 31.4, 31.0}},
        {64, 4, 4096, {13.4, 13.5, 21.5, 24.6, 17.5, 18.5}},
        {64, 8, 4096, {17.4, 19.5, 28.5, 31.9, 23.4, 20.7}},
        {64, 16, 4096, {25.9, 24.0, 48.5, 55.8, 36.5, 22.2}},
        {64, 64, 4096, {77.4, 84.0, 167.8, 196.3, 115.5, 46.7}},
        {64, 128, 4096, {154.8, 168.3, 332.1, 389.1, 236.8, 69.5}},
        {128, 1, 1024, {9.9, 9.8, 9.3, 7.6, 12.7, 14.4}},
        {128, 1, 4096, {12.6, 13.8, 12.4, 13.5, 16.3, 17.7}},
        {128, 1, 32768, {28.0, 28.8, 45.4, 44.4, 40.9, 31.7}},
        {128, 4, 4096, {17.0, 19.1, 28.4, 31.9, 23.1, 19.5}},
        {128, 8, 4096, {26.2, 24.2, 48.5, 56.0, 36.7, 21.6}},
        {128, 16, 4096, {40.8, 44.0, 88.6, 102.6, 65.3, 28.7}},
        {128, 64, 4096, {151.0, 164.9, 328.0, 384.7, 228.4, 64.1}},
        {128, 128, 4096, {302.0, 329.0, 652.1, 765.9, 456.4, 126.4}},
    };
    expect_fast_choices_of_320(LIBDECODE_DTYPE_BF16, LIBDECODE_DTYPE_BF16, of_16_bit, bf16, COUNT(bf16));
    expect_fast_choices_of_320(LIBDECODE_DTYPE_BF16, LIBDECODE_DTYPE_E4M3, of_fp8, e4m3, COUNT(e4m3));
    expect_fast_choices_of_320(LIBDECODE_DTYPE_E4M3, LIBDECODE_DTYPE_E4M3, of_fp8, e4m3_queries, COUNT(e4m3_queries));
}

/* Of 64 rows in clusters of 1, 2 and 4, on an H200: those of the table above with four requests and more. */
static void the_fastest_cluster_of_64_rows_is_predicted(void **state) {
    (void)state;
    static const struct kernel_shape kernels[] = {{64, 1, 64}, {64, 2, 64}, {64, 4, 64}};
    static const struct measured_case cases[] = {
        {64, 4, 4096, {20.8, 21.7, 19.9}},       {64, 8, 4096, {24.6, 23.4, 24.1}},       {64, 16, 4096, {32.4, 32.2, 34.5}},
        {64, 24, 4096, {42.8, 42.3, 38.8}},      {64, 32, 4096, {50.4, 50.6, 55.3}},      {64, 64, 4096, {90.6, 83.0, 96.4}},
        {64, 128, 4096, {147.7, 156.8, 177.8}},  {128, 4, 4096, {22.2, 21.7, 22.8}},      {128, 4, 8192, {27.9, 27.4, 30.0}},
        {128, 8, 4096, {26.6, 26.7, 32.8}},      {128, 8, 8192, {39.3, 39.4, 47.9}},      {128, 16, 4096, {40.2, 40.6, 50.5}},
        {128, 24, 4096, {58.2, 62.5, 71.0}},     {128, 32, 4096, {68.1, 63.1, 85.6}},     {128, 64, 4096, {112.9, 124.8, 158.5}},
        {128, 128, 4096, {224.8, 249.3, 308.4}}, {128, 128, 8192, {435.7, 468.7, 541.8}},
    };
    const libdecode_device device = measured_h200();
    expect_fast_choices(&device, kernels, COUNT(kernels), cases, COUNT(cases), 1.01, 0.1);
}

/* Passes of MLA find the rows in the second cache: the fastest kernel is chosen, also where others take fewer. */
static void the_fastest_kernel_is_chosen_however_many_passes_it_takes(void **state) {
    (void)state;
    static const struct kernel_shape shapes[] = {{64, 1, 64}, {32, 1, 64}, {16, 8, 32}, {16, 1, 32}};
    static const char *const names[] = {"a", "b", "c", "d"};
    static const struct {
        int32_t batch_size, tokens;
        const char *fastest;
    } cases[] = {{1, 1024, "c"}, {64, 4096, "a"}};
    const libdecode_device device = measured_h200();
    const struct policy policy = {.verbs = NULL};
    for (size_t first = 0; first < COUNT(shapes); first++) {
        struct bundle_kernel kernels[COUNT(shapes)];
        struct kernel_record records[COUNT(shapes)];
        uint32_t gpus[COUNT(shapes)];
        for (size_t i = 0; i < COUNT(shapes); i++) { /* in any order */
            const size_t shape = (first + i) % COUNT(shapes);
            kernels[i] = (struct bundle_kernel){.contract = contract_of(shapes[shape].row_tile, KERNEL_DTYPE_BF16)};
            struct libdecode_launch_contract *contract = &kernels[i].contract;
            contract->cluster_size = shapes[shape].cluster_size;
            contract->tile_tokens = shapes[shape].tile_tokens;
            contract->query_dtypes = contract->out_dtypes = 1u << KERNEL_DTYPE_BF16;
            contract->max_page_size = contract->max_q_len = 1024;
            contract->features = CONTRACT_FEATURE_QUERY_ROPE;
            contract->ctas_per_sm = 1;
            contract->record_bytes = 8;
            records[i] = (struct kernel_record){.name = names[shape], .kernel = &kernels[i], .family = &family_mla_decode};
            gpus[i] = BUNDLE_GPU_SM90;
        }
        struct kernel_table table = {.records = records, .gpus = gpus, .count = COUNT(shapes)};
        assert_int_equal(kernel_index_create(&table, &table.index), LIBDECODE_OK);
        for (size_t i = 0; i < COUNT(cases); i++) {
            const struct problem problem = bf16_batch(128, cases[i].batch_size, cases[i].tokens);
            struct selection selection;
            assert_int_equal(select_kernel(&problem, &device, &policy, &table, NULL, NULL, &selection), LIBDECODE_OK);
            assert_string_equal(selection.record->name, cases[i].fastest);
        }
        kernel_index_destroy(table.index);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_fastest_kernel_of_an_h200_is_predicted),
        cmocka_unit_test(the_fastest_kernel_of_fp8_is_predicted),
        cmocka_unit_test(the_fastest_kernel_of_an_h100_is_predicted),
        cmocka_unit_test(the_fastest_kernel_of_320_elements_is_predicted),
        cmocka_unit_test(the_fastest_cluster_of_64_rows_is_predicted),
        cmocka_unit_test(the_fastest_kernel_is_chosen_however_many_passes_it_takes),
    };
    return cmocka_run_group_tests_name("mla_choice", tests, NULL, NULL);
}
