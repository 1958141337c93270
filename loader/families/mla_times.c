/* SPDX-License-Identifier: Apache-2.0 */
/* mla_times.c: an MLA problem and a kernel's contract in, what the kernel takes out, as measured. Pure. Next: paged_decode.c. */
#include "mla_times.h"

#include "contract_kv.h"

typedef struct libdecode_launch_contract contract_t;

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
static bool is_sparse(const struct problem *problem) { return problem->given.sparse_top_k > 0; }

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
 * rows, and of 16 of FP8. What a tile takes of 64 rows, beside its tokens, by 54 problems of 320 elements with forced numbers of workers, and of
 * sparse plain FP8 as well by 18 of 576.
 */
static const struct mla_times
    mla_times = {.token_16_bit_ps = 16800, .alone = {300, 130, 3000}, .in_cluster = {700, 900, 2000}, .unit_ns = 2600},
    mla_times_fp8 = {.token_fp8_ps = 21200, .alone = {1000, 130, 3000}, .in_cluster = {700, 1250, 2000}, .unit_ns = 2300},
    mla_times_fp8_rows = {.token_fp8_ps = 18800, .alone = {1000, 130, 3000}, .in_cluster = {700, 1250, 2000}, .unit_ns = 2600},
    mla_times_byte_rows = {.token_fp8_ps = 13500, .alone = {300, 150, 1500}, .in_cluster = {700, 1250, 2000}, .unit_ns = 2600},
    mla_times_32_rows = {.tile_ps = 160000,
                         .token_16_bit_ps = 33400,
                         .token_fp8_ps = 36100,
                         .alone = {0, 100, 2000},
                         .in_cluster = {3900, 3100, 3900},
                         .unit_ns = 5800},
    mla_times_64_rows = {.tile_ps = 307000, .token_16_bit_ps = 20100, .alone = {2500, 250, 5000}, .unit_ns = 5200},
    mla_times_64_rows_pairs = {.token_16_bit_ps = 24900, .in_cluster = {2400, 250, 20000}, .unit_ns = 7950},
    mla_times_64_rows_fours = {.token_16_bit_ps = 24900, .in_cluster = {11800, 1000, 20000}, .unit_ns = 4000},
    mla_times_64_fp8_rows = {.tile_ps = 224000, .token_fp8_ps = 22700, .alone = {1000, 250, 10000}, .unit_ns = 12000},
    mla_times_64_byte_rows = {.tile_ps = 189000, .token_fp8_ps = 17550, .alone = {3500, 250, 10000}, .unit_ns = 8000},
    no_mla_times = {0};
/*
 * Sparse MLA: 47 problems of 656 bytes, 39 of bf16 and 20 of other rows, 1 to 128 query tokens that select 512 to 2,048 rows, 16 to 128 heads,
 * every kernel; the one that the model calls the fastest is so, or takes 2 % longer. As above: of 64 rows, what CTAs alone take to share a
 * unit, and units of 16 rows and rows of 352 bytes. What parts take in clusters, on an H100, by 26 problems each: of 32 rows by those of bf16
 * and of e4m3, of 16 since they change hands as fp16.
 */
static const struct mla_times sparse_mla_times = {.tile_ps = 530000,
                                                  .token_16_bit_ps = 17300,
                                                  .token_fp8_ps = 16300,
                                                  .token_scaled656_ps = 31200,
                                                  .token_nvfp352_ps = 24500,
                                                  .alone = {1000, 200, 3000},
                                                  .in_cluster = {1200, 1000, 16000},
                                                  .unit_ns = 2500},
                              sparse_mla_times_32_rows = {.tile_ps = 1160000,
                                                          .token_16_bit_ps = 21300,
                                                          .token_fp8_ps = 20000,
                                                          .token_scaled656_ps = 45300,
                                                          .token_nvfp352_ps = 30000,
                                                          .alone = {2300, 60, 5000},
                                                          .in_cluster = {3000, 2400, 50000},
                                                          .unit_ns = 4200},
                              sparse_mla_times_64_rows = {.token_scaled656_ps = 37400,
                                                          .alone = {5000, 150, 21000},
                                                          .unit_ns = 8500},
                              sparse_mla_times_64_rows_16_bit = {
                                  .tile_ps = 355000,
                                  .token_16_bit_ps = 29250,
                                  .alone = {6800, 1, 21000}, /* slices: parts take next to nothing */
                                  .unit_ns = 2000};
