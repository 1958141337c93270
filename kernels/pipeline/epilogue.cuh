/* SPDX-License-Identifier: Apache-2.0 */
/* epilogue.cuh: the folded result of a unit in, out and lse written: the sink joins the sum, the sum divides. */
#pragma once

#include <cmath>
#include <cstdint>

#include "abi.h"
#include "pipeline/partial.cuh"
#include "ptx/scalar.cuh"
#include "tile/constants.cuh"
#include "tile/output.cuh"
#include "tile/row_map.cuh"

namespace pipeline {

/* FP8 and NVFP4 where query or KV are not of 16 bits; NVFP4 where a thread's vector and its neighbours' are whole blocks of it. */
template <class Format, class S>
constexpr uint32_t out_dtypes =
    1u << KERNEL_DTYPE_BF16 | 1u << KERNEL_DTYPE_FP16 | (Format::converts_query ? 1u << KERNEL_DTYPE_E4M3 : 0u) |
    (Format::converts_query && S::part_columns % tile::block_dims == 0 ? 1u << KERNEL_DTYPE_NVFP4 : 0u);

/* What results are multiplied by, beside what is of their rows. */
template <class Format>
__device__ __forceinline__ float output_scale(const output_params &output) {
    return (output.bmm2_scale_device != nullptr ? *output.bmm2_scale_device : output.bmm2_scale) * Format::v_scale;
}

/* The sink of a row, in base 2. */
template <class Rows>
__device__ __forceinline__ float sink_of(const output_params &output, const Rows &rows, int row) {
    return output.sinks[rows.head(row)] * tile::log2_e;
}

/* A row of a finished unit: what its values are multiplied by, and its lse. `get_sink` is asked for its sink where there are some. */
struct FinishedRow {
    float reference, total; /* of the lse */
    float scale;

    template <class Sink>
    __device__ __forceinline__ FinishedRow(const output_params &output, Sink get_sink, float reference, float total,
                                           float output_scale)
        : reference(reference), total(total) {
        float weight = 1.f, divisor = total;
        if (output.sinks != nullptr) {
            const float sink = get_sink();
            const float common = tile::finite_reference(fmaxf(reference, sink));
            weight = ptx::exp2_approx(reference - common);
            /* A sink of +infinity takes all the weight; its difference to itself would be NaN. */
            divisor = total * weight + (sink == common ? 1.f : ptx::exp2_approx(sink - common));
            if ((output.lse_features & CONTRACT_FEATURE_LSE_WITHOUT_SINK) == 0) {
                this->total = divisor;
                this->reference = fmaxf(reference, sink);
            }
        }
        /* Of no weight: 0. NaN is not: it propagates. */
        scale = divisor == 0.f ? 0.f : __fdividef(output_scale * weight, divisor);
    }

    /* Into lse, of row `row` of the unit. */
    template <class Rows>
    __device__ __forceinline__ void store_lse(const output_params &output, const Rows &rows, int row) const {
        const float empty = (output.lse_features & CONTRACT_FEATURE_LSE_EMPTY_INFINITY) != 0 ? INFINITY : -INFINITY;
        float sum = reference + log2f(total);
        if constexpr (Rows::have_biases)
            sum += rows.lse_shift(output, row);
        output.lse[rows.lse_offset(output, row)] = total == 0.f ? empty : sum * output.lse_factor;
    }
};

/*
 * This CTA's columns of a finished unit, the first of them `first_column` of the head, into out, and lse. Columns from head_dim on are
 * padding, never stored. `Rows`: a RowMap, or one like it. With `ahead` all that this takes beside the result is computed, and asked for,
 * when the object is made: while the result is on its way.
 */
template <class Format, class S, class Rows, bool ahead>
class UnitStore {
  public:
    __device__ __forceinline__ UnitStore(const output_params &output, const Rows &rows, const S &result, int first_column,
                                         int head_dim)
        : output_(output), rows_(rows), first_column_(first_column), head_dim_(head_dim) {
        if constexpr (ahead) {
            bmm2_scale_ = output_scale<Format>(output);
            ptx::compute_here(bmm2_scale_);
#pragma unroll
            for (int i = 0; i < S::per_thread; ++i) {
                const int column = first_column + result.column(i);
                if (result.live(i) && column < head_dim) {
                    element_[i] = element(result.row(i), column);
                    if (output.sinks != nullptr)
                        sink_[i] = sink_of(output, rows, result.row(i));
                }
                ptx::compute_here(element_[i]);
                ptx::compute_here(sink_[i]);
            }
        }
    }

    __device__ __forceinline__ void run(const S &result) const {
        const float scale = ahead ? bmm2_scale_ : output_scale<Format>(output_);
#pragma unroll
        for (int i = 0; i < S::per_thread; ++i) {
            const int column = first_column_ + result.column(i);
            if (!result.live(i) || column >= head_dim_)
                continue;
            const auto sink = [&] { return ahead ? sink_[i] : sink_of(output_, rows_, result.row(i)); };
            const FinishedRow row(output_, sink, result.reference[i], result.sum[i], scale);
            float value[S::width];
#pragma unroll
            for (int j = 0; j < S::width; ++j)
                value[j] = result.value[i][j] * row.scale;
            tile::store_output<out_dtypes<Format, S>>(output_, rows_, result.row(i), column, head_dim_,
                                                      ahead ? element_[i] : element(result.row(i), column), value);
            if (output_.lse != nullptr && column == 0)
                row.store_lse(output_, rows_, result.row(i));
        }
    }

  private:
    __device__ __forceinline__ int64_t element(int row, int column) const { return rows_.output_offset(output_, row) + column; }

    const output_params &output_;
    const Rows &rows_;
    const int first_column_, head_dim_;
    float bmm2_scale_ = 0.f;
    int64_t element_[S::per_thread] = {}; /* of out */
    float sink_[S::per_thread] = {};
};

template <class Format, class S, class Rows>
__device__ __forceinline__ void store_unit(const output_params &output, const Rows &rows, const S &result, int first_column,
                                           int head_dim) {
    UnitStore<Format, S, Rows, false>(output, rows, result, first_column, head_dim).run(result);
}

} // namespace pipeline
