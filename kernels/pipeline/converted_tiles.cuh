/* SPDX-License-Identifier: Apache-2.0 */
/*
 * converted_tiles.cuh: between the ring of tiles as they come and what consumers multiply. Tiles of FP8 and NVFP4 become fp16 on the way, by a
 * warpgroup that does nothing else, in a ring of their own; for others that is the ring itself (PlainTiles).
 */
#pragma once

#include <cstdint>

#include "pipeline/kv_ring.cuh"
#include "pipeline/piece_queue.cuh"
#include "ptx/wgmma.cuh"
#include "tile/converted_box.cuh"

namespace pipeline {

/* Half of them convert K, and half V: neither waits for the other's room. */
constexpr int converter_warps = tile::group_warps, tensor_converter_warps = converter_warps / 2;

/* Tiles that are multiplied as they come. */
template <class Format, class Ring_>
struct PlainTiles {
    using Operands = Format;
    using Ring = Ring_;

    static __device__ __forceinline__ void initialise(int) {}
    static __device__ __forceinline__ Ring ring(const Ring &ring) { return ring; }
    /* What is multiplied, of tiles as they come. */
    static __device__ __forceinline__ void *multiplied(void *tiles) { return tiles; }
    template <int row_tile, class BeforePiece>
    static __device__ __forceinline__ void convert(PieceQueue<row_tile> &, const Ring &, bool, int, int, BeforePiece) {}
};

/*
 * Lies in shared memory; as many stages as the source has. They are a multiple of the teams of consumers, as what a stage holds is one team's; and at
 * least two for each, as a team wants V of a tile before it has done with that of the one before. `chunks_ahead`: that a lane has read of what it is
 * to convert, of 4 registers and more.
 */
template <class Format, class SourceRing, int chunks_ahead>
struct ConvertedTiles {
    using Operands = tile::ConvertedRows<Format>;
    static constexpr int stages = SourceRing::num_stages, tile_tokens = tile::group_tokens;
    static constexpr int tile_bytes = tile_tokens * Operands::row_bytes;
    using Ring = KvRing<stages, tile_bytes, false>;

    alignas(1024) uint8_t tiles[stages][2][tile_bytes];
    KvRingBarriers<stages> barriers;

    /* `reading_warps`: of a converted tile. */
    __device__ __forceinline__ void initialise(int reading_warps) {
        Ring::initialise(barriers, tensor_converter_warps, reading_warps);
    }
    __device__ __forceinline__ Ring ring(const SourceRing &) { return Ring(barriers, tiles); }
    __device__ __forceinline__ void *multiplied(void *) { return tiles; }

    /*
     * By the converter warps, of which `warp` is one: every tile of the worker, in order, as soon as there is room for fp16 of it.
     * `v_scales_interleaved`: of V, where there are scales. before_piece(number) is called ahead of what is stored of each of the worker's pieces.
     */
    template <int row_tile, class BeforePiece>
    __device__ __forceinline__ void convert(PieceQueue<row_tile> &pieces, const SourceRing &source, bool v_scales_interleaved,
                                            int warp, int lane, BeforePiece before_piece) {
        if (warp < tensor_converter_warps)
            convert<tensor_k>(pieces, source, false, warp, lane, before_piece);
        else
            convert<tensor_v>(pieces, source, v_scales_interleaved, warp - tensor_converter_warps, lane, before_piece);
    }

  private:
    /* The first chunks of a tile are loaded while the stores of the one before end, and the others while those are converted. */
    template <Tensor tensor, int row_tile, class BeforePiece>
    __device__ __forceinline__ void convert(PieceQueue<row_tile> &pieces, SourceRing source, bool scales_interleaved, int warp,
                                            int lane, BeforePiece before_piece) {
        using Converter = tile::BoxConverter<Format, tensor_converter_warps>;
        static_assert(Converter::units >= chunks_ahead, "units of a tile");
        const Converter converter(scales_interleaved, warp, lane);
        const Ring place = ring(source);
        for (uint32_t number = 0;; ++number) {
            const auto &announced = pieces.wait_named(number);
            if (announced.piece.end_of_work)
                return;
            before_piece(number);
            typename Converter::Chunk chunks[chunks_ahead];
            bool is_loaded = false;
            const auto load_first = [&] {
#pragma unroll
                for (int unit = 0; unit < chunks_ahead; ++unit)
                    converter.load(chunks[unit], source.tile(tensor), unit);
            };
#pragma unroll 1
            for (int tokens = announced.rows.end_token - announced.rows.first_token; tokens > 0; tokens -= tile_tokens) {
                if (!is_loaded) {
                    source.wait_full(tensor);
                    load_first();
                }
                const Ring target = place.beside(source);
                target.wait_empty(tensor);
#pragma unroll
                for (int unit = 0; unit < Converter::units; ++unit) {
                    converter.template store<tensor == tensor_k>(chunks[unit % chunks_ahead], target.tile(tensor), unit);
                    if (unit + chunks_ahead < Converter::units)
                        converter.load(chunks[unit % chunks_ahead], source.tile(tensor), unit + chunks_ahead);
                }
                source.release(tensor, lane);
                source.advance();
                is_loaded = tokens > tile_tokens && source.is_full(tensor);
                if (is_loaded)
                    load_first();
                ptx::fence_async_proxy();
                target.complete(tensor, ptx::thread_index_here() % 32); /* kept over the tiles it would take a register */
            }
            number = announced.number; /* anew, likewise */
            pieces.pop(number);
        }
    }
};

} // namespace pipeline
