/* SPDX-License-Identifier: Apache-2.0 */
/* test_mla_decode.c: how heads of MLA become units, and the parameter block and tensor map of a launch. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "families/paged_decode.h"
#include "mla_scene.h"

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

/* A kernel that nobody tested is none of MLA, whoever has made a bundle of it. */
static void contracts_name_rows_and_boxes_that_are_known(void **state) {
    (void)state;
    char reason[FAMILY_REASON_BYTES] = "";
    struct libdecode_launch_contract contract = contract_of(16, KERNEL_DTYPE_BF16);
    contract.cluster_size = 1;
    const struct libdecode_launch_contract honest = contract;
    assert_true(family_mla_decode.serves(&contract, reason));
    contract.head_dim = 320;
    assert_true(family_mla_decode.serves(&contract, reason));
    contract.features = CONTRACT_FEATURE_BATCH_INVARIANT;
    assert_true(family_mla_decode.serves(&contract, reason));
    contract.cluster_size = 2;
    assert_false(family_mla_decode.serves(&contract, reason));
#define REFUSED(field, value)                                                                                                    \
    (contract = honest, contract.field = (value), assert_false(family_mla_decode.serves(&contract, reason)))
    REFUSED(head_dim, 512);
    REFUSED(kv_dtype, KERNEL_DTYPE_NVFP4);
    REFUSED(kv_dtype, KERNEL_DTYPE_E5M2);
    REFUSED(kv_dtype, 0);
    REFUSED(max_box_tokens, 128); /* of tiles of 64 */
    REFUSED(max_box_tokens, 48);
    REFUSED(min_page_size, 8);
}

/* Strides and memory that one of the parts of a launch has, and no other. */
static void a_launch_has_the_strides_of_the_rope_part_and_its_scratch(void **state) {
    (void)state;
    struct problem problem = checked_problem(64, 2, LIBDECODE_DTYPE_BF16);
    libdecode_problem given = problem.given;
    given.query_rope_head_stride = 72;
    given.query_rope_token_stride = 64 * 72 + 8;
    assert_int_equal(problem_check(&given, &problem), LIBDECODE_OK);
    const libdecode_tensors tensors = {.workspace = (void *)4096};
    struct bundle_kernel kernel = {.contract = contract_of(32, KERNEL_DTYPE_BF16)};
    const struct kernel_record record = {.kernel = &kernel};
    const struct selection selection = {.record = &record,
                                        .row_passes = 2,
                                        .num_workers = 132,
                                        .min_tiles_per_worker = 2,
                                        .workspace = {.records = {256, 8}, .scratch = {512, 16}}};
    static struct kernel_arguments arguments;
    family_mla_decode.fill(&problem, &selection, &tensors, &arguments);
    struct mla_decode_params params;
    memcpy(&params, arguments.block, sizeof params);
    assert_int_equal(params.query_rope_head_stride, 72);
    assert_int_equal(params.query_rope_token_stride, 64 * 72 + 8);
    assert_int_equal((uintptr_t)params.records, 4096 + 256);
    assert_int_equal((uintptr_t)params.scratch, 4096 + 512);
}

/* As many as the scratch of its parts has room for. */
static void batch_invariant_units_have_as_many_chunks_as_scratch_has_room_for(void **state) {
    (void)state;
    struct problem problem = bf16_batch(16, 4, 32768);
    libdecode_problem given = problem.given;
    given.features |= LIBDECODE_FEATURE_BATCH_INVARIANT;
    assert_int_equal(problem_check(&given, &problem), LIBDECODE_OK);
    struct bundle_kernel kernel = {.contract = contract_of(16, KERNEL_DTYPE_BF16)};
    const struct kernel_record record = {.kernel = &kernel};
    const struct selection selection = {.record = &record, .row_passes = 1, .num_workers = 132, .min_tiles_per_worker = 2};
    const libdecode_tensors tensors = {.workspace = (void *)1};
    const struct schedule_params params = paged_schedule_params(&problem, &selection, &tensors);
    assert_int_equal(params.rare, SCHEDULE_FIXED_CHUNKS);
    assert_int_equal(params.max_chunks, KERNEL_MAX_CHUNKS_IN_SCRATCH);
    assert_int_equal(params.min_chunk_boxes, 2048 / 32);
}

