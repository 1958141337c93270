/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chooses the kernel: judges the records of the table, takes the best that can do the problem, and gives a reason for every
 * other to those who ask. Pure: the same call gives the same answer anywhere.
 * Before: problem.c and kernel_table.c. Beside: judgement.c judges one kernel, refusal.c words the error when none is left.
 */
#include "select.h"

#include <stdio.h>
#include <string.h>

#include "axis.h"
#include "contract_kv.h"
#include "grid.h"
#include "judgement.h"
#include "refusal.h"
#include "status.h"
#include "target.h"

static int num_options(const struct kernel_record *record) {
    return __builtin_popcount(record->kernel->contract.features & (CONTRACT_OPTIONS | CONTRACT_OFFSETS));
}

/* Not where passes find the rows in the second cache: more and narrower ones side by side may be the fastest. */
static bool rows_decide(const struct judgement *a, const struct judgement *b) {
    return !a->cost.passes_share_rows || !b->cost.passes_share_rows;
}

/*
 * The passes, and the row tile, that a kernel ranks by. From 32 rows on the time decides: wider tiles, which matrix instructions of warpgroups multiply, take
 * longer to hand over a unit, 32 rows by those of single warps longer for each token and for each part of a unit. Where a pass is short it also decides between
 * several of 32 rows and fewer of wider tiles.
 */
enum { WIDEST_MMA_RANK = 32 };
static int64_t rank_passes(const struct libdecode_launch_contract *contract, int64_t row_passes, bool reads_little) {
    return reads_little && contract->row_tile >= WIDEST_MMA_RANK ? 1 : row_passes;
}
static uint32_t rank_tile(const struct libdecode_launch_contract *contract) {
    return contract->row_tile > WIDEST_MMA_RANK ? WIDEST_MMA_RANK : contract->row_tile;
}
static int64_t passes_of(const struct judgement *a) {
    return rank_passes(&a->record->kernel->contract, a->cost.row_passes, a->cost.reads_little);
}
static uint32_t tile_of(const struct judgement *a) { return rank_tile(&a->record->kernel->contract); }
static bool passes_decide(const struct judgement *a, const struct judgement *b) {
    return rows_decide(a, b) && passes_of(a) != passes_of(b);
}
static bool tiles_decide(const struct judgement *a, const struct judgement *b) {
    return rows_decide(a, b) && tile_of(a) != tile_of(b);
}

/*
 * Fewer passes over the KV cache first, but for MLA, whose passes share rows; then the kernel that copies pages whole (one that takes any copies row by row what
 * comes faster so). Then the narrowest row tile that manages the passes (rows beyond the group are computed for nothing, and wide tiles leave room
 * for fewer CTAs), but for rank_tile and MLA, then the kernel with the fewest options, then the predicted time. Where results must not depend on the batch,
 * neither does any of that: MLA is no exception, and the time is that of a token (cost.h). A total order: that of bundles or records never decides.
 */
static bool beats(const struct judgement *a, const struct judgement *b) {
    bool a_preferred = a->verb == POLICY_PREFER, b_preferred = b->verb == POLICY_PREFER;
    if (a_preferred != b_preferred)
        return a_preferred;
    if (passes_decide(a, b))
        return passes_of(a) < passes_of(b);
    const struct libdecode_launch_contract *of_a = &a->record->kernel->contract, *of_b = &b->record->kernel->contract;
    if (contract_copies_rows(of_a) != contract_copies_rows(of_b))
        return contract_copies_rows(of_b);
    uint32_t a_tile = of_a->row_tile, b_tile = of_b->row_tile;
    if (tiles_decide(a, b))
        return a_tile < b_tile;
    int a_options = num_options(a->record), b_options = num_options(b->record);
    if (a_options != b_options)
        return a_options < b_options;
    if (a->cost.rank_ns != b->cost.rank_ns)
        return a->cost.rank_ns < b->cost.rank_ns;
    if (a_tile != b_tile)
        return a_tile < b_tile;
    return strcmp(a->record->name, b->record->name) < 0;
}

/* False: the best so far is chosen before this one, whatever its predicted time, which then need not be computed. */
static bool may_beat(const struct question *question, size_t index, const struct judgement *best) {
    const struct kernel_record *record = &question->table->records[index];
    bool preferred = policy_verdict(question->policy, index) == POLICY_PREFER;
    if (!best->record || preferred != (best->verb == POLICY_PREFER) || record->family != best->record->family ||
        best->cost.passes_share_rows)
        return true;
    const struct libdecode_launch_contract *contract = &record->kernel->contract, *of_best = &best->record->kernel->contract;
    int64_t passes = rank_passes(contract, record->family->row_passes(question->problem, contract), best->cost.reads_little);
    if (passes != passes_of(best))
        return passes < passes_of(best);
    if (contract_copies_rows(contract) != contract_copies_rows(of_best))
        return contract_copies_rows(of_best);
    if (rank_tile(contract) != tile_of(best))
        return rank_tile(contract) < tile_of(best);
    return num_options(record) <= num_options(best->record);
}

