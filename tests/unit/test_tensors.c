/* SPDX-License-Identifier: Apache-2.0 */
/* test_tensors.c: every pointer and scalar of libdecode_tensors wrong, against the problem that announces it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "decode_fixture.h"
#include "problem_expect.h"

static const char *message(void) { return libdecode_error_message(); }

static void expect_tensors(const libdecode_problem *problem, const libdecode_tensors *tensors, const char *field,
                           const char *accepted) {
    struct problem checked = expect_accepted(problem);
    libdecode_tensors result, untouched;
    memset(&result, 0xa5, sizeof result);
    memset(&untouched, 0xa5, sizeof untouched);
    libdecode_status status = tensors_check(&checked, tensors, &result);
    if (!field) {
        if (status != LIBDECODE_OK)
            fail_msg("refused: %s", message());
        return;
    }
    if (status != LIBDECODE_ERROR_INVALID_ARGUMENT || !strstr(message(), field) || !strstr(message(), accepted))
        fail_msg("status %d, message '%s', expected '%s' and '%s' in it", (int)status, message(), field, accepted);
    assert_memory_equal(&result, &untouched, sizeof result);
}

static libdecode_tensors some_mla_tensors(void) {
    libdecode_tensors tensors = some_tensors();
    tensors.v_cache = NULL;
    return tensors;
}

#define POINTER(name) #name, offsetof(libdecode_tensors, name)

static void set_pointer(libdecode_tensors *tensors, size_t offset, const void *pointer) {
    memcpy((char *)tensors + offset, &pointer, sizeof pointer);
}

static void each_pointer_that_every_launch_needs_is_required_and_aligned(void **state) {
    (void)state;
    static const struct {
        const char *name;
        size_t offset;
        unsigned alignment;
    } needed[] = {{POINTER(query), 16}, {POINTER(k_cache), 16},   {POINTER(v_cache), 16},
                  {POINTER(out), 16},   {POINTER(page_table), 4}, {POINTER(seq_lens), 4}};
    libdecode_problem problem = llama3_8b(), empty = llama3_8b();
    empty.batch_size = 0;
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++) {
        libdecode_tensors tensors = some_tensors();
        set_pointer(&tensors, needed[i].offset, NULL);
        expect_tensors(&problem, &tensors, needed[i].name, "is NULL");
        expect_tensors(&empty, &tensors, NULL, NULL);
        set_pointer(&tensors, needed[i].offset, (const void *)(uintptr_t)(4096 + needed[i].alignment / 2));
        expect_tensors(&problem, &tensors, needed[i].name, "aligned");
        set_pointer(&tensors, needed[i].offset, (const void *)(uintptr_t)(4096 + needed[i].alignment));
        expect_tensors(&problem, &tensors, NULL, NULL);
    }
}

struct optional_pointer {
    const char *name;
    size_t offset;
    uint32_t feature;
};

static void expect_with_its_feature_alone(const libdecode_problem *problem, libdecode_tensors tensors,
                                          const struct optional_pointer *optional) {
    libdecode_problem with = *problem;
    with.features = optional->feature;
    expect_tensors(&with, &tensors, optional->name, "is NULL");
    set_pointer(&tensors, optional->offset, (const void *)(uintptr_t)4096);
    expect_tensors(&with, &tensors, NULL, NULL);
    expect_tensors(problem, &tensors, optional->name, "is given without LIBDECODE_FEATURE_");
    set_pointer(&tensors, optional->offset, (const void *)(uintptr_t)4097);
    expect_tensors(&with, &tensors, optional->name, "aligned");
}

/* Each operation has a table of its own, which says so anew. */
static void each_optional_pointer_belongs_to_its_feature(void **state) {
    (void)state;
    static const struct optional_pointer of_both[] = {{POINTER(lse), LIBDECODE_FEATURE_LSE},
                                                      {POINTER(sinks), LIBDECODE_FEATURE_SINKS},
                                                      {POINTER(cum_seq_lens_q), LIBDECODE_FEATURE_RAGGED_Q},
                                                      {POINTER(query_positions), LIBDECODE_FEATURE_QUERY_POSITIONS},
                                                      {POINTER(draft_mask), LIBDECODE_FEATURE_DRAFT_MASK}};
    static const struct optional_pointer of_batch_decode = {POINTER(alibi_slopes), LIBDECODE_FEATURE_ALIBI};
    static const struct optional_pointer of_mla = {POINTER(query_rope), LIBDECODE_FEATURE_QUERY_ROPE};
    const libdecode_problem batch_decode = llama3_8b(), mla = some_mla();
    const libdecode_tensors tensors = some_tensors(), mla_tensors = some_mla_tensors();
    for (size_t i = 0; i < sizeof of_both / sizeof of_both[0]; i++) {
        expect_with_its_feature_alone(&batch_decode, tensors, &of_both[i]);
        expect_with_its_feature_alone(&mla, mla_tensors, &of_both[i]);
    }
    expect_with_its_feature_alone(&batch_decode, tensors, &of_batch_decode);
    expect_with_its_feature_alone(&mla, mla_tensors, &of_mla);
}

