/* SPDX-License-Identifier: Apache-2.0 */
/* kernel.h: what a kernel that was compiled for the processor offers, a shared library each: kernel.cpp. */
#ifndef LIBDECODE_PLAYED_KERNEL_H
#define LIBDECODE_PLAYED_KERNEL_H

#include <stdint.h>

struct libdecode_launch_contract;

/*
 * Computes a launch, from the first CTA to the last; `seed` picks the order in which threads and copies advance, `is_allocated` says of
 * an address whether it is in memory of the device: a kernel that asks for a line elsewhere is stopped, for a GPU takes long over that.
 */
#define PLAYED_RUN "played_run"
typedef void played_run_function(const void *parameters, unsigned grid, unsigned cluster_size, unsigned threads,
                                 unsigned shared_bytes, uint64_t seed, int (*is_allocated)(const void *address));

#define PLAYED_CONTRACT "played_contract"
typedef const struct libdecode_launch_contract *played_contract_function(void);

#endif
