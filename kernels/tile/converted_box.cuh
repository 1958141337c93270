/* SPDX-License-Identifier: Apache-2.0 */
/*
 * converted_box.cuh: tiles of FP8, as the copy engine leaves them, become tiles of fp16, which box_warpgroup.cuh multiplies as a box of 64 tokens. Every
 * byte is read and converted once, however many rows there are.
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

/* A tile of K or V, by `warps` together, 16 tokens of each after the other: in units of a chunk for every lane. */
template <class Format, int warps>
class BoxConverter {
    using Source = typename Format::Rows;
    using Target = typename ConvertedRows<Format>::Rows;
    static constexpr int eights = group_tokens / 8 / warps, token_chunks = Format::row_bytes / 16, blocks = token_chunks / 4;
    static_assert(Source::lines == 1 && Format::scale_bytes == 0 && token_chunks % 4 == 0,
                  "a tile is alike whatever its boxes are");

  public:
    static constexpr int units = eights * blocks; /* of a warp */
    using Chunk = uint32_t[4];

    __device__ __forceinline__ BoxConverter(int warp, int lane)
        : source_(Source::chunk(0, token_of(warp, lane), lane % 4)),
          target_(Target::byte(0, group_tokens * Target::line_bytes, token_of(warp, lane), lane % 4 * 32)) {}

    __device__ __forceinline__ void load(Chunk &chunk, uint32_t tile, int unit) const {
        ptx::load_shared(chunk, ((tile + source_) ^ unit % blocks * 64) + unit / blocks * Source::eight_tokens_bytes);
    }
    /* As K, or as V. */
    template <bool of_keys>
    __device__ __forceinline__ void store(const Chunk &chunk, uint32_t tile, int unit) const {
        uint32_t converted[2][4];
        if constexpr (of_keys)
            Format::convert_keys(converted, chunk);
        else
            Format::convert_values(converted, chunk);
        /* four chunks are a line of fp16 */
        constexpr int line_bytes = group_tokens * Target::line_bytes;
        const int offset = unit / blocks * Target::eight_tokens_bytes + unit % blocks * line_bytes;
        ptx::store_shared(tile + target_ + offset, converted[0]);
        ptx::store_shared(((tile + target_) ^ 16) + offset, converted[1]);
    }

  private:
    /*
     * Eight lanes, which shared memory serves together, have four chunks each of two tokens of an eight whose numbers differ in bits 0 and 2: these
     * are permuted so that neither loads nor stores meet a bank conflict.
     */
    static __device__ __forceinline__ int token_of(int warp, int lane) {
        return warp * eights * 8 + (lane / 8 ^ lane / 4 % 2 * 5);
    }

    const uint32_t source_, target_; /* of the lane's first chunk, in a tile */
};

} // namespace tile
