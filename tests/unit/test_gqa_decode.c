/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_gqa_decode.c: what the parameter block and the maps of launches say: rows narrower than the kernel's, results with scales, and how
 * work is divided. (test_gqa_contract.c: which problems fit.)
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "gqa_scene.h"
#include "select.h"

static struct kernel_arguments arguments;

static const struct gqa_decode_params *fill_tensors(const libdecode_problem *given,
                                                    const struct libdecode_launch_contract *contract, int32_t num_workers,
                                                    const libdecode_tensors *tensors) {
    const struct problem problem = checked(given);
    struct bundle_kernel kernel = {.contract = *contract};
    struct kernel_record record = {.name = "filled", .kernel = &kernel, .family = &family_gqa_decode};
    struct selection selection = {
        .record = &record, .row_passes = 1, .num_workers = num_workers, .most_ctas = 132, .min_tiles_per_worker = 2};
    assert_string_equal(misfit(given, contract), "");
    memset(&arguments, 0, sizeof arguments);
    family_gqa_decode.fill(&problem, &selection, tensors, &arguments);
    return (const struct gqa_decode_params *)(const void *)arguments.block;
}

static const struct gqa_decode_params *fill_with(const libdecode_problem *given, const struct libdecode_launch_contract *contract,
                                                 int32_t num_workers, uint32_t launch_flags) {
    libdecode_tensors tensors = some_tensors();
    tensors.out_sf = (void *)(uintptr_t)0x20300;
    tensors.out_sf_scale = 2.5f;
    tensors.out_sf_start_token = 77;
    tensors.launch_flags = launch_flags;
    if (given->kv_dtype == LIBDECODE_DTYPE_NVFP4) {
        tensors.k_sf = (const void *)(uintptr_t)0x20400;
        tensors.v_sf = (const void *)(uintptr_t)0x20500;
    }
    return fill_tensors(given, contract, num_workers, &tensors);
}

static const struct gqa_decode_params *fill_for(const libdecode_problem *given, const struct libdecode_launch_contract *contract,
                                                int32_t num_workers) {
    return fill_with(given, contract, num_workers, 0);
}

static const struct gqa_decode_params *fill(const libdecode_problem *given, const struct libdecode_launch_contract *contract) {
    return fill_for(given, contract, 8);
}

static void the_block_says_what_query_and_result_are(void **state) {
    (void)state;
    libdecode_problem problem = problem_for(LIBDECODE_DTYPE_E4M3, 128, 64);
    problem.out_dtype = LIBDECODE_DTYPE_NVFP4;
    struct libdecode_launch_contract contract = contract_for(KERNEL_DTYPE_E4M3, 128, 16);
    const struct gqa_decode_params *params = fill(&problem, &contract);
    assert_int_equal(arguments.num_maps, 2);
    assert_int_equal(arguments.maps[0].offset, offsetof(struct gqa_decode_params, k_map));
    assert_int_equal(arguments.maps[1].offset, offsetof(struct gqa_decode_params, v_map));
    assert_int_equal(params->schedule.copies_per_box, 1);
    assert_int_equal((uintptr_t)params->output.scales, 0x20300);
    assert_true(params->output.scale_factor == 2.5f);
    assert_int_equal(params->output.first_scale_row, 77);
    assert_int_equal(params->output.scale_columns, 32 * 8);
    assert_int_equal(params->output.dtype, KERNEL_DTYPE_NVFP4);
    assert_int_equal(params->query.dtype, KERNEL_DTYPE_E4M3);
    assert_int_equal(params->query.head_dim, 128);
}

/* Lines of 128 bytes: 80 of bf16 are one and a quarter, 192 are three of four; 192 of e4m3 one and a half. */
static void narrow_rows_are_told_and_copied_line_by_line_where_the_last_is_not_whole(void **state) {
    (void)state;
    static const struct {
        libdecode_dtype dtype;
        int32_t head_dim, copies;
        uint64_t first_dim;
    } cases[] = {{LIBDECODE_DTYPE_BF16, 80, 2, 80},   {LIBDECODE_DTYPE_BF16, 192, 1, 64},  {LIBDECODE_DTYPE_E4M3, 80, 1, 80},
                 {LIBDECODE_DTYPE_E4M3, 192, 2, 192}, {LIBDECODE_DTYPE_NVFP4, 192, 1, 96}, {LIBDECODE_DTYPE_BF16, 128, 1, 64},
                 {LIBDECODE_DTYPE_NVFP4, 96, 1, 48},  {LIBDECODE_DTYPE_NVFP4, 160, 1, 80}, {LIBDECODE_DTYPE_BF16, 464, 8, 464}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        libdecode_problem problem = problem_for(cases[i].dtype, cases[i].head_dim, 16);
        problem.k_sf_token_stride = cases[i].dtype == LIBDECODE_DTYPE_NVFP4 ? 16 : 0;
        struct libdecode_launch_contract contract =
            contract_for((uint32_t)cases[i].dtype, kernel_head_dim(cases[i].head_dim), 16);
        const struct gqa_decode_params *params = fill(&problem, &contract);
        assert_int_equal(params->schedule.copies_per_box, cases[i].copies);
        assert_int_equal(params->query.head_dim, cases[i].head_dim);
        assert_int_equal(arguments.num_maps, 2);
        assert_int_equal(arguments.maps[0].map.dims[0], cases[i].first_dim);
        assert_int_equal(arguments.maps[1].map.dims[0], cases[i].first_dim);
    }
}

