/* SPDX-License-Identifier: Apache-2.0 */
/*
 * page_ceiling.c: a plan in, the time that its copies take alone out: the kernel of family page_ceiling with the same axes, launched
 * with the same schedule over the same pages. Before: the bundles. Next: bench_run.c.
 */
#ifndef LIBDECODE_CLI_PAGE_CEILING_H
#define LIBDECODE_CLI_PAGE_CEILING_H

#include "bench_run.h"

/* False, silently, if the bundles hold no such kernel; else after printing what failed. */
bool page_ceiling_time(struct bench_machine *machine, const struct bench_batch *batch, libdecode_context *context,
                       const struct plan_launcher *launcher, struct timing *ret_timing);

#endif
