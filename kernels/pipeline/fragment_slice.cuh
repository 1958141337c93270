/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fragment_slice.cuh: level 1 of partial.cuh where results stay in registers as mma left them, of all rows of a tile (the figure in
 * attention.cuh): each warp has columns of its own, and where there are two teams of warps, both have sums of the same columns.
 *
 * What happens once for a unit waits for every instruction to be fetched, so there are few: nothing changes hands but what is to be
 * added up, between threads that hold the same places, without an address to compute for each.
 */
#pragma once

#include <algorithm>
#include <cstdint>

#include "pipeline/partial.cuh"
#include "ptx/memory.cuh"
#include "tile/output.cuh"
#include "tile/score.cuh"
#include "tile/softmax.cuh"

namespace pipeline {

/*
 * `pairs` pairs of accumulators of a thread, from its pair `first_pair` on. Pairs go by step, fragment of rows, and half of that. A pair
 * is what becomes a word of out: two rows of one column, which movmatrix makes two columns of one row (FragmentStore), or, of formats
 * whose two halves of a fragment are neighbours, two columns at once.
 * A row's reference and sum are with lanes, not with the threads that have of its columns: lane l has those of row l % rows.
 * To accumulator_fold.cuh it looks as AccumulatorSlice does.
 */
template <class Format, int rows_, int pairs_, int threads_, int width_>
struct FragmentSlice {
    static constexpr int rows = rows_, pairs = pairs_, threads = threads_;
    static constexpr int width = width_, per_thread = pairs * 2 / width, statistics = 1; /* vectors of whole pairs */
    static constexpr int part_columns = tile::block_dims;                                /* neighbours that lanes have together */
    static constexpr int row_fragments = rows / 8;
    static constexpr bool pairs_are_columns = Format::output_dim(0, 1, 0) == Format::output_dim(0, 0, 0) + 1;
    static constexpr int fragments = std::clamp(pairs / 2, 1, row_fragments); /* of rows that this thread has of */
    static constexpr int thread_rows = pairs == 1 && pairs_are_columns ? 1 : fragments * 2;
    static_assert(width >= 2 && pairs * 2 % width == 0, "whole pairs");

    float value[per_thread][width], reference[statistics], sum[statistics];
    const uint32_t thread = ptx::thread_index_here(), live_rows;
    const int first_pair;

    explicit __device__ __forceinline__ FragmentSlice(int live_rows, int first_pair = 0)
        : live_rows(live_rows), first_pair(first_pair) {}

    __device__ __forceinline__ bool live() const { return live_rows > 0; }
    __device__ __forceinline__ uint32_t statistics_row() const { return thread % 32 % rows; }
    __device__ __forceinline__ int first_fragment() const { return first_pair / 2 % row_fragments; }

    /* Number `i` of the rows that this thread has of. */
    __device__ __forceinline__ int row(int i) const {
        const int odd = thread_rows == 1 ? first_pair % 2 : i % 2;
        return tile::row_of(0, first_fragment() + i / 2, odd, static_cast<int>(thread % 32));
    }
    /* Which of these element `e` of pair `pair` is of. */
    static __device__ __forceinline__ constexpr int row_number(int pair, int e) {
        return thread_rows == 1 ? 0 : pair / 2 % fragments * 2 + (pairs_are_columns ? pair % 2 : e);
    }
    __device__ __forceinline__ float &at(int pair, int e) { return value[pair * 2 / width][pair * 2 % width + e]; }
    __device__ __forceinline__ float at(int pair, int e) const { return value[pair * 2 / width][pair * 2 % width + e]; }

    /* Accumulator `j` of a fragment of 16 columns and eight rows: which of its two pairs that is of, and which element. */
    static __device__ __forceinline__ constexpr int pair_of(int j) { return pairs_are_columns ? j % 2 : j / 2; }
    static __device__ __forceinline__ constexpr int element_of(int j) { return pairs_are_columns ? j / 2 : j % 2; }

    /* From lanes to the threads that have of the row. */
    __device__ __forceinline__ void spread(float of_row, float (&ret)[thread_rows]) const {
#pragma unroll
        for (int i = 0; i < thread_rows; ++i)
            ret[i] = __shfl_sync(tile::full_warp, of_row, row(i));
    }

    __device__ __forceinline__ void clear() {
        reference[0] = -INFINITY;
        sum[0] = 0.f;
#pragma unroll
        for (int i = 0; i < per_thread; ++i) {
#pragma unroll
            for (int j = 0; j < width; ++j)
                value[i][j] = 0.f;
        }
    }

