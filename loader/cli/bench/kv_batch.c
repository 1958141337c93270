/* SPDX-License-Identifier: Apache-2.0 */
/* kv_batch.c: a workload in; page tables, random KV, query and expectation on the host out. Beside: device_batch.c. */
#include "kv_batch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "dtype.h"
#include "element.h"
#include "host_reference.h"
#include "problem.h"
#include "random.h"
#include "reference.h"

#define BLOCK_BYTES (32u << 20) /* of K, and of V */
#define COLD_BYTES 200e6        /* between two reads of the same KV: more than three times the L2 cache of an H200 */
#define MAX_REGIONS 128
#define SEED 20
#define MAX_HEAD_DIM 1024
/* Element 0 of every query and, negative, of K in quiet pages: with head_dim 128 scores of -22 beside those of variance 1. */
#define LOUD 4.0
#define QUIET 64.0

int32_t kv_batch_regions(uint64_t kv_bytes) {
    /* what a single call of 400 MB and more leaves in the L2 cache, it has itself overwritten */
    if (kv_bytes == 0 || (double)kv_bytes >= 2 * COLD_BYTES)
        return 1;
    double regions = 1.0 + ceil(COLD_BYTES / (double)kv_bytes);
    return regions < MAX_REGIONS ? (int32_t)regions : MAX_REGIONS;
}

static int32_t pages_for(int64_t tokens, int32_t page_size) { return (int32_t)((tokens + page_size - 1) / page_size); }

/*
 * Page numbers before they are shuffled: 0, 1, 2, ... as they are first needed. Prompt blocks of 512 tokens that are whole
 * and known own their pages together; everything else is the request's own.
 */
static int64_t number_pages(struct kv_batch *batch, bool share_prefixes, int64_t *block_first_page) {
    const struct workload *workload = batch->workload;
    const int32_t page_size = batch->problem.page_size;
    const int32_t pages_per_block = TRACE_BLOCK_TOKENS / page_size;
    int64_t next = 0;
    for (int32_t request = 0; request < batch->problem.batch_size; request++) {
        int32_t *row = batch->page_table + request * batch->problem.page_table_request_stride;
        const int32_t num_pages = problem_is_contiguous(&batch->problem) ? 1 : pages_for(workload->seq_lens[request], page_size);
        for (int32_t entry = 0; entry < num_pages; entry++) {
            const struct trace_request *traced = share_prefixes ? &workload->trace.requests[request] : NULL;
            const int64_t block = pages_per_block > 0 ? entry / pages_per_block : 0;
            /* the last block of a prompt may be a partial one: its pages will hold answers, so they are never shared */
            if (traced != NULL && pages_per_block > 0 && (block + 1) * TRACE_BLOCK_TOKENS <= traced->input_length &&
                block < (int64_t)traced->num_blocks) {
                int64_t *first = &block_first_page[workload->trace.block_ids[traced->first_block + (size_t)block]];
                if (*first < 0) {
                    *first = next;
                    next += pages_per_block;
                } else if (entry % pages_per_block == 0) {
                    batch->shared_pages += pages_per_block;
                }
                row[entry] = (int32_t)(*first + entry % pages_per_block);
            } else {
                row[entry] = (int32_t)next++;
            }
        }
    }
    return next;
}

