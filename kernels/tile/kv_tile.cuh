/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_tile.cuh: where a token's row lies in a K or V tile in shared memory.
 *
 * A tile is a sequence of boxes as the copy engine leaves them, each [head_dim / 64][box_tokens][64 elements], the 16-byte
 * chunks of a 128-byte row permuted by row % 8 (128-byte swizzle), so that ldmatrix meets no bank conflict. box_tokens is a
 * power of two of at least 16 and known at run time only, hence the two offsets that a warp computes once.
 */
#pragma once

#include <cstdint>

#include "ptx/mbarrier.cuh"

namespace tile {

constexpr int row_bytes = 128;   /* 64 elements: one line of the swizzle */
constexpr int group_tokens = 16; /* tokens of one matrix instruction; never straddle a box */

/* The 16-token groups of one warp within every tile. */
template <int head_dim, int groups>
struct TokenGroups {
    uint32_t offset[groups]; /* of each group's first row, in bytes from the start of the tile */
    uint32_t half_bytes;     /* from a row's first 64 elements to its next 64 */

    __device__ __forceinline__ TokenGroups(int first_token, int box_tokens) : half_bytes(box_tokens * row_bytes) {
#pragma unroll
        for (int group = 0; group < groups; ++group) {
            const int token = first_token + group * group_tokens;
            const int in_box = token & (box_tokens - 1);
            offset[group] = (token - in_box) * (head_dim / 64) * row_bytes + in_box * row_bytes;
        }
    }
};

/*
 * Addresses of 16-byte chunks (8 elements) of a row, for ldmatrix. A lane reads chunk 2 * pair + odd of its row for one pair
 * after the other: its first address once, then one exclusive or per pair, because rows are aligned to 128 bytes.
 */
__device__ __forceinline__ uint32_t first_chunk_address(uint32_t group_address, int row, int odd) {
    return group_address + row * row_bytes + ((odd ^ (row & 7)) << 4);
}
__device__ __forceinline__ uint32_t chunk_address(uint32_t first_chunk, uint32_t half_bytes, int pair) {
    return (first_chunk + (pair >> 2) * half_bytes) ^ ((pair & 3) << 5);
}

} // namespace tile
