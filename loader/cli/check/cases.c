/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cases.c: one row of the table of test cases in, host tensors out. Everything that a kernel must not look at is NaN: pages that
 * no request owns, rows behind the last token, rows outside the window, gaps between rows; page table entries behind the last
 * page name a page of NaN. Before: case_table.c, case_query_tokens.c, case_cache.c. Next: check.c.
 */
#include "cases.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "case_cache.h"
#include "case_latent_rows.h"
#include "case_offsets.h"
#include "case_query_tokens.h"
#include "case_token_ids.h"
#include "dtype.h"
#include "element.h"
#include "problem.h"
#include "reference.h"

#define MAX_HEAD_DIM 1024
#define POISON_PAGES 3    /* pages of the pool that nobody owns */
#define SPARE_ENTRIES 3   /* of a page table row, behind its last page */
#define POISON_ENTRIES 40 /* behind the page table: pages that nobody owns, too */
#define LOG2_E 1.4426950408889634

/* ------------------------------------------------------------------------------------------------ lengths and pages */

static int32_t base_length(const struct making *making, int32_t request, int sm_count) {
    const int32_t page = making->test->page_size;
    if (has(making, CASE_PAGE_EDGES)) {
        const int32_t edges[] = {0, 1, page - 1, page, page + 1, 2 * page - 1, 2 * page, 2 * page + 1, 3 * page};
        return edges[request];
    }
    int32_t len = making->test->lens[request];
    return has(making, CASE_SPLIT_EDGES) ? len + TILE_TOKENS * 2 * sm_count : len;
}

static bool is_odd_length(const struct making *making, int32_t len) {
    return has(making, CASE_ODD_LENGTHS) && (len == BEYOND_TABLE || len == BELOW_ZERO);
}

/* What the device gets, and what it counts as. The rows of the page table end with the last page of the longest sequence. */
static void settle_odd_lengths(struct making *making, int32_t *given, int32_t num_sequences) {
    const int32_t page = making->problem->page_size;
    const int32_t held = making->result->longest > page ? (making->result->longest + page - 1) / page * page : page;
    const int32_t beyond[] = {held + 1, INT32_MAX, held + page, 1 << 30}, below[] = {-1, INT32_MIN, -page};
    size_t num_beyond = 0, num_below = 0;
    for (int32_t sequence = 0; sequence < num_sequences; sequence++) {
        making->seq_lens[sequence] = given[sequence];
        if (!is_odd_length(making, given[sequence]))
            continue;
        making->seq_lens[sequence] = given[sequence] == BEYOND_TABLE ? held : 0;
        given[sequence] = given[sequence] == BEYOND_TABLE ? beyond[num_beyond++ % 4] : below[num_below++ % 3];
    }
    if (has(making, CASE_ODD_LENGTHS))
        making->result->longest = held;
}

/*
 * Contiguous KV is made as a page for each request, with room behind the longest, but none where lengths are beyond it. Without
 * lengths all of it counts.
 */
static void settle_capacity(struct making *making, int32_t num_sequences) {
    libdecode_problem *problem = making->problem;
    problem->page_size = making->result->longest + (has(making, CASE_ODD_LENGTHS) ? 0 : making->test->page_size);
    if (problem->v_sf_layout == LIBDECODE_SF_V_INTERLEAVE4)
        problem->page_size = (problem->page_size + 3) / 4 * 4;
    for (int32_t sequence = 0; has(making, CASE_NO_LENGTHS) && sequence < num_sequences; sequence++)
        making->seq_lens[sequence] = problem->page_size;
    if (has(making, CASE_NO_LENGTHS)) {
        making->result->longest = problem->page_size;
        free(making->result->buffers[--making->result->num_buffers].data);
        making->result->tensors.seq_lens = NULL;
    }
}

