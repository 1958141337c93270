/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_rope.cpp: the angles by which kernels rotate, against products in long double: frequencies from fast to slow, positions up
 * to 2^31 to either side, every stride; and queries turned from tile to tile, until they are loaded again.
 */
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "played/device.cuh"

#include "tile/rope.cuh"
#include "tile/rotation.cuh"

namespace {

constexpr long double two_pi = 6.283185307179586476925286766559005768L;

/* How far two angles lie apart, whole revolutions aside. */
long double apart(long double a, long double b) { return std::fabs(std::remainder(a - b, two_pi)); }

void require(bool good, const char *what, double theta, double scale, int pair, long long position, long double error) {
    if (good)
        return;
    std::printf("%s: theta %g, scale %g, pair %d, position %lld: off by %Lg radians\n", what, theta, scale, pair, position,
                error);
    std::exit(1);
}

/* What is rounded: the angle to an f32 of up to pi, and its frequency, a product of that many doubles. */
long double allowed(long double angle, int pair) { return 0x1p-21L + std::fabs(angle) * (pair + 8) * 0x1p-53L; }

void check_pair(double theta, double scale, int head_dim, int pair) {
    static const int positions[] = {0, 1, 2, 7, 1000, 99999, 1000000, 1 << 24, (1 << 24) + 1, 123456789, INT32_MAX};
    static const uint32_t strides[] = {1, 3, 64, 100003};
    const double first = 1. / (static_cast<double>(two_pi) * scale), ratio = std::pow(theta, -2. / head_dim);
    const long double exact = std::pow(static_cast<long double>(theta), -2.0L * pair / head_dim) / scale;
    for (const uint32_t stride : strides) {
        const tile::RopeFrequency frequency = tile::rope_frequency(first, ratio, pair, stride);
        const long double further = apart(frequency.eight_tokens, exact * 8 * stride);
        require(further < allowed(exact * 8 * stride, pair) && std::fabs(frequency.eight_tokens) < 3.1416f,
                "to a token 8 further", theta, scale, pair, stride, further);
        const long double farthest = apart(tile::SignedPositions(INT32_MIN).radians(frequency), exact * INT32_MIN);
        require(farthest < allowed(exact * INT32_MIN, pair), "farthest back", theta, scale, pair, INT32_MIN, farthest);
        for (const int position : positions) {
            const long double forward = apart(tile::radians(frequency.turn(static_cast<uint32_t>(position))), exact * position);
            const long double back = apart(tile::SignedPositions(-position).radians(frequency), -exact * position);
            const long double same = apart(tile::SignedPositions(position).radians(frequency), exact * position);
            require(forward < allowed(exact * position, pair), "forward", theta, scale, pair, position, forward);
            require(same < allowed(exact * position, pair), "forward, signed", theta, scale, pair, position, same);
            require(back < allowed(exact * position, pair), "back", theta, scale, pair, position, back);
        }
    }
}

constexpr int head_dim = 64, step_tokens = 128;
using Format = tile::KvFormat<KERNEL_DTYPE_BF16, head_dim>;
constexpr int tiles = 2;
using Rotation = tile::QueryRotation<Format, head_dim, 1, 2, 1, step_tokens, tiles>;

/* Keys within a tile, and a query of (1, 0) in every pair, as each lane holds them. */
void check_turns(double theta, uint32_t stride) {
    alignas(16) static unsigned char memory[sizeof(Rotation)]; /* as it lies in a kernel's */
    Rotation &rotation = *reinterpret_cast<Rotation *>(memory);
    query_params query = {};
    query.head_dim = head_dim;
    query.rope_frequency = 1. / static_cast<double>(two_pi);
    query.rope_ratio = std::pow(theta, -2. / head_dim);
    rotation.begin_tables(query, stride, 0);
    rotation.complete_tables(stride, 0, [] {});
    const auto angle = [&](int pair, long double positions) {
        return std::pow(static_cast<long double>(theta), -2.0L * pair / head_dim) * positions;
    };
    for (int lane = 0; lane < 32; lane++) {
        Rotation::State state;
        tile::QueryFragment<Format, 1> rows;
        for (int step = 0; step < Format::steps; step++)
            state.keep(step, 0, {1.f, 1.f}, {0.f, 0.f});
        for (int turn = 1; turn < Rotation::renewal_turns; turn++)
            state.advance(rotation.turns, rows, lane);
        for (int step = 0; step < Format::steps; step++) {
            for (int i = 0; i < 2; i++) {
                const int pair = Format::rotated_dim(step, lane) + i * Format::rotated_neighbour;
                const long double back = -angle(pair, (Rotation::renewal_turns - 1.L) * tiles * step_tokens * stride);
                const long double off =
                    std::hypot(state.lower[step][0][i] - std::cos(back), state.upper[step][0][i] - std::sin(back));
                require(off < 0x1p-17L, "from tile to tile", theta, 1, pair, stride, off);
                for (int eights = 0; eights < 4 * tiles; eights++) {
                    const int tile = eights / 4, token = tile * step_tokens + lane / 4 + eights % 4 * 8;
                    const long double forward = angle(pair, static_cast<long double>(stride) * token);
                    const auto &turn = rotation.turns.of_key(tile, eights % 4 / 2, step, eights % 2, lane);
                    const long double apart = std::hypot(turn.cosine[i] - std::cos(forward), turn.sine[i] - std::sin(forward));
                    require(apart < 0x1p-20L, "within a tile", theta, 1, pair, stride, apart);
                }
            }
        }
    }
}

} // namespace

int main() {
    for (const double theta : {100., 10000., 1e6})
        for (const uint32_t stride : {1u, 64u, 100003u})
            check_turns(theta, stride);
    static const int head_dims[] = {16, 64, 80, 128, 512};
    for (const double theta : {100., 10000., 500000., 1e6})
        for (const double scale : {1., 8., 0.0625})
            for (const int head_dim : head_dims)
                for (int pair = 0; pair < head_dim / 2; pair++)
                    check_pair(theta, scale, head_dim, pair);
    require(tile::fraction_of(0.75) == 3ull << 62 && tile::fraction_of(5.5) == 1ull << 63 && tile::fraction_of(0x1p-64) == 1 &&
                tile::fraction_of(0x1.8p-65) == 0 && tile::fraction_of(0) == 0 && tile::fraction_of(0x1.8p-30) == 3ull << 33 &&
                tile::fraction_of(0x1.fffffffffffffp51) == 1ull << 63 && tile::fraction_of(0x1p60) == 0 &&
                tile::fraction_of(0x1p300) == 0 && tile::fraction_of(0x1p-1074) == 0,
            "fraction_of", 0, 0, 0, 0, 0);
    tile::RopeFrequency pairs[8];
    for (int thread = 0; thread < 3; thread++)
        tile::fill_rope_frequencies(pairs, 8, 5, 0.25, 0.5, 1, thread, 3);
    for (int pair = 0; pair < 8; pair++) { /* a quarter of a revolution, half as much with each pair, and none beyond the fifth */
        const uint32_t turn = pair < 5 ? 0x40000000u >> pair : 0;
        require(pairs[pair].high == turn && pairs[pair].low == 0, "fill_rope_frequencies", 0.5, 0.25, pair, 1, 0);
    }
    return 0;
}
