/* SPDX-License-Identifier: Apache-2.0 */
/*
 * session.c: the options that every subcommand has (bundles, device, policy) in, an open context and a current GPU out.
 * Before: options.c. Used by every subcommand.
 */
#ifndef LIBDECODE_CLI_SESSION_H
#define LIBDECODE_CLI_SESSION_H

#include "gpu.h"
#include "libdecode.h"
#include "options.h"

struct session_args {
    struct texts bundles;
    const char *policy;
    int32_t device;
    bool json;
};
extern const struct option bundle_options[]; /* --bundle, --policy, --json */
extern const struct option device_options[]; /* --device */

/* A context with the bundles and the policy asked for; `policy` instead of the given one if not NULL ("": none). Prints what is wrong. */
bool session_open(const struct session_args *args, const char *policy, libdecode_context **ret_context);

/*
 * Whether libdecode_open would take the policy of options and environment, for whoever opened a context without it, to show what there
 * is. Errors: those of policy_parse.
 */
libdecode_status session_check_policy(const struct session_args *args, const libdecode_context *context);

/* A GPU with its context current: EXIT_PASSED, EXIT_NO_GPU or EXIT_FAILED, after printing why. */
int session_open_gpu(const char *command, const struct session_args *args, struct gpu *ret_gpu);

/*
 * What libdecode_device_preset says of the GPU that --gpu names. `also`: other words that the subcommand accepts there, for the message.
 * Prints what is wrong.
 */
bool session_find_preset(const char *command, const char *name, const char *also, libdecode_device *ret_device);

/* The facts of one kernel by name. False: no such kernel. */
bool session_find_kernel(const libdecode_context *context, const char *name, libdecode_kernel_info *ret_info);

#endif
