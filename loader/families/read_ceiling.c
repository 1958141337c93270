/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read_ceiling.c: the loader's half of kernels/families/read_ceiling.cu. No problem asks for it: `libdecode bench` launches it
 * itself, to know how fast memory can be read at all.
 */
#include "family.h"

const struct family family_read_ceiling = {
    .number = KERNEL_FAMILY_READ_CEILING,
    .name = "read_ceiling",
    .op = (libdecode_op)0,
    .parameter_bytes = sizeof(struct read_ceiling_params),
    .reach = {.flags = CONTRACT_FLAG_MAY_SPILL},
};
