/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_merge.c: merging of partial results: the reference against cases worked out by hand and against attention over all
 * tokens at once, what is refused, and what reaches the driver.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "abi.h"
#include "bundle_fixture.h"
#include "decode_fixture.h"
#include "element.h"
#include "families/merge_states.h"
#include "family.h"
#include "fake_cuda.h"

enum { DIM = 8, MOST = 64 };

static void assert_near(double got, double expected, double tolerance) {
    if (!(fabs(got - expected) <= tolerance))
        fail_msg("%.9g, expected %.9g within %g", got, expected, tolerance);
}

struct scene {
    _Alignas(16) float partial[MOST][DIM];
    float partial_lse[MOST];
    _Alignas(16) float out[MOST][DIM];
    float lse[MOST];
    libdecode_states states;
};

/* Rows of eight equal elements, `values`, with such lse, all of one token and head. */
static void set_scene(struct scene *scene, int32_t num_states, const float *values, const float *lse) {
    memset(scene, 0, sizeof *scene);
    for (int32_t state = 0; state < num_states; state++) {
        scene->partial_lse[state] = lse[state];
        for (int d = 0; d < DIM; d++)
            scene->partial[state][d] = values[state];
    }
    scene->states = (libdecode_states){.struct_size = sizeof scene->states,
                                       .dtype = LIBDECODE_DTYPE_FP32,
                                       .num_states = num_states,
                                       .num_tokens = 1,
                                       .num_heads = 1,
                                       .head_dim = DIM,
                                       .partial_out = scene->partial,
                                       .partial_lse = scene->partial_lse,
                                       .out = scene->out,
                                       .lse = scene->lse};
}

static void merge(struct scene *scene) {
    if (libdecode_merge_states_reference(&scene->states) != LIBDECODE_OK)
        fail_msg("%s", libdecode_error_message());
}

static void assert_row(const struct scene *scene, int row, double value, double lse) {
    for (int d = 0; d < DIM; d++)
        assert_near((double)scene->out[row][d], value, 1e-6);
    if (isinf(lse))
        assert_true((double)scene->lse[row] == lse);
    else
        assert_near((double)scene->lse[row], lse, fmax(fabs(lse), 1) * 0x1p-23);
}

/* -------------------------------------------------------------------------------------------------------- worked out by hand */

static void test_weights_are_powers_of_two_of_the_lse(void **state) {
    (void)state;
    struct scene scene;
    /* weights 1 and 3 (2^log2(3)): (1 * 8 + 3 * 4) / 4 = 5; 1 + 3 = 2^2 */
    set_scene(&scene, 2, (const float[]){8, 4}, (const float[]){0, 1.5849625f});
    merge(&scene);
    assert_row(&scene, 0, 5, 2);
    /* The same base e: weights 1 and 3, ln 4. */
    set_scene(&scene, 2, (const float[]){8, 4}, (const float[]){0, 1.0986123f});
    scene.states.flags = LIBDECODE_MERGE_LSE_NATURAL;
    merge(&scene);
    assert_row(&scene, 0, 5, 1.3862944);
    /* As far as float32 goes: only differences of the lse count. */
    set_scene(&scene, 3, (const float[]){1, 2, 6}, (const float[]){-3e6f, -3e6f, -3e6f});
    merge(&scene);
    assert_row(&scene, 0, 3, -3e6 + 1.5849625);
}

static void test_states_of_no_weight_have_no_part(void **state) {
    (void)state;
    struct scene scene;
    set_scene(&scene, 3, (const float[]){NAN, 7, NAN}, (const float[]){-INFINITY, 3, -INFINITY});
    merge(&scene);
    assert_row(&scene, 0, 7, 3);
    set_scene(&scene, 2, (const float[]){NAN, NAN}, (const float[]){-INFINITY, -INFINITY});
    merge(&scene);
    assert_row(&scene, 0, 0, -(double)INFINITY);
    set_scene(&scene, 3, (const float[]){NAN, 0, 2}, (const float[]){3, INFINITY, INFINITY});
    merge(&scene);
    assert_row(&scene, 0, 1, (double)INFINITY);
    set_scene(&scene, 2, (const float[]){1, 2}, (const float[]){NAN, 0});
    merge(&scene);
    assert_true(isnan(scene.out[0][0]) && isnan(scene.lse[0]));
}

