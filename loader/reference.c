/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reference.c: the operation itself on host memory in float64: (problem, tensors) in, out and lse written.
 * Before: problem.c checks both. Beside: element.c reads and writes the elements.
 * It is the oracle of the tests, so it follows the formulas of libdecode.h and nothing else: every K and V row is decoded
 * once per KV head and serves all query rows of its group; softmax runs online with its maximum subtracted; only the last
 * step rounds. Skip-softmax is allowed to be dense, and here always is.
 */
#include "reference.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "cache.h"
#include "dtype.h"
#include "element.h"
#include "row_products.h"
#include "status.h"

#define LOG2_E 1.4426950408889634
#define LN_2 0.6931471805599453

/* Memory of one sequence at a time. A row is a (query token, query head of the group). */
struct scratch {
    double *query;       /* [rows][qk_dim] */
    double *accumulated; /* [rows][v_dim] sum of weight * v, not yet divided */
    double *row_max;     /* [rows] largest logit so far */
    double *row_sum;     /* [rows] sum of exp(logit - row_max) */
    double *squares;     /* [rows][v_dim] sum of (weight * v)^2; these five are NULL unless exact results are wanted */
    double *row_squares; /* [rows] sum of weight^2 */
    double *row_tokens;  /* [rows] tokens that it sees */
    double *row_largest; /* [rows] largest |v| of these */
    double *row_turned;  /* [rows] largest sum over pairs of dims of |q|^2 |k|^2, of these */
    double *frequencies; /* [qk_dim / 2] of the rotation by positions: radians a position */
    double *k_row;       /* [qk_dim] */
    double *v_row;       /* [v_dim] */
    bool *visible;       /* [query tokens] whether each sees the KV token at hand */
};

struct operation {
    const struct reference *reference;
    const libdecode_problem *problem;
    const libdecode_tensors *tensors;
    struct cache k, v;
    double bmm1_scale, bmm2_scale;
    bool rotates;     /* query and K by their positions */
    bool rounds_sums; /* a kernel may: of products of query and K */
    size_t qk_dim, query_dim, v_dim, group_size;
    struct scratch scratch;
};

/* One request as one KV head sees it. */
struct sequence {
    int64_t request, kv_head;
    int64_t seq_len;     /* 0 to what the page table holds */
    int64_t q_len;       /* of this request */
    int64_t first_token; /* row of its first query token in query, out, lse and draft_mask */
    const int32_t *page_ids;
    int64_t query_shift;      /* elements from where its rows of query would lie to where they do */
    const int32_t *token_ids; /* sparse: seq_len of them, of the one query token that this is then about; else NULL */
};

/* ------------------------------------------------------------------------------------------------------ visibility */

static bool draft_mask_bit(const struct operation *operation, const struct sequence *sequence, int64_t query_token,
                           int64_t draft_token) {
    int64_t halves_per_row = ((int64_t)operation->problem->q_len + 31) / 32 * 2;
    const uint16_t *row = operation->tensors->draft_mask + (sequence->first_token + query_token) * halves_per_row;
    return (row[draft_token / 16] >> (draft_token % 16) & 1) != 0;
}

/* False: the query token stands before the sequence, sees nothing, and no mask helps it. */
static bool query_position(const struct operation *operation, const struct sequence *sequence, int64_t query_token,
                           int64_t *ret_position) {
    const libdecode_problem *problem = operation->problem;
    const int32_t *query_positions = operation->tensors->query_positions;
    int64_t own_token = sequence->seq_len - sequence->q_len + query_token;

    if (query_positions != NULL)
        *ret_position = (int64_t)query_positions[sequence->request] + query_token;
    else
        *ret_position = own_token * problem->position_stride + problem->position_offset;
    return query_positions != NULL || own_token >= 0;
}

/* A KV token: `index` says where its rows lie, `position` who sees it. */
struct kv_token {
    int64_t index, position;
};

static bool token_visible(const struct operation *operation, const struct sequence *sequence, int64_t query_token,
                          struct kv_token token) {
    const int32_t window_left = operation->problem->window_left;
    int64_t first_draft = sequence->seq_len - sequence->q_len, position;

    if (!query_position(operation, sequence, query_token, &position))
        return false;
    if (window_left >= 0 && token.position < position - window_left)
        return false;
    if (operation->tensors->draft_mask != NULL && token.index >= first_draft)
        return draft_mask_bit(operation, sequence, query_token, token.index - first_draft);
    return token.position <= position;
}

