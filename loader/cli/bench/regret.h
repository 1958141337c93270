/* SPDX-License-Identifier: Apache-2.0 */
/*
 * regret.c: a grid of problems in; for each, how much slower the chosen kernel is than the fastest of those that were at hand
 * out, and with forced numbers of workers the points that a cost model is fitted to. Before: bench_run.c. Next: bench.c.
 */
#ifndef LIBDECODE_CLI_REGRET_H
#define LIBDECODE_CLI_REGRET_H

#include "bench_run.h"

struct regret_args {
    const char *cells;   /* glob of cells, or NULL */
    const char *kernel;  /* glob of kernels that are compared, or NULL; the chosen one always is */
    const char *workers; /* NULL, "all" or "8,16,32" */
    const char *points;  /* file that gets every measured point, or NULL */
    bool programmatic;
};

/* Whether `workers` is one of the three; prints what is accepted if not. */
bool regret_workers_valid(const char *workers);

/*
 * An exit code. The shape of the cells is their own; dtypes, page size, layout and whether it is MLA come from `problem`. A problem
 * with lengths of its own (--lens, --trace) is measured instead of the grid.
 */
int run_regret(struct bench_machine *machine, const struct session_args *session, const struct problem_args *problem,
               const struct regret_args *args);

#endif
