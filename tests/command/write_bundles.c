/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write_bundles.c: a folder in; bundles of the whole grid in it, around no code, out, and in its folder "formats" one of kernels of
 * every KV format and page kind for sm_90. So test_command_*.py have kernels to list, to explain and to run on the host GPU where there
 * is no nvcc.
 */
#define _POSIX_C_SOURCE 200809L /* mkdir */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "bundle_fixture.h"
#include "decode_fixture.h"

/* A kernel that no problem asks for. */
static void write_instrument(const char *folder, const char *family_name, uint32_t family, size_t parameter_bytes,
                             uint32_t target) {
    char name[64], path[512];
    size_t bytes;
    (void)snprintf(name, sizeof name, "%s_sm%u", family_name, target);
    (void)snprintf(path, sizeof path, "%s/%s-sm%u.bundle", folder, family_name, target);
    struct fixture_kernel kernel = {.name = name, .target = target, .contract = fixture_contract()};
    kernel.contract.family = family;
    kernel.contract.parameter_bytes = (uint32_t)parameter_bytes;
    kernel.contract.kv_dtype = kernel.contract.head_dim = 0;
    uint8_t *data = fixture_bundle(&kernel, 1, &bytes);
    fixture_write_file(path, data, bytes);
    free(data);
}

/* Of one kernel: bf16 KV, head_dim 128, 8 rows a pass, pages from 16 tokens on, no cluster. */
static void write_page_ceiling(const char *folder, uint32_t target) {
    char name[64], path[512];
    size_t bytes;
    (void)snprintf(name, sizeof name, "page_ceiling_kvbf16_d128_r8_p16_c1_o0_sm%u", target);
    (void)snprintf(path, sizeof path, "%s/page_ceiling-sm%u.bundle", folder, target);
    struct fixture_kernel kernel = {.name = name, .target = target, .contract = fixture_contract()};
    kernel.contract.family = KERNEL_FAMILY_PAGE_CEILING;
    uint8_t *data = fixture_bundle(&kernel, 1, &bytes);
    fixture_write_file(path, data, bytes);
    free(data);
}

/* 8 rows a pass, no cluster. */
static struct libdecode_launch_contract format_contract(size_t format, uint32_t head_dim, uint32_t min_page_size) {
    struct libdecode_launch_contract contract = fixture_contract();
    contract.kv_dtype = fixture_kv_dtypes[format].number;
    contract.query_dtypes = fixture_kv_dtypes[format].query_dtypes;
    contract.out_dtypes = 1u << KERNEL_DTYPE_BF16 | 1u << KERNEL_DTYPE_FP16 | 1u << KERNEL_DTYPE_E4M3 | 1u << KERNEL_DTYPE_NVFP4;
    contract.head_dim = head_dim;
    contract.min_page_size = min_page_size;
    contract.flags = min_page_size < 16 ? CONTRACT_FLAG_ROW_GATHER : 0u;
    contract.max_q_len = 1024;
    contract.features =
        fixture_decode_features | CONTRACT_FEATURE_BATCH_INVARIANT | (min_page_size < 16 ? 0u : CONTRACT_FEATURE_CONTIGUOUS_KV);
    return contract;
}

/* 16 rows a pass over latent rows, no cluster. */
static struct libdecode_launch_contract mla_contract(size_t format, uint32_t head_dim) {
    struct libdecode_launch_contract contract = format_contract(format, head_dim, 16);
    contract.family = KERNEL_FAMILY_MLA_DECODE;
    contract.parameter_bytes = sizeof(struct mla_decode_params);
    contract.row_tile = 16;
    contract.features = CONTRACT_FEATURE_WINDOW | CONTRACT_FEATURE_SINKS | CONTRACT_LSE | CONTRACT_FEATURE_RAGGED_Q |
                        CONTRACT_FEATURE_DRAFT_MASK | CONTRACT_FEATURE_QUERY_POSITIONS | CONTRACT_FEATURE_SKIP_SOFTMAX |
                        CONTRACT_FEATURE_SOFT_CAP | CONTRACT_FEATURE_BATCH_INVARIANT | CONTRACT_FEATURE_QUERY_ROPE;
    return contract;
}

/* NVFP4 and e5m2 have neither rows of 512 nor latent ones. */
static bool has_wide_rows(size_t format) {
    return fixture_kv_dtypes[format].number != KERNEL_DTYPE_NVFP4 && fixture_kv_dtypes[format].number != KERNEL_DTYPE_E5M2;
}

static void write_formats(const char *path) {
    enum {
        HEAD_DIMS = 4,
        PAGE_KINDS = 2,
        PAGED = FIXTURE_KV_DTYPES * HEAD_DIMS * PAGE_KINDS,
        KERNELS = PAGED + FIXTURE_KV_DTYPES
    };
    static const uint32_t head_dims[HEAD_DIMS] = {64, 128, 256, 512}, page_sizes[PAGE_KINDS] = {1, 16};
    static char names[KERNELS][64];
    struct fixture_kernel kernels[KERNELS];
    size_t count = 0, bytes;
    for (size_t i = 0; i < PAGED; i++) {
        const size_t format = i % FIXTURE_KV_DTYPES;
        const uint32_t head_dim = head_dims[i / FIXTURE_KV_DTYPES % HEAD_DIMS],
                       page_size = page_sizes[i / FIXTURE_KV_DTYPES / HEAD_DIMS];
        if (!has_wide_rows(format) && head_dim > 256)
            continue;
        (void)snprintf(names[count], sizeof names[count], "gqa_decode_kv%s_d%u_r8_p%u_c1_o1_sm90", fixture_kv_dtypes[format].name,
                       head_dim, page_size);
        kernels[count] =
            (struct fixture_kernel){.name = names[count], .target = 90, .contract = format_contract(format, head_dim, page_size)};
        count++;
    }
    for (size_t format = 0; format < FIXTURE_KV_DTYPES; format++) {
        if (!has_wide_rows(format))
            continue;
        (void)snprintf(names[count], sizeof names[count], "mla_decode_kv%s_d320_r16_c1_sm90", fixture_kv_dtypes[format].name);
        kernels[count] = (struct fixture_kernel){.name = names[count], .target = 90, .contract = mla_contract(format, 320)};
        count++;
    }
    uint8_t *data = fixture_bundle(kernels, count, &bytes);
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
        write_instrument(argv[1], "read_ceiling", KERNEL_FAMILY_READ_CEILING, sizeof(struct read_ceiling_params), targets[index]);
        write_page_ceiling(argv[1], targets[index]);
        write_instrument(argv[1], "late_copy", KERNEL_FAMILY_LATE_COPY, sizeof(struct late_copy_params), targets[index]);
        write_instrument(argv[1], "merge_states", KERNEL_FAMILY_MERGE_STATES, sizeof(struct merge_states_params), targets[index]);
    }
    grid_destroy(grid);
    char path[512];
    (void)snprintf(path, sizeof path, "%s/formats", argv[1]);
    if (mkdir(path, 0777) != 0) {
        (void)fprintf(stderr, "write_bundles: %s cannot be made\n", path);
        return 1;
    }
    (void)snprintf(path, sizeof path, "%s/formats/formats-sm90.bundle", argv[1]);
    write_formats(path);
    return 0;
}
