/* SPDX-License-Identifier: Apache-2.0 */
/* timing.c: work in, its time on the GPU (graph nodes, median of replays) and on the host out. Used by bench.c and demo.c. */
#include "timing.h"

#include <math.h>

#include "options.h"
#include "report.h"

#define WARM_UP_REPLAYS 3
#define HOST_ROUNDS 21 /* median of this many */
#define WARM_UP_LAUNCHES 10
#define LAUNCHES_PER_ROUND 50 /* far fewer than what a stream queues before it makes the host wait */
#define ATTRIBUTE_CLUSTER_DIMENSION 4
#define ATTRIBUTE_PROGRAMMATIC 6

static bool capture(struct gpu *gpu, libdecode_stream stream, enqueue_function enqueue, void *cookie, int calls,
                    gpu_graph *ret_graph) {
    bool good = gpu_capture_begin(gpu, stream);
    if (!good)
        return false;
    for (int call = 0; good && call < calls; call++)
        good = enqueue(cookie, call, stream);
    /* ends the capture in any case, or the stream stays unusable */
    gpu_graph graph = NULL;
    good = gpu_capture_end(gpu, stream, &graph) && good;
    if (graph != NULL && !good)
        gpu->call.graph_destroy(graph);
    if (good)
        *ret_graph = graph;
    return good;
}

static bool replay(struct gpu *gpu, libdecode_stream stream, gpu_exec exec, gpu_event begin, gpu_event end, double *ret_us) {
    float milliseconds = 0;
    if (!gpu_ok(gpu, gpu->call.event_record(begin, stream), "cuEventRecord") ||
        !gpu_ok(gpu, gpu->call.graph_launch(exec, stream), "cuGraphLaunch") ||
        !gpu_ok(gpu, gpu->call.event_record(end, stream), "cuEventRecord") || !gpu_wait(gpu, stream) ||
        !gpu_ok(gpu, gpu->call.event_elapsed(&milliseconds, begin, end), "cuEventElapsedTime"))
        return false;
    *ret_us = 1000.0 * (double)milliseconds;
    return true;
}

static bool replay_all(struct gpu *gpu, libdecode_stream stream, gpu_exec exec, int calls, struct timing *ret_timing) {
    gpu_event begin = NULL, end = NULL;
    double us[WARM_UP_REPLAYS + TIMING_REPLAYS] = {0};
    bool good = gpu_ok(gpu, gpu->call.event_create(&begin, 0), "cuEventCreate") &&
                gpu_ok(gpu, gpu->call.event_create(&end, 0), "cuEventCreate");
    for (int index = 0; good && index < WARM_UP_REPLAYS + TIMING_REPLAYS; index++)
        good = replay(gpu, stream, exec, begin, end, &us[index]);
    if (begin != NULL)
        gpu->call.event_destroy(begin);
    if (end != NULL)
        gpu->call.event_destroy(end);
    if (!good)
        return false;
    double middle = median(us + WARM_UP_REPLAYS, TIMING_REPLAYS); /* sorts them */
    *ret_timing = (struct timing){.median_us = middle / calls,
                                  .fastest_us = us[WARM_UP_REPLAYS] / calls,
                                  .slowest_us = us[WARM_UP_REPLAYS + TIMING_REPLAYS - 1] / calls,
                                  .calls = calls};
    return true;
}

bool time_graph(struct gpu *gpu, libdecode_stream stream, enqueue_function enqueue, void *cookie, int calls,
                struct timing *ret_timing) {
    gpu_graph graph = NULL;
    gpu_exec exec = NULL;
    if (!capture(gpu, stream, enqueue, cookie, calls, &graph))
        return false;
    bool good = gpu_ok(gpu, gpu->call.graph_instantiate(&exec, graph, 0), "cuGraphInstantiateWithFlags") &&
                replay_all(gpu, stream, exec, calls, ret_timing);
    if (exec != NULL)
        gpu->call.exec_destroy(exec);
    gpu->call.graph_destroy(graph);
    return good;
}

/* A launch that repeats the one kernel node of a graph. */
struct bare_launch {
    struct gpu *gpu;
    struct gpu_launch_config config;
    struct gpu_launch_attribute attributes[2];
    gpu_function function;
    void **parameters, **extra;
};

static bool enqueue_bare(void *cookie, int call, libdecode_stream stream) {
    struct bare_launch *bare = cookie;
    (void)call;
    bare->config.stream = stream;
    int result = bare->gpu->call.launch(&bare->config, bare->function, bare->parameters, bare->extra);
    return gpu_ok(bare->gpu, result, "cuLaunchKernelEx");
}

