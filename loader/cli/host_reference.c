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
#include "problem.h"
#include "report.h"

#define MAX_THREADS 64

struct job {
    struct problem problem;
    const libdecode_tensors *tensors;
    const char *label;
    uint32_t first_kv_head, num_kv_heads, num_tasks;
    atomic_uint next;
    atomic_int failed;
    pthread_mutex_t lock;
    char message[256];
};

static const void *skip(const void *tensor, int64_t elements, libdecode_dtype dtype) {
    return tensor != NULL ? (const char *)tensor + elements * dtype_bits(dtype) / 8 : NULL;
}

static const int32_t *skip_words(const int32_t *tensor, int64_t elements) { return tensor != NULL ? tensor + elements : NULL; }

/* The part of the problem that one request and KV head are. */
static libdecode_status run_task(const struct job *job, uint32_t task) {
    const libdecode_problem *whole = &job->problem.given;
    const int64_t request = task / job->num_kv_heads, head = job->first_kv_head + task % job->num_kv_heads;
    const int64_t token = request * whole->q_len, q_head = head * job->problem.group_size;
    libdecode_problem part = *whole;
    libdecode_tensors tensors = *job->tensors;
    part.batch_size = 1;
    part.num_kv_heads = 1;
    part.num_qo_heads = job->problem.group_size;
    tensors.query =
        skip(tensors.query, token * whole->query_token_stride + q_head * whole->query_head_stride, whole->query_dtype);
    tensors.k_cache = skip(tensors.k_cache, head * whole->k_head_stride, whole->kv_dtype);
    tensors.v_cache = skip(tensors.v_cache, head * whole->v_head_stride, whole->kv_dtype);
    tensors.page_table =
        skip_words(tensors.page_table, request * whole->page_table_request_stride + head * whole->page_table_head_stride);
    tensors.seq_lens =
        skip_words(tensors.seq_lens, request * whole->seq_lens_request_stride + head * whole->seq_lens_head_stride);
    tensors.query_positions = skip_words(tensors.query_positions, request);
    tensors.out = (char *)tensors.out +
                  (token * whole->out_token_stride + q_head * whole->out_head_stride) * dtype_bits(whole->out_dtype) / 8;
    if (tensors.lse != NULL)
        tensors.lse += token * whole->lse_token_stride + q_head * whole->lse_head_stride;
    if (tensors.sinks != NULL)
        tensors.sinks += q_head;
    return libdecode_reference(&part, &tensors);
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
            progress("%s: reference, %u of %u parts", job->label, task + 1, job->num_tasks);
            pthread_mutex_unlock(&job->lock);
        }
    }
}

int host_reference_threads(void) {
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    return processors < 1 ? 1 : processors > MAX_THREADS ? MAX_THREADS : (int)processors;
}

bool host_reference(const libdecode_problem *problem, const libdecode_tensors *tensors, int first_kv_head, int num_kv_heads,
                    const char *label) {
    struct job job = {.tensors = tensors, .label = label, .first_kv_head = (uint32_t)first_kv_head};
    if (problem_check(problem, &job.problem) != LIBDECODE_OK)
        return complain("%s", libdecode_error_message());
    job.num_kv_heads = (uint32_t)num_kv_heads;
    job.num_tasks = (uint32_t)job.problem.given.batch_size * job.num_kv_heads;
    pthread_mutex_init(&job.lock, NULL);
    pthread_t threads[MAX_THREADS];
    int num_threads = 0, wanted = host_reference_threads();
    while (num_threads + 1 < wanted && pthread_create(&threads[num_threads], NULL, work, &job) == 0)
        num_threads++;
    work(&job); /* this thread works too, so that no thread at all is enough */
    while (num_threads > 0)
        pthread_join(threads[--num_threads], NULL);
    pthread_mutex_destroy(&job.lock);
    if (label != NULL)
        progress_clear();
    return job.message[0] == '\0' || complain("%s", job.message);
}
