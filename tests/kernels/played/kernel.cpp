/* SPDX-License-Identifier: Apache-2.0 */
/* kernel.cpp: one variant of a family, compiled for the processor: kernel.h. PLAYED_FAMILY is its source, PLAYED_PARAMS its block. */
#include "device.cuh"

#include PLAYED_FAMILY

#include "kernel.h"

#define PLAYED_EXPORT extern "C" __attribute__((visibility("default")))

PLAYED_EXPORT played_run_function played_run;
PLAYED_EXPORT played_contract_function played_contract;

void played_run(const void *parameters, unsigned grid, unsigned cluster_size, unsigned threads, unsigned shared_bytes,
                uint64_t seed, int (*is_allocated)(const void *address)) {
    played::is_allocated = is_allocated;
    PLAYED_PARAMS params;
    std::memcpy(static_cast<void *>(&params), parameters, sizeof params);
    played::run_grid(grid, cluster_size, threads, shared_bytes, seed, [&] { VARIANT_NAME(params); });
}

const libdecode_launch_contract *played_contract() { return &VARIANT_CONTRACT; }
