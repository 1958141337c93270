/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Merging of states: partial results of attention over disjoint parts of the KV tokens, combined. For every query token and head, a row,
 * over its states s:
 *
 *     m   = max_s lse_s,   w_s = 2^(lse_s - m)
 *     out = sum_s w_s out_s / sum_s w_s
 *     lse = m + log2(sum_s w_s)
 *
 * in f32, in the order of the states. Lanes of a warp share a row, eight elements each; the states come in batches, all of one batch
 * on their way at once: up to batch_states of them take one trip to memory. No shared memory.
 */
#include "abi.h"
#include "ptx/memory.cuh"
#include "ptx/scalar.cuh"
#include "tile/quotient.cuh"
#include "variant.cuh"

namespace {

struct Traits {
    static constexpr int threads = 128;
    static constexpr int ctas_per_sm = variant::target_sm == 90 ? 4 : 3; /* registers for a batch */
    static constexpr int elements = 8;                                   /* of a lane at a time: 16 bytes, or 32 of fp32 */
    static constexpr int batch_states = 8;
};

constexpr float infinity = __builtin_huge_valf();

/* ------------------------------------------------------------------------------------------------- eight elements of a row */

template <int dtype>
struct Elements {
    uint4 packed;

    __device__ __forceinline__ void load(const void *rows, int64_t first) {
        packed = *reinterpret_cast<const uint4 *>(static_cast<const uint16_t *>(rows) + first);
    }
    __device__ __forceinline__ void unpack(float (&values)[Traits::elements]) const {
        const uint32_t words[] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            if constexpr (dtype == KERNEL_DTYPE_BF16) {
                values[2 * i] = __uint_as_float(words[i] << 16);
                values[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
            } else {
                ptx::unpack_fp16(values[2 * i], values[2 * i + 1], words[i]);
            }
        }
    }
    static __device__ __forceinline__ void store(void *rows, int64_t first, const float (&values)[Traits::elements]) {
        uint32_t words[4];
#pragma unroll
        for (int i = 0; i < 4; ++i)
            words[i] = dtype == KERNEL_DTYPE_BF16 ? ptx::pack_bf16(values[2 * i], values[2 * i + 1])
                                                  : ptx::pack_fp16(values[2 * i], values[2 * i + 1]);
        *reinterpret_cast<uint4 *>(static_cast<uint16_t *>(rows) + first) = make_uint4(words[0], words[1], words[2], words[3]);
    }
};

template <>
struct Elements<KERNEL_DTYPE_FP32> {
    float4 half[2];

    __device__ __forceinline__ void load(const void *rows, int64_t first) {
        const float4 *const halves = reinterpret_cast<const float4 *>(static_cast<const float *>(rows) + first);
        half[0] = halves[0];
        half[1] = halves[1];
    }
    __device__ __forceinline__ void unpack(float (&values)[Traits::elements]) const {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            values[4 * i] = half[i].x;
            values[4 * i + 1] = half[i].y;
            values[4 * i + 2] = half[i].z;
            values[4 * i + 3] = half[i].w;
        }
    }
    static __device__ __forceinline__ void store(void *rows, int64_t first, const float (&values)[Traits::elements]) {
        float4 *const halves = reinterpret_cast<float4 *>(static_cast<float *>(rows) + first);
        halves[0] = make_float4(values[0], values[1], values[2], values[3]);
        halves[1] = make_float4(values[4], values[5], values[6], values[7]);
    }
};

/* ----------------------------------------------------------------------------------------------------------- one row */

/* The states of a token, and where the elements and the lse of a row's first state lie. */
struct Row {
    int64_t partial, partial_lse, out, lse;
    int32_t num_states;

    __device__ __forceinline__ Row(const merge_states_params &params, uint32_t token, uint32_t head) {
        int64_t first_state = 0, own_token = token;
        num_states = params.num_states;
        if (params.state_offsets != nullptr) {
            first_state = params.state_offsets[token];
            num_states = params.state_offsets[token + 1] - params.state_offsets[token];
            own_token = 0;
        }
        partial = first_state * params.partial_state_stride + own_token * params.partial_token_stride +
                  head * params.partial_head_stride;
        partial_lse = first_state * params.partial_lse_state_stride + own_token * params.partial_lse_token_stride +
                      head * params.partial_lse_head_stride;
        out = token * params.out_token_stride + head * params.out_head_stride;
        lse = token * params.lse_token_stride + head * params.lse_head_stride;
    }
};

/* The sum so far, relative to the largest lse so far. */
struct Sum {
    float values[Traits::elements] = {};
    float weight = 0.f, largest = -infinity;

    /* Makes room for states of such lse; returns what each of them weighs. */
    __device__ __forceinline__ void raise(const float (&lse)[Traits::batch_states], float (&weights)[Traits::batch_states]) {
        float next = largest;
#pragma unroll
        for (int i = 0; i < Traits::batch_states; ++i)
            next = fmaxf(next, lse[i]); /* not the NaN: its weight is NaN */
#pragma unroll
        for (int i = 0; i < Traits::batch_states; ++i)
            weights[i] = lse[i] == -infinity ? 0.f : weight_of(lse[i], next);
        const float kept = weight_of(largest, next);
#pragma unroll
        for (int i = 0; i < Traits::elements; ++i)
            values[i] = kept == 0.f ? 0.f : values[i] * kept;
        weight *= kept;
        largest = next;
    }

