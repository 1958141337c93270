/* SPDX-License-Identifier: Apache-2.0 */
/*
 * variant_contract.c: a variant of batch decode in, the contract that its kernel states out, without compiling it: what selection and the cost model look
 * at, and of what else a launch needs something that presets have room for. test_variant_contract.c holds it to what was built. Next: decode_fixture.c,
 * bundles of the whole grid.
 */
#ifndef LIBDECODE_VARIANT_CONTRACT_H
#define LIBDECODE_VARIANT_CONTRACT_H

#include "grid.h"

struct libdecode_launch_contract variant_contract(const struct grid_variant *variant);

#endif
