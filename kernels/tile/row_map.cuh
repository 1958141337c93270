/* SPDX-License-Identifier: Apache-2.0 */
/*
 * row_map.cuh: the rows of a unit <-> query token and query head: where a row lies in query, out and lse. Rows count the heads of a
 * query token, then those of the next.
 */
#pragma once

#include <cstdint>

#include "abi.h"
#include "tile/quotient.cuh"

namespace tile {

class RowMap {
  public:
    static constexpr bool have_biases = false; /* tile/biased_rows.cuh */

    /* Rows from `first_row` of the request and KV head on; `first_token`: its first query token, among those of the launch. */
    __device__ __forceinline__ RowMap(const libdecode_divisor &group_size, int first_token, int kv_head, int first_row)
        : group_size_(group_size), first_token_(first_token), first_head_(kv_head * static_cast<int>(group_size.value)),
          first_row_(first_row) {}

    __device__ __forceinline__ int token(int row) const { return first_token_ + token_of_request(row); }
    __device__ __forceinline__ int head(int row) const {
        return first_head_ + first_row_ + row - token_of_request(row) * static_cast<int>(group_size_.value);
    }

    /* Elements from the start of query, of out, and of lse. */
    __device__ __forceinline__ int64_t query_offset(const query_params &query, int row) const {
        return token(row) * query.token_stride + head(row) * query.head_stride;
    }
    __device__ __forceinline__ int64_t output_offset(const output_params &output, int row) const {
        return token(row) * output.token_stride + head(row) * output.head_stride;
    }
    __device__ __forceinline__ int64_t lse_offset(const output_params &output, int row) const {
        return token(row) * output.lse_token_stride + head(row) * output.lse_head_stride;
    }

  private:
    __device__ __forceinline__ int token_of_request(int row) const { return quotient(first_row_ + row, group_size_); }

    const libdecode_divisor &group_size_;
    const int first_token_, first_head_, first_row_;
};

/* Elements from where a request's rows would lie to where they do: by offsets, or with NULL none. */
__device__ __forceinline__ int64_t request_shift(const int64_t *offsets, int request, int first_token, int64_t token_stride) {
    return offsets != nullptr ? offsets[request] - first_token * token_stride : 0;
}

/* The same, where each request has a place of its own in query and in out. */
class OffsetRowMap : public RowMap {
  public:
    __device__ __forceinline__ OffsetRowMap(const RowMap &rows, int64_t query_shift, int64_t output_shift)
        : RowMap(rows), query_shift_(query_shift), output_shift_(output_shift) {}

    __device__ __forceinline__ int64_t query_offset(const query_params &query, int row) const {
        return RowMap::query_offset(query, row) + query_shift_;
    }
    __device__ __forceinline__ int64_t output_offset(const output_params &output, int row) const {
        return RowMap::output_offset(output, row) + output_shift_;
    }

  private:
    const int64_t query_shift_, output_shift_;
};

} // namespace tile
