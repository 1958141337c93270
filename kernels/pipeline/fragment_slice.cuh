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

#include "pipeline/part_halves.cuh"
#include "pipeline/partial.cuh"
#include "ptx/memory.cuh"
#include "tile/output.cuh"
#include "tile/score.cuh"
#include "tile/softmax.cuh"

namespace pipeline {

/* How many neighbouring columns of a row an output fragment has in one thread: of both its halves, and of two steps. */
template <class Format>
constexpr int neighbouring_columns = Format::output_dim(0, 1, 0) == Format::output_dim(0, 0, 0) + 1   ? 2
                                     : Format::output_dim(1, 0, 0) == Format::output_dim(0, 0, 0) + 1 ? 4
                                                                                                      : 1;

/*
 * `pairs` pairs of accumulators of a thread, from its pair `first_pair` on. A pair is what becomes a word of out: two rows of one column,
 * which movmatrix makes two columns of one row (FragmentStore), or two columns at once, where the format deals out dims so that a thread
 * has neighbours: the two halves of a fragment (FP8), or these in two steps, by turns (NVFP4). Pairs go by step, or two of them, by
 * fragment of rows, and by what there is of that: halves, or rows, of each all its neighbours.
 * A row's reference and sum are with lanes, not with the threads that have of its columns: lane l has those of row l % rows.
 */
template <class Format, int rows_, int pairs_, int threads_, int width_, bool knows_unit = false>
struct FragmentSlice {
    static constexpr int rows = rows_, pairs = pairs_, threads = threads_;
    static constexpr int width = width_, per_thread = pairs * 2 / width, statistics = 1; /* vectors of whole pairs */
    static constexpr int part_columns = tile::block_dims;                                /* neighbours that lanes have together */
    static constexpr int row_fragments = rows / 8;
    static constexpr int columns = neighbouring_columns<Format>, steps_together = columns == 4 ? 2 : 1;
    static constexpr bool pairs_are_columns = columns > 1;
    static constexpr int row_pairs = pairs_are_columns ? columns / 2 : 1;                  /* that are neighbours */
    static constexpr int fragment_pairs = steps_together * 2;                              /* of eight rows */
    static constexpr int fragments = std::clamp(pairs / fragment_pairs, 1, row_fragments); /* of rows that this thread has of */
    static constexpr int thread_rows = pairs == row_pairs && pairs_are_columns ? 1 : fragments * 2;
    static_assert(width >= 2 && pairs * 2 % width == 0, "whole pairs");
    static_assert(pairs % row_pairs == 0, "all of a row's neighbours");

    /*
     * What changes hands (part_halves.cuh): of each pair a word of fp16, of means. How large these are V's format says, or they have a unit, which
     * is one for all rows of a warp.
     */
    static constexpr bool has_units = Format::largest_value == 0;
    static constexpr float per_mean = has_units ? 1.f : per_mean_of<std::max(Format::largest_value, 1)>;
    static constexpr int word_width = std::min(pairs, 4), word_vectors = pairs / word_width;
    static_assert(pairs % word_width == 0, "whole vectors");
    struct Words {
        float output[word_vectors][word_width];
        float statistics[FragmentSlice::statistics][2]; /* of the lane's row reference, and sum, with the unit if it has_units */
    };

    float value[per_thread][width], reference[statistics], sum[statistics];
    float unit; /* that fp16 has room for means in, if it knows_unit */
    const uint32_t thread = ptx::thread_index_here(), live_rows;
    const int first_pair;

    explicit __device__ __forceinline__ FragmentSlice(int live_rows, int first_pair = 0)
        : live_rows(live_rows), first_pair(first_pair) {}

    __device__ __forceinline__ bool live() const { return live_rows > 0; }
    __device__ __forceinline__ uint32_t statistics_row() const { return thread % 32 % rows; }
    __device__ __forceinline__ int first_fragment() const { return first_pair / fragment_pairs % row_fragments; }
    /* Number of the step that a pair's columns are of; the first, where they are of two. */
    __device__ __forceinline__ int step(int pair) const {
        return (first_pair + pair) / fragment_pairs / row_fragments * steps_together;
    }

