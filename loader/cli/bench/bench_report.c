/* SPDX-License-Identifier: Apache-2.0 */
/* bench_report.c: what was measured in; text, JSON or comma-separated values out. Before: bench_run.c. Used by bench.c. */
#include "bench_report.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "dtype.h"
#include "terminal.h"

void bench_report_begin(struct bench_report *report, const libdecode_device *device) {
    switch (report->form) {
    case BENCH_CSV:
        printf("label,batch_size,tokens,num_qo_heads,num_kv_heads,head_dim,kv_dtype,page_size,kv_bytes,kernel,us,fastest_us,"
               "slowest_us,terabytes_per_second,ceiling_us,percent_of_ceiling,launch_us,bare_us%s,q_len,page_ceiling_us%s\n",
               report->programmatic ? ",programmatic_us,history_final_us,held_us,held_programmatic_us" : "",
               report->accuracy ? ",largest_error,rms_error" : "");
        break;
    case BENCH_JSON:
        json_begin(&report->json, NULL, '{');
        json_text(&report->json, "libdecode", libdecode_version());
        json_text(&report->json, "gpu", device != NULL ? device->name : NULL);
        json_number(&report->json, "driver_version", device != NULL ? device->driver_version : (double)NAN);
        json_bool(&report->json, "programmatic", report->programmatic);
        json_begin(&report->json, "results", '[');
        break;
    case BENCH_TEXT:
        if (device != NULL)
            print_wrapped(stdout, 2, "%s, %d SMs, cold KV, graph nodes, median of %d replays", device->name, device->sm_count,
                          TIMING_REPLAYS);
        break;
    }
    fflush(stdout);
}

static void print_csv(const struct bench_batch *batch, const char *label, const struct bench_result *result, bool accuracy) {
    const libdecode_problem *problem = &batch->host.problem;
    printf("%s,%d,%lld,%d,%d,%d,%s,%d,%llu,%s,%.3f,%.3f,%.3f,%.4f,", label, problem->batch_size,
           (long long)batch->host.workload->total_tokens, problem->num_qo_heads, problem->num_kv_heads, problem->head_dim,
           dtype_name(problem->kv_dtype), batch->host.launch_problem.page_size, (unsigned long long)batch->kv_bytes,
           result->kernel, result->timing.median_us, result->timing.fastest_us, result->timing.slowest_us,
           result->terabytes_per_second);
    if (batch->has_ceiling)
        printf("%.3f,%.2f,", batch->ceiling.median_us, result->percent_of_ceiling);
    else
        printf(",,");
    if (result->has_host)
        printf("%.3f,", result->host.launch_us);
    else
        printf(",");
    if (result->has_host && !isnan(result->host.bare_us))
        printf("%.3f", result->host.bare_us);
    if (result->has_programmatic)
        printf(",%.3f,%.3f,", result->programmatic.median_us, result->history_final.median_us);
    if (result->has_held)
        printf("%.3f,%.3f", result->held.median_us, result->held_programmatic.median_us);
    else if (result->has_programmatic)
        printf(",");
    printf(",%d,", problem->q_len);
    if (result->has_page_ceiling)
        printf("%.3f", result->page_ceiling.median_us);
    if (accuracy && batch->num_checked > 0)
        printf(",%.3e,%.3e", result->accuracy.largest_error, result->accuracy.rms_error);
    else if (accuracy)
        printf(",,");
    putchar('\n');
}

