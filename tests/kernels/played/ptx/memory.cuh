/* SPDX-License-Identifier: Apache-2.0 */
/* memory.cuh: kernels/ptx/memory.cuh, played. */
#pragma once

#include "../device.cuh"

namespace ptx {

inline uint32_t atomic_add(uint32_t *address, uint32_t value) { return __atomic_fetch_add(address, value, __ATOMIC_SEQ_CST); }
/* Whoever asks again and again waits for others. */
inline uint32_t load_count(const uint32_t *address) {
    played::pause();
    return __atomic_load_n(address, __ATOMIC_SEQ_CST);
}
inline uint32_t compare_and_swap(uint32_t *address, uint32_t expected, uint32_t value) {
    played::pause(); /* others may come in between */
    __atomic_compare_exchange_n(address, &expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return expected;
}

inline void fence_gpu() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

/* Whoever finds a word that is not there yet asks again: the others must come to write it. */
template <int count>
void load_relaxed(float (&value)[count], const float *address) {
    bool is_complete = true;
    for (int i = 0; i < count; ++i) {
        value[i] = std::bit_cast<float>(__atomic_load_n(reinterpret_cast<const uint32_t *>(address) + i, __ATOMIC_SEQ_CST));
        is_complete = is_complete && std::bit_cast<uint32_t>(value[i]) != 0;
    }
    if (!is_complete)
        played::pause();
}
template <int count>
void store_relaxed(float *address, const float (&value)[count]) {
    for (int i = 0; i < count; ++i)
        __atomic_store_n(reinterpret_cast<uint32_t *>(address) + i, std::bit_cast<uint32_t>(value[i]), __ATOMIC_SEQ_CST);
}

/* Nothing fails on a GPU, but a line of unmapped memory takes some 40 us, for which all CTAs wait. */
inline void prefetch(const void *address) {
    if (played::is_allocated != nullptr && played::is_allocated(address) == 0)
        played::stop("a prefetch of memory that is not allocated");
}
inline void prefetch_to_sm(const void *address) { prefetch(address); }

template <int bytes>
uint32_t load_global(const void *address) {
    uint32_t word = 0;
    std::memcpy(&word, address, bytes);
    return word;
}
inline void load_global(uint32_t &first, uint32_t &second, const void *address) {
    first = load_global<4>(address);
    second = load_global<4>(static_cast<const uint8_t *>(address) + 4);
}

template <int count>
void load_shared(uint32_t (&words)[count], uint32_t address) {
    std::memcpy(words, played::shared_pointer(address, sizeof words), sizeof words);
}
inline void store_shared(uint32_t address, uint32_t word) {
    std::memcpy(played::shared_pointer(address, sizeof word), &word, sizeof word);
}
inline void store_shared(uint32_t address, const uint32_t (&words)[2]) {
    std::memcpy(played::shared_pointer(address, sizeof words), words, sizeof words);
}
inline void store_shared(uint32_t address, const uint32_t (&words)[4]) {
    std::memcpy(played::shared_pointer(address, sizeof words), words, sizeof words);
}
inline uint32_t load_shared_byte(uint32_t address) { return *static_cast<const uint8_t *>(played::shared_pointer(address, 1)); }
inline void store_shared_zeros(uint32_t address) { std::memset(played::shared_pointer(address, 16), 0, 16); }

template <int id, int threads>
void named_barrier() {
    played::barrier_meets(id, threads, false);
}
template <int threads>
void named_barrier(int id) {
    played::barrier_meets(id, threads, false);
}
template <int threads>
void named_barrier_arrive(int id) {
    played::barrier_arrives(id, threads);
}
template <int threads>
bool named_barrier_any(int id, bool condition) {
    return played::barrier_meets(id, threads, condition);
}

/* Launches follow one another. */
inline void wait_for_preceding_kernel() {}
inline void wait_for_preceding_kernel_unless(uint32_t) {}
inline void let_next_kernel_begin() {}

} // namespace ptx
