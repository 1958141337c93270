/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A table of sets: a problem's hash picks the set, which has a few places. Readers take no lock: they announce the entry that
 * they are about to use in a hold of their own (a hazard pointer), and look whether it is still in its place. Writers have a
 * lock; an entry that they took out of its place is destroyed when no hold names it any more.
 * Before: decode.c, with a problem. Next: decode.c, with the plan.
 */
#include "plan_memo.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "status.h"

/* An engine has a handful of layer shapes times the batch sizes and lengths that it sees. An entry with its plan takes 1 KiB. */
#define NUM_SETS 512u
#define NUM_PLACES 16u

#define CACHE_LINE_BYTES 64

struct entry {
    struct entry *next; /* of those taken out */
    uint64_t context_id;
    libdecode_problem problem;
    libdecode_plan *plan;
    _Atomic uint64_t last_used; /* the memo's clock at the time */
};

struct place {
    _Atomic uint64_t hash; /* of the entry, or of the one before it */
    _Atomic(struct entry *) entry;
};

/* What one thread uses. Holds are never freed before the memo, so that a list of them can be walked. */
struct plan_hold {
    _Alignas(CACHE_LINE_BYTES) _Atomic(struct entry *) entry;
    atomic_bool is_taken;
    struct plan_hold *next;
};

struct plan_memo {
    struct plan_memo_owner owner;
    _Atomic(struct plan_hold *) holds;
    _Atomic uint64_t clock;  /* additions so far */
    pthread_mutex_t lock;    /* of writers: guards what follows, and every change of a place */
    struct entry *taken_out; /* still in use when they lost their places */
    struct place places[NUM_SETS][NUM_PLACES];
};

libdecode_status plan_memo_create(const struct plan_memo_owner *owner, struct plan_memo **ret_memo) {
    struct plan_memo *memo = calloc(1, sizeof *memo);
    if (!memo || pthread_mutex_init(&memo->lock, NULL) != 0) {
        free(memo);
        return fail(LIBDECODE_ERROR_OUT_OF_MEMORY, "no memory for the table of plans (%zu bytes); free memory", sizeof *memo);
    }
    memo->owner = *owner;
    *ret_memo = memo;
    return LIBDECODE_OK;
}

static void destroy_entry(const struct plan_memo *memo, struct entry *entry) {
    if (entry)
        memo->owner.destroy_plan(entry->plan);
    free(entry);
}

void plan_memo_destroy(struct plan_memo *memo) {
    if (!memo)
        return;
    for (size_t set = 0; set < NUM_SETS; set++)
        for (size_t place = 0; place < NUM_PLACES; place++)
            destroy_entry(memo, atomic_load(&memo->places[set][place].entry));
    while (memo->taken_out) {
        struct entry *next = memo->taken_out->next;
        destroy_entry(memo, memo->taken_out);
        memo->taken_out = next;
    }
    for (struct plan_hold *hold = atomic_load(&memo->holds); hold;) {
        struct plan_hold *next = hold->next;
        free(hold);
        hold = next;
    }
    (void)pthread_mutex_destroy(&memo->lock);
    free(memo);
}

/* FNV-1a over words: two lanes, so that the multiplications overlap. */
static uint64_t hash_of(const libdecode_problem *problem, uint64_t context_id) {
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
    return (even ^ odd * prime) * prime;
}

static struct place *set_of(struct plan_memo *memo, uint64_t hash) { return memo->places[(hash >> 32) % NUM_SETS]; }

static bool is_equal(const struct entry *entry, const libdecode_problem *problem, uint64_t context_id) {
    return entry->context_id == context_id && memcmp(&entry->problem, problem, sizeof *problem) == 0;
}

/* ----------------------------------------------------------------------------------------------------------- readers */

static struct plan_hold *take_hold(struct plan_memo *memo) {
    struct plan_hold *head = atomic_load_explicit(&memo->holds, memory_order_acquire);
    for (struct plan_hold *hold = head; hold; hold = hold->next)
        if (!atomic_load_explicit(&hold->is_taken, memory_order_relaxed) &&
            !atomic_exchange_explicit(&hold->is_taken, true, memory_order_acquire))
            return hold;
    struct plan_hold *hold = aligned_alloc(CACHE_LINE_BYTES, sizeof *hold);
    if (!hold)
        return NULL;
    atomic_init(&hold->entry, NULL);
    atomic_init(&hold->is_taken, true);
    hold->next = head;
    /* In the one order of hold_entry, too: a writer that walks the holds finds this one before what it announces. */
    while (!atomic_compare_exchange_weak(&memo->holds, &hold->next, hold))
        continue;
    return hold;
}

static libdecode_status no_hold(void) {
    return fail(LIBDECODE_ERROR_OUT_OF_MEMORY, "no memory to keep a plan while it is used (%zu bytes); free memory",
                sizeof(struct plan_hold));
}

static void give_hold_back(struct plan_hold *hold) {
    atomic_store_explicit(&hold->entry, NULL, memory_order_release);
    atomic_store_explicit(&hold->is_taken, false, memory_order_release);
}

void plan_memo_release(struct plan_use *use) {
    if (use->hold)
        give_hold_back(use->hold);
    *use = (struct plan_use){NULL, NULL};
}

/*
 * The entry of a place, safe to read until the hold is given back. Announced first, looked at again after: a writer clears the
 * place first and looks at the holds after, so one of the two sees the other. All four in one order for all threads.
 */
