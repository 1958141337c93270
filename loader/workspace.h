/* SPDX-License-Identifier: Apache-2.0 */
/*
 * workspace.c: how much a launch keeps in its workspace in, where each of it lies out; and whether a workspace will do.
 *
 * A workspace serves launches of any plans of one device, one after the other. Records are zero between launches, and kernels rely on
 * it; scratch is left as it is, for it takes as long to clear as to write. So no byte of a workspace is ever of records here and of
 * scratch there:
 *
 *     | records, where they fit | scratch | records that do not fit ahead of it
 *     0                         |         |
 *                               sm_count * RECORDS_BYTES_PER_SM
 *                                         + sm_count * SCRATCH_BYTES_PER_SM
 */
#ifndef LIBDECODE_WORKSPACE_H
#define LIBDECODE_WORKSPACE_H

#include <stddef.h>
#include <stdint.h>

#include "libdecode.h"

#define WORKSPACE_ALIGNMENT_BYTES 256u

/* What two records of the largest kernels take that cut units anywhere, and no more, for all such plans to lie ahead of scratch. */
#define WORKSPACE_RECORDS_BYTES_PER_SM (200u << 10)
/* What no kernel's scratch exceeds: contract_is_sane. That of MLA's 32 rows takes it all, where they are batch-invariant. */
#define WORKSPACE_SCRATCH_BYTES_PER_SM (544u << 10)

struct workspace_part {
    size_t offset, bytes;
};

struct workspace_layout {
    struct workspace_part records; /* zero between launches */
    struct workspace_part scratch; /* nobody knows what lies there between launches */
    struct workspace_part lens;    /* lengths from the host, cleared behind the launch: beside what else it has, and anywhere */
    size_t bytes;
};

/* `scratch_bytes` is at most WORKSPACE_SCRATCH_BYTES_PER_SM of each SM. */
struct workspace_layout workspace_layout(int32_t sm_count, size_t records_bytes, size_t scratch_bytes, size_t lens_bytes);

/* NULL where the part has no bytes. */
void *workspace_part_at(void *workspace, const struct workspace_part *part);

/* Pointer, alignment and size of a workspace; `prefix` stands before their names in messages. Errors: INVALID_ARGUMENT, WORKSPACE_TOO_SMALL. */
libdecode_status workspace_check(const char *prefix, const void *workspace, size_t given_bytes, size_t needed_bytes);

#endif
