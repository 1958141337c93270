/* SPDX-License-Identifier: Apache-2.0 */
/* test_sparse_mla_decode.c: which contracts may be, which rows they fit, and how query tokens become the sequences of a schedule. */
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

static const struct libdecode_launch_contract some_contract = {.family = KERNEL_FAMILY_SPARSE_MLA_DECODE,
                                                               .kv_dtype = KERNEL_DTYPE_BF16,
                                                               .head_dim = 576,
                                                               .row_tile = 16,
                                                               .consumer_warps = 8,
                                                               .cluster_size = 1,
                                                               .tile_tokens = 64,
                                                               .max_box_tokens = 32,
                                                               .min_page_size = 1,
                                                               .flags = CONTRACT_FLAG_ROW_GATHER};

static const libdecode_problem some_problem = {.struct_size = sizeof some_problem,
                                               .op = LIBDECODE_OP_MLA_DECODE,
                                               .query_dtype = LIBDECODE_DTYPE_BF16,
                                               .batch_size = 3,
                                               .num_qo_heads = 128,
                                               .head_dim = 576,
                                               .page_size = 48,
                                               .num_pages = 100,
                                               .sparse_top_k = 2048};

static struct problem checked(const libdecode_problem *problem) {
    struct problem checked;
    if (problem_check(problem, &checked) != LIBDECODE_OK)
        fail_msg("%s", libdecode_error_message());
    return checked;
}

/* The first axis that fails; NULL: it fits. */
static const char *misfit(const struct family *family, const libdecode_problem *given,
                          const struct libdecode_launch_contract *contract) {
    const struct problem problem = checked(given);
    for (size_t i = 0; family->axes[i]; i++)
        if (strcmp(family->axes[i]->name, "query_dtype") != 0 && strcmp(family->axes[i]->name, "out_dtype") != 0 &&
            strcmp(family->axes[i]->name, "q_len") != 0 && strcmp(family->axes[i]->name, "page_size") != 0 &&
            !family->axes[i]->fits(&problem, contract))
            return family->axes[i]->name;
    return NULL;
}

static void rows_and_kernels_fit_each_other(void **state) {
    (void)state;
    libdecode_problem problem = some_problem;
    struct libdecode_launch_contract contract = some_contract;
    assert_null(misfit(&family_sparse_mla_decode, &problem, &contract));
    assert_string_equal(misfit(&family_mla_decode, &problem, &(struct libdecode_launch_contract){.head_dim = 576}),
                        "sparse_top_k");
    problem.sparse_top_k = 0;
    problem.max_seq_len = 1000;
    assert_string_equal(misfit(&family_sparse_mla_decode, &problem, &contract), "sparse_top_k");
    problem.sparse_top_k = 64;
    problem.head_dim = 512;
    assert_string_equal(misfit(&family_sparse_mla_decode, &problem, &contract), "row");
    problem.head_dim = 576;
    problem.kv_dtype = LIBDECODE_DTYPE_E4M3;
    problem.kv_row_format = LIBDECODE_KV_ROW_FP8_SCALED_656;
    contract.kv_dtype = KERNEL_DTYPE_E4M3;
    assert_string_equal(misfit(&family_sparse_mla_decode, &problem, &contract), "row");
    contract.kv_row_format = KERNEL_KV_ROW_SCALED656;
    assert_null(misfit(&family_sparse_mla_decode, &problem, &contract));
}

static void contracts_name_rows_that_are_known(void **state) {
    (void)state;
    static const struct {
        uint32_t row_format, kv_dtype, head_dim;
        bool is_known;
    } cases[] = {
        {KERNEL_KV_ROW_PLAIN, KERNEL_DTYPE_FP16, 512, true},       {KERNEL_KV_ROW_PLAIN, KERNEL_DTYPE_E4M3, 320, true},
        {KERNEL_KV_ROW_PLAIN, KERNEL_DTYPE_NVFP4, 576, false},     {KERNEL_KV_ROW_PLAIN, KERNEL_DTYPE_BF16, 256, false},
        {KERNEL_KV_ROW_SCALED656, KERNEL_DTYPE_E4M3, 576, true},   {KERNEL_KV_ROW_SCALED656, KERNEL_DTYPE_BF16, 576, false},
        {KERNEL_KV_ROW_NVFP352, KERNEL_DTYPE_NVFP4, 576, true},    {KERNEL_KV_ROW_NVFP352, KERNEL_DTYPE_NVFP4, 320, false},
        {KERNEL_KV_ROW_NVFP352 + 1, KERNEL_DTYPE_E4M3, 576, false}};
    char reason[FAMILY_REASON_BYTES] = "";
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct libdecode_launch_contract contract = some_contract;
        contract.kv_row_format = cases[i].row_format;
        contract.kv_dtype = cases[i].kv_dtype;
        contract.head_dim = cases[i].head_dim;
        assert_int_equal(family_sparse_mla_decode.serves(&contract, reason), cases[i].is_known);
    }
    struct libdecode_launch_contract contract = some_contract;
    contract.cluster_size = 8;
    assert_true(family_sparse_mla_decode.serves(&contract, reason));
    contract.features = CONTRACT_FEATURE_BATCH_INVARIANT;
    assert_false(family_sparse_mla_decode.serves(&contract, reason));
    contract = some_contract;
    contract.max_box_tokens = 128;
    assert_false(family_sparse_mla_decode.serves(&contract, reason));
}

