/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host_gpu_kernels.c: a parameter block of kernels/abi.h in, what the kernel computes out, in f32 with P rounded to the dtype of
 * the query, tile by tile with a running maximum. Written from abi.h, not from reference.c, so that the two check each other.
 */
#include <math.h>
#include <string.h>

#include "abi.h"
#include "element.h"
#include "host_gpu.h"

#define TILE_TOKENS 64
#define MAX_HEAD_DIM 256

size_t host_gpu_parameter_bytes(const char *kernel) {
    if (strncmp(kernel, "gqa_decode_", 11) == 0)
        return sizeof(struct gqa_decode_params);
    if (strncmp(kernel, "read_ceiling_", 13) == 0)
        return sizeof(struct read_ceiling_params);
    return 0;
}

/* One KV head of one request, and one of its query heads. */
struct row {
    const struct gqa_decode_params *params;
    int head_dim;
    int is_bf16;
    int request, kv_head, q_head;
    int seq_len;
    const int32_t *k_ids, *v_ids;
    float query[MAX_HEAD_DIM], output[MAX_HEAD_DIM];
    float max, sum; /* base 2 */
};

/* Through a table: most of the time goes here. */
static float decode(int is_bf16, const void *element) {
    static float values[2][65536];
    static int is_filled;
    for (unsigned code = 0; is_filled == 0 && code < 65536; code++) {
        values[0][code] = (float)fp16_decode((uint16_t)code);
        values[1][code] = (float)bf16_decode((uint16_t)code);
    }
    is_filled = 1;
    uint16_t code;
    memcpy(&code, element, sizeof code);
    return values[is_bf16 != 0][code];
}

static float round_16(int is_bf16, float value) {
    return (float)(is_bf16 != 0 ? bf16_decode(bf16_encode((double)value)) : fp16_decode(fp16_encode((double)value)));
}

/* The row of a token, or NULL where its page id names no page: zeros. */
static const char *kv_row(const struct row *row, const struct libdecode_tensor_map *map, const int32_t *ids, int token) {
    struct host_gpu_map host_map;
    memcpy(&host_map, map->opaque, sizeof host_map);
    int64_t page = ids[token / (int)row->params->schedule.page_size.value];
    if (page < 0 || (uint64_t)page >= host_map.num_pages)
        return NULL;
    return (const char *)(uintptr_t)host_map.address + (uint64_t)page * host_map.page_stride +
           (uint64_t)row->kv_head * host_map.head_stride +
           (uint64_t)(token % (int)row->params->schedule.page_size.value) * host_map.token_stride;
}

static float score(const struct row *row, int token, float scale_log2) {
    const char *k = kv_row(row, &row->params->k_map, row->k_ids, token);
    float sum = 0;
    for (int element = 0; k != NULL && element < row->head_dim; element++)
        sum += row->query[element] * decode(row->is_bf16, k + 2 * element);
    return sum * scale_log2;
}

static int is_visible(const struct row *row, int64_t query_position, int token) {
    int64_t position = (int64_t)token * row->params->schedule.position_stride.value + row->params->schedule.position_offset;
    return token < row->seq_len && position <= query_position &&
           (row->params->schedule.window_left < 0 || position >= query_position - row->params->schedule.window_left);
}

/* Of a token that the query sees; -infinity of any other, whatever the scale is. */
static float masked_score(const struct row *row, int token, int64_t query_position, float scale_log2) {
    if (is_visible(row, query_position, token))
        return score(row, token, scale_log2);
    return host_gpu_has_defect("mask_first") ? (float)-INFINITY * scale_log2 : (float)-INFINITY;
}

/* The maximum that weights refer to from now on. */
static float next_max(const struct row *row, float tile_max) {
    const float threshold = 8; /* the sum is lost in the rounding of a huge maximum */
    return host_gpu_has_defect("huge_scores") && tile_max <= row->max + threshold ? row->max : tile_max;
}

static void add_tile(struct row *row, int first, int end, int64_t query_position, float scale_log2) {
    float scores[TILE_TOKENS], tile_max = row->max;
    int has_nan = 0;
    for (int token = first; token < end; token++) {
        scores[token - first] = masked_score(row, token, query_position, scale_log2);
        tile_max = fmaxf(tile_max, scores[token - first]);
        has_nan = has_nan != 0 || (isnan(scores[token - first]) && !host_gpu_has_defect("lost_nan"));
    }
    if (tile_max == (float)-INFINITY && has_nan == 0)
        return;
    tile_max = next_max(row, tile_max);
    const float shrink = isinf(row->max) ? 0.0f : exp2f(row->max - tile_max);
    row->max = tile_max;
    row->sum *= shrink;
    for (int element = 0; element < row->head_dim; element++)
        row->output[element] *= shrink;
    for (int token = first; token < end; token++) {
        const float p = exp2f(scores[token - first] - tile_max);
        const char *v = kv_row(row, &row->params->v_map, row->v_ids, token);
        const float rounded = round_16(row->is_bf16, p);
        row->sum += p;
        if (v == NULL || (isinf(scores[token - first]) && !host_gpu_has_defect("leak")))
            continue;
        for (int element = 0; element < row->head_dim; element++)
            row->output[element] += rounded * decode(row->is_bf16, v + 2 * element);
    }
}

