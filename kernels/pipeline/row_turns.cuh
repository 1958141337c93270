/* SPDX-License-Identifier: Apache-2.0 */
/*
 * row_turns.cuh: a few warps that fill the ring row by row, wherever each row lies, as row_gather.cuh does. Here they take turns at the tiles, and each
 * brings all rows of its own, K and V, with their scales: what has to be found out for a tile is found out once, and copies of 16 bytes take few
 * instructions. Rows that are not seen, or lie in no page, become zeros, and so do the dims that rows have not.
 *
 * A warp that other warps' tiles pass by knows which phase a barrier is in where a place in the ring comes back to the same warp, or where those who read
 * the ring read every tile, in order.
 */
#pragma once

#include <cstdint>

#include "abi.h"
#include "pipeline/kv_ring.cuh"
#include "pipeline/row_stream.cuh"
#include "pipeline/scale_gather.cuh"
#include "ptx/async_copy.cuh"
#include "ptx/mbarrier.cuh"
#include "tile/constants.cuh"

namespace pipeline {

template <class Format, class Ring, int tile_tokens, int warps, int cluster_size>
class RowTurns {
    using Stream = RowStream<cluster_size, tile_tokens, tile_tokens, 2, false, false>;
    using Batch = typename Stream::Batch;
    using Rows = typename Format::Rows;
    static constexpr int row_lanes = Format::row_bytes / 16, rows_at_once = 32 / row_lanes; /* that copy a row; of a copy */
    static constexpr int parts = tile_tokens / 32; /* of a tensor's tile: of these a lane knows a row each */
    static constexpr int copies_at_once = rows_at_once < 8 ? 4 : 2, tokens_at_once = copies_at_once * rows_at_once;
    static constexpr int box_bytes = tile::fragment_tokens * Format::row_bytes;
    static_assert(rows_at_once >= 8 || (Rows::line_bytes == 128 && tokens_at_once % 8 == 0), "permutations of whole lines");
    static_assert(row_lanes <= 32 && tile_tokens % 32 == 0 && parts == Stream::tokens_per_lane, "whole rows, by whole warps");

    /* Page ids of two tiles ahead, where there are registers for them: where memory is busy one is over before they come. */
    static constexpr bool asks_early = !Format::converts_query;
    static constexpr int64_t nowhere = INT64_MIN; /* in place of an address: none is that large */

  public:
    static constexpr int arrivals = 32; /* on the barrier of a tile: every lane's, after its copies */

    __device__ __forceinline__ RowTurns(const gqa_decode_params &params, int warp, Ring ring, int lane)
        : params_(params), warp_(warp), lane_(lane), chunk_(lane % row_lanes), row_(lane / row_lanes),
          place_(Rows::chunk(0, row_, chunk_)), ring_(ring) {}

    /* before_piece(number) is called ahead of the copies of each of the worker's pieces, by every warp. */
    template <class BeforePiece>
    __device__ __forceinline__ void run(SplitSchedule<cluster_size> &schedule, BeforePiece before_piece) {
        /* Interleaved scales of four tokens are one block of V's. */
        Stream stream(params_.schedule, schedule, 0, Format::scale_bytes > 0 && params_.v_scales_interleaved != 0 ? 4 : 1);
        Batch batch = stream.next(warp_), second = batch;
        if (asks_early)
            second = stream.next(warps - 1);
        ring_.advance(warp_);
        uint32_t pieces = 0; /* so far */
        const auto come_to = [&](uint32_t piece) {
            for (; pieces < piece; ++pieces)
                before_piece(pieces);
        };
        while (!batch.end_of_work()) {
            const Batch upcoming = stream.next(warps - 1);
            come_to(batch.piece + 1);
            copy_tile(batch);
            ring_.advance(warps);
            batch = asks_early ? second : upcoming;
            second = upcoming;
        }
        come_to(batch.piece);
    }