/* Fills scratch.visible; false if no query token sees `token`, whose page id and rows must then not be read. */
static bool token_visible_to_any(const struct operation *operation, const struct sequence *sequence, struct kv_token token) {
    bool any = false;
    if (sequence->token_ids != NULL) {
        const int64_t id = sequence->token_ids[token.index];
        return operation->scratch.visible[0] = id >= 0 && id < operation->problem->num_pages * operation->problem->page_size;
    }
    for (int64_t query_token = 0; query_token < sequence->q_len; query_token++) {
        bool visible = token_visible(operation, sequence, query_token, token);
        operation->scratch.visible[query_token] = visible;
        any = any || visible;
    }
    return any;
}

/* ------------------------------------------------------------------------------------------------------ KV tokens */

/* The KV tokens of a sequence that may be visible, in order; or the places of its token ids. */
struct token_walk {
    int64_t next, end;
};

/* With a window, a walk starts where that of the first query token does: what lies before costs nothing. */
static struct token_walk walk_begin(const struct operation *operation, const struct sequence *sequence) {
    const libdecode_problem *problem = operation->problem;
    struct token_walk walk = {.next = 0, .end = sequence->seq_len};
    int64_t query_token = 0, position = 0;

    if (sequence->token_ids != NULL)
        return walk;
    while (query_token < sequence->q_len && !query_position(operation, sequence, query_token, &position))
        query_token++;
    if (query_token == sequence->q_len)
        walk.end = 0;
    int64_t before = position - problem->window_left - problem->position_offset; /* of the first visible position */
    if (problem->window_left >= 0 && before > 0)
        walk.next = (before + problem->position_stride - 1) / problem->position_stride;
    return walk;
}

static bool walk_next(const struct operation *operation, struct token_walk *walk, struct kv_token *ret_token) {
    const libdecode_problem *problem = operation->problem;
    if (walk->next >= walk->end)
        return false;
    ret_token->index = walk->next++;
    ret_token->position = ret_token->index * problem->position_stride + problem->position_offset;
    return true;
}

/* ----------------------------------------------------------------------------------------------------------- rows */

static void load_kv_row(const struct operation *operation, const struct sequence *sequence, const struct cache *cache,
                        int64_t token, double *ret_row) {
    const libdecode_problem *problem = operation->problem;
    int64_t page = cache->offsets != NULL ? 0 : sequence->request, page_token = token;
    if (sequence->token_ids != NULL) {
        page = sequence->token_ids[token] / problem->page_size;
        page_token = sequence->token_ids[token] % problem->page_size;
    } else if (sequence->page_ids != NULL) {
        page = sequence->page_ids[cache->page_table_offset + token / problem->page_size];
        page_token = token % problem->page_size;
    }
    if (page < 0 || (problem->num_pages != 0 && page >= problem->num_pages))
        memset(ret_row, 0, cache->dim * sizeof *ret_row); /* it still counts, with logit 0 */
    else
        cache_decode_row(cache, page, sequence->kv_head, page_token,
                         cache->offsets != NULL ? cache->offsets[sequence->request] : 0, ret_row);
}

/* Pairs of dims that are half a row apart, as libdecode.h says. float64 knows an angle of a million radians to 2^-33. */
static void rotate(const struct operation *operation, int64_t position, double *row) {
    const size_t half = operation->qk_dim / 2;
    for (size_t i = 0; i < half; i++) {
        double angle = (double)position * operation->scratch.frequencies[i], x = row[i], y = row[i + half];
        row[i] = x * cos(angle) - y * sin(angle);
        row[i + half] = y * cos(angle) + x * sin(angle);
    }
}

static void set_frequencies(const struct operation *operation, double *ret_frequencies) {
    const libdecode_problem *problem = operation->problem;
    for (size_t i = 0; operation->rotates && i < operation->qk_dim / 2; i++)
        ret_frequencies[i] =
            pow((double)problem->rope_theta, -2.0 * (double)i / (double)operation->qk_dim) / (double)problem->rope_scale;
}

