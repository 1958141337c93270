/* SPDX-License-Identifier: Apache-2.0 */
/* bench_run.c: a workload and a policy in, measured and checked times out. Before: kv_batch.c, timing.c. Next: bench.c, demo.c.
 */
#include "bench_run.h"

#include <math.h>
#include <stdio.h>

#include "option_words.h"
#include "page_ceiling.h"
#include "terminal.h"

#define MIN_CALLS 10
#define MAX_CALLS 40
#define LONG_CALL_BYTES 100e6 /* of such calls, 10 in a graph are enough */
#define HOLD_FACTOR 2.5       /* of a replay's time with all SMs: with fewer it takes longer */
#define HOLD_MARGIN_US 300.0
#define HELD_REPLAYS 7
#define MAX_CHECKED_TOKENS 40000 /* of the one request that is compared, for every query token: a second of the reference or so */

int bench_machine_open(const char *command, const struct session_args *session, struct bench_machine *ret_machine) {
    struct bench_machine *machine = ret_machine;
    *machine = (struct bench_machine){.device = {.struct_size = sizeof machine->device}};
    int result = session_open_gpu(command, session, &machine->gpu);
    if (result != EXIT_PASSED)
        return result;
    bool good = session_open(session, NULL, &machine->context);
    if (good && libdecode_device_current(machine->context, &machine->device) != LIBDECODE_OK)
        good = complain("%s: %s", command, libdecode_error_message());
    if (good && libdecode_kernel_count(machine->context) == 0)
        good = complain("%s: no bundle was found; 'libdecode doctor' shows where they are looked for", command);
    good = good && gpu_stream_create(&machine->gpu, &machine->stream);
    if (good) {
        machine->has_ceiling = ceiling_open(&machine->gpu, machine->context, &machine->device, &machine->ceiling);
        return EXIT_PASSED;
    }
    bench_machine_close(machine);
    return EXIT_FAILED;
}

void bench_machine_close(struct bench_machine *machine) {
    if (machine->has_ceiling)
        ceiling_close(&machine->gpu, &machine->ceiling);
    gpu_stream_destroy(&machine->gpu, &machine->stream);
    libdecode_close(machine->context);
    machine->context = NULL;
    gpu_close(&machine->gpu);
}

/* A multiple of the regions, so that the next replay does not find the last one's KV in the L2 cache. */
static int calls_for(uint64_t kv_bytes, int32_t regions) {
    int wanted = (double)kv_bytes > LONG_CALL_BYTES ? MIN_CALLS : MAX_CALLS;
    int rounds = wanted / regions;
    if (rounds * regions < MIN_CALLS)
        rounds++;
    return rounds * regions;
}

/* The longest request that the reference can do in about a second; of only longer ones, the shortest. */
static int32_t request_to_check(const struct workload *workload) {
    const int32_t most = MAX_CHECKED_TOKENS / workload->problem.q_len;
    int32_t best = 0;
    for (int32_t request = 1; request < workload->problem.batch_size; request++) {
        int32_t len = workload->seq_lens[request], best_len = workload->seq_lens[best];
        if (best_len > most ? len < best_len : len <= most && len > best_len)
            best = request;
    }
    return best;
}

bool bench_batch_make(struct bench_machine *machine, const struct workload *workload, bool share_prefixes, enum bench_check check,
                      const char *label, struct bench_batch *ret_batch) {
    struct bench_batch *batch = ret_batch;
    *batch = (struct bench_batch){.kv_bytes = workload_kv_bytes(workload)};
    const int32_t regions = kv_batch_regions(batch->kv_bytes);
    batch->calls = calls_for(batch->kv_bytes, regions);
    batch->region = (batch->calls - 1) % regions;
    progress("%s: filling the KV cache", label);
    bool good = kv_batch_make(workload, share_prefixes, regions, &batch->host) &&
                device_batch_make(&machine->gpu, &batch->host, &batch->device);
    if (good && check != BENCH_CHECK_FINITE && workload->problem.batch_size > 0) {
        batch->first_checked = check == BENCH_CHECK_ALL ? 0 : request_to_check(workload);
        batch->num_checked = check == BENCH_CHECK_ALL ? workload->problem.batch_size : 1;
        good = kv_batch_expect(&batch->host, batch->region, batch->first_checked, batch->num_checked, label, &batch->expectation);
    }
    progress("%s: read ceiling", label);
    if (good && machine->has_ceiling && batch->kv_bytes > 0)
        batch->has_ceiling = ceiling_time(&machine->gpu, &machine->ceiling, machine->stream, batch->device.pool,
                                          batch->device.pool_bytes, batch->kv_bytes, batch->calls, &batch->ceiling);
    progress_clear();
    if (!good || machine->gpu.broken) {
        bench_batch_free(machine, batch);
        return false;
    }
    return true;
}

void bench_batch_free(struct bench_machine *machine, struct bench_batch *batch) {
    expectation_free(&batch->expectation);
    device_batch_free(&machine->gpu, &batch->device);
    kv_batch_free(&batch->host);
}

