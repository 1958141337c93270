/* SPDX-License-Identifier: Apache-2.0 */
/* explain.c: `libdecode explain`: a problem and a GPU, which may be absent, in; the kernel it gets, and why, out. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "command.h"
#include "problem_args.h"
#include "report.h"
#include "session.h"

#define NUM_PRESETS 5
static const char *const presets[NUM_PRESETS] = {"sm_90", "sm_100", "sm_103", "sm_120", "sm_121"};

struct explain_args {
    const char *gpu;
    bool all;
};

static const struct option explain_options[] = {
    {"--gpu", "NAME", OPTION_TEXT, offsetof(struct explain_args, gpu), 0, 0,
     "sm_90 (H200), sm_100 (B200), sm_103 (B300), sm_120 (RTX 5090), sm_121 (DGX Spark): typical facts, no GPU needed; all: "
     "these "
     "five; current: the GPU of this machine (default: current where there is one, else all)"},
    {"--all", NULL, OPTION_FLAG, offsetof(struct explain_args, all), 0, 0,
     "also the kernels that cannot do this problem at all, with the reason"},
    {0},
};

#define EXPLAIN_GROUPS(args, problem, session)                                                                                   \
    {                                                                                                                            \
        {"What to explain", explain_options, args}, {"The problem", problem_options, problem},                                   \
            {"Bundles and output", bundle_options, session}, {                                                                   \
            "GPU", device_options, session                                                                                       \
        }                                                                                                                        \
    }

void help_explain(void) {
    struct explain_args args = {0};
    struct problem_args problem = {0};
    struct session_args session = {0};
    const struct option_group groups[] = EXPLAIN_GROUPS(&args, &problem, &session);
    printf("usage: libdecode explain [OPTIONS]\n\n"
           "Says which kernel a problem gets on a GPU, why, and why not the others. Selection is a pure function of\n"
           "problem, GPU, policy and bundles, so the answer here is the answer everywhere, with or without a GPU.\n"
           "Without options: Llama-3-8B decoding, 64 requests of 8192 tokens.\n\n"
           "  libdecode explain --gpu all\n"
           "  libdecode explain --gpu sm_121 --heads 64/8 --head-dim 64 --sinks --window 128\n"
           "  libdecode explain --gpu sm_90 --policy 'deny=*_c8_*' --batch 1 --len 32768\n");
    options_print(groups, 4);
}

/* Where the verdicts of one GPU go. */
struct explanation {
    struct json *json; /* NULL: text */
    bool all;
    size_t impossible;
    char kernel[128];
    char reason[256];
    int32_t predicted_ns;
};

/* Keeps the choice, so that it can be printed above the others. */
static void keep_choice(void *cookie, const libdecode_verdict *verdict) {
    struct explanation *explanation = cookie;
    explanation->impossible += verdict->eligible == 0;
    if (verdict->chosen != 0) {
        snprintf(explanation->kernel, sizeof explanation->kernel, "%s", verdict->kernel);
        snprintf(explanation->reason, sizeof explanation->reason, "%s", verdict->reason);
        explanation->predicted_ns = verdict->predicted_ns;
    }
}

static void show_verdict(void *cookie, const libdecode_verdict *verdict) {
    struct explanation *explanation = cookie;
    keep_choice(cookie, verdict);
    if (explanation->json != NULL) {
        json_begin(explanation->json, NULL, '{');
        json_text(explanation->json, "kernel", verdict->kernel);
        json_bool(explanation->json, "eligible", verdict->eligible != 0);
        json_bool(explanation->json, "chosen", verdict->chosen != 0);
        json_number(explanation->json, "predicted_us", verdict->eligible != 0 ? verdict->predicted_ns / 1000.0 : NAN);
        json_text(explanation->json, "reason", verdict->reason);
        json_end(explanation->json, '}');
    } else if (verdict->chosen == 0 && (verdict->eligible != 0 || explanation->all)) {
        printf("    %c %-44s %s\n", verdict->eligible != 0 ? '-' : 'x', verdict->kernel, verdict->reason);
    }
}

static bool explain_text(libdecode_context *context, const libdecode_problem *problem, const libdecode_device *device, bool all) {
    struct explanation choice = {0}, explanation = {.all = all};
    printf("\n%s\n", device->name);
    if (libdecode_explain(context, problem, device, keep_choice, &choice) != LIBDECODE_OK) {
        printf("  no kernel: %s\n", libdecode_error_message());
        if (all)
            libdecode_explain(context, problem, device, show_verdict, &explanation);
        return false;
    }
    printf("  %s\n    %s\n", choice.kernel, choice.reason);
    libdecode_explain(context, problem, device, show_verdict, &explanation);
    if (!all && explanation.impossible > 0)
        printf("    x %zu more cannot do this problem here (--all says why)\n", explanation.impossible);
    return true;
}

