/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_operation.c: what an operation's row does not mention is refused by name, whatever the field or the pointer; what it
 * requires must be there. With the row of batch_decode, and with a row made here for an operation of the kind of MLA.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "decode_fixture.h"
#include "operation.h"
#include "problem.h"

static void expect(libdecode_status status, const char *what, const char *why) {
    if (!what) {
        if (status != LIBDECODE_OK)
            fail_msg("refused: %s", libdecode_error_message());
        return;
    }
    const char *message = libdecode_error_message();
    if (status != LIBDECODE_ERROR_INVALID_ARGUMENT || !strstr(message, what) || !strstr(message, why))
        fail_msg("status %d, message '%s', expected '%s' and '%s' in it", (int)status, message, what, why);
}

static const struct operation_rules *batch_decode(void) {
    const struct operation_rules *rules = NULL;
    expect(operation_find((libdecode_op)0, &rules), NULL, NULL);
    return rules;
}

#define FIELD(name) PROBLEM_FIELD_##name, #name, offsetof(libdecode_problem, name), sizeof(((libdecode_problem *)0)->name)

static void an_operation_is_found_by_number_and_by_name(void **state) {
    (void)state;
    const struct operation_rules *rules = NULL;
    expect(operation_find(LIBDECODE_OP_BATCH_DECODE, &rules), NULL, NULL);
    assert_ptr_equal(rules, batch_decode());
    assert_ptr_equal(rules, operation_named("batch_decode"));
    assert_null(operation_named("batch_decod"));
    assert_null(operation_named(""));
    expect(operation_find((libdecode_op)9, &rules), "problem.op is 9", "1 (batch_decode)");
}

/* Each field taken out of the row in turn: a problem that gives it is refused, by its name and value. */
static void a_field_that_the_operation_does_not_know_is_refused_by_name(void **state) {
    (void)state;
    static const struct {
        enum problem_field field;
        const char *name;
        size_t offset, bytes;
    } known[] = {{FIELD(head_dim)},        {FIELD(page_size)},           {FIELD(num_kv_heads)},   {FIELD(window_left)},
                 {FIELD(position_offset)}, {FIELD(v_head_stride)},       {FIELD(v_token_stride)}, {FIELD(total_kv_tokens)},
                 {FIELD(kv_layout)},       {FIELD(v_page_stride)},       {FIELD(q_len)},          {FIELD(num_pages)},
                 {FIELD(max_seq_len)},     {FIELD(seq_lens_head_stride)}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        struct operation_rules rules = *batch_decode();
        rules.name = "mla_decode";
        rules.fields[known[i].field] = (struct rule){.kind = RULE_UNKNOWN};
        libdecode_problem problem = llama3_8b();
        memset((char *)&problem + known[i].offset, 0, known[i].bytes);
        expect(operation_check_fields(&rules, &problem), NULL, NULL);
        *((char *)&problem + known[i].offset) = 1;
        expect(operation_check_fields(&rules, &problem), known[i].name, "is 1: mla_decode does not know this field, leave it 0");
    }
}

static void a_required_field_must_be_given(void **state) {
    (void)state;
    struct operation_rules rules = *batch_decode();
    libdecode_problem problem = llama3_8b();
    problem.q_len = 0;
    expect(operation_check_fields(&rules, &problem), NULL, NULL);
    rules.fields[PROBLEM_FIELD_q_len].kind = RULE_REQUIRED;
    expect(operation_check_fields(&rules, &problem), "problem.q_len is 0", "accepted are 1 to");
}

static void a_field_of_a_feature_needs_the_feature(void **state) {
    (void)state;
    libdecode_problem problem = llama3_8b();
    problem.skip_softmax_threshold_scale_factor = 0.5f;
    expect(operation_check_fields(batch_decode(), &problem), "problem.skip_softmax_threshold_scale_factor is 0.5 without",
           "LIBDECODE_FEATURE_SKIP_SOFTMAX");
    problem.features = LIBDECODE_FEATURE_SKIP_SOFTMAX;
    expect(operation_check_fields(batch_decode(), &problem), NULL, NULL);
    struct operation_rules rules = *batch_decode();
    rules.name = "mla_decode";
    rules.features &= ~(uint32_t)LIBDECODE_FEATURE_SKIP_SOFTMAX;
    expect(operation_check_fields(&rules, &problem), "problem.features has bits 0x80 that mla_decode does not know",
           "of 0x3f3f7f");
}

