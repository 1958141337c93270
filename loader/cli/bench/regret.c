/* SPDX-License-Identifier: Apache-2.0 */
/* regret.c: a grid of problems in, the chosen kernel's time beside that of every other out. Does: bench_run.c. Next: bench.c. */
#define _POSIX_C_SOURCE 200809L /* strtok_r */
#include "regret.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "forced_workers.h"
#include "glob.h"
#include "report.h"
#include "terminal.h"

#define REPLAYS 7        /* of every kernel, in turns */
#define SWEEP_REPLAYS 5  /* of every number of workers */
#define SWEEP_NUMBERS 14 /* of workers, with --workers all */
#define MAX_NUMBERS 64
#define MAX_KERNELS 256
#define MAX_CELLS 128
#define MLA_HEAD_DIM 576

/*
 * The grid: "batch x thousands of tokens", or "trace" for the ragged batch that comes with libdecode. It covers few units and
 * many for the SMs, groups from 1 to 16, and work from a microsecond to a millisecond; not the whole product. MLA has its own.
 */
static const struct {
    const char *heads;
    int32_t head_dim;
    const char *shapes;
} grid[] = {
    {"32/8", 128, "1x1 1x4 1x8 1x32 1x64 1x128 4x4 8x8 16x4 64x4 64x8 128x8 256x4 trace"},
    {"64/8", 128, "1x1 1x4 1x32 1x128 4x4 8x8 16x4 64x8 trace"},
    {"8/1", 128, "1x4 1x8 1x32 1x128 8x8 16x4 64x8 256x4 trace"},
    {"64/4", 128, "1x4 1x8 1x64 4x4 16x4 64x4 trace"},
    {"16/8", 128, "1x8 1x64 8x8 64x4"},
    {"32/32", 128, "1x1 1x4 1x32 8x8"},
    {"128/8", 128, "1x4 1x64 4x4 64x8"},
    {"64/8", 64, "1x4 1x32 1x128 8x8 64x8 128x8 trace"},
    {"8/1", 64, "1x32 64x4"},
    {"16/8", 256, "1x4 1x8 1x32 8x4 64x4"},
    {"16/1", MLA_HEAD_DIM, "1x1 1x4 1x32 4x4 16x4 64x4 128x4 trace"},
    {"64/1", MLA_HEAD_DIM, "1x4 1x32 4x4 16x4 64x4 128x4 trace"},
    {"128/1", MLA_HEAD_DIM, "1x1 1x4 1x32 4x4 8x8 16x4 32x4 64x4 128x4 128x8 trace"},
};

/* A kernel that can do the cell at hand. */
struct contender {
    char kernel[128];
    libdecode_context *context; /* its policy forces this kernel; kept from cell to cell */
    libdecode_plan *plan;       /* of this cell; NULL: it takes no part */
    libdecode_plan_info info;
    struct plan_launcher launcher;
    double us;
};

struct regret {
    struct bench_machine *machine;
    const struct session_args *session;
    const struct regret_args *args;
    struct contender contenders[MAX_KERNELS];
    size_t num_contenders;
    double percents[MAX_CELLS];
    size_t num_cells, num_failed;
    char worst_cell[64];
    double worst_percent;
    FILE *points;
};

/* ---------------------------------------------------------------------------------------------------------- contenders */

/* Whether `glob`, if there is one, matches. */
static bool named(const char *glob, const char *name) { return glob == NULL || glob_matches(glob, name); }

static struct contender *find_contender(struct regret *regret, const char *kernel) {
    for (size_t index = 0; index < regret->num_contenders; index++) {
        if (strcmp(regret->contenders[index].kernel, kernel) == 0)
            return &regret->contenders[index];
    }
    if (regret->num_contenders == MAX_KERNELS)
        return NULL;
    struct contender *contender = &regret->contenders[regret->num_contenders];
    char policy[160];
    snprintf(contender->kernel, sizeof contender->kernel, "%s", kernel);
    snprintf(policy, sizeof policy, "force=%s", kernel);
    if (!session_open(regret->session, policy, &contender->context))
        return NULL;
    regret->num_contenders++;
    return contender;
}