static struct sparse_mla_decode_params filled(const libdecode_problem *given, const libdecode_tensors *tensors) {
    static struct kernel_arguments arguments;
    const struct problem problem = checked(given);
    const struct bundle_kernel kernel = {.contract = some_contract};
    const struct kernel_record record = {.kernel = &kernel};
    const struct selection selection = {.record = &record, .row_passes = 8, .num_workers = 128, .min_tiles_per_worker = 2};
    memset(&arguments, 0, sizeof arguments);
    arguments.num_maps = 99; /* only the block comes zeroed */
    family_sparse_mla_decode.fill(&problem, &selection, tensors, &arguments);
    assert_int_equal(arguments.num_maps, 0);
    struct sparse_mla_decode_params params;
    memcpy(&params, arguments.block, sizeof params);
    return params;
}

/* Each query token is a sequence; where its length stands in memory, the schedule reads it there. */
static void query_tokens_are_sequences(void **state) {
    (void)state;
    static const int32_t lens[6], token_lens[6], begins[4], ids[8];
    libdecode_problem problem = some_problem;
    libdecode_tensors tensors = {.seq_lens = lens, .sparse_token_ids = ids};
    struct sparse_mla_decode_params params = filled(&problem, &tensors);
    assert_ptr_equal(params.schedule.seq_lens, lens);
    assert_int_equal(params.schedule.rare, 0);
    assert_int_equal(params.schedule.batch_size, 3);
    assert_int_equal(params.schedule.max_tokens, 2048);
    assert_int_equal(params.schedule.sequences_per_request.value, 1);
    assert_int_equal(params.schedule.heads_per_sequence, 8); /* groups of 16 heads, a pass each */
    assert_int_equal(params.schedule.row_passes, 1);
    assert_int_equal(params.schedule.head_shift, 3);
    assert_null(params.schedule.page_table);

    problem.q_len = 2;
    params = filled(&problem, &tensors);
    assert_int_equal(params.schedule.rare, SCHEDULE_EXACT_RANGES);
    assert_int_equal(params.schedule.batch_size, 3);
    assert_int_equal(params.schedule.sequences_per_request.value, 2);
    assert_int_equal(params.schedule.max_tokens, INT32_MAX);
    assert_int_equal(params.schedule.top_k, 2048);
    assert_null(params.schedule.top_k_lens);

    problem.features = LIBDECODE_FEATURE_SPARSE_TOP_K_LENS;
    tensors.sparse_top_k_lens = token_lens;
    params = filled(&problem, &tensors);
    assert_int_equal(params.schedule.rare, 0);
    assert_ptr_equal(params.schedule.seq_lens, token_lens);
    assert_int_equal(params.schedule.seq_lens_request_stride, 1);
    assert_int_equal(params.schedule.batch_size, 6);
    assert_int_equal(params.schedule.q_len, 1);

    problem.features |= LIBDECODE_FEATURE_RAGGED_Q;
    tensors.cum_seq_lens_q = begins;
    params = filled(&problem, &tensors);
    assert_int_equal(params.schedule.rare, SCHEDULE_EXACT_RANGES);
    assert_ptr_equal(params.schedule.cum_seq_lens_q, begins);
    assert_ptr_equal(params.schedule.top_k_lens, token_lens);
    assert_int_equal(params.schedule.sequences_per_request.value, 2);
}

/* Strides of the block count bytes, whatever those of the problem do. */
static void rows_are_found_by_their_ids(void **state) {
    (void)state;
    static const int32_t ids[8];
    static const char cache[16];
    static const struct {
        libdecode_dtype kv_dtype;
        libdecode_kv_row_format format;
        int64_t bytes;
    } cases[] = {{LIBDECODE_DTYPE_BF16, LIBDECODE_KV_ROW_PLAIN, 1152},
                 {LIBDECODE_DTYPE_E4M3, LIBDECODE_KV_ROW_PLAIN, 576},
                 {LIBDECODE_DTYPE_E4M3, LIBDECODE_KV_ROW_FP8_SCALED_656, 656},
                 {LIBDECODE_DTYPE_NVFP4, LIBDECODE_KV_ROW_NVFP4_352, 352}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        libdecode_problem problem = some_problem;
        problem.kv_dtype = cases[i].kv_dtype;
        problem.kv_row_format = cases[i].format;
        const libdecode_tensors tensors = {.k_cache = cache, .sparse_token_ids = ids};
        const struct sparse_mla_decode_params params = filled(&problem, &tensors);
        assert_ptr_equal(params.sparse.token_ids, ids);
        assert_int_equal(params.sparse.token_ids_stride, 2048);
        assert_ptr_equal(params.sparse.rows.rows, cache);
        assert_int_equal(params.sparse.rows.token_stride, cases[i].bytes);
        assert_int_equal(params.sparse.rows.page_stride, cases[i].bytes * 48);
        assert_int_equal(params.sparse.num_tokens, 4800);
        assert_int_equal(params.sparse.page_size.value, 48);
    }
    libdecode_problem problem = some_problem;
    problem.num_pages = INT32_MAX;
    const libdecode_tensors tensors = {.k_cache = cache, .sparse_token_ids = ids};
    assert_int_equal(filled(&problem, &tensors).sparse.num_tokens, INT32_MAX);
}

