/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text of LIBDECODE_KERNEL (or of libdecode_open_options.kernel_policy) in, a verdict about each kernel out, once. Whatever
 * has no effect is an error: a typo, an item without a match, an item that later ones take everything from. Before: open.c.
 * Next: judgement.c asks policy_verdict.
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

/* One item of the text, which the glob points into. */
struct policy_rule {
    enum policy_verb verb;
    libdecode_op op; /* 0: every op */
    const char *glob;
    bool decides; /* about a kernel */
};

struct policy_rules {
    struct policy_rule items[POLICY_MAX_RULES];
    size_t count;
};

static bool applies(const struct policy_rule *rule, libdecode_op op) { return op != 0 && (rule->op == 0 || rule->op == op); }

/* ------------------------------------------------------------------------------------------------------- no effect */

#define NUM_NEAREST 3

/*
 * "; nearest: a, b, c": the names with the smallest edit distance, equal ones in the order of the table. Whatever differs in more than
 * one character of three was not meant: "" where nothing is nearer.
 */
static void nearest_names(const struct policy_rule *rule, const struct kernel_table *table, char *ret_text, size_t bytes) {
    const char *names[NUM_NEAREST];
    unsigned distances[NUM_NEAREST];
    const size_t limit = (strlen(rule->glob) + 2) / 3;
    size_t found = 0;
    for (size_t i = 0; i < table->count; i++) {
        const struct kernel_record *record = &table->records[i];
        libdecode_op record_op = op_of(record);
        if (!applies(rule, record_op) || (i > 0 && strcmp(table->records[i - 1].name, record->name) == 0))
            continue;
        unsigned distance = glob_distance(rule->glob, record->name);
        size_t place = distance <= limit ? found : NUM_NEAREST;
        while (distance <= limit && place > 0 && distance < distances[place - 1])
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
        int written = snprintf(ret_text + used, bytes - used, "%s%s", j > 0 ? ", " : "; nearest: ", names[j]);
        used += written > 0 ? (size_t)written : 0;
    }
}

static libdecode_status fail_without_match(const struct policy_rule *rule, const char *source, size_t item,
                                           const struct kernel_table *table) {
    size_t candidates = 0;
    for (size_t i = 0; i < table->count; i++)
        candidates += applies(rule, op_of(&table->records[i]));
    if (candidates == 0)
        return fail(
            LIBDECODE_ERROR_OVERRIDE,
            "%s, item %zu: '%s' matches no kernel, because the bundles at hand hold none that policies choose among; install one "
            "or name one with LIBDECODE_BUNDLE_PATH",
            source, item, rule->glob);
    char nearest[sizeof "; nearest: " + NUM_NEAREST * (BUNDLE_MAX_NAME_BYTES + 2)];
    nearest_names(rule, table, nearest, sizeof nearest);
    return fail(LIBDECODE_ERROR_OVERRIDE,
                "%s, item %zu: '%s' matches none of the %zu kernels at hand that policies choose among%s (all: libdecode list)",
                source, item, rule->glob, candidates, nearest);
}

/* The rule has no effect: it matches nothing, or later ones decide about everything that it matches. */
static libdecode_status fail_without_effect(const struct policy_rules *rules, size_t number, const char *source,
                                            const struct kernel_table *table) {
    const struct policy_rule *rule = &rules->items[number];
    for (size_t i = 0; i < table->count; i++) {
        libdecode_op op = op_of(&table->records[i]);
        if (!applies(rule, op) || !glob_matches(rule->glob, table->records[i].name))
            continue;
        size_t later = rules->count - 1;
        while (!applies(&rules->items[later], op) || !glob_matches(rules->items[later].glob, table->records[i].name))
            later--;
        return fail(LIBDECODE_ERROR_OVERRIDE,
                    "%s, item %zu: '%s' decides about no kernel: the last item that matches a kernel does, so item %zu, '%s', "
                    "decides about %s; leave one out, or change their order",
                    source, number + 1, rule->glob, later + 1, rules->items[later].glob, table->records[i].name);
    }
    return fail_without_match(rule, source, number + 1, table);
}

/* ---------------------------------------------------------------------------------------------------------- parsing */

/* `item` is "[op:]verb=GLOB" and is cut into pieces. */
static libdecode_status parse_item(char *item, const char *source, size_t number, struct policy_rule *ret_rule) {
    struct policy_rule rule = {.verb = POLICY_NONE};
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
                        "%s, item %zu: there is no op '%s'; accepted are batch_decode and mla_decode, or none for every op",
                        source, number, item);
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

static libdecode_status parse_items(char *text, const char *source, struct policy_rules *ret_rules) {
    char *next = text;
    ret_rules->count = 0;
    while (next) {
        char *item = next;
        next = strchr(item, ',');
        if (next)
            *next++ = '\0';
        if (ret_rules->count == POLICY_MAX_RULES)
            return fail(LIBDECODE_ERROR_OVERRIDE, "%s: more than %d items; use globs that match more", source, POLICY_MAX_RULES);
        FORWARD(parse_item(item, source, ret_rules->count + 1, &ret_rules->items[ret_rules->count]));
        ret_rules->count++;
    }
    return LIBDECODE_OK;
}

/* The verb of the last rule that matches, for each kernel. */
static void decide(struct policy_rules *rules, const struct kernel_table *table, struct policy *policy) {
    for (size_t i = 0; i < table->count; i++) {
        libdecode_op op = op_of(&table->records[i]);
        for (size_t number = rules->count; number > 0; number--) {
            struct policy_rule *rule = &rules->items[number - 1];
            if (!applies(rule, op) || !glob_matches(rule->glob, table->records[i].name))
                continue;
            rule->decides = true;
            policy->verbs[i] = (uint8_t)rule->verb;
            if (rule->verb == POLICY_FORCE)
                policy->forced_ops |= 1u << op;
            break;
        }
    }
}

static libdecode_status apply(char *text, const char *source, const struct kernel_table *table, struct policy *policy) {
    struct policy_rules rules;
    FORWARD(parse_items(text, source, &rules));
    policy->verbs = calloc(table->count + 1, sizeof *policy->verbs); /* + 1: never of size 0 */
    if (!policy->verbs)
        return fail(LIBDECODE_ERROR_OUT_OF_MEMORY, "%s: no memory for verdicts on %zu kernels; free memory", source,
                    table->count);
    decide(&rules, table, policy);
    for (size_t number = 0; number < rules.count; number++)
        if (!rules.items[number].decides)
            return fail_without_effect(&rules, number, source, table);
    return LIBDECODE_OK;
}

libdecode_status policy_parse(const char *text, const char *source, bool strict, const struct kernel_table *table,
                              struct policy *ret_policy) {
    struct policy policy = {.strict = strict};
    if (text && *text) {
        char *copy = strdup(text);
        if (!copy)
            return fail(LIBDECODE_ERROR_OUT_OF_MEMORY, "%s: no memory for %zu bytes of text; free memory", source, strlen(text));
        libdecode_status status = apply(copy, source, table, &policy);
        free(copy);
        if (status != LIBDECODE_OK) {
            policy_destroy(&policy);
            return status;
        }
    }
    *ret_policy = policy;
    return LIBDECODE_OK;
}

void policy_destroy(struct policy *policy) {
    free(policy->verbs);
    policy->verbs = NULL;
    policy->forced_ops = 0;
}
