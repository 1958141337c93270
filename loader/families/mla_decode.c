/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mla_decode.c: the loader's half of kernels/families/mla_decode.cu: what its contracts may say, which problems they fit, and the
 * parameter block.
 */
#include <string.h>

#include "contract_kv.h"
#include "family.h"
#include "paged_decode.h"
#include "select.h"
#include "text.h"

typedef struct libdecode_launch_contract contract_t;

_Static_assert(sizeof(struct mla_decode_params) <= FAMILY_MAX_PARAMETER_BYTES, "raise FAMILY_MAX_PARAMETER_BYTES");

/* -------------------------------------------------------------------------------------------------------- contracts */

static bool serves(const contract_t *contract, char ret_reason[FAMILY_REASON_BYTES]) {
    uint32_t box = contract->max_box_tokens;
    if ((contract->head_dim != 576 && contract->head_dim != 320) || contract->kv_dtype == KERNEL_DTYPE_NVFP4 ||
        contract->kv_dtype == KERNEL_DTYPE_E5M2 || !tensor_map_serves(contract->kv_dtype, contract->head_dim))
        text_append(ret_reason, FAMILY_REASON_BYTES, "copies latent rows of %u elements of dtype %u", contract->head_dim,
                    contract->kv_dtype);
    else if (box > TENSOR_MAP_MAX_BOX || (box & (box - 1)) != 0 || box > contract->tile_tokens)
        text_append(ret_reason, FAMILY_REASON_BYTES, "copies boxes of %u tokens to tiles of %u", box, contract->tile_tokens);
    else if (contract->min_page_size < PAGED_MIN_BOX_TOKENS)
        text_append(ret_reason, FAMILY_REASON_BYTES, "copies boxes of pages of %u tokens", contract->min_page_size);
    else if (contract->cluster_size > 1 && (contract->features & CONTRACT_FEATURE_BATCH_INVARIANT) != 0)
        text_append(ret_reason, FAMILY_REASON_BYTES, "is batch-invariant in clusters of %u", contract->cluster_size);
    else
        return true;
    return false;
}

/* As the Traits of the kernel have it. */
static void narrow(const struct grid_variant *variant, contract_t *contract) {
    (void)variant;
    contract->min_page_size = PAGED_MIN_BOX_TOKENS;
    if (contract_has_16_bit_kv(contract)) {
        contract->query_dtypes = 1u << contract->kv_dtype;
        contract->out_dtypes &= 1u << KERNEL_DTYPE_BF16 | 1u << KERNEL_DTYPE_FP16;
    }
    if (contract->cluster_size > 1)
        contract->features &= ~(uint32_t)CONTRACT_FEATURE_BATCH_INVARIANT;
}

/* ------------------------------------------------------------------------------------------------------------- axes */

static bool fits_head_dim(const struct problem *problem, const contract_t *contract) {
    return contract->head_dim == (uint32_t)problem->qk_dim;
}
static void asks_head_dim(const struct problem *problem, char *text) {
    text_append(text, AXIS_TEXT_BYTES, "%d", problem->qk_dim);
}
static void offers_head_dim(const contract_t *contract, char *text) {
    text_append(text, AXIS_TEXT_BYTES, "%u", contract->head_dim);
}
static const struct axis axis_latent_head_dim = {"head_dim", fits_head_dim, asks_head_dim, offers_head_dim};

static const struct axis *const axes[] = {&axis_sparse,          &axis_query_dtype, &axis_kv_dtype, &axis_out_dtype,
                                          &axis_latent_head_dim, &axis_page_size,   &axis_q_len,    &axis_features,
                                          &axis_draft_tokens,    &axis_kv_strides,  &axis_boxes,    NULL};

/* ------------------------------------------------------------------------------------------------------- parameters */

/* Returns the copies that a box of rows takes. */
static int32_t map_rows(const struct problem *problem, const contract_t *contract, const libdecode_tensors *tensors,
                        struct kernel_arguments *ret) {
    const libdecode_problem *given = &problem->given;
    const struct paged_cache cache = {.address = tensors->k_cache,
                                      .dtype = given->kv_dtype,
                                      .head_dim = given->head_dim,
                                      .page_size = given->page_size,
                                      .num_kv_heads = given->num_kv_heads,
                                      .num_pages = given->num_pages,
                                      .page_stride = given->k_page_stride,
                                      .head_stride = given->k_head_stride,
                                      .token_stride = given->k_token_stride,
                                      .kernel_head_dim = contract->head_dim,
                                      .line_by_line = (contract->flags & CONTRACT_FLAG_LINE_COPIES) != 0,
                                      .box_tokens = paged_box_tokens(problem, contract)};
    ret->num_maps = 1;
    ret->maps[0].offset = offsetof(struct mla_decode_params, map);
    return tensor_map_of_pages(&cache, &ret->maps[0].map);
}

static void fill(const struct problem *problem, const struct selection *selection, const libdecode_tensors *tensors,
                 struct kernel_arguments *ret) {
    const libdecode_problem *given = &problem->given;
    struct mla_decode_params params = {.schedule = paged_schedule_params(problem, selection, tensors),
                                       .query = paged_query_params(problem, tensors),
                                       .output = paged_output_params(problem, tensors),
                                       .records = workspace_part_at(tensors->workspace, &selection->workspace.records),
                                       .scratch = workspace_part_at(tensors->workspace, &selection->workspace.scratch),
                                       .query_rope = tensors->query_rope,
                                       .query_rope_token_stride = given->query_rope_token_stride,
                                       .query_rope_head_stride = given->query_rope_head_stride,
                                       .query_dim = problem->query_dim,
                                       .v_head_dim = problem->v_dim};
    params.schedule.copies_per_box = map_rows(problem, &selection->record->kernel->contract, tensors, ret);
    memcpy(ret->block, &params, sizeof params);
}

const struct family family_mla_decode = {
    .number = KERNEL_FAMILY_MLA_DECODE,
    .name = "mla_decode",
    .op = LIBDECODE_OP_MLA_DECODE,
    .parameter_bytes = sizeof(struct mla_decode_params),
    .reach = {.query_dtypes = 1u << KERNEL_DTYPE_BF16 | 1u << KERNEL_DTYPE_FP16 | 1u << KERNEL_DTYPE_E4M3,
              .out_dtypes =
                  1u << KERNEL_DTYPE_BF16 | 1u << KERNEL_DTYPE_FP16 | 1u << KERNEL_DTYPE_E4M3 | 1u << KERNEL_DTYPE_NVFP4,
              .max_box_tokens = TENSOR_MAP_MAX_BOX,
              .min_page_size = PAGED_MIN_BOX_TOKENS,
              .max_page_size = 1024,
              .max_q_len = 1024,
              .features = CONTRACT_FEATURE_WINDOW | CONTRACT_FEATURE_SINKS | CONTRACT_LSE | CONTRACT_FEATURE_RAGGED_Q |
                          CONTRACT_FEATURE_DRAFT_MASK | CONTRACT_FEATURE_QUERY_POSITIONS | CONTRACT_FEATURE_SKIP_SOFTMAX |
                          CONTRACT_FEATURE_SOFT_CAP | CONTRACT_FEATURE_BATCH_INVARIANT | CONTRACT_FEATURE_QUERY_ROPE,
              .flags = CONTRACT_FLAG_MAY_SPILL | CONTRACT_FLAG_LINE_COPIES},
    .narrow = narrow,
    .serves = serves,
    .axes = axes,
    .row_passes = paged_row_passes,
    .cost = paged_cost,
    .fill = fill,
};
