/* SPDX-License-Identifier: Apache-2.0 */
/*
 * case_queue.c: a list of test cases in, each with its tensors and its expectation out, in the order of the list; threads make them ahead
 * of the GPU. Before: cases.c, compare.c. Next: check.c.
 */
#ifndef LIBDECODE_CLI_CASE_QUEUE_H
#define LIBDECODE_CLI_CASE_QUEUE_H

#include "cases.h"
#include "compare.h"

struct case_job {
    const struct test_case *test; /* NULL: the random case of that number */
    uint64_t number;
    uint32_t kind; /* which of the queue's */
};

/* What the kernels that share their cases are, and what these are made of. */
struct case_source {
    struct case_kind kind;
    struct case_palettes *palettes;
};

struct made_case {
    size_t job;
    char name[32]; /* of a random case */
    struct test_case test;
    struct host_case host;
    struct expectation expectation;
    bool good; /* false: it could not be made; why is printed */
};

struct case_queue;

/*
 * Jobs and sources are not copied. No more than `num_held` cases are held at a time, in whatever state: few where they may be large, more
 * than makers where one may take as long as many others. Processors beyond the makers work on parts of a case. NULL: out of memory.
 */
struct case_queue *case_queue_begin(const struct case_job *jobs, size_t num_jobs, const struct case_source *sources,
                                    uint64_t seed, int sm_count, int num_makers, int num_held);

/* The next case, when it is made, and what the one before held is free. NULL: there is none left. */
const struct made_case *case_queue_next(struct case_queue *queue);

/* Waits until the cases at hand are made, and frees them. NULL is no queue. */
void case_queue_end(struct case_queue *queue);

#endif
