/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_run.c: one test case on the device and one plan in, what went wrong out. Before: cases.c and compare.c. Next: check.c.
 */
#ifndef LIBDECODE_CLI_CHECK_RUN_H
#define LIBDECODE_CLI_CHECK_RUN_H

#include "cases.h"
#include "compare.h"
#include "gpu.h"
#include "instrument.h"
#include "status.h"

/* Device memory with a band of poison before and behind it. */
struct guarded {
    uint64_t base;
    size_t capacity; /* of base, bands included */
    size_t bytes;    /* between the bands */
};

/* What one stream of launches writes. */
struct results {
    struct guarded out, out_sf, lse, workspace;
};

/* Everything that outlives one case. */
struct check_rig {
    struct gpu *gpu;
    libdecode_context *context; /* any: only for libdecode_workspace_init */
    libdecode_stream stream, load_stream;
    struct instrument late_copy;
    bool has_late_copy;
    struct results results, load;
    uint8_t *host; /* grows to the largest result */
    uint8_t *first;
    size_t host_bytes;
};
bool check_rig_open(struct gpu *gpu, libdecode_context *context, const libdecode_device *device, struct check_rig *ret_rig);
void check_rig_close(struct check_rig *rig);

/* A host case with its buffers copied to the device. */
struct device_case {
    const struct host_case *host;
    const struct expectation *expectation;
    libdecode_tensors tensors; /* device pointers; out, out_sf, lse and workspace not set */
    uint64_t buffers[CASE_MAX_BUFFERS];
    size_t out_bytes, out_sf_bytes, lse_bytes; /* read back one behind the other */
};
bool device_case_make(struct gpu *gpu, const struct host_case *host, const struct expectation *expectation,
                      struct device_case *ret_case);
/* False if a kernel wrote into its inputs; *ret_field names which. */
bool device_case_unchanged(struct gpu *gpu, const struct device_case *device_case, const char **ret_field);
void device_case_free(struct gpu *gpu, struct device_case *device_case);

/* Of an NVFP4 result: scales of a token with their padding; of whole tiles of 128 rows, up to the last token's. */
size_t out_sf_columns(const libdecode_problem *problem);
size_t out_sf_bytes(const libdecode_problem *problem, const libdecode_tensors *tensors, int64_t num_tokens);

/* What went wrong in one run; what[0] is 0 if nothing did. */
struct failure {
    char what[16]; /* "launch", "wrong", "bounds", "workspace", "bits", "inputs", "neighbours" */
    char text[ERROR_MESSAGE_BYTES];
    struct mismatch mismatch; /* with "wrong" */
};

/*
 * Runs the plan on the case: once, and once more without initialising the workspace again; then `repeats` times under load, and
 * back to back, behind a kernel that writes the newest rows late, and as a chain of programmatic launches, if the case is one of
 * those. `ret_worst` gets the largest error / tolerance.
 */
void check_run(struct check_rig *rig, const struct device_case *device_case, libdecode_plan *plan, int repeats,
               struct failure *ret_failure, double *ret_worst);

#endif
