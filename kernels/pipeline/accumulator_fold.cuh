/* SPDX-License-Identifier: Apache-2.0 */
/*
 * accumulator_fold.cuh: level 3 of partial.cuh, for results that lie in registers as matrix instructions of warpgroups left them, and need no
 * folding within the CTA: AccumulatorSlice. As transposed_fold.cuh: slices of columns are added up by whichever worker has time
 * (slice_dealer.cuh), in the order of the parts.
 */
#pragma once

#include <cstdint>

#include "pipeline/part_halves.cuh"
#include "pipeline/partial.cuh"
#include "pipeline/slice_dealer.cuh"
#include "pipeline/split_schedule.cuh"
#include "ptx/memory.cuh"

namespace pipeline {

/*
 * Columns of every row, as matrix instructions of warpgroups leave them: a warp has 16 rows, lane l of them rows l/4 and l/4 + 8, of
 * each eight columns 2 (l%4) and the next. A vector is of one row and of sixteen columns: vector i of row l/4 + 8 (i%2) and of the
 * (i/2)-th sixteen.
 */
template <int threads_, int columns = 64, bool in_halves_ = true>
struct AccumulatorSlice {
    static constexpr int threads = threads_, part_columns = columns, width = 4, per_thread = columns / 8;
    static constexpr int statistics = 2; /* of the rows of the first two vectors, which are all */

    /*
     * What changes hands: the values; or, in halves, of each sixteen columns pairs of fp16, a value of the first row in the lower half and of the
     * second in the upper.
     */
    static constexpr bool in_halves = in_halves_;
    static constexpr int word_vectors = in_halves ? per_thread / 2 : per_thread, word_width = width;
    struct Words {
        float output[word_vectors][word_width];
        float statistics[AccumulatorSlice::statistics][2]; /* of each row reference, and sum, in halves with its values' unit */
    };

    float value[per_thread][width], reference[statistics], sum[statistics];
    const uint32_t thread = ptx::thread_index_here(), live_rows;

    explicit __device__ __forceinline__ AccumulatorSlice(int live_rows) : live_rows(live_rows) {}
    __device__ __forceinline__ uint32_t row(int i) const { return thread % 128 / 32 * 16 + thread % 32 / 4 + i % 2 * 8; }
    /* All rows of a warp, where one of them is a query head. */
    __device__ __forceinline__ bool live() const { return thread % 128 / 32 * 16 < live_rows; }

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int i = 0; i < statistics; ++i) {
            reference[i] = -INFINITY;
            sum[i] = 0.f;
        }
#pragma unroll
        for (int i = 0; i < per_thread; ++i) {
#pragma unroll
            for (int j = 0; j < width; ++j)
                value[i][j] = 0.f;
        }
    }
    /* Accumulators of all columns from those of eight columns `first_eight` on. */
    template <int eights>
    __device__ __forceinline__ void take(const float (&accumulators)[eights][4], int first_eight) {
#pragma unroll
        for (int i = 0; i < per_thread; ++i) {
#pragma unroll
            for (int j = 0; j < width; ++j)
                value[i][j] = accumulators[first_eight + i / 2 * 2 + j / 2][i % 2 * 2 + j % 2];
        }
    }

    __device__ __forceinline__ Words words() const {
        if constexpr (in_halves) {
            return halves();
        } else {
            Words words;
#pragma unroll
            for (int i = 0; i < word_vectors; ++i) {
#pragma unroll
                for (int j = 0; j < width; ++j)
                    words.output[i][j] = value[i][j];
            }
#pragma unroll
            for (int row = 0; row < statistics; ++row) {
                words.statistics[row][0] = reference[row];
                words.statistics[row][1] = sum[row];
            }
            return words;
        }
    }

    /* Adds another partial. */
    __device__ __forceinline__ void fold(const Words &words) {
        float own[statistics], other[statistics];
#pragma unroll
        for (int row = 0; row < statistics; ++row) {
            const float word = words.statistics[row][1];
            const FoldWeights weights(reference[row], sum[row], words.statistics[row][0], in_halves ? sum_in(word) : word);
            own[row] = weights.own;
            other[row] = in_halves ? weights.other * unit_in(word) : weights.other;
        }
#pragma unroll
        for (int i = 0; i < word_vectors; ++i) {
#pragma unroll
            for (int j = 0; j < width; ++j) {
                if constexpr (in_halves) {
                    float of_rows[statistics];
                    unpack_halves(of_rows[0], of_rows[1], words.output[i][j]);
#pragma unroll
                    for (int row = 0; row < statistics; ++row)
                        value[i * 2 + row][j] = value[i * 2 + row][j] * own[row] + of_rows[row] * other[row];
                } else {
                    value[i][j] = value[i][j] * own[i % 2] + words.output[i][j] * other[i % 2];
                }
            }
        }
    }

  private:
    __device__ __forceinline__ Words halves() const {
        float largest[statistics] = {};
#pragma unroll
        for (int i = 0; i < per_thread; ++i) {
#pragma unroll
            for (int j = 0; j < width; ++j)
                largest[i % 2] = fmaxf(largest[i % 2], fabsf(value[i][j]));
        }
        const HalvesUnit units[] = {HalvesUnit::up_to(largest[0]), HalvesUnit::up_to(largest[1])};
        Words words;
#pragma unroll
        for (int i = 0; i < word_vectors; ++i) {
#pragma unroll
            for (int j = 0; j < width; ++j)
                words.output[i][j] = pack_halves(value[i * 2][j] * units[0].per_unit, value[i * 2 + 1][j] * units[1].per_unit);
        }
#pragma unroll
        for (int row = 0; row < statistics; ++row) {
            words.statistics[row][0] = reference[row];
            words.statistics[row][1] = sum_with_unit(sum[row], units[row].unit);
        }
        return words;
    }
};

