/* SPDX-License-Identifier: Apache-2.0 */
/*
 * visible_range.cuh: which tokens of a sequence its query sees, from lengths, window and positions.
 */
#pragma once

#include <cstdint>

#include "abi.h"
#include "tile/quotient.cuh"
#include "tile/token_range.cuh"

namespace pipeline {

/*
 * A branch that most launches do not take. What it does stands in a function that is not inlined: the way to the first copy
 * runs once, so it waits for its instructions to be fetched, and longest where it jumps over others.
 */
__device__ __forceinline__ bool rarely(bool condition) { return __builtin_expect(condition, false); }

using tile::quotient;
using tile::TokenRange;

struct Sequences;
__device__ TokenRange exact_range(const Sequences &sequences, int sequence, int tokens);
__device__ int exact_row_passes(const Sequences &sequences, int sequence);

/*
 * The sequences of a launch, one after the other. A "sequence" is one entry of seq_lens: a request, or one KV head of a request
 * when lengths have a head stride. Inlined code reads the parameter block itself; functions that are not inlined get a copy in
 * shared memory, since the parameter block by reference is read through generic addresses, a trip to memory for every word, and
 * its words as arguments would be gathered on the way to the first copy, before anyone knows whether they are needed.
 */
struct Sequences {
    const int32_t *seq_lens, *query_positions, *cum_seq_lens_q, *top_k_lens;
    int64_t request_stride, head_stride;
    libdecode_divisor per_request;
    int32_t heads_per_sequence, count, max_tokens, window_reach;
    int32_t row_passes, q_len, rows_per_token, row_tile;
    int32_t window_left, position_offset, top_k;
    uint32_t rare;
    bool has_draft_mask;
    libdecode_divisor position_stride;

    Sequences() = default;
    explicit __device__ __forceinline__ Sequences(const schedule_params &params)
        : seq_lens(params.seq_lens), query_positions(params.query_positions), cum_seq_lens_q(params.cum_seq_lens_q),
          top_k_lens(params.top_k_lens), request_stride(params.seq_lens_request_stride), head_stride(params.seq_lens_head_stride),
          per_request(params.sequences_per_request), heads_per_sequence(params.heads_per_sequence),
          count(params.batch_size * params.sequences_per_request.value), max_tokens(params.max_tokens),
          window_reach(params.window_reach), row_passes(params.row_passes), q_len(params.q_len),
          rows_per_token(params.group_size.value), row_tile(params.row_tile), window_left(params.window_left),
          position_offset(params.position_offset), top_k(params.top_k), rare(params.rare),
          has_draft_mask(params.draft_mask != nullptr), position_stride(params.position_stride) {}

    __device__ __forceinline__ int request_of(int sequence) const { return quotient(sequence, per_request); }
    __device__ __forceinline__ int first_head_of(int sequence, int request) const {
        return (sequence - request * static_cast<int>(per_request.value)) * heads_per_sequence;
    }

    /* The length that the caller wrote, or all that there is room for; 0 past the last sequence. */
    __device__ __forceinline__ int load_length(int sequence) const {
        if (sequence >= count)
            return 0;
        if (seq_lens == nullptr)
            return max_tokens;
        __builtin_assume(__isGlobal(seq_lens)); /* which a function that is not inlined cannot tell */
        if (per_request.value == 1)
            return seq_lens[sequence * request_stride];
        const int request = request_of(sequence);
        return seq_lens[request * request_stride + first_head_of(sequence, request) * head_stride];
    }

    /* Of that length: below 0 it counts as 0, beyond the page table as the page table's width. */
    __device__ __forceinline__ int tokens_of(int length) const { return min(max(length, 0), max_tokens); }

    /* What any of its query tokens sees, from its length. */
    __device__ __forceinline__ TokenRange visible_range(int sequence, int length) const {
        const int tokens = tokens_of(length);
        if ((rare & SCHEDULE_EXACT_RANGES) != 0 && sequence < count)
            return exact_range(*this, sequence, tokens);
        return common_range(tokens);
    }
    /* Without positions the queries are the newest tokens: everything up to them is visible. */
    __device__ __forceinline__ TokenRange common_range(int tokens) const { return {max(tokens - 1 - window_reach, 0), tokens}; }

