/* SPDX-License-Identifier: Apache-2.0 */
/*
 * operand_query.cuh: 64 query rows of MLA as a B operand in shared memory, for rows of K that are converted. What latent_query.cuh says
 * of numbers and their order holds. All copies of a thread are on their way at a time, to where the operand is to stand; then each
 * thread converts in place what it has copied, in short loops: they run once a unit, and instructions that run once come slowly.
 */
#pragma once

#include <cstdint>

#include "abi.h"
#include "ptx/async_copy.cuh"
#include "ptx/convert.cuh"
#include "ptx/memory.cuh"
#include "tile/element.cuh"
#include "tile/latent_query.cuh"
#include "tile/query.cuh"
#include "tile/row_map.cuh"
#include "tile/warpgroup.cuh"

namespace tile {

/* Lies in shared memory, as OperandRows has it. Thread t has every fourth step of row t / 4. */
template <class Format>
struct OperandQuery {
    static_assert(Format::converts_query, "rows that are operands as they lie need no more than a copy");
    static constexpr int steps = Format::steps, row_threads = 4, threads = group_rows * row_threads;
    alignas(1024) uint16_t line[steps / 4][group_rows][64];

    /*
     * By `threads` threads together; rows from `live_rows` on are zeros. Returns what products of the thread's row are to be multiplied by.
     * asked(): called once the thread's copies are on their way.
     */
    template <class Params, class Asked>
    __device__ __forceinline__ float load(const Params &params, const RowMap &rows, int live_rows, int thread, Asked asked) {
        const int row = thread / row_threads, first_step = thread % row_threads;
        copy(params, rows, row, row < live_rows, first_step);
        asked();
        ptx::wait_for_copies();
        const float multiplier =
            params.query.dtype == KERNEL_DTYPE_BF16 ? power_of_two(fp16_exponent(largest_of(row, first_step))) : 1.f;
#pragma unroll 3
        for (int step = first_step; step < steps; step += row_threads) {
            uint32_t pairs[8];
            read(pairs, params.query.dtype, row, step);
            if (params.query.dtype == KERNEL_DTYPE_BF16) {
#pragma unroll
                for (uint32_t &pair : pairs)
                    pair = pack(step, low(pair) * multiplier, high(pair) * multiplier);
            }
            write(pairs, row, step);
        }
        return 1.f / multiplier;
    }

    template <class Params>
    static __device__ __forceinline__ void prefetch(const Params &params, const RowMap &rows, int live_rows, int thread,
                                                    int threads) {
        LatentQuery<Format, group_rows>::prefetch(params, rows, live_rows, thread, threads);
    }

  private:
    __device__ __forceinline__ uint32_t at(int row, int step, int half) const {
        return OperandRows<group_rows>::at(ptx::shared_address(line), row, step * 32 + half * 16);
    }

    /* As memory has them. e4m3 take the first half of a step's place. */
    template <class Params>
    __device__ __forceinline__ void copy(const Params &params, const RowMap &rows, int row, bool is_live, int first_step) {
        const query_params &query = params.query;
        const int element_bytes = query.dtype == KERNEL_DTYPE_E4M3 ? 1 : 2;
        const int64_t rope =
            rows.token(row) * params.query_rope_token_stride + rows.head(row) * params.query_rope_head_stride - params.query_dim;
        const auto *const of_row = static_cast<const uint8_t *>(query.rows) + rows.query_offset(query, row) * element_bytes;
        const auto *const of_rope = static_cast<const uint8_t *>(params.query_rope) + rope * element_bytes;
#pragma unroll 1
        for (int step = first_step; step < steps; step += row_threads) {
            const uint8_t *const from = (step * 16 < params.query_dim ? of_row : of_rope) + step * 16 * element_bytes;
            if (element_bytes == 1) {
                ptx::copy_async<8>(at(row, step, 0), from, is_live);
                ptx::copy_async<8>(at(row, step, 0) + 8, from + 8, is_live);
            } else {
                ptx::copy_async<16>(at(row, step, 0), from, is_live);
                ptx::copy_async<16>(at(row, step, 1), from + 16, is_live);
            }
        }
    }

    /* Pairs of neighbouring dims of a step: bf16, or fp16. */
    __device__ __forceinline__ void read(uint32_t (&pairs)[8], int dtype, int row, int step) const {
        uint32_t words[4];
        ptx::load_shared(words, at(row, step, 0));
        if (dtype == KERNEL_DTYPE_E4M3) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                pairs[i * 2] = ptx::fp16x2_from_e4m3x2_low(words[i]);
                pairs[i * 2 + 1] = ptx::fp16x2_from_e4m3x2_high(words[i]);
            }
            return;
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            if (half == 1)
                ptx::load_shared(words, at(row, step, 1));
#pragma unroll
            for (int i = 0; i < 4; ++i)
                pairs[half * 4 + i] = words[i];
        }
    }
    /* In the order that the operands of K have. */
    __device__ __forceinline__ void write(const uint32_t (&pairs)[8], int row, int step) const {
        const bool is_sorted = is_plain(step);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            uint32_t words[4];
#pragma unroll
            for (int i = 0; i < 4; ++i)
                words[i] = is_sorted ? pairs[half * 4 + i] : pairs[i * 2 + half];
            ptx::store_shared(at(row, step, half), words);
        }
    }

    /* Of a row of bf16, in all of its threads. */
    __device__ __forceinline__ float largest_of(int row, int first_step) const {
        float largest = 0.f;
#pragma unroll 3
        for (int step = first_step; step < steps; step += row_threads) {
            uint32_t pairs[8];
            read(pairs, KERNEL_DTYPE_BF16, row, step);
#pragma unroll
            for (const uint32_t pair : pairs)
                largest = fmaxf(largest, fmaxf(fabsf(low(pair)), fabsf(high(pair))));
        }
#pragma unroll
        for (int distance = 1; distance < row_threads; distance *= 2)
            largest = fmaxf(largest, __shfl_xor_sync(full_warp, largest, distance));
        return largest;
    }

    /* Whether K has there bf16 operands, in the order of memory. */
    static __device__ __forceinline__ bool is_plain(int step) {
        if constexpr (Mixed<Format>) {
            static_assert(Format::Latent::query_vector == 4 && !Format::Rope::converts_query &&
                              Format::Rope::matrix_dtype == KERNEL_DTYPE_BF16,
                          "the two orders that are known here");
            return step >= Format::latent_steps;
        } else {
            static_assert(Format::query_vector == 4, "the order that is known here");
            return false;
        }
    }
    static __device__ __forceinline__ uint32_t pack(int step, float low, float high) {
        return is_plain(step) ? Element<KERNEL_DTYPE_BF16>::pack(low, high) : ptx::pack_fp16(low, high);
    }
    static __device__ __forceinline__ float low(uint32_t pair) { return __uint_as_float(pair << 16); }
    static __device__ __forceinline__ float high(uint32_t pair) { return __uint_as_float(pair & 0xffff0000u); }
};

} // namespace tile
