/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An open-addressed table of pointers to immutable entries: readers load a pointer with acquire and compare, writers publish
 * one with a compare-and-swap. Before: decode.c, with a problem. Next: decode.c, with the plan.
 */
#include "plan_memo.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "status.h"

/* An engine has a handful of layer shapes times the batch sizes that it captures graphs for. */
#define NUM_SLOTS 1024u
#define MAX_PROBES 16u

struct entry {
    uint64_t context_id;
    libdecode_problem problem;
    libdecode_plan *plan;
};

struct plan_memo {
    _Atomic(struct entry *) slots[NUM_SLOTS];
    atomic_bool refused;
};

libdecode_status plan_memo_create(struct plan_memo **ret_memo) {
    struct plan_memo *memo = calloc(1, sizeof *memo);
    if (!memo)
        return fail(LIBDECODE_ERROR_OUT_OF_MEMORY, "no memory for the table of plans (%zu bytes); free memory", sizeof *memo);
    *ret_memo = memo;
    return LIBDECODE_OK;
}

void plan_memo_destroy(struct plan_memo *memo) {
    if (!memo)
        return;
    for (size_t i = 0; i < NUM_SLOTS; i++) {
        struct entry *entry = atomic_load_explicit(&memo->slots[i], memory_order_acquire);
        if (entry)
            libdecode_plan_destroy(entry->plan);
        free(entry);
    }
    free(memo);
}

/* FNV-1a over words: two lanes, so that the multiplications overlap. */
static uint32_t first_slot(const libdecode_problem *problem, uint64_t context_id) {
    const uint64_t prime = 0x100000001b3u;
    uint64_t even = 0xcbf29ce484222325u ^ context_id, odd = 0x84222325cbf29ce4u;
    _Static_assert(sizeof *problem % 8 == 0, "whole words");
    for (size_t at = 0; at < sizeof *problem; at += 8) {
        uint64_t word;
        memcpy(&word, (const char *)problem + at, sizeof word);
        uint64_t *lane = at % 16 == 0 ? &even : &odd;
        *lane = (*lane ^ word) * prime;
        *lane ^= *lane >> 32;
    }
    uint64_t hash = (even ^ odd * prime) * prime;
    return (uint32_t)(hash >> 32) % NUM_SLOTS;
}

static bool is_equal(const struct entry *entry, const libdecode_problem *problem, uint64_t context_id) {
    return entry->context_id == context_id && memcmp(&entry->problem, problem, sizeof *problem) == 0;
}

libdecode_plan *plan_memo_find(const struct plan_memo *memo, const libdecode_problem *problem, uint64_t context_id) {
    uint32_t slot = first_slot(problem, context_id);
    for (uint32_t probe = 0; probe < MAX_PROBES; probe++) {
        const struct entry *entry = atomic_load_explicit(&memo->slots[(slot + probe) % NUM_SLOTS], memory_order_acquire);
        if (!entry)
            return NULL;
        if (is_equal(entry, problem, context_id))
            return entry->plan;
    }
    return NULL;
}

libdecode_plan *plan_memo_add(struct plan_memo *memo, const libdecode_problem *problem, uint64_t context_id,
                              libdecode_plan *plan) {
    struct entry *entry = malloc(sizeof *entry);
    if (!entry)
        return NULL;
    entry->context_id = context_id;
    entry->plan = plan;
    memcpy(&entry->problem, problem, sizeof *problem); /* an assignment need not copy padding, which is_equal compares */
    uint32_t slot = first_slot(problem, context_id);
    for (uint32_t probe = 0; probe < MAX_PROBES; probe++) {
        struct entry *there = NULL;
        if (atomic_compare_exchange_strong_explicit(&memo->slots[(slot + probe) % NUM_SLOTS], &there, entry, memory_order_acq_rel,
                                                    memory_order_acquire))
            return plan;
        if (is_equal(there, problem, context_id)) {
            free(entry);
            libdecode_plan_destroy(plan);
            return there->plan;
        }
    }
    free(entry);
    return NULL;
}

bool plan_memo_first_refusal(struct plan_memo *memo) {
    return !atomic_exchange_explicit(&memo->refused, true, memory_order_relaxed);
}
