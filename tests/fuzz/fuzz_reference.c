/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_reference.c: any bytes in, read as a small problem and tensors for libdecode_reference. Each tensor has exactly the bytes
 * that the problem describes, so that a sanitizer sees every step outside, whatever lengths, page ids and positions say.
 * Run by libFuzzer (-Dfuzzing=libfuzzer), and over its corpus by replay.c.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "arbitrary.h"
#include "dtype.h"
#include "problem.h"

#define MAX_TENSOR_BYTES ((size_t)1 << 20)
#define MOST_OFFSET 240 /* elements; requests may overlap, even results */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* Bytes from the first element to behind the last; 0 if that is more than a test wants. */
static size_t extent(int64_t first_count, int64_t first_stride, int64_t second_count, int64_t second_stride, int64_t third_count,
                     int64_t third_stride, int64_t row, int bits) {
    const double elements = (double)(first_count - 1) * (double)first_stride +
                            (double)(second_count - 1) * (double)second_stride +
                            (double)(third_count - 1) * (double)third_stride + (double)row;
    if (elements < 1 || elements > (double)MAX_TENSOR_BYTES)
        return 0;
    return ((size_t)((first_count - 1) * first_stride + (second_count - 1) * second_stride + (third_count - 1) * third_stride +
                     row) *
                (size_t)bits +
            7) /
           8;
}

/* Tensors of one reference call. */
struct host_memory {
    void *blocks[24];
    size_t count, bytes;
    int too_large;
};

static void *block(struct host_memory *memory, struct feed *feed, size_t bytes) {
    if (bytes == 0 || bytes > MAX_TENSOR_BYTES || memory->bytes + bytes > 4 * MAX_TENSOR_BYTES) {
        memory->too_large = 1;
        return NULL;
    }
    uint8_t *data = malloc(bytes); /* aligned to 16, and not a byte longer */
    require(data != NULL);
    const uint32_t pattern = feed_byte(feed);
    for (size_t index = 0; index < bytes; index++)
        data[index] = (uint8_t)(pattern + 0x9d * index);
    memory->blocks[memory->count++] = data;
    memory->bytes += bytes;
    return data;
}

static void numbers(struct feed *feed, int32_t *words, int64_t count, int32_t usual) {
    for (int64_t index = 0; words != NULL && index < count; index++)
        words[index] = feed_below(feed, 4) == 0 ? (int32_t)feed_number(feed)
                       : usual > 0              ? (int32_t)feed_below(feed, (uint32_t)usual)
                                                : 0;
}

static libdecode_problem reference_problem(struct feed *feed) {
    static const libdecode_dtype dtypes[][3] = {{LIBDECODE_DTYPE_BF16, LIBDECODE_DTYPE_BF16, LIBDECODE_DTYPE_FP16},
                                                {LIBDECODE_DTYPE_FP16, LIBDECODE_DTYPE_E4M3, 0},
                                                {LIBDECODE_DTYPE_E4M3, LIBDECODE_DTYPE_E4M3, LIBDECODE_DTYPE_NVFP4},
                                                {LIBDECODE_DTYPE_E4M3, LIBDECODE_DTYPE_NVFP4, 0},
                                                {LIBDECODE_DTYPE_BF16, LIBDECODE_DTYPE_E5M2, 0},
                                                {LIBDECODE_DTYPE_BF16, LIBDECODE_DTYPE_NVFP4, 0}};
    const size_t row = feed_below(feed, 5);
    libdecode_problem problem = {.struct_size = sizeof problem,
                                 .query_dtype = dtypes[row][0],
                                 .kv_dtype = dtypes[row][1],
                                 .out_dtype = dtypes[row][2],
                                 .features = feed_byte(feed),
                                 .batch_size = 1 + (int32_t)feed_below(feed, 3),
                                 .num_kv_heads = 1 + (int32_t)feed_below(feed, 3),
                                 .head_dim = 32 << feed_below(feed, 3),
                                 .page_size = 1 << feed_below(feed, 6),
                                 .q_len = (int32_t)feed_below(feed, 4),
                                 .window_left = (int32_t)feed_below(feed, 40),
                                 .position_stride = (int32_t)feed_below(feed, 4),
                                 .position_offset = (int32_t)feed_below(feed, 5),
                                 .num_pages = 1 + feed_below(feed, 4),
                                 .kv_layout = (libdecode_kv_layout)feed_below(feed, 2),
                                 .v_sf_layout = (libdecode_sf_layout)(feed_below(feed, 4) == 0),
                                 .page_table_request_stride = 4 + feed_below(feed, 12)};
    problem.num_qo_heads = problem.num_kv_heads * (1 + (int32_t)feed_below(feed, 3));
    if ((problem.features & LIBDECODE_FEATURE_V_PAGE_TABLE) != 0)
        problem.page_table_v_offset = 2;
    problem.features |= feed_below(feed, 4) == 0 ? LIBDECODE_FEATURE_QUERY_OFFSETS : 0u;
    problem.features |= feed_below(feed, 4) == 0 && problem.kv_dtype != LIBDECODE_DTYPE_NVFP4 ? LIBDECODE_FEATURE_KV_OFFSETS : 0u;
    if ((problem.features & LIBDECODE_FEATURE_LSE) != 0 && feed_below(feed, 4) == 0)
        problem.features |= LIBDECODE_FEATURE_LSE_WITHOUT_SINK | LIBDECODE_FEATURE_LSE_EMPTY_INFINITY;
    if ((problem.features & LIBDECODE_FEATURE_WINDOW) == 0)
        problem.window_left = 0;
    feed_mutations(feed, &problem, sizeof problem, 3);
    problem.struct_size = sizeof problem;
    return problem;
}