/* The elements that tensors.query does not have, if any. */
static void load_query_rope(const struct operation *operation, int64_t token, int64_t head, double *ret_row) {
    const libdecode_problem *problem = operation->problem;
    const uint8_t *rope = operation->tensors->query_rope;
    int64_t element = token * problem->query_rope_token_stride + head * problem->query_rope_head_stride;
    if (operation->query_dim < operation->qk_dim)
        element_decode_row(problem->query_dtype, rope + element_bytes(problem->query_dtype, element),
                           operation->qk_dim - operation->query_dim, ret_row + operation->query_dim);
}

static void load_queries(const struct operation *operation, const struct sequence *sequence) {
    const libdecode_problem *problem = operation->problem;
    const struct scratch *scratch = &operation->scratch;
    const uint8_t *query = operation->tensors->query;
    size_t row = 0;

    for (int64_t token = 0; token < sequence->q_len; token++) {
        for (size_t member = 0; member < operation->group_size; member++, row++) {
            int64_t head = sequence->kv_head * (int64_t)operation->group_size + (int64_t)member;
            int64_t element = (sequence->first_token + token) * problem->query_token_stride + head * problem->query_head_stride +
                              sequence->query_shift;
            element_decode_row(problem->query_dtype, query + element_bytes(problem->query_dtype, element), operation->query_dim,
                               scratch->query + row * operation->qk_dim);
            load_query_rope(operation, sequence->first_token + token, head, scratch->query + row * operation->qk_dim);
            int64_t position;
            if (operation->rotates && query_position(operation, sequence, token, &position))
                rotate(operation, position, scratch->query + row * operation->qk_dim);
            scratch->row_max[row] = -(double)INFINITY;
            scratch->row_sum[row] = 0;
        }
    }
    memset(scratch->accumulated, 0, row * operation->v_dim * sizeof *scratch->accumulated);
    if (scratch->squares != NULL) {
        memset(scratch->squares, 0, row * operation->v_dim * sizeof *scratch->squares);
        memset(scratch->row_squares, 0, row * sizeof *scratch->row_squares);
        memset(scratch->row_tokens, 0, row * sizeof *scratch->row_tokens);
        memset(scratch->row_largest, 0, row * sizeof *scratch->row_largest);
        memset(scratch->row_turned, 0, row * sizeof *scratch->row_turned);
    }
}

/* Of the V row at hand. NaN counts for nothing. */
static double largest_value(const struct operation *operation) {
    double largest = 0;
    for (size_t d = 0; d < operation->v_dim; d++)
        largest = fabs(operation->scratch.v_row[d]) > largest ? fabs(operation->scratch.v_row[d]) : largest;
    return largest;
}

/*
 * What a kernel's rounding is measured by. `shrink` is what the sums so far have just been multiplied by, `largest` that of the V row:
 * once for all query rows, as beside it the loop below would take several times as long.
 */
static void attend_squares(const struct operation *operation, size_t row, double shrink, double weight, double largest) {
    const struct scratch *scratch = &operation->scratch;
    size_t v_dim = operation->v_dim;
    double *squares = scratch->squares + row * v_dim;
    const double shrink_square = shrink * shrink;

    for (size_t d = 0; d < v_dim; d++) {
        double part = weight * scratch->v_row[d];
        squares[d] = squares[d] * shrink_square + part * part;
    }
    scratch->row_largest[row] = largest > scratch->row_largest[row] ? largest : scratch->row_largest[row];
    scratch->row_squares[row] = scratch->row_squares[row] * shrink_square + weight * weight;
    scratch->row_tokens[row]++;
    if (operation->rotates || operation->rounds_sums) {
        const double turned = pair_products(scratch->query + row * operation->qk_dim, scratch->k_row, operation->qk_dim / 2);
        scratch->row_turned[row] = turned > scratch->row_turned[row] ? turned : scratch->row_turned[row];
    }
}

/* In natural units: the soft cap, then what the distance of a KV token from the query adds. */
static double logit_of(const struct operation *operation, const struct sequence *sequence, size_t row, struct kv_token token) {
    const struct scratch *scratch = &operation->scratch;
    const float *slopes = operation->tensors->alibi_slopes;
    const double soft_cap = (double)operation->problem->logits_soft_cap;
    size_t query_token = row / operation->group_size, member = row % operation->group_size;
    double logit = operation->bmm1_scale * dot(scratch->query + row * operation->qk_dim, scratch->k_row, operation->qk_dim);
    int64_t position;

    if (soft_cap > 0)
        logit = soft_cap * tanh(logit / soft_cap);
    if (slopes != NULL && query_position(operation, sequence, (int64_t)query_token, &position))
        logit += (double)slopes[(size_t)sequence->kv_head * operation->group_size + member] * (double)(token.position - position);
    return logit;
}

