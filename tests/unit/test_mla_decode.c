/* SPDX-License-Identifier: Apache-2.0 */
/* test_mla_decode.c: how heads of MLA become units, and the parameter block and tensor map of a launch. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "bundle.h"
#include "families/paged_decode.h"
#include "family.h"
#include "kernel_choice.h"
#include "kernel_table.h"
#include "select.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static struct libdecode_launch_contract contract_of(uint32_t row_tile, uint32_t kv_dtype) {
    return (struct libdecode_launch_contract){.family = KERNEL_FAMILY_MLA_DECODE,
                                              .kv_dtype = kv_dtype,
                                              .head_dim = 576,
                                              .row_tile = row_tile,
                                              .tile_tokens = 64,
                                              .max_box_tokens = 64,
                                              .min_page_size = 16};
}

static struct problem checked_problem(int32_t heads, int32_t q_len, libdecode_dtype kv_dtype) {
    const libdecode_problem problem = {.struct_size = sizeof problem,
                                       .op = LIBDECODE_OP_MLA_DECODE,
                                       .query_dtype = LIBDECODE_DTYPE_BF16,
                                       .kv_dtype = kv_dtype,
                                       .features = LIBDECODE_FEATURE_QUERY_ROPE,
                                       .batch_size = 3,
                                       .num_qo_heads = heads,
                                       .head_dim = 576,
                                       .page_size = 32,
                                       .q_len = q_len,
                                       .max_seq_len = 1000};
    struct problem checked;
    if (problem_check(&problem, &checked) != LIBDECODE_OK)
        fail_msg("%s", libdecode_error_message());
    return checked;
}

/* Groups of heads only where they take no more passes than all heads one after the other. */
static void heads_become_groups_of_rows(void **state) {
    (void)state;
    static const struct {
        int32_t heads, q_len, row_tile, groups;
        int64_t passes_of_each, passes;
    } cases[] = {{16, 1, 16, 1, 1, 1},   {1, 1, 16, 1, 1, 1},   {17, 1, 16, 1, 2, 2}, {32, 1, 16, 2, 1, 2},
                 {128, 1, 32, 4, 1, 4},  {128, 1, 16, 8, 1, 8}, {96, 1, 32, 3, 1, 3}, {192, 1, 32, 6, 1, 6},
                 {128, 4, 32, 8, 2, 16}, {40, 1, 32, 2, 1, 2},  {16, 2, 32, 1, 1, 1}, {16, 3, 16, 1, 3, 3},
                 {128, 1, 64, 2, 1, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct problem problem = checked_problem(cases[i].heads, cases[i].q_len, LIBDECODE_DTYPE_BF16);
        const struct libdecode_launch_contract contract = contract_of((uint32_t)cases[i].row_tile, KERNEL_DTYPE_BF16);
        const struct paged_units units = paged_units(&problem, &contract);
        if (units.num_kv_heads != cases[i].groups || units.row_passes != cases[i].passes_of_each ||
            units.group_size * units.num_kv_heads != cases[i].heads || units.heads_per_sequence != units.num_kv_heads ||
            paged_row_passes(&problem, &contract) != cases[i].passes)
            fail_msg("%d heads of %d tokens, row tile %d: %d groups of %d, %lld passes of each", cases[i].heads, cases[i].q_len,
                     cases[i].row_tile, units.num_kv_heads, units.group_size, (long long)units.row_passes);
    }
}

/* Rows of 1152 bytes are nine lines of 128, of 576 nine of 64; a copy brings a box, or a line of it where the kernel says so. */
static void a_launch_gets_one_map_and_both_parts_of_the_query(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        const libdecode_dtype dtype = i % 2 == 0 ? LIBDECODE_DTYPE_BF16 : LIBDECODE_DTYPE_E4M3;
        const bool by_lines = i >= 2;
        const struct problem problem = checked_problem(64, 1, dtype);
        const char memory[16] = "";
        const libdecode_tensors tensors = {
            .query = memory, .query_rope = memory + 8, .k_cache = memory + 1, .workspace = (void *)1};
        struct bundle_kernel kernel = {.contract = contract_of(32, (uint32_t)dtype)};
        kernel.contract.flags = by_lines ? CONTRACT_FLAG_LINE_COPIES : 0;
        const struct kernel_record record = {.kernel = &kernel};
        const struct selection selection = {.record = &record, .row_passes = 2, .num_workers = 132, .min_tiles_per_worker = 2};
        static struct kernel_arguments arguments;
        memset(&arguments, 0, sizeof arguments);
        family_mla_decode.fill(&problem, &selection, &tensors, &arguments);
        struct mla_decode_params params;
        memcpy(&params, arguments.block, sizeof params);
        const uint64_t line = dtype == LIBDECODE_DTYPE_BF16 ? 128 : 64, element = dtype == LIBDECODE_DTYPE_BF16 ? 2 : 1;
        assert_int_equal(arguments.num_maps, 1);
        assert_int_equal(arguments.maps[0].offset, offsetof(struct mla_decode_params, map));
        const struct tensor_map *map = &arguments.maps[0].map;
        assert_ptr_equal(map->address, tensors.k_cache);
        assert_int_equal(map->dims[0] * element, line);
        assert_int_equal(map->dims[2], 9);
        assert_int_equal(map->dims[3], 1);
        assert_int_equal(map->strides_bytes[0], 576 * element);
        assert_int_equal(map->strides_bytes[1], line);
        assert_int_equal(map->box[1], 32);
        assert_int_equal(map->box[2], by_lines ? 1 : 9);
        assert_int_equal(params.schedule.copies_per_box, by_lines ? 9 : 1);
        assert_int_equal(params.schedule.group_size.value, 32);
        assert_int_equal(params.schedule.head_shift, 1);
        assert_int_equal(params.schedule.row_passes, 1);
        assert_ptr_equal(params.query_rope, tensors.query_rope);
        assert_int_equal(params.query_dim, 512);
        assert_int_equal(params.query.head_dim, 576);
        assert_int_equal(params.v_head_dim, 512);
        assert_int_equal(params.query_rope_token_stride, 64 * 64);
        assert_int_equal(params.output.head_stride, 512);
    }
}

