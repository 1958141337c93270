/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_report.c: what was measured in; text, JSON or comma-separated values on standard output out. Before: bench_run.c.
 * Used by bench.c.
 */
#ifndef LIBDECODE_CLI_BENCH_REPORT_H
#define LIBDECODE_CLI_BENCH_REPORT_H

#include "bench_run.h"
#include "report.h"

enum bench_form { BENCH_TEXT, BENCH_JSON, BENCH_CSV };

struct bench_report {
    enum bench_form form;
    bool programmatic; /* columns for it */
    bool accuracy;     /* in text; JSON has it always */
    const char *set;   /* that the next row is of, for JSON; NULL: it is of none */
    struct json json;
};

/* `device`: NULL where nothing could be run. */
void bench_report_begin(struct bench_report *report, const libdecode_device *device);
void bench_report_row(struct bench_report *report, const struct bench_batch *batch, const char *label, const char *description,
                      const struct bench_result *result);
/* `error`: why nothing could be run, or NULL. */
void bench_report_end(struct bench_report *report, size_t num_failed, const char *error);

#endif