/* Those of V, of which a result has as many as a row of the cache but for its RoPE part. */
static void scales_of_a_result_are_those_of_its_elements(void **state) {
    (void)state;
    struct problem problem = checked_problem(64, 1, LIBDECODE_DTYPE_E4M3);
    libdecode_problem given = problem.given;
    given.query_dtype = LIBDECODE_DTYPE_E4M3;
    given.out_dtype = LIBDECODE_DTYPE_NVFP4;
    given.out_head_stride = given.out_token_stride = given.query_token_stride = given.query_head_stride = 0;
    given.query_rope_token_stride = given.query_rope_head_stride = 0;
    assert_int_equal(problem_check(&given, &problem), LIBDECODE_OK);
    const libdecode_tensors tensors = {.workspace = (void *)1};
    assert_int_equal(paged_output_params(&problem, &tensors).scale_columns, 64 * (512 / 16));
}

/* A lane for each: 32 units are told, 33 are counted. */
static void of_more_units_than_lanes_pieces_are_counted(void **state) {
    (void)state;
    for (int32_t units = 32; units <= 33; units++) {
        const struct problem problem = bf16_batch(16 * units, 1, 32768);
        struct bundle_kernel kernel = {.contract = contract_of(16, KERNEL_DTYPE_BF16)};
        kernel.contract.cluster_size = 2;
        const struct kernel_record record = {.kernel = &kernel};
        const struct selection selection = {
            .record = &record, .row_passes = 1, .num_workers = 2 * units + 1, .min_tiles_per_worker = 2};
        const libdecode_tensors tensors = {.workspace = (void *)1};
        const struct schedule_params params = paged_schedule_params(&problem, &selection, &tensors);
        assert_int_equal(params.rare, units <= 32 ? SCHEDULE_ONE_REQUEST : 0);
    }
}

/* Boxes are numbered with 31 bits, margins included: where these leave no room for them there are none. */
static void margins_are_left_out_where_their_boxes_would_not_be_counted(void **state) {
    (void)state;
    static const struct {
        int32_t batch_size;
        bool has_margins;
    } cases[] = {{1 << 10, true}, {1 << 20, false}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct problem problem = bf16_batch(16, cases[i].batch_size, 2047 * 32);
        libdecode_problem given = problem.given;
        given.page_table_request_stride = 2047;
        assert_int_equal(problem_check(&given, &problem), LIBDECODE_OK);
        struct bundle_kernel kernel = {.contract = contract_of(16, KERNEL_DTYPE_BF16)};
        kernel.contract.cluster_size = 1;
        const struct kernel_record record = {.kernel = &kernel};
        const struct selection selection = {.record = &record, .row_passes = 1, .num_workers = 132, .min_tiles_per_worker = 2};
        const libdecode_tensors tensors = {.workspace = (void *)1};
        const struct schedule_params params = paged_schedule_params(&problem, &selection, &tensors);
        assert_int_equal(params.unit_margin_boxes > 0, cases[i].has_margins);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads_become_groups_of_rows),
        cmocka_unit_test(a_launch_gets_one_map_and_both_parts_of_the_query),
        cmocka_unit_test(units_have_margins_for_what_a_piece_takes),
        cmocka_unit_test(pieces_of_one_request_are_known_without_counting),
        cmocka_unit_test(contracts_name_rows_and_boxes_that_are_known),
        cmocka_unit_test(a_launch_has_the_strides_of_the_rope_part_and_its_scratch),
        cmocka_unit_test(batch_invariant_units_have_as_many_chunks_as_scratch_has_room_for),
        cmocka_unit_test(scales_of_a_result_are_those_of_its_elements),
        cmocka_unit_test(of_more_units_than_lanes_pieces_are_counted),
        cmocka_unit_test(margins_are_left_out_where_their_boxes_would_not_be_counted),
    };
    return cmocka_run_group_tests_name("mla_decode", tests, NULL, NULL);
}
