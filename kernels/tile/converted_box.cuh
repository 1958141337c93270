/* SPDX-License-Identifier: Apache-2.0 */
/*
 * converted_box.cuh: tiles of FP8 or NVFP4 become tiles of fp16, which box_warpgroup.cuh multiplies as a box of 64 tokens. Every byte is read and
 * converted once, however many rows there are.
 */
#pragma once

#include <cstdint>

#include "ptx/memory.cuh"
#include "tile/kv_format.cuh"
#include "tile/warpgroup.cuh"

namespace tile {

/* The format of tiles that have been converted. */
template <class Format>
struct ConvertedRows : Format {
    static constexpr int row_bytes = Format::steps * 32;
    using Rows = TileRows<row_bytes>;
    /* Of the query: where neighbouring words go as A operands there are words of another row between them, so that a warp would wait to move them. */
    static constexpr bool loads_single_words = true;
};

/*
 * A tile of K or V, by `warps` together, which have as many tokens each: in units of a chunk for every lane. Eight lanes, which shared memory serves
 * together, have the same chunk of eight tokens: so neither loads nor stores meet a bank conflict.
 */
template <class Format, int warps>
class BoxConverter {
    using Source = typename Format::Rows;
    using Target = typename ConvertedRows<Format>::Rows;
    static constexpr int eights = group_tokens / 8 / warps, token_chunks = Format::row_bytes / 16; /* of a warp; of a row */
    static constexpr int chunks_at_once = token_chunks < 4 ? token_chunks : 4,
                         eights_at_once = 4 / chunks_at_once;                           /* of a unit */
    static constexpr int blocks = token_chunks / chunks_at_once;                        /* units of the same tokens */
    static constexpr int chunk_bytes = ConvertedRows<Format>::row_bytes / token_chunks; /* of what a chunk becomes */
    static_assert(Source::lines == 1, "a tile is alike whatever its boxes are");
    static_assert(blocks == 1 || chunks_at_once * chunk_bytes == Target::line_bytes, "the chunks of a unit are a line");

  public:
    static constexpr int units = eights / eights_at_once * blocks; /* of a warp */
    struct Chunk {
        uint32_t words[4], scales; /* scales: of both halves, fp16 */
    };

    /* `scales_interleaved`: of four tokens those of a block of dims lie side by side. */
    __device__ __forceinline__ BoxConverter(bool scales_interleaved, int warp, int lane)
        : source_(Source::chunk(0, token_of(warp, lane), chunk_of(lane))),
          target_(Target::byte(0, group_tokens * Target::line_bytes, token_of(warp, lane), chunk_of(lane) * chunk_bytes)),
          scales_(group_tokens * Format::row_bytes +
                  (scales_interleaved
                       ? (token_of(warp, lane) & -4) * Format::scale_bytes + chunk_of(lane) * 8 + token_of(warp, lane) % 4
                       : token_of(warp, lane) * Format::scale_bytes + chunk_of(lane) * 2)),
          next_scale_(scales_interleaved ? 4 : 1) {}

    __device__ __forceinline__ void load(Chunk &chunk, uint32_t tile, int unit) const {
        const int first_eight = unit / blocks * eights_at_once;
        ptx::load_shared(chunk.words, ((tile + source_) ^ unit % blocks * 64) + first_eight * Source::eight_tokens_bytes);
        if constexpr (Format::scale_bytes > 0) {
            static_assert(blocks == 1, "one scale address for each token");
            const uint32_t scale = tile + scales_ + first_eight * 8 * Format::scale_bytes;
            chunk.scales = ptx::load_shared_byte(scale) | ptx::load_shared_byte(scale + next_scale_) << 8;
        }
    }
    /* As K, or as V. */
    template <bool of_keys>
    __device__ __forceinline__ void store(const Chunk &chunk, uint32_t tile, int unit) const {
        constexpr int pieces = chunk_bytes / 16, line_bytes = group_tokens * Target::line_bytes;
        uint32_t converted[pieces][4];
        if constexpr (of_keys)
            Format::convert_keys(converted, chunk);
        else
            Format::convert_values(converted, chunk);
        const int offset = unit / blocks * eights_at_once * Target::eight_tokens_bytes + unit % blocks * line_bytes;
#pragma unroll
        for (int i = 0; i < pieces; ++i)
            ptx::store_shared(((tile + target_) ^ i * 16) + offset, converted[i]);
    }

  private:
    static __device__ __forceinline__ int token_of(int warp, int lane) {
        return (warp * eights + lane / 8 / chunks_at_once) * 8 + lane % 8;
    }
    static __device__ __forceinline__ int chunk_of(int lane) { return lane / 8 % chunks_at_once; }

    const uint32_t source_, target_; /* of the lane's first chunk, in a tile */
    const uint32_t scales_, next_scale_;
};

} // namespace tile
