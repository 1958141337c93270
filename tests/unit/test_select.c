/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_select.c: the choice of a kernel over the real grid on the five GPUs: every answer passes its own conditions, does not
 * depend on the order of records, is not moved by a worse kernel; and what a policy does to it. (test_judgement.c: refusals.)
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
#include "bundle_fixture.h"
#include "family.h"
#include "launch.h"
#include "select_scene.h"
#include "target.h"

static const char *const gpu_names[] = {"sm_90", "sm_100", "sm_103", "sm_120", "sm_121"};

/* Shapes of Llama 3 8B, 70B, and 70B over 8 GPUs, with lengths and batches from one request to many. */
static libdecode_problem shape(int index) {
    static const int heads[][2] = {{32, 8}, {64, 8}, {8, 1}, {32, 32}, {40, 1}, {71, 1}, {20, 4}};
    static const int batches[] = {1, 16, 128}, lengths[] = {1, 4096, 131072}, pages[] = {16, 128, 1024};
    libdecode_problem problem = llama3_8b();
    problem.num_qo_heads = heads[index % 7][0];
    problem.num_kv_heads = heads[index % 7][1];
    problem.batch_size = batches[index / 7 % 3];
    problem.max_seq_len = lengths[index / 21 % 3];
    problem.page_size = pages[index / 63 % 3];
    problem.head_dim = index / 189 % 2 ? 64 : 128;
    problem.query_dtype = index / 378 % 2 ? LIBDECODE_DTYPE_FP16 : LIBDECODE_DTYPE_BF16;
    problem.features = index % 5 == 0 ? LIBDECODE_FEATURE_WINDOW | LIBDECODE_FEATURE_SINKS | LIBDECODE_FEATURE_LSE : 0;
    problem.window_left = index % 5 == 0 ? 1023 : 0;
    return problem;
}
#define NUM_SHAPES (7 * 27 * 4)

static void all_five_gpus_have_an_answer_that_passes_its_own_conditions(void **state) {
    (void)state;
    struct policy policy = no_policy();
    for (int index = 0; index < NUM_SHAPES; index++) {
        libdecode_problem problem = shape(index);
        for (size_t gpu = 0; gpu < 5; gpu++) {
            libdecode_device device = preset(gpu_names[gpu]);
            struct selection selection = expect_choice(&problem, &device, &policy, &grid->table);
            const struct libdecode_launch_contract *contract = &selection.record->kernel->contract;
            size_t place = (size_t)(selection.record - grid->table.records);
            assert_true((grid->table.gpus[place] & gpu_bit(device.compute_capability)) != 0);
            assert_true((contract->query_dtypes >> problem.query_dtype & 1u) != 0);
            assert_true((contract->flags & CONTRACT_FLAG_ROW_GATHER) == 0); /* whole pages are the faster copies */
            assert_int_equal(contract->head_dim, problem.head_dim);
            assert_true((uint32_t)device.max_shared_bytes_per_block >= contract->dynamic_shared_bytes);
            int rows = problem.num_qo_heads / problem.num_kv_heads;
            assert_true(selection.row_passes * (int)contract->row_tile >= rows);
            assert_true((selection.row_passes - 1) * (int)contract->row_tile < rows);
            assert_true(selection.num_workers >= 1);
            assert_true((uint32_t)selection.num_workers * contract->cluster_size <=
                        (uint32_t)device.sm_count * contract->ctas_per_sm);
            assert_int_equal(selection.workspace.records.bytes,
                             (size_t)device.sm_count * contract->ctas_per_sm * 2 * contract->record_bytes);
            assert_true(selection.predicted_ns > 0 && selection.min_tiles_per_worker >= 1 && selection.reason[0] != '\0');
        }
    }
}

/* The same records in another order, as another set of bundles would give them. */
static struct kernel_table shuffled(const struct kernel_table *table, unsigned seed) {
    struct kernel_table copy = {.count = table->count};
    copy.records = malloc(table->count * sizeof *copy.records);
    copy.gpus = malloc(table->count * sizeof *copy.gpus);
    memcpy(copy.records, table->records, table->count * sizeof *copy.records);
    memcpy(copy.gpus, table->gpus, table->count * sizeof *copy.gpus);
    for (size_t i = table->count - 1; i > 0; i--) {
        seed = seed * 1664525u + 1013904223u;
        size_t j = (seed >> 8) % (i + 1);
        struct kernel_record record = copy.records[i];
        uint32_t gpus = copy.gpus[i];
        copy.records[i] = copy.records[j];
        copy.gpus[i] = copy.gpus[j];
        copy.records[j] = record;
        copy.gpus[j] = gpus;
    }
    assert_int_equal(kernel_index_create(&copy, &copy.index), LIBDECODE_OK);
    return copy;
}

