/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gqa_decode.c: the loader's half of kernels/families/gqa_decode.cu: what its contracts may say, which problems they fit, what a
 * launch costs, and the parameter block.
 */
#include <string.h>

#include "contract_kv.h"
#include "dtype.h"
#include "element.h"
#include "family.h"
#include "paged_decode.h"
#include "select.h"
#include "text.h"

typedef struct libdecode_launch_contract contract_t;

_Static_assert(sizeof(struct gqa_decode_params) <= FAMILY_MAX_PARAMETER_BYTES, "raise FAMILY_MAX_PARAMETER_BYTES");

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* -------------------------------------------------------------------------------------------------------- contracts */

static bool serves(const contract_t *contract, char ret_reason[FAMILY_REASON_BYTES]) {
    uint32_t box = contract->max_box_tokens;
    uint32_t least_page_size = contract_copies_rows(contract) ? 1 : PAGED_MIN_BOX_TOKENS;
    if (!is_kernel_head_dim(contract->head_dim) || !tensor_map_serves(contract->kv_dtype, contract->head_dim))
        text_append(ret_reason, FAMILY_REASON_BYTES, "copies KV rows of %u elements of dtype %u", contract->head_dim,
                    contract->kv_dtype);
    else if (box > TENSOR_MAP_MAX_BOX || (box & (box - 1)) != 0 || box > contract->tile_tokens)
        text_append(ret_reason, FAMILY_REASON_BYTES, "copies boxes of %u tokens to tiles of %u", box, contract->tile_tokens);
    else if (contract->min_page_size < least_page_size)
        text_append(ret_reason, FAMILY_REASON_BYTES, "copies boxes of pages of %u tokens", contract->min_page_size);
    else if (contract->cluster_size > 1 && (contract->features & CONTRACT_FEATURE_BATCH_INVARIANT) != 0)
        text_append(ret_reason, FAMILY_REASON_BYTES, "is batch-invariant in clusters of %u", contract->cluster_size);
    else if (contract->scratch_bytes > 0 && (contract->features & CONTRACT_FEATURE_BATCH_INVARIANT) != 0)
        text_append(ret_reason, FAMILY_REASON_BYTES, "is batch-invariant with scratch of %u bytes", contract->scratch_bytes);
    else
        return true;
    return false;
}

/* Of CONTRACT_OPTIONS, by the axis in kernels/families/gqa_decode.toml. */
static uint32_t features_of_options(uint16_t options) {
    switch (options) {
    case 1:
        return CONTRACT_OPTIONS;
    case 3:
        return CONTRACT_OPTIONS & ~(uint32_t)CONTRACT_FEATURE_ROPE;
    case 4:
        return CONTRACT_FEATURE_ROPE;
    default:
        return 0;
    }
}

/* As the Traits of the kernel have it. */
static void narrow(const struct grid_variant *variant, contract_t *contract) {
    const bool is_16_bit = contract_has_16_bit_kv(contract);
    const bool has_no_room = variant->target == 120 && contract->head_dim > 256 && !is_16_bit;
    const bool has_no_registers =
        variant->target == 90 && contract->row_tile == 32 && contract->min_page_size < PAGED_MIN_BOX_TOKENS && is_16_bit;
    contract->features &= ~(uint32_t)CONTRACT_OPTIONS | features_of_options(variant->options);
    if (variant->options != 4)
        contract->flags &= ~(uint32_t)CONTRACT_FLAG_ONLY_ROPE;
    if (variant->options != 2) {
        contract->features &= ~(uint32_t)CONTRACT_OFFSETS;
        contract->flags &= ~(uint32_t)CONTRACT_FLAG_ANY_ROWS;
    }
    if (has_no_room || has_no_registers)
        contract->features &= ~(uint32_t)CONTRACT_FEATURE_ROPE;
    if (is_16_bit) {
        contract->query_dtypes = 1u << contract->kv_dtype;
        contract->out_dtypes &= 1u << KERNEL_DTYPE_BF16 | 1u << KERNEL_DTYPE_FP16;
    }
    if (contract->cluster_size > 1 || contract->row_tile > 32)
        contract->features &= ~(uint32_t)CONTRACT_FEATURE_BATCH_INVARIANT;
    if (contract->head_dim / contract->cluster_size < NVFP4_BLOCK)
        contract->out_dtypes &= ~(1u << KERNEL_DTYPE_NVFP4);
    if (contract->min_page_size >= PAGED_MIN_BOX_TOKENS) {
        contract->flags &= ~(uint32_t)(CONTRACT_FLAG_ROW_GATHER | CONTRACT_FLAG_ANY_ROWS);
        contract->features &= ~(uint32_t)CONTRACT_FEATURE_KV_OFFSETS;
    } else {
        contract->max_box_tokens = PAGED_MIN_BOX_TOKENS;
        if (variant->options != 2)
            contract->features &= ~(uint32_t)CONTRACT_FEATURE_CONTIGUOUS_KV; /* boxes find those rows */
    }
}

