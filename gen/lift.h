/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lift.c: what a checked cubin records of a kernel in, its launch contract out, held against the rest of the record.
 * Before: loader/image.c audited the image. Next: pack.c writes the contract into the bundle.
 */
#ifndef LIBDECODE_LIFT_H
#define LIBDECODE_LIFT_H

#include <stdbool.h>

#include "abi.h"
#include "image.h"

/* Says on standard error why there will be no bundle; always false, to be returned. */
__attribute__((format(printf, 1, 2))) bool refuse(const char *format, ...);

/*
 * `path` is for messages. `target`: 90, 100, 120. `may_spill`: the grid declares, with a reason, that the kernel may use local memory.
 * Refuses, with the numbers: a contract of another interface or size, an unknown family, a parameter block of another size,
 * other threads than compiled for, an undeclared spill, more CTAs per SM than fit, and what the loader itself would refuse.
 */
bool lift_contract(const char *path, const struct image_kernel *recorded, uint32_t target, bool may_spill,
                   struct libdecode_launch_contract *ret_contract, uint32_t *ret_registers);

#endif
