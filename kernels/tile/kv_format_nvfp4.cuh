/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_format_nvfp4.cuh: e2m1 codes times e4m3 scales of 16 dims become fp16 in registers, exactly: a code has 2 significant bits, a
 * scale 4. Of kv_format.cuh.
 *
 * The bits of a code, moved to the right place of a byte, are the upper half of an fp16 of 2^-14 times its value (zero and 0.5 as
 * subnormals), so no instruction converts. The smallest product of code and scale is 2^-15 * 2^-9, fp16's smallest number; 2^14 is
 * left to k_scale and v_scale. (By way of e4m3, whose conversion occupies the pipe of the multiplications too, it is slower.)
 *
 * ldmatrix moves pairs of bytes, four dims. Of K a lane gets eight neighbouring dims of a token: the even ones are one step, the odd
 * ones the next. Of V, transposed, it gets four neighbouring dims of two neighbouring tokens: likewise two steps.
 */
#pragma once

#include <cstdint>

#include "abi.h"
#include "ptx/bytes.cuh"
#include "ptx/convert.cuh"
#include "ptx/matrix.cuh"
#include "ptx/memory.cuh"
#include "tile/kv_format.cuh"

namespace tile {

/*
 * The codes of the even, or the odd, dims of eight, each in a byte whose bits 7 and 1 to 3 are those of the upper half of an fp16 of
 * 2^-14 times the value. The other bits are of no meaning.
 */
__device__ __forceinline__ uint32_t fp16_bytes(uint32_t codes, bool odd) {
    return odd ? ptx::select_bits(codes >> 3, codes, 0x0e0e0e0eu) : ptx::select_bits(codes << 1, codes << 4, 0x0e0e0e0eu);
}
/* The fp16 whose upper halves are bytes 1 and 3, or 0 and 2. */
__device__ __forceinline__ uint32_t odd_bytes(uint32_t bytes) { return bytes & 0x8e008e00u; }
__device__ __forceinline__ uint32_t even_bytes(uint32_t bytes) { return bytes << 8 & 0x8e008e00u; }

/* A pair of chunks is four steps; a chunk two blocks of one scale each. */
template <int head_dim>
struct KvFormat<KERNEL_DTYPE_NVFP4, head_dim> {
    static constexpr int matrix_dtype = KERNEL_DTYPE_FP16;
    static constexpr int row_bytes = head_dim / 2, scale_bytes = head_dim / 16, copied_element_bytes = 1;
    using Rows = TileRows<row_bytes>;
    static constexpr int steps = head_dim / 16;
    static constexpr float k_scale = 16384.f, v_scale = 16384.f;
    static constexpr int largest_value = 0;
    static constexpr int chunks_per_row = head_dim / 32;
    static constexpr int scale_words = scale_bytes / 4;

    /* Where a lane's scales lie behind the rows of a tile, and which of the bytes there it wants. */
    struct Scales {
        uint32_t key, key_selector;
        uint32_t value[chunks_per_row / 2], value_second, value_selector; /* of each pair of chunks; from one word to the next */

        /* `first`: those of the warp's first token. */
        __device__ __forceinline__ Scales(uint32_t first, bool v_interleaved, int lane) {
            /* All eight dims lie in one block. The bytes of two chunks. */
            key = first + (lane >> 2) * scale_bytes;
            key_selector = (lane & 2) != 0 ? 0x31u : 0x20u;
            /* Two tokens, in rows side by side; or, of four tokens, a block's scales side by side, a word. */
            const uint32_t rows = first + (lane & 3) * 2 * scale_bytes;
            const uint32_t words = first + (lane >> 1 & 1) * 4 * scale_bytes + (lane >> 4) * 4;
#pragma unroll
            for (int pair = 0; pair < chunks_per_row / 2; ++pair)
                value[pair] = v_interleaved ? words + pair * 16 : rows + pair * 4;
            value_second = v_interleaved ? 8 : scale_bytes;
            if (v_interleaved)
                value_selector = (lane & 1) != 0 ? 0x7632u : 0x5410u;
            else
                value_selector = (lane & 16) != 0 ? 0x7351u : 0x6240u;
        }
        /* So many tokens further, a multiple of four. */
        __device__ __forceinline__ void step(int tokens) {
            key += tokens * scale_bytes;
#pragma unroll
            for (int pair = 0; pair < chunks_per_row / 2; ++pair)
                value[pair] += tokens * scale_bytes;
        }
    };