static bool make_page_table(struct kv_batch *batch, bool share_prefixes) {
    const struct workload *workload = batch->workload;
    int32_t largest_block = 0;
    for (size_t index = 0; index < workload->trace.num_block_ids; index++)
        largest_block = workload->trace.block_ids[index] > largest_block ? workload->trace.block_ids[index] : largest_block;
    const size_t entries = (size_t)batch->problem.batch_size * (size_t)batch->problem.page_table_request_stride;
    int64_t *block_first_page = malloc(((size_t)largest_block + 1) * sizeof block_first_page[0]);
    batch->page_table = calloc(entries * (size_t)batch->regions + 1, sizeof batch->page_table[0]);
    batch->folded_table = calloc(entries * (size_t)batch->regions + 1, sizeof batch->folded_table[0]);
    int32_t *order = NULL;
    bool good = block_first_page != NULL && batch->page_table != NULL && batch->folded_table != NULL;
    if (good) {
        for (int32_t block = 0; block <= largest_block; block++)
            block_first_page[block] = -1;
        batch->pages_per_region = number_pages(batch, share_prefixes, block_first_page);
        batch->num_pages = batch->pages_per_region * batch->regions;
        order = malloc((size_t)(batch->num_pages + 1) * sizeof order[0]);
        good = order != NULL;
    }
    if (good) {
        struct random random = {SEED};
        for (int64_t page = 0; page < batch->num_pages; page++)
            order[page] = (int32_t)page;
        if (!problem_is_contiguous(&batch->problem))
            random_permutation(&random, order, (size_t)batch->num_pages);
        /* the first region holds the numbers that all are made of, so it comes last */
        for (int32_t region = batch->regions - 1; region >= 0; region--) {
            for (size_t entry = 0; entry < entries; entry++) {
                const bool live = problem_is_contiguous(&batch->problem) ||
                                  (int64_t)(entry % (size_t)batch->problem.page_table_request_stride) <
                                      pages_for(workload->seq_lens[entry / (size_t)batch->problem.page_table_request_stride],
                                                batch->problem.page_size);
                int32_t page = live ? order[batch->page_table[entry] + region * batch->pages_per_region] : 0;
                batch->page_table[(size_t)region * entries + entry] = page;
                batch->folded_table[(size_t)region * entries + entry] = page % batch->block_pages;
            }
        }
    }
    free(order);
    free(block_first_page);
    return good;
}

/* The ids of one query token in one region: rows of its request, each once, in any order. */
static void draw_ids(const struct kv_batch *batch, struct random *random, int32_t region, int32_t request, int32_t *tokens,
                     int64_t first) {
    const libdecode_problem *problem = &batch->problem;
    const int32_t len = batch->workload->seq_lens[request], top_k = problem->sparse_top_k, page_size = problem->page_size;
    const int64_t row = ((int64_t)region * problem->batch_size + request) * problem->page_table_request_stride;
    for (int32_t column = 0; column < top_k; column++) {
        batch->token_ids[first + column] = batch->folded_ids[first + column] = -1;
        if (column >= len)
            continue;
        const int32_t other = column + (int32_t)random_below(random, (uint32_t)(len - column)), token = tokens[other];
        tokens[other] = tokens[column];
        tokens[column] = token;
        batch->token_ids[first + column] = batch->page_table[row + token / page_size] * page_size + token % page_size;
        batch->folded_ids[first + column] = batch->folded_table[row + token / page_size] * page_size + token % page_size;
    }
}

static bool make_token_ids(struct kv_batch *batch) {
    const libdecode_problem *problem = &batch->problem;
    if (!problem_is_sparse(problem))
        return true;
    const int64_t query_rows = (int64_t)problem->batch_size * problem->q_len, top_k = problem->sparse_top_k;
    const size_t count = (size_t)(batch->regions * query_rows * top_k) + 1;
    int32_t *tokens = malloc(((size_t)(problem->page_table_request_stride * problem->page_size) + 1) * sizeof tokens[0]);
    struct random random = {SEED + 7};
    batch->token_ids = malloc(count * sizeof batch->token_ids[0]);
    batch->folded_ids = malloc(count * sizeof batch->folded_ids[0]);
    const bool good = tokens != NULL && batch->token_ids != NULL && batch->folded_ids != NULL;
    for (int64_t row = 0; good && row < batch->regions * query_rows; row++) {
        const int32_t request = (int32_t)(row % query_rows / problem->q_len);
        for (int32_t token = 0; token < batch->workload->seq_lens[request]; token++)
            tokens[token] = token;
        draw_ids(batch, &random, (int32_t)(row / query_rows), request, tokens, row * top_k);
    }
    free(tokens);
    return good;
}

