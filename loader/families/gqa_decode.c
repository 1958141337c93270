/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gqa_decode.c: the loader's half of kernels/families/gqa_decode.cu: what its contracts may say, which problems they fit, what a
 * launch costs, and the parameter block.
 */
#include <string.h>

#include "element.h"
#include "family.h"
#include "select.h"
#include "text.h"

typedef struct libdecode_launch_contract contract_t;

_Static_assert(sizeof(struct gqa_decode_params) <= FAMILY_MAX_PARAMETER_BYTES, "raise FAMILY_MAX_PARAMETER_BYTES");

static const double log2_e = 1.4426950408889634074, ln_2 = 0.69314718055994530942;

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t quotient_up(int64_t dividend, int64_t divisor) { return dividend / divisor + (dividend % divisor != 0); }

/* -------------------------------------------------------------------------------------------------------- contracts */

/* What one matrix instruction takes, which never straddles a box. */
enum { MIN_BOX_TOKENS = 16 };

static bool gathers_rows(const contract_t *contract) { return (contract->flags & CONTRACT_FLAG_ROW_GATHER) != 0; }

static bool serves(const contract_t *contract, char ret_reason[FAMILY_REASON_BYTES]) {
    uint32_t box = contract->max_box_tokens;
    uint32_t least_page_size = gathers_rows(contract) ? 1 : MIN_BOX_TOKENS;
    if (!is_kernel_head_dim(contract->head_dim) || !tensor_map_serves(contract->kv_dtype, contract->head_dim))
        text_append(ret_reason, FAMILY_REASON_BYTES, "copies KV rows of %u elements of dtype %u", contract->head_dim,
                    contract->kv_dtype);
    else if (box > TENSOR_MAP_MAX_BOX || (box & (box - 1)) != 0 || box > contract->tile_tokens)
        text_append(ret_reason, FAMILY_REASON_BYTES, "copies boxes of %u tokens to tiles of %u", box, contract->tile_tokens);
    else if (contract->min_page_size < least_page_size)
        text_append(ret_reason, FAMILY_REASON_BYTES, "copies boxes of pages of %u tokens", contract->min_page_size);
    else if (contract->cluster_size > 1 && (contract->features & CONTRACT_FEATURE_BATCH_INVARIANT) != 0)
        text_append(ret_reason, FAMILY_REASON_BYTES, "is batch-invariant in clusters of %u", contract->cluster_size);
    else
        return true;
    return false;
}

/* As the Traits of the kernel have it. */
static void narrow(const struct grid_variant *variant, contract_t *contract) {
    const bool is_16_bit = contract->kv_dtype == KERNEL_DTYPE_BF16 || contract->kv_dtype == KERNEL_DTYPE_FP16;
    const bool has_no_room = variant->target == 120 && contract->head_dim > 256 && !is_16_bit;
    const bool has_no_registers =
        variant->target == 90 && contract->row_tile == 32 && contract->min_page_size < MIN_BOX_TOKENS && is_16_bit;
    if (variant->options == 0)
        contract->features &= ~(uint32_t)CONTRACT_OPTIONS;
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
    if (contract->min_page_size >= MIN_BOX_TOKENS)
        contract->flags &= ~(uint32_t)CONTRACT_FLAG_ROW_GATHER;
    else
        contract->max_box_tokens = MIN_BOX_TOKENS;
}

/* ------------------------------------------------------------------------------------------------------------- axes */

static int64_t longest_kv_stride_bytes(const struct problem *problem) {
    const libdecode_problem *given = &problem->given;
    const int64_t strides[] = {given->k_page_stride, given->k_head_stride, given->k_token_stride,
                               given->v_page_stride, given->v_head_stride, given->v_token_stride};
    int64_t longest = 0;
    for (size_t i = 0; i < sizeof strides / sizeof strides[0]; i++)
        longest = larger(longest, strides[i]);
    return longest / 8 * dtype_bits(given->kv_dtype); /* strides are multiples of 16 bytes, so of 8 elements */
}
static bool fits_strides(const struct problem *problem, const contract_t *contract) {
    (void)contract;
    return longest_kv_stride_bytes(problem) < TENSOR_MAP_MAX_STRIDE_BYTES;
}
static void asks_strides(const struct problem *problem, char *text) {
    text_append(text, AXIS_TEXT_BYTES, "%lld bytes", (long long)longest_kv_stride_bytes(problem));
}
static void offers_strides(const contract_t *contract, char *text) {
    (void)contract;
    text_append(text, AXIS_TEXT_BYTES, "less than 2^40 bytes");
}
static const struct axis axis_kv_strides = {"K and V strides", fits_strides, asks_strides, offers_strides};

