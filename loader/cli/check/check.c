/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check.c: `libdecode check`: every kernel that fits this GPU, over every test case, against the reference.
 * Before: case_queue.c makes tensors and expectations. Does: check_run.c. Next: check_report.c.
 */
#define _POSIX_C_SOURCE 200809L /* sigaction under -std=c17 */
#include <limits.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check_merge.h"
#include "check_neighbours.h"
#include "check_report.h"
#include "command.h"
#include "context.h"
#include "dtype.h"
#include "family.h"
#include "glob.h"
#include "host_reference.h"
#include "report.h"
#include "session.h"
#include "target.h"
#include "terminal.h"

#define DEFAULT_REPEATS 200
#define QUICK_REPEATS 20
#define DEFAULT_NEIGHBOURHOODS 500
#define QUICK_NEIGHBOURHOODS 20
#define FEWER_OF_RANDOM_CASES 10 /* which are many */
#define SHOWN_FAILURES 3         /* of one variant; JSON has all of them */
#define DEFAULT_SEED 1
#define CASES_OF_TABLE 3     /* held at a time: the largest take gigabytes */
#define RANDOM_CASES 64      /* likewise: some take fifty times as long as others */
#define MAKERS_OF_TABLE 2    /* threads that make cases ahead of the GPU */
#define DEFAULT_PATIENCE 300 /* seconds: tools that watch every access make a kernel a hundred times slower */

static const struct option check_options[] = {
    {"--quick", NULL, OPTION_FLAG, offsetof(struct check_args, quick), 0, 0, "a few cases only, 20 repeats: some seconds"},
    {"--case", "GLOB", OPTION_TEXT, offsetof(struct check_args, only), 0, 0,
     "only cases of that name (--list-cases shows them; random_N is one for every N)"},
    {"--random", "N", OPTION_INT, offsetof(struct check_args, random), 0, 1000000,
     "instead: the random cases 1 to N, dealt out over the kinds of kernel at hand, and of merging as many as one kind has"},
    {"--kernels-per-case", "N", OPTION_INT, offsetof(struct check_args, kernels_per_case), 1, 100000,
     "with --random: the kernels take turns, N of them run each case (default: all that can do it)"},
    {"--seed", "N", OPTION_INT, offsetof(struct check_args, seed), 0, INT32_MAX, "of all random data (default 1)"},
    {"--repeat", "N", OPTION_INT, offsetof(struct check_args, repeats), 0, 100000,
     "launches under load that must give the same bits, in the cases made for it (default 200); fewer than 8 also shorten what "
     "is launched programmatically"},
    {"--neighbourhoods", "N", OPTION_INT, offsetof(struct check_args, neighbourhoods), 0, 100000,
     "random batches in which the requests of batch-invariant cases must have the same bits (default 500; a tenth in random "
     "cases)"},
    {"--patience", "SECONDS", OPTION_INT, offsetof(struct check_args, patience), 1, 86400,
     "how long launches may take until they count as endless, and end the check (default 300)"},
    {"--list-cases", NULL, OPTION_FLAG, offsetof(struct check_args, list), 0, 0, "print the names of the cases, and stop"},
    {0},
};

/* ---------------------------------------------------------------------------------------------------------- signals */

static volatile sig_atomic_t stopped;

static void stop(int number) {
    (void)number;
    stopped = 1;
}

/*
 * Interrupted or terminated, the launches at hand end, and the results so far are printed. Another Ctrl-C ends the program; another
 * SIGTERM does not, as timeout(1) sends two: to its child, and to the group that both are in.
 */
static void stop_on_signals(void) {
    struct sigaction action = {.sa_handler = stop, .sa_flags = SA_RESTART};
    sigaction(SIGTERM, &action, NULL);
    action.sa_flags |= (int)SA_RESETHAND;
    sigaction(SIGINT, &action, NULL);
}

/* -------------------------------------------------------------------------------------------------------- variants */

static bool named(const struct texts *globs, const char *name) {
    bool found = globs->count == 0;
    for (size_t glob = 0; glob < globs->count; glob++)
        found = found || glob_matches(globs->items[glob], name);
    return found;
}

static bool open_variant(const struct session_args *session, const libdecode_kernel_info *info, bool merges,
                         struct variant *ret_variant) {
    char policy[192];
    snprintf(policy, sizeof policy, "force=%s", info->name);
    ret_variant->info = *info; /* its strings live as long as checker->context */
    ret_variant->merges = merges;
    return session_open(session, merges ? NULL : policy, &ret_variant->context);
}