/* Random elements of one dtype; NULL: out of memory. */
static uint8_t *new_elements(libdecode_dtype dtype, size_t bytes, uint64_t seed) {
    struct palette *palette = malloc(sizeof *palette);
    struct random random = {seed};
    uint8_t *elements = aligned_alloc(256, (bytes + 256) / 256 * 256);
    if (palette != NULL && elements != NULL) {
        palette_make(palette, dtype, 1.0);
        palette_fill(palette, dtype, &random, elements, bytes);
    } else {
        free(elements);
        elements = NULL;
    }
    free(palette);
    return elements;
}

static uint8_t *new_scales(size_t bytes, uint64_t seed) {
    struct random random = {seed};
    uint8_t *scales = aligned_alloc(256, (bytes + 256) / 256 * 256);
    for (size_t index = 0; scales != NULL && index < bytes; index++)
        scales[index] = random_scale(&random, 1.0);
    return scales;
}

bool has_v(const libdecode_problem *problem) { return problem->op != LIBDECODE_OP_MLA_DECODE; }

/* In rows that are not elements of one dtype alone: scales, and what stands behind the latent elements. */
static void finish_rows(struct kv_batch *batch) {
    enum { LATENT = 512, NUM_SCALES = 4, ROPE = 64 };
    struct random random = {SEED + 8};
    const bool is_scaled = batch->problem.kv_row_format == LIBDECODE_KV_ROW_FP8_SCALED_656;
    const size_t row_bytes = is_scaled ? 656 : 352;
    for (size_t at = 0; at < (size_t)batch->block_pages * batch->page_bytes; at += row_bytes) {
        uint8_t *row = batch->k_block + at + (is_scaled ? LATENT : LATENT / 2);
        for (int32_t scale = 0; is_scaled && scale < NUM_SCALES; scale++, row += sizeof(float))
            memcpy(row, &(const float){ldexpf(1.0F, (int)random_below(&random, 3) - 1)}, sizeof(float));
        for (int32_t element = 0; element < ROPE; element++, row += is_scaled ? 2 : 1)
            element_encode_row(is_scaled ? LIBDECODE_DTYPE_BF16 : LIBDECODE_DTYPE_E4M3, (double[]){random_normal(&random)}, 1,
                               row);
        for (int32_t block = 0; !is_scaled && block < LATENT / NVFP4_BLOCK; block++)
            *row++ = random_scale(&random, 1.0);
    }
}

static bool make_blocks(struct kv_batch *batch) {
    const libdecode_dtype dtype = batch->problem.kv_dtype;
    const size_t pages = (size_t)batch->block_pages;
    batch->k_block = new_elements(dtype, pages * batch->page_bytes, SEED);
    if (has_v(&batch->problem))
        batch->v_block = new_elements(dtype, pages * batch->page_bytes, SEED + 1);
    if (batch->k_block != NULL && batch->problem.kv_row_format != LIBDECODE_KV_ROW_PLAIN)
        finish_rows(batch);
    if (dtype != LIBDECODE_DTYPE_NVFP4 || !has_v(&batch->problem))
        return batch->k_block != NULL && (batch->v_block != NULL || !has_v(&batch->problem));
    batch->k_scale_block = new_scales(pages * batch->scale_page_bytes, SEED + 3);
    batch->v_scale_block = new_scales(pages * batch->scale_page_bytes, SEED + 4);
    return batch->k_block != NULL && batch->v_block != NULL && batch->k_scale_block != NULL && batch->v_scale_block != NULL;
}

