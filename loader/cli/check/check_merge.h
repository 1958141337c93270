/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_merge.c: the kernel that merges partial results, over cases of its own, against the reference. Called by check.c for the
 * kernel of the GPU at hand.
 */
#ifndef LIBDECODE_CLI_CHECK_MERGE_H
#define LIBDECODE_CLI_CHECK_MERGE_H

#include "check_run.h"

/* What a case is, in the numbers of libdecode_states. */
struct merge_case {
    char name[32];
    libdecode_dtype dtype, out_dtype;
    int32_t num_tokens, num_heads, head_dim, num_states;
    enum {
        MERGE_RAGGED = 1u << 0,         /* 0 to num_states states a token */
        MERGE_MASKED = 1u << 1,         /* every third token stays as it is */
        MERGE_IN_PLACE = 1u << 2,       /* the result lies where the last state was */
        MERGE_NATURAL = 1u << 3,        /* lse base e */
        MERGE_STATES_OUTSIDE = 1u << 4, /* [states, tokens, heads, head_dim] with gaps, as gathered from several GPUs */
        MERGE_NO_LSE = 1u << 5,
        MERGE_EXTREME = 1u << 6, /* lse of -infinity with rows of NaN, +infinity, and 10^4 apart */
        MERGE_PADDED = 1u << 7,  /* gaps between the results of tokens */
        MERGE_RANDOM = 1u << 8   /* all but the name as that and the seed have it */
    } flags;
};
extern const struct merge_case merge_cases[];
extern const size_t num_merge_cases;

/* Draws what the case of MERGE_RANDOM with this name is. */
void draw_merge_case(struct merge_case *test, uint64_t seed);

/* Runs the case `repeats` + 1 times. `ret_worst` gets the largest error / tolerance. False: nothing more can be done. */
bool check_merge(struct gpu *gpu, libdecode_context *context, const struct merge_case *test, uint64_t seed, int repeats,
                 struct failure *ret_failure, double *ret_worst);

#endif
