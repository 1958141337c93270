/* SPDX-License-Identifier: Apache-2.0 */
/*
 * row_widener.cuh: row_copier.cuh for rows that are multiplied as fp16 but lie in memory as FP8 and NVFP4: warps take them to registers, and store
 * them to part_ring.cuh's tiles converted. So each byte is converted once, though K and V are multiplied by two warpgroups.
 *
 * Four warps have V, each sixteen rows of a tile: four lanes have a row, and one eight rows further. Two have the last line, each 32 rows. What is
 * on its way to a lane's registers is two pieces of V, or a last line; what a piece leaves free is asked for behind it (time runs to the right):
 *
 *     store:    piece 0 |   | piece 1 |   | piece 2 |         | piece 3 |         | next tile: piece 0 | ...
 *     ask for:          | 2 |         | 3 |         | next: 0 |         | next: 1 |                    | ...
 *
 * It comes from the second cache, where the warp that writes the list has asked for it: even that takes some 900 clocks on an H200, as shared memory
 * is busy with the operands of matrix instructions. Nobody fences here, which would wait for all that is on its way.
 */
#pragma once

#include <cstdint>

#include "pipeline/part_ring.cuh"
#include "pipeline/token_list.cuh"
#include "ptx/memory.cuh"

namespace pipeline {

/*
 * One warp's part in it: V, or the last line, and what is said of the tile. `Format`: of what tiles hold; it knows where rows have that
 * (tile/widened_latent.cuh).
 */
template <class Ring, class Format, bool of_values>
class RowWidener {
  public:
    static constexpr int value_warps = 4, last_line_warps = 2;
    /* On the barrier of a part. */
    static constexpr int arrivals = value_warps;

    /* `warp`: of those with the same part. */
    __device__ __forceinline__ RowWidener(TokenList &list, Ring ring, uint64_t *seen, uint32_t warp, uint32_t lane)
        : ring_(ring), turn_(list), seen_(seen), warp_(warp), lane_(lane), quarter_(lane % row_lanes) {}

    /* may_load(): returns once the first rows may be asked for. */
    template <class MayLoad>
    __device__ __forceinline__ void run(MayLoad may_load) {
        turn_.wait_full();
        if (turn_.tile().end_of_work)
            return;
        may_load();
        if constexpr (of_values)
            widen_values();
        else
            widen_last_lines();
    }

  private:
    static constexpr int row_lanes = 4, row_distance = 32 / row_lanes; /* of a lane's rows */
    static constexpr int value_rows = TokenList::tile_tokens / (value_warps * row_distance),
                         last_line_rows = TokenList::tile_tokens / (last_line_warps * row_distance);
    static_assert(Ring::has_last_line && Ring::piece_lines == 2 && Ring::half_pieces == 2, "the parts that are known here");
    using Chunk = typename Format::Chunk;

    __device__ __forceinline__ void give_list_back() {
        turn_.release(static_cast<int>(lane_));
        turn_.advance();
    }
    __device__ __forceinline__ uint32_t tile() const { return ring_.tile(ring_.stage()); }

    /* Asks for a lane's 16 bytes of the 64 from `byte` on; zeros where there is no row. */
    __device__ __forceinline__ void load(Chunk &chunk, const uint8_t *row, uint32_t byte) const {
        chunk = {};
        if (row != nullptr) {
            const uint8_t *const from = row + byte + quarter_ * 8;
            ptx::load_global(chunk.words[0], chunk.words[1], from);
            ptx::load_global(chunk.words[2], chunk.words[3], from + Format::half_stride_bytes);
        }
    }

    /* ------------------------------------------------------------------------------------------------------------------- V */

    struct LoadedValues {
        Chunk chunk[2][value_rows];     /* of a piece, and of the one behind it */
        uint32_t scales[2][value_rows]; /* of each half */
    };