/* What libdecode_explain tells, one kernel after the other. */
struct candidates {
    struct regret *regret;
    const libdecode_problem *problem;
    char chosen[128];
    bool failed;
};

static bool plan_contender(struct regret *regret, const libdecode_problem *problem, struct contender *contender) {
    contender->info = (libdecode_plan_info){.struct_size = sizeof contender->info};
    return libdecode_plan_create(contender->context, problem, &regret->machine->device, &contender->plan) == LIBDECODE_OK &&
           libdecode_plan_get_info(contender->plan, &contender->info) == LIBDECODE_OK;
}

static void add_candidate(void *cookie, const libdecode_verdict *verdict) {
    struct candidates *candidates = cookie;
    struct regret *regret = candidates->regret;
    if (verdict->chosen != 0)
        snprintf(candidates->chosen, sizeof candidates->chosen, "%s", verdict->kernel);
    if (verdict->eligible == 0 || (verdict->chosen == 0 && !named(regret->args->kernel, verdict->kernel)))
        return;
    struct contender *contender = find_contender(regret, verdict->kernel);
    if (contender == NULL || !plan_contender(regret, candidates->problem, contender))
        candidates->failed = true;
}

static void drop_plans(struct regret *regret) {
    for (size_t index = 0; index < regret->num_contenders; index++) {
        libdecode_plan_destroy(regret->contenders[index].plan);
        regret->contenders[index].plan = NULL;
    }
}

/*
 * Those that read the KV cache as seldom as any, but of MLA all: passes over the same rows may run side by side there. The chosen one,
 * or NULL after printing what is wrong.
 */
static struct contender *choose_contenders(struct regret *regret, const struct bench_batch *batch) {
    struct candidates candidates = {.regret = regret, .problem = &batch->host.launch_problem};
    const bool is_mla = candidates.problem->op == LIBDECODE_OP_MLA_DECODE;
    int32_t fewest = INT32_MAX;
    if (libdecode_explain(regret->machine->context, candidates.problem, &regret->machine->device, add_candidate, &candidates) !=
            LIBDECODE_OK ||
        candidates.failed) {
        complain("%s", libdecode_error_message());
        return NULL;
    }
    for (size_t index = 0; index < regret->num_contenders; index++) {
        const struct contender *contender = &regret->contenders[index];
        if (contender->plan != NULL && contender->info.row_passes < fewest)
            fewest = contender->info.row_passes;
    }
    for (size_t index = 0; index < regret->num_contenders; index++) {
        struct contender *contender = &regret->contenders[index];
        if (contender->plan == NULL || contender->info.row_passes == fewest || is_mla ||
            strcmp(contender->kernel, candidates.chosen) == 0)
            continue;
        libdecode_plan_destroy(contender->plan);
        contender->plan = NULL;
    }
    return find_contender(regret, candidates.chosen);
}

/* Before anything is captured: graphs keep the workspace's address. */
static bool prepare_contenders(struct regret *regret, struct bench_batch *batch) {
    const struct contender *largest = NULL;
    for (size_t index = 0; index < regret->num_contenders; index++) {
        struct contender *contender = &regret->contenders[index];
        if (contender->plan == NULL)
            continue;
        contender->launcher = (struct plan_launcher){.plan = contender->plan, .device = &batch->device};
        contender->launcher.launch_flags = regret->args->programmatic ? LIBDECODE_LAUNCH_PROGRAMMATIC : 0u;
        if (largest == NULL || contender->info.workspace_bytes > largest->info.workspace_bytes)
            largest = contender;
        if (libdecode_prepare(contender->context, &contender->plan, 1) != LIBDECODE_OK)
            return complain("%s", libdecode_error_message());
    }
    return largest != NULL && device_batch_workspace(&regret->machine->gpu, &batch->device, largest->context, largest->plan,
                                                     regret->machine->stream);
}

