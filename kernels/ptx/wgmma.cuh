/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wgmma.cuh: matrix instructions of a warpgroup (four warps from a multiple of four on), PTX ISA 9.7.15 "wgmma". sm_90a alone: for other
 * targets ptxas refuses a kernel that calls them.
 *
 * They run beside the threads that issue them: between wgmma_commit and wgmma_wait nobody touches accumulators or register operands.
 * All 128 threads call every function together.
 */
#pragma once

#include <cstdint>

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
/* The same where the groups lie elsewhere: `group_stride_bytes` from one to the next. */
__device__ __forceinline__ uint64_t swizzled_operand(uint32_t address, uint32_t group_stride_bytes) {
    constexpr uint32_t swizzle_128_bytes = 1u << 30, unused = 1u << 16;
    return uint64_t{swizzle_128_bytes | group_stride_bytes / 16} << 32 | unused | (address & 0x3ffffu) >> 4;
}

/*
 * The same in lines of 64 bytes: groups of 8 are 512 bytes, and aligned to as many. Of 8-bit elements `address` goes on by 32 bytes for every 32 of
 * k.
 */
__device__ __forceinline__ uint64_t short_swizzled_operand(uint32_t address) {
    constexpr uint64_t swizzle_64_bytes = uint64_t{2} << 62, group_stride = uint64_t{512 / 16} << 32, unused = uint64_t{1} << 16;
    return swizzle_64_bytes | group_stride | unused | (address & 0x3ffffu) >> 4;
}

/*
 * A B operand whose other dimension lies in lines of 128 bytes, 64 elements each: [line][k][128 bytes], swizzled as above. `address`: of
 * the first line, plus 128 bytes for every element of k, a multiple of 16 of them; `line_stride_bytes`: from one line to the next.
 */
template <uint32_t line_stride_bytes>
__device__ __forceinline__ uint64_t transposed_operand(uint32_t address) {
    constexpr uint64_t swizzle_128_bytes = uint64_t{1} << 62, group_stride = uint64_t{1024 / 16} << 32,
                       line_stride = uint64_t{line_stride_bytes / 16} << 16;
    return swizzle_128_bytes | group_stride | line_stride | (address & 0x3ffffu) >> 4;
}

/* The same where groups of 8 elements of k lie elsewhere: `group_stride_bytes` from one to the next. */
__device__ __forceinline__ uint64_t transposed_operand(uint32_t address, uint32_t line_stride_bytes,
                                                       uint32_t group_stride_bytes) {
    constexpr uint32_t swizzle_128_bytes = 1u << 30;
    const uint32_t low = line_stride_bytes / 16 << 16 | (address & 0x3ffffu) >> 4;
    return uint64_t{swizzle_128_bytes | group_stride_bytes / 16} << 32 | low;
}

/* The operand that lies `bytes` behind this one, a multiple of 16: one addition, where the operand of an address takes a chain of five. */
__device__ __forceinline__ uint64_t operand_behind(uint64_t operand, uint32_t bytes) {
    const uint32_t high = static_cast<uint32_t>(operand >> 32), low = static_cast<uint32_t>(operand) + bytes / 16;
    return uint64_t{high} << 32 | low; /* addresses of shared memory have 18 bits: nothing is carried */
}

/* What this thread has written to registers is there for the instructions that follow. */
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/* All that was committed is done, but for the newest `groups` commits. */
template <int groups>
__device__ __forceinline__ void wgmma_wait_but() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(groups) : "memory");
}
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

/* The same operand, of whose address the compiler does not know how it came about: to go on from it is one addition. */
__device__ __forceinline__ uint64_t operand_computed_here(uint64_t operand) {
    return operand >> 32 << 32 | computed_here(static_cast<uint32_t>(operand));
}

/*
 * The same number, which all lanes have, as the compiler knows then: operands of matrix instructions are computed from it in uniform registers, not
 * in those of a lane, from which each would go there by itself.
 */
__device__ __forceinline__ uint32_t alike_in_warp(uint32_t value) { return __shfl_sync(0xffffffffu, value, 0); }

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

/*
 * The same where a, too, lies in shared memory, a swizzled_operand of 64 lines; and 64x64, 64x16, 16x128 with b as a transposed_operand.
 * What the instructions of one shape have in common, but for the types of the elements, stands here once.
 */
#define PTX_FOUR(d, n) "+f"(d[n][0]), "+f"(d[n][1]), "+f"(d[n][2]), "+f"(d[n][3])
#define PTX_SIXTEEN(d, n) PTX_FOUR(d, n), PTX_FOUR(d, (n) + 1), PTX_FOUR(d, (n) + 2), PTX_FOUR(d, (n) + 3)
#define PTX_REGISTERS_32                                                                                                         \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                                                     \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define PTX_REGISTERS_64                                                                                                         \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                                                     \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "                                           \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "                                           \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"

