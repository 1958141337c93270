/* SPDX-License-Identifier: Apache-2.0 */
/*
 * page_stream.cuh: the pieces of a worker, in order, as batches of up to 32 boxes with their page ids already on the way:
 * lane i holds the page of box i. A cold line of the page table costs as much as a cold KV page, so ids are fetched one
 * batch ahead, across pieces.
 */
#pragma once

#include <cstdint>

#include "abi.h"
#include "pipeline/split_schedule.cuh"

namespace pipeline {

struct PageBatch {
    Piece piece;              /* end_of_work: there are no more batches */
    int first_box, num_boxes; /* 0 boxes: a piece without visible tokens */
    int k_page, v_page;       /* of this lane's box */
    bool starts_piece;
};

template <int cluster_size>
class PageStream {
  public:
    __device__ __forceinline__ PageStream(const gqa_decode_params &params, int worker, int rank)
        : params_(params), schedule_(params, worker, rank), pages_shift_(__ffs(params.page_size) - __ffs(params.box_tokens)),
          lane_(threadIdx.x & 31) {}

    /* All lanes call together. The loads of the ids are issued here and first waited for when an id is used. */
    __device__ __forceinline__ PageBatch next() {
        PageBatch batch;
        batch.starts_piece = box_ == piece_.end_box;
        if (batch.starts_piece) {
            piece_ = schedule_.next();
            box_ = piece_.first_box;
        }
        batch.piece = piece_;
        batch.first_box = box_;
        batch.num_boxes = min(piece_.end_box - box_, 32);
        batch.k_page = batch.v_page = 0;
        if (lane_ < batch.num_boxes) {
            const int32_t *entry = params_.page_table + piece_.request * params_.page_table_request_stride +
                                   piece_.kv_head * params_.page_table_head_stride + ((box_ + lane_) >> pages_shift_);
            batch.k_page = entry[0];
            batch.v_page = entry[params_.page_table_v_offset]; /* a load of its own: copying k_page would wait for it */
        }
        box_ += batch.num_boxes;
        return batch;
    }

    __device__ __forceinline__ const WorkSplit &split() const { return schedule_.split(); }

  private:
    const gqa_decode_params &params_;
    SplitSchedule<cluster_size> schedule_;
    const int pages_shift_; /* log2 of boxes in a page */
    const int lane_;
    Piece piece_ = {};
    int box_ = 0;
};

} // namespace pipeline
