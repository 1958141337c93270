/* SPDX-License-Identifier: Apache-2.0 */
/*
 * refusal.c: a question that no kernel at hand answers in, the one error that helps most out: what no kernel of libdecode does,
 * what another bundle would do, what the GPU, the driver or the policy stands in the way of. Called by select.c.
 */
#ifndef LIBDECODE_REFUSAL_H
#define LIBDECODE_REFUSAL_H

#include "judgement.h"

/* `forcing`: only forced kernels were candidates. UNSUPPORTED, NOT_IN_BUNDLE, NO_GPU_IMAGE, DRIVER_TOO_OLD or OVERRIDE. */
libdecode_status refuse(const struct question *question, bool forcing);

#endif
