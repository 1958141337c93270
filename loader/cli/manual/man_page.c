/* SPDX-License-Identifier: Apache-2.0 */
/* man_page.c: a subcommand as data in, its man page in the macros of man(7) out. Before: commands.c. Next: write_manual.c. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "env.h"
#include "libdecode.h"
#include "manual.h"

/* Text as it is, without the meaning that some characters have to roff. A line must not begin with what would be a macro. */
static void write_text(const char *text, size_t length) {
    if (length > 0 && (text[0] == '.' || text[0] == '\''))
        fputs("\\&", stdout);
    for (size_t byte = 0; byte < length; byte++) {
        switch (text[byte]) {
        case '\\':
            fputs("\\e", stdout);
            break;
        case '-':
            fputs("\\-", stdout);
            break;
        case '\'':
            fputs("\\(aq", stdout);
            break;
        case '`':
            fputs("\\(ga", stdout);
            break;
        case '^':
            fputs("\\(ha", stdout);
            break;
        case '~':
            fputs("\\(ti", stdout);
            break;
        case '"':
            fputs("\\(dq", stdout);
            break;
        default:
            putchar(text[byte]);
        }
    }
}

static void write_line(const char *text) {
    write_text(text, strlen(text));
    putchar('\n');
}

/* Paragraphs with an empty line between them; a sentence begins a line, as roff wants it. */
static void write_paragraphs(const char *text) {
    while (*text != '\0') {
        size_t length = strcspn(text, "\n");
        for (size_t byte = 0; byte + 2 < length; byte++) {
            if ((text[byte] == '.' || text[byte] == '?') && text[byte + 1] == ' ' && isupper((unsigned char)text[byte + 2]))
                length = byte + 1;
        }
        write_text(text, length);
        putchar('\n');
        text += length;
        if (strncmp(text, "\n\n", 2) == 0)
            puts(".PP");
        text += strspn(text, " \n");
    }
}

static void write_head(const char *page, const char *title, const char *summary) {
    /* no date: the same sources make the same bytes */
    printf(".\\\" Made of the option tables of the command by write_manual: change those.\n"
           ".TH %s 1 \"\" \"libdecode %s\" \"User Commands\"\n"
           ".SH NAME\n%s \\- ",
           title, libdecode_version(), page);
    write_line(summary);
}

static void write_example_lines(const char *lines) {
    puts(".nf");
    for (; *lines != '\0'; lines += *lines == '\n') {
        const size_t length = strcspn(lines, "\n");
        write_text(lines, length);
        putchar('\n');
        lines += length;
    }
    puts(".fi");
}

static void write_option(const struct option *option) {
    fputs(".TP\n\\fB", stdout);
    write_text(option->name, strlen(option->name));
    fputs("\\fR", stdout);
    if (option->metavar != NULL) {
        fputs(" \\fI", stdout);
        write_text(option->metavar, strlen(option->metavar));
        fputs("\\fR", stdout);
    }
    putchar('\n');
    write_line(option->help);
}

static void write_exit_codes(void) {
    puts(".SH EXIT STATUS");
    for (size_t index = 0; index < num_exit_codes; index++) {
        printf(".TP\n.B %d\n", exit_codes[index].code);
        write_line(exit_codes[index].meaning);
    }
}

static void write_environment(void) {
    puts(".SH ENVIRONMENT");
    for (const struct environment_variable *variable = environment_variables; variable->name != NULL; variable++) {
        printf(".TP\n.B %s\n", variable->name);
        write_line(variable->meaning);
    }
    puts(".TP\n.B COLUMNS\nhow wide text is; without it, as wide as the terminal, or 80");
    puts(".TP\n.B NO_COLOR\nif it is set and not empty, no colour");
}

void write_command_page(const struct command *command) {
    char page[64], title[64];
    snprintf(page, sizeof page, "libdecode\\-%s", command->name);
    snprintf(title, sizeof title, "LIBDECODE\\-%s", command->name);
    for (char *letter = title + sizeof "LIBDECODE\\-" - 1; *letter != '\0'; letter++)
        *letter = (char)toupper((unsigned char)*letter);
    write_head(page, title, command->summary);
    printf(".SH SYNOPSIS\n.B libdecode %s\n", command->name);
    if (command->operands[0] != '\0')
        printf(".RI %s\n", command->operands);
    puts(".RI [ OPTIONS ]\n.SH DESCRIPTION");
    write_paragraphs(command->description);
    if (command->notes[0] != '\0') {
        puts(".PP");
        write_paragraphs(command->notes);
    }
    puts(".SH OPTIONS");
    for (size_t group = 0; group < command->num_groups; group++) {
        fputs(".SS ", stdout);
        write_line(command->groups[group].title);
        for (const struct option *option = command->groups[group].options; option->name != NULL; option++)
            write_option(option);
    }
    puts(".SS Everywhere\n.TP\n\\fB\\-\\-help\\fR, \\fB\\-h\\fR\nprint this, and stop\n.TP\n\\fB\\-\\-\\fR\nends the options");
    if (command->examples[0] != '\0') {
        puts(".SH EXAMPLES");
        write_example_lines(command->examples);
    }
    write_exit_codes();
    puts(".SH SEE ALSO\n.BR libdecode (1)");
}

void write_overview_page(void) {
    write_head("libdecode", "LIBDECODE", COMMAND_SUMMARY);
    puts(".SH SYNOPSIS\n.B libdecode\n.I COMMAND\n.RI [ OPTIONS ]\n.SH DESCRIPTION\n"
         "The command of libdecode, a library of decode attention kernels for language models that were compiled ahead of time.\n"
         "Each subcommand has a page of its own.\n.SH COMMANDS");
    for (size_t index = 0; index < num_commands; index++) {
        printf(".TP\n.B %s\n", commands[index]->name);
        write_line(commands[index]->summary);
    }
    puts(".TP\n.B help");
    write_line(HELP_SUMMARY);
    puts(".TP\n\\fB\\-\\-version\\fR\nprint the version, and stop\n.SH EXAMPLES");
    write_example_lines(first_steps);
    write_exit_codes();
    write_environment();
    puts(".SH SEE ALSO");
    for (size_t index = 0; index < num_commands; index++)
        printf(".BR libdecode\\-%s (1)%s\n", commands[index]->name, index + 1 < num_commands ? "," : "");
}
