/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sequence_window.cuh: the lengths of all sequences in, the boxes of their units out, for split_schedule.cuh to cut: a pair of sequences for
 * every lane, and where there are more than that, how many boxes each lane's have, and the pairs around a place among them.
 */
#pragma once

#include <cstdint>

#include "abi.h"
#include "pipeline/visible_range.cuh"

namespace pipeline {

/* With margins; at least 1 beside them. */
__device__ __forceinline__ uint32_t unit_boxes(const TokenRange &range, int box_shift, uint32_t margins) {
    return max(range.num_boxes(box_shift), 1u) + margins;
}

/*
 * Two sequences, one after the other: what they see, the boxes of one unit with its margins (of those at least 1, 0 past the last
 * sequence), and how many units of each there are for one worker of a group.
 */
struct SequencePair {
    TokenRange range[2];
    uint32_t boxes[2], units[2];

    SequencePair() = default;
    /* `is_plain`: lengths alone say what is seen. */
    __device__ __forceinline__ SequencePair(const Sequences &sequences, int sequence, const int (&lengths)[2], int heads,
                                            int box_shift, uint32_t margins, bool is_plain) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            range[i] = is_plain ? sequences.common_range(sequences.tokens_of(lengths[i]))
                                : sequences.visible_range(sequence + i, lengths[i]);
            boxes[i] = sequence + i < sequences.count ? unit_boxes(range[i], box_shift, margins) : 0u;
            units[i] = heads * (is_plain ? sequences.row_passes : sequences.passes(sequence + i));
        }
    }

    /* Of all its units. */
    __device__ __forceinline__ uint32_t flat_boxes() const { return boxes[0] * units[0] + boxes[1] * units[1]; }
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

/* Sequences that a warp looks at together, lane i at number 2 i and 2 i + 1. Of more, it counts all, and then looks at those around its position. */
constexpr int window_sequences = 64;

struct SequenceWindow {
    SequencePair pair;
    uint32_t inclusive; /* flat boxes of the window's sequences up to and with these */
};

/* Whether every request has a length, which says what it sees and how many passes it takes. */
__device__ __forceinline__ bool are_plain(const Sequences &sequences) {
    return (sequences.rare & SCHEDULE_EXACT_RANGES) == 0 && sequences.per_request.value == 1 && sequences.seq_lens != nullptr;
}

/*
 * Whether sequences are query tokens, as many of every request, whose lengths say what they see. Without SCHEDULE_EXACT_RANGES such are plain,
 * if each has a length of its own.
 */
__device__ __forceinline__ bool are_query_tokens(const Sequences &sequences) {
    return (sequences.rare & SCHEDULE_EXACT_RANGES) != 0 && sequences.top_k > 0 && sequences.cum_seq_lens_q == nullptr &&
           sequences.top_k_lens == nullptr && sequences.seq_lens != nullptr;
}

/*
 * Sequences whose lengths say what they see have functions of their own: their words are read together, and their lengths, each time a trip
 * to memory, several at a time and ahead. Past the last one it is read again: all that are asked for exist. Plain ones:
 */
class PlainLengths {
  public:
    /* From sequence `first` on, up to `last`. */
    __device__ __forceinline__ PlainLengths(const Sequences &sequences, int first, int last)
        : first_(sequences.seq_lens + first * sequences.request_stride), stride_(sequences.request_stride), last_(last - first) {}
    __device__ __forceinline__ int operator[](int i) const {
        const int32_t *const lengths = first_;
        __builtin_assume(__isGlobal(lengths));
        return lengths[min(i, last_) * stride_];
    }

  private:
    const int32_t *const first_;
    const int64_t stride_;
    const int last_;
};

/* Of sequences that are query tokens, likewise: as long as they have columns. */
class QueryTokenLengths {
  public:
    __device__ __forceinline__ QueryTokenLengths(const Sequences &sequences, int first, int last)
        : sequences_(sequences), first_(first), last_(last) {}
    __device__ __forceinline__ int operator[](int i) const {
        const int sequence = min(first_ + i, last_), request = sequences_.request_of(sequence);
        const int32_t *const lengths = sequences_.seq_lens;
        __builtin_assume(__isGlobal(lengths));
        const int tokens = sequences_.tokens_of(lengths[request * sequences_.request_stride]);
        return min(columns_up_to(tokens, sequences_.q_len, sequence - request * sequences_.q_len), sequences_.top_k);
    }

