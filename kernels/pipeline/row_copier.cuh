/* SPDX-License-Identifier: Apache-2.0 */
/*
 * row_copier.cuh: warps that copy the rows of the token list to tiles, as the copy engine would leave them. A row that does not exist becomes
 * zeros. Whole lines of memory, or the most of them that a row has, go with one copy of a warp.
 *
 * What lies in a tile was stored, not copied by the engine, so who multiplies it makes it known to the matrix instructions (LatentSeesaw,
 * LatentRelay). Nobody waits here for what is on its way: barriers are told when it is there.
 */
#pragma once

#include <cstdint>

#include "pipeline/kv_ring.cuh"
#include "pipeline/part_ring.cuh"
#include "pipeline/token_list.cuh"
#include "ptx/async_copy.cuh"

namespace pipeline {

/* One of `warps` that copy. */
struct CopierPlace {
    uint32_t warp, lane;
};

/*
 * Elements of 16 bits as they lie, to part_ring.cuh's [line][token][128 bytes], part after part: a copy of a warp is of two rows, a piece of
 * V of each, or of the last line of four.
 */
template <class Ring, int warps>
class PartCopies {
    static constexpr int line_lanes = 128 / 16; /* that copy a line of a row */
    static constexpr int piece_rows = 32 / (Ring::piece_lines * line_lanes), last_line_rows = 32 / line_lanes; /* of a copy */

  public:
    /*
     * is_there(barrier, is_first): told of each part. What is said of the whole tile goes with the first one, as who read what was said of the one
     * before has given that back.
     */
    template <class IsThere>
    static __device__ __forceinline__ void copy(const TokenList::Tile &tile, const Ring &ring, CopierPlace place,
                                                IsThere is_there) {
#pragma unroll
        for (int part = Ring::first_part; part < Ring::parts; ++part) {
            ring.wait_empty(part);
            const uint32_t first_line = Ring::first_line(ring.stage(), part);
            if (part == 0)
                copy_lines<last_line_rows>(tile, ring, first_line, place);
            else
                copy_lines<piece_rows>(tile, ring, first_line, place);
            is_there(ring.full_barrier(part), part == Ring::first_part);
        }
    }

  private:
    /* As many lines as `rows` rows leave lanes for. */
    template <int rows>
    static __device__ __forceinline__ void copy_lines(const TokenList::Tile &tile, const Ring &ring, uint32_t first_line,
                                                      CopierPlace place) {
        const uint32_t lanes = 32 / rows, line = first_line + place.lane % lanes / line_lanes, chunk = place.lane % line_lanes;
        const uint32_t lines = ring.tile(ring.stage()) + line * Ring::line_bytes;
#pragma unroll
        for (uint32_t round = 0; round < (TokenList::tile_tokens / rows + warps - 1) / warps; ++round) {
            const uint32_t token = (round * warps + place.warp) * rows + place.lane / lanes;
            if (token >= TokenList::tile_tokens)
                break;
            const uint8_t *const row = tile.row[token];
            ptx::copy_async<16>(lines + token * 128 + (chunk ^ token % 8) * 16, row + line * 128 + chunk * 16, row != nullptr);
        }
    }
};

/*
 * Bytes as they lie, to a tile of `Format` whose lines have all of its tokens, [line][token][64 bytes]: a copy of a warp is of 256 bytes of two rows,
 * neighbours, which lie in different banks, or of the last 64 of eight.
 */
template <class Ring, class Format, int warps>
class ByteCopies {
    static constexpr uint32_t chunks = Format::row_bytes / 16, wide_chunks = 16, last_chunks = chunks % wide_chunks;
    static constexpr uint32_t line_chunks = 4, line_stride_bytes = TokenList::tile_tokens * line_chunks * 16;
    static_assert(Format::Rows::line_bytes == line_chunks * 16 && Format::scale_bytes == 0, "rows of whole lines");

