/* SPDX-License-Identifier: Apache-2.0 */
/*
 * contract.c: a launch contract in; whether a kernel can have it, and which family of this library launches it, out.
 * Called by bundle.c and kernel_table.c for every record, and by gen/lift.c for every kernel that is built.
 */
#ifndef LIBDECODE_CONTRACT_H
#define LIBDECODE_CONTRACT_H

#include "family.h"

/* False: nonsense, by which a later stage would divide, or which no GPU has. Then the bundle is damaged. */
bool contract_is_sane(const struct libdecode_launch_contract *contract);

/*
 * The family that launches a kernel of this (sane) contract. NULL: this library has none, because the contract says something
 * that it does not know, or that it does not put into a parameter block; then `ret_reason` says what ("computes features 0x100").
 * Such a kernel, of a later libdecode as a rule, is never chosen.
 */
const struct family *contract_family(const struct libdecode_launch_contract *contract, char ret_reason[FAMILY_REASON_BYTES]);

#endif
