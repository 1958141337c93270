/* SPDX-License-Identifier: Apache-2.0 */
/*
 * row_stream.cuh: the pieces of a worker, in order, tile by tile and token by token: which page each token lies in, for whoever
 * copies rows by addresses of its own (row_gather.cuh, row_turns.cuh, scale_gather.cuh), which ask some tiles ahead, across pieces.
 */
#pragma once

#include <cstdint>

#include "abi.h"
#include "pipeline/history.cuh"
#include "pipeline/split_schedule.cuh"

namespace pipeline {

/* Where requests have offsets: their array, or NULL; and of the tiles of a batch the request's own, in elements. Else nothing. */
template <bool exist>
struct RequestOffsets {
    const int64_t *of_requests;
    __device__ __forceinline__ explicit RequestOffsets(const int64_t *offsets = nullptr) : of_requests(offsets) {}
};
template <>
struct RequestOffsets<false> {
    __device__ __forceinline__ explicit RequestOffsets(const int64_t * = nullptr) {}
};
template <bool exist>
struct BatchOffset {
    int64_t offset;
};
template <>
struct BatchOffset<false> {};

/* Whether there are newest rows among the tile's: history.cuh. A kernel that has waited for the one ahead before it began does not ask. */
template <bool exist>
struct BatchNewest {
    bool has_newest;
};
template <>
struct BatchNewest<false> {
    static constexpr bool has_newest = false;
};

/* Where a row lies. `tables`: of one tensor, or of K and V. */
template <int tables>
struct RowPlace {
    int in_page;      /* token; below 0: not to be copied */
    int page[tables]; /* may be no page: negative, or beyond the last */

    __device__ __forceinline__ bool live() const { return in_page >= 0; }
};

/* A lane's tokens of a tile: number i is token `i * 32 + lane` of those that the warp looks after. */
template <int tokens_per_lane, int tables, bool has_offsets, bool finds_newest>
struct RowBatch : BatchOffset<has_offsets>, BatchNewest<finds_newest> {
    int kv_head;    /* below 0: there are no more tiles */
    uint32_t piece; /* of the worker's, the tile's; or how many there were */
    RowPlace<tables> rows[tokens_per_lane];

    __device__ __forceinline__ bool end_of_work() const { return kv_head < 0; }

    /* One whose number is known only as the kernel runs: compared with each, as registers have no addresses. */
    __device__ __forceinline__ RowPlace<tables> row(int number) const {
        RowPlace<tables> found = rows[0];
#pragma unroll
        for (int i = 1; i < tokens_per_lane; ++i) {
            if (i == number)
                found = rows[i];
        }
        return found;
    }
};

/*
 * A warp looks after `tokens` tokens of every tile of `tile_tokens`. `tables`: page ids of one tensor, or of K and V. `has_offsets`:
 * requests may have offsets, and there may be no pages, but for each request one without an end.
 */
template <int cluster_size, int tile_tokens, int tokens, int tables, bool has_offsets = false, bool finds_newest = true>
class RowStream {
  public:
    static constexpr int tokens_per_lane = (tokens + 31) / 32;
    using Batch = RowBatch<tokens_per_lane, tables, has_offsets, finds_newest>;
    using Offsets = RequestOffsets<has_offsets>;

    /* `first`: of the tile's tokens, the warp's. `together`: tokens that are copied all where one is visible; they share a page. */
    __device__ __forceinline__ RowStream(const schedule_params &params, SplitSchedule<cluster_size> &schedule, int first,
                                         int together, int64_t table_offset = 0, Offsets offsets = Offsets())
        : params_(params), table_(params.page_table + table_offset), offsets_(offsets), schedule_(schedule),
          box_shift_(__ffs(params.box_tokens) - 1), first_(first), together_(together), lane_(threadIdx.x & 31) {}

    /*
     * The next tile, or that so many `tiles_further`. All lanes call together. The loads of the ids are issued here and first waited for when an id is
     * used. Past the last tile, end_of_work, as often as it is called.
     */
    __device__ __forceinline__ Batch next(int tiles_further = 0) {
        Batch batch = {};
        for (;;) {
            while (token_ >= end_token_) {
                piece_ = schedule_.next();
                if (piece_.end_of_work) {
                    batch.kv_head = -1;
                    batch.piece = pieces_;
                    return batch;
                }
                ++pieces_;
                token_ = piece_.first_box << box_shift_;
                end_token_ = piece_.first_box < piece_.end_box ? min(piece_.end_token, piece_.end_box << box_shift_) : token_;
            }
            if (tiles_further-- == 0)
                break;
            token_ += tile_tokens;
        }
        batch.kv_head = piece_.kv_head;
        batch.piece = pieces_ - 1;
        if constexpr (finds_newest) {
            if (rarely(is_history_final(params_)))
                batch.has_newest = token_ + tile_tokens > first_newest_token(params_, piece_);
        }
        if constexpr (has_offsets)
            batch.offset = offsets_.of_requests != nullptr ? offsets_.of_requests[piece_.request] : 0;
        const int first_live = piece_.first_token & -together_, end_live = (end_token_ + together_ - 1) & -together_;
        const int32_t *const ids =
            table_ + piece_.request * params_.page_table_request_stride + piece_.kv_head * params_.page_table_head_stride;
#pragma unroll
        for (int i = 0; i < tokens_per_lane; ++i) {
            const int of_warp = i * 32 + lane_, token = token_ + first_ + of_warp;
            auto &row = batch.rows[i];
            row.in_page = -1;
            if (of_warp >= tokens || first_ + of_warp >= tile_tokens || token < first_live || token >= end_live)
                continue;
            const uint32_t page = quotient(static_cast<uint32_t>(token), params_.page_size);
            row.in_page = token - static_cast<int>(page * params_.page_size.value);
            if constexpr (tables == 2) {
                if (params_.page_table == nullptr) { /* rows come in boxes, and a request is a page */
                    row.page[0] = row.page[1] = piece_.request;
                    continue;
                }
            }
            if constexpr (has_offsets) {
                if (params_.page_table == nullptr) { /* an offset stands in place of the page's */
                    row.page[0] = offsets_.of_requests != nullptr ? 0 : piece_.request;
                    continue;
                }
            }
            row.page[0] = ids[page];
            if constexpr (tables == 2)
                row.page[1] = ids[page + params_.page_table_v_offset];
        }
        token_ += tile_tokens;
        return batch;
    }

  private:
    const schedule_params &params_;
    const int32_t *const table_;
    [[no_unique_address]] const Offsets offsets_;
    SplitSchedule<cluster_size> &schedule_;
    const int box_shift_, first_, together_, lane_;
    Piece piece_ = {};
    uint32_t pieces_ = 0; /* so far */
    int token_ = 0, end_token_ = 0;
};

__device__ __forceinline__ const uint8_t *row_address(const row_source &source, int page, int kv_head, int in_page) {
    return source.rows + page * source.page_stride + kv_head * source.head_stride + in_page * source.token_stride;
}

} // namespace pipeline
