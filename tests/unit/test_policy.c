/* SPDX-License-Identifier: Apache-2.0 */
/* test_policy.c: texts of LIBDECODE_KERNEL in, rules or the error that names the mistake out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "decode_fixture.h"
#include "family.h"
#include "policy.h"

static struct grid *grid;

static int create_grid(void **state) {
    (void)state;
    grid = grid_create(1u << 0);
    return 0;
}

static int destroy_grid(void **state) {
    (void)state;
    grid_destroy(grid);
    return 0;
}

static void expect_error(const char *text, const char *first, const char *second) {
    struct policy policy, untouched;
    memset(&policy, 0xa5, sizeof policy);
    memset(&untouched, 0xa5, sizeof untouched);
    libdecode_status status = policy_parse(text, "LIBDECODE_KERNEL", false, &grid->table, &policy);
    const char *message = libdecode_error_message();
    if (status != LIBDECODE_ERROR_OVERRIDE || !strstr(message, "LIBDECODE_KERNEL") || !strstr(message, first) ||
        !strstr(message, second))
        fail_msg("'%s': status %d, message '%s', expected '%s' and '%s' in it", text, (int)status, message, first, second);
    assert_memory_equal(&policy, &untouched, sizeof policy);
}

static size_t place_of(const char *kernel) {
    for (size_t i = 0; i < grid->table.count; i++)
        if (strcmp(grid->table.records[i].name, kernel) == 0)
            return i;
    fail_msg("no kernel %s", kernel);
    return 0;
}

static enum policy_verb verdict(const char *text, const char *kernel) {
    struct policy policy;
    if (policy_parse(text, "LIBDECODE_KERNEL", true, &grid->table, &policy) != LIBDECODE_OK)
        fail_msg("'%s' refused: %s", text, libdecode_error_message());
    assert_true(policy.strict);
    enum policy_verb verb = policy_verdict(&policy, place_of(kernel));
    policy_destroy(&policy);
    return verb;
}

#define KERNEL "gqa_decode_kvbf16_d128_r8_p16_c1_o0_sm90"

static void no_text_is_no_rule(void **state) {
    (void)state;
    assert_int_equal(verdict(NULL, KERNEL), POLICY_NONE);
    assert_int_equal(verdict("", KERNEL), POLICY_NONE);
}

static void each_verb_matches_by_glob(void **state) {
    (void)state;
    assert_int_equal(verdict("force=" KERNEL, KERNEL), POLICY_FORCE);
    assert_int_equal(verdict("prefer=*_c1_*", KERNEL), POLICY_PREFER);
    assert_int_equal(verdict("deny=gqa_decode_kv????_d128_r?_*_c1_o0_sm90", KERNEL), POLICY_DENY);
    assert_int_equal(verdict("deny=*_c8_*", KERNEL), POLICY_NONE);
    assert_int_equal(verdict("deny=*d128*", KERNEL), POLICY_DENY);
    assert_int_equal(verdict("deny=*_sm90", KERNEL), POLICY_DENY);
    assert_int_equal(verdict("deny=*", KERNEL), POLICY_DENY);
}

static void the_last_matching_rule_decides(void **state) {
    (void)state;
    assert_int_equal(verdict("deny=*,prefer=*_r8_*", KERNEL), POLICY_PREFER);
    assert_int_equal(verdict("prefer=*_r8_*,deny=*_c1_*", KERNEL), POLICY_DENY);
    assert_int_equal(verdict("force=*_r8_*,deny=*_r16_*", KERNEL), POLICY_FORCE);
}

static void a_rule_may_name_its_op(void **state) {
    (void)state;
    assert_int_equal(verdict("batch_decode:deny=*_c1_*", KERNEL), POLICY_DENY);
    assert_int_equal(verdict("batch_decode:deny=*_c2_*", KERNEL), POLICY_NONE);
}

static void force_holds_for_the_operations_of_its_kernels(void **state) {
    (void)state;
    struct policy policy;
    assert_int_equal(policy_parse("deny=*_c2_*", "x", false, &grid->table, &policy), LIBDECODE_OK);
    assert_false(policy_forces(&policy, LIBDECODE_OP_BATCH_DECODE));
    policy_destroy(&policy);
    assert_int_equal(policy_parse("force=*_c2_*", "x", false, &grid->table, &policy), LIBDECODE_OK);
    assert_true(policy_forces(&policy, LIBDECODE_OP_BATCH_DECODE));
    assert_false(policy_forces(&policy, (libdecode_op)2));
    policy_destroy(&policy);
}

static void an_item_that_decides_about_nothing_is_an_error(void **state) {
    (void)state;
    expect_error("force=" KERNEL ",deny=" KERNEL, "item 1: '" KERNEL "' decides about no kernel", "item 2, '" KERNEL "'");
    expect_error("prefer=*_r8_*,deny=*", "item 1: '*_r8_*'", "item 2, '*', decides about gqa_decode_");
    expect_error("deny=*_c1_*,force=*_c2_*,prefer=*_c?_*", "item 1", "leave one out, or change their order");
    expect_error("deny=*_c2_*,force=*_c1_*,batch_decode:force=*_c1_*", "item 2: '*_c1_*'", "item 3");
}

static void every_typo_is_an_error_that_quotes_it(void **state) {
    (void)state;
    expect_error("forc=*", "item 1", "'forc'");
    expect_error("force", "'force'", "[op:]force=GLOB");
    expect_error("force=", "'force='", "[op:]force=GLOB");
    expect_error("=*", "there is no ''", "force, prefer and deny");
    expect_error("force=*,", "item 2", "[op:]force=GLOB");
    expect_error(",force=*", "item 1", "[op:]force=GLOB");
    expect_error("Force=*", "'Force'", "prefer");
    expect_error("mla:force=*", "no op 'mla'", "batch_decode and mla_decode");
    expect_error(":force=*", "no op ''", "batch_decode");
    expect_error("force:gqa*", "'force:gqa*'", "[op:]force=GLOB");
}

static void a_glob_without_a_match_names_the_nearest_kernels(void **state) {
    (void)state;
    expect_error("deny=*_c8_*,force=gqa_decode_kvbf16_d128_r9_p16_c1_o0_sm90", "item 2", "nearest: " KERNEL);
    expect_error("force=gqa_decode_kvbf16_d129_r8_p16_c1_*", "'gqa_decode_kvbf16_d129_r8_p16_c1_*'", "nearest: " KERNEL);
    char at_hand[80];
    (void)snprintf(at_hand, sizeof at_hand, "none of the %zu kernels at hand that policies choose among", grid->table.count);
    expect_error("force=*_sm91", at_hand, "nearest: gqa_decode_kvbf16_d128_r128_p16_c1_o0_sm90, ");
    struct kernel_table empty = {.count = 0};
    struct policy policy;
    assert_int_equal(policy_parse("force=*", "x", false, &empty, &policy), LIBDECODE_ERROR_OVERRIDE);
    assert_non_null(strstr(libdecode_error_message(), "hold none"));
}

static void more_rules_than_there_is_room_for_are_an_error(void **state) {
    (void)state;
    char text[(BUNDLE_MAX_NAME_BYTES + 8) * (POLICY_MAX_RULES + 1)] = "prefer=*";
    for (size_t i = 1; i < POLICY_MAX_RULES; i++) {
        strcat(text, ",deny=");
        strcat(text, grid->table.records[i].name);
    }
    assert_int_equal(verdict(text, grid->table.records[1].name), POLICY_DENY);
    assert_int_equal(verdict(text, grid->table.records[POLICY_MAX_RULES - 1].name), POLICY_DENY);
    assert_int_equal(verdict(text, grid->table.records[POLICY_MAX_RULES].name), POLICY_PREFER);
    strcat(text, ",deny=*_c8_*");
    expect_error(text, "more than 32", "globs");
}

/* Every kernel at hand is of batch_decode, so nothing is left of a rule for the other. */
static void a_rule_of_another_op_decides_about_no_kernel(void **state) {
    (void)state;
    expect_error("mla_decode:deny=*_c1_*", "item 1: '*_c1_*' matches no kernel", "hold none");
}