static bool same_kind(const struct case_kind *a, const struct case_kind *b) {
    return a->op == b->op && a->kv_dtype == b->kv_dtype && a->head_dim == b->head_dim && a->is_sparse == b->is_sparse &&
           a->kv_row_format == b->kv_row_format;
}

/* Of those at hand, or a new one. */
static bool find_kind(struct checker *checker, const struct kernel_record *record, const libdecode_kernel_info *info,
                      uint32_t *ret_kind) {
    const struct case_kind wanted = {.op = info->op,
                                     .kv_dtype = info->kv_dtype,
                                     .head_dim = info->head_dim,
                                     .is_sparse = record->family == &family_sparse_mla_decode,
                                     .kv_row_format = (libdecode_kv_row_format)record->kernel->contract.kv_row_format};
    uint32_t kind = 0;
    while (kind < checker->num_kinds && !same_kind(&wanted, &checker->sources[kind].kind))
        kind++;
    *ret_kind = kind;
    if (kind < checker->num_kinds)
        return true;
    checker->sources[kind] = (struct case_source){.kind = wanted, .palettes = case_palettes_make(wanted.kv_dtype)};
    checker->num_kinds++;
    return checker->sources[kind].palettes != NULL || complain("out of memory");
}

static bool open_variants(struct checker *checker, const struct session_args *session, const struct texts *globs) {
    const size_t count = libdecode_kernel_count(checker->context);
    const uint32_t bit = gpu_bit(checker->device.compute_capability);
    checker->variants = calloc(count + 1, sizeof checker->variants[0]);
    checker->sources = calloc(count + 1, sizeof checker->sources[0]);
    checker->kinds = calloc(count + 1, sizeof checker->kinds[0]);
    if (checker->variants == NULL || checker->sources == NULL || checker->kinds == NULL)
        return complain("out of memory");
    for (size_t index = 0; index < count; index++) {
        libdecode_kernel_info info = {.struct_size = sizeof info};
        if (libdecode_kernel_get_info(checker->context, index, &info) != LIBDECODE_OK || (info.gpus & bit) == 0 ||
            !named(globs, info.name))
            continue;
        const bool merges = checker->context->table.records[index].family == &family_merge_states;
        if (info.op == 0 && !merges)
            continue;
        if (!open_variant(session, &info, merges, &checker->variants[checker->num_variants]))
            return false;
        struct variant *variant = &checker->variants[checker->num_variants++];
        if (!merges && !find_kind(checker, &checker->context->table.records[index], &info, &variant->kind))
            return false;
    }
    if (checker->num_variants > 0)
        return true;
    if (count == 0)
        return complain("check: no bundle was found; 'libdecode doctor' shows where they are looked for");
    if (globs->count > 0)
        return complain("check: none of the %zu kernels at hand runs on this GPU and matches", count);
    return complain("check: none of the %zu kernels at hand runs on this GPU (%s, compute capability %d.%d)", count,
                    checker->device.name, checker->device.compute_capability / 10, checker->device.compute_capability % 10);
}

/* ---------------------------------------------------------------------------------------------------------- running */

static void record_failure(struct checker *checker, struct variant *variant, const char *test, const struct failure *failure) {
    if (variant->failed++ < SHOWN_FAILURES && !checker->json) {
        progress_clear();
        print_wrapped(stdout, 5, "%sFAIL%s %s case %s seed %d: %s", style(stdout, STYLE_BAD), style(stdout, STYLE_PLAIN),
                      variant->info.name, test, checker->args->seed, failure->text);
        printf("     again: libdecode check %s --case %s --seed %d\n", variant->info.name, test, checker->args->seed);
        fflush(stdout);
    }
    struct failure_record *failures = realloc(checker->failures, (checker->num_failures + 1) * sizeof checker->failures[0]);
    if (failures == NULL) {
        checker->out_of_memory = true;
        return;
    }
    checker->failures = failures;
    struct failure_record *record = &failures[checker->num_failures++];
    *record = (struct failure_record){.kernel = variant->info.name, .failure = *failure};
    snprintf(record->test, sizeof record->test, "%s", test);
}

