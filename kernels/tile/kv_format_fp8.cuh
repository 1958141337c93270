/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_format_fp8.cuh: rows of e4m3 and e5m2 become fp16 in registers, which holds every one of them exactly. Of kv_format.cuh.
 *
 * ldmatrix moves pairs of bytes. Of K a lane gets four neighbouring dims of a token: those are its two registers of a step. Of V,
 * transposed, it gets two neighbouring dims of two neighbouring tokens, and the tokens of a dim have to come together.
 */
#pragma once

#include <cstdint>

#include "abi.h"
#include "ptx/bytes.cuh"
#include "ptx/convert.cuh"
#include "ptx/matrix.cuh"
#include "ptx/memory.cuh"
#include "tile/e5m2_pairs.cuh"
#include "tile/kv_format.cuh"

namespace tile {

/*
 * Of four bytes of a row, as pairs of fp16: the lower two and the upper two; or those of even and of odd numbers, once the bytes are
 * sorted for that. rotation_scale: what keeps a rotated row within fp16.
 */
struct E4m3Pairs {
    static __device__ __forceinline__ uint32_t lower(uint32_t bytes) { return ptx::fp16x2_from_e4m3x2_low(bytes); }
    static __device__ __forceinline__ uint32_t upper(uint32_t bytes) { return ptx::fp16x2_from_e4m3x2_high(bytes); }
    static __device__ __forceinline__ uint32_t sort(uint32_t bytes) { return ptx::permute_bytes(bytes, 0, 0x3120); }
    static __device__ __forceinline__ uint32_t even(uint32_t sorted) { return lower(sorted); }
    static __device__ __forceinline__ uint32_t odd(uint32_t sorted) { return upper(sorted); }
    static constexpr float rotation_scale = 1.f;
    static constexpr int largest_value = 448;
};

/* A pair of chunks is two steps. */
template <class Pairs, int head_dim, class Rows_ = TileRows<head_dim>>
struct Fp8Format {
    static constexpr int matrix_dtype = KERNEL_DTYPE_FP16;
    using Rows = Rows_;
    static constexpr int row_bytes = Rows::row_bytes, scale_bytes = 0, copied_element_bytes = 1;
    static constexpr int steps = head_dim / 16, pair_steps = 2;
    using Scales = NoScales;
    static constexpr float k_scale = 1.f, v_scale = 1.f;
    static constexpr int largest_value = Pairs::largest_value;

    /* Both readers: tokens 0 to 7 and 8 to 15 of one chunk, then of the next. */
    struct Reader {
        const uint32_t address, line_stride_bytes;
        uint32_t chunks[4];
        template <class Tokens>
        __device__ __forceinline__ Reader(uint32_t tile, const Tokens &tokens, int fragment, int lane, int first_step = 0)
            : address(Rows::pair(Rows::first_pair(tile + tokens.offset[fragment], lane & 15, lane >> 4), tokens.line_stride_bytes,
                                 first_step / 2)),
              line_stride_bytes(tokens.line_stride_bytes) {}
    };

    struct KeyReader : Reader {
        using Reader::Reader;
        __device__ __forceinline__ void operand(uint32_t (&keys)[4], int step, int first = 0) {
            if (step % 2 == 0)
                load(this->chunks, first / 2 + step / 2);
            convert(keys, this->chunks, step);
        }
        /* In two: the chunks of a pair of steps, and one of them. */
        __device__ __forceinline__ void load(uint32_t (&chunks)[4], int pair) const {
            ptx::ldmatrix_x4(chunks, Rows::pair(this->address, this->line_stride_bytes, pair));
        }
        static __device__ __forceinline__ void convert(uint32_t (&keys)[4], const uint32_t (&chunks)[4], int step) {
            const uint32_t low = chunks[step % 2 * 2], high = chunks[step % 2 * 2 + 1];
            keys[0] = Pairs::lower(low);
            keys[1] = Pairs::lower(high);
            keys[2] = Pairs::upper(low);
            keys[3] = Pairs::upper(high);
        }
    };