/* One tensor may have them without the other. */
static void offsets_belong_to_their_feature_and_may_be_missing(void **state) {
    (void)state;
    static const struct {
        const char *name;
        size_t offset;
        uint32_t feature;
    } offsets[] = {{POINTER(query_offsets), LIBDECODE_FEATURE_QUERY_OFFSETS},
                   {POINTER(out_offsets), LIBDECODE_FEATURE_QUERY_OFFSETS},
                   {POINTER(k_offsets), LIBDECODE_FEATURE_KV_OFFSETS},
                   {POINTER(v_offsets), LIBDECODE_FEATURE_KV_OFFSETS}};
    for (size_t i = 0; i < sizeof offsets / sizeof offsets[0]; i++) {
        libdecode_problem with = llama3_8b(), other = llama3_8b();
        with.features = offsets[i].feature;
        other.features = (LIBDECODE_FEATURE_QUERY_OFFSETS | LIBDECODE_FEATURE_KV_OFFSETS) ^ offsets[i].feature;
        libdecode_tensors tensors = some_tensors();
        expect_tensors(&with, &tensors, NULL, NULL);
        set_pointer(&tensors, offsets[i].offset, (const void *)(uintptr_t)4096);
        expect_tensors(&with, &tensors, NULL, NULL);
        expect_tensors(&other, &tensors, offsets[i].name, "is given without LIBDECODE_FEATURE_");
        set_pointer(&tensors, offsets[i].offset, (const void *)(uintptr_t)4100);
        expect_tensors(&with, &tensors, offsets[i].name, "aligned to 8 bytes");
    }
}

static void results_whose_rows_lie_apart_by_offsets_alone_need_these(void **state) {
    (void)state;
    static const int64_t somewhere[16];
    libdecode_problem problem = llama3_8b();
    problem.features = LIBDECODE_FEATURE_QUERY_OFFSETS;
    problem.batch_size = 2;
    problem.out_token_stride = problem.out_head_stride = 128;
    libdecode_tensors tensors = some_tensors();
    tensors.out_offsets = somewhere;
    expect_tensors(&problem, &tensors, NULL, NULL);
    tensors.out_offsets = NULL;
    expect_tensors(&problem, &tensors, "tensors.out_offsets is NULL", "over each other");
    problem.batch_size = 1; /* and one query token */
    expect_tensors(&problem, &tensors, NULL, NULL);
}

static void caches_of_odd_rows_begin_at_any_element(void **state) {
    (void)state;
    libdecode_problem offsets = llama3_8b(), odd = llama3_8b(), even = llama3_8b();
    offsets.features = LIBDECODE_FEATURE_KV_OFFSETS;
    odd.v_token_stride = 129;
    even.v_token_stride = 136;
    libdecode_tensors tensors = some_tensors();
    tensors.k_cache = tensors.v_cache = (const void *)(uintptr_t)4098;
    expect_tensors(&offsets, &tensors, NULL, NULL);
    expect_tensors(&odd, &tensors, NULL, NULL);
    expect_tensors(&even, &tensors, "k_cache", "aligned to 16 bytes");
    tensors.v_cache = (const void *)(uintptr_t)4097;
    expect_tensors(&odd, &tensors, "v_cache", "aligned to 2 bytes");
    odd.kv_dtype = LIBDECODE_DTYPE_E4M3;
    expect_tensors(&odd, &tensors, NULL, NULL);
}

