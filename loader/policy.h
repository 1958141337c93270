/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policy.c: the text of LIBDECODE_KERNEL in, a verdict about each kernel of the table out.
 *
 *     policy = item {"," item}        item = [op ":"] verb "=" glob        verb = "force" | "prefer" | "deny"
 *
 * op is "batch_decode" or "mla_decode"; without one, a rule holds for every op. '*' and '?' of a glob match as in a shell. The last rule
 * that matches a kernel decides about it. "force": only such kernels may run; "prefer": they win over all others whenever one
 * of them can run; "deny": they never run.
 */
#ifndef LIBDECODE_POLICY_H
#define LIBDECODE_POLICY_H

#include <stdbool.h>
#include <stddef.h>

#include "kernel_table.h"
#include "libdecode.h"

enum policy_verb { POLICY_NONE, POLICY_FORCE, POLICY_PREFER, POLICY_DENY };

#define POLICY_MAX_RULES 32
struct policy {
    bool strict;
    uint8_t *verbs;      /* policy_verb of each record of the table; NULL: no rules */
    uint32_t forced_ops; /* bits: operations of which a kernel is forced, so that no other may run */
};

/*
 * `text` may be NULL (no rule); `source` names it in messages ("LIBDECODE_KERNEL"). Every rule must decide about a kernel of the
 * table, which the policy is then for. Errors: OVERRIDE (names the item, and for a glob without a match the nearest names),
 * OUT_OF_MEMORY.
 */
libdecode_status policy_parse(const char *text, const char *source, bool strict, const struct kernel_table *table,
                              struct policy *ret_policy);
void policy_destroy(struct policy *policy);

/* What the rules say of the kernel at `index` of the table. */
static inline enum policy_verb policy_verdict(const struct policy *policy, size_t index) {
    return policy->verbs ? (enum policy_verb)policy->verbs[index] : POLICY_NONE;
}

/* Whether only forced kernels may compute the operation. */
static inline bool policy_forces(const struct policy *policy, libdecode_op op) { return (policy->forced_ops >> op & 1u) != 0; }

#endif
