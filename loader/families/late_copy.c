/* SPDX-License-Identifier: Apache-2.0 */
/*
 * late_copy.c: the loader's half of kernels/families/late_copy.cu. No problem asks for it: `libdecode check` launches it itself, ahead
 * of kernels that may begin early.
 */
#include "family.h"

const struct family family_late_copy = {
    .number = KERNEL_FAMILY_LATE_COPY,
    .name = "late_copy",
    .op = (libdecode_op)0,
    .parameter_bytes = sizeof(struct late_copy_params),
    .reach = {.flags = CONTRACT_FLAG_MAY_SPILL},
};