static void scale_pointers_belong_to_nvfp4(void **state) {
    (void)state;
    libdecode_problem fp4 = llama3_8b(), plain = llama3_8b();
    fp4.query_dtype = LIBDECODE_DTYPE_E4M3;
    fp4.kv_dtype = fp4.out_dtype = LIBDECODE_DTYPE_NVFP4;
    libdecode_tensors tensors = some_tensors();
    tensors.out_sf = tensors.out;
    tensors.k_sf = tensors.k_cache;
    expect_tensors(&fp4, &tensors, "v_sf", "is NULL");
    tensors.v_sf = tensors.v_cache;
    expect_tensors(&fp4, &tensors, NULL, NULL);
    const void *aligned = tensors.k_sf;
    tensors.k_sf = (const char *)aligned + 8;
    expect_tensors(&fp4, &tensors, "k_sf", "aligned to 16 bytes");
    tensors.k_sf = aligned;
    tensors.out_sf_start_token = INT32_MAX;
    expect_tensors(&fp4, &tensors, "out_sf_start_token is 2147483647 with 16 query tokens", "less than 2^31");
    tensors.out_sf_start_token = -1;
    expect_tensors(&fp4, &tensors, "out_sf_start_token", "0 or more");
    tensors.out_sf_start_token = 5;
    tensors.out_sf_scale = 2;
    expect_tensors(&fp4, &tensors, NULL, NULL);
    tensors.out_sf_scale = -2;
    expect_tensors(&fp4, &tensors, "out_sf_scale", "more than 0");
    tensors = some_tensors();
    tensors.k_sf = tensors.k_cache;
    expect_tensors(&plain, &tensors, "k_sf", "without kv_dtype nvfp4");
    tensors = some_tensors();
    tensors.out_sf = tensors.out;
    expect_tensors(&plain, &tensors, "out_sf", "without out_dtype nvfp4");
    tensors = some_tensors();
    tensors.out_sf_scale = 2;
    expect_tensors(&plain, &tensors, "out_sf_scale", "only an nvfp4 result");
    tensors = some_tensors();
    tensors.out_sf_start_token = 1;
    expect_tensors(&plain, &tensors, "out_sf_start_token", "must be 0");
}

static void scales_must_be_finite_and_default_to_one(void **state) {
    (void)state;
    libdecode_problem problem = llama3_8b();
    struct problem checked = expect_accepted(&problem);
    libdecode_tensors tensors = some_tensors(), result;
    assert_int_equal(tensors_check(&checked, &tensors, &result), LIBDECODE_OK);
    assert_true(result.bmm1_scale == 1 && result.bmm2_scale == 1 && result.o_scale == 1 && result.out_sf_scale == 1);

    static const size_t scales[] = {offsetof(libdecode_tensors, bmm1_scale), offsetof(libdecode_tensors, bmm2_scale),
                                    offsetof(libdecode_tensors, o_scale), offsetof(libdecode_tensors, out_sf_scale)};
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < 12; i++) {
        tensors = some_tensors();
        memcpy((char *)&tensors + scales[i / 3], &bad[i % 3], sizeof(float));
        expect_tensors(&problem, &tensors, "scale", "finite");
    }
    tensors = some_tensors();
    tensors.o_scale = 0.5f;
    expect_tensors(&problem, &tensors, "o_scale is 0.5", "leave it 0 or 1");
    problem.query_dtype = LIBDECODE_DTYPE_E4M3;
    expect_tensors(&problem, &tensors, NULL, NULL);
    tensors.bmm1_scale_device = (const float *)(uintptr_t)4098;
    expect_tensors(&problem, &tensors, "bmm1_scale_device", "aligned");
}