static void force_holds_for_every_operation_that_has_a_forced_kernel(void **state) {
    (void)state;
    struct kernel_record records[] = {grid->table.records[0], grid->table.records[1]};
    uint32_t gpus[] = {BUNDLE_GPU_SM90, BUNDLE_GPU_SM90};
    const struct kernel_table table = {.records = records, .gpus = gpus, .count = 2};
    struct policy policy;
    for (size_t of_mla = 0; of_mla < 2; of_mla++) {
        records[1 - of_mla].family = grid->table.records[0].family;
        records[of_mla].family = &family_mla_decode;
        assert_int_equal(policy_parse("force=*", "x", false, &table, &policy), LIBDECODE_OK);
        assert_true(policy_forces(&policy, LIBDECODE_OP_BATCH_DECODE) && policy_forces(&policy, LIBDECODE_OP_MLA_DECODE));
        policy_destroy(&policy);
        assert_int_equal(policy_parse("mla_decode:force=*", "x", false, &table, &policy), LIBDECODE_OK);
        assert_true(!policy_forces(&policy, LIBDECODE_OP_BATCH_DECODE) && policy_forces(&policy, LIBDECODE_OP_MLA_DECODE));
        assert_int_equal(policy_verdict(&policy, 1 - of_mla), POLICY_NONE);
        policy_destroy(&policy);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_text_is_no_rule),
        cmocka_unit_test(each_verb_matches_by_glob),
        cmocka_unit_test(the_last_matching_rule_decides),
        cmocka_unit_test(a_rule_may_name_its_op),
        cmocka_unit_test(force_holds_for_the_operations_of_its_kernels),
        cmocka_unit_test(an_item_that_decides_about_nothing_is_an_error),
        cmocka_unit_test(every_typo_is_an_error_that_quotes_it),
        cmocka_unit_test(a_glob_without_a_match_names_the_nearest_kernels),
        cmocka_unit_test(more_rules_than_there_is_room_for_are_an_error),
        cmocka_unit_test(a_rule_of_another_op_decides_about_no_kernel),
        cmocka_unit_test(force_holds_for_every_operation_that_has_a_forced_kernel),
    };
    return cmocka_run_group_tests_name("policy", tests, create_grid, destroy_grid);
}
