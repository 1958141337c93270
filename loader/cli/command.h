/* SPDX-License-Identifier: Apache-2.0 */
/*
 * command.h: what a subcommand is, as data: help.c prints it, manual/ makes man pages and completion of it, main.c runs it.
 * Each has a file of its own; commands.c has the table of them, and what concerns the command as a whole.
 */
#ifndef LIBDECODE_CLI_COMMAND_H
#define LIBDECODE_CLI_COMMAND_H

#include "options.h"

struct command {
    const char *name, *summary; /* "bench"; "time kernels with ..." */
    const char *operands;       /* "[GLOB...]"; "": it takes none */
    const char *description;    /* paragraphs, an empty line between two */
    const char *examples;       /* lines; "": none */
    const char *notes;          /* paragraphs behind the examples; "": none */
    const struct option_group *groups;
    size_t num_groups;
    /* argv holds what follows the subcommand's name; the result is an exit code (options.h). */
    int (*run)(int argc, char **argv);
};
#define COMMAND_GROUPS(array) .groups = (array), .num_groups = sizeof(array) / sizeof((array)[0])

extern const struct command demo_command, doctor_command, list_command, explain_command, check_command, bench_command;

/* commands.c */
extern const struct command *const commands[];
extern const size_t num_commands;
#define COMMAND_SUMMARY "LLM decode attention with kernels compiled ahead of time"
#define HELP_SUMMARY "what a command does and takes: libdecode help bench"
extern const char first_steps[]; /* lines, as command.examples */
struct exit_code {
    int code;
    const char *meaning;
};
extern const struct exit_code exit_codes[];
extern const size_t num_exit_codes;

/* help.c: on standard output. */
void help_overview(void);
void help_command(const struct command *command);

#endif
