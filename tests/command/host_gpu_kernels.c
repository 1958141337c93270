/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host_gpu_kernels.c: a parameter block of kernels/abi.h in, what the kernel computes out, in f32 with operands of 16 bits: the
 * query and P in bf16 with bf16 KV, in fp16 with every other. Tile by tile with a running maximum. Written from abi.h, not from
 * reference.c, so that the two check each other; the elements alone are decoded and encoded by the same code (host_gpu_elements.c).
 */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "abi.h"
#include "element.h"
#include "host_gpu.h"
#include "host_gpu_elements.h"
#include "played/tensor_map.h"

#define TILE_TOKENS 64
#define MAX_HEAD_DIM 576
#define LANES 8
#define BLOCK 16 /* elements that share a scale */
#define LOG2_E 1.4426950408889634f
#define LN_2 0.6931471805599453f
#define TWO_PI 6.283185307179586

size_t host_gpu_parameter_bytes(const char *kernel) {
    if (strncmp(kernel, "gqa_decode_", 11) == 0 || strncmp(kernel, "page_ceiling_", 13) == 0)
        return sizeof(struct gqa_decode_params);
    if (strncmp(kernel, "merge_states_", 13) == 0)
        return sizeof(struct merge_states_params);
    if (strncmp(kernel, "mla_decode_", 11) == 0)
        return sizeof(struct mla_decode_params);
    if (strncmp(kernel, "sparse_mla_decode_", 18) == 0)
        return sizeof(struct sparse_mla_decode_params);
    if (strncmp(kernel, "read_ceiling_", 13) == 0)
        return sizeof(struct read_ceiling_params);
    if (strncmp(kernel, "late_copy_", 10) == 0)
        return sizeof(struct late_copy_params);
    return 0;
}

int host_gpu_knows_history(const char *kernel, const void *parameters) {
    const struct gqa_decode_params *params = parameters;
    return strncmp(kernel, "gqa_decode_", 11) == 0 && (params->schedule.rare & SCHEDULE_HISTORY_FINAL) != 0;
}

/* One KV head of one request. */
struct sequence {
    const struct gqa_decode_params *params;
    const struct mla_decode_params *mla; /* NULL of GQA: the query in two parts, K and V in one row */
    int head_dim, v_head_dim;
    uint32_t kv_dtype;
    int request, kv_head, seq_len;
    int num_query_tokens, first_token; /* the first one's rows of query and out */
    int first_draft;                   /* KV token of the first query token: negative where that stands before the sequence */
    const int32_t *k_ids, *v_ids;
    float scale_log2, bmm2_scale;
};

/* One of its query tokens, and one of the query heads of that. */
struct row {
    int query_token, q_head;
    int is_before; /* the sequence: it sees nothing */
    int64_t position;
    int64_t window_begin;       /* position of the first token that it sees */
    const uint16_t *draft_mask; /* or NULL */
    float alibi_slope;          /* base 2 */
    float query_scale;          /* what the query was divided by to become fp16 */
    float max, sum;             /* base 2 */
    float query[MAX_HEAD_DIM], output[MAX_HEAD_DIM];
};

static uint32_t kv_dtype_of(const char *kernel) {
    static const char *const names[] = {[KERNEL_DTYPE_BF16] = "_kvbf16_",
                                        [KERNEL_DTYPE_FP16] = "_kvfp16_",
                                        [KERNEL_DTYPE_E4M3] = "_kve4m3_",
                                        [KERNEL_DTYPE_NVFP4] = "_kvnvfp4_",
                                        [KERNEL_DTYPE_E5M2] = "_kve5m2_"};
    for (uint32_t dtype = 0; dtype < sizeof names / sizeof names[0]; dtype++) {
        if (names[dtype] != NULL && strstr(kernel, names[dtype]) != NULL)
            return dtype;
    }
    return 0;
}

/* The elements of a token, and their scales. */
struct kv_row {
    const uint8_t *elements, *scales;
    int scale_step;
};

static const uint8_t *row_address(const struct row_source *source, int64_t page, int head, int64_t token) {
    return source->rows + page * source->page_stride + head * source->head_stride + token * source->token_stride;
}

