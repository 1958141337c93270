/* SPDX-License-Identifier: Apache-2.0 */
/*
 * history.cuh: what of a programmatic launch may begin while the kernel ahead of it on the stream still runs. Without
 * SCHEDULE_HISTORY_FINAL nothing: all threads wait before they do anything else. With it lengths, page table and all KV rows but the
 * newest of each sequence are promised to be final, so the ring fills meanwhile. Producers wait before a tile with newest rows, the
 * announcer before it hands out a piece, and so the consumers: queries, results, records and all else the kernel ahead may use, too.
 * Sparse MLA, whose token ids are the newest of all, and what copies rows for tiles of 64 rows and more one by one wait at once all the same.
 */
#pragma once

#include "abi.h"
#include "pipeline/split_schedule.cuh"
#include "ptx/memory.cuh"

namespace pipeline {

__device__ __forceinline__ bool is_history_final(const schedule_params &params) {
    return (params.rare & SCHEDULE_HISTORY_FINAL) != 0;
}

/* From which token of the piece's sequence on rows are the newest; or an earlier one, where its last tokens are not visible. */
__device__ __forceinline__ int first_newest_token(const schedule_params &params, const Piece &piece) {
    return max(piece.end_token - params.q_len, 0);
}

/* The announcer, before its first piece. The next kernel may begin only now: else it could run beside the one ahead of this. */
__device__ __forceinline__ void await_the_rest(const schedule_params &params) {
    ptx::wait_for_preceding_kernel();
    if ((params.rare & SCHEDULE_LETS_NEXT_BEGIN) != 0)
        ptx::let_next_kernel_begin();
}

} // namespace pipeline
