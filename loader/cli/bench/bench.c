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
#include "terminal.h"

struct bench_args {
    const char *set, *kernel, *plot;
    int32_t quiet_percent;
    bool all_kernels, csv, programmatic, accuracy, no_check, cold_start, regret;
    struct regret_args regret_args; /* its cells, workers and points */
};

static const struct option bench_options[] = {
    {"--set", "standard|e4m3|nvfp4|pages|head_dims|drafts|mla|mla_sparse", OPTION_WORD, offsetof(struct bench_args, set), 0, 0,
     "a list of problems instead of one: standard (the shapes that libdecode is measured by, with a ragged batch cut from a real "
     "trace), e4m3 (the same with e4m3 KV), nvfp4 (beside e4m3), pages (of 1 and 8 tokens), head_dims (256 and 64), drafts "
     "(several query tokens of a request), mla, mla_sparse"},
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

/* One row of the table. `force`: a glob, or NULL for what selection chooses. */
static double bench_one(struct bench *bench, struct bench_batch *batch, const char *label, const char *description,
                        const char *force) {
    char policy[256];
    libdecode_context *forced = NULL;
    struct bench_result result;
    snprintf(policy, sizeof policy, "force=%s", force != NULL ? force : "");
    bench->num_rows++;
    bool good = force == NULL || session_open(bench->session, policy, &forced);
    good = good && bench_measure(&bench->machine, batch, forced != NULL ? forced : bench->machine.context,
                                 bench->args->programmatic, true, &result);
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
            us = bench_one(bench, &batch, label, description, names->items[index]);
        free(names);
    } else {
        us = bench_one(bench, &batch, label, description, bench->args->kernel);
    }
    bench_batch_free(&bench->machine, &batch);
    return us;
}

/* ---------------------------------------------------------------------------------------------------------------- sets */

enum { SET_TOP_K = 2048 }; /* as DeepSeek-V3.2 has it */

/*
 * Shapes of Llama-3-8B (32/8 heads), of one of its eight tensor-parallel parts (8/1), of Llama-3-70B (64/8), of Gemma (16/8 of
 * 256) of gpt-oss (64/8 of 64, with sinks, every other layer with a window of 128), and of
 * DeepSeek-V3 (MLA with 128 heads, or the 16 of one of eight parts). What a row leaves NULL or 0 is as the
 * options say, or 128 elements and pages of 16. The time of the next row, in per cent of this one's, is shown where `beside_next`.
 */
