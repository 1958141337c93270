/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_ring.cuh: the ring of stages between the producer warps and the consumer warps. A stage holds one tile of K and one of V,
 * each with its own pair of barriers, so that scores start before V is there and K's place is refilled before V is used up. Where V is
 * a part of K's rows there is one tile, K's.
 */
#pragma once

#include <cstdint>

#include "ptx/bulk_copy.cuh"
#include "ptx/mbarrier.cuh"

namespace pipeline {

enum Tensor { tensor_k = 0, tensor_v = 1 };

/* The barriers in shared memory. */
template <int stages, int tensors = 2>
struct KvRingBarriers {
    uint64_t full[stages][tensors];  /* one arrival per producer, and the bytes of the tile */
    uint64_t empty[stages][tensors]; /* one arrival per warp, or lane, that reads the tile */
};

/*
 * One warp's place in the ring: stage and phase. `lanes_write`: tiles are written by threads of producer warps, not by the copy engine
 * alone; every lane then says for itself that it has read a tile, as tools that look for races demand.
 */
template <int stages, int tile_bytes, bool lanes_write, int tensors = 2>
class KvRing {
  public:
    static constexpr int num_stages = stages, num_tensors = tensors;

    __device__ __forceinline__ KvRing(KvRingBarriers<stages, tensors> &barriers, const void *tiles)
        : full_(ptx::shared_address(barriers.full)), empty_(ptx::shared_address(barriers.empty)),
          tiles_(ptx::shared_address(tiles)) {}

    /* `producers`: arrivals that complete a tile, beside its bytes; `reading_warps`: of a tile. */
    static __device__ __forceinline__ void initialise(KvRingBarriers<stages, tensors> &barriers, int producers,
                                                      int reading_warps) {
        for (int stage = 0; stage < stages; ++stage) {
            for (int tensor = 0; tensor < tensors; ++tensor) {
                ptx::mbarrier_init(ptx::shared_address(&barriers.full[stage][tensor]), producers);
                ptx::mbarrier_init(ptx::shared_address(&barriers.empty[stage][tensor]), reading_warps * (lanes_write ? 32 : 1));
            }
        }
    }

    __device__ __forceinline__ uint32_t stage() const { return stage_; }
    __device__ __forceinline__ uint32_t phase() const { return phase_; }
    __device__ __forceinline__ uint32_t tile(Tensor tensor) const { return tiles_ + (stage_ * tensors + tensor) * tile_bytes; }
    __device__ __forceinline__ uint32_t full_barrier(Tensor tensor) const { return full_ + (stage_ * tensors + tensor) * 8; }

    /* Consumer: the tile is in shared memory. */
    __device__ __forceinline__ void wait_full(Tensor tensor) const { wait(full_barrier(tensor), phase_); }
    /* Likewise, whether it is, for the whole warp. */
    __device__ __forceinline__ bool is_full(Tensor tensor) const {
        return !__any_sync(0xffffffffu, !ptx::mbarrier_try_wait(full_barrier(tensor), phase_));
    }
    /* Consumer: this warp has read the tile. */
    __device__ __forceinline__ void release(Tensor tensor, int lane) const {
        if (!lanes_write)
            __syncwarp();
        if (lanes_write || lane == 0)
            ptx::mbarrier_arrive(empty_ + (stage_ * tensors + tensor) * 8);
    }
    /* Producer: every consumer has read what was there; in the first round nothing was. */
    __device__ __forceinline__ void wait_empty(Tensor tensor) const {
        wait(empty_ + (stage_ * tensors + tensor) * 8, phase_ ^ 1u);
    }

    /* Producer whose threads have written the tile: all of this warp's have, and what reads it sees that. */
    __device__ __forceinline__ void complete(Tensor tensor, int lane) const {
        static_assert(!lanes_write, "else each lane arrives");
        __syncwarp();
        if (lane == 0)
            ptx::mbarrier_arrive(full_barrier(tensor));
    }

    /* Where another ring of as many stages stands in its own. */
    template <class Other>
    __device__ __forceinline__ KvRing beside(const Other &other) const {
        static_assert(Other::num_stages == stages, "rings that go round together");
        KvRing ring = *this;
        ring.stage_ = other.stage();
        ring.phase_ = other.phase();
        return ring;
    }

    /* At most by as many tiles as there are stages. */
    __device__ __forceinline__ void advance(int tiles = 1) {
        stage_ += tiles;
        if (stage_ >= stages) {
            stage_ -= stages;
            phase_ ^= 1u;
        }
    }

  private:
    static __device__ __forceinline__ void wait(uint32_t barrier, uint32_t parity) {
        while (!ptx::mbarrier_try_wait(barrier, parity)) {
        }
    }

    uint32_t full_, empty_, tiles_;
    uint32_t stage_ = 0, phase_ = 0;
};

} // namespace pipeline
