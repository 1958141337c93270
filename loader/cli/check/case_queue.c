/* SPDX-License-Identifier: Apache-2.0 */
/*
 * case_queue.c: a list of test cases in, each with its tensors and its expectation out, in the order of the list; threads make them ahead
 * of the GPU. Before: cases.c, compare.c. Next: check.c.
 */
#include "case_queue.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "host_reference.h"
#include "options.h"

#define MAX_MAKERS 64

struct slot {
    struct made_case made;
    bool ready;
};

struct case_queue {
    const struct case_job *jobs;
    const struct case_source *sources;
    size_t num_jobs, num_slots; /* job j is made in slot j % num_slots */
    uint64_t seed;
    int sm_count, num_makers, threads_per_case;
    pthread_t makers[MAX_MAKERS];
    struct slot *slots;
    pthread_mutex_t lock; /* of what follows, and of `ready` */
    pthread_cond_t changed;
    size_t num_begun, num_taken, num_returned;
    bool ended;
};

static void make(const struct case_queue *queue, size_t index, struct made_case *made) {
    const struct case_job *job = &queue->jobs[index];
    const struct case_source *source = &queue->sources[job->kind];
    *made = (struct made_case){.job = index};
    if (job->test != NULL) {
        made->test = *job->test;
    } else {
        snprintf(made->name, sizeof made->name, RANDOM_CASE_PREFIX "%llu", (unsigned long long)job->number);
        random_case_named(made->name, &made->test);
    }
    struct host_case *host = &made->host;
    made->good = (host_case_make(&made->test, &source->kind, source->palettes, queue->seed, queue->sm_count, host) ||
                  complain("out of memory for case %s", made->test.name)) &&
                 expectation_make(&host->problem, &host->tensors, queue->threads_per_case, NULL, &made->expectation);
    if (made->good && (host->drawn.flags & CASE_VISIBLE_NAN) == 0 && made->expectation.num_nan > 0)
        made->good = complain("internal error: case %s expects NaN, so it would find nothing", made->test.name);
}

static void forget(struct made_case *made) {
    expectation_free(&made->expectation);
    host_case_free(&made->host);
    *made = (struct made_case){0};
}

static void *make_ahead(void *argument) {
    struct case_queue *queue = argument;
    pthread_mutex_lock(&queue->lock);
    while (!queue->ended && queue->num_begun < queue->num_jobs) {
        if (queue->num_begun >= queue->num_returned + queue->num_slots) {
            pthread_cond_wait(&queue->changed, &queue->lock);
            continue;
        }
        const size_t index = queue->num_begun++;
        struct slot *slot = &queue->slots[index % queue->num_slots];
        pthread_mutex_unlock(&queue->lock);
        make(queue, index, &slot->made);
        pthread_mutex_lock(&queue->lock);
        slot->ready = true;
        pthread_cond_broadcast(&queue->changed);
    }
    pthread_mutex_unlock(&queue->lock);
    return NULL;
}

struct case_queue *case_queue_begin(const struct case_job *jobs, size_t num_jobs, const struct case_source *sources,
                                    uint64_t seed, int sm_count, int num_makers, int num_held) {
    struct case_queue *queue = calloc(1, sizeof *queue);
    const int threads = host_reference_threads(), most = threads < MAX_MAKERS ? threads : MAX_MAKERS;
    const int makers = num_makers < most ? num_makers : most;
    struct slot *slots = calloc((size_t)num_held, sizeof slots[0]);
    if (queue == NULL || slots == NULL) {
        free(queue);
        free(slots);
        return NULL;
    }
    *queue = (struct case_queue){.jobs = jobs,
                                 .sources = sources,
                                 .num_jobs = num_jobs,
                                 .num_slots = (size_t)num_held,
                                 .seed = seed,
                                 .sm_count = sm_count,
                                 .threads_per_case = (threads + makers - 1) / makers,
                                 .slots = slots};
    pthread_mutex_init(&queue->lock, NULL);
    pthread_cond_init(&queue->changed, NULL);
    while (queue->num_makers < makers && pthread_create(&queue->makers[queue->num_makers], NULL, make_ahead, queue) == 0)
        queue->num_makers++;
    return queue;
}

/* The case that was given out last is used no more. */
static void take_back(struct case_queue *queue) {
    if (queue->num_taken == queue->num_returned)
        return;
    struct slot *slot = &queue->slots[queue->num_returned % queue->num_slots];
    forget(&slot->made);
    pthread_mutex_lock(&queue->lock);
    slot->ready = false;
    queue->num_returned++;
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->lock);
}

const struct made_case *case_queue_next(struct case_queue *queue) {
    take_back(queue);
    if (queue->num_taken == queue->num_jobs)
        return NULL;
    struct slot *slot = &queue->slots[queue->num_taken % queue->num_slots];
    pthread_mutex_lock(&queue->lock);
    if (queue->num_makers == 0) { /* no thread could be had: this one makes the case */
        make(queue, queue->num_begun++, &slot->made);
        slot->ready = true;
    }
    while (!slot->ready)
        pthread_cond_wait(&queue->changed, &queue->lock);
    queue->num_taken++;
    pthread_mutex_unlock(&queue->lock);
    return &slot->made;
}

void case_queue_end(struct case_queue *queue) {
    if (queue == NULL)
        return;
    pthread_mutex_lock(&queue->lock);
    queue->ended = true;
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->lock);
    for (int maker = 0; maker < queue->num_makers; maker++)
        pthread_join(queue->makers[maker], NULL);
    for (size_t slot = 0; slot < queue->num_slots; slot++)
        forget(&queue->slots[slot].made);
    pthread_cond_destroy(&queue->changed);
    pthread_mutex_destroy(&queue->lock);
    free(queue->slots);
    free(queue);
}
