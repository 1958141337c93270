/* SPDX-License-Identifier: Apache-2.0 */
/* first_query.cuh: a dense MLA launch in, lines of its queries asked for in the second cache out. */
#pragma once

#include <cstdint>

#include "abi.h"
#include "pipeline/split_schedule.cuh"
#include "ptx/scalar.cuh"
#include "tile/quotient.cuh"
#include "tile/row_map.cuh"

namespace pipeline {

/*
 * The queries of the unit that is this worker's first where all requests are alike (split_schedule.cuh), while the schedule is still on
 * its way: once it is known KV is read, and a query from memory would come behind that. Never beyond the queries: a line of unmapped
 * memory takes some 40 us on an H200, and as long as that the kernel.
 */
template <class Query, int row_tile>
__device__ __forceinline__ void prefetch_first_query(const mla_decode_params &params, int worker, int threads) {
    const schedule_params &schedule = params.schedule;
    if (schedule.cum_seq_lens_q != nullptr)
        return;
    const uint32_t heads = schedule.heads_per_worker.value, units = heads * schedule.row_passes;
    const uint32_t unit = tile::quotient((worker >> schedule.head_shift) * schedule.batch_size * units, schedule.num_workers);
    const uint32_t request = units == 1 ? unit : divide(unit, units);
    if (request >= static_cast<uint32_t>(schedule.batch_size)) /* a worker too many, or a product of more than 32 bits */
        return;
    const int pass = tile::quotient(unit - request * units, schedule.heads_per_worker);
    const int head_in_request = unit - request * units - pass * heads;
    const int kv_head = (head_in_request << schedule.head_shift) + (worker & ((1 << schedule.head_shift) - 1));
    const int first_row = pass * row_tile;
    const int live_rows = min(schedule.q_len * static_cast<int>(schedule.group_size.value) - first_row, row_tile);
    Query::prefetch(params, tile::RowMap(schedule.group_size, request * schedule.q_len, kv_head, first_row), live_rows,
                    static_cast<int>(ptx::thread_index_here()), threads);
}

} // namespace pipeline
