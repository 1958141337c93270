/* SPDX-License-Identifier: Apache-2.0 */
/*
 * merge_states.c: the loader's half of kernels/families/merge_states.cu. No problem asks for it: libdecode_merge_states launches it
 * (loader/merge.c).
 */
#include "families/merge_states.h"

#include "family.h"

const struct family family_merge_states = {
    .number = KERNEL_FAMILY_MERGE_STATES,
    .name = "merge_states",
    .op = (libdecode_op)0,
    .parameter_bytes = sizeof(struct merge_states_params),
    .reach = {.flags = CONTRACT_FLAG_MAY_SPILL},
};

/* Of a row, that a lane takes at a time; lanes of a warp. */
enum { LANE_ELEMENTS = 8, LOG2_WARP_LANES = 5 };

static const float log2_e = 1.44269504f, ln_2 = 0.693147181f;

uint32_t merge_states_fill(const libdecode_states *states, uint32_t threads, struct merge_states_params *ret_params) {
    const bool is_natural = (states->flags & LIBDECODE_MERGE_LSE_NATURAL) != 0;
    int32_t log2_lanes = 0;
    while (log2_lanes < LOG2_WARP_LANES && states->head_dim > LANE_ELEMENTS << log2_lanes)
        log2_lanes++;
    *ret_params = (struct merge_states_params){
        .partial_out = states->partial_out,
        .partial_lse = states->partial_lse,
        .state_offsets = states->state_offsets,
        .token_mask = states->token_mask,
        .out = states->out,
        .lse = states->lse,
        .partial_state_stride = states->partial_state_stride,
        .partial_token_stride = states->partial_token_stride,
        .partial_head_stride = states->partial_head_stride,
        .partial_lse_state_stride = states->partial_lse_state_stride,
        .partial_lse_token_stride = states->partial_lse_token_stride,
        .partial_lse_head_stride = states->partial_lse_head_stride,
        .out_token_stride = states->out_token_stride,
        .out_head_stride = states->out_head_stride,
        .lse_token_stride = states->lse_token_stride,
        .lse_head_stride = states->lse_head_stride,
        .num_heads = divisor(states->num_heads),
        .num_rows = (uint32_t)states->num_tokens * (uint32_t)states->num_heads,
        .num_states = states->num_states,
        .head_dim = states->head_dim,
        .log2_lanes = log2_lanes,
        .dtype = (int32_t)states->dtype,
        .out_dtype = (int32_t)states->out_dtype,
        .lse_to_log2 = is_natural ? log2_e : 1.0f,
        .log2_to_lse = is_natural ? ln_2 : 1.0f,
    };
    const uint32_t rows_of_cta = threads >> log2_lanes;
    return (ret_params->num_rows + rows_of_cta - 1) / rows_of_cta;
}