  private:
    __device__ __forceinline__ void copy_tile(const Batch &batch) const {
#pragma unroll(Format::scale_bytes > 0 ? 1 : 2 * parts)
        for (int part = 0; part < 2 * parts; ++part) {
            const bool is_of_k = part < parts;
            const Tensor tensor = is_of_k ? tensor_k : tensor_v;
            const int part_of_tensor = is_of_k ? part : part - parts;
            const row_source &source = is_of_k ? params_.k_rows : params_.v_rows;
            const auto row = batch.row(part_of_tensor);
            const int page = is_of_k ? row.page[tensor_k] : row.page[tensor_v];
            const bool exists = row.live() && static_cast<uint32_t>(page) < static_cast<uint32_t>(params_.num_pages);
            const int64_t from =
                exists ? reinterpret_cast<int64_t>(row_address(source, page, batch.kv_head, row.in_page)) : nowhere;
            if (part_of_tensor == 0)
                ring_.wait_empty(tensor);
            copy_rows(ring_.tile(tensor) + part_of_tensor * 32 * Format::row_bytes, from);
            if constexpr (Format::scale_bytes > 0) {
                const row_source &scales = is_of_k ? params_.k_scales : params_.v_scales;
                const ScaleCopier<Format> copier{params_.query.head_dim / 16};
                const uint8_t *const from = row_address(scales, exists ? page : 0, batch.kv_head, row.in_page);
                const uint32_t tile_scales = ring_.tile(tensor) + tile_tokens * Format::row_bytes;
                if (row.live() && copier.are_whole())
                    copier.copy_whole(tile_scales, part_of_tensor * 32 + lane_, from, exists);
                else if (row.live())
                    copier.copy_part(tile_scales, part_of_tensor * 32 + lane_, from, exists,
                                     !is_of_k && params_.v_scales_interleaved != 0);
            }
            if (part_of_tensor == parts - 1)
                ptx::mbarrier_arrive_after_copies(ring_.full_barrier(tensor));
        }
    }

    /*
     * 32 rows to two boxes of 16 tokens: lane r knows where row r is. Some copies at a time, whose addresses are there before the first of them is
     * sent: what it reads of registers stays occupied for some 100 clocks.
     */
    __device__ __forceinline__ void copy_rows(uint32_t boxes, int64_t row_of_lane) const {
        constexpr int step_bytes = Format::row_bytes / Format::steps;
        const int row_bytes = params_.query.head_dim / 16 * step_bytes;
        const bool has_chunk = chunk_ * 16 < row_bytes;
        const int chunk_bytes = step_bytes % 16 == 0 ? 16 : has_chunk ? min(row_bytes - chunk_ * 16, 16) : 0;
#pragma unroll 1
        for (int first = 0; first < 32; first += tokens_at_once) {
            int64_t from[copies_at_once];
#pragma unroll
            for (int i = 0; i < copies_at_once; ++i)
                from[i] = __shfl_sync(tile::full_warp, row_of_lane, first + i * rows_at_once + row_) + chunk_ * 16;
#pragma unroll
            for (int i = 0; i < copies_at_once; ++i)
                ptx::compute_here(from[i]);
            const uint32_t to =
                boxes + first / tile::fragment_tokens * box_bytes + first % tile::fragment_tokens * Rows::line_bytes + place_;
#pragma unroll
            for (int i = 0; i < copies_at_once; ++i) {
                const int further = i * rows_at_once; /* tokens; within an eight their lines are permuted, chunk by chunk */
                const uint32_t place = (to ^ further % 8 * 16) + further % tile::fragment_tokens * Rows::line_bytes +
                                       further / tile::fragment_tokens * box_bytes;
                const void *const source = reinterpret_cast<const void *>(from[i]);
                if constexpr (step_bytes % 16 != 0) /* a row may end within a chunk */
                    ptx::copy_async_first<16>(place, source, from[i] >= 0 ? chunk_bytes : 0);
                else
                    ptx::copy_async<16>(place, source, from[i] >= 0 && has_chunk);
            }
        }
    }

    const gqa_decode_params &params_;
    const int warp_, lane_;
    const int chunk_, row_; /* what the lane copies: this chunk of this row, and of those as many as are copied at once further */
    const uint32_t place_;  /* where that lies in a box */
    Ring ring_;
};

} // namespace pipeline
