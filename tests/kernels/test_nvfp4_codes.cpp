/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_nvfp4_codes.cpp: the e2m1 codes that kernels make of a block, of every scale, against their definition: what lies around every border
 * between two codes, powers of two of all sizes, both zeros, infinity and NaN.
 */
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "played/device.cuh"

#include "tile/nvfp4_codes.cuh"

namespace {

/* Code c is values[c], and what lies in the middle is the even one's. */
constexpr double values[8] = {0, .5, 1, 1.5, 2, 3, 4, 6};

float scale_of(unsigned code) {
    const int exponent = static_cast<int>(code >> 3 & 15);
    const double fraction = (code & 7) / 8.;
    if ((code & 0x7f) == 0x7f)
        return std::nanf("");
    return static_cast<float>((code & 0x80 ? -1 : 1) *
                              (exponent == 0 ? std::ldexp(fraction, -6) : std::ldexp(1 + fraction, exponent - 7)));
}

unsigned expected(float value, float factor, float scale) {
    const float quotient = static_cast<float>(static_cast<double>(value * factor) / static_cast<double>(scale));
    if (std::isnan(quotient))
        return scale == 0 ? 0 : 7;
    if (scale == 0)
        return 0;
    unsigned code = 0;
    for (unsigned next = 1; next < 8; next++) {
        const double border = (values[next - 1] + values[next]) / 2, magnitude = std::fabs(static_cast<double>(quotient));
        if (magnitude > border || (magnitude == border && next % 2 == 0))
            code = next;
    }
    return code | (std::signbit(quotient) ? 8u : 0u);
}

void require_code(float value, float factor, float scale) {
    const unsigned made = tile::Nvfp4Codes(factor, scale).of(value), wanted = expected(value, factor, scale);
    if (made == wanted)
        return;
    std::printf("%a times %a over a scale of %a came as code %u, not %u\n", static_cast<double>(value),
                static_cast<double>(factor), static_cast<double>(scale), made, wanted);
    std::exit(1);
}

void require_both_signs(float magnitude, float factor, float scale) {
    require_code(magnitude, factor, scale);
    require_code(-magnitude, factor, scale);
}

} // namespace

int main() {
    if (expected(-1.25f, 2.f, 1.f) != 12 || expected(.75f, 1.f, 1.f) != 2 || expected(.25f, 1.f, 1.f) != 0)
        return 1; /* this test */
    for (unsigned code = 0; code < 256; code++) {
        const float scale = scale_of(code);
        for (const float magnitude : {1.f, .1f, 1e-30f, 3e20f, 448.f}) {
            const float factor = std::copysign(magnitude, scale); /* a scale has the sign of the factor that it was made with */
            for (unsigned next = 1; next < 8; next++) {
                float value = static_cast<float>((values[next - 1] + values[next]) / 2 * static_cast<double>(scale) /
                                                 static_cast<double>(factor));
                for (int step = 0; step < 40; step++)
                    value = std::nextafter(value, 0.f);
                for (int step = 0; step < 80; step++) {
                    require_both_signs(value, factor, scale);
                    value = std::nextafter(value, HUGE_VALF);
                }
            }
            for (int exponent = -149; exponent < 128; exponent++)
                for (const float fraction : {1.f, 1.1f, 1.5f, 1.99f})
                    require_both_signs(std::ldexp(fraction, exponent), factor, scale);
            require_both_signs(0.f, factor, scale);
            require_both_signs(HUGE_VALF, factor, scale);
        }
        require_code(std::nanf(""), 1.f, scale);
    }
    return 0;
}
