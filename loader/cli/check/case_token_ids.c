/* SPDX-License-Identifier: Apache-2.0 */
/*
 * case_token_ids.c: a query token names rows of its request, in any order and some of them twice; between them stand ids that name
 * none. What stands behind the ids that count names rows of NaN. Next: case_cache.c.
 */
#include "case_token_ids.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_TOP_K = 2048 };

/* Of a multiple of nothing, of tiles and their neighbours, more than there are tokens. */
static int32_t drawn_top_k(struct making *making) {
    const int32_t longest = making->result->longest;
    if (has(making, CASE_ALL_ROWS))
        return longest;
    const int32_t counts[] = {1, 3, 63, 64, 65, 200, longest, longest / 2 + 1, longest + 7, MAX_TOP_K};
    const int32_t count = counts[random_below(&making->random, sizeof counts / sizeof counts[0])];
    return count < 1 ? 1 : count > MAX_TOP_K ? MAX_TOP_K : count;
}

/* Ids that count, of the query token in that row of them all. */
static int64_t num_ids(const struct making *making, int32_t request, struct query_rows rows, int32_t query) {
    const libdecode_tensors *tensors = &making->result->tensors;
    const int32_t top_k = making->problem->sparse_top_k;
    const int64_t seq_len = tensors->seq_lens != NULL ? tensors->seq_lens[request] : 0;
    const int64_t count = tensors->sparse_top_k_lens != NULL ? tensors->sparse_top_k_lens[rows.first + query]
                                                             : (seq_len > 0 ? seq_len : 0) - rows.count + query + 1;
    return count < 0 ? 0 : count > top_k ? top_k : count;
}

static int32_t token_id(const struct making *making, int32_t request, int32_t token) {
    const libdecode_problem *problem = making->problem;
    const int32_t *ids = making->page_table + request * problem->page_table_request_stride;
    return ids[token / problem->page_size] * problem->page_size + token % problem->page_size;
}

/* One that names no row, or none that may be looked at. */
static int32_t empty_id(struct making *making) {
    const int64_t num_tokens = making->problem->num_pages * making->problem->page_size;
    const int32_t ids[] = {-1, (int32_t)num_tokens, INT32_MAX, INT32_MIN, -(int32_t)num_tokens};
    return ids[random_below(&making->random, sizeof ids / sizeof ids[0])];
}

/* The first row of a page that nobody owns. */
static int32_t poisoned_id(const struct making *making) {
    const libdecode_problem *problem = making->problem;
    return making->page_table[problem->batch_size * problem->page_table_request_stride] * problem->page_size;
}

static void fill_ids(struct making *making, int32_t request, int64_t count, int32_t *ids) {
    const int32_t seq_len = making->seq_lens[request], top_k = making->problem->sparse_top_k;
    const bool all_named = random_below(&making->random, 4) == 0, none_named = random_below(&making->random, 16) == 0;
    for (int32_t column = 0; column < top_k; column++) {
        /* rows that count many times would add up rounding errors that are alike, which compare.c does not expect */
        const bool is_behind = column >= seq_len + seq_len / 4;
        const bool is_empty = none_named || is_behind || (!all_named && random_below(&making->random, 5) == 0);
        ids[column] = column >= count ? poisoned_id(making) : empty_id(making);
        if (column >= count || is_empty)
            continue;
        const bool in_order = top_k >= seq_len && column < seq_len && random_below(&making->random, 8) != 0;
        const int32_t token = in_order ? column : (int32_t)random_below(&making->random, (uint32_t)seq_len);
        ids[column] = token_id(making, request, token);
        making->named[request][token] = true;
    }
}

static bool make_lens(struct making *making, int64_t num_tokens) {
    const int32_t top_k = making->problem->sparse_top_k;
    if (!has(making, CASE_TOP_K_LENS))
        return true;
    int32_t *lens = NEW_BUFFER(making, num_tokens, sizeof(int32_t), sparse_top_k_lens);
    for (int64_t token = 0; lens != NULL && token < num_tokens; token++) {
        const int32_t drawn = (int32_t)random_below(&making->random, (uint32_t)top_k + 1);
        const int32_t choice[] = {drawn, top_k, drawn, 0, drawn, 1, top_k + 1, drawn, -1, INT32_MAX, INT32_MIN, top_k - 1};
        lens[token] = choice[token % (int64_t)(sizeof choice / sizeof choice[0])];
    }
    making->problem->features |= LIBDECODE_FEATURE_SPARSE_TOP_K_LENS;
    return lens != NULL;
}

bool make_token_ids(struct making *making) {
    libdecode_problem *problem = making->problem;
    if (!is_sparse(making))
        return true;
    problem->sparse_top_k = drawn_top_k(making);
    problem->kv_row_format = making->formats->kv_row_format;
    problem->sparse_token_ids_stride = problem->sparse_top_k + (has(making, CASE_PADDED_STRIDES) ? 5 : 0);
    const struct query_rows last = query_rows_of(making, problem->batch_size - 1);
    const int64_t num_tokens = last.first + last.count;
    int32_t *ids = NEW_BUFFER(making, num_tokens * problem->sparse_token_ids_stride, sizeof(int32_t), sparse_token_ids);
    making->named = calloc((size_t)problem->batch_size, sizeof making->named[0]);
    if (ids == NULL || making->named == NULL || !make_lens(making, num_tokens))
        return false;
    for (int32_t request = 0; request < problem->batch_size; request++) {
        const struct query_rows rows = query_rows_of(making, request);
        making->named[request] = calloc((size_t)making->seq_lens[request] + 1, sizeof making->named[0][0]);
        if (making->named[request] == NULL)
            return false;
        for (int32_t query = 0; query < rows.count; query++)
            fill_ids(making, request, num_ids(making, request, rows, query),
                     ids + (rows.first + query) * problem->sparse_token_ids_stride);
    }
    return true;
}

void drop_page_table(struct making *making) {
    struct host_case *result = making->result;
    for (int32_t request = 0; making->named != NULL && request < making->problem->batch_size; request++)
        free(making->named[request]);
    free(making->named);
    making->named = NULL;
    making->problem->page_table_request_stride = 0;
    result->tensors.page_table = NULL;
    for (size_t buffer = 0; buffer < result->num_buffers; buffer++) {
        if (result->buffers[buffer].field != offsetof(libdecode_tensors, page_table))
            continue;
        free(result->buffers[buffer].data);
        result->buffers[buffer] = result->buffers[--result->num_buffers];
    }
    making->page_table = NULL;
}
