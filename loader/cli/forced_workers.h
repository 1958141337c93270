/* SPDX-License-Identifier: Apache-2.0 */
/*
 * forced_workers.c: a plan and a number of workers in, the same plan for so many out: what the public API leaves to the cost
 * model, which needs the times of other numbers to be fitted, and what a GPU with other SMs would choose. Used by
 * check_neighbours.c, regret.c and held_sms.c.
 */
#ifndef LIBDECODE_CLI_FORCED_WORKERS_H
#define LIBDECODE_CLI_FORCED_WORKERS_H

#include <stdbool.h>

#include "libdecode.h"

/* From its next launch on. False: the workspace that the plan asks for has no room for so many. */
bool force_workers(libdecode_plan *plan, int32_t num_workers);

/* As many as there is room for: about those that the GPU holds at once. */
int32_t most_workers(const libdecode_plan *plan);

#endif
