/* SPDX-License-Identifier: Apache-2.0 */
/*
 * visible_range.cuh: which tokens of a sequence its query sees, from lengths, window and positions.
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

struct Sequences;
__device__ VisibleRange range_by_position(const Sequences &sequences, int sequence, int tokens);

/*
 * The sequences of a launch, one after the other. A "sequence" is one entry of seq_lens: a request, or one KV head of a request
 * when lengths have a head stride. Inlined code reads the parameter block itself; functions that are not inlined get a copy in
 * shared memory, since the parameter block by reference is read through generic addresses, a trip to memory for every word, and
 * its words as arguments would be gathered on the way to the first copy, before anyone knows whether they are needed.
 */
struct Sequences {
    const int32_t *seq_lens, *query_positions;
    int64_t request_stride, head_stride;
    libdecode_divisor per_request;
    int32_t heads_per_sequence, count, max_tokens, window_reach;
    int32_t window_left, position_offset;
    libdecode_divisor position_stride;

    Sequences() = default;
    explicit __device__ __forceinline__ Sequences(const schedule_params &params)
        : seq_lens(params.seq_lens), query_positions(params.query_positions), request_stride(params.seq_lens_request_stride),
          head_stride(params.seq_lens_head_stride), per_request(params.sequences_per_request),
          heads_per_sequence(params.heads_per_sequence), count(params.batch_size * params.sequences_per_request.value),
          max_tokens(params.max_tokens), window_reach(params.window_reach), window_left(params.window_left),
          position_offset(params.position_offset), position_stride(params.position_stride) {}

    __device__ __forceinline__ int request_of(int sequence) const { return quotient(sequence, per_request); }
    __device__ __forceinline__ int first_head_of(int sequence, int request) const {
        return (sequence - request * static_cast<int>(per_request.value)) * heads_per_sequence;
    }

    /* The length that the caller wrote; 0 past the last sequence. */
    __device__ __forceinline__ int load_length(int sequence) const {
        if (sequence >= count)
            return 0;
        const int request = request_of(sequence);
        __builtin_assume(__isGlobal(seq_lens)); /* which a function that is not inlined cannot tell */
        return seq_lens[request * request_stride + first_head_of(sequence, request) * head_stride];
    }

    /* What its query sees, from its length: below 0 that counts as 0, beyond the page table as the page table's width. */
    __device__ __forceinline__ VisibleRange visible_range(const Sequences &shared_copy, int sequence, int length) const {
        const int tokens = min(max(length, 0), max_tokens);
        if (rarely(query_positions != nullptr) && sequence < count)
            return range_by_position(shared_copy, sequence, tokens);
        /* Without positions the query is the newest token: everything up to it is visible. */
        return {max(tokens - 1 - window_reach, 0), tokens};
    }
};

/* What a query sees that does not stand behind the newest token: by its position, its window and the KV position rule. */
__device__ __noinline__ VisibleRange range_by_position(const Sequences &sequences, int sequence, int tokens) {
    /* Distance of the query from position 0 of the cache, 33 bits at most: below 0 it sees nothing, else it fits 32. */
    const int32_t *const positions = sequences.query_positions;
    __builtin_assume(__isGlobal(positions));
    const int64_t position = positions[sequences.request_of(sequence)];
    const int64_t distance = position - sequences.position_offset, oldest = distance - sequences.window_left;
    const uint32_t count = tokens;
    const int end = distance < 0 ? 0 : min(quotient(static_cast<uint32_t>(distance), sequences.position_stride) + 1u, count);
    int first = 0;
    if (sequences.window_left >= 0 && oldest > 0)
        first = min(quotient(static_cast<uint32_t>(oldest) - 1u, sequences.position_stride) + 1u, count);
    return {first, max(end, first)};
}

} // namespace pipeline
