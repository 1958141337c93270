/* SPDX-License-Identifier: Apache-2.0 */
/*
 * target.c: which GPUs there are, what they are called, and which of them an image serves. The one table of it: for bundles
 * (bundle.c, gen/pack.c), for selection and for the command.
 */
#ifndef LIBDECODE_TARGET_H
#define LIBDECODE_TARGET_H

#include <stdint.h>

/* The bit of bundle_kernel.gpus of a compute capability (90: sm_90), or of a name ("sm_90"); 0: none of the five. */
uint32_t gpu_bit(int32_t compute_capability);
uint32_t gpu_bit_of_name(const char *name);

/* "sm_90" ... for one bit. */
const char *gpu_name(uint32_t bit);

/* The GPUs that an image compiled for this target (90, 100, 120) serves; 0: no target. */
uint32_t target_gpus(uint32_t target);

#endif
