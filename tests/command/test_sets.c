/* SPDX-License-Identifier: Apache-2.0 */
/* test_sets.c: every problem of every set of `libdecode bench` is one that the command line could say, and can be told from the others. */
#include "bench/sets.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

static struct problem_args given(void) {
    struct problem_args args = PROBLEM_ARGS_DEFAULT;
    args.trace = getenv("LIBDECODE_TRACE");
    assert_non_null(args.trace);
    return args;
}

static void test_every_problem_of_all_is_valid(void **state) {
    (void)state;
    const struct problem_args args = given();
    for (size_t number = 0; number < set_size("all"); number++) {
        struct set_problem problem;
        struct workload workload;
        assert_true(set_problem_make("all", number, &args, &problem));
        if (!workload_make("bench", &problem.args, &workload))
            fail_msg("%s, %s", problem.set, problem.label);
        assert_true(workload.total_tokens > 0);
        assert_int_equal(problem.traced, workload.trace.num_requests > 0);
        assert_true(problem.traced || !problem.leveled);
        workload_free(&workload);
    }
}

static void test_all_are_the_problems_of_all_sets(void **state) {
    (void)state;
    const struct problem_args args = given();
    char names[] = SETS;
    size_t count = 0;
    for (char *rest = NULL, *name = strtok_r(names, "|", &rest); strcmp(name, "all") != 0; name = strtok_r(NULL, "|", &rest)) {
        assert_true(set_size(name) > 1);
        for (size_t number = 0; number < set_size(name); number++, count++) {
            struct set_problem of_set, of_all;
            assert_true(set_problem_make(name, number, &args, &of_set) && set_problem_make("all", count, &args, &of_all));
            assert_string_equal(of_set.set, name);
            assert_ptr_equal(of_set.label, of_all.label);
            assert_false(of_set.beside_next && number + 1 == set_size(name));
        }
    }
    assert_int_equal(count, set_size("all"));
}

/* Where a label is all that a row of comma-separated values says of its problem. */
static void test_labels_differ_and_have_no_comma(void **state) {
    (void)state;
    const struct problem_args args = given();
    for (size_t number = 0; number < set_size("all"); number++) {
        struct set_problem problem, other;
        assert_true(set_problem_make("all", number, &args, &problem));
        assert_null(strchr(problem.label, ','));
        for (size_t before = 0; before < number; before++) {
            assert_true(set_problem_make("all", before, &args, &other));
            assert_string_not_equal(problem.label, other.label);
        }
    }
}

static void test_options_hold_where_a_problem_leaves_them_open(void **state) {
    (void)state;
    struct problem_args args = given();
    args.kv = "fp16";
    args.lens = "1,2";
    args.batch = 3;
    args.sinks = true;
    struct set_problem problem;
    assert_true(set_problem_make("standard", 0, &args, &problem));
    assert_string_equal(problem.args.kv, "fp16");
    assert_string_equal(problem.args.heads, "32/8");
    assert_true(problem.args.sinks);
    assert_int_equal(problem.args.batch, 1);
    assert_null(problem.args.lens);
    assert_null(problem.args.trace);
    assert_true(set_problem_make("e4m3", 0, &args, &problem));
    assert_string_equal(problem.args.kv, "e4m3");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_problem_of_all_is_valid),
        cmocka_unit_test(test_all_are_the_problems_of_all_sets),
        cmocka_unit_test(test_labels_differ_and_have_no_comma),
        cmocka_unit_test(test_options_hold_where_a_problem_leaves_them_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
