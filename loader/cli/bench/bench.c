/* SPDX-License-Identifier: Apache-2.0 */
/* bench.c: `libdecode bench`: problems in, a table of measured times out. Does: bench_run.c; regret.c; cold_start.c. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench_report.h"
#include "bench_run.h"
#include "cold_start.h"
#include "command.h"
#include "option_words.h"
#include "plot.h"
#include "regret.h"
#include "sets.h"
#include "terminal.h"

struct bench_args {
    const char *set, *kernel, *plot;
    int32_t quiet_percent;
    bool all_kernels, csv, programmatic, accuracy, no_check, cold_start, regret;
    struct regret_args regret_args; /* its cells, workers and points */
};

static const struct option bench_options[] = {
    {"--set", SETS, OPTION_WORD, offsetof(struct bench_args, set), 0, 0,
     "a list of problems instead of one; other options hold for what a problem leaves open: standard (the shapes that libdecode "
     "is measured by, with a ragged batch cut from a real trace), e4m3 (the same with e4m3 KV), nvfp4 (beside e4m3), pages (of 1 "
     "and 8 tokens), head_dims (256 and 64), options (soft cap, ALiBi, RoPE, batch invariance), drafts (several query tokens of "
     "a request), single (one request without pages), mla, mla_sparse; all (one after the other)"},
    {"--accuracy", NULL, OPTION_FLAG, offsetof(struct bench_args, accuracy), 0, 0,
     "also the error of the request that is compared with the float64 reference: largest and rms, over the rms of out"},
    {"--kernel", "GLOB", OPTION_TEXT, offsetof(struct bench_args, kernel), 0, 0, "force a kernel of that name"},
    {"--all-kernels", NULL, OPTION_FLAG, offsetof(struct bench_args, all_kernels), 0, 0,
     "time every kernel that can do the problem"},
    {"--programmatic", NULL, OPTION_FLAG, offsetof(struct bench_args, programmatic), 0, 0,
     "also with programmatic dependent launch, without and with the promise that older KV is final, in turns with plain "
     "launches; and "
     "plain and programmatic ones beside a kernel that holds 20 SMs"},
    {"--regret", NULL, OPTION_FLAG, offsetof(struct bench_args, regret), 0, 0,
     "instead: over a grid of problems (or for that of --lens or --trace), the time of the chosen kernel over that of the best"},
    {"--cells", "GLOB", OPTION_TEXT, offsetof(struct bench_args, regret_args.cells), 0, 0,
     "with --regret: only cells of that name, like '32/8 d128 1x*'"},
    {"--workers", "all|N,N", OPTION_TEXT, offsetof(struct bench_args, regret_args.workers), 0, 0,
     "with --regret: also time every kernel with forced numbers of workers (CTAs or clusters)"},
    {"--points", "FILE", OPTION_TEXT, offsetof(struct bench_args, regret_args.points), 0, 0,
     "with --regret: write every measured point there, tab-separated, with names in the first line"},
    {"--quiet", "PERCENT", OPTION_INT, offsetof(struct bench_args, quiet_percent), 0, 100,
     "of the pages, at random, hold K that points away from every query: what --skip-softmax passes over"},
    {"--no-check", NULL, OPTION_FLAG, offsetof(struct bench_args, no_check), 0, 0,
     "do not compare with the reference; results must still be finite"},
    {"--cold-start", NULL, OPTION_FLAG, offsetof(struct bench_args, cold_start), 0, 0,
     "instead: time from libdecode_open to the first result, in this fresh process"},
    {"--plot", "FILE", OPTION_TEXT, offsetof(struct bench_args, plot), 0, 0,
     "also draw times and shares of the read ceiling there, as SVG"},
    {"--csv", NULL, OPTION_FLAG, offsetof(struct bench_args, csv), 0, 0, "comma-separated values on standard output"},
    {0},
};

