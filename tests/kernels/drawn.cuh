/* SPDX-License-Identifier: Apache-2.0 */
/* drawn.cuh: what tests of the schedule draw of their batches, each by its number, and what they require of it. */
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "abi.h"

namespace {

constexpr int row_tile = 8, most_workers = 12;

std::mt19937 generator;
int below(int end) { return static_cast<int>(generator() % static_cast<unsigned>(end)); }

#define REQUIRE(condition)                                                                                                       \
    do {                                                                                                                         \
        if (!(condition)) {                                                                                                      \
            std::printf("%s:%d: batch %d: not so: %s\n", __FILE__, __LINE__, batch_number, #condition);                          \
            std::exit(1);                                                                                                        \
        }                                                                                                                        \
    } while (false)
int batch_number;

libdecode_divisor divisor(int value) { return {static_cast<uint32_t>(value), UINT32_MAX / static_cast<uint32_t>(value)}; }

int drawn_length(int q_len) {
    switch (below(6)) {
    case 0:
        return below(q_len + 2);
    case 1:
        return 16 * below(20);
    case 2:
        return -1 - below(3);
    default:
        return below(700);
    }
}

/* Some fill several of the windows in which sequences are counted, and some more windows than a warp has lanes. */
int drawn_requests() {
    if (batch_number % 25 == 8)
        return (batch_number % 2 == 0 ? 65 : 2049) + below(300);
    return 1 + below(below(5) == 0 ? 90 : 12);
}

} // namespace
