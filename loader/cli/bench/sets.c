/* SPDX-License-Identifier: Apache-2.0 */
/* sets.c: the problems that libdecode is measured by, as one would type them behind `libdecode bench`. */
#include "sets.h"

#include <stdio.h>
#include <string.h>

#include "command.h"

/* What all problems of a set have in common. */
static const struct set {
    const char *name, *words;
} sets[] = {
    {"standard", ""},
    {"e4m3", "--kv e4m3"},
    {"nvfp4", "--heads 32/8"},
    {"pages", "--heads 32/8 --batch 64 --len 4096"},
    {"head_dims", "--batch 64"},
    {"options", "--heads 32/8"},
    {"drafts", "--heads 64/8"},
    {"single", "--kv fp16 --contiguous --layout nhd --batch 1"},
    {"mla", "--mla --page 64"},
    {"mla_sparse", "--mla --page 64 --sparse-top-k 2048 --batch 128 --len 16384"},
};

/* What a problem says beside the options of the command line. */
#define FIELD(name) offsetof(struct set_problem, name)
static const struct option row_options[] = {
    {"--traced", NULL, OPTION_FLAG, FIELD(traced), 0, 0, "lengths from the trace"},
    {"--leveled", NULL, OPTION_FLAG, FIELD(leveled), 0, 0,
     "with --traced: as many tokens in as many requests, but of one length"},
    {"--beside-next", NULL, OPTION_FLAG, FIELD(beside_next), 0, 0, "the next problem's time matters beside this one's"},
    {0},
};

/*
 * Shapes of Llama-3-8B (32/8 heads), of one of its eight tensor-parallel parts (8/1), of Llama-3-70B (64/8), of Gemma (16/8 of 256), of
 * gpt-oss (64/8 of 64, with sinks, every other layer with a window of 128), and of DeepSeek-V3 (MLA with 128 heads, the 64 of one of two
 * parts, or the 16 of one of eight; sparse as V3.2 has it).
 */
