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
    struct kernel_index *index;
};
libdecode_status kernel_table_build(struct bundle *const *bundles, size_t num_bundles, struct kernel_table *ret_table);
void kernel_table_destroy(struct kernel_table *table);

/* What a problem and a GPU fix: a kernel that says otherwise cannot do it. */
struct kernel_key {
    libdecode_op op;
    uint32_t kv_dtype, head_dim; /* as contracts have them */
    uint32_t gpu;                /* one bit */
};
/* The records of that key by their places in the table, and perhaps a few others. Costs the same however long the table is. */
size_t kernel_table_candidates(const struct kernel_table *table, const struct kernel_key *key, const uint32_t **ret_places);

/* The kernel of a family that no problem asks for, for the GPU of that bit; NULL: there is none. */
const struct kernel_record *kernel_table_find(const struct kernel_table *table, const struct family *family, uint32_t gpu);

/* The index over records and gpus that are there: the last step of kernel_table_build. Error: OUT_OF_MEMORY. */
libdecode_status kernel_index_create(const struct kernel_table *table, struct kernel_index **ret_index);
void kernel_index_destroy(struct kernel_index *index);

#endif
