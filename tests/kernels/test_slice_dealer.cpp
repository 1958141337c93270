/* SPDX-License-Identifier: Apache-2.0 */
/* Workers that share a unit (kernels/pipeline/slice_dealer.cuh): every slice is taken once, by who sees all parts; the count ends with zero. */
#include "played/device.cuh"

#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "pipeline/slice_dealer.cuh"

extern __shared__ __align__(1024) uint8_t shared_memory[];

namespace {

constexpr unsigned most_workers = 12, most_slices = 8, threads = 64;

struct Unit {
    pipeline::SliceCounts counts{};
    std::atomic<int> parts[most_workers]{}, taken[most_slices]{};
    std::atomic<int> unseen{0}, takers{0};
};

void require(bool condition, const char *what, unsigned workers, unsigned slices, uint64_t seed) {
    if (condition)
        return;
    std::fprintf(stderr, "%s: %u workers, %u slices, seed %llu\n", what, workers, slices, static_cast<unsigned long long>(seed));
    std::exit(1);
}

/* `waiting`: a bit for each worker that has nothing else to do. */
void share(unsigned workers, unsigned slices, uint32_t waiting, uint64_t seed) {
    Unit unit;
    for (int launch = 0; launch < 2; ++launch) {
        for (auto &part : unit.parts)
            part = 0;
        for (auto &taken : unit.taken)
            taken = 0;
        unit.takers = 0;
        played::run_grid(workers, 1, threads, 256, seed + static_cast<uint64_t>(launch), [&] {
            auto &word = *reinterpret_cast<uint32_t *>(shared_memory);
            unit.parts[blockIdx.x] += 1; /* a thread's share of the part */
            pipeline::SliceDealer dealer(unit.counts, workers, slices, word, threadIdx.x == 0, [] { __syncthreads(); });
            dealer.arrive((waiting >> blockIdx.x & 1u) != 0);
            bool has_taken = false;
            for (uint32_t slice = dealer.take(); slice < slices; slice = dealer.take()) {
                for (unsigned worker = 0; worker < workers; ++worker)
                    unit.unseen += unit.parts[worker] != static_cast<int>(threads);
                if (threadIdx.x == 0) {
                    unit.taken[slice] += 1;
                    unit.takers += !has_taken;
                    has_taken = true;
                }
                dealer.ask();
            }
        });
        require(unit.counts.word == 0, "the count is not zero", workers, slices, seed);
        require(unit.unseen == 0, "a part was not there", workers, slices, seed);
        for (unsigned slice = 0; slice < slices; ++slice)
            require(unit.taken[slice] == 1, "a slice was taken twice, or by nobody", workers, slices, seed);
        require(waiting != 0 || unit.takers >= 1, "nobody took a slice", workers, slices, seed);
    }
}

} // namespace

int main() {
    uint64_t seed = 1;
    for (unsigned workers = 2; workers <= most_workers; ++workers) {
        for (unsigned slices = 1; slices <= most_slices; slices += 3) {
            for (const uint32_t waiting : {0u, 1u, 0x555u, 0xffeu, 0xfffu}) {
                share(workers, slices, waiting, seed);
                seed += 2;
            }
        }
    }
    return 0;
}