/* -------------------------------------------------------------------------------------------------------------- points */

static void write_point(struct regret *regret, const char *cell, const struct bench_batch *batch,
                        const struct contender *contender, int32_t workers, const char *kind, const struct timing *timing) {
    const libdecode_problem *problem = &batch->host.problem;
    if (regret->points == NULL)
        return;
    fprintf(regret->points, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%lld\t%llu\t%s\t%d\t%d\t%d\t%.3f\t%.3f\t%.3f\t%.3f\t%.3f\n", cell, kind,
            problem->num_qo_heads, problem->num_kv_heads, problem->head_dim, problem->batch_size, problem->max_seq_len,
            (long long)batch->host.workload->total_tokens, (unsigned long long)batch->kv_bytes, contender->kernel,
            contender->info.cluster_size, contender->info.workers, workers, (double)contender->info.predicted_ns / 1e3,
            timing->median_us, timing->fastest_us, timing->slowest_us,
            batch->has_ceiling ? batch->ceiling.median_us : (double)NAN);
    fflush(regret->points);
}

static bool open_points(struct regret *regret) {
    if (regret->args->points == NULL)
        return true;
    regret->points = fopen(regret->args->points, "w");
    if (regret->points == NULL)
        return complain("bench: --points %s: the file cannot be written", regret->args->points);
    fputs("cell\tkind\tnum_qo_heads\tnum_kv_heads\thead_dim\tbatch_size\tmax_seq_len\ttokens\tkv_bytes\tkernel\tcluster_size\t"
          "planned_workers\tworkers\tpredicted_us\tus\tfastest_us\tslowest_us\tceiling_us\n",
          regret->points);
    return true;
}

/* ---------------------------------------------------------------------------------------------------- forced workers */

static int compare_numbers(const void *left, const void *right) { return *(const int32_t *)left - *(const int32_t *)right; }

/* Ascending, none twice; evenly spread numbers and those around whole units, or the list that was given. */
static size_t numbers_of_workers(const char *workers, const struct contender *contender, const libdecode_problem *problem,
                                 int32_t *ret_numbers) {
    const int32_t most = most_workers(contender->plan);
    const int64_t units = (int64_t)problem->batch_size * problem->num_kv_heads * contender->info.row_passes;
    size_t count = 0, kept = 0;
    if (strcmp(workers, "all") == 0) {
        for (int32_t step = 1; step <= SWEEP_NUMBERS - 4; step++)
            ret_numbers[count++] = (int32_t)((int64_t)most * step / (SWEEP_NUMBERS - 4));
        for (int32_t per_unit = 1; per_unit <= 4; per_unit++)
            ret_numbers[count++] = (int32_t)(units * per_unit <= most ? units * per_unit : most / per_unit);
    } else {
        for (const char *text = workers; text != NULL && count < MAX_NUMBERS; text = strchr(text, ',')) {
            text += *text == ',';
            ret_numbers[count++] = (int32_t)strtol(text, NULL, 10);
        }
    }
    qsort(ret_numbers, count, sizeof ret_numbers[0], compare_numbers);
    for (size_t index = 0; index < count; index++) {
        if (ret_numbers[index] >= 1 && ret_numbers[index] <= most && (kept == 0 || ret_numbers[kept - 1] != ret_numbers[index]))
            ret_numbers[kept++] = ret_numbers[index];
    }
    return kept;
}

bool regret_workers_valid(const char *workers) {
    if (workers == NULL || strcmp(workers, "all") == 0)
        return true;
    if (workers[0] >= '1' && workers[0] <= '9' && workers[strspn(workers, "0123456789,")] == '\0')
        return true;
    return complain("bench: --workers %s: all, or numbers with commas between them, are accepted", workers);
}

/* A launch for another number of workers than the plan's. */
struct forced_launcher {
    struct plan_launcher launcher;
    int32_t workers;
};