/* Rows that a problem and its kernels have. */
struct row_kind {
    libdecode_dtype kv_dtype;
    libdecode_kv_row_format format;
};
#define BF16_ROWS                                                                                                                \
    { LIBDECODE_DTYPE_BF16, LIBDECODE_KV_ROW_PLAIN }
#define E4M3_ROWS                                                                                                                \
    { LIBDECODE_DTYPE_E4M3, LIBDECODE_KV_ROW_PLAIN }
#define NVFP352_ROWS                                                                                                             \
    { LIBDECODE_DTYPE_NVFP4, LIBDECODE_KV_ROW_NVFP4_352 }
#define SCALED656_ROWS                                                                                                           \
    { LIBDECODE_DTYPE_E4M3, LIBDECODE_KV_ROW_FP8_SCALED_656 }

enum { KERNELS = 7 };
/* FP8 has teams in single CTAs and pairs, whose tiles are half as long. */
static const struct kernel_shape kernels[KERNELS] = {{16, 1, 64}, {16, 2, 64}, {16, 4, 64}, {16, 8, 64},
                                                     {32, 1, 64}, {32, 8, 32}, {64, 1, 64}},
                                 kernels_fp8[KERNELS] = {{16, 1, 32}, {16, 2, 32}, {16, 4, 64}, {16, 8, 64},
                                                         {32, 1, 64}, {32, 8, 32}, {64, 1, 64}};

struct measured_case {
    struct row_kind rows;
    int32_t heads, batch_size, top_k;
    double measured_us[KERNELS]; /* 0: there is none, or its time is not known */
};

static void expect_fast_choices(const libdecode_device *device, const struct measured_case *cases, size_t num_cases,
                                double most) {
    for (size_t i = 0; i < num_cases; i++) {
        libdecode_problem given = some_problem;
        given.num_qo_heads = cases[i].heads;
        given.batch_size = cases[i].batch_size;
        given.sparse_top_k = cases[i].top_k;
        given.kv_dtype = cases[i].rows.kv_dtype;
        given.kv_row_format = cases[i].rows.format;
        const struct problem problem = checked(&given);
        struct libdecode_launch_contract contract = some_contract;
        contract.kv_dtype = (uint32_t)given.kv_dtype;
        contract.kv_row_format = (uint32_t)given.kv_row_format;
        expect_fast_choice(&family_sparse_mla_decode, &problem, device, contract,
                           given.kv_dtype == LIBDECODE_DTYPE_E4M3 ? kernels_fp8 : kernels, cases[i].measured_us, KERNELS, most,
                           0.13);
    }
}

