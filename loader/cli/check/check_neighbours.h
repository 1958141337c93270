/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_neighbours.c: a batch-invariant test case on the device and a kernel in, whether its requests have the same bits in other
 * batches out. Before: check_run.c, which compared them with the reference. Next: check.c.
 */
#ifndef LIBDECODE_CLI_CHECK_NEIGHBOURS_H
#define LIBDECODE_CLI_CHECK_NEIGHBOURS_H

#include "check_run.h"

/*
 * Decodes the batch as it is, and then `count` batches of random requests of it: one alone, or some among each other, in any order, some
 * twice, with other hints and other numbers of workers. `variant` chooses the kernel, `device` is the current one.
 */
void check_neighbours(struct check_rig *rig, const struct device_case *device_case, libdecode_context *variant,
                      const libdecode_device *device, int count, struct failure *ret_failure);

#endif