    __device__ __forceinline__ void widen_values() {
        LoadedValues values;
        load_scales(values, ring_.stage(), 0);
        load_piece(values, ring_.stage(), 0);
        load_piece(values, ring_.stage(), 1);
        load_scales(values, ring_.stage(), 1);
        for (bool is_last = false; !is_last; ring_.advance()) {
            const uint32_t stage = ring_.stage();
            store_piece(values, 0);
            load_piece(values, stage, 2);
            store_piece(values, 1);
            load_piece(values, stage, 3);
            give_list_back();
            turn_.wait_full();
            is_last = turn_.tile().end_of_work;
            if (!is_last)
                load_scales(values, stage ^ 1, 0);
            store_piece(values, 2);
            if (!is_last)
                load_piece(values, stage ^ 1, 0);
            store_piece(values, 3);
            if (!is_last) {
                load_piece(values, stage ^ 1, 1);
                load_scales(values, stage ^ 1, 1);
            }
        }
    }
    __device__ __forceinline__ int value_row() const {
        return static_cast<int>(warp_ * value_rows * row_distance + lane_ / row_lanes);
    }

    /* Of the list's tile, which goes to this stage: a piece, and the scales of the first half or of the second. */
    __device__ __forceinline__ void load_piece(LoadedValues &values, uint32_t stage, int piece) const {
        const uint32_t line = Ring::first_line(stage, static_cast<uint32_t>(piece) + 1);
#pragma unroll
        for (int i = 0; i < value_rows; ++i)
            load(values.chunk[piece % 2][i], turn_.tile().row[value_row() + i * row_distance], line * Format::line_bytes);
    }
    __device__ __forceinline__ void load_scales(LoadedValues &values, uint32_t stage, int half) const {
        const uint32_t line = Ring::first_line(stage, static_cast<uint32_t>(half * Ring::half_pieces) + 1);
#pragma unroll
        for (int i = 0; i < value_rows; ++i) {
            const uint8_t *const row = turn_.tile().row[value_row() + i * row_distance];
            values.scales[half][i] = row != nullptr ? ptx::load_global<4>(row + Format::scale_byte(quarter_) + line) : 0u;
        }
    }
    __device__ __forceinline__ void store_piece(const LoadedValues &values, int piece) const {
        const uint32_t line = Ring::first_line(ring_.stage(), static_cast<uint32_t>(piece) + 1), first_row = value_row();
        const uint32_t to = tile() + line * Ring::line_bytes + first_row * 128 + (quarter_ * 2 ^ first_row % 8) * 16;
        ring_.wait_empty(piece + 1);
#pragma unroll
        for (int i = 0; i < value_rows; ++i) {
            uint32_t widened[4][4];
            Format::widen_latent(widened, values.chunk[piece % 2][i], values.scales[piece / 2][i], piece % 2 != 0);
#pragma unroll
            for (int j = 0; j < 4; ++j)
                ptx::store_shared((to ^ j % 2 * 16) + j / 2 * Ring::line_bytes + i * row_distance * 128, widened[j]);
        }
        __syncwarp();
        if (lane_ == 0)
            ptx::mbarrier_arrive(ring_.full_barrier(piece + 1));
    }

    /* ------------------------------------------------------------------------------------------------------- the last line */

    __device__ __forceinline__ void widen_last_lines() {
        const uint32_t first_row = warp_ * (last_line_rows * row_distance) + lane_ / row_lanes;
        for (; !turn_.tile().end_of_work; turn_.wait_full()) {
            Chunk chunk[last_line_rows];
#pragma unroll
            for (int i = 0; i < last_line_rows; ++i)
                load(chunk[i], turn_.tile().row[first_row + i * row_distance], Format::rope_byte);
            const uint32_t to = tile() + (Ring::lines - 1) * Ring::line_bytes + first_row * 128 + (quarter_ ^ first_row % 8) * 16;
            ring_.wait_empty(0);
#pragma unroll
            for (int i = 0; i < last_line_rows; ++i) {
                uint32_t widened[2][4];
                Format::widen_rope(widened, chunk[i]);
#pragma unroll
                for (int half = 0; half < 2; ++half)
                    ptx::store_shared((to ^ half * 64) + i * row_distance * 128, widened[half]);
            }
            if (warp_ == 0 && lane_ == 0) /* who read what was said of the tile before has given this part back */
                seen_[ring_.stage()] = turn_.tile().seen;
            __syncwarp();
            if (lane_ < arrivals / last_line_warps)
                ptx::mbarrier_arrive(ring_.full_barrier(0));
            give_list_back();
            ring_.advance();
        }
    }

    Ring ring_; /* where the next tile is stored */
    TokenListTurn turn_;
    uint64_t *const seen_;
    const uint32_t warp_, lane_, quarter_; /* quarter_: of the lane, of four times 8 bytes of a row */
};

} // namespace pipeline
