/* SPDX-License-Identifier: Apache-2.0 */
/* bytes.cuh: bytes within registers, PTX ISA 9.7.9.7 "prmt". Every GPU has it, and the processor plays it (tests/kernels). */
#pragma once

#include <cstdint>

namespace ptx {

/* Bytes of a and b, numbered 0 to 7 from the lowest of a on: four digits of `selector`, the lowest first. */
__device__ __forceinline__ uint32_t permute_bytes(uint32_t a, uint32_t b, uint32_t selector) {
    return __byte_perm(a, b, selector);
}

} // namespace ptx