/* Elements are NULL where the page id names no page: zeros. */
static struct kv_row kv_row(const struct sequence *sequence, int of_v, int token) {
    const struct gqa_decode_params *params = sequence->params;
    const struct row_source *source = of_v != 0 ? &params->v_rows : &params->k_rows;
    const struct row_source *scales = of_v != 0 ? &params->v_scales : &params->k_scales;
    const uint32_t page_size = params->schedule.page_size.value;
    const int32_t *const ids = of_v != 0 ? sequence->v_ids : sequence->k_ids;
    const int64_t page = params->schedule.page_table != NULL ? ids[(uint32_t)token / page_size] : sequence->request;
    const int64_t page_token = (uint32_t)token % page_size;
    struct played_tensor_map map;
    struct kv_row found = {.scale_step = 1};
    memcpy(&map, of_v != 0 ? params->v_map.opaque : params->k_map.opaque, sizeof map);
    const int is_gathered = source->rows != NULL;
    if (page < 0 || (uint64_t)page >= (is_gathered != 0 ? (uint64_t)params->num_pages : map.dims[4]))
        return found;
    if (is_gathered != 0)
        found.elements = row_address(source, page, sequence->kv_head, page_token);
    else
        found.elements = (const uint8_t *)(uintptr_t)map.address + (uint64_t)page * map.strides_bytes[3] +
                         (uint64_t)(sequence->mla != NULL ? 0 : sequence->kv_head) * map.strides_bytes[2] +
                         (uint64_t)page_token * map.strides_bytes[0];
    if (sequence->kv_dtype != KERNEL_DTYPE_NVFP4)
        return found;
    if (of_v != 0 && params->v_scales_interleaved != 0 && !host_gpu_has_defect("linear_scales")) {
        found.scales = row_address(scales, page, sequence->kv_head, page_token / 4 * 4) + page_token % 4;
        found.scale_step = 4;
    } else {
        found.scales = row_address(scales, page, sequence->kv_head, page_token);
    }
    return found;
}

static void kv_elements(const struct sequence *sequence, struct kv_row from, float *values) {
    decode_row(sequence->kv_dtype, from.elements, sequence->head_dim, values);
    if (sequence->kv_dtype != KERNEL_DTYPE_NVFP4)
        return;
    const int blocks = sequence->head_dim / BLOCK, shift = host_gpu_has_defect("next_scale");
    for (int block = 0; block < blocks; block++) {
        float scale;
        decode_row(KERNEL_DTYPE_E4M3, from.scales + (block + shift) % blocks * from.scale_step, 1, &scale);
        for (int element = block * BLOCK; element < (block + 1) * BLOCK; element++)
            values[element] *= scale;
    }
}

/* K and V of a tile, each decoded when the first row that sees it asks: a row that none sees is never read. */
static struct tile {
    int first;
    int is_decoded[2][TILE_TOKENS];
    float values[2][TILE_TOKENS][MAX_HEAD_DIM];
} tile;

static void begin_tile(int first) {
    tile.first = first;
    memset(tile.is_decoded, 0, sizeof tile.is_decoded);
}

static int64_t position_of(const struct schedule_params *schedule, int64_t token) {
    return token * schedule->position_stride.value + schedule->position_offset;
}

/* A row by its position, each pair of dims by an angle of its own; the result becomes an operand. */
static void rotate(const struct sequence *sequence, int64_t position, float *values) {
    const struct query_params *query = &sequence->params->query;
    const int half = sequence->head_dim / 2, side_by_side = host_gpu_has_defect("rope_neighbours");
    double frequency = query->rope_frequency * TWO_PI;
    for (int pair = 0; pair < half; pair++, frequency *= query->rope_ratio) {
        float *const x = &values[side_by_side ? 2 * pair : pair], *const y = side_by_side ? x + 1 : x + half;
        const double angle =
            host_gpu_has_defect("rope_f32") ? (double)((float)position * (float)frequency) : (double)position * frequency;
        const float cosine = (float)cos(angle), sine = (float)sin(angle), turned = *x * cosine - *y * sine;
        *y = *y * cosine + *x * sine;
        *x = turned;
    }
}

