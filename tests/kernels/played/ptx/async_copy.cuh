/* SPDX-License-Identifier: Apache-2.0 */
/* async_copy.cuh: kernels/ptx/async_copy.cuh, played. */
#pragma once

#include "../device.cuh"

namespace ptx {

template <int bytes>
void copy_async(uint32_t destination, const void *source, bool live) {
    if (destination % bytes != 0 || (live && reinterpret_cast<uintptr_t>(source) % bytes != 0))
        played::stop("an asynchronous copy that is not aligned to its bytes");
    played::later(true, [=] {
        void *const to = played::shared_pointer(destination, bytes);
        if (live)
            std::memcpy(to, source, bytes);
        else
            std::memset(to, 0, bytes);
    });
}

inline void mbarrier_arrive_after_copies(uint32_t barrier) {
    played::later(true, [=] { played::mbarrier_arrives(barrier, 1, 0); });
}

inline void wait_for_copies() { played::thread_waits_for_copies(); }

} // namespace ptx