/* With `feature`, for all but one of two. `unit`: what they are multiples of. */
static const int64_t *fill_offsets(struct feed *feed, const libdecode_problem *given, uint32_t feature, int64_t unit,
                                   struct host_memory *memory) {
    if ((given->features & feature) == 0 || feed_below(feed, 2) == 0)
        return NULL;
    int64_t *offsets = block(memory, feed, (size_t)given->batch_size * sizeof offsets[0]);
    for (int32_t request = 0; offsets != NULL && request < given->batch_size; request++)
        offsets[request] = (int64_t)feed_below(feed, MOST_OFFSET + 1) / unit * unit;
    return offsets;
}

/* Of a tensor whose requests may lie farther on. */
static int64_t room_for(const libdecode_problem *given, uint32_t feature) {
    return (given->features & feature) != 0 ? MOST_OFFSET : 0;
}

static void fill_caches(struct feed *feed, const libdecode_problem *given, libdecode_tensors *tensors,
                        struct host_memory *memory) {
    const int bits = dtype_bits(given->kv_dtype);
    const int64_t row = given->head_dim + room_for(given, LIBDECODE_FEATURE_KV_OFFSETS);
    tensors->k_offsets = fill_offsets(feed, given, LIBDECODE_FEATURE_KV_OFFSETS, 1, memory);
    tensors->v_offsets = fill_offsets(feed, given, LIBDECODE_FEATURE_KV_OFFSETS, 1, memory);
    tensors->k_cache = block(memory, feed,
                             extent(given->num_pages, given->k_page_stride, given->num_kv_heads, given->k_head_stride,
                                    given->page_size, given->k_token_stride, row, bits));
    tensors->v_cache = block(memory, feed,
                             extent(given->num_pages, given->v_page_stride, given->num_kv_heads, given->v_head_stride,
                                    given->page_size, given->v_token_stride, row, bits));
    if (given->kv_dtype != LIBDECODE_DTYPE_NVFP4)
        return;
    tensors->k_sf = block(memory, feed,
                          extent(given->num_pages, given->k_sf_page_stride, given->num_kv_heads, given->k_sf_head_stride,
                                 given->page_size, given->k_sf_token_stride, given->head_dim / 16, 8));
    tensors->v_sf = block(memory, feed,
                          extent(given->num_pages, given->v_sf_page_stride, given->num_kv_heads, given->v_sf_head_stride,
                                 given->page_size, given->v_sf_token_stride, given->head_dim / 16, 8));
}