static void expect_rows(const struct row_source *rows, const void *address, int64_t page, int64_t head, int64_t token) {
    assert_ptr_equal(rows->rows, address);
    assert_int_equal(rows->page_stride, page);
    assert_int_equal(rows->head_stride, head);
    assert_int_equal(rows->token_stride, token);
}

/* 5 tokens, 8 KV heads of 128: dense, but for pages of V, which are one head further apart. */
static void a_kernel_that_gathers_rows_gets_addresses_and_no_maps(void **state) {
    (void)state;
    enum { HEADS = 8, DIM = 128, TOKENS = 5 };
    static const int64_t row_bytes[] = {0, 2 * DIM, 2 * DIM, DIM, DIM / 2}; /* by dtype */
    for (uint32_t i = 0; i < 4 * 2; i++) {
        uint32_t dtype = 1 + i / 2;
        const int64_t row = row_bytes[dtype];
        const bool nhd = i % 2 == 1;
        const int64_t head = nhd ? row : TOKENS * row, token = nhd ? HEADS * row : row;
        libdecode_problem problem = problem_for((libdecode_dtype)dtype, DIM, TOKENS);
        problem.kv_layout = nhd ? LIBDECODE_KV_NHD : LIBDECODE_KV_HND;
        problem.v_page_stride = (HEADS + 1) * TOKENS * DIM;
        struct libdecode_launch_contract contract = contract_for(dtype, DIM, 1);
        const struct gqa_decode_params *params = fill(&problem, &contract);
        const libdecode_tensors tensors = some_tensors();
        static const struct libdecode_tensor_map zero;
        expect_rows(&params->k_rows, tensors.k_cache, HEADS * TOKENS * row, head, token);
        expect_rows(&params->v_rows, tensors.v_cache, (HEADS + 1) * TOKENS * row, head, token);
        assert_int_equal(arguments.num_maps, 0);
        assert_memory_equal(&params->k_map, &zero, sizeof zero);
        assert_memory_equal(&params->v_map, &zero, sizeof zero);
        assert_int_equal(params->schedule.copies_per_box, 1);
        assert_int_equal(params->schedule.box_tokens, contract.max_box_tokens);
        assert_int_equal(params->schedule.page_size.value, TOKENS);
    }
}

/* Strides of an odd number of elements, in bytes; offsets as the tensors have them. */
static void a_kernel_of_any_rows_gets_odd_strides_and_offsets(void **state) {
    (void)state;
    static const int64_t offsets[4][1];
    for (uint32_t dtype = KERNEL_DTYPE_FP16; dtype <= KERNEL_DTYPE_E4M3; dtype++) {
        const int64_t bytes = dtype == KERNEL_DTYPE_E4M3 ? 1 : 2;
        libdecode_problem problem = problem_for((libdecode_dtype)dtype, 128, 16);
        problem.features = LIBDECODE_FEATURE_KV_OFFSETS | LIBDECODE_FEATURE_QUERY_OFFSETS;
        problem.k_token_stride = 131;
        struct libdecode_launch_contract contract = contract_for(dtype, 128, 1);
        assert_string_equal(misfit(&problem, &contract), "features");
        contract.features |= CONTRACT_OFFSETS;
        assert_string_equal(misfit(&problem, &contract), "K and V strides");
        contract.flags |= CONTRACT_FLAG_ANY_ROWS;
        libdecode_tensors tensors = some_tensors();
        tensors.query_offsets = offsets[0];
        tensors.out_offsets = offsets[1];
        tensors.k_offsets = offsets[2];
        tensors.v_offsets = offsets[3];
        const struct gqa_decode_params *params = fill_tensors(&problem, &contract, 8, &tensors);
        expect_rows(&params->k_rows, tensors.k_cache, 8 * 16 * 131 * bytes, 16 * 131 * bytes, 131 * bytes);
        assert_ptr_equal(params->query_offsets, offsets[0]);
        assert_ptr_equal(params->out_offsets, offsets[1]);
        assert_ptr_equal(params->k_offsets, offsets[2]);
        assert_ptr_equal(params->v_offsets, offsets[3]);
    }
}

