/* SPDX-License-Identifier: Apache-2.0 */
/* tile_walk.cuh: a consumer warp on its way over the tiles of a piece: those of its team, in order, and their places in the ring. */
#pragma once

#include "pipeline/kv_ring.cuh"
#include "tile/unit_rows.cuh"

namespace pipeline {

/* By tokens alone. `end_token`: of the piece, the same for every call. */
template <int tile_tokens, int teams, class Ring>
class TeamTiles {
  public:
    /* `first_team`: takes the piece's first tile. */
    __device__ __forceinline__ TeamTiles(int first_token, int end_token, int first_team, int team, Ring &ring)
        : ring_(ring), token_(first_token) {
        if (teams > 1) /* to this team's first */
            step((team + teams - first_team) % teams, end_token);
    }

    /* The tile's first; past the last tile not below `end_token`. */
    __device__ __forceinline__ int token() const { return token_; }
    __device__ __forceinline__ void next(int end_token) { step(teams, end_token); }

  private:
    /* Past so many tiles, or past the last. */
    __device__ __forceinline__ void step(int tiles, int end_token) {
        const int left = (max(end_token - token_, 0) + tile_tokens - 1) / tile_tokens;
        ring_.advance(teams == 1 ? tiles : min(tiles, left));
        token_ += tiles * tile_tokens;
    }

    Ring &ring_;
    int token_;
};

/* And what their rows see. `keeps`: what is read of the rows for every tile stays in registers; else it is read again. */
template <int row_tile, int tile_tokens, int teams, bool keeps, class Ring>
class TileWalk {
  public:
    __device__ __forceinline__ TileWalk(const tile::UnitRows<row_tile> &rows, int first_team, int team, Ring &ring)
        : rows_(rows), kept_end_(rows.end_token), kept_common_(rows.common), kept_are_alike_(rows.are_alike),
          tiles_(rows.first_token, rows.end_token, first_team, team, ring) {}

    __device__ __forceinline__ bool has_tile() const { return tiles_.token() < end_token(); }
    __device__ __forceinline__ void next() { tiles_.next(end_token()); }

    /* `count` tokens of the tile, from its token `first` on. */
    template <int count>
    __device__ __forceinline__ tile::WarpTokens<row_tile, count> tokens(int first) const {
        return {rows_, keeps ? kept_are_alike_ : rows_.are_alike, tiles_.token() + first, end_token(),
                keeps ? kept_common_ : rows_.common};
    }

  private:
    __device__ __forceinline__ int end_token() const { return keeps ? kept_end_ : rows_.end_token; }

    const tile::UnitRows<row_tile> &rows_;
    const int kept_end_;
    const tile::TokenRange kept_common_;
    const bool kept_are_alike_;
    TeamTiles<tile_tokens, teams, Ring> tiles_;
};

/* Every tile is given back as it came. `ring`: that of the walk. */
template <class Walk, class Ring>
__device__ __forceinline__ void release_tiles(Walk walk, const Ring &ring, int lane) {
    for (; walk.has_tile(); walk.next()) {
        for (const Tensor tensor : {tensor_k, tensor_v}) {
            ring.wait_full(tensor);
            ring.release(tensor, lane);
        }
    }
}

} // namespace pipeline
