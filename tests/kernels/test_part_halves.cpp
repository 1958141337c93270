/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_part_halves.cpp: the units in which kernels hand each other values as fp16, of all powers of two that a float may be, and how sums carry
 * them: against what pipeline/part_halves.cuh promises.
 */
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "played/device.cuh"

#include "pipeline/part_halves.cuh"

namespace {

void require(bool holds, const char *what, double first, double second) {
    if (holds)
        return;
    std::printf("%s: %g, %g\n", what, first, second);
    std::exit(1);
}

/* By hand: the largest is 3, so 1.5 * 2^1, and a unit 2^-13; 3 is 24576 of them and comes back, as does -1. */
void an_example_comes_back() {
    const auto unit = pipeline::HalvesUnit::up_to(3.f);
    require(unit.unit == 0x1p-13f && unit.per_unit == 0x1p13f, "the unit of 3", unit.unit, unit.per_unit);
    const float word = pipeline::pack_halves(3.f * unit.per_unit, -1.f * unit.per_unit);
    require(__float_as_uint(word) == 0xf0007600u, "the halves of 3 and -1", __float_as_uint(word), 0xf0007600u);
    float low, high;
    pipeline::unpack_halves(low, high, word);
    require(low * unit.unit == 3.f && high * unit.unit == -1.f, "3 and -1", low, high);
}

void values_lose_what_is_promised(std::mt19937 &random) {
    std::uniform_real_distribution<float> fraction(1.f, 2.f);
    std::uniform_int_distribution<int> below(0, 45);
    for (int exponent = -149; exponent <= 127; exponent++) {
        const float largest = std::ldexp(exponent < -126 ? 1.f : fraction(random), exponent);
        const auto unit = pipeline::HalvesUnit::up_to(largest);
        int power;
        require(unit.per_unit == tile::power_of_two(tile::fp16_exponent(largest)), "the unit that queries have", largest,
                unit.per_unit);
        require(std::frexp(unit.unit, &power) == 0.5f && unit.unit * unit.per_unit == 1.f, "a unit", unit.unit, unit.per_unit);
        const float in_units = largest * unit.per_unit;
        require(in_units < 0x1p15f && (in_units >= 0x1p14f || exponent < -112), "the largest, in units", largest, in_units);
        for (int i = 0; i < 100; i++) {
            const float value = std::ldexp(largest, -below(random)) * (fraction(random) / 2.f), other = -largest;
            float low, high;
            pipeline::unpack_halves(low, high, pipeline::pack_halves(value * unit.per_unit, other * unit.per_unit));
            const double back = static_cast<double>(low) * unit.unit, error = std::fabs(back - value);
            /* 2^-25 of the unit, which is up to 2^-14 of the largest, is half of the last digit */
            require(error <= std::fmax(std::ldexp(std::fabs(value), -11), std::ldexp(static_cast<double>(unit.unit), -25)),
                    "a value that comes back", value, back);
            require(error <= std::ldexp(std::fabs(value), -11) || std::fabs(value) < std::ldexp(largest, -28),
                    "a value not far below the largest", value, back);
            require(std::fabs(static_cast<double>(high) * unit.unit - other) <= std::ldexp(largest, -11), "the other half", other,
                    high);
        }
    }
    const auto of_infinity = pipeline::HalvesUnit::up_to(INFINITY);
    float low, high;
    pipeline::unpack_halves(low, high, pipeline::pack_halves(-INFINITY * of_infinity.per_unit, NAN));
    require(low * of_infinity.unit == -INFINITY && std::isnan(high), "infinity and NaN", low, high);
}

void sums_carry_units(std::mt19937 &random) {
    std::uniform_real_distribution<float> fraction(1.f, 2.f);
    for (int of_sum = 0; of_sum < 40; of_sum++) {
        for (int of_unit = -126; of_unit <= 115; of_unit++) {
            const float sum = std::ldexp(fraction(random), of_sum), unit = std::ldexp(1.f, of_unit);
            const float word = pipeline::sum_with_unit(sum, unit), back = pipeline::sum_in(word);
            require(pipeline::unit_in(word) == unit, "a unit in a sum", unit, pipeline::unit_in(word));
            require(back <= sum && sum - back < std::ldexp(sum, -15), "a sum with a unit", sum, back);
            require(pipeline::mean_unit(back) == pipeline::mean_unit(sum), "the power in a sum", sum, back);
        }
        const float sum = std::ldexp(fraction(random), of_sum), power = pipeline::mean_unit(sum);
        require(power <= sum && sum < 2 * power && power * pipeline::per_mean_unit(sum) == 1.f, "the power in a sum", sum, power);
    }
    const float none = pipeline::sum_with_unit(0.f, 0x1p-126f);
    require(__float_as_uint(none) != 0 && pipeline::sum_in(none) == 0.f && pipeline::unit_in(none) == 0x1p-126f,
            "nothing, which is not a cleared word", none, pipeline::unit_in(none));
    require(pipeline::mean_unit(0.f) == 1.f && pipeline::per_mean_unit(0.f) == 1.f, "the unit of nothing", 0, 0);
}

/* Means are less than twice the largest value, and weights that were rounded up make them larger by 2^-11. */
template <int largest_value>
void means_have_room() {
    constexpr float per_mean = pipeline::per_mean_of<largest_value>;
    int power;
    require(std::frexp(per_mean, &power) == 0.5f, "a power of two", largest_value, per_mean);
    const double most = 2. * largest_value * (1 + 0x1p-11) * per_mean;
    require(most < 65504 && most > 32752, "room for means, and use of it", largest_value, most);
}

} // namespace

int main() {
    std::mt19937 random(1);
    an_example_comes_back();
    values_lose_what_is_promised(random);
    sums_carry_units(random);
    means_have_room<448>();
    means_have_room<448 * 128>();
    means_have_room<57344>();
    return 0;
}
