/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device.cuh: kernels on the processor: the names that nvcc knows without a header, for host compilers. Include it before device code, and
 * let the compiler find played/ before kernels/, so that ptx/ is the one beside this file.
 *
 * Every thread of a CTA is a fiber: it runs until it waits (for its warp, a barrier, a copy) and then hands over to the next. A CTA is
 * one thread of this process, and its shared memory that thread's. What a GPU does beside its threads (copies, matrix instructions of
 * warpgroups) is done at a time that chance picks, between the earliest and the latest that the hardware allows, so that a kernel that
 * does not wait for it gives wrong results here, too; so is the order of the warps. A kernel that cannot go on is told apart: what every
 * thread waits for is printed.
 *
 * Not played: the order of memory accesses (a missing fence finds nobody out), time, and the rounding of approximations.
 */
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>

#define __device__
#define __global__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __shared__ thread_local

using std::isnan;

struct played_index {
    unsigned x;
};
inline thread_local played_index threadIdx, blockIdx, gridDim;

struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

/* --------------------------------------------------------------------------------------------------------- the machinery */

namespace played {

constexpr int lanes = 32;
constexpr uint32_t shared_window = 1024; /* where the shared memory of a CTA begins: 0 is no address of it */

/* For so long nothing may move in a CTA: then it is stopped. */
extern double patience_seconds;

/* Whether an address is in memory of the device; NULL: nobody knows. */
extern int (*is_allocated)(const void *address);

/* Ends the process, and says where every thread of this CTA stands. */
[[noreturn]] void stop(const char *why);

/* By those lanes of a warp that the mask names; the last one to come calls `act` with what each has brought, then all go on. */
void warp_meets(const char *what, uint32_t mask, void *own, void (*act)(void *(&of_lanes)[lanes], uint32_t mask));
constexpr uint32_t all_lanes = ~0u;

/* bar.sync and its kin. `threads`: 0 for all of the CTA. Returns whether one of the threads said yes. */
bool barrier_meets(int id, int threads, bool condition);
void barrier_arrives(int id, int threads);

/* Lets the other threads run. */
void pause();

uint32_t shared_address(const void *pointer);
/* Of this CTA's window or, from map_shared_rank, another's of its cluster. */
void *shared_pointer(uint32_t address, size_t bytes);
uint32_t cluster_rank();
uint32_t map_shared_rank(uint32_t address, uint32_t rank);
void cluster_arrives();
void cluster_waits();

void mbarrier_init(uint32_t barrier, uint32_t arrivals);
void mbarrier_arrives(uint32_t barrier, uint32_t arrivals,
                      int64_t bytes); /* bytes: that are to come, or with a minus have come */
bool mbarrier_waits(uint32_t barrier, uint32_t parity);

/* Done some time from now on, by the scheduler; those of one thread with `ordered` in their order. */
void later(bool ordered, std::function<void()> act);
/* Does all that this thread has put off with `ordered`. */
void thread_waits_for_copies();
/* Matrix instructions of this warp: done some time from now on, or when the warp waits for them. */
void warp_later(std::function<void()> act);
void warp_waits_for_matrices();

/* A CTA for each of `grid`, `cluster` of them together, calls `thread_main` for each of its threads. */
void run_grid(unsigned grid, unsigned cluster, unsigned threads, unsigned shared_bytes, uint64_t seed,
              const std::function<void()> &thread_main);

/* ------------------------------------------------------------------------------------------------ exchanges within a warp */

template <class T>
struct Exchanged {
    T own, result;
    unsigned source;
};

/* Every lane's `result` from the values and sources of all. */
template <class T>
T exchange(const char *what, uint32_t mask, T own, unsigned source) {
    Exchanged<T> mine{own, own, source};
    warp_meets(what, mask, &mine, [](void *(&of_lanes)[lanes], uint32_t living) {
        for (int lane = 0; lane < lanes; ++lane) {
            if (!(living >> lane & 1))
                continue;
            auto &to = *static_cast<Exchanged<T> *>(of_lanes[lane]);
            if (living >> to.source & 1)
                to.result = static_cast<const Exchanged<T> *>(of_lanes[to.source])->own;
        }
    });
    return mine.result;
}

template <class T, class Fold>
T fold(const char *what, uint32_t mask, T own, Fold) {
    Exchanged<T> mine{own, own, 0};
    warp_meets(what, mask, &mine, [](void *(&of_lanes)[lanes], uint32_t living) {
        const int first = std::countr_zero(living);
        T folded = static_cast<const Exchanged<T> *>(of_lanes[first])->own;
        for (int lane = first + 1; lane < lanes; ++lane)
            if (living >> lane & 1)
                folded = Fold{}(folded, static_cast<const Exchanged<T> *>(of_lanes[lane])->own);
        for (int lane = 0; lane < lanes; ++lane)
            if (living >> lane & 1)
                static_cast<Exchanged<T> *>(of_lanes[lane])->result = folded;
    });
    return mine.result;
}

inline unsigned lane() { return threadIdx.x % lanes; }

struct Or {
    unsigned operator()(unsigned a, unsigned b) const { return a | b; }
};
struct Add {
    unsigned operator()(unsigned a, unsigned b) const { return a + b; }
};
struct Largest {
    int operator()(int a, int b) const { return a > b ? a : b; }
};
struct Smallest {
    int operator()(int a, int b) const { return a < b ? a : b; }
};

} // namespace played

