/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text of LIBDECODE_KERNEL (or of libdecode_open_options.kernel_policy) in, rules out. Whatever could have no effect is an
 * error: a typo, an item without a match. Before: open.c. Next: select.c asks policy_verdict.
 */
#define _POSIX_C_SOURCE 200809L /* strdup under -std=c17 */

#include "policy.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "family.h"
#include "glob.h"
#include "operation.h"
#include "status.h"

static const struct {
    const char *name;
    enum policy_verb verb;
} verbs[] = {{"force", POLICY_FORCE}, {"prefer", POLICY_PREFER}, {"deny", POLICY_DENY}};

/* The operation of a kernel that this library can launch; 0: none. */
static libdecode_op op_of(const struct kernel_record *record) { return record->family ? record->family->op : (libdecode_op)0; }

static bool rule_applies(const struct policy_rule *rule, libdecode_op op) { return rule->op == 0 || rule->op == op; }

enum policy_verb policy_verdict(const struct policy *policy, libdecode_op op, const char *kernel) {
    for (size_t i = policy->num_rules; i > 0; i--)
        if (rule_applies(&policy->rules[i - 1], op) && glob_matches(policy->rules[i - 1].glob, kernel))
            return policy->rules[i - 1].verb;
    return POLICY_NONE;
}

/* ---------------------------------------------------------------------------------------------------- nearest names */

#define NUM_NEAREST 3

/* "a, b, c": the names with the smallest edit distance, equal ones in the order of the table. */
static void nearest_names(const char *glob, libdecode_op op, const struct kernel_table *table, char *ret_text, size_t bytes) {
    const char *names[NUM_NEAREST];
    unsigned distances[NUM_NEAREST];
    size_t found = 0;
    for (size_t i = 0; i < table->count; i++) {
        const struct kernel_record *record = &table->records[i];
        libdecode_op record_op = op_of(record);
        if (record_op == 0 || (op != 0 && op != record_op) || (i > 0 && strcmp(table->records[i - 1].name, record->name) == 0))
            continue;
        unsigned distance = glob_distance(glob, record->name);
        size_t place = found;
        while (place > 0 && distance < distances[place - 1])
            place--;
        if (place == NUM_NEAREST)
            continue;
        if (found < NUM_NEAREST)
            found++;
        for (size_t j = found - 1; j > place; j--) {
            names[j] = names[j - 1];
            distances[j] = distances[j - 1];
        }
        names[place] = record->name;
        distances[place] = distance;
    }
    size_t used = 0;
    ret_text[0] = '\0';
    for (size_t j = 0; j < found && used < bytes; j++) {
        int written = snprintf(ret_text + used, bytes - used, "%s%s", j > 0 ? ", " : "", names[j]);
        used += written > 0 ? (size_t)written : 0;
    }
}

/* ---------------------------------------------------------------------------------------------------------- parsing */

static libdecode_status check_match(const struct policy_rule *rule, const char *source, size_t item,
                                    const struct kernel_table *table) {
    size_t candidates = 0;
    for (size_t i = 0; i < table->count; i++) {
        libdecode_op op = op_of(&table->records[i]);
        if (op == 0 || !rule_applies(rule, op))
            continue;
        if (glob_matches(rule->glob, table->records[i].name))
            return LIBDECODE_OK;
        candidates++;
    }
    if (candidates == 0)
        return fail(LIBDECODE_ERROR_OVERRIDE,
                    "%s, item %zu: '%s' matches no kernel, because the bundles at hand hold none; install one or "
                    "name one with LIBDECODE_BUNDLE_PATH",
                    source, item, rule->glob);
    char nearest[NUM_NEAREST * (BUNDLE_MAX_NAME_BYTES + 2)];
    nearest_names(rule->glob, rule->op, table, nearest, sizeof nearest);
    return fail(LIBDECODE_ERROR_OVERRIDE,
                "%s, item %zu: '%s' matches none of the %zu kernels at hand; nearest: %s (all: libdecode list)", source, item,
                rule->glob, candidates, nearest);
}

/* `item` is "[op:]verb=GLOB" and is cut into pieces. */
static libdecode_status parse_item(char *item, const char *source, size_t number, struct policy_rule *ret_rule) {
    struct policy_rule rule = {POLICY_NONE, (libdecode_op)0, NULL};
    char *equals = strchr(item, '=');
    if (!equals || equals[1] == '\0')
        return fail(LIBDECODE_ERROR_OVERRIDE, "%s, item %zu '%s': expected [op:]force=GLOB, prefer=GLOB or deny=GLOB", source,
                    number, item);
    *equals = '\0';
    rule.glob = equals + 1;

    char *verb = item, *colon = strchr(item, ':');
    if (colon) {
        *colon = '\0';
        verb = colon + 1;
        const struct operation_rules *operation = operation_named(item);
        if (!operation)
            return fail(LIBDECODE_ERROR_OVERRIDE,
                        "%s, item %zu: there is no op '%s'; accepted is batch_decode, or none for every op", source, number,
                        item);
        rule.op = operation->op;
    }
    for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++)
        if (strcmp(verb, verbs[i].name) == 0)
            rule.verb = verbs[i].verb;
    if (rule.verb == POLICY_NONE)
        return fail(LIBDECODE_ERROR_OVERRIDE, "%s, item %zu: there is no '%s'; accepted are force, prefer and deny", source,
                    number, verb);
    *ret_rule = rule;
    return LIBDECODE_OK;
}

static libdecode_status parse_items(char *text, const char *source, const struct kernel_table *table, struct policy *policy) {
    char *next = text;
    while (next) {
        char *item = next;
        next = strchr(item, ',');
        if (next)
            *next++ = '\0';
        if (policy->num_rules == POLICY_MAX_RULES)
            return fail(LIBDECODE_ERROR_OVERRIDE, "%s: more than %d items; use globs that match more", source, POLICY_MAX_RULES);
        struct policy_rule *rule = &policy->rules[policy->num_rules];
        FORWARD(parse_item(item, source, policy->num_rules + 1, rule));
        FORWARD(check_match(rule, source, policy->num_rules + 1, table));
        policy->num_rules++;
    }
    return LIBDECODE_OK;
}

libdecode_status policy_parse(const char *text, const char *source, bool strict, const struct kernel_table *table,
                              struct policy *ret_policy) {
    struct policy policy = {.strict = strict};
    if (text && *text) {
        policy.text = strdup(text);
        if (!policy.text)
            return fail(LIBDECODE_ERROR_OUT_OF_MEMORY, "%s: no memory for %zu bytes of text; free memory", source, strlen(text));
        libdecode_status status = parse_items(policy.text, source, table, &policy);
        if (status != LIBDECODE_OK) {
            free(policy.text);
            return status;
        }
    }
    *ret_policy = policy;
    return LIBDECODE_OK;
}

void policy_destroy(struct policy *policy) {
    free(policy->text);
    policy->text = NULL;
    policy->num_rules = 0;
}
