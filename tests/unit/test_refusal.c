/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_refusal.c: every refusal has the right number, names what is missing and what there is, and every kernel gets a verdict
 * with a reason.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "abi.h"
#include "axis.h"
#include "bundle_fixture.h"
#include "dtype.h"
#include "grid.h"
#include "select_scene.h"

static void what_no_kernel_does_is_unsupported_and_says_what_is_built(void **state) {
    (void)state;
    struct policy policy = no_policy();
    libdecode_device device = preset("sm_90");
    libdecode_problem problem = llama3_8b();
    problem.q_len = 1025;
    expect_refusal(LIBDECODE_ERROR_UNSUPPORTED, "q_len 1025", "built: up to 1024", &problem, &device, &policy, &grid->table);
    problem = llama3_8b();
    problem.kv_dtype = LIBDECODE_DTYPE_NVFP4;
    problem.head_dim = 512;
    expect_refusal(LIBDECODE_ERROR_UNSUPPORTED, "kv_dtype nvfp4", "head_dim 512", &problem, &device, &policy, &grid->table);
    problem = llama3_8b();
    problem.kv_dtype = LIBDECODE_DTYPE_E4M3;
    problem.head_dim = 512;
    problem.features = LIBDECODE_FEATURE_ROPE | LIBDECODE_FEATURE_LSE;
    libdecode_device small = preset("sm_120");
    expect_refusal(LIBDECODE_ERROR_UNSUPPORTED, "head_dim 512 together with features lse+rope",
                   "nearest is gqa_decode_kvbf16_d512", &problem, &small, &policy, &grid->table);
    problem = llama3_8b(); /* four times 8 query tokens, pages of 5: a narrower row tile does it in two passes */
    problem.features = LIBDECODE_FEATURE_ROPE;
    problem.q_len = 8;
    problem.page_size = 5;
    assert_int_equal(expect_choice(&problem, &device, &policy, &grid->table).row_passes, 2);
    problem.features = 0;
    assert_int_equal(expect_choice(&problem, &device, &policy, &grid->table).row_passes, 1);
    problem = llama3_8b();
    problem.head_dim = 512;
    problem.num_pages = 4;
    problem.k_page_stride = (int64_t)1 << 39;
    expect_refusal(LIBDECODE_ERROR_UNSUPPORTED, "head_dim 512", "together with K and V strides 1099511627776 bytes", &problem,
                   &device, &policy, &grid->table);
    problem.head_dim = 128; /* kernels that compute addresses take every stride */
    assert_non_null(strstr(expect_choice(&problem, &device, &policy, &grid->table).record->name, "_p1_c1_o2_"));
    problem = llama3_8b();
    problem.features = LIBDECODE_FEATURE_DRAFT_MASK;
    problem.q_len = 2000;
    expect_refusal(LIBDECODE_ERROR_UNSUPPORTED, "q_len 2000", "; draft_mask a mask for 2000", &problem, &device, &policy,
                   &grid->table);
    problem = llama3_8b();
    problem.features = LIBDECODE_FEATURE_DRAFT_MASK;
    problem.q_len = 65;
    expect_refusal(LIBDECODE_ERROR_UNSUPPORTED, "draft_mask a mask for 65 query tokens", "masks for up to 64", &problem, &device,
                   &policy, &grid->table);
}

static const struct kernel_record *find_record(const char *name) {
    for (size_t i = 0; i < grid->table.count; i++)
        if (strcmp(grid->table.records[i].name, name) == 0)
            return &grid->table.records[i];
    fail_msg("no kernel %s", name);
    return NULL;
}

