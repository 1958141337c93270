/* SPDX-License-Identifier: Apache-2.0 */
/*
 * variant_contract.c: a variant of the decoding families in, the contract that its kernel states out, without compiling it: what selection and the cost model
 * look at, and of what else a launch needs something that presets have room for. test_variant_contract.c holds it to what was built. Next: decode_fixture.c,
 * bundles of the whole grid.
 */
#ifndef LIBDECODE_VARIANT_CONTRACT_H
#define LIBDECODE_VARIANT_CONTRACT_H

#include <stdbool.h>

#include "bundle_format.h"
#include "grid.h"

/* Whether a problem can ask for it: batch decode, MLA or sparse MLA. Of others there is nothing below. */
bool variant_decodes(const struct grid_variant *variant);

/* "gqa_decode_kvbf16_d128_r8_p16_c1_o0_sm90", as gen/grid.py has it. */
void variant_name(const struct grid_variant *variant, char ret_name[BUNDLE_MAX_NAME_BYTES]);

struct libdecode_launch_contract variant_contract(const struct grid_variant *variant);

#endif
