/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_machine.cpp: the machine that plays kernels (played/device.cuh): what it computes where a kernel is right, and that it finds what is
 * wrong: threads that wait for ever, copies that nobody waited for, arrivals beyond a phase, lanes that part.
 */
#include "played/device.cuh"

#include <cstdio>
#include <cstdlib>
#include <sys/wait.h>
#include <unistd.h>

#include "ptx/async_copy.cuh"
#include "ptx/bulk_copy.cuh"
#include "ptx/cluster.cuh"
#include "ptx/matrix.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/memory.cuh"
#include "ptx/scalar.cuh"
#include "ptx/wgmma.cuh"

extern __shared__ __align__(1024) uint8_t shared_memory[];

namespace {

#define REQUIRE(condition)                                                                                                       \
    do {                                                                                                                         \
        if (!(condition)) {                                                                                                      \
            std::printf("line %d: %s\n", __LINE__, #condition);                                                                  \
            std::exit(1);                                                                                                        \
        }                                                                                                                        \
    } while (0)

void exchanges() {
    int sums[2] = {};
    float turned[32];
    played::run_grid(2, 1, 64, 1024, 3, [&] {
        const int lane = static_cast<int>(threadIdx.x % 32);
        const unsigned odd = __ballot_sync(~0u, lane % 2 != 0);
        REQUIRE(odd == 0xaaaaaaaau && __any_sync(~0u, lane == 7) && !__any_sync(~0u, false));
        REQUIRE(__shfl_up_sync(~0u, lane, 1) == std::max(lane - 1, 0) && __shfl_sync(~0u, lane, 5) == 5);
        const float other = __shfl_xor_sync(~0u, static_cast<float>(lane), 3);
        if (threadIdx.x < 32 && blockIdx.x == 0)
            turned[lane] = other;
        const unsigned total = __reduce_add_sync(~0u, static_cast<unsigned>(lane));
        __syncthreads();
        if (threadIdx.x == 40)
            sums[blockIdx.x] = static_cast<int>(total + blockIdx.x);
    });
    REQUIRE(sums[0] == 496 && sums[1] == 497 && turned[6] == 5.f);
}

/* Numbers that bf16 holds, and whose products and sums f32 holds. */
float number(int row, int column) { return static_cast<float>((row * 7 + column * 3) % 11 - 5); }
uint32_t pair_of(float low, float high) { return ptx::pack_bf16(low, high); }

/* a (16 x 16) times b (16 x 8) by ldmatrix and mma; by wgmma a (64 x 16) times b (16 x 64) from swizzled lines. */
void matrices() {
    played::run_grid(1, 1, 128, 32768, 5, [&] {
        const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
        auto *const rows = reinterpret_cast<uint16_t *>(shared_memory); /* 16 rows of 16, then b as 64 lines of 64, swizzled */
        uint8_t *const lines = shared_memory + 1024;
        if (thread < 16) {
            for (int column = 0; column < 16; ++column)
                rows[thread * 16 + column] = played::bf16_from_float(number(thread, column));
        }
        if (thread < 64) {
            for (int k = 0; k < 64; ++k) {
                const uint32_t place = static_cast<uint32_t>(thread * 128 + k * 2), chunk = place >> 7 & 7;
                const uint16_t bits = played::bf16_from_float(number(k, thread));
                std::memcpy(lines + (place ^ chunk << 4), &bits, 2);
            }
        }
        __syncthreads();
        uint32_t a[4];
        ptx::ldmatrix_x4(a, ptx::shared_address(&rows[(lane % 16) * 16 + lane / 16 * 8]));
        REQUIRE(a[1] == pair_of(number(lane / 4 + 8, lane % 4 * 2), number(lane / 4 + 8, lane % 4 * 2 + 1)));
        uint32_t b[2];
        for (int i = 0; i < 2; ++i)
            b[i] = pair_of(number(lane % 4 * 2 + i * 8, lane / 4), number(lane % 4 * 2 + 1 + i * 8, lane / 4));
        float c[4] = {1.f, 1.f, 1.f, 1.f};
        ptx::mma_m16n8k16_bf16(c, a, b);
        const auto product = [](int row, int column) {
            float sum = 0.f;
            for (int k = 0; k < 16; ++k)
                sum += number(row, k) * number(k, column);
            return sum;
        };
        for (int i = 0; i < 4; ++i)
            REQUIRE(c[i] == 1.f + product(lane / 4 + i / 2 * 8, lane % 4 * 2 + i % 2));
        const uint32_t turned = ptx::movmatrix_trans(pair_of(number(lane / 4, lane % 4 * 2), number(lane / 4, lane % 4 * 2 + 1)));
        REQUIRE(turned == pair_of(number(lane % 4 * 2, lane / 4), number(lane % 4 * 2 + 1, lane / 4)));
        /* Second slice of k: elements 16 to 31. */
        uint32_t wide_a[4];
        for (int i = 0; i < 4; ++i) {
            const int row = warp * 16 + lane / 4 + i % 2 * 8, k = 16 + lane % 4 * 2 + i / 2 * 8;
            wide_a[i] = pair_of(number(row, k), number(row, k + 1));
        }
        float d[8][4];
        ptx::wgmma_fence();
        ptx::wgmma_m64n64k16_bf16(d, wide_a, ptx::swizzled_operand(ptx::shared_address(lines) + 32), false);
        ptx::wgmma_commit();
        ptx::wgmma_wait();
        for (int n = 0; n < 8; ++n) {
            for (int i = 0; i < 4; ++i) {
                float sum = 0.f;
                for (int k = 16; k < 32; ++k)
                    sum += number(warp * 16 + lane / 4 + i / 2 * 8, k) * number(k, n * 8 + lane % 4 * 2 + i % 2);
                REQUIRE(d[n][i] == sum);
            }
        }
        /* e4m3: a and b as 64 lines of 64 bytes each, of which the second half is multiplied. */
        __syncthreads();
        for (int place = thread; place < 2 * 64 * 64; place += 128) {
            const int row = place / 64 % 64, k = place % 64;
            const uint32_t at = static_cast<uint32_t>(place), chunk = at >> 7 & 3;
            lines[at ^ chunk << 4] = played::e4m3_from_float(place < 64 * 64 ? number(row, k) : number(k, row));
        }
        __syncthreads();
        const uint32_t bytes = ptx::shared_address(lines) + 32;
        ptx::wgmma_fence();
        ptx::wgmma_m64n64k32_e4m3(d, ptx::short_swizzled_operand(bytes), ptx::short_swizzled_operand(bytes + 64 * 64), true);
        ptx::wgmma_commit();
        ptx::wgmma_wait();
        for (int n = 0; n < 8; ++n) {
            for (int i = 0; i < 4; ++i) {
                const int row = warp * 16 + lane / 4 + i / 2 * 8, column = n * 8 + lane % 4 * 2 + i % 2;
                float sum = 0.f;
                for (int k = 16; k < 32; ++k)
                    sum += number(row, k) * number(k, column);
                for (int k = 32; k < 64; ++k)
                    sum += number(row, k) * number(k, column);
                REQUIRE(d[n][i] == sum);
            }
        }
    });
}

/* Every number of e4m3 and fp16 and back, and what lies between two of them. */
void numbers() {
    for (uint32_t bits = 0; bits < 0x7c00; ++bits) {
        const auto at = [](uint32_t word) { return played::float_from_fp16(static_cast<uint16_t>(word)); };
        const float value = at(bits), next = bits == 0x7bff ? 65536.f : at(bits + 1);
        REQUIRE(played::fp16_from_float(value) == bits && played::fp16_from_float(-value) == (bits | 0x8000));
        REQUIRE(played::fp16_from_float((value + next) / 2) == bits + bits % 2 && value < next);
    }
    REQUIRE(played::float_from_fp16(0x3555) == 0x1.554p-2f && played::float_from_fp16(0xfc00) == -INFINITY);
    REQUIRE(played::fp16_from_float(1e9f) == 0x7c00 && std::isnan(played::float_from_fp16(0x7fff)));
    for (int bits = 0; bits < 256; ++bits) {
        const float value = played::float_from_e4m3(static_cast<uint8_t>(bits));
        REQUIRE(std::isnan(value) ? (bits & 0x7f) == 0x7f : played::e4m3_from_float(value) == bits);
        if ((bits & 0x7f) < 0x7e) {
            const float next = played::float_from_e4m3(static_cast<uint8_t>(bits + 1)), middle = (value + next) / 2;
            REQUIRE(played::e4m3_from_float(middle) == bits + bits % 2);
        }
    }
    REQUIRE(played::e4m3_from_float(1e9f) == 0x7e && played::e4m3_from_float(-460.f) == 0xfe);
    REQUIRE(played::bf16_from_float(1.00390625f) == 0x3f80 && played::bf16_from_float(1.01171875f) == 0x3f82);
}

/* A box of a tensor in a corner: what lies outside is zero; then a copy that the other CTA of a cluster waits for. */
void copies() {
    alignas(16) uint16_t tensor[3][4][32]; /* page, token, element */
    for (int row = 0; row < 12; ++row)
        for (int i = 0; i < 32; ++i)
            tensor[row / 4][row % 4][i] = static_cast<uint16_t>(row * 32 + i);
    played_tensor_map map = {.address = reinterpret_cast<uintptr_t>(tensor),
                             .dims = {32, 4, 1, 1, 3},
                             .strides_bytes = {64, 64, 256, 256},
                             .box = {32, 8, 1, 1, 1},
                             .element_bytes = 2,
                             .swizzle_bytes = 64};
    for (uint64_t seed = 0; seed < 10; ++seed) {
        played::run_grid(4, 2, 32, 4096, seed, [&] {
            const uint32_t barrier = ptx::shared_address(shared_memory + 1024), tile = ptx::shared_address(shared_memory);
            if (threadIdx.x == 0) {
                ptx::mbarrier_init(barrier, 1);
                ptx::mbarrier_init(barrier + 8, 1);
            }
            __syncthreads();
            ptx::cluster_arrive_relaxed();
            ptx::cluster_wait();
            if (threadIdx.x == 0) {
                ptx::mbarrier_arrive_expect_tx(barrier, 512);
                ptx::copy_tensor_5d(tile, &map, 0, 2, 0, 0, 1, barrier);
                ptx::mbarrier_arrive_expect_tx(barrier + 8, 8);
            }
            while (!ptx::mbarrier_try_wait(barrier, 0)) {
            }
            const auto at = [](int token, uint32_t element) {
                const uint32_t place = static_cast<uint32_t>(token) * 64 + element * 2;
                uint16_t bits;
                std::memcpy(&bits, shared_memory + (place ^ (place >> 7 & 3) << 4), 2);
                return bits;
            };
            REQUIRE(at(0, threadIdx.x) == tensor[1][2][threadIdx.x] && at(1, threadIdx.x) == tensor[1][3][threadIdx.x]);
            REQUIRE(at(2, threadIdx.x) == 0 && at(7, threadIdx.x) == 0);
            const uint32_t rank = ptx::cluster_rank();
            if (threadIdx.x == 0)
                ptx::store_async(ptx::map_shared_rank(ptx::shared_address(shared_memory + 2048), rank ^ 1),
                                 {static_cast<float>(rank), 7.f}, ptx::map_shared_rank(barrier + 8, rank ^ 1));
            while (!ptx::mbarrier_try_wait_cluster(barrier + 8, 0)) {
            }
            float words[2];
            std::memcpy(words, shared_memory + 2048, 8);
            REQUIRE(words[0] == static_cast<float>(rank ^ 1) && words[1] == 7.f);
        });
    }
}

/* How a process ends that runs this on its own, and says why. */
template <class ThreadMain>
bool is_stopped(unsigned threads, const char *why, ThreadMain thread_main) {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        played::patience_seconds = 0.2;
        played::run_grid(1, 1, threads, 4096, 1, thread_main);
        _exit(0);
    }
    close(ends[1]);
    char text[4096] = {};
    for (size_t length = 0; length < sizeof text - 1;) {
        const ssize_t got = read(ends[0], text + length, sizeof text - 1 - length);
        if (got <= 0)
            break;
        length += static_cast<size_t>(got);
    }
    close(ends[0]);
    int status;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) && std::strstr(text, why) != nullptr;
}