static void the_order_of_records_never_changes_the_answer(void **state) {
    (void)state;
    struct policy policy = no_policy();
    for (unsigned seed = 1; seed <= 5; seed++) {
        struct kernel_table table = shuffled(&grid->table, seed);
        for (int index = 0; index < NUM_SHAPES; index += 3) {
            libdecode_problem problem = shape(index);
            libdecode_device device = preset(gpu_names[index % 5]);
            struct selection a = expect_choice(&problem, &device, &policy, &grid->table);
            struct selection b = expect_choice(&problem, &device, &policy, &table);
            assert_string_equal(a.record->name, b.record->name);
            assert_string_equal(a.reason, b.reason);
            assert_int_equal(a.num_workers, b.num_workers);
        }
        libdecode_problem unsupported = llama3_8b();
        libdecode_device device = preset("sm_90");
        struct selection ignored;
        char message[1024];
        unsupported.q_len = 2000;
        assert_int_equal(choose(&unsupported, &device, &policy, &grid->table, &ignored), LIBDECODE_ERROR_UNSUPPORTED);
        (void)strncpy(message, libdecode_error_message(), sizeof message - 1);
        assert_int_equal(choose(&unsupported, &device, &policy, &table, &ignored), LIBDECODE_ERROR_UNSUPPORTED);
        assert_int_equal(strlen(message),
                         strlen(libdecode_error_message())); /* only the order inside "built:" follows the table */
        kernel_table_destroy(&table);
    }
}

/* As candidates are found: every kernel under its own key, on every GPU that it serves, and hardly any other. */
static void the_index_has_every_kernel_under_its_key(void **state) {
    (void)state;
    size_t others = 0, places = 0;
    for (size_t i = 0; i < grid->table.count; i++) {
        const struct libdecode_launch_contract *contract = &grid->table.records[i].kernel->contract;
        for (uint32_t gpu = BUNDLE_GPU_SM90; gpu <= BUNDLE_GPU_SM121; gpu <<= 1) {
            const struct kernel_key key = {LIBDECODE_OP_BATCH_DECODE, contract->kv_dtype, contract->head_dim, gpu};
            const uint32_t *candidates;
            size_t count = kernel_table_candidates(&grid->table, &key, &candidates), found = 0;
            for (size_t j = 0; j < count; j++) {
                const struct libdecode_launch_contract *other = &grid->table.records[candidates[j]].kernel->contract;
                found += candidates[j] == i;
                others += (grid->table.gpus[candidates[j]] & gpu) == 0 || other->kv_dtype != contract->kv_dtype ||
                          other->head_dim != contract->head_dim;
            }
            places += count;
            assert_int_equal(found, (grid->table.gpus[i] & gpu) != 0);
        }
    }
    assert_true(others < places / 4);
}

static void of_two_equal_kernels_the_name_decides(void **state) {
    (void)state;
    struct policy policy = no_policy();
    libdecode_device device = preset("sm_90");
    libdecode_problem problem = llama3_8b();
    struct kernel_record twin = *expect_choice(&problem, &device, &policy, &grid->table).record;
    struct kernel_record records[2] = {twin, twin};
    uint32_t gpus[2] = {BUNDLE_GPU_SM90, BUNDLE_GPU_SM90};
    struct kernel_table table = table_over(records, gpus, 2);
    for (size_t first = 0; first < 2; first++) {
        records[first].name = "a";
        records[1 - first].name = "b";
        assert_string_equal(expect_choice(&problem, &device, &policy, &table).record->name, "a");
    }
    forget_table(&table);
}

