/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chosen_clusters.c: bundles in; for each of their kernels and GPUs, how often the cost model would choose each cluster size over
 * a wide sweep of problems, and the most that the choice gains, out. A size that is never chosen need not be in the grid.
 * Only kernels of cluster size 1 are looked at: the other sizes are asked for with the same contract, built or not.
 *
 *     chosen_clusters BUILD/kernels/libdecode-sm90.bundle ...
 */
#include <stdio.h>
#include <stdlib.h>

#include "bundle.h"
#include "family.h"
#include "libdecode.h"
#include "target.h"

enum { NUM_SIZES = 4, MAX_UNITS = 4096, MAX_TOKENS = 1 << 20, MOST_PASSES = 3 };
static const uint32_t sizes[NUM_SIZES] = {1, 2, 4, 8};

struct tally {
    long problems, chosen[NUM_SIZES];
    double gain[NUM_SIZES]; /* most that is lost without the size, of the time with it */
};

static void fail_with(const char *what) {
    (void)fprintf(stderr, "chosen_clusters: %s: %s\n", what, libdecode_error_message());
    exit(1);
}

/* Of equally fast ones the smallest, as by name. */
static void ask(const struct family *family, const struct libdecode_launch_contract *contract, const libdecode_device *device,
                const libdecode_problem *given, struct tally *tally) {
    struct problem problem;
    int64_t ns[NUM_SIZES];
    size_t best = NUM_SIZES, second = NUM_SIZES;
    if (problem_check(given, &problem) != LIBDECODE_OK)
        fail_with("problem");
    for (size_t i = 0; i < NUM_SIZES; i++) {
        struct libdecode_launch_contract sized = *contract;
        struct cost cost;
        sized.cluster_size = sizes[i];
        if (!family->cost(&problem, device, &sized, &cost))
            continue;
        ns[i] = cost.predicted_ns;
        if (best == NUM_SIZES || ns[i] < ns[best]) {
            second = best;
            best = i;
        } else if (second == NUM_SIZES || ns[i] < ns[second]) {
            second = i;
        }
    }
    if (best == NUM_SIZES)
        return;
    tally->problems++;
    tally->chosen[best]++;
    double gain = second == NUM_SIZES ? 1.0 : (double)(ns[second] - ns[best]) / (double)ns[best];
    if (gain > tally->gain[best])
        tally->gain[best] = gain;
}

/* Every number of units at first, then in steps of a sixteenth; lengths in steps of the root of two; even and ragged batches. */
static void sweep(const struct family *family, const struct libdecode_launch_contract *contract, const libdecode_device *device,
                  struct tally *tally) {
    static const int64_t parts_of_total[] = {1, 2, 8};
    bool is_16_bit = contract->kv_dtype == KERNEL_DTYPE_BF16 || contract->kv_dtype == KERNEL_DTYPE_FP16;
    int32_t most_passes = contract->row_tile == 32 ? MOST_PASSES : 1; /* wider groups take the widest tile */
    for (int32_t units = 1; units <= MAX_UNITS; units += units < 64 ? 1 : units / 16) {
        for (int64_t step = 0; (16ll << step / 2) <= MAX_TOKENS; step++) {
            int64_t tokens = step % 2 == 0 ? 16ll << step / 2 : (16ll << step / 2) * 181 / 128;
            for (size_t i = 0; i < (size_t)(3 * most_passes); i++) {
                libdecode_problem problem = {
                    .struct_size = sizeof problem,
                    .query_dtype = is_16_bit ? (libdecode_dtype)contract->kv_dtype : LIBDECODE_DTYPE_BF16,
                    .kv_dtype = (libdecode_dtype)contract->kv_dtype,
                    .batch_size = units,
                    .num_qo_heads = (int32_t)contract->row_tile * (int32_t)(1 + i / 3),
                    .num_kv_heads = 1,
                    .head_dim = (int32_t)contract->head_dim,
                    .page_size = 16,
                    .max_seq_len = (int32_t)tokens,
                    .total_kv_tokens = parts_of_total[i % 3] == 1 ? 0 : tokens * units / parts_of_total[i % 3]};
                ask(family, contract, device, &problem, tally);
            }
        }
    }
}

static void judge_kernel(const struct bundle *bundle, const struct bundle_kernel *kernel) {
    const struct libdecode_launch_contract *contract = &kernel->contract;
    const struct family *family = family_find(contract->family);
    if (!family || family->op == 0 || contract->cluster_size != 1)
        return;
    for (uint32_t gpu = BUNDLE_GPU_SM90; gpu <= BUNDLE_GPU_SM121; gpu <<= 1) {
        libdecode_device device = {.struct_size = sizeof device};
        struct tally tally = {0};
        if ((kernel->gpus & gpu) == 0)
            continue;
        if (libdecode_device_preset(gpu_name(gpu), &device) != LIBDECODE_OK)
            fail_with(gpu_name(gpu));
        sweep(family, contract, &device, &tally);
        (void)printf("%-44s %-6s", bundle_string(bundle, kernel->name), gpu_name(gpu));
        for (size_t i = 0; i < NUM_SIZES; i++)
            (void)printf("  c%u %6.2f %% gain %5.1f %%", sizes[i], 100.0 * (double)tally.chosen[i] / (double)tally.problems,
                         100.0 * tally.gain[i]);
        (void)printf("\n");
    }
}

int main(int argc, char **argv) {
    if (argc < 2) {
        (void)fprintf(stderr, "usage: chosen_clusters FILE.bundle...\n");
        return 2;
    }
    for (int i = 1; i < argc; i++) {
        struct bundle *bundle;
        if (bundle_open_file(argv[i], &bundle) != LIBDECODE_OK)
            fail_with(argv[i]);
        for (uint32_t k = 0; k < bundle_header(bundle)->num_kernels; k++)
            judge_kernel(bundle, &bundle_kernels(bundle)[k]);
        bundle_close(bundle);
    }
    return 0;
}
