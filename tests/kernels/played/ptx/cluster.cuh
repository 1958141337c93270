/* SPDX-License-Identifier: Apache-2.0 */
/* cluster.cuh: kernels/ptx/cluster.cuh, played. */
#pragma once

#include "../device.cuh"

namespace ptx {

inline uint32_t cluster_rank() { return played::cluster_rank(); }
inline uint32_t map_shared_rank(uint32_t address, uint32_t rank) { return played::map_shared_rank(address, rank); }
inline void cluster_arrive_relaxed() { played::cluster_arrives(); }
inline void cluster_wait() { played::cluster_waits(); }

template <int count>
void store_async(uint32_t remote, const float (&value)[count], uint32_t remote_barrier) {
    struct Words {
        float word[count];
    } words;
    std::memcpy(&words, value, sizeof words);
    played::later(false, [=] {
        std::memcpy(played::shared_pointer(remote, sizeof words), &words, sizeof words);
        played::mbarrier_arrives(remote_barrier, 0, -static_cast<int64_t>(sizeof words));
    });
}

} // namespace ptx
