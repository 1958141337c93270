/* SPDX-License-Identifier: Apache-2.0 */
/* decode_fixture.c: the grid in, as the loader has it, bundles of that grid out; and the problem that most tests vary. */
#include "decode_fixture.h"

#include <stdio.h>
#include <stdlib.h>

#include "abi.h"
#include "bundle_fixture.h"
#include "glob.h"
#include "grid.h"
#include "variant_contract.h"

#define MAX_KERNELS 1024 /* of a target */

static void require(bool condition, const char *what) {
    if (!condition) {
        (void)fprintf(stderr, "decode_fixture: %s: %s\n", what, libdecode_error_message());
        abort();
    }
}

libdecode_problem llama3_8b(void) {
    return (libdecode_problem){.struct_size = sizeof(libdecode_problem),
                               .op = LIBDECODE_OP_BATCH_DECODE,
                               .query_dtype = LIBDECODE_DTYPE_BF16,
                               .batch_size = 16,
                               .num_qo_heads = 32,
                               .num_kv_heads = 8,
                               .head_dim = 128,
                               .page_size = 16,
                               .max_seq_len = 4096};
}

libdecode_problem some_mla(void) {
    libdecode_problem problem = llama3_8b();
    problem.op = LIBDECODE_OP_MLA_DECODE;
    problem.num_kv_heads = 1;
    problem.head_dim = 576;
    return problem;
}

static _Alignas(256) char room[16][256];

libdecode_tensors some_tensors(void) {
    return (libdecode_tensors){.struct_size = sizeof(libdecode_tensors),
                               .query = room[0],
                               .k_cache = room[1],
                               .v_cache = room[2],
                               .page_table = (const int32_t *)(const void *)room[3],
                               .seq_lens = (const int32_t *)(const void *)room[4],
                               .out = room[5],
                               .workspace = room[6],
                               .workspace_bytes = (size_t)1 << 30};
}

libdecode_device preset(const char *name) {
    libdecode_device device = {.struct_size = sizeof device};
    require(libdecode_device_preset(name, &device) == LIBDECODE_OK, name);
    return device;
}

/* -------------------------------------------------------------------------------------------------------------- grid */

static const uint16_t targets[GRID_TARGETS] = {90, 100, 120};

/* The kernels for one target that the glob matches. */
static size_t find_kernels(uint16_t target, const char *glob, struct fixture_kernel *kernels,
                           char (*names)[BUNDLE_MAX_NAME_BYTES]) {
    size_t num_variants, count = 0;
    const struct grid_variant *variants = grid_variants(&num_variants);
    for (size_t i = 0; i < num_variants; i++) {
        const struct grid_variant *variant = &variants[i];
        if (variant->target != target || !variant_decodes(variant))
            continue;
        require(count < MAX_KERNELS, "too many kernels");
        variant_name(variant, names[count]);
        if (!glob_matches(glob, names[count]))
            continue;
        kernels[count] = (struct fixture_kernel){.name = names[count], .target = target, .contract = variant_contract(variant)};
        count++;
    }
    return count;
}

struct grid *grid_create(unsigned wanted) {
    return grid_create_part(wanted, "gqa_decode_*");
}

struct grid *grid_create_part(unsigned wanted, const char *glob) {
    struct grid *grid = calloc(1, sizeof *grid);
    struct fixture_kernel *kernels = calloc(MAX_KERNELS, sizeof *kernels);
    char(*names)[BUNDLE_MAX_NAME_BYTES] = calloc(MAX_KERNELS, sizeof *names);
    struct bundle *bundles[GRID_TARGETS];
    size_t num_bundles = 0;
    require(grid && kernels && names, "memory");
    for (size_t target = 0; target < GRID_TARGETS; target++) {
        if ((wanted >> target & 1u) == 0)
            continue;
        const size_t count = find_kernels(targets[target], glob, kernels, names);
        require(count > 0, "no kernel in the grid");
        grid->data[target] = fixture_bundle(kernels, count, &grid->bytes[target]);
        require(bundle_open_memory(grid->data[target], grid->bytes[target], "memory", &grid->bundles[target]) == LIBDECODE_OK,
                "open");
        bundles[num_bundles++] = grid->bundles[target];
    }
    require(kernel_table_build(bundles, num_bundles, &grid->table) == LIBDECODE_OK, "table");
    free(names);
    free(kernels);
    return grid;
}

void grid_destroy(struct grid *grid) {
    kernel_table_destroy(&grid->table);
    for (size_t target = 0; target < GRID_TARGETS; target++) {
        if (grid->bundles[target])
            bundle_close(grid->bundles[target]);
        free(grid->data[target]);
    }
    free(grid);
}

void grid_options(const struct grid *grid, struct grid_options *ret_options) {
    *ret_options = (struct grid_options){.options = {.struct_size = sizeof(libdecode_open_options),
                                                     .flags = LIBDECODE_OPEN_IGNORE_ENVIRONMENT | LIBDECODE_OPEN_BUNDLES_ONLY}};
    size_t count = 0;
    for (size_t target = 0; target < GRID_TARGETS; target++)
        if (grid->data[target])
            ret_options->bundles[count++] = (libdecode_memory_bundle){grid->data[target], grid->bytes[target]};
    ret_options->options.memory_bundles = ret_options->bundles;
    ret_options->options.num_memory_bundles = count;
}
