/* SPDX-License-Identifier: Apache-2.0 */
/*
 * split_schedule.cuh: who computes what. Balanced for requests of any mix of lengths, decided on the device from seq_lens.
 *
 * A unit is (request, KV head, row group): what one softmax runs over. Its visible tokens are counted in boxes (what one
 * copy brings). All boxes of all units, laid end to end, are cut into equal contiguous ranges, one per worker; the part of
 * a unit inside a range is a piece. A worker is a CTA, or a cluster, whose CTAs then share every piece.
 * A unit without visible tokens counts as one box, so that exactly one worker owns it and writes its empty result.
 *
 * The producer warps and the announcer warp walk the schedule, each for itself (families/gqa_decode.cu). A "sequence" is one
 * entry of seq_lens: a request, or one KV head of a request when lengths have a head stride.
 *
 * Nothing can be copied before the first piece is known, so the way there is short: lanes work side by side, two sequences
 * each, and a vote of the lanes or a multiplication by a reciprocal stands where a division would take longer.
 */
#pragma once

#include <cstdint>

#include "abi.h"

namespace pipeline {

/*
 * A branch that most launches do not take. What it does stands in a function that is not inlined: the way to the first copy
 * runs once, so it waits for its instructions to be fetched, and longest where it jumps over others.
 */
__device__ __forceinline__ bool rarely(bool condition) { return __builtin_expect(condition, false); }
__device__ __noinline__ uint32_t divide(uint32_t dividend, uint32_t divisor) { return dividend / divisor; }

__device__ __forceinline__ uint32_t quotient(uint32_t dividend, const libdecode_divisor &divisor) {
    const uint32_t estimate = __umulhi(dividend, divisor.reciprocal); /* right, or one too small */
    return dividend - estimate * divisor.value >= divisor.value ? estimate + 1 : estimate;
}

/* Visible tokens of a sequence; empty: equal. */
struct VisibleRange {
    int first_token, end_token;

    __device__ __forceinline__ uint32_t num_boxes(int box_shift) const {
        if (end_token <= first_token)
            return 0;
        return ((end_token - 1) >> box_shift) - (first_token >> box_shift) + 1;
    }
};

/* The first KV head of a sequence. */
__device__ __forceinline__ int first_head(const schedule_params &params, int sequence, int request) {
    return (sequence - request * params.sequences_per_request.value) * params.heads_per_sequence;
}

/* Length of a sequence; 0 past the last. */
__device__ __forceinline__ int load_tokens(const schedule_params &params, int num_sequences, int sequence) {
    if (sequence >= num_sequences)
        return 0;
    const int request = quotient(sequence, params.sequences_per_request);
    const int head = first_head(params, sequence, request);
    return params.seq_lens[request * params.seq_lens_request_stride + head * params.seq_lens_head_stride];
}

/* What the query token of a sequence sees by its position, its window and the KV position rule. */
__device__ __noinline__ VisibleRange range_by_position(const schedule_params &params, int sequence, int tokens) {
    const int request = quotient(sequence, params.sequences_per_request);
    /* Distance of the query from position 0 of the cache, 33 bits at most: below 0 it sees nothing, else it fits 32. */
    const int64_t distance = static_cast<int64_t>(params.query_positions[request]) - params.position_offset;
    const int64_t oldest = distance - params.window_left;
    const uint32_t count = tokens;
    const int end = distance < 0 ? 0 : min(quotient(static_cast<uint32_t>(distance), params.position_stride) + 1u, count);
    int first = 0;
    if (params.window_left >= 0 && oldest > 0)
        first = min(quotient(static_cast<uint32_t>(oldest) - 1u, params.position_stride) + 1u, count);
    return {first, max(end, first)};
}

/* Two sequences, one after the other: what they see, and the boxes of one unit: at least 1, 0 past the last sequence. */
struct SequencePair {
    VisibleRange range[2];
    uint32_t boxes[2];

    SequencePair() = default;
    __device__ __forceinline__ SequencePair(const schedule_params &params, int num_sequences, int sequence,
                                            const int (&tokens)[2], int box_shift) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            /* Without positions the query is the newest token: everything up to it is visible. */
            range[i] = {max(tokens[i] - 1 - params.window_reach, 0), tokens[i]};
            boxes[i] = 0;
            if (sequence + i < num_sequences) {
                if (rarely(params.query_positions != nullptr))
                    range[i] = range_by_position(params, sequence + i, tokens[i]);
                boxes[i] = max(range[i].num_boxes(box_shift), 1u);
            }
        }
    }
};

__device__ __forceinline__ uint32_t inclusive_scan(uint32_t value) {
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
        const uint32_t below = __shfl_up_sync(0xffffffffu, value, distance);
        if ((threadIdx.x & 31) >= distance)
            value += below;
    }
    return value;
}

/* Lane i knows the sequences 2 i and 2 i + 1 of 64. */
struct SequenceWindow {
    SequencePair pair;
    uint32_t inclusive; /* flat boxes of the window's sequences up to and with these */
};

