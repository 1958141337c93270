/* SPDX-License-Identifier: Apache-2.0 */
/* session.c: common options in, an open context and a current GPU out. Used by every subcommand. */
#include "session.h"

#include <stdio.h>
#include <string.h>

const struct option bundle_options[] = {
    {"--bundle", "PATH", OPTION_TEXTS, offsetof(struct session_args, bundles), 0, 0,
     "a bundle, or a folder of bundles, over those that are found anyway; may be given several times"},
    {"--policy", "RULES", OPTION_TEXT, offsetof(struct session_args, policy), 0, 0,
     "as LIBDECODE_KERNEL, and instead of it: force=GLOB, prefer=GLOB, deny=GLOB, separated by commas"},
    {"--json", NULL, OPTION_FLAG, offsetof(struct session_args, json), 0, 0, "JSON on standard output"},
    {0},
};

const struct option device_options[] = {
    {"--device", "N", OPTION_INT, offsetof(struct session_args, device), 0, 63, "which GPU of this machine (default 0)"},
    {0},
};

bool session_open(const struct session_args *args, const char *policy, libdecode_context **ret_context) {
    libdecode_open_options options = {.struct_size = sizeof options};
    options.bundle_paths = args->bundles.items;
    options.num_bundle_paths = args->bundles.count;
    options.kernel_policy = policy != NULL ? policy : args->policy;
    if (libdecode_open(&options, ret_context) != LIBDECODE_OK)
        return complain("%s", libdecode_error_message());
    return true;
}

int session_open_gpu(const char *command, const struct session_args *args, struct gpu *ret_gpu) {
    char why[256];
    switch (gpu_find(ret_gpu, why, sizeof why)) {
    case GPU_ABSENT:
        complain("%s: %s; nothing was run ('libdecode doctor' says more)", command, why);
        return EXIT_NO_GPU;
    case GPU_FAULTY:
        complain("%s: %s", command, why);
        return EXIT_FAILED;
    case GPU_PRESENT:
        break;
    }
    return gpu_open(ret_gpu, args->device) ? EXIT_PASSED : EXIT_FAILED;
}

bool session_find_kernel(const libdecode_context *context, const char *name, libdecode_kernel_info *ret_info) {
    size_t count = libdecode_kernel_count(context);
    for (size_t index = 0; index < count; index++) {
        libdecode_kernel_info info = {.struct_size = sizeof info};
        if (libdecode_kernel_get_info(context, index, &info) == LIBDECODE_OK && strcmp(info.name, name) == 0) {
            *ret_info = info;
            return true;
        }
    }
    return false;
}
