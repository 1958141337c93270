/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ceiling.c: bytes in device memory in, how fast this GPU can read them at all out. The yardstick of bench and demo: the kernel
 * record of family read_ceiling, launched beside the public API, which has no operation for it.
 */
#ifndef LIBDECODE_CLI_CEILING_H
#define LIBDECODE_CLI_CEILING_H

#include "instrument.h"
#include "timing.h"

struct ceiling {
    struct instrument instrument;
    unsigned ctas;
    uint64_t sink;
};

/* Loads the kernel. False after printing why, for instance that the bundles have none for this GPU: times then stand alone. */
bool ceiling_open(struct gpu *gpu, libdecode_context *context, const libdecode_device *device, struct ceiling *ret_ceiling);
void ceiling_close(struct gpu *gpu, struct ceiling *ceiling);

/* Time to read `bytes`; calls rotate over `pool_bytes` at `pool`, so that none finds its data in the L2 cache. */
bool ceiling_time(struct gpu *gpu, const struct ceiling *ceiling, libdecode_stream stream, uint64_t pool, uint64_t pool_bytes,
                  uint64_t bytes, int calls, struct timing *ret_timing);

#endif
