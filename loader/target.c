/* SPDX-License-Identifier: Apache-2.0 */
/* target.c: the five GPUs in one table. An image serves every GPU of its family, compiled for the lowest of them. */
#include "target.h"

#include <stddef.h>
#include <string.h>

#include "bundle_format.h"

static const struct {
    const char *name;
    int32_t compute_capability;
    uint32_t bit;
    uint32_t target;
} gpus[] = {{"sm_90", 90, BUNDLE_GPU_SM90, 90},
            {"sm_100", 100, BUNDLE_GPU_SM100, 100},
            {"sm_103", 103, BUNDLE_GPU_SM103, 100},
            {"sm_120", 120, BUNDLE_GPU_SM120, 120},
            {"sm_121", 121, BUNDLE_GPU_SM121, 120}};
#define NUM_GPUS (sizeof gpus / sizeof gpus[0])

uint32_t gpu_bit(int32_t compute_capability) {
    for (size_t i = 0; i < NUM_GPUS; i++)
        if (gpus[i].compute_capability == compute_capability)
            return gpus[i].bit;
    return 0;
}

uint32_t gpu_bit_of_name(const char *name) {
    for (size_t i = 0; i < NUM_GPUS; i++)
        if (strcmp(gpus[i].name, name) == 0)
            return gpus[i].bit;
    return 0;
}

const char *gpu_name(uint32_t bit) {
    for (size_t i = 0; i < NUM_GPUS; i++)
        if (gpus[i].bit == bit)
            return gpus[i].name;
    return "?";
}

uint32_t target_gpus(uint32_t target) {
    uint32_t bits = 0;
    for (size_t i = 0; i < NUM_GPUS; i++)
        if (gpus[i].target == target)
            bits |= gpus[i].bit;
    return bits;
}
