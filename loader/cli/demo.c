/* SPDX-License-Identifier: Apache-2.0 */
/*
 * demo.c: `libdecode demo`: one decode step of a chat service, cut from a real trace, for two models: on the GPU and compared
 * with the reference, or without a GPU on the reference alone. Does: bench_run.c, host_reference.c.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench_run.h"
#include "command.h"
#include "device.h"
#include "dtype.h"
#include "element.h"
#include "host_reference.h"
#include "report.h"
#include "terminal.h"

#define REFERENCE_SECONDS 25.0 /* for one model, without a GPU */

struct demo_args {
    const char *trace, *kv;
    int32_t page;
    bool no_gpu;
};

static const struct option demo_options[] = {
    {"--trace", "FILE[:FIRST:COUNT]", OPTION_TEXT, offsetof(struct demo_args, trace), 0, 0,
     "another trace of requests (default: the 64 that come with libdecode)"},
    {"--page", "TOKENS", OPTION_INT, offsetof(struct demo_args, page), 16, 512, "KV tokens in a page (default 16)"},
    {"--kv", "bf16|fp16", OPTION_WORD, offsetof(struct demo_args, kv), 0, 0, "what the KV cache holds (default bf16)"},
    {"--no-gpu", NULL, OPTION_FLAG, offsetof(struct demo_args, no_gpu), 0, 0, "as on a machine without a GPU"},
    {0},
};

static const struct model { const char *name, *heads; } models[] = {{"Llama-3-8B", "32/8"}, {"Llama-3-70B", "64/8"}};
#define NUM_MODELS (sizeof models / sizeof models[0])

/* A line under a heading of the first column. */
#define tell(...) print_wrapped(stdout, 12, __VA_ARGS__)

struct demo {
    const struct session_args *session;
    const char *trace;
    struct json json;
    struct workload workloads[NUM_MODELS];
};

/* "866,311", into `text`. */
static const char *grouped(int64_t number, char text[32]) {
    char digits[32];
    int length = snprintf(digits, sizeof digits, "%lld", (long long)number), out = 0;
    for (int index = 0; index < length; index++) {
        if (index > 0 && (length - index) % 3 == 0)
            text[out++] = ',';
        text[out++] = digits[index];
    }
    text[out] = '\0';
    return text;
}

static int compare_lengths(const void *left, const void *right) {
    int32_t a = *(const int32_t *)left, b = *(const int32_t *)right;
    return (a > b) - (a < b);
}

/* ------------------------------------------------------------------------------------------------------- introduction */

/* Shortest, median and longest length. False: out of memory. */
static bool spread_of(const struct workload *workload, int32_t ret_spread[3]) {
    const size_t count = (size_t)workload->problem.batch_size;
    int32_t *sorted = malloc(count * sizeof sorted[0]);
    if (sorted == NULL)
        return complain("out of memory");
    memcpy(sorted, workload->seq_lens, count * sizeof sorted[0]);
    qsort(sorted, count, sizeof sorted[0], compare_lengths);
    ret_spread[0] = sorted[0];
    ret_spread[1] = sorted[count / 2];
    ret_spread[2] = sorted[count - 1];
    free(sorted);
    return true;
}

static bool introduce(struct demo *demo, const struct kv_batch *batch) {
    const struct workload *workload = batch->workload;
    int32_t spread[3] = {0};
    char a[32], b[32], c[32], d[32];
    if (!spread_of(workload, spread))
        return false;
    if (demo->session->json) {
        struct json *json = &demo->json;
        json_text(json, "trace", demo->trace);
        json_integer(json, "requests", workload->problem.batch_size);
        json_integer(json, "tokens", workload->total_tokens);
        json_integer(json, "shortest", spread[0]);
        json_integer(json, "median", spread[1]);
        json_integer(json, "longest", spread[2]);
        json_integer(json, "page_size", workload->problem.page_size);
        json_integer(json, "pages", batch->num_pages);
        json_integer(json, "shared_pages", batch->shared_pages);
        return true;
    }
    printf("libdecode %s: one decode step of a chat service\n\n", libdecode_version());
    tell("  trace     %s", demo->trace);
    tell("  batch     %d requests, each half way through its answer", workload->problem.batch_size);
    tell("  lengths   %s to %s tokens, median %s, together %s", grouped(spread[0], a), grouped(spread[2], b),
         grouped(spread[1], c), grouped(workload->total_tokens, d));
    tell("  pages     of %d tokens, in random order: %s in the pool", workload->problem.page_size, grouped(batch->num_pages, a));
    if (batch->shared_pages > 0)
        tell("            %s more are spared, as prompts that begin alike share pages; TB/s counts them for every reader",
             grouped(batch->shared_pages, b));
    fflush(stdout);
    return true;
}