static struct problem bf16_batch(int32_t heads, int32_t batch_size, int32_t tokens) {
    struct problem problem = checked_problem(heads, 1, LIBDECODE_DTYPE_BF16);
    libdecode_problem given = problem.given;
    given.batch_size = batch_size;
    given.max_seq_len = tokens;
    assert_int_equal(problem_check(&given, &problem), LIBDECODE_OK);
    return problem;
}

/*
 * Of 64 rows in pairs, bf16, a piece takes 7,950 ns and a token 24.9 ns / 2, so 639 tokens: 319 on each side, in boxes of 32. Of 16 rows
 * 2,600 ns and 16.8 ns: 77 on each side. Not where units of one length are cut into more than two parts each, nor at fixed places.
 */
static void units_have_margins_for_what_a_piece_takes(void **state) {
    (void)state;
    static const struct {
        uint32_t row_tile, cluster_size;
        int32_t batch_size, num_workers;
        bool batch_invariant;
        int64_t total_kv_tokens;
        uint32_t margin;
    } cases[] = {{64, 2, 64, 66, false, 0, 9},        {64, 2, 64, 128, false, 0, 9},
                 {64, 2, 64, 129, false, 0, 0},       {16, 1, 64, 132, false, 0, 2},
                 {16, 1, 64, 132, true, 0, 0},        {16, 1, 1, 8, false, 0, 2},
                 {16, 1, 1, 9, false, 0, 0},          {64, 2, 64, 129, false, 64 * 4096 - 64, 9},
                 {16, 1, 64, 132, true, 64 * 1000, 0}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct problem problem = bf16_batch(64, cases[i].batch_size, 4096);
        libdecode_problem given = problem.given;
        given.features |= cases[i].batch_invariant ? LIBDECODE_FEATURE_BATCH_INVARIANT : 0;
        given.total_kv_tokens = cases[i].total_kv_tokens;
        assert_int_equal(problem_check(&given, &problem), LIBDECODE_OK);
        struct bundle_kernel kernel = {.contract = contract_of(cases[i].row_tile, KERNEL_DTYPE_BF16)};
        kernel.contract.cluster_size = cases[i].cluster_size;
        const struct kernel_record record = {.kernel = &kernel};
        const struct selection selection = {
            .record = &record, .row_passes = 1, .num_workers = cases[i].num_workers, .min_tiles_per_worker = 2};
        const libdecode_tensors tensors = {.workspace = (void *)1};
        const struct schedule_params params = paged_schedule_params(&problem, &selection, &tensors);
        assert_int_equal(params.unit_margin_boxes, cases[i].margin);
        assert_int_equal((params.rare & SCHEDULE_UNIT_MARGINS) != 0, cases[i].margin > 0);
    }
}

