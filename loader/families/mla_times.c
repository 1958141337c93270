/* SPDX-License-Identifier: Apache-2.0 */
/* mla_times.c: an MLA problem and a kernel's contract in, what the kernel takes out, as measured. Pure. Next: paged_decode.c. */
#include "mla_times.h"

#include "contract_kv.h"

typedef struct libdecode_launch_contract contract_t;

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
static bool is_sparse(const struct problem *problem) { return problem->given.sparse_top_k > 0; }

/* Where workers share a unit: see struct mla_times. */
struct sharing {
    int64_t split_ns, part_ns, uneven_ns;
};

/* What a kernel takes for rows of 576 elements. */
struct measured {
    int64_t tile_ps;                                                             /* of a tile, whatever its elements */
    int64_t token_16_bit_ps, token_fp8_ps, token_scaled656_ps, token_nvfp352_ps; /* of a token, beside that */
    struct sharing alone, in_cluster; /* of a CTA alone; of a cluster, whose CTAs have a part of it each */
    int64_t unit_ns;
};

/* What is left of uneven_ns to a cluster, at least: by 1 x 4,096 with 64 heads and 8 to 15 clusters of eight, on an H100. */
enum { CLUSTER_UNEVEN_NS = 2000 };
/*
 * Measured on an H200. MLA: 161 problems of bf16 and as many of e4m3, 1 to 128 requests of 512 to 32,768 tokens with 16 to 128 heads, every
 * kernel (`libdecode bench --regret --mla`): a unit's query and columns take their time whatever its length. The kernel that the model calls
 * the fastest is so or takes 1 % longer in all but a tenth of them, 25 % in the worst. Of 64 rows, where cuts lie beside the
 * ends of units, by forced numbers of workers, and with the trace what mixed lengths take; their tokens, units and parts, and those of sparse
 * MLA of 64 rows, anew since parts lie in scratch, by 26 problems of each kind of KV and query, and by forced numbers of workers. So what CTAs
 * alone of 16 and 32 rows take to share a unit, since they deal out what parts come to, and clusters of four of 64 rows. Of 16 rows of FP8 in
 * tiles of 64 tokens by 64 and 128 requests of 4,096 and 8,192 tokens and the trace. On an H100, of 16 rows of bf16, the ends of units at
 * fdfacf7, by 26 problems; and what parts take in clusters since they change hands as fp16, by as many of each kind of KV and query, but of 32
 * rows, and of 16 of FP8. What a tile takes of sparse 64 rows, beside its tokens, by 54 problems of 320 elements with forced numbers of workers, and of
 * plain FP8 as well by 18 of 576. What a tile takes of dense MLA, and what narrower rows take less to begin, to hand over and to share, by 72
 * problems of 320 elements, and by 108 sparse ones of 320 and 512: the kernel that is chosen takes 0.5 % longer than the fastest, 8 % in the worst.
 * "bytes": queries and K of e4m3, which are multiplied as they lie; "fp8": K that is converted.
 */
static const struct measured
    dense_16_rows = {.tile_ps = 74000,
                     .token_16_bit_ps = 14490,
                     .alone = {300, 130, 3000},
                     .in_cluster = {700, 900, 2000},
                     .unit_ns = 2600},
    dense_16_rows_fp8_small_tiles = {.tile_ps = 271000,
                                     .token_fp8_ps = 12720,
                                     .alone = {1000, 130, 3000},
                                     .in_cluster = {700, 1250, 2000},
                                     .unit_ns = 2300},
    dense_16_rows_fp8 = {.tile_ps = 327000,
                         .token_fp8_ps = 13690,
                         .alone = {1000, 130, 3000},
                         .in_cluster = {700, 1250, 2000},
                         .unit_ns = 2600},
    dense_16_rows_bytes = {.tile_ps = 86000,
                           .token_fp8_ps = 12150,
                           .alone = {300, 150, 1500},
                           .in_cluster = {700, 1250, 2000},
                           .unit_ns = 2600},
    dense_32_rows = {.tile_ps = 675000,
                     .token_16_bit_ps = 25350,
                     .token_fp8_ps = 28050,
                     .alone = {0, 100, 2000},
                     .in_cluster = {3900, 3100, 3900},
                     .unit_ns = 5800},
    dense_64_rows = {.tile_ps = 485000, .token_16_bit_ps = 17320, .alone = {2500, 250, 5000}, .unit_ns = 5200},
    dense_64_rows_pairs = {.token_16_bit_ps = 24900, .in_cluster = {2400, 250, 20000}, .unit_ns = 7950},
    dense_64_rows_fours = {.token_16_bit_ps = 24900, .in_cluster = {11800, 1000, 20000}, .unit_ns = 4000},
    dense_64_rows_fp8 = {.tile_ps = 481000, .token_fp8_ps = 18680, .alone = {1000, 250, 10000}, .unit_ns = 12000},
    dense_64_rows_bytes = {.tile_ps = 359000, .token_fp8_ps = 14890, .alone = {3500, 250, 10000}, .unit_ns = 8000};
