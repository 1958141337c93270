/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sparse_mla_decode.c: the loader's half of kernels/families/sparse_mla_decode.cu and _warpgroup.cu: what their contracts may say, which
 * problems they fit, and the parameter block.
 */
#include <string.h>

#include "contract_kv.h"
#include "dtype.h"
#include "family.h"
#include "paged_decode.h"
#include "select.h"
#include "text.h"

typedef struct libdecode_launch_contract contract_t;

_Static_assert(sizeof(struct sparse_mla_decode_params) <= FAMILY_MAX_PARAMETER_BYTES, "raise FAMILY_MAX_PARAMETER_BYTES");
_Static_assert((int)KERNEL_KV_ROW_PLAIN == (int)LIBDECODE_KV_ROW_PLAIN &&
                   (int)KERNEL_KV_ROW_SCALED656 == (int)LIBDECODE_KV_ROW_FP8_SCALED_656 &&
                   (int)KERNEL_KV_ROW_NVFP352 == (int)LIBDECODE_KV_ROW_NVFP4_352,
               "kernels/abi.h and libdecode.h");

enum { BOX_COLUMNS = 64, MAX_PAGE_SIZE = 1 << 20, MAX_Q_LEN = 1024 };
/* The widest tile of single warps; sparse_mla_decode_warpgroup.cu and its like have wider ones. */
enum { MMA_ROWS = 32 };

/* -------------------------------------------------------------------------------------------------------- contracts */

/* Rows that a contract may name: of what elements, and how many. */
static bool has_known_rows(const contract_t *contract) {
    const uint32_t dtype = contract->kv_dtype, dim = contract->head_dim;
    switch (contract->kv_row_format) {
    case KERNEL_KV_ROW_PLAIN:
        return (contract_has_16_bit_kv(contract) || dtype == KERNEL_DTYPE_E4M3) && (dim == 576 || dim == 512 || dim == 320);
    case KERNEL_KV_ROW_SCALED656:
        return dtype == KERNEL_DTYPE_E4M3 && dim == 576;
    case KERNEL_KV_ROW_NVFP352:
        return dtype == KERNEL_DTYPE_NVFP4 && dim == 576;
    default:
        return false;
    }
}

static bool serves(const contract_t *contract, char ret_reason[FAMILY_REASON_BYTES]) {
    const uint32_t box = contract->max_box_tokens;
    if (!has_known_rows(contract))
        text_append(ret_reason, FAMILY_REASON_BYTES, "copies rows of format %u and %u elements of dtype %u",
                    contract->kv_row_format, contract->head_dim, contract->kv_dtype);
    else if ((box & (box - 1)) != 0 || box > contract->tile_tokens)
        text_append(ret_reason, FAMILY_REASON_BYTES, "divides tiles of %u columns by %u", contract->tile_tokens, box);
    else if (contract->cluster_size > 1 && (contract->features & CONTRACT_FEATURE_BATCH_INVARIANT) != 0)
        text_append(ret_reason, FAMILY_REASON_BYTES, "is batch-invariant in clusters of %u", contract->cluster_size);
    else
        return true;
    return false;
}

/* As the Traits of the kernel have it. */
static void narrow(const struct grid_variant *variant, contract_t *contract) {
    (void)variant;
    contract->min_page_size = 1;
    if (contract->cluster_size > 1 || contract->row_tile > MMA_ROWS)
        contract->features &= ~(uint32_t)CONTRACT_FEATURE_BATCH_INVARIANT;
    if (contract->kv_row_format == KERNEL_KV_ROW_SCALED656)
        contract->query_dtypes = 1u << KERNEL_DTYPE_BF16;
    if (contract_has_16_bit_kv(contract)) {
        contract->query_dtypes = 1u << contract->kv_dtype;
        contract->out_dtypes &= 1u << KERNEL_DTYPE_BF16 | 1u << KERNEL_DTYPE_FP16;
    }
}

/* ------------------------------------------------------------------------------------------------------------- axes */

static const char *row_words(uint32_t format) {
    static const char *const words[] = {"plain rows", "rows of 656 bytes", "rows of 352 bytes"};
    return format < sizeof words / sizeof words[0] ? words[format] : "other rows";
}

static bool fits_rows(const struct problem *problem, const contract_t *contract) {
    return contract->head_dim == (uint32_t)problem->qk_dim && contract->kv_row_format == (uint32_t)problem->given.kv_row_format;
}
static void asks_rows(const struct problem *problem, char *text) {
    text_append(text, AXIS_TEXT_BYTES, "%d elements in %s", problem->qk_dim, row_words((uint32_t)problem->given.kv_row_format));
}
static void offers_rows(const contract_t *contract, char *text) {
    text_append(text, AXIS_TEXT_BYTES, "%u elements in %s", contract->head_dim, row_words(contract->kv_row_format));
}
static const struct axis axis_rows = {"row", fits_rows, asks_rows, offers_rows};