static uint32_t box_tokens(const struct problem *problem, const contract_t *contract) {
    if (gathers_rows(contract))
        return contract->max_box_tokens;
    return (uint32_t)smaller(contract->max_box_tokens, problem->given.page_size);
}

static int64_t row_passes(const struct problem *problem, const contract_t *contract) {
    return quotient_up((int64_t)problem->group_size * problem->given.q_len, contract->row_tile);
}

/*
 * Kernels number boxes over all units (request, KV head, pass) with 31 bits. No length exceeds the width of the page table.
 */
static int64_t most_boxes(const struct problem *problem, const contract_t *contract) {
    const libdecode_problem *given = &problem->given;
    int64_t units, tokens, boxes;
    if (__builtin_mul_overflow((int64_t)given->batch_size * given->num_kv_heads, row_passes(problem, contract), &units) ||
        __builtin_mul_overflow(given->page_table_request_stride, given->page_size, &tokens) ||
        __builtin_mul_overflow(quotient_up(tokens, box_tokens(problem, contract)), units, &boxes))
        return INT64_MAX;
    return boxes;
}
static bool fits_boxes(const struct problem *problem, const contract_t *contract) {
    return most_boxes(problem, contract) <= INT32_MAX;
}
static void asks_boxes(const struct problem *problem, char *text) {
    text_append(text, AXIS_TEXT_BYTES, "%d requests of up to %lld pages", problem->given.batch_size,
                (long long)problem->given.page_table_request_stride);
}
static void offers_boxes(const contract_t *contract, char *text) {
    text_append(text, AXIS_TEXT_BYTES, "less than 2^31 boxes of up to %u tokens", contract->max_box_tokens);
}
static const struct axis axis_boxes = {"size of the batch", fits_boxes, asks_boxes, offers_boxes};

static bool fits_draft_tokens(const struct problem *problem, const contract_t *contract) {
    (void)contract;
    return (problem->given.features & LIBDECODE_FEATURE_DRAFT_MASK) == 0 || problem->given.q_len <= KERNEL_MAX_DRAFT_TOKENS;
}
static void asks_draft_tokens(const struct problem *problem, char *text) {
    text_append(text, AXIS_TEXT_BYTES, "a mask for %d query tokens", problem->given.q_len);
}
static void offers_draft_tokens(const contract_t *contract, char *text) {
    (void)contract;
    text_append(text, AXIS_TEXT_BYTES, "masks for up to %d", KERNEL_MAX_DRAFT_TOKENS);
}
static const struct axis axis_draft_tokens = {"draft_mask", fits_draft_tokens, asks_draft_tokens, offers_draft_tokens};

static const struct axis *const axes[] = {&axis_query_dtype,
                                          &axis_kv_dtype,
                                          &axis_out_dtype,
                                          &axis_head_dim,
                                          &axis_page_size,
                                          &axis_q_len,
                                          &axis_features,
                                          &axis_draft_tokens,
                                          &axis_kv_strides,
                                          &axis_boxes,
                                          NULL};

/* ----------------------------------------------------------------------------------------------------------- chunks */

/*
 * How a batch-invariant problem is cut: by nothing but what the problem says of every request alike, and the request's own tokens.
 * Chunks of 2,048 tokens, so that one request of 32k tokens and eight KV heads keeps 128 SMs busy; longer ones where a unit would
 * have more chunks than its records should take memory. Requests of few KV heads have fewer units to fill a GPU with.
 */
enum { MIN_CHUNK_TOKENS = 2048, MAX_CHUNKS = 16, MAX_CHUNKS_OF_FEW_HEADS = 32, FEW_KV_HEADS = 4 };
_Static_assert((int)MAX_CHUNKS_OF_FEW_HEADS <= (int)KERNEL_MAX_CHUNKS && (int)MIN_CHUNK_TOKENS >= (int)TENSOR_MAP_MAX_BOX,
               "chunks of whole boxes, a lane for each");

