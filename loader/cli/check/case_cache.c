/* SPDX-License-Identifier: Apache-2.0 */
/*
 * case_cache.c: lengths, page table and visibility of a test case in, its pools of K and V out. A row exists only where some
 * query sees it; everything else stays NaN. Before: case_making.c. Next: cases.c, which makes the rest.
 */
#include "case_cache.h"

#include <stdlib.h>
#include <string.h>

#include "case_latent_rows.h"
#include "case_offsets.h"
#include "dtype.h"
#include "element.h"
#include "problem.h"

#define MAX_HEAD_DIM 1024

/* Strides of one tensor; returns the elements of a page. `gap`: elements left free behind every row, head and page. */
static int64_t set_strides(const libdecode_problem *problem, bool nhd, int64_t elements, int64_t gap, int64_t *page,
                           int64_t *head, int64_t *token) {
    int64_t row = elements + gap;
    *head = nhd ? row : problem->page_size * row + gap;
    *token = nhd ? problem->num_kv_heads * row + gap : row;
    *page = (nhd ? problem->page_size * *token : problem->num_kv_heads * *head) + gap;
    return *page;
}

/* All that an element must not be which nobody may look at. Scales of NVFP4 are e4m3. */
static uint8_t *new_pool(struct making *making, int64_t elements, libdecode_dtype dtype, size_t field) {
    size_t bytes = (size_t)elements * (size_t)dtype_bits(dtype) / 8;
    uint8_t *pool = new_buffer(making, bytes, field);
    if (pool != NULL && dtype_bits(dtype) == 8)
        poison_fp8(dtype, pool, bytes);
    return pool;
}

/* Of no multiple of 16 bytes, but of whole elements. */
static int64_t odd_gap(struct making *making) {
    if (!has(making, CASE_ODD_STRIDES))
        return 0;
    return INT64_C(1) << random_below(&making->random, dtype_bits(making->problem->kv_dtype) == 8 ? 4 : 3);
}

/* Elements from a row of NVFP4 to the next: whole 16 bytes. */
static int64_t row_elements(const libdecode_problem *problem) {
    const int64_t together = ROW_ALIGNMENT_BYTES * 2;
    if (problem->kv_dtype != LIBDECODE_DTYPE_NVFP4)
        return problem->head_dim;
    return (problem->head_dim + together - 1) / together * together;
}

static bool make_pools(struct making *making) {
    libdecode_problem *problem = making->problem;
    struct host_case *result = making->result;
    const bool padded = has(making, CASE_PADDED_STRIDES), combined = has(making, CASE_COMBINED_POOL), nhd = has(making, CASE_NHD);
    const libdecode_dtype dtype = problem->kv_dtype;
    const int bits = dtype_bits(dtype);
    const int64_t gap = padded ? ROW_ALIGNMENT_BYTES * 8 / bits : 0;
    const bool is_plain = making->formats->kv_row_format == LIBDECODE_KV_ROW_PLAIN;
    const int64_t row = row_elements(problem);
    const int64_t k_row = is_plain ? row : latent_row_elements(making->formats->kv_row_format);
    int64_t k_page = set_strides(problem, nhd, k_row, gap + odd_gap(making), &problem->k_page_stride, &problem->k_head_stride,
                                 &problem->k_token_stride);
    int64_t v_page = set_strides(problem, nhd || padded, row, gap + odd_gap(making), &problem->v_page_stride,
                                 &problem->v_head_stride, &problem->v_token_stride);
    if (has(making, CASE_KV_OFFSETS)) {
        problem->k_page_stride = k_page += KV_OFFSET_ROOM;
        problem->v_page_stride = v_page += KV_OFFSET_ROOM;
    }
    if (is_mla(making)) { /* has none of these */
        problem->k_head_stride = problem->v_page_stride = problem->v_head_stride = problem->v_token_stride = 0;
        making->pools.k_cache = new_pool(making, problem->num_pages * k_page, dtype, offsetof(libdecode_tensors, k_cache));
        return making->pools.k_cache != NULL;
    }
    problem->kv_layout = nhd ? LIBDECODE_KV_NHD : LIBDECODE_KV_HND;
    int64_t k_elements = problem->num_pages * k_page, v_elements = problem->num_pages * v_page;
    if (combined) {
        problem->k_page_stride = problem->v_page_stride = k_page + v_page;
        k_elements = problem->num_pages * (k_page + v_page);
    }
    making->pools.k_cache = new_pool(making, k_elements, dtype, offsetof(libdecode_tensors, k_cache));
    if (making->pools.k_cache == NULL)
        return false;
    if (combined) {
        struct case_buffer *pool = &result->buffers[result->num_buffers - 1];
        pool->second_field = offsetof(libdecode_tensors, v_cache);
        pool->second_offset = (size_t)k_page * (size_t)bits / 8;
        result->tensors.v_cache = making->pools.v_cache = making->pools.k_cache + pool->second_offset;
    } else {
        making->pools.v_cache = new_pool(making, v_elements, dtype, offsetof(libdecode_tensors, v_cache));
    }
    return making->pools.v_cache != NULL &&
           make_kv_offsets(making, problem->k_page_stride, offsetof(libdecode_tensors, k_offsets)) &&
           make_kv_offsets(making, problem->v_page_stride, offsetof(libdecode_tensors, v_offsets));
}

