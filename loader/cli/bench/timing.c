/* SPDX-License-Identifier: Apache-2.0 */
/* timing.c: work in, its time on the GPU (graph nodes, median of replays) and on the host out. Used by bench.c and demo.c. */
#include "timing.h"

#include <math.h>
#include <stdlib.h>

#include "options.h"
#include "report.h"

#define WARM_UP_REPLAYS 3
#define COMPANY_ATTEMPTS 5
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

/* One work as a graph. */
struct turn {
    gpu_graph graph;
    gpu_exec exec;
    double us[TIMING_REPLAYS];
};

static bool replay(struct gpu *gpu, libdecode_stream stream, gpu_exec exec, const gpu_event events[2], double *ret_us) {
    float milliseconds = 0;
    if (!gpu_ok(gpu, gpu->call.event_record(events[0], stream), "cuEventRecord") ||
        !gpu_ok(gpu, gpu->call.graph_launch(exec, stream), "cuGraphLaunch") ||
        !gpu_ok(gpu, gpu->call.event_record(events[1], stream), "cuEventRecord") || !gpu_wait(gpu, stream) ||
        !gpu_ok(gpu, gpu->call.event_elapsed(&milliseconds, events[0], events[1]), "cuEventElapsedTime"))
        return false;
    *ret_us = 1000.0 * (double)milliseconds;
    return true;
}

static bool replay_in_company(struct gpu *gpu, libdecode_stream stream, gpu_exec exec, const gpu_event events[2],
                              const struct company *company, double *ret_us) {
    if (company == NULL)
        return replay(gpu, stream, exec, events, ret_us);
    bool lasted = false;
    for (int attempt = 0; !lasted; attempt++) {
        if (attempt == COMPANY_ATTEMPTS)
            return complain("what was to run beside the measured work ended before it, %d times", attempt);
        if (!company->begin(company->cookie))
            return false;
        const bool good = replay(gpu, stream, exec, events, ret_us);
        if (!company->end(company->cookie, &lasted) || !good)
            return false;
    }
    return true;
}

static bool capture_turn(struct gpu *gpu, libdecode_stream stream, const struct timed_work *work, int calls, struct turn *turn) {
    return capture(gpu, stream, work->enqueue, work->cookie, calls, &turn->graph) &&
           gpu_ok(gpu, gpu->call.graph_instantiate(&turn->exec, turn->graph, 0), "cuGraphInstantiateWithFlags");
}

static void free_turn(struct gpu *gpu, struct turn *turn) {
    if (turn->exec != NULL)
        gpu->call.exec_destroy(turn->exec);
    if (turn->graph != NULL)
        gpu->call.graph_destroy(turn->graph);
}

static bool replay_turns(struct gpu *gpu, libdecode_stream stream, struct turn *turns, size_t num_turns, int replays,
                         const struct company *company) {
    gpu_event events[2] = {NULL, NULL};
    double ignored = 0;
    bool good = gpu_ok(gpu, gpu->call.event_create(&events[0], 0), "cuEventCreate") &&
                gpu_ok(gpu, gpu->call.event_create(&events[1], 0), "cuEventCreate");
    for (int index = -WARM_UP_REPLAYS; good && index < replays; index++) {
        for (size_t turn = 0; good && turn < num_turns; turn++)
            good =
                replay_in_company(gpu, stream, turns[turn].exec, events, company, index < 0 ? &ignored : &turns[turn].us[index]);
    }
    for (int event = 0; event < 2; event++) {
        if (events[event] != NULL)
            gpu->call.event_destroy(events[event]);
    }
    return good;
}

static struct timing timing_of(double *us, int replays, int calls) {
    double middle = median(us, (size_t)replays); /* sorts them */
    return (struct timing){
        .median_us = middle / calls, .fastest_us = us[0] / calls, .slowest_us = us[replays - 1] / calls, .calls = calls};
}

bool time_in_turns(struct gpu *gpu, libdecode_stream stream, struct timed_work *works, size_t num_works, int calls, int replays,
                   const struct company *company) {
    struct turn *turns = calloc(num_works + 1, sizeof turns[0]);
    bool good = turns != NULL || complain("out of memory");
    for (size_t index = 0; good && index < num_works; index++)
        good = capture_turn(gpu, stream, &works[index], calls, &turns[index]);
    good = good && replay_turns(gpu, stream, turns, num_works, replays, company);
    for (size_t index = 0; turns != NULL && index < num_works; index++) {
        if (good)
            works[index].timing = timing_of(turns[index].us, replays, calls);
        free_turn(gpu, &turns[index]);
    }
    free(turns);
    return good;
}

bool time_graph(struct gpu *gpu, libdecode_stream stream, enqueue_function enqueue, void *cookie, int calls,
                struct timing *ret_timing) {
    struct timed_work work = {.enqueue = enqueue, .cookie = cookie};
    if (!time_in_turns(gpu, stream, &work, 1, calls, TIMING_REPLAYS, NULL))
        return false;
    *ret_timing = work.timing;
    return true;
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
static bool time_rounds(struct gpu *gpu, libdecode_stream stream, enqueue_function enqueue, void *cookie,
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
    bool good = time_rounds(gpu, stream, enqueue, cookie, has_bare ? &bare : NULL, ret_timing);
    gpu->call.graph_destroy(graph);
    return good;
}
