/* SPDX-License-Identifier: Apache-2.0 */
/* explain.c: `libdecode explain`: a problem and a GPU, which may be absent, in; the kernel it gets, and why, out. */
#define _POSIX_C_SOURCE 200809L /* strdup */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "device.h"
#include "option_words.h"
#include "problem_args.h"
#include "report.h"
#include "session.h"
#include "status.h"
#include "terminal.h"

struct explain_args {
    const char *gpu;
    bool all;
};

static const struct option explain_options[] = {
    {"--gpu", "GPU", OPTION_TEXT, offsetof(struct explain_args, gpu), 0, 0,
     "typical facts of a GPU that need not be there: sm_90 (H200), sm_100 (B200), sm_103 (B300), sm_120 (RTX 5090), sm_121 (DGX "
     "Spark), or a name like H100 or GH200; all: these five; current: the GPU of this machine (default: current where there is "
     "one, else all)"},
    {"--all", NULL, OPTION_FLAG, offsetof(struct explain_args, all), 0, 0,
     "also the kernels that cannot do this problem at all, with the reason"},
    {0},
};

/* ------------------------------------------------------------------------------------------------------------ answers */

struct kept_verdict {
    char *kernel, *reason;
    bool eligible, chosen;
    int32_t predicted_ns;
};

/* What selection says of one GPU. */
struct answer {
    libdecode_device device;
    libdecode_status status;
    char error[ERROR_MESSAGE_BYTES]; /* unless the status is LIBDECODE_OK */
    struct kept_verdict *verdicts;
    size_t count, capacity;
    const struct kept_verdict *choice; /* NULL: none */
    bool out_of_memory;
    bool is_shown; /* with one that is alike */
};

static void keep_verdict(void *cookie, const libdecode_verdict *verdict) {
    struct answer *answer = cookie;
    if (answer->count == answer->capacity) {
        const size_t capacity = answer->capacity > 0 ? 2 * answer->capacity : 256;
        struct kept_verdict *verdicts = realloc(answer->verdicts, capacity * sizeof verdicts[0]);
        answer->out_of_memory |= verdicts == NULL;
        if (verdicts == NULL)
            return;
        answer->verdicts = verdicts;
        answer->capacity = capacity;
    }
    struct kept_verdict *kept = &answer->verdicts[answer->count++];
    *kept = (struct kept_verdict){.kernel = strdup(verdict->kernel),
                                  .reason = strdup(verdict->reason),
                                  .eligible = verdict->eligible != 0,
                                  .chosen = verdict->chosen != 0,
                                  .predicted_ns = verdict->predicted_ns};
    answer->out_of_memory |= kept->kernel == NULL || kept->reason == NULL;
}

static void answer_free(struct answer *answer) {
    for (size_t index = 0; index < answer->count; index++) {
        free(answer->verdicts[index].kernel);
        free(answer->verdicts[index].reason);
    }
    free(answer->verdicts);
    *answer = (struct answer){0};
}

static bool answer_make(libdecode_context *context, const libdecode_problem *problem, struct answer *answer) {
    answer->status = libdecode_explain(context, problem, &answer->device, keep_verdict, answer);
    if (answer->status != LIBDECODE_OK)
        snprintf(answer->error, sizeof answer->error, "%s", libdecode_error_message());
    if (answer->out_of_memory)
        return complain("out of memory");
    for (size_t index = 0; index < answer->count; index++) {
        if (answer->verdicts[index].chosen)
            answer->choice = &answer->verdicts[index];
    }
    return true;
}

/* Whether two GPUs answer alike: the same of every kernel, but for the times that are predicted. */
static bool alike(const struct answer *left, const struct answer *right) {
    if (left->status != right->status || left->count != right->count || strcmp(left->error, right->error) != 0)
        return false;
    for (size_t index = 0; index < left->count; index++) {
        const struct kept_verdict *a = &left->verdicts[index], *b = &right->verdicts[index];
        if (strcmp(a->kernel, b->kernel) != 0 || a->eligible != b->eligible || a->chosen != b->chosen)
            return false;
    }
    return true;
}

/* --------------------------------------------------------------------------------------------------------------- text */

static const char *mark(const struct answer *answer) { return device_is_fitted(&answer->device) ? "" : " [fitted to an H200]"; }

