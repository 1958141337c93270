/* SPDX-License-Identifier: Apache-2.0 */
/* device_batch.c: a batch on the host in, the same batch in device memory out, and its results back. Beside: kv_batch.c. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "dtype.h"
#include "element.h"
#include "kv_batch.h"
#include "problem.h"
#include "reference.h"

#define POISON_BYTE 0xff
#define MAX_HEAD_DIM 1024

/* Of all heads of a token, with so many elements each. */
static size_t row_bytes(const libdecode_problem *problem, int32_t dim, libdecode_dtype dtype) {
    return (size_t)problem->num_qo_heads * (size_t)dim * (size_t)dtype_bits(dtype) / 8;
}

/* Of an NVFP4 result: tiles of 128 tokens by 4 columns. */
static size_t result_scale_bytes(const libdecode_problem *problem, size_t num_tokens) {
    const size_t columns = (size_t)problem->num_qo_heads * (size_t)problem->v_head_dim / NVFP4_BLOCK;
    return problem->out_dtype != LIBDECODE_DTYPE_NVFP4 ? 0 : (num_tokens + 127) / 128 * 128 * ((columns + 3) / 4 * 4);
}

static bool copy_new(struct gpu *gpu, const void *data, size_t bytes, const char *what, uint64_t *ret_address) {
    return gpu_alloc(gpu, bytes, what, ret_address) && gpu_upload(gpu, *ret_address, data, bytes);
}

bool device_batch_make(struct gpu *gpu, const struct kv_batch *batch, struct device_batch *ret_device) {
    const libdecode_problem *problem = &batch->problem;
    struct device_batch *device = ret_device;
    *device = (struct device_batch){.batch = batch};
    const size_t requests = (size_t)problem->batch_size, block_bytes = (size_t)batch->block_pages * batch->page_bytes;
    const size_t half = (size_t)batch->num_pages * batch->page_bytes;
    const size_t scale_half = (size_t)batch->num_pages * batch->scale_page_bytes,
                 used = (has_v(problem) ? 2 : 1) * half + 2 * scale_half;
    const size_t scale_block_bytes = (size_t)batch->block_pages * batch->scale_page_bytes;
    const size_t table_bytes =
        (size_t)batch->regions * requests * (size_t)problem->page_table_request_stride * sizeof batch->page_table[0];
    /* pages shared between requests are read several times: the read ceiling of as many bytes needs a larger pool */
    const size_t logical = (size_t)workload_kv_bytes(batch->workload);
    device->pool_bytes = used > logical ? used : logical;
    const size_t num_tokens = (size_t)query_tokens(problem, NULL);
    device->out_bytes = num_tokens * row_bytes(problem, problem->v_head_dim, problem->out_dtype);
    device->out_sf_bytes = result_scale_bytes(problem, num_tokens);
    device->lse_bytes =
        (problem->features & LIBDECODE_FEATURE_LSE) != 0 ? num_tokens * (size_t)problem->num_qo_heads * sizeof(float) : 0;
    bool good = gpu_alloc(gpu, device->pool_bytes, "the KV cache", &device->pool) &&
                gpu_spread(gpu, device->pool, half, batch->k_block, block_bytes) &&
                (!has_v(problem) || gpu_spread(gpu, device->pool + half, half, batch->v_block, block_bytes));
    if (good && scale_half > 0)
        good = gpu_spread(gpu, device->pool + 2 * half, scale_half, batch->k_scale_block, scale_block_bytes) &&
               gpu_spread(gpu, device->pool + 2 * half + scale_half, scale_half, batch->v_scale_block, scale_block_bytes);
    if (good && device->pool_bytes > used)
        good = gpu_spread(gpu, device->pool + used, device->pool_bytes - used, batch->k_block, block_bytes);
    good = good && copy_new(gpu, batch->page_table, table_bytes, "the page tables", &device->page_table) &&
           copy_new(gpu, batch->workload->seq_lens, requests * sizeof(int32_t), "the lengths", &device->seq_lens) &&
           copy_new(gpu, batch->query, num_tokens * row_bytes(problem, problem->head_dim, problem->query_dtype), "the query",
                    &device->query) &&
           gpu_alloc(gpu, device->out_bytes, "out", &device->out) && gpu_fill(gpu, device->out, POISON_BYTE, device->out_bytes) &&
           gpu_alloc(gpu, device->out_sf_bytes, "out_sf", &device->out_sf) &&
           gpu_fill(gpu, device->out_sf, POISON_BYTE, device->out_sf_bytes) &&
           gpu_alloc(gpu, device->lse_bytes, "lse", &device->lse);
    if (good && batch->token_ids != NULL)
        good =
            copy_new(gpu, batch->token_ids, (size_t)batch->regions * num_tokens * (size_t)problem->sparse_top_k * sizeof(int32_t),
                     "the token ids", &device->token_ids);
    if (good && batch->sinks != NULL)
        good = copy_new(gpu, batch->sinks, (size_t)problem->num_qo_heads * sizeof(float), "the sinks", &device->sinks);
    if (good && batch->alibi_slopes != NULL)
        good = copy_new(gpu, batch->alibi_slopes, (size_t)problem->num_qo_heads * sizeof(float), "the slopes of ALiBi",
                        &device->alibi_slopes);
    if (!good)
        device_batch_free(gpu, device);
    return good;
}