/* ------------------------------------------------------------------------------------------------------------- axes */

static const struct axis *const axes[] = {&axis_query_dtype,  &axis_kv_dtype,   &axis_out_dtype, &axis_head_dim,
                                          &axis_page_size,    &axis_q_len,      &axis_features,  &axis_rotation,
                                          &axis_draft_tokens, &axis_kv_strides, &axis_boxes,     NULL};

/* ------------------------------------------------------------------------------------------------------- parameters */

static struct paged_cache paged_cache(const struct problem *problem, const contract_t *contract) {
    const libdecode_problem *given = &problem->given;
    return (struct paged_cache){.dtype = given->kv_dtype,
                                .head_dim = given->head_dim,
                                .page_size = given->page_size > 0 ? given->page_size : 1,
                                .num_kv_heads = given->num_kv_heads,
                                .num_pages = given->num_pages,
                                .kernel_head_dim = contract->head_dim,
                                .box_tokens = paged_box_tokens(problem, contract)};
}

static struct tensor_map *add_map(struct kernel_arguments *arguments, size_t offset) {
    arguments->maps[arguments->num_maps].offset = offset;
    return &arguments->maps[arguments->num_maps++].map;
}

/* Rows of no tokens may have no address. Nothing is copied through their map, in which a driver may want one: any that is as aligned. */
static const void *map_address(const void *rows, const libdecode_tensors *tensors) {
    return rows != NULL ? rows : tensors->query;
}

/* Returns the copies that a box of rows takes, alike for K and V. */
static int32_t map_rows(const struct problem *problem, const contract_t *contract, const libdecode_tensors *tensors,
                        struct kernel_arguments *ret) {
    const libdecode_problem *given = &problem->given;
    struct paged_cache k = paged_cache(problem, contract), v = k;
    k.address = map_address(tensors->k_cache, tensors);
    k.page_stride = given->k_page_stride;
    k.head_stride = given->k_head_stride;
    k.token_stride = given->k_token_stride;
    v.address = map_address(tensors->v_cache, tensors);
    v.page_stride = given->v_page_stride;
    v.head_stride = given->v_head_stride;
    v.token_stride = given->v_token_stride;
    (void)tensor_map_of_pages(&k, add_map(ret, offsetof(struct gqa_decode_params, k_map)));
    return tensor_map_of_pages(&v, add_map(ret, offsetof(struct gqa_decode_params, v_map)));
}

/* Strides of KV are given in elements. */
static int64_t row_bytes(libdecode_dtype dtype, int64_t elements) { return (int64_t)element_bytes(dtype, elements); }

/*
 * Whether one copy, of multiples of 16 bytes, can bring the scales of a box: those of a page's tokens lie without a gap, and the page
 * is whole boxes.
 */
static bool has_scale_blocks(const struct problem *problem, const contract_t *contract) {
    const libdecode_problem *given = &problem->given;
    const uint32_t kernel_head_dim = contract->head_dim;
    const int64_t row = kernel_head_dim / 16;
    if (problem_is_contiguous(given) && (uint32_t)given->page_size % paged_box_tokens(problem, contract) != 0)
        return false;
    const int64_t strides = given->k_sf_page_stride | given->v_sf_page_stride | given->k_sf_head_stride | given->v_sf_head_stride;
    return given->kv_dtype == LIBDECODE_DTYPE_NVFP4 && given->head_dim == (int32_t)kernel_head_dim &&
           given->k_sf_token_stride == row && given->v_sf_token_stride == row && strides % 16 == 0;
}