static void show_others(const struct answer *answer, bool all) {
    size_t impossible = 0;
    for (size_t index = 0; index < answer->count; index++) {
        const struct kept_verdict *verdict = &answer->verdicts[index];
        impossible += !verdict->eligible;
        if (!verdict->chosen && (verdict->eligible || all))
            print_wrapped(stdout, 8, "    %c %-44s %s", verdict->eligible ? '-' : 'x', verdict->kernel, verdict->reason);
    }
    if (!all && impossible > 0)
        print_wrapped(stdout, 8, "    x %zu more cannot do this problem here (--all says why)", impossible);
}

/* Of this GPU, and of those behind it that answer alike. */
static void show_answer(struct answer *answers, size_t count, bool all) {
    struct answer *first = &answers[0];
    size_t num_alike = 0;
    printf("\n%s%s", style(stdout, STYLE_HEADING), first->device.name);
    for (size_t index = 1; index < count; index++) {
        if (answers[index].is_shown || !alike(first, &answers[index]))
            continue;
        answers[index].is_shown = true;
        num_alike++;
        printf(", %s", answers[index].device.name);
    }
    printf("%s\n", style(stdout, STYLE_PLAIN));
    if (first->choice == NULL) {
        print_wrapped(stdout, 4, "  no kernel: %s", in_option_words(first->error));
        if (all)
            show_others(first, all);
        return;
    }
    const bool refused = first->status != LIBDECODE_OK; /* the best at hand, and yet not good enough */
    if (refused)
        print_wrapped(stdout, 4, "  refused: %s", in_option_words(first->error));
    printf("  %s%s%s\n", style(stdout, refused ? STYLE_BAD : STYLE_GOOD), first->choice->kernel, style(stdout, STYLE_PLAIN));
    if (num_alike == 0)
        print_wrapped(stdout, 6, "    %s%s", first->choice->reason, mark(first));
    for (size_t index = 0; num_alike > 0 && index < count; index++) {
        if (index == 0 || (answers[index].is_shown && alike(first, &answers[index])))
            print_wrapped(stdout, 6, "    %s: %s%s", answers[index].device.name, answers[index].choice->reason,
                          mark(&answers[index]));
    }
    if (num_alike > 0)
        printf("    the others, with the times of %s:\n", first->device.name);
    show_others(first, all);
}

static void show_answers(struct answer *answers, size_t count, bool all) {
    bool is_fitted = true;
    for (size_t index = 0; index < count; index++) {
        is_fitted = is_fitted && (answers[index].choice == NULL || device_is_fitted(&answers[index].device));
        if (!answers[index].is_shown)
            show_answer(&answers[index], count - index, all);
    }
    if (!is_fitted) {
        putchar('\n');
        print_wrapped(stdout, 0,
                      "[fitted to an H200]: the model that predicts was fitted to times of an H200 only; of that GPU it knows "
                      "the data sheet.");
    }
}

/* --------------------------------------------------------------------------------------------------------------- JSON */

static void print_answer(struct json *json, const struct answer *answer) {
    const bool good = answer->choice != NULL;
    json_begin(json, NULL, '{');
    json_text(json, "gpu", answer->device.name);
    json_integer(json, "compute_capability", answer->device.compute_capability);
    json_bool(json, "model_fitted", device_is_fitted(&answer->device));
    json_begin(json, "candidates", '[');
    for (size_t index = 0; index < answer->count; index++) {
        const struct kept_verdict *verdict = &answer->verdicts[index];
        json_begin(json, NULL, '{');
        json_text(json, "kernel", verdict->kernel);
        json_bool(json, "eligible", verdict->eligible);
        json_bool(json, "chosen", verdict->chosen);
        json_number(json, "predicted_us", verdict->eligible ? verdict->predicted_ns / 1000.0 : NAN);
        json_text(json, "reason", verdict->reason);
        json_end(json, '}');
    }
    json_end(json, ']');
    json_text(json, "kernel", good ? answer->choice->kernel : NULL);
    json_text(json, "reason", good ? answer->choice->reason : NULL);
    json_number(json, "predicted_us", good ? answer->choice->predicted_ns / 1000.0 : NAN);
    json_text(json, "status", libdecode_status_name(answer->status));
    json_text(json, "error", answer->status == LIBDECODE_OK ? NULL : answer->error);
    json_end(json, '}');
}

