/* SPDX-License-Identifier: Apache-2.0 */
/*
 * case_query_tokens.c: the lengths of a test case in; how many query tokens each request has, where they stand and what their
 * draft masks say out. Before: case_making.c. Next: cases.c, and case_cache.c, which leaves NaN where none of them looks.
 */
#include "case_query_tokens.h"

#include <stdlib.h>
#include <string.h>

/* A batch of one request has as many query tokens as it may. */
static bool make_query_lengths(struct making *making) {
    const libdecode_problem *problem = making->problem;
    if (!has(making, CASE_RAGGED_Q))
        return true;
    making->cum_seq_lens_q = NEW_BUFFER(making, problem->batch_size + 1, sizeof(int32_t), cum_seq_lens_q);
    if (making->cum_seq_lens_q == NULL)
        return false;
    making->cum_seq_lens_q[0] = 0;
    for (int32_t request = 0; request < problem->batch_size; request++) {
        const int32_t any = (int32_t)random_below(&making->random, (uint32_t)problem->q_len + 1);
        const int32_t counts[] = {problem->q_len, 0, any, 1, any};
        making->cum_seq_lens_q[request + 1] = making->cum_seq_lens_q[request] + counts[request % 5];
    }
    return true;
}

static bool make_query_positions(struct making *making) {
    static const int32_t moves[] = {0, -5, 7, -64, 1, -100000, -1};
    const libdecode_problem *problem = making->problem;
    if (!has(making, CASE_QUERY_POSITIONS))
        return true;
    making->query_positions = NEW_BUFFER(making, problem->batch_size, sizeof(int32_t), query_positions);
    if (making->query_positions == NULL)
        return false;
    for (int32_t request = 0; request < problem->batch_size; request++) {
        const int32_t len = making->seq_lens[request * making->tables_per_request];
        const int32_t first_token = len - query_rows_of(making, request).count;
        making->query_positions[request] = first_token * problem->position_stride + problem->position_offset +
                                           moves[(size_t)request % (sizeof moves / sizeof moves[0])];
    }
    return true;
}

/* ------------------------------------------------------------------------------------------------------- draft masks */

enum mask_kind {
    MASK_TREE, /* a draft token sees itself and what leads to it */
    MASK_FULL, /* what stands behind it, too */
    MASK_GAPS, /* anything; one draft token is seen by nobody, and one sees none, not even itself */
    MASK_CAUSAL,
    NUM_MASK_KINDS
};

/* Of every draft token the one that it continues; -1: the sequence itself. */
static void draw_tree(struct random *random, int32_t count, int32_t parents[MAX_MASKED_TOKENS]) {
    for (int32_t draft = 0; draft < count; draft++)
        parents[draft] = (int32_t)random_below(random, (uint32_t)draft + 1) - 1;
}

static bool leads_to(const int32_t *parents, int32_t ancestor, int32_t draft) {
    while (draft > ancestor)
        draft = parents[draft];
    return draft == ancestor;
}

static void fill_draft_mask(struct making *making, struct query_rows rows, enum mask_kind kind) {
    int32_t parents[MAX_MASKED_TOKENS];
    const int32_t hidden = rows.count / 2, blind = rows.count / 3;
    draw_tree(&making->random, rows.count, parents);
    for (int32_t query = 0; query < rows.count; query++) {
        for (int32_t draft = 0; draft < rows.count; draft++) {
            const bool drawn = random_below(&making->random, 2) == 0 && draft != hidden && query != blind;
            const bool sees[NUM_MASK_KINDS] = {leads_to(parents, draft, query), true, drawn, draft <= query};
            uint16_t *word = draft_mask_word(making, rows.first + query, draft);
            const uint16_t bit = (uint16_t)(1u << draft % 16);
            *word = (uint16_t)(sees[kind] ? *word | bit : *word & ~bit);
        }
    }
}

/* Each request has a mask of another kind. Bits of draft tokens that it does not have stay set, and must not matter. */
static bool make_draft_mask(struct making *making) {
    const libdecode_problem *problem = making->problem;
    if (!has(making, CASE_DRAFT_MASK))
        return true;
    const struct query_rows last = query_rows_of(making, problem->batch_size - 1);
    making->draft_mask = NEW_BUFFER(making, draft_mask_words(making, last.first + last.count), sizeof(uint16_t), draft_mask);
    for (int32_t request = 0; making->draft_mask != NULL && request < problem->batch_size; request++)
        fill_draft_mask(making, query_rows_of(making, request), (enum mask_kind)(request % NUM_MASK_KINDS));
    return making->draft_mask != NULL;
}

bool make_query_tokens(struct making *making) {
    return make_query_lengths(making) && make_query_positions(making) && make_draft_mask(making);
}