static void fill_results(struct feed *feed, const libdecode_problem *given, int64_t tokens, libdecode_tensors *tensors,
                         struct host_memory *memory) {
    const int64_t row = given->head_dim + room_for(given, LIBDECODE_FEATURE_QUERY_OFFSETS);
    tensors->query_offsets = fill_offsets(feed, given, LIBDECODE_FEATURE_QUERY_OFFSETS, 16, memory);
    tensors->out_offsets = fill_offsets(feed, given, LIBDECODE_FEATURE_QUERY_OFFSETS, 16, memory);
    tensors->query = block(memory, feed,
                           extent(tokens, given->query_token_stride, given->num_qo_heads, given->query_head_stride, 1, 0, row,
                                  dtype_bits(given->query_dtype)));
    tensors->out = block(memory, feed,
                         extent(tokens, given->out_token_stride, given->num_qo_heads, given->out_head_stride, 1, 0, row,
                                dtype_bits(given->out_dtype)));
    if ((given->features & LIBDECODE_FEATURE_LSE) != 0)
        tensors->lse = block(memory, feed,
                             extent(tokens, given->lse_token_stride, given->num_qo_heads, given->lse_head_stride, 1, 0, 1, 32));
    if (given->out_dtype == LIBDECODE_DTYPE_NVFP4) {
        tensors->out_sf_start_token = (int32_t)feed_below(feed, 200);
        const size_t rows = ((size_t)tokens + (size_t)tensors->out_sf_start_token + 127) / 128 * 128;
        tensors->out_sf = block(memory, feed, rows * (((size_t)given->num_qo_heads * (size_t)given->head_dim / 16 + 3) / 4 * 4));
    }
}

static void fill_lists(struct feed *feed, const struct problem *checked, int64_t tokens, libdecode_tensors *tensors,
                       struct host_memory *memory) {
    const libdecode_problem *given = &checked->given;
    const size_t table = extent(given->batch_size, given->page_table_request_stride, given->num_kv_heads,
                                given->page_table_head_stride, 2, given->page_table_v_offset, checked->page_table_width, 32);
    const size_t lens =
        extent(given->batch_size, given->seq_lens_request_stride, given->num_kv_heads, given->seq_lens_head_stride, 1, 0, 1, 32);
    int32_t *page_table = block(memory, feed, table), *seq_lens = block(memory, feed, lens);
    numbers(feed, page_table, (int64_t)(table / 4), (int32_t)(given->num_pages < 200 ? given->num_pages : 200));
    numbers(feed, seq_lens, (int64_t)(lens / 4), 100);
    tensors->page_table = page_table;
    tensors->seq_lens = seq_lens;
    if ((given->features & LIBDECODE_FEATURE_SINKS) != 0)
        tensors->sinks = block(memory, feed, (size_t)given->num_qo_heads * sizeof(float));
    if ((given->features & LIBDECODE_FEATURE_DRAFT_MASK) != 0)
        tensors->draft_mask = block(memory, feed, (size_t)tokens * (size_t)((given->q_len + 31) / 32 * 4));
    if ((given->features & LIBDECODE_FEATURE_QUERY_POSITIONS) != 0) {
        int32_t *positions = block(memory, feed, (size_t)given->batch_size * sizeof(int32_t));
        numbers(feed, positions, positions != NULL ? given->batch_size : 0, 100);
        tensors->query_positions = positions;
    }
    if ((given->features & LIBDECODE_FEATURE_RAGGED_Q) != 0) {
        int32_t *cum = block(memory, feed, ((size_t)given->batch_size + 1) * sizeof(int32_t));
        for (int32_t request = 0; cum != NULL && request <= given->batch_size; request++)
            cum[request] = request == 0 ? 0 : cum[request - 1] + (int32_t)feed_below(feed, (uint32_t)(given->q_len % 200 + 1));
        if (cum != NULL && feed_below(feed, 8) == 0) /* refused, or within the buffers */
            cum[feed_below(feed, 3) % (uint32_t)(given->batch_size + 1)] = -(int32_t)feed_byte(feed);
        tensors->cum_seq_lens_q = cum;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    struct feed input = {data, bytes}, *feed = &input;
    const libdecode_problem problem = reference_problem(feed);
    struct problem checked;
    struct host_memory memory = {.count = 0};
    libdecode_tensors tensors = {.struct_size = sizeof tensors, .bmm1_scale = 0.1f};
    if (!settled(problem_check(&problem, &checked))) {
        require(!settled(libdecode_reference(&problem, &tensors)));
        return 0;
    }
    const libdecode_problem *given = &checked.given;
    const int64_t tokens = (int64_t)given->batch_size * given->q_len;
    if (given->num_pages == 0 || given->batch_size == 0 || tokens > 200)
        return 0;
    fill_caches(feed, given, &tensors, &memory);
    fill_results(feed, given, tokens, &tensors, &memory);
    fill_lists(feed, &checked, tokens, &tensors, &memory);
    if (!memory.too_large && (double)checked.page_table_width * given->page_size * (double)tokens * given->num_qo_heads < 1e5)
        (void)settled(libdecode_reference(&problem, &tensors));
    for (size_t index = 0; index < memory.count; index++)
        free(memory.blocks[index]);
    return 0;
}
