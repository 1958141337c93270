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
#include "kernel_table.h"
#include "select.h"

static const struct libdecode_launch_contract some_contract = {.family = KERNEL_FAMILY_SPARSE_MLA_DECODE,
                                                               .kv_dtype = KERNEL_DTYPE_BF16,
                                                               .head_dim = 576,
                                                               .row_tile = 16,
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_and_kernels_fit_each_other),
        cmocka_unit_test(contracts_name_rows_that_are_known),
        cmocka_unit_test(query_tokens_are_sequences),
        cmocka_unit_test(rows_are_found_by_their_ids),
    };
    return cmocka_run_group_tests_name("sparse_mla_decode", tests, NULL, NULL);
}
