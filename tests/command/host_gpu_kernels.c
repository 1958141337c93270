/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host_gpu_kernels.c: a parameter block of kernels/abi.h in, what the kernel computes out, in f32 with operands of 16 bits: the
 * query and P in bf16 with bf16 KV, in fp16 with every other. Tile by tile with a running maximum. Written from abi.h, not from
 * reference.c, so that the two check each other; the elements alone are decoded and encoded by the same code.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "abi.h"
#include "element.h"
#include "host_gpu.h"

#define TILE_TOKENS 64
#define MAX_HEAD_DIM 512
#define BLOCK 16 /* elements that share a scale */

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
    uint32_t kv_dtype;
    int request, kv_head, q_head;
    int seq_len;
    const int32_t *k_ids, *v_ids;
    float query[MAX_HEAD_DIM], output[MAX_HEAD_DIM];
    float query_scale; /* what the query was divided by to become fp16 */
    float max, sum;    /* base 2 */
};

static uint32_t kv_dtype_of(const char *kernel) {
    static const char *const names[] = {"_kvbf16_", "_kvfp16_", "_kve4m3_", "_kvnvfp4_"};
    for (uint32_t index = 0; index < 4; index++) {
        if (strstr(kernel, names[index]) != NULL)
            return KERNEL_DTYPE_BF16 + index;
    }
    return 0;
}

static size_t element_bits(uint32_t dtype) { return dtype == KERNEL_DTYPE_NVFP4 ? 4 : dtype == KERNEL_DTYPE_E4M3 ? 8 : 16; }

/* Through tables, a row at a time: most of the time goes here. NVFP4: the codes, without their scales. */
static void decode_row(uint32_t dtype, const uint8_t *row, int elements, float *values) {
    static float bf16[65536], fp16[65536], e4m3[256], e2m1[16];
    static int is_filled;
    for (unsigned code = 0; is_filled == 0 && code < 65536; code++) {
        fp16[code] = (float)fp16_decode((uint16_t)code);
        bf16[code] = (float)bf16_decode((uint16_t)code);
        e4m3[code % 256] = (float)e4m3_decode((uint8_t)(code % 256));
        e2m1[code % 16] = (float)e2m1_decode((uint8_t)(code % 16));
    }
    is_filled = 1;
    if (element_bits(dtype) == 4) {
        for (int element = 0; element < elements; element++)
            values[element] = e2m1[row[element / 2] >> element % 2 * 4 & 15];
    } else if (element_bits(dtype) == 8) {
        for (int element = 0; element < elements; element++)
            values[element] = e4m3[row[element]];
    } else {
        const float *const table = dtype == KERNEL_DTYPE_BF16 ? bf16 : fp16;
        for (int element = 0; element < elements; element++) {
            uint16_t code;
            memcpy(&code, row + 2 * element, sizeof code);
            values[element] = table[code];
        }
    }
}

/* To the dtype of the matrix operands. */
static float round_operand(uint32_t kv_dtype, float value) {
    if (host_gpu_has_defect("e4m3_operands"))
        return (float)e4m3_decode(e4m3_encode((double)value * 448)) / 448;
    return (float)(kv_dtype == KERNEL_DTYPE_BF16 ? bf16_decode(bf16_encode((double)value))
                                                 : fp16_decode(fp16_encode((double)value)));
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
static struct kv_row kv_row(const struct row *row, int of_v, int token) {
    const struct gqa_decode_params *params = row->params;
    const struct row_source *source = of_v != 0 ? &params->v_rows : &params->k_rows;
    const struct row_source *scales = of_v != 0 ? &params->v_scales : &params->k_scales;
    const int page_size = (int)params->schedule.page_size.value;
    const int64_t page = (of_v != 0 ? row->v_ids : row->k_ids)[token / page_size], page_token = token % page_size;
    struct host_gpu_map map;
    struct kv_row found = {.scale_step = 1};
    memcpy(&map, of_v != 0 ? params->v_map.opaque : params->k_map.opaque, sizeof map);
    const int is_gathered = source->rows != NULL;
    if (page < 0 || (uint64_t)page >= (is_gathered != 0 ? (uint64_t)params->num_pages : map.num_pages))
        return found;
    if (is_gathered != 0)
        found.elements = row_address(source, page, row->kv_head, page_token);
    else
        found.elements = (const uint8_t *)(uintptr_t)map.address + (uint64_t)page * map.page_stride +
                         (uint64_t)row->kv_head * map.head_stride + (uint64_t)page_token * map.token_stride;
    if (row->kv_dtype != KERNEL_DTYPE_NVFP4)
        return found;
    if (of_v != 0 && params->v_scales_interleaved != 0 && !host_gpu_has_defect("linear_scales")) {
        found.scales = row_address(scales, page, row->kv_head, page_token / 4 * 4) + page_token % 4;
        found.scale_step = 4;
    } else {
        found.scales = row_address(scales, page, row->kv_head, page_token);
    }
    return found;
}

static void kv_elements(const struct row *row, struct kv_row from, float *values) {
    decode_row(row->kv_dtype, from.elements, row->head_dim, values);
    if (row->kv_dtype != KERNEL_DTYPE_NVFP4)
        return;
    const int blocks = row->head_dim / BLOCK, shift = host_gpu_has_defect("next_scale");
    for (int block = 0; block < blocks; block++) {
        float scale;
        decode_row(KERNEL_DTYPE_E4M3, from.scales + (block + shift) % blocks * from.scale_step, 1, &scale);
        for (int element = block * BLOCK; element < (block + 1) * BLOCK; element++)
            values[element] *= scale;
    }
}

static float score(const struct row *row, int token, float scale_log2) {
    const struct kv_row from = kv_row(row, 0, token);
    float k[MAX_HEAD_DIM], sum = 0;
    if (from.elements != NULL)
        kv_elements(row, from, k);
    for (int element = 0; from.elements != NULL && element < row->head_dim; element++)
        sum += row->query[element] * k[element];
    return sum * (scale_log2 * row->query_scale);
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
    float scores[TILE_TOKENS], v[MAX_HEAD_DIM], tile_max = row->max;
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
        const struct kv_row from = kv_row(row, 1, token);
        const float rounded = round_operand(row->kv_dtype, p);
        row->sum += p;
        if (from.elements == NULL || (isinf(scores[token - first]) && !host_gpu_has_defect("leak")))
            continue;
        kv_elements(row, from, v);
        for (int element = 0; element < row->head_dim; element++)
            row->output[element] += rounded * v[element];
    }
}

