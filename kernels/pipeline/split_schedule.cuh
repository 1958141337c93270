/* SPDX-License-Identifier: Apache-2.0 */
/*
 * split_schedule.cuh: who computes what. Balanced for requests of any mix of lengths, decided on the device from seq_lens.
 *
 * A unit is (request, KV head, row group): what one softmax runs over. Its visible tokens are counted in boxes (what one
 * copy brings). All boxes of all units, laid end to end, are cut into equal contiguous ranges, one per worker; the part of
 * a unit inside a range is a piece. A worker is a CTA, or a cluster, whose CTAs then share every piece.
 * A unit without visible tokens counts as one box, so that exactly one worker owns it and writes its empty result.
 *
 * The producer warp walks the schedule and hands each piece to the consumers (piece_queue.cuh). A "sequence" is one entry of seq_lens: a request, or one KV head of a request when lengths have a head stride.
 */
#pragma once

#include <cstdint>

#include "abi.h"

namespace pipeline {

/* Visible tokens of a sequence, and the boxes that hold them. */
struct VisibleRange {
    int first_token, end_token; /* empty: equal */
    int first_box, num_boxes;
};

/* Query position, window and the KV position rule, for one query token per request; `tokens` is the sequence's length. */
__device__ __forceinline__ VisibleRange visible_range(const gqa_decode_params &params, int request, int tokens) {
    int first = 0, end = tokens;
    if (params.query_positions == nullptr) { /* the query is the newest token: everything up to it is visible */
        int reach = params.window_left;
        if (params.position_stride > 1) reach = reach < 0 ? -1 : reach / params.position_stride;
        if (reach >= 0) first = max(tokens - 1 - reach, 0);
    } else {
        /* Distances from position 0 of the cache, in 33 bits at most: those below 0 see nothing, the others fit 32 bits. */
        const uint32_t stride = params.position_stride;
        const long long distance = static_cast<long long>(params.query_positions[request]) - params.position_offset;
        const long long oldest = distance - params.window_left;
        end = distance < 0 ? 0 : static_cast<int>(min(static_cast<uint32_t>(distance) / stride + 1u, static_cast<uint32_t>(tokens)));
        if (params.window_left >= 0 && oldest > 0)
            first = static_cast<int>(min((static_cast<uint32_t>(oldest) - 1u) / stride + 1u, static_cast<uint32_t>(tokens)));
    }
    const int box_shift = __ffs(params.box_tokens) - 1;
    VisibleRange range;
    range.first_token = first;
    range.end_token = max(end, first);
    range.first_box = first >> box_shift;
    range.num_boxes = end > first ? ((end - 1) >> box_shift) - range.first_box + 1 : 0;
    return range;
}

/* The part of a unit that falls to one worker. */
struct Piece {
    int request, kv_head, row_group;
    int first_token, end_token;      /* visible tokens of the whole unit; empty: equal */
    int first_box, end_box;          /* this CTA's boxes of the piece; empty: equal */
    uint32_t unit_start, unit_boxes; /* flat boxes of the whole unit, at least 1 */
    bool whole;                      /* the worker has the unit alone */
    bool end_of_work;                /* not a piece: there are no more */
};

/* All boxes cut into ranges: the first `longer` workers have one box more than the others. */
struct WorkSplit {
    uint32_t workers, quotient, longer;

    /* First flat box of a worker; of the one after the last: the total. */
    __device__ __forceinline__ uint32_t start(uint32_t worker) const { return worker * quotient + min(worker, longer); }

    /* The worker that owns a flat box. */
    __device__ __forceinline__ uint32_t worker_of(uint32_t box) const {
        const uint32_t boundary = longer * (quotient + 1);
        return box < boundary ? box / (quotient + 1) : longer + (box - boundary) / quotient;
    }
};

template <int cluster_size>
class SplitSchedule {
  public:
    __device__ __forceinline__ SplitSchedule(const gqa_decode_params &params, int worker, int rank)
        : params_(params), rank_(rank), lane_(threadIdx.x & 31), sequences_per_request_(params.sequences_per_request),
          num_sequences_(params.batch_size * sequences_per_request_), units_per_sequence_(params.heads_per_sequence * params.row_groups) {
        /* Count all boxes, window by window of 32 sequences; lane i keeps the sum of its share of the windows. */
        const int num_windows = (num_sequences_ + 31) / 32, windows_per_lane = (num_windows + 31) / 32;
        uint32_t lane_units = 0, total = 0;
        int owner = 0, in_share = 0;
#pragma unroll 1
        for (sequence_ = 0; sequence_ < num_sequences_; sequence_ += 32 * lookahead) {
            int tokens[lookahead]; /* their loads travel together */
#pragma unroll
            for (int i = 0; i < lookahead; ++i) tokens[i] = load_tokens(sequence_ + i * 32 + lane_);
#pragma unroll
            for (int i = 0; i < lookahead; ++i) {
                if (i > 0 && sequence_ + i * 32 >= num_sequences_) break;
                set_window(sequence_ + i * 32, tokens[i]);
                const uint32_t units = __reduce_add_sync(0xffffffffu, window_boxes_ * units_per_sequence_);
                total += units;
                if (lane_ == owner) lane_units += units;
                if (++in_share == windows_per_lane) in_share = 0, ++owner;
            }
        }
        split_.workers = params.num_workers;
        if (total < split_.workers * params.min_boxes_per_worker) split_.workers = max(total / params.min_boxes_per_worker, 1u);
        split_.quotient = total / split_.workers;
        split_.longer = total - split_.quotient * split_.workers;
        position_ = end_ = 0;
        if (static_cast<uint32_t>(worker) >= split_.workers) return;
        position_ = split_.start(worker);
        end_ = split_.start(worker + 1);

        /* Find this worker's first box: the lane, the window, the sequence. */
        sequence_start_ = 0;
        if (num_windows > 1) {
            const uint32_t until = inclusive_scan(lane_units);
            const int lane = __ffs(__ballot_sync(0xffffffffu, position_ < until)) - 1;
            sequence_start_ = __shfl_sync(0xffffffffu, until - lane_units, lane);
            int window = lane * windows_per_lane * 32;
#pragma unroll 1
            for (;; window += 32) {
                set_window(window, load_tokens(window + lane_));
                const uint32_t units = __reduce_add_sync(0xffffffffu, window_boxes_ * units_per_sequence_);
                if (position_ - sequence_start_ < units) break;
                sequence_start_ += units;
            }
        }
        const uint32_t inclusive = inclusive_scan(window_boxes_ * units_per_sequence_);
        const uint32_t below = inclusive - window_boxes_ * units_per_sequence_;
        const int source = __ffs(__ballot_sync(0xffffffffu, position_ - sequence_start_ < inclusive)) - 1;
        sequence_ = window_first_ + source;
        sequence_start_ += __shfl_sync(0xffffffffu, below, source);
        unit_ = (position_ - sequence_start_) / __shfl_sync(0xffffffffu, window_boxes_, source);
    }

