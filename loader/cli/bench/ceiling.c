/* SPDX-License-Identifier: Apache-2.0 */
/* ceiling.c: bytes in, the time that reading them takes at best out. Before: the bundles. Next: bench.c, demo.c. */
#include "ceiling.h"

#include <stddef.h>

#include "context.h"
#include "device.h"
#include "family.h"
#include "options.h"
#include "target.h"

#define STEP_BYTES (16u << 10) /* the kernel copies such pieces */

bool ceiling_open(struct gpu *gpu, libdecode_context *context, const libdecode_device *device, struct ceiling *ret_ceiling) {
    struct ceiling ceiling = {0};
    const struct kernel_record *record =
        kernel_table_find(&context->table, &family_read_ceiling, gpu_bit(device->compute_capability));
    if (record == NULL)
        return complain("the bundles hold no read_ceiling kernel for sm_%d, so no ceiling stands beside the times "
                        "(-Dvariants=...,read_ceiling* builds it)",
                        device->compute_capability);
    const struct libdecode_launch_contract *contract = &record->kernel->contract;
    uint64_t context_id;
    if (driver_get(&ceiling.driver) != LIBDECODE_OK || device_context_id(ceiling.driver, &context_id) != LIBDECODE_OK ||
        module_function(context->modules, ceiling.driver, context_id, record, NULL, 0, 1, &ceiling.function) != LIBDECODE_OK)
        return complain("%s", libdecode_error_message());
    ceiling.grid = (unsigned)device->sm_count * contract->ctas_per_sm;
    ceiling.threads = contract->threads;
    ceiling.shared_bytes = contract->dynamic_shared_bytes;
    if (!gpu_alloc(gpu, sizeof(uint32_t), "the read ceiling", &ceiling.sink))
        return false;
    *ret_ceiling = ceiling;
    return true;
}

void ceiling_close(struct gpu *gpu, struct ceiling *ceiling) { gpu_free(gpu, &ceiling->sink); }

struct rotation {
    struct gpu *gpu;
    const struct ceiling *ceiling;
    uint64_t pool, bytes, regions;
};

static bool enqueue_read(void *cookie, int call, libdecode_stream stream) {
    const struct rotation *rotation = cookie;
    const struct ceiling *ceiling = rotation->ceiling;
    struct read_ceiling_params params = {.data =
                                             gpu_pointer(rotation->pool + (uint64_t)call % rotation->regions * rotation->bytes),
                                         .bytes = rotation->bytes,
                                         .sink = gpu_pointer(ceiling->sink)};
    void *parameters[] = {&params};
    struct cuda_launch_config config = {.grid_x = ceiling->grid,
                                        .grid_y = 1,
                                        .grid_z = 1,
                                        .block_x = ceiling->threads,
                                        .block_y = 1,
                                        .block_z = 1,
                                        .shared_bytes = ceiling->shared_bytes,
                                        .stream = stream};
    return gpu_ok(rotation->gpu, ceiling->driver->launch_kernel_ex(&config, ceiling->function, parameters, NULL),
                  "cuLaunchKernelEx");
}

bool ceiling_time(struct gpu *gpu, const struct ceiling *ceiling, libdecode_stream stream, uint64_t pool, uint64_t pool_bytes,
                  uint64_t bytes, int calls, struct timing *ret_timing) {
    struct rotation rotation = {.gpu = gpu, .ceiling = ceiling, .pool = pool};
    rotation.bytes = (bytes + STEP_BYTES - 1) / STEP_BYTES * STEP_BYTES;
    if (rotation.bytes > pool_bytes)
        rotation.bytes = pool_bytes / STEP_BYTES * STEP_BYTES;
    if (rotation.bytes == 0)
        return false;
    rotation.regions = pool_bytes / rotation.bytes;
    return time_graph(gpu, stream, enqueue_read, &rotation, calls, ret_timing);
}
