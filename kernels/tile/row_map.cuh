/* SPDX-License-Identifier: Apache-2.0 */
/* row_map.cuh: the rows of a unit <-> query token and query head: where a row lies in query, out and lse, and how many there are. */
#pragma once

#include <cstdint>

#include "abi.h"

namespace tile {

/* Rows from `first_row` of the unit on: the query heads of one KV head, for the request's one query token. */
class RowMap {
  public:
    __device__ __forceinline__ RowMap(const query_params &query, int request, int kv_head, int first_row)
        : token_(request), first_head_(kv_head * query.group_size + first_row), live_rows_(query.group_size - first_row) {}

    /* Rows past these are padding: computed as zeros, never stored. May be negative: then there are none. */
    __device__ __forceinline__ int live_rows() const { return live_rows_; }

    __device__ __forceinline__ int head(int row) const { return first_head_ + row; }

    __device__ __forceinline__ int token() const { return token_; }

    /* Elements from the start of query, of out, and of lse. */
    __device__ __forceinline__ int64_t query_offset(const query_params &query, int row) const {
        return token_ * query.token_stride + head(row) * query.head_stride;
    }
    __device__ __forceinline__ int64_t output_offset(const output_params &output, int row) const {
        return token_ * output.token_stride + head(row) * output.head_stride;
    }
    __device__ __forceinline__ int64_t lse_offset(const output_params &output, int row) const {
        return token_ * output.lse_token_stride + head(row) * output.lse_head_stride;
    }

  private:
    int token_, first_head_, live_rows_;
};

} // namespace tile
