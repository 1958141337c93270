/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_format.cuh: what a row of K or V looks like in memory and in a tile, and how it becomes operands of the matrix
 * instructions. One file per format specialises KvFormat<dtype, head_dim>:
 *
 *     matrix_dtype            what the tensor cores compute with: KERNEL_DTYPE_BF16 or _FP16
 *     row_bytes, scale_bytes  of one token and KV head
 *     Rows                    where the 16-byte chunks of a row lie in a tile (below)
 *     steps                   matrix instructions over head_dim, 16 dims each; pair_steps of them read a pair of chunks
 *     Scales                  where a lane finds those of its tokens in a tile; NoScales where there are none
 *     KeyReader, ValueReader  read a fragment of 16 tokens: the A operand of one step after the other, [16 tokens][16 dims] and
 *                             [16 dims][16 tokens]; of steps counted from `first` on, where that is given: a multiple of pair_steps
 *     k_scale, v_scale        what operands are to be multiplied by
 *     largest_value           that V may be, as an operand; 0: any number
 *     query_...               which dims the lanes want as the B operand of qk (query.cuh): of converted queries a lane takes
 *                             query_vector neighbouring dims, and query_operand makes of their pairs the registers of its steps
 *     output_dim              the dim of an accumulator's registers 2 * half and 2 * half + 1
 *     RotatedKeyReader        what RoPE reads instead: chunks of rotated_steps steps; the first 8 dims of a step are the partners of
 *                             its last 8, half a row before them, so that a lane holds both dims of a pair in one step. Of a
 *                             token it holds two: rotated_dim of the lower half, and rotated_neighbour further
 *     convert_keys, convert_values   of FP8 and NVFP4: a chunk as so many of fp16, in shared memory (converted_box.cuh)
 *     rotation_scale          what K is multiplied by when it is rotated; rotated_scale: what products of query and K, both
 *                             rotated, are to be multiplied by
 *
 * The order in which a format deals out the dims of a row to steps, registers and lanes is its own: of K the query follows it, of
 * V the output, so that no byte changes its lane.
 */
#pragma once

#include <cstdint>

namespace tile {

template <int dtype, int head_dim>
struct KvFormat;

constexpr int fragment_tokens = 16; /* tokens of one matrix instruction; never straddle a box */

/*
 * Rows in a tile, read by ldmatrix as pairs of 16-byte chunks. As the copy engine leaves boxes: each [lines][box_tokens][a line], the
 * chunks of a line permuted by its token, so that ldmatrix meets no bank conflict; and whoever copies rows one by one leaves them
 * the same way, as boxes of 16 tokens. box_tokens is a power of two of at least 16 and known at run time only, hence what
 * TokenFragments computes once.
 */
template <int bytes, int line = bytes % 128 == 0  ? 128
                                : bytes % 64 == 0 ? 64
                                                  : 32> /* the widest that divides it */
struct TileRows {
    static constexpr int row_bytes = bytes, line_bytes = line;
    static constexpr int lines = row_bytes / line_bytes;
    static constexpr int chunk_pairs = row_bytes / 32;
    static_assert(row_bytes % line_bytes == 0 && row_bytes >= 32, "rows are whole lines");

