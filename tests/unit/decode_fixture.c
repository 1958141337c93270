/* SPDX-License-Identifier: Apache-2.0 */
/* decode_fixture.c: the grid's .toml in, bundles of that grid out; and the problem that most tests vary. */
#include "decode_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "abi.h"
#include "bundle_fixture.h"
#include "dtype.h"
#include "glob.h"

/* The build says where the grid stands. */
#ifndef GRID_TOML
#define GRID_TOML "kernels/families/gqa_decode.toml"
#endif

#define MAX_VALUES 16
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

static char *read_text(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) {
        (void)fprintf(stderr, "decode_fixture: %s cannot be opened\n", path);
        abort();
    }
    char *text = calloc(1, 1 << 16);
    require(text != NULL && fread(text, 1, (1 << 16) - 1, file) > 0, path);
    (void)fclose(file);
    return text;
}

/* `key = ["a", 1, ...]` of one [[grid]] section. */
static size_t read_list(const char *section, const char *key, char values[MAX_VALUES][16]) {
    char line[64];
    (void)snprintf(line, sizeof line, "\n%s = [", key);
    const char *at = strstr(section, line), *next = strstr(section, "\n[[grid]]");
    require(at != NULL && (!next || at < next), key);
    size_t count = 0;
    for (at += strlen(line); *at && *at != ']' && count < MAX_VALUES; count++) {
        size_t length = strcspn(at, ",]"), used = 0;
        for (size_t i = 0; i < length && used < 15; i++)
            if (at[i] != '"' && at[i] != ' ')
                values[count][used++] = at[i];
        values[count][used] = '\0';
        at += length + (at[length] == ',');
    }
    return count;
}

static const struct fixture_kv_dtype *kv_dtype_of(const char *name) {
    size_t place = 0;
    while (place < FIXTURE_KV_DTYPES && strcmp(fixture_kv_dtypes[place].name, name) != 0)
        place++;
    require(place < FIXTURE_KV_DTYPES, name);
    return &fixture_kv_dtypes[place];
}

/* Resources like those of the real kernels, so that presets have room for them. */
static struct libdecode_launch_contract contract_like(const char *dtype, uint32_t head_dim, uint32_t row_tile,
                                                      uint32_t min_page_size, uint32_t cluster_size, int options,
                                                      uint32_t target) {
    struct libdecode_launch_contract contract = fixture_contract();
    bool gathers_rows = min_page_size < 16;
    uint32_t row_bytes = head_dim * (uint32_t)dtype_bits((libdecode_dtype)kv_dtype_of(dtype)->number) / 8;
    uint32_t stage_tokens = (target == 120 ? 8192 : 16384) / row_bytes;
    contract.kv_dtype = kv_dtype_of(dtype)->number;
    contract.query_dtypes = kv_dtype_of(dtype)->query_dtypes;
    const bool two_on_sm = target != 120 && !gathers_rows && head_dim == 64 && row_tile == 8 && cluster_size == 1;
    const bool crowded = contract.kv_dtype == KERNEL_DTYPE_NVFP4 && head_dim > 128;
    contract.consumer_warps = target == 120 || gathers_rows || head_dim > 256 || crowded || two_on_sm ? 4 : 8;
    /* A copying warp each for K and V, four where rows come one by one; one that hands out work, one for scales. */
    contract.threads =
        32 * (contract.consumer_warps + (gathers_rows ? 8 : 2) + 1 + (contract.kv_dtype == KERNEL_DTYPE_NVFP4 ? 1 : 0));
    contract.dynamic_shared_bytes = target == 120 ? 98304 : two_on_sm ? 77824 : 180224;
    contract.ctas_per_sm = two_on_sm ? 2 : 1;
    contract.cluster_size = cluster_size;
    contract.out_dtypes = 1u << KERNEL_DTYPE_BF16 | 1u << KERNEL_DTYPE_FP16;
    if (contract.query_dtypes != 1u << contract.kv_dtype)
        contract.out_dtypes |= 1u << KERNEL_DTYPE_E4M3 | (head_dim / cluster_size >= 16 ? 1u << KERNEL_DTYPE_NVFP4 : 0u);
    contract.head_dim = head_dim;
    contract.row_tile = row_tile;
    contract.tile_tokens = stage_tokens < 16 ? 16 : stage_tokens < 128 ? stage_tokens : 128;
    contract.max_box_tokens = gathers_rows ? 16 : contract.tile_tokens;
    contract.min_page_size = min_page_size;
    contract.flags = gathers_rows ? CONTRACT_FLAG_ROW_GATHER : 0;
    contract.max_q_len = 1024;
    contract.features = fixture_decode_features | (cluster_size == 1 && row_tile <= 32 ? CONTRACT_FEATURE_BATCH_INVARIANT : 0u);
    const uint32_t all_but_rope = CONTRACT_OPTIONS & ~(uint32_t)CONTRACT_FEATURE_ROPE;
    const uint32_t of_options[] = {0, CONTRACT_OPTIONS, 0, all_but_rope, CONTRACT_FEATURE_ROPE};
    contract.features &= ~(uint32_t)CONTRACT_OPTIONS | of_options[options];
    if (options == 4)
        contract.flags |= CONTRACT_FLAG_ONLY_ROPE;
    if (options == 2)
        contract.features |= CONTRACT_FEATURE_QUERY_OFFSETS | CONTRACT_FEATURE_CONTIGUOUS_KV;
    if (options == 2 && gathers_rows) {
        contract.features |= CONTRACT_FEATURE_KV_OFFSETS;
        contract.flags |= CONTRACT_FLAG_ANY_ROWS;
    }
    if (dtype_bits((libdecode_dtype)contract.kv_dtype) == 16 ? target == 90 && row_tile == 32 && gathers_rows
                                                             : target == 120 && head_dim > 256)
        contract.features &= ~(uint32_t)CONTRACT_FEATURE_ROPE;
    return contract;
}

