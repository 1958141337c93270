/* SPDX-License-Identifier: Apache-2.0 */
/* merge_states.c: checked states in, a parameter block and its grid out. Called by loader/merge.c. */
#ifndef LIBDECODE_FAMILIES_MERGE_STATES_H
#define LIBDECODE_FAMILIES_MERGE_STATES_H

#include "abi.h"
#include "libdecode.h"

/* `states` has every default made explicit; `threads` are those of a CTA. Returns the number of CTAs. */
uint32_t merge_states_fill(const libdecode_states *states, uint32_t threads, struct merge_states_params *ret_params);

#endif
