/* SPDX-License-Identifier: Apache-2.0 */
/*
 * latent_query.cuh: the query rows of MLA as operands of qk. A row has 576 or 320 elements, and a warp multiplies a part of them with
 * K: the rows come to shared memory once for a unit, as numbers of the matrix dtype, and each warp takes its part of them to registers,
 * or where there are none left reads it anew for every tile. bf16 for fp16 operands is multiplied by a power of two of its row, as
 * query.cuh says.
 */
#pragma once

#include <cstdint>

#include "abi.h"
#include "ptx/convert.cuh"
#include "ptx/matrix.cuh"
#include "ptx/memory.cuh"
#include "ptx/scalar.cuh"
#include "tile/element.cuh"
#include "tile/kv_format.cuh"
#include "tile/query.cuh"
#include "tile/row_map.cuh"

namespace tile {

/* Which steps over the dims of a row a group of warps takes: whole pairs of chunks, as evenly as they can be dealt out. */
template <class Format, int groups>
struct StepRange {
    static constexpr int pairs = Format::steps / Format::pair_steps;
    static constexpr int most = (pairs + groups - 1) / groups * Format::pair_steps;
    static constexpr bool is_even = pairs % groups == 0; /* every group takes `most` */

    const int first, end;

    explicit __device__ __forceinline__ StepRange(int group)
        : first(group * pairs / groups * Format::pair_steps), end((group + 1) * pairs / groups * Format::pair_steps) {}
    /* Whether the group has a step number `i`. */
    __device__ __forceinline__ bool has(int i) const { return is_even || i < most - Format::pair_steps || first + i < end; }
    /* Which step of the row that is. */
    static __device__ __forceinline__ int number(int first, int i) { return first + i; }
};

/* Rows of two kinds of elements: those of V, Format::Latent, and behind them those that carry the position, Format::Rope. */
template <class Format>
concept Mixed = requires {
    typename Format::Rope;
};

/* Of these a group takes a part of each: `latent` steps, and one. */
template <Mixed Format, int groups>
struct StepRange<Format, groups> {
    static constexpr int latent = Format::latent_steps / groups, most = latent + 1;
    static_assert(Format::latent_steps % groups == 0 && Format::steps == Format::latent_steps + groups,
                  "one more for each group");

    const int group, first;

    explicit __device__ __forceinline__ StepRange(int group) : group(group), first(group * latent) {}
    __device__ __forceinline__ bool has(int) const { return true; }
    static __device__ __forceinline__ int number(int first, int i) {
        return i < latent ? first + i : Format::latent_steps + first / latent;
    }
};

/* Lies in shared memory; within 16 dims in the order of the B operand. */
template <class Format, int row_tile>
struct LatentQuery {
    static constexpr int head_dim = Format::steps * 16, pitch = head_dim + 8; /* 8 more: rows begin in different banks */
    static constexpr int vector = 8, vectors = head_dim / vector, lane_vectors = (vectors + 31) / 32;

    alignas(16) uint16_t row[row_tile][pitch];

    /* Row `r`, by one warp; zeros where it is not live. Returns what products of it are to be multiplied by. */
    template <class Params>
    __device__ __forceinline__ float load(const Params &params, const RowMap &rows, int r, bool is_live, int lane) {
        uint32_t pairs[lane_vectors][vector / 2] = {};
        const query_params &query = params.query;
        const int64_t first = rows.query_offset(query, r);
        const int64_t first_rope = rows.token(r) * params.query_rope_token_stride + rows.head(r) * params.query_rope_head_stride;
#pragma unroll
        for (int i = 0; i < lane_vectors; ++i) {
            const int dim = (i * 32 + lane) * vector;
            if (!is_live || dim >= head_dim)
                continue;
            const bool is_rope = dim >= params.query_dim;
            const void *const from = is_rope ? params.query_rope : query.rows;
            const int64_t element = is_rope ? first_rope + dim - params.query_dim : first + dim;
            if (Format::converts_query && query.dtype == KERNEL_DTYPE_E4M3) {
                uint32_t packed[2];
                load_words(static_cast<const uint8_t *>(from) + element, packed);
#pragma unroll
                for (int word = 0; word < 2; ++word) {
                    pairs[i][word * 2] = ptx::fp16x2_from_e4m3x2_low(packed[word]);
                    pairs[i][word * 2 + 1] = ptx::fp16x2_from_e4m3x2_high(packed[word]);
                }
            } else {
                load_words(static_cast<const uint16_t *>(from) + element, pairs[i]);
            }
        }
        const bool is_scaled = Format::converts_query && query.dtype == KERNEL_DTYPE_BF16;
        const float factor = is_scaled ? 1.f / fp16_from_bf16(pairs, lane) : 1.f;
#pragma unroll
        for (int i = 0; i < lane_vectors; ++i) {
            const int dim = (i * 32 + lane) * vector;
            if (dim < head_dim)
                store(row[r], dim, pairs[i]);
        }
        return factor;
    }

