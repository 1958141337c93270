/* SPDX-License-Identifier: Apache-2.0 */
/* variant_contract.c: what grid.c knows of a variant, and the arithmetic of kernels' Traits, by the same names. */
#include "variant_contract.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "bundle_fixture.h"
#include "dtype.h"
#include "family.h"

enum {
    FRAGMENT_TOKENS = 16,
    WARPGROUP_TILE_TOKENS = 64,
    WARPGROUP_CONSUMERS = 8,
    MMA_ROWS = 32,
    SCALED_BLOCK = 16,
    SCORE_WARPS = 4
};

static uint32_t smaller(uint32_t a, uint32_t b) { return a < b ? a : b; }
static uint32_t larger(uint32_t a, uint32_t b) { return a > b ? a : b; }

/* gqa_decode_traits.cuh: tile_tokens, consumer_warps and ctas_per_sm. */
static void divide_among_warps(const struct grid_variant *variant, struct libdecode_launch_contract *ret) {
    const uint32_t bits = (uint32_t)dtype_bits((libdecode_dtype)variant->kv_dtype);
    const bool small = variant->target == 120, gathers_rows = variant->min_page_size < FRAGMENT_TOKENS;
    const bool converts = bits < 16, has_scales = bits == 4;
    const bool wide = variant->head_dim >= 256, crowded = wide && has_scales;
    const bool long_steps = converts && variant->row_tile == 8 && variant->head_dim == 128 && !gathers_rows &&
                            (has_scales || variant->cluster_size < 8);
    const bool two_on_sm =
        variant->head_dim == 64 && variant->row_tile == 8 && variant->cluster_size == 1 && !gathers_rows && !small;
    const uint32_t rows_per_warp = variant->row_tile < 16 || wide ? 8 : 16, row_warps = variant->row_tile / rows_per_warp;
    const bool divides_rows = row_warps > 1 && variant->target == 90 && !converts;
    const bool few_token_warps = small || crowded || row_warps > 2 || divides_rows || (long_steps && !has_scales);
    const uint32_t most_token_warps = few_token_warps ? 2 : 4;
    const uint32_t most_warp_tokens = long_steps ? 64 : rows_per_warp == 16 && variant->head_dim == 128 ? 16 : 32;
    const uint32_t most_tile_tokens = converts ? most_warp_tokens * most_token_warps : 128;
    const uint32_t row_bytes = variant->head_dim * bits / 8, scale_bytes = has_scales ? variant->head_dim / SCALED_BLOCK : 0u;
    const uint32_t tile_tokens = larger(smaller((small ? 8192 : 16384) / row_bytes, most_tile_tokens), FRAGMENT_TOKENS);
    const uint32_t team_warps = row_warps * smaller(most_token_warps, tile_tokens / FRAGMENT_TOKENS);
    ret->ctas_per_sm = two_on_sm ? 2 : 1;
    ret->tile_tokens = tile_tokens;
    const uint32_t most_consumer_warps = (small || gathers_rows || variant->head_dim > 256 || crowded ? 4 : 8) / ret->ctas_per_sm;
    const uint32_t tile_bytes = (tile_tokens * (row_bytes + scale_bytes) + 1023) & ~1023u;
    const uint32_t most_stages = smaller((small ? 34816 : 73728) / ret->ctas_per_sm / tile_bytes, 16);
    ret->consumer_warps = smaller(larger(most_consumer_warps / team_warps, 1), most_stages) * team_warps;
}

static void describe_batch_decode(const struct grid_variant *variant, struct libdecode_launch_contract *ret) {
    const bool gathers_rows = variant->min_page_size < FRAGMENT_TOKENS, has_scales = variant->kv_dtype == KERNEL_DTYPE_NVFP4;
    if (variant->row_tile > MMA_ROWS) { /* gqa_decode_warpgroup.cu */
        ret->tile_tokens = WARPGROUP_TILE_TOKENS;
        ret->consumer_warps = WARPGROUP_CONSUMERS;
        ret->ctas_per_sm = 1;
    } else {
        divide_among_warps(variant, ret);
    }
    ret->max_box_tokens = gathers_rows ? FRAGMENT_TOKENS : ret->tile_tokens;
    /* A copying warp each for K and V, four where rows come one by one; one that hands out work, one for scales. */
    ret->threads = 32 * (ret->consumer_warps + (gathers_rows ? 8 : 2) + 1 + (has_scales ? 1 : 0));
}

/* mla_decode.cu; mla_decode_warpgroup.cu, whose rows are copied line by line, and mla_decode_warpgroup_fp8.cu. */
static void describe_mla(const struct grid_variant *variant, struct libdecode_launch_contract *ret) {
    const bool small = variant->target == 120, is_e4m3 = variant->kv_dtype == KERNEL_DTYPE_E4M3;
    const bool has_teams = variant->row_tile == 16 && !small, is_wide = variant->row_tile > MMA_ROWS;
    const bool multiplies_bytes = variant->target == 90 && is_e4m3 && has_teams && variant->cluster_size <= 2;
    const bool has_short_tiles = !multiplies_bytes && (has_teams || small || (variant->cluster_size > 1 && !is_wide));
    ret->tile_tokens = has_short_tiles ? WARPGROUP_TILE_TOKENS / 2 : WARPGROUP_TILE_TOKENS;
    ret->consumer_warps = WARPGROUP_CONSUMERS + (is_wide && is_e4m3 ? SCORE_WARPS : 0u);
    ret->ctas_per_sm = 1;
    ret->max_box_tokens = ret->tile_tokens;
    ret->threads = 32 * (ret->consumer_warps + 4);
    if (is_wide)
        ret->features &= ~(uint32_t)CONTRACT_FEATURE_BATCH_INVARIANT;
    if (!is_wide || is_e4m3)
        ret->flags &= ~(uint32_t)CONTRACT_FLAG_LINE_COPIES;
}