/* us, all kernels in turns; of FP8 since single CTAs and pairs have teams. */
static void the_fastest_kernel_of_an_h200_is_predicted(void **state) {
    (void)state;
    static const struct measured_case cases[] = {
        {SCALED656_ROWS, 16, 1, 1024, {11.7, 13.5, 9.7, 9.6, 15.8, 0, 19.3}},
        {SCALED656_ROWS, 16, 1, 2048, {13.7, 14.9, 10.9, 9.8, 16.8, 0, 21.3}},
        {SCALED656_ROWS, 16, 4, 2048, {14.4, 16.0, 11.7, 11.6, 17.8, 0, 23.0}},
        {SCALED656_ROWS, 16, 16, 2048, {16.1, 17.1, 20.5, 24.1, 22.8, 0, 27.6}},
        {SCALED656_ROWS, 16, 64, 2048, {36.0, 32.5, 53.2, 63.1, 55.5, 0, 56.7}},
        {SCALED656_ROWS, 16, 128, 2048, {59.5, 65.4, 93.3, 112.7, 88.3, 0, 86.8}},
        {SCALED656_ROWS, 64, 1, 2048, {14.8, 16.2, 11.7, 11.6, 17.1, 0, 22.0}},
        {SCALED656_ROWS, 64, 4, 2048, {16.4, 17.3, 20.6, 24.0, 17.6, 0, 23.2}},
        {SCALED656_ROWS, 64, 16, 2048, {35.6, 32.3, 52.4, 62.4, 32.1, 0, 28.5}},
        {SCALED656_ROWS, 64, 64, 2048, {110.1, 118.9, 165.7, 205.9, 84.5, 0, 60.0}},
        {SCALED656_ROWS, 64, 128, 2048, {223.8, 237.1, 316.2, 400.9, 166.7, 0, 91.8}},
        {SCALED656_ROWS, 128, 1, 1024, {12.8, 14.8, 11.3, 10.5, 16.2, 0, 20.7}},
        {SCALED656_ROWS, 128, 1, 2048, {14.5, 16.4, 13.8, 14.0, 17.4, 0, 22.7}},
        {SCALED656_ROWS, 128, 4, 2048, {22.2, 22.1, 30.4, 39.0, 21.4, 0, 24.7}},
        {SCALED656_ROWS, 128, 8, 2048, {35.6, 32.1, 51.7, 61.6, 31.7, 0, 27.1}},
        {SCALED656_ROWS, 128, 16, 2048, {56.3, 61.1, 90.1, 110.0, 53.1, 0, 37.7}},
        {SCALED656_ROWS, 128, 32, 2048, {109.8, 118.7, 165.5, 205.5, 84.4, 0, 59.5}},
        {SCALED656_ROWS, 128, 64, 2048, {221.6, 234.1, 314.5, 400.5, 165.5, 0, 87.0}},
        {SCALED656_ROWS, 128, 128, 2048, {425.9, 462.2, 615.7, 777.2, 338.7, 0, 168.5}},
        {BF16_ROWS, 16, 1, 1024, {11.8, 11.2, 9.1, 9.1, 14.0, 10.4, 14.7}},
        {BF16_ROWS, 16, 1, 2048, {13.5, 13.2, 10.5, 9.4, 15.4, 12.3, 16.6}},
        {BF16_ROWS, 16, 4, 2048, {14.6, 14.4, 11.5, 11.2, 16.5, 14.6, 17.7}},
        {BF16_ROWS, 16, 16, 2048, {20.0, 20.7, 19.4, 23.2, 22.5, 38.4, 22.5}},
        {BF16_ROWS, 16, 24, 2048, {25.2, 25.9, 22.8, 26.8, 31.4, 38.9, 30.6}},
        {BF16_ROWS, 16, 64, 2048, {47.6, 44.9, 53.8, 62.9, 54.5, 91.9, 54.4}},
        {BF16_ROWS, 16, 128, 2048, {82.3, 84.9, 95.9, 110.6, 86.0, 169.4, 84.5}},
        {BF16_ROWS, 48, 20, 2048, {36.3, 34.2, 40.0, 48.4, 38.4, 61.6, 29.9}},
        {BF16_ROWS, 64, 1, 2048, {14.9, 14.4, 11.1, 11.0, 16.2, 12.8, 18.0}},
        {BF16_ROWS, 64, 3, 2048, {15.8, 16.6, 14.7, 13.9, 17.1, 16.5, 19.2}},
        {BF16_ROWS, 64, 4, 2048, {17.1, 18.0, 18.2, 22.0, 17.4, 20.5, 19.6}},
        {BF16_ROWS, 64, 12, 2048, {33.5, 32.2, 35.2, 43.3, 28.8, 39.7, 22.8}},
        {BF16_ROWS, 64, 16, 2048, {36.7, 34.7, 48.7, 57.5, 30.9, 55.2, 25.4}},
        {BF16_ROWS, 64, 24, 2048, {54.6, 60.8, 63.4, 77.8, 48.2, 69.9, 33.9}},
        {BF16_ROWS, 64, 48, 2048, {96.6, 95.3, 115.1, 141.1, 80.0, 131.6, 52.0}},
        {BF16_ROWS, 64, 64, 2048, {116.3, 124.9, 151.1, 183.5, 82.5, 171.4, 60.2}},
        {BF16_ROWS, 64, 96, 2048, {171.8, 185.0, 222.4, 266.9, 137.7, 249.6, 76.0}},
        {BF16_ROWS, 64, 128, 2048, {229.0, 245.4, 286.7, 354.7, 161.1, 327.5, 90.2}},
        {BF16_ROWS, 128, 1, 512, {11.8, 10.8, 9.2, 8.2, 15.7, 10.7, 16.8}},
        {BF16_ROWS, 128, 1, 1024, {13.1, 12.1, 10.7, 9.8, 15.4, 11.9, 16.7}},
        {BF16_ROWS, 128, 1, 2048, {15.1, 15.5, 12.9, 12.6, 16.6, 14.5, 18.7}},
        {BF16_ROWS, 128, 4, 2048, {23.3, 23.3, 26.8, 35.1, 20.6, 38.8, 19.9}},
        {BF16_ROWS, 128, 8, 2048, {36.3, 33.7, 45.7, 55.4, 30.4, 54.3, 22.4}},
        {BF16_ROWS, 128, 12, 2048, {52.5, 59.5, 60.6, 76.0, 46.4, 69.5, 28.7}},
        {BF16_ROWS, 128, 16, 2048, {59.6, 63.2, 80.4, 98.8, 50.6, 94.0, 31.8}},
        {BF16_ROWS, 128, 24, 2048, {95.0, 92.4, 113.8, 139.6, 77.1, 132.4, 47.6}},
        {BF16_ROWS, 128, 32, 2048, {114.8, 121.1, 148.7, 182.0, 81.1, 170.9, 50.4}},
        {BF16_ROWS, 128, 64, 2048, {223.7, 235.7, 280.7, 348.5, 156.9, 323.9, 74.3}},
        {BF16_ROWS, 128, 96, 2048, {336.1, 354.0, 419.6, 515.9, 233.2, 485.6, 134.1}},
        {BF16_ROWS, 128, 128, 2048, {443.7, 467.2, 552.4, 682.1, 309.8, 639.3, 145.4}},
        {E4M3_ROWS, 16, 1, 2048, {0, 0, 10.3, 9.1, 16.4, 13.1, 19.5}},
        {E4M3_ROWS, 16, 4, 2048, {0, 0, 10.9, 10.6, 17.4, 15.3, 22.0}},
        {E4M3_ROWS, 16, 12, 2048, {0, 0, 14.1, 13.1, 19.5, 22.0, 24.1}},
        {E4M3_ROWS, 16, 16, 2048, {15.3, 0, 18.1, 21.9, 21.0, 40.2, 25.2}},
        {E4M3_ROWS, 16, 64, 2048, {0, 0, 46.8, 55.1, 51.0, 97.3, 51.7}},
        {E4M3_ROWS, 16, 128, 2048, {54.4, 0, 81.4, 97.9, 85.8, 180.5, 75.7}},
        {E4M3_ROWS, 64, 1, 2048, {0, 0, 10.6, 10.3, 16.7, 13.2, 19.7}},
        {E4M3_ROWS, 64, 4, 2048, {0, 0, 17.8, 21.6, 17.0, 21.1, 21.5}},
        {E4M3_ROWS, 64, 16, 2048, {0, 0, 46.1, 54.2, 30.8, 57.5, 25.7}},
        {E4M3_ROWS, 64, 24, 2048, {0, 0, 59.8, 73.7, 47.8, 72.9, 32.6}},
        {E4M3_ROWS, 64, 64, 2048, {0, 0, 144.9, 177.7, 81.5, 180.4, 54.3}},
        {E4M3_ROWS, 64, 128, 2048, {0, 0, 274.5, 344.2, 163.7, 344.3, 80.1}},
        {E4M3_ROWS, 128, 1, 2048, {0, 0, 12.6, 12.4, 17.2, 15.3, 20.9}},
        {E4M3_ROWS, 128, 4, 2048, {0, 0, 27.1, 34.1, 20.9, 40.4, 22.4}},
        {E4M3_ROWS, 128, 16, 2048, {0, 0, 79.0, 94.9, 51.2, 97.7, 33.0}},
        {E4M3_ROWS, 128, 24, 2048, {0, 0, 111.1, 135.9, 78.9, 137.4, 50.5}},
        {E4M3_ROWS, 128, 32, 2048, {0, 0, 144.4, 177.9, 81.2, 180.4, 53.0}},
        {E4M3_ROWS, 128, 64, 2048, {0, 0, 273.3, 343.2, 159.0, 342.8, 72.9}},
        {E4M3_ROWS, 128, 96, 2048, {0, 0, 406.2, 507.0, 238.7, 506.5, 141.5}},
        {E4M3_ROWS, 128, 128, 2048, {0, 0, 540.4, 674.2, 318.0, 676.0, 145.2}},
        {NVFP352_ROWS, 16, 1, 2048, {13.8, 15.2, 11.0, 9.4, 17.6, 13.6, 0}},
        {NVFP352_ROWS, 16, 4, 2048, {14.3, 16.3, 12.0, 11.3, 18.4, 16.1, 0}},
        {NVFP352_ROWS, 16, 12, 2048, {15.8, 18.2, 15.7, 15.1, 21.2, 23.5, 0}},
        {NVFP352_ROWS, 16, 16, 2048, {17.2, 18.1, 21.5, 24.2, 23.1, 33.8, 23.2}},
        {NVFP352_ROWS, 16, 64, 2048, {41.3, 38.0, 55.7, 66.2, 59.0, 102.7, 0}},
        {NVFP352_ROWS, 16, 128, 2048, {69.5, 74.0, 99.6, 120.6, 102.2, 190.9, 94.6}},
        {NVFP352_ROWS, 64, 1, 2048, {14.5, 16.1, 11.7, 11.2, 17.8, 13.7, 18.6}},
        {NVFP352_ROWS, 64, 4, 2048, {17.0, 18.0, 21.4, 24.1, 18.2, 22.0, 20.1}},
        {NVFP352_ROWS, 64, 16, 2048, {41.0, 37.9, 55.1, 64.9, 35.0, 60.4, 24.9}},
        {NVFP352_ROWS, 64, 24, 2048, {62.0, 64.6, 72.5, 89.2, 53.3, 76.4, 0}},
        {NVFP352_ROWS, 64, 64, 2048, {133.6, 142.9, 179.9, 220.0, 96.0, 190.6, 0}},
        {NVFP352_ROWS, 64, 128, 2048, {270.5, 283.5, 346.4, 431.0, 196.0, 364.6, 98.0}},
        {NVFP352_ROWS, 128, 1, 2048, {14.8, 16.7, 14.4, 14.3, 18.4, 15.8, 19.3}},
        {NVFP352_ROWS, 128, 4, 2048, {24.7, 24.7, 31.4, 40.3, 23.1, 34.0, 20.5}},
        {NVFP352_ROWS, 128, 12, 2048, {61.7, 64.6, 72.4, 89.1, 53.6, 76.5, 0}},
        {NVFP352_ROWS, 128, 16, 2048, {67.2, 72.8, 96.5, 116.0, 58.6, 102.2, 34.8}},
        {NVFP352_ROWS, 128, 32, 2048, {133.0, 142.7, 179.7, 219.6, 96.5, 189.9, 56.5}},
        {NVFP352_ROWS, 128, 48, 2048, {197.5, 211.3, 259.7, 322.7, 158.3, 275.9, 0}},
        {NVFP352_ROWS, 128, 64, 2048, {268.0, 282.3, 345.3, 429.0, 188.2, 362.8, 0}},
        {NVFP352_ROWS, 128, 96, 2048, {395.5, 420.6, 509.2, 633.4, 284.3, 535.8, 0}},
        {NVFP352_ROWS, 128, 128, 2048, {521.1, 555.7, 678.2, 841.6, 378.8, 707.3, 179.2}},
    };
    const libdecode_device device = measured_h200();
    expect_fast_choices(&device, cases, sizeof cases / sizeof cases[0], 1.05);
}