/* As 16 bits, which they become, but for units and tokens: of 352 bytes by 16 problems, 1 to 128 query tokens of 2,048 rows, 64 and 128 heads. */
static const struct mla_times sparse_mla_times_64_widened_rows = {
    .tile_ps = 355000, .token_nvfp352_ps = 35450, .alone = {6800, 1, 21000}, .unit_ns = 4000};
static const struct mla_times sparse_mla_times_64_fp8_rows = {.tile_ps = 154000,
                                                              .token_fp8_ps = 27200,
                                                              .alone = {2000, 250, 10000},
                                                              .unit_ns = 12000},
                              sparse_mla_times_64_byte_rows = {
                                  .tile_ps = 70000, .token_fp8_ps = 24100, .alone = {3500, 250, 10000}, .unit_ns = 8000};

enum {
    MMA_ROWS = 32,        /* the widest tile of single warps */
    BYTE_TILE_TOKENS = 64 /* of kernels that multiply queries of e4m3 with K as it lies, where a tile is a box (mla_decode.cu) */
};

const struct mla_times *mla_times_of(const struct problem *problem, const contract_t *contract) {
    if (problem->given.op != LIBDECODE_OP_MLA_DECODE)
        return &no_mla_times;
    if (is_sparse(problem) && contract->row_tile > MMA_ROWS) {
        if (contract->kv_dtype == KERNEL_DTYPE_NVFP4)
            return &sparse_mla_times_64_widened_rows;
        if (contract->kv_dtype != KERNEL_DTYPE_E4M3)
            return &sparse_mla_times_64_rows_16_bit;
        if (contract->kv_row_format == KERNEL_KV_ROW_SCALED656)
            return &sparse_mla_times_64_rows;
        return problem->given.query_dtype == LIBDECODE_DTYPE_E4M3 ? &sparse_mla_times_64_byte_rows
                                                                  : &sparse_mla_times_64_fp8_rows;
    }
    if (is_sparse(problem))
        return contract->row_tile > 16 ? &sparse_mla_times_32_rows : &sparse_mla_times;
    const bool are_bytes = problem->given.query_dtype == LIBDECODE_DTYPE_E4M3 && problem->given.page_size >= BYTE_TILE_TOKENS;
    if (contract->row_tile > MMA_ROWS) {
        if (contract->kv_dtype != KERNEL_DTYPE_E4M3)
            return contract->cluster_size == 1   ? &mla_times_64_rows
                   : contract->cluster_size == 2 ? &mla_times_64_rows_pairs
                                                 : &mla_times_64_rows_fours;
        return are_bytes ? &mla_times_64_byte_rows : &mla_times_64_fp8_rows;
    }
    if (contract->row_tile > 16)
        return &mla_times_32_rows;
    if (contract->kv_dtype != KERNEL_DTYPE_E4M3)
        return &mla_times;
    if (contract->tile_tokens < BYTE_TILE_TOKENS)
        return &mla_times_fp8;
    return are_bytes ? &mla_times_byte_rows : &mla_times_fp8_rows;
}

int64_t mla_token_ps(const struct problem *problem, const contract_t *contract) {
    enum { HEAD_DIM = 576 };
    const struct mla_times *times = mla_times_of(problem, contract);
    const int64_t token = contract->kv_row_format == KERNEL_KV_ROW_SCALED656 ? times->token_scaled656_ps
                          : contract->kv_row_format == KERNEL_KV_ROW_NVFP352 ? times->token_nvfp352_ps
                          : contract_has_16_bit_kv(contract)                 ? times->token_16_bit_ps
                                                                             : times->token_fp8_ps;
    return times->tile_ps / contract->tile_tokens + token * problem->qk_dim / HEAD_DIM;
}

/* What it takes where workers of this kernel share a unit. */
struct mla_sharing mla_sharing_of(const struct mla_times *times, int64_t cluster) {
    const struct mla_sharing *const of = &times->in_cluster;
    if (cluster == 1)
        return times->alone;
    return (struct mla_sharing){of->split_ns / cluster, of->part_ns / cluster,
                                larger(of->uneven_ns / cluster, smaller(of->uneven_ns, CLUSTER_UNEVEN_NS))};
}
