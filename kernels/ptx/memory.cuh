/* SPDX-License-Identifier: Apache-2.0 */
/* memory.cuh: global memory across CTAs, shared memory by its address, named barriers, and the dependency on the preceding kernel. sm_90 and newer. */
#pragma once

#include <cstdint>

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#error "griddepcontrol needs sm_90"
#endif

namespace ptx {

/* Adds at the GPU's scope; orders no other access. PTX ISA 9.7.13.5 "atom". */
__device__ __forceinline__ uint32_t atomic_add(uint32_t *address, uint32_t value) {
    uint32_t before;
    asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(address), "r"(value) : "memory");
    return before;
}

/* As many as have been added so far. PTX ISA 9.7.9.8 "ld". */
__device__ __forceinline__ uint32_t load_count(const uint32_t *address) {
    uint32_t count;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(count) : "l"(address) : "memory");
    return count;
}

/* Stores `value` where there was `expected`; what there was. PTX ISA 9.7.13.5 "atom". */
__device__ __forceinline__ uint32_t compare_and_swap(uint32_t *address, uint32_t expected, uint32_t value) {
    uint32_t before;
    asm volatile("atom.relaxed.gpu.global.cas.b32 %0, [%1], %2, %3;"
                 : "=r"(before)
                 : "l"(address), "r"(expected), "r"(value)
                 : "memory");
    return before;
}

/*
 * What this thread has seen or done before, at the GPU's scope, was before what it does from here on, for all who know of that. PTX ISA
 * 9.7.13.4 "fence".
 */
__device__ __forceinline__ void fence_gpu() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

/* Words that CTAs of one launch hand to each other: at the GPU's scope, in no order with other accesses. PTX ISA 9.7.9.8 "ld". */
__device__ __forceinline__ void load_relaxed(float (&value)[1], const float *address) {
    asm volatile("ld.relaxed.gpu.global.f32 %0, [%1];" : "=f"(value[0]) : "l"(address) : "memory");
}
__device__ __forceinline__ void load_relaxed(float (&value)[2], const float *address) {
    asm volatile("ld.relaxed.gpu.global.v2.f32 {%0, %1}, [%2];" : "=f"(value[0]), "=f"(value[1]) : "l"(address) : "memory");
}
__device__ __forceinline__ void load_relaxed(float (&value)[4], const float *address) {
    asm volatile("ld.relaxed.gpu.global.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(value[0]), "=f"(value[1]), "=f"(value[2]), "=f"(value[3])
                 : "l"(address)
                 : "memory");
}
__device__ __forceinline__ void store_relaxed(float *address, const float (&value)[1]) {
    asm volatile("st.relaxed.gpu.global.f32 [%0], %1;" ::"l"(address), "f"(value[0]) : "memory");
}
__device__ __forceinline__ void store_relaxed(float *address, const float (&value)[2]) {
    asm volatile("st.relaxed.gpu.global.v2.f32 [%0], {%1, %2};" ::"l"(address), "f"(value[0]), "f"(value[1]) : "memory");
}
__device__ __forceinline__ void store_relaxed(float *address, const float (&value)[4]) {
    asm volatile("st.relaxed.gpu.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(address), "f"(value[0]), "f"(value[1]),
                 "f"(value[2]), "f"(value[3])
                 : "memory");
}

/* Asks for a line in the second cache; waits for nothing, and fails nowhere. PTX ISA 9.7.9.15 "prefetch". */
__device__ __forceinline__ void prefetch(const void *address) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(address) : "memory");
}
/* Likewise in the SM's own. */
__device__ __forceinline__ void prefetch_to_sm(const void *address) {
    asm volatile("prefetch.global.L1 [%0];" ::"l"(address) : "memory");
}

/*
 * 1, 2 or 4 bytes of global memory, aligned to as many, the others zero: where the address came from another lane, so that the compiler
 * does not know what memory it is of.
 */
template <int bytes>
__device__ __forceinline__ uint32_t load_global(const void *address) {
    static_assert(bytes == 1 || bytes == 2 || bytes == 4, "sizes of a load");
    uint32_t word;
    if constexpr (bytes == 1)
        asm volatile("ld.global.u8 %0, [%1];" : "=r"(word) : "l"(address) : "memory");
    else if constexpr (bytes == 2)
        asm volatile("{\n.reg .u16 half;\nld.global.u16 half, [%1];\ncvt.u32.u16 %0, half;\n}"
                     : "=r"(word)
                     : "l"(address)
                     : "memory");
    else
        asm volatile("ld.global.u32 %0, [%1];" : "=r"(word) : "l"(address) : "memory");
    return word;
}