static void test_ragged_tokens_masks_and_places(void **state) {
    (void)state;
    struct scene scene;
    static const int32_t offsets[] = {0, 2, 2, 3};
    static const uint8_t mask[] = {1, 1, 0};
    set_scene(&scene, 3, (const float[]){1, 3, 9}, (const float[]){0, 0, 5});
    scene.states.num_states = 0;
    scene.states.num_tokens = 3;
    scene.states.state_offsets = offsets;
    merge(&scene);
    assert_row(&scene, 0, 2, 1);
    assert_row(&scene, 1, 0, -(double)INFINITY);
    assert_row(&scene, 2, 9, 5);
    scene.states.token_mask = mask;
    scene.out[2][0] = 42;
    scene.lse[2] = 43;
    merge(&scene);
    assert_true(scene.out[2][0] == 42 && scene.lse[2] == 43);

    /* In place of the second state, which is the first tensor: the stride between the two is negative. */
    set_scene(&scene, 2, (const float[]){1, 3}, (const float[]){1, 1});
    scene.states.partial_out = scene.partial[1];
    scene.states.partial_lse = &scene.partial_lse[1];
    scene.states.partial_state_stride = -DIM;
    scene.states.partial_lse_state_stride = -1;
    scene.states.out = scene.partial[0];
    scene.states.lse = &scene.partial_lse[0];
    merge(&scene);
    assert_true(scene.partial[0][5] == 2 && scene.partial_lse[0] == 2);
}

static void test_results_are_rounded_to_their_dtype(void **state) {
    (void)state;
    struct scene scene;
    uint16_t codes[DIM];
    set_scene(&scene, 2, (const float[]){1, 1.0078125f}, (const float[]){0, 0});
    scene.states.out_dtype = LIBDECODE_DTYPE_BF16; /* 1.00390625 lies between 1 and 1.0078125: even wins */
    merge(&scene);
    memcpy(codes, scene.out, sizeof codes);
    assert_int_equal(codes[3], 0x3f80);
    scene.states.out_dtype = LIBDECODE_DTYPE_FP16;
    merge(&scene);
    memcpy(codes, scene.out, sizeof codes);
    assert_int_equal(codes[3], 0x3c04);
}

/* ------------------------------------------------------------------------------------------- against attention over all tokens */

enum { HEADS = 4, KV_HEADS = 2, HEAD_DIM = 16, TOKENS = 37, PARTS = 3, REQUESTS = 2 };

static float random_value(uint32_t *seed) {
    *seed = *seed * 1664525u + 1013904223u;
    return (float)(int32_t)(*seed >> 8) / 8388608.0f - 1.0f;
}

/* Of position part, part + PARTS, ...: what a rank of PARTS holds; or with PARTS of 1 all. */
static void attend(const uint16_t *query, const uint16_t *cache, int part, int num_parts, float *lse, uint16_t *out) {
    static uint16_t own[2][REQUESTS][KV_HEADS][TOKENS][HEAD_DIM];
    int32_t lengths[REQUESTS], positions[REQUESTS], table[REQUESTS];
    for (int request = 0; request < REQUESTS; request++) {
        const int length = TOKENS - 20 * request;
        lengths[request] = (length - part + num_parts - 1) / num_parts;
        positions[request] = length - 1;
        table[request] = request;
        for (int tensor = 0; tensor < 2; tensor++)
            for (int head = 0; head < KV_HEADS; head++)
                for (int token = 0; token < lengths[request]; token++)
                    memcpy(own[tensor][request][head][token],
                           cache + ((((size_t)tensor * REQUESTS + (size_t)request) * KV_HEADS + (size_t)head) * TOKENS +
                                    (size_t)(token * num_parts + part)) *
                                       HEAD_DIM,
                           HEAD_DIM * sizeof(uint16_t));
    }
    libdecode_problem problem = LIBDECODE_PROBLEM_INIT;
    problem.query_dtype = LIBDECODE_DTYPE_FP16;
    problem.features = LIBDECODE_FEATURE_LSE | LIBDECODE_FEATURE_QUERY_POSITIONS;
    problem.batch_size = REQUESTS;
    problem.num_qo_heads = HEADS;
    problem.num_kv_heads = KV_HEADS;
    problem.head_dim = HEAD_DIM;
    problem.page_size = TOKENS;
    problem.max_seq_len = TOKENS;
    problem.position_stride = num_parts;
    problem.position_offset = part;
    libdecode_tensors tensors = LIBDECODE_TENSORS_INIT;
    tensors.query = query;
    tensors.k_cache = own[0];
    tensors.v_cache = own[1];
    tensors.page_table = table;
    tensors.seq_lens = lengths;
    tensors.query_positions = positions;
    tensors.out = out;
    tensors.lse = lse;
    if (libdecode_reference(&problem, &tensors) != LIBDECODE_OK)
        fail_msg("%s", libdecode_error_message());
}