static void copy_attribute(struct bare_launch *bare, gpu_node node, int id) {
    struct gpu_launch_attribute *attribute = &bare->attributes[bare->config.num_attributes];
    *attribute = (struct gpu_launch_attribute){.id = id};
    int first_word = 0; /* cluster width, or whether it is programmatic: 0 means that the attribute is not set */
    if (bare->gpu->call.node_attribute(node, id, attribute->value) != 0)
        return;
    for (size_t byte = 0; byte < sizeof first_word; byte++)
        first_word |= attribute->value[byte];
    if (first_word != 0)
        bare->config.num_attributes++;
}

/* False, without a word, if the graph is not one kernel. */
static bool bare_from_graph(struct gpu *gpu, gpu_graph graph, struct bare_launch *bare) {
    gpu_node node = NULL;
    size_t count = 0;
    struct gpu_node_params params = {0};
    if (gpu->call.graph_nodes(graph, NULL, &count) != 0 || count != 1 || gpu->call.graph_nodes(graph, &node, &count) != 0 ||
        gpu->call.node_params(node, &params) != 0)
        return false;
    *bare = (struct bare_launch){.gpu = gpu, .function = params.function, .parameters = params.parameters, .extra = params.extra};
    bare->config = (struct gpu_launch_config){.grid_x = params.grid_x,
                                              .grid_y = params.grid_y,
                                              .grid_z = params.grid_z,
                                              .block_x = params.block_x,
                                              .block_y = params.block_y,
                                              .block_z = params.block_z,
                                              .shared_bytes = params.shared_bytes,
                                              .attributes = bare->attributes};
    copy_attribute(bare, node, ATTRIBUTE_CLUSTER_DIMENSION);
    copy_attribute(bare, node, ATTRIBUTE_PROGRAMMATIC);
    return true;
}

static bool enqueue_times(enqueue_function enqueue, void *cookie, libdecode_stream stream, int times) {
    for (int launch = 0; launch < times; launch++) {
        if (!enqueue(cookie, 0, stream))
            return false;
    }
    return true;
}

/*
 * Of one call, over a round of them; the stream is empty before and after. The first calls find the host's caches cold, since
 * the round before ended with a wait of up to 50 ms for the GPU; they are not counted.
 */
static bool time_round(struct gpu *gpu, libdecode_stream stream, enqueue_function enqueue, void *cookie, double *ret_us) {
    if (!enqueue_times(enqueue, cookie, stream, WARM_UP_LAUNCHES))
        return false;
    double begin = seconds_now();
    if (!enqueue_times(enqueue, cookie, stream, LAUNCHES_PER_ROUND))
        return false;
    *ret_us = 1e6 * (seconds_now() - begin) / LAUNCHES_PER_ROUND;
    return gpu_wait(gpu, stream);
}

/* In turns, so that what slows the host down for a while falls on both. `bare` may be NULL. */
static bool time_in_turns(struct gpu *gpu, libdecode_stream stream, enqueue_function enqueue, void *cookie,
                          struct bare_launch *bare, struct host_timing *ret_timing) {
    double launch_us[HOST_ROUNDS], bare_us[HOST_ROUNDS];
    bool good = time_round(gpu, stream, enqueue, cookie, &launch_us[0]); /* the first is not counted */
    for (int round = 0; good && round < HOST_ROUNDS; round++) {
        good = time_round(gpu, stream, enqueue, cookie, &launch_us[round]) &&
               (bare == NULL || time_round(gpu, stream, enqueue_bare, bare, &bare_us[round]));
    }
    if (!good)
        return false;
    ret_timing->launch_us = median(launch_us, HOST_ROUNDS);
    ret_timing->bare_us = bare != NULL ? median(bare_us, HOST_ROUNDS) : (double)NAN;
    return true;
}

bool time_host(struct gpu *gpu, libdecode_stream stream, enqueue_function enqueue, void *cookie, struct host_timing *ret_timing) {
    struct bare_launch bare;
    gpu_graph graph = NULL;
    if (!capture(gpu, stream, enqueue, cookie, 1, &graph))
        return false;
    /* the parameters belong to the graph's node, so the graph outlives the launches */
    bool has_bare = bare_from_graph(gpu, graph, &bare);
    bool good = time_in_turns(gpu, stream, enqueue, cookie, has_bare ? &bare : NULL, ret_timing);
    gpu->call.graph_destroy(graph);
    return good;
}
