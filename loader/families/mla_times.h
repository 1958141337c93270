/* SPDX-License-Identifier: Apache-2.0 */
/* mla_times.h: what the kernels of MLA take. See mla_times.c. */
#ifndef LIBDECODE_MLA_TIMES_H
#define LIBDECODE_MLA_TIMES_H

#include <stdint.h>

#include "abi.h"
#include "problem.h"

/* What an MLA kernel takes for a problem. */
struct mla_times {
    int64_t token_ps; /* of one of its tokens and a pass over the rows */
    int64_t unit_ns;  /* of whatever worker */
    /* Where workers share a unit: beside what cost.c counts, for each of them, and where cuts lie beside the ends of units. */
    int64_t split_ns, part_ns, uneven_ns;
};

/* All zeros where the problem is none of MLA. */
struct mla_times mla_times_of(const struct problem *problem, const struct libdecode_launch_contract *contract);

#endif
