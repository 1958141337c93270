/* SPDX-License-Identifier: Apache-2.0 */
/* cold_start.c: `libdecode bench --cold-start`: how long the first result of a fresh process takes. */
#ifndef LIBDECODE_CLI_COLD_START_H
#define LIBDECODE_CLI_COLD_START_H

#include "problem_args.h"
#include "session.h"

/* An exit code. */
int run_cold_start(const struct session_args *session, const struct workload *workload);

#endif
