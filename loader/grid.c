/* SPDX-License-Identifier: Apache-2.0 */
/* grid.c: the variants of all families. Before: gen/grid.py wrote grid_table.inc. Next: refusal.c, and select.c when strict. */
#include "grid.h"

#include "family.h"

static const struct grid_variant variants[] = {
#include "grid_table.inc"
};

const struct grid_variant *grid_variants(size_t *ret_count) {
    *ret_count = sizeof variants / sizeof variants[0];
    return variants;
}

struct libdecode_launch_contract grid_contract(const struct grid_variant *variant) {
    const struct family *family = family_find(variant->family);
    struct libdecode_launch_contract contract = family->reach;
    contract.family = variant->family;
    contract.kv_dtype = variant->kv_dtype;
    contract.head_dim = variant->head_dim;
    contract.row_tile = variant->row_tile;
    contract.min_page_size = variant->min_page_size;
    contract.cluster_size = variant->cluster_size;
    contract.kv_row_format = variant->kv_row_format;
    if (family->narrow)
        family->narrow(variant, &contract);
    return contract;
}
