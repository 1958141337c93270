/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_choice.h: which kernel a family's cost model takes for the fastest, beside what each was measured to take. */
#ifndef LIBDECODE_KERNEL_CHOICE_H
#define LIBDECODE_KERNEL_CHOICE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "family.h"
#include "select.h"

struct kernel_shape {
    uint32_t row_tile, cluster_size, tile_tokens;
};

/* GPUs whose kernels have been timed. */
static inline libdecode_device device_named(const char *name) {
    libdecode_device device = {.struct_size = sizeof device};
    assert_int_equal(libdecode_device_preset(name, &device), LIBDECODE_OK);
    return device;
}
static inline libdecode_device measured_h200(void) { return device_named("H200"); }
static inline libdecode_device measured_h100(void) {
    libdecode_device device = device_named("H100");
    device.resident_clusters_2 = 66, device.resident_clusters_4 = 30, device.resident_clusters_8 = 15; /* as that one said */
    return device;
}

/*
 * `contract`: what the kernels have in common. `measured_us`: of each, 0 where it is not known. Of those that are, the one that is predicted to be
 * the fastest takes at most `most` times as long as the one that is so, and what is predicted is that one's time but for a share of `within`.
 */
static inline void expect_fast_choice(const struct family *family, const struct problem *problem, const libdecode_device *device,
                                      struct libdecode_launch_contract contract, const struct kernel_shape *kernels,
                                      const double *measured_us, size_t num_kernels, double most, double within) {
    const libdecode_problem *given = &problem->given;
    const bool is_mla = given->op == LIBDECODE_OP_MLA_DECODE;
    double least_us = INFINITY;
    int64_t least_ns = INT64_MAX;
    size_t predicted = 0;
    contract.ctas_per_sm = 1;
    for (size_t k = 0; k < num_kernels; k++) {
        if (measured_us[k] == 0)
            continue;
        contract.row_tile = kernels[k].row_tile;
        contract.cluster_size = kernels[k].cluster_size;
        contract.tile_tokens = kernels[k].tile_tokens;
        struct cost cost;
        assert_true(family->cost(problem, device, &contract, &cost));
        /* So that the time decides. */
        assert_int_equal(cost.passes_share_rows, is_mla);
        assert_true(is_mla || cost.row_passes == 1);
        if (cost.predicted_ns < least_ns) {
            least_ns = cost.predicted_ns;
            predicted = k;
        }
        least_us = fmin(least_us, measured_us[k]);
    }
    const double predicted_us = (double)least_ns / 1000;
    if (measured_us[predicted] > least_us * most || fabs(predicted_us / least_us - 1) > within)
        fail_msg(
            "%d heads, %d x %d of dtype %d: row tile %u, cluster size %u is predicted to take %.1f us and takes %.1f; %.1f is "
            "the least",
            given->num_qo_heads, given->batch_size, given->sparse_top_k > 0 ? given->sparse_top_k : (int)given->max_seq_len,
            (int)given->kv_dtype, kernels[predicted].row_tile, kernels[predicted].cluster_size, predicted_us,
            measured_us[predicted], least_us);
}

#endif
