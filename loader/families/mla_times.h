/* SPDX-License-Identifier: Apache-2.0 */
/* mla_times.h: what the kernels of MLA take. See mla_times.c. */
#ifndef LIBDECODE_MLA_TIMES_H
#define LIBDECODE_MLA_TIMES_H

#include <stdint.h>

#include "abi.h"
#include "problem.h"

/* What it takes where workers share a unit: beside what cost.c counts, for each of them, and where cuts lie beside the ends of units. */
struct mla_sharing {
    int64_t split_ns, part_ns, uneven_ns;
};

/* What an MLA kernel takes. */
struct mla_times {
    int64_t tile_ps;                                                             /* of a tile, beside its tokens */
    int64_t token_16_bit_ps, token_fp8_ps, token_scaled656_ps, token_nvfp352_ps; /* 576 elements; others in proportion */
    struct mla_sharing alone, in_cluster; /* of a CTA alone; of a cluster, whose CTAs have a part of it each */
    int64_t unit_ns;                      /* of whatever worker */
};

/* All zeros where the problem is none of MLA. */
const struct mla_times *mla_times_of(const struct problem *problem, const struct libdecode_launch_contract *contract);
/* Of one of its tokens and a pass over the rows. */
int64_t mla_token_ps(const struct problem *problem, const struct libdecode_launch_contract *contract);
/* Where workers of a kernel with that cluster size share a unit. */
struct mla_sharing mla_sharing_of(const struct mla_times *times, int64_t cluster_size);

#endif