/*
 * Sparse MLA: 39 problems of bf16 and 20 of other rows, 1 to 128 query tokens that select 512 to 2,048 rows, 16 to 128 heads, every kernel; the
 * one that the model calls the fastest is so, or takes 2 % longer. Of 656 bytes with 16 and 32 rows by 26 problems since V is fp16: 3.5 % in the
 * worst; teams of plain FP8 by two of them. As above: of 64 rows, what CTAs alone take to share a unit, and units of 16 rows and rows of 352
 * bytes. What parts take in clusters, on an H100, by 26 problems each: of 32 rows by those of bf16 and of e4m3, of 16 since they change hands as
 * fp16.
 */
static const struct measured sparse_16_rows = {.tile_ps = 530000,
                                               .token_16_bit_ps = 17300,
                                               .token_fp8_ps = 16300,
                                               .token_scaled656_ps = 22000,
                                               .token_nvfp352_ps = 24500,
                                               .alone = {1000, 200, 3000},
                                               .in_cluster = {1200, 1000, 16000},
                                               .unit_ns = 2500},
                             sparse_16_rows_teams = {.tile_ps = 271000,
                                                     .token_fp8_ps = 12900,
                                                     .token_scaled656_ps = 16900,
                                                     .alone = {1000, 200, 3000},
                                                     .in_cluster = {1200, 1000, 16000},
                                                     .unit_ns = 2500},
                             sparse_32_rows = {.tile_ps = 1160000,
                                               .token_16_bit_ps = 21300,
                                               .token_fp8_ps = 20000,
                                               .token_scaled656_ps = 23900,
                                               .token_nvfp352_ps = 30000,
                                               .alone = {2300, 60, 5000},
                                               .in_cluster = {3000, 2400, 50000},
                                               .unit_ns = 4200},
                             sparse_64_rows_656 = {.token_scaled656_ps = 37400, .alone = {5000, 150, 21000}, .unit_ns = 8500},
                             sparse_64_rows_16_bit = {.tile_ps = 355000,
                                                      .token_16_bit_ps = 29250,
                                                      .alone = {6800, 1, 21000}, /* slices: parts take next to nothing */
                                                      .unit_ns = 2000};
/* As 16 bits, which they become, but for units and tokens: of 352 bytes by 16 problems, 1 to 128 query tokens of 2,048 rows, 64 and 128 heads. */
static const struct measured sparse_64_rows_352 = {
    .tile_ps = 355000, .token_nvfp352_ps = 35450, .alone = {6800, 1, 21000}, .unit_ns = 4000};
static const struct measured sparse_64_rows_fp8 = {.tile_ps = 154000,
                                                   .token_fp8_ps = 27200,
                                                   .alone = {2000, 250, 10000},
                                                   .unit_ns = 12000},
                             sparse_64_rows_bytes = {
                                 .tile_ps = 70000, .token_fp8_ps = 24100, .alone = {3500, 250, 10000}, .unit_ns = 8000};

enum {
    MMA_ROWS = 32,         /* the widest tile of single warps */
    BYTE_TILE_TOKENS = 64, /* of kernels that multiply queries of e4m3 with K as it lies, where a tile is a box (mla_decode.cu) */
    WHOLE_TILE_TOKENS = 64 /* of kernels whose warps are all at one tile; teams have shorter ones (sparse_mla_decode.cu) */
};