bool enqueue_plan(void *cookie, int call, libdecode_stream stream) {
    const struct plan_launcher *launcher = cookie;
    libdecode_tensors tensors = device_batch_tensors(launcher->device, call % launcher->device->batch->regions);
    tensors.launch_flags = launcher->launch_flags;
    if (libdecode_plan_launch(launcher->plan, &tensors, stream) != LIBDECODE_OK)
        return complain("%s", libdecode_error_message());
    return true;
}

/* Plain and programmatic launches in turns; the longer of these two says how long SMs must be held for a replay. */
static bool time_launch_forms(struct bench_machine *machine, const struct bench_batch *batch,
                              const struct plan_launcher *launcher, struct bench_result *result) {
    struct plan_launcher plain = *launcher, programmatic = *launcher, history_final = *launcher;
    struct timed_work works[] = {{.enqueue = enqueue_plan, .cookie = &plain},
                                 {.enqueue = enqueue_plan, .cookie = &programmatic},
                                 {.enqueue = enqueue_plan, .cookie = &history_final}};
    programmatic.launch_flags = LIBDECODE_LAUNCH_PROGRAMMATIC;
    history_final.launch_flags = LIBDECODE_LAUNCH_PROGRAMMATIC | LIBDECODE_LAUNCH_HISTORY_FINAL;
    if (!time_in_turns(&machine->gpu, machine->stream, works, 3, batch->calls, TIMING_REPLAYS, NULL))
        return false;
    result->timing = works[0].timing;
    result->programmatic = works[1].timing;
    result->history_final = works[2].timing;
    result->has_programmatic = true;
    if (machine->held == NULL)
        return true;
    const double longest_us = fmax(works[0].timing.slowest_us, works[1].timing.slowest_us) * batch->calls;
    const struct company company = held_sms_company(machine->held);
    if (!held_sms_set_duration(machine->held, HOLD_FACTOR * longest_us + HOLD_MARGIN_US) ||
        !time_in_turns(&machine->gpu, machine->stream, works, 2, batch->calls, HELD_REPLAYS, &company))
        return false;
    result->held_sms = machine->held->num_sms;
    result->held = works[0].timing;
    result->held_programmatic = works[1].timing;
    return result->has_held = true;
}

static bool time_plan(struct bench_machine *machine, const struct bench_batch *batch, struct plan_launcher *launcher,
                      bool programmatic, struct bench_result *result) {
    if (programmatic)
        return time_launch_forms(machine, batch, launcher, result);
    return time_graph(&machine->gpu, machine->stream, enqueue_plan, launcher, batch->calls, &result->timing);
}

static bool measure_plan(struct bench_machine *machine, struct bench_batch *batch, libdecode_context *context,
                         struct plan_launcher *launcher, bool programmatic, bool host_time, struct bench_result *result) {
    libdecode_plan_info info = {.struct_size = sizeof info};
    if (libdecode_plan_get_info(launcher->plan, &info) != LIBDECODE_OK ||
        libdecode_prepare(context, &launcher->plan, 1) != LIBDECODE_OK)
        return complain("%s", libdecode_error_message());
    snprintf(result->kernel, sizeof result->kernel, "%s", info.kernel);
    result->workspace_bytes = info.workspace_bytes;
    progress("timing %s", info.kernel);
    bool good = device_batch_workspace(&machine->gpu, &batch->device, context, launcher->plan, machine->stream) &&
                time_plan(machine, batch, launcher, programmatic, result) &&
                device_batch_check(&machine->gpu, &batch->device, batch->region, batch->first_checked, batch->num_checked,
                                   &batch->expectation, &result->accuracy);
    if (good && batch->kv_bytes > 0)
        result->has_page_ceiling = page_ceiling_time(machine, batch, context, launcher, &result->page_ceiling);
    if (good && host_time)
        good = result->has_host = time_host(&machine->gpu, machine->stream, enqueue_plan, launcher, &result->host);
    progress_clear();
    return good || complain("%s: not measured", info.kernel);
}

bool bench_measure(struct bench_machine *machine, struct bench_batch *batch, libdecode_context *context, bool programmatic,
                   bool host_time, struct bench_result *ret_result) {
    struct bench_result result = {.percent_of_ceiling = NAN};
    struct plan_launcher launcher = {.device = &batch->device};
    if (libdecode_plan_create(context, &batch->host.launch_problem, &machine->device, &launcher.plan) != LIBDECODE_OK)
        return complain("%s", in_option_words(libdecode_error_message()));
    bool good = measure_plan(machine, batch, context, &launcher, programmatic, host_time, &result);
    libdecode_plan_destroy(launcher.plan);
    if (!good)
        return false;
    result.terabytes_per_second = (double)batch->kv_bytes / result.timing.median_us / 1e6;
    if (batch->has_ceiling)
        result.percent_of_ceiling = 100.0 * batch->ceiling.median_us / result.timing.median_us;
    *ret_result = result;
    return true;
}