static int fewer_if_random(int count, bool is_random) {
    return is_random ? (count + FEWER_OF_RANDOM_CASES - 1) / FEWER_OF_RANDOM_CASES : count;
}

/* In which the requests of the case must have the same bits. */
static int neighbourhoods_of(const struct checker *checker, const struct host_case *host) {
    if ((host->problem.features & LIBDECODE_FEATURE_BATCH_INVARIANT) == 0)
        return 0;
    return fewer_if_random(checker->args->neighbourhoods, (host->drawn.flags & CASE_RANDOM) != 0);
}

/* Returns whether it can do the problem. */
static bool run_variant(struct checker *checker, struct variant *variant, const struct device_case *device_case) {
    libdecode_plan *plan = NULL;
    struct failure failure = {0};
    double worst = 0;
    const int neighbourhoods = neighbourhoods_of(checker, device_case->host);
    libdecode_status status = libdecode_plan_create(variant->context, &device_case->host->problem, &checker->device, &plan);
    if (status == LIBDECODE_ERROR_OVERRIDE || status == LIBDECODE_ERROR_UNSUPPORTED) {
        if (variant->not_applicable++ == 0)
            snprintf(variant->why_not, sizeof variant->why_not, "%s: %s", device_case->host->test->name,
                     libdecode_error_message());
        return false;
    }
    if (status == LIBDECODE_OK) {
        check_run(&checker->rig, device_case, plan, checker->args->repeats, &failure, &worst);
        libdecode_plan_destroy(plan);
        if (failure.what[0] == '\0' && neighbourhoods > 0)
            check_neighbours(&checker->rig, device_case, variant->context, &checker->device, neighbourhoods, &failure);
    } else {
        snprintf(failure.what, sizeof failure.what, "launch");
        snprintf(failure.text, sizeof failure.text, "%s", libdecode_error_message());
    }
    variant->worst_ratio = fmax(variant->worst_ratio, worst);
    if (failure.what[0] != '\0')
        record_failure(checker, variant, device_case->host->test->name, &failure);
    else
        variant->passed++;
    return true;
}

static void run_variants(struct checker *checker, uint32_t kind, const struct device_case *device_case) {
    const bool take_turns = checker->args->kernels_per_case > 0 && (device_case->host->drawn.flags & CASE_RANDOM) != 0;
    size_t *turn = &checker->kinds[kind].turn;
    const size_t first = take_turns ? *turn : 0, count = checker->num_variants;
    size_t wanted = take_turns ? (size_t)checker->args->kernels_per_case : count;
    struct variant *last = NULL;
    for (size_t step = 0; step < count && wanted > 0 && !checker->gpu.broken && !stopped; step++) {
        const size_t index = (first + step) % count;
        if (checker->variants[index].merges || checker->variants[index].kind != kind)
            continue;
        last = &checker->variants[index];
        if (!run_variant(checker, last, device_case))
            continue;
        *turn = index + 1;
        wanted--;
    }
    const char *field = NULL;
    if (last != NULL && !checker->gpu.broken && !device_case_unchanged(&checker->gpu, device_case, &field)) {
        struct failure failure = {.what = "inputs"};
        snprintf(failure.text, sizeof failure.text, "%s was changed by this kernel or by one that ran before it in the same case",
                 field);
        record_failure(checker, last, device_case->host->test->name, &failure);
    }
}

static bool wanted_case(const struct check_args *args, const struct test_case *test) {
    if (args->only != NULL)
        return glob_matches(args->only, test->name);
    return !args->quick || (test->flags & CASE_QUICK) != 0;
}

/*
 * What each kind of kernel has to do: the table of cases, kind by kind, or the random cases, dealt out. Free with free(); NULL: out of
 * memory.
 */