/* Of a unit; 0: it is cut wherever the range of a worker ends. */
static int32_t max_chunks(const libdecode_problem *given) {
    if ((given->features & LIBDECODE_FEATURE_BATCH_INVARIANT) == 0)
        return 0;
    return given->num_kv_heads > FEW_KV_HEADS ? MAX_CHUNKS : MAX_CHUNKS_OF_FEW_HEADS;
}

/* ------------------------------------------------------------------------------------------------------------- cost */

/* Of at most `tokens` KV tokens of a request, those that its query tokens see. */
static int64_t visible_tokens(const libdecode_problem *given, int64_t tokens) {
    if (given->window_left < 0)
        return tokens;
    return smaller(tokens, (int64_t)given->window_left / given->position_stride + given->q_len);
}

static bool cost(const struct problem *problem, const libdecode_device *device, const contract_t *contract,
                 struct cost *ret_cost) {
    const libdecode_problem *given = &problem->given;
    int64_t longest = visible_tokens(given, smaller(given->max_seq_len, problem->planned_kv_tokens));
    int64_t total; /* of 2^62 tokens, and 2^16 heads */
    if (__builtin_mul_overflow(smaller(problem->planned_kv_tokens, given->batch_size * longest), given->num_kv_heads, &total))
        total = INT64_MAX;
    const struct workload work = {.num_sequences = (int64_t)given->batch_size * given->num_kv_heads,
                                  .row_passes = row_passes(problem, contract),
                                  .tokens = longest,
                                  .total_tokens = total,
                                  .max_chunks = max_chunks(given),
                                  .min_chunk_tokens = MIN_CHUNK_TOKENS,
                                  .token_bytes = problem->kv_token_bytes,
                                  .computed_token_bytes = problem->kv_token_bytes * contract->head_dim / given->head_dim};
    return cost_estimate(&work, device, contract, ret_cost);
}

/* ------------------------------------------------------------------------------------------------------- parameters */

static struct libdecode_divisor divisor(int32_t value) {
    return (struct libdecode_divisor){.value = (uint32_t)value, .reciprocal = UINT32_MAX / (uint32_t)value};
}

/* The page table has entries for no more. */
static int32_t max_tokens(const struct problem *problem) {
    int32_t page_size = problem->given.page_size;
    return problem->page_table_width < INT32_MAX / page_size ? (int32_t)problem->page_table_width * page_size : INT32_MAX;
}

/*
 * Workers of one group read the KV heads of the same tokens, which lie side by side in a page: 1 % less time than a page here and a
 * page there, on an H200 with pages of 16 tokens. As many as divide the heads and the workers, up to eight.
 */
static int32_t head_shift(const struct problem *problem, const struct selection *selection) {
    enum { MOST = 3 };
    int32_t shift = 0;
    while (shift < MOST && problem->heads_per_sequence % (2 << shift) == 0 && selection->num_workers % (2 << shift) == 0)
        shift++;
    return shift;
}

/* Tokens before its own that a query token sees, where positions are those of tokens. */
static int64_t window_reach(const libdecode_problem *given) {
    return given->window_left < 0 ? INT32_MAX : given->window_left / given->position_stride;
}

static uint32_t rare(const struct problem *problem, const libdecode_tensors *tensors) {
    return (tensors->query_positions != NULL || tensors->cum_seq_lens_q != NULL ? SCHEDULE_EXACT_RANGES : 0u) |
           (max_chunks(&problem->given) > 0 ? SCHEDULE_FIXED_CHUNKS : 0u);
}

