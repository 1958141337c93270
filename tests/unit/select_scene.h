/* SPDX-License-Identifier: Apache-2.0 */
/* select_scene.h: the whole grid, and short ways to ask select_kernel and to expect its answer or its refusal. */
#ifndef LIBDECODE_SELECT_SCENE_H
#define LIBDECODE_SELECT_SCENE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "decode_fixture.h"
#include "select.h"

static struct grid *grid;

static inline int create_grid(void **state) {
    (void)state;
    grid = grid_create(7);
    return 0;
}

static inline int destroy_grid(void **state) {
    (void)state;
    grid_destroy(grid);
    return 0;
}

static inline struct policy no_policy(void) { return (struct policy){.verbs = NULL}; }

static inline struct policy parsed(const char *text, bool strict) {
    struct policy policy;
    if (policy_parse(text, "LIBDECODE_KERNEL", strict, &grid->table, &policy) != LIBDECODE_OK)
        fail_msg("policy '%s': %s", text ? text : "", libdecode_error_message());
    return policy;
}

/* A table over records that a test has put together; forget_table when done. */
static inline struct kernel_table table_over(struct kernel_record *records, uint32_t *gpus, size_t count) {
    struct kernel_table table = {.records = records, .gpus = gpus, .count = count};
    assert_int_equal(kernel_index_create(&table, &table.index), LIBDECODE_OK);
    return table;
}

static inline void forget_table(struct kernel_table *table) { kernel_index_destroy(table->index); }

static inline libdecode_status choose(const libdecode_problem *problem, const libdecode_device *device,
                                      const struct policy *policy, const struct kernel_table *table,
                                      struct selection *ret_selection) {
    struct problem checked;
    assert_int_equal(problem_check(problem, &checked), LIBDECODE_OK);
    return select_kernel(&checked, device, policy, table, NULL, NULL, ret_selection);
}

static inline struct selection expect_choice(const libdecode_problem *problem, const libdecode_device *device,
                                             const struct policy *policy, const struct kernel_table *table) {
    struct selection selection;
    if (choose(problem, device, policy, table, &selection) != LIBDECODE_OK)
        fail_msg("no kernel: %s", libdecode_error_message());
    return selection;
}

static inline void expect_refusal(libdecode_status expected, const char *first, const char *second,
                                  const libdecode_problem *problem, const libdecode_device *device, const struct policy *policy,
                                  const struct kernel_table *table) {
    struct selection selection, untouched;
    memset(&selection, 0xa5, sizeof selection);
    memset(&untouched, 0xa5, sizeof untouched);
    libdecode_status status = choose(problem, device, policy, table, &selection);
    if (status != expected || !strstr(libdecode_error_message(), first) || !strstr(libdecode_error_message(), second))
        fail_msg("status %d, message '%s', expected %d with '%s' and '%s'", (int)status, libdecode_error_message(), (int)expected,
                 first, second);
    assert_memory_equal(&selection, &untouched, sizeof selection);
}

#endif
