/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scaled_tokens.cuh: what one warp works out of the scales of gathered tokens, whose rows have one for each block of 128 dims (LatentRows),
 * so that those who multiply K and V need not, each for itself:
 *
 *     K   the factors by which the sums of the blocks' products become one sum (group_latent_qk)
 *     V   fp16 of a token's scale over the unit of its block (block_scales.cuh), which V's elements, exact in fp16, are multiplied by
 */
#pragma once

#include <cstdint>

#include "abi.h"
#include "ptx/memory.cuh"
#include "ptx/wgmma.cuh"
#include "tile/block_scales.cuh"
#include "tile/constants.cuh"
#include "tile/element.cuh"
#include "tile/gathered_warpgroup.cuh"
#include "tile/power_of_two.cuh"

namespace tile {

/* Of 64 tokens; lies in shared memory, as the next. Of a token's four scales: 1 / s1, s0 / s2, s1 / s3, s2, s3. */
struct alignas(16) KeyFactors {
    float of_token[latent_blocks + 1][group_tokens];
};
struct ValueScales {
    static constexpr int largest_value = 448 * scale_room;
    uint16_t of_token[latent_blocks][group_tokens]; /* fp16; 0 of a token that is missing */
    alignas(16) float unit[latent_blocks];          /* what outputs, with these tokens, are to be multiplied by */
    float shrink[latent_blocks];                    /* what those before are multiplied by first, where is_raised */
    bool is_raised;
};

/*
 * The elements of a block that has no scale become zeros, but for NaN: as K its scale counts as another; as V they are multiplied by 0
 * then as before.
 */
__device__ __noinline__ void clear_block(uint32_t first) {
#pragma unroll 1
    for (int byte = 0; byte < latent_block_dims; byte += 16) {
        uint32_t words[4];
        ptx::load_shared(words, first + byte);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const uint32_t is_nan = ((words[i] & 0x7f7f7f7fu) + 0x01010101u) >> 7 & 0x01010101u; /* 0x7f and 0xff */
            words[i] &= is_nan * 0xffu;
        }
        ptx::store_shared(first + byte, words);
    }
    ptx::fence_async_proxy(); /* copies will write there */
}

/* V of a token that is missing: whatever lies there may be NaN. */
__device__ __noinline__ void clear_value(uint32_t row) {
#pragma unroll 1
    for (int byte = 0; byte < latent_blocks * latent_block_dims; byte += 16)
        ptx::store_shared_zeros(row + byte);
    ptx::fence_async_proxy();
}

/* The warp that writes them; a lane has two tokens, 2 l and the next. */
template <class Format>
class ScaledTokensWriter {
    static constexpr int tokens = 2;

  public:
    /* Before the tokens of a piece. */
    __device__ __forceinline__ void begin() {
#pragma unroll
        for (uint32_t &unit : unit_)
            unit = 0;
        is_first_ = true;
    }

    /* `row`: where the lane's first token lies; `seen`: a bit for each of the two, and 0 where there is no row. */
    __device__ __forceinline__ void load(uint32_t row, uint32_t seen) {
#pragma unroll
        for (int token = 0; token < tokens; ++token)
            load(scale_[token], row + token * Format::row_bytes, (seen >> token & 1) != 0, row != 0);
    }
    /* What was loaded is written for K, and for V. */
    __device__ __forceinline__ void write(KeyFactors &factors, int lane) const {
        float divisor[latent_blocks][tokens];
#pragma unroll
        for (int block = 0; block < latent_blocks; ++block) {
#pragma unroll
            for (int token = 0; token < tokens; ++token) {
                const float scale = scale_[token][block];
                divisor[block][token] = fabsf(scale) < 0x1p-60f ? 0x1p-60f : scale; /* NaN stays */
            }
        }
        const auto put = [&](int number, float first, float second) {
            *reinterpret_cast<float2 *>(&factors.of_token[number][lane * tokens]) = make_float2(first, second);
        };
        put(0, __fdividef(1.f, divisor[1][0]), __fdividef(1.f, divisor[1][1]));
        put(1, __fdividef(divisor[0][0], divisor[2][0]), __fdividef(divisor[0][1], divisor[2][1]));
        put(2, __fdividef(divisor[1][0], divisor[3][0]), __fdividef(divisor[1][1], divisor[3][1]));
        put(3, divisor[2][0], divisor[2][1]);
        put(4, divisor[3][0], divisor[3][1]);
    }
    __device__ __forceinline__ void write(ValueScales &scales, int lane) {
        bool exceeds = false;
#pragma unroll
        for (int block = 0; block < latent_blocks; ++block)
            exceeds |= exceeds_room(largest(block), unit_[block]);
        const bool raises = __any_sync(full_warp, exceeds);
        if (raises)
            raise(scales, lane);
#pragma unroll
        for (int block = 0; block < latent_blocks; ++block) {
            const float units = reciprocal_of_power(unit_[block]);
            *reinterpret_cast<uint32_t *>(&scales.of_token[block][lane * tokens]) =
                Element<KERNEL_DTYPE_FP16>::pack(scale_[0][block] * units, scale_[1][block] * units);
        }
        if (lane == 0) {
            scales.is_raised = raises && !is_first_;
            *reinterpret_cast<uint4 *>(scales.unit) = make_uint4(unit_[0], unit_[1], unit_[2], unit_[3]);
        }
        is_first_ = false;
    }

  private:
    static __device__ __forceinline__ void load(float (&scale)[latent_blocks], uint32_t row, bool is_there, bool has_row) {
#pragma unroll
        for (float &of_block : scale)
            of_block = 0.f;
        if (is_there) {
            uint32_t words[latent_blocks];
            ptx::load_shared(words, row + Format::scales_byte);
#pragma unroll
            for (int block = 0; block < latent_blocks; ++block) {
                scale[block] = __uint_as_float(words[block]);
                if (scale[block] == 0.f)
                    clear_block(row + block * latent_block_dims);
            }
        } else if (has_row) {
            clear_value(row);
        }
    }

    /* Of the lane's two tokens the larger scale, but for NaN. */
    __device__ __forceinline__ float largest(int block) const { return fmaxf(fabsf(scale_[0][block]), fabsf(scale_[1][block])); }

    __device__ __forceinline__ void raise(ValueScales &scales, int lane) {
#pragma unroll
        for (int block = 0; block < latent_blocks; ++block) {
            const uint32_t before = unit_[block];
            unit_[block] = raised_unit(before, __reduce_max_sync(full_warp, power_in(largest(block))));
            if (lane == 0)
                scales.shrink[block] = __uint_as_float(before) * reciprocal_of_power(unit_[block]);
        }
    }

    float scale_[tokens][latent_blocks];
    uint32_t unit_[latent_blocks];
    bool is_first_;
};

} // namespace tile