/* ----------------------------------------------------------------------------------------------------------- CUDA's names */

template <class T>
T __shfl_sync(unsigned mask, T value, int source) {
    return played::exchange("shfl", mask, value, static_cast<unsigned>(source) % played::lanes);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits) {
    return played::exchange("shfl.bfly", mask, value, (played::lane() ^ static_cast<unsigned>(bits)) % played::lanes);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, int distance) {
    const unsigned lane = played::lane(), steps = static_cast<unsigned>(distance);
    return played::exchange("shfl.up", mask, value, lane >= steps ? lane - steps : lane);
}
inline unsigned __reduce_or_sync(unsigned mask, unsigned value) { return played::fold("redux.or", mask, value, played::Or{}); }
inline unsigned __reduce_add_sync(unsigned mask, unsigned value) { return played::fold("redux.add", mask, value, played::Add{}); }
inline int __reduce_max_sync(unsigned mask, int value) { return played::fold("redux.max", mask, value, played::Largest{}); }
inline int __reduce_min_sync(unsigned mask, int value) { return played::fold("redux.min", mask, value, played::Smallest{}); }
inline unsigned __ballot_sync(unsigned mask, bool vote) {
    return played::fold("vote", mask, vote ? 1u << played::lane() : 0u, played::Or{});
}
inline bool __any_sync(unsigned mask, bool vote) { return __ballot_sync(mask, vote) != 0; }
inline void __syncwarp(unsigned mask = played::all_lanes) {
    int nothing = 0;
    played::warp_meets("bar.warp", mask, &nothing, [](void *(&)[played::lanes], uint32_t) {});
}
inline void __syncthreads() { played::barrier_meets(0, 0, false); }

inline int __popc(unsigned word) { return std::popcount(word); }
inline int __clz(int word) { return std::countl_zero(static_cast<unsigned>(word)); }
inline int __ffs(int word) { return __builtin_ffs(word); }
inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>(static_cast<uint64_t>(a) * b >> 32); }
inline unsigned __float_as_uint(float value) { return std::bit_cast<unsigned>(value); }
inline long long __double_as_longlong(double value) { return std::bit_cast<long long>(value); }
inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline void sincospif(float x, float *sine, float *cosine) {
    *sine = static_cast<float>(std::sin(x * 3.141592653589793));
    *cosine = static_cast<float>(std::cos(x * 3.141592653589793));
}
inline void __sincosf(float x, float *sine, float *cosine) {
    *sine = std::sin(x);
    *cosine = std::cos(x);
}
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
    const uint64_t bytes = static_cast<uint64_t>(b) << 32 | a;
    unsigned picked = 0;
    for (int i = 0; i < 4; ++i) {
        const unsigned digit = selector >> (i * 4) & 0xf;
        unsigned byte = bytes >> ((digit & 7) * 8) & 0xff;
        if (digit & 8)
            byte = byte & 0x80 ? 0xff : 0;
        picked |= byte << (i * 8);
    }
    return picked;
}
inline unsigned atomicOr(unsigned *address, unsigned bits) { return __atomic_fetch_or(address, bits, __ATOMIC_RELAXED); }
/* Of no clock: it goes on whenever somebody looks. */
inline long long clock64() {
    static thread_local long long looks;
    return looks += 1000;
}
[[noreturn]] inline void __trap() { played::stop("trap"); }

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