/* 16 rows, so units are groups of 16 heads. With up to two workers for each they have margins, and lengths may differ by query token. */
static void pieces_of_one_request_are_known_without_counting(void **state) {
    (void)state;
    static const struct {
        int32_t heads, batch_size;
        uint32_t cluster_size;
        int32_t num_workers;
        bool has_positions, is_told;
    } cases[] = {{16, 1, 8, 4, false, true},   {128, 1, 4, 17, false, true}, {16, 1, 8, 2, false, false},
                 {16, 2, 8, 12, false, false}, {16, 1, 1, 4, false, false},  {16, 1, 8, 4, true, false}};
    const int32_t positions = 0;
    for (size_t i = 0; i < COUNT(cases); i++) {
        const struct problem problem = bf16_batch(cases[i].heads, cases[i].batch_size, 4096);
        struct bundle_kernel kernel = {.contract = contract_of(16, KERNEL_DTYPE_BF16)};
        kernel.contract.cluster_size = cases[i].cluster_size;
        const struct kernel_record record = {.kernel = &kernel};
        const struct selection selection = {
            .record = &record, .row_passes = 1, .num_workers = cases[i].num_workers, .min_tiles_per_worker = 2};
        const libdecode_tensors tensors = {.workspace = (void *)1, .query_positions = cases[i].has_positions ? &positions : NULL};
        const struct schedule_params params = paged_schedule_params(&problem, &selection, &tensors);
        assert_int_equal((params.rare & SCHEDULE_ONE_REQUEST) != 0, cases[i].is_told);
        assert_true(!cases[i].is_told ||
                    (params.rare & (SCHEDULE_UNIT_MARGINS | SCHEDULE_EXACT_RANGES | SCHEDULE_FIXED_CHUNKS)) == 0);
    }
}

enum { MOST_KERNELS = 8 };
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

/* us, all kernels in turns: the one that is predicted to be the fastest is so, or nearly. */
static void the_fastest_kernel_of_an_h200_is_predicted(void **state) {
    (void)state;
    static const struct kernel_shape kernels[] = {{16, 1, 32}, {16, 2, 32}, {16, 8, 32}, {32, 1, 64}, {64, 1, 64}};
    static const struct measured_case cases[] = {
        {128, 1, 4096, {35.5, 23.0, 16.9, 66.3, 32.8}},   {128, 4, 8192, {57.9, 50.0, 68.9, 84.9, 48.6}},
        {128, 16, 4096, {87.3, 90.3, 156.6, 93.6, 46.8}}, {128, 128, 4096, {691.7, 720.8, 1138.1, 619.9, 227.7}},
        {64, 4, 4096, {37.7, 24.8, 31.7, 66.5, 35.2}},    {16, 1, 4096, {34.5, 21.4, 12.0, 50.9, 26.3}},
        {16, 64, 4096, {85.3, 77.7, 88.7, 93.1, 88.4}},   {16, 128, 4096, {145.6, 150.3, 160.5, 156.1, 149.8}},
    };
    const libdecode_device device = measured_h200();
    expect_fast_choices(&device, kernels, COUNT(kernels), cases, COUNT(cases), 1.05, 0.2);
}

/* FP8 KV and 16 heads, measured at e4946ca: single CTAs and pairs have tiles of 64 tokens, which queries of e4m3 multiply as they lie; 64 rows in another run. */
static void the_fastest_kernel_of_fp8_is_predicted(void **state) {
    (void)state;
    static const struct kernel_shape kernels[] = {{16, 1, 64}, {16, 2, 64}, {16, 4, 32}, {16, 8, 32}, {64, 1, 64}};
    static const struct {
        libdecode_dtype query_dtype;
        struct measured_case of;
    } cases[] = {
        {LIBDECODE_DTYPE_E4M3, {16, 1, 4096, {21.0, 16.0, 13.0, 10.3}}},
        {LIBDECODE_DTYPE_E4M3, {16, 1, 32768, {53.8, 36.8, 27.9, 18.4}}},
        {LIBDECODE_DTYPE_E4M3, {16, 16, 4096, {26.9, 21.3, 26.0, 26.3}}},
        {LIBDECODE_DTYPE_E4M3, {16, 64, 4096, {48.1, 44.3, 67.0, 75.8}}},
        {LIBDECODE_DTYPE_E4M3, {16, 128, 8192, {149.1, 154.9, 286.3, 235.5, 189.2}}},
        {LIBDECODE_DTYPE_BF16, {16, 1, 4096, {24.9, 18.3, 13.3, 10.6}}},
        {LIBDECODE_DTYPE_BF16, {16, 1, 32768, {62.9, 41.2, 28.0, 18.7}}},
        {LIBDECODE_DTYPE_BF16, {16, 16, 4096, {28.6, 23.1, 26.1, 26.6}}},
        {LIBDECODE_DTYPE_BF16, {16, 64, 4096, {52.3, 48.4, 69.1, 78.0}}},
        {LIBDECODE_DTYPE_BF16, {16, 128, 8192, {170.8, 191.1, 241.4, 239.0}}},
    };
    const libdecode_device device = measured_h200();
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct problem problem = bf16_batch(cases[i].of.heads, cases[i].of.batch_size, cases[i].of.tokens);
        libdecode_problem given = problem.given;
        given.query_dtype = cases[i].query_dtype;
        given.kv_dtype = LIBDECODE_DTYPE_E4M3;
        assert_int_equal(problem_check(&given, &problem), LIBDECODE_OK);
        expect_fast_choice(&family_mla_decode, &problem, &device, contract_of(16, KERNEL_DTYPE_E4M3), kernels,
                           cases[i].of.measured_us, COUNT(kernels), 1.05, 0.2);
    }
}

