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
#include "tile/kv_format.cuh"
#include "tile/query.cuh"
#include "tile/row_map.cuh"

namespace tile {

/*
 * Which steps over the dims of a row one of `groups` takes: pairs of chunks in turns. So those of a group lie at the same place of every
 * line, or of every second one: one address and a stride.
 */
template <class Format, int groups>
struct DimSteps {
    static constexpr int pair_steps = Format::pair_steps, pairs = Format::steps / pair_steps;
    static constexpr int most = (pairs + groups - 1) / groups * pair_steps;
    static constexpr bool is_even = pairs % groups == 0; /* every group takes `most` */
    static_assert(groups % (Format::Rows::line_bytes / 32) == 0, "whole lines from a group's pair to its next");

    static __device__ __forceinline__ constexpr int first(int group) { return group * pair_steps; }
    /* From the group's first step to its step number `i`. */
    static __device__ __forceinline__ constexpr int further(int i) {
        return i / pair_steps * groups * pair_steps + i % pair_steps;
    }
    /* Whether the group has a step number `i`. */
    static __device__ __forceinline__ constexpr bool has(int group, int i) {
        return is_even || i < most - pair_steps || group < pairs % groups;
    }
};

/* Lies in shared memory; within 16 dims in the order of the B operand. */
template <class Format, int row_tile>
struct LatentQuery {
    static constexpr int head_dim = Format::steps * 16, pitch = head_dim + 8; /* 8 more: rows begin in different banks */
    static constexpr int vector = 8, vectors = head_dim / vector, lane_vectors = (vectors + 31) / 32;

    alignas(16) uint16_t row[row_tile][pitch];

    /* What a lane takes of a row. */
    struct Vectors {
        uint32_t pairs[lane_vectors][vector / 2];
    };

    /* Rows from `first_row` on, by one warp, all on their way at once; zeros where they are not live. */
    template <int count>
    static __device__ __forceinline__ void fetch(const mla_decode_params &params, const RowMap &rows, int first_row,
                                                 int live_rows, Vectors (&ret_vectors)[count], int lane) {
#pragma unroll
        for (int r = 0; r < count; ++r)
            fetch_row(params, rows, first_row + r, first_row + r < live_rows, lane, ret_vectors[r]);
    }

    /* These to shared memory. `ret_factors`: what products of each row are to be multiplied by. */
    template <int count>
    __device__ __forceinline__ void store(const query_params &query, int first_row, Vectors (&vectors)[count],
                                          float (&ret_factors)[count], int lane) {
        const bool is_scaled = Format::converts_query && query.dtype == KERNEL_DTYPE_BF16;
#pragma unroll
        for (int r = 0; r < count; ++r) {
            ret_factors[r] = is_scaled ? 1.f / fp16_from_bf16(vectors[r].pairs) : 1.f;
#pragma unroll
            for (int i = 0; i < lane_vectors; ++i) {
                const int dim = (i * 32 + lane) * vector;
                if (dim < head_dim)
                    store_pairs(&row[first_row + r][dim / 16 * 16], dim % 16 / vector, vectors[r].pairs[i]);
            }
        }
    }

    /* Asks for the lines of the rows in the second cache, all threads of `threads` together. */
    static __device__ __forceinline__ void prefetch(const mla_decode_params &params, const RowMap &rows, int live_rows,
                                                    int thread, int threads) {
        const bool is_e4m3 = Format::converts_query && params.query.dtype == KERNEL_DTYPE_E4M3;
        const int line_dims = is_e4m3 ? 128 : 64, lines = (head_dim + line_dims - 1) / line_dims;
        for (int i = thread; i < live_rows * lines; i += threads) {
            const int r = i / lines;
            ptx::prefetch(element(params, rows, r, (i - r * lines) * line_dims, is_e4m3));
        }
    }

    /* B operands of a step, of two fragments of rows from `n` on. */
    __device__ __forceinline__ void operands(uint32_t (&words)[4], int step, int n, int lane) const {
        ptx::ldmatrix_x4(words, ptx::shared_address(&row[n * 8 + (lane & 7) + (lane >> 4) * 8][step * 16 + (lane >> 3 & 1) * 8]));
    }

