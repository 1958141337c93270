/* SPDX-License-Identifier: Apache-2.0 */
/* ceiling.c: bytes in, the time that reading them takes at best out. Before: the bundles. Next: bench.c, demo.c. */
#include "ceiling.h"

#include "abi.h"
#include "family.h"

#define STEP_BYTES (16u << 10) /* the kernel copies such pieces */

bool ceiling_open(struct gpu *gpu, libdecode_context *context, const libdecode_device *device, struct ceiling *ret_ceiling) {
    struct ceiling ceiling = {0};
    if (!instrument_open(context, device, &family_read_ceiling, "no ceiling stands beside the times", &ceiling.instrument))
        return false;
    ceiling.ctas = (unsigned)device->sm_count * ceiling.instrument.ctas_per_sm;
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
    return instrument_launch(rotation->gpu, &ceiling->instrument, ceiling->ctas, &params, stream);
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
