/* SPDX-License-Identifier: Apache-2.0 */
/*
 * paged_decode.c: what the families that decode over a paged cache share: how a problem is cut into units, the axes that follow, its
 * workload, and the sub-structs of their parameter blocks (kernels/abi.h).
 */
#ifndef LIBDECODE_PAGED_DECODE_H
#define LIBDECODE_PAGED_DECODE_H

#include "abi.h"
#include "axis.h"
#include "cost.h"
#include "problem.h"

struct selection;

/* What one matrix instruction takes, which never straddles a box. */
enum { PAGED_MIN_BOX_TOKENS = 16 };

/* The units of a problem: requests, KV heads as the schedule counts them, and passes over the rows of each. */
struct paged_units {
    int32_t num_kv_heads;
    int32_t heads_per_sequence; /* of those, that share an entry of seq_lens */
    int32_t group_size;         /* query heads of each */
    int64_t row_passes;         /* of each */
};
struct paged_units paged_units(const struct problem *problem, const struct libdecode_launch_contract *contract);

/* Of all passes over the rows of the cache. */
int64_t paged_row_passes(const struct problem *problem, const struct libdecode_launch_contract *contract);

/* KV tokens that the schedule counts as one. */
uint32_t paged_box_tokens(const struct problem *problem, const struct libdecode_launch_contract *contract);

extern const struct axis axis_kv_strides, axis_boxes, axis_draft_tokens, axis_sparse;

/* What cost.c is asked about. */
bool paged_cost(const struct problem *problem, const libdecode_device *device, const struct libdecode_launch_contract *contract,
                struct cost *ret_cost);

/* All of schedule_params but copies_per_box. */
struct schedule_params paged_schedule_params(const struct problem *problem, const struct selection *selection,
                                             const libdecode_tensors *tensors);
struct query_params paged_query_params(const struct problem *problem, const libdecode_tensors *tensors);
struct output_params paged_output_params(const struct problem *problem, const libdecode_tensors *tensors);

#endif
