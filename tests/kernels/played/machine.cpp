/* SPDX-License-Identifier: Apache-2.0 */
/* machine.cpp: fibers, barriers, copies: what device.cuh declares. */
#include "device.cuh"

#include <csetjmp>
#include <ctime>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include <sched.h>
#include <sys/mman.h>
#include <ucontext.h>

/* The one name that kernels have for the shared memory that their launch asks for. */
alignas(1024) thread_local uint8_t shared_memory[232448];

namespace played {

double patience_seconds = 60;
int (*is_allocated)(const void *address);

namespace {

constexpr size_t stack_bytes = 128 * 1024;
constexpr int most_barriers = 16;

enum class Wait { nothing, warp, barrier, mbarrier, cluster };

struct Fiber {
    Wait wait = Wait::nothing;
    bool has_begun = false, is_done = false;
    uint32_t address = 0, parity = 0;   /* of the mbarrier that it waits for, */
    const uint64_t *mbarrier = nullptr; /* and where it lies */
    int barrier = 0;
    uint64_t generation = 0;         /* of the barrier that it waits for */
    uint64_t cluster_generation = 0; /* at its arrival */
    const char *what = "begin";
    uint8_t *stack = nullptr;
    std::deque<std::function<void()>> ordered;
    jmp_buf registers;
};

/* Lanes on their way to each other. */
struct Meeting {
    uint32_t mask = 0, arrived = 0;
    const char *what = nullptr;
    void *brought[lanes] = {};
};

struct Warp {
    uint32_t living = 0, waiting = 0; /* lanes; those of them that wait for others */
    std::vector<Meeting> meetings;    /* of one mask each; nobody may be at two */
    std::vector<std::function<void()>> matrices;
};

struct Barrier {
    int arrived = 0, threads = 0;
    uint64_t generation = 0;
    bool any = false, answer = false;
};

struct Cluster {
    unsigned size;
    std::vector<uint8_t *> memory; /* shared, of every rank */
    std::vector<std::mutex> locks; /* of the mbarriers of every rank */
    std::mutex lock;
    unsigned arrived = 0, begun = 0, ended = 0;
    uint64_t generation = 0;

    explicit Cluster(unsigned size) : size(size), memory(size), locks(size) {}
};

struct Cta {
    unsigned index, rank, threads;
    size_t shared_bytes;
    Cluster *cluster;
    const std::function<void()> *thread_main;
    std::vector<Fiber> fibers;
    std::vector<Warp> warps;
    Barrier barriers[most_barriers];
    std::vector<std::function<void()>> copies;
    size_t num_ordered = 0; /* copies of all fibers */
    std::mt19937_64 chance;
    unsigned haste; /* of copies: one in so many chances to arrive is taken; 0: none, as long as a thread can go on */
    jmp_buf scheduler;
    ucontext_t first_return; /* where fibers are made */
    unsigned current = 0;