static void a_worse_kernel_never_changes_the_answer(void **state) {
    (void)state;
    struct policy policy = no_policy();
    libdecode_device device = preset("sm_90");
    for (int index = 0; index < NUM_SHAPES; index += 3) {
        libdecode_problem problem = shape(index);
        struct selection best = expect_choice(&problem, &device, &policy, &grid->table);
        struct bundle_kernel worse_kernel = *best.record->kernel;
        if (worse_kernel.contract.row_tile <= 16) /* wider ones may be faster */
            worse_kernel.contract.row_tile *= 2;
        else
            worse_kernel.contract.features |= CONTRACT_OPTIONS;
        struct kernel_table table = {.count = grid->table.count + 1};
        table.records = malloc(table.count * sizeof *table.records);
        table.gpus = malloc(table.count * sizeof *table.gpus);
        table.records[0] = *best.record;
        table.records[0].name = "a_worse_kernel";
        table.records[0].kernel = &worse_kernel;
        table.gpus[0] = BUNDLE_GPU_SM90;
        memcpy(table.records + 1, grid->table.records, grid->table.count * sizeof *table.records);
        memcpy(table.gpus + 1, grid->table.gpus, grid->table.count * sizeof *table.gpus);
        assert_int_equal(kernel_index_create(&table, &table.index), LIBDECODE_OK);
        if (best.row_passes == 1) {
            struct selection again = expect_choice(&problem, &device, &policy, &table);
            assert_string_equal(again.record->name, best.record->name);
        }
        kernel_table_destroy(&table);
    }
}

/* Of many units 64 rows by warpgroups take 0.5 to 1 % less than 32 by single warps (an H200, 64 requests of 4,096 and 8,192 tokens). */
static void the_smallest_tile_with_one_pass_is_taken_and_wide_groups_take_the_widest(void **state) {
    (void)state;
    struct policy policy = no_policy();
    libdecode_device device = preset("sm_90");
    static const struct {
        int group;
        uint32_t row_tile;
        int passes;
    } expected[] = {{1, 8, 1},   {4, 8, 1},   {8, 8, 1},    {9, 16, 1},    {16, 16, 1},   {17, 64, 1},  {32, 64, 1},
                    {33, 64, 1}, {64, 64, 1}, {65, 128, 1}, {128, 128, 1}, {129, 128, 2}, {400, 128, 4}};
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        libdecode_problem problem = llama3_8b();
        problem.batch_size = 64;
        problem.num_kv_heads = 2;
        problem.num_qo_heads = 2 * expected[i].group;
        struct selection selection = expect_choice(&problem, &device, &policy, &grid->table);
        assert_int_equal(selection.record->kernel->contract.row_tile, expected[i].row_tile);
        assert_int_equal(selection.row_passes, expected[i].passes);
    }
}

static void units_stay_whole_while_there_are_ctas_for_them(void **state) {
    (void)state;
    struct policy policy = no_policy();
    static const struct {
        const char *gpu;
        int batch_size, max_seq_len;
        uint32_t cluster_size;
        int num_workers;
    } expected[] = {
        {"sm_90", 1, 4096, 8, 8},     /* one cluster for each KV head */
        {"sm_90", 1, 32768, 8, 8},    /* 64 of the 132 SMs take in all that memory gives */
        {"sm_90", 2, 4096, 4, 16},    /* 16 clusters of 8 are not resident at once */
        {"sm_90", 4, 4096, 2, 32},    /* likewise */
        {"sm_90", 16, 4096, 1, 128},  /* a unit for each CTA; */
        {"sm_90", 64, 4096, 1, 128},  /* four; */
        {"sm_90", 128, 8192, 1, 128}, /* eight: not all of the 132 that there is room for */
        {"sm_121", 16, 4096, 1, 32},  /* of 48 SMs: 43 would have as long ranges, and most units in two of them */
    };
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        libdecode_device device = preset(expected[i].gpu);
        libdecode_problem problem = llama3_8b();
        problem.batch_size = expected[i].batch_size;
        problem.max_seq_len = expected[i].max_seq_len;
        struct selection selection = expect_choice(&problem, &device, &policy, &grid->table);
        assert_int_equal(selection.record->kernel->contract.cluster_size, expected[i].cluster_size);
        assert_int_equal(selection.num_workers, expected[i].num_workers);
    }
}