/* One KV token enters one query row. A NaN logit leaves the maximum alone and makes the sums NaN. `largest`: of its V row. */
static void attend(const struct operation *operation, size_t row, double logit, double largest) {
    const struct scratch *scratch = &operation->scratch;
    size_t v_dim = operation->v_dim;
    double *accumulated = scratch->accumulated + row * v_dim, shrink = 1;

    if (logit > scratch->row_max[row]) {
        shrink = exp(scratch->row_max[row] - logit); /* 0 for the first token */
        for (size_t d = 0; d < v_dim; d++)
            accumulated[d] *= shrink;
        scratch->row_sum[row] *= shrink;
        scratch->row_max[row] = logit;
    }
    double weight = logit == -(double)INFINITY ? 0 : exp(logit - scratch->row_max[row]);
    for (size_t d = 0; d < v_dim; d++)
        accumulated[d] += weight * scratch->v_row[d];
    scratch->row_sum[row] += weight;
    if (scratch->squares != NULL)
        attend_squares(operation, row, shrink, weight, largest);
}

/* -------------------------------------------------------------------------------------------------------- results */

static void store_nvfp4_row(const struct operation *operation, const double *values, int64_t token, int64_t head,
                            uint8_t *codes) {
    const libdecode_tensors *tensors = operation->tensors;
    uint8_t *scales = tensors->out_sf;
    size_t blocks_per_head = operation->v_dim / NVFP4_BLOCK;
    size_t used_columns = (size_t)operation->problem->num_qo_heads * blocks_per_head;
    size_t num_columns = (used_columns + 3) / 4 * 4;
    size_t row = (size_t)(token + tensors->out_sf_start_token);
    size_t first_column = (size_t)head * blocks_per_head;

    for (size_t block = 0; block < blocks_per_head; block++)
        scales[nvfp4_swizzled_offset(row, first_column + block, num_columns)] =
            nvfp4_encode_block(values + block * NVFP4_BLOCK, (double)tensors->out_sf_scale, codes + block * NVFP4_BLOCK / 2);
    if (first_column + blocks_per_head == used_columns)
        for (size_t column = used_columns; column < num_columns; column++)
            scales[nvfp4_swizzled_offset(row, column, num_columns)] = 0;
}

/* A row's, in base 2. `shift`: of what FEATURE_LSE_ALIBI_FROM_ZERO adds, 0 without. */
struct row_lse {
    double value, shift;
};

/* `scale`: what turns the weights of the sums into those of the result. */
static void store_exact_row(const struct operation *operation, size_t row, const double *values, struct row_lse lse, double scale,
                            int64_t token, int64_t head) {
    const struct exact_results *exact = &operation->reference->exact;
    const struct scratch *scratch = &operation->scratch;
    size_t v_dim = operation->v_dim, result = (size_t)(token * operation->problem->num_qo_heads + head);
    double bmm2 = fabs(operation->bmm2_scale);

    memcpy(exact->out + result * v_dim, values, v_dim * sizeof *values);
    exact->lse[result] = lse.value;
    exact->shift[result] = lse.shift;
    for (size_t d = 0; d < v_dim; d++)
        exact->spread[result * v_dim + d] = bmm2 * sqrt(scratch->squares[row * v_dim + d]) * scale;
    exact->weight[result] = sqrt(scratch->row_squares[row]) * scale;
    exact->tokens[result] = scratch->row_tokens[row];
    exact->largest[result] = bmm2 * scratch->row_largest[row];
    exact->turned[result] = fabs(operation->bmm1_scale) * sqrt(scratch->row_turned[row]);
}

static void store_row(const struct operation *operation, const struct sequence *sequence, const double *values, double lse,
                      int64_t token, int64_t head) {
    const libdecode_problem *problem = operation->problem;
    const libdecode_tensors *tensors = operation->tensors;
    int64_t element = out_element(problem, tensors, (int32_t)sequence->request, token, head);
    uint8_t *out = (uint8_t *)tensors->out + element_bytes(problem->out_dtype, element);

    if (problem->out_dtype == LIBDECODE_DTYPE_NVFP4)
        store_nvfp4_row(operation, values, token, head, out);
    else
        element_encode_row(problem->out_dtype, values, operation->v_dim, out);
    if (tensors->lse != NULL)
        tensors->lse[token * problem->lse_token_stride + head * problem->lse_head_stride] =
            (float)((problem->features & LIBDECODE_FEATURE_LSE_NATURAL) != 0 ? lse * LN_2 : lse);
}