static const struct set_row {
    const char *set, *label, *heads, *kv;
    int32_t batch, len, page, head_dim, window;
    bool sinks, beside_next, mla;
    int32_t q_len;
    const char *kv_row; /* each query token then selects 2048 rows */
} set_rows[] = {
    {"standard", "1x4k", "32/8", .batch = 1, .len = 4096},
    {"standard", "1x32k", "32/8", .batch = 1, .len = 32768},
    {"standard", "16x4k", "32/8", .batch = 16, .len = 4096},
    {"standard", "64x4k", "32/8", .batch = 64, .len = 4096, .beside_next = true},
    {"standard", "64x4k page 128", "32/8", .batch = 64, .len = 4096, .page = 128},
    {"standard", "128x8k", "32/8", .batch = 128, .len = 8192},
    {"standard", "8/1 64x8k", "8/1", .batch = 64, .len = 8192},
    {"standard", "64/8 64x8k", "64/8", .batch = 64, .len = 8192},
    {"e4m3", "1x4k", "32/8", "e4m3", .batch = 1, .len = 4096},
    {"e4m3", "16x4k", "32/8", "e4m3", .batch = 16, .len = 4096},
    {"e4m3", "64x4k", "32/8", "e4m3", .batch = 64, .len = 4096},
    {"e4m3", "128x8k", "32/8", "e4m3", .batch = 128, .len = 8192},
    {"e4m3", "1x4k page 64", "32/8", "e4m3", .batch = 1, .len = 4096, .page = 64},
    {"e4m3", "16x4k page 64", "32/8", "e4m3", .batch = 16, .len = 4096, .page = 64},
    {"e4m3", "64x4k page 64", "32/8", "e4m3", .batch = 64, .len = 4096, .page = 64},
    {"e4m3", "128x8k page 64", "32/8", "e4m3", .batch = 128, .len = 8192, .page = 64},
    {"e4m3", "8/1 64x8k", "8/1", "e4m3", .batch = 64, .len = 8192},
    {"e4m3", "64/8 64x8k", "64/8", "e4m3", .batch = 64, .len = 8192},
    {"nvfp4", "64x4k e4m3", "32/8", "e4m3", .batch = 64, .len = 4096, .beside_next = true},
    {"nvfp4", "64x4k nvfp4", "32/8", "nvfp4", .batch = 64, .len = 4096},
    {"nvfp4", "64x4k page 64 e4m3", "32/8", "e4m3", .batch = 64, .len = 4096, .page = 64, .beside_next = true},
    {"nvfp4", "64x4k page 64 nvfp4", "32/8", "nvfp4", .batch = 64, .len = 4096, .page = 64},
    {"pages", "64x4k bf16 page 1", "32/8", "bf16", .batch = 64, .len = 4096, .page = 1},
    {"pages", "64x4k bf16 page 8", "32/8", "bf16", .batch = 64, .len = 4096, .page = 8},
    {"pages", "64x4k e4m3 page 1", "32/8", "e4m3", .batch = 64, .len = 4096, .page = 1},
    {"head_dims", "16/8 of 256 64x4k bf16", "16/8", "bf16", 64, 4096, .head_dim = 256},
    {"head_dims", "16/8 of 256 64x4k e4m3", "16/8", "e4m3", 64, 4096, .head_dim = 256},
    {"head_dims", "64/8 of 64 64x8k sinks", "64/8", "bf16", 64, 8192, .head_dim = 64, .sinks = true},
    {"drafts", "64x4k bf16 q_len 1", "64/8", "bf16", .batch = 64, .len = 4096, .q_len = 1},
    {"drafts", "64x4k bf16 q_len 4", "64/8", "bf16", .batch = 64, .len = 4096, .q_len = 4},
    {"drafts", "64x4k bf16 q_len 8", "64/8", "bf16", .batch = 64, .len = 4096, .q_len = 8},
    {"drafts", "64x4k bf16 q_len 16", "64/8", "bf16", .batch = 64, .len = 4096, .q_len = 16},
    {"drafts", "1x4k bf16 q_len 8", "64/8", "bf16", .batch = 1, .len = 4096, .q_len = 8},
    {"drafts", "1x32k bf16 q_len 8", "64/8", "bf16", .batch = 1, .len = 32768, .q_len = 8},
    {"drafts", "64x4k e4m3 q_len 8", "64/8", "e4m3", .batch = 64, .len = 4096, .q_len = 8},
    {"drafts", "64x4k e4m3 q_len 16", "64/8", "e4m3", .batch = 64, .len = 4096, .q_len = 16},
    {"drafts", "1x4k e4m3 q_len 8", "64/8", "e4m3", .batch = 1, .len = 4096, .q_len = 8},
    {"drafts", "64x4k nvfp4 q_len 8", "64/8", "nvfp4", .batch = 64, .len = 4096, .q_len = 8},
    {"drafts", "64x4k nvfp4 q_len 16", "64/8", "nvfp4", .batch = 64, .len = 4096, .q_len = 16},
    {"drafts", "1x4k nvfp4 q_len 8", "64/8", "nvfp4", .batch = 1, .len = 4096, .q_len = 8},
    {"drafts", "64x4k bf16 page 1 q_len 8", "64/8", "bf16", .batch = 64, .len = 4096, .page = 1, .q_len = 8},
    {"drafts", "64x4k bf16 page 1 q_len 16", "64/8", "bf16", .batch = 64, .len = 4096, .page = 1, .q_len = 16},
    {"drafts", "64x4k e4m3 page 1 q_len 8", "64/8", "e4m3", .batch = 64, .len = 4096, .page = 1, .q_len = 8},
    {"drafts", "64x4k e4m3 page 1 q_len 16", "64/8", "e4m3", .batch = 64, .len = 4096, .page = 1, .q_len = 16},
    {"mla", "16 heads 1x4k bf16", "16/1", "bf16", 1, 4096, 64, .mla = true},
    {"mla", "16 heads 16x4k bf16", "16/1", "bf16", 16, 4096, 64, .mla = true},
    {"mla", "16 heads 64x4k bf16", "16/1", "bf16", 64, 4096, 64, .mla = true},
    {"mla", "16 heads 128x4k bf16", "16/1", "bf16", 128, 4096, 64, .mla = true},
    {"mla", "16 heads 128x8k bf16", "16/1", "bf16", 128, 8192, 64, .mla = true},
    {"mla", "16 heads 1x4k e4m3", "16/1", "e4m3", 1, 4096, 64, .mla = true},
    {"mla", "16 heads 16x4k e4m3", "16/1", "e4m3", 16, 4096, 64, .mla = true},
    {"mla", "16 heads 64x4k e4m3", "16/1", "e4m3", 64, 4096, 64, .mla = true},
    {"mla", "16 heads 128x4k e4m3", "16/1", "e4m3", 128, 4096, 64, .mla = true},
    {"mla", "16 heads 128x8k e4m3", "16/1", "e4m3", 128, 8192, 64, .mla = true},
    {"mla", "128 heads 1x4k bf16", "128/1", "bf16", 1, 4096, 64, .mla = true},
    {"mla", "128 heads 16x4k bf16", "128/1", "bf16", 16, 4096, 64, .mla = true},
    {"mla", "128 heads 128x4k bf16", "128/1", "bf16", 128, 4096, 64, .mla = true},
    {"mla_sparse", "128 heads 128 of 2k, rows of 656", "128/1", "e4m3", 128, 16384, 64, .mla = true, .kv_row = "scaled656"},
    {"mla_sparse", "64 heads 128 of 2k, rows of 656", "64/1", "e4m3", 128, 16384, 64, .mla = true, .kv_row = "scaled656"},
    {"mla_sparse", "16 heads 128 of 2k, rows of 656", "16/1", "e4m3", 128, 16384, 64, .mla = true, .kv_row = "scaled656"},
    {"mla_sparse", "128 heads 128 of 2k, q_len 2", "128/1", "e4m3", 128, 16384, 64, .mla = true, .q_len = 2,
     .kv_row = "scaled656"},
    {"mla_sparse", "64 heads 128 of 2k, q_len 2", "64/1", "e4m3", 128, 16384, 64, .mla = true, .q_len = 2, .kv_row = "scaled656"},
    {"mla_sparse", "128 heads 128 of 2k, bf16", "128/1", "bf16", 128, 16384, 64, .mla = true, .kv_row = "plain"},
    {"mla_sparse", "16 heads 128 of 2k, bf16", "16/1", "bf16", 128, 16384, 64, .mla = true, .kv_row = "plain"},
    {"mla_sparse", "16 heads 128 of 2k, e4m3", "16/1", "e4m3", 128, 16384, 64, .mla = true, .kv_row = "plain"},
    {"mla_sparse", "16 heads 128 of 2k, rows of 352", "16/1", "nvfp4", 128, 16384, 64, .mla = true, .kv_row = "nvfp352"},
    {"head_dims", "64/8 of 64 64x8k sinks window 128", "64/8", "bf16", 64, 8192, .head_dim = 64, .window = 128, .sinks = true},
};
#define NUM_SET_ROWS (sizeof set_rows / sizeof set_rows[0])