static void store_nvfp4(const struct row *row, const double *values, uint8_t *codes) {
    const struct output_params *output = &row->params->output;
    const size_t blocks = (size_t)row->head_dim / BLOCK, first = (size_t)row->q_head * blocks;
    const size_t used = (size_t)output->scale_columns, columns = (used + 3) / 4 * 4;
    const size_t scale_row = (size_t)(row->request + output->first_scale_row);
    for (size_t block = 0; block < blocks; block++) {
        const size_t column = host_gpu_has_defect("swizzle") ? (first + block) ^ 1 : first + block;
        output->scales[nvfp4_swizzled_offset(scale_row, column, columns)] =
            nvfp4_encode_block(values + block * BLOCK, (double)output->scale_factor, codes + block * BLOCK / 2);
    }
    for (size_t column = used; first + blocks == used && column < columns && !host_gpu_has_defect("padding"); column++)
        output->scales[nvfp4_swizzled_offset(scale_row, column, columns)] = 0;
}

static void store(const struct row *row, float bmm2_scale) {
    const struct gqa_decode_params *params = row->params;
    const uint32_t dtype = (uint32_t)params->output.dtype;
    uint8_t *out =
        (uint8_t *)params->output.rows + (row->request * params->output.token_stride + row->q_head * params->output.head_stride) *
                                             (int64_t)element_bits(dtype) / 8;
    double values[MAX_HEAD_DIM];
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
    for (int element = 0; element < row->head_dim; element++)
        values[element] = rescale != 0.0f ? (double)(row->output[element] * rescale) : 0.0;
    if (dtype == KERNEL_DTYPE_NVFP4)
        store_nvfp4(row, values, out);
    else
        element_encode_row((libdecode_dtype)dtype, values, (size_t)row->head_dim, out);
    for (int element = 0; is_unsteady && element < row->head_dim; element++)
        out[(size_t)element * element_bits(dtype) / 8] ^= ++stores % 100003 == 0;
    if (params->output.lse != NULL) {
        float lse = sum != 0 ? max + log2f(sum) : (float)-INFINITY;
        if (host_gpu_has_defect("wrong_lse"))
            lse *= 0.6931472f;
        params->output.lse[row->request * params->output.lse_token_stride + row->q_head * params->output.lse_head_stride] = lse;
    }
}

/* A bf16 row for fp16 operands is divided by a power of two that leaves its largest element below 2^15. */
static void load_query(struct row *row) {
    const struct query_params *query = &row->params->query;
    const uint32_t dtype = (uint32_t)query->dtype;
    const uint8_t *from = (const uint8_t *)query->rows + (row->request * query->token_stride + row->q_head * query->head_stride) *
                                                             (int64_t)element_bits(dtype) / 8;
    float largest = 0;
    int exponent = 0;
    decode_row(dtype, from, row->head_dim, row->query);
    for (int element = 0; element < row->head_dim; element++)
        largest = fmaxf(largest, fabsf(row->query[element]));
    row->query_scale = 1;
    if (dtype != KERNEL_DTYPE_BF16 || row->kv_dtype == KERNEL_DTYPE_BF16)
        return;
    (void)frexpf(largest, &exponent);
    if (largest > 0 && !host_gpu_has_defect("query_range"))
        row->query_scale = ldexpf(1, exponent - 15);
    for (int element = 0; element < row->head_dim; element++)
        row->query[element] = (float)fp16_decode(fp16_encode((double)row->query[element] / (double)row->query_scale));
}

static void attend(const struct gqa_decode_params *params, struct row *row) {
    int page_size = (int)params->schedule.page_size.value;
    float scale_log2 = params->query.bmm1_scale_log2, bmm2_scale = params->output.bmm2_scale;
    if (params->query.bmm1_scale_device != NULL)
        scale_log2 = *params->query.bmm1_scale_device * 1.4426950408889634f;
    if (params->query.bmm1_scale_log2_device != NULL)
        scale_log2 = *params->query.bmm1_scale_log2_device;
    if (params->output.bmm2_scale_device != NULL)
        bmm2_scale = *params->output.bmm2_scale_device;
    load_query(row);
    memset(row->output, 0, sizeof row->output);
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
        memset((char *)params->output.rows + (last + head_dim) * (int64_t)element_bits((uint32_t)params->output.dtype) / 8, 0, 2);
    if (host_gpu_has_defect("workspace"))
        memset((char *)params->records - 4, 0, 4);
    if (host_gpu_has_defect("input")) /* behind the last page of the first request: no result changes */
        ((int32_t *)(uintptr_t)params->schedule.page_table)[params->schedule.page_table_request_stride - 1] = 0;
}

static void gqa_decode(const char *kernel, const struct gqa_decode_params *params) {
    struct row row = {.params = params, .head_dim = params->query.head_dim, .kv_dtype = kv_dtype_of(kernel)};
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
                attend(params, &row);
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