/* Shapes come in nines of batch sizes and lengths (shape()); a GPU may have lost SMs. */
static void a_batch_invariant_problem_has_one_kernel_whatever_the_batch(void **state) {
    (void)state;
    struct policy policy = no_policy();
    for (int index = 0; index < NUM_SHAPES; index++) {
        libdecode_problem problem = shape(index);
        problem.features |= LIBDECODE_FEATURE_BATCH_INVARIANT;
        libdecode_device device = preset(gpu_names[index % 5]);
        const struct selection selection = expect_choice(&problem, &device, &policy, &grid->table);
        const struct libdecode_launch_contract *contract = &selection.record->kernel->contract;
        const size_t chunks = problem.num_kv_heads > 4 ? 16 : 32;
        assert_int_equal(contract->cluster_size, 1);
        assert_int_equal(selection.workspace.records.bytes,
                         (size_t)device.sm_count * contract->ctas_per_sm * 2 * chunks * contract->record_bytes);
        for (int32_t other = 1; other <= 300000; other *= 7) {
            problem.batch_size = 1 + other % 500;
            problem.max_seq_len = other;
            problem.total_kv_tokens = other % 3 == 0 ? 0 : other / 2 + 1;
            device.sm_count = 8 + other % 140;
            assert_ptr_equal(expect_choice(&problem, &device, &policy, &grid->table).record, selection.record);
        }
    }
}

/* Warps that copy rows compute nothing, however many they are. */
static void whole_pages_are_copied_where_both_kinds_of_kernel_serve(void **state) {
    (void)state;
    static const uint32_t box_consumer_warps[] = {1, 4, 8}; /* the first is predicted to be the slower kernel */
    struct policy policy = no_policy();
    for (size_t i = 0; i < 3 * 5 * 3; i++) {
        struct bundle_kernel kernels[2] = {{.contract = fixture_contract()}, {.contract = fixture_contract()}};
        struct kernel_record records[2] = {{.name = "a_rows", .kernel = &kernels[0], .family = &family_gqa_decode},
                                           {.name = "b_boxes", .kernel = &kernels[1], .family = &family_gqa_decode}};
        uint32_t gpus[2] = {0x1f, 0x1f};
        kernels[0].contract.dynamic_shared_bytes = kernels[1].contract.dynamic_shared_bytes = 90 * 1024;
        kernels[0].contract.consumer_warps = 4;
        kernels[0].contract.min_page_size = 1;
        kernels[0].contract.flags = CONTRACT_FLAG_ROW_GATHER;
        kernels[1].contract.consumer_warps = box_consumer_warps[i % 3];
        struct kernel_table table = table_over(records, gpus, 2);
        libdecode_device device = preset(gpu_names[i / 3 % 5]);
        libdecode_problem problem = llama3_8b();
        problem.batch_size = 1 << 3 * (i / 15);
        assert_string_equal(expect_choice(&problem, &device, &policy, &table).record->name, "b_boxes");
        problem.page_size = 24;
        assert_string_equal(expect_choice(&problem, &device, &policy, &table).record->name, "a_rows");
        forget_table(&table);
    }
}

static void a_prediction_follows_the_bytes_and_the_window(void **state) {
    (void)state;
    struct policy policy = no_policy();
    libdecode_device device = preset("sm_90");
    libdecode_problem problem = llama3_8b();
    problem.batch_size = 64;
    int32_t whole = expect_choice(&problem, &device, &policy, &grid->table).predicted_ns;
    int64_t bytes = (int64_t)64 * 8 * 4096 * 128 * 2 * 2;
    assert_in_range(whole, bytes / device.memory_bandwidth_gbps, bytes * 100 / 95 / device.memory_bandwidth_gbps + 10000);
    problem.features = LIBDECODE_FEATURE_WINDOW;
    problem.window_left = 1023;
    assert_true(expect_choice(&problem, &device, &policy, &grid->table).predicted_ns < whole / 3);
    device.memory_bandwidth_gbps = 0; /* not known: the typical one */
    problem.features = 0;
    problem.window_left = 0;
    assert_int_equal(expect_choice(&problem, &device, &policy, &grid->table).predicted_ns, whole);
    problem.max_seq_len = 1 << 26;
    problem.page_size = 1024;
    assert_int_equal(expect_choice(&problem, &device, &policy, &grid->table).predicted_ns, INT32_MAX);
}

