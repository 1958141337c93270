/* SPDX-License-Identifier: Apache-2.0 */
/*
 * case_cache.c: lengths, page table and visibility of a test case in, its pools of K and V out. A row exists only where some
 * query sees it; everything else stays NaN. Before: case_making.c. Next: cases.c, which makes the rest.
 */
#include "case_cache.h"

#include <stdlib.h>
#include <string.h>

#include "element.h"

#define MAX_HEAD_DIM 1024

/* Strides of one tensor; returns the elements of a page. `gap`: elements left free behind every row, head and page. */
static int64_t set_strides(const libdecode_problem *problem, bool nhd, int64_t gap, int64_t *page, int64_t *head,
                           int64_t *token) {
    int64_t row = problem->head_dim + gap;
    *head = nhd ? row : problem->page_size * row + gap;
    *token = nhd ? problem->num_kv_heads * row + gap : row;
    *page = (nhd ? problem->page_size * *token : problem->num_kv_heads * *head) + gap;
    return *page;
}

static bool make_pools(struct making *making) {
    libdecode_problem *problem = making->problem;
    struct host_case *result = making->result;
    const bool padded = has(making, CASE_PADDED_STRIDES), combined = has(making, CASE_COMBINED_POOL);
    const int64_t gap = padded ? 8 : 0;
    const size_t bytes = making->element_bytes;
    int64_t k_page = set_strides(problem, has(making, CASE_NHD), gap, &problem->k_page_stride, &problem->k_head_stride,
                                 &problem->k_token_stride);
    int64_t v_page = set_strides(problem, has(making, CASE_NHD) || padded, gap, &problem->v_page_stride, &problem->v_head_stride,
                                 &problem->v_token_stride);
    problem->kv_layout = has(making, CASE_NHD) ? LIBDECODE_KV_NHD : LIBDECODE_KV_HND;
    int64_t k_elements = problem->num_pages * k_page, v_elements = problem->num_pages * v_page;
    if (combined) {
        problem->k_page_stride = problem->v_page_stride = k_page + v_page;
        k_elements = v_elements = problem->num_pages * (k_page + v_page);
    }
    making->k_cache = NEW_BUFFER(making, k_elements, bytes, k_cache);
    if (making->k_cache == NULL)
        return false;
    const size_t v_offset = combined ? (size_t)k_page * bytes : 0;
    if (combined) {
        struct case_buffer *pool = &result->buffers[result->num_buffers - 1];
        pool->second_field = offsetof(libdecode_tensors, v_cache);
        pool->second_offset = v_offset;
        making->v_cache = making->k_cache + v_offset;
        result->tensors.v_cache = making->v_cache;
    } else {
        making->v_cache = NEW_BUFFER(making, v_elements, bytes, v_cache);
    }
    result->squared_buffer = aligned_alloc(256, ((size_t)v_elements * bytes + 256) / 256 * 256);
    if (making->v_cache == NULL || result->squared_buffer == NULL)
        return false;
    memset(result->squared_buffer, POISON_BYTE, (size_t)v_elements * bytes);
    making->v_squared = (uint8_t *)result->squared_buffer + v_offset;
    result->v_cache_squared = making->v_squared;
    return true;
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

static bool is_outlier_channel(const struct making *making, int32_t element) {
    return has(making, CASE_OUTLIERS) && element % 43 == 5;
}

static void write_code(const struct making *making, uint8_t *row, int32_t element, uint16_t code) {
    if (making->element_bytes == 2)
        memcpy(row + 2 * element, &code, 2);
    else
        row[element] = (uint8_t)code;
}

/* The keys of huge scores: the score rises by a step now and then, so that a running maximum is left behind by little. */
static void write_huge_key(struct making *making, uint8_t *k_row, int32_t token, int32_t seq_len) {
    double key[MAX_HEAD_DIM] = {HUGE_KEY};
    int64_t step = (int64_t)token * HUGE_STEPS / seq_len;
    if (has(making, CASE_NEGATIVE_SCALE))
        step = HUGE_STEPS - step;
    key[1] = (double)step;
    element_encode_row(making->problem->kv_dtype, key, (size_t)making->problem->head_dim, k_row);
}

/* One row of K, and of V with its square. */
static void write_row(struct making *making, uint8_t *k_row, uint8_t *v_row, uint8_t *squared_row, bool beacon) {
    const int outlier_token = beacon && has(making, CASE_OUTLIERS);
    for (int32_t element = 0; element < making->problem->head_dim; element++) {
        const int outlier_channel = is_outlier_channel(making, element);
        uint64_t bits = random_bits(&making->random);
        size_t k_index = bits % PALETTE_SIZE, v_index = (bits >> 32) % PALETTE_SIZE;
        if (k_row != NULL)
            write_code(making, k_row, element, making->palettes->k[outlier_token][outlier_channel].codes[k_index]);
        if (v_row != NULL) {
            write_code(making, v_row, element, making->palettes->v[beacon][outlier_channel].codes[v_index]);
            write_code(making, squared_row, element, making->palettes->squared[beacon][outlier_channel].codes[v_index]);
        }
    }
}

/* Offset in bytes of a row, or SIZE_MAX where the page id names no page. */
static size_t row_offset(const struct making *making, const int32_t *ids, int32_t token, int32_t head, int64_t page_stride,
                         int64_t head_stride, int64_t token_stride) {
    const libdecode_problem *problem = making->problem;
    int64_t page = ids[token / problem->page_size];
    if (page < 0 || page >= problem->num_pages)
        return SIZE_MAX;
    return (size_t)(page * page_stride + head * head_stride + token % problem->page_size * token_stride) * making->element_bytes;
}

static void write_visible_rows(struct making *making) {
    const libdecode_problem *problem = making->problem;
    for (int32_t request = 0; request < problem->batch_size; request++) {
        for (int32_t head = 0; head < problem->num_kv_heads; head++) {
            int32_t sequence = request * making->tables_per_request + (has(making, CASE_PER_HEAD) ? head : 0);
            const int32_t *k_ids =
                making->page_table + request * problem->page_table_request_stride + head * problem->page_table_head_stride;
            const int32_t *v_ids = k_ids + problem->page_table_v_offset;
            for (int32_t token = 0; token < making->seq_lens[sequence]; token++) {
                if (!is_visible(making, request, sequence, token))
                    continue;
                size_t k_row = row_offset(making, k_ids, token, head, problem->k_page_stride, problem->k_head_stride,
                                          problem->k_token_stride);
                size_t v_row = row_offset(making, v_ids, token, head, problem->v_page_stride, problem->v_head_stride,
                                          problem->v_token_stride);
                write_row(making, k_row == SIZE_MAX ? NULL : making->k_cache + k_row,
                          v_row == SIZE_MAX ? NULL : making->v_cache + v_row,
                          v_row == SIZE_MAX ? NULL : making->v_squared + v_row, is_beacon(making, request, sequence, token));
                if (k_row != SIZE_MAX && has(making, CASE_HUGE_SCORES))
                    write_huge_key(making, making->k_cache + k_row, token, making->seq_lens[sequence]);
            }
        }
    }
}

bool make_kv_cache(struct making *making) {
    if (!make_pools(making))
        return false;
    write_visible_rows(making);
    making->result->largest_v = making->palettes->v[1][has(making, CASE_OUTLIERS)].largest;
    return true;
}
