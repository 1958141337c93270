/* SPDX-License-Identifier: Apache-2.0 */
/* terminal.c: text in; lines of the width at hand out, in colour where that is wanted, and the progress line. */
#define _GNU_SOURCE /* vasprintf */
#include "terminal.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define DEFAULT_COLUMNS 80
#define LEAST_COLUMNS 40 /* narrower, the names of kernels leave no room for words */
#define MOST_COLUMNS 4096

int terminal_columns(FILE *stream) {
    const char *text = getenv("COLUMNS");
    struct winsize size;
    long columns = text != NULL ? strtol(text, NULL, 10) : 0;
    if (columns <= 0 && ioctl(fileno(stream), TIOCGWINSZ, &size) == 0)
        columns = size.ws_col;
    if (columns <= 0)
        return DEFAULT_COLUMNS;
    return columns < LEAST_COLUMNS ? LEAST_COLUMNS : columns > MOST_COLUMNS ? MOST_COLUMNS : (int)columns;
}

static bool has_colour(FILE *stream) {
    const char *no_color = getenv("NO_COLOR"), *terminal = getenv("TERM");
    if (no_color != NULL && no_color[0] != '\0')
        return false;
    return isatty(fileno(stream)) && terminal != NULL && strcmp(terminal, "dumb") != 0;
}

const char *style(FILE *stream, enum text_style wanted) {
    static const char *const escapes[] = {
        [STYLE_PLAIN] = "\033[0m", [STYLE_HEADING] = "\033[1m", [STYLE_GOOD] = "\033[32m", [STYLE_BAD] = "\033[1;31m"};
    return has_colour(stream) ? escapes[wanted] : "";
}

/* Of a word: escapes take no room, and a character of UTF-8 takes one column however many bytes it has. */
static int width_of(const char *text, size_t length) {
    int width = 0;
    for (size_t byte = 0; byte < length; byte++) {
        if (text[byte] == '\033')
            byte += strcspn(text + byte, "m");
        else
            width += ((unsigned char)text[byte] & 0xc0) != 0x80;
    }
    return width;
}

static void write_wrapped(FILE *stream, int columns, int hanging, const char *text) {
    int column = 0;
    bool has_word = false; /* in this line: one that is too long stands alone */
    while (*text != '\0') {
        if (*text == '\n') {
            fputc('\n', stream);
            text++;
            column = 0;
            has_word = false;
            continue;
        }
        const size_t spaces = strspn(text, " "), length = strcspn(text + spaces, " \n");
        const int width = width_of(text + spaces, length);
        if (has_word && length > 0 && column + (int)spaces + width > columns) {
            fprintf(stream, "\n%*s", hanging, "");
            column = hanging;
        } else {
            fprintf(stream, "%*s", (int)spaces, "");
            column += (int)spaces;
        }
        fwrite(text + spaces, 1, length, stream);
        column += width;
        has_word = has_word || width > 0;
        text += spaces + length;
    }
    fputc('\n', stream);
}

void print_wrapped(FILE *stream, int hanging, const char *format, ...) {
    va_list arguments;
    char *text = NULL;
    va_start(arguments, format);
    if (vasprintf(&text, format, arguments) >= 0) {
        write_wrapped(stream, terminal_columns(stream), hanging, text);
        free(text);
    }
    va_end(arguments);
}

/* ----------------------------------------------------------------------------------------------------------- progress */

static pthread_mutex_t progress_lock = PTHREAD_MUTEX_INITIALIZER; /* of the line that is shown */
static bool progress_shown;
static int progress_percent = -1; /* -1: nobody has said how much there is to do */

void progress_done(size_t done, size_t total) {
    const int percent = total > 0 ? (int)(100.0 * (double)done / (double)total) : 0;
    progress_percent = percent > progress_percent ? percent : progress_percent;
}

void progress(const char *format, ...) {
    if (!isatty(STDERR_FILENO))
        return;
    va_list arguments;
    char line[MOST_COLUMNS + 1];
    int used = progress_percent >= 0 ? snprintf(line, sizeof line, "%3d %%  ", progress_percent) : 0;
    va_start(arguments, format);
    vsnprintf(line + used, sizeof line - (size_t)used, format, arguments);
    va_end(arguments);
    pthread_mutex_lock(&progress_lock);
    fflush(stdout);
    /* a line that wraps could not be overwritten */
    fprintf(stderr, "\r\033[K%.*s", terminal_columns(stderr) - 1, line);
    fflush(stderr);
    progress_shown = true;
    pthread_mutex_unlock(&progress_lock);
}

void progress_clear(void) {
    pthread_mutex_lock(&progress_lock);
    if (progress_shown) {
        fputs("\r\033[K", stderr);
        fflush(stderr);
    }
    progress_shown = false;
    pthread_mutex_unlock(&progress_lock);
}
