/* SPDX-License-Identifier: Apache-2.0 */
/*
 * judgement.c: a question (problem, device, policy) and one kernel in; how far the kernel comes out, and in words for those who
 * ask. Pure. Used by select.c for every candidate and by refusal.c when none is left.
 */
#ifndef LIBDECODE_JUDGEMENT_H
#define LIBDECODE_JUDGEMENT_H

#include "cost.h"
#include "family.h"
#include "kernel_table.h"
#include "policy.h"
#include "problem.h"

/* What selection is asked. */
struct question {
    const struct problem *problem;
    const libdecode_device *device;
    const struct policy *policy;
    const struct kernel_table *table;
};

/* How far a candidate came: ordered from what no GPU changes to what the caller decided. */
enum judgement_stage {
    JUDGED_CONTRACT, /* this library cannot launch it, */
    JUDGED_OP,       /* or it computes something else */
    JUDGED_PROBLEM,
    JUDGED_GPU,
    JUDGED_DEVICE,
    JUDGED_POLICY,
    JUDGED_ELIGIBLE
};

/* What the device has too little of. */
enum device_lack { LACKS_NOTHING, LACKS_DRIVER, LACKS_SHARED_MEMORY, LACKS_SMS };

struct judgement {
    const struct kernel_record *record;
    enum judgement_stage stage;
    uint32_t failing_axes; /* bits of the family's axes that the contract does not cover */
    enum device_lack lack;
    enum policy_verb verb;
    struct cost cost; /* if it is eligible or denied */
};

#define REASON_BYTES 160

/* Of the kernel at `index` of the table. */
void judge(const struct question *question, size_t index, struct judgement *ret_judgement);

/* Bits of the family's axes that the contract does not cover. */
uint32_t judge_axes(const struct family *family, const struct problem *problem, const struct libdecode_launch_contract *contract);

/* Why the kernel cannot do it ("head_dim 128, the problem has 64", "lacks soft_cap"); "" if it is eligible. */
void word_judgement(const struct question *question, const struct judgement *judgement, char ret_reason[REASON_BYTES]);

#endif
