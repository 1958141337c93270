/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_plan_memo.c: what goes in comes out for the same problem and CUDA context, for no other, and never twice; the memo never
 * fills, and gives up what is least missed; a plan in use stays.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "decode_fixture.h"
#include "failing_malloc.h"
#include "plan_memo.h"
#include "problem.h"

/* The memo does not look into a plan, so here one is a number that notices its end. */
struct libdecode_plan {
    uint64_t number;
    bool is_destroyed;
};

#define CAPACITY 8192

static atomic_size_t num_destroyed, num_asked;
static uint64_t ended_below; /* contexts of a lower id have ended */

static void destroy_plan(libdecode_plan *plan) {
    if (plan->is_destroyed)
        abort();
    plan->is_destroyed = true;
    atomic_fetch_add(&num_destroyed, 1);
    free(plan);
}

static bool context_ended(void *cookie, uint64_t context_id) {
    atomic_fetch_add(&num_asked, 1);
    return context_id < *(const uint64_t *)cookie;
}

static struct plan_memo *new_memo(void) {
    const struct plan_memo_owner owner = {destroy_plan, context_ended, &ended_below};
    struct plan_memo *memo = NULL;
    atomic_store(&num_destroyed, 0);
    atomic_store(&num_asked, 0);
    ended_below = 0;
    assert_int_equal(plan_memo_create(&owner, &memo), LIBDECODE_OK);
    return memo;
}

static libdecode_problem problem_of(uint64_t number) {
    libdecode_problem problem = llama3_8b();
    problem.page_table_request_stride = (int64_t)number + 1;
    return problem;
}

static libdecode_plan *new_plan(uint64_t number) {
    libdecode_plan *plan = malloc(sizeof *plan);
    if (!plan)
        abort();
    *plan = (libdecode_plan){.number = number};
    return plan;
}

static libdecode_plan *find(struct plan_memo *memo, uint64_t number, uint64_t context_id) {
    libdecode_problem problem = problem_of(number);
    struct plan_use use;
    if (plan_memo_find(memo, &problem, context_id, &use) != LIBDECODE_OK)
        abort();
    libdecode_plan *plan = use.plan;
    plan_memo_release(&use);
    return plan;
}

static libdecode_plan *add(struct plan_memo *memo, uint64_t number, uint64_t context_id) {
    libdecode_problem problem = problem_of(number);
    struct plan_use use;
    if (plan_memo_add(memo, &problem, context_id, new_plan(number), &use) != LIBDECODE_OK)
        abort();
    libdecode_plan *plan = use.plan;
    plan_memo_release(&use);
    return plan;
}

static void a_plan_is_found_for_its_problem_and_its_context_only(void **state) {
    (void)state;
    struct plan_memo *memo = new_memo();
    assert_null(find(memo, 1, 1));
    libdecode_plan *plan = add(memo, 1, 1);
    assert_int_equal(plan->number, 1);
    assert_ptr_equal(find(memo, 1, 1), plan);
    assert_null(find(memo, 1, 2));
    assert_null(find(memo, 2, 1));
    plan_memo_destroy(memo);
    plan_memo_destroy(NULL);
    assert_int_equal(atomic_load(&num_destroyed), 1);
}

static void the_first_of_two_plans_for_one_problem_stays(void **state) {
    (void)state;
    struct plan_memo *memo = new_memo();
    libdecode_plan *first = add(memo, 1, 1);
    assert_ptr_equal(add(memo, 1, 1), first);
    assert_int_equal(atomic_load(&num_destroyed), 1);
    assert_ptr_equal(find(memo, 1, 1), first);
    plan_memo_destroy(memo);
    assert_int_equal(atomic_load(&num_destroyed), 2);
}

static void thousands_of_problems_are_all_remembered(void **state) {
    (void)state;
    enum { NUM_PROBLEMS = 2000 };
    struct plan_memo *memo = new_memo();
    for (uint64_t number = 0; number < NUM_PROBLEMS; number++)
        assert_int_equal(add(memo, number / 2, number % 2)->number, number / 2);
    for (uint64_t number = 0; number < NUM_PROBLEMS; number++)
        assert_int_equal(find(memo, number / 2, number % 2)->number, number / 2);
    assert_int_equal(atomic_load(&num_destroyed), 0);
    plan_memo_destroy(memo);
}

