/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unit_rows.cuh: the rows of a unit: which query tokens they are, and which KV tokens each of them sees. Lies in shared memory,
 * written by pipeline/describe_rows.cuh, a lane for every row; only the tiles at the edges of what all rows see read it.
 */
#pragma once

#include <cstdint>
#include <type_traits>

#include "tile/token_range.cuh"

namespace tile {

/* All bits below bit `n`, whatever `n` is. */
template <class Bits>
__device__ __forceinline__ Bits bits_below(int n) {
    constexpr int width = sizeof(Bits) * 8;
    return n >= width ? static_cast<Bits>(~Bits{0}) : static_cast<Bits>((Bits{1} << max(n, 0)) - 1);
}

/* A bit for every token from `first_token` on: those that lie in the range. */
template <class Bits>
__device__ __forceinline__ Bits bits_of(const TokenRange &range, int first_token) {
    return bits_below<Bits>(range.end - first_token) & ~bits_below<Bits>(range.first - first_token);
}

/* What ALiBi and RoPE ask of a row. */
struct RowPlace {
    float alibi_slope; /* in base 2, for every position between token and query; 0 without ALiBi */
    int distance;      /* of token 0 from the query, in positions */
};

template <int row_tile>
struct UnitRows {
    int first_query_token; /* of the request, among those of the launch */
    int live_rows;         /* of the unit; the others are padding */
    int first_token;       /* of this CTA's boxes; where they end, or the sequence */
    int end_token;
    int first_draft;    /* token of the sequence; INT32_MAX: there is no mask */
    float skip_below;   /* pipeline/skip_votes.cuh; written where tiles may be passed over */
    bool are_alike;     /* every live row sees `common`, and nothing else */
    TokenRange common;  /* before end_token, that all live rows see */
    TokenRange any;     /* that one of them sees, but for drafts */
    uint64_t any_draft; /* likewise, of drafts */
    TokenRange range[row_tile];
    uint64_t drafts[row_tile];
    RowPlace place[row_tile]; /* where a launch has ALiBi or RoPE */
};

/* Where all rows see the same tokens, those that their query token selects, nothing is kept of each. */
constexpr int rows_alike = 0;
template <>
struct UnitRows<rows_alike> {
    int first_query_token, live_rows, first_token, end_token;
};

/* A warp's tokens of a tile, `count` from `first_token` on, and who sees them. */
template <int row_tile, int count>
struct WarpTokens {
    static_assert(count <= 64, "a bit for every token");
    using Bits = std::conditional_t<(count > 32), uint64_t, uint32_t>;

    const UnitRows<row_tile> &rows;
    const bool are_alike;
    const int first_token, end_token;
    const TokenRange common; /* that all rows see */

    __device__ __forceinline__ bool all_visible() const {
        return first_token >= common.first && first_token + count <= common.end;
    }
    /* False: no row sees one of them. */
    __device__ __forceinline__ bool any_visible() const {
        return first_token < end_token && !(are_alike && common.first - first_token >= count);
    }

    /* A bit for every token: those that the row sees; those that any row sees. */
    __device__ __forceinline__ Bits seen_by(int row) const {
        return are_alike ? bits_of<Bits>(common, first_token) : with_drafts(rows.range[row], rows.drafts[row]);
    }
    __device__ __forceinline__ Bits seen_by_any() const {
        return are_alike ? bits_of<Bits>(common, first_token) : with_drafts(rows.any, rows.any_draft);
    }

  private:
    /* The range ends where drafts begin; the window, before which nothing is seen, may begin among them. */
    __device__ __forceinline__ Bits with_drafts(const TokenRange &range, uint64_t drafts) const {
        const int shift = rows.first_draft - first_token;
        const uint64_t placed = shift >= 64 || shift <= -64 ? 0 : shift >= 0 ? drafts << shift : drafts >> -shift;
        return bits_of<Bits>({range.first, end_token}, first_token) &
               (bits_below<Bits>(range.end - first_token) | static_cast<Bits>(placed));
    }
};

} // namespace tile
