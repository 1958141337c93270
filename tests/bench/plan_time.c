/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_time.c: how long libdecode_plan_create takes with 150 and with 3,000 kernels in the table, around no code; a refusal; and
 * what a kernel policy adds to libdecode_open. Prints; judges nothing.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "bundle_fixture.h"
#include "decode_fixture.h"
#include "report.h"

enum { MAX_KERNELS = 4096, NAME_BYTES = 80, NUM_ROUNDS = 2001, NUM_OPENS = 51 };

static const uint32_t targets[] = {90, 100, 120}, dtypes[] = {KERNEL_DTYPE_BF16, KERNEL_DTYPE_FP16};
static const uint32_t row_tiles[] = {8, 16, 32}, cluster_sizes[] = {1, 2, 4, 8};

/* A grid: for every target and dtype head_dims of 64, 128, ..., and for each of those all row tiles and clusters, in `editions`. */
struct size {
    const char *title;
    uint32_t num_head_dims, editions;
};
static const struct size sizes[] = {{"144", 2, 1}, {"3,024", 7, 6}};

static libdecode_memory_bundle make_bundle(const struct size *size, uint32_t target) {
    static struct fixture_kernel kernels[MAX_KERNELS];
    static char names[MAX_KERNELS][NAME_BYTES];
    size_t count = 0, bytes;
    for (uint32_t i = 0; i < 2 * size->num_head_dims * 3 * 4 * size->editions; i++) {
        struct libdecode_launch_contract contract = fixture_contract();
        uint32_t edition = i / 24 / size->num_head_dims;
        contract.kv_dtype = dtypes[i % 2];
        contract.query_dtypes = 1u << contract.kv_dtype;
        contract.row_tile = row_tiles[i / 2 % 3];
        contract.cluster_size = cluster_sizes[i / 6 % 4];
        contract.head_dim = 64 * (1 + i / 24 % size->num_head_dims);
        contract.threads = 352;
        contract.consumer_warps = 8;
        contract.dynamic_shared_bytes = 90 * 1024;
        contract.ctas_per_sm = 1;
        contract.stages = 3 + edition; /* what tells editions apart */
        (void)snprintf(names[count], NAME_BYTES, "gqa_decode_kv%s_d%u_r%u_c%u_e%u_sm%u", i % 2 ? "fp16" : "bf16",
                       contract.head_dim, contract.row_tile, contract.cluster_size, edition, target);
        kernels[count] = (struct fixture_kernel){.name = names[count], .target = target, .contract = contract};
        count++;
    }
    uint8_t *data = fixture_bundle(kernels, count, &bytes);
    return (libdecode_memory_bundle){.data = data, .bytes = bytes};
}

/* One line: a plan, or its refusal, of a problem. */
static bool time_plans(libdecode_context *context, const char *title, const libdecode_problem *problem,
                       libdecode_status expected) {
    static double times[NUM_ROUNDS];
    libdecode_device device = preset("sm_90");
    for (size_t round = 0; round < NUM_ROUNDS; round++) {
        libdecode_plan *plan = NULL;
        double begin = seconds_now();
        libdecode_status status = libdecode_plan_create(context, problem, &device, &plan);
        times[round] = seconds_now() - begin;
        libdecode_plan_destroy(plan);
        if (status != expected) {
            (void)fprintf(stderr, "%s: status %d: %s\n", title, (int)status, libdecode_error_message());
            return false;
        }
    }
    double first = times[0];
    (void)printf("  %-44s first %6.1f us, median %6.1f us\n", title, 1e6 * first, 1e6 * median(times, NUM_ROUNDS));
    return true;
}

static bool time_opens(libdecode_open_options options, const char *title, const char *policy) {
    static double times[NUM_OPENS];
    options.kernel_policy = policy;
    for (size_t round = 0; round < NUM_OPENS; round++) {
        libdecode_context *context = NULL;
        double begin = seconds_now();
        libdecode_status status = libdecode_open(&options, &context);
        times[round] = seconds_now() - begin;
        libdecode_close(context);
        if (status != LIBDECODE_OK) {
            (void)fprintf(stderr, "%s: status %d: %s\n", title, (int)status, libdecode_error_message());
            return false;
        }
    }
    (void)printf("  %-44s                 median %6.1f us\n", title, 1e6 * median(times, NUM_OPENS));
    return true;
}

static bool time_size(const struct size *size) {
    libdecode_memory_bundle bundles[3];
    libdecode_open_options options = {.struct_size = sizeof options,
                                      .flags = LIBDECODE_OPEN_IGNORE_ENVIRONMENT | LIBDECODE_OPEN_BUNDLES_ONLY,
                                      .memory_bundles = bundles,
                                      .num_memory_bundles = 3};
    libdecode_context *context = NULL;
    for (size_t i = 0; i < 3; i++)
        bundles[i] = make_bundle(size, targets[i]);
    if (libdecode_open(&options, &context) != LIBDECODE_OK) {
        (void)fprintf(stderr, "%s\n", libdecode_error_message());
        return false;
    }
    libdecode_problem problem = llama3_8b(), ragged = problem, single = problem, absent = problem;
    ragged.total_kv_tokens = 10000;
    single.batch_size = 1;
    absent.q_len = 4;
    (void)printf("%zu kernels\n", libdecode_kernel_count(context));
    bool good = time_plans(context, "plan: 16 requests of 4k tokens", &problem, LIBDECODE_OK) &&
                time_plans(context, "plan: one request", &single, LIBDECODE_OK) &&
                time_plans(context, "plan: a ragged batch", &ragged, LIBDECODE_OK) &&
                time_plans(context, "refusal: what no kernel does", &absent, LIBDECODE_ERROR_UNSUPPORTED) &&
                time_opens(options, "open, bundles in memory", NULL) &&
                time_opens(options, "open, with a policy of three items", "prefer=*_d128_*,deny=*_c8_*,deny=*_r32_*_sm90");
    libdecode_close(context);
    for (size_t i = 0; i < 3; i++)
        free((void *)(uintptr_t)bundles[i].data);
    return good;
}

int main(void) {
    bool good = true;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        good = time_size(&sizes[i]) && good;
    return good ? 0 : 1;
}