static bool enqueue_forced(void *cookie, int call, libdecode_stream stream) {
    struct forced_launcher *forced = cookie;
    return force_workers(forced->launcher.plan, forced->workers) && enqueue_plan(&forced->launcher, call, stream);
}

static bool sweep_workers(struct regret *regret, const char *cell, const struct bench_batch *batch,
                          const struct contender *contender) {
    int32_t numbers[MAX_NUMBERS];
    struct forced_launcher forced[MAX_NUMBERS];
    struct timed_work works[MAX_NUMBERS];
    const size_t count = numbers_of_workers(regret->args->workers, contender, &batch->host.problem, numbers);
    for (size_t index = 0; index < count; index++) {
        forced[index] = (struct forced_launcher){.launcher = contender->launcher, .workers = numbers[index]};
        works[index] = (struct timed_work){.enqueue = enqueue_forced, .cookie = &forced[index]};
    }
    progress("%s: %s, %zu numbers of workers", cell, contender->kernel, count);
    if (!time_in_turns(&regret->machine->gpu, regret->machine->stream, works, count, batch->calls, SWEEP_REPLAYS, NULL))
        return false;
    size_t best = 0;
    for (size_t index = 0; index < count; index++) {
        write_point(regret, cell, batch, contender, numbers[index], "forced", &works[index].timing);
        if (works[index].timing.median_us < works[best].timing.median_us)
            best = index;
    }
    if (count > 0) {
        progress_clear();
        printf("    %-44s best with %4d workers: %9.2f us; planned %4d: %9.2f us\n", contender->kernel, numbers[best],
               works[best].timing.median_us, contender->info.workers, contender->us);
    }
    return true;
}

/* --------------------------------------------------------------------------------------------------------------- cells */

static void note_cell(struct regret *regret, const char *cell, const struct contender *chosen, const struct contender *best) {
    const double percent = 100.0 * (chosen->us / best->us - 1.0);
    if (regret->num_cells == 0 || percent > regret->worst_percent) {
        regret->worst_percent = percent;
        snprintf(regret->worst_cell, sizeof regret->worst_cell, "%s", cell);
    }
    if (regret->num_cells < MAX_CELLS)
        regret->percents[regret->num_cells++] = percent;
    progress_clear();
    printf("%-20s %-44s %4d %9.2f us  %-44s %4d %9.2f us %6.2f %%\n", cell, chosen->kernel, chosen->info.workers, chosen->us,
           best->kernel, best->info.workers, best->us, percent);
    fflush(stdout);
}

static bool time_contenders(struct regret *regret, const char *cell, struct bench_batch *batch, const struct contender *chosen) {
    struct timed_work works[MAX_KERNELS];
    struct contender *in_turn[MAX_KERNELS];
    size_t count = 0, best = 0;
    for (size_t index = 0; index < regret->num_contenders; index++) {
        if (regret->contenders[index].plan == NULL)
            continue;
        in_turn[count] = &regret->contenders[index];
        works[count] = (struct timed_work){.enqueue = enqueue_plan, .cookie = &in_turn[count]->launcher};
        count++;
    }
    progress("%s: %zu kernels in turns", cell, count);
    if (!time_in_turns(&regret->machine->gpu, regret->machine->stream, works, count, batch->calls, REPLAYS, NULL) ||
        !device_batch_check(&regret->machine->gpu, &batch->device, batch->region, 0, 0, NULL, NULL))
        return false;
    for (size_t index = 0; index < count; index++) {
        in_turn[index]->us = works[index].timing.median_us;
        if (in_turn[index]->us < in_turn[best]->us)
            best = index;
        write_point(regret, cell, batch, in_turn[index], in_turn[index]->info.workers,
                    in_turn[index] == chosen ? "chosen" : "planned", &works[index].timing);
    }
    note_cell(regret, cell, chosen, in_turn[best]);
    bool good = true;
    for (size_t index = 0; good && regret->args->workers != NULL && index < count; index++)
        good = sweep_workers(regret, cell, batch, in_turn[index]);
    return good;
}