/* Boxes are as long as a page; rows count 16 as one across pages, for more of which a worker is wanted. */
static void a_box_is_at_most_a_page_and_rows_are_counted_across_pages(void **state) {
    (void)state;
    static const struct {
        uint32_t min_page_size;
        int32_t page_size, box_tokens;
        uint32_t boxes_per_worker; /* of two tiles */
    } cases[] = {{16, 16, 16, 8}, {16, 32, 32, 4}, {16, 1024, 64, 2}, {1, 1, 16, 8}, {1, 16, 16, 8}, {1, 1000, 16, 8}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        libdecode_problem problem = problem_for(LIBDECODE_DTYPE_BF16, 128, cases[i].page_size);
        struct libdecode_launch_contract contract = contract_for(KERNEL_DTYPE_BF16, 128, cases[i].min_page_size);
        const struct gqa_decode_params *params = fill(&problem, &contract);
        assert_int_equal(params->schedule.box_tokens, cases[i].box_tokens);
        assert_int_equal(params->schedule.min_boxes_per_worker, cases[i].boxes_per_worker);
    }
}

static void a_kernel_is_told_how_many_pages_there_are_where_that_is_known(void **state) {
    (void)state;
    for (uint32_t min_page_size = 1; min_page_size <= 16; min_page_size += 15) {
        libdecode_problem problem = problem_for(LIBDECODE_DTYPE_BF16, 128, 16);
        struct libdecode_launch_contract contract = contract_for(KERNEL_DTYPE_BF16, 128, min_page_size);
        assert_int_equal(fill(&problem, &contract)->num_pages, INT32_MAX);
        problem.num_pages = 4096;
        assert_int_equal(fill(&problem, &contract)->num_pages, 4096);
        problem.num_pages = INT32_MAX;
        assert_int_equal(fill(&problem, &contract)->num_pages, INT32_MAX);
    }
}

/* A token of a head has 128 / 16 = 8 scales. Alike for pages copied whole, and row by row. */
static void nvfp4_scales_come_by_addresses_in_either_layout(void **state) {
    (void)state;
    enum { HEADS = 8, TOKENS = 16, ROW = 8, BLOCK = TOKENS * ROW, PAGE = HEADS * BLOCK };
    const void *const k_sf = (const void *)(uintptr_t)0x20400, *const v_sf = (const void *)(uintptr_t)0x20500;
    for (uint32_t min_page_size = 1; min_page_size <= 16; min_page_size += 15) {
        libdecode_problem problem = problem_for(LIBDECODE_DTYPE_NVFP4, 128, TOKENS);
        struct libdecode_launch_contract contract = contract_for(KERNEL_DTYPE_NVFP4, 128, min_page_size);
        const struct gqa_decode_params *params = fill(&problem, &contract);
        expect_rows(&params->k_scales, k_sf, PAGE, BLOCK, ROW);
        expect_rows(&params->v_scales, v_sf, PAGE, BLOCK, ROW);
        assert_int_equal(params->v_scales_interleaved, 0);
        assert_int_equal(arguments.num_maps, min_page_size == 1 ? 0 : 2);

        problem.kv_layout = LIBDECODE_KV_NHD;
        problem.k_sf_page_stride = 2 * PAGE;
        params = fill(&problem, &contract);
        expect_rows(&params->k_scales, k_sf, 2 * PAGE, ROW, HEADS * ROW);
        expect_rows(&params->v_scales, v_sf, 2 * PAGE, ROW, HEADS * ROW);

        problem.v_sf_layout = LIBDECODE_SF_V_INTERLEAVE4; /* a page and head of V's is one block */
        params = fill(&problem, &contract);
        expect_rows(&params->k_scales, k_sf, 2 * PAGE, ROW, HEADS * ROW);
        expect_rows(&params->v_scales, v_sf, 2 * PAGE, BLOCK, ROW);
        assert_int_equal(params->v_scales_interleaved, 1);
    }
}