static bool make_query(struct kv_batch *batch) {
    const libdecode_problem *problem = &batch->problem;
    const size_t bytes = (size_t)query_tokens(problem, NULL) * (size_t)problem->num_qo_heads * (size_t)problem->head_dim *
                         (size_t)dtype_bits(problem->query_dtype) / 8;
    struct random random = {SEED + 5};
    batch->query = new_elements(problem->query_dtype, bytes, SEED + 2);
    bool good = batch->query != NULL;
    if (good && (problem->features & LIBDECODE_FEATURE_SINKS) != 0) {
        batch->sinks = malloc((size_t)problem->num_qo_heads * sizeof batch->sinks[0]);
        good = batch->sinks != NULL;
        for (int32_t head = 0; good && head < problem->num_qo_heads; head++)
            batch->sinks[head] = (float)random_normal(&random);
    }
    if (good && (problem->features & LIBDECODE_FEATURE_ALIBI) != 0) {
        batch->alibi_slopes = malloc((size_t)problem->num_qo_heads * sizeof batch->alibi_slopes[0]);
        good = batch->alibi_slopes != NULL;
        for (int32_t head = 0; good && head < problem->num_qo_heads; head++) /* as models have them */
            batch->alibi_slopes[head] = exp2f(-8.0f * (float)(head + 1) / (float)problem->num_qo_heads);
    }
    return good;
}

/* In so many of the block's pages a K that points away from every query. */
static void quieten(struct kv_batch *batch, uint32_t percent) {
    const libdecode_problem *problem = &batch->problem;
    const size_t elements = (size_t)problem->head_dim, row_bytes = elements * (size_t)dtype_bits(problem->kv_dtype) / 8;
    const int64_t step = problem->kv_layout == LIBDECODE_KV_HND ? problem->k_token_stride : problem->k_head_stride;
    const size_t step_bytes = (size_t)step * (size_t)dtype_bits(problem->kv_dtype) / 8; /* from a row to the next */
    const size_t scale_row_bytes = elements / NVFP4_BLOCK;
    double values[MAX_HEAD_DIM] = {-QUIET};
    uint8_t row[MAX_HEAD_DIM * 2], scales[MAX_HEAD_DIM / NVFP4_BLOCK];
    struct random random = {SEED + 6};
    const double loud = LOUD;
    const size_t query_row_bytes = elements * (size_t)dtype_bits(problem->query_dtype) / 8;
    const size_t query_rows = (size_t)query_tokens(problem, NULL) * (size_t)problem->num_qo_heads;
    for (size_t query_row = 0; query_row < query_rows; query_row++)
        element_encode_row(problem->query_dtype, &loud, 1, batch->query + query_row * query_row_bytes);
    if (problem->kv_dtype != LIBDECODE_DTYPE_NVFP4)
        element_encode_row(problem->kv_dtype, values, elements, row);
    for (size_t block = 0; problem->kv_dtype == LIBDECODE_DTYPE_NVFP4 && block < elements / NVFP4_BLOCK; block++)
        scales[block] = nvfp4_encode_block(values + block * NVFP4_BLOCK, 1.0, row + block * NVFP4_BLOCK / 2);
    for (int32_t page = 0; page < batch->block_pages; page++) {
        if (random_below(&random, 100) >= percent)
            continue;
        for (size_t byte = 0; byte + row_bytes <= batch->page_bytes; byte += step_bytes)
            memcpy(batch->k_block + (size_t)page * batch->page_bytes + byte, row, row_bytes);
        for (size_t byte = 0; byte < batch->scale_page_bytes; byte += scale_row_bytes)
            memcpy(batch->k_scale_block + (size_t)page * batch->scale_page_bytes + byte, scales, scale_row_bytes);
    }
}

/* What was made as pages, in the words of contiguous KV. */
static void drop_pages(libdecode_problem *problem) {
    problem->page_size = 0;
    problem->num_pages = problem->page_table_request_stride = 0;
}