    /* Number `i` of the rows that this thread has of. */
    __device__ __forceinline__ int row(int i) const {
        const int odd = thread_rows == 1 ? first_pair / row_pairs % 2 : i % 2;
        return tile::row_of(0, first_fragment() + i / 2, odd, static_cast<int>(thread % 32));
    }
    /* Which of these element `e` of pair `pair` is of. */
    static __device__ __forceinline__ constexpr int row_number(int pair, int e) {
        return thread_rows == 1 ? 0 : pair / fragment_pairs % fragments * 2 + (pairs_are_columns ? pair / row_pairs % 2 : e);
    }
    __device__ __forceinline__ float &at(int pair, int e) { return value[pair * 2 / width][pair * 2 % width + e]; }
    __device__ __forceinline__ float at(int pair, int e) const { return value[pair * 2 / width][pair * 2 % width + e]; }

    /* Accumulator `j` of the n-th eight rows of a step: which pair that is of, and which element. */
    static __device__ __forceinline__ constexpr int pair_of(int step, int n, int j) {
        const int of_fragment = !pairs_are_columns ? j / 2 : columns == 2 ? j % 2 : j % 2 * 2 + j / 2;
        return (step / steps_together * row_fragments + n) * fragment_pairs + of_fragment;
    }
    static __device__ __forceinline__ constexpr int element_of(int step, int j) {
        return !pairs_are_columns ? j % 2 : columns == 2 ? j / 2 : step % 2;
    }

    /* From lanes to the threads that have of the row. */
    __device__ __forceinline__ void spread(float of_row, float (&ret)[thread_rows]) const {
#pragma unroll
        for (int i = 0; i < thread_rows; ++i)
            ret[i] = __shfl_sync(tile::full_warp, of_row, row(i));
    }

