/* SPDX-License-Identifier: Apache-2.0 */
/*
 * operand_query.cuh: 64 query rows of MLA as a B operand in shared memory, for rows of K that are converted. What latent_query.cuh says
 * of numbers and their order holds. All copies of a thread are on their way at a time, to where the operand is to stand, and eight lanes copy
 * a line of 128 bytes: an SM takes some 5 clocks for every line that an instruction touches. Then the lanes of a row take what they have
 * copied to registers, and write it converted, each to its own place and to its neighbour's.
 */
#pragma once

#include <cstdint>

#include "abi.h"
#include "ptx/async_copy.cuh"
#include "ptx/convert.cuh"
#include "ptx/memory.cuh"
#include "tile/lanes.cuh"
#include "tile/latent_query.cuh"
#include "tile/query.cuh"
#include "tile/row_map.cuh"
#include "tile/warpgroup.cuh"

namespace tile {

/* Lies in shared memory, as OperandRows has it. Eight threads have a row: of every line the 16 bytes of one chunk. */
template <class Format, int threads_ = 256>
struct OperandQuery {
    static_assert(Format::converts_query, "rows that are operands as they lie need no more than a copy");
    static constexpr int steps = Format::steps, lines = steps / 4;
    static constexpr int row_threads = 8, threads = threads_, rows_together = threads / row_threads;
    static_assert(steps % 4 == 0 && group_rows % rows_together == 0, "whole lines; as many rows for every thread");
    alignas(1024) uint16_t line[lines][group_rows][64];

    /*
     * By `threads` threads together; rows from `live_rows` on are zeros. asked(): called once the thread's copies are on their way. `row_scale`: `scale`
     * times what products of each row are to be multiplied by.
     */
    template <class Params, class Asked>
    __device__ __forceinline__ void load(const Params &params, const RowMap &rows, int live_rows, int thread, Asked asked,
                                         float scale, float (&row_scale)[group_rows]) {
        const bool is_e4m3 = params.query.dtype == KERNEL_DTYPE_E4M3;
        const int part = thread % row_threads;
#pragma unroll 1
        for (int row = thread / row_threads; row < group_rows; row += rows_together)
            copy(params, rows, row, row < live_rows, part, is_e4m3 ? 1 : 2);
        asked();
        ptx::wait_for_copies();
#pragma unroll 1
        for (int row = thread / row_threads; row < group_rows; row += rows_together) {
            int exponent = 0;
            if (is_e4m3)
                convert_e4m3(row, part);
            else
                exponent = convert(params.query.dtype == KERNEL_DTYPE_BF16, row, part);
            if (part == 0)
                row_scale[row] = scale * power_of_two(-exponent);
        }
    }

    template <class Params>
    static __device__ __forceinline__ void prefetch(const Params &params, const RowMap &rows, int live_rows, int thread,
                                                    int threads) {
        LatentQuery<Format, group_rows>::prefetch(params, rows, live_rows, thread, threads);
    }

  private:
    static constexpr int line_stride = OperandRows<group_rows>::line_stride_bytes;

    /* Where the 16 bytes of a row's chunk lie: of a step there are two. */
    __device__ __forceinline__ uint32_t at(int row, int chunk) const {
        return OperandRows<group_rows>::at(ptx::shared_address(line), row, chunk * 16);
    }

    /* As memory has them. Of e4m3 a step is a chunk, and takes the place of its first. */
    template <class Params>
    __device__ __forceinline__ void copy(const Params &params, const RowMap &rows, int row, bool is_live, int part,
                                         int element_bytes) {
        const query_params &query = params.query;
        const int64_t rope =
            rows.token(row) * params.query_rope_token_stride + rows.head(row) * params.query_rope_head_stride - params.query_dim;
        const auto *const of_row = static_cast<const uint8_t *>(query.rows) + rows.query_offset(query, row) * element_bytes;
        const auto *const of_rope = static_cast<const uint8_t *>(params.query_rope) + rope * element_bytes;
        if (element_bytes == 1) {
#pragma unroll 1
            for (int step = part; step < steps; step += row_threads) {
                const uint8_t *const from = (step * 16 < params.query_dim ? of_row : of_rope) + step * 16;
                ptx::copy_async<8>(at(row, step * 2), from, is_live);
                ptx::copy_async<8>(at(row, step * 2) + 8, from + 8, is_live);
            }
            return;
        }
        const uint32_t first = at(row, part);
#pragma unroll
        for (int i = 0; i < lines; ++i) {
            const int dim = (i * row_threads + part) * 8;
            ptx::copy_async<16>(first + i * line_stride, (dim < params.query_dim ? of_row : of_rope) + dim * 2, is_live);
        }
    }