/* What one run of `bench` works with. */
struct bench {
    const struct bench_args *args;
    const struct session_args *session;
    struct bench_machine machine;
    struct bench_report report;
    struct plot plot; /* its file is NULL without --plot */
    bool is_last;     /* no problem comes behind this one */
    size_t num_rows, num_failed;
};

/* --------------------------------------------------------------------------------------------------------- measuring */

/* Names of the kernels that can do a problem. */
struct names {
    char items[256][128];
    size_t count;
};

static void collect_eligible(void *cookie, const libdecode_verdict *verdict) {
    struct names *names = cookie;
    if (verdict->eligible != 0 && names->count < sizeof names->items / sizeof names->items[0])
        snprintf(names->items[names->count++], sizeof names->items[0], "%s", verdict->kernel);
}

static bool plot_result(struct plot *plot, const struct bench_batch *batch, const char *name, const struct bench_result *result) {
    struct plot_row row = {.us = result->timing.median_us, .ceiling_us = batch->has_ceiling ? batch->ceiling.median_us : NAN};
    snprintf(row.label, sizeof row.label, "%s", name);
    snprintf(row.kernel, sizeof row.kernel, "%s", result->kernel);
    return plot_add(plot, &row);
}

/*
 * One row of the table. `force`: a glob, or NULL for what selection chooses. Host times are of the last row alone: launches one behind the other, outside of a
 * graph, make every node of graphs take 0.3 us longer from then on, in the same process (H200, driver 580; why is not known).
 */
static double bench_one(struct bench *bench, struct bench_batch *batch, const char *label, const char *description,
                        const char *force, bool is_last) {
    char policy[256];
    libdecode_context *forced = NULL;
    struct bench_result result;
    snprintf(policy, sizeof policy, "force=%s", force != NULL ? force : "");
    bench->num_rows++;
    bool good = force == NULL || session_open(bench->session, policy, &forced);
    good = good && bench_measure(&bench->machine, batch, forced != NULL ? forced : bench->machine.context,
                                 bench->args->programmatic, is_last, &result);
    libdecode_close(forced);
    if (!good) {
        bench->num_failed++;
        return NAN;
    }
    bench_report_row(&bench->report, batch, label, description, &result);
    if (bench->plot.file != NULL && !plot_result(&bench->plot, batch, label[0] != '\0' ? label : description, &result))
        bench->num_failed++;
    return result.timing.median_us;
}

/* All rows of one problem; the time of the last, NaN if it failed. */
static double bench_workload(struct bench *bench, const struct workload *workload, const char *label) {
    char description[256];
    struct bench_batch batch;
    double us = NAN;
    workload_describe(workload, description, sizeof description);
    if (bench->report.form == BENCH_TEXT)
        print_wrapped(stdout, 2, "\n%s%s%s", label, label[0] != '\0' ? ": " : "", description);
    if (!bench_batch_make(&bench->machine, workload, false, bench->args->no_check ? BENCH_CHECK_FINITE : BENCH_CHECK_ONE,
                          label[0] != '\0' ? label : "bench", &batch)) {
        bench->num_rows++;
        bench->num_failed++;
        return NAN;
    }
    if (bench->args->all_kernels) {
        struct names *names = calloc(1, sizeof *names);
        if (names != NULL)
            libdecode_explain(bench->machine.context, &batch.host.launch_problem, &bench->machine.device, collect_eligible,
                              names);
        if (names == NULL || names->count == 0) {
            complain("bench: no kernel can do this problem on this GPU: %s", in_option_words(libdecode_error_message()));
            bench->num_failed++;
        }
        for (size_t index = 0; names != NULL && index < names->count && !bench->machine.gpu.broken; index++)
            us = bench_one(bench, &batch, label, description, names->items[index], bench->is_last && index + 1 == names->count);
        free(names);
    } else {
        us = bench_one(bench, &batch, label, description, bench->args->kernel, bench->is_last);
    }
    bench_batch_free(&bench->machine, &batch);
    return us;
}

