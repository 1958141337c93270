/* SPDX-License-Identifier: Apache-2.0 */
/*
 * grid.c: every kernel variant that libdecode can be built with, whatever this build or the bundles at hand hold: kernels/
 * families' .toml files, as gen/grid.py writes them for the compiler. So a refusal knows whether another bundle would help.
 */
#ifndef LIBDECODE_GRID_H
#define LIBDECODE_GRID_H

#include <stddef.h>
#include <stdint.h>

#include "abi.h"

/* One variant: the axes of every family, under the names that they have in the contract. */
struct grid_variant {
    uint16_t family; /* KERNEL_FAMILY_* */
    uint16_t target; /* 90, 100, 120 */
    uint16_t kv_dtype, head_dim, row_tile, min_page_size, cluster_size, options, kv_row_format;
};

const struct grid_variant *grid_variants(size_t *ret_count);

/* As much of the variant's contract as a problem is judged by: its axes, and beside them the reach of its family. */
struct libdecode_launch_contract grid_contract(const struct grid_variant *variant);

#endif