  private:
    static __device__ __forceinline__ void fetch_row(const mla_decode_params &params, const RowMap &rows, int r, bool is_live,
                                                     int lane, Vectors &ret) {
        ret = {};
        const bool is_e4m3 = Format::converts_query && params.query.dtype == KERNEL_DTYPE_E4M3;
#pragma unroll
        for (int i = 0; i < lane_vectors; ++i) {
            const int dim = (i * 32 + lane) * vector;
            if (!is_live || dim >= head_dim)
                continue;
            const void *const from = element(params, rows, r, dim, is_e4m3);
            if (is_e4m3) {
                uint32_t packed[2];
                load_words(from, packed);
#pragma unroll
                for (int word = 0; word < 2; ++word) {
                    ret.pairs[i][word * 2] = ptx::fp16x2_from_e4m3x2_low(packed[word]);
                    ret.pairs[i][word * 2 + 1] = ptx::fp16x2_from_e4m3x2_high(packed[word]);
                }
            } else {
                load_words(from, ret.pairs[i]);
            }
        }
    }

    /* Where an element of row `r` is: of its own tensor, or of that of the RoPE part. */
    static __device__ __forceinline__ const void *element(const mla_decode_params &params, const RowMap &rows, int r, int dim,
                                                          bool is_e4m3) {
        const bool is_rope = dim >= params.query_dim;
        const int64_t first_rope = rows.token(r) * params.query_rope_token_stride + rows.head(r) * params.query_rope_head_stride;
        const int64_t at = is_rope ? first_rope + dim - params.query_dim : rows.query_offset(params.query, r) + dim;
        return static_cast<const uint8_t *>(is_rope ? params.query_rope : params.query.rows) + (is_e4m3 ? at : at * 2);
    }

    /*
     * Four pairs of neighbouring dims: those of half `half` of a step. Where the query is converted, a lane's registers are two
     * neighbouring pairs, so even pairs stand in the first half, odd ones in the second.
     */
    static __device__ __forceinline__ void store_pairs(uint16_t *step, int half, const uint32_t (&pairs)[vector / 2]) {
        if constexpr (Format::converts_query) {
            *reinterpret_cast<uint2 *>(step + half * 4) = make_uint2(pairs[0], pairs[2]);
            *reinterpret_cast<uint2 *>(step + 8 + half * 4) = make_uint2(pairs[1], pairs[3]);
        } else {
            *reinterpret_cast<uint4 *>(step + half * 8) = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
        }
    }

    static __device__ __forceinline__ float low(uint32_t pair) { return __uint_as_float(pair << 16); }
    static __device__ __forceinline__ float high(uint32_t pair) { return __uint_as_float(pair & 0xffff0000u); }

    /* In place; returns the power of two by which they are multiplied, alike for all lanes. */
    static __device__ __forceinline__ float fp16_from_bf16(uint32_t (&pairs)[lane_vectors][vector / 2]) {
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
                pairs[i][j] = ptx::pack_fp16(low(pairs[i][j]) * multiplier, high(pairs[i][j]) * multiplier);
        }
        return multiplier;
    }
};

/* A group's part of all rows, in registers. */
template <class Format, int row_tile, int groups>
struct LatentQueryFragment {
    using Steps = DimSteps<Format, groups>;
    uint32_t operand[Steps::most][row_tile / 16][4];

    __device__ __forceinline__ void load(const LatentQuery<Format, row_tile> &query, int group, int lane) {
#pragma unroll
        for (int i = 0; i < Steps::most; ++i) {
#pragma unroll
            for (int n = 0; n < row_tile / 16; ++n) {
                if (Steps::has(group, i))
                    query.operands(operand[i][n], Steps::first(group) + Steps::further(i), n * 2, lane);
            }
        }
    }
    /* Of the group's step number `i`. */
    __device__ __forceinline__ const uint32_t (&operands(int i, int n, uint32_t (&)[4]) const)[4] { return operand[i][n]; }
};

/* The same, left in shared memory. */
template <class Format, int row_tile, int groups>
struct LatentQueryReader {
    using Steps = DimSteps<Format, groups>;
    const LatentQuery<Format, row_tile> *query;
    int first_step, lane;

    __device__ __forceinline__ void load(const LatentQuery<Format, row_tile> &from, int group, int its_lane) {
        query = &from;
        first_step = Steps::first(group);
        lane = its_lane;
    }
    __device__ __forceinline__ const uint32_t (&operands(int i, int n, uint32_t (&words)[4]) const)[4] {
        query->operands(words, first_step + Steps::further(i), n * 2, lane);
        return words;
    }
};

} // namespace tile