    /*
     * Adds other partials, the first `count` of `together`, at once: their weights do not wait for each other. `words`: of each vector,
     * and with the first the statistics of the lane's row.
     */
    template <int together, class Words>
    __device__ __forceinline__ void fold(const Words (&words)[together][per_thread], int count) {
        float references[together], largest = reference[0], factor[thread_rows];
#pragma unroll
        for (int k = 0; k < together; ++k) {
            references[k] = k < count ? words[k][0].statistics[0] : -INFINITY;
            largest = fmaxf(largest, references[k]);
        }
        const float common = tile::finite_reference(largest), own = ptx::exp2_approx(reference[0] - common);
        reference[0] = largest;
        sum[0] *= own;
        spread(own, factor);
#pragma unroll
        for (int pair = 0; pair < pairs; ++pair) {
#pragma unroll
            for (int e = 0; e < 2; ++e)
                at(pair, e) *= factor[row_number(pair, e)];
        }
#pragma unroll
        for (int k = 0; k < together; ++k) {
            const float weight = ptx::exp2_approx(references[k] - common);
            sum[0] += words[k][0].statistics[1] * weight;
            spread(weight, factor);
#pragma unroll
            for (int pair = 0; pair < pairs; ++pair) {
#pragma unroll
                for (int e = 0; e < 2; ++e)
                    at(pair, e) += words[k][pair * 2 / width].output[pair * 2 % width + e] * factor[row_number(pair, e)];
            }
        }
    }
};

/* The results of one team of warps. Lies in shared memory, where there are two of them. */
template <class S, int teams>
struct TeamFold {
    static_assert(teams == 1);

    /* By all warps. `statistics`: reference and sum of every row, which all warps have stored, and all have met since. */
    template <int barrier_id, int steps>
    __device__ __forceinline__ void run(const tile::OutputFragment<steps, S::row_fragments> &output,
                                        const float (&statistics)[1][S::rows][2], int, S &result) {
        static_assert(S::pairs == steps * S::row_fragments * 2);
        result.reference[0] = statistics[0][result.statistics_row()][0];
        result.sum[0] = statistics[0][result.statistics_row()][1];
#pragma unroll
        for (int i = 0; i < S::pairs / 2; ++i) {
#pragma unroll
            for (int j = 0; j < 4; ++j)
                result.at(i * 2 + S::pair_of(j), S::element_of(j)) = output.value[i / S::row_fragments][i % S::row_fragments][j];
        }
    }
};

/*
 * Team t adds up the t-th half of the steps: the other half of its sums it passes to the thread of its place in the other team.
 * Products are rounded before they are added: which team was at which tiles does not change a bit.
 */
template <class S>
struct TeamFold<S, 2> {
    alignas(16) float passed[2][S::pairs / 2][S::threads / 2][4];

    template <int barrier_id, int steps>
    __device__ __forceinline__ void run(const tile::OutputFragment<steps, S::row_fragments> &output,
                                        const float (&statistics)[2][S::rows][2], int team, S &result) {
        static_assert(S::pairs == steps / 2 * S::row_fragments * 2 && S::fragments == S::row_fragments);
        const float(&own)[2] = statistics[team][result.statistics_row()],
              (&other)[2] = statistics[1 - team][result.statistics_row()];
        const float largest = fmaxf(own[0], other[0]), common = tile::finite_reference(largest);
        const float own_weight = ptx::exp2_approx(own[0] - common), other_weight = ptx::exp2_approx(other[0] - common);
        result.reference[0] = largest;
        result.sum[0] = __fadd_rn(__fmul_rn(own[1], own_weight), __fmul_rn(other[1], other_weight));

        float weights[S::thread_rows];
        result.spread(own_weight, weights);
        const uint32_t to = ptx::shared_address(passed[team][0][result.thread % (S::threads / 2)]);
        constexpr uint32_t stride = sizeof passed[0][0];
#pragma unroll
        for (int i = 0; i < S::pairs / 2; ++i) {
            const int step = i / S::row_fragments, n = i % S::row_fragments;
            uint32_t words[4];
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const float weight = weights[n * 2 + j % 2];
                const float lower = output.value[step][n][j], upper = output.value[steps / 2 + step][n][j];
                words[j] = __float_as_uint(__fmul_rn(team == 0 ? upper : lower, weight));
                result.at(i * 2 + S::pair_of(j), S::element_of(j)) = __fmul_rn(team == 0 ? lower : upper, weight);
            }
            ptx::store_shared(to + i * stride, words);
        }
        ptx::named_barrier<barrier_id, S::threads>();
        const uint32_t from = ptx::shared_address(passed[1 - team][0][result.thread % (S::threads / 2)]);
#pragma unroll
        for (int i = 0; i < S::pairs / 2; ++i) {
            uint32_t words[4];
            ptx::load_shared(words, from + i * stride);
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                float &sum = result.at(i * 2 + S::pair_of(j), S::element_of(j));
                sum = __fadd_rn(sum, __uint_as_float(words[j]));
            }
        }
    }
};

} // namespace pipeline
