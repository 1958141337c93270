/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tile_loan.cuh: tiles whose place something else takes at a piece's end, what the CTAs of a cluster send each other, until all consumer warps have
 * read that. Those who fill the tiles come to the next piece then.
 */
#pragma once

#include <cstdint>

#include "ptx/mbarrier.cuh"
#include "ptx/memory.cuh"
#include "ptx/wgmma.cuh"

namespace pipeline {

/* Lies in shared memory. */
struct TileLoan {
    uint64_t given_back; /* one arrival per consumer warp and piece */

    __device__ __forceinline__ void initialise(int consumer_warps) {
        ptx::mbarrier_init(ptx::shared_address(&given_back), consumer_warps);
    }

    /* By every consumer warp, once it has read what was lent the tiles. */
    __device__ __forceinline__ void give_back(int lane) {
        ptx::fence_async_proxy();
        __syncwarp();
        if (lane == 0)
            ptx::mbarrier_arrive(ptx::shared_address(&given_back));
    }
    /*
     * By every warp that fills tiles, ahead of each of the worker's pieces: the tiles are its own again. A CTA may have no tiles of a piece, so
     * consumers are kept from ending two ahead of who waits here: these warps are the queue's followers.
     */
    template <class Pieces>
    __device__ __forceinline__ void come_to(uint32_t piece, Pieces &pieces, int lane) {
        if (piece > 0) {
            while (!ptx::mbarrier_try_wait(ptx::shared_address(&given_back), (piece - 1) & 1u)) {
            }
        }
        if (lane == 0)
            pieces.come_to(piece);
    }
};

} // namespace pipeline
