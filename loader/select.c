/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chooses the kernel: judges every record of the table (can it do this problem, on this GPU, does the policy allow it, how
 * long would it take), takes the best, and gives a reason for every other. Pure: the same call gives the same answer anywhere.
 * Before: problem.c and bundle.c. Beside: cost.c estimates, policy.c knows the rules, judgement.c knows the axes and words the
 * errors.
 */
#include "select.h"

#include <stdio.h>
#include <string.h>

#include "cost.h"
#include "judgement.h"
#include "status.h"
#include "target.h"

_Static_assert((int)CONTRACT_FEATURE_WINDOW == (int)LIBDECODE_FEATURE_WINDOW &&
                   (int)CONTRACT_FEATURE_SINKS == (int)LIBDECODE_FEATURE_SINKS &&
                   (int)CONTRACT_FEATURE_LSE == (int)LIBDECODE_FEATURE_LSE &&
                   (int)CONTRACT_FEATURE_V_PAGE_TABLE == (int)LIBDECODE_FEATURE_V_PAGE_TABLE &&
                   (int)CONTRACT_FEATURE_QUERY_POSITIONS == (int)LIBDECODE_FEATURE_QUERY_POSITIONS &&
                   (int)CONTRACT_FEATURE_SKIP_SOFTMAX == (int)LIBDECODE_FEATURE_SKIP_SOFTMAX,
               "features in kernels/abi.h and libdecode.h");
_Static_assert((int)KERNEL_DTYPE_BF16 == (int)LIBDECODE_DTYPE_BF16 && (int)KERNEL_DTYPE_FP16 == (int)LIBDECODE_DTYPE_FP16 &&
                   (int)KERNEL_DTYPE_E4M3 == (int)LIBDECODE_DTYPE_E4M3 && (int)KERNEL_DTYPE_NVFP4 == (int)LIBDECODE_DTYPE_NVFP4,
               "dtypes in kernels/abi.h and libdecode.h");

/* -------------------------------------------------------------------------------------------------------- judgement */

/* Needs of the GPU that its compute capability does not settle. */
static bool fits_device(const struct libdecode_device *device, const struct kernel_record *record, struct judgement *judgement) {
    const struct libdecode_launch_contract *contract = &record->kernel->contract;
    if (device->driver_version != 0 && !bundle_runs_on(record->bundle, device->driver_version)) {
        uint32_t min_driver = bundle_header(record->bundle)->min_driver;
        judge(judgement, JUDGED_DEVICE, "needs a driver of CUDA %u.%u or newer, this one is %d.%d", min_driver / 1000,
              min_driver % 1000 / 10, device->driver_version / 1000, device->driver_version % 1000 / 10);
        judgement->driver_too_old = true;
        return false;
    }
    if (contract->dynamic_shared_bytes > (uint32_t)device->max_shared_bytes_per_block) {
        judge(judgement, JUDGED_DEVICE, "needs %u bytes of shared memory, a block of this GPU has %d",
              contract->dynamic_shared_bytes, device->max_shared_bytes_per_block);
        return false;
    }
    return true;
}

/* Ordered from what no GPU changes to what the caller decided, so that a refusal can say how far the nearest miss came. */
static struct judgement judge_record(const struct problem *problem, const libdecode_device *device, const struct policy *policy,
                                     const struct kernel_record *record, uint32_t record_gpus) {
    struct judgement judgement = {.record = record, .stage = JUDGED_FAMILY};
    if (family_op(record->kernel->contract.family) != problem->given.op) {
        judge(&judgement, JUDGED_FAMILY, "does not compute batch_decode");
        return judgement;
    }
    judgement.verb = policy_verdict(policy, problem->given.op, record->name);
    judge_problem(problem, &record->kernel->contract, &judgement);
    if (judgement.failing_axes > 0)
        return judgement;
    if ((record_gpus & gpu_bit(device->compute_capability)) == 0) {
        judge(&judgement, JUDGED_GPU, "its image is not for sm_%d", device->compute_capability);
        return judgement;
    }
    if (!fits_device(device, record, &judgement))
        return judgement;
    if (!cost_estimate(problem, device, &record->kernel->contract, &judgement.cost)) {
        judge(&judgement, JUDGED_DEVICE, "its cluster of %u CTAs does not fit %d SMs", record->kernel->contract.cluster_size,
              device->sm_count);
        return judgement;
    }
    if (judgement.verb == POLICY_DENY)
        judge(&judgement, JUDGED_POLICY, "the kernel policy denies it");
    else
        judgement.stage = JUDGED_ELIGIBLE;
    return judgement;
}

