/* SPDX-License-Identifier: Apache-2.0 */
/* registers.cuh: moved between the warpgroups of a CTA, PTX ISA 9.7.19.5 "setmaxnreg". sm_90a and newer, with the "a". */
#pragma once

namespace ptx {

/*
 * Registers of each of a warpgroup's threads from here on, a multiple of 8; taking waits until others have given as many. All 128 threads
 * call together.
 */
template <int registers>
__device__ __forceinline__ void give_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}
template <int registers>
__device__ __forceinline__ void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}

} // namespace ptx
