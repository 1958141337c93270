/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A context in, what it holds and how it decides out: the kernels, the bundles, the verdict about every candidate, the state
 * of every image. Nothing here needs a GPU. Beside: decode.c.
 */
#include <stdlib.h>
#include <string.h>

#include "context.h"
#include "device.h"
#include "family.h"

size_t libdecode_kernel_count(const libdecode_context *context) { return context ? context->table.count : 0; }
size_t libdecode_bundle_count(const libdecode_context *context) { return context ? context->num_bundles : 0; }

static libdecode_status check_index(size_t index, size_t count, const char *what) {
    if (index >= count)
        return fail(LIBDECODE_ERROR_INVALID_ARGUMENT, "index is %zu: this context has %zu %s", index, count, what);
    return LIBDECODE_OK;
}

static libdecode_status kernel_info(const libdecode_context *context, size_t index, libdecode_kernel_info *ret_info) {
    FORWARD(require_pointer(context, "context"));
    FORWARD(check_index(index, context->table.count, "kernels"));
    const struct kernel_record *record = &context->table.records[index];
    const struct libdecode_launch_contract *contract = &record->kernel->contract;
    const struct bundle_image *image = &bundle_images(record->bundle)[record->kernel->image];
    libdecode_kernel_info info = {.name = record->name,
                                  .bundle = bundle_path(record->bundle),
                                  .op = record->family ? record->family->op : (libdecode_op)0,
                                  .query_dtypes = contract->query_dtypes,
                                  .kv_dtype = (libdecode_dtype)contract->kv_dtype,
                                  .head_dim = (int32_t)contract->head_dim,
                                  .row_tile = (int32_t)contract->row_tile,
                                  .cluster_size = (int32_t)contract->cluster_size,
                                  .threads = (int32_t)contract->threads,
                                  .shared_bytes = (int32_t)contract->dynamic_shared_bytes,
                                  .registers = (int32_t)record->kernel->registers,
                                  .gpus = context->table.gpus[index],
                                  .features = contract->features,
                                  .image_bytes = image->image_bytes,
                                  .compressed_bytes = image->frame_bytes};
    memcpy(info.image_sha256, image->sha256, sizeof info.image_sha256);
    return write_caller_struct(ret_info, &info, sizeof info, "libdecode_kernel_info");
}

libdecode_status libdecode_kernel_get_info(const libdecode_context *context, size_t index, libdecode_kernel_info *ret_info) {
    return context_result(context, kernel_info(context, index, ret_info));
}

static libdecode_status bundle_info(const libdecode_context *context, size_t index, libdecode_bundle_info *ret_info) {
    FORWARD(require_pointer(context, "context"));
    FORWARD(check_index(index, context->num_bundles, "bundles"));
    const struct bundle *bundle = context->bundles[index];
    const struct bundle_header *header = bundle_header(bundle);
    libdecode_bundle_info info = {.path = bundle_path(bundle),
                                  .gpus = header->gpus,
                                  .num_kernels = header->num_kernels,
                                  .num_images = header->num_images,
                                  .file_bytes = header->file_bytes};
    memcpy(info.root_hash, header->root_hash, sizeof info.root_hash);
    return write_caller_struct(ret_info, &info, sizeof info, "libdecode_bundle_info");
}

libdecode_status libdecode_bundle_get_info(const libdecode_context *context, size_t index, libdecode_bundle_info *ret_info) {
    return context_result(context, bundle_info(context, index, ret_info));
}

static libdecode_status verify(const libdecode_context *context) {
    FORWARD(require_pointer(context, "context"));
    for (size_t i = 0; i < context->num_bundles; i++) {
        const struct bundle *bundle = context->bundles[i];
        for (uint32_t image = 0; image < bundle_header(bundle)->num_images; image++) {
            void *bytes = NULL;
            FORWARD(bundle_read_image(bundle, image, &bytes));
            free(bytes);
        }
    }
    return LIBDECODE_OK;
}

libdecode_status libdecode_verify(libdecode_context *context) { return context_result(context, verify(context)); }

static libdecode_status explain(libdecode_context *context, const libdecode_problem *problem, const libdecode_device *device,
                                libdecode_verdict_function report, void *cookie) {
    struct problem checked;
    libdecode_device facts;
    struct selection selection;
    FORWARD(require_pointer(context, "context"));
    FORWARD(problem_check(problem, &checked));
    FORWARD(device_read(device, &facts));
    return context_refusal(context,
                           select_kernel(&checked, &facts, &context->policy, &context->table, report, cookie, &selection));
}

libdecode_status libdecode_explain(libdecode_context *context, const libdecode_problem *problem, const libdecode_device *device,
                                   libdecode_verdict_function report, void *cookie) {
    return context_result(context, explain(context, problem, device, report, cookie));
}
