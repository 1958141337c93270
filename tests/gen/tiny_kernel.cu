/* SPDX-License-Identifier: Apache-2.0 */
/* tiny_kernel.cu: a small kernel with a contract, for the tests of pack and of the audit; VARIANT_SPILLS: one that spills. */
#include "abi.h"
#include "variant.cuh"

extern "C" __device__ const struct libdecode_launch_contract VARIANT_CONTRACT = {
    .magic = LIBDECODE_CONTRACT_MAGIC,
    .abi = LIBDECODE_KERNEL_ABI,
    .family = KERNEL_FAMILY_READ_CEILING,
    .parameter_bytes = sizeof(struct read_ceiling_params),
    .threads = 96,
    .ctas_per_sm = 1,
    .cluster_size = 1,
    .flags = variant::contract_flags,
};

constexpr int values = VARIANT_SPILLS ? 300 : 4; /* 300 are more than a thread has registers */

extern "C" __global__ void __launch_bounds__(96) VARIANT_NAME(const __grid_constant__ struct read_ceiling_params params) {
    __shared__ float exchange[100];
    const float *data = static_cast<const float *>(params.data);
    float sums[values];
    exchange[threadIdx.x] = data[threadIdx.x];
    __syncthreads();
#pragma unroll
    for (int index = 0; index < values; index++)
        sums[index] = data[index * 96 + threadIdx.x];
    for (uint64_t round = 0; round < params.bytes; round++) {
#pragma unroll
        for (int index = 0; index < values; index++)
            sums[index] += sums[(index + 1) % values] * exchange[round % 96];
    }
#pragma unroll
    for (int index = 0; index < values; index++)
        params.sink[index * 96 + threadIdx.x] = __float_as_uint(sums[index]);
}
