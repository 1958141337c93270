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

/* Every glob and name of up to four of these characters, against the definition. */
static bool matches_by_definition(const char *glob, const char *name) {
    if (*glob == '*')
        return matches_by_definition(glob + 1, name) || (*name && matches_by_definition(glob, name + 1));
    if (*glob == '\0' || *name == '\0')
        return *glob == *name;
    return (*glob == '?' || *glob == *name) && matches_by_definition(glob + 1, name + 1);
}

static void short_word(unsigned number, const char *letters, char ret_word[8]) {
    size_t base = strlen(letters) + 1, length = 0;
    for (; number % base != 0 && length < 5; number /= (unsigned)base)
        ret_word[length++] = letters[number % base - 1];
    ret_word[length] = '\0';
}

static void all_short_globs_match_by_the_definition(void **state) {
    (void)state;
    size_t matches = 0;
    for (unsigned i = 0; i < 5 * 5 * 5 * 5 * 5; i++) {
        for (unsigned j = 0; j < 3 * 3 * 3 * 3 * 3; j++) {
            char glob[8], name[8];
            short_word(i, "ab*?", glob);
            short_word(j, "ab", name);
            if (glob_matches(glob, name) != matches_by_definition(glob, name))
                fail_msg("'%s' and '%s'", glob, name);
            matches += glob_matches(glob, name);
        }
    }
    assert_true(matches > 1000);
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
        cmocka_unit_test(all_short_globs_match_by_the_definition),
        cmocka_unit_test(a_distance_counts_edits_and_stars_are_free),
    };
    return cmocka_run_group_tests_name("glob", tests, NULL, NULL);
}
