/* SPDX-License-Identifier: Apache-2.0 */
/*
 * turned_query.cuh: RoPE where few rows meet many keys. Scores depend on differences of positions alone, so of the angle between a
 * query and a key
 *
 *     (position of the query - position of the warp's first token of a few tiles)   turns the query, anew for as many,
 *     (what the key's token lies behind that first one)                            turns the key, by a table for each of these tiles
 *
 * and neither asks for a sine in the loop over tiles. From some tiles to the next a query is turned by one angle, in f32; what that
 * rounds adds up, so now and then it is loaded again, and turned by its exact one (rotation.cuh).
 */
#pragma once

#include <cmath>
#include <cstdint>

#include "ptx/scalar.cuh"
#include "tile/attention.cuh"
#include "tile/element.cuh"
#include "tile/kv_format.cuh"
#include "tile/query.cuh"
#include "tile/rope.cuh"
#include "tile/row_map.cuh"
#include "tile/score.cuh"
#include "tile/unit_rows.cuh"

namespace tile {

/* What a launch turns by, as the lanes ask for it. Lies in shared memory. */
template <class Format, int token_fragments, int tiles>
class Turns {
  public:
    using Turn = typename Element<Format::matrix_dtype>::Turn;

    /*
     * By all threads that read it, with a barrier behind it. `frequencies`: complete. `tile_positions`: from a tile of a warp to its next.
     * In few instructions, as what runs once is fetched as it runs: a thread stays with its two pairs of dims, whose turns it adds up.
     */
    template <int num_threads>
    __device__ __forceinline__ void fill(const RopeFrequency *frequencies, uint32_t position_stride, uint32_t tile_positions,
                                         int thread) {
        constexpr int columns = Format::steps * 32, column_threads = num_threads > columns ? num_threads / columns : 1;
        static_assert(num_threads % columns == 0 || columns % num_threads == 0, "as many for every thread");
#pragma unroll 1
        for (int column = thread % columns; column < columns; column += num_threads) {
            const int lane = column & 31, step = column >> 5;
            uint32_t first[2], of_eight[2], of_tile[2]; /* turns */
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const RopeFrequency &its = frequency(frequencies, step, i, lane);
                first[i] = its.turn((lane >> 2) * position_stride);
                of_eight[i] = its.turn(8 * position_stride);
                of_tile[i] = its.turn(tile_positions);
            }
#pragma unroll 1
            for (int number = thread / columns; number < tiles * token_fragments; number += column_threads) {
                const int tile = number / token_fragments, fragment = number % token_fragments;
#pragma unroll
                for (int eight = 0; eight < 2; ++eight) {
                    float cosine[2], sine[2];
#pragma unroll
                    for (int i = 0; i < 2; ++i)
                        approximate(first[i] + (fragment * 2 + eight) * of_eight[i] + tile * of_tile[i], cosine[i], sine[i]);
                    keys_[tile][fragment][step][eight / of_16_bytes][lane][eight % of_16_bytes] =
                        Turn(cosine, sine, Format::rotation_scale);
                }
            }
        }
        for (int entry = thread; entry < Format::steps * 8; entry += num_threads) {
            const int step = entry / 8, lane = entry / 2 % 4, i = entry % 2;
            float cosine, sine;
            exact_turn(frequency(frequencies, step, i, lane).turn(tiles * tile_positions), cosine, sine);
            queries_[step][lane][i] = make_float2(cosine, sine);
        }
    }

    /* Of key l/4 of a fragment of the warp's tokens in one of the tiles, or of that `eight` further. */
    __device__ __forceinline__ const Turn &of_key(int tile, int fragment, int step, int eight, int lane) const {
        return keys_[tile][fragment][step][eight / of_16_bytes][lane][eight % of_16_bytes];
    }
    /* From some tiles to the next: cosine and sine, of two pairs of dims. */
    __device__ __forceinline__ float4 of_query(int step, int lane) const {
        return *reinterpret_cast<const float4 *>(queries_[step][lane & 3]);
    }