  public:
    template <class IsThere>
    static __device__ __forceinline__ void copy(const TokenList::Tile &tile, const Ring &ring, CopierPlace place,
                                                IsThere is_there) {
        ring.wait_empty(tensor_k);
        copy_columns<wide_chunks, chunks / wide_chunks>(tile, ring, 0, place);
        if constexpr (last_chunks > 0)
            copy_columns<last_chunks, 1>(tile, ring, chunks - last_chunks, place);
        is_there(ring.full_barrier(tensor_k), true);
    }

  private:
    /*
     * `columns` times `width` chunks of the warp's rows, from `first_chunk` on. Where some rows lie is read before the first of them is copied: shared
     * memory answers late while matrix instructions run.
     */
    template <uint32_t width, uint32_t columns>
    static __device__ __forceinline__ void copy_columns(const TokenList::Tile &tile, const Ring &ring, uint32_t first_chunk,
                                                        CopierPlace place) {
        constexpr uint32_t rows = 32 / width, warp_tokens = TokenList::tile_tokens / warps, copies = warp_tokens / rows;
        constexpr uint32_t together = copies < 8 ? copies : 8;
        static_assert(TokenList::tile_tokens % warps == 0 && copies % together == 0, "as many copies for every warp");
        const uint32_t chunk = first_chunk + place.lane % width;
        const uint32_t lines = ring.tile(tensor_k) + chunk / line_chunks * line_stride_bytes;
#pragma unroll 1
        for (uint32_t first = 0; first < copies; first += together) {
            const uint32_t first_token = place.warp * warp_tokens + first * rows + place.lane / width;
            const uint8_t *row[together];
#pragma unroll
            for (uint32_t i = 0; i < together; ++i)
                row[i] = tile.row[first_token + i * rows];
#pragma unroll
            for (uint32_t i = 0; i < together; ++i) {
                const uint32_t token = first_token + i * rows;
                const uint32_t to = lines + token * (line_chunks * 16) + (chunk ^ token / 2) % line_chunks * 16;
#pragma unroll
                for (uint32_t column = 0; column < columns; ++column)
                    ptx::copy_async<16>(to + column * (width / line_chunks * line_stride_bytes),
                                        row[i] + (chunk + column * width) * 16, row[i] != nullptr);
            }
        }
    }
};

/* `warps` of them, which copy as `Copies` says. */
template <class Ring, class Copies, int warps>
class RowCopier {
  public:
    /* On the barrier of what is copied: when what a lane copies is there, and one behind what is said of the tile. */
    static constexpr int arrivals = warps * 32 + 1;

    __device__ __forceinline__ RowCopier(TokenList &list, Ring ring, uint64_t *seen, uint32_t warp, uint32_t lane)
        : ring_(ring), turn_(list), seen_(seen), place_{warp, lane} {}

    /* may_copy(): returns once the first rows may be asked for. */
    template <class MayCopy>
    __device__ __forceinline__ void run(MayCopy may_copy) {
        turn_.wait_full();
        if (!turn_.tile().end_of_work)
            may_copy();
        for (; !turn_.tile().end_of_work; turn_.wait_full()) {
            copy_tile(turn_.tile());
            turn_.release(static_cast<int>(place_.lane));
            turn_.advance();
            ring_.advance();
        }
    }

  private:
    __device__ __forceinline__ void copy_tile(const TokenList::Tile &tile) {
        Copies::copy(tile, ring_, place_, [&](uint32_t full_barrier, bool is_first) {
            ptx::mbarrier_arrive_after_copies(full_barrier);
            if (place_.warp == 0 && place_.lane == 0) {
                if (is_first)
                    seen_[ring_.stage()] = tile.seen;
                ptx::mbarrier_arrive(full_barrier);
            }
        });
    }

    Ring ring_;
    TokenListTurn turn_;
    uint64_t *const seen_;
    const CopierPlace place_;
};

} // namespace pipeline
