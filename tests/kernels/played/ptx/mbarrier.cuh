/* SPDX-License-Identifier: Apache-2.0 */
/* mbarrier.cuh: kernels/ptx/mbarrier.cuh, played. */
#pragma once

#include "../device.cuh"

namespace ptx {

inline uint32_t shared_address(const void *pointer) { return played::shared_address(pointer); }
inline void mbarrier_init(uint32_t barrier, uint32_t arrivals) { played::mbarrier_init(barrier, arrivals); }
inline void fence_mbarrier_init() {}
inline void mbarrier_arrive(uint32_t barrier) { played::mbarrier_arrives(barrier, 1, 0); }
inline void mbarrier_arrive_expect_tx(uint32_t barrier, uint32_t bytes) { played::mbarrier_arrives(barrier, 1, bytes); }
inline void mbarrier_arrive_remote(uint32_t remote_barrier) { played::mbarrier_arrives(remote_barrier, 1, 0); }
inline bool mbarrier_try_wait(uint32_t barrier, uint32_t parity) { return played::mbarrier_waits(barrier, parity); }
inline bool mbarrier_try_wait_cluster(uint32_t barrier, uint32_t parity) { return played::mbarrier_waits(barrier, parity); }

} // namespace ptx