/* Bytes of the scales of a token: without a gap where copies of 16 bytes find them so; of no whole number of words, which none finds, words. */
static int64_t scale_row(const libdecode_problem *problem, bool nhd, bool padded) {
    const int64_t row = problem->head_dim / NVFP4_BLOCK, together = nhd ? problem->num_kv_heads : problem->page_size;
    if (!padded && row % 4 != 0)
        return (row + 3) / 4 * 4;
    if (!padded && row * together % ROW_ALIGNMENT_BYTES == 0)
        return row;
    return (row + ROW_ALIGNMENT_BYTES - 1) / ROW_ALIGNMENT_BYTES * ROW_ALIGNMENT_BYTES;
}

/* Interleaved scales are one block for every page and head, with room only between heads and pages. */
static bool make_scale_pools(struct making *making) {
    libdecode_problem *problem = making->problem;
    if (problem->kv_dtype != LIBDECODE_DTYPE_NVFP4 || is_mla(making))
        return true;
    const bool padded = has(making, CASE_PADDED_STRIDES), nhd = has(making, CASE_NHD);
    const int64_t row = problem->head_dim / NVFP4_BLOCK;
    const int64_t gap = padded ? ROW_ALIGNMENT_BYTES + (row % 4 != 0 ? 4 : 0) : 0;
    int64_t k_page = set_strides(problem, nhd, scale_row(problem, nhd, padded), gap, &problem->k_sf_page_stride,
                                 &problem->k_sf_head_stride, &problem->k_sf_token_stride);
    int64_t v_page;
    if (problem->v_sf_layout == LIBDECODE_SF_V_INTERLEAVE4) {
        problem->v_sf_token_stride = row;
        problem->v_sf_head_stride = problem->page_size * row + gap;
        v_page = problem->v_sf_page_stride = problem->num_kv_heads * problem->v_sf_head_stride + gap;
    } else {
        v_page = set_strides(problem, nhd || padded, scale_row(problem, nhd, padded), gap, &problem->v_sf_page_stride,
                             &problem->v_sf_head_stride, &problem->v_sf_token_stride);
    }
    making->pools.k_sf = new_pool(making, problem->num_pages * k_page, LIBDECODE_DTYPE_E4M3, offsetof(libdecode_tensors, k_sf));
    making->pools.v_sf = new_pool(making, problem->num_pages * v_page, LIBDECODE_DTYPE_E4M3, offsetof(libdecode_tensors, v_sf));
    return making->pools.k_sf != NULL && making->pools.v_sf != NULL;
}

/*
 * Tokens that a kernel is most likely to forget: those at the borders of tiles, the first and the last one that is visible.
 * Their values are larger in every case, so that each of them is missed; with CASE_OUTLIERS their keys are larger, too.
 */
static bool is_beacon(const struct making *making, int32_t request, int32_t sequence, int32_t token) {
    const int32_t in_tile = token % TILE_TOKENS;
    return in_tile == 0 || in_tile == TILE_TOKENS - 1 || !is_visible(making, request, sequence, token - 1) ||
           token + 1 == making->seq_lens[sequence] || !is_visible(making, request, sequence, token + 1);
}

