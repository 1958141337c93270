/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sets.c: the name of a set and what the command line says in, its problems one by one out. Next: bench.c.
 */
#ifndef LIBDECODE_CLI_BENCH_SETS_H
#define LIBDECODE_CLI_BENCH_SETS_H

#include "problem_args.h"

/* As an OPTION_WORD. "all" is the problems of all others, one set after the other. */
#define SETS "standard|e4m3|nvfp4|pages|head_dims|options|drafts|single|mla|mla_sparse|all"

struct set_problem {
    const char *set, *label;
    bool traced;      /* lengths from the trace, */
    bool leveled;     /* or as many tokens in as many requests, but of one length */
    bool beside_next; /* the next problem's time matters beside this one's */
    struct problem_args args;
    char words[256]; /* which args points into: it may not be copied */
};

size_t set_size(const char *set);

/*
 * The problem of that number in a set: what it does not say itself is as `given`, and so is the trace, if any is given. Prints what is
 * wrong and returns false: where there is no trace.
 */
bool set_problem_make(const char *set, size_t number, const struct problem_args *given, struct set_problem *ret_problem);

#endif
