/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host_warp.h: a warp on the processor, a thread for every lane, so that device code of kernels/pipeline/ that computes no more than
 * integers runs as it stands: the names that nvcc knows without a header. Include it before that code.
 */
#ifndef LIBDECODE_HOST_WARP_H
#define LIBDECODE_HOST_WARP_H

#include <barrier>
#include <bit>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#define __device__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))

#define WARP_LANES 32

struct lane_index {
    unsigned x;
};
inline thread_local lane_index threadIdx = {0};
inline lane_index blockIdx = {0};

/* What the lanes hand to each other. */
inline std::barrier<> warp_barrier(WARP_LANES);
inline uint64_t warp_values[WARP_LANES];

template <class T>
T exchange(T value, unsigned source) {
    static_assert(sizeof value <= sizeof warp_values[0]);
    std::memcpy(&warp_values[threadIdx.x], &value, sizeof value);
    warp_barrier.arrive_and_wait();
    T received;
    std::memcpy(&received, &warp_values[source % WARP_LANES], sizeof received);
    warp_barrier.arrive_and_wait();
    return received;
}

template <class T, class Fold>
T fold_lanes(T value, Fold fold) {
    std::memcpy(&warp_values[threadIdx.x], &value, sizeof value);
    warp_barrier.arrive_and_wait();
    T folded, other;
    std::memcpy(&folded, &warp_values[0], sizeof folded);
    for (unsigned lane = 1; lane < WARP_LANES; lane++) {
        std::memcpy(&other, &warp_values[lane], sizeof other);
        folded = fold(folded, other);
    }
    warp_barrier.arrive_and_wait();
    return folded;
}

template <class T>
T __shfl_sync(unsigned, T value, int source) {
    return exchange(value, static_cast<unsigned>(source));
}
template <class T>
T __shfl_up_sync(unsigned, T value, int distance) {
    const unsigned lane = threadIdx.x, steps = static_cast<unsigned>(distance);
    return exchange(value, lane >= steps ? lane - steps : lane);
}
inline unsigned __reduce_or_sync(unsigned, unsigned value) {
    return fold_lanes(value, [](unsigned a, unsigned b) { return a | b; });
}
inline unsigned __reduce_add_sync(unsigned, unsigned value) {
    return fold_lanes(value, [](unsigned a, unsigned b) { return a + b; });
}
inline int __reduce_max_sync(unsigned, int value) {
    return fold_lanes(value, [](int a, int b) { return a > b ? a : b; });
}
inline int __reduce_min_sync(unsigned, int value) {
    return fold_lanes(value, [](int a, int b) { return a < b ? a : b; });
}
inline unsigned __ballot_sync(unsigned, bool vote) { return __reduce_or_sync(0, vote ? 1u << threadIdx.x : 0u); }

inline int __popc(unsigned word) { return std::popcount(word); }
inline int __ffs(int word) { return __builtin_ffs(word); }
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
    const uint64_t bytes = static_cast<uint64_t>(b) << 32 | a;
    unsigned permuted = 0;
    for (unsigned byte = 0; byte < 4; byte++)
        permuted |= static_cast<unsigned>(bytes >> (selector >> byte * 4 & 7) * 8 & 0xff) << byte * 8;
    return permuted;
}
inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>(static_cast<uint64_t>(a) * b >> 32); }

/* Of an int and an unsigned, as CUDA has them: both as unsigned. */
inline int max(int a, int b) { return a > b ? a : b; }
inline int min(int a, int b) { return a < b ? a : b; }
inline unsigned max(unsigned a, unsigned b) { return a > b ? a : b; }
inline unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
inline unsigned max(int a, unsigned b) { return max(static_cast<unsigned>(a), b); }
inline unsigned max(unsigned a, int b) { return max(a, static_cast<unsigned>(b)); }
inline unsigned min(int a, unsigned b) { return min(static_cast<unsigned>(a), b); }
inline unsigned min(unsigned a, int b) { return min(a, static_cast<unsigned>(b)); }

#define __isGlobal(pointer) true
#ifndef __clang__
#define __builtin_assume(condition) ((void)(condition))
#endif

/* Calls `lane_main` for all lanes at once. */
template <class LaneMain>
void run_warp(LaneMain lane_main) {
    std::vector<std::thread> lanes;
    for (unsigned lane = 0; lane < WARP_LANES; lane++)
        lanes.emplace_back([lane, &lane_main] {
            threadIdx.x = lane;
            lane_main(lane);
        });
    for (std::thread &lane : lanes)
        lane.join();
}

#endif
