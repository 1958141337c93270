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

#include <string.h>

#include "bundle.h"
#include "family.h"
#include "variant_contract.h"

static char **bundle_paths;

/* NULL: none of the grid. `built` belongs to a family that decodes. */
static const struct grid_variant *find_variant(const char *name, const struct libdecode_launch_contract *built) {
    size_t count;
    const struct grid_variant *variants = grid_variants(&count);
    for (size_t i = 0; i < count; i++) {
        char of_variant[BUNDLE_MAX_NAME_BYTES];
        if (variants[i].family != built->family || variants[i].head_dim != built->head_dim)
            continue;
        variant_name(&variants[i], of_variant);
        if (strcmp(of_variant, name) == 0)
            return &variants[i];
    }
    return NULL;
}

/* Of what selection and the cost model look at. Local memory is no matter to them. */
static void expect_alike(const char *name, const struct libdecode_launch_contract *built,
                         const struct libdecode_launch_contract *expected) {
    static const struct {
        const char *name;
        size_t offset;
    } fields[] = {
#define FIELD(field) {#field, offsetof(struct libdecode_launch_contract, field)}
        FIELD(query_dtypes), FIELD(kv_dtype),        FIELD(out_dtypes),    FIELD(head_dim),       FIELD(row_tile),
        FIELD(cluster_size), FIELD(min_page_size),   FIELD(max_page_size), FIELD(max_box_tokens), FIELD(tile_tokens),
        FIELD(max_q_len),    FIELD(features),        FIELD(ctas_per_sm),   FIELD(consumer_warps), FIELD(kv_row_format),
        FIELD(family),       FIELD(parameter_bytes),
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
    size_t count = 0;
    for (char **path = bundle_paths; *path != NULL; path++) {
        struct bundle *bundle;
        if (bundle_open_file(*path, &bundle) != LIBDECODE_OK)
            fail_msg("%s", libdecode_error_message());
        for (uint32_t i = 0; i < bundle_header(bundle)->num_kernels; i++) {
            const struct bundle_kernel *kernel = &bundle_kernels(bundle)[i];
            const char *name = bundle_string(bundle, kernel->name);
            const struct family *family = family_find(kernel->contract.family);
            if (family == NULL || family->op == 0)
                continue;
            const struct grid_variant *variant = find_variant(name, &kernel->contract);
            if (variant == NULL)
                fail_msg("%s is not in the grid", name);
            const struct libdecode_launch_contract expected = variant_contract(variant);
            expect_alike(name, &kernel->contract, &expected);
            count++;
        }
        bundle_close(bundle);
    }
    if (count == 0)
        skip(); /* a build without such kernels (-Dvariants) */
}

int main(int argc, char **argv) {
    (void)argc;
    bundle_paths = argv + 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(kernels_are_as_the_tests_of_selection_have_them)};
    return cmocka_run_group_tests_name("variant_contract", tests, NULL, NULL);
}
