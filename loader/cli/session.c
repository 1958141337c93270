/* SPDX-License-Identifier: Apache-2.0 */
/* session.c: common options in, an open context and a current GPU out. Used by every subcommand. */
#include "session.h"

#include <stdio.h>
#include <string.h>

#include "context.h"
#include "device.h"
#include "env.h"
#include "option_words.h"

#define MAX_PRESETS 32

const struct option bundle_options[] = {
    {"--bundle", "PATH", OPTION_TEXTS, offsetof(struct session_args, bundles), 0, 0,
     "a bundle, or a folder of bundles, over those that are found anyway; may be given several times"},
    {"--policy", "RULES", OPTION_TEXT, offsetof(struct session_args, policy), 0, 0,
     "as LIBDECODE_KERNEL, and instead of it: [op:]force=GLOB, prefer=GLOB or deny=GLOB, several with commas between them: of "
     "them the last that matches a kernel decides about it"},
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
        return complain("%s", in_option_words(libdecode_error_message()));
    return true;
}

libdecode_status session_check_policy(const struct session_args *args, const libdecode_context *context) {
    struct environment environment;
    struct policy policy;
    FORWARD(environment_read(&environment));
    const char *text = args->policy != NULL ? args->policy : environment.kernel_policy;
    FORWARD(policy_parse(text, args->policy != NULL ? "--policy" : "LIBDECODE_KERNEL", false, &context->table, &policy));
    policy_destroy(&policy);
    return LIBDECODE_OK;
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

bool session_find_preset(const char *command, const char *name, const char *also, libdecode_device *ret_device) {
    const char *names[MAX_PRESETS];
    char accepted[512] = "";
    size_t count = 0, used = 0;
    *ret_device = (libdecode_device){.struct_size = sizeof *ret_device};
    if (libdecode_device_preset(name, ret_device) == LIBDECODE_OK)
        return true;
    for (; count < MAX_PRESETS && device_preset_name(count) != NULL && used < sizeof accepted; count++) {
        names[count] = device_preset_name(count);
        used += (size_t)snprintf(accepted + used, sizeof accepted - used, "%s%s", count > 0 ? ", " : "", names[count]);
    }
    const char *near = nearest_word(name, names, count);
    if (near != NULL)
        return complain("%s: --gpu %s: there is no such GPU; did you mean '%s'?", command, name, near);
    return complain("%s: --gpu %s: %s%s are accepted", command, name, also, accepted);
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