  private:
    const Sequences &sequences_;
    const int first_, last_;
};

template <class Lengths>
__device__ __noinline__ SequenceWindow window_of(const Sequences &shared, int first, int heads, int box_shift, uint32_t margins) {
    const Sequences sequences = shared;
    const int pair = (threadIdx.x & 31) * 2;
    const Lengths lengths_from(sequences, first, sequences.count - 1);
    const int lengths[2] = {lengths_from[pair], lengths_from[pair + 1]};
    SequenceWindow window;
    window.pair = SequencePair(sequences, first + pair, lengths, heads, box_shift, margins, true);
    window.inclusive = inclusive_scan(window.pair.flat_boxes());
    return window;
}

template <class Lengths>
__device__ __noinline__ uint32_t count_boxes_of(const Sequences &shared, int first, int end, int heads, int box_shift,
                                                uint32_t margins) {
    constexpr int together = 4;
    if (first >= end)
        return 0;
    const Sequences sequences = shared;
    const Lengths lengths_from(sequences, first, end - 1);
    int lengths[together];
#pragma unroll
    for (int i = 0; i < together; ++i)
        lengths[i] = lengths_from[i];
    uint32_t boxes = 0;
#pragma unroll 1
    for (int next = together;; next += together) {
        int upcoming[together];
#pragma unroll
        for (int i = 0; i < together; ++i)
            upcoming[i] = lengths_from[next + i];
#pragma unroll
        for (int i = 0; i < together; ++i) {
            const TokenRange range = sequences.common_range(sequences.tokens_of(lengths[i]));
            boxes += first + next - together + i < end ? unit_boxes(range, box_shift, margins) : 0u;
            lengths[i] = upcoming[i];
        }
        if (first + next >= end)
            return boxes * heads * sequences.row_passes;
    }
}

/* Of any sequences. `is_sparse`: are_query_tokens is to be asked, which the shared copy answers sooner than the parameter block. */
template <bool is_sparse>
__device__ __noinline__ SequenceWindow window_at(const Sequences &sequences, int first, int heads, int box_shift,
                                                 uint32_t margins) {
    if (is_sparse && are_query_tokens(sequences))
        return window_of<QueryTokenLengths>(sequences, first, heads, box_shift, margins);
    const int sequence = first + (threadIdx.x & 31) * 2;
    const int lengths[2] = {sequences.load_length(sequence), sequences.load_length(sequence + 1)};
    SequenceWindow window;
    window.pair = SequencePair(sequences, sequence, lengths, heads, box_shift, margins, false);
    window.inclusive = inclusive_scan(window.pair.flat_boxes());
    return window;
}

/* The flat boxes of the sequences from `first` on up to `end`. */
template <bool is_sparse>
__device__ __noinline__ uint32_t count_boxes(const Sequences &sequences, int first, int end, int heads, int box_shift,
                                             uint32_t margins) {
    if (is_sparse && are_query_tokens(sequences))
        return count_boxes_of<QueryTokenLengths>(sequences, first, end, heads, box_shift, margins);
    uint32_t boxes = 0;
    int upcoming = sequences.load_length(first);
#pragma unroll 1
    for (; first < end; ++first) {
        const int length = upcoming;
        upcoming = sequences.load_length(first + 1);
        boxes += unit_boxes(sequences.visible_range(first, length), box_shift, margins) * sequences.passes(first);
    }
    return boxes * heads;
}

struct WindowPlace {
    int first_sequence;
    uint32_t first_box;
};

/* The sequences of the lane that the position lies among. Lane i has so many boxes of its own, and up to and with these. */
__device__ __noinline__ WindowPlace lane_around(uint32_t position, uint32_t inclusive, uint32_t lane_boxes,
                                                int sequences_per_lane) {
    const int lane = __ffs(__ballot_sync(0xffffffffu, position < inclusive)) - 1;
    return {lane * sequences_per_lane, __shfl_sync(0xffffffffu, inclusive - lane_boxes, lane)};
}

} // namespace pipeline
