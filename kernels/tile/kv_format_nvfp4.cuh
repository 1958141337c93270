/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_format_nvfp4.cuh: e2m1 codes times e4m3 scales of 16 dims become fp16 in registers, exactly: a code has 2 significant bits, a
 * scale 4. Of kv_format.cuh.
 *
 * The bits of a code, moved to the right place of a byte, are an e4m3 of 2^-6 times its value (subnormals included), so the
 * conversion is that of e4m3. The smallest product of both is 2^-7 * 2^-9, which fp16 holds; 2^6 is left to k_scale and v_scale.
 *
 * ldmatrix moves pairs of bytes, four dims. Of K a lane gets eight neighbouring dims of a token: the even ones are one step, the odd
 * ones the next. Of V, transposed, it gets four neighbouring dims of two neighbouring tokens: likewise two steps.
 */
#pragma once

#include <cstdint>

#include "abi.h"
#include "ptx/convert.cuh"
#include "ptx/matrix.cuh"
#include "ptx/memory.cuh"
#include "tile/kv_format.cuh"

namespace tile {

/* The codes of the even, or the odd, dims of eight: e4m3 bytes of 2^-6 times the value. */
__device__ __forceinline__ uint32_t e4m3_of_codes(uint32_t codes, bool odd) {
    return odd ? (codes >> 2 & 0x1c1c1c1cu) | (codes & 0x80808080u) : (codes << 2 & 0x1c1c1c1cu) | (codes << 4 & 0x80808080u);
}

/* A pair of chunks is four steps; a chunk two blocks of one scale each. */
template <int head_dim, bool gathered>
struct KvFormat<KERNEL_DTYPE_NVFP4, head_dim, gathered> {
    static constexpr int matrix_dtype = KERNEL_DTYPE_FP16;
    static constexpr int row_bytes = head_dim / 2, scale_bytes = head_dim / 16, copied_element_bytes = 1;
    using Rows = TileRows<row_bytes, gathered>;
    static constexpr int steps = head_dim / 16;
    static constexpr float k_scale = 64.f, v_scale = 64.f;
    static constexpr int chunks_per_row = head_dim / 32;
    static constexpr int scale_words = scale_bytes / 4;

    /* Both readers: tokens 0 to 7 and 8 to 15 of one chunk, then of the next; the scales of a chunk for either eight tokens. */
    struct Reader {
        const uint32_t address, line_stride_bytes;
        uint32_t codes[4];
        uint32_t scales[2][chunks_per_row / 2][2]; /* fp16 pairs; of each chunk of a pair */
        template <class Tokens>
        __device__ __forceinline__ Reader(uint32_t tile, const Tokens &tokens, int fragment, int lane)
            : address(Rows::first_pair(tile + tokens.offset[fragment], lane & 15, lane >> 4)),
              line_stride_bytes(tokens.line_stride_bytes) {}

        /* Of four bytes, those of two chunks. */
        __device__ __forceinline__ void set_scales(int half, int pair, uint32_t packed) {
            scales[half][pair][0] = ptx::fp16x2_from_e4m3x2_low(packed);
            scales[half][pair][1] = ptx::fp16x2_from_e4m3x2_high(packed);
        }
    };

    /* A lane's eight dims of a chunk share a scale: that of the chunk's first block in lanes 4 n and 4 n + 1, else the second's. */
    struct KeyReader : Reader {
        template <class Tokens>
        __device__ __forceinline__ KeyReader(uint32_t tile, const Tokens &tokens, int fragment, int lane)
            : Reader(tile, tokens, fragment, lane) {
            const uint32_t scales = tile + tokens.scales(fragment) + (lane >> 2) * scale_bytes;
            /* Two bytes, each twice: both halves of an fp16 pair. */
            const uint32_t selector = (lane & 2) != 0 ? 0x3311u : 0x2200u;
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                uint32_t words[scale_words];
                ptx::load_shared(words, scales + half * 8 * scale_bytes);
#pragma unroll
                for (int pair = 0; pair < chunks_per_row / 2; ++pair)
                    this->set_scales(half, pair, ptx::permute_bytes(words[pair], 0, selector));
            }
        }
        __device__ __forceinline__ void operand(uint32_t (&keys)[4], int step) {
            const int pair = step / 4, chunk = step / 2 % 2;
            if (step % 4 == 0)
                ptx::ldmatrix_x4(this->codes, Rows::pair(this->address, this->line_stride_bytes, pair));
            const uint32_t low = e4m3_of_codes(this->codes[chunk * 2], step % 2 != 0);
            const uint32_t high = e4m3_of_codes(this->codes[chunk * 2 + 1], step % 2 != 0);
            keys[0] = ptx::multiply_fp16x2(ptx::fp16x2_from_e4m3x2_low(low), this->scales[0][pair][chunk]);
            keys[1] = ptx::multiply_fp16x2(ptx::fp16x2_from_e4m3x2_low(high), this->scales[1][pair][chunk]);
            keys[2] = ptx::multiply_fp16x2(ptx::fp16x2_from_e4m3x2_high(low), this->scales[0][pair][chunk]);
            keys[3] = ptx::multiply_fp16x2(ptx::fp16x2_from_e4m3x2_high(high), this->scales[1][pair][chunk]);
        }
    };

