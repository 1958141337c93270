/* SPDX-License-Identifier: Apache-2.0 */
/*
 * row_copier.cuh: warps that copy the rows of the token list, elements of 16 bits as they lie, to tiles as the copy engine would leave them,
 * part_ring.cuh's [line][token][128 bytes], part after part. A row that does not exist becomes zeros. A copy of a warp is of two rows, a piece
 * of V of each, or of the last line of four: whole lines of memory.
 *
 * What lies in a tile was stored, not copied by the engine, so who multiplies it makes it known to the matrix instructions (LatentSeesaw). Nobody
 * waits here for what is on its way: barriers are told when it is there.
 */
#pragma once

#include <cstdint>

#include "pipeline/part_ring.cuh"
#include "pipeline/token_list.cuh"
#include "ptx/async_copy.cuh"

namespace pipeline {

/* `warps` of them. */
template <class Ring, int warps>
class RowCopier {
    static constexpr int line_lanes = 128 / 16; /* that copy a line of a row */
    static constexpr int piece_rows = 32 / (Ring::piece_lines * line_lanes), last_line_rows = 32 / line_lanes; /* of a copy */

  public:
    /* On the barrier of a part: when what a lane copies is there, and one behind what is said of the tile. */
    static constexpr int arrivals = warps * 32 + 1;

    __device__ __forceinline__ RowCopier(TokenList &list, Ring ring, uint64_t *seen, uint32_t warp, uint32_t lane)
        : ring_(ring), turn_(list), seen_(seen), warp_(warp), lane_(lane) {}

    /* may_copy(): returns once the first rows may be asked for. */
    template <class MayCopy>
    __device__ __forceinline__ void run(MayCopy may_copy) {
        turn_.wait_full();
        if (!turn_.tile().end_of_work)
            may_copy();
        for (; !turn_.tile().end_of_work; turn_.wait_full()) {
            copy_tile(turn_.tile());
            turn_.release(static_cast<int>(lane_));
            turn_.advance();
            ring_.advance();
        }
    }

  private:
    __device__ __forceinline__ void copy_tile(const TokenList::Tile &tile) {
#pragma unroll
        for (int part = 0; part < Ring::parts; ++part) {
            ring_.wait_empty(part);
            const uint32_t first_line = Ring::first_line(ring_.stage(), part);
            if (part == 0)
                copy_lines<last_line_rows>(tile, first_line);
            else
                copy_lines<piece_rows>(tile, first_line);
            ptx::mbarrier_arrive_after_copies(ring_.full_barrier(part));
            if (warp_ == 0 && lane_ == 0) {
                if (part == 0) /* who read what the tile before had has given the last line back */
                    seen_[ring_.stage()] = tile.seen;
                ptx::mbarrier_arrive(ring_.full_barrier(part));
            }
        }
    }

    /* As many lines as `rows` rows leave lanes for. */
    template <int rows>
    __device__ __forceinline__ void copy_lines(const TokenList::Tile &tile, uint32_t first_line) const {
        const uint32_t lanes = 32 / rows, line = first_line + lane_ % lanes / line_lanes, chunk = lane_ % line_lanes;
        const uint32_t lines = ring_.tile(ring_.stage()) + line * Ring::line_bytes;
#pragma unroll
        for (uint32_t round = 0; round < (TokenList::tile_tokens / rows + warps - 1) / warps; ++round) {
            const uint32_t token = (round * warps + warp_) * rows + lane_ / lanes;
            if (token >= TokenList::tile_tokens)
                break;
            const uint8_t *const row = tile.row[token];
            ptx::copy_async<16>(lines + token * 128 + (chunk ^ token % 8) * 16, row + line * 128 + chunk * 16, row != nullptr);
        }
    }

    Ring ring_;
    TokenListTurn turn_;
    uint64_t *const seen_;
    const uint32_t warp_, lane_;
};

} // namespace pipeline