static const float *kv_values(const struct sequence *sequence, int of_v, int token) {
    float *values = tile.values[of_v][token - tile.first];
    int *is_decoded = &tile.is_decoded[of_v][token - tile.first];
    if (*is_decoded != 0)
        return values;
    *is_decoded = 1;
    const struct kv_row from = kv_row(sequence, of_v, token);
    if (from.elements != NULL)
        kv_elements(sequence, from, values);
    else
        memset(values, 0, (size_t)sequence->head_dim * sizeof values[0]);
    if (of_v == 0 && sequence->params->query.rotates != 0) {
        rotate(sequence, position_of(&sequence->params->schedule, token), values);
        for (int element = 0; element < sequence->head_dim; element++)
            values[element] = round_operand(sequence->kv_dtype, values[element]);
    }
    return values;
}

static float capped(float value) {
    return host_gpu_has_defect("rough_cap") ? 1.0f - 2.0f / (1.0f + expf(2.0f * value)) : tanhf(value);
}

/* In base 2. Sums in lanes, which the compiler adds up side by side. */
static float score(const struct sequence *sequence, const struct row *row, int token) {
    const struct gqa_decode_params *params = sequence->params;
    const float *k = kv_values(sequence, 0, token), cap = host_gpu_has_defect("no_cap") ? 0.0f : params->query.soft_cap;
    float lanes[LANES] = {0}, sum = 0;
    for (int element = 0; element < sequence->head_dim; element += LANES) {
        for (int lane = 0; lane < LANES; lane++)
            lanes[lane] += row->query[element + lane] * k[element + lane];
    }
    for (int lane = 0; lane < LANES; lane++)
        sum += lanes[lane];
    float result = sum * (sequence->scale_log2 * row->query_scale);
    if (cap > 0.0f)
        result = cap * capped(result * LN_2 / cap) * LOG2_E;
    if (params->query.alibi_slopes != NULL)
        result += row->alibi_slope * (float)(position_of(&params->schedule, token) - row->position);
    return result;
}

static int is_visible(const struct sequence *sequence, const struct row *row, int token) {
    const int64_t position = position_of(&sequence->params->schedule, token);
    const int draft = token - sequence->first_draft;
    if (token >= sequence->seq_len || row->is_before != 0 || position < row->window_begin)
        return 0;
    if (row->draft_mask != NULL && draft >= 0)
        return row->draft_mask[draft / 16] >> draft % 16 & 1;
    return position <= row->position || host_gpu_has_defect("causal");
}

/* Of a token that the query sees; -infinity of any other, whatever the scale is. */
static float masked_score(const struct sequence *sequence, const struct row *row, int token) {
    if (is_visible(sequence, row, token))
        return score(sequence, row, token);
    return host_gpu_has_defect("mask_first") ? (float)-INFINITY * sequence->scale_log2 : (float)-INFINITY;
}

/* The maximum that weights refer to from now on. */
static float next_max(const struct row *row, float tile_max) {
    const float threshold = 8; /* the sum is lost in the rounding of a huge maximum */
    return host_gpu_has_defect("huge_scores") && tile_max <= row->max + threshold ? row->max : tile_max;
}

/* Whether scores up to `tile_max` lie so far below the largest before them that they need not count. */
static int is_skipped(const struct sequence *sequence, const struct row *row, float tile_max) {
    const float factor = sequence->params->query.skip_factor * (host_gpu_has_defect("skips_more") ? 1000.0f : 1.0f);
    const float ratio = factor / (float)sequence->seq_len;
    return factor > 0.0f && (ratio < 1.0f || host_gpu_has_defect("skips_all")) && tile_max - row->max < log2f(ratio);
}

static void add_tile(const struct sequence *sequence, struct row *row, int end) {
    float scores[TILE_TOKENS], tile_max = (float)-INFINITY;
    int has_nan = 0;
    for (int token = tile.first; token < end; token++) {
        const float masked = scores[token - tile.first] = masked_score(sequence, row, token);
        tile_max = fmaxf(tile_max, masked);
        has_nan = has_nan != 0 || (isnan(masked) && !host_gpu_has_defect("lost_nan"));
    }
    if ((tile_max == (float)-INFINITY && has_nan == 0) || (has_nan == 0 && is_skipped(sequence, row, tile_max)))
        return;
    tile_max = fmaxf(tile_max, row->max);
    tile_max = next_max(row, tile_max);
    const float shrink = isinf(row->max) ? 0.0f : exp2f(row->max - tile_max);
    row->max = tile_max;
    row->sum *= shrink;
    for (int element = 0; element < sequence->v_head_dim; element++)
        row->output[element] *= shrink;
    for (int token = tile.first; token < end; token++) {
        const float masked = scores[token - tile.first], p = exp2f(masked - tile_max);
        row->sum += p;
        if (isinf(masked) && !host_gpu_has_defect("leak"))
            continue;
        const float *v = kv_values(sequence, 1, token), rounded = round_operand(sequence->kv_dtype, p);
        for (int element = 0; element < sequence->v_head_dim; element++)
            row->output[element] += rounded * v[element];
    }
}

