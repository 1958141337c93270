/* SPDX-License-Identifier: Apache-2.0 */
/*
 * late_rows.c: a test case on the device in; its inputs spoiled, and written right by a kernel that whatever is launched behind may
 * overtake, out. Only what LIBDECODE_LAUNCH_HISTORY_FINAL promises stands there from the beginning. Before: cases.c. Next: check_run.c.
 */
#ifndef LIBDECODE_CLI_LATE_ROWS_H
#define LIBDECODE_CLI_LATE_ROWS_H

#include "abi.h"
#include "cases.h"
#include "instrument.h"

/* The inputs of one case. */
struct late_rows {
    size_t count;
    /* on the device: the case's, copies of how they should be, and copies with NaN where they may be written late */
    uint64_t inputs[CASE_MAX_BUFFERS], right[CASE_MAX_BUFFERS], spoiled[CASE_MAX_BUFFERS];
    size_t bytes[CASE_MAX_BUFFERS];
};

/* `inputs`: the case's buffers on the device. False after printing why; free with late_rows_free in any case. */
bool late_rows_make(struct gpu *gpu, const struct host_case *host, const uint64_t *inputs, struct late_rows *ret_rows);
void late_rows_free(struct gpu *gpu, struct late_rows *rows);

/* Nothing may be running that reads the inputs. Waits until they are spoiled. */
bool late_rows_spoil(struct gpu *gpu, const struct late_rows *rows, const struct instrument *late_copy, libdecode_stream stream);
/* Enqueues the kernel that writes them right, some 100 us after it has begun. */
bool late_rows_write(struct gpu *gpu, const struct late_rows *rows, const struct instrument *late_copy, libdecode_stream stream);

#endif
