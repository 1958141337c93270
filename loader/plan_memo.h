/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_memo.c: (problem, CUDA context) in, the plan made for it before out. It holds some thousands; after that a plan of a
 * CUDA context that has ended makes room for the next, or else the one that was used longest ago. Finding takes no lock.
 */
#ifndef LIBDECODE_PLAN_MEMO_H
#define LIBDECODE_PLAN_MEMO_H

#include <stdbool.h>

#include "libdecode.h"

struct plan_memo;

/* What its maker knows of plans and contexts, and the memo does not. */
struct plan_memo_owner {
    void (*destroy_plan)(libdecode_plan *plan);
    bool (*context_ended)(void *cookie, uint64_t context_id);
    void *cookie;
};

libdecode_status plan_memo_create(const struct plan_memo_owner *owner, struct plan_memo **ret_memo);

/* Destroys the plans too; none may be in use. */
void plan_memo_destroy(struct plan_memo *memo);

/* A plan in use: it outlives its place in the memo until plan_memo_release. */
struct plan_use {
    libdecode_plan *plan;
    struct plan_hold *hold;
};

/*
 * `problem` comes from problem_read: equal problems are equal bytes. ret_use->plan is NULL if there is none; else release it.
 * No lock; allocates only where more threads use plans at once than ever before. Error: OUT_OF_MEMORY.
 */
libdecode_status plan_memo_find(struct plan_memo *memo, const libdecode_problem *problem, uint64_t context_id,
                                struct plan_use *ret_use);

/*
 * Takes the plan and uses it; if another thread was faster, uses that one's and destroys this. On error the plan stays the
 * caller's. Error: OUT_OF_MEMORY.
 */
libdecode_status plan_memo_add(struct plan_memo *memo, const libdecode_problem *problem, uint64_t context_id,
                               libdecode_plan *plan, struct plan_use *ret_use);

void plan_memo_release(struct plan_use *use);

#endif