static void it_never_fills_never_grows_beyond_its_places_and_keeps_what_is_used(void **state) {
    (void)state;
    enum { NUM_PROBLEMS = 5 * CAPACITY, NUM_USED = 100 };
    struct plan_memo *memo = new_memo();
    for (uint64_t number = 0; number < NUM_PROBLEMS; number++) {
        assert_int_equal(add(memo, number, 7)->number, number);
        assert_int_equal(find(memo, number, 7)->number, number); /* the newest always */
        if (number >= NUM_USED)
            assert_non_null(find(memo, number % NUM_USED, 7)); /* and what is asked for again and again */
    }
    assert_true(atomic_load(&num_destroyed) >= NUM_PROBLEMS - CAPACITY);
    size_t kept = 0;
    for (uint64_t number = NUM_PROBLEMS - CAPACITY / 2; number < NUM_PROBLEMS; number++)
        kept += find(memo, number, 7) != NULL;
    assert_true(kept > CAPACITY / 2 * 9 / 10);    /* the newest half, but for sets that got more than their share */
    assert_int_equal(atomic_load(&num_asked), 0); /* a single context: the one that adds, which lives */
    plan_memo_destroy(memo);
    assert_int_equal(atomic_load(&num_destroyed), NUM_PROBLEMS);
}

static void plans_of_ended_contexts_go_first_however_new_they_are(void **state) {
    (void)state;
    enum { LIVING = 2000, ENDED = 40000 };
    struct plan_memo *memo = new_memo();
    for (uint64_t number = 0; number < LIVING; number++)
        (void)add(memo, number, 100);
    ended_below = 100;
    for (uint64_t number = 0; number < ENDED; number++)
        (void)add(memo, number, number % 50); /* each the newest in its turn */
    for (uint64_t number = 0; number < LIVING; number++)
        assert_non_null(find(memo, number, 100));
    plan_memo_destroy(memo);
}

static void a_plan_in_use_outlives_its_place(void **state) {
    (void)state;
    struct plan_memo *memo = new_memo();
    libdecode_problem problem = problem_of(0);
    struct plan_use first, second;
    (void)add(memo, 0, 1);
    assert_int_equal(plan_memo_find(memo, &problem, 1, &first), LIBDECODE_OK);
    assert_int_equal(plan_memo_find(memo, &problem, 1, &second), LIBDECODE_OK);
    assert_ptr_equal(first.plan, second.plan);
    assert_ptr_not_equal(first.hold, second.hold);
    uint64_t number = 1;
    while (find(memo, 0, 1)) /* asking is using: give it time to be the oldest */
        for (size_t i = 0; i < CAPACITY; i++)
            (void)add(memo, number++, 1);
    assert_false(first.plan->is_destroyed);
    assert_int_equal(first.plan->number, 0);
    plan_memo_release(&first);
    (void)add(memo, number++, 1);
    assert_false(second.plan->is_destroyed);
    size_t destroyed = atomic_load(&num_destroyed);
    plan_memo_release(&second);
    (void)add(memo, number++, 1);
    assert_in_range(atomic_load(&num_destroyed), destroyed + 1, destroyed + 2); /* it, and the one that made room */
    plan_memo_release(&second);                                                 /* twice is harmless */
    plan_memo_destroy(memo);
    assert_int_equal(atomic_load(&num_destroyed), number);
}

static void lack_of_memory_is_said_and_nothing_is_lost(void **state) {
    (void)state;
    libdecode_problem problem = problem_of(1);
    size_t num_failures = 0;
    for (;; num_failures++) {
        struct plan_memo *memo = new_memo();
        libdecode_plan *plan = new_plan(1);
        struct plan_use use = {NULL, NULL};
        fail_allocation(num_failures + 1);
        libdecode_status status = plan_memo_find(memo, &problem, 1, &use);
        if (status == LIBDECODE_OK)
            status = plan_memo_add(memo, &problem, 1, plan, &use);
        bool failed = allocation_failed();
        fail_allocation(0);
        assert_int_equal(status, failed ? LIBDECODE_ERROR_OUT_OF_MEMORY : LIBDECODE_OK);
        if (failed)
            assert_int_equal(plan_memo_add(memo, &problem, 1, plan, &use), LIBDECODE_OK);
        assert_ptr_equal(use.plan, plan);
        plan_memo_release(&use);
        assert_ptr_equal(find(memo, 1, 1), plan);
        plan_memo_destroy(memo);
        assert_int_equal(atomic_load(&num_destroyed), 1);
        if (!failed)
            break;
    }
    assert_int_equal(num_failures, 2); /* the hold, the entry */
    const struct plan_memo_owner owner = {destroy_plan, context_ended, &ended_below};
    struct plan_memo *none = NULL;
    fail_allocation(1);
    assert_int_equal(plan_memo_create(&owner, &none), LIBDECODE_ERROR_OUT_OF_MEMORY);
    assert_null(none);
}

