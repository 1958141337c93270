/* SPDX-License-Identifier: Apache-2.0 */
/* main.c: the command `libdecode`: argv in, one subcommand called. Next: list.c, explain.c, check.c, bench.c, doctor.c, demo.c.
 */
#include <stdio.h>
#include <string.h>

#include "command.h"
#include "libdecode.h"
#include "options.h"

static const struct {
    const char *name, *summary;
    int (*run)(int argc, char **argv);
    void (*help)(void);
} commands[] = {
    {"demo", "decode a batch cut from a real request trace, and show what happens", run_demo, help_demo},
    {"doctor", "driver, GPUs, bundles: what is there, what is missing, what to do", run_doctor, help_doctor},
    {"list", "the kernels of the bundles at hand", run_list, help_list},
    {"explain", "which kernel a problem gets on a GPU, and why not the others", run_explain, help_explain},
    {"check", "every kernel that fits this GPU against the reference", run_check, help_check},
    {"bench", "time kernels with a cold KV cache, beside the read ceiling", run_bench, help_bench},
};
#define NUM_COMMANDS (sizeof commands / sizeof commands[0])

static void print_help(void) {
    printf("libdecode %s: LLM decode attention with kernels compiled ahead of time\n\n"
           "usage: libdecode COMMAND [OPTIONS]\n\n",
           libdecode_version());
    for (size_t index = 0; index < NUM_COMMANDS; index++)
        printf("  %-9s %s\n", commands[index].name, commands[index].summary);
    printf("  %-9s what a command does and takes: libdecode help bench\n\n", "help");
    printf("Where to begin\n"
           "  libdecode doctor                       is everything here that is needed?\n"
           "  libdecode demo                         see it work, with or without a GPU\n"
           "  libdecode explain --gpu all            what Llama-3-8B decoding would run on each of the five GPUs\n"
           "  libdecode check --quick                does every kernel compute the right thing on this GPU?\n\n"
           "Exit codes\n"
           "  0  ok     1  something failed     2  the command line is wrong     77  no GPU, so nothing was checked\n\n"
           "Environment (all of it can also be said by options)\n"
           "  LIBDECODE_KERNEL        force=GLOB, prefer=GLOB, deny=GLOB, separated by commas\n"
           "  LIBDECODE_BUNDLE_PATH   more bundles: files or folders, separated by colons\n"
           "  LIBDECODE_BUNDLE_ONLY   1: only those\n"
           "  LIBDECODE_LOG           error, warn, info or debug, on standard error\n"
           "  LIBDECODE_STRICT        1: falling back to a slower class of kernel is an error\n");
}

/* The index of a subcommand, or NUM_COMMANDS after naming the nearest. */
static size_t find_command(const char *name) {
    const char *names[NUM_COMMANDS + 1];
    for (size_t index = 0; index < NUM_COMMANDS; index++) {
        names[index] = commands[index].name;
        if (strcmp(name, names[index]) == 0)
            return index;
    }
    names[NUM_COMMANDS] = "help";
    const char *near = nearest_word(name, names, NUM_COMMANDS + 1);
    if (near != NULL)
        complain("unknown command '%s'; did you mean '%s'? ('libdecode help' shows all)", name, near);
    else
        complain("unknown command '%s' ('libdecode help' shows all)", name);
    return NUM_COMMANDS;
}

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "help";
    if (strcmp(name, "--version") == 0) {
        printf("libdecode %s\n", libdecode_version());
        return EXIT_PASSED;
    }
    const bool help = strcmp(name, "help") == 0 || strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0;
    if (help && argc < 3) {
        print_help();
        return argc > 1 ? EXIT_PASSED : EXIT_USAGE;
    }
    size_t command = find_command(help ? argv[2] : name);
    if (command == NUM_COMMANDS)
        return EXIT_USAGE;
    bool help_of_command = help;
    for (int index = 2; index < argc && !help_of_command; index++)
        help_of_command = strcmp(argv[index], "--help") == 0 || strcmp(argv[index], "-h") == 0;
    if (help_of_command) {
        commands[command].help();
        return EXIT_PASSED;
    }
    int result = commands[command].run(argc - 2, argv + 2);
    if (fflush(stdout) != 0) {
        perror("libdecode: standard output");
        return EXIT_FAILED;
    }
    return result;
}
