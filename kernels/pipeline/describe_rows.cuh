/* SPDX-License-Identifier: Apache-2.0 */
/*
 * describe_rows.cuh: what each row of a unit sees, by its query token: lengths, positions, window and draft mask in, tile/unit_rows.cuh
 * out. The announcer warp does so for every piece: what the consumers alone need holds up no copy.
 */
#pragma once

#include <cstdint>

#include "abi.h"
#include "pipeline/split_schedule.cuh"
#include "tile/constants.cuh"
#include "tile/unit_rows.cuh"

namespace pipeline {

/* The bits of a query token's row of the draft mask, of as many draft tokens as the request has. */
__device__ __forceinline__ uint64_t load_draft_bits(const schedule_params &params, const QueryTokens &query, int token) {
    const int halves = (params.q_len + 31) / 32 * 2;
    const uint16_t *const row = params.draft_mask + static_cast<int64_t>(query.first + token) * halves;
    uint64_t bits = 0;
#pragma unroll 1
    for (int half = 0; half < halves; ++half)
        bits |= static_cast<uint64_t>(row[half]) << (half * 16);
    return query.count < 64 ? bits & ((uint64_t{1} << query.count) - 1) : bits;
}

__device__ __forceinline__ uint64_t or_of_warp(uint64_t bits) {
    const uint32_t low = __reduce_or_sync(0xffffffffu, static_cast<uint32_t>(bits));
    return static_cast<uint64_t>(__reduce_or_sync(0xffffffffu, static_cast<uint32_t>(bits >> 32))) << 32 | low;
}

/* The length of the unit's sequence. */
__device__ __forceinline__ int tokens_of_unit(const schedule_params &params, const Sequences &sequences, const Piece &piece) {
    if (!rarely((params.rare & SCHEDULE_EXACT_RANGES) != 0))
        return piece.end_token; /* the newest is a query */
    const int head = params.sequences_per_request.value == 1 ? 0 : piece.kv_head;
    return sequences.tokens_of(
        sequences.load_length(piece.request * static_cast<int>(params.sequences_per_request.value) + head));
}

/* Where every row is of the same query token, and sees what its unit does, there is little to say. */
__device__ __forceinline__ bool are_rows_alike(const schedule_params &params) {
    return params.q_len == 1 && params.draft_mask == nullptr;
}

/* Whether the consumers ask where the rows stand. */
__device__ __forceinline__ bool asks_places(const query_params &query_rows) {
    return query_rows.alibi_slopes != nullptr || query_rows.rotates != 0;
}

/* Of a unit's rows, those that are query heads. */
template <int row_tile>
__device__ __forceinline__ int live_rows(const schedule_params &params, const QueryTokens &query, const Piece &piece) {
    return min(max(query.count * static_cast<int>(params.group_size.value) - piece.row_pass * row_tile, 0), row_tile);
}

/* By one lane: which query tokens the rows of a unit are, which a consumer needs first, to load them; and that little. */
template <int row_tile>
__device__ __forceinline__ void name_rows(const schedule_params &params, const QueryTokens &query, const Piece &piece,
                                          tile::UnitRows<row_tile> &rows) {
    rows.first_query_token = query.first;
    rows.live_rows = live_rows<row_tile>(params, query, piece);
    const int box_shift = __ffs(params.box_tokens) - 1;
    rows.first_token = piece.first_box << box_shift;
    rows.end_token = min(piece.end_token, piece.end_box << box_shift);
    rows.common = {piece.first_token, rows.end_token};
    rows.are_alike = true;
}

/* The rest, a lane for every row of 32; complete for those that synchronise with all lanes. */
template <bool has_options, int row_tile>
__device__ __forceinline__ void describe_rows(const schedule_params &params, const query_params &query_rows,
                                              const Sequences &sequences, const QueryTokens &query, const Piece &piece,
                                              tile::UnitRows<row_tile> &rows, int lane) {
    const int tokens = tokens_of_unit(params, sequences, piece);
    const bool has_mask = params.draft_mask != nullptr;
    const int first_draft = has_mask ? tokens - query.count : INT32_MAX;
    uint64_t any_draft = 0; /* these of the lane's rows */
    int common_first = 0, common_end = INT32_MAX, any_first = INT32_MAX, any_end = 0;
#pragma unroll 1
    for (int row = lane; row < row_tile; row += 32) {
        const int unit_row = piece.row_pass * row_tile + row, token = quotient(unit_row, params.group_size);
        const bool is_live = token < query.count;
        const QueryView view(sequences, piece.request, query, token, tokens);

        uint64_t drafts = 0;
        if (has_mask && is_live && view.exists)
            drafts = load_draft_bits(params, query, token);
        /* What sees nothing begins behind every token. */
        const bool sees_some = is_live && view.exists && (view.range.end > view.range.first || drafts != 0);
        const int first = sees_some ? view.range.first : INT32_MAX;
        if (has_mask) /* the row's window begins among its drafts: what lies before, another row may see, or none */
            drafts &= ~tile::bits_below<uint64_t>(view.range.first - first_draft);
        const int end = sees_some ? min(view.range.end, first_draft) : 0;
        rows.range[row] = {first, end};
        rows.drafts[row] = drafts;
        any_draft |= sees_some ? drafts : 0;
        common_first = max(common_first, is_live ? first : 0);
        common_end = min(common_end, is_live ? end : INT32_MAX);
        any_first = min(any_first, first);
        any_end = max(any_end, end);
        if (has_options && asks_places(query_rows)) {
            /* Padding has none: what it scored would decide when the rows beside it are rescaled, and so their last bits. */
            const int heads = params.group_size.value, head = piece.kv_head * heads + unit_row - token * heads;
            const bool has_slope = is_live && query_rows.alibi_slopes != nullptr;
            rows.place[row].alibi_slope = has_slope ? query_rows.alibi_slopes[head] * tile::log2_e : 0.f;
            rows.place[row].distance = is_live ? static_cast<int>(params.position_offset - view.position) : 0;
        }
    }
    any_draft = or_of_warp(any_draft);
    common_first = __reduce_max_sync(0xffffffffu, common_first);
    common_end = __reduce_min_sync(0xffffffffu, common_end);
    any_first = __reduce_min_sync(0xffffffffu, any_first);
    any_end = __reduce_max_sync(0xffffffffu, any_end);
    if (lane == 0) {
        rows.first_draft = first_draft;
        rows.any = {any_first, any_end};
        rows.any_draft = any_draft;
        rows.common = {common_first, min(common_end, rows.end_token)};
        rows.are_alike = !has_mask && any_first == common_first && any_end == common_end;
    }
}

} // namespace pipeline
