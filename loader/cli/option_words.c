/* SPDX-License-Identifier: Apache-2.0 */
/* option_words.c: names of the API in, options of the command out. Used by session.c, problem_args.c, explain.c and bench. */
#include "option_words.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Names stand for themselves: page_size is not found in page_size_of. Phrases are those of loader/problem.c and operation.c. */
static const struct {
    const char *name, *option;
} words[] = {
    {"problem.features has ", ""},
    {"options.bundle_paths", "--bundle"},
    {"options.kernel_policy", "--policy"},
    {"set that in the problem, or leave the field 0", "give both, or neither"},
    {"kv_row_format is 1", "--kv-row is scaled656"},
    {"kv_row_format is 2", "--kv-row is nvfp352"},
    {"kv_row_format 2 (NVFP4_352)", "--kv-row nvfp352"},
    {"v_sf_layout is 1", "--sf-layout is v_interleave4"},
    {"num_qo_heads", "--heads (query)"},
    {"num_kv_heads", "--heads (KV)"},
    {"batch_size", "--batch"},
    {"head_dim", "--head-dim"},
    {"query_dtype", "--query"},
    {"kv_dtype", "--kv"},
    {"out_dtype", "--out"},
    {"page_size", "--page"},
    {"kv_capacity_tokens", "--len"},
    {"kv_layout", "--layout"},
    {"v_sf_layout", "--sf-layout"},
    {"q_len", "--q-len"},
    {"max_seq_len", "--max-len"},
    {"window_left", "--window"},
    {"position_stride", "--position-stride"},
    {"position_offset", "--position-offset"},
    {"logits_soft_cap", "--soft-cap"},
    {"skip_softmax_threshold_scale_factor", "--skip-softmax"},
    {"rope_scale", "--rope-scale"},
    {"rope_theta", "--rope-theta"},
    {"sparse_top_k", "--sparse-top-k"},
    {"kv_row_format", "--kv-row"},
    {"k_token_stride", "k_token_stride (--row-gap)"},
    {"k_head_stride", "k_head_stride (--row-gap)"},
    {"op mla_decode", "--mla"},
    {"LIBDECODE_FEATURE_WINDOW", "--window"},
    {"LIBDECODE_FEATURE_SINKS", "--sinks"},
    {"LIBDECODE_FEATURE_LSE", "--lse"},
    {"LIBDECODE_FEATURE_SKIP_SOFTMAX", "--skip-softmax"},
    {"LIBDECODE_FEATURE_SOFT_CAP", "--soft-cap"},
    {"LIBDECODE_FEATURE_ALIBI", "--alibi"},
    {"LIBDECODE_FEATURE_ROPE", "--rope"},
    {"LIBDECODE_FEATURE_BATCH_INVARIANT", "--batch-invariant"},
    {"LIBDECODE_FEATURE_CONTIGUOUS_KV", "--contiguous"},
    {"LIBDECODE_FEATURE_QUERY_OFFSETS", "--query-offsets"},
    {"LIBDECODE_FEATURE_KV_OFFSETS", "--kv-offsets"},
};
#define NUM_WORDS (sizeof words / sizeof words[0])

static bool is_part_of_name(char c) { return isalnum((unsigned char)c) || c == '_'; }

/* The row whose name stands at `text`, or NUM_WORDS. */
static size_t find_word(const char *text) {
    for (size_t word = 0; word < NUM_WORDS; word++) {
        const size_t length = strlen(words[word].name);
        if (strncmp(text, words[word].name, length) == 0 &&
            (!is_part_of_name(text[length]) || !is_part_of_name(text[length - 1])))
            return word;
    }
    return NUM_WORDS;
}

const char *in_option_words(const char *message) {
    static const char prefix[] = "problem.";
    static char text[1024];
    size_t used = 0;
    bool begins = true; /* a name may begin here */
    while (*message != '\0' && used + 1 < sizeof text) {
        const size_t skipped = begins && strncmp(message, prefix, sizeof prefix - 1) == 0 ? sizeof prefix - 1 : 0;
        size_t word = begins ? find_word(message) : NUM_WORDS;
        if (word == NUM_WORDS && skipped > 0 && (word = find_word(message + skipped)) != NUM_WORDS)
            message += skipped;
        if (word != NUM_WORDS) {
            used += (size_t)snprintf(text + used, sizeof text - used, "%s", words[word].option);
            message += strlen(words[word].name);
            begins = !is_part_of_name(message[-1]);
            continue;
        }
        begins = !is_part_of_name(*message) && *message != '.' && *message != '/';
        text[used++] = *message++;
    }
    text[used < sizeof text ? used : sizeof text - 1] = '\0';
    return text;
}