static void a_batch_beyond_what_a_kernel_can_count_is_refused(void **state) {
    (void)state;
    struct policy policy = no_policy();
    libdecode_device device = preset("sm_90");
    libdecode_problem problem = llama3_8b();
    problem.page_size = 64;
    problem.batch_size = 64;
    problem.page_table_request_stride = (1 << 22) - 1; /* x 64 requests x 8 KV heads: 512 copies short of 2^31 */
    (void)expect_choice(&problem, &device, &policy, &grid->table);
    problem.page_table_request_stride = 1 << 22;
    expect_refusal(LIBDECODE_ERROR_UNSUPPORTED, "size of the batch", "2^31", &problem, &device, &policy, &grid->table);
    problem.kv_capacity_tokens = 1 << 20; /* no length is more, however wide the table */
    problem.max_seq_len = 0;
    (void)expect_choice(&problem, &device, &policy, &grid->table);
    problem.kv_capacity_tokens = 0;
    problem.page_table_head_stride = 1 << 20; /* a table for each head, the heads of a request side by side */
    problem.page_table_request_stride = 8 << 20;
    (void)expect_choice(&problem, &device, &policy, &grid->table);
    problem = llama3_8b();
    problem.features = LIBDECODE_FEATURE_CONTIGUOUS_KV;
    problem.page_size = problem.max_seq_len = 0;
    problem.page_table_request_stride = 0;
    problem.batch_size = 1 << 28; /* of empty units, which count, too */
    problem.kv_capacity_tokens = 0;
    expect_refusal(LIBDECODE_ERROR_UNSUPPORTED, "size of the batch", "2^31", &problem, &device, &policy, &grid->table);
}

/* -------------------------------------------------------------------------------------------------------- policy */

/* Options are left to problems that ask for them, whatever the other kernel's time; with no other at hand they do no harm. */
static void kernels_with_options_serve_problems_that_ask_for_them(void **state) {
    (void)state;
    struct policy policy = no_policy(), without_plain = parsed("deny=*_o0_*,deny=*_o2_*", false);
    libdecode_device device = preset("sm_90");
    for (int index = 0; index < NUM_SHAPES; index += 2) {
        libdecode_problem problem = shape(index);
        assert_non_null(strstr(expect_choice(&problem, &device, &policy, &grid->table).record->name, "_o0_"));
        assert_non_null(strstr(expect_choice(&problem, &device, &without_plain, &grid->table).record->name, "_o3_"));
        problem.features |= LIBDECODE_FEATURE_SOFT_CAP;
        problem.logits_soft_cap = 30;
        assert_non_null(strstr(expect_choice(&problem, &device, &policy, &grid->table).record->name, "_o3_"));
        problem.features |= LIBDECODE_FEATURE_ROPE;
        assert_non_null(strstr(expect_choice(&problem, &device, &policy, &grid->table).record->name, "_o1_"));
        problem.features ^= LIBDECODE_FEATURE_SOFT_CAP;
        problem.logits_soft_cap = 0;
        assert_non_null(strstr(expect_choice(&problem, &device, &policy, &grid->table).record->name, "_o4_"));
        problem.features ^= LIBDECODE_FEATURE_ROPE | LIBDECODE_FEATURE_SKIP_SOFTMAX;
        problem.skip_softmax_threshold_scale_factor = 1;
        assert_non_null(strstr(expect_choice(&problem, &device, &policy, &grid->table).record->name, "_o3_"));
    }
    policy_destroy(&without_plain);
}

/* A long request that is alone is computed by half of the SMs as fast as memory gives it, but not when keys are turned on the way. */
static void rope_takes_more_workers_for_long_requests(void **state) {
    (void)state;
    struct policy policy = no_policy();
    libdecode_device device = preset("sm_90");
    libdecode_problem problem = {.struct_size = sizeof problem,
                                 .query_dtype = LIBDECODE_DTYPE_FP16,
                                 .batch_size = 1,
                                 .num_qo_heads = 32,
                                 .num_kv_heads = 8,
                                 .head_dim = 128,
                                 .page_size = 16,
                                 .max_seq_len = 32768};
    assert_non_null(strstr(expect_choice(&problem, &device, &policy, &grid->table).record->name, "_c8_o0_"));
    problem.features |= LIBDECODE_FEATURE_ROPE;
    assert_non_null(strstr(expect_choice(&problem, &device, &policy, &grid->table).record->name, "_c2_o4_"));
    problem.max_seq_len = 4096;
    assert_non_null(strstr(expect_choice(&problem, &device, &policy, &grid->table).record->name, "_c8_o4_"));
}

