/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A checked problem, its selection and the tensors of one call in, one enqueued kernel out. Everything lives on the stack.
 * Before: decode.c, with the function that module.c loaded. Next: the kernel (kernels/families), through kernels/abi.h.
 */
#include "launch.h"

#include <string.h>

#include "status.h"

/* Of cuda.h. */
enum {
    TENSOR_MAP_FLOAT16 = 6,
    TENSOR_MAP_BFLOAT16 = 9,
    TENSOR_MAP_INTERLEAVE_NONE = 0,
    TENSOR_MAP_SWIZZLE_128B = 3,
    TENSOR_MAP_PROMOTION_L2_128B = 2,
    TENSOR_MAP_FILL_ZEROS = 0
};

/* The inner box dimension: one row of the 128-byte swizzle. */
#define SWIZZLE_ROW_BYTES 128

#define TENSOR_MAP_RANK 5

static const double log2_e = 1.4426950408889634074;

size_t workspace_bytes(const struct selection *selection) {
    return (selection->records_bytes + WORKSPACE_ALIGNMENT_BYTES - 1) / WORKSPACE_ALIGNMENT_BYTES * WORKSPACE_ALIGNMENT_BYTES;
}

libdecode_status workspace_check(const void *workspace, size_t given_bytes, size_t needed_bytes) {
    if (!workspace)
        return fail(LIBDECODE_ERROR_INVALID_ARGUMENT, "workspace is NULL: give %zu bytes of device memory", needed_bytes);
    if ((uintptr_t)workspace % WORKSPACE_ALIGNMENT_BYTES != 0)
        return fail(LIBDECODE_ERROR_INVALID_ARGUMENT, "workspace is %p: it must be aligned to %u bytes", workspace,
                    WORKSPACE_ALIGNMENT_BYTES);
    if (given_bytes < needed_bytes)
        return fail(
            LIBDECODE_ERROR_WORKSPACE_TOO_SMALL,
            "workspace_bytes is %zu, this needs %zu: ask libdecode_plan_workspace_bytes for every plan that shares it and take "
            "the largest",
            given_bytes, needed_bytes);
    return LIBDECODE_OK;
}

/* Of K or of V, by its strides in elements. A page id outside the pool is outside the map: its rows are zeros. */
static libdecode_status encode_map(const struct driver *driver, const struct problem *problem, int32_t row_dim, const void *cache,
                                   int64_t page_stride, int64_t head_stride, int64_t token_stride, uint32_t box_tokens,
                                   struct libdecode_tensor_map *ret_map) {
    const libdecode_problem *given = &problem->given;
    uint64_t element_bytes = (uint64_t)dtype_bits(given->kv_dtype) / 8;
    uint32_t row_elements = (uint32_t)(SWIZZLE_ROW_BYTES / element_bytes);
    uint32_t rows = (uint32_t)row_dim / row_elements;
    const uint64_t dims[TENSOR_MAP_RANK] = {row_elements, (uint64_t)given->page_size, rows, (uint64_t)given->num_kv_heads,
                                            given->num_pages > 0 ? (uint64_t)given->num_pages : INT32_MAX};
    const uint64_t strides[TENSOR_MAP_RANK - 1] = {(uint64_t)token_stride * element_bytes, SWIZZLE_ROW_BYTES,
                                                   (uint64_t)head_stride * element_bytes, (uint64_t)page_stride * element_bytes};
    const uint32_t box[TENSOR_MAP_RANK] = {row_elements, box_tokens, rows, 1, 1};
    const uint32_t element_strides[TENSOR_MAP_RANK] = {1, 1, 1, 1, 1};
    int data_type = given->kv_dtype == LIBDECODE_DTYPE_BF16 ? TENSOR_MAP_BFLOAT16 : TENSOR_MAP_FLOAT16;
    cuda_result result = driver->tensor_map_encode_tiled(
        ret_map, data_type, TENSOR_MAP_RANK, (void *)(uintptr_t)cache, dims, strides, box, element_strides,
        TENSOR_MAP_INTERLEAVE_NONE, TENSOR_MAP_SWIZZLE_128B, TENSOR_MAP_PROMOTION_L2_128B, TENSOR_MAP_FILL_ZEROS);
    if (result != CUDA_RESULT_SUCCESS)
        return driver_fail(driver, result, "cuTensorMapEncodeTiled",
                           "the KV cache cannot be described; check its address and strides");
    return LIBDECODE_OK;
}

static libdecode_status encode_maps(const struct driver *driver, const struct problem *problem, const libdecode_tensors *tensors,
                                    struct gqa_decode_params *params) {
    const libdecode_problem *given = &problem->given;
    uint32_t box_tokens = (uint32_t)params->schedule.box_tokens;
    FORWARD(encode_map(driver, problem, problem->qk_dim, tensors->k_cache, given->k_page_stride, given->k_head_stride,
                       given->k_token_stride, box_tokens, &params->k_map));
    return encode_map(driver, problem, problem->v_dim, tensors->v_cache, given->v_page_stride, given->v_head_stride,
                      given->v_token_stride, box_tokens, &params->v_map);
}

static struct libdecode_divisor divisor(int32_t value) {
    return (struct libdecode_divisor){.value = (uint32_t)value, .reciprocal = UINT32_MAX / (uint32_t)value};
}

