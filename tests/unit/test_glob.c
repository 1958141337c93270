/* SPDX-License-Identifier: Apache-2.0 */
/* test_glob.c: what matches a glob, and how far from it the rest is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "glob.h"

static void the_whole_name_must_match(void **state) {
    (void)state;
    assert_true(glob_matches("abc", "abc"));
    assert_false(glob_matches("abc", "abcd"));
    assert_false(glob_matches("abcd", "abc"));
    assert_false(glob_matches("", "a"));
    assert_true(glob_matches("", ""));
    assert_true(glob_matches("a?c", "abc"));
    assert_false(glob_matches("a?c", "ac"));
}

static void a_star_takes_any_run_and_is_tried_again(void **state) {
    (void)state;
    assert_true(glob_matches("*", ""));
    assert_true(glob_matches("*", "anything"));
    assert_true(glob_matches("*_c1_*", "r8_c2_c1_sm90"));
    assert_true(glob_matches("a*b*c", "axxbyybzzc"));
    assert_true(glob_matches("*ab", "aab"));
    assert_false(glob_matches("a*b*c", "axxbyybzz"));
    assert_true(glob_matches("**a**", "a"));
}

static void a_distance_counts_edits_and_stars_are_free(void **state) {
    (void)state;
    assert_int_equal(glob_distance("abc", "abc"), 0);
    assert_int_equal(glob_distance("abc", "abd"), 1);
    assert_int_equal(glob_distance("abc", "ab"), 1);
    assert_int_equal(glob_distance("abc", ""), 3);
    assert_int_equal(glob_distance("", "abc"), 3);
    assert_int_equal(glob_distance("kitten", "sitting"), 3);
    assert_int_equal(glob_distance("*_d129_*", "q_d128_r8"), 1);
    assert_int_equal(glob_distance("a*z", "abcdefz"), 0);
    assert_int_equal(glob_distance("a?c", "abc"), 0);
    char name[300];
    memset(name, 'a', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    assert_int_equal(glob_distance("b", name), 128);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_whole_name_must_match),
        cmocka_unit_test(a_star_takes_any_run_and_is_tried_again),
        cmocka_unit_test(a_distance_counts_edits_and_stars_are_free),
    };
    return cmocka_run_group_tests_name("glob", tests, NULL, NULL);
}