/* Where the scales of a page's tokens lie side by side, from multiples of 16 bytes on, as many as the kernel's head_dim has. */
static void scales_are_blocks_only_where_one_copy_of_16_bytes_finds_those_of_tokens(void **state) {
    (void)state;
    static const struct {
        int32_t head_dim;
        libdecode_kv_layout layout;
        int64_t head_stride, v_page_stride, token_stride; /* 0: dense */
        int32_t blocks;
    } cases[] = {
        {128, LIBDECODE_KV_HND, 0, 0, 0, 1},
        {128, LIBDECODE_KV_NHD, 0, 0, 0, 0},
        {64, LIBDECODE_KV_HND, 0, 0, 0, 1},
        {192, LIBDECODE_KV_HND, 0, 0, 0, 0}, /* runs on 256, which has 16 scales */
        {96, LIBDECODE_KV_HND, 0, 0, 8, 0},
        {128, LIBDECODE_KV_HND, 144, 0, 0, 1},
        {128, LIBDECODE_KV_HND, 136, 0, 0, 0},
        {128, LIBDECODE_KV_HND, 0, 8 * 128 + 16, 0, 1},
        {128, LIBDECODE_KV_HND, 0, 8 * 128 + 8, 0, 0},
        {128, LIBDECODE_KV_HND, 0, 0, 16, 0},
        {192, LIBDECODE_KV_HND, 0, 0, 16, 0}, /* behind the 12 of a token lies what is none */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        libdecode_problem problem = problem_for(LIBDECODE_DTYPE_NVFP4, cases[i].head_dim, 16);
        problem.kv_layout = cases[i].layout;
        problem.k_sf_head_stride = cases[i].head_stride;
        problem.v_sf_page_stride = cases[i].v_page_stride;
        problem.k_sf_token_stride = cases[i].token_stride;
        struct libdecode_launch_contract contract = contract_for(KERNEL_DTYPE_NVFP4, kernel_head_dim(cases[i].head_dim), 16);
        assert_int_equal(fill(&problem, &contract)->scale_blocks, cases[i].blocks);
    }
}

static void workers_share_ranges_in_groups_that_divide_them_and_the_heads(void **state) {
    (void)state;
    static const struct {
        int32_t num_kv_heads;
        bool lengths_by_head;
        int32_t num_workers, head_shift;
    } cases[] = {{8, false, 128, 3}, {8, false, 132, 2},  {8, false, 8, 3},    {8, false, 66, 1},
                 {8, false, 15, 0},  {8, true, 128, 0},   {4, false, 128, 2},  {1, false, 128, 0},
                 {5, false, 130, 0}, {12, false, 132, 2}, {16, false, 128, 3}, {32, false, 64, 3}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        libdecode_problem problem = problem_for(LIBDECODE_DTYPE_BF16, 128, 16);
        problem.num_kv_heads = cases[i].num_kv_heads;
        problem.num_qo_heads = cases[i].num_kv_heads * 4;
        problem.seq_lens_head_stride = cases[i].lengths_by_head ? 1 : 0;
        problem.seq_lens_request_stride = cases[i].lengths_by_head ? cases[i].num_kv_heads : 1;
        struct libdecode_launch_contract contract = contract_for(KERNEL_DTYPE_BF16, 128, 16);
        const struct schedule_params *schedule = &fill_for(&problem, &contract, cases[i].num_workers)->schedule;
        assert_int_equal(schedule->head_shift, cases[i].head_shift);
        assert_int_equal(schedule->num_workers.value, cases[i].num_workers >> cases[i].head_shift);
        assert_int_equal(schedule->num_workers.value << schedule->head_shift, cases[i].num_workers);
        assert_int_equal(schedule->num_workers.reciprocal, UINT32_MAX / schedule->num_workers.value);
    }
}

static uint32_t rare_of(const struct libdecode_launch_contract *contract, int32_t num_workers, uint32_t launch_flags) {
    libdecode_problem problem = problem_for(LIBDECODE_DTYPE_BF16, 128, 16);
    return fill_with(&problem, contract, num_workers, launch_flags)->schedule.rare;
}

