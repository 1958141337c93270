/* SPDX-License-Identifier: Apache-2.0 */
/* epilogue.cuh: the folded result of a unit in, out and lse written: the sink joins the sum, the sum divides. */
#pragma once

#include <cmath>
#include <cstdint>

#include "abi.h"
#include "pipeline/partial.cuh"
#include "tile/output.cuh"
#include "tile/row_map.cuh"

namespace pipeline {

/* This CTA's columns of a finished unit, the first of them `first_column` of the head. */
template <class S>
__device__ __forceinline__ void store_unit(const output_params &output, const tile::RowMap &rows, const S &result,
                                           int first_column) {
    const float bmm2_scale = output.bmm2_scale_device != nullptr ? *output.bmm2_scale_device : output.bmm2_scale;
#pragma unroll
    for (int i = 0; i < S::per_thread; ++i) {
        if (!result.live(i))
            continue;
        float reference = result.reference[i], total = result.sum[i], weight = 1.f;
        if (output.sinks != nullptr) {
            const float sink = output.sinks[rows.head(result.row(i))] * tile::log2_e;
            const float common = tile::finite_reference(fmaxf(reference, sink));
            weight = ptx::exp2_approx(reference - common);
            /* A sink of +infinity takes all the weight; its difference to itself would be NaN. */
            total = total * weight + (sink == common ? 1.f : ptx::exp2_approx(sink - common));
            reference = fmaxf(reference, sink);
        }
        const bool empty = total == 0.f; /* NaN is not: it propagates */
        const float scale = empty ? 0.f : __fdividef(bmm2_scale * weight, total);
        const int column = first_column + result.column(i);
        tile::store_output(output, rows.output_offset(output, result.row(i)) + column, result.value[i], scale);
        if (output.lse != nullptr && column == 0)
            output.lse[rows.lse_offset(output, result.row(i))] = empty ? -INFINITY : reference + log2f(total);
    }
}

} // namespace pipeline
