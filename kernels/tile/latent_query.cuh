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
#include "ptx/bulk_copy.cuh"
#include "ptx/convert.cuh"
#include "ptx/matrix.cuh"
#include "ptx/memory.cuh"
#include "ptx/scalar.cuh"
#include "tile/element.cuh"
#include "tile/kv_format.cuh"
#include "tile/lanes.cuh"
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

/*
 * The same, pairs of chunks in turns. So those of a group lie at the same place of every line, or of every second one: one address and a
 * stride.
 */
template <class Format, int groups>
struct DimSteps {
    static constexpr int pair_steps = Format::pair_steps, pairs = Format::steps / pair_steps;
    static constexpr int most = (pairs + groups - 1) / groups * pair_steps;
    static constexpr bool is_even = pairs % groups == 0; /* every group takes `most` */
    static_assert(groups % (Format::Rows::line_bytes / 32) == 0, "whole lines from a group's pair to its next");

    const int group, first;

    explicit __device__ __forceinline__ DimSteps(int group) : group(group), first(group * pair_steps) {}
    __device__ __forceinline__ bool has(int i) const { return is_even || i < most - pair_steps || group < pairs % groups; }
    /* From the group's first step to its step number `i`. */
    static __device__ __forceinline__ constexpr int further(int i) {
        return i / pair_steps * groups * pair_steps + i % pair_steps;
    }
    static __device__ __forceinline__ int number(int first, int i) { return first + further(i); }
};

/* One step behind the other. */
struct StepsInOrder {
    static __device__ __forceinline__ constexpr int further(int i) { return i; }
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

/* Where the elements of query rows lie in shared memory: those of a row one behind the other. */
template <int row_tile, int head_dim>
struct PitchedQueryRows {
    static constexpr int pitch = head_dim + 8; /* 8 more: rows begin in different banks */
    alignas(16) uint16_t row[row_tile][pitch];

    /* An element of row `r`, and behind it what is left of eight. */
    __device__ __forceinline__ uint16_t *at(int r, int element) { return &row[r][element]; }
    __device__ __forceinline__ const uint16_t *at(int r, int element) const { return &row[r][element]; }
};

/* Lies in shared memory; within 16 dims in the order of the B operand. */
template <class Format, int row_tile>
struct LatentQuery : PitchedQueryRows<row_tile, Format::steps * 16> {
    static constexpr int head_dim = Format::steps * 16;
    static constexpr int vector = 8, vectors = head_dim / vector, lane_vectors = (vectors + 31) / 32;

    /* What a lane has of a row. */
    struct Vectors {
        uint32_t pairs[lane_vectors][vector / 2] = {};
    };

    static __device__ __forceinline__ bool is_fp8(const query_params &query) {
        return Format::converts_query && query.dtype == KERNEL_DTYPE_E4M3;
    }
    static __device__ __forceinline__ uint32_t element_bytes(const query_params &query) { return is_fp8(query) ? 1 : 2; }
    static __device__ __forceinline__ void load_fp8(const uint8_t *from, uint32_t (&pairs)[vector / 2]) {
        uint32_t packed[2];
        load_words(from, packed);
#pragma unroll
        for (int word = 0; word < 2; ++word) {
            pairs[word * 2] = ptx::fp16x2_from_e4m3x2_low(packed[word]);
            pairs[word * 2 + 1] = ptx::fp16x2_from_e4m3x2_high(packed[word]);
        }
    }

    /* Row `r`, by one warp; zeros where it is not live. From memory, where several rows may be on their way at once, */
    template <class Params>
    static __device__ __forceinline__ void fetch(const Params &params, const RowMap &rows, int r, bool is_live, int lane,
                                                 Vectors &ret) {
        uint32_t(&pairs)[lane_vectors][vector / 2] = ret.pairs;
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
            if (is_fp8(query))
                load_fp8(static_cast<const uint8_t *>(from) + element, pairs[i]);
            else
                load_words(static_cast<const uint16_t *>(from) + element, pairs[i]);
        }
    }

