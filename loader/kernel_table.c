/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel_table.c: the bundles of a context in, one table of all their kernels out (declared in bundle.h).
 * Before: bundle.c opened them. Next: select.c looks through the table.
 */
#include "bundle.h"

#include <stdlib.h>
#include <string.h>

#include "status.h"

/* By name; of the same name, the newest bundle first. */
static int compare_records(const void *left, const void *right) {
    const struct kernel_record *a = left, *b = right;
    int order = strcmp(a->name, b->name);
    return order != 0 ? order : (a->bundle_rank < b->bundle_rank) - (a->bundle_rank > b->bundle_rank);
}

/* Gives each GPU of a name to the newest record that serves it, and drops records that are left without one. */
static size_t overlay(struct kernel_record *records, uint32_t *gpus, size_t count) {
    size_t kept = 0;
    uint32_t served = 0;
    for (size_t index = 0; index < count; index++) {
        struct kernel_record record = records[index];
        if (index > 0 && strcmp(records[index - 1].name, record.name) != 0)
            served = 0;
        uint32_t left = record.kernel->gpus & ~served;
        served |= record.kernel->gpus;
        records[kept] = record;
        gpus[kept] = left;
        kept += left != 0;
    }
    return kept;
}

libdecode_status kernel_table_build(struct bundle *const *bundles, size_t num_bundles, struct kernel_table *ret_table) {
    size_t count = 0;
    for (size_t rank = 0; rank < num_bundles; rank++)
        count += bundle_header(bundles[rank])->num_kernels;
    struct kernel_record *records = calloc(count + 1, sizeof *records); /* + 1: never of size 0 */
    uint32_t *gpus = calloc(count + 1, sizeof *gpus);
    if (!records || !gpus) {
        free(records);
        free(gpus);
        return fail(LIBDECODE_ERROR_OUT_OF_MEMORY, "no memory for a table of %zu kernels; free memory and try again", count);
    }
    size_t index = 0;
    for (size_t rank = 0; rank < num_bundles; rank++) {
        const struct bundle *bundle = bundles[rank];
        for (uint32_t kernel = 0; kernel < bundle_header(bundle)->num_kernels; kernel++)
            records[index++] = (struct kernel_record){.name = bundle_string(bundle, bundle_kernels(bundle)[kernel].name),
                                                      .kernel = &bundle_kernels(bundle)[kernel],
                                                      .bundle = bundle,
                                                      .bundle_rank = (uint32_t)rank};
    }
    qsort(records, count, sizeof *records, compare_records);
    *ret_table = (struct kernel_table){.records = records, .gpus = gpus, .count = overlay(records, gpus, count)};
    return LIBDECODE_OK;
}

void kernel_table_destroy(struct kernel_table *table) {
    free(table->records);
    free(table->gpus);
    *table = (struct kernel_table){0};
}