/* The sets that end with the trace, ragged and with its lengths made equal. */
static bool has_trace(const char *set) { return strcmp(set, "standard") == 0 || strcmp(set, "e4m3") == 0; }

/* As many tokens in as many requests of one length. */
static void level_lengths(struct workload *workload) {
    const int64_t requests = workload->problem.batch_size;
    for (int64_t request = 0; request < requests; request++)
        workload->seq_lens[request] =
            (int32_t)(workload->total_tokens / requests + (request < workload->total_tokens % requests));
    workload->problem.max_seq_len = workload->seq_lens[0];
    workload_give_room(&workload->problem, workload->problem.max_seq_len);
}

static double bench_args_row(struct bench *bench, const struct problem_args *args, const char *label, bool level) {
    struct workload workload;
    if (bench->machine.gpu.broken || !workload_make("bench", args, &workload)) {
        bench->num_failed++;
        return NAN;
    }
    workload.quiet_percent = bench->args->quiet_percent;
    if (level)
        level_lengths(&workload);
    double us = bench_workload(bench, &workload, label);
    workload_free(&workload);
    return us;
}

static double bench_set_row(struct bench *bench, const struct problem_args *args, const struct set_row *row) {
    struct problem_args row_args = *args;
    row_args.trace = row_args.lens = NULL;
    row_args.heads = row->heads;
    row_args.batch = row->batch;
    row_args.len = row->len;
    row_args.page = row->page;
    row_args.head_dim = row->head_dim > 0 ? row->head_dim : args->head_dim;
    row_args.kv = row->kv != NULL ? row->kv : args->kv;
    row_args.sinks = row->sinks || args->sinks;
    row_args.mla = row->mla || args->mla;
    if (row->q_len > 0)
        row_args.q_len = row->q_len;
    if (row->kv_row != NULL) {
        row_args.sparse_top_k = SET_TOP_K;
        row_args.kv_row = row->kv_row;
    }
    row_args.window = row->window > 0 ? row->window - 1 : args->window; /* the query's own position counts */
    return bench_args_row(bench, &row_args, row->label, false);
}

