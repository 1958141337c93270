/* SPDX-License-Identifier: Apache-2.0 */
/* fragment_store.cuh: the epilogue, as epilogue.cuh has it, of results that lie in registers as mma left them (FragmentSlice). */
#pragma once

#include <cstdint>

#include "pipeline/epilogue.cuh"
#include "pipeline/fragment_slice.cuh"
#include "ptx/matrix.cuh"
#include "tile/output.cuh"

namespace pipeline {

/*
 * A finished unit's columns, as this thread has of them, into out, and lse by one warp. step_of(i): which 16 columns the thread's i-th step
 * is, counted from its CTA's first. With `ahead` all that this takes beside the result is computed, and asked for, when the object is made:
 * while the result is on its way.
 */
template <class Format, class S, class Rows, class StepOf, bool ahead>
class FragmentStore {
  public:
    __device__ __forceinline__ FragmentStore(const output_params &output, const Rows &rows, const S &result, int head_dim,
                                             bool stores_lse, StepOf step_of)
        : output_(output), rows_(rows), head_dim_(head_dim), lane_(result.thread % 32), live_rows_(result.live_rows),
          stores_lse_(stores_lse && output.lse != nullptr && lane_ < S::rows && result.statistics_row() < result.live_rows),
          step_of_(step_of) {
        if constexpr (ahead) {
            prepared_ = Prepared(*this, result);
            ptx::compute_here(prepared_.output_scale);
            ptx::compute_here(prepared_.sink);
#pragma unroll
            for (int i = 0; i < stored_rows; ++i)
                ptx::compute_here(prepared_.element[i]);
        }
    }

    __device__ __forceinline__ void run(const S &result) const {
        const Prepared prepared = ahead ? prepared_ : Prepared(*this, result);
        const FinishedRow finished(
            output_, [&] { return prepared.sink; }, result.reference[0], result.sum[0], prepared.output_scale);
        if (stores_lse_)
            finished.store_lse(output_, rows_, result.statistics_row());
        float factor[S::thread_rows];
        result.spread(finished.scale, factor);
        if constexpr (S::pairs_are_columns)
            store_columns(result, factor, prepared.element);
        else
            store_rows(result, factor, prepared.element);
    }

  private:
    /* Pairs of rows become pairs of columns: lane l then has row l / 4 of eight, and of these columns 2 (l % 4) and the next. */
    static constexpr int stored_rows = S::pairs_are_columns ? S::thread_rows : S::fragments;

    struct Prepared {
        float output_scale, sink = 0.f; /* of the lane's row */
        int64_t element[stored_rows];   /* of out, where the row begins */

        Prepared() = default;
        __device__ __forceinline__ Prepared(const FragmentStore &store, const S &result)
            : output_scale(pipeline::output_scale<Format>(store.output_)) {
            const int its_row = result.statistics_row();
            if (store.output_.sinks != nullptr && its_row < store.live_rows_)
                sink = sink_of(store.output_, store.rows_, its_row);
#pragma unroll
            for (int i = 0; i < stored_rows; ++i)
                element[i] = store.rows_.output_offset(store.output_, store.stored_row(result, i));
        }
    };

    __device__ __forceinline__ int stored_row(const S &result, int i) const {
        return S::pairs_are_columns ? result.row(i) : (result.first_fragment() + i) * 8 + lane_ / 4;
    }
    __device__ __forceinline__ int column(const S &result, int pair, int half, int of_lane) const {
        return Format::output_dim(step_of_(result.step(pair)), half, of_lane);
    }

