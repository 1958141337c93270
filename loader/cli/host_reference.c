/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host_reference.c: a problem and host tensors in, its result in float64 out, request by request and KV head by KV head on all
 * processors. Next: compare.c.
 */
#define _POSIX_C_SOURCE 200809L /* sysconf */
#include "host_reference.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "options.h"
#include "reference.h"
#include "status.h"
#include "terminal.h"

#define MAX_THREADS 64

struct job {
    struct reference reference;
    const char *label;
    uint32_t first_kv_head, num_kv_heads, num_tasks;
    atomic_uint next;
    atomic_int failed;
    pthread_mutex_t lock; /* of what follows */
    uint32_t num_done;
    char message[ERROR_MESSAGE_BYTES];
};

static libdecode_status run_task(const struct job *job, uint32_t task) {
    return reference_part(&job->reference, task / job->num_kv_heads, job->first_kv_head + task % job->num_kv_heads);
}

static void *work(void *argument) {
    struct job *job = argument;
    for (;;) {
        uint32_t task = atomic_fetch_add(&job->next, 1);
        if (task >= job->num_tasks || atomic_load(&job->failed) != 0)
            return NULL;
        if (run_task(job, task) != LIBDECODE_OK) {
            pthread_mutex_lock(&job->lock);
            atomic_store(&job->failed, 1);
            snprintf(job->message, sizeof job->message, "%s", libdecode_error_message()); /* of this thread */
            pthread_mutex_unlock(&job->lock);
            return NULL;
        }
        if (job->label != NULL) {
            pthread_mutex_lock(&job->lock);
            progress("%s: reference, %u of %u parts", job->label, ++job->num_done, job->num_tasks);
            pthread_mutex_unlock(&job->lock);
        }
    }
}

int host_reference_threads(void) {
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    return processors < 1 ? 1 : processors > MAX_THREADS ? MAX_THREADS : (int)processors;
}

static bool run(struct job *job, int wanted) {
    const uint32_t batch_size = (uint32_t)job->reference.problem.given.batch_size;
    job->num_tasks = batch_size * job->num_kv_heads;
    pthread_mutex_init(&job->lock, NULL);
    pthread_t threads[MAX_THREADS];
    int num_threads = 0;
    while (num_threads + 1 < wanted && pthread_create(&threads[num_threads], NULL, work, job) == 0)
        num_threads++;
    work(job); /* this thread works too, so that no thread at all is enough */
    while (num_threads > 0)
        pthread_join(threads[--num_threads], NULL);
    pthread_mutex_destroy(&job->lock);
    if (job->label != NULL)
        progress_clear();
    return job->message[0] == '\0' || complain("%s", job->message);
}

bool host_reference(const libdecode_problem *problem, const libdecode_tensors *tensors, int first_kv_head, int num_kv_heads,
                    const char *label) {
    struct job job = {.label = label, .first_kv_head = (uint32_t)first_kv_head, .num_kv_heads = (uint32_t)num_kv_heads};
    if (reference_begin(problem, tensors, &job.reference) != LIBDECODE_OK)
        return complain("%s", libdecode_error_message());
    return run(&job, host_reference_threads());
}

bool host_reference_exact(const libdecode_problem *problem, const libdecode_tensors *tensors, const struct exact_results *results,
                          int num_threads, const char *label) {
    struct job job = {.label = label, .num_kv_heads = (uint32_t)problem->num_kv_heads};
    libdecode_problem unrounded = *problem;
    libdecode_tensors placed = *tensors;
    unrounded.features &= ~(uint32_t)LIBDECODE_FEATURE_LSE_NATURAL;
    placed.out = results->out; /* that they are there is checked, and nothing else */
    placed.out_sf = problem->out_dtype == LIBDECODE_DTYPE_NVFP4 ? results->out : NULL;
    placed.lse = (problem->features & LIBDECODE_FEATURE_LSE) != 0 ? (float *)results->lse : NULL;
    if (reference_begin(&unrounded, &placed, &job.reference) != LIBDECODE_OK)
        return complain("%s", libdecode_error_message());
    job.reference.exact = *results;
    return run(&job, num_threads);
}
