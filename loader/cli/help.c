/* SPDX-License-Identifier: Apache-2.0 */
/* help.c: what a subcommand is, as data, in; help text as wide as the terminal out. Before: commands.c. Next: main.c. */
#include <stdio.h>
#include <string.h>

#include "command.h"
#include "env.h"
#include "libdecode.h"
#include "terminal.h"

#define INDENTATION 2
#define TEXT_COLUMN 26 /* of what options do */
#define NAME_COLUMN 25 /* of what variables mean */
#define COMMAND_COLUMN 12
#define CODE_COLUMN 6
#define LINE_HANGING 6 /* of an example that is too long */

static void print_heading(const char *title) {
    printf("\n%s%s:%s\n", style(stdout, STYLE_HEADING), title, style(stdout, STYLE_PLAIN));
}

/* `left` and, from `column` on, `text`; where `left` is too long for that, in the next line. */
static void print_entry(int column, const char *left, const char *text) {
    const int width = INDENTATION + (int)strlen(left);
    if (width < column)
        print_wrapped(stdout, column, "%*s%-*s%s", INDENTATION, "", column - INDENTATION, left, text);
    else
        print_wrapped(stdout, column, "%*s%s\n%*s%s", INDENTATION, "", left, column, "", text);
}

/* Lines as they are, each with an indentation. */
static void print_lines(const char *lines) {
    for (; *lines != '\0'; lines += *lines == '\n') {
        const size_t length = strcspn(lines, "\n");
        print_wrapped(stdout, LINE_HANGING, "%*s%.*s", INDENTATION, "", (int)length, lines);
        lines += length;
    }
}

/* "--layout hnd|nhd". Many words have room between them, so that a line can end there. */
static void write_left(const struct option *option, char *left, size_t size) {
    enum { MOST = 50 };
    const char *metavar = option->metavar != NULL ? option->metavar : "";
    const char *between = strlen(metavar) <= MOST ? "|" : " | ";
    size_t used = (size_t)snprintf(left, size, "%s%s", option->name, metavar[0] != '\0' ? " " : "");
    for (; *metavar != '\0' && used < size; metavar += *metavar == '|') {
        const size_t length = strcspn(metavar, "|");
        used += (size_t)snprintf(left + used, size - used, "%.*s%s", (int)length, metavar, metavar[length] == '|' ? between : "");
        metavar += length;
    }
}

static void print_groups(const struct command *command) {
    for (size_t group = 0; group < command->num_groups; group++) {
        print_heading(command->groups[group].title);
        for (const struct option *option = command->groups[group].options; option->name != NULL; option++) {
            char left[256];
            write_left(option, left, sizeof left);
            print_entry(TEXT_COLUMN, left, option->help);
        }
    }
}

void help_command(const struct command *command) {
    printf("usage: libdecode %s %s%s[OPTIONS]\n\n", command->name, command->operands, command->operands[0] != '\0' ? " " : "");
    print_wrapped(stdout, 0, "%s", command->description);
    if (command->examples[0] != '\0') {
        print_heading("Examples");
        print_lines(command->examples);
    }
    if (command->notes[0] != '\0') {
        putchar('\n');
        print_wrapped(stdout, 0, "%s", command->notes);
    }
    print_groups(command);
}

void help_overview(void) {
    print_wrapped(stdout, 0, "libdecode %s: " COMMAND_SUMMARY "\n\nusage: libdecode COMMAND [OPTIONS]", libdecode_version());
    print_heading("Commands");
    for (size_t index = 0; index < num_commands; index++)
        print_entry(COMMAND_COLUMN, commands[index]->name, commands[index]->summary);
    print_entry(COMMAND_COLUMN, "help", HELP_SUMMARY);
    print_heading("Where to begin");
    print_lines(first_steps);
    print_heading("Exit codes");
    for (size_t index = 0; index < num_exit_codes; index++) {
        char code[16];
        snprintf(code, sizeof code, "%d", exit_codes[index].code);
        print_entry(CODE_COLUMN, code, exit_codes[index].meaning);
    }
    print_heading("Environment");
    for (const struct environment_variable *variable = environment_variables; variable->name != NULL; variable++)
        print_entry(NAME_COLUMN, variable->name, variable->meaning);
}
