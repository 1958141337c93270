/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cold_start.c: a workload in; the time of every step from libdecode_open to the first result on the host out. The driver's own
 * start, the context and the tensors are made before and timed apart. Before: kv_batch.c.
 */
#include "cold_start.h"

#include <stdio.h>
#include <stdlib.h>

#include "kv_batch.h"
#include "report.h"

enum { STEP_OPEN, STEP_PLAN, STEP_PREPARE, STEP_WORKSPACE, STEP_FIRST, STEP_SECOND, NUM_STEPS };
static const char *const step_names[NUM_STEPS] = {"open", "plan", "prepare", "workspace", "first_result", "second_result"};
static const char *const step_texts[NUM_STEPS] = {
    "libdecode_open: the tables of all bundles",        "libdecode_plan_create: which kernel",
    "libdecode_prepare: decompress, check and load it", "workspace: allocate and libdecode_workspace_init",
    "first launch, and its result on the host",         "second launch, and its result on the host"};

struct start {
    struct gpu gpu;
    libdecode_stream stream;
    struct kv_batch host;
    struct device_batch device;
    libdecode_context *context;
    libdecode_plan *plan;
    uint8_t *out;
    double context_ms, step_ms[NUM_STEPS];
    char kernel[128];
};

static bool launch_once(struct start *start) {
    libdecode_tensors tensors = device_batch_tensors(&start->device, 0);
    if (libdecode_plan_launch(start->plan, &tensors, start->stream) != LIBDECODE_OK)
        return complain("%s", libdecode_error_message());
    return gpu_wait(&start->gpu, start->stream) &&
           gpu_download(&start->gpu, start->out, start->device.out, start->device.out_bytes);
}

static bool run_step(struct start *start, const struct session_args *session, int step) {
    libdecode_status status = LIBDECODE_OK;
    switch (step) {
    case STEP_OPEN:
        return session_open(session, NULL, &start->context);
    case STEP_PLAN:
        status = libdecode_plan_create(start->context, &start->host.launch_problem, NULL, &start->plan);
        break;
    case STEP_PREPARE:
        status = libdecode_prepare(start->context, &start->plan, 1);
        break;
    case STEP_WORKSPACE:
        return device_batch_workspace(&start->gpu, &start->device, start->context, start->plan, start->stream);
    default:
        return launch_once(start);
    }
    return status == LIBDECODE_OK || complain("%s", libdecode_error_message());
}

static bool run_steps(struct start *start, const struct session_args *session) {
    for (int step = 0; step < NUM_STEPS; step++) {
        double begin = seconds_now();
        if (!run_step(start, session, step))
            return false;
        start->step_ms[step] = 1e3 * (seconds_now() - begin);
    }
    libdecode_plan_info info = {.struct_size = sizeof info};
    if (libdecode_plan_get_info(start->plan, &info) == LIBDECODE_OK)
        snprintf(start->kernel, sizeof start->kernel, "%s", info.kernel);
    struct expectation nothing = {0};
    return device_batch_check(&start->gpu, &start->device, 0, 0, 0, &nothing, NULL);
}

static void print_steps(const struct start *start, bool as_json) {
    double total = 0;
    for (int step = 0; step <= STEP_FIRST; step++)
        total += start->step_ms[step];
    if (as_json) {
        struct json json = {0};
        json_begin(&json, NULL, '{');
        json_text(&json, "kernel", start->kernel);
        json_number(&json, "driver_and_context_ms", start->context_ms);
        for (int step = 0; step < NUM_STEPS; step++) {
            char key[32];
            snprintf(key, sizeof key, "%s_ms", step_names[step]);
            json_number(&json, key, start->step_ms[step]);
        }
        json_number(&json, "open_to_first_result_ms", total);
        json_end(&json, '}');
        return;
    }
    printf("%s\n", start->kernel);
    printf("  %8.3f ms  driver, CUDA context, stream (not libdecode's; not counted)\n", start->context_ms);
    for (int step = 0; step < NUM_STEPS; step++)
        printf("  %8.3f ms  %s\n", start->step_ms[step], step_texts[step]);
    printf("  %8.3f ms  libdecode_open to first result (without the second launch)\n", total);
}

static void print_refusal(void) {
    struct json json = {0};
    json_begin(&json, NULL, '{');
    json_text(&json, "kernel", NULL);
    json_text(&json, "error", last_complaint());
    json_end(&json, '}');
}

int run_cold_start(const struct session_args *session, const struct workload *workload) {
    struct start start = {0};
    double begin = seconds_now();
    int result = session_open_gpu("bench", session, &start.gpu);
    if (result != EXIT_PASSED) {
        if (session->json)
            print_refusal();
        return result;
    }
    bool good = gpu_stream_create(&start.gpu, &start.stream);
    start.context_ms = 1e3 * (seconds_now() - begin);
    good = good && kv_batch_make(workload, false, 1, &start.host) && device_batch_make(&start.gpu, &start.host, &start.device);
    if (good) {
        start.out = malloc(start.device.out_bytes + 1);
        good = start.out != NULL || complain("out of memory");
    }
    good = good && run_steps(&start, session);
    if (good)
        print_steps(&start, session->json);
    free(start.out);
    libdecode_plan_destroy(start.plan);
    libdecode_close(start.context);
    device_batch_free(&start.gpu, &start.device);
    kv_batch_free(&start.host);
    gpu_stream_destroy(&start.gpu, &start.stream);
    gpu_close(&start.gpu);
    return good ? EXIT_PASSED : EXIT_FAILED;
}