/* Offsets, too, and rows of KV that begin anywhere: boxes serve offsets of query and out alone. */
static void kernels_with_offsets_serve_problems_that_ask_for_them(void **state) {
    (void)state;
    struct policy policy = no_policy();
    for (int gpu = 0; gpu < 3; gpu++) {
        static const char *const names[] = {"sm_90", "sm_100", "sm_121"};
        libdecode_device device = preset(names[gpu]);
        libdecode_problem problem = llama3_8b();
        problem.features = LIBDECODE_FEATURE_QUERY_OFFSETS;
        assert_non_null(strstr(expect_choice(&problem, &device, &policy, &grid->table).record->name, "_p16_"));
        assert_non_null(strstr(expect_choice(&problem, &device, &policy, &grid->table).record->name, "_o2_"));
        problem.features |= LIBDECODE_FEATURE_KV_OFFSETS;
        assert_non_null(strstr(expect_choice(&problem, &device, &policy, &grid->table).record->name, "_p1_c1_o2_"));
        problem.features = 0;
        problem.v_token_stride = 132;
        problem.v_head_stride = 16 * 132;
        problem.v_page_stride = 8 * 16 * 132 + 2;
        assert_non_null(strstr(expect_choice(&problem, &device, &policy, &grid->table).record->name, "_p1_c1_o2_"));
        problem.features = LIBDECODE_FEATURE_SOFT_CAP;
        problem.logits_soft_cap = 30;
        expect_refusal(LIBDECODE_ERROR_UNSUPPORTED, "features soft_cap", "K and V strides 33796 bytes (not a multiple of 16)",
                       &problem, &device, &policy, &grid->table);
        problem.features = 0;
        problem.logits_soft_cap = 0;
        problem.kv_dtype = LIBDECODE_DTYPE_E5M2;
        expect_refusal(LIBDECODE_ERROR_UNSUPPORTED, "kv_dtype e5m2 together with", "K and V strides 16898 bytes", &problem,
                       &device, &policy, &grid->table);
    }
}

static void force_prefer_and_deny_decide_before_the_cost(void **state) {
    (void)state;
    libdecode_problem problem = llama3_8b();
    libdecode_device device = preset("sm_90");
    static const struct {
        const char *text, *kernel;
    } cases[] = {{"force=*_d128_r32_p16_c1_*", "gqa_decode_kvbf16_d128_r32_p16_c1_o0_sm90"},
                 {"prefer=*_r16_p16_c8_*", "gqa_decode_kvbf16_d128_r16_p16_c8_o0_sm90"},
                 {"prefer=*_d64_*", NULL}, /* none can run: as without */
                 {"deny=*_r8_*,deny=*_c2_*,deny=*_c4_*,deny=*_c8_*", "gqa_decode_kvbf16_d128_r16_p16_c1_o0_sm90"},
                 {"force=*_r16_*,deny=*_c1_*", "gqa_decode_kvbf16_d128_r16_p16_c2_o0_sm90"}};
    struct policy none = no_policy();
    const char *plain = expect_choice(&problem, &device, &none, &grid->table).record->name;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct policy policy = parsed(cases[i].text, false);
        struct selection selection = expect_choice(&problem, &device, &policy, &grid->table);
        assert_string_equal(selection.record->name, cases[i].kernel ? cases[i].kernel : plain);
        policy_destroy(&policy);
    }
    struct policy policy = parsed("force=*_r16_p16_c1_*", false);
    assert_non_null(strstr(expect_choice(&problem, &device, &policy, &grid->table).reason, "forced by the kernel policy"));
    policy_destroy(&policy);
}

static void a_forced_kernel_that_cannot_run_is_an_error_with_its_reason(void **state) {
    (void)state;
    libdecode_problem problem = llama3_8b();
    libdecode_device device = preset("sm_90");
    struct policy policy = parsed("force=gqa_decode_kvbf16_d64_*_sm90", false);
    expect_refusal(LIBDECODE_ERROR_OVERRIDE, "forces gqa_decode_kvbf16_d64_", "head_dim 16 to 64, the problem has 128", &problem,
                   &device, &policy, &grid->table);
    policy_destroy(&policy);
    policy = parsed("force=gqa_decode_kvbf16_d128_r8_p16_c1_o0_sm100", false);
    expect_refusal(LIBDECODE_ERROR_OVERRIDE, "forces gqa_decode_kvbf16_d128_r8_p16_c1_o0_sm100", "not for sm_90", &problem,
                   &device, &policy, &grid->table);
    policy_destroy(&policy);
    policy = parsed("deny=*", false);
    expect_refusal(LIBDECODE_ERROR_OVERRIDE, "denies every kernel", "(65, ", &problem, &device, &policy, &grid->table);
    policy_destroy(&policy);
}