    /* B operands of a step, of two fragments of rows from `n` on. */
    __device__ __forceinline__ void operands(uint32_t (&words)[4], int step, int n, int lane) const {
        ptx::ldmatrix_x4(words, ptx::shared_address(&row[n * 8 + (lane & 7) + (lane >> 4) * 8][step * 16 + (lane >> 3 & 1) * 8]));
    }

  private:
    /*
     * Four pairs of neighbouring dims, from `dim` on. Where the query is converted, the registers of a lane are neighbouring pairs: two,
     * of which the first stands in the first half of the step and the other in the second, or four of two steps.
     */
    template <class Order>
    static __device__ __forceinline__ void store_as(uint16_t *row, int dim, const uint32_t (&pairs)[vector / 2]) {
        uint16_t *const step = row + dim / 16 * 16;
        const int half = dim % 16 / vector;
        if constexpr (!Order::converts_query) {
            *reinterpret_cast<uint4 *>(step + half * 8) = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
        } else if constexpr (Order::query_vector == 4) {
            *reinterpret_cast<uint2 *>(step + half * 4) = make_uint2(pairs[0], pairs[2]);
            *reinterpret_cast<uint2 *>(step + 8 + half * 4) = make_uint2(pairs[1], pairs[3]);
        } else {
            uint32_t *const words = reinterpret_cast<uint32_t *>(row + dim / 32 * 32) + dim % 32 / vector;
#pragma unroll
            for (int i = 0; i < 4; ++i)
                words[i * 4] = Order::query_operand(pairs, i / 2, i % 2);
        }
    }
    static __device__ __forceinline__ void store(uint16_t *row, int dim, const uint32_t (&pairs)[vector / 2]) {
        if constexpr (!Mixed<Format>)
            store_as<Format>(row, dim, pairs);
        else if (dim < Format::latent_steps * 16)
            store_as<typename Format::Latent>(row, dim, pairs);
        else
            store_as<typename Format::Rope>(row, dim, pairs);
    }

    /* Two dims of those that begin at `dim`, as the matrix instructions there want them. */
    static __device__ __forceinline__ uint32_t pack(int dim, float low, float high) {
        if constexpr (Mixed<Format>) {
            if (dim >= Format::latent_steps * 16)
                return Element<Format::Rope::matrix_dtype>::pack(low, high);
        }
        return ptx::pack_fp16(low, high);
    }

    static __device__ __forceinline__ float low(uint32_t pair) { return __uint_as_float(pair << 16); }
    static __device__ __forceinline__ float high(uint32_t pair) { return __uint_as_float(pair & 0xffff0000u); }

    /* In place; returns the power of two by which they are multiplied, alike for all lanes. */
    static __device__ __forceinline__ float fp16_from_bf16(uint32_t (&pairs)[lane_vectors][vector / 2], int lane) {
        float largest = 0.f;
#pragma unroll
        for (int i = 0; i < lane_vectors; ++i) {
#pragma unroll
            for (int j = 0; j < vector / 2; ++j)
                largest = fmaxf(largest, fmaxf(fabsf(low(pairs[i][j])), fabsf(high(pairs[i][j]))));
        }
#pragma unroll
        for (int distance = 1; distance < 32; distance *= 2)
            largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, distance));
        const float multiplier = power_of_two(fp16_exponent(largest));
#pragma unroll
        for (int i = 0; i < lane_vectors; ++i) {
#pragma unroll
            for (int j = 0; j < vector / 2; ++j)
                pairs[i][j] = pack((i * 32 + lane) * vector, low(pairs[i][j]) * multiplier, high(pairs[i][j]) * multiplier);
        }
        return multiplier;
    }
};

/* A group's part of all rows, in registers. */
template <class Format, int row_tile, int groups>
struct LatentQueryFragment {
    using Steps = StepRange<Format, groups>;
    uint32_t operand[Steps::most][row_tile / 16][4];

    __device__ __forceinline__ void load(const LatentQuery<Format, row_tile> &query, const Steps &steps, int lane) {
#pragma unroll
        for (int i = 0; i < Steps::most; ++i) {
#pragma unroll
            for (int n = 0; n < row_tile / 16; ++n) {
                if (steps.has(i))
                    query.operands(operand[i][n], Steps::number(steps.first, i), n * 2, lane);
            }
        }
    }
    /* Of the group's step number `i`. */
    __device__ __forceinline__ const uint32_t (&operands(int i, int n, uint32_t (&)[4]) const)[4] { return operand[i][n]; }
};

/* The same, left in shared memory. */
template <class Format, int row_tile, int groups>
struct LatentQueryReader {
    using Steps = StepRange<Format, groups>;
    const LatentQuery<Format, row_tile> *query;
    int first_step, lane;

    __device__ __forceinline__ void load(const LatentQuery<Format, row_tile> &from, const Steps &steps, int its_lane) {
        query = &from;
        first_step = steps.first;
        lane = its_lane;
    }
    __device__ __forceinline__ const uint32_t (&operands(int i, int n, uint32_t (&words)[4]) const)[4] {
        query->operands(words, Steps::number(first_step, i), n * 2, lane);
        return words;
    }
};

} // namespace tile