static bool run_cell(struct regret *regret, const struct problem_args *problem, const char *cell) {
    struct workload workload;
    struct bench_batch batch;
    if (!workload_make("bench", problem, &workload))
        return false;
    bool good = bench_batch_make(regret->machine, &workload, false, BENCH_CHECK_FINITE, cell, &batch);
    if (good) {
        const struct contender *chosen = choose_contenders(regret, &batch);
        good = chosen != NULL && prepare_contenders(regret, &batch) && time_contenders(regret, cell, &batch, chosen);
        drop_plans(regret);
        bench_batch_free(regret->machine, &batch);
    }
    workload_free(&workload);
    return good;
}

static void run_or_note(struct regret *regret, const struct problem_args *problem, const char *cell) {
    if (regret->machine->gpu.broken || !run_cell(regret, problem, cell)) {
        progress_clear();
        complain("%s: not measured", cell);
        regret->num_failed++;
    }
}

/* The cells of one row of the grid. */
static void run_shapes(struct regret *regret, const struct problem_args *problem, size_t row) {
    char shapes[160], *rest = NULL;
    snprintf(shapes, sizeof shapes, "%s", grid[row].shapes);
    for (char *shape = strtok_r(shapes, " ", &rest); shape != NULL; shape = strtok_r(NULL, " ", &rest)) {
        struct problem_args args = *problem;
        char cell[64];
        int32_t thousands = 0;
        args.heads = grid[row].heads;
        args.head_dim = grid[row].head_dim;
        args.lens = args.trace = NULL;
        if (sscanf(shape, "%dx%d", &args.batch, &thousands) != 2 && (args.trace = trace_shipped_path()) == NULL) {
            regret->num_failed++;
            continue;
        }
        args.len = thousands * 1024;
        snprintf(cell, sizeof cell, "%s d%d %s%s", args.heads, args.head_dim, shape, args.trace == NULL ? "k" : "");
        if (named(regret->args->cells, cell))
            run_or_note(regret, &args, cell);
    }
}

static bool print_summary(struct regret *regret) {
    progress_clear();
    if (regret->num_cells == 0)
        return complain("bench: no cell was measured");
    printf("\n%zu cells: regret %.2f %% in the median, %.2f %% in the worst (%s); %zu not measured\n", regret->num_cells,
           median(regret->percents, regret->num_cells), regret->worst_percent, regret->worst_cell, regret->num_failed);
    return regret->num_failed == 0;
}

int run_regret(struct bench_machine *machine, const struct session_args *session, const struct problem_args *problem,
               const struct regret_args *args) {
    struct regret *regret = calloc(1, sizeof *regret);
    if (regret == NULL) {
        complain("out of memory");
        return EXIT_FAILED;
    }
    regret->machine = machine;
    regret->session = session;
    regret->args = args;
    bool good = open_points(regret);
    if (good) {
        printf("%s, %d SMs, cold KV, graph nodes, kernels in turns, median of %d replays%s\n\n", machine->device.name,
               machine->device.sm_count, REPLAYS, args->programmatic ? ", programmatic dependent launch" : "");
        printf("%-20s %-44s %4s %12s  %-44s %4s %12s %8s\n", "cell", "chosen", "wkrs", "", "best", "wkrs", "", "regret");
        const bool given = problem->lens != NULL || problem->trace != NULL;
        if (given)
            run_or_note(regret, problem, "as given");
        for (size_t row = 0; !given && row < sizeof grid / sizeof grid[0]; row++) {
            if ((grid[row].head_dim == MLA_HEAD_DIM) == problem->mla)
                run_shapes(regret, problem, row);
        }
        good = print_summary(regret);
    }
    for (size_t index = 0; index < regret->num_contenders; index++)
        libdecode_close(regret->contenders[index].context);
    if (regret->points != NULL && fclose(regret->points) != 0)
        good = complain("bench: --points %s: the file could not be written to its end", args->points);
    free(regret);
    return good ? EXIT_PASSED : EXIT_FAILED;
}