static struct case_job *list_jobs(struct checker *checker, size_t *ret_count) {
    const struct check_args *args = checker->args;
    const uint32_t num_kinds = checker->num_kinds;
    struct case_job *jobs = calloc((size_t)args->random + (num_test_cases + 1) * num_kinds + 1, sizeof jobs[0]);
    struct test_case numbered;
    size_t count = 0;
    for (uint32_t number = 1; jobs != NULL && num_kinds > 0 && number <= (uint32_t)args->random; number++)
        jobs[count++] = (struct case_job){.number = number, .kind = (number - 1) % num_kinds};
    for (uint32_t kind = 0; jobs != NULL && args->random == 0 && kind < num_kinds; kind++) {
        const size_t before = count;
        for (size_t index = 0; index < num_test_cases; index++) {
            if (wanted_case(args, &test_cases[index]))
                jobs[count++] = (struct case_job){.test = &test_cases[index], .kind = kind};
        }
        if (count == before && args->only != NULL && random_case_named(args->only, &numbered))
            jobs[count++] =
                (struct case_job){.number = strtoull(args->only + strlen(RANDOM_CASE_PREFIX), NULL, 10), .kind = kind};
    }
    for (size_t job = 0; job < count; job++)
        checker->kinds[jobs[job].kind].cases_left++;
    *ret_count = count;
    return jobs;
}

/* False: nothing more can be done. */
static bool run_case(struct checker *checker, uint32_t kind, const struct made_case *made) {
    const struct case_kind *of = &checker->sources[kind].kind;
    struct device_case device_case = {0};
    bool good = made->good && device_case_make(&checker->gpu, &made->host, &made->expectation, &device_case);
    if (good) {
        checker->num_cases++;
        run_variants(checker, kind, &device_case);
    }
    device_case_free(&checker->gpu, &device_case);
    good = good && !checker->gpu.broken && !stopped;
    if (!good && !checker->json) {
        progress_clear();
        print_wrapped(stdout, 2, "%s in case %s with %s KV, head_dim %d: what follows was not run",
                      stopped ? "interrupted" : "stopped", made->test.name, dtype_name(of->kv_dtype), of->head_dim);
    }
    return good;
}

static void finish_kind(struct checker *checker, uint32_t kind) {
    for (size_t variant = 0; variant < checker->num_variants; variant++)
        checker->variants[variant].finished |= !checker->variants[variant].merges && checker->variants[variant].kind == kind;
}

static bool run_jobs(struct checker *checker, struct case_queue *queue, const struct case_job *jobs) {
    const struct made_case *made = NULL;
    bool good = true;
    do {
        const double begin = seconds_now();
        made = case_queue_next(queue);
        checker->waited_seconds += seconds_now() - begin;
        if (made == NULL)
            break;
        const uint32_t kind = jobs[made->job].kind;
        progress("case %zu of %zu: %s KV, head_dim %d, %s", checker->num_begun + 1, checker->num_wanted,
                 dtype_name(checker->sources[kind].kind.kv_dtype), checker->sources[kind].kind.head_dim, made->test.name);
        progress_done(++checker->num_begun, checker->num_wanted);
        good = run_case(checker, kind, made);
        if (good && --checker->kinds[kind].cases_left == 0)
            finish_kind(checker, kind);
    } while (good);
    for (uint32_t kind = 0; good && kind < checker->num_kinds; kind++) /* those that no case was dealt out to, too */
        finish_kind(checker, kind);
    return good;
}

/* Cases of merging that may be wanted: those of the table, random ones, as many as a kind of kernel gets, or the one that --case names. */
static size_t most_merges(const struct checker *checker) {
    const struct check_args *args = checker->args;
    const size_t kinds = checker->num_kinds > 0 ? checker->num_kinds : 1;
    struct test_case numbered;
    if (args->random > 0)
        return ((size_t)args->random + kinds - 1) / kinds;
    return args->only != NULL && random_case_named(args->only, &numbered) ? 1 : num_merge_cases;
}

/* One of those, if it is wanted. */
static bool wanted_merge(const struct check_args *args, size_t number, struct merge_case *ret_merge) {
    struct test_case numbered;
    *ret_merge = (struct merge_case){.flags = MERGE_RANDOM};
    if (args->random > 0) {
        snprintf(ret_merge->name, sizeof ret_merge->name, RANDOM_CASE_PREFIX "%zu", number + 1);
    } else if (args->only != NULL && random_case_named(args->only, &numbered)) {
        snprintf(ret_merge->name, sizeof ret_merge->name, "%s", args->only);
    } else {
        *ret_merge = merge_cases[number];
        if (args->only != NULL && !glob_matches(args->only, ret_merge->name))
            return false;
    }
    if ((ret_merge->flags & MERGE_RANDOM) != 0)
        draw_merge_case(ret_merge, (uint64_t)args->seed);
    return true;
}

