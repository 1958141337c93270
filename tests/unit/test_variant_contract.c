/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_variant_contract.c: bundles that were built, by argument: the tests of selection, which build none, see their kernels as they are. One that has eight
 * warps to compute with there, and four here, is chosen by those tests and not by a GPU's loader.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "bundle.h"
#include "decode_fixture.h"
#include "kernel_table.h"

static char **bundle_paths;

static int by_name(const void *key, const void *element) {
    const struct kernel_record *record = element;
    return strcmp(key, record->name);
}

/* Of what selection and the cost model look at. Local memory is no matter to them. */
static void expect_alike(const char *name, const struct libdecode_launch_contract *built,
                         const struct libdecode_launch_contract *expected) {
    static const struct {
        const char *name;
        size_t offset;
    } fields[] = {
#define FIELD(field) {#field, offsetof(struct libdecode_launch_contract, field)}
        FIELD(query_dtypes), FIELD(kv_dtype),      FIELD(out_dtypes),    FIELD(head_dim),       FIELD(row_tile),
        FIELD(cluster_size), FIELD(min_page_size), FIELD(max_page_size), FIELD(max_box_tokens), FIELD(tile_tokens),
        FIELD(max_q_len),    FIELD(features),      FIELD(ctas_per_sm),   FIELD(consumer_warps),
#undef FIELD
    };
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        const uint32_t value = *(const uint32_t *)((const char *)built + fields[i].offset);
        const uint32_t wanted = *(const uint32_t *)((const char *)expected + fields[i].offset);
        if (value != wanted)
            fail_msg("%s: %s is %u, the grid of the tests has %u", name, fields[i].name, value, wanted);
    }
    assert_int_equal(built->flags & ~(uint32_t)CONTRACT_FLAG_MAY_SPILL, expected->flags);
}

static void kernels_are_as_the_tests_of_selection_have_them(void **state) {
    (void)state;
    struct grid *grid = grid_create(7);
    size_t count = 0;
    for (char **path = bundle_paths; *path != NULL; path++) {
        struct bundle *bundle;
        if (bundle_open_file(*path, &bundle) != LIBDECODE_OK)
            fail_msg("%s", libdecode_error_message());
        for (uint32_t i = 0; i < bundle_header(bundle)->num_kernels; i++) {
            const struct bundle_kernel *kernel = &bundle_kernels(bundle)[i];
            const char *name = bundle_string(bundle, kernel->name);
            if (kernel->contract.family != KERNEL_FAMILY_GQA_DECODE)
                continue;
            const struct kernel_record *record =
                bsearch(name, grid->table.records, grid->table.count, sizeof grid->table.records[0], by_name);
            if (record == NULL)
                fail_msg("%s is not in the grid of the tests", name);
            expect_alike(name, &kernel->contract, &record->kernel->contract);
            count++;
        }
        bundle_close(bundle);
    }
    grid_destroy(grid);
    if (count == 0)
        skip(); /* a build without batch decode (-Dvariants) */
}

int main(int argc, char **argv) {
    (void)argc;
    bundle_paths = argv + 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(kernels_are_as_the_tests_of_selection_have_them)};
    return cmocka_run_group_tests_name("variant_contract", tests, NULL, NULL);
}
