/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_case_pairs.c: what `libdecode check --random` draws. Every two special things that a case may have meet in one, for each kind of operation, but
 * for those that exclude each other.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "check/case_table.h"

enum { NUM_CASES = 10000, NUM_FLAGS = 64 };

/* How often each two of them are in one case; with itself: how often it is drawn at all. */
struct meetings {
    long count[NUM_FLAGS][NUM_FLAGS];
};

static const struct exclusion {
    uint64_t these, those;
    const char *why;
} exclusions[] = {
    {CASE_PADDED_STRIDES, CASE_COMBINED_POOL | CASE_NHD, "has a layout of its own"},
    {CASE_CONTIGUOUS | CASE_NO_LENGTHS, CASE_V_PAGE_TABLE | CASE_NEGATIVE_IDS | CASE_FOREIGN_IDS | CASE_UNKNOWN_POOL, "no pages"},
    {CASE_NO_LENGTHS, CASE_ODD_LENGTHS, "no lengths"},
    {CASE_UNKNOWN_POOL, CASE_FOREIGN_IDS, "no id is foreign to it"},
    {CASE_FAR_POSITIONS, CASE_POSITION_RULE, "both are the rule"},
    {CASE_FAR_POSITIONS, CASE_ALIBI | CASE_ALIBI_FROM_ZERO, "a bias of millions leaves f32 no fraction"},
    {CASE_OUTLIERS, CASE_HUGE_SCORES | CASE_SPECIAL_VALUES | CASE_QUERY_RANGE, "values are one or the other"},
    {CASE_SPECIAL_VALUES, CASE_QUERY_RANGE, "likewise"},
    {CASE_HUGE_SCORES, CASE_SPECIAL_VALUES | CASE_QUERY_RANGE | CASE_ZERO_SCALE, "likewise"},
    {CASE_HUGE_SCORES, CASE_SOFT_CAP | CASE_ALIBI | CASE_ALIBI_FROM_ZERO | CASE_ROPE, "f32 loses what float64 keeps"},
    {CASE_QUERY_RANGE, CASE_ALIBI | CASE_ALIBI_FROM_ZERO | CASE_ROPE, "likewise"},
    {CASE_SPECIAL_VALUES, CASE_ROPE, "likewise"},
    {CASE_SPECIAL_VALUES, CASE_SKIP_SOFTMAX, "a NaN may be passed over"},
    {CASE_QUERY_OFFSETS | CASE_KV_OFFSETS | CASE_ODD_STRIDES,
     CASE_SOFT_CAP | CASE_ALIBI | CASE_ALIBI_FROM_ZERO | CASE_ROPE | CASE_SKIP_SOFTMAX, "no kernel does both"}};

static const char *why_not(int one, int other) {
    for (size_t i = 0; i < sizeof exclusions / sizeof exclusions[0]; i++) {
        const struct exclusion *both = &exclusions[i];
        if (((both->these >> one & both->those >> other) | (both->these >> other & both->those >> one)) & 1)
            return both->why;
    }
    return NULL;
}

enum kind { BATCH_DECODE, NVFP4_CACHE, MLA, SPARSE_MLA };

static void draw_cases(enum kind kind, struct meetings *ret_meetings) {
    memset(ret_meetings, 0, sizeof *ret_meetings);
    for (int number = 1; number <= NUM_CASES; number++) {
        char name[32];
        int32_t lens[MAX_DRAWN_LENS];
        struct test_case test, drawn;
        (void)snprintf(name, sizeof name, RANDOM_CASE_PREFIX "%d", number);
        assert_true(random_case_named(name, &test));
        draw_test_case(&test, 1, &drawn, lens);
        if (kind == NVFP4_CACHE)
            make_nvfp4_case(&drawn);
        if (kind == MLA || kind == SPARSE_MLA)
            make_mla_case(&drawn);
        if (kind == SPARSE_MLA)
            make_sparse_case(&drawn, 1);
        for (int one = 0; one < NUM_FLAGS; one++)
            for (int other = 0; other < NUM_FLAGS && (drawn.flags >> one & 1) != 0; other++)
                ret_meetings->count[one][other] += (long)(drawn.flags >> other & 1);
    }
}

static void every_two_meet_but_those_that_exclude_each_other(void **state) {
    (void)state;
    static struct meetings meetings;
    for (enum kind kind = BATCH_DECODE; kind <= SPARSE_MLA; kind++) {
        int num_drawn = 0;
        draw_cases(kind, &meetings);
        for (int one = 0; one < NUM_FLAGS; one++) {
            num_drawn += meetings.count[one][one] > 0;
            for (int other = 0; other < one; other++) {
                const bool are_drawn = meetings.count[one][one] > 0 && meetings.count[other][other] > 0;
                const bool meet = meetings.count[one][other] > 0;
                if (are_drawn && !meet && why_not(one, other) == NULL)
                    fail_msg("kind %d: bits %d and %d of case_table.h are drawn, but never together", (int)kind, other, one);
                if (meet && why_not(one, other) != NULL)
                    fail_msg("kind %d: bits %d and %d of case_table.h meet, though: %s", (int)kind, other, one,
                             why_not(one, other));
            }
        }
        assert_true(num_drawn > 20);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_two_meet_but_those_that_exclude_each_other),
    };
    return cmocka_run_group_tests_name("case_pairs", tests, NULL, NULL);
}
