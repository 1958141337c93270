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
#include "kernel_table.h"
#include "select.h"

static struct libdecode_launch_contract contract_of(uint32_t row_tile, uint32_t kv_dtype) {
    return (struct libdecode_launch_contract){.kv_dtype = kv_dtype,
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

/*
 * 128 heads of bf16 over 4,096 tokens, against times measured on an H200: whole units where they are many; few requests would spend half as
 * long adding up as reading.
 */
static void tiles_of_64_rows_are_for_whole_units(void **state) {
    (void)state;
    static const struct {
        int32_t batch_size, num_workers, measured_us; /* with so many workers; 0: any */
        bool folds_long;
    } cases[] = {{1, 0, 0, true}, {16, 128, 66, false}, {64, 128, 128, false}, {128, 128, 260, false}};
    libdecode_device device = {.struct_size = sizeof device};
    assert_int_equal(libdecode_device_preset("H200", &device), LIBDECODE_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct problem problem = checked_problem(128, 1, LIBDECODE_DTYPE_BF16);
        libdecode_problem given = problem.given;
        given.batch_size = cases[i].batch_size;
        given.max_seq_len = 4096;
        assert_int_equal(problem_check(&given, &problem), LIBDECODE_OK);
        struct libdecode_launch_contract contract = contract_of(64, KERNEL_DTYPE_BF16);
        contract.ctas_per_sm = contract.cluster_size = 1;
        contract.consumer_warps = 8;
        struct cost cost;
        assert_true(family_mla_decode.cost(&problem, &device, &contract, &cost));
        assert_int_equal(cost.folds_long, cases[i].folds_long);
        if (cases[i].num_workers == 0)
            continue;
        assert_int_equal(cost.num_workers, cases[i].num_workers);
        if (cost.predicted_ns < cases[i].measured_us * 800 || cost.predicted_ns > cases[i].measured_us * 1200)
            fail_msg("%d requests: predicted %lld ns, measured %d us", cases[i].batch_size, (long long)cost.predicted_ns,
                     cases[i].measured_us);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads_become_groups_of_rows),
        cmocka_unit_test(a_launch_gets_one_map_and_both_parts_of_the_query),
        cmocka_unit_test(tiles_of_64_rows_are_for_whole_units),
    };
    return cmocka_run_group_tests_name("mla_decode", tests, NULL, NULL);
}