/* ---------------------------------------------------------------------------------------------------------------- sets */

/* As many tokens in as many requests of one length. */
static void level_lengths(struct workload *workload) {
    const int64_t requests = workload->problem.batch_size;
    for (int64_t request = 0; request < requests; request++)
        workload->seq_lens[request] =
            (int32_t)(workload->total_tokens / requests + (request < workload->total_tokens % requests));
    workload->problem.max_seq_len = workload->seq_lens[0];
    workload_give_room(&workload->problem, workload->problem.max_seq_len);
}

static double bench_args_row(struct bench *bench, const struct problem_args *args, const char *set, const char *label,
                             bool level) {
    struct workload workload;
    if (bench->machine.gpu.broken || !workload_make("bench", args, &workload)) {
        bench->num_failed++;
        return NAN;
    }
    workload.quiet_percent = bench->args->quiet_percent;
    if (level)
        level_lengths(&workload);
    bench->report.set = set;
    double us = bench_workload(bench, &workload, label);
    workload_free(&workload);
    return us;
}

static void bench_set(struct bench *bench, const struct problem_args *args) {
    const size_t num_problems = set_size(bench->args->set);
    const char *before = NULL; /* whose time matters beside this one's */
    double before_us = NAN;
    for (size_t number = 0; number < num_problems; number++) {
        struct set_problem problem;
        progress_done(number, num_problems);
        if (!set_problem_make(bench->args->set, number, args, &problem)) {
            bench->num_failed++;
            continue;
        }
        bench->is_last = number + 1 == num_problems;
        const double us = bench_args_row(bench, &problem.args, problem.set, problem.label, problem.leveled);
        if (before != NULL && bench->report.form == BENCH_TEXT)
            printf("\n%s / %s: %.3f\n", before, problem.label, before_us / us);
        before = problem.beside_next ? problem.label : NULL;
        before_us = us;
    }
}

static int run_opened(struct bench *bench, const struct problem_args *problem) {
    if (bench->args->plot != NULL && !plot_open(&bench->plot, bench->args->plot))
        return EXIT_FAILED;
    bench_report_begin(&bench->report, &bench->machine.device);
    if (bench->args->set != NULL)
        bench_set(bench, problem);
    else
        bench_args_row(bench, problem, NULL, "", false);
    bench_report_end(&bench->report, bench->num_failed, NULL);
    if (!plot_close(&bench->plot, bench->machine.device.name))
        return EXIT_FAILED;
    return bench->num_failed == 0 ? EXIT_PASSED : EXIT_FAILED;
}

static bool usable(const struct bench_args *args, const struct problem_args *problem, const struct session_args *session) {
    if (problem->contiguous && (args->set != NULL || args->quiet_percent > 0))
        return complain("bench: --contiguous excludes --set and --quiet: those have pages");
    if (args->kernel != NULL && args->all_kernels)
        return complain("bench: --kernel and --all-kernels exclude each other");
    if (args->quiet_percent != 0 && args->regret)
        return complain("bench: --quiet and --regret exclude each other");
    if (args->csv && session->json)
        return complain("bench: --csv and --json exclude each other");
    if (args->regret && (args->set != NULL || args->all_kernels || args->cold_start || args->csv || session->json))
        return complain("bench: --regret excludes --set, --all-kernels, --cold-start, --csv and --json; --points writes a table");
    if (args->cold_start && (args->set != NULL || args->kernel != NULL || args->all_kernels || args->programmatic ||
                             args->accuracy || args->quiet_percent != 0 || args->csv))
        return complain("bench: --cold-start excludes --set, --kernel (--policy forces one), --all-kernels, --programmatic, "
                        "--accuracy, --quiet and --csv");
    if (args->plot != NULL && (args->regret || args->cold_start))
        return complain("bench: --plot draws neither what --regret nor what --cold-start measures");
    if (!args->regret &&
        (args->regret_args.cells != NULL || args->regret_args.workers != NULL || args->regret_args.points != NULL))
        return complain("bench: --cells, --workers and --points need --regret");
    return regret_workers_valid(args->regret_args.workers);
}