static const struct axis *const axes[] = {&axis_sparse,    &axis_query_dtype, &axis_kv_dtype, &axis_out_dtype, &axis_rows,
                                          &axis_page_size, &axis_q_len,       &axis_features, &axis_boxes,     NULL};

/* ------------------------------------------------------------------------------------------------------- parameters */

/*
 * Sequences are query tokens. Where each has a length of its own in memory, the schedule reads these; else it makes them of the
 * request's.
 */
static void describe_sequences(const struct problem *problem, const libdecode_tensors *tensors,
                               struct schedule_params *schedule) {
    const libdecode_problem *given = &problem->given;
    const int32_t *const lens = tensors->sparse_top_k_lens;
    schedule->page_table = NULL;
    schedule->rare &= (uint32_t)SCHEDULE_FIXED_CHUNKS;
    schedule->top_k = given->sparse_top_k;
    schedule->window_reach = INT32_MAX;
    if (tensors->cum_seq_lens_q == NULL && (given->q_len == 1 || lens != NULL)) {
        if (schedule->max_tokens > given->sparse_top_k)
            schedule->max_tokens = given->sparse_top_k;
        schedule->batch_size = given->batch_size * given->q_len;
        schedule->q_len = 1;
        if (lens != NULL) {
            schedule->seq_lens = lens;
            schedule->seq_lens_request_stride = 1;
            schedule->max_tokens = given->sparse_top_k;
        }
    } else {
        schedule->rare |= SCHEDULE_EXACT_RANGES;
        schedule->sequences_per_request = divisor(given->q_len);
        schedule->seq_lens_head_stride = 0;
        schedule->top_k_lens = lens;
    }
}

static struct sparse_params sparse_params(const struct problem *problem, const libdecode_tensors *tensors) {
    const libdecode_problem *given = &problem->given;
    const int bits = dtype_bits(given->kv_dtype);
    const uint64_t tokens = (uint64_t)given->num_pages * (uint64_t)given->page_size;
    return (struct sparse_params){.token_ids = tensors->sparse_token_ids,
                                  .token_ids_stride = given->sparse_token_ids_stride,
                                  .rows = {.rows = tensors->k_cache,
                                           .page_stride = given->k_page_stride / 8 * bits,
                                           .token_stride = given->k_token_stride / 8 * bits},
                                  .page_size = divisor(given->page_size),
                                  .num_tokens = tokens < INT32_MAX ? (uint32_t)tokens : INT32_MAX};
}

static void fill(const struct problem *problem, const struct selection *selection, const libdecode_tensors *tensors,
                 struct kernel_arguments *ret) {
    const libdecode_problem *given = &problem->given;
    struct sparse_mla_decode_params params = {.schedule = paged_schedule_params(problem, selection, tensors),
                                              .query = paged_query_params(problem, tensors),
                                              .output = paged_output_params(problem, tensors),
                                              .records = workspace_part_at(tensors->workspace, &selection->workspace.records),
                                              .scratch = workspace_part_at(tensors->workspace, &selection->workspace.scratch),
                                              .query_rope = tensors->query_rope,
                                              .query_rope_token_stride = given->query_rope_token_stride,
                                              .query_rope_head_stride = given->query_rope_head_stride,
                                              .query_dim = problem->query_dim,
                                              .v_head_dim = problem->v_dim,
                                              .sparse = sparse_params(problem, tensors)};
    describe_sequences(problem, tensors, &params.schedule);
    ret->num_maps = 0;
    memcpy(ret->block, &params, sizeof params);
}

const struct family family_sparse_mla_decode = {
    .number = KERNEL_FAMILY_SPARSE_MLA_DECODE,
    .name = "sparse_mla_decode",
    .op = LIBDECODE_OP_MLA_DECODE,
    .parameter_bytes = sizeof(struct sparse_mla_decode_params),
    .reach = {.query_dtypes = 1u << KERNEL_DTYPE_BF16 | 1u << KERNEL_DTYPE_FP16 | 1u << KERNEL_DTYPE_E4M3,
              .out_dtypes =
                  1u << KERNEL_DTYPE_BF16 | 1u << KERNEL_DTYPE_FP16 | 1u << KERNEL_DTYPE_E4M3 | 1u << KERNEL_DTYPE_NVFP4,
              .max_box_tokens = BOX_COLUMNS,
              .min_page_size = 1,
              .max_page_size = MAX_PAGE_SIZE,
              .max_q_len = MAX_Q_LEN,
              .features = CONTRACT_FEATURE_SINKS | CONTRACT_LSE | CONTRACT_FEATURE_RAGGED_Q | CONTRACT_FEATURE_SOFT_CAP |
                          CONTRACT_FEATURE_BATCH_INVARIANT | CONTRACT_FEATURE_QUERY_ROPE | CONTRACT_FEATURE_SPARSE_TOP_K_LENS,
              .flags = CONTRACT_FLAG_MAY_SPILL | CONTRACT_FLAG_ROW_GATHER},
    .narrow = narrow,
    .serves = serves,
    .axes = axes,
    .row_passes = paged_row_passes,
    .cost = paged_cost,
    .fill = fill,
};