    /* Of token `token` of a fragment, chunk `odd` (0 or 1) of the first pair. */
    static __device__ __forceinline__ uint32_t first_pair(uint32_t fragment, int token, int odd) {
        return fragment + token * line_bytes + (odd ^ permutation(token)) * 16;
    }
    /* From there the same chunk of a later pair: lines are aligned, so it is one exclusive or within a line. */
    static __device__ __forceinline__ uint32_t pair(uint32_t address, uint32_t line_stride_bytes, int pair) {
        constexpr int pairs_per_line = line_bytes / 32;
        return (address + pair / pairs_per_line * line_stride_bytes) ^ (pair % pairs_per_line * 32);
    }
    /* Where byte `byte` of token `token` of a fragment lies. */
    static __device__ __forceinline__ uint32_t byte(uint32_t fragment, uint32_t line_stride_bytes, int token, uint32_t byte) {
        return fragment + byte / line_bytes * line_stride_bytes + token * line_bytes +
               ((byte % line_bytes) ^ (permutation(token) * 16));
    }
    /* From a token of the first 8 of a fragment to that 8 further: they are permuted alike. */
    static constexpr int eight_tokens_bytes = 8 * line_bytes;
    /* Where chunk `chunk` of token `token` of a box of 16 tokens lies. */
    static __device__ __forceinline__ uint32_t chunk(uint32_t box, int token, int chunk) {
        return box + chunk / line_chunks * (fragment_tokens * line_bytes) + token * line_bytes +
               (chunk % line_chunks ^ permutation(token)) * 16;
    }

  private:
    static constexpr int line_chunks = line_bytes / 16;
    static __device__ __forceinline__ int permutation(int token) { return token / (128 / line_bytes) % line_chunks; }
};

/*
 * Rows of `bytes` as memory has them, one behind the other, in lines of an odd number of chunks: so ldmatrix meets no bank conflict, and
 * one copy brings a row.
 */
template <int bytes>
struct PitchedRows {
    static constexpr int row_bytes = bytes | 16, lines = 1;
    static_assert(bytes % 16 == 0, "rows of whole chunks");

    static __device__ __forceinline__ uint32_t first_pair(uint32_t fragment, int token, int odd) {
        return fragment + token * row_bytes + odd * 16;
    }
    static __device__ __forceinline__ uint32_t pair(uint32_t address, uint32_t, int pair) { return address + pair * 32; }
};

struct NoScales {
    __device__ __forceinline__ NoScales(uint32_t, bool, int) {}
    __device__ __forceinline__ void step(int) {}
};

/* A tile of K or V, and behind its rows the scales of its tokens: [tokens][scale_bytes]. */
template <class Format, int tokens>
struct TileLayout {
    static constexpr int rows_bytes = tokens * Format::row_bytes;
    static constexpr int bytes = (rows_bytes + tokens * Format::scale_bytes + 1023) & -1024; /* aligned as the swizzle wants */
};

/* The 16-token fragments of one warp within every tile. */
template <class Format, int tile_tokens, int fragments>
struct TokenFragments {
    uint32_t offset[fragments]; /* of each fragment's first row, in bytes from the start of the tile */
    uint32_t line_stride_bytes; /* from a token's first line to its next one */
    typename Format::Scales scales;

    __device__ __forceinline__ TokenFragments(int first_token, int box_tokens, bool v_scales_interleaved, int lane)
        : line_stride_bytes(box_tokens * (Format::row_bytes / Format::Rows::lines)),
          scales(TileLayout<Format, tile_tokens>::rows_bytes + first_token * Format::scale_bytes, v_scales_interleaved, lane) {
#pragma unroll
        for (int fragment = 0; fragment < fragments; ++fragment) {
            const int token = first_token + fragment * fragment_tokens;
            const int in_box = Format::Rows::lines == 1 ? token : token & (box_tokens - 1);
            offset[fragment] = (token - in_box) * Format::row_bytes + in_box * (Format::row_bytes / Format::Rows::lines);
        }
    }

    /* Those so many fragments further: 0, or of rows of one line each. */
    __device__ __forceinline__ TokenFragments further(int count) const {
        const int tokens = count * fragment_tokens;
        TokenFragments result = *this;
#pragma unroll
        for (int fragment = 0; fragment < fragments; ++fragment)
            result.offset[fragment] += tokens * Format::row_bytes;
        result.scales.step(tokens);
        return result;
    }
};

} // namespace tile

#include "tile/kv_format_16bit.cuh"
#include "tile/kv_format_fp8.cuh"
#include "tile/kv_format_nvfp4.cuh"
