/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_row_choice.c: of kernels of 8 to 128 rows, alone and in clusters, the one that is chosen is the fastest, or nearly so, by what each was measured to
 * take on an H200.
 */
#define _POSIX_C_SOURCE 200809L /* strtok_r */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bundle_fixture.h"
#include "select_scene.h"

/* ----------------------------------------------------------------------------------------------------------- measured */

/* A line of h200_rows.tsv. */
static bool read_problem(char **rest, libdecode_problem *ret_problem) {
    const char *dtype = strtok_r(NULL, "\t", rest), *option = strtok_r(NULL, "\t", rest);
    int32_t *const fields[] = {&ret_problem->num_qo_heads, &ret_problem->num_kv_heads, &ret_problem->head_dim,
                               &ret_problem->batch_size,   &ret_problem->max_seq_len,  &ret_problem->q_len};
    if (dtype == NULL || option == NULL)
        return false;
    ret_problem->kv_dtype = strcmp(dtype, "bf16") == 0   ? LIBDECODE_DTYPE_BF16
                            : strcmp(dtype, "e4m3") == 0 ? LIBDECODE_DTYPE_E4M3
                                                         : LIBDECODE_DTYPE_NVFP4;
    if (strcmp(option, "soft_cap") == 0) {
        ret_problem->features = LIBDECODE_FEATURE_SOFT_CAP;
        ret_problem->logits_soft_cap = 30;
    } else if (strcmp(option, "rope") == 0) {
        ret_problem->features = LIBDECODE_FEATURE_ROPE;
    } else if (strcmp(option, "page_1") == 0) {
        ret_problem->page_size = 1;
    }
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        const char *word = strtok_r(NULL, "\t", rest);
        if (word == NULL)
            return false;
        *fields[i] = atoi(word);
    }
    return true;
}

/* How much longer what is chosen takes than the fastest: 0 for that. */
static double regret(char *line) {
    struct policy policy = no_policy();
    libdecode_device device = preset("sm_90");
    libdecode_problem problem = llama3_8b();
    char whole[1024], *rest = line;
    (void)snprintf(whole, sizeof whole, "%s", line);
    if (!read_problem(&rest, &problem))
        fail_msg("not a problem: %s", whole);
    const struct selection selection = expect_choice(&problem, &device, &policy, &grid->table);
    const struct libdecode_launch_contract *contract = &selection.record->kernel->contract;
    double chosen_us = NAN, least_us = INFINITY;
    unsigned row_tile, cluster_size;
    double us;
    for (const char *word; (word = strtok_r(NULL, "\t\n", &rest)) != NULL;) {
        assert_int_equal(sscanf(word, "r%u_c%u:%lf", &row_tile, &cluster_size, &us), 3);
        if (row_tile == contract->row_tile && cluster_size == contract->cluster_size)
            chosen_us = us;
        least_us = fmin(least_us, us);
    }
    if (!(chosen_us <= least_us * 1.1))
        fail_msg("%s takes %.1f us, the fastest %.1f: %s", selection.record->name, chosen_us, least_us, whole);
    return chosen_us / least_us - 1;
}

static void what_is_chosen_takes_little_more_than_the_fastest(void **state) {
    (void)state;
    FILE *file = fopen(MEASURED_DIR "/h200_rows.tsv", "r");
    char line[1024];
    double sum = 0;
    int count = 0;
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL) {
        if (line[0] == '#')
            continue;
        sum += regret(line);
        count++;
    }
    (void)fclose(file);
    assert_int_equal(count, 1653);
    assert_true(sum / count < 0.003);
}

/* -------------------------------------------------------------------------------------------------------------- known */

/* Of 64/8 heads of 128 on sm_90: what is asked, and which kernel is to be chosen. */
struct choice {
    libdecode_dtype kv_dtype;
    int page_size, q_len, batch, tokens;
    uint32_t row_tile, cluster_size; /* 0: any */
    int passes;
    uint32_t min_page_size; /* 0: whole pages of 16 tokens and more, or single rows, as pages are */
};

static void expect_choices(const struct choice *expected, size_t count) {
    struct policy policy = no_policy();
    libdecode_device device = preset("sm_90");
    libdecode_problem problem = llama3_8b();
    problem.num_qo_heads = 64;
    for (const struct choice *choice = expected; choice < expected + count; choice++) {
        problem.kv_dtype = choice->kv_dtype;
        problem.page_size = choice->page_size;
        problem.q_len = choice->q_len;
        problem.batch_size = choice->batch;
        problem.max_seq_len = choice->tokens;
        struct selection selection = expect_choice(&problem, &device, &policy, &grid->table);
        const struct libdecode_launch_contract *contract = &selection.record->kernel->contract;
        if (contract->row_tile != choice->row_tile || selection.row_passes != choice->passes ||
            (choice->cluster_size != 0 && contract->cluster_size != choice->cluster_size) ||
            contract->min_page_size != (choice->min_page_size != 0 ? choice->min_page_size
                                        : choice->page_size < 16   ? 1u
                                                                   : 16u))
            fail_msg("pages of %d, %d query tokens, %d x %d: %s in %d passes", choice->page_size, choice->q_len, choice->batch,
                     choice->tokens, selection.record->name, selection.row_passes);
    }
}