bool kv_batch_make(const struct workload *workload, bool share_prefixes, int32_t regions, struct kv_batch *ret_batch) {
    struct kv_batch batch = {.workload = workload, .regions = regions};
    struct problem checked;
    if (problem_check(&workload->problem, &checked) != LIBDECODE_OK)
        return complain("%s", libdecode_error_message());
    batch.problem = checked.given; /* every default is explicit in it */
    batch.page_bytes = (size_t)batch.problem.k_page_stride * (size_t)dtype_bits(batch.problem.kv_dtype) / 8;
    if (batch.problem.kv_dtype == LIBDECODE_DTYPE_NVFP4)
        batch.scale_page_bytes = (size_t)batch.problem.k_sf_page_stride;
    batch.block_pages = batch.page_bytes < BLOCK_BYTES ? (int32_t)(BLOCK_BYTES / batch.page_bytes) : 1;
    batch.bmm1_scale = (float)(1.0 / sqrt((double)batch.problem.head_dim));
    if (problem_is_sparse(&batch.problem))
        batch.problem.page_table_request_stride =
            batch.problem.num_pages / (batch.problem.batch_size > 0 ? batch.problem.batch_size : 1);
    if (!make_page_table(&batch, share_prefixes) || !make_token_ids(&batch) || !make_blocks(&batch) || !make_query(&batch)) {
        kv_batch_free(&batch);
        return complain("out of memory");
    }
    if (workload->quiet_percent > 0)
        quieten(&batch, (uint32_t)workload->quiet_percent);
    batch.problem.num_pages = batch.num_pages;
    batch.launch_problem = batch.problem;
    if (problem_is_contiguous(&batch.problem))
        drop_pages(&batch.launch_problem);
    if (problem_is_sparse(&batch.problem))
        batch.launch_problem.page_table_request_stride = 0;
    *ret_batch = batch;
    return true;
}

void kv_batch_free(struct kv_batch *batch) {
    free(batch->page_table);
    free(batch->folded_table);
    free(batch->token_ids);
    free(batch->folded_ids);
    free(batch->k_block);
    free(batch->v_block);
    free(batch->k_scale_block);
    free(batch->v_scale_block);
    free(batch->query);
    free(batch->sinks);
    free(batch->alibi_slopes);
    *batch = (struct kv_batch){0};
}

void kv_batch_part(const struct kv_batch *batch, int32_t region, int32_t first, int32_t count, struct kv_part *ret_part) {
    const libdecode_problem *problem = &batch->problem;
    const int32_t *page_table =
        batch->folded_table + ((int64_t)region * problem->batch_size + first) * problem->page_table_request_stride;
    const bool is_contiguous = problem_is_contiguous(problem);
    const size_t page = is_contiguous ? (size_t)page_table[0] : 0;
    struct kv_part part = {.problem = batch->launch_problem};
    part.problem.batch_size = count;
    part.problem.num_pages = is_contiguous ? 0 : batch->block_pages;
    part.tensors.struct_size = sizeof part.tensors;
    part.tensors.k_cache = batch->k_block + page * batch->page_bytes;
    part.tensors.v_cache = has_v(problem) ? batch->v_block + page * batch->page_bytes : NULL;
    if (batch->scale_page_bytes > 0) {
        part.tensors.k_sf = batch->k_scale_block + page * batch->scale_page_bytes;
        part.tensors.v_sf = batch->v_scale_block + page * batch->scale_page_bytes;
    }
    part.tensors.seq_lens = batch->workload->seq_lens + first;
    part.tensors.page_table = is_contiguous || problem_is_sparse(problem) ? NULL : page_table;
    if (problem_is_sparse(problem))
        part.tensors.sparse_token_ids =
            batch->folded_ids + ((int64_t)region * problem->batch_size + first) * problem->q_len * problem->sparse_top_k;
    part.tensors.query = batch->query + (size_t)(first * problem->q_len * problem->query_token_stride) *
                                            (size_t)dtype_bits(problem->query_dtype) / 8;
    part.tensors.sinks = batch->sinks;
    part.tensors.alibi_slopes = batch->alibi_slopes;
    part.tensors.bmm1_scale = batch->bmm1_scale;
    *ret_part = part;
}

bool kv_batch_expect(const struct kv_batch *batch, int32_t region, int32_t first, int32_t count, const char *label,
                     struct expectation *ret_expectation) {
    struct kv_part part;
    kv_batch_part(batch, region, first, count, &part);
    return expectation_make(&part.problem, &part.tensors, host_reference_threads(), label, ret_expectation);
}