static int run(int argc, char **argv) {
    struct bench_args args = {0};
    struct problem_args problem = PROBLEM_ARGS_DEFAULT;
    struct session_args session = {0};
    void *const targets[] = {&args, &problem, &session, &session};
    struct workload workload;
    if (!options_parse(&bench_command, targets, argc, argv, NULL) || !usable(&args, &problem, &session) ||
        !workload_make("bench", &problem, &workload))
        return EXIT_USAGE;
    if (args.cold_start) {
        int result = run_cold_start(&session, &workload);
        workload_free(&workload);
        return result;
    }
    workload_free(&workload);
    struct bench bench = {.args = &args, .session = &session, .is_last = true};
    struct held_sms held = {0};
    bench.report = (struct bench_report){.form = args.csv       ? BENCH_CSV
                                                 : session.json ? BENCH_JSON
                                                                : BENCH_TEXT,
                                         .programmatic = args.programmatic,
                                         .accuracy = args.accuracy};
    args.regret_args.kernel = args.kernel;
    args.regret_args.programmatic = args.programmatic;
    int result = bench_machine_open("bench", &session, &bench.machine);
    if (result != EXIT_PASSED) {
        if (bench.report.form == BENCH_JSON) { /* whoever reads it gets it, whatever there is to say */
            bench_report_begin(&bench.report, NULL);
            bench_report_end(&bench.report, 0, last_complaint());
        }
        return result;
    }
    if (args.programmatic && !args.regret && held_sms_open(&bench.machine.gpu, &session, &bench.machine.device, &held))
        bench.machine.held = &held;
    result = args.regret ? run_regret(&bench.machine, &session, &problem, &args.regret_args) : run_opened(&bench, &problem);
    held_sms_close(&held);
    bench_machine_close(&bench.machine);
    return result;
}

static const struct option_group groups[] = {{"What to measure", bench_options},
                                             {"The problem", problem_options},
                                             {"Bundles and output", bundle_options},
                                             {"GPU", device_options}};

const struct command bench_command = {
    .name = "bench",
    .summary = "time kernels with a cold KV cache, beside the read ceiling",
    .operands = "",
    .description =
        "Times a kernel as an engine meets it: the KV cache cold (calls rotate over page tables until 200 MB lie between two "
        "reads of the same page), random pages of one pool, 10 to 128 calls as nodes of one CUDA graph, median of 11 replays.\n\n"
        "Beside it, in the same process, the read ceiling: how long this GPU takes to read as many bytes and do nothing with "
        "them; and for the usual kernels the page ceiling: how long their copies take alone, by the same schedule from the same "
        "pages. Every result is checked: finite, and one request against the float64 reference.",
    .examples = "libdecode bench                     Llama-3-8B, 64 requests of 8192 tokens\n"
                "libdecode bench --set standard --plot standard.svg\n"
                "libdecode bench --kv nvfp4 --query e4m3 --out nvfp4 --page-size 64 --accuracy\n"
                "libdecode bench --batch 1 --len 32768 --all-kernels\n"
                "libdecode bench --batch 16 --len 4096 --contiguous\n"
                "libdecode bench --trace requests.jsonl:718:64 --page 64 --json\n"
                "libdecode bench --batch 1 --len 4096 --cold-start\n"
                "libdecode bench --set standard --programmatic\n"
                "libdecode bench --regret --workers all --points points.tsv\n",
    .notes =
        "TB/s counts K and V once, with the scales of NVFP4, 1 TB = 1e12 bytes. launch and bare, of the last row, are host times "
        "of one call in a row of 50, through libdecode_plan_launch and through cuLaunchKernelEx alone.",
    COMMAND_GROUPS(groups),
    .run = run,
};