/* ----------------------------------------------------------------------------------------------------------- threads */

enum { NUM_THREADS = 8, NUM_ROUNDS = 6000, NUM_SHARED = 12000 }; /* half as many again as there is room for */

struct worker {
    pthread_t thread;
    struct plan_memo *memo;
    uint64_t seed;
    size_t wrong, planned;
};

static void *use_many_plans(void *argument) {
    struct worker *worker = argument;
    for (size_t i = 0; i < NUM_ROUNDS; i++) {
        worker->seed = worker->seed * 6364136223846793005u + 1442695040888963407u;
        uint64_t number = (worker->seed >> 33) % NUM_SHARED;
        libdecode_problem problem = problem_of(number);
        struct plan_use use;
        if (plan_memo_find(worker->memo, &problem, 1, &use) != LIBDECODE_OK)
            abort();
        if (!use.plan) {
            worker->planned++;
            if (plan_memo_add(worker->memo, &problem, 1, new_plan(number), &use) != LIBDECODE_OK)
                abort();
        }
        worker->wrong += use.plan->number != number || use.plan->is_destroyed;
        plan_memo_release(&use);
    }
    return NULL;
}

static void threads_use_plans_while_others_take_them_out(void **state) {
    (void)state;
    struct plan_memo *memo = new_memo();
    struct worker workers[NUM_THREADS];
    size_t planned = 0;
    for (size_t i = 0; i < NUM_THREADS; i++) {
        workers[i] = (struct worker){.memo = memo, .seed = i};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, use_many_plans, &workers[i]), 0);
    }
    for (size_t i = 0; i < NUM_THREADS; i++) {
        assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
        assert_int_equal(workers[i].wrong, 0);
        planned += workers[i].planned;
    }
    assert_true(atomic_load(&num_destroyed) > 0); /* some were taken out */
    plan_memo_destroy(memo);
    assert_int_equal(atomic_load(&num_destroyed), planned);
}

/* From plan_memo_add too, not only from plan_memo_find; and the end takes along what was in use when it lost its place. */
static void a_plan_that_was_just_added_outlives_its_place(void **state) {
    (void)state;
    struct plan_memo *memo = new_memo();
    libdecode_problem problem = problem_of(0);
    struct plan_use use;
    assert_int_equal(plan_memo_add(memo, &problem, 1, new_plan(0), &use), LIBDECODE_OK);
    uint64_t number = 1;
    while (find(memo, 0, 1))
        for (size_t i = 0; i < CAPACITY; i++)
            (void)add(memo, number++, 1);
    assert_false(use.plan->is_destroyed);
    assert_int_equal(use.plan->number, 0);
    plan_memo_release(&use);
    plan_memo_destroy(memo);
    assert_int_equal(atomic_load(&num_destroyed), number);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_is_found_for_its_problem_and_its_context_only),
        cmocka_unit_test(the_first_of_two_plans_for_one_problem_stays),
        cmocka_unit_test(thousands_of_problems_are_all_remembered),
        cmocka_unit_test(it_never_fills_never_grows_beyond_its_places_and_keeps_what_is_used),
        cmocka_unit_test(plans_of_ended_contexts_go_first_however_new_they_are),
        cmocka_unit_test(a_plan_in_use_outlives_its_place),
        cmocka_unit_test(lack_of_memory_is_said_and_nothing_is_lost),
        cmocka_unit_test(threads_use_plans_while_others_take_them_out),
        cmocka_unit_test(a_plan_that_was_just_added_outlives_its_place),
    };
    return cmocka_run_group_tests_name("plan_memo", tests, NULL, NULL);
}