/* What was made as pages, in the words of contiguous KV. */
static void drop_pages(struct making *making) {
    libdecode_problem *problem = making->problem;
    problem->features |= LIBDECODE_FEATURE_CONTIGUOUS_KV;
    problem->kv_capacity_tokens = problem->page_size;
    problem->page_size = 0;
    problem->num_pages = problem->page_table_request_stride = 0;
    free(making->page_table);
    making->page_table = NULL;
}

static bool make_lengths(struct making *making, int sm_count) {
    libdecode_problem *problem = making->problem;
    problem->batch_size = has(making, CASE_PAGE_EDGES) ? 9 : making->test->num_lens;
    making->tables_per_request = has(making, CASE_PER_HEAD) ? problem->num_kv_heads : 1;
    const int32_t num_sequences = problem->batch_size * making->tables_per_request;
    int32_t *given = NEW_BUFFER(making, num_sequences, sizeof(int32_t), seq_lens);
    making->seq_lens = making->result->lens = malloc((size_t)num_sequences * sizeof(int32_t));
    if (given == NULL || making->seq_lens == NULL)
        return false;
    if (has(making, CASE_PER_HEAD)) {
        problem->seq_lens_request_stride = making->tables_per_request;
        problem->seq_lens_head_stride = 1;
    }
    for (int32_t request = 0; request < problem->batch_size; request++) {
        for (int32_t table = 0; table < making->tables_per_request; table++) {
            int32_t len = base_length(making, request, sm_count);
            if (table > 0 && !is_odd_length(making, len)) /* heads of one request differ, and one of them may keep nothing */
                len = len > 0 ? (int32_t)random_below(&making->random, 2 * (uint32_t)len) : len;
            given[request * making->tables_per_request + table] = len;
            if (!is_odd_length(making, len) && len > making->result->longest)
                making->result->longest = len;
        }
    }
    settle_odd_lengths(making, given, num_sequences);
    if (has(making, CASE_CONTIGUOUS))
        settle_capacity(making, num_sequences);
    return true;
}

static int32_t pages_of(const struct making *making, int32_t sequence) {
    return (making->seq_lens[sequence] + making->problem->page_size - 1) / making->problem->page_size;
}

/* One tensor's page ids: pages of a random order for what is live, a page of NaN behind it. */
static bool fill_page_ids(struct making *making, size_t first_entry) {
    libdecode_problem *problem = making->problem;
    const int32_t num_sequences = problem->batch_size * making->tables_per_request;
    int32_t *order = malloc((size_t)problem->num_pages * sizeof order[0]);
    if (order == NULL)
        return false;
    random_permutation(&making->random, order, (size_t)problem->num_pages);
    int32_t next = POISON_PAGES; /* order[0] .. are nobody's */
    const int64_t row = has(making, CASE_V_PAGE_TABLE) ? 2 * making->table_width : making->table_width;
    for (int32_t sequence = 0; sequence < num_sequences; sequence++) {
        int32_t *ids = making->page_table + sequence * row + (int64_t)first_entry;
        for (int32_t entry = 0; entry < making->table_width; entry++) {
            bool live = entry < pages_of(making, sequence);
            ids[entry] = live ? order[next++] : order[entry % POISON_PAGES];
            if (live && has(making, CASE_NEGATIVE_IDS) && entry % 3 == 1)
                ids[entry] = -1 - entry;
            if (live && has(making, CASE_FOREIGN_IDS) && entry % 3 == 2)
                ids[entry] = (int32_t)problem->num_pages + entry;
        }
    }
    for (int32_t entry = 0; entry < POISON_ENTRIES; entry++)
        making->page_table[num_sequences * row + entry] = order[entry % POISON_PAGES];
    free(order);
    return true;
}

static bool make_page_of_each_request(struct making *making) {
    libdecode_problem *problem = making->problem;
    problem->num_pages = problem->batch_size;
    problem->page_table_request_stride = 1;
    making->page_table = malloc((size_t)problem->batch_size * sizeof making->page_table[0]);
    for (int32_t request = 0; making->page_table != NULL && request < problem->batch_size; request++)
        making->page_table[request] = request;
    return making->page_table != NULL;
}

