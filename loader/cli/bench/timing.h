/* SPDX-License-Identifier: Apache-2.0 */
/*
 * timing.c: something that enqueues work in, its time out: on the GPU as nodes of a graph, and on the host for one launch.
 * Beside: ceiling.c. Used by bench.c and demo.c.
 */
#ifndef LIBDECODE_CLI_TIMING_H
#define LIBDECODE_CLI_TIMING_H

#include "gpu.h"

#define TIMING_REPLAYS 11

/* Enqueues call number `call` on the stream. Prints what is wrong and returns false. */
typedef bool (*enqueue_function)(void *cookie, int call, libdecode_stream stream);

struct timing {
    double median_us, fastest_us, slowest_us; /* of one call, over the replays */
    int calls;
};

/* Captures calls 0 .. calls - 1 into one graph, replays it to warm up, then TIMING_REPLAYS times. */
bool time_graph(struct gpu *gpu, libdecode_stream stream, enqueue_function enqueue, void *cookie, int calls,
                struct timing *ret_timing);

/* One of several works that are timed against each other. */
struct timed_work {
    enqueue_function enqueue;
    void *cookie;
    struct timing timing; /* filled */
};

/* What else the GPU does while work is timed: begun before each replay, and asked after it whether it has lasted until then. */
struct company {
    bool (*begin)(void *cookie);
    bool (*end)(void *cookie, bool *ret_lasted);
    void *cookie;
};

/*
 * As time_graph for every work, replays in turns: what slows the GPU down for a while falls on all of them. `replays` is at most
 * TIMING_REPLAYS. `company` may be NULL; a replay that it has not lasted through is taken once more.
 */
bool time_in_turns(struct gpu *gpu, libdecode_stream stream, struct timed_work *works, size_t num_works, int calls, int replays,
                   const struct company *company);

struct host_timing {
    double launch_us; /* of one call of `enqueue`, on the host */
    double bare_us;   /* of cuLaunchKernelEx with the same function, parameters and attributes; NaN if it cannot be measured */
};
/* `enqueue` must enqueue one kernel, and nothing else. */
bool time_host(struct gpu *gpu, libdecode_stream stream, enqueue_function enqueue, void *cookie, struct host_timing *ret_timing);

#endif
