/* SPDX-License-Identifier: Apache-2.0 */
/*
 * header_layout.c: no public struct has padding on a 64-bit host, so that a field added later never lies where old callers have
 * garbage, and equal structs are equal bytes. The sizes are part of the binary interface: they grow, and never by accident.
 */
#if defined(__LP64__)
#pragma GCC diagnostic error "-Wpadded"
#endif
#include "libdecode.h"

#if defined(__LP64__)
#define SIZE(type, bytes) _Static_assert(sizeof(type) == (bytes), #type)
SIZE(libdecode_memory_bundle, 16);
SIZE(libdecode_open_options, 88);
SIZE(libdecode_device, 112);
SIZE(libdecode_problem, 336);
SIZE(libdecode_tensors, 248);
SIZE(libdecode_plan_info, 88);
SIZE(libdecode_kernel_info, 120);
SIZE(libdecode_bundle_info, 72);
SIZE(libdecode_verdict, 32);
SIZE(libdecode_states, 168);
#endif

int main(void) { return 0; }