static void store_nvfp4(const struct sequence *sequence, const struct row *row, const double *values, uint8_t *codes) {
    const struct output_params *output = &sequence->params->output;
    const size_t blocks = (size_t)sequence->v_head_dim / BLOCK, first = (size_t)row->q_head * blocks;
    const size_t used = (size_t)output->scale_columns, columns = (used + 3) / 4 * 4;
    const size_t scale_row = (size_t)(sequence->first_token + row->query_token + output->first_scale_row);
    for (size_t block = 0; block < blocks; block++) {
        const size_t column = host_gpu_has_defect("swizzle") ? (first + block) ^ 1 : first + block;
        output->scales[nvfp4_swizzled_offset(scale_row, column, columns)] =
            nvfp4_encode_block(values + block * BLOCK, (double)output->scale_factor, codes + block * BLOCK / 2);
    }
    for (size_t column = used; first + blocks == used && column < columns && !host_gpu_has_defect("padding"); column++)
        output->scales[nvfp4_swizzled_offset(scale_row, column, columns)] = 0;
}

static void store(const struct sequence *sequence, const struct row *row) {
    const struct output_params *output = &sequence->params->output;
    const uint32_t dtype = (uint32_t)output->dtype;
    const int64_t token = sequence->first_token + row->query_token;
    uint8_t *out = (uint8_t *)output->rows +
                   (token * output->token_stride + row->q_head * output->head_stride) * (int64_t)element_bits(dtype) / 8;
    double values[MAX_HEAD_DIM];
    static unsigned stores;
    const int is_unsteady = host_gpu_has_defect("unsteady");
    float max = row->max, sum = row->sum;
    float lse_sum = sum, lse_max = max;
    if (output->sinks != NULL) {
        const float sink = output->sinks[row->q_head] * LOG2_E;
        const float larger = fmaxf(max, sink);
        /* the difference of two infinities is NaN: an infinite sink has all of the weight or none */
        const float weight =
            isinf(sink) && !host_gpu_has_defect("infinite_sink") ? (sink > 0 ? 1.0f : 0.0f) : exp2f(sink - larger);
        sum = (isinf(max) && !isnan(sum) ? 0.0f : sum * exp2f(max - larger)) + weight;
        max = larger;
        if ((output->lse_features & CONTRACT_FEATURE_LSE_WITHOUT_SINK) == 0 || host_gpu_has_defect("lse_sink")) {
            lse_sum = sum;
            lse_max = max;
        }
    }
    const float rescale = isnan(sum)                     ? NAN
                          : !isinf(row->max) && sum != 0 ? exp2f(row->max - max) / sum * sequence->bmm2_scale
                                                         : 0.0f;
    for (int element = 0; element < sequence->v_head_dim; element++)
        values[element] = rescale != 0.0f ? (double)(row->output[element] * rescale) : 0.0;
    if (dtype == KERNEL_DTYPE_NVFP4)
        store_nvfp4(sequence, row, values, out);
    else
        element_encode_row((libdecode_dtype)dtype, values, (size_t)sequence->v_head_dim, out);
    for (int element = 0; is_unsteady && element < sequence->v_head_dim; element++)
        out[(size_t)element * element_bits(dtype) / 8] ^= ++stores % 100003 == 0;
    if (output->lse != NULL) {
        const bool is_infinity =
            (output->lse_features & CONTRACT_FEATURE_LSE_EMPTY_INFINITY) != 0 && !host_gpu_has_defect("lse_empty");
        float lse = lse_sum != 0 ? lse_max + log2f(lse_sum) : is_infinity ? (float)INFINITY : (float)-INFINITY;
        if ((output->lse_features & CONTRACT_FEATURE_LSE_ALIBI_FROM_ZERO) != 0 && !host_gpu_has_defect("lse_shift"))
            lse += row->alibi_slope * (float)row->position;
        if (host_gpu_has_defect("wrong_lse"))
            lse *= LN_2;
        output->lse[token * output->lse_token_stride + row->q_head * output->lse_head_stride] =
            host_gpu_has_defect("lse_base") ? lse : lse * output->lse_factor;
    }
}