    /* A lane's four dims of a chunk lie in its first block in lanes 0 to 15, else in its second; the pair is of two tokens. */
    struct ValueReader : Reader {
        template <class Tokens>
        __device__ __forceinline__ ValueReader(uint32_t tile, const Tokens &tokens, int fragment, int lane)
            : Reader(tile, tokens, fragment, lane) {
            const uint32_t scales = tile + tokens.scales(fragment);
            if (tokens.v_scales_interleaved)
                load_interleaved(scales, lane);
            else
                load_linear(scales, lane);
        }
        __device__ __forceinline__ void operand(uint32_t (&values)[4], int step) {
            const int pair = step / 4, chunk = step / 2 % 2;
            if (step % 4 == 0) {
                ptx::ldmatrix_x4_trans(this->codes, Rows::pair(this->address, this->line_stride_bytes, pair));
#pragma unroll
                for (int i = 0; i < 4; ++i)
                    this->codes[i] = ptx::permute_bytes(this->codes[i], 0, 0x3120);
            }
            const uint32_t low = e4m3_of_codes(this->codes[chunk * 2], step % 2 != 0);
            const uint32_t high = e4m3_of_codes(this->codes[chunk * 2 + 1], step % 2 != 0);
            values[0] = ptx::multiply_fp16x2(ptx::fp16x2_from_e4m3x2_low(low), this->scales[0][pair][chunk]);
            values[1] = ptx::multiply_fp16x2(ptx::fp16x2_from_e4m3x2_high(low), this->scales[0][pair][chunk]);
            values[2] = ptx::multiply_fp16x2(ptx::fp16x2_from_e4m3x2_low(high), this->scales[1][pair][chunk]);
            values[3] = ptx::multiply_fp16x2(ptx::fp16x2_from_e4m3x2_high(high), this->scales[1][pair][chunk]);
        }

      private:
        /* Rows of two neighbouring tokens lie side by side. */
        __device__ __forceinline__ void load_linear(uint32_t scales, int lane) {
            const uint32_t selector = (lane & 16) != 0 ? 0x7351u : 0x6240u;
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                uint32_t first[scale_words], second[scale_words];
                const uint32_t row = scales + (half * 8 + (lane & 3) * 2) * scale_bytes;
                ptx::load_shared(first, row);
                ptx::load_shared(second, row + scale_bytes);
#pragma unroll
                for (int pair = 0; pair < chunks_per_row / 2; ++pair)
                    this->set_scales(half, pair, ptx::permute_bytes(first[pair], second[pair], selector));
            }
        }
        /* Of four tokens the scales of a block lie side by side, a word. */
        __device__ __forceinline__ void load_interleaved(uint32_t scales, int lane) {
            const uint32_t selector = (lane & 1) != 0 ? 0x7632u : 0x5410u;
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const uint32_t group = scales + (half * 2 + (lane >> 1 & 1)) * (4 * scale_bytes) + (lane >> 4) * 4;
#pragma unroll
                for (int pair = 0; pair < chunks_per_row / 2; ++pair) {
                    uint32_t first[1], second[1];
                    ptx::load_shared(first, group + pair * 16);
                    ptx::load_shared(second, group + pair * 16 + 8);
                    this->set_scales(half, pair, ptx::permute_bytes(first[0], second[0], selector));
                }
            }
        }
    };

    static constexpr bool converts_query = true;
    static constexpr int query_vector = 8;
    static __device__ __forceinline__ uint32_t query_operand(const uint32_t (&pairs)[4], int step, int half) {
        return ptx::permute_bytes(pairs[half * 2], pairs[half * 2 + 1], step == 0 ? 0x5410u : 0x7632u);
    }
    static __device__ __forceinline__ constexpr int output_dim(int step, int half, int lane) {
        return step / 2 * 32 + (lane >> 2) * 4 + half * 2 + step % 2;
    }
};

} // namespace tile
