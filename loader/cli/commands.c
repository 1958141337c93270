/* SPDX-License-Identifier: Apache-2.0 */
/* commands.c: the subcommands in the order in which help shows them, and what holds of all. Next: main.c, help.c, manual/. */
#include "command.h"

const struct command *const commands[] = {&demo_command,    &doctor_command, &list_command,
                                          &explain_command, &check_command,  &bench_command};
const size_t num_commands = sizeof commands / sizeof commands[0];

const char first_steps[] = "libdecode doctor               is everything here that is needed?\n"
                           "libdecode demo                 see it work, with or without a GPU\n"
                           "libdecode explain --gpu all    what each GPU would run for Llama-3-8B\n"
                           "libdecode check --quick        does every kernel compute right here?\n";

const struct exit_code exit_codes[] = {{EXIT_PASSED, "ok"},
                                       {EXIT_FAILED, "something failed"},
                                       {EXIT_USAGE, "the command line is wrong"},
                                       {EXIT_NO_GPU, "no GPU, so nothing was checked"}};
const size_t num_exit_codes = sizeof exit_codes / sizeof exit_codes[0];