#define PTX_WGMMA_N32(types)                                                                                                     \
    asm volatile("{\n"                                                                                                           \
                 ".reg .pred accumulates;\n"                                                                                     \
                 "setp.ne.u32 accumulates, %21, 0;\n"                                                                            \
                 "wgmma.mma_async.sync.aligned.m64n32k16.f32." types                                                             \
                 " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "                                     \
                 "{%16, %17, %18, %19}, %20, accumulates, 1, 1, 0;\n}"                                                           \
                 : PTX_FOUR(d, first), PTX_FOUR(d, first + 2), PTX_FOUR(d, first + 4), PTX_FOUR(d, first + 6)                    \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulates ? 1u : 0u)                                \
                 : "memory")
#define PTX_WGMMA_N64_TRANSPOSED(types)                                                                                          \
    asm volatile("{\n"                                                                                                           \
                 ".reg .pred accumulates;\n"                                                                                     \
                 "setp.ne.u32 accumulates, 1, 0;\n"                                                                              \
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32." types " {" PTX_REGISTERS_32                                       \
                 "}, {%32, %33, %34, %35}, %36, accumulates, 1, 1, 1;\n}"                                                        \
                 : PTX_SIXTEEN(d, 0), PTX_SIXTEEN(d, 4)                                                                          \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)                                                            \
                 : "memory")
#define PTX_WGMMA_N64_SHARED_TRANSPOSED(types)                                                                                   \
    asm volatile("{\n"                                                                                                           \
                 ".reg .pred accumulates;\n"                                                                                     \
                 "setp.ne.u32 accumulates, 1, 0;\n"                                                                              \
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32." types " {" PTX_REGISTERS_32                                       \
                 "}, %32, %33, accumulates, 1, 1, 0, 1;\n}"                                                                      \
                 : PTX_SIXTEEN(d, 0), PTX_SIXTEEN(d, 4)                                                                          \
                 : "l"(a), "l"(b)                                                                                                \
                 : "memory")
#define PTX_WGMMA_N64(types)                                                                                                     \
    asm volatile("{\n"                                                                                                           \
                 ".reg .pred accumulates;\n"                                                                                     \
                 "setp.ne.u32 accumulates, %34, 0;\n"                                                                            \
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32." types " {" PTX_REGISTERS_32 "}, %32, %33, accumulates, 1, 1, 0, " \
                 "0;\n}"                                                                                                         \
                 : PTX_SIXTEEN(d, 0), PTX_SIXTEEN(d, 4)                                                                          \
                 : "l"(a), "l"(b), "r"(accumulates ? 1u : 0u)                                                                    \
                 : "memory")
#define PTX_WGMMA_N64_BYTES(types)                                                                                               \
    asm volatile("{\n"                                                                                                           \
                 ".reg .pred accumulates;\n"                                                                                     \
                 "setp.ne.u32 accumulates, %34, 0;\n"                                                                            \
                 "wgmma.mma_async.sync.aligned.m64n64k32.f32." types " {" PTX_REGISTERS_32 "}, %32, %33, accumulates, 1, 1;\n}"  \
                 : PTX_SIXTEEN(d, 0), PTX_SIXTEEN(d, 4)                                                                          \
                 : "l"(a), "l"(b), "r"(accumulates ? 1u : 0u)                                                                    \
                 : "memory")
#define PTX_WGMMA_N16_BYTES(types)                                                                                               \
    asm volatile("{\n"                                                                                                           \
                 ".reg .pred accumulates;\n"                                                                                     \
                 "setp.ne.u32 accumulates, %10, 0;\n"                                                                            \
                 "wgmma.mma_async.sync.aligned.m64n16k32.f32." types                                                             \
                 " {%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9, accumulates, 1, 1;\n}"                                              \
                 : PTX_FOUR(d, 0), PTX_FOUR(d, 1)                                                                                \
                 : "l"(a), "l"(b), "r"(accumulates ? 1u : 0u)                                                                    \
                 : "memory")
#define PTX_WGMMA_N128(types)                                                                                                    \
    asm volatile("{\n"                                                                                                           \
                 ".reg .pred accumulates;\n"                                                                                     \
                 "setp.ne.u32 accumulates, 1, 0;\n"                                                                              \
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32." types " {" PTX_REGISTERS_64                                      \
                 "}, %64, %65, accumulates, 1, 1, 0, 1;\n}"                                                                      \
                 : PTX_SIXTEEN(d, 0), PTX_SIXTEEN(d, 4), PTX_SIXTEEN(d, 8), PTX_SIXTEEN(d, 12)                                   \
                 : "l"(a), "l"(b)                                                                                                \
                 : "memory")
