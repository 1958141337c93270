/* SPDX-License-Identifier: Apache-2.0 */
/* test_option_choice.c: of kernels with options, is the one that the cost model takes for the fastest so, by what each was measured to take? */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "abi.h"
#include "decode_fixture.h"
#include "kernel_choice.h"
#include "problem.h"
#include "variant_contract.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* Of 8 or 16 rows; of CTAs alone, pairs, clusters of eight, with pages of 16 tokens. */
struct option_case {
    uint32_t kv_dtype;
    bool turns_keys; /* else a soft cap */
    int32_t num_qo_heads, num_kv_heads, head_dim, batch_size, tokens;
    double measured_us[3];
};

/* Of pages of 16 tokens, as it is built: with RoPE alone, or with all but RoPE. */
static struct libdecode_launch_contract contract_for(const struct option_case *of, uint16_t cluster_size) {
    const struct grid_variant variant = {.family = KERNEL_FAMILY_GQA_DECODE,
                                         .target = 90,
                                         .kv_dtype = (uint16_t)of->kv_dtype,
                                         .head_dim = (uint16_t)of->head_dim,
                                         .row_tile = of->num_qo_heads / of->num_kv_heads > 8 ? 16 : 8,
                                         .min_page_size = 16,
                                         .cluster_size = cluster_size,
                                         .options = of->turns_keys ? 4 : 3};
    return variant_contract(&variant);
}

static struct problem problem_for(const struct option_case *of) {
    libdecode_problem given = llama3_8b();
    struct problem problem;
    given.kv_dtype = (libdecode_dtype)of->kv_dtype;
    given.num_qo_heads = of->num_qo_heads;
    given.num_kv_heads = of->num_kv_heads;
    given.head_dim = of->head_dim;
    given.batch_size = of->batch_size;
    given.max_seq_len = of->tokens;
    given.page_size = 16;
    given.features = of->turns_keys ? LIBDECODE_FEATURE_ROPE : LIBDECODE_FEATURE_SOFT_CAP;
    given.logits_soft_cap = of->turns_keys ? 0 : 30;
    if (problem_check(&given, &problem) != LIBDECODE_OK)
        fail_msg("refused: %s", libdecode_error_message());
    return problem;
}

