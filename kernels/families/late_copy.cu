/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Late copy: a kernel for others to be launched behind. Programmatic launches may begin as soon as it has; some time later it writes
 * what they must not have read before. `libdecode check` so sees whether they wait for it.
 *
 * No shared memory. All threads wait, then copy 16 bytes at a time, and what is left byte by byte.
 */
#include "abi.h"
#include "ptx/memory.cuh"
#include "variant.cuh"

namespace {

constexpr int num_threads = 256;

} // namespace

extern "C" __global__ void __launch_bounds__(num_threads, 1) VARIANT_NAME(const __grid_constant__ late_copy_params params) {
    ptx::let_next_kernel_begin();
    const long long begin = clock64();
    while (clock64() - begin < params.delay_clocks) {
    }
    ptx::wait_for_preceding_kernel();
    for (uint32_t i = 0; i < params.num_ranges; ++i) {
        const late_copy_range &range = params.ranges[i];
        const uint64_t vectors = range.bytes / sizeof(uint4), thread = blockIdx.x * num_threads + threadIdx.x;
        for (uint64_t vector = thread; vector < vectors; vector += gridDim.x * num_threads)
            reinterpret_cast<uint4 *>(range.destination)[vector] = reinterpret_cast<const uint4 *>(range.source)[vector];
        for (uint64_t byte = vectors * sizeof(uint4) + thread; byte < range.bytes; byte += gridDim.x * num_threads)
            range.destination[byte] = range.source[byte];
    }
}

extern "C" __device__ const libdecode_launch_contract VARIANT_CONTRACT = {
    .magic = LIBDECODE_CONTRACT_MAGIC,
    .abi = LIBDECODE_KERNEL_ABI,
    .family = KERNEL_FAMILY_LATE_COPY,
    .parameter_bytes = sizeof(late_copy_params),
    .threads = num_threads,
    .dynamic_shared_bytes = 0,
    .ctas_per_sm = 1,
    .cluster_size = 1,
    .query_dtypes = 0, /* no query, no KV, no output: nothing to choose by */
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
    .consumer_warps = 0,
    .reserved = {},
};