    /* Units of one KV head. */
    __device__ __forceinline__ int passes(int sequence) const {
        return (rare & SCHEDULE_EXACT_RANGES) != 0 && sequence < count ? exact_row_passes(*this, sequence) : row_passes;
    }
};

/* The query tokens of a request: where they begin among those of the launch, and how many there are. */
struct QueryTokens {
    int first, count;

    __device__ __forceinline__ QueryTokens(const Sequences &sequences, int request)
        : first(request * sequences.q_len), count(sequences.q_len) {
        const int32_t *const begins = sequences.cum_seq_lens_q;
        if (begins != nullptr) {
            __builtin_assume(__isGlobal(begins));
            first = begins[request];
            count = min(max(begins[request + 1] - first, 0), sequences.q_len);
        }
    }
};

/* What one query token sees of the tokens of its sequence; of draft tokens, where there is a mask, another word is said elsewhere. */
struct QueryView {
    TokenRange range;
    int64_t position;
    bool exists; /* false: it stands before the sequence, and sees nothing */

    __device__ __forceinline__ QueryView(const Sequences &sequences, int request, const QueryTokens &query, int token,
                                         int tokens) {
        const int own = tokens - query.count + token;
        if (sequences.query_positions == nullptr) {
            const int reach = sequences.window_reach == INT32_MAX ? INT32_MAX : sequences.window_reach - (sequences.q_len - 1);
            exists = own >= 0;
            position = static_cast<int64_t>(own) * sequences.position_stride.value + sequences.position_offset;
            range = {max(max(own, 0) - reach, 0), max(own + 1, 0)}; /* no difference overflows */
            return;
        }
        const int32_t *const positions = sequences.query_positions;
        __builtin_assume(__isGlobal(positions));
        position = static_cast<int64_t>(positions[request]) + token;
        exists = true;
        /* Distance from position 0 of the cache, 33 bits at most: below 0 it sees nothing, else it fits 32. */
        const int64_t distance = position - sequences.position_offset, oldest = distance - sequences.window_left;
        const uint32_t count = tokens;
        range.end = distance < 0 ? 0 : min(quotient(static_cast<uint32_t>(distance), sequences.position_stride) + 1u, count);
        range.first = 0;
        if (sequences.window_left >= 0 && oldest > 0)
            range.first = min(quotient(static_cast<uint32_t>(oldest) - 1u, sequences.position_stride) + 1u, count);
    }
};

/* Of a request of so many tokens, that end with `count` query tokens: how many there are up to this one, and with it. */
__device__ __forceinline__ int columns_up_to(int tokens, int count, int token) { return tokens - count + token + 1; }

/* Of a sequence that is a query token of its request: how many columns of its ids it uses. */
__device__ __forceinline__ TokenRange used_columns(const Sequences &sequences, int sequence, int tokens) {
    const int request = sequences.request_of(sequence), token = sequence - request * sequences.q_len;
    const QueryTokens query(sequences, request);
    if (token >= query.count)
        return {0, 0};
    int columns = columns_up_to(tokens, query.count, token);
    if (const int32_t *const counts = sequences.top_k_lens; counts != nullptr) {
        __builtin_assume(__isGlobal(counts));
        columns = counts[query.first + token];
    }
    return {0, min(max(columns, 0), sequences.top_k)};
}

/* From where the first query token's window begins to where the last one ends; with a draft mask, to the last token. */
__device__ __noinline__ TokenRange exact_range(const Sequences &sequences, int sequence, int tokens) {
    if (sequences.top_k > 0)
        return used_columns(sequences, sequence, tokens);
    const int request = sequences.request_of(sequence);
    const QueryTokens query(sequences, request);
    if (query.count == 0)
        return {0, 0};
    const QueryView first(sequences, request, query, 0, tokens), last(sequences, request, query, query.count - 1, tokens);
    const int end = sequences.has_draft_mask && last.exists ? tokens : last.range.end;
    return {first.range.first, max(end, first.range.first)};
}

__device__ __noinline__ int exact_row_passes(const Sequences &sequences, int sequence) {
    if (sequences.top_k > 0)
        return sequences.row_passes;
    const QueryTokens query(sequences, sequences.request_of(sequence));
    const int row_shift = __ffs(sequences.row_tile) - 1;
    return max((query.count * sequences.rows_per_token + sequences.row_tile - 1) >> row_shift, 1);
}

} // namespace pipeline
