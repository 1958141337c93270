/* SPDX-License-Identifier: Apache-2.0 */
/* registers.cuh: kernels/ptx/registers.cuh, played: fibers have none. */
#pragma once

namespace ptx {

template <int registers>
void give_registers() {}
template <int registers>
void take_registers() {}

} // namespace ptx