static void null_tensors_unknown_flags_and_sizes_are_refused(void **state) {
    (void)state;
    libdecode_problem problem = llama3_8b();
    struct problem checked = expect_accepted(&problem);
    libdecode_tensors tensors = some_tensors(), result;
    expect_tensors(&problem, NULL, "tensors is NULL", "libdecode_tensors");
    tensors.launch_flags = 4;
    expect_tensors(&problem, &tensors, "launch_flags has unknown bits 0x4", "PROGRAMMATIC");
    tensors.launch_flags = LIBDECODE_LAUNCH_HISTORY_FINAL;
    expect_tensors(&problem, &tensors, "launch_flags is 0x2", "LIBDECODE_LAUNCH_PROGRAMMATIC");
    tensors.launch_flags |= LIBDECODE_LAUNCH_PROGRAMMATIC;
    expect_tensors(&problem, &tensors, NULL, NULL);
    tensors = some_tensors();
    tensors.struct_size = 0;
    assert_int_equal(tensors_check(&checked, &tensors, &result), LIBDECODE_ERROR_STRUCT_SIZE);
    tensors.struct_size = offsetof(libdecode_tensors, workspace_bytes);
    assert_int_equal(tensors_check(&checked, &tensors, &result), LIBDECODE_ERROR_STRUCT_SIZE);
}

static void scales_of_an_nvfp4_result_belong_to_mla_too(void **state) {
    (void)state;
    const libdecode_problem problem = some_mla();
    libdecode_problem nvfp4_out = problem;
    libdecode_tensors tensors = some_mla_tensors();
    nvfp4_out.query_dtype = nvfp4_out.kv_dtype = LIBDECODE_DTYPE_E4M3;
    nvfp4_out.out_dtype = LIBDECODE_DTYPE_NVFP4;
    expect_tensors(&nvfp4_out, &tensors, "out_sf", "is NULL");
    tensors.out_sf = (void *)(uintptr_t)4096;
    expect_tensors(&nvfp4_out, &tensors, NULL, NULL);
    expect_tensors(&problem, &tensors, "out_sf", "is given without out_dtype nvfp4");
}

/* Eight bytes are not enough for a copy of whole pages: such rows are for kernels of any rows, and caches begin at any element. */
static void strides_of_eight_bytes_are_odd(void **state) {
    (void)state;
    static const size_t strides[] = {offsetof(libdecode_problem, k_page_stride),  offsetof(libdecode_problem, k_head_stride),
                                     offsetof(libdecode_problem, k_token_stride), offsetof(libdecode_problem, v_page_stride),
                                     offsetof(libdecode_problem, v_head_stride),  offsetof(libdecode_problem, v_token_stride)};
    for (size_t i = 0; i < sizeof strides / sizeof strides[0]; i++) {
        libdecode_problem problem = llama3_8b();
        struct problem checked;
        assert_int_equal(problem_check(&problem, &checked), LIBDECODE_OK);
        problem = checked.given; /* every stride given, so that none follows from another */
        int64_t stride;
        memcpy(&stride, (const char *)&problem + strides[i], sizeof stride);
        stride += 4;
        memcpy((char *)&problem + strides[i], &stride, sizeof stride);
        assert_int_equal(odd_kv_stride_bytes(&problem), 2 * stride);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_pointer_that_every_launch_needs_is_required_and_aligned),
        cmocka_unit_test(each_optional_pointer_belongs_to_its_feature),
        cmocka_unit_test(offsets_belong_to_their_feature_and_may_be_missing),
        cmocka_unit_test(results_whose_rows_lie_apart_by_offsets_alone_need_these),
        cmocka_unit_test(caches_of_odd_rows_begin_at_any_element),
        cmocka_unit_test(scale_pointers_belong_to_nvfp4),
        cmocka_unit_test(scales_must_be_finite_and_default_to_one),
        cmocka_unit_test(null_tensors_unknown_flags_and_sizes_are_refused),
        cmocka_unit_test(scales_of_an_nvfp4_result_belong_to_mla_too),
        cmocka_unit_test(strides_of_eight_bytes_are_odd),
    };
    return cmocka_run_group_tests_name("tensors", tests, NULL, NULL);
}
