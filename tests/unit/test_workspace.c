/* SPDX-License-Identifier: Apache-2.0 */
/* Where a launch keeps what: no byte of a workspace that plans share may be of records for one of them and of scratch for another. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "workspace.h"

static const int32_t sm_counts[] = {1, 48, 132, 170};
enum { NUM_SM_COUNTS = sizeof sm_counts / sizeof sm_counts[0], NUM_LAYOUTS = 7 * 3 * 2 };

static size_t end_of(const struct workspace_part *part) { return part->offset + part->bytes; }

static bool meet(const struct workspace_part *one, const struct workspace_part *other) {
    return one->bytes > 0 && other->bytes > 0 && one->offset < end_of(other) && other->offset < end_of(one);
}

/* Of records that fit ahead of scratch, that just do, that just do not, and of chunks; with as much scratch as there can be, with less, and none. */
static void make_layouts(int32_t sm_count, struct workspace_layout ret_layouts[NUM_LAYOUTS]) {
    const size_t ahead = (size_t)sm_count * WORKSPACE_RECORDS_BYTES_PER_SM,
                 most = (size_t)sm_count * WORKSPACE_SCRATCH_BYTES_PER_SM;
    const size_t records[] = {8, 4192, ahead - 1, ahead, ahead + 8, 2 * ahead, 32 * ahead}, scratch[] = {0, most / 3, most};
    size_t number = 0;
    for (size_t i = 0; i < sizeof records / sizeof records[0]; i++)
        for (size_t j = 0; j < sizeof scratch / sizeof scratch[0]; j++)
            for (size_t lens = 0; lens <= 4000; lens += 4000)
                ret_layouts[number++] = workspace_layout(sm_count, records[i], scratch[j], lens);
    assert_int_equal(number, NUM_LAYOUTS);
}

static void records_of_any_plan_and_scratch_of_any_other_lie_apart(void **state) {
    (void)state;
    for (size_t i = 0; i < NUM_SM_COUNTS; i++) {
        struct workspace_layout layouts[NUM_LAYOUTS];
        make_layouts(sm_counts[i], layouts);
        for (size_t one = 0; one < NUM_LAYOUTS; one++)
            for (size_t other = 0; other < NUM_LAYOUTS; other++)
                assert_false(meet(&layouts[one].records, &layouts[other].scratch));
    }
}

static void the_parts_of_a_plan_lie_apart_within_its_bytes(void **state) {
    (void)state;
    for (size_t i = 0; i < NUM_SM_COUNTS; i++) {
        struct workspace_layout layouts[NUM_LAYOUTS];
        make_layouts(sm_counts[i], layouts);
        for (size_t number = 0; number < NUM_LAYOUTS; number++) {
            const struct workspace_layout *layout = &layouts[number];
            const struct workspace_part *const parts[] = {&layout->records, &layout->scratch, &layout->lens};
            size_t end = 0;
            for (size_t part = 0; part < 3; part++) {
                assert_false(meet(parts[part], parts[(part + 1) % 3]));
                assert_int_equal(parts[part]->offset % WORKSPACE_ALIGNMENT_BYTES, 0);
                if (parts[part]->bytes > 0 && end_of(parts[part]) > end)
                    end = end_of(parts[part]);
            }
            assert_in_range(layout->bytes, end, end + WORKSPACE_ALIGNMENT_BYTES - 1);
        }
    }
}

static void a_plan_without_scratch_takes_no_more_than_its_records(void **state) {
    (void)state;
    const struct workspace_layout layout = workspace_layout(132, 132 * 2 * 6176, 0, 0);
    assert_int_equal(layout.records.offset, 0);
    assert_int_equal(layout.bytes, 132 * 2 * 6176);
}

static void a_part_without_bytes_has_no_place(void **state) {
    (void)state;
    char workspace[1];
    const struct workspace_layout layout = workspace_layout(132, 4192, 0, 64);
    assert_ptr_equal(workspace_part_at(workspace, &layout.records), workspace);
    assert_null(workspace_part_at(workspace, &layout.scratch));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_of_any_plan_and_scratch_of_any_other_lie_apart),
        cmocka_unit_test(the_parts_of_a_plan_lie_apart_within_its_bytes),
        cmocka_unit_test(a_plan_without_scratch_takes_no_more_than_its_records),
        cmocka_unit_test(a_part_without_bytes_has_no_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