    /* All that a warp has. `of_rows`: reference and sum of each, which all warps have stored, and all have met since. */
    template <int steps>
    __device__ __forceinline__ void take(const tile::OutputFragment<steps, row_fragments> &output,
                                         const float (&of_rows)[rows][2]) {
        static_assert(pairs == steps * row_fragments * 2);
        reference[0] = of_rows[statistics_row()][0];
        sum[0] = of_rows[statistics_row()][1];
#pragma unroll
        for (int i = 0; i < steps * row_fragments; ++i) {
            const int step = i / row_fragments, n = i % row_fragments;
#pragma unroll
            for (int j = 0; j < 4; ++j)
                at(pair_of(step, n, j), element_of(step, j)) = output.value[step][n][j];
        }
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

    /* What the values of this thread's rows are multiplied by to become halves, and the unit that these are of. */
    struct Scale {
        float of_row[thread_rows], unit;
    };
    __device__ __forceinline__ Scale scale() const {
        Scale scale = {};
        spread(per_mean_unit(sum[0]) * per_mean, scale.of_row);
        if constexpr (has_units) {
            const HalvesUnit known = knows_unit ? HalvesUnit::of(unit) : unit_of_means(scale.of_row);
            scale.unit = known.unit;
#pragma unroll
            for (int i = 0; i < thread_rows; ++i)
                scale.of_row[i] *= known.per_unit;
        }
        return scale;
    }
    /* What halves of a row with this sum are to be multiplied by. */
    static __device__ __forceinline__ float unit_of(float of_sum, float unit) {
        return mean_unit(of_sum) * (has_units ? unit : 1.f / per_mean);
    }
    __device__ __forceinline__ float halves(const Scale &scale, int pair) const {
        return pack_halves(at(pair, 0) * scale.of_row[row_number(pair, 0)], at(pair, 1) * scale.of_row[row_number(pair, 1)]);
    }

    __device__ __forceinline__ Words words() const {
        Words words;
        words.statistics[0][0] = reference[0];
        const Scale scale = this->scale();
        words.statistics[0][1] = has_units ? sum_with_unit(sum[0], scale.unit) : sum[0];
#pragma unroll
        for (int pair = 0; pair < pairs; ++pair)
            words.output[pair / word_width][pair % word_width] = halves(scale, pair);
        return words;
    }

    /* Adds the halves of a pair, of rows times their factor. */
    __device__ __forceinline__ void add(int pair, float halves, const float (&factor)[thread_rows]) {
        float of_pair[2];
        unpack_halves(of_pair[0], of_pair[1], halves);
#pragma unroll
        for (int e = 0; e < 2; ++e)
            at(pair, e) += of_pair[e] * factor[row_number(pair, e)];
    }

    /* Adds other partials, the first `count` of `together`, at once: their weights do not wait for each other. */
    template <int together>
    __device__ __forceinline__ void fold(const Words (&words)[together], int count) {
        float references[together], largest = reference[0], factor[thread_rows];
#pragma unroll
        for (int k = 0; k < together; ++k) {
            references[k] = k < count ? words[k].statistics[0][0] : -INFINITY;
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
            const float word = words[k].statistics[0][1], of_sum = has_units ? sum_in(word) : word;
            sum[0] += of_sum * weight;
            spread(weight * unit_of(of_sum, unit_in(word)), factor);
#pragma unroll
            for (int pair = 0; pair < pairs; ++pair)
                add(pair, words[k].output[pair / word_width][pair % word_width], factor);
        }
    }

  private:
    /* Of the largest: rows that are no query heads have no say. */
    __device__ __forceinline__ HalvesUnit unit_of_means(const float (&per_row)[thread_rows]) const {
        float of_rows[thread_rows] = {}, largest = 0.f;
#pragma unroll
        for (int pair = 0; pair < pairs; ++pair) {
#pragma unroll
            for (int e = 0; e < 2; ++e)
                of_rows[row_number(pair, e)] = fmaxf(of_rows[row_number(pair, e)], fabsf(at(pair, e)));
        }
#pragma unroll
        for (int i = 0; i < thread_rows; ++i)
            largest = fmaxf(largest, row(i) < static_cast<int>(live_rows) ? of_rows[i] * per_row[i] : 0.f);
        return HalvesUnit::up_to(__uint_as_float(__reduce_max_sync(tile::full_warp, __float_as_uint(largest))));
    }
};

/* The results of one team of warps. Lies in shared memory, where there are two of them. */
template <class S, int teams>
struct TeamFold {
    static_assert(teams == 1);

    /* By all warps. `statistics`: as take() has them. */
    template <int barrier_id, int steps>
    __device__ __forceinline__ void run(const tile::OutputFragment<steps, S::row_fragments> &output,
                                        const float (&statistics)[1][S::rows][2], int, S &result) {
        result.take(output, statistics[0]);
    }
};

/*
 * Team t adds up the t-th half of the steps, which it has first (tile::TeamValues): so both pass the same registers, the others, to the thread of
 * their place in the other team. Products are rounded before they are added: which team was at which tiles does not change a bit.
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
                words[j] = __float_as_uint(__fmul_rn(output.value[steps / 2 + step][n][j], weight));
                result.at(S::pair_of(step, n, j), S::element_of(step, j)) = __fmul_rn(output.value[step][n][j], weight);
            }
            ptx::store_shared(to + i * stride, words);
        }
        ptx::named_barrier<barrier_id, S::threads>();
        const uint32_t from = ptx::shared_address(passed[1 - team][0][result.thread % (S::threads / 2)]);
#pragma unroll
        for (int i = 0; i < S::pairs / 2; ++i) {
            const int step = i / S::row_fragments, n = i % S::row_fragments;
            uint32_t words[4];
            ptx::load_shared(words, from + i * stride);
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                float &sum = result.at(S::pair_of(step, n, j), S::element_of(step, j));
                sum = __fadd_rn(sum, __uint_as_float(words[j]));
            }
        }
    }
};

} // namespace pipeline
