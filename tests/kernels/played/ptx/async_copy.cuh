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

template <int bytes>
void copy_async_first(uint32_t destination, const void *source, int live) {
    if (destination % bytes != 0 || live < 0 || live > bytes || (live > 0 && reinterpret_cast<uintptr_t>(source) % bytes != 0))
        played::stop("an asynchronous copy of a part that is not aligned to its bytes");
    played::later(true, [=] {
        uint8_t *const to = static_cast<uint8_t *>(played::shared_pointer(destination, bytes));
        std::memset(to, 0, bytes);
        if (live > 0)
            std::memcpy(to, source, static_cast<size_t>(live));
    });
}

inline void mbarrier_arrive_after_copies(uint32_t barrier) {
    played::later(true, [=] { played::mbarrier_arrives(barrier, 1, 0); });
}

inline void wait_for_copies() { played::thread_waits_for_copies(); }

} // namespace ptx