static const struct measured *measured_of(const struct problem *problem, const contract_t *contract) {
    if (is_sparse(problem) && contract->row_tile > MMA_ROWS) {
        if (contract->kv_dtype == KERNEL_DTYPE_NVFP4)
            return &sparse_64_rows_352;
        if (contract->kv_dtype != KERNEL_DTYPE_E4M3)
            return &sparse_64_rows_16_bit;
        if (contract->kv_row_format == KERNEL_KV_ROW_SCALED656)
            return &sparse_64_rows_656;
        return problem->given.query_dtype == LIBDECODE_DTYPE_E4M3 ? &sparse_64_rows_bytes : &sparse_64_rows_fp8;
    }
    if (is_sparse(problem) && contract->row_tile > 16)
        return &sparse_32_rows;
    if (is_sparse(problem))
        return contract->kv_dtype == KERNEL_DTYPE_E4M3 && contract->tile_tokens < WHOLE_TILE_TOKENS ? &sparse_16_rows_teams
                                                                                                    : &sparse_16_rows;
    const bool are_bytes = problem->given.query_dtype == LIBDECODE_DTYPE_E4M3 && problem->given.page_size >= BYTE_TILE_TOKENS;
    if (contract->row_tile > MMA_ROWS) {
        if (contract->kv_dtype != KERNEL_DTYPE_E4M3)
            return contract->cluster_size == 1   ? &dense_64_rows
                   : contract->cluster_size == 2 ? &dense_64_rows_pairs
                                                 : &dense_64_rows_fours;
        return are_bytes ? &dense_64_rows_bytes : &dense_64_rows_fp8;
    }
    if (contract->row_tile > 16)
        return &dense_32_rows;
    if (contract->kv_dtype != KERNEL_DTYPE_E4M3)
        return &dense_16_rows;
    if (contract->tile_tokens < BYTE_TILE_TOKENS)
        return &dense_16_rows_fp8_small_tiles;
    return are_bytes ? &dense_16_rows_bytes : &dense_16_rows_fp8;
}

static int64_t token_ps(const struct measured *measured, const contract_t *contract) {
    if (contract->kv_row_format == KERNEL_KV_ROW_SCALED656)
        return measured->token_scaled656_ps;
    if (contract->kv_row_format == KERNEL_KV_ROW_NVFP352)
        return measured->token_nvfp352_ps;
    return contract_has_16_bit_kv(contract) ? measured->token_16_bit_ps : measured->token_fp8_ps;
}

struct mla_times mla_times_of(const struct problem *problem, const contract_t *contract) {
    enum { HEAD_DIM = 576, V_HEAD_DIM = 512 };
    if (problem->given.op != LIBDECODE_OP_MLA_DECODE)
        return (struct mla_times){0};
    const struct measured *const measured = measured_of(problem, contract);
    const int64_t cluster = contract->cluster_size;
    const struct sharing *const of = cluster == 1 ? &measured->alone : &measured->in_cluster;
    const int64_t least_uneven_ns = cluster == 1 ? 0 : smaller(of->uneven_ns, CLUSTER_UNEVEN_NS);
    /* Parts are as wide as V, and so is half of what 64 rows take of a unit. CTAs alone of fewer rows, and pairs, share one as soon whatever its width. */
    const int64_t width_permille = problem->v_dim * INT64_C(1000) / V_HEAD_DIM;
    const bool is_wide = contract->row_tile > MMA_ROWS;
    const int64_t unit_permille = is_wide ? (1000 + width_permille) / 2 : 1000;
    const int64_t sharing_permille = is_wide || cluster > 2 ? width_permille : 1000;
    return (struct mla_times){.token_ps = measured->tile_ps / contract->tile_tokens +
                                          token_ps(measured, contract) * problem->qk_dim / HEAD_DIM,
                              .unit_ns = measured->unit_ns * unit_permille / 1000,
                              .split_ns = of->split_ns / cluster * sharing_permille / 1000,
                              .part_ns = of->part_ns / cluster * sharing_permille / 1000,
                              .uneven_ns = larger(of->uneven_ns / cluster, least_uneven_ns)};
}
