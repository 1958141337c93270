/* SPDX-License-Identifier: Apache-2.0 */
/*
 * instrument.c: a kernel family that no problem asks for in, its kernel for this GPU, loaded, out: what bench and check launch
 * themselves, beside the public API, to measure by or to provoke with. Before: the bundles. Next: ceiling.c, late_rows.c.
 */
#ifndef LIBDECODE_CLI_INSTRUMENT_H
#define LIBDECODE_CLI_INSTRUMENT_H

#include "driver.h"
#include "gpu.h"

struct instrument {
    const struct driver *driver;
    cuda_function function;
    unsigned threads, shared_bytes, ctas_per_sm;
};

/*
 * `name`: of the family of that number, whose parameter block has that many bytes. False after printing why; where the bundles have none
 * for this GPU, with `consequence`, words like "no ceiling stands beside the times".
 */
bool instrument_open(libdecode_context *context, const libdecode_device *device, uint32_t family, const char *name,
                     size_t parameter_bytes, const char *consequence, struct instrument *ret_instrument);

/* Enqueues it with `ctas` CTAs. */
bool instrument_launch(struct gpu *gpu, const struct instrument *instrument, unsigned ctas, void *parameters,
                       libdecode_stream stream);

#endif