void faults() {
    REQUIRE(is_stopped(64, "no thread can go on", [] {
        if (threadIdx.x < 32)
            ptx::named_barrier<1, 64>();
    }));
    REQUIRE(is_stopped(32, "more arrivals", [] {
        const uint32_t barrier = ptx::shared_address(shared_memory);
        if (threadIdx.x != 0)
            return;
        ptx::mbarrier_init(barrier, 1);
        ptx::mbarrier_arrive_expect_tx(barrier, 16);
        ptx::mbarrier_arrive(barrier);
    }));
    REQUIRE(is_stopped(32, "different functions", [] {
        if (threadIdx.x == 3)
            __syncwarp();
        else
            (void)__shfl_sync(~0u, 1, 0);
    }));
    REQUIRE(is_stopped(32, "outside shared memory", [] { ptx::store_shared(ptx::shared_address(shared_memory) + 4096, 1); }));
    /* A copy that nobody waits for is seen to be late, sooner or later. */
    alignas(16) static const uint8_t source[16] = {};
    int late = 0;
    for (uint64_t seed = 0; seed < 20; ++seed) {
        played::run_grid(1, 1, 32, 4096, seed, [&] {
            const uint32_t to = ptx::shared_address(shared_memory) + threadIdx.x * 16;
            ptx::copy_async<16>(to, source, true);
            __syncwarp();
            uint32_t words[4];
            ptx::load_shared(words, to);
            __atomic_fetch_add(&late, words[0] != 0, __ATOMIC_RELAXED);
        });
    }
    REQUIRE(late > 0);
}

} // namespace

int main() {
    exchanges();
    matrices();
    numbers();
    copies();
    faults();
    return 0;
}
