/* SPDX-License-Identifier: Apache-2.0 */
/*
 * query.cuh: rows of Q as the B operand of qk. Where the matrix dtype is not the query's, rows are converted: fp16 and e4m3 to fp16
 * exactly; bf16, whose range fp16 has not, times a power of two of its own for each row, which `factor` takes back. It puts the
 * row's largest value just below 2^15: what is 2^-29 of it or more keeps all its bits, and the rest a quantum of 2^-24, far below what
 * the sum of the products is rounded to.
 *
 * With RoPE a row is turned by its own position first, in f32; its dims are dealt out as RotatedKeyReader has them.
 */
#pragma once

#include <cmath>
#include <cstdint>

#include "abi.h"
#include "ptx/bytes.cuh"
#include "ptx/convert.cuh"
#include "ptx/scalar.cuh"
#include "tile/element.cuh"
#include "tile/lanes.cuh"
#include "tile/power_of_two.cuh"
#include "tile/rope.cuh"
#include "tile/row_map.cuh"
#include "tile/unit_rows.cuh"

namespace tile {

/* Neighbouring words, aligned to their size. */
__device__ __forceinline__ void load_words(const void *address, uint32_t (&words)[1]) {
    words[0] = *static_cast<const uint32_t *>(address);
}
__device__ __forceinline__ void load_words(const void *address, uint32_t (&words)[2]) {
    const uint2 loaded = *static_cast<const uint2 *>(address);
    words[0] = loaded.x, words[1] = loaded.y;
}
__device__ __forceinline__ void load_words(const void *address, uint32_t (&words)[4]) {
    const uint4 loaded = *static_cast<const uint4 *>(address);
    words[0] = loaded.x, words[1] = loaded.y, words[2] = loaded.z, words[3] = loaded.w;
}

/* All of head_dim; rows past the live ones and dims past the query's are zero. */
template <class Format, int row_fragments>
struct QueryFragment {
    uint32_t operand[Format::steps][row_fragments][2];
    float factor[row_fragments][2]; /* of the rows whose scores the lane holds */

    /* `rows`: a RowMap, or one like it. */
    template <class Rows>
    __device__ __forceinline__ void load(const query_params &query, const Rows &rows, int first_row, int live_rows, int lane) {
        load_raw(query, rows, first_row, live_rows, lane);
        prepare(query, lane);
    }

    /* The same in two steps: words as they lie in memory, and what qk wants of them. Between the two nothing waits for the memory. */
    template <class Rows>
    __device__ __forceinline__ void load_raw(const query_params &query, const Rows &rows, int first_row, int live_rows,
                                             int lane) {
#pragma unroll
        for (int n = 0; n < row_fragments; ++n) {
            const int row = first_row + n * 8 + (lane >> 2);
            const int live_dims = row < live_rows ? query.head_dim : 0;
            const int64_t first = rows.query_offset(query, row);
            if constexpr (Format::converts_query)
                load_vectors<Vectors::count>(query, n, 0, first, live_dims, lane);
            else
                load_operands(query, n, first, live_dims, lane);
        }
    }
    __device__ __forceinline__ void prepare(const query_params &query, int lane) {
#pragma unroll
        for (int n = 0; n < row_fragments; ++n) {
            factor[n][0] = factor[n][1] = 1.f;
            if constexpr (Format::converts_query)
                convert(query, n, lane);
        }
    }

    /* For rotate: as they lie in memory, the lower half of a row and then the upper, of each of which a lane has the same dims. */
    template <class Rows>
    __device__ __forceinline__ void load_unrotated(const query_params &query, const Rows &rows, int first_row, int live_rows,
                                                   int lane) {
#pragma unroll
        for (int n = 0; n < row_fragments; ++n) {
            const int row = first_row + n * 8 + (lane >> 2);
            const int live_dims = row < live_rows ? query.head_dim : 0;
            const int64_t first = rows.query_offset(query, row);
            if constexpr (Format::converts_query) {
                load_vectors<Vectors::count / 2>(query, n, 0, first, live_dims / 2, lane);
                load_vectors<Vectors::count / 2>(query, n, Vectors::count / 2, first + live_dims / 2, live_dims / 2, lane);
            } else {
                load_neighbours(query, n, first, live_dims, lane);
            }
        }
    }

