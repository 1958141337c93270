/* SPDX-License-Identifier: Apache-2.0 */
/*
 * held_sms.c: a GPU in, some of its SMs busy while something else is timed out: what a launch meets beside other work.
 *
 * What holds them is a decode kernel of the bundles with that many workers, all of whose page ids name no page: their rows are
 * zeros that no memory is read for, so that SMs are taken away and bandwidth is not. Next: bench_run.c.
 */
#ifndef LIBDECODE_CLI_HELD_SMS_H
#define LIBDECODE_CLI_HELD_SMS_H

#include "libdecode.h"
#include "session.h"
#include "timing.h"

struct held_sms {
    struct gpu *gpu;
    int32_t num_sms; /* 20, or half of a smaller GPU */
    libdecode_context *context;
    libdecode_plan *plan;
    libdecode_stream stream;
    uint64_t pool, query, out, page_table, seq_lens, workspace;
    size_t workspace_bytes;
    double us_per_token;
};

/* Prints why and returns false, for instance where the bundles have no kernel for it. Close it in any case. */
bool held_sms_open(struct gpu *gpu, const struct session_args *session, const libdecode_device *device,
                   struct held_sms *ret_held);
void held_sms_close(struct held_sms *held);

/* From now on each time for this long, or a little longer. */
bool held_sms_set_duration(struct held_sms *held, double us);

struct company held_sms_company(struct held_sms *held);

#endif