static bool make_page_table(struct making *making) {
    libdecode_problem *problem = making->problem;
    if (has(making, CASE_CONTIGUOUS))
        return make_page_of_each_request(making);
    const int32_t num_sequences = problem->batch_size * making->tables_per_request;
    int64_t used = 0;
    for (int32_t sequence = 0; sequence < num_sequences; sequence++)
        used += pages_of(making, sequence);
    problem->num_pages = used + POISON_PAGES;
    making->table_width = (making->result->longest + problem->page_size - 1) / problem->page_size;
    if (!has(making, CASE_ODD_LENGTHS))
        making->table_width += SPARE_ENTRIES;
    int64_t row = making->table_width;
    if (has(making, CASE_V_PAGE_TABLE)) {
        problem->page_table_v_offset = row;
        row *= 2;
    }
    problem->page_table_request_stride = row * making->tables_per_request;
    problem->page_table_head_stride = has(making, CASE_PER_HEAD) ? row : 0;
    making->page_table = NEW_BUFFER(making, row * num_sequences + POISON_ENTRIES, sizeof(int32_t), page_table);
    if (making->page_table == NULL || !fill_page_ids(making, 0))
        return false;
    return !has(making, CASE_V_PAGE_TABLE) || fill_page_ids(making, (size_t)making->table_width);
}

/* ------------------------------------------------------------------------------------------------ query and scalars */

/*
 * Magnitudes of queries in cases with CASE_QUERY_RANGE: of ordinary scores, of all but equal ones, and of one that is all. Products of
 * the largest with K stay finite in f32, which is what kernels add them up in.
 */
struct query_range {
    double ordinary, tiny, huge;
};

static struct query_range query_range(const struct making *making) {
    static const struct query_range ranges[LIBDECODE_DTYPE_NVFP4][3] = {
        [LIBDECODE_DTYPE_BF16] = {{1, 1e-30, 1e30}, {1e30, 1e-30, 1e36}, {1e-30, 1e-38, 1e-22}},
        [LIBDECODE_DTYPE_FP16] = {{1, 1e-7, 3e4}, {2048, 1e-7, 6e4}, {0x1p-10, 1e-7, 1}},
        [LIBDECODE_DTYPE_E4M3] = {{1, 0x1p-9, 448}, {64, 0x1p-9, 448}, {0x1p-4, 0x1p-9, 4}},
    };
    if (!has(making, CASE_QUERY_RANGE))
        return (struct query_range){.ordinary = has(making, CASE_SPECIAL_VALUES) ? 0x1p-5 : 1};
    return ranges[making->formats->query_dtype][has(making, CASE_QUERY_HUGE) ? 1 : has(making, CASE_QUERY_TINY) ? 2 : 0];
}

/*
 * A row out of the range: ordinary; tiny; one channel alone, so that scores are huge and yet as exact as K; of all magnitudes
 * down to 2^-40 of the largest; zero.
 */
static void make_ranged_row(struct making *making, int64_t row, uint8_t *to) {
    const struct query_range range = query_range(making);
    const int32_t head_dim = making->problem->head_dim, channel = (int32_t)(row * 7 % head_dim);
    double values[MAX_HEAD_DIM] = {0};
    for (int32_t element = 0; element < head_dim; element++) {
        const double value = random_normal(&making->random);
        const int shrink = (int)random_below(&making->random, 41);
        values[element] = row % 5 == 0   ? value * range.ordinary
                          : row % 5 == 1 ? value * range.tiny
                          : row % 5 == 3 ? ldexp(value * range.ordinary, -shrink)
                                         : 0.0;
    }
    if (row % 5 == 2)
        values[channel] = row % 2 == 0 ? range.huge : -range.huge;
    element_encode_row(making->problem->query_dtype, values, (size_t)head_dim, to);
}