    __device__ __forceinline__ void store_rows(const S &result, const float (&factor)[S::thread_rows],
                                               const int64_t (&element)[stored_rows]) const {
        const auto word = [&](int pair) {
            const int n = pair / 2 % S::fragments;
            return ptx::movmatrix_trans(
                tile::pack_output(output_.dtype, result.at(pair, 0) * factor[n * 2], result.at(pair, 1) * factor[n * 2 + 1]));
        };
        const auto to = [&](int pair, int half, int of_lane) {
            return static_cast<uint16_t *>(output_.rows) + element[pair / 2 % S::fragments] + column(result, pair, half, of_lane);
        };
        if constexpr (S::pairs % 2 == 0) {
            /* Both halves of a fragment: neighbouring lanes have neighbours of each, and store one of them together. */
            const int half = lane_ % 2;
#pragma unroll
            for (int pair = 0; pair < S::pairs; pair += 2) {
                const uint32_t lower = word(pair), upper = word(pair + 1);
                const uint32_t other = __shfl_xor_sync(tile::full_warp, half == 0 ? upper : lower, 1);
                if (stored_row(result, pair / 2 % S::fragments) < live_rows_)
                    *reinterpret_cast<uint2 *>(to(pair, half, lane_ % 4 / 2 * 16)) =
                        half == 0 ? make_uint2(lower, other) : make_uint2(other, upper);
            }
        } else {
#pragma unroll
            for (int pair = 0; pair < S::pairs; ++pair) {
                const uint32_t of_pair = word(pair);
                if (stored_row(result, pair / 2 % S::fragments) < live_rows_)
                    *reinterpret_cast<uint32_t *>(to(pair, (result.first_pair + pair) % 2, lane_ % 4 * 8)) = of_pair;
            }
        }
    }

    /* One dtype after the other, and not one vector: so no instruction is fetched for another one. */
    __device__ __forceinline__ void store_columns(const S &result, const float (&factor)[S::thread_rows],
                                                  const int64_t (&element)[stored_rows]) const {
        if (output_.dtype <= KERNEL_DTYPE_FP16)
            for_each_vector(result, factor, element, [&](const float(&value)[S::columns], int, int, int64_t at) {
                store_pairs(static_cast<uint16_t *>(output_.rows) + at, value,
                            [&](float low, float high) { return tile::pack_output(output_.dtype, low, high); });
            });
        else if (output_.dtype == KERNEL_DTYPE_E4M3)
            for_each_vector(result, factor, element, [&](const float(&value)[S::columns], int, int, int64_t at) {
                store_pairs(static_cast<uint8_t *>(output_.rows) + at, value,
                            [](float low, float high) { return static_cast<uint16_t>(ptx::pack_e4m3(low, high)); });
            });
        else
            for_each_vector(result, factor, element, [&](const float(&value)[S::columns], int row, int column, int64_t) {
                tile::store_nvfp4<S::columns, 4>(output_, rows_, row, column, head_dim_, value);
            });
    }
    /* The neighbours that this thread has of a row: store(values, row, column, where that is in out). */
    template <class StoreVector>
    __device__ __forceinline__ void for_each_vector(const S &result, const float (&factor)[S::thread_rows],
                                                    const int64_t (&element)[stored_rows], StoreVector store) const {
#pragma unroll
        for (int pair = 0; pair < S::pairs; pair += S::row_pairs) {
            const int i = S::row_number(pair, 0), column = this->column(result, pair, 0, lane_);
            float value[S::columns];
#pragma unroll
            for (int j = 0; j < S::columns; ++j)
                value[j] = result.at(pair + j / 2, j % 2) * factor[i];
            if (result.row(i) < live_rows_)
                store(value, result.row(i), column, element[i] + column);
        }
    }
    template <class Element, class Pack>
    static __device__ __forceinline__ void store_pairs(Element *to, const float (&value)[S::columns], Pack pack) {
        using Word = decltype(pack(0.f, 0.f));
        struct alignas(S::row_pairs * sizeof(Word)) Words {
            Word of_pair[S::row_pairs];
        } words;
#pragma unroll
        for (int i = 0; i < S::row_pairs; ++i)
            words.of_pair[i] = pack(value[i * 2], value[i * 2 + 1]);
        *reinterpret_cast<Words *>(to) = words;
    }

    const output_params &output_;
    const Rows rows_;
    const int head_dim_, lane_, live_rows_;
    const bool stores_lse_;
    const StepOf step_of_;
    Prepared prepared_;
};

} // namespace pipeline
