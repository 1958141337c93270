/* SPDX-License-Identifier: Apache-2.0 */
/*
 * manual.h: what the subcommands are, as data (command.h), in; man pages and completion on standard output out. These are made when
 * libdecode is built, by the program write_manual.
 */
#ifndef LIBDECODE_CLI_MANUAL_H
#define LIBDECODE_CLI_MANUAL_H

#include "command.h"

/* man_page.c: libdecode(1), or libdecode-NAME(1) of one subcommand. */
void write_overview_page(void);
void write_command_page(const struct command *command);

/* completion.c */
void write_bash_completion(void);
void write_zsh_completion(void);

#endif
