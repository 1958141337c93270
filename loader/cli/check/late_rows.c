/* SPDX-License-Identifier: Apache-2.0 */
/* late_rows.c: what a launch that begins early must not read too early. Before: cases.c. Next: check_run.c. */
#include "late_rows.h"

#include <stdlib.h>
#include <string.h>

#include "case_cache.h"
#include "case_offsets.h"
#include "dtype.h"
#include "element.h"
#include "options.h"
#include "problem.h"

#define LATE_COPY_CTAS 8 /* there is room beside them */
#define DELAY_CLOCKS 200000

_Static_assert((int)CASE_MAX_BUFFERS <= (int)LATE_COPY_MAX_RANGES, "a range for every buffer");

/* What says where rows are; the others may all be written late. */
static bool is_final(size_t field) {
    return field == offsetof(libdecode_tensors, seq_lens) || field == offsetof(libdecode_tensors, page_table) ||
           field == offsetof(libdecode_tensors, cum_seq_lens_q) || field == offsetof(libdecode_tensors, query_positions) ||
           field == offsetof(libdecode_tensors, query_offsets) || field == offsetof(libdecode_tensors, out_offsets) ||
           field == offsetof(libdecode_tensors, k_offsets) || field == offsetof(libdecode_tensors, v_offsets);
}
static bool is_kv(size_t field) {
    return field == offsetof(libdecode_tensors, k_cache) || field == offsetof(libdecode_tensors, v_cache) ||
           field == offsetof(libdecode_tensors, k_sf) || field == offsetof(libdecode_tensors, v_sf);
}

/* -------------------------------------------------------------------------------------------------------- newest rows */

static void spoil_row(const libdecode_problem *problem, struct kv_row row) {
    if (row.elements == NULL)
        return;
    memset(row.elements, POISON_BYTE, (size_t)problem->head_dim * (size_t)dtype_bits(problem->kv_dtype) / 8);
    for (int32_t block = 0; row.scales != NULL && block < problem->head_dim / NVFP4_BLOCK; block++)
        row.scales[(size_t)block * row.scale_step] = POISON_BYTE;
}

/* The last q_len rows of every sequence, in copies of the pools. */
static void spoil_newest(const struct host_case *host, const struct kv_pools *pools) {
    libdecode_problem problem = host->problem;
    const bool per_head = problem.seq_lens_head_stride != 0, is_contiguous = problem_is_contiguous(&problem);
    if (is_contiguous) { /* a page for each request */
        problem.page_size = problem.kv_capacity_tokens;
        problem.num_pages = problem.batch_size;
    }
    for (int32_t unit = 0; unit < problem.batch_size * problem.num_kv_heads; unit++) {
        const int32_t request = unit / problem.num_kv_heads, head = unit % problem.num_kv_heads;
        const int32_t seq_len = host->lens[per_head ? unit : request];
        const int32_t *ids = &request;
        if (host->tensors.page_table != NULL)
            ids = host->tensors.page_table + request * problem.page_table_request_stride + head * problem.page_table_head_stride;
        const int64_t k_shift = kv_shift(host->tensors.k_offsets, is_contiguous, request, problem.k_page_stride);
        const int64_t v_shift = kv_shift(host->tensors.v_offsets, is_contiguous, request, problem.v_page_stride);
        for (int32_t token = seq_len > problem.q_len ? seq_len - problem.q_len : 0; token < seq_len; token++) {
            spoil_row(&problem, case_kv_row(&problem, pools, false, ids, k_shift, token, head));
            spoil_row(&problem, case_kv_row(&problem, pools, true, ids + problem.page_table_v_offset, v_shift, token, head));
        }
    }
}

