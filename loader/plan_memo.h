/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_memo.c: (problem, CUDA context) in, the plan made for it before out. Fixed size, lock-free, nothing is ever taken out:
 * a plan once found stays valid until the memo ends. Used by libdecode_decode alone.
 */
#ifndef LIBDECODE_PLAN_MEMO_H
#define LIBDECODE_PLAN_MEMO_H

#include <stdbool.h>

#include "libdecode.h"

struct plan_memo;

libdecode_status plan_memo_create(struct plan_memo **ret_memo);
/* Destroys the plans too. */
void plan_memo_destroy(struct plan_memo *memo);

/* `problem` comes from problem_read: equal problems are equal bytes. NULL if there is none. No allocation, no lock. */
libdecode_plan *plan_memo_find(const struct plan_memo *memo, const libdecode_problem *problem, uint64_t context_id);

/*
 * Takes the plan, unless another thread was faster (then its plan is the answer, and this one is destroyed) or there is no
 * room (then the answer is NULL, and the plan stays the caller's).
 */
libdecode_plan *plan_memo_add(struct plan_memo *memo, const libdecode_problem *problem, uint64_t context_id,
                              libdecode_plan *plan);

/* True for one caller only: the first that was told there is no room. */
bool plan_memo_first_refusal(struct plan_memo *memo);

#endif