    /* 16 dims, four to a lane as above, and those half a row further, which is no whole number of chunks for every head_dim. */
    static constexpr int rotated_steps = 2, rotated_neighbour = 1;
    static __device__ __forceinline__ constexpr int rotated_dim(int step, int lane) {
        return step / 2 * 16 + (lane & 3) * 4 + step % 2 * 2;
    }
    struct RotatedKeyReader {
        const uint32_t fragment, line_stride_bytes, half_bytes;
        const int lane;
        uint32_t words[4]; /* tokens l/4 and 8 further; then of the upper half */
        template <class Tokens>
        __device__ __forceinline__ RotatedKeyReader(uint32_t tile, const Tokens &tokens, int fragment, int half_dim, int lane)
            : fragment(tile + tokens.offset[fragment]), line_stride_bytes(tokens.line_stride_bytes), half_bytes(half_dim),
              lane(lane) {}
        __device__ __forceinline__ void load(int chunk) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const uint32_t byte = chunk * 16 + (lane & 3) * 4 + half * half_bytes;
                const uint32_t address = Rows::byte(fragment, line_stride_bytes, lane >> 2, byte);
#pragma unroll
                for (int eight = 0; eight < 2; ++eight) {
                    uint32_t word[1];
                    ptx::load_shared(word, address + eight * Rows::eight_tokens_bytes);
                    words[half * 2 + eight] = word[0];
                }
            }
        }
        __device__ __forceinline__ void operand(uint32_t (&keys)[4], int step) const {
#pragma unroll
            for (int i = 0; i < 4; ++i)
                keys[i] = step % 2 == 0 ? Pairs::lower(words[i]) : Pairs::upper(words[i]);
        }
    };
    /* The query, which is rotated as well, has a scale of its own. */
    static constexpr float rotation_scale = Pairs::rotation_scale, rotated_scale = 1.f / rotation_scale;

    struct ValueReader : Reader {
        using Reader::Reader;
        __device__ __forceinline__ void operand(uint32_t (&values)[4], int step, int first = 0) {
            if (step % 2 == 0)
                load(this->chunks, first / 2 + step / 2);
            convert(values, this->chunks, step);
        }
        /* In two, as K. */
        __device__ __forceinline__ void load(uint32_t (&chunks)[4], int pair) const {
            ptx::ldmatrix_x4_trans(chunks, Rows::pair(this->address, this->line_stride_bytes, pair));
        }
        static __device__ __forceinline__ void convert(uint32_t (&values)[4], const uint32_t (&chunks)[4], int step) {
            const uint32_t low = Pairs::sort(chunks[step % 2 * 2]), high = Pairs::sort(chunks[step % 2 * 2 + 1]);
            values[0] = Pairs::even(low);
            values[1] = Pairs::odd(low);
            values[2] = Pairs::even(high);
            values[3] = Pairs::odd(high);
        }
    };

    /* A chunk of a row as two of fp16: of K the dims as query_operand deals them out, of V in order. */
    template <class Chunk>
    static __device__ __forceinline__ void convert_keys(uint32_t (&converted)[2][4], const Chunk &chunk) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            converted[0][i] = Pairs::lower(chunk.words[i]);
            converted[1][i] = Pairs::upper(chunk.words[i]);
        }
    }
    template <class Chunk>
    static __device__ __forceinline__ void convert_values(uint32_t (&converted)[2][4], const Chunk &chunk) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            converted[i / 2][i % 2 * 2] = Pairs::lower(chunk.words[i]);
            converted[i / 2][i % 2 * 2 + 1] = Pairs::upper(chunk.words[i]);
        }
    }

    static constexpr bool converts_query = true;
    static constexpr int query_vector = 4;
    static __device__ __forceinline__ uint32_t query_operand(const uint32_t (&pairs)[2], int, int half) { return pairs[half]; }
    static __device__ __forceinline__ constexpr int output_dim(int step, int half, int lane) {
        return step * 16 + (lane >> 2) * 2 + half;
    }
};

template <int head_dim>
struct KvFormat<KERNEL_DTYPE_E4M3, head_dim> : Fp8Format<E4m3Pairs, head_dim> {};
template <int head_dim>
struct KvFormat<KERNEL_DTYPE_E5M2, head_dim> : Fp8Format<E5m2Pairs, head_dim> {};

} // namespace tile
