/* SPDX-License-Identifier: Apache-2.0 */
/*
 * row_gather.cuh: some warps that fill the ring with the tiles of one tensor row by row, wherever each lies: for pages too small for a
 * copy of their own (producer.cuh), or of odd sizes.
 * The copy engine of an SM takes a row every 11 to 15 clocks, whatever its size, so rows of 256 bytes and less do not keep the memory
 * busy. Half of the rows come by it, the other half by asynchronous copies of 16 bytes a lane, which the engine has no part in.
 */
#pragma once

#include <cstdint>

#include "abi.h"
#include "pipeline/cluster_exchange.cuh"
#include "pipeline/kv_ring.cuh"
#include "pipeline/row_stream.cuh"
#include "ptx/async_copy.cuh"
#include "ptx/bulk_copy.cuh"
#include "ptx/memory.cuh"

namespace pipeline {

template <class Format, class Ring, int tile_tokens, int warps, int cluster_size>
class RowGather {
    static constexpr int warp_tokens = tile_tokens / warps;
    using Stream = RowStream<cluster_size, tile_tokens, warp_tokens, 1>;
    using Batch = Stream::Batch;
    static_assert(tile_tokens % warps == 0, "every warp as many tokens of a tile");

  public:
    static constexpr int arrivals = warps * 33; /* on the barrier of a tile: every warp's bytes, and every lane's copies */

    /* `warp`: of those that share the tensor. `head_dim`: of the rows, at most the format's. */
    __device__ __forceinline__ RowGather(const schedule_params &params, const row_source &source, int num_pages, int head_dim,
                                         Tensor tensor, int warp, Ring ring)
        : params_(params), source_(source), num_pages_(num_pages),
          row_bytes_(head_dim / 16 * (Format::row_bytes / Format::steps)), tensor_(tensor), first_(warp * warp_tokens),
          ring_(ring) {}

    __device__ __forceinline__ void run(SplitSchedule<cluster_size> &schedule, int lane) {
        schedule.begin();
        Stream stream(params_, schedule, first_, 1, tensor_ == tensor_v ? params_.page_table_v_offset : 0);
        Batch batch = stream.next();
        meet_cluster<cluster_size>(); /* while the page ids are on their way */
        while (!batch.end_of_work) {
            const Batch upcoming = stream.next();
            load_tile(batch, lane);
            ring_.advance();
            batch = upcoming;
        }
    }

  private:
    /* Rows from here on, of those that a lane holds at once, come by copies of the lanes. */
    static constexpr int rows_at_once = warp_tokens < 32 ? warp_tokens : 32, first_of_lanes = rows_at_once / 2;
    static constexpr int row_lanes = Format::row_bytes < 512 ? Format::row_bytes / 16 : 32; /* that copy a row together */

    __device__ __forceinline__ void load_tile(const Batch &batch, int lane) {
        const uint32_t barrier = ring_.full_barrier(tensor_);
        int copies = 0;
        ring_.wait_empty(tensor_);
#pragma unroll
        for (int i = 0; i < Stream::tokens_per_lane; ++i) {
            const auto &row = batch.rows[i];
            const bool exists = row.live && static_cast<uint32_t>(row.page[0]) < static_cast<uint32_t>(num_pages_);
            const uint32_t rows = ring_.tile(tensor_) + (first_ + i * 32) * Format::Rows::pitch_bytes;
            const uint8_t *const source = exists ? row_address(source_, row.page[0], batch.kv_head, row.in_page) : source_.rows;
            copies += __popc(__ballot_sync(0xffffffffu, exists && lane < first_of_lanes));
            if (row.live && lane < first_of_lanes)
                load_row(rows + lane * Format::Rows::pitch_bytes, source, exists, barrier);
            load_by_lanes(rows, source, row.live, exists, lane);
        }
        ptx::mbarrier_arrive_after_copies(barrier);
        __syncwarp();
        if (lane == 0) /* after the copies: see producer.cuh */
            ptx::mbarrier_arrive_expect_tx(barrier, copies * row_bytes_);
    }

    __device__ __forceinline__ void load_row(uint32_t destination, const uint8_t *source, bool exists, uint32_t barrier) const {
        if (exists) {
            ptx::copy_bulk(destination, source, row_bytes_, barrier);
            return;
        }
        for (int byte = 0; byte < row_bytes_; byte += 16)
            ptx::store_shared_zeros(destination + byte);
    }

    /* Lane r knows the source of row r, and whether it is to be copied, and exists. */
    __device__ __forceinline__ void load_by_lanes(uint32_t rows, const uint8_t *source, bool live, bool exists, int lane) const {
        const uint32_t all_live = __ballot_sync(0xffffffffu, live), all_existing = __ballot_sync(0xffffffffu, exists);
        const uint64_t address = reinterpret_cast<uint64_t>(source);
#pragma unroll
        for (int first = first_of_lanes; first < rows_at_once; first += 32 / row_lanes) {
            const int row = first + lane / row_lanes;
            const uint8_t *const from = reinterpret_cast<const uint8_t *>(__shfl_sync(0xffffffffu, address, row));
#pragma unroll
            for (int chunk = 0; chunk < Format::row_bytes / 16; chunk += row_lanes) {
                const int byte = (chunk + lane % row_lanes) * 16;
                if ((all_live >> row & 1u) != 0 && byte < row_bytes_)
                    ptx::copy_async<16>(rows + row * Format::Rows::pitch_bytes + byte, from + byte,
                                        (all_existing >> row & 1u) != 0);
            }
        }
    }

    const schedule_params &params_;
    const row_source &source_;
    const int num_pages_, row_bytes_;
    const Tensor tensor_;
    const int first_;
    Ring ring_;
};

} // namespace pipeline