static size_t count_merges(const struct checker *checker) {
    size_t of_one = 0, count = 0;
    struct merge_case merge;
    for (size_t number = 0; number < most_merges(checker); number++)
        of_one += wanted_merge(checker->args, number, &merge);
    for (size_t index = 0; index < checker->num_variants; index++)
        count += checker->variants[index].merges ? of_one : 0;
    return count;
}

static bool run_cases(struct checker *checker) {
    size_t count = 0;
    struct case_job *jobs = list_jobs(checker, &count);
    checker->num_wanted = count + count_merges(checker);
    struct case_queue *queue = NULL;
    const bool random = checker->args->random > 0;
    if (jobs != NULL)
        queue = case_queue_begin(jobs, count, checker->sources, (uint64_t)checker->args->seed, checker->device.sm_count,
                                 random ? host_reference_threads() : MAKERS_OF_TABLE, random ? RANDOM_CASES : CASES_OF_TABLE);
    bool good = queue != NULL || complain("out of memory");
    if (good) {
        good = check_rig_open(&checker->gpu, checker->context, &checker->device, &checker->rig) && run_jobs(checker, queue, jobs);
        progress_clear();
        check_rig_close(&checker->rig);
    }
    case_queue_end(queue);
    free(jobs);
    return good;
}

/* The kernel that merges partial results, if it is among the variants. */
static bool run_merges(struct checker *checker) {
    for (size_t index = 0; index < checker->num_variants; index++) {
        struct variant *variant = &checker->variants[index];
        const size_t most = variant->merges ? most_merges(checker) : 0;
        for (size_t number = 0; number < most; number++) {
            struct failure failure;
            struct merge_case merge;
            if (!wanted_merge(checker->args, number, &merge))
                continue;
            progress("case %zu of %zu: %s, %s", checker->num_begun + 1, checker->num_wanted, variant->info.name, merge.name);
            progress_done(++checker->num_begun, checker->num_wanted);
            if (stopped || !check_merge(&checker->gpu, variant->context, &merge, (uint64_t)checker->args->seed,
                                        fewer_if_random(checker->args->repeats, (merge.flags & MERGE_RANDOM) != 0), &failure,
                                        &variant->worst_ratio))
                return false;
            checker->num_cases++;
            if (failure.what[0] != '\0')
                record_failure(checker, variant, merge.name, &failure);
            else
                variant->passed++;
        }
        variant->finished |= variant->merges;
    }
    progress_clear();
    return true;
}

/* ---------------------------------------------------------------------------------------------------------- the whole */

static int check_all(struct checker *checker, const struct session_args *session, const struct texts *globs) {
    double begin = seconds_now();
    checker->device = (libdecode_device){.struct_size = sizeof checker->device};
    if (!session_open(session, NULL, &checker->context))
        return EXIT_FAILED;
    if (libdecode_device_current(checker->context, &checker->device) != LIBDECODE_OK) {
        complain("check: %s", libdecode_error_message());
        return EXIT_FAILED;
    }
    if (!open_variants(checker, session, globs))
        return EXIT_FAILED;
    if (!checker->json)
        printf("%zu kernels on %s\n", checker->num_variants, checker->device.name);
    fflush(stdout);
    stop_on_signals();
    bool complete = run_cases(checker) && run_merges(checker) && !checker->out_of_memory;
    const struct check_summary summary = check_summarise(checker, seconds_now() - begin);
    checker->answered = true;
    if (checker->json)
        check_print_json(checker, &summary, NULL);
    else
        check_print(checker, &summary);
    bool all_passed = summary.passed > 0 && summary.passed + summary.without_case == checker->num_variants;
    return complete && all_passed ? EXIT_PASSED : EXIT_FAILED;
}

/* `json` NULL: text. */
static void list_case(struct json *json, const char *name, bool quick) {
    if (json == NULL) {
        printf("%s%s\n", name, quick ? "  (quick)" : "");
        return;
    }
    json_begin(json, NULL, '{');
    json_text(json, "name", name);
    json_bool(json, "quick", quick);
    json_end(json, '}');
}

static int list_cases(bool as_json) {
    struct json json = {0};
    if (as_json)
        json_begin(&json, NULL, '[');
    for (size_t index = 0; index < num_test_cases; index++)
        list_case(as_json ? &json : NULL, test_cases[index].name, (test_cases[index].flags & CASE_QUICK) != 0);
    for (size_t index = 0; index < num_merge_cases; index++)
        list_case(as_json ? &json : NULL, merge_cases[index].name, true);
    if (as_json)
        json_end(&json, ']');
    return EXIT_PASSED;
}

