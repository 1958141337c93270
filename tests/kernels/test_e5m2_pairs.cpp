/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_e5m2_pairs.cpp: how kernels make fp16 of e5m2, for every code at every place of a register, against both formats' definitions:
 * a sign, five bits of exponent, and two or ten bits of fraction.
 */
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "played/device.cuh"

#include "tile/e5m2_pairs.cuh"

namespace {

/* Of a format with five bits of exponent. */
double value_of(unsigned code, int fraction_bits) {
    const double sign = code >> (fraction_bits + 5) & 1 ? -1. : 1.;
    const int exponent = static_cast<int>(code >> fraction_bits & 31);
    const double fraction = (code & ((1u << fraction_bits) - 1)) / std::pow(2., fraction_bits);
    if (exponent == 31)
        return fraction == 0 ? sign * HUGE_VAL : std::nan("");
    return sign * (exponent == 0 ? std::pow(2., -14) * fraction : std::pow(2., exponent - 15) * (1 + fraction));
}

void require_pair(uint32_t pair, unsigned low, unsigned high, const char *what) {
    const unsigned codes[] = {low, high};
    for (int half = 0; half < 2; half++) {
        const double made = value_of(pair >> half * 16 & 0xffff, 10), wanted = value_of(codes[half], 2);
        if ((std::isnan(wanted) && std::isnan(made)) || (made == wanted && std::signbit(made) == std::signbit(wanted)))
            continue;
        std::printf("%s: of 0x%02x in half %d came %g, not %g\n", what, codes[half], half, made, wanted);
        std::exit(1);
    }
}

} // namespace

int main() {
    using Pairs = tile::E5m2Pairs;
    require_pair(0x3c00c000, 0xc0, 0x3c, "this test"); /* -2 and 1 */
    for (unsigned code = 0; code < 256; code++) {
        /* all codes at all places */
        const unsigned bytes[4] = {code, (code * 7 + 1) & 0xff, (code * 31 + 2) & 0xff, (code * 101 + 3) & 0xff};
        const uint32_t word = bytes[0] | bytes[1] << 8 | bytes[2] << 16 | bytes[3] << 24, sorted = Pairs::sort(word);
        require_pair(Pairs::lower(word), bytes[0], bytes[1], "lower");
        require_pair(Pairs::upper(word), bytes[2], bytes[3], "upper");
        require_pair(Pairs::even(sorted), bytes[0], bytes[2], "even");
        require_pair(Pairs::odd(sorted), bytes[1], bytes[3], "odd");
    }
    return 0;
}