/*
 * The same of an H100, whose memory gives 70 % of an H200's, but not its second cache: with several groups of heads more is read from that. Measured at
 * fdfacf7, by the numbers of workers that are chosen since.
 */
static void the_fastest_kernel_of_an_h100_is_predicted(void **state) {
    (void)state;
    static const struct kernel_shape kernels[] = {{16, 1, 32}, {16, 2, 32}, {16, 4, 32}, {16, 8, 32},
                                                  {32, 8, 64}, {64, 1, 64}, {64, 2, 64}, {64, 4, 64}};
    static const struct measured_case cases[] = {
        {16, 1, 4096, {23.8, 17.1, 12.7, 10.4, 14.8, 28.1, 21.5, 18.2}},
        {16, 16, 4096, {38.7, 36.0, 32.8, 36.9, 43.2, 45.4, 41.6, 37.9}},
        {64, 1, 4096, {24.8, 18.3, 14.4, 12.1, 15.6, 32.5, 27.3, 22.4}},
        {64, 1, 32768, {62.3, 40.5, 33.0, 35.8, 40.2, 98.6, 57.2, 44.2}},
        {64, 4, 4096, {26.0, 21.9, 24.0, 28.7, 29.6, 34.0, 29.3, 22.8}},
        {64, 16, 4096, {48.2, 48.6, 69.4, 113.3, 81.1, 50.4, 48.7, 40.5}},
        {128, 1, 4096, {26.3, 19.9, 15.9, 15.5, 19.1, 33.9, 27.7, 23.0}},
        {128, 1, 32768, {63.2, 52.8, 54.8, 57.2, 67.6, 103.0, 65.3, 46.6}},
        {128, 4, 4096, {30.9, 29.4, 34.5, 43.2, 41.0, 34.0, 30.5, 28.3}},
        {128, 16, 4096, {84.2, 88.4, 129.2, 216.3, 145.7, 54.2, 48.4, 59.6}},
    };
    const libdecode_device device = measured_h100();
    expect_fast_choices(&device, kernels, COUNT(kernels), cases, COUNT(cases), 1.02, 0.2);
}

/* Of 64 rows in clusters of 1, 2 and 4, on an H200, measured at cf2aa16. */
static void the_fastest_cluster_of_64_rows_is_predicted(void **state) {
    (void)state;
    static const struct kernel_shape kernels[] = {{64, 1, 64}, {64, 2, 64}, {64, 4, 64}};
    static const struct measured_case cases[] = {
        {128, 4, 4096, {39.3, 30.1, 26.4}},  {128, 8, 4096, {41.9, 32.3, 34.1}},   {128, 16, 4096, {46.8, 43.8, 54.3}},
        {128, 24, 4096, {68.7, 61.3, 79.2}}, {128, 32, 4096, {70.8, 69.5, 112.4}}, {128, 64, 4096, {114.8, 152.1, 215.8}},
        {64, 4, 4096, {32.9, 37.9, 22.7}},   {64, 8, 4096, {33.9, 32.3, 26.6}},    {64, 16, 4096, {50.7, 41.2, 35.0}},
        {64, 24, 4096, {59.0, 46.9, 40.9}},  {64, 32, 4096, {66.8, 55.4, 57.7}},   {64, 64, 4096, {99.0, 85.5, 119.9}},
    };
    const libdecode_device device = measured_h200();
    expect_fast_choices(&device, kernels, COUNT(kernels), cases, COUNT(cases), 1.01, 0.1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads_become_groups_of_rows),
        cmocka_unit_test(a_launch_gets_one_map_and_both_parts_of_the_query),
        cmocka_unit_test(units_have_margins_for_what_a_piece_takes),
        cmocka_unit_test(pieces_of_one_request_are_known_without_counting),
        cmocka_unit_test(the_fastest_kernel_of_an_h200_is_predicted),
        cmocka_unit_test(the_fastest_kernel_of_fp8_is_predicted),
        cmocka_unit_test(the_fastest_kernel_of_an_h100_is_predicted),
        cmocka_unit_test(the_fastest_cluster_of_64_rows_is_predicted),
    };
    return cmocka_run_group_tests_name("mla_decode", tests, NULL, NULL);
}