/* Of scores with this maximum and such a sum of their weights, which may have the sink in it. */
static struct row_lse lse_of(const struct operation *operation, const struct sequence *sequence, size_t row, double top,
                             double sum) {
    const uint32_t features = operation->problem->features;
    const size_t query_token = row / operation->group_size, member = row % operation->group_size;
    int64_t position;

    if (sum == 0)
        return (struct row_lse){.value = (features & LIBDECODE_FEATURE_LSE_EMPTY_INFINITY) != 0 ? (double)INFINITY
                                                                                                : -(double)INFINITY};
    struct row_lse lse = {0};
    if ((features & LIBDECODE_FEATURE_LSE_ALIBI_FROM_ZERO) != 0) {
        query_position(operation, sequence, (int64_t)query_token, &position);
        lse.shift = LOG2_E * (double)position *
                    (double)operation->tensors->alibi_slopes[(size_t)sequence->kv_head * operation->group_size + member];
    }
    lse.value = LOG2_E * top + log2(sum) + lse.shift;
    return lse;
}

/* Lets the sink into the sum, divides, scales, stores. */
static void finish_row(const struct operation *operation, const struct sequence *sequence, size_t row) {
    const struct scratch *scratch = &operation->scratch;
    const float *sinks = operation->tensors->sinks;
    int64_t token = sequence->first_token + (int64_t)(row / operation->group_size);
    int64_t head = sequence->kv_head * (int64_t)operation->group_size + (int64_t)(row % operation->group_size);
    double *values = scratch->accumulated + row * operation->v_dim;
    double sink = sinks != NULL ? (double)sinks[head] : -(double)INFINITY;
    double row_max = scratch->row_max[row];
    double top = sink > row_max ? sink : row_max;

    /* Equal arguments are spelled out: the difference of two infinities is NaN. */
    double shrink = row_max == top ? 1 : exp(row_max - top);
    double sink_weight = sink == -(double)INFINITY ? 0 : sink == top ? 1 : exp(sink - top);
    double sum = scratch->row_sum[row] * shrink + sink_weight;
    const bool has_sink = (operation->problem->features & LIBDECODE_FEATURE_LSE_WITHOUT_SINK) == 0;
    const struct row_lse lse = lse_of(operation, sequence, row, has_sink ? top : row_max, has_sink ? sum : scratch->row_sum[row]);

    for (size_t d = 0; d < operation->v_dim; d++)
        values[d] = sum == 0 ? 0 : operation->bmm2_scale * (values[d] * shrink / sum);
    if (scratch->squares != NULL)
        store_exact_row(operation, row, values, lse, sum == 0 ? 0 : shrink / sum, token, head);
    else
        store_row(operation, sequence, values, lse.value, token, head);
}

static void decode_sequence(const struct operation *operation, const struct sequence *sequence) {
    const struct scratch *scratch = &operation->scratch;
    size_t group_size = operation->group_size;
    struct token_walk walk = walk_begin(operation, sequence);

    load_queries(operation, sequence);
    for (struct kv_token token; walk_next(operation, &walk, &token);) {
        if (!token_visible_to_any(operation, sequence, token))
            continue;
        load_kv_row(operation, sequence, &operation->k, token.index, scratch->k_row);
        load_kv_row(operation, sequence, &operation->v, token.index, scratch->v_row);
        if (operation->rotates)
            rotate(operation, token.position, scratch->k_row);
        const double largest = scratch->squares != NULL ? largest_value(operation) : 0;
        for (size_t row = 0; row < (size_t)sequence->q_len * group_size; row++)
            if (scratch->visible[row / group_size])
                attend(operation, row, logit_of(operation, sequence, row, token), largest);
    }
    for (size_t row = 0; row < (size_t)sequence->q_len * group_size; row++)
        finish_row(operation, sequence, row);
}

/* -------------------------------------------------------------------------------------------------- the whole call */