/* NVFP4 has two kinds for 8 rows: one takes tiles of large pages in sooner, the other ends units sooner. */
static void nvfp4_of_large_pages_has_a_kernel_of_its_own_for_long_requests(void **state) {
    (void)state;
    static const struct choice choices[] = {{LIBDECODE_DTYPE_NVFP4, 64, 1, 64, 4096, 8, 1, 1, 64},
                                            {LIBDECODE_DTYPE_NVFP4, 128, 1, 16, 4096, 8, 1, 1, 64},
                                            {LIBDECODE_DTYPE_NVFP4, 64, 1, 512, 256, 8, 1, 1, 16},
                                            {LIBDECODE_DTYPE_NVFP4, 32, 1, 64, 4096, 8, 1, 1, 16}};
    expect_choices(choices, sizeof choices / sizeof choices[0]);
}

/*
 * 32 rows of FP8 take longer to multiply than to read, so that what fits that tile may take a wider one. On an H200, us, of 64/8 heads with 2 query tokens by 16
 * and 64 rows: 10.7, 14.9; 17.0, 20.1; 25.6, 31.0; 40.5, 45.5; 273, 318; with 4 by 32 and 64: 9.8, 12.7; 13.7, 15.3; 25.7, 20.4; 42.8, 31.5;
 * 64.3, 46.0; 458, 319. In clusters of eight by 32 and 64, 32/8 heads with 8, 1 x 1,024 8.0, 8.6, 1 x 4,096 12.8, 12.1.
 */
static void rows_of_fp8_take_the_tile_that_is_fastest(void **state) {
    (void)state;
    static const struct choice expected[] = {
        {LIBDECODE_DTYPE_E4M3, 16, 1, 64, 8192, 8, 0, 1, 0},  {LIBDECODE_DTYPE_E4M3, 16, 2, 1, 4096, 16, 0, 1, 0},
        {LIBDECODE_DTYPE_E4M3, 16, 2, 4, 4096, 16, 0, 1, 0},  {LIBDECODE_DTYPE_E4M3, 16, 2, 1, 32768, 16, 0, 1, 0},
        {LIBDECODE_DTYPE_E4M3, 16, 2, 16, 4096, 16, 0, 1, 0}, {LIBDECODE_DTYPE_E4M3, 16, 2, 64, 8192, 16, 0, 1, 0},
        {LIBDECODE_DTYPE_E4M3, 16, 4, 1, 1024, 32, 0, 1, 0},  {LIBDECODE_DTYPE_E4M3, 16, 4, 1, 4096, 64, 0, 1, 0},
        {LIBDECODE_DTYPE_E4M3, 16, 4, 4, 4096, 64, 0, 1, 0},  {LIBDECODE_DTYPE_E4M3, 16, 4, 1, 32768, 64, 0, 1, 0},
        {LIBDECODE_DTYPE_E4M3, 16, 4, 16, 4096, 64, 0, 1, 0}, {LIBDECODE_DTYPE_E4M3, 16, 4, 64, 8192, 64, 0, 1, 0}};
    expect_choices(expected, sizeof expected / sizeof expected[0]);
}

/*
 * As those of FP8; and single rows of any format. On an H200, us, of 64/8 heads by the tiles below: NVFP4 with 2, 4, 8 and 16 query tokens 170, 206, 203 and 269 for
 * 64 x 4,096, where 32 rows a pass take 282, 288, 560 and 1,108; 1 x 32,768 with 4 36.3 for 45.8; pages of one token of bf16, 64 x 4,096, 258, 259 and
 * 308 with 4, 8 and 16 for 276, 531 and 1,105.
 */
static void rows_of_nvfp4_and_single_rows_take_the_tile_that_is_fastest(void **state) {
    (void)state;
    static const struct choice expected[] = {
        {LIBDECODE_DTYPE_NVFP4, 16, 1, 64, 4096, 8, 1, 1, 0},    {LIBDECODE_DTYPE_NVFP4, 16, 2, 64, 4096, 16, 0, 1, 0},
        {LIBDECODE_DTYPE_NVFP4, 16, 4, 1, 1024, 32, 8, 1, 0},    {LIBDECODE_DTYPE_NVFP4, 16, 4, 1, 32768, 64, 1, 1, 0},
        {LIBDECODE_DTYPE_NVFP4, 16, 4, 64, 4096, 64, 1, 1, 0},   {LIBDECODE_DTYPE_NVFP4, 16, 8, 64, 4096, 64, 1, 1, 0},
        {LIBDECODE_DTYPE_NVFP4, 16, 16, 64, 4096, 128, 1, 1, 0}, {LIBDECODE_DTYPE_NVFP4, 1, 8, 64, 4096, 64, 1, 1, 0},
        {LIBDECODE_DTYPE_BF16, 1, 4, 1, 1024, 32, 8, 1, 0},      {LIBDECODE_DTYPE_BF16, 1, 4, 64, 4096, 64, 1, 1, 0},
        {LIBDECODE_DTYPE_BF16, 5, 8, 64, 4096, 64, 1, 1, 0},     {LIBDECODE_DTYPE_BF16, 1, 16, 64, 4096, 128, 1, 1, 0},
        {LIBDECODE_DTYPE_BF16, 16, 4, 64, 4096, 64, 1, 1, 0},    {LIBDECODE_DTYPE_E4M3, 1, 8, 64, 4096, 64, 1, 1, 0},
        {LIBDECODE_DTYPE_E4M3, 1, 16, 64, 4096, 128, 1, 1, 0}};
    expect_choices(expected, sizeof expected / sizeof expected[0]);
}