__device__ __noinline__ SequenceWindow window_at(const schedule_params &params, int num_sequences, int first,
                                                 uint32_t units_per_sequence, int box_shift) {
    const int sequence = first + (threadIdx.x & 31) * 2;
    const int tokens[2] = {load_tokens(params, num_sequences, sequence), load_tokens(params, num_sequences, sequence + 1)};
    SequenceWindow window;
    window.pair = SequencePair(params, num_sequences, sequence, tokens, box_shift);
    window.inclusive = inclusive_scan((window.pair.boxes[0] + window.pair.boxes[1]) * units_per_sequence);
    return window;
}

/* Flat boxes of `pairs` pairs of sequences, for the units of one. */
__device__ __noinline__ uint32_t count_boxes(const schedule_params &params, int num_sequences, int sequence, int pairs,
                                             int box_shift) {
    uint32_t boxes = 0;
    int upcoming[2] = {load_tokens(params, num_sequences, sequence), load_tokens(params, num_sequences, sequence + 1)};
#pragma unroll 1
    for (; pairs > 0; --pairs, sequence += 2) {
        const int tokens[2] = {upcoming[0], upcoming[1]};
        for (int i = 0; i < 2; ++i)
            upcoming[i] = load_tokens(params, num_sequences, sequence + 2 + i);
        const SequencePair pair(params, num_sequences, sequence, tokens, box_shift);
        boxes += pair.boxes[0] + pair.boxes[1];
    }
    return boxes;
}

/* The part of a unit that falls to one worker. */
struct Piece {
    int request, kv_head, row_group;
    int first_token, end_token;      /* visible tokens of the whole unit; empty: equal */
    int first_box, end_box;          /* this CTA's boxes of the piece; empty: equal */
    uint32_t unit_start, unit_boxes; /* flat boxes of the whole unit, at least 1 */
    uint32_t first_worker;           /* workers that share the unit, from find_workers */
    uint32_t num_workers;
    bool is_last;     /* of this worker */
    bool end_of_work; /* not a piece: there are no more */
};

/* All boxes cut into ranges: the first `longer` workers have one box more than the others. */
struct WorkSplit {
    uint32_t workers, quotient, longer;

    /* First flat box of a worker; of the one after the last: the total. */
    __device__ __forceinline__ uint32_t start(uint32_t worker) const { return worker * quotient + min(worker, longer); }

    /* The worker that owns a flat box. */
    __device__ __forceinline__ uint32_t worker_of(uint32_t box) const {
        const uint32_t boundary = longer * (quotient + 1);
        return box < boundary ? divide(box, quotient + 1) : longer + divide(box - boundary, quotient);
    }
};

/* All lanes of a warp call every function together. */
template <int cluster_size>
class SplitSchedule {
  public:
    __device__ __forceinline__ SplitSchedule(const schedule_params &params, uint32_t worker, uint32_t rank)
        : params_(params), worker_(worker), rank_(rank), lane_(threadIdx.x & 31), box_shift_(__ffs(params.box_tokens) - 1),
          num_sequences_(params.batch_size * params.sequences_per_request.value),
          units_per_sequence_(params.heads_per_sequence * params.row_groups.value), pairs_per_lane_((num_sequences_ + 63) / 64) {}

    /* Sends for the first lengths, which begin() waits for. */
    __device__ __forceinline__ void send_for_lengths() {
        const int sequence = lane_ * pairs_per_lane_ * 2;
#pragma unroll
        for (int i = 0; i < 2; ++i)
            tokens_[i] = load_tokens(params_, num_sequences_, sequence + i);
    }

    /* Cuts the work and finds where the worker begins. */
    __device__ __forceinline__ void begin() {
        const int sequence = lane_ * pairs_per_lane_ * 2;
        window_.pair = SequencePair(params_, num_sequences_, sequence, tokens_, box_shift_);
        uint32_t lane_boxes = pair_boxes(); /* flat, of the sequences that this lane counts */
        if (rarely(pairs_per_lane_ > 1))
            lane_boxes +=
                count_boxes(params_, num_sequences_, sequence + 2, pairs_per_lane_ - 1, box_shift_) * units_per_sequence_;
        const uint32_t total = __reduce_add_sync(0xffffffffu, lane_boxes);
        window_.inclusive = num_sequences_ <= 2 ? total : inclusive_scan(lane_boxes);

        split_.workers = params_.num_workers.value;
        split_.quotient = quotient(total, params_.num_workers);
        if (rarely(split_.quotient < params_.min_boxes_per_worker)) {
            split_.workers = max(divide(total, params_.min_boxes_per_worker), 1u);
            split_.quotient = divide(total, split_.workers);
        }
        split_.longer = total - split_.quotient * split_.workers;
        position_ = end_ = 0;
        if (worker_ >= split_.workers)
            return;
        position_ = split_.start(worker_);
        end_ = split_.start(worker_ + 1);

        window_first_ = 0;
        window_start_ = 0;
        if (rarely(pairs_per_lane_ > 1)) { /* one lane's sequences lie around the position: next() looks at them one by one */
            const int lane = __ffs(__ballot_sync(0xffffffffu, position_ < window_.inclusive)) - 1;
            window_first_ = lane * pairs_per_lane_ * 2 - 64;
            window_start_ = __shfl_sync(0xffffffffu, window_.inclusive - lane_boxes, lane);
            window_.inclusive = 0;
        }
    }