void device_batch_free(struct gpu *gpu, struct device_batch *device) {
    uint64_t *const addresses[] = {&device->pool,         &device->page_table, &device->seq_lens, &device->query,
                                   &device->out,          &device->out_sf,     &device->lse,      &device->sinks,
                                   &device->alibi_slopes, &device->workspace,  &device->token_ids};
    for (size_t index = 0; index < sizeof addresses / sizeof addresses[0]; index++)
        gpu_free(gpu, addresses[index]);
}

bool device_batch_workspace(struct gpu *gpu, struct device_batch *device, libdecode_context *context, const libdecode_plan *plan,
                            libdecode_stream stream) {
    const size_t bytes = libdecode_plan_workspace_bytes(plan);
    if (bytes > device->workspace_bytes || device->workspace == 0) {
        gpu_free(gpu, &device->workspace);
        device->workspace_bytes = 0;
        if (!gpu_alloc(gpu, bytes, "the workspace", &device->workspace))
            return false;
        device->workspace_bytes = bytes;
    }
    if (libdecode_workspace_init(context, gpu_pointer(device->workspace), device->workspace_bytes, stream) != LIBDECODE_OK)
        return complain("%s", libdecode_error_message());
    return gpu_wait(gpu, stream);
}

libdecode_tensors device_batch_tensors(const struct device_batch *device, int32_t region) {
    const struct kv_batch *batch = device->batch;
    const libdecode_problem *problem = &batch->problem;
    libdecode_tensors tensors = {.struct_size = sizeof tensors};
    const size_t half = (size_t)batch->num_pages * batch->page_bytes;
    const size_t table_bytes = (size_t)problem->batch_size * (size_t)problem->page_table_request_stride * sizeof(int32_t);
    const bool is_contiguous = problem_is_contiguous(problem);
    const size_t first_page = is_contiguous ? (size_t)region * (size_t)batch->pages_per_region : 0;
    const uint64_t pages = device->pool + first_page * batch->page_bytes,
                   scales = device->pool + 2 * half + first_page * batch->scale_page_bytes;
    tensors.query = gpu_pointer(device->query);
    tensors.k_cache = gpu_pointer(pages);
    if (has_v(problem))
        tensors.v_cache = gpu_pointer(pages + half);
    if (batch->scale_page_bytes > 0) {
        tensors.k_sf = gpu_pointer(scales);
        tensors.v_sf = gpu_pointer(scales + (size_t)batch->num_pages * batch->scale_page_bytes);
    }
    if (problem_is_sparse(problem))
        tensors.sparse_token_ids = gpu_pointer(device->token_ids + (size_t)region * (size_t)query_tokens(problem, NULL) *
                                                                       (size_t)problem->sparse_top_k * sizeof(int32_t));
    else if (!is_contiguous)
        tensors.page_table = gpu_pointer(device->page_table + (size_t)region * table_bytes);
    tensors.seq_lens = gpu_pointer(device->seq_lens);
    tensors.out = gpu_pointer(device->out);
    tensors.out_sf = device->out_sf_bytes > 0 ? gpu_pointer(device->out_sf) : NULL;
    tensors.lse = device->lse_bytes > 0 ? gpu_pointer(device->lse) : NULL;
    tensors.sinks = batch->sinks != NULL ? gpu_pointer(device->sinks) : NULL;
    tensors.alibi_slopes = batch->alibi_slopes != NULL ? gpu_pointer(device->alibi_slopes) : NULL;
    tensors.bmm1_scale = batch->bmm1_scale;
    tensors.workspace = gpu_pointer(device->workspace);
    tensors.workspace_bytes = device->workspace_bytes;
    return tensors;
}

