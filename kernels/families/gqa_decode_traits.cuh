/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gqa_decode_traits.cuh: what a variant of gqa_decode.cu is made of: tiles, stages and warps, by its KV format, head_dim, row tile,
 * cluster and options, and by what an SM of its target has.
 */
#pragma once

#include <algorithm>

#include "abi.h"
#include "tile/kv_format.cuh"
#include "variant.cuh"

namespace gqa_decode {

struct Traits {
    static constexpr int dtype = VARIANT_KV_DTYPE;
    static constexpr int head_dim = VARIANT_HEAD_DIM;
    static constexpr int row_tile = VARIANT_ROW_TILE;
    static constexpr int min_page_size = VARIANT_MIN_PAGE_SIZE;
    static constexpr int cluster_size = VARIANT_CLUSTER_SIZE;
    /* What few launches ask for: none else jumps over it, nor those that ask for RoPE, or for all but RoPE, over what they do not ask for. */
    static constexpr bool bends_scores = VARIANT_OPTIONS == 1 || VARIANT_OPTIONS == 3; /* soft cap, ALiBi; and skip-softmax */
    static constexpr bool only_rope = VARIANT_OPTIONS == 4;
    static constexpr bool has_options = bends_scores || only_rope;
    static constexpr bool has_offsets = VARIANT_OPTIONS == 2; /* likewise: a place of its own for each request */
    static constexpr bool gathers_rows = min_page_size < tile::fragment_tokens;
    using Format = tile::KvFormat<dtype, head_dim>;
    static_assert(head_dim == 64 || head_dim == 128 || head_dim == 256 || head_dim == 512, "head_dim in the .toml");
    static_assert(row_tile == 8 || row_tile == 16 || row_tile == 32, "row_tile in the .toml: 8, 16 or 32");
    static_assert(VARIANT_OPTIONS >= 0 && VARIANT_OPTIONS <= 4, "options in the .toml: 0 to 4");
    static_assert(min_page_size == 1 || min_page_size == 16 || min_page_size == 64, "min_page_size in the .toml: 1, 16 or 64");

    static constexpr bool small = variant::target_sm == 120; /* 99 KiB of shared memory, a fifth of the bandwidth */
    static constexpr bool wide = head_dim >= 256;            /* the accumulators of 16 rows fill the registers */
    static constexpr bool converts = Format::converts_query; /* operands are made in registers */
    static constexpr bool has_scales = Format::scale_bytes > 0;
    static constexpr bool crowded = wide && has_scales;                  /* eight consumer warps would spill */
    static constexpr int rows_per_warp = row_tile < 16 || wide ? 8 : 16; /* two instructions share every K and V fragment */
    static constexpr int row_warps = row_tile / rows_per_warp;           /* warps that read the same tokens for other rows */
    /*
     * 64 tokens a warp at a time, whose instructions do not wait for each other: much arithmetic, and registers to spare. Clusters of
     * eight are for short units, whose end they would hold up.
     */
    static constexpr bool long_steps =
        converts && row_tile == 8 && head_dim == 128 && !gathers_rows && (has_scales || cluster_size < 8);

    /*
     * All of an SM for one CTA: half as many workers as with two, so half as many units that are split between them. Rows of 64 come
     * with short units (windows) and with many: then two CTAs hide each other's beginnings and ends.
     */
    static constexpr int ctas_per_sm = head_dim == 64 && row_tile == 8 && cluster_size == 1 && !gathers_rows && !small ? 2 : 1;