static void print_json(struct json *json, const struct bench_batch *batch, const char *set, const char *label,
                       const char *description, const struct bench_result *result) {
    const libdecode_problem *problem = &batch->host.problem;
    json_begin(json, NULL, '{');
    json_text(json, "set", set);
    json_text(json, "label", label);
    json_text(json, "problem", description);
    json_integer(json, "batch_size", problem->batch_size);
    json_integer(json, "q_len", problem->q_len);
    json_integer(json, "tokens", batch->host.workload->total_tokens);
    json_integer(json, "num_qo_heads", problem->num_qo_heads);
    json_integer(json, "num_kv_heads", problem->num_kv_heads);
    json_integer(json, "head_dim", problem->head_dim);
    json_text(json, "query_dtype", dtype_name(problem->query_dtype));
    json_text(json, "kv_dtype", dtype_name(problem->kv_dtype));
    json_text(json, "out_dtype", dtype_name(problem->out_dtype));
    json_integer(json, "page_size", batch->host.launch_problem.page_size);
    json_integer(json, "kv_capacity_tokens", problem->kv_capacity_tokens); /* 0: there are pages */
    json_integer(json, "kv_bytes", (int64_t)batch->kv_bytes);
    json_integer(json, "regions", batch->host.regions);
    json_integer(json, "calls", batch->calls);
    json_text(json, "kernel", result->kernel);
    json_number(json, "us", result->timing.median_us);
    json_number(json, "fastest_us", result->timing.fastest_us);
    json_number(json, "slowest_us", result->timing.slowest_us);
    json_number(json, "terabytes_per_second", result->terabytes_per_second);
    json_number(json, "ceiling_us", batch->has_ceiling ? batch->ceiling.median_us : (double)NAN);
    json_number(json, "percent_of_ceiling", result->percent_of_ceiling);
    json_number(json, "page_ceiling_us", result->has_page_ceiling ? result->page_ceiling.median_us : (double)NAN);
    json_number(json, "launch_us", result->has_host ? result->host.launch_us : (double)NAN);
    json_number(json, "bare_us", result->has_host ? result->host.bare_us : (double)NAN);
    if (result->has_programmatic) {
        json_number(json, "programmatic_us", result->programmatic.median_us);
        json_number(json, "history_final_us", result->history_final.median_us);
        json_number(json, "held_us", result->has_held ? result->held.median_us : (double)NAN);
        json_number(json, "held_programmatic_us", result->has_held ? result->held_programmatic.median_us : (double)NAN);
    }
    json_integer(json, "workspace_bytes", (int64_t)result->workspace_bytes);
    json_integer(json, "requests_compared", batch->num_checked);
    json_number(json, "largest_error", batch->num_checked > 0 ? result->accuracy.largest_error : (double)NAN);
    json_number(json, "rms_error", batch->num_checked > 0 ? result->accuracy.rms_error : (double)NAN);
    json_end(json, '}');
}

static double more_percent(const struct timing *timing, const struct timing *than) {
    return 100.0 * (timing->median_us / than->median_us - 1.0);
}

struct line {
    char text[640];
    size_t used;
};
__attribute__((format(printf, 2, 3))) static void append(struct line *line, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const int written = vsnprintf(line->text + line->used, sizeof line->text - line->used, format, arguments);
    va_end(arguments);
    line->used += written > 0 ? (size_t)written : 0;
    line->used = line->used < sizeof line->text ? line->used : sizeof line->text - 1;
}

static void print_text(const struct bench_batch *batch, const struct bench_result *result, bool accuracy) {
    struct line line = {.used = 0};
    append(&line, "  %-44s %9.2f us %7.3f TB/s", result->kernel, result->timing.median_us, result->terabytes_per_second);
    if (batch->has_ceiling)
        append(&line, " %6.1f %% of the ceiling (%.2f us)", result->percent_of_ceiling, batch->ceiling.median_us);
    if (result->has_page_ceiling)
        append(&line, ", %.1f %% of its copies alone (%.2f us)",
               100.0 * result->page_ceiling.median_us / result->timing.median_us, result->page_ceiling.median_us);
    if (result->has_host && !isnan(result->host.bare_us))
        append(&line, "; launch %.2f us, bare %.2f us", result->host.launch_us, result->host.bare_us);
    else if (result->has_host)
        append(&line, "; launch %.2f us", result->host.launch_us);
    if (accuracy && batch->num_checked > 0)
        append(&line, "; error %.2e largest, %.2e rms", result->accuracy.largest_error, result->accuracy.rms_error);
    print_wrapped(stdout, 4, "%s", line.text);
    if (!result->has_programmatic)
        return;
    line.used = 0;
    append(&line, "    programmatic %.2f us (%+.1f %%), history final %.2f us (%+.1f %%)", result->programmatic.median_us,
           more_percent(&result->programmatic, &result->timing), result->history_final.median_us,
           more_percent(&result->history_final, &result->timing));
    if (result->has_held)
        append(&line, "; beside %d held SMs plain %.2f us, programmatic %.2f us (%+.1f %%)", result->held_sms,
               result->held.median_us, result->held_programmatic.median_us,
               more_percent(&result->held_programmatic, &result->held));
    print_wrapped(stdout, 6, "%s", line.text);
}

void bench_report_row(struct bench_report *report, const struct bench_batch *batch, const char *label, const char *description,
                      const struct bench_result *result) {
    switch (report->form) {
    case BENCH_CSV:
        print_csv(batch, label, result, report->accuracy);
        break;
    case BENCH_JSON:
        print_json(&report->json, batch, report->set, label, description, result);
        break;
    case BENCH_TEXT:
        print_text(batch, result, report->accuracy);
        break;
    }
    fflush(stdout);
}

void bench_report_end(struct bench_report *report, size_t num_failed, const char *error) {
    if (report->form != BENCH_JSON)
        return;
    json_end(&report->json, ']');
    json_integer(&report->json, "failed", (int64_t)num_failed);
    json_text(&report->json, "error", error);
    json_end(&report->json, '}');
}