static void introduce_model(const struct demo *demo, const struct model *model, const struct workload *workload) {
    char bytes[32];
    format_bytes((double)workload_kv_bytes(workload), bytes, sizeof bytes);
    if (!demo->session->json)
        tell("\n%s: %d query heads on %d KV heads of %d, %s, %s of K and V to read in one layer", model->name,
             workload->problem.num_qo_heads, workload->problem.num_kv_heads, workload->problem.head_dim,
             dtype_name(workload->problem.query_dtype), bytes);
    fflush(stdout);
}

/* -------------------------------------------------------------------------------------------------------- with a GPU */

static const char *reason_of(const libdecode_plan *plan) {
    libdecode_plan_info info = {.struct_size = sizeof info};
    return libdecode_plan_get_info(plan, &info) == LIBDECODE_OK ? info.reason : "";
}

static void print_gpu_result(struct demo *demo, const struct model *model, const struct bench_batch *batch,
                             const struct bench_result *result, const char *reason) {
    const size_t elements = batch->expectation.num_rows * (size_t)batch->expectation.head_dim;
    char compared[32];
    if (demo->session->json) {
        struct json *json = &demo->json;
        json_begin(json, NULL, '{');
        json_text(json, "model", model->name);
        json_text(json, "kernel", result->kernel);
        json_text(json, "reason", reason);
        json_number(json, "us", result->timing.median_us);
        json_number(json, "terabytes_per_second", result->terabytes_per_second);
        json_number(json, "ceiling_us", batch->has_ceiling ? batch->ceiling.median_us : (double)NAN);
        json_number(json, "percent_of_ceiling", result->percent_of_ceiling);
        json_integer(json, "elements_compared", (int64_t)elements);
        json_bool(json, "agrees", true);
        json_end(json, '}');
        return;
    }
    tell("  kernel    %s", result->kernel);
    tell("  because   %s", reason);
    if (batch->has_ceiling)
        tell("  time      %.1f us, %.2f TB/s: %.1f %% of the speed at which this GPU can read at all (%.1f us)",
             result->timing.median_us, result->terabytes_per_second, result->percent_of_ceiling, batch->ceiling.median_us);
    else
        tell("  time      %.1f us, %.2f TB/s", result->timing.median_us, result->terabytes_per_second);
    tell("  result    all %s elements agree with the float64 reference", grouped((int64_t)elements, compared));
    fflush(stdout);
}

static bool run_model_on_gpu(struct demo *demo, struct bench_machine *machine, const struct model *model,
                             const struct workload *workload) {
    struct bench_batch batch;
    struct bench_result result;
    libdecode_plan *plan = NULL;
    introduce_model(demo, model, workload);
    if (!bench_batch_make(machine, workload, true, BENCH_CHECK_ALL, model->name, &batch))
        return false;
    bool good = bench_measure(machine, &batch, machine->context, false, false, &result);
    if (good && libdecode_plan_create(machine->context, &batch.host.launch_problem, &machine->device, &plan) != LIBDECODE_OK)
        good = complain("%s", libdecode_error_message());
    if (good)
        print_gpu_result(demo, model, &batch, &result, reason_of(plan));
    libdecode_plan_destroy(plan);
    bench_batch_free(machine, &batch);
    return good;
}

static int run_on_gpu(struct demo *demo, struct bench_machine *machine) {
    int result = EXIT_PASSED;
    if (demo->session->json)
        json_text(&demo->json, "gpu", machine->device.name);
    else
        tell("  GPU       %s, %d SMs", machine->device.name, machine->device.sm_count);
    if (demo->session->json)
        json_begin(&demo->json, "models", '[');
    for (size_t model = 0; model < NUM_MODELS && !machine->gpu.broken; model++) {
        if (!run_model_on_gpu(demo, machine, &models[model], &demo->workloads[model]))
            result = EXIT_FAILED;
    }
    if (demo->session->json)
        json_end(&demo->json, ']');
    return machine->gpu.broken ? EXIT_FAILED : result;
}

/* ------------------------------------------------------------------------------------------------------ without a GPU */

