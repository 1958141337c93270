/* SPDX-License-Identifier: Apache-2.0 */
/* main.c: the command `libdecode`: argv in, one subcommand called. Next: list.c, explain.c, check.c, bench.c, doctor.c, demo.c. */
#include <stdio.h>
#include <string.h>

#include "command.h"
#include "libdecode.h"

#define MAX_COMMANDS 16

/* NULL after naming the nearest. */
static const struct command *find_command(const char *name) {
    const char *names[MAX_COMMANDS + 1];
    size_t count = 0;
    for (; count < num_commands && count < MAX_COMMANDS; count++) {
        names[count] = commands[count]->name;
        if (strcmp(name, names[count]) == 0)
            return commands[count];
    }
    names[count++] = "help";
    const char *near = nearest_word(name, names, count);
    if (near != NULL)
        complain("unknown command '%s'; did you mean '%s'? ('libdecode help' shows all)", name, near);
    else
        complain("unknown command '%s' ('libdecode help' shows all)", name);
    return NULL;
}

static bool is_help(const char *word) { return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0; }

/* Whether one of the options asks for help. */
static bool has_help(int argc, char **argv) {
    for (int index = 0; index < argc && strcmp(argv[index], "--") != 0; index++) {
        if (is_help(argv[index]))
            return true;
    }
    return false;
}

/* An exit code. */
static int run(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "help";
    if (strcmp(name, "--version") == 0) {
        printf("libdecode %s\n", libdecode_version());
        return EXIT_PASSED;
    }
    const bool help = strcmp(name, "help") == 0 || is_help(name);
    if (help && argc < 3) {
        help_overview();
        return argc > 1 ? EXIT_PASSED : EXIT_USAGE;
    }
    const struct command *command = find_command(help ? argv[2] : name);
    if (command == NULL)
        return EXIT_USAGE;
    if (help || has_help(argc - 2, argv + 2)) {
        help_command(command);
        return EXIT_PASSED;
    }
    return command->run(argc - 2, argv + 2);
}

int main(int argc, char **argv) {
    int result = run(argc, argv);
    if (fflush(stdout) == 0 && !ferror(stdout))
        return result;
    complain("standard output: not all of it could be written");
    return EXIT_FAILED;
}
