/* SPDX-License-Identifier: Apache-2.0 */
/*
 * instrument.c: a kernel family that no problem asks for in, its kernel for this GPU, loaded, out: what bench and check launch
 * themselves, beside the public API, to measure by or to provoke with. Before: the bundles. Next: ceiling.c, late_rows.c.
 */
#ifndef LIBDECODE_CLI_INSTRUMENT_H
#define LIBDECODE_CLI_INSTRUMENT_H

#include "driver.h"
#include "gpu.h"

struct family; /* family.h */

struct instrument {
    const struct driver *driver;
    cuda_function function;
    unsigned threads, shared_bytes, ctas_per_sm;
};

/*
 * False after printing why; where the bundles have no kernel of the family for this GPU, with `consequence`, words like "no ceiling
 * stands beside the times".
 */
bool instrument_open(libdecode_context *context, const libdecode_device *device, const struct family *family,
                     const char *consequence, struct instrument *ret_instrument);

/* Enqueues it with `ctas` CTAs. */
bool instrument_launch(struct gpu *gpu, const struct instrument *instrument, unsigned ctas, void *parameters,
                       libdecode_stream stream);

#endif