/* In two parts. */
static void load_latent_query(const struct sequence *sequence, int64_t token, struct row *row, const uint8_t *from) {
    const struct mla_decode_params *mla = sequence->mla;
    const uint32_t dtype = (uint32_t)mla->query.dtype;
    decode_row(dtype, from, mla->query_dim, row->query);
    if (mla->query_dim < sequence->head_dim)
        decode_row(dtype,
                   (const uint8_t *)mla->query_rope +
                       (token * mla->query_rope_token_stride + row->q_head * mla->query_rope_head_stride) *
                           (int64_t)element_bits(dtype) / 8,
                   sequence->head_dim - mla->query_dim, row->query + mla->query_dim);
}

/* A row for fp16 operands that fp16 may not hold, is divided by a power of two that leaves its largest element below 2^15. */
static void load_query(const struct sequence *sequence, struct row *row) {
    const struct query_params *query = &sequence->params->query;
    const uint32_t dtype = (uint32_t)query->dtype;
    const int64_t token = sequence->first_token + row->query_token;
    const uint8_t *from = (const uint8_t *)query->rows +
                          (token * query->token_stride + row->q_head * query->head_stride) * (int64_t)element_bits(dtype) / 8;
    float largest = 0;
    int exponent = 0;
    if (sequence->mla != NULL)
        load_latent_query(sequence, token, row, from);
    else
        decode_row(dtype, from, sequence->head_dim, row->query);
    for (int element = 0; element < sequence->head_dim; element++)
        largest = fmaxf(largest, fabsf(row->query[element]));
    row->query_scale = 1;
    if (query->rotates != 0)
        rotate(sequence, row->position - (host_gpu_has_defect("rope_query") ? row->query_token : 0), row->query);
    if (query->rotates != 0 && sequence->kv_dtype == KERNEL_DTYPE_BF16)
        for (int element = 0; element < sequence->head_dim; element++)
            row->query[element] = round_operand(sequence->kv_dtype, row->query[element]);
    if ((dtype != KERNEL_DTYPE_BF16 && query->rotates == 0) || sequence->kv_dtype == KERNEL_DTYPE_BF16)
        return;
    (void)frexpf(largest, &exponent);
    if (largest > 0 && !host_gpu_has_defect("query_range"))
        row->query_scale = ldexpf(1, exponent - 15);
    for (int element = 0; element < sequence->head_dim; element++)
        row->query[element] = (float)fp16_decode(fp16_encode((double)row->query[element] / (double)row->query_scale));
}

/* Where the query token stands, and what follows for what it sees. */
static void place(const struct sequence *sequence, struct row *row) {
    const struct schedule_params *schedule = &sequence->params->schedule;
    const int own_token = sequence->first_draft + row->query_token, halves = (schedule->q_len + 31) / 32 * 2;
    int64_t last_position = position_of(schedule, sequence->seq_len - 1);
    row->position = position_of(schedule, own_token);
    if (schedule->query_positions != NULL) {
        row->position = (int64_t)schedule->query_positions[sequence->request] + row->query_token;
        last_position = row->position - row->query_token + sequence->num_query_tokens - 1;
    }
    row->is_before = own_token < 0 && schedule->query_positions == NULL && !host_gpu_has_defect("before");
    row->window_begin = INT64_MIN;
    if (schedule->window_left >= 0)
        row->window_begin = (host_gpu_has_defect("window_of_last") ? last_position : row->position) - schedule->window_left;
    row->draft_mask = NULL;
    if (schedule->draft_mask != NULL && !host_gpu_has_defect("draft_bits"))
        row->draft_mask = schedule->draft_mask + (int64_t)(sequence->first_token + row->query_token) * halves;
}

