/* SPDX-License-Identifier: Apache-2.0 */
/*
 * widened_latent.cuh: what tiles of MLA hold whose rows lie in memory with 352 bytes (latent_rows.cuh) and are multiplied as fp16. All of a row
 * is 2^-14 of its value, exactly: codes times scales as kv_format_nvfp4.cuh says, and e4m3, whose smallest number is 2^-9, as well.
 */
#pragma once

#include <cstdint>

#include "abi.h"
#include "ptx/convert.cuh"
#include "tile/kv_format.cuh"
#include "tile/latent_rows.cuh"

namespace tile {

struct WidenedLatent : KvFormat<KERNEL_DTYPE_FP16, 576> {
    using Source = LatentRows<KERNEL_KV_ROW_NVFP352, KERNEL_DTYPE_NVFP4, 576>;
    static constexpr float k_scale = Source::Latent::k_scale, v_scale = Source::Latent::v_scale;
    /* Queries of bf16 and e4m3 become fp16, in the order that they have. */
    static constexpr bool converts_query = true;
    static constexpr int query_vector = 2;

    /*
     * Of a row two times 8 bytes, half_stride_bytes apart: 16 elements of V in each of two lines; or of what lies behind V 8 elements and 8 of
     * those half a line further. Lane q of four has those from byte 8 q on.
     */
    struct Chunk {
        uint32_t words[4];
    };
    static constexpr int half_stride_bytes = 32, line_bytes = 32, rope_byte = Source::rope_byte;
    /* Lane q's scale of line 0, behind which those of the others lie. */
    static __device__ __forceinline__ uint32_t scale_byte(uint32_t q) { return Source::scales_byte + q * 8; }

    /* In eights: two of the first line, two of the second. `scales`: of both, in the lower half of a word, or in the upper one. */
    static __device__ __forceinline__ void widen_latent(uint32_t (&widened)[4][4], const Chunk &chunk, uint32_t scales,
                                                        bool are_upper) {
        const struct {
            const uint32_t (&words)[4];
            uint32_t scales;
        } scaled = {chunk.words, are_upper ? scales >> 16 : scales};
        Source::Latent::convert_values(widened, scaled);
    }
    /* Likewise: of the first half of the line, of the second. */
    static __device__ __forceinline__ void widen_rope(uint32_t (&widened)[2][4], const Chunk &chunk) {
        constexpr uint32_t two_to_minus_14 = 0x04000400u;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            uint32_t(&eight)[4] = widened[i / 2];
            eight[i % 2 * 2] = ptx::multiply_fp16x2(ptx::fp16x2_from_e4m3x2_low(chunk.words[i]), two_to_minus_14);
            eight[i % 2 * 2 + 1] = ptx::multiply_fp16x2(ptx::fp16x2_from_e4m3x2_high(chunk.words[i]), two_to_minus_14);
        }
    }
};
static_assert(WidenedLatent::k_scale == 16384.f && WidenedLatent::v_scale == 16384.f, "as two_to_minus_14");

} // namespace tile
