/* SPDX-License-Identifier: Apache-2.0 */
/*
 * row_gather.cuh: some warps that fill the ring with the tiles of one tensor row by row, wherever each lies: for pages too small for a
 * copy of their own (producer.cuh), or of odd sizes. Lanes copy 16 bytes each: the copy engine of an SM takes a row every 11 to 15
 * clocks, whatever its size, which is too few bytes where rows have 256 or less. Rows lie as boxes do, lines where lines begin: with
 * rows 16 bytes apart instead, every line is written to two, and an SM takes in 6 % less.
 *
 * `any_rows`: a gather whose rows may begin at any element, requests' at offsets of their own. What 16 bytes of a row come by depends on
 * their address: one copy, several of 8 or 4 bytes, or loads of elements, which take the longest.
 */
#pragma once

#include <cstdint>
#include <type_traits>

#include "abi.h"
#include "pipeline/cluster_exchange.cuh"
#include "pipeline/kv_ring.cuh"
#include "pipeline/row_stream.cuh"
#include "pipeline/skip_votes.cuh"
#include "ptx/async_copy.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/memory.cuh"

namespace pipeline {

template <class Format, class Ring, int tile_tokens, int warps, int cluster_size, class Votes, bool any_rows = false>
class RowGather {
    static constexpr int warp_tokens = (tile_tokens + warps - 1) / warps;
    using Stream = RowStream<cluster_size, tile_tokens, warp_tokens, 1, any_rows>;
    using Batch = typename Stream::Batch;
    static constexpr int element_bytes = Format::row_bytes / (Format::steps * 16);
    static_assert(!any_rows || element_bytes == 1 || element_bytes == 2, "rows of elements that are whole bytes");

  public:
    using Offsets = typename Stream::Offsets;

    /* On the barrier of a tile: every lane's, after its copies, and where it may have stored elements itself another after those. */
    static constexpr int arrivals = warps * (any_rows ? 64 : 32);

    /* `warp`: of those that share the tensor. `head_dim`: of the rows, at most the format's. */
    __device__ __forceinline__ RowGather(const schedule_params &params, const row_source &source, Offsets offsets, int num_pages,
                                         int head_dim, float skip_factor, Tensor tensor, int warp, Ring ring, Votes &votes)
        : params_(params), source_(source), offsets_(offsets), num_pages_(num_pages),
          row_bytes_(head_dim / 16 * (Format::row_bytes / Format::steps)), tensor_(tensor), first_(warp * warp_tokens),
          ring_(ring), waits_for_votes_(Votes::exist && tensor == tensor_v && skip_factor > 0.f), votes_(votes) {}

    __device__ __forceinline__ void run(SplitSchedule<cluster_size> &schedule, int lane) {
        schedule.begin();
        Stream stream(params_, schedule, first_, 1, tensor_ == tensor_v ? params_.page_table_v_offset : 0, offsets_);
        /* Two tiles ahead: where memory is busy, one tile is over before the page ids come. */
        Batch batch = stream.next(), second = stream.next();
        meet_cluster<cluster_size>(); /* while the page ids are on their way */
        while (!batch.end_of_work) {
            const Batch upcoming = stream.next();
            load_tile(batch, lane);
            ring_.advance();
            batch = second;
            second = upcoming;
        }
    }

  private:
    static constexpr int row_lanes = Format::row_bytes < 512 ? Format::row_bytes / 16 : 32; /* that copy a row together */
    static constexpr int rows_at_once = 32 / row_lanes;