static void make_query_row(struct making *making, int64_t row, uint8_t *to) {
    const libdecode_problem *problem = making->problem;
    const size_t bytes = (size_t)dtype_bits(problem->query_dtype) / 8;
    if (has(making, CASE_QUERY_RANGE)) {
        make_ranged_row(making, row, to);
        return;
    }
    palette_fill(&making->palettes->query[problem->query_dtype], problem->query_dtype, &making->random, to,
                 (size_t)problem->head_dim * bytes);
    if (has(making, CASE_SPECIAL_VALUES)) {
        double values[MAX_HEAD_DIM];
        element_decode_row(problem->query_dtype, to, (size_t)problem->head_dim, values);
        for (int32_t element = 0; element < problem->head_dim; element++)
            values[element] *= query_range(making).ordinary;
        element_encode_row(problem->query_dtype, values, (size_t)problem->head_dim, to);
    }
    if (has(making, CASE_HUGE_SCORES)) {
        element_encode_row(problem->query_dtype, (const double[]){HUGE_QUERY}, 1, to);
        element_encode_row(problem->query_dtype, (const double[]){HUGE_QUERY_STEP}, 1, to + HUGE_STEP_CHANNEL * bytes);
    }
    if (has(making, CASE_SCALE_STEPS))
        hide_last_blocks(making, to, bytes);
}

static bool make_query(struct making *making) {
    libdecode_problem *problem = making->problem;
    const bool padded = has(making, CASE_PADDED_STRIDES);
    const int64_t num_tokens = query_tokens(problem, making->cum_seq_lens_q);
    const int64_t unit = ROW_ALIGNMENT_BYTES * 8 / dtype_bits(problem->query_dtype);
    const int64_t out_unit = ROW_ALIGNMENT_BYTES * 8 / dtype_bits(problem->out_dtype);
    const bool split = has(making, CASE_QUERY_ROPE);
    const int32_t query_dim = split ? problem->v_head_dim : problem->head_dim, rope_dim = problem->head_dim - query_dim;
    problem->query_head_stride = query_dim + (padded ? unit : 0);
    problem->query_token_stride = problem->num_qo_heads * problem->query_head_stride + (padded ? unit : 0);
    problem->out_head_stride = (problem->v_head_dim + out_unit - 1) / out_unit * out_unit + (padded ? 2 * out_unit : 0);
    problem->out_token_stride = problem->num_qo_heads * problem->out_head_stride + (padded ? out_unit : 0);
    problem->lse_head_stride = padded ? num_tokens + 1 : 1; /* padded: one row for each head instead */
    problem->lse_token_stride = padded ? 1 : problem->num_qo_heads;
    const size_t bytes = (size_t)dtype_bits(problem->query_dtype) / 8;
    const int64_t elements =
        make_row_offsets(making, problem->query_token_stride, unit, offsetof(libdecode_tensors, query_offsets));
    (void)make_row_offsets(making, problem->out_token_stride, out_unit, offsetof(libdecode_tensors, out_offsets));
    uint8_t *query = NEW_BUFFER(making, elements, bytes, query), *rope = query;
    if (split) {
        problem->query_rope_head_stride = rope_dim + (padded ? 2 * unit : 0);
        problem->query_rope_token_stride = problem->num_qo_heads * problem->query_rope_head_stride;
        rope = NEW_BUFFER(making, num_tokens * problem->query_rope_token_stride, bytes, query_rope);
    }
    int32_t request = 0;
    for (int64_t row = 0; query != NULL && rope != NULL && row < num_tokens * problem->num_qo_heads; row++) {
        const int64_t token = row / problem->num_qo_heads, head = row % problem->num_qo_heads;
        uint8_t whole[MAX_HEAD_DIM * 2];
        request = request_of_token(problem, making->cum_seq_lens_q, token, request);
        const int64_t shift = request_shift(making->result->tensors.query_offsets, request, query_rows_of(making, request).first,
                                            problem->query_token_stride);
        make_query_row(making, row, whole);
        memcpy(query + (size_t)(token * problem->query_token_stride + head * problem->query_head_stride + shift) * bytes, whole,
               (size_t)query_dim * bytes);
        if (split)
            memcpy(rope + (size_t)(token * problem->query_rope_token_stride + head * problem->query_rope_head_stride) * bytes,
                   whole + (size_t)query_dim * bytes, (size_t)rope_dim * bytes);
    }
    return query != NULL && rope != NULL;
}