static void store(const struct row *row, float bmm2_scale) {
    const struct gqa_decode_params *params = row->params;
    char *out =
        (char *)params->output.rows + 2 * (row->request * params->output.token_stride + row->q_head * params->output.head_stride);
    static unsigned stores;
    const int is_unsteady = host_gpu_has_defect("unsteady");
    float max = row->max, sum = row->sum;
    if (params->output.sinks != NULL) {
        const float sink = params->output.sinks[row->q_head] * 1.4426950408889634f;
        const float larger = fmaxf(max, sink);
        /* the difference of two infinities is NaN: an infinite sink has all of the weight or none */
        const float weight =
            isinf(sink) && !host_gpu_has_defect("infinite_sink") ? (sink > 0 ? 1.0f : 0.0f) : exp2f(sink - larger);
        sum = (isinf(max) && !isnan(sum) ? 0.0f : sum * exp2f(max - larger)) + weight;
        max = larger;
    }
    const float rescale = isnan(sum) ? NAN : !isinf(row->max) && sum != 0 ? exp2f(row->max - max) / sum * bmm2_scale : 0.0f;
    for (int element = 0; element < row->head_dim; element++) {
        const double value = rescale != 0.0f ? (double)(row->output[element] * rescale) : 0.0;
        uint16_t code = params->output.dtype == KERNEL_DTYPE_BF16 ? bf16_encode(value) : fp16_encode(value);
        if (is_unsteady && ++stores % 100003 == 0)
            code ^= 1;
        memcpy(out + 2 * element, &code, sizeof code);
    }
    if (params->output.lse != NULL) {
        float lse = sum != 0 ? max + log2f(sum) : (float)-INFINITY;
        if (host_gpu_has_defect("wrong_lse"))
            lse *= 0.6931472f;
        params->output.lse[row->request * params->output.lse_token_stride + row->q_head * params->output.lse_head_stride] = lse;
    }
}

static void decode_row(const struct gqa_decode_params *params, struct row *row) {
    int page_size = (int)params->schedule.page_size.value;
    float scale_log2 = params->query.bmm1_scale_log2, bmm2_scale = params->output.bmm2_scale;
    if (params->query.bmm1_scale_device != NULL)
        scale_log2 = *params->query.bmm1_scale_device * 1.4426950408889634f;
    if (params->query.bmm1_scale_log2_device != NULL)
        scale_log2 = *params->query.bmm1_scale_log2_device;
    if (params->output.bmm2_scale_device != NULL)
        bmm2_scale = *params->output.bmm2_scale_device;
    const char *query = (const char *)params->query.rows +
                        2 * (row->request * params->query.token_stride + row->q_head * params->query.head_stride);
    for (int element = 0; element < row->head_dim; element++) {
        row->query[element] = decode(row->is_bf16, query + 2 * element);
        row->output[element] = 0;
    }
    row->max = (float)-INFINITY;
    row->sum = 0;
    int64_t query_position =
        (int64_t)(row->seq_len - 1) * params->schedule.position_stride.value + params->schedule.position_offset;
    if (params->schedule.query_positions != NULL)
        query_position = params->schedule.query_positions[row->request];
    int end = row->seq_len;
    if (host_gpu_has_defect("skip_token") && end > 40)
        end--;
    if (host_gpu_has_defect("leak"))
        end = (end + page_size - 1) / page_size * page_size;
    for (int first = 0; first < end; first += TILE_TOKENS)
        add_tile(row, first, first + TILE_TOKENS < end ? first + TILE_TOKENS : end, query_position, scale_log2);
    store(row, bmm2_scale);
}

static int num_kv_heads(const struct gqa_decode_params *params) {
    return params->schedule.heads_per_sequence * (int)params->schedule.sequences_per_request.value;
}

static void damage(const struct gqa_decode_params *params, int head_dim) {
    int64_t last = (params->schedule.batch_size - 1) * params->output.token_stride +
                   ((int64_t)num_kv_heads(params) * params->query.group_size - 1) * params->output.head_stride;
    if (host_gpu_has_defect("wild_write"))
        memset((char *)params->output.rows + 2 * (last + head_dim), 0, 2);
    if (host_gpu_has_defect("workspace"))
        memset((char *)params->records - 4, 0, 4);
    if (host_gpu_has_defect("input")) /* behind the last page of the first request: no result changes */
        ((int32_t *)(uintptr_t)params->schedule.page_table)[params->schedule.page_table_request_stride - 1] = 0;
}

static void gqa_decode(const char *kernel, const struct gqa_decode_params *params) {
    struct row row = {.params = params, .head_dim = params->query.head_dim, .is_bf16 = strstr(kernel, "kvbf16") != NULL};
    for (row.request = 0; row.request < params->schedule.batch_size; row.request++) {
        for (row.kv_head = 0; row.kv_head < num_kv_heads(params); row.kv_head++) {
            row.seq_len = params->schedule.seq_lens[row.request * params->schedule.seq_lens_request_stride +
                                                    row.kv_head * params->schedule.seq_lens_head_stride];
            if (row.seq_len > params->schedule.max_tokens)
                row.seq_len = params->schedule.max_tokens + (host_gpu_has_defect("read_on") ? 1 : 0);
            if (row.seq_len < 0)
                row.seq_len = 0;
            row.k_ids = params->schedule.page_table + row.request * params->schedule.page_table_request_stride +
                        row.kv_head * params->schedule.page_table_head_stride;
            row.v_ids = row.k_ids + params->schedule.page_table_v_offset;
            for (int member = 0; member < params->query.group_size; member++) {
                row.q_head = row.kv_head * params->query.group_size + member;
                decode_row(params, &row);
            }
        }
    }
    damage(params, row.head_dim);
}

void host_gpu_execute(const char *kernel, const void *parameters) {
    if (strncmp(kernel, "gqa_decode_", 11) == 0) {
        gqa_decode(kernel, parameters);
        return;
    }
    /* the read ceiling: both ends must be there */
    const struct read_ceiling_params *ceiling = parameters;
    const volatile char *data = ceiling->data;
    if (ceiling->bytes > 0)
        (void)(data[0] + data[ceiling->bytes - 1]);
}
