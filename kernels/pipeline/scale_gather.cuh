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

/*
 * The scales of a token, wherever they lie. Copies take words of 4 bytes, from multiples of as many, the last one in part; of interleaved ones a word is
 * those of four tokens, however many there are.
 */
template <class Format>
struct ScaleCopier {
    const int scale_bytes; /* that there are, of at most as many as the format has */

    __device__ __forceinline__ bool are_whole() const { return scale_bytes == Format::scale_bytes; }

    /* As many as the format has; zeros where the token does not exist. */
    __device__ __forceinline__ void copy_whole(uint32_t tile_scales, int token, const uint8_t *source, bool exists) const {
        ptx::copy_async<Format::scale_bytes>(tile_scales + token * Format::scale_bytes, source, exists);
    }

    /*
     * Fewer, and zeros for dims that the rows have not. Interleaved, a block's words follow each other without a gap, its zeros come last, and of its
     * four tokens each takes every fourth.
     */
    __device__ __forceinline__ void copy_part(uint32_t tile_scales, int token, const uint8_t *source, bool exists,
                                              bool interleaved) const {
        const int in_block = interleaved ? token % 4 : 0, step = interleaved ? 16 : 4;
        const int first = in_block * 4;
        uint32_t to = tile_scales + (token - in_block) * Format::scale_bytes + first;
        const uint8_t *from = source - in_block * scale_bytes + first;
        int left = exists ? (interleaved ? scale_bytes * 4 : scale_bytes) - first : 0;
#pragma unroll
        for (int i = 0; i < Format::scale_bytes / 4; ++i) {
            ptx::copy_async_first<4>(to, from, min(max(left, 0), 4));
            to += step;
            from += step;
            left -= step;
        }
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
            if (copier_.are_whole())
                copy_tiles<true>(batch, lane);
            else if constexpr (has_room)
                copy_tiles<false>(batch, lane);
            else
                copy_parts(batch, lane);
            ring_.advance();
            batch = upcoming;
        }
    }

  private:
    /* Registers for parts of all tokens at once: they take twice the instructions one after the other. */
    static constexpr bool has_room = !few_registers && cluster_size < 8;

    template <bool are_whole>
    __device__ __forceinline__ void copy_tiles(const Batch &batch, int lane) {
        if constexpr (few_registers) {
#pragma unroll 1
            for (int tensor = tensor_k; tensor <= tensor_v; ++tensor)
                copy_tile<are_whole>(batch, tensor == tensor_k ? params_.k_scales : params_.v_scales, static_cast<Tensor>(tensor),
                                     lane);
        } else {
            copy_tile<are_whole>(batch, params_.k_scales, tensor_k, lane);
            copy_tile<are_whole>(batch, params_.v_scales, tensor_v, lane);
        }
    }

    template <bool are_whole>
    __device__ __forceinline__ void copy_tile(const Batch &batch, const row_source &source, Tensor tensor, int lane) {
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
            const uint32_t tile_scales = ring_.tile(tensor) + rows_bytes;
            if constexpr (are_whole)
                copier_.copy_whole(tile_scales, first_ + i * 32 + lane, from, exists);
            else
                copier_.copy_part(tile_scales, first_ + i * 32 + lane, from, exists,
                                  tensor == tensor_v && params_.v_scales_interleaved != 0);
        }
        ptx::mbarrier_arrive_after_copies(ring_.full_barrier(tensor));
    }

    /* Of both tensors, where scales are not whole: 32 tokens after the other by the same instructions, as there are no registers for more. */
    __device__ __forceinline__ void copy_parts(const Batch &batch, int lane) {
        constexpr int parts = Stream::tokens_per_lane;
        if (rarely(batch.has_newest))
            ptx::wait_for_preceding_kernel();
#pragma unroll 1
        for (int part = 0; part < 2 * parts; ++part) {
            const bool is_of_k = part < parts, interleaved = !is_of_k && params_.v_scales_interleaved != 0;
            const Tensor tensor = is_of_k ? tensor_k : tensor_v;
            const int part_of_tensor = is_of_k ? part : part - parts;
            const row_source &source = is_of_k ? params_.k_scales : params_.v_scales;
            const auto row = batch.row(part_of_tensor);
            if (part_of_tensor == 0)
                ring_.wait_empty(tensor);
            const int page = is_of_k ? row.page[tensor_k] : row.page[tensor_v];
            const bool exists = static_cast<uint32_t>(page) < static_cast<uint32_t>(params_.num_pages);
            if (row.live())
                copier_.copy_part(ring_.tile(tensor) + rows_bytes, first_ + part_of_tensor * 32 + lane,
                                  row_address(source, exists ? page : 0, batch.kv_head, row.in_page), exists, interleaved);
            if (part_of_tensor == parts - 1)
                ptx::mbarrier_arrive_after_copies(ring_.full_barrier(tensor));
        }
    }

    const gqa_decode_params &params_;
    const ScaleCopier<Format> copier_;
    const int first_; /* of a tile's tokens, this warp's */
    Ring ring_;
};

} // namespace pipeline