    Warp &warp() { return warps[current / lanes]; }
    Fiber &fiber() { return fibers[current]; }
};

thread_local Cta *here;

bool one_in(unsigned n) { return here->chance() % n == 0; }

/* An mbarrier as it lies in shared memory, where it changes as one word: who waits for it looks often, and so without a lock. */
struct Mbarrier {
    uint64_t phase : 1, expected : 20, pending : 20, bytes : 23; /* bytes: that are to come, modulo 2^23 */
};
static_assert(sizeof(Mbarrier) == 8);

uint64_t *mbarrier_word(uint32_t address) { return static_cast<uint64_t *>(shared_pointer(address, sizeof(Mbarrier))); }

Mbarrier load_mbarrier(const uint64_t *word) { return std::bit_cast<Mbarrier>(__atomic_load_n(word, __ATOMIC_ACQUIRE)); }

template <class Act>
auto with_mbarrier(uint32_t address, Act act) {
    const uint32_t rank = address >> 24 ? (address >> 24) - 1 : here->rank;
    uint64_t *const word = mbarrier_word(address);
    std::lock_guard<std::mutex> guard(here->cluster->locks[rank]);
    Mbarrier barrier = load_mbarrier(word);
    const auto result = act(barrier);
    __atomic_store_n(word, std::bit_cast<uint64_t>(barrier), __ATOMIC_RELEASE);
    return result;
}

bool phase_is_over(const uint64_t *mbarrier, uint32_t parity) { return load_mbarrier(mbarrier).phase != (parity & 1); }

bool cluster_has_met(Cluster &cluster, const Fiber &fiber) {
    std::lock_guard<std::mutex> guard(cluster.lock);
    return cluster.generation != fiber.cluster_generation;
}

/* But for what its warp knows: whether it waits for other lanes. */
bool can_go_on(const Cta &cta, const Fiber &fiber) {
    switch (fiber.wait) {
    case Wait::barrier:
        return cta.barriers[fiber.barrier].generation != fiber.generation;
    case Wait::mbarrier:
        return phase_is_over(fiber.mbarrier, fiber.parity);
    case Wait::cluster:
        return cluster_has_met(*cta.cluster, fiber);
    default:
        return true;
    }
}

/* The fiber that runs hands over, and comes back when what it waits for is there. */
void hand_over(Wait wait, const char *what) {
    Fiber &fiber = here->fiber();
    fiber.wait = wait;
    fiber.what = what;
    if (_setjmp(fiber.registers) == 0)
        _longjmp(here->scheduler, 1);
}

void fiber_main() {
    (*here->thread_main)();
    Fiber &fiber = here->fiber();
    Warp &warp = here->warp();
    fiber.is_done = true;
    warp.living &= ~(1u << here->current % lanes);
    for (const Meeting &meeting : warp.meetings)
        if (meeting.arrived != 0 && (meeting.mask >> here->current % lanes & 1) != 0)
            stop("a lane leaves while others of its warp wait for it");
    _longjmp(here->scheduler, 1);
}

void run_fiber(Cta &cta, unsigned thread) {
    Fiber &fiber = cta.fibers[thread];
    cta.current = thread;
    threadIdx.x = thread;
    fiber.wait = Wait::nothing;
    if (_setjmp(cta.scheduler) != 0)
        return;
    if (fiber.has_begun)
        _longjmp(fiber.registers, 1);
    fiber.has_begun = true;
    ucontext_t context;
    getcontext(&context);
    context.uc_stack.ss_sp = fiber.stack;
    context.uc_stack.ss_size = stack_bytes;
    context.uc_link = nullptr;
    makecontext(&context, fiber_main, 0);
    setcontext(&context);
}

/* One of the copies that are on their way arrives. */
bool advance_copies() {
    if (!here->copies.empty() && one_in(2)) {
        const size_t pick = here->chance() % here->copies.size();
        std::swap(here->copies[pick], here->copies.back());
        const auto act = std::move(here->copies.back());
        here->copies.pop_back();
        act();
        return true;
    }
    for (unsigned tries = 0; tries < 4; ++tries) {
        Fiber &fiber = here->fibers[here->chance() % here->threads];
        if (fiber.ordered.empty())
            continue;
        const auto act = std::move(fiber.ordered.front());
        fiber.ordered.pop_front();
        --here->num_ordered;
        act();
        return true;
    }
    return false;
}

bool copies_are_left() { return !here->copies.empty() || here->num_ordered != 0; }

double seconds() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/* Up to eight times for every thread of a warp. Whether one has moved; `living` loses those that are done. */
bool run_warp(unsigned index, unsigned &living) {
    Cta &cta = *here;
    const Warp &warp = cta.warps[index];
    bool has_moved = false;
    for (unsigned rounds = static_cast<unsigned>(cta.chance() % 8);; --rounds) {
        bool warp_has_moved = false;
        uint32_t later = ~0u; /* lanes that have not had their turn in this round */
        while (const uint32_t left = warp.living & ~warp.waiting & later) {
            const unsigned lane = static_cast<unsigned>(std::countr_zero(left)), thread = index * lanes + lane;
            later = ~1u << lane;
            if (!can_go_on(cta, cta.fibers[thread]))
                continue;
            run_fiber(cta, thread);
            warp_has_moved = true;
            living -= cta.fibers[thread].is_done;
        }
        has_moved = has_moved || warp_has_moved;
        if (!warp_has_moved || rounds == 0)
            return has_moved;
    }
}

/* Every other CTA has a warp that is late: it moves when nothing else does, so what relies on it being on time does not find it there. */
void run_cta() {
    const unsigned warps = static_cast<unsigned>(here->warps.size());
    const unsigned late = one_in(2) ? static_cast<unsigned>(here->chance() % warps) : warps;
    unsigned living = here->threads;
    double since = 0;
    while (living > 0) {
        bool has_moved = false;
        const unsigned first = static_cast<unsigned>(here->chance() % warps);
        for (unsigned w = 0; w < warps; ++w) {
            const unsigned warp = (first + w) % warps;
            if (warp == late)
                continue;
            has_moved = run_warp(warp, living) || has_moved;
            if (here->haste != 0 && one_in(here->haste))
                has_moved = advance_copies() || has_moved;
        }
        if (!has_moved && copies_are_left())
            has_moved = advance_copies();
        else if (!has_moved && late < warps)
            has_moved = run_warp(late, living);
        if (has_moved) {
            since = 0;
        } else if (!copies_are_left()) { /* until another CTA has done its part */
            if (since == 0)
                since = seconds();
            else if (seconds() - since > patience_seconds)
                stop("no thread can go on");
            sched_yield();
        }
    }
    while (copies_are_left())
        (void)advance_copies();
}

/* Runs a CTA from its begin to its end, with those of its cluster. */
void run_one(unsigned index, unsigned threads, size_t shared_bytes, Cluster &cluster, uint64_t seed,
             const std::function<void()> &thread_main, uint8_t *stacks) {
    Cta cta{};
    cta.index = index;
    cta.rank = index % cluster.size;
    cta.threads = threads;
    cta.shared_bytes = shared_bytes;
    cta.cluster = &cluster;
    cta.thread_main = &thread_main;
    cta.fibers = std::vector<Fiber>(threads);
    cta.warps = std::vector<Warp>((threads + lanes - 1) / lanes);
    cta.chance.seed(seed * 1000003 + index);
    cta.haste = static_cast<unsigned>(cta.chance() % 3) * 2;
    for (unsigned thread = 0; thread < threads; ++thread) {
        cta.fibers[thread].stack = stacks + thread * stack_bytes;
        cta.warps[thread / lanes].living |= 1u << thread % lanes;
    }
    here = &cta;
    blockIdx.x = index;
    std::memset(shared_memory, 0xff, sizeof shared_memory); /* NaN in every format */
    {
        std::lock_guard<std::mutex> guard(cluster.lock);
        cluster.memory[cta.rank] = shared_memory;
        ++cluster.begun;
    }
    const auto count = [&](unsigned Cluster::*counter) {
        std::lock_guard<std::mutex> guard(cluster.lock);
        return cluster.*counter;
    };
    while (count(&Cluster::begun) < cluster.size)
        sched_yield();
    run_cta();
    {
        std::lock_guard<std::mutex> guard(cluster.lock);
        ++cluster.ended;
    }
    while (count(&Cluster::ended) < cluster.size) /* others may still write into this one's memory: an error, but theirs */
        sched_yield();
    here = nullptr;
}

} // namespace

void stop(const char *why) {
    std::fprintf(stderr, "played kernel: %s", why);
    if (here) {
        std::fprintf(stderr, ", CTA %u, thread %u\n", here->index, here->current);
        for (unsigned first = 0; first < here->threads;) {
            const Fiber &fiber = here->fibers[first];
            unsigned end = first + 1;
            const auto alike = [&](const Fiber &other) {
                return other.is_done == fiber.is_done && other.wait == fiber.wait && other.what == fiber.what &&
                       other.address == fiber.address && other.barrier == fiber.barrier;
            };
            while (end < here->threads && alike(here->fibers[end]))
                ++end;
            std::fprintf(stderr, "  threads %u to %u: %s", first, end - 1, fiber.is_done ? "done" : fiber.what);
            if (!fiber.is_done && fiber.wait == Wait::mbarrier) {
                const auto *const barrier = static_cast<const Mbarrier *>(shared_pointer(fiber.address, 8));
                std::fprintf(stderr, " at %u, parity %u: phase %u, %u of %u arrivals and %u bytes to come", fiber.address,
                             fiber.parity, static_cast<unsigned>(barrier->phase), static_cast<unsigned>(barrier->pending),
                             static_cast<unsigned>(barrier->expected), static_cast<unsigned>(barrier->bytes));
            }
            if (!fiber.is_done && fiber.wait == Wait::barrier)
                std::fprintf(stderr, " %d: %d of %d threads", fiber.barrier, here->barriers[fiber.barrier].arrived,
                             here->barriers[fiber.barrier].threads);
            std::fputc('\n', stderr);
            first = end;
        }
    } else {
        std::fputc('\n', stderr);
    }
    std::fflush(stderr);
    std::abort();
}

void warp_meets(const char *what, uint32_t mask, void *own, void (*act)(void *(&)[lanes], uint32_t)) {
    Warp &warp = here->warp();
    const uint32_t lane = here->current % lanes;
    auto meeting = std::find_if(warp.meetings.begin(), warp.meetings.end(), [&](const Meeting &one) { return one.mask == mask; });
    if (meeting == warp.meetings.end())
        meeting = warp.meetings.insert(meeting, Meeting{.mask = mask});
    if (meeting->arrived != 0 && meeting->what != what && std::strcmp(meeting->what, what) != 0) {
        std::fprintf(stderr, "played kernel: %s beside %s\n", what, meeting->what);
        stop("lanes of a warp call different functions together");
    }
    if (!(mask >> lane & 1) || (mask & ~warp.living) != 0)
        stop("a mask without the lane that names it, or with one that has left");
    meeting->what = what;
    meeting->brought[lane] = own;
    meeting->arrived |= 1u << lane;
    if (meeting->arrived != mask) {
        warp.waiting |= 1u << lane;
        hand_over(Wait::warp, what);
        return;
    }
    meeting->arrived = 0;
    act(meeting->brought, mask);
    warp.waiting &= ~mask;
}

bool barrier_meets(int id, int threads, bool condition) {
    Barrier &barrier = here->barriers[id];
    const int wanted = threads ? threads : static_cast<int>(here->threads);
    if (barrier.arrived != 0 && barrier.threads != wanted)
        stop("a named barrier of two numbers of threads");
    barrier.threads = wanted;
    barrier.any = barrier.any || condition;
    Fiber &fiber = here->fiber();
    fiber.generation = barrier.generation;
    fiber.barrier = id;
    if (++barrier.arrived == wanted) {
        barrier.answer = barrier.any;
        barrier.any = false;
        barrier.arrived = 0;
        ++barrier.generation;
        return barrier.answer;
    }
    hand_over(Wait::barrier, "named barrier");
    return barrier.answer;
}

void barrier_arrives(int id, int threads) {
    Barrier &barrier = here->barriers[id];
    if (barrier.arrived != 0 && barrier.threads != threads)
        stop("a named barrier of two numbers of threads");
    barrier.threads = threads;
    if (++barrier.arrived == threads) {
        barrier.arrived = 0;
        ++barrier.generation;
    }
}

void pause() {
    sched_yield();
    hand_over(Wait::nothing, "pause");
}

uint32_t shared_address(const void *pointer) {
    const ptrdiff_t offset = static_cast<const uint8_t *>(pointer) - shared_memory;
    if (offset < 0 || static_cast<size_t>(offset) > here->shared_bytes)
        stop("a pointer that is not to shared memory");
    return shared_window + static_cast<uint32_t>(offset);
}

void *shared_pointer(uint32_t address, size_t bytes) {
    const uint32_t offset = (address & 0xffffff) - shared_window, rank = address >> 24 ? (address >> 24) - 1 : here->rank;
    if (rank >= here->cluster->size || offset + bytes > here->shared_bytes || (address & 0xffffff) < shared_window)
        stop("an address outside shared memory");
    return here->cluster->memory[rank] + offset;
}

uint32_t cluster_rank() { return here->rank; }
uint32_t map_shared_rank(uint32_t address, uint32_t rank) { return (address & 0xffffff) | (rank + 1) << 24; }

void cluster_arrives() {
    Cluster &cluster = *here->cluster;
    std::lock_guard<std::mutex> guard(cluster.lock);
    here->fiber().cluster_generation = cluster.generation;
    if (++cluster.arrived == cluster.size * here->threads) {
        cluster.arrived = 0;
        ++cluster.generation;
    }
}
void cluster_waits() { hand_over(Wait::cluster, "cluster barrier"); }

void mbarrier_init(uint32_t address, uint32_t arrivals) {
    with_mbarrier(address, [&](Mbarrier &barrier) {
        barrier.phase = 0;
        barrier.expected = barrier.pending = arrivals & 0xfffff;
        barrier.bytes = 0;
        return true;
    });
}

void mbarrier_arrives(uint32_t address, uint32_t arrivals, int64_t bytes) {
    const bool too_many = with_mbarrier(address, [&](Mbarrier &barrier) {
        if (barrier.pending < arrivals)
            return true;
        barrier.pending -= arrivals;
        barrier.bytes += static_cast<uint64_t>(bytes);
        if (barrier.pending == 0 && barrier.bytes == 0) {
            barrier.phase ^= 1;
            barrier.pending = barrier.expected;
        }
        return false;
    });
    if (too_many)
        stop("more arrivals on an mbarrier than it expects in a phase");
}

bool mbarrier_waits(uint32_t address, uint32_t parity) {
    const uint64_t *const mbarrier = mbarrier_word(address);
    if (phase_is_over(mbarrier, parity))
        return true;
    Fiber &fiber = here->fiber();
    fiber.address = address;
    fiber.mbarrier = mbarrier;
    fiber.parity = parity;
    hand_over(Wait::mbarrier, "mbarrier");
    return phase_is_over(mbarrier, parity);
}

void later(bool ordered, std::function<void()> act) {
    if (ordered) {
        here->fiber().ordered.push_back(std::move(act));
        ++here->num_ordered;
    } else {
        here->copies.push_back(std::move(act));
    }
}

void thread_waits_for_copies() {
    std::deque<std::function<void()>> &ordered = here->fiber().ordered;
    here->num_ordered -= ordered.size();
    while (!ordered.empty()) {
        ordered.front()();
        ordered.pop_front();
    }
}

void warp_later(std::function<void()> act) {
    Warp &warp = here->warp();
    if (warp.matrices.empty() && here->haste != 0 && one_in(2))
        act();
    else
        warp.matrices.push_back(std::move(act));
}

void warp_waits_for_matrices() {
    int nothing = 0;
    warp_meets("wgmma.wait", all_lanes, &nothing, [](void *(&)[lanes], uint32_t) {
        Warp &warp = here->warp();
        for (const auto &act : warp.matrices)
            act();
        warp.matrices.clear();
    });
}

void run_grid(unsigned grid, unsigned cluster_size, unsigned threads, unsigned shared_bytes, uint64_t seed,
              const std::function<void()> &thread_main) {
    constexpr unsigned most_at_once = 128;
    static std::vector<uint8_t *> stacks; /* of each thread of the process, kept from grid to grid */
    static std::mutex one_grid;
    std::lock_guard<std::mutex> guard(one_grid);
    const unsigned at_once = std::max(std::min(grid, most_at_once) / cluster_size, 1u) * cluster_size;
    while (stacks.size() < at_once) {
        void *const memory =
            mmap(nullptr, 1024 * stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED)
            stop("no memory for stacks");
        stacks.push_back(static_cast<uint8_t *>(memory));
    }
    if (shared_bytes > sizeof shared_memory || threads > 1024 || grid % cluster_size != 0)
        stop("a launch that no GPU takes");
    std::deque<Cluster> clusters;
    for (unsigned i = 0; i < grid / cluster_size; ++i)
        clusters.emplace_back(cluster_size);
    std::vector<std::thread> workers;
    for (unsigned worker = 0; worker < at_once; ++worker)
        workers.emplace_back([&, worker] {
            gridDim.x = grid;
            for (unsigned index = worker; index < grid; index += at_once)
                run_one(index, threads, shared_bytes ? shared_bytes : sizeof shared_memory, clusters[index / cluster_size], seed,
                        thread_main, stacks[worker]);
        });
    for (std::thread &worker : workers)
        worker.join();
}

} // namespace played