static void print_answers(const struct answer *answers, size_t count, const char *problem) {
    struct json json = {0};
    json_begin(&json, NULL, '{');
    json_text(&json, "problem", problem);
    json_begin(&json, "gpus", '[');
    for (size_t index = 0; index < count; index++)
        print_answer(&json, &answers[index]);
    json_end(&json, ']');
    json_end(&json, '}');
}

/* --------------------------------------------------------------------------------------------------------------- GPUs */

/* The GPUs asked for. An exit code; EXIT_PASSED: they stand in `answers`. */
static int read_devices(const struct explain_args *args, const struct session_args *session, libdecode_context *context,
                        struct answer answers[DEVICE_NUM_CAPABILITIES], size_t *ret_count) {
    struct gpu gpu;
    char why[256];
    const char *wanted = args->gpu;
    if (wanted == NULL) {
        wanted = gpu_find(&gpu, why, sizeof why) == GPU_PRESENT ? "current" : "all";
        gpu_close(&gpu);
    }
    *ret_count = 1;
    answers[0].device = (libdecode_device){.struct_size = sizeof answers[0].device};
    if (strcmp(wanted, "current") == 0) {
        int opened = session_open_gpu("explain", session, &gpu);
        if (opened == EXIT_PASSED && libdecode_device_current(context, &answers[0].device) != LIBDECODE_OK) {
            complain("explain: %s", libdecode_error_message());
            opened = EXIT_FAILED;
        }
        gpu_close(&gpu);
        return opened;
    }
    const bool all = strcmp(wanted, "all") == 0;
    *ret_count = all ? DEVICE_NUM_CAPABILITIES : 1;
    for (size_t index = 0; index < *ret_count; index++) {
        if (!session_find_preset("explain", all ? device_preset_name(index) : wanted, "all, current, ", &answers[index].device))
            return EXIT_USAGE;
    }
    return EXIT_PASSED;
}

static int explain_devices(libdecode_context *context, const struct explain_args *args, const struct session_args *session,
                           const struct workload *workload) {
    struct answer answers[DEVICE_NUM_CAPABILITIES] = {0};
    size_t count, served = 0;
    char text[256];
    bool good = true;
    int result = read_devices(args, session, context, answers, &count);
    if (result != EXIT_PASSED)
        return result;
    workload_describe(workload, text, sizeof text);
    for (size_t index = 0; good && index < count; index++) {
        good = answer_make(context, &workload->problem, &answers[index]);
        served += answers[index].status == LIBDECODE_OK;
    }
    if (good && session->json)
        print_answers(answers, count, text);
    if (good && !session->json) {
        print_wrapped(stdout, 2, "%s", text);
        show_answers(answers, count, args->all);
    }
    for (size_t index = 0; index < count; index++)
        answer_free(&answers[index]);
    return good && served == count ? EXIT_PASSED : EXIT_FAILED;
}

static int run(int argc, char **argv) {
    struct explain_args args = {0};
    struct problem_args problem = PROBLEM_ARGS_DEFAULT;
    struct session_args session = {0};
    void *const targets[] = {&args, &problem, &session, &session};
    if (!options_parse(&explain_command, targets, argc, argv, NULL))
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

static const struct option_group groups[] = {{"What to explain", explain_options},
                                             {"The problem", problem_options},
                                             {"Bundles and output", bundle_options},
                                             {"GPU", device_options}};

const struct command explain_command = {
    .name = "explain",
    .summary = "which kernel a problem gets on a GPU, and why not the others",
    .operands = "",
    .description =
        "Says which kernel a problem gets on a GPU, why, and why not the others. Selection is a pure function of problem, GPU, "
        "policy and bundles, so the answer here is the answer everywhere, with or without a GPU. Without options: Llama-3-8B "
        "decoding, 64 requests of 8192 tokens.",
    .examples = "libdecode explain --gpu all\n"
                "libdecode explain --gpu 'DGX Spark' --heads 64/8 --head-dim 64 --sinks --window 128\n"
                "libdecode explain --gpu H100 --policy 'deny=*_c8_*' --batch 1 --len 32768\n",
    .notes = "",
    COMMAND_GROUPS(groups),
    .run = run,
};
