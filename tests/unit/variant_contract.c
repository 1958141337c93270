/* SPDX-License-Identifier: Apache-2.0 */
/* variant_contract.c: what grid.c knows of a variant, and the arithmetic of kernels' Traits, by the same names. */
#include "variant_contract.h"

#include <stdbool.h>

#include "bundle_fixture.h"
#include "dtype.h"

enum { FRAGMENT_TOKENS = 16, WARPGROUP_TILE_TOKENS = 64, WARPGROUP_CONSUMERS = 8, MMA_ROWS = 32, SCALED_BLOCK = 16 };

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

struct libdecode_launch_contract variant_contract(const struct grid_variant *variant) {
    const struct libdecode_launch_contract known = grid_contract(variant);
    const bool gathers_rows = variant->min_page_size < FRAGMENT_TOKENS, has_scales = variant->kv_dtype == KERNEL_DTYPE_NVFP4;
    struct libdecode_launch_contract contract = fixture_contract();
    contract.query_dtypes = known.query_dtypes;
    contract.kv_dtype = known.kv_dtype;
    contract.out_dtypes = known.out_dtypes;
    contract.head_dim = known.head_dim;
    contract.row_tile = known.row_tile;
    contract.cluster_size = known.cluster_size;
    contract.min_page_size = known.min_page_size;
    contract.max_q_len = known.max_q_len;
    contract.features = known.features;
    contract.flags = known.flags & ~(uint32_t)CONTRACT_FLAG_MAY_SPILL;
    if (variant->row_tile > MMA_ROWS) { /* gqa_decode_warpgroup.cu */
        contract.tile_tokens = WARPGROUP_TILE_TOKENS;
        contract.consumer_warps = WARPGROUP_CONSUMERS;
        contract.ctas_per_sm = 1;
    } else {
        divide_among_warps(variant, &contract);
    }
    contract.max_box_tokens = gathers_rows ? FRAGMENT_TOKENS : contract.tile_tokens;
    /* A copying warp each for K and V, four where rows come one by one; one that hands out work, one for scales. */
    contract.threads = 32 * (contract.consumer_warps + (gathers_rows ? 8 : 2) + 1 + (has_scales ? 1 : 0));
    contract.dynamic_shared_bytes = variant->target == 120 ? 98304 : contract.ctas_per_sm == 2 ? 77824 : 180224;
    return contract;
}