static void what_only_another_bundle_would_have_is_not_in_bundle(void **state) {
    (void)state;
    struct policy policy = no_policy();
    libdecode_device device = preset("sm_90");
    struct kernel_record records[2] = {*find_record("gqa_decode_kvbf16_d128_r8_p16_c1_o0_sm90"),
                                       *find_record("gqa_decode_kvfp16_d64_r8_p16_c1_o0_sm90")};
    uint32_t gpus[2] = {BUNDLE_GPU_SM90, BUNDLE_GPU_SM90};
    struct kernel_table table = table_over(records, gpus, 2);
    libdecode_problem problem = llama3_8b();
    problem.head_dim = 64;
    expect_refusal(LIBDECODE_ERROR_NOT_IN_BUNDLE, "nearest is gqa_decode_kvbf16_d128_r8_p16_c1_o0_sm90",
                   "head_dim 80 to 128, the problem has 64", &problem, &device, &policy, &table);
    struct kernel_table empty = table_over(NULL, NULL, 0);
    expect_refusal(LIBDECODE_ERROR_NOT_IN_BUNDLE, "hold no kernel", "LIBDECODE_BUNDLE_PATH", &problem, &device, &policy, &empty);
    forget_table(&table);
    forget_table(&empty);
}

/* Only what the grid of no family holds is unsupported; the bundles at hand may hold little of it. */
static void a_small_bundle_does_not_speak_for_the_grid(void **state) {
    (void)state;
    struct policy policy = no_policy();
    libdecode_device device = preset("sm_90");
    struct kernel_record records[1] = {*find_record("gqa_decode_kvbf16_d128_r8_p16_c1_o0_sm90")};
    uint32_t gpus[1] = {BUNDLE_GPU_SM90};
    struct kernel_table table = table_over(records, gpus, 1);
    libdecode_problem problem = llama3_8b();
    problem.query_dtype = LIBDECODE_DTYPE_FP16;
    expect_refusal(LIBDECODE_ERROR_NOT_IN_BUNDLE, "nearest is gqa_decode_kvbf16_d128_r8_p16_c1_o0_sm90",
                   "query_dtype bf16, the problem has fp16", &problem, &device, &policy, &table);
    problem = llama3_8b();
    problem.head_dim = 64;
    expect_refusal(LIBDECODE_ERROR_NOT_IN_BUNDLE, "nearest is", "head_dim 80 to 128, the problem has 64", &problem, &device,
                   &policy, &table);
    problem.q_len = 2000;
    expect_refusal(LIBDECODE_ERROR_UNSUPPORTED, "q_len 2000 (built: up to 1024)", "nearest is gqa_decode_kvbf16", &problem,
                   &device, &policy, &table);
    struct kernel_table empty = table_over(NULL, NULL, 0);
    expect_refusal(LIBDECODE_ERROR_UNSUPPORTED, "q_len 2000 (built: up to 1024)", "change the problem", &problem, &device,
                   &policy, &empty);
    forget_table(&table);
    forget_table(&empty);
}