  private:
    /* Two infinities have no difference. */
    static __device__ __forceinline__ float weight_of(float lse, float largest) {
        return lse == largest ? 1.f : ptx::exp2_approx(lse - largest);
    }
};

/* Elements first .. first + 7 of a row, over all of its states. Those of no weight have no part, whatever their elements are. */
template <int dtype>
__device__ __forceinline__ void add_states(Sum &sum, const merge_states_params &params, const Row &row, int first) {
    int64_t partial = row.partial + first, partial_lse = row.partial_lse; /* of the next state */
    for (int state = 0; state < row.num_states; state += Traits::batch_states) {
        Elements<dtype> elements[Traits::batch_states];
        float lse[Traits::batch_states], weights[Traits::batch_states];
#pragma unroll
        for (int i = 0; i < Traits::batch_states; ++i) {
            lse[i] = -infinity;
            if (state + i < row.num_states) {
                lse[i] = params.partial_lse[partial_lse];
                elements[i].load(params.partial_out, partial);
            }
            partial += params.partial_state_stride;
            partial_lse += params.partial_lse_state_stride;
        }
        /* Not where they are loaded: the first to be used would be waited for before the next is sent for. */
#pragma unroll
        for (int i = 0; i < Traits::batch_states; ++i)
            lse[i] *= params.lse_to_log2;
        sum.raise(lse, weights);
#pragma unroll
        for (int i = 0; i < Traits::batch_states; ++i) {
            if (weights[i] == 0.f)
                continue;
            float values[Traits::elements];
            elements[i].unpack(values);
#pragma unroll
            for (int element = 0; element < Traits::elements; ++element)
                sum.values[element] = fmaf(weights[i], values[element], sum.values[element]);
            sum.weight += weights[i];
        }
    }
}

/* The element type stands in the template: no branch between a load and the next. */
template <int dtype>
__device__ __forceinline__ void merge_row(const merge_states_params &params, uint32_t number, int lane, int lanes) {
    const uint32_t token = tile::quotient(number, params.num_heads);
    if (params.token_mask != nullptr && params.token_mask[token] == 0)
        return;
    const Row row(params, token, number - token * params.num_heads.value);
    float lse = -infinity;
    for (int element = lane * Traits::elements; element < params.head_dim; element += lanes * Traits::elements) {
        Sum sum;
        add_states<dtype>(sum, params, row, element);
        const float share = sum.weight == 0.f ? 0.f : 1.f / sum.weight;
#pragma unroll
        for (int i = 0; i < Traits::elements; ++i)
            sum.values[i] *= share;
        if (params.out_dtype == KERNEL_DTYPE_BF16)
            Elements<KERNEL_DTYPE_BF16>::store(params.out, row.out + element, sum.values);
        else if (params.out_dtype == KERNEL_DTYPE_FP16)
            Elements<KERNEL_DTYPE_FP16>::store(params.out, row.out + element, sum.values);
        else
            Elements<KERNEL_DTYPE_FP32>::store(params.out, row.out + element, sum.values);
        lse = (sum.largest + log2f(sum.weight)) * params.log2_to_lse;
    }
    /* The row's lanes: the lse of a state may be written where it was read. */
    __syncwarp((lanes < 32 ? (1u << lanes) - 1 : ~0u) << (threadIdx.x & 31 & ~(lanes - 1)));
    if (lane == 0 && params.lse != nullptr)
        params.lse[row.lse] = lse;
}

} // namespace

extern "C" __global__ void __launch_bounds__(Traits::threads, Traits::ctas_per_sm)
    VARIANT_NAME(const __grid_constant__ merge_states_params params) {
    ptx::wait_for_preceding_kernel();
    const int lanes = 1 << params.log2_lanes, lane = threadIdx.x & (lanes - 1);
    /* Rows are counted, not lanes: these may be 2^32 and more. */
    const uint32_t number = blockIdx.x * (Traits::threads >> params.log2_lanes) + (threadIdx.x >> params.log2_lanes);
    if (number >= params.num_rows)
        return;
    if (params.dtype == KERNEL_DTYPE_BF16)
        merge_row<KERNEL_DTYPE_BF16>(params, number, lane, lanes);
    else if (params.dtype == KERNEL_DTYPE_FP16)
        merge_row<KERNEL_DTYPE_FP16>(params, number, lane, lanes);
    else
        merge_row<KERNEL_DTYPE_FP32>(params, number, lane, lanes);
}

extern "C" __device__ const libdecode_launch_contract VARIANT_CONTRACT = {
    .magic = LIBDECODE_CONTRACT_MAGIC,
    .abi = LIBDECODE_KERNEL_ABI,
    .family = KERNEL_FAMILY_MERGE_STATES,
    .parameter_bytes = sizeof(merge_states_params),
    .threads = Traits::threads,
    .dynamic_shared_bytes = 0,
    .ctas_per_sm = Traits::ctas_per_sm,
    .cluster_size = 1,
    .query_dtypes = 0, /* no query, no KV: nothing to choose by */
    .kv_dtype = 0,
    .out_dtypes = 0,
    .head_dim = 0,
    .row_tile = 0,
    .tile_tokens = 0,
    .max_box_tokens = 0,
    .stages = 0,
    .min_page_size = 0,
    .max_page_size = 0,
    .max_q_len = 0,
    .features = 0,
    .flags = variant::contract_flags,
    .record_bytes = 0,
    .reserved = {},
};