static struct operation describe(const struct reference *reference) {
    const struct problem *problem = &reference->problem;
    const libdecode_tensors *tensors = &reference->tensors;
    const libdecode_problem *given = &problem->given;
    double bmm1_scale = (double)tensors->bmm1_scale;
    if (tensors->bmm1_scale_log2_device != NULL)
        bmm1_scale = (double)*tensors->bmm1_scale_log2_device * LN_2;
    else if (tensors->bmm1_scale_device != NULL)
        bmm1_scale = (double)*tensors->bmm1_scale_device;

    struct operation operation = {
        .reference = reference,
        .problem = given,
        .tensors = tensors,
        .k = cache_of_k(problem, tensors),
        .v = cache_of_v(problem, tensors),
        .bmm1_scale = bmm1_scale,
        .bmm2_scale = (double)(tensors->bmm2_scale_device != NULL ? *tensors->bmm2_scale_device : tensors->bmm2_scale),
        .rotates = (given->features & LIBDECODE_FEATURE_ROPE) != 0,
        .rounds_sums = given->op == LIBDECODE_OP_MLA_DECODE && given->query_dtype == LIBDECODE_DTYPE_E4M3 &&
                       given->kv_dtype == LIBDECODE_DTYPE_E4M3,
        .qk_dim = (size_t)problem->qk_dim,
        .query_dim = (size_t)problem->query_dim,
        .v_dim = (size_t)problem->v_dim,
        .group_size = (size_t)problem->group_size,
    };
    return operation;
}

/* One block of memory, for up to `q_len` query tokens of a request; free(scratch.query) ends it. */
static libdecode_status scratch_create(const struct operation *operation, size_t q_len, struct scratch *ret_scratch) {
    size_t rows = q_len * operation->group_size, qk_dim = operation->qk_dim, v_dim = operation->v_dim; /* < 2^31 * 2^16 */
    bool exact = operation->reference->exact.out != NULL;
    size_t doubles =
        rows * (qk_dim + (exact ? 2 : 1) * v_dim) + (exact ? 6 : 2) * rows + qk_dim / 2 + qk_dim + v_dim; /* < 2^58 */
    double *memory = malloc(doubles * sizeof(double) + q_len * sizeof(bool));

    if (memory == NULL)
        return fail(
            LIBDECODE_ERROR_OUT_OF_MEMORY,
            "libdecode_reference: no memory for the %zu query rows of a request and KV head (%zu bytes): lower problem.q_len",
            rows, doubles * sizeof(double));
    ret_scratch->query = memory;
    ret_scratch->accumulated = ret_scratch->query + rows * qk_dim;
    ret_scratch->row_max = ret_scratch->accumulated + rows * v_dim;
    ret_scratch->row_sum = ret_scratch->row_max + rows;
    ret_scratch->frequencies = ret_scratch->row_sum + rows;
    ret_scratch->k_row = ret_scratch->frequencies + qk_dim / 2;
    ret_scratch->v_row = ret_scratch->k_row + qk_dim;
    ret_scratch->squares = exact ? ret_scratch->v_row + v_dim : NULL;
    ret_scratch->row_squares = exact ? ret_scratch->squares + rows * v_dim : NULL;
    ret_scratch->row_tokens = exact ? ret_scratch->row_squares + rows : NULL;
    ret_scratch->row_largest = exact ? ret_scratch->row_tokens + rows : NULL;
    ret_scratch->row_turned = exact ? ret_scratch->row_largest + rows : NULL;
    ret_scratch->visible = (bool *)(memory + doubles);
    set_frequencies(operation, ret_scratch->frequencies);
    return LIBDECODE_OK;
}

static struct sequence find_sequence(const struct reference *reference, int64_t request, int64_t kv_head) {
    const libdecode_problem *problem = &reference->problem.given;
    const libdecode_tensors *tensors = &reference->tensors;
    const int32_t *cum_seq_lens_q = tensors->cum_seq_lens_q;
    int64_t seq_len = reference->problem.max_tokens; /* without lengths */
    if (tensors->seq_lens != NULL)
        seq_len = tensors->seq_lens[request * problem->seq_lens_request_stride + kv_head * problem->seq_lens_head_stride];
    struct sequence sequence = {
        .request = request, .kv_head = kv_head, .q_len = problem->q_len, .first_token = request * problem->q_len};
    if (tensors->page_table != NULL)
        sequence.page_ids =
            tensors->page_table + request * problem->page_table_request_stride + kv_head * problem->page_table_head_stride;
    if (cum_seq_lens_q != NULL) {
        sequence.first_token = cum_seq_lens_q[request];
        sequence.q_len = cum_seq_lens_q[request + 1] - sequence.first_token;
    }
    sequence.query_shift = request_shift(tensors->query_offsets, request, sequence.first_token, problem->query_token_stride);
    if (seq_len > reference->problem.max_tokens)
        seq_len = reference->problem.max_tokens;
    sequence.seq_len = seq_len > 0 ? seq_len : 0;
    return sequence;
}