/* Of NVFP4, whole blocks: they share a scale. */
static bool is_outlier_channel(const struct making *making, int32_t element) {
    if (!has(making, CASE_OUTLIERS))
        return false;
    return making->formats->kv_dtype == LIBDECODE_DTYPE_NVFP4 ? element / NVFP4_BLOCK % 3 == 1 : element % 43 == 5;
}

static void write_code(const struct making *making, uint8_t *row, int32_t element, uint16_t code) {
    const int bits = dtype_bits(making->formats->kv_dtype);
    if (bits == 16)
        memcpy(row + 2 * element, &code, 2);
    else if (bits == 8)
        row[element] = (uint8_t)code;
    else
        row[element / 2] = (uint8_t)(element % 2 == 0 ? code : row[element / 2] | code << 4);
}

/* The keys of huge scores: the score rises by a step now and then, so that a running maximum is left behind by little. */
static void write_huge_key(struct making *making, struct kv_row k, int32_t token, int32_t seq_len) {
    double key[MAX_HEAD_DIM] = {HUGE_KEY};
    const int32_t head_dim = making->problem->head_dim;
    int64_t step = (int64_t)token * HUGE_STEPS / seq_len;
    if (has(making, CASE_NEGATIVE_SCALE))
        step = HUGE_STEPS - step;
    key[HUGE_STEP_CHANNEL] = (double)step;
    if (making->formats->kv_row_format != LIBDECODE_KV_ROW_PLAIN) {
        write_latent_huge_row(making->formats->kv_row_format, k.elements, (double)step);
        return;
    }
    if (making->formats->kv_dtype != LIBDECODE_DTYPE_NVFP4) {
        element_encode_row(making->formats->kv_dtype, key, (size_t)head_dim, k.elements);
        return;
    }
    memset(k.elements, 0, (size_t)head_dim / 2);
    for (int32_t block = 0; block < head_dim / NVFP4_BLOCK; block++) {
        const double value = key[block * NVFP4_BLOCK];
        k.scales[(size_t)block * k.scale_step] = e4m3_encode(value);
        k.elements[block * NVFP4_BLOCK / 2] = e2m1_encode(value != 0 ? 1.0 : 0.0);
    }
}

/* One row of K or of V. */
static void write_row(struct making *making, struct kv_row row, const struct palette palettes[2][2], const double factors[2][2],
                      bool beacon) {
    const bool special = has(making, CASE_SPECIAL_VALUES);
    if (making->formats->kv_row_format != LIBDECODE_KV_ROW_PLAIN) {
        write_latent_row(making, row.elements, special ? &making->palettes->special : &palettes[beacon][0], factors[beacon][0]);
        return;
    }
    for (int32_t element = 0; element < making->problem->head_dim; element++) {
        const struct palette *palette =
            special ? &making->palettes->special : &palettes[beacon][is_outlier_channel(making, element)];
        write_code(making, row.elements, element, palette->codes[random_bits(&making->random) % PALETTE_SIZE]);
    }
    for (int32_t element = 0; row.scales != NULL && element < making->problem->head_dim; element += NVFP4_BLOCK) {
        uint8_t scale = random_scale(&making->random, factors[beacon][is_outlier_channel(making, element)]);
        if (special)
            scale = (uint8_t)random_below(&making->random, 0x7f); /* every one but NaN */
        else if (random_below(&making->random, 32) == 0)
            scale = 0;
        row.scales[(size_t)(element / NVFP4_BLOCK) * row.scale_step] = scale;
    }
}

struct kv_row case_kv_row(const libdecode_problem *problem, const struct kv_pools *pools, bool is_v, const int32_t *ids,
                          int64_t shift, int32_t token, int32_t head) {
    const int64_t page = ids[token / problem->page_size], page_token = token % problem->page_size;
    struct kv_row row = {.scale_step = 1};
    if (page < 0 || page >= problem->num_pages)
        return row;
    const int64_t k_offset = page * problem->k_page_stride + head * problem->k_head_stride + page_token * problem->k_token_stride;
    const int64_t v_offset = page * problem->v_page_stride + head * problem->v_head_stride + page_token * problem->v_token_stride;
    row.elements = (is_v ? pools->v_cache : pools->k_cache) +
                   (size_t)((is_v ? v_offset : k_offset) + shift) * (size_t)dtype_bits(problem->kv_dtype) / 8;
    if (problem->kv_dtype != LIBDECODE_DTYPE_NVFP4 || problem->op == LIBDECODE_OP_MLA_DECODE)
        return row;
    row.scales = is_v ? pools->v_sf + page * problem->v_sf_page_stride + head * problem->v_sf_head_stride
                      : pools->k_sf + page * problem->k_sf_page_stride + head * problem->k_sf_head_stride;
    row.scales += nvfp4_scale_offset(is_v ? problem->v_sf_layout : LIBDECODE_SF_LINEAR,
                                     is_v ? problem->v_sf_token_stride : problem->k_sf_token_stride, (size_t)page_token,
                                     (size_t)problem->head_dim, &row.scale_step);
    return row;
}