/* The page table has entries for no more. */
static int32_t max_tokens(const struct problem *problem) {
    int32_t page_size = problem->given.page_size;
    return problem->page_table_width < INT32_MAX / page_size ? (int32_t)problem->page_table_width * page_size : INT32_MAX;
}

static void fill_params(const struct problem *problem, const struct selection *selection, const libdecode_tensors *tensors,
                        struct gqa_decode_params *params) {
    const libdecode_problem *given = &problem->given;
    const struct libdecode_launch_contract *contract = &selection->record->kernel->contract;
    uint32_t page_size = (uint32_t)given->page_size;
    uint32_t box_tokens = page_size < contract->max_box_tokens ? page_size : contract->max_box_tokens;
    uint32_t min_boxes = (uint32_t)selection->min_tiles_per_worker * contract->tile_tokens / box_tokens;

    params->schedule.seq_lens = tensors->seq_lens;
    params->schedule.page_table = tensors->page_table;
    params->schedule.query_positions = tensors->query_positions;
    params->schedule.seq_lens_request_stride = given->seq_lens_request_stride;
    params->schedule.seq_lens_head_stride = given->seq_lens_head_stride;
    params->schedule.page_table_request_stride = given->page_table_request_stride;
    params->schedule.page_table_head_stride = given->page_table_head_stride;
    params->schedule.page_table_v_offset = given->page_table_v_offset;
    params->schedule.batch_size = given->batch_size;
    params->schedule.heads_per_sequence = problem->heads_per_sequence;
    params->schedule.sequences_per_request = divisor(given->num_kv_heads / problem->heads_per_sequence);
    params->schedule.row_groups = divisor(selection->row_groups);
    params->schedule.num_workers = divisor(selection->num_workers);
    params->schedule.min_boxes_per_worker = min_boxes > 0 ? min_boxes : 1;
    params->schedule.page_size = given->page_size;
    params->schedule.box_tokens = (int32_t)box_tokens;
    params->schedule.max_tokens = max_tokens(problem);
    params->schedule.window_reach = given->window_left < 0 ? INT32_MAX : given->window_left / given->position_stride;
    params->schedule.window_left = given->window_left;
    params->schedule.position_offset = given->position_offset;
    params->schedule.position_stride = divisor(given->position_stride);

    params->query.rows = tensors->query;
    params->query.token_stride = given->query_token_stride;
    params->query.head_stride = given->query_head_stride;
    params->query.bmm1_scale_device = tensors->bmm1_scale_device;
    params->query.bmm1_scale_log2_device = tensors->bmm1_scale_log2_device;
    params->query.bmm1_scale_log2 = (float)(tensors->bmm1_scale * log2_e);
    params->query.group_size = problem->group_size;

    params->output.dtype = (int32_t)given->out_dtype;
    params->output.rows = tensors->out;
    params->output.token_stride = given->out_token_stride;
    params->output.head_stride = given->out_head_stride;
    params->output.lse = tensors->lse;
    params->output.lse_token_stride = given->lse_token_stride;
    params->output.lse_head_stride = given->lse_head_stride;
    params->output.sinks = tensors->sinks;
    params->output.bmm2_scale_device = tensors->bmm2_scale_device;
    params->output.bmm2_scale = tensors->bmm2_scale;
    params->records = tensors->workspace;
}

static libdecode_status enqueue(const struct driver *driver, const struct selection *selection, uint32_t launch_flags,
                                void *params, cuda_function function, libdecode_stream stream) {
    const struct libdecode_launch_contract *contract = &selection->record->kernel->contract;
    struct cuda_launch_attribute attributes[2];
    struct cuda_launch_config config = {.grid_x = (uint32_t)selection->num_workers * contract->cluster_size,
                                        .grid_y = 1,
                                        .grid_z = 1,
                                        .block_x = contract->threads,
                                        .block_y = 1,
                                        .block_z = 1,
                                        .shared_bytes = contract->dynamic_shared_bytes,
                                        .stream = stream,
                                        .attributes = attributes};
    memset(attributes, 0, sizeof attributes);
    if (contract->cluster_size > 1) {
        struct cuda_launch_attribute *attribute = &attributes[config.num_attributes++];
        attribute->id = CUDA_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
        attribute->value.cluster.x = contract->cluster_size;
        attribute->value.cluster.y = attribute->value.cluster.z = 1;
    }
    if (launch_flags & LIBDECODE_LAUNCH_PROGRAMMATIC) {
        struct cuda_launch_attribute *attribute = &attributes[config.num_attributes++];
        attribute->id = CUDA_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
        attribute->value.programmatic = 1;
    }
    void *parameters[] = {params};
    cuda_result result = driver->launch_kernel_ex(&config, function, parameters, NULL);
    if (result != CUDA_RESULT_SUCCESS)
        return driver_fail(driver, result, "cuLaunchKernelEx", selection->record->name);
    return LIBDECODE_OK;
}

libdecode_status launch_kernel(const struct driver *driver, const struct problem *problem, const struct selection *selection,
                               const libdecode_tensors *tensors, cuda_function function, libdecode_stream stream) {
    struct gqa_decode_params params;
    memset(&params, 0, sizeof params);
    fill_params(problem, selection, tensors, &params);
    FORWARD(encode_maps(driver, problem, tensors, &params));
    return enqueue(driver, selection, tensors->launch_flags, &params, function, stream);
}
