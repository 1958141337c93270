/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Read ceiling: how fast this GPU can read `bytes` of memory and do nothing with them, the denominator of every benchmark.
 * Each CTA streams an equal contiguous share through shared memory by 16 KiB bulk copies, as many in flight as fit.
 *
 * Shared memory: the chunks, then one barrier per chunk. One thread does everything.
 */
#include "abi.h"
#include "ptx/bulk_copy.cuh"
#include "ptx/mbarrier.cuh"
#include "variant.cuh"

namespace {

struct Traits {
    static constexpr int threads = 32;
    static constexpr uint32_t chunk_bytes = 16384;
    static constexpr int chunks = variant::target_sm == 120 ? 5 : 12; /* 80 KiB are plenty for a fifth of the bandwidth */
};

struct SharedMemory {
    alignas(128) uint8_t chunk[Traits::chunks][Traits::chunk_bytes];
    alignas(8) uint64_t full[Traits::chunks];
};
static_assert(sizeof(SharedMemory) <= variant::max_shared_bytes, "shared memory of one CTA");

/* Words of this value in every chunk's first place make the sum below equal the pattern: random data has not. */
constexpr uint32_t improbable_sum = 0x5eed5eedu;

} // namespace

extern "C" __global__ void __launch_bounds__(Traits::threads, 1)
    VARIANT_NAME(const __grid_constant__ read_ceiling_params params) {
    extern __shared__ __align__(128) uint8_t shared_memory[];
    SharedMemory &shared = *reinterpret_cast<SharedMemory *>(shared_memory);
    if (threadIdx.x != 0)
        return;
    for (int i = 0; i < Traits::chunks; ++i)
        ptx::mbarrier_init(ptx::shared_address(&shared.full[i]), 1);
    ptx::fence_mbarrier_init();

    const uint64_t total = params.bytes / Traits::chunk_bytes;
    const uint64_t first = total * blockIdx.x / gridDim.x, end = total * (blockIdx.x + 1) / gridDim.x;
    const auto load = [&](uint64_t chunk, int slot) {
        const uint32_t barrier = ptx::shared_address(&shared.full[slot]);
        ptx::mbarrier_arrive_expect_tx(barrier, Traits::chunk_bytes);
        ptx::copy_bulk(ptx::shared_address(shared.chunk[slot]),
                       static_cast<const uint8_t *>(params.data) + chunk * Traits::chunk_bytes, Traits::chunk_bytes, barrier);
    };
    for (int slot = 0; slot < Traits::chunks && first + slot < end; ++slot)
        load(first + slot, slot);
    uint32_t sum = 0, phase = 0;
    int slot = 0;
    for (uint64_t chunk = first; chunk < end; ++chunk) {
        while (!ptx::mbarrier_try_wait(ptx::shared_address(&shared.full[slot]), phase)) {
        }
        sum += *reinterpret_cast<const volatile uint32_t *>(shared.chunk[slot]); /* a consumer, however small */
        if (chunk + Traits::chunks < end)
            load(chunk + Traits::chunks, slot);
        if (++slot == Traits::chunks)
            slot = 0, phase ^= 1u;
    }
    if (sum == improbable_sum)
        *params.sink = sum;
}

extern "C" __device__ const libdecode_launch_contract VARIANT_CONTRACT = {
    .magic = LIBDECODE_CONTRACT_MAGIC,
    .abi = LIBDECODE_KERNEL_ABI,
    .family = KERNEL_FAMILY_READ_CEILING,
    .parameter_bytes = sizeof(read_ceiling_params),
    .threads = Traits::threads,
    .dynamic_shared_bytes = sizeof(SharedMemory),
    .ctas_per_sm = 1,
    .cluster_size = 1,
    .query_dtypes = 0, /* no query, no KV, no output: nothing to choose by */
    .kv_dtype = 0,
    .out_dtypes = 0,
    .head_dim = 0,
    .row_tile = 0,
    .tile_tokens = 0,
    .max_box_tokens = 0,
    .stages = Traits::chunks,
    .min_page_size = 0,
    .max_page_size = 0,
    .max_q_len = 0,
    .features = 0,
    .flags = variant::contract_flags,
    .record_bytes = 0,
    .reserved = {},
};
