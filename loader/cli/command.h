/* SPDX-License-Identifier: Apache-2.0 */
/* command.h: the subcommands, one file each; main.c finds the one that was asked for. */
#ifndef LIBDECODE_CLI_COMMAND_H
#define LIBDECODE_CLI_COMMAND_H

/* argv holds what follows the subcommand's name; the result is an exit code (options.h). */
int run_list(int argc, char **argv);
int run_explain(int argc, char **argv);
int run_check(int argc, char **argv);
int run_bench(int argc, char **argv);
int run_doctor(int argc, char **argv);
int run_demo(int argc, char **argv);

/* Print the long help text of one subcommand. */
void help_list(void);
void help_explain(void);
void help_check(void);
void help_bench(void);
void help_doctor(void);
void help_demo(void);

#endif