/* Of the case's tensor the same place in the copies of its buffers. */
static uint8_t *in_copy(uint8_t *const *copies, const struct host_case *host, const void *tensor) {
    const uint8_t *const address = tensor;
    for (size_t index = 0; tensor != NULL && index < host->num_buffers; index++) {
        const uint8_t *const begin = host->buffers[index].data;
        if (address >= begin && address < begin + host->buffers[index].bytes)
            return copies[index] + (address - begin);
    }
    return NULL;
}

/* ------------------------------------------------------------------------------------------------------------- inputs */

static bool copy_buffers(const struct host_case *host, uint8_t **copies) {
    for (size_t index = 0; index < host->num_buffers; index++) {
        const struct case_buffer *buffer = &host->buffers[index];
        copies[index] = malloc(buffer->bytes + 1);
        if (copies[index] == NULL)
            return complain("out of memory");
        memcpy(copies[index], buffer->data, buffer->bytes);
        if (!is_final(buffer->field) && !is_kv(buffer->field))
            memset(copies[index], POISON_BYTE, buffer->bytes);
    }
    const libdecode_tensors *tensors = &host->tensors;
    spoil_newest(host, &(struct kv_pools){.k_cache = in_copy(copies, host, tensors->k_cache),
                                          .v_cache = in_copy(copies, host, tensors->v_cache),
                                          .k_sf = in_copy(copies, host, tensors->k_sf),
                                          .v_sf = in_copy(copies, host, tensors->v_sf)});
    return true;
}

static bool upload(struct gpu *gpu, const void *data, size_t bytes, uint64_t *ret_address) {
    return gpu_alloc(gpu, bytes, "a test case", ret_address) && gpu_upload(gpu, *ret_address, data, bytes);
}

bool late_rows_make(struct gpu *gpu, const struct host_case *host, const uint64_t *inputs, struct late_rows *ret_rows) {
    struct late_rows *rows = ret_rows;
    uint8_t *copies[CASE_MAX_BUFFERS] = {0};
    *rows = (struct late_rows){.count = host->num_buffers};
    bool good = copy_buffers(host, copies);
    for (size_t index = 0; good && index < rows->count; index++) {
        const struct case_buffer *buffer = &host->buffers[index];
        rows->inputs[index] = inputs[index];
        rows->bytes[index] = buffer->bytes;
        good = upload(gpu, buffer->data, buffer->bytes, &rows->right[index]) &&
               upload(gpu, copies[index], buffer->bytes, &rows->spoiled[index]);
    }
    for (size_t index = 0; index < CASE_MAX_BUFFERS; index++)
        free(copies[index]);
    return good;
}

void late_rows_free(struct gpu *gpu, struct late_rows *rows) {
    for (size_t index = 0; index < rows->count; index++) {
        gpu_free(gpu, &rows->right[index]);
        gpu_free(gpu, &rows->spoiled[index]);
    }
    *rows = (struct late_rows){0};
}

static bool copy_late(struct gpu *gpu, const struct late_rows *rows, const uint64_t *from, uint32_t delay_clocks,
                      const struct instrument *late_copy, libdecode_stream stream) {
    struct late_copy_params params = {.num_ranges = (uint32_t)rows->count, .delay_clocks = delay_clocks};
    for (size_t index = 0; index < rows->count; index++)
        params.ranges[index] = (struct late_copy_range){
            .source = gpu_pointer(from[index]), .destination = gpu_pointer(rows->inputs[index]), .bytes = rows->bytes[index]};
    return instrument_launch(gpu, late_copy, LATE_COPY_CTAS, &params, stream);
}

bool late_rows_spoil(struct gpu *gpu, const struct late_rows *rows, const struct instrument *late_copy, libdecode_stream stream) {
    return copy_late(gpu, rows, rows->spoiled, 0, late_copy, stream) && gpu_wait(gpu, stream);
}

bool late_rows_write(struct gpu *gpu, const struct late_rows *rows, const struct instrument *late_copy, libdecode_stream stream) {
    return copy_late(gpu, rows, rows->right, DELAY_CLOCKS, late_copy, stream);
}
