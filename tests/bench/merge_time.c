/* SPDX-License-Identifier: Apache-2.0 */
/*
 * merge_time.c: how long libdecode_merge_states takes on the GPU at hand, cold: a node of one CUDA graph, the partial results of each
 * node 256 MB after those of the same ones before. Bundles as libdecode finds them. Prints; judges nothing. Exit code 77: no GPU.
 */
#include <stdio.h>

#include "bench/timing.h"
#include "gpu.h"
#include "libdecode.h"
#include "options.h"

enum { NODES = 64 };
#define POOL_BYTES ((size_t)256 << 20)

struct cell {
    const char *name;
    libdecode_dtype dtype, out_dtype;
    int32_t num_tokens, num_states, num_heads, head_dim;
    size_t bytes; /* of an element */
};
static const struct cell cells[] = {
    {"bf16", LIBDECODE_DTYPE_BF16, LIBDECODE_DTYPE_BF16, 64, 8, 32, 128, 2},
    {"fp32 to bf16", LIBDECODE_DTYPE_FP32, LIBDECODE_DTYPE_BF16, 64, 8, 32, 128, 4},
    {"bf16", LIBDECODE_DTYPE_BF16, LIBDECODE_DTYPE_BF16, 1, 2, 32, 128, 2},
    {"bf16", LIBDECODE_DTYPE_BF16, LIBDECODE_DTYPE_BF16, 64, 2, 128, 512, 2},
    {"bf16", LIBDECODE_DTYPE_BF16, LIBDECODE_DTYPE_BF16, 64, 64, 32, 128, 2},
};

struct run {
    libdecode_context *context;
    const struct cell *cell;
    uint64_t pool, lse, out;
};

static size_t partial_bytes(const struct cell *cell) {
    return (size_t)cell->num_tokens * (size_t)cell->num_states * (size_t)cell->num_heads * (size_t)cell->head_dim * cell->bytes;
}

static bool enqueue(void *cookie, int call, libdecode_stream stream) {
    const struct run *run = cookie;
    const struct cell *cell = run->cell;
    const size_t bytes = partial_bytes(cell), regions = POOL_BYTES / bytes;
    libdecode_states states = LIBDECODE_STATES_INIT;
    states.dtype = cell->dtype;
    states.out_dtype = cell->out_dtype;
    states.num_tokens = cell->num_tokens;
    states.num_states = cell->num_states;
    states.num_heads = cell->num_heads;
    states.head_dim = cell->head_dim;
    states.partial_out = gpu_pointer(run->pool + (size_t)call % regions * bytes);
    states.partial_lse = gpu_pointer(run->lse);
    states.out = gpu_pointer(run->out);
    return libdecode_merge_states(run->context, &states, stream) == LIBDECODE_OK || complain("%s", libdecode_error_message());
}

static bool time_cells(struct gpu *gpu, libdecode_context *context) {
    libdecode_stream stream = NULL;
    struct run run = {.context = context};
    bool good = gpu_stream_create(gpu, &stream) && gpu_alloc(gpu, POOL_BYTES, "partial results", &run.pool) &&
                gpu_alloc(gpu, POOL_BYTES, "their lse", &run.lse) && gpu_alloc(gpu, POOL_BYTES, "the result", &run.out) &&
                gpu_fill(gpu, run.pool, 0, POOL_BYTES) && gpu_fill(gpu, run.lse, 0, POOL_BYTES);
    for (size_t i = 0; good && i < sizeof cells / sizeof cells[0]; i++) {
        struct timing timing;
        run.cell = &cells[i];
        good = enqueue(&run, 0, stream) && gpu_wait(gpu, stream) && time_graph(gpu, stream, enqueue, &run, NODES, &timing);
        if (good)
            printf("%3d tokens x %2d states x %3d heads x %3d, %-12s  %7.2f us (%.2f to %.2f)  %.2f TB/s\n", cells[i].num_tokens,
                   cells[i].num_states, cells[i].num_heads, cells[i].head_dim, cells[i].name, timing.median_us, timing.fastest_us,
                   timing.slowest_us, (double)partial_bytes(&cells[i]) / timing.median_us * 1e-6);
    }
    gpu_free(gpu, &run.out);
    gpu_free(gpu, &run.lse);
    gpu_free(gpu, &run.pool);
    gpu_stream_destroy(gpu, &stream);
    return good;
}

int main(void) {
    struct gpu gpu;
    char why[256];
    libdecode_context *context = NULL;
    if (gpu_find(&gpu, why, sizeof why) != GPU_PRESENT) {
        printf("merge_time: %s\n", why);
        return EXIT_NO_GPU;
    }
    if (!gpu_open(&gpu, 0))
        return EXIT_FAILED;
    bool good = libdecode_open(NULL, &context) == LIBDECODE_OK || complain("%s", libdecode_error_message());
    good = good && time_cells(&gpu, context);
    libdecode_close(context);
    gpu_close(&gpu);
    return good ? EXIT_PASSED : EXIT_FAILED;
}
