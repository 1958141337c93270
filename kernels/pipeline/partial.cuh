/* SPDX-License-Identifier: Apache-2.0 */
/*
 * partial.cuh: partial results and how they fold. A partial is (unnormalised output, reference m, sum l) per row; partials fold as
 *
 *     m = max m_i,   w_i = 2^(m_i - m),   l = sum w_i l_i,   output = sum w_i output_i
 *
 * From the partial results of many warps to one, in one launch and always in the same order, so that equal inputs give equal
 * bits. Three levels, each optional but the first:
 *
 *     warp_fold.cuh           warps of a CTA, through shared memory; row_part_fold.cuh where there is little of it
 *     cluster_exchange.cuh    CTAs of a cluster: every thread pushes its columns into the CTA that owns them
 *     worker_fold.cuh         workers: records in global memory; the last to arrive folds them in the order of the workers
 *
 * Results of MLA, which have many columns, change hands as fp16 at the second and third (part_halves.cuh).
 *
 * After the first level a thread holds some vectors of columns of the rows: Slice says which. Or it has what matrix instructions left it, of
 * warpgroups (accumulator_fold.cuh, accumulator_exchange.cuh, warpgroup_result.cuh; transposed_fold.cuh) or of warps (fragment_result.cuh: fragment_slice.cuh, and
 * fragment_exchange.cuh and fragment_fold.cuh for clusters, fragment_slice_fold.cuh for single CTAs, of whose parts all take slices that have time).
 */
#pragma once

#include <cstdint>

#include "ptx/scalar.cuh"
#include "tile/softmax.cuh"

namespace pipeline {

/* Where a vector of a partial's output lies, and reference and sum of its row. */
struct Partial {
    const float *output, *statistics;
};

/* Another partial of a row joins the one of that reference and sum: by what the values of both are multiplied. */
struct FoldWeights {
    float own, other;

    __device__ __forceinline__ FoldWeights(float &reference, float &sum, float other_reference, float other_sum) {
        const float largest = fmaxf(reference, other_reference);
        const float common = tile::finite_reference(largest);
        own = ptx::exp2_approx(reference - common);
        other = ptx::exp2_approx(other_reference - common);
        reference = largest;
        sum = sum * own + other_sum * other;
    }
};

/*
 * How `rows` x `columns` results are dealt out to `threads`: vectors of `width` columns, thread t gets t, t + threads, ... of
 * every one of `parts` blocks of columns. Only the first `live_rows` rows are query heads; nothing is done for the others.
 */
template <int rows, int columns, int threads_, int parts = 1>
struct Slice {
    static constexpr int threads = threads_;
    static constexpr int part_columns = columns / parts;
    static constexpr int width = rows * part_columns >= threads * 4 ? 4 : rows * part_columns >= threads * 2 ? 2 : 1;
    static constexpr int vectors_per_row = part_columns / width;
    static constexpr int per_part = (rows * vectors_per_row + threads - 1) / threads;
    static constexpr int per_thread = per_part * parts;
    static_assert(columns % parts == 0 && part_columns % width == 0, "columns in whole vectors");

    float value[per_thread][width] = {};
    float reference[per_thread] = {}; /* of the vector's row */
    float sum[per_thread] = {};

    const uint32_t thread = ptx::thread_index_here(), live_rows;

    explicit __device__ __forceinline__ Slice(int live_rows) : live_rows(live_rows) {}
    __device__ __forceinline__ bool live(int i) const { return vector(i) < live_rows * vectors_per_row; }
    __device__ __forceinline__ uint32_t row(int i) const { return vector(i) / vectors_per_row; }
    __device__ __forceinline__ uint32_t column(int i) const {
        return i / per_part * part_columns + vector(i) % vectors_per_row * width;
    }

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int i = 0; i < per_thread; ++i) {
            reference[i] = -INFINITY;
            sum[i] = 0.f;
#pragma unroll
            for (int j = 0; j < width; ++j)
                value[i][j] = 0.f;
        }
    }

    /* The vectors of one part from `partials` partials at once; partial_at(row, column, k) is where the vector lies in the k-th. */
    template <int partials, class PartialAt>
    __device__ __forceinline__ void fold_all(int part, PartialAt partial_at) {
#pragma unroll
        for (int i = part * per_part; i < (part + 1) * per_part; ++i) {
            if (!live(i))
                continue;
            const uint32_t r = row(i), c = column(i);
            float largest = partial_at(r, c, 0).statistics[0];
#pragma unroll
            for (int k = 1; k < partials; ++k)
                largest = fmaxf(largest, partial_at(r, c, k).statistics[0]);
            const float common = tile::finite_reference(largest);
            reference[i] = largest;
            sum[i] = 0.f;
#pragma unroll
            for (int j = 0; j < width; ++j)
                value[i][j] = 0.f;
#pragma unroll
            for (int k = 0; k < partials; ++k) {
                const Partial partial = partial_at(r, c, k);
                const float weight = ptx::exp2_approx(partial.statistics[0] - common);
                sum[i] += weight * partial.statistics[1];
#pragma unroll
                for (int j = 0; j < width; ++j)
                    value[i][j] += weight * partial.output[j];
            }
        }
    }

    /* Adds another partial of vector i. */
    __device__ __forceinline__ void fold(int i, const float (&other_value)[width], float other_reference, float other_sum) {
        const FoldWeights weights(reference[i], sum[i], other_reference, other_sum);
#pragma unroll
        for (int j = 0; j < width; ++j)
            value[i][j] = value[i][j] * weights.own + other_value[j] * weights.other;
    }

  private:
    __device__ __forceinline__ uint32_t vector(int i) const { return thread + i % per_part * threads; }
};

} // namespace pipeline