  private:
    static __device__ __forceinline__ void approximate(uint32_t turn, float &cosine, float &sine) {
        const float angle = radians(turn);
        cosine = ptx::cosine_approx(angle);
        sine = ptx::sine_approx(angle);
    }
    static __device__ __forceinline__ const RopeFrequency &frequency(const RopeFrequency *frequencies, int step, int i,
                                                                     int lane) {
        return frequencies[Format::rotated_dim(step, lane) + i * Format::rotated_neighbour];
    }

    /* A lane reads 16 bytes at a time, beside those of its neighbours. */
    static constexpr int of_16_bytes = 16 / sizeof(Turn);
    alignas(16) Turn keys_[tiles][token_fragments][Format::steps][2 / of_16_bytes][32][of_16_bytes];
    alignas(16) float2 queries_[Format::steps][4][2];
};

/* The rows of a query as turned for some tiles, and with as many bits as the next turn needs. */
template <class Format, int row_fragments>
struct TurnedQuery {
    float lower[Format::steps][row_fragments][2], upper[Format::steps][row_fragments][2];

    __device__ __forceinline__ void keep(int step, int n, const float (&lower_pair)[2], const float (&upper_pair)[2]) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            lower[step][n][i] = lower_pair[i];
            upper[step][n][i] = upper_pair[i];
        }
    }

    /* From some tiles to the next. */
    template <class Turns>
    __device__ __forceinline__ void advance(const Turns &turns, QueryFragment<Format, row_fragments> &query, int lane) {
#pragma unroll
        for (int step = 0; step < Format::steps; ++step) {
            const float4 turn = turns.of_query(step, lane);
#pragma unroll
            for (int n = 0; n < row_fragments; ++n) {
                turn_back(lower[step][n][0], upper[step][n][0], turn.x, turn.y);
                turn_back(lower[step][n][1], upper[step][n][1], turn.z, turn.w);
                query.pack_rotated(step, n, lower[step][n], upper[step][n]);
            }
        }
    }

  private:
    static __device__ __forceinline__ void turn_back(float &x, float &y, float cosine, float sine) {
        const float x_before = x;
        x = fmaf(x, cosine, y * sine);
        y = fmaf(y, cosine, -x_before * sine);
    }
};

/* As qk (attention.cuh), of a query that is turned for some tiles: this is number `tile` of them. */
template <class Format, int tile_tokens, int token_fragments, int row_fragments, int tiles>
__device__ __forceinline__ void qk_turned(ScoreFragment<token_fragments, row_fragments> &scores,
                                          const QueryFragment<Format, row_fragments> &query, uint32_t k_tile,
                                          const TokenFragments<Format, tile_tokens, token_fragments> &tokens,
                                          const Turns<Format, token_fragments, tiles> &turns, int tile, int half_dim, int lane) {
    using Matrix = Element<Format::matrix_dtype>;
    constexpr int chunk_steps = Format::rotated_steps;
    constexpr int chains = qk_chains<Format, token_fragments, row_fragments>;
#pragma unroll
    for (int fragment = 0; fragment < token_fragments; ++fragment) {
        float part[chains][row_fragments][4] = {};
        typename Format::RotatedKeyReader reader(k_tile, tokens, fragment, half_dim, lane);
#pragma unroll
        for (int step = 0; step < Format::steps; ++step) {
            if (step % chunk_steps == 0)
                reader.load(step / chunk_steps);
            uint32_t keys[4];
            reader.operand(keys, step);
            Matrix::turn(keys[0], keys[2], turns.of_key(tile, fragment, step, 0, lane));
            Matrix::turn(keys[1], keys[3], turns.of_key(tile, fragment, step, 1, lane));
#pragma unroll
            for (int n = 0; n < row_fragments; ++n)
                Matrix::mma(part[step % chains][n], keys, query.operand[step][n]);
        }
        add_chains(scores.value[fragment], part);
    }
}

} // namespace tile