static const struct set_row {
    const char *set, *label, *words;
} rows[] = {
    {"standard", "1x4k", "--heads 32/8 --batch 1 --len 4096"},
    {"standard", "1x32k", "--heads 32/8 --batch 1 --len 32768"},
    {"standard", "1x128k", "--heads 32/8 --batch 1 --len 131072"},
    {"standard", "16x4k", "--heads 32/8 --batch 16 --len 4096"},
    {"standard", "64x4k", "--heads 32/8 --batch 64 --len 4096 --beside-next"},
    {"standard", "64x4k page 128", "--heads 32/8 --batch 64 --len 4096 --page 128"},
    {"standard", "128x8k", "--heads 32/8 --batch 128 --len 8192"},
    {"standard", "8/1 64x8k", "--heads 8/1 --batch 64 --len 8192"},
    {"standard", "8/1 256x4k", "--heads 8/1 --batch 256 --len 4096"},
    {"standard", "64/8 64x8k", "--heads 64/8 --batch 64 --len 8192"},
    {"standard", "ragged trace", "--heads 32/8 --traced --beside-next"},
    {"standard", "uniform trace", "--heads 32/8 --traced --leveled"},

    {"e4m3", "e4m3 1x4k", "--heads 32/8 --batch 1 --len 4096"},
    {"e4m3", "e4m3 16x4k", "--heads 32/8 --batch 16 --len 4096"},
    {"e4m3", "e4m3 64x4k", "--heads 32/8 --batch 64 --len 4096"},
    {"e4m3", "e4m3 128x8k", "--heads 32/8 --batch 128 --len 8192"},
    {"e4m3", "e4m3 1x4k page 64", "--heads 32/8 --batch 1 --len 4096 --page 64"},
    {"e4m3", "e4m3 16x4k page 64", "--heads 32/8 --batch 16 --len 4096 --page 64"},
    {"e4m3", "e4m3 64x4k page 64", "--heads 32/8 --batch 64 --len 4096 --page 64"},
    {"e4m3", "e4m3 128x8k page 64", "--heads 32/8 --batch 128 --len 8192 --page 64"},
    {"e4m3", "e4m3 8/1 64x8k", "--heads 8/1 --batch 64 --len 8192"},
    {"e4m3", "e4m3 64/8 64x8k", "--heads 64/8 --batch 64 --len 8192"},
    {"e4m3", "e4m3 ragged trace", "--heads 32/8 --traced --beside-next"},
    {"e4m3", "e4m3 uniform trace", "--heads 32/8 --traced --leveled"},

    {"nvfp4", "nvfp4 1x4k", "--kv nvfp4 --batch 1 --len 4096"},
    {"nvfp4", "nvfp4 16x4k", "--kv nvfp4 --batch 16 --len 4096"},
    {"nvfp4", "64x4k e4m3", "--kv e4m3 --batch 64 --len 4096 --beside-next"},
    {"nvfp4", "64x4k nvfp4", "--kv nvfp4 --batch 64 --len 4096"},
    {"nvfp4", "64x4k page 64 e4m3", "--kv e4m3 --batch 64 --len 4096 --page 64 --beside-next"},
    {"nvfp4", "64x4k page 64 nvfp4", "--kv nvfp4 --batch 64 --len 4096 --page 64"},

    {"pages", "64x4k bf16 page 1", "--kv bf16 --page 1"},
    {"pages", "64x4k bf16 page 8", "--kv bf16 --page 8"},
    {"pages", "64x4k e4m3 page 1", "--kv e4m3 --page 1"},

    {"head_dims", "16/8 of 256 64x4k bf16", "--kv bf16 --heads 16/8 --head-dim 256 --len 4096"},
    {"head_dims", "16/8 of 256 64x4k e4m3", "--kv e4m3 --heads 16/8 --head-dim 256 --len 4096"},
    {"head_dims", "64/8 of 64 64x8k sinks", "--kv bf16 --heads 64/8 --head-dim 64 --len 8192 --sinks"},
    {"head_dims", "64/8 of 64 64x8k sinks window 128", "--kv bf16 --heads 64/8 --head-dim 64 --len 8192 --sinks --window 127"},

    {"options", "64x4k bf16 plain", "--kv bf16 --batch 64 --len 4096"},
    {"options", "64x4k bf16 soft cap", "--kv bf16 --batch 64 --len 4096 --soft-cap 30"},
    {"options", "64x4k bf16 ALiBi", "--kv bf16 --batch 64 --len 4096 --alibi"},
    {"options", "64x4k bf16 RoPE", "--kv bf16 --batch 64 --len 4096 --rope"},
    {"options", "64x4k bf16 batch-invariant", "--kv bf16 --batch 64 --len 4096 --batch-invariant"},
    {"options", "1x32k bf16 plain", "--kv bf16 --batch 1 --len 32768"},
    {"options", "1x32k bf16 soft cap", "--kv bf16 --batch 1 --len 32768 --soft-cap 30"},
    {"options", "1x32k bf16 ALiBi", "--kv bf16 --batch 1 --len 32768 --alibi"},
    {"options", "1x32k bf16 RoPE", "--kv bf16 --batch 1 --len 32768 --rope"},
    {"options", "1x32k bf16 batch-invariant", "--kv bf16 --batch 1 --len 32768 --batch-invariant"},
    {"options", "64x4k e4m3 plain", "--kv e4m3 --batch 64 --len 4096"},
    {"options", "64x4k e4m3 soft cap", "--kv e4m3 --batch 64 --len 4096 --soft-cap 30"},
    {"options", "64x4k e4m3 ALiBi", "--kv e4m3 --batch 64 --len 4096 --alibi"},
    {"options", "64x4k e4m3 RoPE", "--kv e4m3 --batch 64 --len 4096 --rope"},
    {"options", "64x4k e4m3 batch-invariant", "--kv e4m3 --batch 64 --len 4096 --batch-invariant"},
    {"options", "1x32k e4m3 plain", "--kv e4m3 --batch 1 --len 32768"},
    {"options", "1x32k e4m3 soft cap", "--kv e4m3 --batch 1 --len 32768 --soft-cap 30"},
    {"options", "1x32k e4m3 ALiBi", "--kv e4m3 --batch 1 --len 32768 --alibi"},
    {"options", "1x32k e4m3 RoPE", "--kv e4m3 --batch 1 --len 32768 --rope"},
    {"options", "1x32k e4m3 batch-invariant", "--kv e4m3 --batch 1 --len 32768 --batch-invariant"},
    {"options", "64x4k nvfp4 plain", "--kv nvfp4 --batch 64 --len 4096"},
    {"options", "64x4k nvfp4 soft cap", "--kv nvfp4 --batch 64 --len 4096 --soft-cap 30"},
    {"options", "64x4k nvfp4 ALiBi", "--kv nvfp4 --batch 64 --len 4096 --alibi"},
    {"options", "64x4k nvfp4 RoPE", "--kv nvfp4 --batch 64 --len 4096 --rope"},
    {"options", "64x4k nvfp4 batch-invariant", "--kv nvfp4 --batch 64 --len 4096 --batch-invariant"},
    {"options", "1x32k nvfp4 plain", "--kv nvfp4 --batch 1 --len 32768"},
    {"options", "1x32k nvfp4 soft cap", "--kv nvfp4 --batch 1 --len 32768 --soft-cap 30"},
    {"options", "1x32k nvfp4 ALiBi", "--kv nvfp4 --batch 1 --len 32768 --alibi"},
    {"options", "1x32k nvfp4 RoPE", "--kv nvfp4 --batch 1 --len 32768 --rope"},
    {"options", "1x32k nvfp4 batch-invariant", "--kv nvfp4 --batch 1 --len 32768 --batch-invariant"},

    {"drafts", "64x4k bf16 q_len 1", "--kv bf16 --batch 64 --len 4096 --q-len 1"},
    {"drafts", "64x4k bf16 q_len 4", "--kv bf16 --batch 64 --len 4096 --q-len 4"},
    {"drafts", "64x4k bf16 q_len 8", "--kv bf16 --batch 64 --len 4096 --q-len 8"},
    {"drafts", "64x4k bf16 q_len 16", "--kv bf16 --batch 64 --len 4096 --q-len 16"},
    {"drafts", "1x4k bf16 q_len 1", "--kv bf16 --batch 1 --len 4096 --q-len 1"},
    {"drafts", "1x4k bf16 q_len 4", "--kv bf16 --batch 1 --len 4096 --q-len 4"},
    {"drafts", "1x4k bf16 q_len 8", "--kv bf16 --batch 1 --len 4096 --q-len 8"},
    {"drafts", "1x4k bf16 q_len 16", "--kv bf16 --batch 1 --len 4096 --q-len 16"},
    {"drafts", "1x32k bf16 q_len 8", "--kv bf16 --batch 1 --len 32768 --q-len 8"},
    {"drafts", "1x32k bf16 q_len 16", "--kv bf16 --batch 1 --len 32768 --q-len 16"},
    {"drafts", "64x4k e4m3 q_len 8", "--kv e4m3 --batch 64 --len 4096 --q-len 8"},
    {"drafts", "64x4k e4m3 q_len 16", "--kv e4m3 --batch 64 --len 4096 --q-len 16"},
    {"drafts", "1x4k e4m3 q_len 8", "--kv e4m3 --batch 1 --len 4096 --q-len 8"},
    {"drafts", "64x4k nvfp4 q_len 8", "--kv nvfp4 --batch 64 --len 4096 --q-len 8"},
    {"drafts", "64x4k nvfp4 q_len 16", "--kv nvfp4 --batch 64 --len 4096 --q-len 16"},
    {"drafts", "1x4k nvfp4 q_len 8", "--kv nvfp4 --batch 1 --len 4096 --q-len 8"},
    {"drafts", "64x4k bf16 page 1 q_len 8", "--kv bf16 --batch 64 --len 4096 --page 1 --q-len 8"},
    {"drafts", "64x4k bf16 page 1 q_len 16", "--kv bf16 --batch 64 --len 4096 --page 1 --q-len 16"},
    {"drafts", "64x4k e4m3 page 1 q_len 8", "--kv e4m3 --batch 64 --len 4096 --page 1 --q-len 8"},
    {"drafts", "64x4k e4m3 page 1 q_len 16", "--kv e4m3 --batch 64 --len 4096 --page 1 --q-len 16"},

    {"single", "32/8 4k", "--heads 32/8 --len 4096 --beside-next"},
    {"single", "32/8 4k RoPE", "--heads 32/8 --len 4096 --rope"},
    {"single", "32/8 32k", "--heads 32/8 --len 32768 --beside-next"},
    {"single", "32/8 32k RoPE", "--heads 32/8 --len 32768 --rope"},
    {"single", "32/8 128k", "--heads 32/8 --len 131072 --beside-next"},
    {"single", "32/8 128k RoPE", "--heads 32/8 --len 131072 --rope"},
    {"single", "32/32 4k", "--heads 32/32 --len 4096 --beside-next"},
    {"single", "32/32 4k RoPE", "--heads 32/32 --len 4096 --rope"},

    {"mla", "16 heads 1x4k bf16", "--heads 16/1 --kv bf16 --batch 1 --len 4096"},
    {"mla", "16 heads 16x4k bf16", "--heads 16/1 --kv bf16 --batch 16 --len 4096"},
    {"mla", "16 heads 64x4k bf16", "--heads 16/1 --kv bf16 --batch 64 --len 4096"},
    {"mla", "16 heads 128x4k bf16", "--heads 16/1 --kv bf16 --batch 128 --len 4096"},
    {"mla", "16 heads 128x8k bf16", "--heads 16/1 --kv bf16 --batch 128 --len 8192"},
    {"mla", "16 heads ragged trace bf16", "--heads 16/1 --kv bf16 --traced --beside-next"},
    {"mla", "16 heads uniform trace bf16", "--heads 16/1 --kv bf16 --traced --leveled"},
    {"mla", "16 heads 1x4k e4m3", "--heads 16/1 --kv e4m3 --batch 1 --len 4096"},
    {"mla", "16 heads 16x4k e4m3", "--heads 16/1 --kv e4m3 --batch 16 --len 4096"},
    {"mla", "16 heads 64x4k e4m3", "--heads 16/1 --kv e4m3 --batch 64 --len 4096"},
    {"mla", "16 heads 128x4k e4m3", "--heads 16/1 --kv e4m3 --batch 128 --len 4096"},
    {"mla", "16 heads 128x8k e4m3", "--heads 16/1 --kv e4m3 --batch 128 --len 8192"},
    {"mla", "16 heads 16x4k e4m3 queries of e4m3", "--heads 16/1 --kv e4m3 --query e4m3 --out bf16 --batch 16 --len 4096"},
    {"mla", "16 heads 128x8k e4m3 queries of e4m3", "--heads 16/1 --kv e4m3 --query e4m3 --out bf16 --batch 128 --len 8192"},
    {"mla", "64 heads 1x4k bf16", "--heads 64/1 --kv bf16 --batch 1 --len 4096"},
    {"mla", "64 heads 16x4k bf16", "--heads 64/1 --kv bf16 --batch 16 --len 4096"},
    {"mla", "64 heads 64x4k bf16", "--heads 64/1 --kv bf16 --batch 64 --len 4096"},
    {"mla", "64 heads 128x4k bf16", "--heads 64/1 --kv bf16 --batch 128 --len 4096"},
    {"mla", "64 heads 128x4k e4m3", "--heads 64/1 --kv e4m3 --batch 128 --len 4096"},
    {"mla", "128 heads 1x4k bf16", "--heads 128/1 --kv bf16 --batch 1 --len 4096"},
    {"mla", "128 heads 16x4k bf16", "--heads 128/1 --kv bf16 --batch 16 --len 4096"},
    {"mla", "128 heads 64x4k bf16", "--heads 128/1 --kv bf16 --batch 64 --len 4096"},
    {"mla", "128 heads 128x4k bf16", "--heads 128/1 --kv bf16 --batch 128 --len 4096"},
    {"mla", "128 heads ragged trace bf16", "--heads 128/1 --kv bf16 --traced --beside-next"},
    {"mla", "128 heads uniform trace bf16", "--heads 128/1 --kv bf16 --traced --leveled"},
    {"mla", "128 heads 1x4k e4m3", "--heads 128/1 --kv e4m3 --batch 1 --len 4096"},
    {"mla", "128 heads 16x4k e4m3", "--heads 128/1 --kv e4m3 --batch 16 --len 4096"},
    {"mla", "128 heads 128x4k e4m3", "--heads 128/1 --kv e4m3 --batch 128 --len 4096"},
    {"mla", "128 heads 16x4k e4m3 queries of e4m3", "--heads 128/1 --kv e4m3 --query e4m3 --out bf16 --batch 16 --len 4096"},
    {"mla", "128 heads 128x4k e4m3 queries of e4m3", "--heads 128/1 --kv e4m3 --query e4m3 --out bf16 --batch 128 --len 4096"},

    {"mla_sparse", "128 heads 128 of 2k rows of 656", "--heads 128/1 --kv e4m3 --kv-row scaled656"},
    {"mla_sparse", "64 heads 128 of 2k rows of 656", "--heads 64/1 --kv e4m3 --kv-row scaled656"},
    {"mla_sparse", "16 heads 128 of 2k rows of 656", "--heads 16/1 --kv e4m3 --kv-row scaled656"},
    {"mla_sparse", "128 heads 128 of 2k q_len 2", "--heads 128/1 --kv e4m3 --kv-row scaled656 --q-len 2"},
    {"mla_sparse", "64 heads 128 of 2k q_len 2", "--heads 64/1 --kv e4m3 --kv-row scaled656 --q-len 2"},
    {"mla_sparse", "128 heads 128 of 2k bf16", "--heads 128/1 --kv bf16 --kv-row plain"},
    {"mla_sparse", "16 heads 128 of 2k bf16", "--heads 16/1 --kv bf16 --kv-row plain"},
    {"mla_sparse", "16 heads 128 of 2k e4m3", "--heads 16/1 --kv e4m3 --kv-row plain"},
    {"mla_sparse", "16 heads 128 of 2k rows of 352", "--heads 16/1 --kv nvfp4 --kv-row nvfp352"},
};
#define NUM_ROWS (sizeof rows / sizeof rows[0])