/* As many KV heads as fit into REFERENCE_SECONDS, at least the first. False: the reference failed. */
static bool run_reference(const struct kv_part *part, const char *label, int32_t *ret_heads, double *ret_seconds) {
    const int32_t all = part->problem.num_kv_heads;
    const double begin = seconds_now();
    char first_label[64];
    snprintf(first_label, sizeof first_label, "%s, its first KV head", label);
    if (!host_reference(&part->problem, &part->tensors, 0, 1, first_label))
        return false;
    const double first = seconds_now() - begin;
    double more = REFERENCE_SECONDS / fmax(first, 1e-9) - 1.0;
    int32_t heads = more >= all - 1 ? all - 1 : more > 0 ? (int32_t)more : 0;
    if (heads > 0 && !host_reference(&part->problem, &part->tensors, 1, heads, label))
        return false;
    *ret_heads = 1 + heads;
    *ret_seconds = seconds_now() - begin;
    return true;
}

static void print_reference(struct demo *demo, const struct model *model, const struct kv_part *part, int32_t heads,
                            double seconds) {
    double values[4];
    element_decode_row(part->problem.query_dtype, part->tensors.out, 4, values);
    if (demo->session->json) {
        struct json *json = &demo->json;
        json_begin(json, NULL, '{');
        json_text(json, "model", model->name);
        json_integer(json, "kv_heads_computed", heads);
        json_integer(json, "kv_heads", part->problem.num_kv_heads);
        json_number(json, "seconds", seconds);
        json_begin(json, "first_elements", '[');
        for (int element = 0; element < 4; element++)
            json_number(json, NULL, values[element]);
        json_end(json, ']');
        json_end(json, '}');
        return;
    }
    const int32_t all = part->problem.num_kv_heads;
    char computed[96];
    if (heads == all)
        snprintf(computed, sizeof computed, "all %d KV heads", heads);
    else
        snprintf(computed, sizeof computed, "KV heads 0 to %d of %d (all of them would take %.0f s)", heads - 1, all,
                 seconds * all / heads);
    tell("  reference float64, %d threads, %.1f s: all %d requests, %s", host_reference_threads(), seconds,
         part->problem.batch_size, computed);
    printf("  result    request 0, head 0 begins %.5f %.5f %.5f %.5f\n", values[0], values[1], values[2], values[3]);
    fflush(stdout);
}

static bool run_model_on_host(struct demo *demo, const struct model *model, const struct workload *workload) {
    struct kv_batch batch;
    struct kv_part part;
    double seconds = 0;
    int32_t heads = 0;
    introduce_model(demo, model, workload);
    if (!kv_batch_make(workload, true, 1, &batch))
        return false;
    kv_batch_part(&batch, 0, 0, workload->problem.batch_size, &part);
    part.tensors.out = aligned_alloc(16, (size_t)workload->problem.batch_size * (size_t)workload->problem.num_qo_heads *
                                             (size_t)workload->problem.head_dim * 2);
    bool good = part.tensors.out != NULL || complain("out of memory");
    good = good && run_reference(&part, model->name, &heads, &seconds);
    if (good)
        print_reference(demo, model, &part, heads, seconds);
    free(part.tensors.out);
    kv_batch_free(&batch);
    return good;
}

struct choice {
    char kernel[128];
    int32_t predicted_ns;
};

static void keep_choice(void *cookie, const libdecode_verdict *verdict) {
    struct choice *choice = cookie;
    if (verdict->chosen == 0)
        return;
    snprintf(choice->kernel, sizeof choice->kernel, "%s", verdict->kernel);
    choice->predicted_ns = verdict->predicted_ns;
}

static void print_choice(struct demo *demo, libdecode_context *context, const char *preset, const struct model *model,
                         const struct workload *workload) {
    libdecode_device device = {.struct_size = sizeof device};
    struct choice choice = {0};
    libdecode_status status = libdecode_device_preset(preset, &device);
    if (status == LIBDECODE_OK)
        status = libdecode_explain(context, &workload->problem, &device, keep_choice, &choice);
    if (demo->session->json) {
        json_begin(&demo->json, NULL, '{');
        json_text(&demo->json, "gpu", preset);
        json_text(&demo->json, "device", device.name);
        json_text(&demo->json, "model", model->name);
        json_text(&demo->json, "kernel", status == LIBDECODE_OK ? choice.kernel : NULL);
        json_text(&demo->json, "error", status == LIBDECODE_OK ? NULL : libdecode_error_message());
        json_end(&demo->json, '}');
    } else if (status == LIBDECODE_OK) {
        printf("  %-7s %-12s %s\n", preset, model->name, choice.kernel);
    } else {
        tell("  %-7s %-12s none: %s", preset, model->name, libdecode_error_message());
    }
}

