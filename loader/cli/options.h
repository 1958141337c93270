/* SPDX-License-Identifier: Apache-2.0 */
/*
 * options.c: the command line of a subcommand in, the fields of structs out, by tables that are also help text, man page and
 * completion. Before: main.c found the subcommand. Next: the subcommand itself.
 */
#ifndef LIBDECODE_CLI_OPTIONS_H
#define LIBDECODE_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Exit codes of every subcommand. */
enum {
    EXIT_PASSED = 0,
    EXIT_FAILED = 1,
    EXIT_USAGE = 2,
    EXIT_NO_GPU = 77 /* there is no GPU, so nothing was checked */
};

enum option_kind {
    OPTION_FLAG,   /* bool */
    OPTION_INT,    /* int32_t within [minimum, maximum] */
    OPTION_NUMBER, /* float */
    OPTION_TEXT,   /* const char * */
    OPTION_WORD,   /* const char *, one of the words of the metavar */
    OPTION_TEXTS   /* struct texts: may be given several times */
};

#define TEXTS_MAX 16
struct texts {
    const char *items[TEXTS_MAX];
    size_t count;
};

struct option {
    const char *name; /* "--batch"; NULL ends a table */
    /* "N"; "hnd|nhd" of an OPTION_WORD; NULL for a flag. FILE..., PATH and GPU are completed with files and names of GPUs. */
    const char *metavar;
    enum option_kind kind;
    size_t field;             /* offset in the target */
    int32_t minimum, maximum; /* of an OPTION_INT */
    const char *help;
};

/* One table, which fills one struct. */
struct option_group {
    const char *title;
    const struct option *options;
};

struct command;

/*
 * Reads argv[0..argc) by the groups of the command: those of group i fill *targets[i]. Words that are no option go to `positionals`
 * (NULL: none is accepted), and so does all that follows "--". On a mistake prints what is wrong, and the nearest option if one is
 * near, and returns false.
 */
bool options_parse(const struct command *command, void *const *targets, int argc, char **argv, struct texts *positionals);

/* Calls `report` with every word of an OPTION_WORD. */
void option_words(const struct option *option, void (*report)(void *cookie, const char *word, size_t length), void *cookie);

/* The word of `words` nearest to `word`, or NULL if none is near: if it is no slip of the pen. */
const char *nearest_word(const char *word, const char *const *words, size_t num_words);

/*
 * "libdecode: " + text on standard error; returns false, so that a function can complain and fail in one line. A line stays whole
 * where standard error is no terminal.
 */
__attribute__((format(printf, 1, 2))) bool complain(const char *format, ...);

/* What was complained of last; NULL: nothing. */
const char *last_complaint(void);

#endif