static bool is_in(const struct set_row *row, const char *set) { return strcmp(set, "all") == 0 || strcmp(set, row->set) == 0; }

size_t set_size(const char *set) {
    size_t count = 0;
    for (size_t index = 0; index < NUM_ROWS; index++)
        count += is_in(&rows[index], set);
    return count;
}

static const struct set_row *find_row(const char *set, size_t number) {
    const struct set_row *row = rows;
    while (!is_in(row, set) || number-- > 0)
        row++;
    return row;
}

static const char *words_of_set(const char *name) {
    const struct set *set = sets;
    while (strcmp(set->name, name) != 0)
        set++;
    return set->words;
}

static bool read_words(struct set_problem *problem) {
    static const struct option_group groups[] = {{"The problem", problem_options}, {"Its place in the set", row_options}};
    static const struct command command = {.name = "bench", COMMAND_GROUPS(groups)};
    void *const targets[] = {&problem->args, problem};
    enum { MOST_WORDS = 32 };
    char *argv[MOST_WORDS], *rest = NULL;
    int argc = 0;
    for (char *word = strtok_r(problem->words, " ", &rest); word != NULL && argc < MOST_WORDS; word = strtok_r(NULL, " ", &rest))
        argv[argc++] = word;
    return options_parse(&command, targets, argc, argv, NULL);
}

bool set_problem_make(const char *set, size_t number, const struct problem_args *given, struct set_problem *ret_problem) {
    const struct set_row *row = find_row(set, number);
    *ret_problem = (struct set_problem){.set = row->set, .label = row->label, .args = *given};
    snprintf(ret_problem->words, sizeof ret_problem->words, "%s %s", words_of_set(row->set), row->words);
    if (!read_words(ret_problem))
        return false;
    struct problem_args *args = &ret_problem->args;
    args->lens = NULL;
    if (!ret_problem->traced)
        args->trace = NULL;
    else if (args->trace == NULL)
        args->trace = trace_shipped_path();
    return !ret_problem->traced || args->trace != NULL;
}
