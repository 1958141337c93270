/* SPDX-License-Identifier: Apache-2.0 */
/*
 * options.c: the command line of a subcommand in, the fields of a struct out, by tables that are also the help text.
 * Before: main.c found the subcommand. Next: the subcommand itself.
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
    OPTION_TEXTS   /* struct texts: may be given several times */
};

#define TEXTS_MAX 16
struct texts {
    const char *items[TEXTS_MAX];
    size_t count;
};

struct option {
    const char *name;    /* "--batch"; NULL ends a table */
    const char *metavar; /* "N"; NULL for a flag */
    enum option_kind kind;
    size_t field;             /* offset in the target */
    int32_t minimum, maximum; /* of an OPTION_INT */
    const char *help;
};

/* One table and the struct that it fills. */
struct option_group {
    const char *title;
    const struct option *options;
    void *target;
};

/*
 * Reads argv[0..argc). Words that are no option go to `positionals` (NULL: none is accepted). On a mistake prints what is
 * wrong, and the nearest option there is, and returns false.
 */
bool options_parse(const char *command, const struct option_group *groups, size_t num_groups, int argc, char **argv,
                   struct texts *positionals);

/* Prints the options of all groups, for a help text. */
void options_print(const struct option_group *groups, size_t num_groups);

/* The word of `words` nearest to `word`, or NULL if none is near. */
const char *nearest_word(const char *word, const char *const *words, size_t num_words);

/* "libdecode: " + text on standard error; returns false, so that a function can complain and fail in one line. */
__attribute__((format(printf, 1, 2))) bool complain(const char *format, ...);

#endif