/*
 * Fewer passes over the KV cache first, then the narrowest row tile that manages them (rows beyond the group are computed for
 * nothing, and wide tiles leave room for fewer CTAs), then the predicted time. A total order: that of bundles or records
 * never decides.
 */
static bool beats(const struct judgement *a, const struct judgement *b) {
    bool a_preferred = a->verb == POLICY_PREFER, b_preferred = b->verb == POLICY_PREFER;
    if (a_preferred != b_preferred)
        return a_preferred;
    if (a->cost.row_groups != b->cost.row_groups)
        return a->cost.row_groups < b->cost.row_groups;
    uint32_t a_tile = a->record->kernel->contract.row_tile, b_tile = b->record->kernel->contract.row_tile;
    if (a_tile != b_tile)
        return a_tile < b_tile;
    if (a->cost.predicted_ns != b->cost.predicted_ns)
        return a->cost.predicted_ns < b->cost.predicted_ns;
    return strcmp(a->record->name, b->record->name) < 0;
}

/* --------------------------------------------------------------------------------------------------------- decision */

static int microseconds(int64_t ns) { return ns / 1000 > INT32_MAX ? INT32_MAX : (int)(ns / 1000); }
static int tenths(int64_t ns) { return (int)(ns / 100 % 10); }

static void word_reason(const struct problem *problem, const struct judgement *chosen, char ret_reason[160]) {
    static const char *const by_policy[] = {[POLICY_NONE] = "",
                                            [POLICY_FORCE] = ", forced by the kernel policy",
                                            [POLICY_PREFER] = ", preferred by the kernel policy",
                                            [POLICY_DENY] = ""};
    const struct libdecode_launch_contract *contract = &chosen->record->kernel->contract;
    (void)snprintf(ret_reason, 160, "predicted %d.%d us at %d tokens a request: %d pass%s with row tile %u, %d %s%s",
                   microseconds(chosen->cost.predicted_ns), tenths(chosen->cost.predicted_ns), problem->given.max_seq_len,
                   chosen->cost.row_groups, chosen->cost.row_groups == 1 ? "" : "es", contract->row_tile,
                   chosen->cost.num_workers, contract->cluster_size == 1 ? "workers" : "clusters", by_policy[chosen->verb]);
}

static void fill_selection(const struct problem *problem, const struct judgement *chosen, struct selection *ret_selection) {
    struct selection selection = {.record = chosen->record,
                                  .row_groups = chosen->cost.row_groups,
                                  .num_workers = chosen->cost.num_workers,
                                  .min_tiles_per_worker = chosen->cost.min_tiles_per_worker,
                                  .records_bytes = chosen->cost.records_bytes};
    selection.predicted_ns = chosen->cost.predicted_ns > INT32_MAX ? INT32_MAX : (int32_t)chosen->cost.predicted_ns;
    word_reason(problem, chosen, selection.reason);
    *ret_selection = selection;
}

static void word_loss(const struct judgement *chosen, struct judgement *loser) {
    uint32_t tile = loser->record->kernel->contract.row_tile, chosen_tile = chosen->record->kernel->contract.row_tile;
    if (loser->cost.row_groups != chosen->cost.row_groups)
        judge(loser, JUDGED_ELIGIBLE, "reads the KV cache %d times, the choice %d times", loser->cost.row_groups,
              chosen->cost.row_groups);
    else if (tile != chosen_tile)
        judge(loser, JUDGED_ELIGIBLE, "row tile %u, the choice does with %u in as many passes", tile, chosen_tile);
    else
        judge(loser, JUDGED_ELIGIBLE, "predicted %d.%d us, the choice %d.%d us", microseconds(loser->cost.predicted_ns),
              tenths(loser->cost.predicted_ns), microseconds(chosen->cost.predicted_ns), tenths(chosen->cost.predicted_ns));
}