static bool make_sinks(struct making *making) {
    if (!has(making, CASE_SINKS))
        return true;
    float *sinks = NEW_BUFFER(making, making->problem->num_qo_heads, sizeof(float), sinks);
    if (sinks == NULL)
        return false;
    for (int32_t head = 0; head < making->problem->num_qo_heads; head++) {
        sinks[head] = (float)(3.0 * random_normal(&making->random)) + (head % 3 == 1 ? 9.0f : 0.0f);
        if (has(making, CASE_INFINITE_SINKS) && head % 3 != 1)
            sinks[head] = head % 3 == 0 ? INFINITY : -INFINITY;
    }
    return true;
}

/* As models have them, of either sign; none at all; and so steep that all but a few tokens vanish. */
static bool make_alibi_slopes(struct making *making) {
    static const float factors[] = {1.0f, -0.125f, 0.0f, 1.0f, -1.0f};
    const int32_t num_heads = making->problem->num_qo_heads;
    if (!has(making, CASE_ALIBI))
        return true;
    float *slopes = NEW_BUFFER(making, num_heads, sizeof(float), alibi_slopes);
    for (int32_t head = 0; slopes != NULL && head < num_heads; head++)
        slopes[head] = head % 7 < 5 ? factors[head % 7] * exp2f(-8.0f * (float)(head + 1) / (float)num_heads)
                                    : (head % 7 == 5 ? 20.0f : -2.0f);
    return slopes != NULL;
}

/* Results of few bits get magnitudes from subnormal to saturated. */
static float drawn_bmm2_scale(struct making *making) {
    static const float scales[] = {0.75f, 8.0f, 200.0f};
    const uint32_t draw = random_below(&making->random, 3);
    if (dtype_bits(making->problem->out_dtype) < 16)
        return scales[draw];
    return has(making, CASE_DEVICE_SCALES | CASE_DEVICE_SCALE_LOG2 | CASE_SINKS) ? 0.75f : 1.0f;
}

static void make_out_scales(struct making *making) {
    static const float factors[] = {1.0f, 100.0f, 900.0f, 0.125f};
    static const int32_t starts[] = {0, 0, 1, 100, 127, 130};
    libdecode_tensors *tensors = &making->result->tensors;
    if (making->problem->out_dtype != LIBDECODE_DTYPE_NVFP4)
        return;
    tensors->out_sf_scale = factors[random_below(&making->random, 4)];
    tensors->out_sf_start_token = starts[random_below(&making->random, 6)];
}