static struct schedule_params schedule_params(const struct problem *problem, const struct selection *selection,
                                              const libdecode_tensors *tensors) {
    const libdecode_problem *given = &problem->given;
    const contract_t *contract = &selection->record->kernel->contract;
    uint32_t box = box_tokens(problem, contract);
    uint32_t min_boxes = (uint32_t)selection->min_tiles_per_worker * contract->tile_tokens / box;
    int32_t shift = head_shift(problem, selection);
    return (struct schedule_params){
        .seq_lens = tensors->seq_lens,
        .page_table = tensors->page_table,
        .row_passes = selection->row_passes,
        .rare = rare(problem, tensors),
        .seq_lens_request_stride = given->seq_lens_request_stride,
        .seq_lens_head_stride = given->seq_lens_head_stride,
        .page_table_request_stride = given->page_table_request_stride,
        .page_table_head_stride = given->page_table_head_stride,
        .page_table_v_offset = given->page_table_v_offset,
        .batch_size = given->batch_size,
        .heads_per_sequence = problem->heads_per_sequence,
        .sequences_per_request = divisor(given->num_kv_heads / problem->heads_per_sequence),
        .heads_per_worker = divisor(problem->heads_per_sequence >> shift),
        .num_workers = divisor(selection->num_workers >> shift),
        .min_boxes_per_worker = min_boxes > 0 ? min_boxes : 1,
        .page_size = divisor(given->page_size),
        .box_tokens = (int32_t)box,
        .head_shift = shift,
        .max_tokens = max_tokens(problem),
        .window_reach = (int32_t)smaller(window_reach(given) + given->q_len - 1, INT32_MAX),
        .query_positions = tensors->query_positions,
        .cum_seq_lens_q = tensors->cum_seq_lens_q,
        .draft_mask = tensors->draft_mask,
        .group_size = divisor(problem->group_size),
        .position_stride = divisor(given->position_stride),
        .q_len = given->q_len,
        .window_left = given->window_left,
        .position_offset = given->position_offset,
        .row_tile = (int32_t)contract->row_tile,
        .min_chunk_boxes = MIN_CHUNK_TOKENS / box,
        .max_chunks = (uint32_t)max_chunks(given),
    };
}

/* What a cap beyond does to a score, float32 does not show; times log2(e) it stays finite. */
#define MAX_SOFT_CAP 1e30f

static struct query_params query_params(const struct problem *problem, const libdecode_tensors *tensors) {
    return (struct query_params){
        .rows = tensors->query,
        .token_stride = problem->given.query_token_stride,
        .head_stride = problem->given.query_head_stride,
        .bmm1_scale_device = tensors->bmm1_scale_device,
        .bmm1_scale_log2_device = tensors->bmm1_scale_log2_device,
        .alibi_slopes = tensors->alibi_slopes,
        .bmm1_scale_log2 = (float)(tensors->bmm1_scale * log2_e),
        .soft_cap = problem->given.logits_soft_cap < MAX_SOFT_CAP ? problem->given.logits_soft_cap : MAX_SOFT_CAP,
        .skip_factor = problem->given.skip_softmax_threshold_scale_factor,
        .dtype = (int32_t)problem->given.query_dtype,
        .head_dim = problem->given.head_dim,
        .rotates = (problem->given.features & LIBDECODE_FEATURE_ROPE) != 0,
        .rope_frequency = problem->rope_frequency,
        .rope_ratio = problem->rope_ratio,
    };
}

static struct output_params output_params(const struct problem *problem, const libdecode_tensors *tensors) {
    const libdecode_problem *given = &problem->given;
    return (struct output_params){
        .rows = tensors->out,
        .token_stride = given->out_token_stride,
        .head_stride = given->out_head_stride,
        .lse = tensors->lse,
        .lse_token_stride = given->lse_token_stride,
        .lse_head_stride = given->lse_head_stride,
        .sinks = tensors->sinks,
        .bmm2_scale_device = tensors->bmm2_scale_device,
        .bmm2_scale = tensors->bmm2_scale,
        .lse_factor = (given->features & LIBDECODE_FEATURE_LSE_NATURAL) != 0 ? (float)ln_2 : 1.0f,
        .scales = tensors->out_sf,
        .scale_factor = tensors->out_sf_scale,
        .first_scale_row = tensors->out_sf_start_token,
        .scale_columns = given->num_qo_heads * (given->head_dim / 16),
        .dtype = (int32_t)given->out_dtype,
    };
}

static struct paged_cache paged_cache(const struct problem *problem, const contract_t *contract) {
    const libdecode_problem *given = &problem->given;
    return (struct paged_cache){.dtype = given->kv_dtype,
                                .head_dim = given->head_dim,
                                .page_size = given->page_size,
                                .num_kv_heads = given->num_kv_heads,
                                .num_pages = given->num_pages,
                                .kernel_head_dim = contract->head_dim,
                                .box_tokens = box_tokens(problem, contract)};
}

