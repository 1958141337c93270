/* SPDX-License-Identifier: Apache-2.0 */
/*
 * row_gather.cuh: some warps that fill the ring with the tiles of one tensor row by row, wherever each lies: for pages too small for a
 * copy of their own (producer.cuh), or of odd sizes. A copy costs a warp some 54 clocks to issue, so it takes several of them.
 */
#pragma once

#include <cstdint>

#include "abi.h"
#include "pipeline/cluster_exchange.cuh"
#include "pipeline/kv_ring.cuh"
#include "pipeline/row_stream.cuh"
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
    __device__ __forceinline__ void load_tile(const Batch &batch, int lane) {
        const uint32_t barrier = ring_.full_barrier(tensor_);
        int copies = 0;
        ring_.wait_empty(tensor_);
#pragma unroll
        for (int i = 0; i < Stream::tokens_per_lane; ++i) {
            const auto &row = batch.rows[i];
            const bool exists = row.live && static_cast<uint32_t>(row.page[0]) < static_cast<uint32_t>(num_pages_);
            const uint32_t destination = ring_.tile(tensor_) + (first_ + i * 32 + lane) * Format::Rows::pitch_bytes;
            if (exists)
                ptx::copy_bulk(destination, row_address(source_, row.page[0], batch.kv_head, row.in_page), row_bytes_, barrier);
            else if (row.live)
                for (int byte = 0; byte < row_bytes_; byte += 16)
                    ptx::store_shared_zeros(destination + byte);
            copies += __popc(__ballot_sync(0xffffffffu, exists));
        }
        __syncwarp();
        if (lane == 0) /* after the copies: see producer.cuh */
            ptx::mbarrier_arrive_expect_tx(barrier, copies * row_bytes_);
    }

    const schedule_params &params_;
    const row_source &source_;
    const int num_pages_, row_bytes_;
    const Tensor tensor_;
    const int first_;
    Ring ring_;
};

} // namespace pipeline