static void begin_row(const struct sequence *sequence, int query_token, int q_head, struct row *row) {
    const float *slopes = sequence->params->query.alibi_slopes;
    row->query_token = query_token;
    row->q_head = q_head;
    place(sequence, row);
    load_query(sequence, row);
    memset(row->output, 0, sizeof row->output);
    row->alibi_slope = slopes == NULL ? 0.0f : slopes[q_head] * (host_gpu_has_defect("alibi_sign") ? -LOG2_E : LOG2_E);
    row->max = (float)-INFINITY;
    row->sum = 0;
}

/* Room for so many, which is kept: what is freed must be cleared by the system when it is needed again. */
static struct row *rows_for(int count) {
    static struct row *rows;
    static int capacity;
    if (count > capacity) {
        free(rows);
        rows = malloc((size_t)count * sizeof rows[0]);
        capacity = count;
    }
    if (count > 0 && rows == NULL)
        abort();
    return rows;
}

/* All query tokens, and all heads that read this KV head. */
static void attend(const struct sequence *sequence) {
    const struct schedule_params *schedule = &sequence->params->schedule;
    const int page_size = (int)schedule->page_size.value, group_size = (int)schedule->group_size.value;
    const int num_rows = sequence->num_query_tokens * group_size;
    struct row *rows = rows_for(num_rows);
    int end = sequence->seq_len;
    for (int row = 0; row < num_rows; row++)
        begin_row(sequence, row / group_size, sequence->kv_head * group_size + row % group_size, &rows[row]);
    if (host_gpu_has_defect("skip_token") && end > 40)
        end--;
    if (host_gpu_has_defect("leak") && schedule->page_table != NULL)
        end = (end + page_size - 1) / page_size * page_size;
    /* as if the cuts of a request lay where the workers' share of the batch has them */
    const int tile_tokens = host_gpu_has_defect("neighbours") ? TILE_TOKENS - schedule->batch_size % 7 * 8
                            : host_gpu_has_defect("place")    ? TILE_TOKENS - sequence->request % 7 * 8
                                                              : TILE_TOKENS;
    for (int first = 0; first < end; first += tile_tokens) {
        begin_tile(first);
        for (int row = 0; row < num_rows; row++)
            add_tile(sequence, &rows[row], first + tile_tokens < end ? first + tile_tokens : end);
    }
    for (int row = 0; row < num_rows; row++)
        store(sequence, &rows[row]);
}

static int num_kv_heads(const struct gqa_decode_params *params) {
    return params->schedule.heads_per_sequence * (int)params->schedule.sequences_per_request.value;
}

static int num_query_tokens(const struct schedule_params *schedule) {
    const int32_t *cum_seq_lens_q = schedule->cum_seq_lens_q;
    return cum_seq_lens_q != NULL ? cum_seq_lens_q[schedule->batch_size] : schedule->batch_size * schedule->q_len;
}

static void damage(const struct gqa_decode_params *params, int v_head_dim) {
    const int64_t num_qo_heads = (int64_t)num_kv_heads(params) * params->schedule.group_size.value;
    const int64_t last =
        (num_query_tokens(&params->schedule) - 1) * params->output.token_stride + (num_qo_heads - 1) * params->output.head_stride;
    const int64_t end = (last + v_head_dim) * (int64_t)element_bits((uint32_t)params->output.dtype) / 8;
    if (host_gpu_has_defect("wild_write"))
        memset((char *)params->output.rows + end, 0, 2);
    if (host_gpu_has_defect("workspace"))
        memset((char *)params->records - 4, 0, 4);
    if (host_gpu_has_defect("leavings"))
        memset((char *)params->records + 5, 1, 1);
    if (host_gpu_has_defect("input") &&
        params->schedule.page_table != NULL) /* behind the last page of the first request: no result changes */
        ((int32_t *)(uintptr_t)params->schedule.page_table)[params->schedule.page_table_request_stride - 1] = 0;
}