/* --------------------------------------------------------------------------------------------------------- decision */

static int microseconds(int64_t ns) { return ns / 1000 > INT32_MAX ? INT32_MAX : (int)(ns / 1000); }
static int tenths(int64_t ns) { return (int)(ns / 100 % 10); }
static int32_t saturated(int64_t ns) { return ns > INT32_MAX ? INT32_MAX : (int32_t)ns; }

static void word_choice(const struct problem *problem, const struct judgement *chosen, char ret_reason[REASON_BYTES]) {
    static const char *const by_policy[] = {[POLICY_NONE] = "",
                                            [POLICY_FORCE] = ", forced by the kernel policy",
                                            [POLICY_PREFER] = ", preferred by the kernel policy",
                                            [POLICY_DENY] = ""};
    const struct libdecode_launch_contract *contract = &chosen->record->kernel->contract;
    bool even = problem->planned_kv_tokens == (int64_t)problem->given.batch_size * problem->given.max_seq_len;
    (void)snprintf(ret_reason, REASON_BYTES, "predicted %d.%d us at %lld tokens %s: %d pass%s with row tile %u, %d %s%s",
                   microseconds(chosen->cost.predicted_ns), tenths(chosen->cost.predicted_ns),
                   even ? (long long)problem->given.max_seq_len : (long long)problem->planned_kv_tokens,
                   even ? "a request" : "in all", chosen->cost.row_passes, chosen->cost.row_passes == 1 ? "" : "es",
                   contract->row_tile, chosen->cost.num_workers, contract->cluster_size == 1 ? "workers" : "clusters",
                   by_policy[chosen->verb]);
}

static void fill_selection(const struct problem *problem, const libdecode_device *device, const struct judgement *chosen,
                           struct selection *ret_selection) {
    const uint32_t ctas_per_sm = chosen->record->kernel->contract.ctas_per_sm;
    struct selection selection = {.record = chosen->record,
                                  .row_passes = chosen->cost.row_passes,
                                  .num_workers = chosen->cost.num_workers,
                                  .most_ctas = saturated((int64_t)device->sm_count * ctas_per_sm),
                                  .min_tiles_per_worker = chosen->cost.min_tiles_per_worker,
                                  .predicted_ns = saturated(chosen->cost.predicted_ns),
                                  .workspace = workspace_layout(device->sm_count, chosen->cost.records_bytes,
                                                                chosen->cost.scratch_bytes, (size_t)problem->host_lens_bytes)};
    word_choice(problem, chosen, selection.reason);
    *ret_selection = selection;
}

/* Why an eligible kernel was not taken. */
static void word_loss(const struct judgement *chosen, const struct judgement *loser, bool forcing,
                      char ret_reason[REASON_BYTES]) {
    const struct libdecode_launch_contract *contract = &loser->record->kernel->contract;
    uint32_t tile = contract->row_tile, chosen_tile = chosen->record->kernel->contract.row_tile;
    bool copies_rows = contract_copies_rows(contract),
         chosen_copies_rows = contract_copies_rows(&chosen->record->kernel->contract);
    if (forcing && loser->verb != POLICY_FORCE)
        (void)snprintf(ret_reason, REASON_BYTES, "the kernel policy forces others");
    else if (chosen->verb == POLICY_PREFER && loser->verb != POLICY_PREFER)
        (void)snprintf(ret_reason, REASON_BYTES, "the kernel policy prefers others");
    else if (passes_decide(loser, chosen))
        (void)snprintf(ret_reason, REASON_BYTES, "reads the KV cache %d times, the choice %d times", loser->cost.row_passes,
                       chosen->cost.row_passes);
    else if (copies_rows && !chosen_copies_rows)
        (void)snprintf(ret_reason, REASON_BYTES, "for pages from %u on, row by row; the choice, from %u on, copies them whole",
                       contract->min_page_size, chosen->record->kernel->contract.min_page_size);
    else if (tiles_decide(loser, chosen))
        (void)snprintf(ret_reason, REASON_BYTES, "row tile %u, the choice does with %u in as many passes", tile, chosen_tile);
    else if (num_options(loser->record) != num_options(chosen->record))
        (void)snprintf(ret_reason, REASON_BYTES, "has options, none of which this problem asks for");
    else if (chosen->cost.rank_ns != chosen->cost.predicted_ns)
        (void)snprintf(ret_reason, REASON_BYTES,
                       "slower for each token; the batch, on which results must not depend, decides nothing");
    else
        (void)snprintf(ret_reason, REASON_BYTES, "predicted %d.%d us, the choice %d.%d us",
                       microseconds(loser->cost.predicted_ns), tenths(loser->cost.predicted_ns),
                       microseconds(chosen->cost.predicted_ns), tenths(chosen->cost.predicted_ns));
}

