/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gqa_decode_warpgroup.cuh: what the kernels of 64 and 128 rows have in common, whatever their KV is (gqa_decode_warpgroup.cu and
 * gqa_decode_warpgroup_16bit.cu): the warps of a CTA, where a consumer warp stands, and the contract.
 */
#pragma once

#include <cstdint>

#include "abi.h"
#include "pipeline/epilogue.cuh"
#include "pipeline/slice_dealer.cuh"
#include "tile/kv_format.cuh"
#include "tile/warpgroup.cuh"
#include "variant.cuh"

namespace gqa_decode {

struct WarpgroupTraits {
    static constexpr int dtype = VARIANT_KV_DTYPE;
    static constexpr int head_dim = VARIANT_HEAD_DIM;
    static constexpr int row_tile = VARIANT_ROW_TILE;
    using Format = tile::KvFormat<dtype, head_dim>;
    static_assert(variant::target_sm == 90, "targets in the .toml: sm90 has wgmma");
    static_assert(row_tile == 64 || row_tile == 128, "row_tile in the .toml: 64 or 128");
    static_assert(VARIANT_MIN_PAGE_SIZE == 16 && VARIANT_CLUSTER_SIZE == 1 && VARIANT_OPTIONS == 0, "the .toml: p16, c1, o0");

    static constexpr int tile_tokens = tile::group_tokens;
    static constexpr int groups = 2;
    static constexpr int row_groups = row_tile / tile::group_rows; /* that read the same tiles for other rows */
    static constexpr int teams = groups / row_groups;              /* that take turns at the tiles */
    static constexpr int team_warps = row_groups * tile::group_warps;
    static constexpr int consumer_warps = groups * tile::group_warps;
    static constexpr int consumer_threads = consumer_warps * 32;
    static constexpr int announcer_warp = consumer_warps + 2;
    static constexpr int warps =
        consumer_warps + tile::group_warps; /* the last one has nothing to do: a whole warpgroup gives registers */
    static constexpr int threads = warps * 32;
    /* Of all threads at the start; then of those that compute, and of the others. */
    static constexpr int registers = 65536 / threads & -8, consumer_registers = 216, other_registers = 72;
    static_assert(consumer_registers * consumer_threads + other_registers * (threads - consumer_threads) <= registers * threads,
                  "registers of an SM");

    using TileLayout = tile::TileLayout<Format, tile_tokens>;
};

/* Named barrier of the consumer warps; 0 is __syncthreads, from 2 on one for each warpgroup. */
constexpr int consumer_barrier = 1;

/* Where a consumer warp stands: its warpgroup, which tiles and rows that takes, and its place among the four. */
struct Place {
    int group, warp;

    explicit __device__ __forceinline__ Place(int thread)
        : group(thread / tile::group_threads), warp(thread % tile::group_threads / 32) {}
    __device__ __forceinline__ int team() const { return group / WarpgroupTraits::row_groups; }
    __device__ __forceinline__ int first_row_of_group() const { return group % WarpgroupTraits::row_groups * tile::group_rows; }
    __device__ __forceinline__ int barrier() const { return consumer_barrier + 1 + group; }
};

/* `Slice`: of the result, on its way out. */
template <class Slice>
constexpr libdecode_launch_contract contract(uint32_t shared_bytes, uint32_t stages, uint32_t query_dtypes,
                                             uint32_t scratch_bytes) {
    using Traits = WarpgroupTraits;
    return {
        .magic = LIBDECODE_CONTRACT_MAGIC,
        .abi = LIBDECODE_KERNEL_ABI,
        .family = KERNEL_FAMILY_GQA_DECODE,
        .parameter_bytes = sizeof(gqa_decode_params),
        .threads = Traits::threads,
        .dynamic_shared_bytes = shared_bytes,
        .ctas_per_sm = 1,
        .cluster_size = 1,
        .query_dtypes = query_dtypes,
        .kv_dtype = Traits::dtype,
        .out_dtypes = pipeline::out_dtypes<Traits::Format, Slice>,
        .head_dim = Traits::head_dim,
        .row_tile = Traits::row_tile,
        .tile_tokens = Traits::tile_tokens,
        .max_box_tokens = Traits::tile_tokens,
        .stages = stages,
        .min_page_size = VARIANT_MIN_PAGE_SIZE,
        .max_page_size = 1024,
        .max_q_len = 1024,
        .features =
            CONTRACT_FEATURE_WINDOW | CONTRACT_FEATURE_SINKS | CONTRACT_FEATURE_LSE | CONTRACT_FEATURE_RAGGED_Q |
            CONTRACT_FEATURE_DRAFT_MASK | CONTRACT_FEATURE_V_PAGE_TABLE | CONTRACT_FEATURE_QUERY_POSITIONS |
            CONTRACT_FEATURE_LSE_NATURAL |
            CONTRACT_FEATURE_CONTIGUOUS_KV, /* not batch-invariant: of so many rows the records of 16 chunks would fill memory */
        .flags = variant::contract_flags,
        .record_bytes = sizeof(pipeline::SliceCounts),
        .scratch_bytes = scratch_bytes,
        .consumer_warps = Traits::consumer_warps,
        .reserved = {},
    };
}

} // namespace gqa_decode
