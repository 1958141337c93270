/* SPDX-License-Identifier: Apache-2.0 */
/*
 * judgement.c: whether a kernel's contract covers a problem, and if no kernel does, the error that says what is missing.
 * The part of select.c that knows the axes of a problem; a new axis is one more line of its table. Pure.
 */
#ifndef LIBDECODE_JUDGEMENT_H
#define LIBDECODE_JUDGEMENT_H

#include "cost.h"
#include "policy.h"
#include "problem.h"

/* The widest row tile of kernels/families/gqa_decode.toml (tests/unit/test_select.c compares the two). */
#define GQA_WIDEST_ROW_TILE 32

/* How far a candidate came. */
enum judgement_stage { JUDGED_FAMILY, JUDGED_PROBLEM, JUDGED_GPU, JUDGED_DEVICE, JUDGED_POLICY, JUDGED_ELIGIBLE };

struct judgement {
    const struct kernel_record *record;
    enum judgement_stage stage;
    uint32_t failing_axes; /* bits of the problem's axes that the contract does not cover */
    bool driver_too_old;
    enum policy_verb verb;
    struct cost cost; /* if it is eligible */
    char reason[160];
};

__attribute__((format(printf, 3, 4))) void judge(struct judgement *judgement, enum judgement_stage stage, const char *format,
                                                 ...);

/* Sets failing_axes, and stage and reason if there are any: "head_dim 128, the problem has 64". */
void judge_problem(const struct problem *problem, const struct libdecode_launch_contract *contract, struct judgement *judgement);

#define MAX_AXES 16

/* What all candidates together lacked. */
struct refusal {
    struct judgement nearest, nearest_forced;
    uint32_t gpus;         /* that the kernels for this problem serve */
    uint32_t covered_axes; /* axes that some kernel covers */
    size_t num_denied;
    struct {
        char text[96]; /* the values that exist: "64, 128" */
    } offered[MAX_AXES];
};
void refusal_begin(struct refusal *ret_refusal);
void refusal_note(struct refusal *refusal, const struct judgement *judgement, uint32_t gpus);
/* UNSUPPORTED, NOT_IN_BUNDLE, NO_GPU_IMAGE, DRIVER_TOO_OLD or OVERRIDE. */
libdecode_status refusal_fail(const struct refusal *refusal, const struct problem *problem, const libdecode_device *device,
                              bool forcing);

#endif
