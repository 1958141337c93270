/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policy.c: the text of LIBDECODE_KERNEL in, rules that select.c asks about each kernel out.
 *
 *     policy = item {"," item}        item = [op ":"] verb "=" glob        verb = "force" | "prefer" | "deny"
 *
 * op is "batch_decode"; without one, a rule holds for every op. '*' and '?' of a glob match as in a shell. The last rule
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

struct policy_rule {
    enum policy_verb verb;
    libdecode_op op; /* 0: every op */
    const char *glob;
};

#define POLICY_MAX_RULES 32
struct policy {
    struct policy_rule rules[POLICY_MAX_RULES];
    size_t num_rules;
    bool strict;
    char *text; /* owned copy that the globs point into */
};

/*
 * Checks that every glob matches a kernel of the table. `text` may be NULL (no rule); `source` names it in messages
 * ("LIBDECODE_KERNEL"). Errors: OVERRIDE (names the item, and for a glob without a match the nearest names), OUT_OF_MEMORY.
 */
libdecode_status policy_parse(const char *text, const char *source, bool strict, const struct kernel_table *table,
                              struct policy *ret_policy);
void policy_destroy(struct policy *policy);

/* What the rules say of one kernel: the verb of the last rule that matches. */
enum policy_verb policy_verdict(const struct policy *policy, libdecode_op op, const char *kernel);

#endif
