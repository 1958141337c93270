/* SPDX-License-Identifier: Apache-2.0 */
/* test_plan_memo.c: what goes in comes out for the same problem and CUDA context, for no other, and never twice. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "decode_fixture.h"
#include "plan_memo.h"
#include "problem.h"

static struct grid *grid;
static libdecode_context *context;

static int open_context(void **state) {
    (void)state;
    struct grid_options options;
    grid = grid_create(1u << 0);
    grid_options(grid, &options);
    return libdecode_open(&options.options, &context) == LIBDECODE_OK ? 0 : -1;
}

static int close_context(void **state) {
    (void)state;
    libdecode_close(context);
    grid_destroy(grid);
    return 0;
}

static libdecode_problem problem_of_batch(int batch_size) {
    libdecode_problem problem = llama3_8b(), read;
    problem.batch_size = batch_size;
    assert_int_equal(problem_read(&problem, &read), LIBDECODE_OK);
    return read;
}

static libdecode_plan *new_plan(void) {
    libdecode_problem problem = llama3_8b();
    libdecode_device device = preset("sm_90");
    libdecode_plan *plan = NULL;
    assert_int_equal(libdecode_plan_create(context, &problem, &device, &plan), LIBDECODE_OK);
    return plan;
}

static struct plan_memo *new_memo(void) {
    struct plan_memo *memo = NULL;
    assert_int_equal(plan_memo_create(&memo), LIBDECODE_OK);
    return memo;
}

static void a_plan_is_found_for_its_problem_and_its_context_only(void **state) {
    (void)state;
    struct plan_memo *memo = new_memo();
    libdecode_problem problem = problem_of_batch(1), other = problem_of_batch(2);
    libdecode_plan *plan = new_plan();
    assert_null(plan_memo_find(memo, &problem, 1));
    assert_ptr_equal(plan_memo_add(memo, &problem, 1, plan), plan);
    assert_ptr_equal(plan_memo_find(memo, &problem, 1), plan);
    assert_null(plan_memo_find(memo, &problem, 2));
    assert_null(plan_memo_find(memo, &other, 1));
    plan_memo_destroy(memo);
}

static void the_first_of_two_plans_for_one_problem_stays(void **state) {
    (void)state;
    struct plan_memo *memo = new_memo();
    libdecode_problem problem = problem_of_batch(1);
    libdecode_plan *first = new_plan(), *second = new_plan();
    assert_ptr_equal(plan_memo_add(memo, &problem, 1, first), first);
    assert_ptr_equal(plan_memo_add(memo, &problem, 1, second), first);
    assert_ptr_equal(plan_memo_find(memo, &problem, 1), first);
    plan_memo_destroy(memo);
}

/* Until it is full, so that entries share slots; problems and contexts of all pairs stay apart. */
static void a_full_memo_keeps_what_it_has_and_refuses_the_rest(void **state) {
    (void)state;
    struct plan_memo *memo = new_memo();
    static libdecode_plan *plans[40][40];
    size_t refused = 0, kept = 0;
    for (int batch = 0; batch < 40; batch++) {
        for (unsigned id = 0; id < 40; id++) {
            libdecode_problem problem = problem_of_batch(batch);
            libdecode_plan *plan = new_plan();
            plans[batch][id] = plan_memo_add(memo, &problem, id, plan);
            if (plans[batch][id]) {
                assert_ptr_equal(plans[batch][id], plan);
                kept++;
            } else {
                libdecode_plan_destroy(plan);
                refused++;
            }
        }
    }
    assert_true(kept > 700 && refused > 500); /* of 1600, with room for 1024 */
    for (int batch = 0; batch < 40; batch++) {
        for (unsigned id = 0; id < 40; id++) {
            libdecode_problem problem = problem_of_batch(batch);
            assert_ptr_equal(plan_memo_find(memo, &problem, id), plans[batch][id]);
        }
    }
    assert_true(plan_memo_first_refusal(memo));
    assert_false(plan_memo_first_refusal(memo));
    plan_memo_destroy(memo);
    plan_memo_destroy(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_is_found_for_its_problem_and_its_context_only),
        cmocka_unit_test(the_first_of_two_plans_for_one_problem_stays),
        cmocka_unit_test(a_full_memo_keeps_what_it_has_and_refuses_the_rest),
    };
    return cmocka_run_group_tests_name("plan_memo", tests, open_context, close_context);
}