/* The index of the first element that is not finite, or `count`. Of NVFP4 results only scales can be that: see below. */
static size_t first_not_finite(libdecode_dtype dtype, const uint8_t *data, size_t count, size_t row) {
    double values[MAX_HEAD_DIM];
    for (size_t index = 0; dtype != LIBDECODE_DTYPE_NVFP4 && index < count; index += row) {
        element_decode_row(dtype, data + index * (size_t)dtype_bits(dtype) / 8, row, values);
        for (size_t element = 0; element < row; element++) {
            if (!isfinite(values[element]))
                return index + element;
        }
    }
    return count;
}

/* Likewise, of the scales of an NVFP4 result: those of `num_tokens` tokens. */
static bool scales_are_finite(const libdecode_problem *problem, const uint8_t *scales, size_t num_tokens) {
    const size_t used = (size_t)problem->num_qo_heads * (size_t)problem->v_head_dim / NVFP4_BLOCK, columns = (used + 3) / 4 * 4;
    for (size_t token = 0; token < num_tokens; token++) {
        for (size_t column = 0; column < columns; column++) {
            if (isnan(e4m3_decode(scales[nvfp4_swizzled_offset(token, column, columns)])))
                return complain("the result is not finite: out_sf[token %zu, column %zu]", token, column);
        }
    }
    return true;
}

static bool compare_part(const struct device_batch *device, int32_t region, int32_t first, int32_t count, uint8_t *out,
                         uint8_t *out_sf, const struct expectation *expectation, struct accuracy *ret_accuracy) {
    struct mismatch mismatch = {0};
    struct kv_part part;
    const int32_t first_token = first * device->batch->problem.q_len;
    kv_batch_part(device->batch, region, first, count, &part);
    part.tensors.out = out + (size_t)first_token * row_bytes(&part.problem, part.problem.v_head_dim, part.problem.out_dtype);
    part.tensors.out_sf = out_sf;
    part.tensors.out_sf_start_token = first_token;
    expectation_compare(expectation, &part.problem, &part.tensors, &mismatch);
    if (ret_accuracy != NULL)
        *ret_accuracy = (struct accuracy){.largest_error = mismatch.largest_error, .rms_error = mismatch.rms_error};
    if (mismatch.count == 0)
        return true;
    char text[256];
    mismatch.token += (size_t)first_token;
    mismatch_describe(&mismatch, text, sizeof text);
    return complain("the result is wrong: %s", text);
}

bool device_batch_check(struct gpu *gpu, const struct device_batch *device, int32_t region, int32_t first, int32_t count,
                        const struct expectation *expectation, struct accuracy *ret_accuracy) {
    const libdecode_problem *problem = &device->batch->problem;
    const size_t row = (size_t)problem->v_head_dim, num_tokens = (size_t)query_tokens(problem, NULL);
    const size_t elements = num_tokens * (size_t)problem->num_qo_heads * row;
    uint8_t *out = aligned_alloc(256, (device->out_bytes + 256) / 256 * 256);
    uint8_t *out_sf = aligned_alloc(256, (device->out_sf_bytes + 256) / 256 * 256);
    bool good = (out != NULL && out_sf != NULL) || complain("out of memory");
    good = good && gpu_download(gpu, out, device->out, device->out_bytes) &&
           gpu_download(gpu, out_sf, device->out_sf, device->out_sf_bytes);
    if (good) {
        size_t bad = first_not_finite(problem->out_dtype, out, elements, row);
        if (bad < elements)
            good = complain("the result is not finite: out[token %zu, head %zu, element %zu]",
                            bad / row / (size_t)problem->num_qo_heads, bad / row % (size_t)problem->num_qo_heads, bad % row);
    }
    if (good && problem->out_dtype == LIBDECODE_DTYPE_NVFP4)
        good = scales_are_finite(problem, out_sf, num_tokens);
    if (good && count > 0)
        good = compare_part(device, region, first, count, out, out_sf, expectation, ret_accuracy);
    free(out);
    free(out_sf);
    return good;
}
