/* SPDX-License-Identifier: Apache-2.0 */
/* launch_input.h: what an input of fuzz_launch.c is: these structs, one behind the other. */
#ifndef LIBDECODE_LAUNCH_INPUT_H
#define LIBDECODE_LAUNCH_INPUT_H

#include "abi.h"
#include "libdecode.h"

struct launch_input {
    struct libdecode_launch_contract contract;
    libdecode_problem problem;
    libdecode_device device;
};

#endif