    /* The next piece of this worker, in order; after the last, end_of_work. */
    __device__ __forceinline__ Piece next() {
        Piece piece = {};
        piece.end_of_work = position_ == end_;
        if (piece.end_of_work)
            return piece;

        uint32_t here;
        while (rarely((here = __ballot_sync(0xffffffffu, position_ - window_start_ < window_.inclusive)) == 0)) {
            window_start_ += __shfl_sync(0xffffffffu, window_.inclusive, 31);
            window_first_ += 64;
            window_ = window_at(params_, num_sequences_, window_first_, units_per_sequence_, box_shift_);
        }
        const SequencePair &pair = window_.pair;
        const int source = __ffs(here) - 1;
        const uint32_t pair_start = window_start_ + __shfl_sync(0xffffffffu, window_.inclusive - pair_boxes(), source);
        const uint32_t first_flat = __shfl_sync(0xffffffffu, pair.boxes[0] * units_per_sequence_, source);
        const bool is_second = position_ - pair_start >= first_flat;
        const int sequence = window_first_ + source * 2 + is_second;
        const uint32_t offset = position_ - pair_start - (is_second ? first_flat : 0u);
        const uint32_t boxes = __shfl_sync(0xffffffffu, is_second ? pair.boxes[1] : pair.boxes[0], source);
        piece.first_token = __shfl_sync(0xffffffffu, is_second ? pair.range[1].first_token : pair.range[0].first_token, source);
        piece.end_token = __shfl_sync(0xffffffffu, is_second ? pair.range[1].end_token : pair.range[0].end_token, source);

        /* offset / boxes: lane i says whether unit i begins at or before the position. */
        int unit = __popc(__ballot_sync(0xffffffffu, lane_ * boxes <= offset)) - 1;
        if (rarely(units_per_sequence_ > 32))
            unit = divide(offset, boxes);
        const int head_in_sequence = quotient(unit, params_.row_groups);
        piece.row_group = unit - head_in_sequence * params_.row_groups.value;
        piece.request = quotient(sequence, params_.sequences_per_request);
        piece.kv_head = first_head(params_, sequence, piece.request) + head_in_sequence;
        const uint32_t first = offset - unit * boxes, end = min(boxes, first + (end_ - position_));
        piece.unit_start = position_ - first;
        piece.unit_boxes = boxes;
        /* The one box of an empty unit does not exist. */
        const uint32_t live = piece.end_token > piece.first_token ? end - first : 0;
        const int first_box = (piece.first_token >> box_shift_) + first;
        piece.first_box = first_box + live * rank_ / cluster_size;
        piece.end_box = first_box + live * (rank_ + 1) / cluster_size;
        position_ += end - first;
        piece.is_last = position_ == end_;
        return piece;
    }

    /* Who shares the unit of this worker's piece: lane i looks at the i-th worker before this one, and after. */
    __device__ __forceinline__ void find_workers(Piece &piece) const {
        const uint32_t unit_end = piece.unit_start + piece.unit_boxes;
        const uint32_t before =
            __popc(__ballot_sync(0xffffffffu, split_.start(worker_ - min(lane_, worker_)) > piece.unit_start));
        const uint32_t after = __popc(__ballot_sync(0xffffffffu, split_.start(worker_ + 1 + lane_) < unit_end));
        piece.first_worker = worker_ - before;
        piece.num_workers = before + 1 + after;
        if (rarely(before == 32 || after == 32)) {
            piece.first_worker = split_.worker_of(piece.unit_start);
            piece.num_workers = split_.worker_of(unit_end - 1) - piece.first_worker + 1;
        }
    }

  private:
    __device__ __forceinline__ uint32_t pair_boxes() const {
        return (window_.pair.boxes[0] + window_.pair.boxes[1]) * units_per_sequence_;
    }

    const schedule_params &params_;
    const uint32_t worker_, rank_, lane_;
    const int box_shift_, num_sequences_;
    const uint32_t units_per_sequence_;
    const int pairs_per_lane_; /* that a lane counts in begin() */
    int tokens_[2];            /* lengths on their way to begin() */
    WorkSplit split_;
    uint32_t position_, end_; /* flat boxes still to do */
    int window_first_;        /* sequence */
    uint32_t window_start_;   /* flat box of its first unit */
    SequenceWindow window_;
};

} // namespace pipeline