/* us, all kernels in turns, random pages of 16 tokens, cold; `within` says no more than that the model's unit is right: 16 rows take longer. */
static void the_fastest_kernel_with_options_is_predicted(void **state) {
    (void)state;
    static const struct option_case cases[] = {
        {KERNEL_DTYPE_BF16, true, 32, 8, 128, 1, 32768, {40.8, 39.4, 40.5}},
        {KERNEL_DTYPE_BF16, true, 8, 1, 128, 1, 32768, {23.3, 18.4, 12.3}},
        {KERNEL_DTYPE_BF16, true, 32, 32, 128, 1, 32768, {126.6, 129.1, 132.8}},
        {KERNEL_DTYPE_BF16, true, 32, 8, 128, 1, 65536, {70.7, 68.8, 71.8}},
        {KERNEL_DTYPE_BF16, true, 64, 4, 128, 1, 65536, {57.0, 45.3, 48.3}},
        {KERNEL_DTYPE_BF16, true, 128, 8, 128, 1, 65536, {79.1, 73.0, 76.7}},
        {KERNEL_DTYPE_BF16, true, 32, 8, 128, 4, 4096, {22.2, 22.4, 26.4}},
        {KERNEL_DTYPE_BF16, true, 64, 8, 128, 4, 4096, {22.8, 23.0, 27.4}},
        {KERNEL_DTYPE_BF16, true, 64, 4, 128, 4, 4096, {20.4, 17.5, 24.2}},
        {KERNEL_DTYPE_BF16, true, 128, 8, 128, 4, 4096, {27.0, 25.9, 39.8}},
        {KERNEL_DTYPE_BF16, true, 32, 8, 128, 16, 4096, {66.7, 68.3, 78.8}},
        {KERNEL_DTYPE_BF16, true, 8, 1, 128, 16, 4096, {15.6, 14.6, 17.7}},
        {KERNEL_DTYPE_BF16, true, 64, 4, 128, 16, 4096, {42.4, 40.7, 63.3}},
        {KERNEL_DTYPE_BF16, false, 32, 8, 128, 1, 32768, {39.2, 38.1, 35.9}},
        {KERNEL_DTYPE_BF16, false, 8, 1, 128, 1, 32768, {20.3, 15.4, 11.3}},
        {KERNEL_DTYPE_BF16, false, 32, 32, 128, 1, 32768, {125.7, 127.1, 131.8}},
        {KERNEL_DTYPE_BF16, false, 32, 8, 128, 1, 65536, {69.6, 67.6, 67.0}},
        {KERNEL_DTYPE_BF16, false, 64, 4, 128, 1, 65536, {49.5, 42.8, 41.5}},
        {KERNEL_DTYPE_BF16, false, 128, 8, 128, 1, 65536, {76.3, 70.6, 72.4}},
        {KERNEL_DTYPE_BF16, false, 32, 8, 128, 4, 4096, {21.8, 20.6, 26.4}},
        {KERNEL_DTYPE_BF16, false, 64, 8, 128, 4, 4096, {22.4, 21.1, 27.8}},
        {KERNEL_DTYPE_BF16, false, 64, 4, 128, 4, 4096, {17.3, 15.6, 19.0}},
        {KERNEL_DTYPE_BF16, false, 128, 8, 128, 4, 4096, {24.9, 23.7, 36.3}},
        {KERNEL_DTYPE_BF16, false, 32, 8, 128, 16, 4096, {65.0, 65.3, 70.8}},
        {KERNEL_DTYPE_BF16, false, 8, 1, 128, 16, 4096, {14.4, 14.4, 15.3}},
        {KERNEL_DTYPE_BF16, false, 64, 4, 128, 16, 4096, {39.4, 37.8, 54.2}},
        {KERNEL_DTYPE_E4M3, true, 32, 8, 128, 1, 32768, {26.2, 24.5, 26.3}},
        {KERNEL_DTYPE_E4M3, true, 8, 1, 128, 1, 32768, {21.1, 16.5, 12.3}},
        {KERNEL_DTYPE_E4M3, true, 32, 32, 128, 1, 32768, {69.1, 69.2, 73.6}},
        {KERNEL_DTYPE_E4M3, true, 32, 8, 128, 1, 65536, {42.6, 40.6, 42.3}},
        {KERNEL_DTYPE_E4M3, true, 64, 4, 128, 1, 65536, {50.5, 37.9, 43.2}},
        {KERNEL_DTYPE_E4M3, true, 128, 8, 128, 1, 65536, {67.1, 60.3, 69.7}},
        {KERNEL_DTYPE_E4M3, true, 32, 8, 128, 4, 4096, {15.2, 15.4, 25.6}},
        {KERNEL_DTYPE_E4M3, true, 64, 8, 128, 4, 4096, {16.1, 15.7, 26.2}},
        {KERNEL_DTYPE_E4M3, true, 64, 4, 128, 4, 4096, {19.3, 16.0, 23.1}},
        {KERNEL_DTYPE_E4M3, true, 128, 8, 128, 4, 4096, {23.7, 22.0, 39.5}},
        {KERNEL_DTYPE_E4M3, true, 32, 8, 128, 16, 4096, {38.4, 41.3, 63.5}},
        {KERNEL_DTYPE_E4M3, true, 8, 1, 128, 16, 4096, {13.4, 12.3, 14.9}},
        {KERNEL_DTYPE_E4M3, true, 64, 4, 128, 16, 4096, {35.2, 33.1, 63.2}},
        {KERNEL_DTYPE_E4M3, false, 32, 8, 128, 1, 32768, {25.0, 23.1, 26.2}},
        {KERNEL_DTYPE_E4M3, false, 8, 1, 128, 1, 32768, {17.7, 13.4, 10.1}},
        {KERNEL_DTYPE_E4M3, false, 32, 32, 128, 1, 32768, {66.5, 66.8, 72.4}},
        {KERNEL_DTYPE_E4M3, false, 32, 8, 128, 1, 65536, {40.7, 38.5, 40.9}},
        {KERNEL_DTYPE_E4M3, false, 64, 4, 128, 1, 65536, {41.7, 30.0, 33.6}},
        {KERNEL_DTYPE_E4M3, false, 128, 8, 128, 1, 65536, {52.6, 45.9, 52.5}},
        {KERNEL_DTYPE_E4M3, false, 32, 8, 128, 4, 4096, {14.3, 14.2, 22.0}},
        {KERNEL_DTYPE_E4M3, false, 64, 8, 128, 4, 4096, {14.8, 14.7, 23.0}},
        {KERNEL_DTYPE_E4M3, false, 64, 4, 128, 4, 4096, {16.2, 13.1, 19.3}},
        {KERNEL_DTYPE_E4M3, false, 128, 8, 128, 4, 4096, {18.9, 17.4, 31.3}},
        {KERNEL_DTYPE_E4M3, false, 32, 8, 128, 16, 4096, {36.1, 37.6, 54.5}},
        {KERNEL_DTYPE_E4M3, false, 8, 1, 128, 16, 4096, {11.1, 11.2, 12.6}},
        {KERNEL_DTYPE_E4M3, false, 64, 4, 128, 16, 4096, {27.3, 25.3, 48.9}},
        {KERNEL_DTYPE_NVFP4, true, 32, 8, 128, 1, 32768, {25.5, 24.0, 36.3}},
        {KERNEL_DTYPE_NVFP4, true, 8, 1, 128, 1, 32768, {26.8, 19.9, 14.4}},
        {KERNEL_DTYPE_NVFP4, true, 32, 32, 128, 1, 32768, {63.7, 63.8, 87.9}},
        {KERNEL_DTYPE_NVFP4, true, 32, 8, 128, 1, 65536, {39.3, 37.4, 52.9}},
        {KERNEL_DTYPE_NVFP4, true, 64, 4, 128, 1, 65536, {55.2, 43.1, 49.6}},
        {KERNEL_DTYPE_NVFP4, true, 128, 8, 128, 1, 65536, {76.8, 70.5, 80.8}},
        {KERNEL_DTYPE_NVFP4, true, 32, 8, 128, 4, 4096, {15.3, 15.4, 34.1}},
        {KERNEL_DTYPE_NVFP4, true, 64, 8, 128, 4, 4096, {15.8, 15.9, 34.3}},
        {KERNEL_DTYPE_NVFP4, true, 64, 4, 128, 4, 4096, {21.1, 17.9, 28.5}},
        {KERNEL_DTYPE_NVFP4, true, 128, 8, 128, 4, 4096, {26.2, 24.7, 43.3}},
        {KERNEL_DTYPE_NVFP4, true, 32, 8, 128, 16, 4096, {34.3, 38.9, 76.1}},
        {KERNEL_DTYPE_NVFP4, true, 8, 1, 128, 16, 4096, {13.3, 12.6, 16.8}},
        {KERNEL_DTYPE_NVFP4, true, 64, 4, 128, 16, 4096, {39.9, 38.1, 71.0}},
        {KERNEL_DTYPE_NVFP4, false, 32, 8, 128, 1, 32768, {21.9, 19.9, 27.1}},
        {KERNEL_DTYPE_NVFP4, false, 8, 1, 128, 1, 32768, {21.1, 16.1, 10.6}},
        {KERNEL_DTYPE_NVFP4, false, 32, 32, 128, 1, 32768, {53.4, 53.1, 67.9}},
        {KERNEL_DTYPE_NVFP4, false, 32, 8, 128, 1, 65536, {32.8, 30.9, 38.4}},
        {KERNEL_DTYPE_NVFP4, false, 64, 4, 128, 1, 65536, {45.8, 34.3, 37.9}},
        {KERNEL_DTYPE_NVFP4, false, 128, 8, 128, 1, 65536, {60.8, 54.9, 61.8}},
        {KERNEL_DTYPE_NVFP4, false, 32, 8, 128, 4, 4096, {13.2, 13.1, 26.5}},
        {KERNEL_DTYPE_NVFP4, false, 64, 8, 128, 4, 4096, {13.5, 13.4, 27.5}},
        {KERNEL_DTYPE_NVFP4, false, 64, 4, 128, 4, 4096, {17.2, 14.1, 21.6}},
        {KERNEL_DTYPE_NVFP4, false, 128, 8, 128, 4, 4096, {20.6, 19.1, 33.1}},
        {KERNEL_DTYPE_NVFP4, false, 32, 8, 128, 16, 4096, {29.0, 32.2, 61.8}},
        {KERNEL_DTYPE_NVFP4, false, 8, 1, 128, 16, 4096, {11.8, 11.1, 14.1}},
        {KERNEL_DTYPE_NVFP4, false, 64, 4, 128, 16, 4096, {31.2, 29.5, 53.4}},
        {KERNEL_DTYPE_BF16, false, 16, 8, 256, 1, 4096, {14.8, 13.9, 12.1}},
        {KERNEL_DTYPE_BF16, false, 16, 8, 256, 1, 8192, {22.9, 22.1, 19.8}},
        {KERNEL_DTYPE_BF16, false, 16, 8, 256, 1, 32768, {68.4, 69.0, 65.1}},
        {KERNEL_DTYPE_BF16, false, 16, 8, 256, 8, 4096, {66.0, 65.5, 70.9}},
        {KERNEL_DTYPE_BF16, false, 16, 8, 256, 64, 4096, {479.0, 480.3, 506.8}},
        {KERNEL_DTYPE_E4M3, false, 16, 8, 256, 1, 4096, {13.4, 12.2, 10.0}},
        {KERNEL_DTYPE_E4M3, false, 16, 8, 256, 1, 8192, {17.3, 15.3, 14.8}},
        {KERNEL_DTYPE_E4M3, false, 16, 8, 256, 1, 32768, {41.1, 38.5, 41.1}},
        {KERNEL_DTYPE_E4M3, false, 16, 8, 256, 8, 4096, {37.7, 36.4, 48.6}},
        {KERNEL_DTYPE_E4M3, false, 16, 8, 256, 64, 4096, {243.1, 246.5, 291.9}},
        {KERNEL_DTYPE_NVFP4, false, 16, 8, 256, 1, 4096, {19.7, 13.9, 13.4}},
        {KERNEL_DTYPE_NVFP4, false, 16, 8, 256, 1, 8192, {23.2, 17.6, 24.3}},
        {KERNEL_DTYPE_NVFP4, false, 16, 8, 256, 1, 32768, {48.1, 41.7, 46.4}},
        {KERNEL_DTYPE_NVFP4, false, 16, 8, 256, 8, 4096, {41.3, 38.9, 61.8}},
        {KERNEL_DTYPE_NVFP4, false, 16, 8, 256, 64, 4096, {271.5, 285.9, 389.0}},
    };
    const libdecode_device device = measured_h200();
    for (size_t i = 0; i < COUNT(cases); i++) {
        static const uint16_t cluster_sizes[] = {1, 2, 8};
        struct kernel_shape kernels[COUNT(cluster_sizes)];
        struct libdecode_launch_contract contract = {0};
        for (size_t k = 0; k < COUNT(cluster_sizes); k++) {
            contract = contract_for(&cases[i], cluster_sizes[k]);
            kernels[k] = (struct kernel_shape){contract.row_tile, contract.cluster_size, contract.tile_tokens};
        }
        const struct problem problem = problem_for(&cases[i]);
        expect_fast_choice(&family_gqa_decode, &problem, &device, contract, kernels, cases[i].measured_us, COUNT(kernels), 1.015,
                           0.5);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_fastest_kernel_with_options_is_predicted)};
    return cmocka_run_group_tests_name("option_choice", tests, NULL, NULL);
}