    /*
     * What the thread has copied, 16-bit elements, in the order that the operands of K have. bf16 are multiplied by a power of two: its exponent.
     * Not inlined: the loops beside it come out better.
     */
    __device__ __noinline__ int convert(bool is_bf16, int row, int part) const {
        const uint32_t first = at(row, part);
        uint32_t words[lines][4], largest_pair = 0;
#pragma unroll
        for (int i = 0; i < lines; ++i) {
            ptx::load_shared(words[i], first + i * line_stride);
#pragma unroll
            for (const uint32_t word : words[i])
                largest_pair = ptx::larger_magnitude_bf16x2(largest_pair, word);
        }
        int exponent = 0;
        if (is_bf16) {
            exponent = fp16_exponent(largest_of_lanes<1, row_threads>(fmaxf(low(largest_pair), high(largest_pair))));
        }
        __syncwarp(); /* neighbours write where the thread has read */
        const uint32_t multipliers = ptx::pack_bf16(power_of_two(exponent), power_of_two(exponent)), half = part % 2;
        const uint32_t even = at(row, part - half) + half * 8, odd = at(row, part - half + 1) + half * 8;
#pragma unroll
        for (int i = 0; i < lines; ++i) {
            if (is_bf16) {
#pragma unroll
                for (uint32_t &word : words[i]) {
                    word = ptx::multiply_bf16x2(word, multipliers);
                    if (!stays_bf16(i * 4))
                        word = ptx::pack_fp16(low(word), high(word));
                }
            }
            if (is_in_order(i * 4)) {
                ptx::store_shared(first + i * line_stride, words[i]);
            } else {
                ptx::store_shared(even + i * line_stride, {words[i][0], words[i][2]});
                ptx::store_shared(odd + i * line_stride, {words[i][1], words[i][3]});
            }
        }
        return exponent;
    }

    /* The same of e4m3, which become fp16. */
    __device__ __forceinline__ void convert_e4m3(int row, int part) const {
#pragma unroll 1
        for (int step = part; step < steps; step += row_threads) {
            uint32_t words[4], pairs[2][4];
            ptx::load_shared(words, at(row, step * 2));
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                pairs[0][i] = ptx::fp16x2_from_e4m3x2_low(words[i]);
                pairs[1][i] = ptx::fp16x2_from_e4m3x2_high(words[i]);
            }
            if constexpr (has_order_of_memory) {
                ptx::store_shared(at(row, step * 2), {pairs[0][0], pairs[1][0], pairs[0][1], pairs[1][1]});
                ptx::store_shared(at(row, step * 2 + 1), {pairs[0][2], pairs[1][2], pairs[0][3], pairs[1][3]});
            } else {
                ptx::store_shared(at(row, step * 2), pairs[0]);
                ptx::store_shared(at(row, step * 2 + 1), pairs[1]);
            }
        }
    }

    /* Whether K has there operands of bf16, and whether in the order of memory. */
    static __device__ __forceinline__ bool stays_bf16(int step) {
        if constexpr (Mixed<Format>) {
            static_assert(!Format::Rope::converts_query && Format::Rope::matrix_dtype == KERNEL_DTYPE_BF16,
                          "the one that is known");
            return step >= Format::latent_steps;
        } else {
            return false;
        }
    }
    static __device__ __forceinline__ bool is_in_order(int step) {
        if constexpr (Mixed<Format>) {
            static_assert(Format::Latent::query_vector == 4, "the order that is known here");
            return step >= Format::latent_steps;
        } else {
            static_assert(Format::query_vector == 4 || Format::query_vector == 2, "the orders that are known here");
            return has_order_of_memory;
        }
    }
    static constexpr bool has_order_of_memory = requires { requires Format::query_vector == 2; };
    static __device__ __forceinline__ float low(uint32_t pair) { return __uint_as_float(pair << 16); }
    static __device__ __forceinline__ float high(uint32_t pair) { return __uint_as_float(pair & 0xffff0000u); }
};

} // namespace tile
