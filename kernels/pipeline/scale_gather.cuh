/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scale_gather.cuh: the warps that bring the scales of all tiles, of K and of V, where those of a page's tokens do not lie side by side
 * (else they come with the rows: producer.cuh): a few bytes a token, too small for copies that one thread issues at a time, so every
 * lane copies those of its own tokens.
 */
#pragma once

#include <cstdint>

#include "abi.h"
#include "pipeline/kv_ring.cuh"
#include "pipeline/row_stream.cuh"
#include "ptx/async_copy.cuh"
#include "ptx/memory.cuh"

namespace pipeline {

/* The scales of a token, wherever they lie. */
template <class Format>
struct ScaleCopier {
    const int scale_bytes; /* that there are, of at most as many as the format has */

    /* The scales of token `token` of the tile; zeros where it does not exist, and for dims that the rows have not. */
    __device__ __forceinline__ void copy(uint32_t tile_scales, int token, const uint8_t *source, bool exists,
                                         bool interleaved) const {
        constexpr int bytes = Format::scale_bytes;
        if (scale_bytes == bytes) {
            ptx::copy_async<bytes>(tile_scales + token * bytes, source, exists);
            return;
        }
        /* Interleaved, the four rows of a block follow each other without a gap, and its zeros come last. */
        const int in_block = interleaved ? token % 4 : 0, block = tile_scales + (token - in_block) * bytes;
        const int live = block + in_block * scale_bytes;
        const int padding = block + (interleaved ? 3 * scale_bytes + in_block * (bytes - scale_bytes) : 0);
#pragma unroll
        for (int byte = 0; byte < bytes; byte += 4)
            ptx::copy_async<4>((byte < scale_bytes ? live : padding) + byte, source + byte, exists && byte < scale_bytes);
    }
};

/*
 * `rows_bytes`: of a tile, before its scales. `warps`: that share every tile, each with as many of its tokens. `few_registers`: one tensor after the
 * other by the same instructions, in kernels that have waited for the one ahead before they began.
 */
template <class Format, class Ring, int tile_tokens, int rows_bytes, int cluster_size, int warps, bool few_registers = false>
class ScaleGather {
    static constexpr int warp_tokens = tile_tokens / warps;
    using Stream = RowStream<cluster_size, tile_tokens, warp_tokens, 2, false, !few_registers>;
    using Batch = typename Stream::Batch;

  public:
    static constexpr int arrivals = warps * 32; /* on the barrier of a tile: every lane's */

    __device__ __forceinline__ ScaleGather(const gqa_decode_params &params, int warp, Ring ring)
        : params_(params), copier_{params.query.head_dim / 16}, first_(warps > 1 ? warp * warp_tokens : 0), ring_(ring) {}

    __device__ __forceinline__ void run(SplitSchedule<cluster_size> &schedule, int lane) {
        /* Interleaved scales of four tokens are one block of V's; those of K come along. */
        Stream stream(params_.schedule, schedule, first_, params_.v_scales_interleaved != 0 ? 4 : 1);
        Batch batch = stream.next();
        while (!batch.end_of_work()) {
            const Batch upcoming = stream.next();
            if constexpr (few_registers) {
#pragma unroll 1
                for (int tensor = tensor_k; tensor <= tensor_v; ++tensor)
                    load_tile(batch, tensor == tensor_k ? params_.k_scales : params_.v_scales, static_cast<Tensor>(tensor), lane);
            } else {
                load_tile(batch, params_.k_scales, tensor_k, lane);
                load_tile(batch, params_.v_scales, tensor_v, lane);
            }
            ring_.advance();
            batch = upcoming;
        }
    }

  private:
    __device__ __forceinline__ void load_tile(const Batch &batch, const row_source &source, Tensor tensor, int lane) {
        ring_.wait_empty(tensor);
        if (rarely(batch.has_newest))
            ptx::wait_for_preceding_kernel();
#pragma unroll
        for (int i = 0; i < Stream::tokens_per_lane; ++i) {
            const auto &row = batch.rows[i];
            if (!row.live())
                continue;
            const int page = tensor == tensor_k ? row.page[tensor_k] : row.page[tensor_v];
            const bool exists = static_cast<uint32_t>(page) < static_cast<uint32_t>(params_.num_pages);
            const uint8_t *const from = row_address(source, exists ? page : 0, batch.kv_head, row.in_page);
            copier_.copy(ring_.tile(tensor) + rows_bytes, first_ + i * 32 + lane, from, exists,
                         tensor == tensor_v && params_.v_scales_interleaved);
        }
        ptx::mbarrier_arrive_after_copies(ring_.full_barrier(tensor));
    }

    const gqa_decode_params &params_;
    const ScaleCopier<Format> copier_;
    const int first_; /* of a tile's tokens, this warp's */
    Ring ring_;
};

} // namespace pipeline