/* The same, but for rows of 656 bytes, whose kernels have changed since. */
static void the_fastest_kernel_of_an_h100_is_predicted(void **state) {
    (void)state;
    static const struct measured_case cases[] = {
        {BF16_ROWS, 16, 1, 1024, {12.2, 11.1, 9.1, 9.1, 14.5, 10.5, 15.2}},
        {BF16_ROWS, 16, 1, 2048, {13.2, 13.1, 10.4, 9.4, 15.1, 12.4, 16.2}},
        {BF16_ROWS, 16, 4, 2048, {16.1, 15.2, 12.4, 12.0, 17.9, 15.0, 18.6}},
        {BF16_ROWS, 16, 16, 2048, {24.6, 25.0, 22.0, 25.7, 27.0, 38.0, 27.0}},
        {BF16_ROWS, 16, 64, 2048, {65.8, 62.3, 76.5, 74.4, 72.2, 92.9, 71.3}},
        {BF16_ROWS, 16, 128, 2048, {117.2, 118.9, 126.8, 134.8, 120.1, 168.2, 118.0}},
        {BF16_ROWS, 48, 20, 2048, {37.9, 36.9, 46.0, 55.2, 39.2, 61.3, 34.4}},
        {BF16_ROWS, 64, 1, 2048, {14.9, 14.1, 10.9, 10.8, 15.9, 12.6, 17.4}},
        {BF16_ROWS, 64, 4, 2048, {18.0, 18.4, 18.3, 21.9, 18.2, 20.3, 20.4}},
        {BF16_ROWS, 64, 12, 2048, {34.9, 33.2, 36.8, 44.5, 29.3, 38.4, 27.2}},
        {BF16_ROWS, 64, 16, 2048, {37.8, 37.2, 49.0, 60.6, 32.4, 54.9, 31.2}},
        {BF16_ROWS, 64, 24, 2048, {56.6, 61.7, 66.3, 82.9, 49.8, 69.2, 39.7}},
        {BF16_ROWS, 64, 48, 2048, {100.1, 101.6, 119.9, 160.5, 82.1, 133.0, 64.3}},
        {BF16_ROWS, 64, 64, 2048, {120.3, 133.4, 158.5, 195.4, 84.1, 169.7, 78.3}},
        {BF16_ROWS, 64, 128, 2048, {234.4, 259.4, 302.0, 381.9, 161.1, 318.2, 123.4}},
        {BF16_ROWS, 128, 1, 1024, {13.7, 12.6, 10.6, 9.7, 15.5, 11.8, 16.4}},
        {BF16_ROWS, 128, 1, 2048, {15.5, 15.9, 13.0, 12.6, 16.7, 14.3, 18.6}},
        {BF16_ROWS, 128, 4, 2048, {24.0, 23.7, 27.0, 35.1, 20.9, 38.1, 21.2}},
        {BF16_ROWS, 128, 8, 2048, {37.5, 35.7, 46.2, 56.1, 30.3, 54.0, 24.3}},
        {BF16_ROWS, 128, 12, 2048, {54.8, 60.3, 62.2, 76.6, 46.0, 68.7, 31.0}},
        {BF16_ROWS, 128, 16, 2048, {61.6, 66.5, 84.0, 101.5, 49.9, 91.7, 35.5}},
        {BF16_ROWS, 128, 24, 2048, {98.6, 96.8, 117.7, 143.2, 76.2, 132.9, 49.9}},
        {BF16_ROWS, 128, 32, 2048, {118.0, 126.2, 154.4, 186.0, 80.4, 167.4, 56.2}},
        {BF16_ROWS, 128, 64, 2048, {231.2, 247.0, 298.0, 368.1, 160.2, 326.2, 81.0}},
        {BF16_ROWS, 128, 128, 2048, {453.5, 480.4, 580.2, 721.6, 314.4, 642.8, 156.4}},
        {E4M3_ROWS, 16, 1, 2048, {0, 0, 10.2, 8.9, 15.9, 13.0, 0}},
        {E4M3_ROWS, 16, 4, 2048, {0, 0, 10.8, 10.4, 17.4, 15.3, 0}},
        {E4M3_ROWS, 16, 16, 2048, {0, 0, 17.8, 21.6, 21.0, 39.7, 0}},
        {E4M3_ROWS, 16, 64, 2048, {0, 0, 51.2, 56.8, 50.5, 95.4, 0}},
        {E4M3_ROWS, 16, 128, 2048, {0, 0, 86.5, 98.7, 85.5, 175.1, 0}},
        {E4M3_ROWS, 64, 1, 2048, {0, 0, 10.3, 10.0, 16.3, 12.8, 0}},
        {E4M3_ROWS, 64, 4, 2048, {0, 0, 17.3, 20.8, 16.7, 20.4, 0}},
        {E4M3_ROWS, 64, 16, 2048, {0, 0, 45.4, 53.7, 30.6, 56.6, 0}},
        {E4M3_ROWS, 64, 24, 2048, {0, 0, 58.3, 72.9, 46.7, 70.9, 0}},
        {E4M3_ROWS, 64, 64, 2048, {0, 0, 140.7, 173.4, 79.5, 174.6, 0}},
        {E4M3_ROWS, 64, 128, 2048, {0, 0, 269.8, 336.7, 160.4, 337.3, 0}},
        {E4M3_ROWS, 128, 1, 2048, {0, 0, 12.2, 11.9, 16.9, 14.8, 0}},
        {E4M3_ROWS, 128, 4, 2048, {0, 0, 26.5, 33.4, 20.8, 39.5, 0}},
        {E4M3_ROWS, 128, 16, 2048, {0, 0, 76.8, 93.0, 50.1, 94.9, 0}},
        {E4M3_ROWS, 128, 24, 2048, {0, 0, 108.6, 134.1, 77.4, 134.6, 0}},
        {E4M3_ROWS, 128, 32, 2048, {0, 0, 140.8, 173.6, 79.6, 174.6, 0}},
        {E4M3_ROWS, 128, 64, 2048, {0, 0, 266.5, 332.6, 155.0, 332.4, 0}},
        {E4M3_ROWS, 128, 128, 2048, {0, 0, 522.7, 652.7, 309.3, 651.3, 0}},
        {NVFP352_ROWS, 16, 1, 2048, {13.8, 15.2, 10.9, 9.4, 17.6, 13.6, 0}},
        {NVFP352_ROWS, 16, 4, 2048, {14.6, 16.3, 12.0, 11.3, 18.6, 16.1, 0}},
        {NVFP352_ROWS, 16, 16, 2048, {17.5, 18.4, 21.3, 24.3, 23.2, 33.6, 0}},
        {NVFP352_ROWS, 16, 64, 2048, {41.2, 37.8, 55.7, 65.8, 58.5, 101.4, 0}},
        {NVFP352_ROWS, 16, 128, 2048, {68.4, 72.4, 97.7, 117.5, 99.7, 183.8, 0}},
        {NVFP352_ROWS, 64, 1, 2048, {14.2, 15.8, 11.5, 11.0, 17.7, 13.4, 0}},
        {NVFP352_ROWS, 64, 4, 2048, {17.2, 18.0, 21.3, 24.1, 18.4, 21.9, 0}},
        {NVFP352_ROWS, 64, 16, 2048, {41.4, 38.1, 55.2, 65.2, 35.4, 60.5, 0}},
        {NVFP352_ROWS, 64, 24, 2048, {61.5, 63.6, 70.8, 87.5, 52.4, 74.5, 0}},
        {NVFP352_ROWS, 64, 64, 2048, {129.8, 138.6, 174.7, 213.9, 93.8, 184.0, 0}},
        {NVFP352_ROWS, 64, 128, 2048, {262.0, 274.4, 337.0, 417.0, 189.8, 353.3, 0}},
        {NVFP352_ROWS, 128, 1, 2048, {14.9, 16.7, 14.4, 14.3, 18.6, 15.9, 0}},
        {NVFP352_ROWS, 128, 4, 2048, {24.4, 24.2, 30.8, 39.2, 22.8, 33.2, 0}},
        {NVFP352_ROWS, 128, 12, 2048, {61.8, 62.8, 70.2, 86.5, 51.8, 73.6, 0}},
        {NVFP352_ROWS, 128, 16, 2048, {66.9, 71.4, 95.0, 114.5, 58.5, 100.6, 0}},
        {NVFP352_ROWS, 128, 32, 2048, {129.2, 138.4, 174.6, 213.7, 93.1, 183.7, 0}},
        {NVFP352_ROWS, 128, 64, 2048, {260.2, 273.7, 334.1, 414.1, 183.3, 352.1, 0}},
        {NVFP352_ROWS, 128, 128, 2048, {506.5, 539.9, 660.1, 813.4, 367.5, 684.1, 0}},
    };
    const libdecode_device device = measured_h100();
    expect_fast_choices(&device, cases, sizeof cases / sizeof cases[0], 1.06);
}