/* What query token `token` of a sequence sees by its token ids: a sequence of its own. */
static struct sequence query_token_sequence(const struct reference *reference, const struct sequence *sequence, int64_t token) {
    const libdecode_problem *problem = &reference->problem.given;
    const libdecode_tensors *tensors = &reference->tensors;
    struct sequence own = *sequence;
    own.first_token += token;
    own.q_len = 1;
    own.token_ids = tensors->sparse_token_ids + own.first_token * problem->sparse_token_ids_stride;
    own.seq_len = tensors->sparse_top_k_lens != NULL ? tensors->sparse_top_k_lens[own.first_token]
                                                     : sequence->seq_len - sequence->q_len + token + 1;
    own.seq_len = own.seq_len < 0 ? 0 : own.seq_len < problem->sparse_top_k ? own.seq_len : problem->sparse_top_k;
    return own;
}

static void decode_part(const struct reference *reference, const struct operation *operation, const struct sequence *sequence) {
    if (!problem_is_sparse(operation->problem)) {
        decode_sequence(operation, sequence);
        return;
    }
    for (int64_t token = 0; token < sequence->q_len; token++) {
        const struct sequence own = query_token_sequence(reference, sequence, token);
        decode_sequence(operation, &own);
    }
}

static size_t longest_query(const struct reference *reference) {
    const int32_t *cum_seq_lens_q = reference->tensors.cum_seq_lens_q;
    int32_t longest = cum_seq_lens_q != NULL ? 0 : reference->problem.given.q_len;
    for (int32_t request = 0; cum_seq_lens_q != NULL && request < reference->problem.given.batch_size; request++) {
        int32_t q_len = cum_seq_lens_q[request + 1] - cum_seq_lens_q[request];
        longest = q_len > longest ? q_len : longest;
    }
    return (size_t)longest;
}

libdecode_status reference_begin(const libdecode_problem *problem, const libdecode_tensors *tensors,
                                 struct reference *ret_reference) {
    struct reference reference = {.exact = {.out = NULL}};
    FORWARD(problem_check(problem, &reference.problem));
    FORWARD(tensors_check(&reference.problem, tensors, &reference.tensors));
    FORWARD(query_lengths_check(&reference.problem.given, reference.tensors.cum_seq_lens_q));
    *ret_reference = reference;
    return LIBDECODE_OK;
}

libdecode_status reference_part(const struct reference *reference, int64_t request, int64_t kv_head) {
    struct operation operation = describe(reference);
    struct sequence sequence = find_sequence(reference, request, kv_head);
    if (sequence.q_len == 0)
        return LIBDECODE_OK;
    FORWARD(scratch_create(&operation, (size_t)sequence.q_len, &operation.scratch));
    decode_part(reference, &operation, &sequence);
    free(operation.scratch.query);
    return LIBDECODE_OK;
}

/* Takes its memory before it writes anything. */
libdecode_status libdecode_reference(const libdecode_problem *problem, const libdecode_tensors *tensors) {
    struct reference reference;
    FORWARD(reference_begin(problem, tensors, &reference));
    const libdecode_problem *given = &reference.problem.given;
    if (given->batch_size == 0)
        return LIBDECODE_OK;

    struct operation operation = describe(&reference);
    FORWARD(scratch_create(&operation, longest_query(&reference), &operation.scratch));
    for (int64_t request = 0; request < given->batch_size; request++) {
        for (int64_t kv_head = 0; kv_head < given->num_kv_heads; kv_head++) {
            struct sequence sequence = find_sequence(&reference, request, kv_head);
            decode_part(&reference, &operation, &sequence);
        }
    }
    free(operation.scratch.query);
    return LIBDECODE_OK;
}