    /*
     * Turns what load_unrotated has left, for keys whose positions count from `position` of the cache. `places`: of the unit's rows.
     * `keep` is given the same in f32, of every step and fragment.
     */
    template <class Keep>
    __device__ __forceinline__ void rotate(const query_params &query, const RowPlace *places, const RopeFrequency *frequencies,
                                           int first_row, uint32_t position, int lane, Keep keep) {
#pragma unroll
        for (int n = 0; n < row_fragments; ++n) {
            const uint32_t distance = static_cast<uint32_t>(places[first_row + n * 8 + (lane >> 2)].distance);
            const SignedPositions positions(static_cast<int>(0u - distance - position));
            float multiplier = Format::rotation_scale;
            factor[n][0] = factor[n][1] = 1.f;
            uint32_t joined[Format::steps][2]; /* of each step two dims, and their partners in the upper half of the row */
            if constexpr (Format::converts_query) {
                join(query, n, joined);
                multiplier = normalise(query, n, joined, lane);
            }
#pragma unroll
            for (int step = 0; step < Format::steps; ++step) {
                const int first_dim = Format::rotated_dim(step, lane);
                float x[2], y[2], lower[2], upper[2];
                unpack(query, Format::converts_query ? joined[step][0] : operand[step][n][0], x);
                unpack(query, Format::converts_query ? joined[step][1] : operand[step][n][1], y);
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    float sine, cosine;
                    __sincosf(positions.radians(frequencies[first_dim + i * Format::rotated_neighbour]), &sine, &cosine);
                    x[i] *= multiplier;
                    y[i] *= multiplier;
                    lower[i] = fmaf(x[i], cosine, -y[i] * sine);
                    upper[i] = fmaf(y[i], cosine, x[i] * sine);
                }
                pack_rotated(step, n, lower, upper);
                keep(step, n, lower, upper);
            }
        }
    }

    __device__ __forceinline__ void pack_rotated(int step, int n, const float (&lower)[2], const float (&upper)[2]) {
        operand[step][n][0] = Element<Format::matrix_dtype>::pack(lower[0], lower[1]);
        operand[step][n][1] = Element<Format::matrix_dtype>::pack(upper[0], upper[1]);
    }

  private:
    __device__ __forceinline__ void load_neighbours(const query_params &query, int n, int64_t first, int live_dims, int lane) {
#pragma unroll
        for (int step = 0; step < Format::steps; ++step) {
            const int first_dim = Format::rotated_dim(step, lane);
            const bool is_live = first_dim < live_dims / 2; /* and so are all four: half a row is a multiple of 8 */
            operand[step][n][0] = is_live ? load_two(query, first + first_dim) : 0u;
            operand[step][n][1] = is_live ? load_two(query, first + live_dims / 2 + first_dim) : 0u;
        }
    }
    static __device__ __forceinline__ uint32_t load_two(const query_params &query, int64_t index) {
        static_assert(!Format::converts_query && Format::rotated_neighbour == 1, "neighbours in one word");
        return *reinterpret_cast<const uint32_t *>(static_cast<const uint16_t *>(query.rows) + index);
    }