/* Neighbouring words that are read once. PTX ISA 9.7.9.8 "ld". */
__device__ __forceinline__ void load_global(uint32_t &first, uint32_t &second, const void *address) {
    asm volatile("ld.global.L1::no_allocate.v2.u32 {%0, %1}, [%2];" : "=r"(first), "=r"(second) : "l"(address) : "memory");
}

/* Neighbouring words of shared memory, aligned to their size. */
__device__ __forceinline__ void load_shared(uint32_t (&words)[1], uint32_t address) {
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(words[0]) : "r"(address) : "memory");
}
__device__ __forceinline__ void load_shared(uint32_t (&words)[2], uint32_t address) {
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(words[0]), "=r"(words[1]) : "r"(address) : "memory");
}
__device__ __forceinline__ void load_shared(uint32_t (&words)[4], uint32_t address) {
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(address)
                 : "memory");
}
__device__ __forceinline__ void store_shared(uint32_t address, uint32_t word) {
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(word) : "memory");
}
__device__ __forceinline__ void store_shared(uint32_t address, const uint32_t (&words)[2]) {
    asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(address), "r"(words[0]), "r"(words[1]) : "memory");
}
__device__ __forceinline__ void store_shared(uint32_t address, const uint32_t (&words)[4]) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(words[0]), "r"(words[1]), "r"(words[2]),
                 "r"(words[3])
                 : "memory");
}
__device__ __forceinline__ uint32_t load_shared_byte(uint32_t address) {
    uint32_t byte;
    asm volatile("ld.shared.u8 %0, [%1];" : "=r"(byte) : "r"(address) : "memory");
    return byte;
}
__device__ __forceinline__ void store_shared_zeros(uint32_t address) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %1, %1, %1};" ::"r"(address), "r"(0u) : "memory");
}

/* Barrier `id` of this CTA among `threads` threads. PTX ISA 9.7.13.1 "bar". */
template <int id, int threads>
__device__ __forceinline__ void named_barrier() {
    asm volatile("bar.sync %0, %1;" ::"n"(id), "n"(threads) : "memory");
}

/* Likewise, of a number known at run time. */
template <int threads>
__device__ __forceinline__ void named_barrier(int id) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "n"(threads) : "memory");
}
/* Counts among those threads, and waits for nobody. */
template <int threads>
__device__ __forceinline__ void named_barrier_arrive(int id) {
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "n"(threads) : "memory");
}
/* And whether one of the threads said yes. */
template <int threads>
__device__ __forceinline__ bool named_barrier_any(int id, bool condition) {
    uint32_t any;
    asm volatile("{\n"
                 ".reg .pred own, all;\n"
                 "setp.ne.u32 own, %1, 0;\n"
                 "bar.red.or.pred all, %2, %3, own;\n"
                 "selp.u32 %0, 1, 0, all;\n"
                 "}"
                 : "=r"(any)
                 : "r"(condition ? 1u : 0u), "r"(id), "n"(threads)
                 : "memory");
    return any != 0;
}

/*
 * Programmatic dependent launch, PTX ISA 9.7.13.13 "griddepcontrol"; without the launch attribute it does nothing. The kernel ahead
 * has ended, and what it wrote is visible; a second time nothing is waited for.
 */
__device__ __forceinline__ void wait_for_preceding_kernel() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
/* Where bits are set nobody waits. No branch: behind one ptxas orders what follows otherwise, loops of MLA among it, which took 1 % longer. */
__device__ __forceinline__ void wait_for_preceding_kernel_unless(uint32_t bits) {
    asm volatile("{\n"
                 ".reg .pred none;\n"
                 "setp.eq.u32 none, %0, 0;\n"
                 "@none griddepcontrol.wait;\n"
                 "}" ::"r"(bits)
                 : "memory");
}
/* The kernel behind this one may begin where there is room, once one thread of every CTA has said so. */
__device__ __forceinline__ void let_next_kernel_begin() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

} // namespace ptx