/*
 * Few units go to clusters, whose CTAs share each, and where there is little to read two passes of narrower tiles may be as fast as one. On an H200, us, of 64/8
 * heads by 64 or 128 rows in single CTAs, pairs and clusters of eight: bf16 with 8 query tokens 12.1, 11.4, 9.1 (32 rows, two passes, in fours 9.0); 14.5, 14.7,
 * 11.8; 43.2, 42.3, 41.8; 26.2, 25.2, 43.7; 67.5, 74.0, 122.7; 72.3, 68.5, 98.3; 487.0, 509.7, 686.3; with 16 17.7, 18.6, 16.7; 30.8, 31.1, 55.6; 81.9, 77.7,
 * 119.6; 73.4, 84.9, 151.1. Pages of one token, with 16, 17.0, 15.1, 12.2 (32 rows, in pairs, 14.1). e4m3 with 8 16.4, 15.6, 13.3; 51.4, 48.4, 83.5. NVFP4
 * with 8 16.4, 15.7, 14.2; 54.6, 64.1, 116.5.
 */
static void few_units_of_many_rows_go_to_clusters(void **state) {
    (void)state;
    static const struct choice expected[] = {
        {LIBDECODE_DTYPE_BF16, 16, 8, 1, 1024, 32, 4, 2, 0},    {LIBDECODE_DTYPE_BF16, 16, 8, 1, 4096, 64, 8, 1, 0},
        {LIBDECODE_DTYPE_BF16, 16, 8, 1, 32768, 64, 8, 1, 0},   {LIBDECODE_DTYPE_BF16, 16, 8, 4, 4096, 64, 2, 1, 0},
        {LIBDECODE_DTYPE_BF16, 16, 8, 16, 4096, 64, 1, 1, 0},   {LIBDECODE_DTYPE_BF16, 16, 8, 8, 8192, 64, 2, 1, 0},
        {LIBDECODE_DTYPE_BF16, 16, 8, 64, 8192, 64, 1, 1, 0},   {LIBDECODE_DTYPE_BF16, 16, 16, 1, 4096, 128, 8, 1, 0},
        {LIBDECODE_DTYPE_BF16, 16, 16, 4, 4096, 128, 1, 1, 0},  {LIBDECODE_DTYPE_BF16, 16, 16, 8, 8192, 128, 2, 1, 0},
        {LIBDECODE_DTYPE_BF16, 16, 16, 16, 4096, 128, 1, 1, 0}, {LIBDECODE_DTYPE_BF16, 1, 16, 1, 1024, 128, 8, 1, 0},
        {LIBDECODE_DTYPE_E4M3, 16, 8, 1, 4096, 64, 8, 1, 0},    {LIBDECODE_DTYPE_E4M3, 16, 8, 8, 8192, 64, 2, 1, 0},
        {LIBDECODE_DTYPE_NVFP4, 16, 8, 1, 4096, 64, 8, 1, 0},   {LIBDECODE_DTYPE_NVFP4, 16, 8, 16, 4096, 64, 1, 1, 0}};
    expect_choices(expected, sizeof expected / sizeof expected[0]);

    libdecode_device device = preset("sm_90");
    libdecode_problem problem = llama3_8b();
    problem.num_qo_heads = 64;
    problem.q_len = 8;
    problem.batch_size = 1;
    problem.max_seq_len = 1024;
    struct policy forcing = parsed("force=*_r64_*", false), strict = parsed(NULL, true);
    assert_int_equal(expect_choice(&problem, &device, &forcing, &grid->table).row_passes, 1);
    assert_int_equal(expect_choice(&problem, &device, &strict, &grid->table).row_passes, 2);
    policy_destroy(&forcing);
    policy_destroy(&strict);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_chosen_takes_little_more_than_the_fastest),
        cmocka_unit_test(rows_of_fp8_take_the_tile_that_is_fastest),
        cmocka_unit_test(rows_of_nvfp4_and_single_rows_take_the_tile_that_is_fastest),
        cmocka_unit_test(few_units_of_many_rows_go_to_clusters),
        cmocka_unit_test(nvfp4_of_large_pages_has_a_kernel_of_its_own_for_long_requests),
    };
    return cmocka_run_group_tests(tests, create_grid, destroy_grid);
}