/* One verdict per kernel, in the order of the table. */
static void report_verdicts(const struct problem *problem, const libdecode_device *device, const struct policy *policy,
                            const struct kernel_table *table, const struct judgement *chosen, bool forcing,
                            libdecode_verdict_function report, void *cookie) {
    for (size_t i = 0; i < table->count; i++) {
        struct judgement judgement = judge_record(problem, device, policy, &table->records[i], table->gpus[i]);
        libdecode_verdict verdict = {.kernel = table->records[i].name, .reason = judgement.reason};
        if (judgement.stage == JUDGED_ELIGIBLE) {
            verdict.eligible = 1;
            verdict.predicted_ns = judgement.cost.predicted_ns > INT32_MAX ? INT32_MAX : (int32_t)judgement.cost.predicted_ns;
            verdict.chosen = chosen && chosen->record == &table->records[i];
            if (verdict.chosen)
                word_reason(problem, chosen, judgement.reason);
            else if (forcing && judgement.verb != POLICY_FORCE)
                judge(&judgement, JUDGED_POLICY, "the kernel policy forces others");
            else if (chosen && chosen->verb == POLICY_PREFER && judgement.verb != POLICY_PREFER)
                judge(&judgement, JUDGED_POLICY, "the kernel policy prefers others");
            else if (chosen)
                word_loss(chosen, &judgement);
        }
        report(cookie, &verdict);
    }
}

/* Strict: more passes over the KV cache than the widest row tile of the family needs is what makes a class of kernel slow. */
static libdecode_status check_strict(const struct problem *problem, const struct judgement *chosen) {
    int64_t rows = (int64_t)problem->group_size * problem->given.q_len;
    int64_t fewest = (rows + GQA_WIDEST_ROW_TILE - 1) / GQA_WIDEST_ROW_TILE;
    if (chosen->cost.row_groups <= fewest)
        return LIBDECODE_OK;
    return fail(
        LIBDECODE_ERROR_STRICT,
        "strict: the best kernel at hand, %s, reads the KV cache %d times for %lld query rows, %lld would do with row tile %d; "
        "install the full bundle, relax the kernel policy, or do without LIBDECODE_STRICT",
        chosen->record->name, chosen->cost.row_groups, (long long)rows, (long long)fewest, GQA_WIDEST_ROW_TILE);
}

/* Judges everything once more: words cost time that only a refusal should take. */
static libdecode_status refuse(const struct problem *problem, const libdecode_device *device, const struct policy *policy,
                               const struct kernel_table *table, bool forcing) {
    struct refusal refusal;
    refusal_begin(&refusal);
    for (size_t i = 0; i < table->count; i++) {
        struct judgement judgement = judge_record(problem, device, policy, &table->records[i], table->gpus[i]);
        refusal_note(&refusal, &judgement, table->gpus[i]);
    }
    return refusal_fail(&refusal, problem, device, forcing);
}

libdecode_status select_kernel(const struct problem *problem, const libdecode_device *device, const struct policy *policy,
                               const struct kernel_table *table, libdecode_verdict_function report, void *cookie,
                               struct selection *ret_selection) {
    struct judgement best = {.record = NULL}, best_forced = {.record = NULL};
    bool forcing = false;
    for (size_t i = 0; i < table->count; i++) {
        struct judgement judgement = judge_record(problem, device, policy, &table->records[i], table->gpus[i]);
        forcing = forcing || judgement.verb == POLICY_FORCE;
        if (judgement.stage != JUDGED_ELIGIBLE)
            continue;
        if (!best.record || beats(&judgement, &best))
            best = judgement;
        if (judgement.verb == POLICY_FORCE && (!best_forced.record || beats(&judgement, &best_forced)))
            best_forced = judgement;
    }
    const struct judgement *chosen = forcing ? &best_forced : &best;
    if (!chosen->record)
        chosen = NULL;
    if (report)
        report_verdicts(problem, device, policy, table, chosen, forcing, report, cookie);
    if (!chosen)
        return refuse(problem, device, policy, table, forcing);
    if (policy->strict)
        FORWARD(check_strict(problem, chosen));
    fill_selection(problem, chosen, ret_selection);
    return LIBDECODE_OK;
}