static struct tensor_map *add_map(struct kernel_arguments *arguments, size_t offset) {
    arguments->maps[arguments->num_maps].offset = offset;
    return &arguments->maps[arguments->num_maps++].map;
}

/* Returns the copies that a box of rows takes, alike for K and V. */
static int32_t map_rows(const struct problem *problem, const contract_t *contract, const libdecode_tensors *tensors,
                        struct kernel_arguments *ret) {
    const libdecode_problem *given = &problem->given;
    struct paged_cache k = paged_cache(problem, contract), v = k;
    k.address = tensors->k_cache;
    k.page_stride = given->k_page_stride;
    k.head_stride = given->k_head_stride;
    k.token_stride = given->k_token_stride;
    v.address = tensors->v_cache;
    v.page_stride = given->v_page_stride;
    v.head_stride = given->v_head_stride;
    v.token_stride = given->v_token_stride;
    (void)tensor_map_of_pages(&k, add_map(ret, offsetof(struct gqa_decode_params, k_map)));
    return tensor_map_of_pages(&v, add_map(ret, offsetof(struct gqa_decode_params, v_map)));
}

/* Strides of KV are given in elements. */
static int64_t row_bytes(libdecode_dtype dtype, int64_t elements) { return elements / 8 * dtype_bits(dtype); }

/* Whether one copy, of multiples of 16 bytes, can bring the scales of a box: those of a page's tokens lie without a gap. */
static bool has_scale_blocks(const struct problem *problem, uint32_t kernel_head_dim) {
    const libdecode_problem *given = &problem->given;
    const int64_t row = kernel_head_dim / 16;
    const int64_t strides = given->k_sf_page_stride | given->v_sf_page_stride | given->k_sf_head_stride | given->v_sf_head_stride;
    return given->kv_dtype == LIBDECODE_DTYPE_NVFP4 && given->head_dim == (int32_t)kernel_head_dim &&
           given->k_sf_token_stride == row && given->v_sf_token_stride == row && strides % 16 == 0;
}

/* What a kernel that gathers rows needs instead of maps, and of NVFP4 every kernel beside them. */
static void name_rows(const struct problem *problem, uint32_t kernel_head_dim, const libdecode_tensors *tensors,
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
    params->scale_blocks = has_scale_blocks(problem, kernel_head_dim);
    params->v_scales_interleaved = given->v_sf_layout == LIBDECODE_SF_V_INTERLEAVE4;
}

static void fill(const struct problem *problem, const struct selection *selection, const libdecode_tensors *tensors,
                 struct kernel_arguments *ret) {
    const contract_t *contract = &selection->record->kernel->contract;
    struct gqa_decode_params params = {.schedule = schedule_params(problem, selection, tensors),
                                       .query = query_params(problem, tensors),
                                       .output = output_params(problem, tensors),
                                       .records = tensors->workspace};
    ret->num_maps = 0;
    params.schedule.copies_per_box = gathers_rows(contract) ? 1 : map_rows(problem, contract, tensors, ret);
    name_rows(problem, contract->head_dim, tensors, &params);
    memcpy(ret->block, &params, sizeof params);
}

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
              .features = CONTRACT_FEATURE_WINDOW | CONTRACT_FEATURE_SINKS | CONTRACT_FEATURE_LSE | CONTRACT_FEATURE_RAGGED_Q |
                          CONTRACT_FEATURE_DRAFT_MASK | CONTRACT_FEATURE_V_PAGE_TABLE | CONTRACT_FEATURE_QUERY_POSITIONS |
                          CONTRACT_FEATURE_SKIP_SOFTMAX | CONTRACT_FEATURE_SOFT_CAP | CONTRACT_FEATURE_ALIBI |
                          CONTRACT_FEATURE_ROPE | CONTRACT_FEATURE_LSE_NATURAL | CONTRACT_FEATURE_BATCH_INVARIANT,
              .flags = CONTRACT_FLAG_MAY_SPILL | CONTRACT_FLAG_ROW_GATHER},
    .narrow = narrow,
    .serves = serves,
    .axes = axes,
    .row_passes = row_passes,
    .cost = cost,
    .fill = fill,
};