static const struct {
    const char *name;
    uint32_t number;
} targets[GRID_TARGETS] = {{"sm90", 90}, {"sm100", 100}, {"sm120", 120}};

/* The kernels of one [[grid]] section for one target, that the glob matches. */
static size_t add_section(const char *section, size_t target, const char *glob, struct fixture_kernel *kernels,
                          char (*names)[BUNDLE_MAX_NAME_BYTES], size_t count) {
    char built_for[MAX_VALUES][16], dtypes[MAX_VALUES][16], head_dims[MAX_VALUES][16], tiles[MAX_VALUES][16],
        clusters[MAX_VALUES][16], page_sizes[MAX_VALUES][16], options[MAX_VALUES][16];
    size_t num_targets = read_list(section, "targets", built_for), num_dtypes = read_list(section, "kv_dtype", dtypes);
    size_t num_dims = read_list(section, "head_dim", head_dims), num_tiles = read_list(section, "row_tile", tiles);
    size_t num_clusters = read_list(section, "cluster_size", clusters);
    size_t num_page_sizes = read_list(section, "min_page_size", page_sizes);
    require(read_list(section, "options", options) == 1, "options");
    bool wanted = false;
    for (size_t t = 0; t < num_targets; t++)
        wanted = wanted || strcmp(built_for[t], targets[target].name) == 0;
    for (size_t i = 0; wanted && i < num_dtypes * num_dims * num_tiles * num_page_sizes * num_clusters; i++) {
        size_t rest = i / num_dtypes;
        const char *dtype = dtypes[i % num_dtypes], *dim = head_dims[rest % num_dims];
        rest /= num_dims;
        const char *tile = tiles[rest % num_tiles], *page_size = page_sizes[rest / num_tiles % num_page_sizes];
        const char *cluster = clusters[rest / num_tiles / num_page_sizes];
        require(count < MAX_KERNELS, "too many kernels");
        (void)snprintf(names[count], sizeof names[count], "gqa_decode_kv%.15s_d%.15s_r%.15s_p%.15s_c%.15s_o%.15s_%s", dtype, dim,
                       tile, page_size, cluster, options[0], targets[target].name);
        if (!glob_matches(glob, names[count]))
            continue;
        kernels[count] = (struct fixture_kernel){.name = names[count],
                                                 .target = targets[target].number,
                                                 .contract = contract_like(dtype, (uint32_t)atoi(dim), (uint32_t)atoi(tile),
                                                                           (uint32_t)atoi(page_size), (uint32_t)atoi(cluster),
                                                                           atoi(options[0]), targets[target].number)};
        count++;
    }
    return count;
}

struct grid *grid_create(unsigned wanted) {
    return grid_create_part(wanted, "*");
}

struct grid *grid_create_part(unsigned wanted, const char *glob) {
    struct grid *grid = calloc(1, sizeof *grid);
    char *text = read_text(GRID_TOML);
    struct fixture_kernel *kernels = calloc(MAX_KERNELS, sizeof *kernels);
    char(*names)[BUNDLE_MAX_NAME_BYTES] = calloc(MAX_KERNELS, sizeof *names);
    struct bundle *bundles[GRID_TARGETS];
    size_t num_bundles = 0;
    require(grid && kernels && names, "memory");
    for (size_t target = 0; target < GRID_TARGETS; target++) {
        if ((wanted >> target & 1u) == 0)
            continue;
        size_t count = 0;
        const char *first = strstr(text, "\n[[grid]]");
        for (const char *section = first; section; section = strstr(section, "\n[[grid]]")) {
            section += strlen("\n[[grid]]");
            count = add_section(section, target, glob, kernels, names, count);
        }
        require(count > 0, "no kernel in the grid");
        grid->data[target] = fixture_bundle(kernels, count, &grid->bytes[target]);
        require(bundle_open_memory(grid->data[target], grid->bytes[target], "memory", &grid->bundles[target]) == LIBDECODE_OK,
                "open");
        bundles[num_bundles++] = grid->bundles[target];
    }
    require(kernel_table_build(bundles, num_bundles, &grid->table) == LIBDECODE_OK, "table");
    free(names);
    free(kernels);
    free(text);
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