static bool explain_json(struct json *json, libdecode_context *context, const libdecode_problem *problem,
                         const libdecode_device *device) {
    struct explanation explanation = {.json = json};
    json_begin(json, NULL, '{');
    json_text(json, "gpu", device->name);
    json_integer(json, "compute_capability", device->compute_capability);
    json_begin(json, "candidates", '[');
    libdecode_status status = libdecode_explain(context, problem, device, show_verdict, &explanation);
    json_end(json, ']');
    json_text(json, "kernel", status == LIBDECODE_OK ? explanation.kernel : NULL);
    json_text(json, "reason", status == LIBDECODE_OK ? explanation.reason : NULL);
    json_number(json, "predicted_us", status == LIBDECODE_OK ? explanation.predicted_ns / 1000.0 : NAN);
    json_text(json, "status", libdecode_status_name(status));
    json_text(json, "error", status == LIBDECODE_OK ? NULL : libdecode_error_message());
    json_end(json, '}');
    return status == LIBDECODE_OK;
}

/* The GPUs asked for. An exit code; EXIT_PASSED: they stand in ret_devices. */
static int read_devices(const struct explain_args *args, const struct session_args *session, libdecode_context *context,
                        libdecode_device ret_devices[NUM_PRESETS], size_t *ret_count) {
    struct gpu gpu;
    char why[256];
    const char *wanted = args->gpu;
    if (wanted == NULL) {
        wanted = gpu_find(&gpu, why, sizeof why) == GPU_PRESENT ? "current" : "all";
        gpu_close(&gpu);
    }
    *ret_count = 1;
    ret_devices[0] = (libdecode_device){.struct_size = sizeof ret_devices[0]};
    if (strcmp(wanted, "current") == 0) {
        int opened = session_open_gpu("explain", session, &gpu);
        if (opened == EXIT_PASSED && libdecode_device_current(context, &ret_devices[0]) != LIBDECODE_OK) {
            complain("explain: %s", libdecode_error_message());
            opened = EXIT_FAILED;
        }
        gpu_close(&gpu);
        return opened;
    }
    const bool all = strcmp(wanted, "all") == 0;
    *ret_count = all ? NUM_PRESETS : 1;
    for (size_t index = 0; index < *ret_count; index++) {
        ret_devices[index] = (libdecode_device){.struct_size = sizeof ret_devices[index]};
        if (libdecode_device_preset(all ? presets[index] : wanted, &ret_devices[index]) != LIBDECODE_OK) {
            complain("explain: --gpu %s: sm_90, sm_100, sm_103, sm_120, sm_121, all or current is accepted", wanted);
            return EXIT_USAGE;
        }
    }
    return EXIT_PASSED;
}

static int explain_devices(libdecode_context *context, const struct explain_args *args, const struct session_args *session,
                           const struct workload *workload) {
    libdecode_device devices[NUM_PRESETS];
    size_t num_devices, served = 0;
    char text[256];
    int result = read_devices(args, session, context, devices, &num_devices);
    if (result != EXIT_PASSED)
        return result;
    workload_describe(workload, text, sizeof text);
    struct json json = {0};
    if (session->json) {
        json_begin(&json, NULL, '{');
        json_text(&json, "problem", text);
        json_begin(&json, "gpus", '[');
    } else {
        printf("%s\n", text);
    }
    for (size_t index = 0; index < num_devices; index++) {
        served += session->json ? explain_json(&json, context, &workload->problem, &devices[index])
                                : explain_text(context, &workload->problem, &devices[index], args->all);
    }
    if (session->json) {
        json_end(&json, ']');
        json_end(&json, '}');
    }
    return served == num_devices ? EXIT_PASSED : EXIT_FAILED;
}

int run_explain(int argc, char **argv) {
    struct explain_args args = {0};
    struct problem_args problem = PROBLEM_ARGS_DEFAULT;
    struct session_args session = {0};
    const struct option_group groups[] = EXPLAIN_GROUPS(&args, &problem, &session);
    if (!options_parse("explain", groups, 4, argc, argv, NULL))
        return EXIT_USAGE;
    struct workload workload;
    if (!workload_make("explain", &problem, &workload))
        return EXIT_USAGE;
    libdecode_context *context;
    int result = EXIT_FAILED;
    if (session_open(&session, NULL, &context)) {
        result = explain_devices(context, &args, &session, &workload);
        libdecode_close(context);
    }
    workload_free(&workload);
    return result;
}