static void test_parts_merge_to_the_whole(void **state) {
    (void)state;
    static _Alignas(16) uint16_t query[REQUESTS][HEADS][HEAD_DIM], cache[2][REQUESTS][KV_HEADS][TOKENS][HEAD_DIM];
    static _Alignas(16) uint16_t part_out[PARTS][REQUESTS][HEADS][HEAD_DIM], whole_out[REQUESTS][HEADS][HEAD_DIM];
    static _Alignas(16) float merged_out[REQUESTS][HEADS][HEAD_DIM];
    static float part_lse[PARTS][REQUESTS][HEADS], whole_lse[REQUESTS][HEADS], merged_lse[REQUESTS][HEADS];
    uint32_t seed = 7;
    uint16_t *const halves[] = {&query[0][0][0], &cache[0][0][0][0][0]};
    const size_t counts[] = {sizeof query / 2, sizeof cache / 2};
    for (size_t tensor = 0; tensor < 2; tensor++)
        for (size_t i = 0; i < counts[tensor]; i++) {
            halves[tensor][i] = fp16_encode(3.0 * (double)random_value(&seed));
        }
    attend(&query[0][0][0], &cache[0][0][0][0][0], 0, 1, &whole_lse[0][0], &whole_out[0][0][0]);
    for (int part = 0; part < PARTS; part++)
        attend(&query[0][0][0], &cache[0][0][0][0][0], part, PARTS, &part_lse[part][0][0], &part_out[part][0][0][0]);

    libdecode_states states = LIBDECODE_STATES_INIT;
    states.dtype = LIBDECODE_DTYPE_FP16;
    states.out_dtype = LIBDECODE_DTYPE_FP32;
    states.num_states = PARTS;
    states.num_tokens = REQUESTS;
    states.num_heads = HEADS;
    states.head_dim = HEAD_DIM;
    states.partial_out = part_out;
    states.partial_lse = &part_lse[0][0][0];
    states.partial_state_stride = REQUESTS * HEADS * HEAD_DIM;
    states.partial_token_stride = HEADS * HEAD_DIM;
    states.partial_lse_state_stride = REQUESTS * HEADS;
    states.partial_lse_token_stride = HEADS;
    states.out = merged_out;
    states.lse = &merged_lse[0][0];
    if (libdecode_merge_states_reference(&states) != LIBDECODE_OK)
        fail_msg("%s", libdecode_error_message());
    for (int request = 0; request < REQUESTS; request++)
        for (int head = 0; head < HEADS; head++) {
            assert_near((double)merged_lse[request][head], (double)whole_lse[request][head], 1e-5);
            for (int d = 0; d < HEAD_DIM; d++) {
                const double whole = fp16_decode(whole_out[request][head][d]);
                assert_near((double)merged_out[request][head][d], whole, 3.0 * 0x1p-10);
            }
        }
}

/* ------------------------------------------------------------------------------------------------------------- refusals */

static void refuse(const struct scene *scene, const char *word) {
    const libdecode_status status = libdecode_merge_states_reference(&scene->states);
    if (status != LIBDECODE_ERROR_INVALID_ARGUMENT || strstr(libdecode_error_message(), word) == NULL)
        fail_msg("status %d, '%s' does not say %s", (int)status, libdecode_error_message(), word);
}