/* Scalars in device memory; whatever they override gets a value that would be noticed. */
static bool make_scales(struct making *making) {
    struct host_case *result = making->result;
    const float sign = has(making, CASE_NEGATIVE_SCALE) ? -1.0f : 1.0f;
    const double ordinary = has(making, CASE_QUERY_RANGE) ? query_range(making).ordinary : 1.0;
    const double spread = has(making, CASE_SKIP_SOFTMAX) ? 5.0 : 1.0; /* of the scores */
    const bool far_apart = has(making, CASE_SPECIAL_VALUES) && making->formats->kv_dtype == LIBDECODE_DTYPE_E5M2;
    const double largest = far_apart ? 57344.0 / 448.0 : 1.0; /* of K, beside that of e4m3 */
    const float bmm1_scale = sign * (float)(spread / (sqrt((double)making->problem->head_dim) * ordinary * largest));
    const float bmm2_scale = drawn_bmm2_scale(making);
    result->tensors.bmm1_scale = bmm1_scale;
    result->tensors.bmm2_scale = bmm2_scale;
    if (!has(making, CASE_DEVICE_SCALES | CASE_DEVICE_SCALE_LOG2))
        return true;
    float *bmm1 = NEW_BUFFER(making, 1, sizeof(float), bmm1_scale_device);
    float *bmm2 = NEW_BUFFER(making, 1, sizeof(float), bmm2_scale_device);
    if (bmm1 == NULL || bmm2 == NULL)
        return false;
    *bmm1 = has(making, CASE_ZERO_SCALE) ? 0.0f : bmm1_scale;
    *bmm2 = bmm2_scale;
    result->tensors.bmm1_scale = 77.0f;
    result->tensors.bmm2_scale = 77.0f;
    if (has(making, CASE_DEVICE_SCALE_LOG2)) {
        *bmm1 = 77.0f;
        float *bmm1_log2 = NEW_BUFFER(making, 1, sizeof(float), bmm1_scale_log2_device);
        if (bmm1_log2 == NULL)
            return false;
        *bmm1_log2 = has(making, CASE_ZERO_SCALE)    ? 0.0f
                     : has(making, CASE_HUGE_SCORES) ? sign * HUGE_SCALE_LOG2
                                                     : (float)((double)bmm1_scale * LOG2_E);
    }
    return true;
}

static void set_problem(struct making *making) {
    libdecode_problem *problem = making->problem;
    const struct test_case *test = making->test;
    *problem = (libdecode_problem){.struct_size = sizeof *problem, .op = making->formats->op};
    problem->query_dtype = making->formats->query_dtype;
    problem->kv_dtype = making->formats->kv_dtype;
    problem->out_dtype = making->formats->out_dtype;
    problem->head_dim = making->formats->head_dim;
    problem->v_head_dim = problem->head_dim - (is_mla(making) && problem->head_dim != 512 ? 64 : 0);
    problem->v_sf_layout = making->formats->v_sf_layout;
    problem->num_kv_heads = test->num_kv_heads;
    problem->num_qo_heads = test->num_kv_heads * test->group_size;
    problem->page_size = test->page_size;
    problem->q_len = test->q_len > 0 ? test->q_len : 1;
    problem->position_stride = has(making, CASE_POSITION_RULE) ? 3 : has(making, CASE_FAR_POSITIONS) ? 100003 : 1;
    problem->position_offset = has(making, CASE_POSITION_RULE) ? 2 : has(making, CASE_FAR_POSITIONS) ? 1000000000 : 0;
    static const struct {
        uint64_t flag;
        uint32_t features;
    } features[] = {{CASE_LSE, LIBDECODE_FEATURE_LSE},
                    {CASE_SINKS, LIBDECODE_FEATURE_SINKS},
                    {CASE_WINDOW, LIBDECODE_FEATURE_WINDOW},
                    {CASE_V_PAGE_TABLE, LIBDECODE_FEATURE_V_PAGE_TABLE},
                    {CASE_QUERY_POSITIONS, LIBDECODE_FEATURE_QUERY_POSITIONS},
                    {CASE_RAGGED_Q, LIBDECODE_FEATURE_RAGGED_Q},
                    {CASE_DRAFT_MASK, LIBDECODE_FEATURE_DRAFT_MASK},
                    {CASE_SOFT_CAP, LIBDECODE_FEATURE_SOFT_CAP},
                    {CASE_ALIBI, LIBDECODE_FEATURE_ALIBI},
                    {CASE_ROPE, LIBDECODE_FEATURE_ROPE},
                    {CASE_LSE_NATURAL, LIBDECODE_FEATURE_LSE_NATURAL},
                    {CASE_FLASH_LSE, LIBDECODE_FEATURE_LSE_WITHOUT_SINK | LIBDECODE_FEATURE_LSE_EMPTY_INFINITY},
                    {CASE_ALIBI_FROM_ZERO, LIBDECODE_FEATURE_LSE_ALIBI_FROM_ZERO},
                    {CASE_SKIP_SOFTMAX, LIBDECODE_FEATURE_SKIP_SOFTMAX},
                    {CASE_BATCH_INVARIANT, LIBDECODE_FEATURE_BATCH_INVARIANT},
                    {CASE_QUERY_ROPE, LIBDECODE_FEATURE_QUERY_ROPE},
                    {CASE_HOST_LENGTHS, LIBDECODE_FEATURE_HOST_SEQ_LENS},
                    {CASE_QUERY_OFFSETS, LIBDECODE_FEATURE_QUERY_OFFSETS},
                    {CASE_KV_OFFSETS, LIBDECODE_FEATURE_KV_OFFSETS}};
    for (size_t index = 0; index < sizeof features / sizeof features[0]; index++)
        problem->features |= has(making, features[index].flag) ? features[index].features : 0u;
    problem->window_left = has(making, CASE_WINDOW) ? test->window_left : 0;
    problem->logits_soft_cap = has(making, CASE_SOFT_CAP) ? test->soft_cap : 0.0f;
    problem->skip_softmax_threshold_scale_factor = has(making, CASE_SKIP_SOFTMAX) ? test->skip_factor : 0.0f;
    problem->rope_scale = has(making, CASE_ROPE) ? test->rope_scale : 0.0f;
    problem->rope_theta = has(making, CASE_ROPE) ? test->rope_theta : 0.0f;
}

