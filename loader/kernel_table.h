/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel_table.c: the bundles of a context in, one table of all their kernels out. Before: bundle.c opened them. Next: select.c
 * looks through the table.
 */
#ifndef LIBDECODE_KERNEL_TABLE_H
#define LIBDECODE_KERNEL_TABLE_H

#include "bundle.h"

struct family;

/* One kernel as selection sees it. */
struct kernel_record {
    const char *name;
    const struct bundle_kernel *kernel;
    const struct bundle *bundle;
    const struct family *family; /* that launches it; NULL: none of this library, contract_family says why */
    uint32_t bundle_rank;        /* higher overlays lower */
};

/*
 * All kernels of all bundles, sorted by name, then rank descending. Overlays merge: a newer bundle's kernel hides an older
 * one only if name and GPU are the same, per GPU. (The record keeps in `gpus` the GPUs that it still serves.)
 */
struct kernel_table {
    struct kernel_record *records;
    uint32_t *gpus; /* per record, after overlaying; never 0 */
    size_t count;
};
libdecode_status kernel_table_build(struct bundle *const *bundles, size_t num_bundles, struct kernel_table *ret_table);
void kernel_table_destroy(struct kernel_table *table);

#endif
