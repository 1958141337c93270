/* SPDX-License-Identifier: Apache-2.0 */
/*
 * latent_rows.cuh: the rows of MLA's cache as a gather leaves them in a tile, each as memory has it (PitchedRows): LatentRows<kind,
 * dtype, head_dim> is a KvFormat of these, and `copied_bytes` of memory each. Plain rows are of one dtype.
 *
 * In mixed ones (Mixed) the elements of V are coded with scales, and the last 64, which carry the position, are not. K is multiplied in
 * two parts, each of a dtype of its own:
 *
 *     latent_steps            of the steps; a group of warps takes a quarter of them, and one of the others
 *     Latent, Rope            the formats of the two; of Latent the order of the query's dims and the matrix dtype
 *     LatentKeyReader         a group's steps of the first part
 *     scale_latent            what they add up to, times what the operands leave out
 *     rope_byte, rope_step_bytes   where the second part lies in a row
 *     has_block_scales        V has a scale for each 128 dims, of any size: block_scale
 *     matrix_dtype            of V and the weights
 */
#pragma once

#include <cstdint>

#include "abi.h"
#include "ptx/bytes.cuh"
#include "ptx/convert.cuh"
#include "ptx/matrix.cuh"
#include "ptx/memory.cuh"
#include "tile/kv_format.cuh"
#include "tile/score.cuh"

namespace tile {

template <int kind, int dtype, int head_dim>
struct LatentRows;

template <int dtype, int head_dim>
struct LatentRows<KERNEL_KV_ROW_PLAIN, dtype, head_dim> : KvFormat16Bit<dtype, head_dim, PitchedRows<head_dim * 2>> {
    static constexpr int copied_bytes = head_dim * 2;
    static constexpr bool has_block_scales = false;
};

template <int head_dim>
struct LatentRows<KERNEL_KV_ROW_PLAIN, KERNEL_DTYPE_E4M3, head_dim> : Fp8Format<E4m3Pairs, head_dim, PitchedRows<head_dim>> {
    static constexpr int copied_bytes = head_dim;
    static constexpr bool has_block_scales = false;
};

/*
 * Bytes 0 to 511: e4m3; 512 to 527: four float32 scales, of 128 elements each; 528 to 655: bf16. Any float may be a scale: K's is
 * multiplied in f32, with the sum of a group's products, which are of one block, and V's in units of its block (block_scales.cuh).
 */
template <>
struct LatentRows<KERNEL_KV_ROW_SCALED656, KERNEL_DTYPE_E4M3, 576> {
    static constexpr int copied_bytes = 656, scale_bytes = 0;
    using Rows = PitchedRows<copied_bytes>;
    using Latent = Fp8Format<E4m3Pairs, 512, Rows>;
    using Rope = KvFormat16Bit<KERNEL_DTYPE_BF16, 64, Rows>;
    using Scales = NoScales;
    static constexpr int matrix_dtype = KERNEL_DTYPE_FP16, row_bytes = Rows::row_bytes;
    static constexpr int latent_steps = 32, steps = 36, pair_steps = Latent::pair_steps;
    static constexpr int rope_byte = 528, rope_step_bytes = 32, scales_byte = 512, block_dims = 128;
    static constexpr float k_scale = 1.f, v_scale = 1.f;
    static constexpr int largest_value = 0;
    static constexpr bool converts_query = true, has_block_scales = true;

    struct LatentKeyReader : Latent::KeyReader {
        template <class Tokens>
        __device__ __forceinline__ LatentKeyReader(uint32_t tile, const Tokens &tokens, int fragment, int group, int lane)
            : Latent::KeyReader(tile + group * block_dims, tokens, fragment, lane) {}
    };

    static __device__ __forceinline__ float block_scale(uint32_t row, int block) {
        uint32_t word[1];
        ptx::load_shared(word, row + scales_byte + block * 4);
        return __uint_as_float(word[0]);
    }

    template <int row_fragments>
    static __device__ __forceinline__ void scale_latent(float (&scores)[row_fragments][4], uint32_t fragment, int group,
                                                        int lane) {
        const uint32_t row = fragment + (lane >> 2) * row_bytes;
        const float first = block_scale(row, group), second = block_scale(row + 8 * row_bytes, group);
#pragma unroll
        for (int n = 0; n < row_fragments; ++n) {
#pragma unroll
            for (int i = 0; i < 4; ++i)
                scores[n][i] *= i < 2 ? first : second;
        }
    }

    /* V as that of plain e4m3, times the scales of its tokens (block_scales.cuh): of each half. */
    struct ValueReader : Latent::ValueReader {
        using Latent::ValueReader::ValueReader;
        uint32_t scales[2];
        __device__ __forceinline__ void operand(uint32_t (&values)[4], int step, int first = 0) {
            Latent::ValueReader::operand(values, step, first);
            multiply(values, scales);
        }
        static __device__ __forceinline__ void convert(uint32_t (&values)[4], const uint32_t (&chunks)[4], int step,
                                                       const uint32_t (&scales)[2]) {
            Latent::ValueReader::convert(values, chunks, step);
            multiply(values, scales);
        }

      private:
        static __device__ __forceinline__ void multiply(uint32_t (&values)[4], const uint32_t (&scales)[2]) {
#pragma unroll
            for (int i = 0; i < 4; ++i)
                values[i] = ptx::multiply_fp16x2(values[i], scales[i / 2]);
        }
    };