bool host_case_make(const struct test_case *test, const struct case_kind *kind, const struct case_palettes *palettes,
                    uint64_t seed, int sm_count, struct host_case *ret_case) {
    struct host_case *result = ret_case;
    *result = (struct host_case){.test = test, .seed = seed};
    if ((test->flags & CASE_RANDOM) != 0)
        draw_test_case(test, seed, &result->drawn, result->drawn_lens);
    else
        result->drawn = *test;
    if (kind->op == LIBDECODE_OP_MLA_DECODE)
        make_mla_case(&result->drawn);
    else
        result->drawn.flags &= ~CASE_QUERY_ROPE;
    if (kind->kv_dtype == LIBDECODE_DTYPE_NVFP4)
        make_nvfp4_case(&result->drawn);
    if (kind->is_sparse)
        make_sparse_case(&result->drawn, seed);
    if (kind->is_sparse && kind->head_dim == 512) /* rows without RoPE */
        result->drawn.flags &= ~CASE_QUERY_ROPE;
    result->formats = draw_case_formats(kind, &result->drawn, seed);
    result->tensors.struct_size = sizeof result->tensors;
    struct making making = {
        .result = result, .test = &result->drawn, .palettes = palettes, .formats = &result->formats, .random = {seed}};
    making.problem = &result->problem;
    set_problem(&making);
    if (!make_lengths(&making, sm_count) || !make_page_table(&making) || !make_query_tokens(&making) ||
        !make_token_ids(&making) || !make_query(&making) || !make_kv_cache(&making) || !make_sinks(&making) ||
        !make_alibi_slopes(&making) || !make_scales(&making))
        return false;
    make_out_scales(&making);
    if (has(&making, CASE_PROGRAMMATIC))
        result->tensors.launch_flags = LIBDECODE_LAUNCH_PROGRAMMATIC;
    result->problem.max_seq_len = has(&making, CASE_LOW_HINT) ? result->problem.page_size
                                  : result->longest > 0       ? result->longest
                                                              : 1;
    if (has(&making, CASE_UNKNOWN_POOL))
        result->problem.num_pages = 0;
    if (has(&making, CASE_CONTIGUOUS))
        drop_pages(&making);
    if (is_sparse(&making))
        drop_page_table(&making);
    return true;
}

void host_case_free(struct host_case *host_case) {
    for (size_t buffer = 0; buffer < host_case->num_buffers; buffer++)
        free(host_case->buffers[buffer].data);
    free(host_case->lens);
    *host_case = (struct host_case){0};
}