static bool print_choices(struct demo *demo) {
    libdecode_context *context;
    if (!session_open(demo->session, NULL, &context))
        return false;
    const bool empty = libdecode_kernel_count(context) == 0;
    if (demo->session->json)
        json_begin(&demo->json, "choices", '[');
    else if (empty)
        tell("\nThere is no bundle of kernels here, so nothing can be said of what a GPU would run.");
    else
        printf("\nOn a GPU, libdecode would run\n");
    for (size_t preset = 0; preset < DEVICE_NUM_CAPABILITIES && !empty; preset++) {
        for (size_t model = 0; model < NUM_MODELS; model++)
            print_choice(demo, context, device_preset_name(preset), &models[model], &demo->workloads[model]);
    }
    if (demo->session->json)
        json_end(&demo->json, ']');
    else if (!empty)
        printf("('libdecode explain --gpu all' says why, and why not the others)\n");
    libdecode_close(context);
    return true;
}

static int run_on_host(struct demo *demo, const char *why) {
    int result = EXIT_PASSED;
    if (demo->session->json) {
        json_text(&demo->json, "gpu", NULL);
        json_text(&demo->json, "why_no_gpu", why);
        json_begin(&demo->json, "models", '[');
    } else {
        tell("  GPU       none (%s): the same batch on the float64 reference instead", why);
    }
    for (size_t model = 0; model < NUM_MODELS; model++) {
        progress_done(model, NUM_MODELS);
        if (!run_model_on_host(demo, &models[model], &demo->workloads[model]))
            result = EXIT_FAILED;
    }
    if (demo->session->json)
        json_end(&demo->json, ']');
    return print_choices(demo) ? result : EXIT_FAILED;
}

/* ----------------------------------------------------------------------------------------------------------- the rest */

static bool make_workloads(struct demo *demo, const struct demo_args *args) {
    for (size_t model = 0; model < NUM_MODELS; model++) {
        struct problem_args problem = PROBLEM_ARGS_DEFAULT;
        problem.trace = demo->trace;
        problem.heads = models[model].heads;
        problem.kv = args->kv;
        problem.page = args->page;
        if (!workload_make("demo", &problem, &demo->workloads[model]))
            return false;
    }
    return true;
}

static int run_prepared(struct demo *demo, const struct demo_args *args) {
    struct bench_machine machine;
    struct gpu gpu;
    struct kv_batch batch;
    char why[256] = "--no-gpu";
    enum gpu_presence presence = args->no_gpu ? GPU_ABSENT : gpu_find(&gpu, why, sizeof why);
    if (presence == GPU_FAULTY) {
        complain("demo: %s", why);
        return EXIT_FAILED;
    }
    /* only to tell how many pages there are and how many are shared; each model makes its own again */
    if (!kv_batch_make(&demo->workloads[0], true, 1, &batch))
        return EXIT_FAILED;
    if (demo->session->json)
        json_begin(&demo->json, NULL, '{');
    bool introduced = introduce(demo, &batch);
    kv_batch_free(&batch);
    int result = introduced ? EXIT_PASSED : EXIT_FAILED;
    if (introduced && presence == GPU_ABSENT) {
        result = run_on_host(demo, why);
    } else if (introduced) {
        result = bench_machine_open("demo", demo->session, &machine);
        if (result == EXIT_PASSED) {
            result = run_on_gpu(demo, &machine);
            bench_machine_close(&machine);
        }
    }
    if (demo->session->json)
        json_end(&demo->json, '}');
    return result;
}

static int run(int argc, char **argv) {
    struct demo_args args = {.page = 16};
    struct session_args session = {0};
    void *const targets[] = {&args, &session, &session};
    if (!options_parse(&demo_command, targets, argc, argv, NULL))
        return EXIT_USAGE;
    struct demo demo = {.session = &session, .trace = args.trace != NULL ? args.trace : trace_shipped_path()};
    if (demo.trace == NULL)
        return EXIT_FAILED;
    int result = make_workloads(&demo, &args) ? run_prepared(&demo, &args) : EXIT_USAGE;
    for (size_t model = 0; model < NUM_MODELS; model++)
        workload_free(&demo.workloads[model]);
    return result;
}

static const struct option_group groups[] = {
    {"The batch", demo_options}, {"Bundles and output", bundle_options}, {"GPU", device_options}};

const struct command demo_command = {
    .name = "demo",
    .summary = "decode a batch cut from a real request trace, and show what happens",
    .operands = "",
    .description =
        "One decode step of a chat service: 64 requests that were in flight together, with the lengths that were recorded and "
        "prompts that share the pages of their common beginnings, in the shapes of Llama-3-8B and Llama-3-70B.\n\n"
        "With a GPU: runs it, compares every element with the float64 reference, and says which kernel ran, how long, and how "
        "near that is to the speed of memory. Without: runs the reference, and says what each kind of GPU would run.",
    .examples = "",
    .notes = "",
    COMMAND_GROUPS(groups),
    .run = run,
};
