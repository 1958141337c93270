/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A checked problem, its selection and the tensors of one call in, one enqueued kernel out. Everything lives on the stack; what
 * the parameter block holds is the family's business (families/).
 * Before: decode.c, with the function that module.c loaded. Next: the kernel (kernels/families), through kernels/abi.h.
 */
#include "launch.h"

#include <string.h>

#include "family.h"
#include "status.h"
#include "workspace.h"

/* Of cuda.h. */
enum { TENSOR_MAP_INTERLEAVE_NONE = 0, TENSOR_MAP_PROMOTION_L2_128B = 2, TENSOR_MAP_FILL_ZEROS = 0 };

static libdecode_status encode_map(const struct driver *driver, const struct tensor_map *map,
                                   struct libdecode_tensor_map *ret_encoded) {
    static const uint32_t element_strides[TENSOR_MAP_MAX_RANK] = {1, 1, 1, 1, 1};
    cuda_result result = driver->tensor_map_encode_tiled(
        ret_encoded, map->data_type, map->rank, (void *)(uintptr_t)map->address, map->dims, map->strides_bytes, map->box,
        element_strides, TENSOR_MAP_INTERLEAVE_NONE, map->swizzle, TENSOR_MAP_PROMOTION_L2_128B, TENSOR_MAP_FILL_ZEROS);
    if (result != CUDA_RESULT_SUCCESS)
        return driver_fail(driver, result, "cuTensorMapEncodeTiled",
                           "the KV cache cannot be described; check its address and strides");
    return LIBDECODE_OK;
}

static libdecode_status encode_maps(const struct driver *driver, struct kernel_arguments *arguments) {
    for (size_t i = 0; i < arguments->num_maps; i++)
        FORWARD(encode_map(driver, &arguments->maps[i].map,
                           (struct libdecode_tensor_map *)(void *)(arguments->block + arguments->maps[i].offset)));
    return LIBDECODE_OK;
}

libdecode_status launch_block(const struct driver *driver, const struct kernel_record *record, uint32_t num_ctas,
                              uint32_t launch_flags, void *block, cuda_function function, libdecode_stream stream) {
    const struct libdecode_launch_contract *contract = &record->kernel->contract;
    struct cuda_launch_attribute attributes[2];
    struct cuda_launch_config config = {.grid_x = num_ctas,
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
    void *parameters[] = {block};
    cuda_result result = driver->launch_kernel_ex(&config, function, parameters, NULL);
    if (result != CUDA_RESULT_SUCCESS)
        return driver_fail(driver, result, "cuLaunchKernelEx", record->name);
    return LIBDECODE_OK;
}

static libdecode_status launch_decode(const struct driver *driver, const struct problem *problem,
                                      const struct selection *selection, const libdecode_tensors *tensors, cuda_function function,
                                      libdecode_stream stream) {
    struct kernel_arguments arguments;
    const struct family *family = selection->record->family;
    memset(arguments.block, 0, family->parameter_bytes);
    family->fill(problem, selection, tensors, &arguments);
    FORWARD(encode_maps(driver, &arguments));
    const uint32_t num_ctas = (uint32_t)selection->num_workers * selection->record->kernel->contract.cluster_size;
    return launch_block(driver, selection->record, num_ctas, tensors->launch_flags, arguments.block, function, stream);
}

/* ------------------------------------------------------------------------------------------------ lengths on the host */

libdecode_status host_lens_check(const struct driver *driver, const struct selection *selection, const libdecode_tensors *tensors,
                                 libdecode_stream stream) {
    int capture = 0;
    if (selection->workspace.lens.bytes == 0 || tensors->seq_lens == NULL)
        return LIBDECODE_OK;
    cuda_result result = driver->stream_is_capturing(stream, &capture);
    if (result != CUDA_RESULT_SUCCESS)
        return driver_fail(driver, result, "cuStreamIsCapturing", "nobody knows whether lengths on the host may be copied");
    if (capture != 0)
        return fail(
            LIBDECODE_ERROR_INVALID_ARGUMENT,
            "tensors.seq_lens is %p, on the host (LIBDECODE_FEATURE_HOST_SEQ_LENS), and the stream is captured: every replay "
            "would read that memory; give lengths on the device, and leave the feature out",
            (const void *)tensors->seq_lens);
    return LIBDECODE_OK;
}

/*
 * Between the copy and the memset, which leaves the workspace as every launch finds it: the records of another plan may lie where the
 * lengths are. Neither lets kernels overlap, so nothing is promised of history.
 */
static libdecode_status launch_with_host_lens(const struct driver *driver, const struct problem *problem,
                                              const struct selection *selection, const libdecode_tensors *tensors,
                                              cuda_function function, libdecode_stream stream) {
    libdecode_tensors on_device = *tensors;
    void *lens = workspace_part_at(tensors->workspace, &selection->workspace.lens);
    const cuda_address address = (cuda_address)(uintptr_t)lens;
    on_device.seq_lens = (const int32_t *)lens;
    on_device.launch_flags = 0;
    cuda_result result = driver->memcpy_htod_async(address, tensors->seq_lens, selection->workspace.lens.bytes, stream);
    if (result != CUDA_RESULT_SUCCESS)
        return driver_fail(
            driver, result, "cuMemcpyHtoDAsync",
            "tensors.seq_lens cannot be copied to the workspace; is it host memory, and the workspace of this device?");
    const libdecode_status status = launch_decode(driver, problem, selection, &on_device, function, stream);
    result = driver->memset_d8_async(address, 0, selection->workspace.lens.bytes, stream);
    if (status == LIBDECODE_OK && result != CUDA_RESULT_SUCCESS)
        return driver_fail(driver, result, "cuMemsetD8Async",
                           "the lengths stay in the workspace; call libdecode_workspace_init before its next launch");
    return status;
}

libdecode_status launch_kernel(const struct driver *driver, const struct problem *problem, const struct selection *selection,
                               const libdecode_tensors *tensors, cuda_function function, libdecode_stream stream) {
    if (selection->workspace.lens.bytes > 0 && tensors->seq_lens != NULL)
        return launch_with_host_lens(driver, problem, selection, tensors, function, stream);
    return launch_decode(driver, problem, selection, tensors, function, stream);
}