static void strict_refuses_more_passes_than_the_widest_tile_needs(void **state) {
    (void)state;
    libdecode_device device = preset("sm_90");
    libdecode_problem problem = llama3_8b();
    problem.num_kv_heads = 1;
    struct policy policy = parsed("deny=*_r32_*,deny=*_r64_*,deny=*_r128_*", false);
    assert_int_equal(expect_choice(&problem, &device, &policy, &grid->table).row_passes, 2);
    policy_destroy(&policy);
    policy = parsed("deny=*_r32_*,deny=*_r64_*,deny=*_r128_*", true);
    expect_refusal(LIBDECODE_ERROR_STRICT, "reads the KV cache 2 times", "1 would do", &problem, &device, &policy, &grid->table);
    policy_destroy(&policy);
    policy = parsed(NULL, true);
    for (int index = 0; index < NUM_SHAPES; index++) {
        problem = shape(index);
        (void)expect_choice(&problem, &device, &policy, &grid->table);
    }
}

/* A kernel that reads the KV cache more often than others: what is preferred decides before that, in whatever order they are looked at. */
static void a_preferred_kernel_is_chosen_whatever_it_takes(void **state) {
    (void)state;
    static const char *const narrow[] = {"r8", "r16", "r32", "r64"};
    libdecode_device device = preset("sm_90");
    libdecode_problem problem = llama3_8b();
    problem.num_qo_heads = 128;
    problem.num_kv_heads = 1;
    for (size_t i = 0; i < sizeof narrow / sizeof narrow[0]; i++) {
        char text[96], name[64];
        (void)snprintf(name, sizeof name, "gqa_decode_kvbf16_d128_%s_p16_c1_o0_sm90", narrow[i]);
        (void)snprintf(text, sizeof text, "prefer=gqa_decode_kvbf16_d128_%s_p16_c1_o0_sm90", narrow[i]);
        struct policy policy = parsed(text, false);
        assert_string_equal(expect_choice(&problem, &device, &policy, &grid->table).record->name, name);
        policy_destroy(&policy);
    }
}

/* What strict compares with is what libdecode has for this GPU and this problem, not the widest tile of all. */
static void strict_asks_for_no_wider_tile_than_there_is_for_the_gpu_and_the_problem(void **state) {
    (void)state;
    static const int32_t head_dims[] = {64, 128, 256, 512};
    static const libdecode_dtype dtypes[] = {LIBDECODE_DTYPE_BF16, LIBDECODE_DTYPE_E4M3};
    struct policy policy = parsed(NULL, true);
    for (size_t gpu = 0; gpu < sizeof gpu_names / sizeof gpu_names[0]; gpu++)
        for (size_t i = 0; i < sizeof head_dims / sizeof head_dims[0]; i++)
            for (size_t j = 0; j < sizeof dtypes / sizeof dtypes[0]; j++) {
                const libdecode_device device = preset(gpu_names[gpu]);
                libdecode_problem problem = llama3_8b();
                problem.num_qo_heads = 128;
                problem.num_kv_heads = 1;
                problem.head_dim = head_dims[i];
                problem.kv_dtype = dtypes[j];
                (void)expect_choice(&problem, &device, &policy, &grid->table);
            }
    policy_destroy(&policy);
}

/* By the next wider tile, as other dtypes: in pages that are copied whole and row by row, with scales in either layout. */
static void nvfp4_of_any_number_of_blocks_has_kernels_on_every_gpu(void **state) {
    (void)state;
    struct policy policy = no_policy();
    for (size_t gpu = 0; gpu < sizeof gpu_names / sizeof gpu_names[0]; gpu++) {
        const libdecode_device device = preset(gpu_names[gpu]);
        for (int32_t head_dim = 16; head_dim <= 256; head_dim += 16) {
            libdecode_problem problem = llama3_8b();
            problem.kv_dtype = LIBDECODE_DTYPE_NVFP4;
            problem.head_dim = head_dim;
            problem.k_token_stride = (head_dim + 31) / 32 * 32;
            problem.k_sf_token_stride = 16;
            const uint32_t tile = head_dim <= 64 ? 64 : head_dim <= 128 ? 128 : 256;
            assert_int_equal(expect_choice(&problem, &device, &policy, &grid->table).record->kernel->contract.head_dim, tile);
            problem.v_sf_layout = LIBDECODE_SF_V_INTERLEAVE4;
            assert_int_equal(expect_choice(&problem, &device, &policy, &grid->table).record->kernel->contract.head_dim, tile);
            problem.v_sf_layout = LIBDECODE_SF_LINEAR;
            problem.page_size = 1;
            assert_int_equal(expect_choice(&problem, &device, &policy, &grid->table).record->kernel->contract.head_dim, tile);
        }
    }
    policy_destroy(&policy);
}