    __device__ __forceinline__ void load_tile(const Batch &batch, int lane) {
        ring_.wait_empty(tensor_);
        if (rarely(batch.has_newest))
            ptx::wait_for_preceding_kernel();
        const bool is_wanted = !rarely(waits_for_votes_) || votes_.wait(ring_.stage(), ring_.phase());
#pragma unroll
        for (int i = 0; i < Stream::tokens_per_lane; ++i) {
            const auto &row = batch.rows[i];
            const bool exists = row.live() && static_cast<uint32_t>(row.page[0]) < static_cast<uint32_t>(num_pages_);
            const uint8_t *source = exists ? row_address(source_, row.page[0], batch.kv_head, row.in_page) : source_.rows;
            if constexpr (any_rows)
                source = exists ? source + batch.offset * element_bytes : nullptr;
            load_rows(first_ + i * 32, source, is_wanted && row.live(), exists, warp_tokens - i * 32, lane);
        }
        ptx::mbarrier_arrive_after_copies(ring_.full_barrier(tensor_));
        if constexpr (any_rows)
            ptx::mbarrier_arrive(ring_.full_barrier(tensor_));
    }

    /*
     * Up to 32 rows from token `first_token` of the tile on. Lane r knows the source of row r, and whether it is to be copied, and
     * exists; if not, zeros come.
     */
    __device__ __forceinline__ void load_rows(int first_token, const uint8_t *source, bool live, bool exists, int rows,
                                              int lane) const {
        const uint32_t all_live = __ballot_sync(tile::full_warp, live), all_existing = __ballot_sync(tile::full_warp, exists);
        const uint64_t address = reinterpret_cast<uint64_t>(source);
#pragma unroll
        for (int first = 0; first < min(rows, 32); first += rows_at_once) {
            const int row = first + lane / row_lanes, token = first_token + row, in_box = token % tile::fragment_tokens;
            const uint32_t box = ring_.tile(tensor_) + (token - in_box) * Format::row_bytes;
            const uint8_t *const from = reinterpret_cast<const uint8_t *>(__shfl_sync(tile::full_warp, address, row & 31));
#pragma unroll
            for (int first_chunk = 0; first_chunk < Format::row_bytes / 16; first_chunk += row_lanes) {
                const int chunk = first_chunk + lane % row_lanes;
                if (row < 32 && (all_live >> (row & 31) & 1u) != 0 && chunk * 16 < row_bytes_)
                    copy_chunk(Format::Rows::chunk(box, in_box, chunk), from + chunk * 16,
                               (all_existing >> (row & 31) & 1u) != 0);
            }
        }
    }

    /* 16 bytes; zeros, where they do not exist. */
    static __device__ __forceinline__ void copy_chunk(uint32_t destination, const uint8_t *source, bool exists) {
        if constexpr (!any_rows) {
            ptx::copy_async<16>(destination, source, exists);
        } else {
            const auto address = reinterpret_cast<uintptr_t>(source);
            if (address % 16 == 0)
                ptx::copy_async<16>(destination, source, exists);
            else if (address % 8 == 0)
                copy_pieces<8>(destination, source);
            else if (address % 4 == 0)
                copy_pieces<4>(destination, source);
            else
                copy_elements(destination, source);
        }
    }

    template <int piece_bytes>
    static __device__ __forceinline__ void copy_pieces(uint32_t destination, const uint8_t *source) {
#pragma unroll
        for (int byte = 0; byte < 16; byte += piece_bytes)
            ptx::copy_async<piece_bytes>(destination + byte, source + byte, true);
    }

    static __device__ __forceinline__ void copy_elements(uint32_t destination, const uint8_t *source) {
        using Element = std::conditional_t<element_bytes == 2, uint16_t, uint8_t>;
        const Element *const elements = reinterpret_cast<const Element *>(source);
        uint32_t words[4] = {};
#pragma unroll
        for (int byte = 0; byte < 16; byte += element_bytes)
            words[byte / 4] |= static_cast<uint32_t>(elements[byte / element_bytes]) << (byte % 4 * 8);
        ptx::store_shared(destination, words);
    }

    const schedule_params &params_;
    const row_source &source_;
    [[no_unique_address]] const Offsets offsets_;
    const int num_pages_, row_bytes_;
    const Tensor tensor_;
    const int first_;
    Ring ring_;
    const bool waits_for_votes_;
    Votes &votes_;
};

} // namespace pipeline
