/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rope.cuh: rotary positions: by which angle a position turns each pair of dims (i, i + head_dim / 2).
 *
 * Scores depend on differences of positions alone, so K is turned by its distance from token 0 of the cache, and the query by its own.
 * Angles are fractions of a revolution in integers of 64 bits, whose products wrap where angles do: at a position of 2^31 they
 * are as right as at 1, but for what the frequency, a product of doubles, has lost: some 2^-18 radians at the most. Their upper 32
 * bits become radians.
 *
 * What is here computes no more than integers and plain floats, so that it runs on the processor, too (tests/kernels/test_rope.cpp).
 */
#pragma once

#include <cmath>
#include <cstdint>

namespace tile {

/* A pair's angles. Lies in shared memory. */
struct alignas(16) RopeFrequency {
    uint32_t low, high; /* from one position to the next: 2^-64 revolutions */
    float eight_tokens; /* from a token to that 8 further: radians from -pi to pi */
    uint32_t unused;

    /* What so many positions turn by, in 2^-32 revolutions: the bits below have no share in it but by their carry. */
    __device__ __forceinline__ uint32_t turn(uint32_t positions) const { return positions * high + __umulhi(positions, low); }
};

constexpr float radians_per_turn = 6.283185307179586f / 4294967296.f;

/* From -pi to pi. */
__device__ __forceinline__ float radians(uint32_t turn) {
    return static_cast<float>(static_cast<int32_t>(turn)) * radians_per_turn;
}

/* As many as 2^31 positions to either side, of whose sign all angles are. */
struct SignedPositions {
    uint32_t count;
    float radians_per_turn;

    explicit __device__ __forceinline__ SignedPositions(int positions)
        : count(positions < 0 ? 0u - static_cast<uint32_t>(positions) : static_cast<uint32_t>(positions)),
          radians_per_turn(positions < 0 ? -tile::radians_per_turn : tile::radians_per_turn) {}

    __device__ __forceinline__ float radians(const RopeFrequency &frequency) const {
        return static_cast<float>(static_cast<int32_t>(frequency.turn(count))) * radians_per_turn;
    }
};

/* Cosine and sine, rounded last: what is turned again and again asks for more than the hardware's approximations. */
__device__ __forceinline__ void exact_turn(uint32_t turn, float &cosine, float &sine) {
    sincospif(static_cast<float>(static_cast<int32_t>(turn)) * (1.f / 2147483648.f), &sine, &cosine);
}

/* What is left of x >= 0 without its whole numbers, in 2^-64, rounded down: of its bits, as conversions of doubles take long. */
__device__ __forceinline__ uint64_t fraction_of(double x) {
    const uint64_t bits = static_cast<uint64_t>(__double_as_longlong(x));
    const uint64_t mantissa = (bits & ((1ull << 52) - 1)) | 1ull << 52;
    const int shift = static_cast<int>(bits >> 52) - (1023 + 52 - 64);
    if (shift >= 0)
        return shift < 64 ? mantissa << shift : 0;
    return shift > -64 ? mantissa >> -shift : 0;
}

/* Of pair `pair` < 256, whose frequency in revolutions is first * ratio^pair. */
__device__ __forceinline__ RopeFrequency rope_frequency(double first, double ratio, int pair, uint32_t position_stride) {
    double frequency = first;
#pragma unroll
    for (int bit = 0; bit < 8; ++bit, ratio *= ratio)
        frequency *= (pair >> bit & 1) != 0 ? ratio : 1.;
    const uint64_t fraction = fraction_of(frequency);
    RopeFrequency result = {};
    result.high = static_cast<uint32_t>(fraction >> 32);
    result.low = static_cast<uint32_t>(fraction);
    result.eight_tokens = radians(result.turn(8 * position_stride));
    return result;
}

/* Of all pairs of the kernel's rows, by all of its threads: those beyond the launch's are zeros, and turn nothing. */
__device__ __forceinline__ void fill_rope_frequencies(RopeFrequency *pairs, int num_pairs, int live_pairs, double first,
                                                      double ratio, uint32_t position_stride, int thread, int num_threads) {
    for (int pair = thread; pair < num_pairs; pair += num_threads)
        pairs[pair] = pair < live_pairs ? rope_frequency(first, ratio, pair, position_stride) : RopeFrequency{};
}

} // namespace tile