    /* and to shared memory. Returns what products of it are to be multiplied by. */
    __device__ __forceinline__ float put(const query_params &query, int r, Vectors &vectors, int lane) {
        uint32_t(&pairs)[lane_vectors][vector / 2] = vectors.pairs;
        const bool is_scaled = Format::converts_query && query.dtype == KERNEL_DTYPE_BF16;
        const float factor = is_scaled ? 1.f / fp16_from_bf16(pairs, lane) : 1.f;
#pragma unroll
        for (int i = 0; i < lane_vectors; ++i) {
            const int dim = (i * 32 + lane) * vector;
            if (dim < head_dim)
                store(r, dim, pairs[i]);
        }
        return factor;
    }

    /* Asks for the lines of rows in the second cache, by all of `threads` threads together. */
    template <class Params>
    static __device__ __forceinline__ void prefetch(const Params &params, const RowMap &rows, int live_rows, int thread,
                                                    int threads) {
        const bool is_e4m3 = is_fp8(params.query);
        const int line_dims = is_e4m3 ? 128 : 64, lines = (head_dim + line_dims - 1) / line_dims;
        for (int i = thread; i < live_rows * lines; i += threads) {
            const int r = i / lines, dim = (i - r * lines) * line_dims;
            const bool is_rope = dim >= params.query_dim;
            const int64_t element = is_rope ? rows.token(r) * params.query_rope_token_stride +
                                                  rows.head(r) * params.query_rope_head_stride + dim - params.query_dim
                                            : rows.query_offset(params.query, r) + dim;
            ptx::prefetch(static_cast<const uint8_t *>(is_rope ? params.query_rope : params.query.rows) +
                          (is_e4m3 ? element : element * 2));
        }
    }

    /* B operands of a step, of two fragments of rows from `n` on. */
    __device__ __forceinline__ void operands(uint32_t (&words)[4], int step, int n, int lane) const {
        ptx::ldmatrix_x4(words,
                         ptx::shared_address(this->at(n * 8 + (lane & 7) + (lane >> 4) * 8, step * 16 + (lane >> 3 & 1) * 8)));
    }

  private:
    /*
     * Four pairs of neighbouring dims, from `dim` on. Where the query is converted, the registers of a lane are neighbouring pairs: two,
     * of which the first stands in the first half of the step and the other in the second, or four of two steps.
     */
    template <class Order>
    __device__ __forceinline__ void store_as(int r, int dim, const uint32_t (&pairs)[vector / 2]) {
        const int step = dim / 16 * 16, half = dim % 16 / vector;
        if constexpr (!Order::converts_query) {
            *reinterpret_cast<uint4 *>(this->at(r, step + half * 8)) = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
        } else if constexpr (Order::query_vector == 4) {
            *reinterpret_cast<uint2 *>(this->at(r, step + half * 4)) = make_uint2(pairs[0], pairs[2]);
            *reinterpret_cast<uint2 *>(this->at(r, step + 8 + half * 4)) = make_uint2(pairs[1], pairs[3]);
        } else {
            const int first = dim / 32 * 32 + dim % 32 / vector * 2;
#pragma unroll
            for (int i = 0; i < 4; ++i)
                *reinterpret_cast<uint32_t *>(this->at(r, first + i * 8)) = Order::query_operand(pairs, i / 2, i % 2);
        }
    }
    __device__ __forceinline__ void store(int r, int dim, const uint32_t (&pairs)[vector / 2]) {
        if constexpr (!Mixed<Format>)
            store_as<Format>(r, dim, pairs);
        else if (dim < Format::latent_steps * 16)
            store_as<typename Format::Latent>(r, dim, pairs);
        else
            store_as<typename Format::Rope>(r, dim, pairs);
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
        const float multiplier = power_of_two(fp16_exponent(largest_of_lanes<1, 32>(largest)));
#pragma unroll
        for (int i = 0; i < lane_vectors; ++i) {
#pragma unroll
            for (int j = 0; j < vector / 2; ++j)
                pairs[i][j] = pack((i * 32 + lane) * vector, low(pairs[i][j]) * multiplier, high(pairs[i][j]) * multiplier);
        }
        return multiplier;
    }
};