    static __device__ __forceinline__ constexpr int output_dim(int step, int half, int lane) {
        return Latent::output_dim(step, half, lane);
    }
};

/*
 * Bytes 0 to 255: e2m1; 256 to 319: e4m3; 320 to 351: the scale of 16 elements each, that of block b at 8 (b % 4) + b / 4. Codes
 * times scales are fp16, times 2^-14, as kv_format_nvfp4.cuh says, which has the order of dims, too.
 */
template <>
struct LatentRows<KERNEL_KV_ROW_NVFP352, KERNEL_DTYPE_NVFP4, 576> {
    static constexpr int copied_bytes = 352, scale_bytes = 0;
    using Rows = PitchedRows<copied_bytes>;
    using Latent = KvFormat<KERNEL_DTYPE_NVFP4, 512>;
    using Rope = Fp8Format<E4m3Pairs, 64, Rows>;
    using Scales = NoScales;
    static constexpr int matrix_dtype = KERNEL_DTYPE_FP16, row_bytes = Rows::row_bytes;
    static constexpr int latent_steps = 32, steps = 36;
    static constexpr int rope_byte = 256, rope_step_bytes = 16, scales_byte = 320;
    static constexpr float k_scale = 1.f, v_scale = Latent::v_scale;
    static constexpr int largest_value = Latent::largest_value;
    static constexpr bool converts_query = true, has_block_scales = false;

    /* Eight steps: two pairs of chunks, eight blocks, of which a lane's eight dims of every chunk lie in one. */
    struct LatentKeyReader {
        const uint32_t address;
        uint32_t codes[4];
        uint32_t scales[2][2]; /* of tokens 0 to 7, 8 to 15: fp16 of chunks 0 and 2, of 1 and 3 */
        template <class Tokens>
        __device__ __forceinline__ LatentKeyReader(uint32_t tile, const Tokens &tokens, int fragment, int group, int lane)
            : address(Rows::first_pair(tile + tokens.offset[fragment] + group * 64, lane & 15, lane >> 4)) {
            const uint32_t first =
                tile + tokens.offset[fragment] + (lane >> 2) * row_bytes + scales_byte + (lane >> 1 & 1) * 8 + group / 2 * 4;
#pragma unroll
            for (int half = 0; half < 2; ++half) {
#pragma unroll
                for (int odd = 0; odd < 2; ++odd) {
                    uint32_t word[1];
                    ptx::load_shared(word, first + half * 8 * row_bytes + odd * 16);
                    scales[half][odd] = ptx::fp16x2_from_e4m3x2_low(word[0] >> (group % 2 * 16));
                }
            }
        }
        __device__ __forceinline__ void operand(uint32_t (&keys)[4], int step) {
            const int chunk = step / 2 % 2;
            if (step % 4 == 0)
                ptx::ldmatrix_x4(codes, Rows::pair(address, 0, step / 4));
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const uint32_t bytes = fp16_bytes(codes[chunk * 2 + half], step % 2 != 0);
                const uint32_t scale = ptx::both_halves(scales[half][chunk], step >= 4);
                keys[half] = ptx::multiply_fp16x2(even_bytes(bytes), scale);
                keys[half + 2] = ptx::multiply_fp16x2(odd_bytes(bytes), scale);
            }
        }
    };

    template <int row_fragments>
    static __device__ __forceinline__ void scale_latent(float (&scores)[row_fragments][4], uint32_t, int, int) {
#pragma unroll
        for (int n = 0; n < row_fragments; ++n) {
#pragma unroll
            for (int i = 0; i < 4; ++i)
                scores[n][i] *= Latent::k_scale;
        }
    }

    /* A warp's four steps are a pair of chunks, four blocks: `first` is a multiple of four. */
    struct ValueReader {
        const uint32_t address, scales_address;
        uint32_t codes[4];
        uint32_t scales[2][2]; /* of each half of the tokens and each chunk: fp16 of two tokens */
        template <class Tokens>
        __device__ __forceinline__ ValueReader(uint32_t tile, const Tokens &tokens, int fragment, int lane)
            : address(Rows::first_pair(tile + tokens.offset[fragment], lane & 15, lane >> 4)),
              scales_address(tile + tokens.offset[fragment] + (lane & 3) * 2 * row_bytes + scales_byte + (lane >> 4) * 8) {}
        __device__ __forceinline__ void operand(uint32_t (&values)[4], int step, int first = 0) {
            const int chunk = step / 2 % 2;
            if (step % 4 == 0)
                load((first + step) / 4);
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const uint32_t bytes = fp16_bytes(codes[chunk * 2 + half], step % 2 != 0);
                values[half * 2] = ptx::multiply_fp16x2(even_bytes(bytes), scales[half][chunk]);
                values[half * 2 + 1] = ptx::multiply_fp16x2(odd_bytes(bytes), scales[half][chunk]);
            }
        }

      private:
        __device__ __forceinline__ void load(int pair) {
            ptx::ldmatrix_x4_trans(codes, Rows::pair(address, 0, pair));
            const uint32_t selector = pair % 4 * 0x11 + 0x40;
#pragma unroll
            for (int half = 0; half < 2; ++half) {
#pragma unroll
                for (int chunk = 0; chunk < 2; ++chunk) {
                    const uint32_t row = scales_address + half * 8 * row_bytes + chunk * 16 + pair / 4 * 4;
                    uint32_t word[1], second[1];
                    ptx::load_shared(word, row);
                    ptx::load_shared(second, row + row_bytes);
                    scales[half][chunk] = ptx::fp16x2_from_e4m3x2_low(ptx::permute_bytes(word[0], second[0], selector));
                }
            }
        }
    };

    static __device__ __forceinline__ constexpr int output_dim(int step, int half, int lane) {
        return Latent::output_dim(step, half, lane);
    }
};

} // namespace tile