/* A part, as the threads hold it. Statistics are those of a slice where it has units of its own. */
template <class S, int slices>
struct alignas(16) AccumulatorPart {
    using Statistics = float[S::statistics][S::threads][2];
    struct alignas(16) Columns {
        float output[S::word_vectors][S::threads][S::word_width];
        Statistics statistics;
    } slice[slices];

    __device__ __forceinline__ Statistics &statistics(int of_slice) { return slice[of_slice].statistics; }
    __device__ __forceinline__ const Statistics &statistics(int of_slice) const { return slice[of_slice].statistics; }
};
template <class S, int slices>
requires(!S::in_halves) struct alignas(16) AccumulatorPart<S, slices> {
    using Statistics = float[S::statistics][S::threads][2];
    struct alignas(16) Columns {
        float output[S::word_vectors][S::threads][S::word_width];
    } slice[slices];
    Statistics of_all;

    __device__ __forceinline__ Statistics &statistics(int) { return of_all; }
    __device__ __forceinline__ const Statistics &statistics(int) const { return of_all; }
};

/* The parts of a piece's unit, each in `slices` slices of columns. */
template <class S, int slices>
class AccumulatorFold {
  public:
    using Part = AccumulatorPart<S, slices>;

    __device__ __forceinline__ AccumulatorFold(void *records, void *scratch, const Piece &piece)
        : parts_(records, scratch, piece.parts.records), piece_(piece) {}

    __device__ __forceinline__ SliceCounts &counts() const { return parts_.counts(); }

    /* Several slices at once, from that number on. */
    template <class Wide>
    __device__ __forceinline__ void leave(const Wide &result, int first_slice) const {
        if (!result.live())
            return;
        const typename Wide::Words words = result.words();
#pragma unroll
        for (int slice = 0; slice < Wide::word_vectors / S::word_vectors; ++slice) {
            Part &own = parts_[piece_.parts.own];
#pragma unroll
            for (int i = 0; i < S::word_vectors; ++i)
                ptx::store_relaxed(own.slice[first_slice + slice].output[i][result.thread],
                                   words.output[slice * S::word_vectors + i]);
            if (!S::in_halves && first_slice + slice > 0)
                continue;
#pragma unroll
            for (int i = 0; i < S::statistics; ++i)
                ptx::store_relaxed(own.statistics(first_slice + slice)[i][result.thread], words.statistics[i]);
        }
    }

    /* All parts of a slice, in order. */
    __device__ __forceinline__ void take(S &result, int slice) const {
        constexpr uint32_t together = 4; /* parts that are on their way at a time */
        result.clear();                  /* ahead of all else: what is not written would seem to be needed since long before */
        if (!result.live())
            return;
#pragma unroll 1
        for (uint32_t first = 0; first < piece_.parts.count; first += together) {
            Words words[together] = {};
#pragma unroll
            for (uint32_t k = 0; k < together; ++k) {
                if (first + k < piece_.parts.count)
                    load(parts_[first + k], slice, result.thread, words[k]);
            }
#pragma unroll
            for (uint32_t k = 0; k < together; ++k) {
                if (first + k < piece_.parts.count)
                    result.fold(words[k]);
            }
        }
    }

  private:
    using Words = typename S::Words;

    static __device__ __forceinline__ void load(const Part &part, int slice, uint32_t thread, Words &words) {
#pragma unroll
        for (int i = 0; i < S::word_vectors; ++i)
            ptx::load_relaxed(words.output[i], part.slice[slice].output[i][thread]);
#pragma unroll
        for (int i = 0; i < S::statistics; ++i)
            ptx::load_relaxed(words.statistics[i], part.statistics(slice)[i][thread]);
    }

    const DealtParts<Part> parts_;
    const Piece &piece_;
};

} // namespace pipeline