#define REFUSED(field, value)                                                                                                    \
    do {                                                                                                                         \
        struct scene refused = scene;                                                                                            \
        refused.states.field = (value);                                                                                          \
        refuse(&refused, "states." #field);                                                                                      \
    } while (0)

static void test_what_makes_no_sense_is_refused_by_name(void **state) {
    (void)state;
    struct scene scene;
    static const int32_t offsets[] = {0, 1};
    set_scene(&scene, 1, (const float[]){1}, (const float[]){0});
    assert_int_equal(libdecode_merge_states_reference(NULL), LIBDECODE_ERROR_INVALID_ARGUMENT);
    REFUSED(dtype, LIBDECODE_DTYPE_DEFAULT);
    REFUSED(dtype, LIBDECODE_DTYPE_E4M3);
    REFUSED(out_dtype, LIBDECODE_DTYPE_NVFP4);
    REFUSED(flags, 2);
    REFUSED(launch_flags, 1u << 31);
    REFUSED(num_states, 0);
    REFUSED(num_tokens, -1);
    REFUSED(num_heads, 0);
    REFUSED(num_heads, 65536);
    REFUSED(head_dim, 0);
    REFUSED(head_dim, 12);
    REFUSED(head_dim, 1032);
    REFUSED(partial_out, NULL);
    REFUSED(partial_out, (const char *)scene.partial + 4);
    REFUSED(partial_lse, NULL);
    REFUSED(out, NULL);
    REFUSED(lse, (float *)(void *)((char *)scene.lse + 1));
    REFUSED(partial_state_stride, 2);
    REFUSED(partial_state_stride, INT64_MIN);
    REFUSED(partial_token_stride, INT64_MAX);
    REFUSED(partial_head_stride, 10);
    REFUSED(out_token_stride, 9);
    REFUSED(out_head_stride, -6);
    struct scene refused = scene;
    refused.states.state_offsets = offsets;
    refuse(&refused, "states.num_states");
    refused.states.num_states = 0;
    refused.states.state_offsets = (const int32_t *)(const void *)((const char *)offsets + 2);
    refuse(&refused, "states.state_offsets");
    refused.states.state_offsets = offsets;
    refused.states.partial_token_stride = 8;
    refuse(&refused, "states.partial_token_stride");
    refused = scene;
    refused.states.num_tokens = 1 << 20;
    refused.states.num_heads = 1 << 11;
    refuse(&refused, "states.num_tokens");
    refused = scene;
    refused.states.struct_size = 8;
    assert_int_equal(libdecode_merge_states_reference(&refused.states), LIBDECODE_ERROR_STRUCT_SIZE);
    for (int d = 0; d < DIM; d++)
        assert_true(scene.out[0][d] == 0);
}

/* In the words of problem.c, but to both sides. */
static void test_refused_strides_name_those_that_are_accepted(void **state) {
    (void)state;
    enum { STEPS = 1 << 20 };
    static const int64_t most = (int64_t)1 << 40;
    struct scene scene;
    set_scene(&scene, 1, (const float[]){1}, (const float[]){0});
    scene.states.num_tokens = STEPS;
    scene.states.out_token_stride = most + 4;
    refuse(&scene, "states.out_token_stride is 1099511627780: 1048576 steps of it leave the address space, at most 1099511627776 "
                   "to either side is accepted");
    scene.states.out_token_stride = -most - 4;
    refuse(&scene, "-1099511627780: 1048576 steps of it leave the address space, at most 1099511627776 to either side");
    scene.states.out_token_stride = 9;
    refuse(&scene, "states.out_token_stride is 9 elements: it must be a multiple of 4 elements, which are 16 bytes");
}

/* ---------------------------------------------------------------------------------------------------- what the driver gets */

static const struct fake_cuda *fake;

/* A context whose one bundle holds a kernel of merge_states, or of something else. */
static libdecode_context *open_with_flags(uint32_t flags, uint32_t family, uint32_t parameter_bytes, uint8_t **ret_data) {
    struct fixture_kernel kernel = {.name = "merge_states_sm90", .target = 90, .contract = fixture_contract()};
    size_t bytes;
    libdecode_context *context;
    kernel.contract.family = family;
    kernel.contract.parameter_bytes = parameter_bytes;
    kernel.contract.threads = 128;
    kernel.contract.dynamic_shared_bytes = 0;
    kernel.contract.kv_dtype = kernel.contract.head_dim = 0;
    *ret_data = fixture_bundle(&kernel, 1, &bytes);
    const libdecode_memory_bundle bundle = {*ret_data, bytes};
    const libdecode_open_options options = {.struct_size = sizeof options,
                                            .flags = flags | LIBDECODE_OPEN_IGNORE_ENVIRONMENT | LIBDECODE_OPEN_BUNDLES_ONLY,
                                            .memory_bundles = &bundle,
                                            .num_memory_bundles = 1};
    if (libdecode_open(&options, &context) != LIBDECODE_OK)
        fail_msg("%s", libdecode_error_message());
    return context;
}

static libdecode_context *open_with(uint32_t family, uint32_t parameter_bytes, uint8_t **ret_data) {
    return open_with_flags(0, family, parameter_bytes, ret_data);
}

static void test_one_kernel_is_launched(void **state) {
    (void)state;
    struct scene scene;
    struct merge_states_params params;
    uint8_t *data;
    fake->reset();
    fake->set_parameter_bytes(sizeof params);
    libdecode_context *context = open_with(KERNEL_FAMILY_MERGE_STATES, sizeof params, &data);
    set_scene(&scene, 2, (const float[]){1, 2}, (const float[]){0, 0});
    scene.states.num_tokens = 0;
    assert_int_equal(libdecode_merge_states(context, &scene.states, NULL), LIBDECODE_OK);
    assert_int_equal(fake->count("cuModuleLoadData"), 1); /* that is what such a call is for */
    assert_int_equal(fake->count("cuLaunchKernelEx"), 0);

    scene.states.num_tokens = 5;
    scene.states.num_heads = 3;
    scene.states.head_dim = 96; /* 12 lanes' worth, so 16 lanes a row, 8 rows of 128 threads */
    scene.states.flags = LIBDECODE_MERGE_LSE_NATURAL;
    scene.states.launch_flags = LIBDECODE_LAUNCH_PROGRAMMATIC;
    assert_int_equal(libdecode_merge_states(context, &scene.states, NULL), LIBDECODE_OK);
    assert_int_equal(fake->count("cuModuleLoadData"), 1);
    const struct fake_cuda_call *call = fake->last("cuLaunchKernelEx");
    memcpy(&params, call->parameters, sizeof params);
    assert_int_equal(call->config.grid_x, 2);
    assert_int_equal(call->config.block_x, 128);
    assert_int_equal(call->config.num_attributes, 1);
    assert_ptr_equal(params.partial_out, scene.partial);
    assert_ptr_equal(params.out, scene.out);
    assert_int_equal(params.partial_state_stride, 3 * 96);
    assert_int_equal(params.partial_token_stride, 2 * 3 * 96);
    assert_int_equal(params.partial_lse_token_stride, 2 * 3);
    assert_int_equal(params.partial_lse_head_stride, 1);
    assert_int_equal(params.out_token_stride, 3 * 96);
    assert_int_equal(params.lse_token_stride, 3);
    assert_int_equal(params.num_heads.value, 3);
    assert_int_equal(params.num_rows, 15);
    assert_int_equal(params.log2_lanes, 4);
    assert_int_equal(params.dtype, KERNEL_DTYPE_FP32);
    assert_int_equal(params.out_dtype, KERNEL_DTYPE_FP32);
    assert_near((double)params.lse_to_log2, 1.4426950408889634, 1e-7);
    assert_near((double)params.log2_to_lse, 0.6931471805599453, 1e-7);

    fake->fail_call("cuLaunchKernelEx", 1);
    assert_int_equal(libdecode_merge_states(context, &scene.states, NULL), LIBDECODE_ERROR_CUDA);
    fake->fail_call("cuLaunchKernelEx", 0);
    scene.states.out = NULL;
    assert_int_equal(libdecode_merge_states(context, &scene.states, NULL), LIBDECODE_ERROR_INVALID_ARGUMENT);
    assert_int_equal(libdecode_merge_states(NULL, &scene.states, NULL), LIBDECODE_ERROR_INVALID_ARGUMENT);
    libdecode_close(context);
    free(data);
}

static void test_without_such_a_kernel_the_message_says_so(void **state) {
    (void)state;
    struct scene scene;
    uint8_t *data;
    fake->reset();
    libdecode_context *context = open_with(KERNEL_FAMILY_READ_CEILING, sizeof(struct read_ceiling_params), &data);
    set_scene(&scene, 1, (const float[]){1}, (const float[]){0});
    assert_int_equal(libdecode_merge_states(context, &scene.states, NULL), LIBDECODE_ERROR_NOT_IN_BUNDLE);
    assert_non_null(strstr(libdecode_error_message(), "sm_90"));
    libdecode_close(context);
    free(data);
}

static int find_fake(void **state) {
    (void)state;
    fake = fake_cuda();
    return fake != NULL ? 0 : -1;
}

static int no_misuse(void **state) {
    (void)state;
    return fake->misuses() == 0 ? 0 : -1;
}

/* Rows are as aligned as their own dtype asks, of the partial results and of the merged one. */
static void test_strides_of_the_result_are_those_of_its_dtype(void **state) {
    (void)state;
    struct scene scene;
    set_scene(&scene, 1, (const float[]){1}, (const float[]){0});
    scene.states.out_dtype = LIBDECODE_DTYPE_BF16;
    REFUSED(out_head_stride, 12); /* 24 bytes */
    REFUSED(out_token_stride, 12);
    scene.states.out_head_stride = scene.states.out_token_stride = 16;
    merge(&scene);
}

static void test_the_largest_sizes_are_accepted_and_no_tokens_need_no_tensors(void **state) {
    (void)state;
    struct scene scene;
    set_scene(&scene, 1, (const float[]){1}, (const float[]){0});
    scene.states.num_tokens = 0;
    scene.states.num_heads = 65535;
    scene.states.head_dim = 1024;
    scene.states.partial_out = scene.states.out = NULL;
    scene.states.partial_lse = scene.states.lse = NULL;
    merge(&scene);
}

/* Two heads, so a state's lse are two apart: of the second token the states begin at the second. */
static void test_ragged_states_have_the_lse_of_their_heads(void **state) {
    (void)state;
    struct scene scene;
    static const int32_t offsets[] = {0, 1, 3};
    set_scene(&scene, 6, (const float[]){1, 2, 3, 4, 5, 6}, (const float[]){0, 1, 2, 3, 2, 5});
    scene.states.state_offsets = offsets;
    scene.states.num_states = 0;
    scene.states.num_tokens = 2;
    scene.states.num_heads = 2;
    merge(&scene);
    assert_row(&scene, 0, 1, 0);
    assert_row(&scene, 1, 2, 1);
    assert_row(&scene, 2, 4, 3);                        /* 3 and 5 with 2 each */
    assert_row(&scene, 3, (4 + 4 * 6) / 5.0, log2(40)); /* 4 with 3, 6 with 5 */
}

static void test_of_nan_alone_the_result_is_nan(void **state) {
    (void)state;
    struct scene scene;
    set_scene(&scene, 2, (const float[]){1, 2}, (const float[]){NAN, -INFINITY});
    merge(&scene);
    assert_true(isnan(scene.lse[0]));
    for (int d = 0; d < DIM; d++)
        assert_true(isnan(scene.out[0][d]));
}

static void test_every_field_of_the_block_comes_from_its_source(void **state) {
    (void)state;
    static const int32_t offsets[8] = {0};
    static const uint8_t mask[8] = {1};
    static const struct {
        int32_t head_dim, log2_lanes;
    } lanes[] = {{8, 0}, {16, 1}, {64, 3}, {72, 4}, {128, 4}, {256, 5}, {512, 5}, {1024, 5}}; /* a warp at most */
    struct scene scene;
    struct merge_states_params params;
    set_scene(&scene, 2, (const float[]){1, 2}, (const float[]){0, 0});
    scene.states.dtype = LIBDECODE_DTYPE_BF16;
    scene.states.out_dtype = LIBDECODE_DTYPE_FP32;
    scene.states.state_offsets = offsets;
    scene.states.token_mask = mask;
    scene.states.num_tokens = 7;
    scene.states.num_heads = 3;
    scene.states.partial_state_stride = 101, scene.states.partial_head_stride = 103;
    scene.states.partial_lse_state_stride = 104, scene.states.partial_lse_head_stride = 106;
    scene.states.out_token_stride = 107, scene.states.out_head_stride = 108;
    scene.states.lse_token_stride = 109, scene.states.lse_head_stride = 110;
    for (size_t i = 0; i < sizeof lanes / sizeof lanes[0]; i++) {
        scene.states.head_dim = lanes[i].head_dim;
        const uint32_t num_ctas = merge_states_fill(&scene.states, 128, &params);
        const uint32_t rows_of_cta = 128u >> lanes[i].log2_lanes;
        assert_int_equal(params.log2_lanes, lanes[i].log2_lanes);
        assert_int_equal(num_ctas, (21 + rows_of_cta - 1) / rows_of_cta);
        assert_int_equal(params.head_dim, lanes[i].head_dim);
    }
    assert_ptr_equal(params.state_offsets, offsets);
    assert_ptr_equal(params.token_mask, mask);
    assert_ptr_equal(params.partial_out, scene.partial);
    assert_ptr_equal(params.partial_lse, scene.partial_lse);
    assert_ptr_equal(params.out, scene.out);
    assert_ptr_equal(params.lse, scene.lse);
    assert_int_equal(params.partial_state_stride, 101);
    assert_int_equal(params.partial_head_stride, 103);
    assert_int_equal(params.partial_lse_state_stride, 104);
    assert_int_equal(params.partial_lse_head_stride, 106);
    assert_int_equal(params.out_token_stride, 107);
    assert_int_equal(params.out_head_stride, 108);
    assert_int_equal(params.lse_token_stride, 109);
    assert_int_equal(params.lse_head_stride, 110);
    assert_int_equal(params.dtype, KERNEL_DTYPE_BF16);
    assert_int_equal(params.out_dtype, KERNEL_DTYPE_FP32);
    assert_int_equal(params.num_rows, 21);
    scene.states.head_dim = 8;
    scene.states.num_tokens = 128;
    assert_int_equal(merge_states_fill(&scene.states, 128, &params), 3); /* whole CTAs */
}

static void test_strict_forbids_a_cold_merge_in_a_capture(void **state) {
    (void)state;
    struct scene scene;
    struct merge_states_params params;
    uint8_t *data;
    const libdecode_stream stream = (libdecode_stream)(uintptr_t)0x77;
    fake->reset();
    fake->set_parameter_bytes(sizeof params);
    libdecode_context *context = open_with_flags(LIBDECODE_OPEN_STRICT, KERNEL_FAMILY_MERGE_STATES, sizeof params, &data);
    set_scene(&scene, 2, (const float[]){1, 2}, (const float[]){0, 0});
    fake->set_capture(stream, 1);
    assert_int_equal(libdecode_merge_states(context, &scene.states, stream), LIBDECODE_ERROR_COLD_IN_CAPTURE);
    fake->set_capture(stream, 0);
    assert_int_equal(libdecode_merge_states(context, &scene.states, stream), LIBDECODE_OK);
    fake->set_capture(stream, 1);
    assert_int_equal(libdecode_merge_states(context, &scene.states, stream), LIBDECODE_OK); /* it is there now */
    fake->set_capture(stream, 0);
    libdecode_close(context);
    free(data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_weights_are_powers_of_two_of_the_lse),
        cmocka_unit_test(test_states_of_no_weight_have_no_part),
        cmocka_unit_test(test_ragged_tokens_masks_and_places),
        cmocka_unit_test(test_results_are_rounded_to_their_dtype),
        cmocka_unit_test(test_parts_merge_to_the_whole),
        cmocka_unit_test(test_what_makes_no_sense_is_refused_by_name),
        cmocka_unit_test(test_refused_strides_name_those_that_are_accepted),
        cmocka_unit_test(test_one_kernel_is_launched),
        cmocka_unit_test(test_without_such_a_kernel_the_message_says_so),
        cmocka_unit_test(test_strides_of_the_result_are_those_of_its_dtype),
        cmocka_unit_test(test_the_largest_sizes_are_accepted_and_no_tokens_need_no_tensors),
        cmocka_unit_test(test_ragged_states_have_the_lse_of_their_heads),
        cmocka_unit_test(test_of_nan_alone_the_result_is_nan),
        cmocka_unit_test(test_every_field_of_the_block_comes_from_its_source),
        cmocka_unit_test(test_strict_forbids_a_cold_merge_in_a_capture),
    };
    return cmocka_run_group_tests(tests, find_fake, no_misuse);
}