static void bench_trace(struct bench *bench, const struct problem_args *args) {
    struct problem_args ragged = *args;
    ragged.lens = NULL;
    ragged.heads = "32/8";
    ragged.page = 0;
    if (strcmp(bench->args->set, "standard") != 0)
        ragged.kv = bench->args->set;
    if (ragged.trace == NULL)
        ragged.trace = trace_shipped_path();
    if (ragged.trace == NULL) {
        bench->num_failed++;
        return;
    }
    double ragged_us = bench_args_row(bench, &ragged, "ragged trace", false);
    double uniform_us = bench_args_row(bench, &ragged, "uniform trace", true);
    if (bench->report.form == BENCH_TEXT)
        printf("\nragged / uniform: %.3f\n", ragged_us / uniform_us);
}

static void bench_set(struct bench *bench, const struct problem_args *args) {
    const struct set_row *last = NULL;
    double last_us = NAN;
    size_t num_rows = has_trace(bench->args->set) ? 2 : 0, done = 0;
    for (size_t index = 0; index < NUM_SET_ROWS; index++)
        num_rows += strcmp(set_rows[index].set, bench->args->set) == 0;
    for (size_t index = 0; index < NUM_SET_ROWS; index++) {
        const struct set_row *row = &set_rows[index];
        if (strcmp(row->set, bench->args->set) != 0)
            continue;
        progress_done(done++, num_rows);
        double us = bench_set_row(bench, args, row);
        if (last != NULL && last->beside_next && bench->report.form == BENCH_TEXT)
            printf("\n%s / %s: %.3f\n", last->label, row->label, last_us / us);
        last = row;
        last_us = us;
    }
    if (has_trace(bench->args->set)) {
        progress_done(done, num_rows);
        bench_trace(bench, args);
    }
}

static int run_opened(struct bench *bench, const struct problem_args *problem) {
    if (bench->args->plot != NULL && !plot_open(&bench->plot, bench->args->plot))
        return EXIT_FAILED;
    bench_report_begin(&bench->report, &bench->machine.device);
    if (bench->args->set != NULL)
        bench_set(bench, problem);
    else
        bench_args_row(bench, problem, "", false);
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
    struct bench bench = {.args = &args, .session = &session};
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
        "TB/s counts K and V once, with the scales of NVFP4, 1 TB = 1e12 bytes. launch and bare are host times of one call in "
        "a row of 50, through libdecode_plan_launch and through cuLaunchKernelEx alone.",
    COMMAND_GROUPS(groups),
    .run = run,
};
