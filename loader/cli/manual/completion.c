/* SPDX-License-Identifier: Apache-2.0 */
/*
 * completion.c: the subcommands as data in, completion for bash and for zsh out: subcommands, options, and what may follow an option:
 * the words that it accepts, files, or names of GPUs. Before: commands.c. Next: write_manual.c.
 */
#include <stdio.h>
#include <string.h>

#include "device.h"
#include "manual.h"

enum completed { COMPLETES_NOTHING, COMPLETES_WORDS, COMPLETES_GPUS, COMPLETES_FILES };

static enum completed completed(const struct option *option) {
    if (option->kind == OPTION_WORD)
        return COMPLETES_WORDS;
    if (option->metavar == NULL)
        return COMPLETES_NOTHING;
    if (strcmp(option->metavar, "GPU") == 0)
        return COMPLETES_GPUS;
    return strncmp(option->metavar, "FILE", 4) == 0 || strcmp(option->metavar, "PATH") == 0 ? COMPLETES_FILES : COMPLETES_NOTHING;
}

static void write_word(void *cookie, const char *word, size_t length) {
    const char **separator = cookie;
    printf("%s%.*s", *separator, (int)length, word);
    *separator = " ";
}

/* Names of GPUs as one word each: "RTX 5090" is RTX-5090, too. */
static void write_gpus(void) {
    fputs("all current", stdout);
    for (size_t index = 0; device_preset_name(index) != NULL; index++) {
        putchar(' ');
        for (const char *letter = device_preset_name(index); *letter != '\0'; letter++)
            putchar(*letter == ' ' ? '-' : *letter);
    }
}

static void write_accepted(const struct option *option) {
    const char *separator = "";
    if (completed(option) == COMPLETES_GPUS)
        write_gpus();
    else
        option_words(option, write_word, &separator);
}

/* --------------------------------------------------------------------------------------------------------------- bash */

static void write_bash_command(const struct command *command) {
    for (size_t group = 0; group < command->num_groups; group++) {
        for (const struct option *option = command->groups[group].options; option->name != NULL; option++) {
            if (option->kind == OPTION_FLAG)
                continue;
            printf("    %s:%s) ", command->name, option->name);
            if (completed(option) == COMPLETES_FILES) {
                fputs("files=yes", stdout);
            } else {
                fputs("words='", stdout);
                write_accepted(option);
                putchar('\'');
            }
            puts(" ;;");
        }
    }
    printf("    %s:*) words='--help", command->name);
    for (size_t group = 0; group < command->num_groups; group++) {
        for (const struct option *option = command->groups[group].options; option->name != NULL; option++)
            printf(" %s", option->name);
    }
    puts("' ;;");
}

void write_bash_completion(void) {
    fputs("# shellcheck shell=bash\n"
          "# Completion of libdecode for bash. Made of the option tables of the command by write_manual: change those.\n"
          "_libdecode() {\n"
          "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} words='' files=''\n"
          "    COMPREPLY=()\n"
          "    ((COMP_CWORD == 1)) && before=''\n"
          "    case ${COMP_WORDS[1]}:$before in\n"
          "    *:) words='",
          stdout);
    for (size_t index = 0; index < num_commands; index++)
        printf("%s ", commands[index]->name);
    fputs("help --help --version' ;;\n    help:*) words='", stdout);
    for (size_t index = 0; index < num_commands; index++)
        printf("%s%s", index > 0 ? " " : "", commands[index]->name);
    puts("' ;;");
    for (size_t index = 0; index < num_commands; index++)
        write_bash_command(commands[index]);
    fputs("    esac\n"
          "    if [[ -n $files ]]; then\n"
          "        compopt -o filenames 2>/dev/null\n"
          "        mapfile -t COMPREPLY < <(compgen -f -- \"$word\")\n"
          "    else\n"
          "        mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$word\")\n"
          "    fi\n"
          "}\n"
          "complete -F _libdecode libdecode\n",
          stdout);
}

/* ---------------------------------------------------------------------------------------------------------------- zsh */

/* Within '...' and within [...] of _arguments. */
static void write_zsh_text(const char *text) {
    for (; *text != '\0'; text++) {
        if (*text == '\'')
            fputs("'\\''", stdout);
        else if (strchr("[]:\\", *text) != NULL)
            printf("\\%c", *text);
        else
            putchar(*text);
    }
}

static void write_zsh_option(const struct option *option) {
    printf("        '%s%s[", option->kind == OPTION_TEXTS ? "*" : "", option->name);
    write_zsh_text(option->help);
    putchar(']');
    if (option->metavar != NULL) {
        putchar(':');
        write_zsh_text(option->metavar);
        putchar(':');
    }
    switch (completed(option)) {
    case COMPLETES_FILES:
        fputs("_files", stdout);
        break;
    case COMPLETES_WORDS:
    case COMPLETES_GPUS:
        putchar('(');
        write_accepted(option);
        putchar(')');
        break;
    case COMPLETES_NOTHING:
        break;
    }
    puts("' \\");
}

void write_zsh_completion(void) {
    fputs("#compdef libdecode\n"
          "# Completion of libdecode for zsh. Made of the option tables of the command by write_manual: change those.\n"
          "_libdecode() {\n"
          "    local -a commands\n"
          "    commands=(\n",
          stdout);
    for (size_t index = 0; index < num_commands; index++) {
        printf("        '%s:", commands[index]->name);
        write_zsh_text(commands[index]->summary);
        puts("'");
    }
    fputs("        'help:", stdout);
    write_zsh_text(HELP_SUMMARY);
    fputs("'\n"
          "    )\n"
          "    if ((CURRENT == 2)); then\n"
          "        _describe command commands\n"
          "        return\n"
          "    fi\n"
          "    local command=${words[2]}\n"
          "    shift words\n"
          "    ((CURRENT--))\n"
          "    case $command in\n"
          "    help) _describe command commands ;;\n",
          stdout);
    for (size_t index = 0; index < num_commands; index++) {
        const struct command *command = commands[index];
        printf("    %s)\n        _arguments \\\n", command->name);
        for (size_t group = 0; group < command->num_groups; group++) {
            for (const struct option *option = command->groups[group].options; option->name != NULL; option++)
                write_zsh_option(option);
        }
        puts("        '--help[print what it takes, and stop]' ;;");
    }
    fputs("    esac\n"
          "}\n"
          "_libdecode \"$@\"\n",
          stdout);
}
