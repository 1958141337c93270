/* SPDX-License-Identifier: Apache-2.0 */
/* check_report.c: what became of every kernel in; a table or JSON out. Before: check.c. */
#include "check_report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report.h"
#include "terminal.h"

static bool variant_passed(const struct variant *variant) {
    return variant->finished && variant->failed == 0 && variant->passed > 0;
}
/* Of cases picked by name or number there may be none for a kernel; of all cases there is. */
static bool variant_has_no_case(const struct checker *checker, const struct variant *variant) {
    bool picked = checker->args->only != NULL || checker->args->random > 0;
    return picked && variant->finished && variant->passed == 0 && variant->failed == 0;
}
static bool variant_failed(const struct checker *checker, const struct variant *variant) {
    return variant->failed > 0 || (variant->finished && variant->passed == 0 && !variant_has_no_case(checker, variant));
}

struct check_summary check_summarise(const struct checker *checker, double seconds) {
    struct check_summary summary = {.seconds = seconds};
    for (size_t index = 0; index < checker->num_variants; index++) {
        summary.passed += variant_passed(&checker->variants[index]);
        summary.failed += variant_failed(checker, &checker->variants[index]);
        summary.without_case += variant_has_no_case(checker, &checker->variants[index]);
    }
    summary.unfinished = checker->num_variants - summary.passed - summary.failed - summary.without_case;
    return summary;
}

static const char *outcome(const struct checker *checker, const struct variant *variant) {
    if (variant_passed(variant))
        return "pass";
    if (variant_failed(checker, variant))
        return "FAIL";
    return variant_has_no_case(checker, variant) ? "none" : "part";
}

void check_print(const struct checker *checker, const struct check_summary *summary) {
    const char *plain = style(stdout, STYLE_PLAIN);
    printf("\n%-44s %6s %7s %7s  %s\n", "kernel", "", "cases", "failed", "largest error / allowed");
    for (size_t index = 0; index < checker->num_variants; index++) {
        const struct variant *variant = &checker->variants[index];
        const char *colour = style(stdout, variant_passed(variant)            ? STYLE_GOOD
                                           : variant_failed(checker, variant) ? STYLE_BAD
                                                                              : STYLE_PLAIN);
        printf("%-44s %s%6s%s %7zu %7zu  %.2f", variant->info.name, colour, outcome(checker, variant), plain,
               variant->passed + variant->failed, variant->failed, variant->worst_ratio);
        if (variant->not_applicable > 0)
            printf("  (%zu cases not for it, %s)", variant->not_applicable, variant->why_not);
        else if (variant->passed + variant->failed == 0)
            printf("  (not run)");
        putchar('\n');
    }
    putchar('\n');
    print_wrapped(stdout, 2, "%s, %d SMs: %zu cases, seed %d, %d repeats, %.0f s (%.0f s of it waiting for the reference)",
                  checker->device.name, checker->device.sm_count, checker->num_cases, checker->args->seed, checker->args->repeats,
                  summary->seconds, checker->waited_seconds);
    if (summary->without_case > 0)
        printf("%zu without a case\n", summary->without_case);
    if (summary->unfinished > 0)
        printf("%zu not finished\n", summary->unfinished);
    printf("%zu passed, %zu failed\n", summary->passed, summary->failed);
}

static void print_failures_json(const struct checker *checker, struct json *json) {
    json_begin(json, "failures", '[');
    for (size_t index = 0; index < checker->num_failures; index++) {
        const struct failure_record *record = &checker->failures[index];
        const struct mismatch *mismatch = &record->failure.mismatch;
        json_begin(json, NULL, '{');
        json_text(json, "kernel", record->kernel);
        json_text(json, "case", record->test);
        json_integer(json, "seed", checker->args->seed);
        json_text(json, "kind", record->failure.what);
        json_text(json, "message", record->failure.text);
        if (strcmp(record->failure.what, "wrong") == 0) {
            json_text(json, "tensor", mismatch->tensor);
            json_integer(json, "token", (int64_t)mismatch->token);
            json_integer(json, "head", (int64_t)mismatch->head);
            json_integer(json, "element", (int64_t)mismatch->element);
            json_number(json, "got", mismatch->got);
            json_number(json, "expected", mismatch->expected);
            json_number(json, "tolerance", mismatch->tolerance);
            json_integer(json, "off", (int64_t)mismatch->count);
        }
        json_end(json, '}');
    }
    json_end(json, ']');
}

void check_print_json(const struct checker *checker, const struct check_summary *summary, const char *error) {
    const libdecode_device *device = checker->device.compute_capability > 0 ? &checker->device : NULL; /* NULL: none was found */
    struct json json = {0};
    json_begin(&json, NULL, '{');
    json_text(&json, "libdecode", libdecode_version());
    json_text(&json, "gpu", device != NULL ? device->name : NULL);
    json_number(&json, "compute_capability", device != NULL ? device->compute_capability : (double)NAN);
    json_number(&json, "driver_version", device != NULL ? device->driver_version : (double)NAN);
    json_text(&json, "error", error);
    json_integer(&json, "seed", checker->args->seed);
    json_integer(&json, "repeats", checker->args->repeats);
    json_number(&json, "seconds", summary->seconds);
    json_begin(&json, "kernels", '[');
    for (size_t index = 0; index < checker->num_variants; index++) {
        const struct variant *variant = &checker->variants[index];
        json_begin(&json, NULL, '{');
        json_text(&json, "name", variant->info.name);
        json_bool(&json, "passed", variant_passed(variant));
        json_bool(&json, "finished", variant->finished);
        json_integer(&json, "cases_passed", (int64_t)variant->passed);
        json_integer(&json, "cases_failed", (int64_t)variant->failed);
        json_integer(&json, "cases_not_applicable", (int64_t)variant->not_applicable);
        json_number(&json, "worst_error_over_allowed", variant->worst_ratio);
        json_end(&json, '}');
    }
    json_end(&json, ']');
    print_failures_json(checker, &json);
    json_integer(&json, "passed", (int64_t)summary->passed);
    json_integer(&json, "failed", (int64_t)summary->failed);
    json_integer(&json, "without_case", (int64_t)summary->without_case);
    json_integer(&json, "not_finished", (int64_t)summary->unfinished);
    json_end(&json, '}');
}
