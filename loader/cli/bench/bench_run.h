/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_run.c: a workload and a kernel policy in, measured and checked times out. Before: kv_batch.c. Next: bench.c, demo.c.
 */
#ifndef LIBDECODE_CLI_BENCH_RUN_H
#define LIBDECODE_CLI_BENCH_RUN_H

#include "ceiling.h"
#include "held_sms.h"
#include "kv_batch.h"
#include "session.h"
#include "timing.h"

/* What all measurements of one run of the command share. */
struct bench_machine {
    struct gpu gpu;
    libdecode_context *context; /* with the policy of the command line */
    libdecode_device device;
    libdecode_stream stream;
    struct ceiling ceiling;
    bool has_ceiling;
    struct held_sms *held; /* NULL: nothing is measured beside held SMs */
};
/* An exit code; on EXIT_PASSED close with bench_machine_close. */
int bench_machine_open(const char *command, const struct session_args *session, struct bench_machine *ret_machine);
void bench_machine_close(struct bench_machine *machine);

/* A workload on the device, and what does not depend on the kernel. */
struct bench_batch {
    struct kv_batch host;
    struct device_batch device;
    uint64_t kv_bytes; /* that one call must read */
    int calls;         /* in one graph */
    bool has_ceiling;
    struct timing ceiling;
    /* the requests that are compared with the reference, of the region that the last call of a graph reads */
    int32_t region, first_checked, num_checked;
    struct expectation expectation;
};
enum bench_check { BENCH_CHECK_FINITE, BENCH_CHECK_ONE, BENCH_CHECK_ALL };
bool bench_batch_make(struct bench_machine *machine, const struct workload *workload, bool share_prefixes, enum bench_check check,
                      const char *label, struct bench_batch *ret_batch);
void bench_batch_free(struct bench_machine *machine, struct bench_batch *batch);

/* A plan on a batch, as timing.c takes it. */
struct plan_launcher {
    libdecode_plan *plan;
    const struct device_batch *device;
    uint32_t launch_flags;
};
bool enqueue_plan(void *cookie, int call, libdecode_stream stream);

struct bench_result {
    char kernel[128];
    struct timing timing;
    bool has_programmatic, has_held;
    int32_t held_sms;
    struct timing programmatic, history_final; /* the latter programmatic, too */
    struct timing held, held_programmatic;     /* while SMs are busy with something else */
    struct timing page_ceiling;                /* of the same copies alone */
    bool has_page_ceiling;
    struct host_timing host;
    bool has_host;
    double terabytes_per_second, percent_of_ceiling; /* the latter NaN without a ceiling */
    struct accuracy accuracy;                        /* of the requests that are compared */
    size_t workspace_bytes;
};

/*
 * Measures what `context` chooses; with `programmatic` also with programmatic dependent launch, with and without the promise that the
 * history is final, in turns with plain launches, and plain and programmatic beside machine->held. Prints what is wrong (a wrong result is) and returns false.
 */
bool bench_measure(struct bench_machine *machine, struct bench_batch *batch, libdecode_context *context, bool programmatic,
                   bool host_time, struct bench_result *ret_result);

#endif
