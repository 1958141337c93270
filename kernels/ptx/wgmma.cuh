/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wgmma.cuh: matrix instructions of a warpgroup (four warps from a multiple of four on), PTX ISA 9.7.15 "wgmma". sm_90a alone.
 *
 * They run beside the threads that issue them: between wgmma_commit and wgmma_wait nobody touches accumulators or register operands.
 * All 128 threads call every function together.
 */
#pragma once

#include <cstdint>

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ != 900
#error "wgmma needs sm_90a"
#endif

namespace ptx {

/*
 * A B operand in shared memory, its k dimension in lines of 128 bytes: groups of 8 lines lie one behind the other, aligned to 1024 bytes,
 * and the 16-byte chunks of a line are permuted by its number (the copy engine's 128-byte swizzle). `address`: of the first line,
 * plus 32 bytes for every 16 elements of k.
 */
__device__ __forceinline__ uint64_t swizzled_operand(uint32_t address) {
    constexpr uint64_t swizzle_128_bytes = uint64_t{1} << 62, group_stride = uint64_t{1024 / 16} << 32,
                       unused = uint64_t{1} << 16;
    return swizzle_128_bytes | group_stride | unused | (address & 0x3ffffu) >> 4;
}

/*
 * Registers of each of a warpgroup's threads from here on, a multiple of 8; taking waits until others have given as many. PTX ISA
 * 9.7.19.5 "setmaxnreg".
 */
template <int registers>
__device__ __forceinline__ void give_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}
template <int registers>
__device__ __forceinline__ void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}

/* What this thread has written to registers is there for the instructions that follow. */
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/* All that was committed is done. */
__device__ __forceinline__ void wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory"); }
/* After wgmma_wait: what is computed from an accumulator stays behind the wait. */
template <int columns>
__device__ __forceinline__ void accumulator_is_ready(float (&d)[columns][4]) {
#pragma unroll
    for (int n = 0; n < columns; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
            asm volatile("" : "+f"(d[n][i])::"memory");
    }
}

/* The same number, which the compiler does not know: what is computed from it stays where it stands. */
__device__ __forceinline__ uint32_t computed_here(uint32_t value) {
    asm volatile("" : "+r"(value));
    return value;
}

/* What was written to shared memory, by this thread, is there for matrix instructions and copies, once they are told. PTX ISA 9.7.13.4. */
__device__ __forceinline__ void fence_async_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/*
 * d = a b, or += where it accumulates: 64x64, 64x16, 16x64. Warp w has rows 16 w to 16 w + 15 of d and a, spread over its lanes as
 * m16n8k16 has them; d[n]: columns 8 n to 8 n + 7.
 */
__device__ __forceinline__ void wgmma_m64n64k16_bf16(float (&d)[8][4], const uint32_t (&a)[4], uint64_t b, bool accumulates) {
    asm volatile("{\n"
                 ".reg .pred accumulates;\n"
                 "setp.ne.u32 accumulates, %37, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, "
                 "%8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, "
                 "%24, %25, %26, %27, %28, %29, %30, %31}, "
                 "{%32, %33, %34, %35}, %36, accumulates, 1, 1, 0;\n"
                 "}"
                 : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]), "+f"(d[1][1]), "+f"(d[1][2]),
                   "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]), "+f"(d[3][0]), "+f"(d[3][1]),
                   "+f"(d[3][2]), "+f"(d[3][3]), "+f"(d[4][0]), "+f"(d[4][1]), "+f"(d[4][2]), "+f"(d[4][3]), "+f"(d[5][0]),
                   "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]), "+f"(d[6][0]), "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]),
                   "+f"(d[7][0]), "+f"(d[7][1]), "+f"(d[7][2]), "+f"(d[7][3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulates ? 1u : 0u)
                 : "memory");
}

__device__ __forceinline__ void wgmma_m64n64k16_fp16(float (&d)[8][4], const uint32_t (&a)[4], uint64_t b, bool accumulates) {
    asm volatile("{\n"
                 ".reg .pred accumulates;\n"
                 "setp.ne.u32 accumulates, %37, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, "
                 "%8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, "
                 "%24, %25, %26, %27, %28, %29, %30, %31}, "
                 "{%32, %33, %34, %35}, %36, accumulates, 1, 1, 0;\n"
                 "}"
                 : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]), "+f"(d[1][1]), "+f"(d[1][2]),
                   "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]), "+f"(d[3][0]), "+f"(d[3][1]),
                   "+f"(d[3][2]), "+f"(d[3][3]), "+f"(d[4][0]), "+f"(d[4][1]), "+f"(d[4][2]), "+f"(d[4][3]), "+f"(d[5][0]),
                   "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]), "+f"(d[6][0]), "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]),
                   "+f"(d[7][0]), "+f"(d[7][1]), "+f"(d[7][2]), "+f"(d[7][3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulates ? 1u : 0u)
                 : "memory");
}

} // namespace ptx