/* Which rows a query token reads is not known before its ids are: nothing of it is history. And its lengths lie side by side. */
static void token_ids_have_no_history_and_lengths_of_their_own_no_stride(void **state) {
    (void)state;
    static const int32_t token_lens[6], ids[8];
    libdecode_problem problem = some_problem;
    libdecode_tensors tensors = {.sparse_token_ids = ids,
                                 .sparse_top_k_lens = token_lens,
                                 .launch_flags = LIBDECODE_LAUNCH_PROGRAMMATIC | LIBDECODE_LAUNCH_HISTORY_FINAL};
    problem.q_len = 2;
    problem.features = LIBDECODE_FEATURE_SPARSE_TOP_K_LENS;
    problem.seq_lens_request_stride = 7;
    const struct sparse_mla_decode_params params = filled(&problem, &tensors);
    assert_int_equal(params.schedule.rare, 0);
    assert_int_equal(params.schedule.seq_lens_request_stride, 1);
}

static void ids_have_the_stride_that_is_given_and_lengths_of_them_no_capacity(void **state) {
    (void)state;
    static const int32_t token_lens[3], ids[8];
    libdecode_problem problem = some_problem;
    libdecode_tensors tensors = {.sparse_token_ids = ids};
    problem.sparse_token_ids_stride = 2050;
    problem.kv_capacity_tokens = 1000;
    struct sparse_mla_decode_params params = filled(&problem, &tensors);
    assert_int_equal(params.sparse.token_ids_stride, 2050);
    assert_int_equal(params.schedule.max_tokens, 1000);
    problem.features = LIBDECODE_FEATURE_SPARSE_TOP_K_LENS;
    tensors.sparse_top_k_lens = token_lens;
    params = filled(&problem, &tensors);
    assert_int_equal(params.schedule.max_tokens, 2048);
}