#define PTX_WGMMA_N128_REGISTERS(types)                                                                                          \
    asm volatile("{\n"                                                                                                           \
                 ".reg .pred accumulates;\n"                                                                                     \
                 "setp.ne.u32 accumulates, 1, 0;\n"                                                                              \
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32." types " {" PTX_REGISTERS_64                                      \
                 "}, {%64, %65, %66, %67}, %68, accumulates, 1, 1, 1;\n}"                                                        \
                 : PTX_SIXTEEN(d, 0), PTX_SIXTEEN(d, 4), PTX_SIXTEEN(d, 8), PTX_SIXTEEN(d, 12)                                   \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)                                                            \
                 : "memory")

__device__ __forceinline__ void wgmma_m64n64k16_bf16(float (&d)[8][4], uint64_t a, uint64_t b, bool accumulates) {
    PTX_WGMMA_N64("bf16.bf16");
}
__device__ __forceinline__ void wgmma_m64n64k16_fp16(float (&d)[8][4], uint64_t a, uint64_t b, bool accumulates) {
    PTX_WGMMA_N64("f16.f16");
}
/*
 * 64x64, 64x32, 32x64, both of short_swizzled_operand. Products are exact; what they add up to is cut to 14 bits at every instruction: of the
 * largest of the sum so far and the products.
 */
__device__ __forceinline__ void wgmma_m64n64k32_e4m3(float (&d)[8][4], uint64_t a, uint64_t b, bool accumulates) {
    PTX_WGMMA_N64_BYTES("e4m3.e4m3");
}
/* 64x16, 64x32, 32x16. */
__device__ __forceinline__ void wgmma_m64n16k32_e4m3(float (&d)[2][4], uint64_t a, uint64_t b, bool accumulates) {
    PTX_WGMMA_N16_BYTES("e4m3.e4m3");
}
/* d += a b. */
__device__ __forceinline__ void wgmma_m64n128k16_bf16(float (&d)[16][4], uint64_t a, uint64_t b) { PTX_WGMMA_N128("bf16.bf16"); }
__device__ __forceinline__ void wgmma_m64n128k16_fp16(float (&d)[16][4], uint64_t a, uint64_t b) { PTX_WGMMA_N128("f16.f16"); }
__device__ __forceinline__ void wgmma_m64n128k16_bf16(float (&d)[16][4], const uint32_t (&a)[4], uint64_t b) {
    PTX_WGMMA_N128_REGISTERS("bf16.bf16");
}
__device__ __forceinline__ void wgmma_m64n128k16_fp16(float (&d)[16][4], const uint32_t (&a)[4], uint64_t b) {
    PTX_WGMMA_N128_REGISTERS("f16.f16");
}

/* 64x32, 64x16, 16x32: to every second eight columns of d, from `first`, 0 or 1, on. */
template <int first>
__device__ __forceinline__ void wgmma_m64n32k16_bf16(float (&d)[8][4], const uint32_t (&a)[4], uint64_t b, bool accumulates) {
    PTX_WGMMA_N32("bf16.bf16");
}
template <int first>
__device__ __forceinline__ void wgmma_m64n32k16_fp16(float (&d)[8][4], const uint32_t (&a)[4], uint64_t b, bool accumulates) {
    PTX_WGMMA_N32("f16.f16");
}
/* d += a b, 64x64, 64x16, 16x64, b a transposed_operand; a, too, in shared memory, or not. */
__device__ __forceinline__ void wgmma_m64n64k16_bf16_transposed(float (&d)[8][4], uint64_t a, uint64_t b) {
    PTX_WGMMA_N64_SHARED_TRANSPOSED("bf16.bf16");
}
__device__ __forceinline__ void wgmma_m64n64k16_fp16_transposed(float (&d)[8][4], uint64_t a, uint64_t b) {
    PTX_WGMMA_N64_SHARED_TRANSPOSED("f16.f16");
}
__device__ __forceinline__ void wgmma_m64n64k16_bf16_transposed(float (&d)[8][4], const uint32_t (&a)[4], uint64_t b) {
    PTX_WGMMA_N64_TRANSPOSED("bf16.bf16");
}
__device__ __forceinline__ void wgmma_m64n64k16_fp16_transposed(float (&d)[8][4], const uint32_t (&a)[4], uint64_t b) {
    PTX_WGMMA_N64_TRANSPOSED("f16.f16");
}

#undef PTX_FOUR
#undef PTX_SIXTEEN
#undef PTX_REGISTERS_32
#undef PTX_REGISTERS_64
#undef PTX_WGMMA_N32
#undef PTX_WGMMA_N64
#undef PTX_WGMMA_N64_TRANSPOSED
#undef PTX_WGMMA_N64_BYTES
#undef PTX_WGMMA_N16_BYTES
#undef PTX_WGMMA_N128
#undef PTX_WGMMA_N128_REGISTERS

} // namespace ptx