/* What a kernel that gathers rows needs instead of maps, and of NVFP4 every kernel beside them. */
static void name_rows(const struct problem *problem, const contract_t *contract, const libdecode_tensors *tensors,
                      struct gqa_decode_params *params) {
    const libdecode_problem *given = &problem->given;
    libdecode_dtype dtype = given->kv_dtype;
    params->num_pages = given->num_pages > 0 ? (int32_t)smaller(given->num_pages, INT32_MAX) : INT32_MAX;
    params->k_rows = (struct row_source){tensors->k_cache, row_bytes(dtype, given->k_page_stride),
                                         row_bytes(dtype, given->k_head_stride), row_bytes(dtype, given->k_token_stride)};
    params->v_rows = (struct row_source){tensors->v_cache, row_bytes(dtype, given->v_page_stride),
                                         row_bytes(dtype, given->v_head_stride), row_bytes(dtype, given->v_token_stride)};
    params->k_scales =
        (struct row_source){tensors->k_sf, given->k_sf_page_stride, given->k_sf_head_stride, given->k_sf_token_stride};
    params->v_scales =
        (struct row_source){tensors->v_sf, given->v_sf_page_stride, given->v_sf_head_stride, given->v_sf_token_stride};
    params->scale_blocks = has_scale_blocks(problem, contract);
    params->v_scales_interleaved = given->v_sf_layout == LIBDECODE_SF_V_INTERLEAVE4;
    params->query_offsets = tensors->query_offsets;
    params->out_offsets = tensors->out_offsets;
    params->k_offsets = tensors->k_offsets;
    params->v_offsets = tensors->v_offsets;
}

static void fill(const struct problem *problem, const struct selection *selection, const libdecode_tensors *tensors,
                 struct kernel_arguments *ret) {
    const contract_t *contract = &selection->record->kernel->contract;
    struct gqa_decode_params params = {.schedule = paged_schedule_params(problem, selection, tensors),
                                       .query = paged_query_params(problem, tensors),
                                       .output = paged_output_params(problem, tensors),
                                       .records = workspace_part_at(tensors->workspace, &selection->workspace.records),
                                       .scratch = workspace_part_at(tensors->workspace, &selection->workspace.scratch)};
    ret->num_maps = 0;
    params.schedule.copies_per_box = contract_copies_rows(contract) ? 1 : map_rows(problem, contract, tensors, ret);
    name_rows(problem, contract, tensors, &params);
    memcpy(ret->block, &params, sizeof params);
}

#define FEATURES                                                                                                                 \
    (CONTRACT_FEATURE_WINDOW | CONTRACT_FEATURE_SINKS | CONTRACT_LSE | CONTRACT_FEATURE_RAGGED_Q | CONTRACT_FEATURE_DRAFT_MASK | \
     CONTRACT_FEATURE_V_PAGE_TABLE | CONTRACT_FEATURE_QUERY_POSITIONS | CONTRACT_FEATURE_SKIP_SOFTMAX |                          \
     CONTRACT_FEATURE_SOFT_CAP | CONTRACT_FEATURE_ALIBI | CONTRACT_FEATURE_LSE_ALIBI_FROM_ZERO | CONTRACT_FEATURE_ROPE |         \
     CONTRACT_FEATURE_BATCH_INVARIANT | CONTRACT_FEATURE_CONTIGUOUS_KV | CONTRACT_FEATURE_QUERY_OFFSETS |                        \
     CONTRACT_FEATURE_KV_OFFSETS)

const struct family family_gqa_decode = {
    .number = KERNEL_FAMILY_GQA_DECODE,
    .name = "gqa_decode",
    .op = LIBDECODE_OP_BATCH_DECODE,
    .parameter_bytes = sizeof(struct gqa_decode_params),
    .reach = {.query_dtypes = 1u << KERNEL_DTYPE_BF16 | 1u << KERNEL_DTYPE_FP16 | 1u << KERNEL_DTYPE_E4M3,
              .out_dtypes =
                  1u << KERNEL_DTYPE_BF16 | 1u << KERNEL_DTYPE_FP16 | 1u << KERNEL_DTYPE_E4M3 | 1u << KERNEL_DTYPE_NVFP4,
              .max_box_tokens = TENSOR_MAP_MAX_BOX,
              .min_page_size = 1,
              .max_page_size = 1024,
              .max_q_len = 1024,
              .features = FEATURES,
              .flags = CONTRACT_FLAG_MAY_SPILL | CONTRACT_FLAG_ROW_GATHER | CONTRACT_FLAG_ANY_ROWS | CONTRACT_FLAG_ONLY_ROPE},
    .narrow = narrow,
    .serves = serves,
    .axes = axes,
    .row_passes = paged_row_passes,
    .cost = paged_cost,
    .fill = fill,
};

/* kernels/families/page_ceiling.cu: no problem asks for it; `libdecode bench` launches it with the plan of a kernel of the same axes. */
const struct family family_page_ceiling = {
    .number = KERNEL_FAMILY_PAGE_CEILING,
    .name = "page_ceiling",
    .op = (libdecode_op)0,
    .parameter_bytes = sizeof(struct gqa_decode_params),
    .reach = {.features = FEATURES, .flags = CONTRACT_FLAG_MAY_SPILL | CONTRACT_FLAG_ROW_GATHER},
    .fill = fill,
};
