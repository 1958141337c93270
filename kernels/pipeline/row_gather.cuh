/* SPDX-License-Identifier: Apache-2.0 */
/*
 * row_gather.cuh: some warps that fill the ring with the tiles of one tensor row by row, wherever each lies: for pages too small for a
 * copy of their own (producer.cuh), or of odd sizes. Lanes copy 16 bytes each: the copy engine of an SM takes a row every 11 to 15
 * clocks, whatever its size, which is too few bytes where rows have 256 or less. Rows lie as boxes do, lines where lines begin: with
 * rows 16 bytes apart instead, every line is written to two, and an SM takes in 6 % less.
 *
 * `any_rows`: a gather whose rows may begin at any element, requests' at offsets of their own. How 16 bytes of a row come depends on where
 * the rows of a tile lie: by one copy, by several of 8 or 4 bytes, or by loads, which take the longest.
 */
#pragma once

#include <cstdint>

#include "abi.h"
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
    static constexpr int step_bytes = Format::row_bytes / Format::steps, element_bytes = step_bytes / 16;
    static_assert(!any_rows || element_bytes == 1 || element_bytes == 2, "rows of elements that are whole bytes");

  public:
    using Offsets = typename Stream::Offsets;

    /* On the barrier of a tile: every lane's, after its copies, and where it may have stored elements itself another after those. */
    static constexpr int arrivals = warps * (any_rows ? 64 : 32);

    /* `warp`: of those that share the tensor. `head_dim`: of the rows, at most the format's. */
    __device__ __forceinline__ RowGather(const schedule_params &params, const row_source &source, Offsets offsets, int num_pages,
                                         int head_dim, float skip_factor, Tensor tensor, int warp, Ring ring, Votes &votes)
        : params_(params), source_(source), offsets_(offsets), num_pages_(num_pages), row_bytes_(head_dim / 16 * step_bytes),
          tensor_(tensor), first_(warp * warp_tokens), ring_(ring),
          waits_for_votes_(Votes::exist && tensor == tensor_v && skip_factor > 0.f), votes_(votes) {}

    __device__ __forceinline__ void run(SplitSchedule<cluster_size> &schedule, int lane) {
        Stream stream(params_, schedule, first_, 1, tensor_ == tensor_v ? params_.page_table_v_offset : 0, offsets_);
        /* Two tiles ahead: where memory is busy, one tile is over before the page ids come. */
        Batch batch = stream.next(), second = stream.next();
        while (!batch.end_of_work()) {
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
        if constexpr (any_rows) {
            const bool is_copied = live && exists;
            if (!__any_sync(tile::full_warp, is_copied && address % 16 != 0))
                copy_rows<16>(first_token, address, all_live, all_existing, rows, lane);
            else if (!__any_sync(tile::full_warp, is_copied && address % 8 != 0))
                copy_rows<8>(first_token, address, all_live, all_existing, rows, lane);
            else if (!__any_sync(tile::full_warp, is_copied && address % 4 != 0))
                copy_rows<4>(first_token, address, all_live, all_existing, rows, lane);
            else
                copy_rows<element_bytes>(first_token, address, all_live, all_existing, rows, lane);
        } else {
            copy_rows<16>(first_token, address, all_live, all_existing, rows, lane);
        }
    }

    /* `piece_bytes`: they divide the addresses of all rows that exist. `all_live`, `all_existing`: a bit for each row. */
    template <int piece_bytes>
    __device__ __forceinline__ void copy_rows(int first_token, uint64_t address, uint32_t all_live, uint32_t all_existing,
                                              int rows, int lane) const {
#pragma unroll
        for (int first = 0; first < min(rows, 32); first += rows_at_once) {
            const int row = first + lane / row_lanes, token = first_token + row, in_box = token % tile::fragment_tokens;
            const uint32_t box = ring_.tile(tensor_) + (token - in_box) * Format::row_bytes;
            const uint8_t *const from = reinterpret_cast<const uint8_t *>(__shfl_sync(tile::full_warp, address, row & 31));
#pragma unroll
            for (int first_chunk = 0; first_chunk < Format::row_bytes / 16; first_chunk += row_lanes) {
                const int chunk = first_chunk + lane % row_lanes;
                const bool exists = (all_existing >> (row & 31) & 1u) != 0;
                if (row >= 32 || (all_live >> (row & 31) & 1u) == 0 || chunk * 16 >= row_bytes_)
                    continue;
                if constexpr (step_bytes % 16 != 0) /* a row may end within a chunk */
                    ptx::copy_async_first<16>(Format::Rows::chunk(box, in_box, chunk), from + chunk * 16,
                                              exists ? min(row_bytes_ - chunk * 16, 16) : 0);
                else
                    copy_chunk<piece_bytes>(Format::Rows::chunk(box, in_box, chunk), from + chunk * 16, exists);
            }
        }
    }

    /* 16 bytes; zeros, where they do not exist. */
    template <int piece_bytes>
    static __device__ __forceinline__ void copy_chunk(uint32_t destination, const uint8_t *source, bool exists) {
        if constexpr (piece_bytes < 4) {
            load_chunk(destination, source, exists);
        } else {
#pragma unroll
            for (int byte = 0; byte < 16; byte += piece_bytes)
                ptx::copy_async<piece_bytes>(destination + byte, source + byte, exists);
        }
    }

    /*
     * The same by loads, from any element: of the five words that the bytes lie in, three whole ones, and of the first and the last the
     * elements that belong to them. Nothing beside them is read.
     */
    static __device__ __forceinline__ void load_chunk(uint32_t destination, const uint8_t *source, bool exists) {
        const int before = static_cast<int>(reinterpret_cast<uintptr_t>(source) % 4); /* bytes of the first word */
        const uint8_t *const word = source - before;
        uint32_t words[5] = {}, shifted[4];
        if (exists) {
#pragma unroll
            for (int byte = 0; byte < 4; byte += element_bytes) {
                const bool is_first = byte >= before;
                const uint32_t element = ptx::load_global<element_bytes>(word + byte + (is_first ? 0 : 16));
                words[0] |= is_first ? element << (byte * 8) : 0u;
                words[4] |= is_first ? 0u : element << (byte * 8);
            }
#pragma unroll
            for (int i = 1; i < 4; ++i)
                words[i] = ptx::load_global<4>(word + i * 4);
        }
#pragma unroll
        for (int i = 0; i < 4; ++i)
            shifted[i] = static_cast<uint32_t>((static_cast<uint64_t>(words[i + 1]) << 32 | words[i]) >> (before * 8));
        ptx::store_shared(destination, shifted);
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
