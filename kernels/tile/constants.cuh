/* SPDX-License-Identifier: Apache-2.0 */
/* constants.cuh: numbers that several stages use. */
#pragma once

namespace tile {

constexpr float log2_e = 1.4426950408889634f;
constexpr unsigned full_warp = 0xffffffffu; /* all lanes, for the instructions that ask which */

} // namespace tile