/*
 * The rows as they are, on their way to LatentQuery: copied by one warp, fetched by those that put them there. Lies in shared memory: the
 * dims before query_dim of all rows, then the others.
 */
template <class Query, int row_tile>
struct SentLatentQuery {
    alignas(16) uint8_t bytes[row_tile * Query::head_dim * 2];

    /*
     * The bytes complete on `barrier`, and one arrival. A copy takes as long as its instruction, so rows without gaps are one: the heads
     * of one query token, and those of several where a group is all heads.
     */
    template <class Params>
    __device__ __forceinline__ void send(const Params &params, const RowMap &rows, int live_rows, uint32_t barrier, int lane) {
        const query_params &query = params.query;
        const int dim = params.query_dim, rope_dim = Query::head_dim - dim, heads = params.schedule.group_size.value;
        const uint32_t element_bytes = Query::element_bytes(query);
        const bool has_dense_heads = query.head_stride == dim && (rope_dim == 0 || params.query_rope_head_stride == rope_dim);
        const bool has_dense_tokens =
            query.token_stride == heads * dim && (rope_dim == 0 || params.query_rope_token_stride == heads * rope_dim);
        const bool is_dense = has_dense_heads && (has_dense_tokens || rows.token(live_rows - 1) == rows.token(0));
        const int copied_rows = is_dense ? live_rows : 1;
        for (int r = lane * copied_rows; r < live_rows; r += 32 * copied_rows) {
            const uint32_t to = ptx::shared_address(bytes);
            ptx::copy_bulk(to + r * dim * element_bytes,
                           static_cast<const uint8_t *>(query.rows) + rows.query_offset(query, r) * element_bytes,
                           copied_rows * dim * element_bytes, barrier);
            const int64_t rope = rows.token(r) * params.query_rope_token_stride + rows.head(r) * params.query_rope_head_stride;
            if (rope_dim > 0)
                ptx::copy_bulk(to + (row_tile * dim + r * rope_dim) * element_bytes,
                               static_cast<const uint8_t *>(params.query_rope) + rope * element_bytes,
                               copied_rows * rope_dim * element_bytes, barrier);
        }
        if (lane == 0)
            ptx::mbarrier_arrive_expect_tx(barrier, live_rows * Query::head_dim * element_bytes);
    }

    /* Where the elements from `dim` on of a row are. */
    template <class Params>
    static __device__ __forceinline__ int element(const Params &params, int r, int dim) {
        const int query_dim = params.query_dim, rope_dim = Query::head_dim - query_dim;
        return dim < query_dim ? r * query_dim + dim : row_tile * query_dim + r * rope_dim + dim - query_dim;
    }

    /* As Query::fetch, once the bytes are complete. */
    template <class Params>
    __device__ __forceinline__ void fetch(const Params &params, int r, bool is_live, int lane,
                                          typename Query::Vectors &ret) const {
#pragma unroll
        for (int i = 0; i < Query::lane_vectors; ++i) {
            const int dim = (i * 32 + lane) * Query::vector;
            if (!is_live || dim >= Query::head_dim)
                continue;
            if (Query::is_fp8(params.query))
                Query::load_fp8(bytes + element(params, r, dim), ret.pairs[i]);
            else
                load_words(bytes + element(params, r, dim) * 2, ret.pairs[i]);
        }
    }
};

/* Where there is no room for that. */
struct NoSentQuery {
    template <class... Arguments>
    __device__ __forceinline__ void send(const Arguments &...) const {}
    template <class... Arguments>
    __device__ __forceinline__ void fetch(const Arguments &...) const {}
};

/* A group's part of all rows, in registers. */
template <class Format, int row_tile, int groups, class Steps = StepRange<Format, groups>>
struct LatentQueryFragment {
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
template <class Format, int row_tile, int groups, class Steps = StepRange<Format, groups>>
struct LatentQueryReader {
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
