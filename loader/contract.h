/* SPDX-License-Identifier: Apache-2.0 */
/* contract.c: a launch contract in; whether a kernel of this version can have it out. Called by bundle.c for every record. */
#ifndef LIBDECODE_CONTRACT_H
#define LIBDECODE_CONTRACT_H

#include <stdbool.h>

#include "abi.h"

/* False: a later stage could divide by zero, overflow, or hand the driver a parameter block of the wrong size. */
bool contract_is_sane(const struct libdecode_launch_contract *contract);

#endif