static libdecode_status check_pointers(const struct operation_rules *rules, const libdecode_problem *problem,
                                       const libdecode_tensors *tensors) {
    return operation_check_pointers(rules, operation_pointers(rules, problem), tensors);
}

static void a_pointer_that_the_operation_does_not_know_is_refused_by_name(void **state) {
    (void)state;
    struct operation_rules rules = *batch_decode();
    rules.name = "mla_decode";
    rules.pointers[TENSOR_POINTER_v_cache] = (struct rule){.kind = RULE_UNKNOWN};
    libdecode_problem problem = llama3_8b();
    libdecode_tensors tensors = some_tensors();
    expect(check_pointers(batch_decode(), &problem, &tensors), NULL, NULL);
    expect(check_pointers(&rules, &problem, &tensors), "tensors.v_cache is given", "mla_decode does not know it");
    tensors.v_cache = NULL;
    expect(check_pointers(&rules, &problem, &tensors), NULL, NULL);
    expect(check_pointers(batch_decode(), &problem, &tensors), "tensors.v_cache is NULL", "every launch needs it");
}

static void a_page_table_belongs_to_pages(void **state) {
    (void)state;
    libdecode_problem problem = llama3_8b();
    libdecode_tensors tensors = some_tensors();
    const void *page_table = tensors.page_table;
    tensors.page_table = NULL;
    expect(check_pointers(batch_decode(), &problem, &tensors),
           "tensors.page_table is NULL: ", ": a problem without LIBDECODE_FEATURE_CONTIGUOUS_KV needs it");
    problem.features = LIBDECODE_FEATURE_CONTIGUOUS_KV;
    expect(check_pointers(batch_decode(), &problem, &tensors), NULL, NULL);
    tensors.page_table = page_table;
    expect(check_pointers(batch_decode(), &problem, &tensors),
           "tensors.page_table is given with LIBDECODE_FEATURE_CONTIGUOUS_KV: ", ": there are no pages, leave the pointer NULL");
}

/* Tensors without elements may have no address. Where every request has room for no token, nothing of K and V is read. */
static void rows_of_no_tokens_need_no_address(void **state) {
    (void)state;
    libdecode_problem problem = llama3_8b();
    libdecode_tensors tensors = some_tensors();
    problem.kv_dtype = LIBDECODE_DTYPE_NVFP4;
    tensors.k_cache = tensors.v_cache = NULL;
    tensors.page_table = NULL;
    problem.features = LIBDECODE_FEATURE_CONTIGUOUS_KV;
    expect(check_pointers(batch_decode(), &problem, &tensors), NULL, NULL);
    tensors.query = NULL; /* of results there are as many as of other lengths */
    expect(check_pointers(batch_decode(), &problem, &tensors), "tensors.query is NULL", "every launch needs it");
    tensors = some_tensors();
    tensors.page_table = NULL;
    tensors.out = NULL;
    expect(check_pointers(batch_decode(), &problem, &tensors), "tensors.out is NULL", "every launch needs it");
    tensors = some_tensors();
    tensors.page_table = NULL;
    tensors.k_cache = (const char *)tensors.k_cache + 8;
    expect(check_pointers(batch_decode(), &problem, &tensors), "tensors.k_cache is ", "aligned to 16 bytes");
    tensors.k_cache = NULL;
    problem.kv_capacity_tokens = 1;
    expect(check_pointers(batch_decode(), &problem, &tensors), "tensors.k_cache is NULL", "every launch needs it");
    tensors = some_tensors();
    problem.kv_capacity_tokens = 0;
    problem.features = 0; /* in pages that is all that the page table has room for */
    expect(check_pointers(batch_decode(), &problem, &tensors), "tensors.k_sf is NULL", "kv_dtype nvfp4 needs it");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_operation_is_found_by_number_and_by_name),
        cmocka_unit_test(a_field_that_the_operation_does_not_know_is_refused_by_name),
        cmocka_unit_test(a_required_field_must_be_given),
        cmocka_unit_test(a_field_of_a_feature_needs_the_feature),
        cmocka_unit_test(a_pointer_that_the_operation_does_not_know_is_refused_by_name),
        cmocka_unit_test(a_page_table_belongs_to_pages),
        cmocka_unit_test(rows_of_no_tokens_need_no_address),
    };
    return cmocka_run_group_tests_name("operation", tests, NULL, NULL);
}
