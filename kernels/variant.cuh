/* SPDX-License-Identifier: Apache-2.0 */
/* variant.cuh: turns the macros that the build defines for one variant into constants; the only file that reads them. */
#pragma once

#include "abi.h"

#ifndef VARIANT_NAME
#error "VARIANT_NAME, VARIANT_TARGET_SM and the axes of the family's .toml are defined by the build"
#endif

#ifndef VARIANT_ONLY_COPIES
#define VARIANT_ONLY_COPIES 0 /* 1: families/page_ceiling.cu */
#endif

#define VARIANT_JOIN_(a, b) a##b
#define VARIANT_JOIN(a, b) VARIANT_JOIN_(a, b)
#define VARIANT_CONTRACT VARIANT_JOIN(VARIANT_NAME, _contract) /* LIBDECODE_CONTRACT_SUFFIX */

namespace variant {

constexpr int target_sm = VARIANT_TARGET_SM; /* 90, 100, 120: the family image's lowest member */
constexpr bool only_copies = VARIANT_ONLY_COPIES != 0;
constexpr uint32_t contract_flags = VARIANT_MAY_SPILL ? CONTRACT_FLAG_MAY_SPILL : 0u;

/* Shared memory of one SM and of one CTA, minus nothing: each resident CTA also costs reserved_shared_bytes. */
constexpr int sm_shared_bytes = target_sm == 120 ? 100 * 1024 : 228 * 1024;
constexpr int max_shared_bytes = target_sm == 120 ? 99 * 1024 : 227 * 1024;
constexpr int reserved_shared_bytes = 1024;

} // namespace variant