/* NaN in a row that the query sees: of one element, or with a scale of 16. It has either sign. */
static void write_nan(struct making *making, struct kv_row row, int32_t element, uint8_t code) {
    const uint16_t wide = 0x7fff;
    if (row.elements == NULL)
        return;
    if (making->formats->kv_row_format != LIBDECODE_KV_ROW_PLAIN)
        write_latent_nan(making->formats->kv_row_format, row.elements, element, code);
    else if (row.scales != NULL)
        row.scales[(size_t)(element / NVFP4_BLOCK) * row.scale_step] = code;
    else if (dtype_bits(making->formats->kv_dtype) == 16)
        memcpy(row.elements + 2 * element, &wide, sizeof wide);
    else
        row.elements[element] = code;
}

/* In the first head of most requests, somewhere: in K, which spoils every result of the head, or in V. */
static void write_visible_nan(struct making *making, int32_t request, struct kv_row k, struct kv_row v) {
    const uint8_t code = request % 2 == 0 ? POISON_BYTE : POISON_OTHER_BYTE;
    const int32_t element = (int32_t)random_below(&making->random, (uint32_t)making->problem->head_dim);
    if (request % 4 == 1)
        write_nan(making, k, element, code);
    else if (request % 4 != 3)
        write_nan(making, v, element, code);
}

/* All rows of one KV head of one request. */
static void write_sequence(struct making *making, int32_t request, int32_t head) {
    const libdecode_problem *problem = making->problem;
    const struct case_factors *factors = problem->kv_dtype == LIBDECODE_DTYPE_NVFP4 ? &case_factors_nvfp4 : &case_factors;
    const int32_t sequence = request * making->tables_per_request + (has(making, CASE_PER_HEAD) ? head : 0);
    const int32_t seq_len = making->seq_lens[sequence];
    const int32_t *k_ids =
        making->page_table + request * problem->page_table_request_stride + head * problem->page_table_head_stride;
    const int32_t *v_ids = k_ids + problem->page_table_v_offset;
    const libdecode_tensors *tensors = &making->result->tensors;
    const bool is_contiguous = has(making, CASE_CONTIGUOUS);
    const int64_t k_shift = kv_shift(tensors->k_offsets, is_contiguous, request, problem->k_page_stride);
    const int64_t v_shift = kv_shift(tensors->v_offsets, is_contiguous, request, problem->v_page_stride);
    for (int32_t token = 0; token < seq_len; token++) {
        if (!is_visible(making, request, sequence, token))
            continue;
        const bool beacon = is_beacon(making, request, sequence, token);
        const struct kv_row k = case_kv_row(problem, &making->pools, false, k_ids, k_shift, token, head);
        const struct kv_row v = is_mla(making) ? (struct kv_row){.elements = NULL}
                                               : case_kv_row(problem, &making->pools, true, v_ids, v_shift, token, head);
        if (k.elements != NULL)
            write_row(making, k, making->palettes->k, factors->k, beacon && has(making, CASE_OUTLIERS));
        if (v.elements != NULL)
            write_row(making, v, making->palettes->v, factors->v, beacon);
        if (k.elements != NULL && has(making, CASE_HUGE_SCORES))
            write_huge_key(making, k, token, seq_len);
        if (has(making, CASE_VISIBLE_NAN) && head == 0 && (token == seq_len / 2 || token + 1 == seq_len))
            write_visible_nan(making, request, k, v);
    }
}

bool make_kv_cache(struct making *making) {
    const libdecode_problem *problem = making->problem;
    if (!make_pools(making) || !make_scale_pools(making))
        return false;
    for (int32_t request = 0; request < problem->batch_size; request++) {
        for (int32_t head = 0; head < problem->num_kv_heads; head++)
            write_sequence(making, request, head);
    }
    return true;
}