    /* Two where rows are divided as well, which leaves warps for a second team; sm_100 is two registers short of that. */
    static constexpr bool divides_rows = row_warps > 1 && variant::target_sm == 90 && !converts;
    /* No shared memory for the frequencies of 256 pairs there; no registers to turn keys beside two fragments of rows here. */
    static constexpr bool computes_rope =
        (VARIANT_OPTIONS == 1 || only_rope) && !(small && head_dim > 256 && converts) && !(divides_rows && gathers_rows);
    static_assert(!only_rope || computes_rope, "the .toml: o4");
    static constexpr bool few_token_warps = small || crowded || row_warps > 2 || divides_rows || (long_steps && !has_scales);
    static constexpr int most_token_warps = few_token_warps ? 2 : 4;
    /* What is converted in registers leaves them for the scores of 32 tokens a warp, with 16 rows of 128 for those of 16. */
    static constexpr int most_warp_tokens = long_steps ? 64 : rows_per_warp == 16 && head_dim == 128 ? 16 : 32;
    static constexpr int most_tile_tokens = converts ? most_warp_tokens * most_token_warps : 128;
    /* 16 KiB of K and of V a stage at most; on sm_120 half of that. */
    static constexpr int tile_tokens =
        std::max(std::min((small ? 8192 : 16384) / Format::row_bytes, most_tile_tokens), tile::fragment_tokens);
    static constexpr int token_warps =
        most_token_warps * tile::fragment_tokens <= tile_tokens ? most_token_warps : tile_tokens / tile::fragment_tokens;
    static constexpr int team_warps = row_warps * token_warps;
    /* A gather's own warps leave registers for no more than four, nor do wide rows. */
    static constexpr int most_consumer_warps = (small || gathers_rows || head_dim > 256 || crowded ? 4 : 8) / ctas_per_sm;
    /*
     * Teams take turns at the tiles. The steps of one tile wait for each other, some 1000 clocks of it: four warps, one tile at a
     * time, take in 32 bytes a clock, fewer than an SM can get from memory.
     */
    static constexpr int most_teams = team_warps >= most_consumer_warps ? 1 : most_consumer_warps / team_warps;
    /* 96-128 KiB in flight per SM reach the read ceiling with random 16-token pages; an eighth more for what is no row of KV. */
    using TileLayout = tile::TileLayout<Format, tile_tokens>;
    static constexpr int most_stages = std::min((small ? 34816 : 73728) / ctas_per_sm / TileLayout::bytes, 16);
    static constexpr int teams = std::min(most_teams, most_stages);
    /* A stage is one team's, and one producer's: a warp that skips some of its rounds could not tell its phases apart. */
    static constexpr int usual_stages = most_stages / teams * teams;
    /*
     * Short launches, whose time is that to the first byte and from the last one, read a final history ahead as far as shared memory
     * has room: half as many stages more, in place of what folds all eight rows of a group at once.
     */
    static constexpr bool reads_ahead = cluster_size == 8 && row_tile == 8 && head_dim == 128 && !converts && !gathers_rows &&
                                        !has_options && !has_offsets && !small;
    static constexpr int stages = reads_ahead ? usual_stages * 3 / 2 : usual_stages;
    static_assert((stages - usual_stages) % teams == 0, "Producer::wait_empty: places of the same team");
    static constexpr int row_parts = reads_ahead ? 2 : 1; /* of a fold */
    static constexpr int consumer_warps = teams * team_warps;
    static constexpr int consumer_threads = consumer_warps * 32;
    /*
     * Of K, and as many of V, whose first copies so go out together. Beside much arithmetic one waits too long for its turns; a final
     * history comes as fast as copies are sent for, and so do rows of 64 bytes and less, of which a box is little, where one CTA has an SM: NVFP4, 32/8
     * heads, 8 x 4,096 takes 13.5 us for 16.9. Of 16 rows in fours and eights, and of more, some shapes lose what others gain. A gather takes as many as
     * registers allow.
     */
    static constexpr int most_gather_warps = wide || consumer_warps > 4 ? 1 : row_tile == 8 ? 4 : 2;
    static constexpr int gather_warps = variant::target_sm == 90 ? most_gather_warps : (most_gather_warps + 1) / 2;
    static constexpr bool small_boxes =
        converts && head_dim == 64 && ctas_per_sm == 1 && (row_tile == 8 || (row_tile == 16 && cluster_size <= 2));
    static constexpr int box_warps = reads_ahead || ((long_steps || small_boxes) && variant::target_sm == 90) ? 2 : 1;
    static constexpr int tensor_warps = gathers_rows ? gather_warps : box_warps;
    /* For operands that are made while the tensor core reads those before. What moves registers are warpgroups: idle warps fill the last. */
    static constexpr bool moves_registers = long_steps && (has_scales || has_options) && variant::target_sm == 90;
    static constexpr int scale_warps = !has_scales ? 0 : moves_registers ? 2 : 1; /* two need fewer registers each */
    static constexpr int first_scale_warp = consumer_warps + 2 * tensor_warps;
    static constexpr int announcer_warp = first_scale_warp + scale_warps;
    static constexpr int idle_warps = moves_registers ? 3 - announcer_warp % 4 : 0;
    static constexpr int threads = (announcer_warp + 1 + idle_warps) * 32;
    static constexpr int consumer_registers = 168, other_registers = 88;
    static_assert(!moves_registers || (consumer_warps % 4 == 0 &&
                                       consumer_registers * consumer_threads + other_registers * (threads - consumer_threads) <=
                                           (65536 / threads & -8) * threads),
                  "registers of an SM");
    static constexpr int tokens_per_warp = tile_tokens / token_warps;
    static constexpr int box_tokens = gathers_rows ? tile::fragment_tokens : tile_tokens; /* at most, that count as one */
    static constexpr int token_fragments = tokens_per_warp / tile::fragment_tokens;
    /*
     * Of which instructions stand beside each other. Those of all of NVFP4 are as much as the caches of instructions hold: where pages are small, the warps
     * that copy have much to do, and take turns there with those that multiply, and so do short units with what each runs once. Then half of them, in two
     * turns of the same code. With options that loses.
     */
    static constexpr int fragments_at_once =
        has_scales && long_steps && !has_options && min_page_size == 16 && variant::target_sm == 90 ? token_fragments / 2
                                                                                                    : token_fragments;
    static constexpr int row_fragments = rows_per_warp / 8;
    /*
     * Passes over tiles, where the ring has places for two of a team and registers hold the scores of one beside the weights of another;
     * who waits for V behind every vote takes longer than who reads it all.
     */
    static constexpr bool skips = bends_scores && stages >= 2 * teams && token_fragments * row_fragments <= 2;
    /* Registers, or a few words of local memory, for a query in f32 beside all that; kernels of e5m2 may use none. */
    static constexpr bool turns_query = computes_rope && row_tile == 8 && head_dim <= 128 && dtype != KERNEL_DTYPE_E5M2;
    /* For as many tiles as 16 KiB of tables for their keys serve, of shared memory that would lie idle. */
    static constexpr int key_table_bytes = token_fragments * 16 * head_dim * (Format::matrix_dtype == KERNEL_DTYPE_BF16 ? 4 : 2);
    static constexpr int tiles_per_turn = small ? 1 : std::clamp(16384 / key_table_bytes, 1, 4);
    /*
     * The next piece's query on its way while one is folded, but for two CTAs, which hide each other's trips. What is wide has no registers
     * beside its accumulators, nor has NVFP4 with two fragments of rows, or a gather of rows that are divided.
     */
    static constexpr bool loads_query_ahead =
        !wide && ctas_per_sm == 1 && !(has_scales && row_fragments > 1) && !(divides_rows && gathers_rows);
};

} // namespace gqa_decode