/* As with a bundle of some variants: each problem has its kernel in the grid, and the refusal says what the nearest lacks. */
static void formats_and_pages_that_are_not_at_hand_are_named(void **state) {
    (void)state;
    struct policy policy = no_policy();
    libdecode_device device = preset("sm_90");
    static const struct {
        const char *at_hand;
        libdecode_dtype query, kv, out;
        int32_t head_dim, page_size;
        const char *lack;
    } cases[] = {
        {"gqa_decode_kvbf16_d128_r8_p16_c1_o0_sm90", LIBDECODE_DTYPE_BF16, LIBDECODE_DTYPE_BF16, LIBDECODE_DTYPE_BF16, 128, 1,
         "page_size powers of two from 16 to 1024, the problem has 1;"},
        {"gqa_decode_kvbf16_d128_r8_p16_c1_o0_sm90", LIBDECODE_DTYPE_BF16, LIBDECODE_DTYPE_BF16, LIBDECODE_DTYPE_BF16, 128, 24,
         "page_size powers of two from 16 to 1024, the problem has 24;"},
        {"gqa_decode_kvbf16_d128_r8_p1_c1_o0_sm90", LIBDECODE_DTYPE_BF16, LIBDECODE_DTYPE_NVFP4, LIBDECODE_DTYPE_BF16, 128, 5,
         "kv_dtype bf16, the problem has nvfp4;"},
        {"gqa_decode_kvnvfp4_d128_r8_p16_c1_o0_sm90", LIBDECODE_DTYPE_E4M3, LIBDECODE_DTYPE_NVFP4, LIBDECODE_DTYPE_NVFP4, 128, 4,
         "page_size powers of two from 16 to 1024, the problem has 4;"},
        {"gqa_decode_kvnvfp4_d128_r8_p1_c1_o0_sm90", LIBDECODE_DTYPE_FP16, LIBDECODE_DTYPE_NVFP4, LIBDECODE_DTYPE_FP16, 192, 16,
         "head_dim 80 to 128, the problem has 192;"},
        {"gqa_decode_kve4m3_d64_r8_p16_c8_o0_sm90", LIBDECODE_DTYPE_E4M3, LIBDECODE_DTYPE_E4M3, LIBDECODE_DTYPE_NVFP4, 64, 16,
         "out_dtype bf16/fp16/e4m3, the problem has nvfp4;"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct kernel_record records[1] = {*find_record(cases[i].at_hand)};
        uint32_t gpus[1] = {BUNDLE_GPU_SM90};
        struct kernel_table table = table_over(records, gpus, 1);
        char nearest[128];
        (void)snprintf(nearest, sizeof nearest, "nearest is %s: ", cases[i].at_hand);
        libdecode_problem problem = llama3_8b();
        problem.query_dtype = cases[i].query;
        problem.kv_dtype = cases[i].kv;
        problem.out_dtype = cases[i].out;
        problem.head_dim = cases[i].head_dim;
        problem.page_size = cases[i].page_size;
        expect_refusal(LIBDECODE_ERROR_NOT_IN_BUNDLE, nearest, cases[i].lack, &problem, &device, &policy, &table);
        (void)expect_choice(&problem, &device, &policy, &grid->table);
        forget_table(&table);
    }
}

/* The features of both sides, ten names and more, would hide it. */
static void of_features_a_refusal_names_those_alone_that_are_missing(void **state) {
    (void)state;
    struct policy policy = no_policy();
    libdecode_device device = preset("sm_90");
    struct kernel_record record = *find_record("gqa_decode_kvbf16_d128_r8_p16_c1_o0_sm90");
    uint32_t gpus = BUNDLE_GPU_SM90;
    struct kernel_table table = table_over(&record, &gpus, 1);
    libdecode_problem problem = llama3_8b();
    problem.features = LIBDECODE_FEATURE_WINDOW | LIBDECODE_FEATURE_SINKS | LIBDECODE_FEATURE_LSE | LIBDECODE_FEATURE_RAGGED_Q |
                       LIBDECODE_FEATURE_QUERY_POSITIONS | LIBDECODE_FEATURE_HOST_SEQ_LENS;
    problem.window_left = 100;
    (void)expect_choice(&problem, &device, &policy, &table);
    problem.features |= LIBDECODE_FEATURE_SOFT_CAP;
    problem.logits_soft_cap = 30;
    expect_refusal(LIBDECODE_ERROR_NOT_IN_BUNDLE, "nearest is gqa_decode_kvbf16_d128_r8_p16_c1_o0_sm90: lacks soft_cap;", "",
                   &problem, &device, &policy, &table);
    problem.features |= LIBDECODE_FEATURE_ALIBI;
    expect_refusal(LIBDECODE_ERROR_NOT_IN_BUNDLE, ": lacks soft_cap+alibi;", "", &problem, &device, &policy, &table);
    forget_table(&table);
}

/* The grid has a page kind of its own for what boxes cannot be: no kernel of whole pages counts as one for every page. */
static void a_variant_of_the_grid_does_what_its_kernel_does(void **state) {
    (void)state;
    size_t count, gathers = 0, without_nvfp4 = 0;
    const struct grid_variant *variants = grid_variants(&count);
    for (size_t i = 0; i < count; i++) {
        const struct libdecode_launch_contract contract = grid_contract(&variants[i]);
        if (contract.family != KERNEL_FAMILY_GQA_DECODE)
            continue;
        bool gathers_rows = (contract.flags & CONTRACT_FLAG_ROW_GATHER) != 0;
        bool is_16_bit = contract.kv_dtype == KERNEL_DTYPE_BF16 || contract.kv_dtype == KERNEL_DTYPE_FP16;
        bool writes_nvfp4 = (contract.out_dtypes >> KERNEL_DTYPE_NVFP4 & 1u) != 0;
        assert_int_equal(gathers_rows, variants[i].min_page_size == 1);
        assert_int_equal(contract.query_dtypes,
                         is_16_bit ? 1u << contract.kv_dtype
                                   : 1u << KERNEL_DTYPE_BF16 | 1u << KERNEL_DTYPE_FP16 | 1u << KERNEL_DTYPE_E4M3);
        assert_int_equal(writes_nvfp4, !is_16_bit && contract.head_dim / contract.cluster_size >= 16);
        assert_int_equal(contract.out_dtypes >> KERNEL_DTYPE_E4M3 & 1u, !is_16_bit);
        gathers += gathers_rows;
        without_nvfp4 += !writes_nvfp4;
    }
    assert_true(gathers > 0 && without_nvfp4 > 0);
}

/* Keys are turned whether or not a launch asks for it: nobody else may be given such a kernel, not even if nothing else is left. */
static void kernels_of_rope_alone_serve_nobody_else(void **state) {
    (void)state;
    struct policy policy = no_policy();
    libdecode_device device = preset("sm_90");
    libdecode_problem problem = llama3_8b();
    struct kernel_record record = *find_record("gqa_decode_kvbf16_d128_r8_p16_c1_o4_sm90");
    uint32_t gpus = BUNDLE_GPU_SM90;
    struct kernel_table table = table_over(&record, &gpus, 1);
    expect_refusal(LIBDECODE_ERROR_NOT_IN_BUNDLE, "rotation rope only", "the problem has none", &problem, &device, &policy,
                   &table);
    problem.features = LIBDECODE_FEATURE_ROPE;
    assert_ptr_equal(expect_choice(&problem, &device, &policy, &table).record, &record);
    forget_table(&table);
}

static void the_nearest_kernel_is_one_of_this_gpu_where_there_is_one(void **state) {
    (void)state;
    struct policy policy = no_policy();
    libdecode_device device = preset("sm_90");
    struct kernel_record records[2] = {*find_record("gqa_decode_kvbf16_d128_r8_p16_c1_o0_sm100"),
                                       *find_record("gqa_decode_kvbf16_d64_r8_p16_c1_o0_sm90")};
    uint32_t gpus[2] = {BUNDLE_GPU_SM100 | BUNDLE_GPU_SM103, BUNDLE_GPU_SM90};
    struct kernel_table table = table_over(records, gpus, 2);
    libdecode_problem problem = llama3_8b();
    expect_refusal(LIBDECODE_ERROR_NOT_IN_BUNDLE, "nearest is gqa_decode_kvbf16_d64_r8_p16_c1_o0_sm90",
                   "head_dim 16 to 64, the problem has 128", &problem, &device, &policy, &table);
    problem.q_len = 2000;
    expect_refusal(LIBDECODE_ERROR_UNSUPPORTED, "q_len 2000", "nearest is gqa_decode_kvbf16_d64_r8_p16_c1_o0_sm90", &problem,
                   &device, &policy, &table);
    forget_table(&table);
    table = table_over(records, gpus, 1);
    expect_refusal(LIBDECODE_ERROR_UNSUPPORTED, "q_len 2000", "nearest is gqa_decode_kvbf16_d128_r8_p16_c1_o0_sm100", &problem,
                   &device, &policy, &table);
    forget_table(&table);
}

static void a_gpu_that_no_bundle_serves_is_named_with_those_that_are(void **state) {
    (void)state;
    struct policy policy = no_policy();
    struct grid *only_sm100 = grid_create(1u << 1);
    libdecode_problem problem = llama3_8b();
    libdecode_device device = preset("sm_90");
    expect_refusal(LIBDECODE_ERROR_NO_GPU_IMAGE, "no image for sm_90 (H200)", "serve sm_100, sm_103", &problem, &device, &policy,
                   &only_sm100->table);
    device.compute_capability = 86;
    expect_refusal(LIBDECODE_ERROR_NO_GPU_IMAGE, "sm_86", "built for sm_90", &problem, &device, &policy, &grid->table);
    grid_destroy(only_sm100);
}

static void a_gpu_too_small_or_a_driver_too_old_is_said_in_numbers(void **state) {
    (void)state;
    struct policy policy = no_policy();
    libdecode_problem problem = llama3_8b();
    libdecode_device device = preset("sm_90");
    device.max_shared_bytes_per_block = 49152;
    expect_refusal(LIBDECODE_ERROR_NO_GPU_IMAGE, "needs 180224 bytes of shared memory", "has 49152", &problem, &device, &policy,
                   &grid->table);
    device = preset("sm_90");
    device.driver_version = 12080;
    expect_refusal(LIBDECODE_ERROR_DRIVER_TOO_OLD, "CUDA 13.0 or newer", "12.8", &problem, &device, &policy, &grid->table);
    device.driver_version = 13000;
    (void)expect_choice(&problem, &device, &policy, &grid->table);
    device = preset("sm_90");
    device.sm_count = 2; /* no room for a cluster, but for single CTAs */
    device.resident_clusters_2 = device.resident_clusters_4 = device.resident_clusters_8 = 0;
    problem.batch_size = 1;
    assert_int_equal(expect_choice(&problem, &device, &policy, &grid->table).record->kernel->contract.cluster_size, 1);
}

/* The launch refuses by the same rule (module.c). */
static void a_driver_of_the_right_major_version_may_still_be_too_old(void **state) {
    (void)state;
    struct fixture_kernel kernel = {.name = "gqa_decode_kvbf16_d128_r8_p16_c1_o0_sm90", .target = 90};
    size_t bytes;
    uint8_t *data = fixture_bundle(&kernel, 1, &bytes);
    fixture_header(data)->min_driver = 13020;
    fixture_seal(data, bytes);
    struct bundle *bundle;
    struct kernel_table table;
    assert_int_equal(bundle_open_memory(data, bytes, "memory", &bundle), LIBDECODE_OK);
    assert_int_equal(kernel_table_build(&bundle, 1, &table), LIBDECODE_OK);
    libdecode_problem problem = llama3_8b();
    libdecode_device device = preset("sm_90");
    struct policy policy = no_policy();
    device.driver_version = 13010;
    assert_false(bundle_runs_on(bundle, device.driver_version));
    expect_refusal(LIBDECODE_ERROR_DRIVER_TOO_OLD, "CUDA 13.2 or newer", "13.1", &problem, &device, &policy, &table);
    device.driver_version = 13020;
    assert_true(bundle_runs_on(bundle, device.driver_version));
    (void)expect_choice(&problem, &device, &policy, &table);
    kernel_table_destroy(&table);
    bundle_close(bundle);
    free(data);
}

/* ------------------------------------------------------------------------------------------------------- whole words */

static void of_features_that_are_not_built_together_each_is_named(void **state) {
    (void)state;
    struct policy policy = no_policy();
    libdecode_problem problem = llama3_8b();
    problem.features =
        LIBDECODE_FEATURE_QUERY_OFFSETS | LIBDECODE_FEATURE_SOFT_CAP | LIBDECODE_FEATURE_SINKS | LIBDECODE_FEATURE_LSE;
    problem.logits_soft_cap = 30;
    static const char *const gpus[] = {"sm_90", "sm_100", "sm_103", "sm_120", "sm_121"};
    for (size_t i = 0; i < sizeof gpus / sizeof gpus[0]; i++) {
        libdecode_device device = preset(gpus[i]);
        expect_refusal(
            LIBDECODE_ERROR_UNSUPPORTED,
            "does features sinks+lse+soft_cap+query_offsets (built: all but query_offsets, all but soft_cap); nearest is ",
            "; change the problem", &problem, &device, &policy, &grid->table);
    }
}

/* Every list in brackets is closed, and was no longer than there was room for; what to do stands at the end. */
static void expect_whole_refusal(const char *message) {
    static const char remedy[] = "; change the problem, or use libdecode_reference on the host", built[] = "(built: ";
    const size_t length = strlen(message);
    bool is_whole = length >= sizeof remedy - 1 && strcmp(message + length - (sizeof remedy - 1), remedy) == 0;
    for (const char *list = strstr(message, built); is_whole && list; list = strstr(list + 1, built)) {
        const char *end = strpbrk(list, ");");
        is_whole = end[0] == ')' && end[1] == ';' && end - list < AXIS_TEXT_BYTES + (ptrdiff_t)strlen(built) - 1;
    }
    if (!is_whole)
        fail_msg("%zu bytes: '%s'", length, message);
}

static size_t expect_whole_refusals_of(const libdecode_problem *problem) {
    static const char *const gpus[] = {"sm_90", "sm_100", "sm_120"};
    struct policy policy = no_policy();
    struct problem checked;
    struct selection selection;
    size_t count = 0;
    for (size_t i = 0; i < sizeof gpus / sizeof gpus[0] && problem_check(problem, &checked) == LIBDECODE_OK; i++) {
        libdecode_device device = preset(gpus[i]);
        if (select_kernel(&checked, &device, &policy, &grid->table, NULL, NULL, &selection) != LIBDECODE_ERROR_UNSUPPORTED)
            continue;
        expect_whole_refusal(libdecode_error_message());
        count++;
    }
    return count;
}

/* Of two features, or of all, with more and more beside them that no kernel does. */
static size_t expect_whole_refusals_with(libdecode_problem problem, uint32_t features) {
    size_t count = 0;
    problem.features = features;
    problem.logits_soft_cap = (features & LIBDECODE_FEATURE_SOFT_CAP) != 0 ? 30 : 0;
    problem.page_table_v_offset = (features & LIBDECODE_FEATURE_V_PAGE_TABLE) != 0 ? 4096 : 0;
    count += expect_whole_refusals_of(&problem);
    problem.q_len = 2000;
    count += expect_whole_refusals_of(&problem);
    problem.batch_size = INT32_MAX / 4;
    if (problem.op == LIBDECODE_OP_BATCH_DECODE)
        problem.k_token_stride = 2 * problem.head_dim + 1;
    return count + expect_whole_refusals_of(&problem);
}

static void refusals_are_whole_however_much_is_wrong(void **state) {
    (void)state;
    enum { FEATURES = 22, LAST = LIBDECODE_FEATURE_LSE_ALIBI_FROM_ZERO };
    static const libdecode_dtype dtypes[] = {LIBDECODE_DTYPE_BF16, LIBDECODE_DTYPE_E4M3, LIBDECODE_DTYPE_NVFP4,
                                             LIBDECODE_DTYPE_E5M2};
    _Static_assert((int)LAST == 1 << (FEATURES - 1), "all of libdecode.h");
    size_t refused[3] = {0};
    for (size_t kind = 0; kind < 3; kind++) { /* batch decode, MLA, sparse MLA */
        for (size_t i = 0; i < 2 * sizeof dtypes / sizeof dtypes[0]; i++) {
            libdecode_problem problem = kind == 0 ? llama3_8b() : some_mla();
            problem.kv_dtype = dtypes[i / 2];
            problem.head_dim = kind > 0 ? 576 : i % 2 == 0 ? 128 : 512;
            problem.page_table_request_stride = 8192;
            if (kind == 2) {
                problem.sparse_top_k = 2048;
                problem.num_pages = 4096;
                problem.page_table_request_stride = 0;
                problem.kv_row_format = i % 2 == 0 ? LIBDECODE_KV_ROW_PLAIN : LIBDECODE_KV_ROW_FP8_SCALED_656;
                problem.query_dtype = i % 2 == 0 ? LIBDECODE_DTYPE_BF16 : LIBDECODE_DTYPE_FP16;
            }
            for (uint32_t pair = 0; pair < FEATURES * FEATURES; pair++)
                refused[kind] += expect_whole_refusals_with(problem, 1u << pair % FEATURES | 1u << pair / FEATURES);
            const uint32_t of_others = LIBDECODE_FEATURE_QUERY_ROPE | LIBDECODE_FEATURE_SPARSE_TOP_K_LENS;
            const uint32_t of_no_pages = LIBDECODE_FEATURE_CONTIGUOUS_KV;
            refused[kind] += expect_whole_refusals_with(problem, (2 * (uint32_t)LAST - 1) & ~of_others & ~of_no_pages);
        }
    }
    assert_true(refused[0] > 1000 && refused[1] > 100 && refused[2] > 100);
}

/* ------------------------------------------------------------------------------------------------------- verdicts */

struct tally {
    size_t verdicts, chosen, eligible, without_reason;
    char chosen_name[128];
};

static void count_verdict(void *cookie, const libdecode_verdict *verdict) {
    struct tally *tally = cookie;
    tally->verdicts++;
    tally->chosen += verdict->chosen != 0;
    tally->eligible += verdict->eligible != 0;
    tally->without_reason +=
        !verdict->reason || verdict->reason[0] == '\0' || (verdict->eligible != 0) != (verdict->predicted_ns > 0);
    if (verdict->chosen)
        (void)strncpy(tally->chosen_name, verdict->kernel, sizeof tally->chosen_name - 1);
}

static void every_kernel_gets_one_verdict_with_a_reason(void **state) {
    (void)state;
    libdecode_device device = preset("sm_121");
    libdecode_problem problem = llama3_8b();
    struct policy policy = no_policy();
    struct problem checked;
    struct selection selection;
    struct tally tally = {0};
    assert_int_equal(problem_check(&problem, &checked), LIBDECODE_OK);
    assert_int_equal(select_kernel(&checked, &device, &policy, &grid->table, count_verdict, &tally, &selection), LIBDECODE_OK);
    assert_int_equal(tally.verdicts, grid->table.count);
    assert_int_equal(tally.chosen, 1);
    /* three row tiles, pages whole and row by row, four cluster sizes, two of these with all options but RoPE; up to 16 rows in
     * pairs, too; eight rows with all options; one row tile with offsets */
    assert_int_equal(tally.eligible, 36 + 2 + 4 + 3);
    assert_int_equal(tally.without_reason, 0);
    assert_string_equal(tally.chosen_name, selection.record->name);

    problem.q_len = 2000;
    tally = (struct tally){0};
    assert_int_equal(problem_check(&problem, &checked), LIBDECODE_OK);
    assert_int_equal(select_kernel(&checked, &device, &policy, &grid->table, count_verdict, &tally, &selection),
                     LIBDECODE_ERROR_UNSUPPORTED);
    assert_int_equal(tally.verdicts, grid->table.count);
    assert_int_equal(tally.chosen + tally.eligible + tally.without_reason, 0);
}

static void a_kernel_of_another_family_is_never_chosen(void **state) {
    (void)state;
    struct fixture_kernel kernel = {.name = "read_ceiling_sm90", .target = 90, .contract = fixture_contract()};
    kernel.contract.family = KERNEL_FAMILY_READ_CEILING;
    kernel.contract.parameter_bytes = sizeof(struct read_ceiling_params);
    size_t bytes;
    uint8_t *data = fixture_bundle(&kernel, 1, &bytes);
    struct bundle *bundle;
    struct kernel_table table;
    assert_int_equal(bundle_open_memory(data, bytes, "memory", &bundle), LIBDECODE_OK);
    assert_int_equal(kernel_table_build(&bundle, 1, &table), LIBDECODE_OK);
    libdecode_problem problem = llama3_8b();
    libdecode_device device = preset("sm_90");
    struct policy policy = no_policy();
    expect_refusal(LIBDECODE_ERROR_NOT_IN_BUNDLE, "hold no kernel", "doctor", &problem, &device, &policy, &table);
    assert_int_equal(policy_parse("force=read_ceiling*", "x", false, &table, &policy), LIBDECODE_ERROR_OVERRIDE);
    kernel_table_destroy(&table);
    bundle_close(bundle);
    free(data);
}

/* All of it: what a refusal, and strict, say of kernels that are not at hand is what those would say themselves. */
static void a_variant_of_the_grid_computes_what_its_kernel_computes(void **state) {
    (void)state;
    size_t count, compared = 0;
    const struct grid_variant *variants = grid_variants(&count);
    for (size_t i = 0; i < count; i++) {
        const struct grid_variant *variant = &variants[i];
        if (variant->family != KERNEL_FAMILY_GQA_DECODE)
            continue;
        char name[BUNDLE_MAX_NAME_BYTES];
        (void)snprintf(name, sizeof name, "gqa_decode_kv%s_d%u_r%u_p%u_c%u_o%u_sm%u",
                       dtype_name((libdecode_dtype)variant->kv_dtype), variant->head_dim, variant->row_tile,
                       variant->min_page_size, variant->cluster_size, variant->options, variant->target);
        const struct libdecode_launch_contract ours = grid_contract(variant), *kernels = &find_record(name)->kernel->contract;
        const bool is_contiguous = (ours.features & CONTRACT_FEATURE_CONTIGUOUS_KV) != 0;
        assert_int_equal(is_contiguous, variant->min_page_size > 1 || variant->options == 2); /* boxes find those rows */
        if (((ours.features ^ kernels->features) & ~(uint32_t)CONTRACT_FEATURE_CONTIGUOUS_KV) != 0 ||
            ours.query_dtypes != kernels->query_dtypes || ours.out_dtypes != kernels->out_dtypes ||
            ((ours.flags ^ kernels->flags) & (CONTRACT_FLAG_ROW_GATHER | CONTRACT_FLAG_ANY_ROWS | CONTRACT_FLAG_ONLY_ROPE)) != 0)
            fail_msg("%s: features 0x%x, its kernel's 0x%x; queries 0x%x, 0x%x; results 0x%x, 0x%x; flags 0x%x, 0x%x", name,
                     ours.features, kernels->features, ours.query_dtypes, kernels->query_dtypes, ours.out_dtypes,
                     kernels->out_dtypes, ours.flags, kernels->flags);
        compared++;
    }
    assert_true(compared > 500);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_no_kernel_does_is_unsupported_and_says_what_is_built),
        cmocka_unit_test(what_only_another_bundle_would_have_is_not_in_bundle),
        cmocka_unit_test(a_small_bundle_does_not_speak_for_the_grid),
        cmocka_unit_test(formats_and_pages_that_are_not_at_hand_are_named),
        cmocka_unit_test(of_features_a_refusal_names_those_alone_that_are_missing),
        cmocka_unit_test(a_variant_of_the_grid_does_what_its_kernel_does),
        cmocka_unit_test(kernels_of_rope_alone_serve_nobody_else),
        cmocka_unit_test(the_nearest_kernel_is_one_of_this_gpu_where_there_is_one),
        cmocka_unit_test(a_gpu_that_no_bundle_serves_is_named_with_those_that_are),
        cmocka_unit_test(a_gpu_too_small_or_a_driver_too_old_is_said_in_numbers),
        cmocka_unit_test(a_driver_of_the_right_major_version_may_still_be_too_old),
        cmocka_unit_test(of_features_that_are_not_built_together_each_is_named),
        cmocka_unit_test(refusals_are_whole_however_much_is_wrong),
        cmocka_unit_test(every_kernel_gets_one_verdict_with_a_reason),
        cmocka_unit_test(a_kernel_of_another_family_is_never_chosen),
        cmocka_unit_test(a_variant_of_the_grid_computes_what_its_kernel_computes),
    };
    return cmocka_run_group_tests_name("refusal", tests, create_grid, destroy_grid);
}