/* Kernels keep parts in scratch, beside their records: the workspace has room for both, of every CTA that is resident at once. */
static void the_workspace_has_room_for_what_the_contract_says(void **state) {
    (void)state;
    struct policy policy = no_policy();
    const libdecode_device device = preset("sm_90");
    const libdecode_problem problem = llama3_8b();
    struct kernel_record record = *expect_choice(&problem, &device, &policy, &grid->table).record;
    struct bundle_kernel kernel = *record.kernel;
    uint32_t gpus = BUNDLE_GPU_SM90;
    kernel.contract.scratch_bytes = 3 * kernel.contract.record_bytes / 16 * 16 + 16;
    kernel.contract.ctas_per_sm = 2;
    record.kernel = &kernel;
    struct kernel_table table = table_over(&record, &gpus, 1);
    const struct selection selection = expect_choice(&problem, &device, &policy, &table);
    assert_int_equal(selection.workspace.records.bytes, (size_t)132 * 2 * 2 * kernel.contract.record_bytes);
    assert_int_equal(selection.workspace.scratch.bytes, (size_t)132 * 2 * 2 * kernel.contract.scratch_bytes);
    assert_true(selection.workspace.bytes >= selection.workspace.scratch.offset + selection.workspace.scratch.bytes);
    assert_int_equal(selection.most_ctas, 132 * 2);
    forget_table(&table);
}

static void a_kernel_may_take_all_shared_memory_of_a_block(void **state) {
    (void)state;
    struct policy policy = no_policy();
    libdecode_device device = preset("sm_90");
    const libdecode_problem problem = llama3_8b();
    const struct selection selection = expect_choice(&problem, &device, &policy, &grid->table);
    device.max_shared_bytes_per_block = (int32_t)selection.record->kernel->contract.dynamic_shared_bytes;
    assert_string_equal(expect_choice(&problem, &device, &policy, &grid->table).record->name, selection.record->name);
    device.max_shared_bytes_per_block--;
    expect_refusal(LIBDECODE_ERROR_NO_GPU_IMAGE, "no kernel fits sm_90", "bytes of shared memory", &problem, &device, &policy,
                   &grid->table);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_five_gpus_have_an_answer_that_passes_its_own_conditions),
        cmocka_unit_test(the_order_of_records_never_changes_the_answer),
        cmocka_unit_test(the_index_has_every_kernel_under_its_key),
        cmocka_unit_test(of_two_equal_kernels_the_name_decides),
        cmocka_unit_test(a_worse_kernel_never_changes_the_answer),
        cmocka_unit_test(the_smallest_tile_with_one_pass_is_taken_and_wide_groups_take_the_widest),
        cmocka_unit_test(units_stay_whole_while_there_are_ctas_for_them),
        cmocka_unit_test(a_batch_invariant_problem_has_one_kernel_whatever_the_batch),
        cmocka_unit_test(whole_pages_are_copied_where_both_kinds_of_kernel_serve),
        cmocka_unit_test(kernels_with_options_serve_problems_that_ask_for_them),
        cmocka_unit_test(rope_takes_more_workers_for_long_requests),
        cmocka_unit_test(kernels_with_offsets_serve_problems_that_ask_for_them),
        cmocka_unit_test(a_prediction_follows_the_bytes_and_the_window),
        cmocka_unit_test(a_batch_beyond_what_a_kernel_can_count_is_refused),
        cmocka_unit_test(force_prefer_and_deny_decide_before_the_cost),
        cmocka_unit_test(a_forced_kernel_that_cannot_run_is_an_error_with_its_reason),
        cmocka_unit_test(strict_refuses_more_passes_than_the_widest_tile_needs),
        cmocka_unit_test(a_preferred_kernel_is_chosen_whatever_it_takes),
        cmocka_unit_test(strict_asks_for_no_wider_tile_than_there_is_for_the_gpu_and_the_problem),
        cmocka_unit_test(nvfp4_of_any_number_of_blocks_has_kernels_on_every_gpu),
        cmocka_unit_test(the_workspace_has_room_for_what_the_contract_says),
        cmocka_unit_test(a_kernel_may_take_all_shared_memory_of_a_block),
    };
    return cmocka_run_group_tests_name("select", tests, create_grid, destroy_grid);
}