    /* What load_vectors left, as elements rotated_neighbour apart; codes of e4m3 in the lower half of a word. */
    __device__ __forceinline__ void join(const query_params &query, int n, uint32_t (&ret)[Format::steps][2]) {
#pragma unroll
        for (int step = 0; step < Format::steps; ++step) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int vector = half * (Vectors::count / 2) + step / Vectors::rotated_steps;
                const int first = Format::rotated_dim(step % Vectors::rotated_steps, 0);
                const int second = first + Format::rotated_neighbour;
                ret[step][half] =
                    query.dtype == KERNEL_DTYPE_E4M3
                        ? ptx::permute_bytes(raw(n, vector, first / 4), raw(n, vector, second / 4),
                                             first % 4 | (second % 4 + 4) << 4)
                        : ptx::permute_bytes(raw(n, vector, first / 2), raw(n, vector, second / 2),
                                             (first % 2 != 0 ? 0x32u : 0x10u) | (second % 2 != 0 ? 0x7600u : 0x5400u));
            }
        }
    }

    static __device__ __forceinline__ void unpack(const query_params &query, uint32_t pair, float (&elements)[2]) {
        const int dtype = Format::converts_query ? query.dtype : Format::matrix_dtype;
        if (dtype == KERNEL_DTYPE_BF16)
            elements[0] = low(pair), elements[1] = high(pair);
        else
            ptx::unpack_fp16(elements[0], elements[1], dtype == KERNEL_DTYPE_E4M3 ? ptx::fp16x2_from_e4m3x2_low(pair) : pair);
    }

    /* What the row is multiplied by, so that its largest element lies just below 2^15, and turned ones below 2^16. */
    __device__ __forceinline__ float normalise(const query_params &query, int n, const uint32_t (&joined)[Format::steps][2],
                                               int lane) {
        float largest = 0.f;
#pragma unroll
        for (int step = 0; step < Format::steps; ++step) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                float elements[2];
                unpack(query, joined[step][half], elements);
                largest = fmaxf(largest, fmaxf(fabsf(elements[0]), fabsf(elements[1])));
            }
        }
        const int exponent = normalising_exponent(largest);
        keep_factor(n, exponent, lane);
        return power_of_two(exponent);
    }

    /* Takes back what row l/4 was multiplied by. */
    __device__ __forceinline__ void keep_factor(int n, int exponent, int lane) {
#pragma unroll
        for (int odd = 0; odd < 2; ++odd)
            factor[n][odd] = power_of_two(-__shfl_sync(0xffffffffu, exponent, ((lane & 3) * 2 + odd) * 4));
    }

    /* `largest` of a lane's elements; four lanes hold a row. */
    static __device__ __forceinline__ int normalising_exponent(float largest) {
        return fp16_exponent(largest_of_lanes<1, 4>(largest));
    }

    __device__ __forceinline__ void load_operands(const query_params &query, int n, int64_t first, int live_dims, int lane) {
        const uint16_t *const elements = static_cast<const uint16_t *>(query.rows) + first;
#pragma unroll
        for (int step = 0; step < Format::steps; ++step) {
#pragma unroll
            for (int half = 0; half < 2; ++half)
                operand[step][n][half] = step * 16 < live_dims
                                             ? *reinterpret_cast<const uint32_t *>(elements + Format::query_dim(step, half, lane))
                                             : 0u;
        }
    }

    /* Raw rows of what converts: vectors of neighbouring dims, which a lane's registers hold one after the other. */
    struct Vectors {
        static constexpr int width = Format::query_vector, stride = 4 * width, count = Format::steps * 16 / stride;
        static constexpr int steps = Format::steps / count; /* that one gives operands to */
        static constexpr int rotated_steps = steps * 2;     /* and one of half a row, with its partner */
    };
    __device__ __forceinline__ uint32_t &raw(int n, int vector, int word) {
        const int place = vector * (Vectors::width / 2) + word;
        return operand[place / 2][n][place % 2];
    }

    template <class Word, int count>
    __device__ __forceinline__ void load_vectors_of(const void *rows, int n, int first_vector, int64_t first, int live_dims,
                                                    int lane) {
        constexpr int words = Vectors::width * static_cast<int>(sizeof(Word)) / 4;
        const int first_dim = (lane & 3) * Vectors::width;
        const Word *const elements = static_cast<const Word *>(rows) + first + first_dim;
#pragma unroll
        for (int vector = 0; vector < count; ++vector) {
            uint32_t loaded[words] = {};
            if (vector * Vectors::stride + first_dim < live_dims) {
                const Word *const first_word = elements + vector * Vectors::stride;
                if constexpr (requires { Format::loads_single_words; }) {
#pragma unroll
                    for (int word = 0; word < words; ++word)
                        loaded[word] = reinterpret_cast<const uint32_t *>(first_word)[word];
                } else {
                    load_words(first_word, loaded);
                }
            }
#pragma unroll
            for (int word = 0; word < Vectors::width / 2; ++word) /* all: what is kept of another query would take registers */
                raw(n, first_vector + vector, word) = word < words ? loaded[word % words] : 0u;
        }
    }
    template <int count>
    __device__ __forceinline__ void load_vectors(const query_params &query, int n, int first_vector, int64_t first, int live_dims,
                                                 int lane) {
        if (query.dtype == KERNEL_DTYPE_E4M3)
            load_vectors_of<uint8_t, count>(query.rows, n, first_vector, first, live_dims, lane);
        else
            load_vectors_of<uint16_t, count>(query.rows, n, first_vector, first, live_dims, lane);
    }

    __device__ __forceinline__ void convert(const query_params &query, int n, int lane) {
        constexpr int width = Vectors::width;
        uint32_t pairs[Vectors::count][width / 2]; /* of neighbouring dims */
#pragma unroll
        for (int vector = 0; vector < Vectors::count; ++vector) {
#pragma unroll
            for (int i = 0; i < width / 2; ++i)
                pairs[vector][i] = raw(n, vector, i);
            if (query.dtype == KERNEL_DTYPE_E4M3) {
#pragma unroll
                for (int word = width / 4 - 1; word >= 0; --word) {
                    const uint32_t codes = pairs[vector][word];
                    pairs[vector][word * 2] = ptx::fp16x2_from_e4m3x2_low(codes);
                    pairs[vector][word * 2 + 1] = ptx::fp16x2_from_e4m3x2_high(codes);
                }
            }
        }
        const int exponent = query.dtype == KERNEL_DTYPE_BF16 ? fp16_from_bf16(pairs) : 0;
        keep_factor(n, exponent, lane);
#pragma unroll
        for (int vector = 0; vector < Vectors::count; ++vector) {
#pragma unroll
            for (int step = 0; step < Vectors::steps; ++step) {
#pragma unroll
                for (int half = 0; half < 2; ++half)
                    operand[vector * Vectors::steps + step][n][half] = Format::query_operand(pairs[vector], step, half);
            }
        }
    }

    /* In place, times 2 to the power of what it returns. */
    template <int vectors, int words>
    static __device__ __forceinline__ int fp16_from_bf16(uint32_t (&pairs)[vectors][words]) {
        float largest = 0.f;
#pragma unroll
        for (int vector = 0; vector < vectors; ++vector) {
#pragma unroll
            for (int i = 0; i < words; ++i)
                largest = fmaxf(largest, fmaxf(fabsf(low(pairs[vector][i])), fabsf(high(pairs[vector][i]))));
        }
        const int exponent = normalising_exponent(largest);
        const float multiplier = power_of_two(exponent);
#pragma unroll
        for (int vector = 0; vector < vectors; ++vector) {
#pragma unroll
            for (int i = 0; i < words; ++i)
                pairs[vector][i] = ptx::pack_fp16(low(pairs[vector][i]) * multiplier, high(pairs[vector][i]) * multiplier);
        }
        return exponent;
    }
    static __device__ __forceinline__ float low(uint32_t pair) { return __uint_as_float(pair << 16); }
    static __device__ __forceinline__ float high(uint32_t pair) { return __uint_as_float(pair & 0xffff0000u); }
};

} // namespace tile
