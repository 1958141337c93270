/* SPDX-License-Identifier: Apache-2.0 */
/*
 * select.c: (problem, device, policy, kernel table) in, one kernel and how to launch it out. A pure function: no CUDA, no
 * allocation, no clock, no environment; equal inputs give equal answers on every host.
 * Before: problem.c. Next: bundle.c and module.c fetch the kernel, launch.c starts it.
 */
#ifndef LIBDECODE_SELECT_H
#define LIBDECODE_SELECT_H

#include "kernel_table.h"
#include "policy.h"
#include "problem.h"
#include "workspace.h"

/* The decision. */
struct selection {
    const struct kernel_record *record;
    int32_t row_passes;  /* over the KV */
    int32_t num_workers; /* clusters (CTAs where cluster_size is 1) */
    int32_t most_ctas;   /* that the device has resident at once */
    int32_t min_tiles_per_worker;
    int32_t predicted_ns;
    struct workspace_layout workspace;
    char reason[160];
};

/*
 * `report` (may be NULL) gets one verdict per kernel of the table, chosen one included.
 * Errors: UNSUPPORTED, NOT_IN_BUNDLE, NO_GPU_IMAGE, DRIVER_TOO_OLD, OVERRIDE, STRICT; the message names the nearest misses
 * and why.
 */
libdecode_status select_kernel(const struct problem *problem, const libdecode_device *device, const struct policy *policy,
                               const struct kernel_table *table, libdecode_verdict_function report, void *cookie,
                               struct selection *ret_selection);

#endif