/* One verdict per kernel, in the order of the table. `chosen` is NULL if none could be. */
static void report_verdicts(const struct question *question, const struct judgement *chosen, bool forcing,
                            libdecode_verdict_function report, void *cookie) {
    for (size_t i = 0; i < question->table->count; i++) {
        struct judgement judgement;
        char reason[REASON_BYTES];
        judge(question, i, &judgement);
        word_judgement(question, &judgement, reason);
        libdecode_verdict verdict = {.kernel = judgement.record->name, .reason = reason};
        if (judgement.stage == JUDGED_ELIGIBLE) {
            verdict.eligible = 1;
            verdict.predicted_ns = saturated(judgement.cost.predicted_ns);
            verdict.chosen = chosen && chosen->record == judgement.record;
            if (verdict.chosen)
                word_choice(question->problem, chosen, reason);
            else if (chosen)
                word_loss(chosen, &judgement, forcing, reason);
            else
                (void)snprintf(reason, sizeof reason, "the kernel policy forces others");
        }
        report(cookie, &verdict);
    }
}

/* The widest row tile of all variants that libdecode has for this problem on this GPU. */
static uint32_t widest_row_tile(const struct question *question) {
    size_t count;
    const struct grid_variant *variants = grid_variants(&count);
    uint32_t bit = gpu_bit(question->device->compute_capability), widest = 1;
    for (size_t i = 0; i < count; i++) {
        const struct family *family = family_find(variants[i].family);
        if (family->op != question->problem->given.op || variants[i].row_tile <= widest ||
            (target_gpus(variants[i].target) & bit) == 0)
            continue;
        const struct libdecode_launch_contract contract = grid_contract(&variants[i]);
        if (judge_axes(family, question->problem, &contract) == 0)
            widest = variants[i].row_tile;
    }
    return widest;
}

/*
 * Strict: more passes over the KV cache than the widest row tile of libdecode needs is what makes a class of kernel slow. `fewest_at_hand`:
 * a kernel that needs no more was there, and lost.
 */
static libdecode_status check_strict(const struct question *question, const struct judgement *chosen, int64_t fewest_at_hand) {
    int64_t rows = (int64_t)question->problem->group_size * question->problem->given.q_len;
    uint32_t widest = widest_row_tile(question);
    int64_t fewest = (rows + widest - 1) / widest;
    if (chosen->cost.row_passes <= fewest || fewest_at_hand <= fewest)
        return LIBDECODE_OK;
    return fail(
        LIBDECODE_ERROR_STRICT,
        "strict: the best kernel at hand, %s, reads the KV cache %d times for %lld query rows, %lld would do with row tile %u; "
        "install the full bundle, relax the kernel policy, or do without LIBDECODE_STRICT",
        chosen->record->name, chosen->cost.row_passes, (long long)rows, (long long)fewest, widest);
}

libdecode_status select_kernel(const struct problem *problem, const libdecode_device *device, const struct policy *policy,
                               const struct kernel_table *table, libdecode_verdict_function report, void *cookie,
                               struct selection *ret_selection) {
    const struct question question = {.problem = problem, .device = device, .policy = policy, .table = table};
    struct judgement best = {.record = NULL};
    const struct kernel_key key = {.op = problem->given.op,
                                   .kv_dtype = (uint32_t)problem->given.kv_dtype,
                                   .head_dim = problem_kernel_head_dim(problem),
                                   .gpu = gpu_bit(device->compute_capability)};
    const uint32_t *candidates;
    size_t count = kernel_table_candidates(table, &key, &candidates);
    bool forcing = policy_forces(policy, problem->given.op);
    int32_t fewest_passes = INT32_MAX;
    for (size_t i = 0; i < count; i++) {
        struct judgement judgement;
        if (!may_beat(&question, candidates[i], &best))
            continue;
        judge(&question, candidates[i], &judgement);
        if (judgement.stage != JUDGED_ELIGIBLE || (forcing && judgement.verb != POLICY_FORCE))
            continue;
        if (judgement.cost.row_passes < fewest_passes)
            fewest_passes = judgement.cost.row_passes;
        if (!best.record || beats(&judgement, &best))
            best = judgement;
    }
    const struct judgement *chosen = best.record ? &best : NULL;
    if (report)
        report_verdicts(&question, chosen, forcing, report, cookie);
    if (!chosen)
        return refuse(&question, forcing);
    if (policy->strict)
        FORWARD(check_strict(&question, chosen, fewest_passes));
    fill_selection(problem, device, chosen, ret_selection);
    return LIBDECODE_OK;
}