    /* The next piece of this worker, in order; after the last, end_of_work. All lanes of a warp call together. */
    __device__ __forceinline__ Piece next() {
        Piece piece = {};
        piece.end_of_work = position_ >= end_;
        if (piece.end_of_work) return piece;
        if (sequence_ == window_first_ + 32) set_window(sequence_, load_tokens(sequence_ + lane_));
        const int source = sequence_ - window_first_;
        const uint32_t boxes = __shfl_sync(0xffffffffu, window_boxes_, source);
        piece.unit_start = sequence_start_ + unit_ * boxes;
        piece.unit_boxes = boxes;
        const uint32_t first = position_ - piece.unit_start, end = min(boxes, end_ - piece.unit_start);
        piece.whole = first == 0 && end == boxes;

        piece.request = sequence_;
        piece.kv_head = unit_;
        if (params_.row_groups > 1) {
            piece.kv_head = unit_ / params_.row_groups;
            piece.row_group = unit_ - piece.kv_head * params_.row_groups;
        }
        if (sequences_per_request_ > 1) {
            piece.request = sequence_ / sequences_per_request_;
            piece.kv_head += (sequence_ - piece.request * sequences_per_request_) * params_.heads_per_sequence;
        }
        piece.first_token = __shfl_sync(0xffffffffu, window_.first_token, source);
        piece.end_token = __shfl_sync(0xffffffffu, window_.end_token, source);
        const int unit_first_box = __shfl_sync(0xffffffffu, window_.first_box, source);
        const int live_boxes = __shfl_sync(0xffffffffu, window_.num_boxes, source);
        const int live = live_boxes == 0 ? 0 : end - first; /* the one box of an empty unit does not exist */
        piece.first_box = unit_first_box + first + live * rank_ / cluster_size;
        piece.end_box = unit_first_box + first + live * (rank_ + 1) / cluster_size;

        position_ = piece.unit_start + end;
        if (end == boxes && ++unit_ == units_per_sequence_) {
            unit_ = 0;
            sequence_start_ += units_per_sequence_ * boxes;
            ++sequence_;
        }
        return piece;
    }

    __device__ __forceinline__ const WorkSplit &split() const { return split_; }

  private:
    static constexpr int lookahead = 4; /* windows whose lengths are loaded together */

    __device__ __forceinline__ int request_of(int sequence) const {
        return sequences_per_request_ > 1 ? sequence / sequences_per_request_ : sequence;
    }

    __device__ __forceinline__ int load_tokens(int sequence) const {
        if (sequence >= num_sequences_) return 0;
        const int request = request_of(sequence), head = (sequence - request * sequences_per_request_) * params_.heads_per_sequence;
        return params_.seq_lens[request * params_.seq_lens_request_stride + head * params_.seq_lens_head_stride];
    }

    /* Lane i now holds what is needed of sequence `first` + i. */
    __device__ __forceinline__ void set_window(int first, int tokens) {
        window_first_ = first;
        window_ = {};
        window_boxes_ = 0;
        if (first + lane_ < num_sequences_) {
            window_ = visible_range(params_, request_of(first + lane_), tokens);
            window_boxes_ = max(window_.num_boxes, 1);
        }
    }

    static __device__ __forceinline__ uint32_t inclusive_scan(uint32_t value) {
#pragma unroll
        for (int distance = 1; distance < 32; distance *= 2) {
            const uint32_t below = __shfl_up_sync(0xffffffffu, value, distance);
            if ((threadIdx.x & 31) >= distance) value += below;
        }
        return value;
    }

    const gqa_decode_params &params_;
    const int rank_, lane_, sequences_per_request_, num_sequences_, units_per_sequence_;
    WorkSplit split_;
    uint32_t position_, end_; /* flat boxes still to do */
    int sequence_, unit_;     /* where position_ lies */
    uint32_t sequence_start_; /* flat box of the sequence's first unit */
    int window_first_;        /* lane i holds sequence window_first_ + i: */
    VisibleRange window_;
    uint32_t window_boxes_;
};

} // namespace pipeline
