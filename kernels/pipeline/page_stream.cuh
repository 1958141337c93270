/* SPDX-License-Identifier: Apache-2.0 */
/*
 * page_stream.cuh: the pieces of a worker, in order, as batches of up to 32 boxes with the page ids of one tensor already on
 * the way: lane i holds the page of box i. A cold line of the page table costs as much as a cold KV page, so ids are fetched one
 * batch ahead, across pieces. Contiguous KV is a page for each request, larger than any length, and no table.
 */
#pragma once

#include <cstdint>

#include "abi.h"
#include "pipeline/history.cuh"
#include "pipeline/split_schedule.cuh"
#include "ptx/memory.cuh"

namespace pipeline {

/*
 * A warp of every CTA asks for 32 lines of the page table while the lengths are on their way: which ids a worker needs is known only
 * when they have come, and then those ids are one more cold line to wait for. Of larger tables (540 KB) the beginning.
 */
__device__ __forceinline__ void prefetch_page_table(const schedule_params &params, int lane) {
    constexpr int line_entries = 128 / sizeof(int32_t);
    const int64_t first = (static_cast<int64_t>(blockIdx.x) * 32 + lane) * line_entries;
    const int64_t entries = (params.batch_size - 1) * params.page_table_request_stride +
                            quotient(static_cast<uint32_t>(params.max_tokens), params.page_size);
    if (first < entries)
        ptx::prefetch(params.page_table + first);
}

struct PageBatch {
    Piece piece;              /* end_of_work: there are no more batches */
    int first_box, num_boxes; /* 0 boxes: a piece without visible tokens */
    int page, v_page;         /* of this lane's box; of V, where the stream is of both tensors */
    bool has_newest;          /* rows, in each of its tiles: history.cuh */
};

/* `of_both`: of K and V, page ids of each. */
template <class Schedule, int tile_tokens, bool of_both = false>
class PageStream {
  public:
    /* `table_offset`: from an entry of the page table to the one that this tensor uses. */
    __device__ __forceinline__ PageStream(const schedule_params &params, Schedule &schedule, int64_t table_offset)
        : params_(params), table_(params.page_table + table_offset), schedule_(schedule),
          pages_shift_(__ffs(params.page_size.value) - __ffs(params.box_tokens)), lane_(threadIdx.x & 31) {}

    /* All lanes call together. The loads of the ids are issued here and first waited for when an id is used. */
    __device__ __forceinline__ PageBatch next() {
        PageBatch batch;
        if (box_ == piece_.end_box) {
            piece_ = schedule_.next();
            box_ = piece_.first_box;
        }
        batch.piece = piece_;
        batch.first_box = box_;
        batch.num_boxes = min(piece_.end_box - box_, 32);
        batch.has_newest = false;
        if (rarely(is_history_final(params_)))
            end_with_history(batch);
        batch.page = piece_.request; /* where there is no table */
        if (of_both)
            batch.v_page = batch.page;
        if (lane_ < batch.num_boxes && params_.page_table != nullptr) {
            const int32_t *const entry =
                &table_[piece_.request * params_.page_table_request_stride + piece_.kv_head * params_.page_table_head_stride +
                        ((box_ + lane_) >> pages_shift_)];
            batch.page = *entry;
            if (of_both)
                batch.v_page = entry[params_.page_table_v_offset];
        }
        box_ += batch.num_boxes;
        return batch;
    }

  private:
    /* A batch is of tiles before those with newest rows, or of these. */
    __device__ __forceinline__ void end_with_history(PageBatch &batch) const {
        const int box_shift = __ffs(params_.box_tokens) - 1, boxes_per_tile = tile_tokens >> box_shift;
        const int before_newest = (first_newest_token(params_, piece_) >> box_shift) - piece_.first_box;
        const int history_boxes = piece_.first_box + (max(before_newest, 0) & -boxes_per_tile) - box_;
        batch.has_newest = history_boxes <= 0;
        if (!batch.has_newest)
            batch.num_boxes = min(batch.num_boxes, history_boxes);
    }

    const schedule_params &params_;
    const int32_t *const table_;
    Schedule &schedule_;
    const int pages_shift_; /* log2 of boxes in a page */
    const int lane_;
    Piece piece_ = {};
    int box_ = 0;
};

} // namespace pipeline