/* A kernel takes fewer workers than planned where each would have less: of short units all are wanted. */
static void a_worker_has_two_tiles_or_a_whole_unit(void **state) {
    (void)state;
    static const struct {
        int32_t page_size, max_seq_len, boxes;
    } cases[] = {{16, 4096, 8}, {16, 128, 8}, {16, 127, 8}, {16, 100, 7}, {16, 64, 4}, {16, 16, 1}, {64, 65, 2}, {64, 64, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        libdecode_problem problem = problem_for(LIBDECODE_DTYPE_BF16, 128, cases[i].page_size);
        const struct libdecode_launch_contract contract = contract_for(KERNEL_DTYPE_BF16, 128, 16);
        problem.max_seq_len = cases[i].max_seq_len;
        assert_int_equal(fill(&problem, &contract)->schedule.min_boxes_per_worker, cases[i].boxes);
    }
}

/* Nine tenths of the CTAs that the device has room for. */
static void a_launch_that_fills_the_gpu_lets_the_next_one_begin_if_its_history_is_final(void **state) {
    (void)state;
    const uint32_t programmatic = LIBDECODE_LAUNCH_PROGRAMMATIC, final = programmatic | LIBDECODE_LAUNCH_HISTORY_FINAL;
    struct libdecode_launch_contract contract = contract_for(KERNEL_DTYPE_BF16, 128, 16);
    assert_int_equal(rare_of(&contract, 132, programmatic), 0);
    assert_int_equal(rare_of(&contract, 118, final), SCHEDULE_HISTORY_FINAL);
    assert_int_equal(rare_of(&contract, 119, final), SCHEDULE_HISTORY_FINAL | SCHEDULE_LETS_NEXT_BEGIN);
    contract.cluster_size = 8;
    assert_int_equal(rare_of(&contract, 14, final), SCHEDULE_HISTORY_FINAL);
    assert_int_equal(rare_of(&contract, 15, final), SCHEDULE_HISTORY_FINAL | SCHEDULE_LETS_NEXT_BEGIN);
}

/* 8 KV heads: of 4,096 tokens each of 64 CTAs reads 512, twice what its ring holds. */
static void so_does_a_short_launch_whose_rings_hold_half_of_what_it_reads(void **state) {
    (void)state;
    static const struct {
        int32_t batch_size, max_seq_len, window_left;
        bool lets_next_begin;
    } cases[] = {{1, 4096, 0, true}, {1, 4097, 0, false}, {2, 2048, 0, true}, {2, 4096, 0, false}, {1, 8192, 127, true}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct libdecode_launch_contract contract = contract_for(KERNEL_DTYPE_BF16, 128, 16);
        libdecode_problem problem = problem_for(LIBDECODE_DTYPE_BF16, 128, 16);
        contract.cluster_size = 8;
        contract.stages = 4;
        contract.features |= CONTRACT_FEATURE_WINDOW;
        problem.batch_size = cases[i].batch_size;
        problem.max_seq_len = cases[i].max_seq_len;
        problem.window_left = cases[i].window_left;
        problem.features |= cases[i].window_left > 0 ? LIBDECODE_FEATURE_WINDOW : 0u;
        assert_int_equal(contract.tile_tokens, 64);
        const uint32_t each = cases[i].batch_size == 1 ? SCHEDULE_ONE_REQUEST : 0u;
        assert_int_equal(fill_with(&problem, &contract, 8, LIBDECODE_LAUNCH_PROGRAMMATIC)->schedule.rare, each);
        assert_int_equal(
            fill_with(&problem, &contract, 8, LIBDECODE_LAUNCH_PROGRAMMATIC | LIBDECODE_LAUNCH_HISTORY_FINAL)->schedule.rare,
            each | SCHEDULE_HISTORY_FINAL | (cases[i].lets_next_begin ? SCHEDULE_LETS_NEXT_BEGIN : 0u));
    }
}

/* Which they can tell without counting. 8 KV heads. */
static void one_request_of_as_many_units_as_clusters_is_known_without_counting(void **state) {
    (void)state;
    static const struct {
        int32_t batch_size, q_len;
        uint32_t cluster_size;
        int32_t num_workers;
        bool lengths_by_head, is_told;
    } cases[] = {{1, 1, 8, 8, false, true},  {1, 2, 2, 8, false, true},  {2, 1, 8, 8, false, false},  {1, 3, 8, 8, false, false},
                 {1, 1, 1, 8, false, false}, {1, 1, 8, 7, false, false}, {1, 1, 8, 16, false, false}, {1, 1, 8, 8, true, false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct libdecode_launch_contract contract = contract_for(KERNEL_DTYPE_BF16, 128, 16);
        libdecode_problem problem = problem_for(LIBDECODE_DTYPE_BF16, 128, 16);
        assert_int_equal(problem.num_kv_heads, 8);
        assert_int_equal(problem.num_qo_heads, 32);
        contract.cluster_size = cases[i].cluster_size;
        contract.max_q_len = 4;
        contract.row_tile = 8;
        problem.batch_size = cases[i].batch_size;
        problem.q_len = cases[i].q_len;
        problem.seq_lens_head_stride = cases[i].lengths_by_head ? 1 : 0;
        problem.seq_lens_request_stride = cases[i].lengths_by_head ? 8 : 1;
        assert_int_equal(fill_for(&problem, &contract, cases[i].num_workers)->schedule.rare,
                         cases[i].is_told ? SCHEDULE_ONE_REQUEST : 0);
    }
}

/* By the KV heads of a request alone: neither hints, batch nor workers move a cut. */
static void a_batch_invariant_problem_is_cut_by_what_its_requests_have_in_common(void **state) {
    (void)state;
    static const struct {
        int32_t num_kv_heads, page_size;
        uint32_t min_page_size, max_chunks, min_chunk_boxes;
    } cases[] = {{8, 16, 16, 16, 128}, {8, 64, 16, 16, 32}, {5, 128, 16, 16, 32}, {4, 16, 16, 32, 128}, {1, 5, 1, 32, 128}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        libdecode_problem problem = problem_for(LIBDECODE_DTYPE_BF16, 128, cases[i].page_size);
        problem.num_kv_heads = cases[i].num_kv_heads;
        problem.num_qo_heads = cases[i].num_kv_heads * 4;
        struct libdecode_launch_contract contract = contract_for(KERNEL_DTYPE_BF16, 128, cases[i].min_page_size);
        assert_int_equal(fill(&problem, &contract)->schedule.rare, 0);
        contract.features = CONTRACT_FEATURE_BATCH_INVARIANT;
        problem.features = LIBDECODE_FEATURE_BATCH_INVARIANT;
        for (int32_t batch_size = 1; batch_size < 1000; batch_size *= 6) {
            problem.batch_size = batch_size;
            problem.max_seq_len = 100 * batch_size;
            problem.total_kv_tokens = 7 * batch_size;
            const struct schedule_params *schedule = &fill_for(&problem, &contract, batch_size)->schedule;
            assert_int_equal(schedule->rare, SCHEDULE_FIXED_CHUNKS);
            assert_int_equal(schedule->max_chunks, cases[i].max_chunks);
            assert_int_equal(schedule->min_chunk_boxes, cases[i].min_chunk_boxes);
        }
        contract.cluster_size = 2;
        char reason[FAMILY_REASON_BYTES];
        assert_null(contract_family(&contract, reason));
        assert_non_null(strstr(reason, "in clusters of 2"));
        contract.features = 0;
        assert_string_equal(misfit(&problem, &contract), "features");
    }
}

/* --------------------------------------------------------------------------------------------------------------- cost */

static int64_t predicted_on(const libdecode_device *device, const libdecode_problem *given,
                            const struct libdecode_launch_contract *contract) {
    const struct problem problem = checked(given);
    struct cost cost;
    assert_true(family_gqa_decode.cost(&problem, device, contract, &cost));
    return cost.predicted_ns;
}

static int64_t predicted(const libdecode_problem *given, const struct libdecode_launch_contract *contract) {
    libdecode_device device = preset("sm_90");
    return predicted_on(&device, given, contract);
}

/* Tokens a second, of which every halving of the bytes brings less. */
static void narrower_formats_are_faster_by_less_than_their_bytes(void **state) {
    (void)state;
    int64_t ns[KERNEL_DTYPE_E5M2 + 1];
    for (uint32_t dtype = KERNEL_DTYPE_BF16; dtype <= KERNEL_DTYPE_E5M2; dtype++) {
        if (dtype == KERNEL_DTYPE_FP32)
            continue;
        libdecode_problem problem = problem_for((libdecode_dtype)dtype, 128, 16);
        struct libdecode_launch_contract contract = contract_for(dtype, 128, 16);
        problem.batch_size = 64;
        ns[dtype] = predicted(&problem, &contract);
    }
    assert_int_equal(ns[KERNEL_DTYPE_BF16], ns[KERNEL_DTYPE_FP16]);
    assert_int_equal(ns[KERNEL_DTYPE_E4M3], ns[KERNEL_DTYPE_E5M2]);
    assert_in_range(ns[KERNEL_DTYPE_BF16] * 100 / ns[KERNEL_DTYPE_E4M3], 170, 199);
    assert_in_range(ns[KERNEL_DTYPE_BF16] * 100 / ns[KERNEL_DTYPE_NVFP4], 170, 355);
}

/* Zeros cost no memory traffic, but all the kernel's arithmetic: few SMs, which that holds up, gain nothing. */
static void a_narrow_row_is_read_as_it_is_and_computed_like_a_wide_one(void **state) {
    (void)state;
    libdecode_device many = preset("sm_90"), few = many;
    libdecode_problem narrow = problem_for(LIBDECODE_DTYPE_BF16, 80, 16), wide = problem_for(LIBDECODE_DTYPE_BF16, 128, 16);
    struct libdecode_launch_contract contract = contract_for(KERNEL_DTYPE_BF16, 128, 16);
    narrow.batch_size = wide.batch_size = 128;
    few.sm_count = 8;
    assert_true(predicted_on(&many, &narrow, &contract) * 100 < predicted_on(&many, &wide, &contract) * 80);
    assert_true(predicted_on(&few, &narrow, &contract) * 100 > predicted_on(&few, &wide, &contract) * 98);
}

/* Every stride of K, V and their scales is another one. */
static void rows_and_scales_of_k_and_v_have_strides_of_their_own(void **state) {
    (void)state;
    libdecode_problem problem = problem_for(LIBDECODE_DTYPE_NVFP4, 128, 16);
    problem.k_token_stride = 128, problem.k_head_stride = 16 * 128 + 32, problem.k_page_stride = 9 * 16 * 128 + 64;
    problem.v_token_stride = 160, problem.v_head_stride = 16 * 160 + 96, problem.v_page_stride = 9 * 16 * 160 + 128;
    problem.k_sf_token_stride = 8, problem.k_sf_head_stride = 16 * 8 + 8, problem.k_sf_page_stride = 9 * 16 * 8 + 24;
    problem.v_sf_token_stride = 16, problem.v_sf_head_stride = 16 * 16 + 40, problem.v_sf_page_stride = 9 * 16 * 16 + 56;
    const struct libdecode_launch_contract contract = contract_for(KERNEL_DTYPE_NVFP4, 128, 1);
    const libdecode_tensors tensors = some_tensors();
    const struct gqa_decode_params *params = fill(&problem, &contract);
    expect_rows(&params->k_rows, tensors.k_cache, problem.k_page_stride / 2, problem.k_head_stride / 2, 64);
    expect_rows(&params->v_rows, tensors.v_cache, problem.v_page_stride / 2, problem.v_head_stride / 2, 80);
    expect_rows(&params->k_scales, (const void *)(uintptr_t)0x20400, problem.k_sf_page_stride, problem.k_sf_head_stride, 8);
    expect_rows(&params->v_scales, (const void *)(uintptr_t)0x20500, problem.v_sf_page_stride, problem.v_sf_head_stride, 16);
}

/* K's scales may be blocks where V's are none. */
static void scales_are_blocks_only_where_those_of_v_are_too(void **state) {
    (void)state;
    static const struct {
        int64_t v_page_stride, v_head_stride, v_token_stride;
        int32_t blocks;
    } cases[] = {{0, 0, 0, 1}, {0, 0, 16, 0}, {0, 136, 0, 0}, {8 * 128 + 8, 0, 0, 0}, {8 * 144, 144, 8, 1}};
    const struct libdecode_launch_contract contract = contract_for(KERNEL_DTYPE_NVFP4, 128, 16);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        libdecode_problem problem = problem_for(LIBDECODE_DTYPE_NVFP4, 128, 16);
        problem.v_sf_page_stride = cases[i].v_page_stride != 0 ? cases[i].v_page_stride : 8 * 16 * 16;
        problem.v_sf_head_stride = cases[i].v_head_stride != 0 ? cases[i].v_head_stride : 16 * 16;
        problem.v_sf_token_stride = cases[i].v_token_stride;
        assert_int_equal(fill(&problem, &contract)->scale_blocks, cases[i].blocks);
    }
}

/* A box that goes beyond the room of a request would take the next one's scales. */
static void scales_of_contiguous_kv_are_blocks_where_its_room_is_whole_boxes(void **state) {
    (void)state;
    struct libdecode_launch_contract contract = contract_for(KERNEL_DTYPE_NVFP4, 128, 16);
    contract.features |= CONTRACT_FEATURE_CONTIGUOUS_KV;
    for (int32_t further = 0; further <= 16; further += 8) {
        libdecode_problem problem = problem_for(LIBDECODE_DTYPE_NVFP4, 128, 0);
        problem.features = LIBDECODE_FEATURE_CONTIGUOUS_KV;
        problem.kv_capacity_tokens = 4 * (int32_t)contract.max_box_tokens + further;
        assert_int_equal(fill(&problem, &contract)->scale_blocks, further == 0);
    }
    libdecode_problem paged = problem_for(LIBDECODE_DTYPE_NVFP4, 128, 16); /* pages are whole boxes, or a box is a page */
    assert_int_equal(fill(&paged, &contract)->scale_blocks, 1);
}

/* There a box is as long as a kernel likes, and crosses no page; strides of V may be too long, too. */
static void boxes_of_contiguous_kv_are_whole_whatever_its_room(void **state) {
    (void)state;
    struct libdecode_launch_contract contract = contract_for(KERNEL_DTYPE_BF16, 128, 16);
    contract.features |= CONTRACT_FEATURE_CONTIGUOUS_KV;
    libdecode_problem problem = problem_for(LIBDECODE_DTYPE_BF16, 128, 0);
    problem.features = LIBDECODE_FEATURE_CONTIGUOUS_KV;
    problem.kv_capacity_tokens = 40;
    const struct gqa_decode_params *params = fill(&problem, &contract);
    assert_int_equal(params->schedule.box_tokens, contract.max_box_tokens);
    assert_int_equal(arguments.maps[0].map.box[1], contract.max_box_tokens);
    assert_int_equal(params->schedule.page_size.value, 1u << 31);
    problem = problem_for(LIBDECODE_DTYPE_BF16, 128, 16);
    problem.num_pages = 4;
    problem.v_page_stride = (int64_t)1 << 39;
    assert_string_equal(misfit(&problem, &contract), "K and V strides");
    problem.v_page_stride -= 8;
    assert_string_equal(misfit(&problem, &contract), "");
}

/* As many units as clusters, but two passes of four heads each: a pass is no head. */
static void units_of_several_passes_are_counted(void **state) {
    (void)state;
    struct libdecode_launch_contract contract = contract_for(KERNEL_DTYPE_BF16, 128, 16);
    libdecode_problem problem = problem_for(LIBDECODE_DTYPE_BF16, 128, 16);
    contract.cluster_size = 8;
    contract.row_tile = 8;
    contract.max_q_len = 4;
    problem.batch_size = 1;
    problem.num_kv_heads = 4;
    problem.q_len = 2; /* 16 rows of each KV head */
    assert_int_equal(fill_for(&problem, &contract, 8)->schedule.rare, 0);
    problem.q_len = 1;
    assert_int_equal(fill_for(&problem, &contract, 4)->schedule.rare, SCHEDULE_ONE_REQUEST);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_block_says_what_query_and_result_are),
        cmocka_unit_test(narrow_rows_are_told_and_copied_line_by_line_where_the_last_is_not_whole),
        cmocka_unit_test(a_kernel_that_gathers_rows_gets_addresses_and_no_maps),
        cmocka_unit_test(a_kernel_of_any_rows_gets_odd_strides_and_offsets),
        cmocka_unit_test(a_box_is_at_most_a_page_and_rows_are_counted_across_pages),
        cmocka_unit_test(a_kernel_is_told_how_many_pages_there_are_where_that_is_known),
        cmocka_unit_test(nvfp4_scales_come_by_addresses_in_either_layout),
        cmocka_unit_test(scales_are_blocks_only_where_one_copy_of_16_bytes_finds_those_of_tokens),
        cmocka_unit_test(workers_share_ranges_in_groups_that_divide_them_and_the_heads),
        cmocka_unit_test(a_worker_has_two_tiles_or_a_whole_unit),
        cmocka_unit_test(a_launch_that_fills_the_gpu_lets_the_next_one_begin_if_its_history_is_final),
        cmocka_unit_test(so_does_a_short_launch_whose_rings_hold_half_of_what_it_reads),
        cmocka_unit_test(one_request_of_as_many_units_as_clusters_is_known_without_counting),
        cmocka_unit_test(a_batch_invariant_problem_is_cut_by_what_its_requests_have_in_common),
        cmocka_unit_test(narrower_formats_are_faster_by_less_than_their_bytes),
        cmocka_unit_test(a_narrow_row_is_read_as_it_is_and_computed_like_a_wide_one),
        cmocka_unit_test(rows_and_scales_of_k_and_v_have_strides_of_their_own),
        cmocka_unit_test(scales_are_blocks_only_where_those_of_v_are_too),
        cmocka_unit_test(scales_of_contiguous_kv_are_blocks_where_its_room_is_whole_boxes),
        cmocka_unit_test(boxes_of_contiguous_kv_are_whole_whatever_its_room),
        cmocka_unit_test(units_of_several_passes_are_counted),
    };
    return cmocka_run_group_tests_name("gqa_decode", tests, NULL, NULL);
}