/* Whatever their number: every query token is a unit of its own, of one row for each head, cut into chunks as short as what it selects. */
static void query_tokens_are_units_of_their_own(void **state) {
    (void)state;
    static const int32_t lens[3], ids[8];
    libdecode_problem problem = some_problem;
    const libdecode_tensors tensors = {.seq_lens = lens, .sparse_token_ids = ids};
    for (int32_t q_len = 1; q_len <= 4; q_len++) {
        problem.q_len = q_len;
        const struct sparse_mla_decode_params params = filled(&problem, &tensors);
        assert_int_equal(params.schedule.heads_per_sequence, 8);
        assert_int_equal(params.schedule.group_size.value, 16);
        assert_int_equal(params.schedule.row_passes, 1);
    }
    problem.features = LIBDECODE_FEATURE_BATCH_INVARIANT;
    const struct sparse_mla_decode_params params = filled(&problem, &tensors);
    assert_int_equal(params.schedule.rare & SCHEDULE_FIXED_CHUNKS, SCHEDULE_FIXED_CHUNKS);
    assert_int_equal(params.schedule.min_chunk_boxes, 256 / params.schedule.box_tokens);
    assert_int_equal(params.schedule.max_chunks, KERNEL_MAX_CHUNKS_IN_SCRATCH);

    problem.features = 0; /* 2^15 boxes of each query token and pass, of which a token has eight */
    problem.sparse_top_k = 1 << 20;
    problem.batch_size = 1 << 7;
    problem.q_len = 16;
    assert_null(misfit(&family_sparse_mla_decode, &problem, &some_contract));
    problem.q_len = 1 << 10;
    assert_string_equal(misfit(&family_sparse_mla_decode, &problem, &some_contract), "size of the batch");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_and_kernels_fit_each_other),
        cmocka_unit_test(contracts_name_rows_that_are_known),
        cmocka_unit_test(query_tokens_are_sequences),
        cmocka_unit_test(rows_are_found_by_their_ids),
        cmocka_unit_test(the_fastest_kernel_of_an_h200_is_predicted),
        cmocka_unit_test(the_fastest_kernel_of_an_h100_is_predicted),
        cmocka_unit_test(token_ids_have_no_history_and_lengths_of_their_own_no_stride),
        cmocka_unit_test(ids_have_the_stride_that_is_given_and_lengths_of_them_no_capacity),
        cmocka_unit_test(query_tokens_are_units_of_their_own),
    };
    return cmocka_run_group_tests_name("sparse_mla_decode", tests, NULL, NULL);
}
