/* SPDX-License-Identifier: Apache-2.0 */
/* judgement.c: a question and one kernel in, how far the kernel comes out. Before and next: select.c. */
#include "judgement.h"

#include <stdio.h>

#include "contract.h"
#include "operation.h"
#include "target.h"

_Static_assert(FAMILY_MAX_AXES <= 32, "failing_axes has a bit for each");

uint32_t judge_axes(const struct family *family, const struct problem *problem,
                    const struct libdecode_launch_contract *contract) {
    uint32_t failing = 0;
    for (size_t i = 0; family->axes[i]; i++)
        if (!family->axes[i]->fits(problem, contract))
            failing |= 1u << i;
    return failing;
}

/* Needs of the GPU that its compute capability does not settle. */
static enum device_lack compare_device(const libdecode_device *device, const struct kernel_record *record) {
    if (device->driver_version != 0 && !bundle_runs_on(record->bundle, device->driver_version))
        return LACKS_DRIVER;
    if (record->kernel->contract.dynamic_shared_bytes > (uint32_t)device->max_shared_bytes_per_block)
        return LACKS_SHARED_MEMORY;
    return LACKS_NOTHING;
}

static enum judgement_stage examine(const struct question *question, size_t index, struct judgement *judgement) {
    const struct kernel_record *record = judgement->record;
    const struct family *family = record->family;
    const struct libdecode_launch_contract *contract = &record->kernel->contract;
    if (!family)
        return JUDGED_CONTRACT;
    if (family->op != question->problem->given.op)
        return JUDGED_OP;
    judgement->verb = policy_verdict(question->policy, index);
    judgement->failing_axes = judge_axes(family, question->problem, contract);
    if (judgement->failing_axes != 0)
        return JUDGED_PROBLEM;
    if ((question->table->gpus[index] & gpu_bit(question->device->compute_capability)) == 0)
        return JUDGED_GPU;
    judgement->lack = compare_device(question->device, record);
    if (judgement->lack == LACKS_NOTHING && !family->cost(question->problem, question->device, contract, &judgement->cost))
        judgement->lack = LACKS_SMS;
    if (judgement->lack != LACKS_NOTHING)
        return JUDGED_DEVICE;
    return judgement->verb == POLICY_DENY ? JUDGED_POLICY : JUDGED_ELIGIBLE;
}

void judge(const struct question *question, size_t index, struct judgement *ret_judgement) {
    *ret_judgement = (struct judgement){.record = &question->table->records[index], .verb = POLICY_NONE};
    ret_judgement->stage = examine(question, index, ret_judgement);
}

/* ------------------------------------------------------------------------------------------------------------- words */

static void word_contract(const struct kernel_record *record, char ret_reason[REASON_BYTES]) {
    char reason[FAMILY_REASON_BYTES];
    (void)contract_family(&record->kernel->contract, reason);
    (void)snprintf(ret_reason, REASON_BYTES, "%s: this libdecode does not know that", reason);
}

/* Of the first axis that fails. Of features only what is missing: those of both sides are many, and nearly the same. */
static void word_axis(const struct problem *problem, const struct judgement *judgement, char ret_reason[REASON_BYTES]) {
    char asked[AXIS_TEXT_BYTES] = "", offered[AXIS_TEXT_BYTES] = "";
    const struct axis *axis = judgement->record->family->axes[__builtin_ctz(judgement->failing_axes)];
    const struct libdecode_launch_contract *contract = &judgement->record->kernel->contract;
    if (axis == &axis_features) {
        name_missing_features(problem, contract, asked);
        (void)snprintf(ret_reason, REASON_BYTES, "lacks %s", asked);
        return;
    }
    axis->asks(problem, asked);
    axis->offers(contract, offered);
    (void)snprintf(ret_reason, REASON_BYTES, "%s %.60s, the problem has %.60s", axis->name, offered, asked);
}

static void word_lack(const libdecode_device *device, const struct judgement *judgement, char ret_reason[REASON_BYTES]) {
    const struct libdecode_launch_contract *contract = &judgement->record->kernel->contract;
    uint32_t min_driver = bundle_header(judgement->record->bundle)->min_driver;
    switch (judgement->lack) {
    case LACKS_NOTHING:
        break;
    case LACKS_DRIVER:
        (void)snprintf(ret_reason, REASON_BYTES, "needs a driver of CUDA %u.%u or newer, this one is %d.%d", min_driver / 1000,
                       min_driver % 1000 / 10, device->driver_version / 1000, device->driver_version % 1000 / 10);
        break;
    case LACKS_SHARED_MEMORY:
        (void)snprintf(ret_reason, REASON_BYTES, "needs %u bytes of shared memory, a block of this GPU has %d",
                       contract->dynamic_shared_bytes, device->max_shared_bytes_per_block);
        break;
    case LACKS_SMS:
        (void)snprintf(ret_reason, REASON_BYTES, "its cluster of %u CTAs does not fit %d SMs", contract->cluster_size,
                       device->sm_count);
        break;
    }
}

void word_judgement(const struct question *question, const struct judgement *judgement, char ret_reason[REASON_BYTES]) {
    ret_reason[0] = '\0';
    switch (judgement->stage) {
    case JUDGED_CONTRACT:
        word_contract(judgement->record, ret_reason);
        break;
    case JUDGED_OP:
        (void)snprintf(ret_reason, REASON_BYTES, "does not compute %s", question->problem->operation->name);
        break;
    case JUDGED_PROBLEM:
        word_axis(question->problem, judgement, ret_reason);
        break;
    case JUDGED_GPU:
        (void)snprintf(ret_reason, REASON_BYTES, "its image is not for sm_%d", question->device->compute_capability);
        break;
    case JUDGED_DEVICE:
        word_lack(question->device, judgement, ret_reason);
        break;
    case JUDGED_POLICY:
        (void)snprintf(ret_reason, REASON_BYTES, "the kernel policy denies it");
        break;
    case JUDGED_ELIGIBLE:
        break;
    }
}
