/* SPDX-License-Identifier: Apache-2.0 */
/*
 * split_schedule.cuh: who computes what. Balanced for requests of any mix of lengths, decided on the device from seq_lens.
 *
 * A unit is (request, KV head, row group): what one softmax runs over. Its visible tokens are counted in boxes (what one
 * copy brings). All boxes of all units, laid end to end, are cut into equal contiguous ranges, one per worker; the part of
 * a unit inside a range is a piece. A worker is a CTA, or a cluster, whose CTAs then share every piece.
 * A unit without visible tokens counts as one box, so that exactly one worker owns it and writes its empty result.
 *
 * The producer warps walk the schedule and hand each piece to the consumers (piece_queue.cuh). A "sequence" is one entry of
 * seq_lens: a request, or one KV head of a request when lengths have a head stride.
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

/* Marks a branch that most launches do not take, so that the code of the others stands in one piece. */
__device__ __forceinline__ bool rarely(bool condition) { return __builtin_expect(condition, false); }

/* Query position, window and the KV position rule, for one query token per request. */
__device__ __forceinline__ VisibleRange visible_range(int tokens, int window_left, int position_stride, bool has_position,
                                                      int64_t distance, int box_shift) {
    int first = 0, end = tokens;
    if (!rarely(has_position)) { /* the query is the newest token: everything up to it is visible */
        int reach = window_left;
        if (rarely(position_stride > 1 && reach > 0)) reach /= position_stride;
        if (reach >= 0) first = max(tokens - 1 - reach, 0);
    } else {
        /* `distance` of the query from position 0 of the cache, 33 bits at most: below 0 it sees nothing, else it fits 32. */
        const uint32_t stride = position_stride;
        const int64_t oldest = distance - window_left;
        end = distance < 0 ? 0
                           : static_cast<int>(min(static_cast<uint32_t>(distance) / stride + 1u, static_cast<uint32_t>(tokens)));
        if (window_left >= 0 && oldest > 0)
            first = static_cast<int>(min((static_cast<uint32_t>(oldest) - 1u) / stride + 1u, static_cast<uint32_t>(tokens)));
    }
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
    /* What a lane knows of the worker's place in the schedule. */
    struct State {
        WorkSplit split;
        uint32_t position, end;  /* flat boxes still to do */
        int sequence, unit;      /* where position lies */
        uint32_t sequence_start; /* flat box of the sequence's first unit */
        int window_first;        /* lane i holds sequence window_first + i: */
        VisibleRange window;
        uint32_t window_boxes;
    };

    /* Goes on from the state that another warp worked out. */
    __device__ __forceinline__ SplitSchedule(const gqa_decode_params &params, int rank, const State &state)
        : SplitSchedule(params, rank) {
        state_ = state;
    }

    /* Works out where the worker begins. All lanes of a warp call together. */
    __device__ __forceinline__ SplitSchedule(const gqa_decode_params &params, int rank, int worker)
        : SplitSchedule(params, rank) {
        /* Count all boxes, window by window of 32 sequences; lane i keeps the sum of its share of the windows. */
        const int num_windows = (num_sequences_ + 31) / 32, windows_per_lane = (num_windows + 31) / 32;
        uint32_t lane_units = 0, total = 0;
        int owner = 0, in_share = 0;
#pragma unroll 1
        for (state_.sequence = 0; state_.sequence < num_sequences_; state_.sequence += 32 * lookahead) {
            int tokens[lookahead]; /* their loads travel together */
#pragma unroll
            for (int i = 0; i < lookahead; ++i) tokens[i] = load_tokens(state_.sequence + i * 32 + lane_);
#pragma unroll
            for (int i = 0; i < lookahead; ++i) {
                if (i > 0 && state_.sequence + i * 32 >= num_sequences_) break;
                set_window(state_.sequence + i * 32, tokens[i]);
                const uint32_t units = __reduce_add_sync(0xffffffffu, state_.window_boxes * units_per_sequence_);
                total += units;
                if (lane_ == owner) lane_units += units;
                if (++in_share == windows_per_lane) in_share = 0, ++owner;
            }
        }
        state_.split.workers = params.num_workers;
        if (rarely(total < state_.split.workers * params.min_boxes_per_worker))
            state_.split.workers = max(total / params.min_boxes_per_worker, 1u);
        state_.split.quotient = total / state_.split.workers;
        state_.split.longer = total - state_.split.quotient * state_.split.workers;
        state_.position = state_.end = 0;
        if (static_cast<uint32_t>(worker) >= state_.split.workers) return;
        state_.position = state_.split.start(worker);
        state_.end = state_.split.start(worker + 1);

        /* Find this worker's first box: the lane, the window, the sequence. */
        state_.sequence_start = 0;
        if (num_windows > 1) {
            const uint32_t until = inclusive_scan(lane_units);
            const int lane = __ffs(__ballot_sync(0xffffffffu, state_.position < until)) - 1;
            state_.sequence_start = __shfl_sync(0xffffffffu, until - lane_units, lane);
            int window = lane * windows_per_lane * 32;
#pragma unroll 1
            for (;; window += 32) {
                set_window(window, load_tokens(window + lane_));
                const uint32_t units = __reduce_add_sync(0xffffffffu, state_.window_boxes * units_per_sequence_);
                if (state_.position - state_.sequence_start < units) break;
                state_.sequence_start += units;
            }
        }
        state_.sequence = state_.window_first;
        state_.unit = 0;
        if (num_sequences_ == 1) { /* nothing to search */
            state_.unit = state_.position / __shfl_sync(0xffffffffu, state_.window_boxes, 0);
            return;
        }
        const uint32_t inclusive = inclusive_scan(state_.window_boxes * units_per_sequence_);
        const uint32_t below = inclusive - state_.window_boxes * units_per_sequence_;
        const int source = __ffs(__ballot_sync(0xffffffffu, state_.position - state_.sequence_start < inclusive)) - 1;
        state_.sequence += source;
        state_.sequence_start += __shfl_sync(0xffffffffu, below, source);
        state_.unit = (state_.position - state_.sequence_start) / __shfl_sync(0xffffffffu, state_.window_boxes, source);
    }

    /* The next piece of this worker, in order; after the last, end_of_work. All lanes of a warp call together. */
    __device__ __forceinline__ Piece next() {
        Piece piece = {};
        piece.end_of_work = state_.position >= state_.end;
        if (piece.end_of_work) return piece;
        if (rarely(state_.sequence == state_.window_first + 32))
            set_window(state_.sequence, load_tokens(state_.sequence + lane_));
        const int source = state_.sequence - state_.window_first;
        const uint32_t boxes = __shfl_sync(0xffffffffu, state_.window_boxes, source);
        piece.unit_start = state_.sequence_start + state_.unit * boxes;
        piece.unit_boxes = boxes;
        const uint32_t first = state_.position - piece.unit_start, end = min(boxes, state_.end - piece.unit_start);
        piece.whole = first == 0 && end == boxes;

        piece.request = state_.sequence;
        piece.kv_head = state_.unit;
        if (rarely(params_.row_groups > 1)) {
            piece.kv_head = state_.unit / params_.row_groups;
            piece.row_group = state_.unit - piece.kv_head * params_.row_groups;
        }
        if (rarely(sequences_per_request_ > 1)) {
            piece.request = state_.sequence / sequences_per_request_;
            piece.kv_head += (state_.sequence - piece.request * sequences_per_request_) * params_.heads_per_sequence;
        }
        piece.first_token = __shfl_sync(0xffffffffu, state_.window.first_token, source);
        piece.end_token = __shfl_sync(0xffffffffu, state_.window.end_token, source);
        const int unit_first_box = __shfl_sync(0xffffffffu, state_.window.first_box, source);
        const int live_boxes = __shfl_sync(0xffffffffu, state_.window.num_boxes, source);
        const int live = live_boxes == 0 ? 0 : end - first; /* the one box of an empty unit does not exist */
        piece.first_box = unit_first_box + first + live * rank_ / cluster_size;
        piece.end_box = unit_first_box + first + live * (rank_ + 1) / cluster_size;

        state_.position = piece.unit_start + end;
        if (end == boxes && ++state_.unit == units_per_sequence_) {
            state_.unit = 0;
            state_.sequence_start += units_per_sequence_ * boxes;
            ++state_.sequence;
        }
        return piece;
    }

    __device__ __forceinline__ const State &state() const { return state_; }

  private:
    __device__ __forceinline__ SplitSchedule(const gqa_decode_params &params, int rank)
        : params_(params), rank_(rank), lane_(threadIdx.x & 31), box_shift_(__ffs(params.box_tokens) - 1),
          sequences_per_request_(params.sequences_per_request), num_sequences_(params.batch_size * sequences_per_request_),
          units_per_sequence_(params.heads_per_sequence * params.row_groups) {}

    static constexpr int lookahead = 2; /* windows whose lengths are loaded together */

    __device__ __forceinline__ int request_of(int sequence) const {
        if (rarely(sequences_per_request_ > 1)) return sequence / sequences_per_request_;
        return sequence;
    }

    __device__ __forceinline__ int load_tokens(int sequence) const {
        if (sequence >= num_sequences_) return 0;
        const int request = request_of(sequence),
                  head = (sequence - request * sequences_per_request_) * params_.heads_per_sequence;
        return params_.seq_lens[request * params_.seq_lens_request_stride + head * params_.seq_lens_head_stride];
    }

    /* Lane i now holds what is needed of sequence `first` + i. */
    __device__ __forceinline__ void set_window(int first, int tokens) {
        state_.window_first = first;
        state_.window = {};
        state_.window_boxes = 0;
        if (first + lane_ < num_sequences_) {
            const bool has_position = params_.query_positions != nullptr;
            int64_t distance = 0;
            if (rarely(has_position))
                distance = static_cast<int64_t>(params_.query_positions[request_of(first + lane_)]) - params_.position_offset;
            state_.window =
                visible_range(tokens, params_.window_left, params_.position_stride, has_position, distance, box_shift_);
            state_.window_boxes = max(state_.window.num_boxes, 1);
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
    const int rank_, lane_, box_shift_, sequences_per_request_, num_sequences_, units_per_sequence_;
    State state_;
};

} // namespace pipeline
