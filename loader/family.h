/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The row that every kernel family fills, and the list of the rows. What differs between families stands in families/X.c, the
 * twin of kernels/families/X.cu; every other file looks a family up here and names none. A row is tables and arithmetic: no
 * CUDA call, no allocation. A new family is these two files, a block in kernels/abi.h, and a line in family.c.
 */
#ifndef LIBDECODE_FAMILY_H
#define LIBDECODE_FAMILY_H

#include <stdbool.h>

#include "abi.h"
#include "axis.h"
#include "cost.h"
#include "grid.h"
#include "problem.h"
#include "tensor_map.h"

struct selection;

#define FAMILY_REASON_BYTES 120
#define FAMILY_MAX_AXES 16
#define FAMILY_MAX_MAPS 4
#define FAMILY_MAX_PARAMETER_BYTES 1024

/* What a launch hands to the kernel: its parameter block, and the maps that are to be encoded into it. */
struct kernel_arguments {
    _Alignas(64) unsigned char block[FAMILY_MAX_PARAMETER_BYTES]; /* family.parameter_bytes of it */
    size_t num_maps;
    struct {
        struct tensor_map map;
        size_t offset; /* of its libdecode_tensor_map in the block */
    } maps[FAMILY_MAX_MAPS];
};

struct family {
    uint32_t number;        /* KERNEL_FAMILY_* */
    const char *name;       /* its kernels are called NAME_... */
    libdecode_op op;        /* what its kernels compute; 0: nothing that a problem can ask for, so that what follows is empty */
    size_t parameter_bytes; /* of its block in kernels/abi.h */

    /*
     * The widest contract that `fill` can serve: features, query_dtypes, out_dtypes and flags with every bit it knows, max_q_len and box at
     * their largest. What the axes of the grid decide (dtypes, head_dim, row tile, cluster) is left 0.
     */
    struct libdecode_launch_contract reach;
    /* `contract` has the reach, and the axes of the variant; narrows the reach to what a kernel of those axes does. */
    void (*narrow)(const struct grid_variant *variant, struct libdecode_launch_contract *contract);
    /* What `reach` cannot say: whether `fill` can serve these dtypes and sizes. If not, words why, unless `ret_reason` is NULL. */
    bool (*serves)(const struct libdecode_launch_contract *contract, char ret_reason[FAMILY_REASON_BYTES]);

    /* What a problem asks of a contract, in the order of messages; NULL ends it. */
    const struct axis *const *axes;
    /* Passes over the KV that the problem takes with a kernel of this contract. */
    int64_t (*row_passes)(const struct problem *problem, const struct libdecode_launch_contract *contract);
    /* How the kernel would be launched, and how long it would take. False: the device has no room for a single worker. */
    bool (*cost)(const struct problem *problem, const libdecode_device *device, const struct libdecode_launch_contract *contract,
                 struct cost *ret_cost);
    /* `ret->block` is zeroed. */
    void (*fill)(const struct problem *problem, const struct selection *selection, const libdecode_tensors *tensors,
                 struct kernel_arguments *ret);
};

/* For a parameter block; `value` is at least 1. */
static inline struct libdecode_divisor divisor(int32_t value) {
    return (struct libdecode_divisor){.value = (uint32_t)value, .reciprocal = UINT32_MAX / (uint32_t)value};
}

/* NULL: this library knows no family of that number. */
const struct family *family_find(uint32_t number);

extern const struct family family_gqa_decode, family_mla_decode, family_sparse_mla_decode, family_merge_states,
    family_read_ceiling, family_late_copy, family_page_ceiling;

#endif