    /* Both readers: tokens 0 to 7 and 8 to 15 of one chunk, then of the next. */
    struct Reader {
        const uint32_t address, line_stride_bytes;
        uint32_t codes[4];
        template <class Tokens>
        __device__ __forceinline__ Reader(uint32_t tile, const Tokens &tokens, int fragment, int lane)
            : address(Rows::first_pair(tile + tokens.offset[fragment], lane & 15, lane >> 4)),
              line_stride_bytes(tokens.line_stride_bytes) {}
    };

    /* A lane's eight dims of a chunk share a scale: that of the chunk's first block in lanes 4 n and 4 n + 1, else the second's. */
    struct KeyReader : Reader {
        uint32_t scales[2][chunks_per_row / 2]; /* of tokens 0 to 7, 8 to 15: fp16 of both chunks of a pair */
        template <class Tokens>
        __device__ __forceinline__ KeyReader(uint32_t tile, const Tokens &tokens, int fragment, int lane)
            : Reader(tile, tokens, fragment, lane) {
            const uint32_t first = tile + tokens.scales.key + fragment * fragment_tokens * scale_bytes;
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                uint32_t words[scale_words];
                ptx::load_shared(words, first + half * 8 * scale_bytes);
#pragma unroll
                for (int pair = 0; pair < chunks_per_row / 2; ++pair)
                    scales[half][pair] =
                        ptx::fp16x2_from_e4m3x2_low(ptx::permute_bytes(words[pair], 0, tokens.scales.key_selector));
            }
        }
        __device__ __forceinline__ void operand(uint32_t (&keys)[4], int step) {
            const int pair = step / 4, chunk = step / 2 % 2;
            if (step % 4 == 0)
                ptx::ldmatrix_x4(this->codes, Rows::pair(this->address, this->line_stride_bytes, pair));
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const uint32_t bytes = fp16_bytes(this->codes[chunk * 2 + half], step % 2 != 0);
                const uint32_t scale = ptx::both_halves(scales[half][pair], chunk != 0);
                keys[half] = ptx::multiply_fp16x2(even_bytes(bytes), scale);
                keys[half + 2] = ptx::multiply_fp16x2(odd_bytes(bytes), scale);
            }
        }
    };

    /*
     * 32 dims, eight to a lane as above, and those half a row further. Even dims and odd ones are two chunks, each of which reads the
     * codes: the angles of all at once are too many registers.
     */
    static constexpr int rotated_steps = 2, rotated_neighbour = 4;
    static __device__ __forceinline__ constexpr int rotated_dim(int step, int lane) {
        return step / 4 * 32 + (lane & 3) * 8 + step % 2 * 2 + step / 2 % 2;
    }
    struct RotatedKeyReader {
        const uint32_t fragment, line_stride_bytes, scales, half_dim;
        const int lane;
        uint32_t codes[4];
        uint32_t pairs[2]; /* of tokens l/4 and 8 further: fp16 of the scales of the lower half and the upper */
        template <class Tokens>
        __device__ __forceinline__ RotatedKeyReader(uint32_t tile, const Tokens &tokens, int fragment, int half_dim, int lane)
            : fragment(tile + tokens.offset[fragment]), line_stride_bytes(tokens.line_stride_bytes),
              scales(tile + tokens.scales.key + fragment * fragment_tokens * scale_bytes + (lane >> 1 & 1)), half_dim(half_dim),
              lane(lane) {}
        __device__ __forceinline__ void load(int chunk) {
            ptx::ldmatrix_x4(codes,
                             Rows::byte(fragment, line_stride_bytes, lane & 15, chunk / 2 * 16 + (lane >> 4) * half_dim / 2));
#pragma unroll
            for (int eight = 0; eight < 2; ++eight) {
                const uint32_t lower = scales + eight * 8 * scale_bytes + chunk / 2 * 2;
                const uint32_t both = ptx::load_shared_byte(lower) | ptx::load_shared_byte(lower + half_dim / 16) << 8;
                pairs[eight] = ptx::fp16x2_from_e4m3x2_low(both);
            }
        }
        __device__ __forceinline__ void operand(uint32_t (&keys)[4], int step) const {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const uint32_t bytes = fp16_bytes(codes[i], step / 2 % 2 != 0);
                keys[i] = ptx::multiply_fp16x2(step % 2 == 0 ? even_bytes(bytes) : odd_bytes(bytes),
                                               ptx::both_halves(pairs[i % 2], i >= 2));
            }
        }
    };
    /* Of what two numbers of this size add up to, fp16 would lose digits. */
    static constexpr float rotation_scale = k_scale, rotated_scale = 1.f;

    /* A lane's four dims of a chunk lie in its first block in lanes 0 to 15, else in its second; the pair is of two tokens. */
    struct ValueReader : Reader {
        uint32_t scales[2][chunks_per_row / 2][2]; /* of each chunk of a pair: fp16 of two tokens */
        template <class Tokens>
        __device__ __forceinline__ ValueReader(uint32_t tile, const Tokens &tokens, int fragment, int lane)
            : Reader(tile, tokens, fragment, lane) {
            const uint32_t first = tile + fragment * fragment_tokens * scale_bytes;
#pragma unroll
            for (int half = 0; half < 2; ++half) {
#pragma unroll
                for (int pair = 0; pair < chunks_per_row / 2; ++pair) {
                    const uint32_t address = first + tokens.scales.value[pair] + half * 8 * scale_bytes;
                    uint32_t word[1], second[1];
                    ptx::load_shared(word, address);
                    ptx::load_shared(second, address + tokens.scales.value_second);
                    const uint32_t both = ptx::permute_bytes(word[0], second[0], tokens.scales.value_selector);
                    scales[half][pair][0] = ptx::fp16x2_from_e4m3x2_low(both);
                    scales[half][pair][1] = ptx::fp16x2_from_e4m3x2_high(both);
                }
            }
        }
        __device__ __forceinline__ void operand(uint32_t (&values)[4], int step) {
            const int pair = step / 4, chunk = step / 2 % 2;
            if (step % 4 == 0)
                ptx::ldmatrix_x4_trans(this->codes, Rows::pair(this->address, this->line_stride_bytes, pair));
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const uint32_t bytes = fp16_bytes(this->codes[chunk * 2 + half], step % 2 != 0);
                values[half * 2] = ptx::multiply_fp16x2(even_bytes(bytes), scales[half][pair][chunk]);
                values[half * 2 + 1] = ptx::multiply_fp16x2(odd_bytes(bytes), scales[half][pair][chunk]);
            }
        }
    };

    /*
     * A chunk of a row, 32 dims with the codes of two scales, as four of fp16: of K the dims as query_operand deals them out, of V in order: eight of
     * them a word of codes.
     */
    template <class Chunk>
    static __device__ __forceinline__ void convert_keys(uint32_t (&converted)[4][4], const Chunk &chunk) {
        const uint32_t scales = ptx::fp16x2_from_e4m3x2_low(chunk.scales);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const uint32_t scale = ptx::both_halves(scales, i >= 2);
#pragma unroll
            for (int step = 0; step < 2; ++step) {
                const uint32_t bytes = fp16_bytes(chunk.words[i], step != 0);
                converted[step * 2][i] = ptx::multiply_fp16x2(even_bytes(bytes), scale);
                converted[step * 2 + 1][i] = ptx::multiply_fp16x2(odd_bytes(bytes), scale);
            }
        }
    }
    template <class Chunk>
    static __device__ __forceinline__ void convert_values(uint32_t (&converted)[4][4], const Chunk &chunk) {
        const uint32_t scales = ptx::fp16x2_from_e4m3x2_low(chunk.scales);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const uint32_t scale = ptx::both_halves(scales, i >= 2);
            const uint32_t even = fp16_bytes(chunk.words[i], false), odd = fp16_bytes(chunk.words[i], true);
#pragma unroll
            for (int two = 0; two < 2; ++two) { /* two pairs of neighbours: the second one's bytes below the first one's */
                const uint32_t pairs = ptx::permute_bytes(even, odd, two == 0 ? 0x4501u : 0x6723u);
                converted[i][two * 2] = ptx::multiply_fp16x2(odd_bytes(pairs), scale);
                converted[i][two * 2 + 1] = ptx::multiply_fp16x2(even_bytes(pairs), scale);
            }
        }
    }

    static constexpr bool converts_query = true;
    static constexpr int query_vector = 8;
    static __device__ __forceinline__ uint32_t query_operand(const uint32_t (&pairs)[4], int step, int half) {
        return ptx::permute_bytes(pairs[half], pairs[half + 2], step == 0 ? 0x5410u : 0x7632u);
    }
    static __device__ __forceinline__ constexpr int output_dim(int step, int half, int lane) {
        return step / 2 * 32 + (lane >> 2) * 4 + half * 2 + step % 2;
    }
};

} // namespace tile
