/* SPDX-License-Identifier: Apache-2.0 */
/*
 * terminal.c: text for people: wrapped to the width at hand, in colour where that is wanted, and one line of progress.
 * Used by every subcommand; JSON and tables go past it.
 */
#ifndef LIBDECODE_CLI_TERMINAL_H
#define LIBDECODE_CLI_TERMINAL_H

#include <stdbool.h>
#include <stdio.h>

/* Columns of a line: $COLUMNS if it is set, else those of the terminal that `stream` is, else 80. */
int terminal_columns(FILE *stream);

enum text_style { STYLE_PLAIN, STYLE_HEADING, STYLE_GOOD, STYLE_BAD };

/* What switches the style on: "" where `stream` is no terminal, the terminal is a dumb one, or NO_COLOR is set. */
const char *style(FILE *stream, enum text_style wanted);

/*
 * As fprintf, with line breaks between words where a line would be too long; lines after the first begin with `hanging` spaces.
 * Breaks and runs of spaces that are in the text stay. Ends the line.
 */
__attribute__((format(printf, 3, 4))) void print_wrapped(FILE *stream, int hanging, const char *format, ...);

/* One line on standard error that overwrites itself; nothing where standard error is no terminal. */
__attribute__((format(printf, 1, 2))) void progress(const char *format, ...);

/* How much of all that the subcommand has to do is done; from then on progress() shows it in front. It never goes back. */
void progress_done(size_t done, size_t total);

/* Removes the line; call before printing anything else. */
void progress_clear(void);

#endif
