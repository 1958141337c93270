/* SPDX-License-Identifier: Apache-2.0 */
/* bulk_copy.cuh: kernels/ptx/bulk_copy.cuh, played. */
#pragma once

#include "../device.cuh"
#include "../tensor_map.h"

namespace ptx {

inline void copy_tensor_5d(uint32_t destination, const void *tensor_map, int x0, int x1, int x2, int x3, int x4,
                           uint32_t barrier) {
    played_tensor_map map;
    std::memcpy(&map, tensor_map, sizeof map);
    if (destination % 128 != 0)
        played::stop("a box that does not begin at a multiple of 128 bytes");
    played::later(false, [=] {
        const int begin[5] = {x0, x1, x2, x3, x4};
        const uint32_t line_bytes = map.box[0] * map.element_bytes;
        uint32_t offset = 0, at[5] = {};
        for (;;) {
            const uint8_t *row = reinterpret_cast<const uint8_t *>(map.address);
            bool is_inside = true;
            for (int axis = 1; axis < 5; ++axis) {
                const int64_t x = static_cast<int64_t>(begin[axis]) + at[axis];
                is_inside = is_inside && x >= 0 && static_cast<uint64_t>(x) < map.dims[axis];
                row += x * static_cast<int64_t>(map.strides_bytes[axis - 1]);
            }
            for (uint32_t chunk = 0; chunk < line_bytes; chunk += 16, offset += 16) {
                uint8_t bytes[16] = {};
                for (uint32_t i = 0; i < 16; ++i) {
                    const int64_t element = begin[0] + static_cast<int64_t>((chunk + i) / map.element_bytes);
                    if (is_inside && element >= 0 && static_cast<uint64_t>(element) < map.dims[0])
                        bytes[i] = row[element * map.element_bytes + (chunk + i) % map.element_bytes];
                }
                /* A swizzle of 32, 64 or 128 bytes turns the number of a chunk by that of its line of 128 bytes. */
                const uint32_t address = destination + offset, turn = (address >> 7) & (map.swizzle_bytes / 16 - 1);
                std::memcpy(played::shared_pointer(address ^ turn << 4, 16), bytes, 16);
            }
            int axis = 1;
            while (axis < 5 && ++at[axis] == map.box[axis])
                at[axis++] = 0;
            if (axis == 5)
                break;
        }
        played::mbarrier_arrives(barrier, 0, -static_cast<int64_t>(offset));
    });
}
inline void stream_tensor_5d(uint32_t destination, const void *tensor_map, int x0, int x1, int x2, int x3, int x4,
                             uint32_t barrier) {
    copy_tensor_5d(destination, tensor_map, x0, x1, x2, x3, x4, barrier);
}

inline void copy_bulk(uint32_t destination, const void *source, uint32_t bytes, uint32_t barrier) {
    if (destination % 16 != 0 || reinterpret_cast<uintptr_t>(source) % 16 != 0 || bytes % 16 != 0)
        played::stop("a bulk copy that is not aligned to 16 bytes");
    played::later(false, [=] {
        std::memcpy(played::shared_pointer(destination, bytes), source, bytes);
        played::mbarrier_arrives(barrier, 0, -static_cast<int64_t>(bytes));
    });
}

inline void copy_bulk_of_warp(uint32_t destination, const void *source, uint32_t bytes, uint32_t barrier) {
    struct copy {
        uint32_t destination, bytes, barrier;
        const void *source;
        bool operator==(const copy &) const = default;
    };
    const copy own = {destination, bytes, barrier, source};
    if (!(played::exchange("elect", played::all_lanes, own, 0) == own))
        played::stop("a copy of a warp whose lanes do not all say the same");
    if (played::lane() == 0)
        copy_bulk(destination, source, bytes, barrier);
}

inline void prefetch_tensor_map(const void *) {}

} // namespace ptx