static int name_missing_case(const char *only) {
    struct test_case numbered;
    if (only != NULL && random_case_named(only, &numbered))
        return EXIT_PASSED;
    if (only == NULL)
        return EXIT_PASSED;
    for (size_t index = 0; index < num_test_cases; index++) {
        if (glob_matches(only, test_cases[index].name))
            return EXIT_PASSED;
    }
    for (size_t index = 0; index < num_merge_cases; index++) {
        if (glob_matches(only, merge_cases[index].name))
            return EXIT_PASSED;
    }
    complain("check: --case %s: no case has that name (--list-cases shows them)", only);
    return EXIT_USAGE;
}

/* What one case leaves is used by the next: given back to the kernel, it would be mapped and cleared anew, page by page. */
static void keep_memory(void) {
#ifdef __GLIBC__
    (void)mallopt(M_MMAP_MAX, 0);
    (void)mallopt(M_TRIM_THRESHOLD, INT_MAX);
    (void)mallopt(M_TOP_PAD, 64 << 20);
    (void)mallopt(M_ARENA_MAX, 1); /* another's heaps are too small for a case */
#endif
}

static int run(int argc, char **argv) {
    struct check_args args = {.seed = DEFAULT_SEED, .repeats = -1, .neighbourhoods = -1, .patience = DEFAULT_PATIENCE};
    struct session_args session = {0};
    struct texts globs = {0};
    void *const targets[] = {&args, &session, &session};
    if (!options_parse(&check_command, targets, argc, argv, &globs) || name_missing_case(args.only) != EXIT_PASSED)
        return EXIT_USAGE;
    if (args.list)
        return list_cases(session.json);
    if (args.repeats < 0)
        args.repeats = args.quick ? QUICK_REPEATS : DEFAULT_REPEATS;
    if (args.neighbourhoods < 0)
        args.neighbourhoods = args.quick ? QUICK_NEIGHBOURHOODS : DEFAULT_NEIGHBOURHOODS;
    keep_memory();
    struct checker checker = {.args = &args, .json = session.json};
    int result = session_open_gpu("check", &session, &checker.gpu);
    checker.gpu.patience_seconds = args.patience;
    if (result == EXIT_PASSED)
        result = check_all(&checker, &session, &globs);
    if (checker.json && !checker.answered)
        check_print_json(&checker, &(struct check_summary){0}, last_complaint());
    fflush(stdout);
    if (checker.gpu.hung)
        _exit(result); /* the driver would wait for the kernel in every call that cleans up */
    for (size_t index = 0; index < checker.num_variants; index++)
        libdecode_close(checker.variants[index].context);
    for (uint32_t kind = 0; kind < checker.num_kinds; kind++)
        free(checker.sources[kind].palettes);
    libdecode_close(checker.context);
    free(checker.sources);
    free(checker.kinds);
    free(checker.variants);
    free(checker.failures);
    gpu_close(&checker.gpu);
    return result;
}

static const struct option_group groups[] = {
    {"What to check", check_options}, {"Bundles and output", bundle_options}, {"GPU", device_options}};

const struct command check_command = {
    .name = "check",
    .summary = "every kernel that fits this GPU against the reference",
    .operands = "[KERNEL-GLOB...]",
    .description =
        "The acceptance test of a GPU: runs every kernel that fits it, each forced in turn, over the shapes at which kernels go "
        "wrong, and compares with the float64 reference. Every KV row and page that must not influence the result is NaN, "
        "outputs "
        "and workspace lie between guard bands, every launch is repeated for equal bits.",
    .examples = "libdecode check                     all of it, some seconds for each kernel\n"
                "libdecode check --quick             a first answer\n"
                "libdecode check '*_d128_r8_*' --case 'window_*'\n"
                "libdecode check '*_c8_*' --case one_long --seed 7\n"
                "libdecode check --random 500 --seed 3\n",
    .notes = "A failure is followed by the command that runs it again. Exit code 77: no GPU, nothing was checked. Interrupted "
             "(Ctrl-C, SIGTERM), it says what it has found so far. How far a result may lie from the reference is derived in "
             "loader/cli/compare.c.",
    COMMAND_GROUPS(groups),
    .run = run,
};
