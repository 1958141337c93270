/* SPDX-License-Identifier: Apache-2.0 */
/*
 * open_time.c: how long libdecode_open takes with 3,000 kernels, in three bundle files of 1,000, around no code. The files are
 * in the page cache. Prints; judges nothing.
 */
#define _POSIX_C_SOURCE 200809L /* mkdtemp under -std=c17 */

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "bundle_fixture.h"
#include "libdecode.h"
#include "report.h"

enum { NUM_BUNDLES = 3, KERNELS_PER_BUNDLE = 1000, NUM_ROUNDS = 101 };

static const uint32_t targets[NUM_BUNDLES] = {90, 100, 120};

/* As many different kernels as are wanted: what differs is what selection looks at, and the name. */
static void write_bundle(const char *path, uint32_t target) {
    static struct fixture_kernel kernels[KERNELS_PER_BUNDLE];
    static char names[KERNELS_PER_BUNDLE][64];
    static const uint32_t head_dims[] = {64, 128, 256, 512}, row_tiles[] = {8, 16, 32, 64}, cluster_sizes[] = {1, 2, 4, 8};
    for (uint32_t index = 0; index < KERNELS_PER_BUNDLE; index++) {
        struct libdecode_launch_contract contract = fixture_contract();
        contract.head_dim = head_dims[index % 4];
        contract.row_tile = row_tiles[index / 4 % 4];
        contract.cluster_size = cluster_sizes[index / 16 % 4];
        (void)snprintf(names[index], sizeof names[index], "gqa_decode_kvbf16_d%u_r%u_c%u_v%02u_sm%u", contract.head_dim,
                       contract.row_tile, contract.cluster_size, index / 64, target);
        kernels[index] = (struct fixture_kernel){.name = names[index], .target = target, .contract = contract};
    }
    size_t bytes;
    uint8_t *data = fixture_bundle(kernels, KERNELS_PER_BUNDLE, &bytes);
    fixture_write_file(path, data, bytes);
    (void)printf("%s: %u kernels, tables of %llu bytes\n", path, (unsigned)KERNELS_PER_BUNDLE,
                 (unsigned long long)fixture_header(data)->tables_bytes);
    free(data);
}

static int time_open(const char *folder) {
    libdecode_open_options options = {.struct_size = sizeof options,
                                      .flags = LIBDECODE_OPEN_IGNORE_ENVIRONMENT | LIBDECODE_OPEN_BUNDLES_ONLY,
                                      .bundle_paths = &folder,
                                      .num_bundle_paths = 1};
    double times[NUM_ROUNDS];
    for (size_t round = 0; round < NUM_ROUNDS; round++) {
        libdecode_context *context;
        double begin = seconds_now();
        if (libdecode_open(&options, &context) != LIBDECODE_OK) {
            (void)fprintf(stderr, "%s\n", libdecode_error_message());
            return 1;
        }
        times[round] = seconds_now() - begin;
        if (libdecode_kernel_count(context) != NUM_BUNDLES * KERNELS_PER_BUNDLE)
            return 1;
        libdecode_close(context);
    }
    const double first = times[0], middle = median(times, NUM_ROUNDS);
    (void)printf("libdecode_open of %d kernels: first %.0f us, median of %d %.0f us, least %.0f us\n",
                 NUM_BUNDLES * KERNELS_PER_BUNDLE, 1e6 * first, NUM_ROUNDS, 1e6 * middle, 1e6 * times[0]);
    return 0;
}

int main(void) {
    char folder[] = "/tmp/libdecode_open_time_XXXXXX", paths[NUM_BUNDLES][64];
    if (!mkdtemp(folder))
        return 1;
    for (size_t index = 0; index < NUM_BUNDLES; index++) {
        (void)snprintf(paths[index], sizeof paths[index], "%s/sm%u.bundle", folder, targets[index]);
        write_bundle(paths[index], targets[index]);
    }
    int failed = time_open(folder);
    for (size_t index = 0; index < NUM_BUNDLES; index++)
        (void)unlink(paths[index]);
    (void)rmdir(folder);
    return failed;
}