/* sparse_mla_decode.cu; sparse_mla_decode_warpgroup.cu of rows of 656 bytes, and sparse_mla_decode_warpgroup_16bit.cu. */
static void describe_sparse_mla(const struct grid_variant *variant, struct libdecode_launch_contract *ret) {
    const bool small = variant->target == 120, is_wide = variant->row_tile > MMA_ROWS;
    const bool is_narrow = !small && variant->row_tile == 16;
    const bool has_teams = is_narrow && variant->kv_dtype == KERNEL_DTYPE_E4M3 && variant->cluster_size <= 2;
    const bool has_short_tiles = small || has_teams || (variant->row_tile == MMA_ROWS && variant->cluster_size > 1);
    const bool has_many_warps = is_narrow && !has_teams && variant->head_dim > 320 && variant->kv_dtype != KERNEL_DTYPE_NVFP4;
    const bool has_score_warps = is_wide && variant->kv_row_format == KERNEL_KV_ROW_SCALED656;
    ret->tile_tokens = has_short_tiles ? WARPGROUP_TILE_TOKENS / 2 : WARPGROUP_TILE_TOKENS;
    ret->consumer_warps = (has_many_warps ? 2u : 1u) * WARPGROUP_CONSUMERS + (has_score_warps ? SCORE_WARPS : 0u);
    ret->ctas_per_sm = 1;
    ret->max_box_tokens = is_wide && !has_score_warps ? WARPGROUP_TILE_TOKENS : WARPGROUP_TILE_TOKENS / 2;
    ret->threads = 32 * (ret->consumer_warps + 4);
    ret->kv_row_format = variant->kv_row_format;
}

/* ------------------------------------------------------------------------------------------------------- any of the three */

static const char *kv_dtype_name(uint32_t number) {
    size_t place = 0;
    while (place < FIXTURE_KV_DTYPES && fixture_kv_dtypes[place].number != number)
        place++;
    if (place == FIXTURE_KV_DTYPES)
        abort(); /* a dtype that bundle_fixture.c does not know */
    return fixture_kv_dtypes[place].name;
}

void variant_name(const struct grid_variant *variant, char ret_name[BUNDLE_MAX_NAME_BYTES]) {
    static const char *const row_formats[] = {
        [KERNEL_KV_ROW_PLAIN] = "plain", [KERNEL_KV_ROW_SCALED656] = "scaled656", [KERNEL_KV_ROW_NVFP352] = "nvfp352"};
    const char *const family = family_find(variant->family)->name, *const dtype = kv_dtype_name(variant->kv_dtype);
    char rows[32] = "", pages[16] = "", options[16] = "";
    if (variant->family == KERNEL_FAMILY_SPARSE_MLA_DECODE)
        (void)snprintf(rows, sizeof rows, "_rows%s", row_formats[variant->kv_row_format]);
    if (variant->family == KERNEL_FAMILY_GQA_DECODE) {
        (void)snprintf(pages, sizeof pages, "_p%u", variant->min_page_size);
        (void)snprintf(options, sizeof options, "_o%u", variant->options);
    }
    (void)snprintf(ret_name, BUNDLE_MAX_NAME_BYTES, "%s_kv%s%s_d%u_r%u%s_c%u%s_sm%u", family, dtype, rows, variant->head_dim,
                   variant->row_tile, pages, variant->cluster_size, options, variant->target);
}

bool variant_decodes(const struct grid_variant *variant) { return family_find(variant->family)->op != 0; }

struct libdecode_launch_contract variant_contract(const struct grid_variant *variant) {
    const struct libdecode_launch_contract known = grid_contract(variant);
    struct libdecode_launch_contract contract = fixture_contract();
    contract.family = known.family;
    contract.parameter_bytes = (uint32_t)family_find(variant->family)->parameter_bytes;
    contract.query_dtypes = known.query_dtypes;
    contract.kv_dtype = known.kv_dtype;
    contract.out_dtypes = known.out_dtypes;
    contract.head_dim = known.head_dim;
    contract.row_tile = known.row_tile;
    contract.cluster_size = known.cluster_size;
    contract.min_page_size = known.min_page_size;
    contract.max_page_size = known.max_page_size;
    contract.max_q_len = known.max_q_len;
    contract.features = known.features;
    contract.flags = known.flags & ~(uint32_t)CONTRACT_FLAG_MAY_SPILL;
    if (variant->family == KERNEL_FAMILY_GQA_DECODE)
        describe_batch_decode(variant, &contract);
    else if (variant->family == KERNEL_FAMILY_MLA_DECODE)
        describe_mla(variant, &contract);
    else
        describe_sparse_mla(variant, &contract);
    contract.dynamic_shared_bytes = variant->target == 120 ? 98304 : contract.ctas_per_sm == 2 ? 77824 : 180224;
    return contract;
}
