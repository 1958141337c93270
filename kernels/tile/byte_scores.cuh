/* SPDX-License-Identifier: Apache-2.0 */
/*
 * byte_scores.cuh: scores of e4m3 with e4m3, which the tensor core of Hopper multiplies as they are: 64 tokens of MLA's KV, one warpgroup, both
 * operands in shared memory. scores^T [64 tokens, rows] = K Q^T, warp w has tokens 16 w to 16 w + 15.
 */
#pragma once

#include <cstdint>

#include "ptx/async_copy.cuh"
#include "ptx/memory.cuh"
#include "ptx/wgmma.cuh"
#include "tile/row_map.cuh"
#include "tile/score.cuh"

namespace tile {

constexpr int byte_tile_tokens = 64;

/*
 * Rows of e4m3 as they lie in memory, for rows of K that are operands as they lie in a tile, both in lines of 64 bytes: [line][row][64 bytes],
 * the chunks of 16 bytes permuted as TileRows has them. Filled by `threads` threads together; rows from `live_rows` on are zeros.
 */
template <class Format, int rows, int threads>
struct ByteQuery {
    static constexpr int row_bytes = Format::row_bytes, line_bytes = 64, chunks = row_bytes / 16, row_threads = threads / rows;
    static constexpr int line_stride_bytes = rows * line_bytes;
    static_assert(Format::Rows::line_bytes == line_bytes && row_threads * rows == threads, "as tiles have it; whole rows");
    alignas(1024) uint8_t line[row_bytes / line_bytes][rows][line_bytes];

    /* asked(): called once the thread's copies are on their way. */
    template <class Params, class Asked>
    __device__ __forceinline__ void load(const Params &params, const RowMap &map, int live_rows, int thread, Asked asked) {
        const int row = thread / row_threads;
        const int64_t rope =
            map.token(row) * params.query_rope_token_stride + map.head(row) * params.query_rope_head_stride - params.query_dim;
        const auto *const of_row = static_cast<const uint8_t *>(params.query.rows) + map.query_offset(params.query, row);
        const auto *const of_rope = static_cast<const uint8_t *>(params.query_rope) + rope;
#pragma unroll 1
        for (int chunk = thread % row_threads; chunk < chunks; chunk += row_threads)
            ptx::copy_async<16>(at(row, chunk), (chunk * 16 < params.query_dim ? of_row : of_rope) + chunk * 16, row < live_rows);
        asked();
        ptx::wait_for_copies();
    }

    /* Of SentLatentQuery, whose bytes are there. */
    template <class Sent, class Params>
    __device__ __forceinline__ void take(const Sent &sent, const Params &params, int live_rows, int thread) {
        const int row = thread / row_threads;
#pragma unroll 1
        for (int chunk = thread % row_threads; chunk < chunks; chunk += row_threads) {
            uint32_t words[4] = {};
            if (row < live_rows)
                load_words(sent.bytes + sent.element(params, row, chunk * 16), words);
            ptx::store_shared(at(row, chunk), words);
        }
    }

  private:
    __device__ __forceinline__ uint32_t at(int row, int chunk) const {
        return ptx::shared_address(line[0][row]) + chunk / 4 * line_stride_bytes + (chunk % 4 ^ row / 2 % 4) * 16;
    }
};

/*
 * Of a tile whose lines have all of its tokens. Sums have few digits (ptx/wgmma.cuh), hence two, of half of the dims each. meanwhile(): called
 * once, while the last steps are on their way.
 */
template <class Format, int row_fragments, class Meanwhile>
__device__ __forceinline__ void byte_qk(ScoreFragment<1, row_fragments> &scores, uint32_t query, uint32_t k_tile,
                                        Meanwhile meanwhile) {
    constexpr int steps = Format::row_bytes / 32, line_bytes = Format::Rows::line_bytes;
    constexpr int key_line_bytes = byte_tile_tokens * line_bytes, query_line_bytes = row_fragments * 8 * line_bytes;
    static_assert(line_bytes == 64 && steps % 2 == 0, "lines of two steps");
    ScoreFragment<1, row_fragments> second;
    const uint64_t keys = ptx::operand_computed_here(ptx::short_swizzled_operand(k_tile));
    const uint64_t queries = ptx::operand_computed_here(ptx::short_swizzled_operand(query));
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < steps; ++step) {
        float(&sums)[row_fragments][4] = step < steps / 2 ? scores.value[0] : second.value[0];
        const uint64_t key = ptx::operand_behind(keys, step / 2 * key_line_bytes + step % 2 * 32),
                       of_rows = ptx::operand_behind(queries, step / 2 * query_line_bytes + step % 2 * 32);
        if constexpr (row_fragments == 2)
            ptx::wgmma_m64n16k32_e4m3(sums, key, of_rows, step % (steps / 2) > 0);
        else
            ptx::wgmma_m64n64k32_e4m3(sums, key, of_rows, step % (steps / 2) > 0);
    }
    ptx::wgmma_commit();
    meanwhile();
    ptx::wgmma_wait();
    ptx::accumulator_is_ready(scores.value[0]);
    ptx::accumulator_is_ready(second.value[0]);
#pragma unroll
    for (int n = 0; n < row_fragments; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
            scores.value[0][n][i] += second.value[0][n][i];
    }
}

} // namespace tile
