/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel_table.c: the bundles of a context in, one table of all their kernels out.
 * Before: bundle.c opened them. Next: select.c looks through the table.
 */
#include "kernel_table.h"

#include <stdlib.h>
#include <string.h>

#include "contract.h"
#include "status.h"

/* By name; of the same name, the newest bundle first. */
static bool comes_before(const struct kernel_record *a, const struct kernel_record *b) {
    int order = strcmp(a->name, b->name);
    return order != 0 ? order < 0 : a->bundle_rank > b->bundle_rank;
}

/* The records of the bundles from `first` to before `last`, which begin at `begins`. Each bundle's own are sorted already. */
static void merge_bundles(struct kernel_record *records, const size_t *begins, size_t first, size_t last,
                          struct kernel_record *scratch) {
    if (last - first < 2)
        return;
    size_t middle = first + (last - first) / 2, num_left = begins[middle] - begins[first];
    merge_bundles(records, begins, first, middle, scratch);
    merge_bundles(records, begins, middle, last, scratch);
    memcpy(scratch, records + begins[first], num_left * sizeof *records);
    const struct kernel_record *left = scratch, *right = records + begins[middle], *right_end = records + begins[last];
    for (struct kernel_record *next = records + begins[first]; left < scratch + num_left; next++)
        *next = right < right_end && comes_before(right, left) ? *right++ : *left++;
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

static void list_kernels(const struct bundle *bundle, size_t rank, struct kernel_record *records) {
    for (uint32_t i = 0; i < bundle_header(bundle)->num_kernels; i++) {
        const struct bundle_kernel *kernel = &bundle_kernels(bundle)[i];
        char unused[FAMILY_REASON_BYTES];
        records[i] = (struct kernel_record){.name = bundle_string(bundle, kernel->name),
                                            .kernel = kernel,
                                            .bundle = bundle,
                                            .family = contract_family(&kernel->contract, unused),
                                            .bundle_rank = (uint32_t)rank};
    }
}

libdecode_status kernel_table_build(struct bundle *const *bundles, size_t num_bundles, struct kernel_table *ret_table) {
    size_t count = 0;
    for (size_t rank = 0; rank < num_bundles; rank++)
        count += bundle_header(bundles[rank])->num_kernels;
    struct kernel_record *records = calloc(count + 1, sizeof *records); /* + 1: never of size 0 */
    struct kernel_record *scratch = malloc((count + 1) * sizeof *scratch);
    uint32_t *gpus = calloc(count + 1, sizeof *gpus);
    size_t *begins = calloc(num_bundles + 1, sizeof *begins);
    libdecode_status status = LIBDECODE_OK;
    if (records && scratch && gpus && begins) {
        for (size_t rank = 0; rank < num_bundles; rank++) {
            list_kernels(bundles[rank], rank, records + begins[rank]);
            begins[rank + 1] = begins[rank] + bundle_header(bundles[rank])->num_kernels;
        }
        merge_bundles(records, begins, 0, num_bundles, scratch);
        *ret_table = (struct kernel_table){.records = records, .gpus = gpus, .count = overlay(records, gpus, count)};
    } else {
        free(records);
        free(gpus);
        status = fail(LIBDECODE_ERROR_OUT_OF_MEMORY, "no memory for a table of %zu kernels; free memory and try again", count);
    }
    free(begins);
    free(scratch);
    return status;
}

void kernel_table_destroy(struct kernel_table *table) {
    free(table->records);
    free(table->gpus);
    *table = (struct kernel_table){0};
}