static struct entry *hold_entry(struct place *place, struct plan_hold *hold) {
    struct entry *entry = atomic_load(&place->entry), *held = NULL;
    while (entry != held) {
        held = entry;
        atomic_store(&hold->entry, held);
        entry = atomic_load(&place->entry);
    }
    return held;
}

static void use_entry(struct plan_memo *memo, struct entry *entry, struct plan_hold *hold, struct plan_use *ret_use) {
    uint64_t now = atomic_load_explicit(&memo->clock, memory_order_relaxed);
    if (atomic_load_explicit(&entry->last_used, memory_order_relaxed) != now) /* else its cache line stays shared */
        atomic_store_explicit(&entry->last_used, now, memory_order_relaxed);
    *ret_use = (struct plan_use){entry->plan, hold};
}

libdecode_status plan_memo_find(struct plan_memo *memo, const libdecode_problem *problem, uint64_t context_id,
                                struct plan_use *ret_use) {
    uint64_t hash = hash_of(problem, context_id);
    struct place *set = set_of(memo, hash);
    struct plan_hold *hold = take_hold(memo);
    if (!hold)
        return no_hold();
    for (size_t i = 0; i < NUM_PLACES; i++) {
        if (atomic_load_explicit(&set[i].hash, memory_order_acquire) != hash)
            continue;
        struct entry *entry = hold_entry(&set[i], hold);
        if (entry && is_equal(entry, problem, context_id)) {
            use_entry(memo, entry, hold, ret_use);
            return LIBDECODE_OK;
        }
    }
    give_hold_back(hold);
    *ret_use = (struct plan_use){NULL, NULL};
    return LIBDECODE_OK;
}

/* ------------------------------------------------------------------------- writers, one at a time: the lock is held */

static bool is_held(const struct plan_memo *memo, const struct entry *entry) {
    for (const struct plan_hold *hold = atomic_load(&memo->holds); hold; hold = hold->next)
        if (atomic_load(&hold->entry) == entry)
            return true;
    return false;
}

static void destroy_what_nobody_holds(struct plan_memo *memo) {
    for (struct entry **link = &memo->taken_out; *link;) {
        struct entry *entry = *link;
        if (is_held(memo, entry)) {
            link = &entry->next;
            continue;
        }
        *link = entry->next;
        destroy_entry(memo, entry);
    }
}

/* Free, or of a context that has ended, or used longest ago. The context at hand is known to live. */
static struct place *place_to_give(const struct plan_memo *memo, struct place *set, uint64_t context_id) {
    struct place *oldest = &set[0];
    uint64_t oldest_use = UINT64_MAX, living = context_id;
    for (size_t i = 0; i < NUM_PLACES; i++) {
        const struct entry *entry = atomic_load_explicit(&set[i].entry, memory_order_relaxed);
        if (!entry)
            return &set[i];
        uint64_t last_used = atomic_load_explicit(&entry->last_used, memory_order_relaxed);
        if (last_used < oldest_use) {
            oldest = &set[i];
            oldest_use = last_used;
        }
    }
    for (size_t i = 0; i < NUM_PLACES; i++) {
        uint64_t id = atomic_load_explicit(&set[i].entry, memory_order_relaxed)->context_id;
        if (id != living && memo->owner.context_ended(memo->owner.cookie, id))
            return &set[i];
        living = id;
    }
    return oldest;
}

static struct entry *find_locked(struct place *set, const libdecode_problem *problem, uint64_t context_id) {
    for (size_t i = 0; i < NUM_PLACES; i++) {
        struct entry *entry = atomic_load_explicit(&set[i].entry, memory_order_relaxed);
        if (entry && is_equal(entry, problem, context_id))
            return entry;
    }
    return NULL;
}

static void put(struct plan_memo *memo, struct place *set, uint64_t hash, struct entry *entry) {
    struct place *place = place_to_give(memo, set, entry->context_id);
    struct entry *before = atomic_exchange(&place->entry, entry);
    atomic_store_explicit(&place->hash, hash, memory_order_release);
    if (before) {
        before->next = memo->taken_out;
        memo->taken_out = before;
    }
    destroy_what_nobody_holds(memo);
}

libdecode_status plan_memo_add(struct plan_memo *memo, const libdecode_problem *problem, uint64_t context_id,
                               libdecode_plan *plan, struct plan_use *ret_use) {
    uint64_t hash = hash_of(problem, context_id);
    struct place *set = set_of(memo, hash);
    struct plan_hold *hold = take_hold(memo);
    struct entry *entry = malloc(sizeof *entry);
    if (!hold || !entry) {
        free(entry);
        if (hold)
            give_hold_back(hold);
        return hold ? fail(LIBDECODE_ERROR_OUT_OF_MEMORY, "no memory to remember a plan (%zu bytes); free memory", sizeof *entry)
                    : no_hold();
    }
    entry->context_id = context_id;
    entry->problem = *problem;
    entry->plan = plan;
    atomic_init(&entry->last_used, 0);

    (void)pthread_mutex_lock(&memo->lock);
    struct entry *there = find_locked(set, problem, context_id);
    if (!there)
        put(memo, set, hash, entry);
    struct entry *used = there ? there : entry;
    atomic_store(&hold->entry, used); /* before the lock goes: nobody takes it out until then */
    atomic_fetch_add_explicit(&memo->clock, 1, memory_order_relaxed);
    use_entry(memo, used, hold, ret_use);
    (void)pthread_mutex_unlock(&memo->lock);
    if (there)
        destroy_entry(memo, entry);
    return LIBDECODE_OK;
}
