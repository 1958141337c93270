/* SPDX-License-Identifier: Apache-2.0 */
/* test_verdict.c: what select_kernel says of the kernel that it has chosen, and of those that can do the problem and lost. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "judgement.h"
#include "select_scene.h"

struct wanted_verdict {
    const char *kernel;
    char reason[REASON_BYTES];
    int eligible, chosen, predicted_ns;
};

static void note_verdict(void *cookie, const libdecode_verdict *verdict) {
    struct wanted_verdict *wanted = cookie;
    if (strcmp(verdict->kernel, wanted->kernel) != 0)
        return;
    (void)strncpy(wanted->reason, verdict->reason, sizeof wanted->reason - 1);
    wanted->eligible = verdict->eligible;
    wanted->chosen = verdict->chosen;
    wanted->predicted_ns = verdict->predicted_ns;
}

static struct wanted_verdict verdict_on(const char *kernel, const libdecode_problem *problem, const char *policy_text) {
    struct wanted_verdict wanted = {.kernel = kernel};
    const libdecode_device device = preset("sm_90");
    struct policy policy = parsed(policy_text, false);
    struct selection selection;
    struct problem checked;
    assert_int_equal(problem_check(problem, &checked), LIBDECODE_OK);
    assert_int_equal(select_kernel(&checked, &device, &policy, &grid->table, note_verdict, &wanted, &selection), LIBDECODE_OK);
    policy_destroy(&policy);
    assert_true(wanted.reason[0] != '\0' && wanted.eligible &&
                wanted.chosen == (selection.record->name == wanted.kernel || strcmp(selection.record->name, kernel) == 0));
    return wanted;
}

#define BF16_D128(rest) "gqa_decode_kvbf16_d128_" rest "_sm90"

static void a_verdict_says_what_the_kernel_lost_by(void **state) {
    (void)state;
    libdecode_problem problem = llama3_8b();
    static const struct {
        const char *policy, *kernel, *reason;
    } cases[] = {
        {"force=*_r16_p16_c1_o0_*,force=*_r16_p16_c2_o0_*", BF16_D128("r8_p16_c1_o0"), "the kernel policy forces others"},
        {"force=*_d128_r16_p16_c?_o0_sm90", BF16_D128("r16_p16_c8_o0"), "predicted"},
        {"prefer=*_d128_r16_p16_c?_o0_sm90", BF16_D128("r16_p16_c8_o0"), "predicted"},
        {"prefer=*_d128_r16_p16_c?_o0_sm90", BF16_D128("r8_p16_c1_o0"), "the kernel policy prefers others"},
        {NULL, BF16_D128("r8_p1_c1_o0"), "for pages from 1 on, row by row"},
        {NULL, BF16_D128("r16_p16_c1_o0"), "row tile 16, the choice does with 8 in as many passes"},
        {NULL, BF16_D128("r8_p16_c1_o3"), "has options, none of which this problem asks for"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct wanted_verdict verdict = verdict_on(cases[i].kernel, &problem, cases[i].policy);
        if (strncmp(verdict.reason, cases[i].reason, strlen(cases[i].reason)) != 0)
            fail_msg("%s: '%s', expected '%s'", cases[i].kernel, verdict.reason, cases[i].reason);
    }
    problem.page_size = 5; /* rows one by one: all that are left copy so */
    const struct wanted_verdict wide = verdict_on(BF16_D128("r16_p1_c1_o0"), &problem, NULL);
    assert_non_null(strstr(wide.reason, "row tile 16, the choice does with 8"));
}

static void a_prediction_is_told_in_microseconds_with_tenths(void **state) {
    (void)state;
    const libdecode_problem problem = llama3_8b();
    struct policy policy = no_policy();
    const libdecode_device device = preset("sm_90");
    const struct selection selection = expect_choice(&problem, &device, &policy, &grid->table);
    char expected[64];
    (void)snprintf(expected, sizeof expected, "predicted %d.%d us at 4096 tokens a request", selection.predicted_ns / 1000,
                   selection.predicted_ns % 1000 / 100);
    assert_non_null(strstr(selection.reason, expected));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_verdict_says_what_the_kernel_lost_by),
        cmocka_unit_test(a_prediction_is_told_in_microseconds_with_tenths),
    };
    return cmocka_run_group_tests_name("verdict", tests, create_grid, destroy_grid);
}