/* Lengths, query tokens and page ids. */
static void begin_sequence(struct sequence *sequence, int request, int kv_head) {
    const struct schedule_params *schedule = &sequence->params->schedule;
    const int32_t *cum_seq_lens_q = schedule->cum_seq_lens_q;
    int seq_len = schedule->max_tokens;
    if (schedule->seq_lens != NULL)
        seq_len = schedule->seq_lens[request * schedule->seq_lens_request_stride + kv_head * schedule->seq_lens_head_stride];
    /* not in the last request: contiguous KV ends with it, and a read behind it would end this program */
    const bool reads_on = host_gpu_has_defect("read_on") && request + 1 < schedule->batch_size;
    if (seq_len > schedule->max_tokens)
        seq_len = schedule->max_tokens + (reads_on ? 1 : 0);
    sequence->request = request;
    sequence->kv_head = kv_head;
    sequence->seq_len = seq_len > 0 ? seq_len : 0;
    sequence->first_token = cum_seq_lens_q != NULL ? cum_seq_lens_q[request] : request * schedule->q_len;
    sequence->num_query_tokens = cum_seq_lens_q != NULL ? cum_seq_lens_q[request + 1] - cum_seq_lens_q[request] : schedule->q_len;
    sequence->first_draft =
        sequence->seq_len - (host_gpu_has_defect("ragged_rows") ? schedule->q_len : sequence->num_query_tokens);
    sequence->k_ids =
        schedule->page_table + request * schedule->page_table_request_stride + kv_head * schedule->page_table_head_stride;
    sequence->v_ids = sequence->k_ids + schedule->page_table_v_offset;
}

static void decode(const char *kernel, const struct gqa_decode_params *params, const struct mla_decode_params *mla) {
    struct sequence sequence = {.params = params,
                                .mla = mla,
                                .head_dim = params->query.head_dim,
                                .v_head_dim = mla != NULL ? mla->v_head_dim : params->query.head_dim,
                                .kv_dtype = kv_dtype_of(kernel),
                                .scale_log2 = params->query.bmm1_scale_log2,
                                .bmm2_scale = params->output.bmm2_scale};
    if (params->query.bmm1_scale_device != NULL)
        sequence.scale_log2 = *params->query.bmm1_scale_device * LOG2_E;
    if (params->query.bmm1_scale_log2_device != NULL)
        sequence.scale_log2 = *params->query.bmm1_scale_log2_device;
    if (params->output.bmm2_scale_device != NULL)
        sequence.bmm2_scale = *params->output.bmm2_scale_device;
    for (int request = 0; request < params->schedule.batch_size; request++) {
        for (int kv_head = 0; kv_head < num_kv_heads(params); kv_head++) {
            begin_sequence(&sequence, request, kv_head);
            attend(&sequence);
        }
    }
    damage(params, sequence.v_head_dim);
}

/* Of what MLA decode has, GQA decode would have this. */
static void mla_decode(const char *kernel, const struct mla_decode_params *mla) {
    const struct gqa_decode_params params = {.schedule = mla->schedule,
                                             .query = mla->query,
                                             .k_map = mla->map,
                                             .v_map = mla->map,
                                             .output = mla->output,
                                             .records = mla->records};
    decode(kernel, &params, mla);
}

void host_gpu_execute(const char *kernel, const void *parameters) {
    if (strncmp(kernel, "gqa_decode_", 11) == 0) {
        decode(kernel, parameters, NULL);
        return;
    }
    if (strncmp(kernel, "mla_decode_", 11) == 0) {
        mla_decode(kernel, parameters);
        return;
    }
    if (strncmp(kernel, "merge_states_", 13) == 0) {
        host_gpu_merge_states(parameters);
        return;
    }
    if (strncmp(kernel, "late_copy_", 10) == 0) {
        const struct late_copy_params *copy = parameters;
        for (uint32_t index = 0; index < copy->num_ranges; index++)
            memcpy(copy->ranges[index].destination, copy->ranges[index].source, copy->ranges[index].bytes);
        return;
    }
    /* one writes nothing, the other runs from its own source alone (HOST_GPU_KERNELS) */
    if (strncmp(kernel, "page_ceiling_", 13) == 0 || strncmp(kernel, "sparse_mla_decode_", 18) == 0)
        return;
    /* the read ceiling: both ends must be there */
    const struct read_ceiling_params *ceiling = parameters;
    const volatile char *data = ceiling->data;
    if (ceiling->bytes > 0)
        (void)(data[0] + data[ceiling->bytes - 1]);
}
