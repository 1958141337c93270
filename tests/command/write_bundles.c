/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write_bundles.c: a folder in; bundles of the whole grid in it, around no code, out. So test_command.py has kernels to list, to
 * explain and to run on the host GPU where there is no nvcc.
 */
#include <stdio.h>
#include <stdlib.h>

#include "bundle_fixture.h"
#include "decode_fixture.h"

static void write_read_ceiling(const char *folder, uint32_t target) {
    char name[64], path[512];
    size_t bytes;
    (void)snprintf(name, sizeof name, "read_ceiling_sm%u", target);
    (void)snprintf(path, sizeof path, "%s/read-ceiling-sm%u.bundle", folder, target);
    struct fixture_kernel kernel = {.name = name, .target = target, .contract = fixture_contract()};
    kernel.contract.family = KERNEL_FAMILY_READ_CEILING;
    kernel.contract.parameter_bytes = sizeof(struct read_ceiling_params);
    uint8_t *data = fixture_bundle(&kernel, 1, &bytes);
    fixture_write_file(path, data, bytes);
    free(data);
}

int main(int argc, char **argv) {
    static const uint32_t targets[GRID_TARGETS] = {90, 100, 120};
    if (argc != 2) {
        (void)fprintf(stderr, "usage: write_bundles FOLDER\n");
        return 2;
    }
    struct grid *grid = grid_create(7);
    for (size_t index = 0; index < GRID_TARGETS; index++) {
        char path[512];
        (void)snprintf(path, sizeof path, "%s/libdecode-sm%u.bundle", argv[1], targets[index]);
        fixture_write_file(path, grid->data[index], grid->bytes[index]);
        write_read_ceiling(argv[1], targets[index]);
    }
    grid_destroy(grid);
    return 0;
}
