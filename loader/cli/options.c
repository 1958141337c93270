/* SPDX-License-Identifier: Apache-2.0 */
/* options.c: argv in, fields of a struct out, driven by tables; also prints those tables as help. Used by every subcommand. */
#include "options.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "glob.h"

bool complain(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fflush(stdout);
    fputs("libdecode: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    return false;
}

const char *nearest_word(const char *word, const char *const *words, size_t num_words) {
    const char *nearest = NULL;
    size_t limit = strlen(word) / 3 + 2, nearest_distance = limit;
    for (size_t index = 0; index < num_words; index++) {
        size_t distance = glob_distance(word, words[index]);
        if (strlen(word) > 3 && strncmp(word, words[index], strlen(word)) == 0)
            distance = 1; /* the beginning of the word was typed */
        if (distance < nearest_distance) {
            nearest_distance = distance;
            nearest = words[index];
        }
    }
    return nearest;
}

static const struct option *find_option(const struct option_group *groups, size_t num_groups, const char *name, size_t length,
                                        void **ret_target) {
    for (size_t group = 0; group < num_groups; group++) {
        for (const struct option *option = groups[group].options; option->name != NULL; option++) {
            if (strlen(option->name) == length && strncmp(option->name, name, length) == 0) {
                *ret_target = groups[group].target;
                return option;
            }
        }
    }
    return NULL;
}

static bool unknown_option(const char *command, const struct option_group *groups, size_t num_groups, const char *name) {
    const char *words[96];
    size_t num_words = 0;
    for (size_t group = 0; group < num_groups; group++) {
        for (const struct option *option = groups[group].options; option->name != NULL && num_words < 96; option++)
            words[num_words++] = option->name;
    }
    const char *near = nearest_word(name, words, num_words);
    if (near != NULL)
        return complain("%s: unknown option '%s'; did you mean '%s'? ('libdecode help %s' shows all)", command, name, near,
                        command);
    return complain("%s: unknown option '%s' ('libdecode help %s' shows all)", command, name, command);
}

static bool store_int(const char *command, const struct option *option, const char *value, int32_t *ret_field) {
    char *end;
    errno = 0;
    long number = strtol(value, &end, 10);
    if (errno != 0 || end == value || *end != '\0' || number < option->minimum || number > option->maximum)
        return complain("%s: %s %s: a whole number from %d to %d is accepted", command, option->name, value, option->minimum,
                        option->maximum);
    *ret_field = (int32_t)number;
    return true;
}

static bool store_number(const char *command, const struct option *option, const char *value, float *ret_field) {
    char *end;
    float number = strtof(value, &end);
    if (end == value || *end != '\0')
        return complain("%s: %s %s: a number is accepted, like 0.088", command, option->name, value);
    *ret_field = number;
    return true;
}

static bool store_text(const char *command, const struct option *option, const char *value, struct texts *ret_field) {
    if (ret_field->count == TEXTS_MAX)
        return complain("%s: %s %s: at most %d are accepted", command, option->name, value, TEXTS_MAX);
    ret_field->items[ret_field->count++] = value;
    return true;
}

static bool store(const char *command, const struct option *option, void *target, const char *value) {
    void *field = (char *)target + option->field;
    switch (option->kind) {
    case OPTION_FLAG:
        *(bool *)field = true;
        return true;
    case OPTION_INT:
        return store_int(command, option, value, field);
    case OPTION_NUMBER:
        return store_number(command, option, value, field);
    case OPTION_TEXT:
        *(const char **)field = value;
        return true;
    case OPTION_TEXTS:
        return store_text(command, option, value, field);
    }
    return false;
}

bool options_parse(const char *command, const struct option_group *groups, size_t num_groups, int argc, char **argv,
                   struct texts *positionals) {
    for (int index = 0; index < argc; index++) {
        const char *word = argv[index];
        if (word[0] != '-' || word[1] == '\0') {
            if (positionals == NULL)
                return complain("%s: '%s' is one word too many; options begin with '--'", command, word);
            if (positionals->count == TEXTS_MAX)
                return complain("%s: '%s': at most %d are accepted", command, word, TEXTS_MAX);
            positionals->items[positionals->count++] = word;
            continue;
        }
        const char *equals = strchr(word, '=');
        size_t length = equals != NULL ? (size_t)(equals - word) : strlen(word);
        void *target = NULL;
        const struct option *option = find_option(groups, num_groups, word, length, &target);
        if (option == NULL)
            return unknown_option(command, groups, num_groups, word);
        const char *value = equals != NULL ? equals + 1 : NULL;
        if (option->kind == OPTION_FLAG && value != NULL)
            return complain("%s: %s takes no value, '%s' was given", command, option->name, value);
        if (option->kind != OPTION_FLAG && value == NULL) {
            if (index + 1 == argc)
                return complain("%s: %s needs a value: %s %s", command, option->name, option->name, option->metavar);
            value = argv[++index];
        }
        if (!store(command, option, target, value))
            return false;
    }
    return true;
}

/* The second column of a help text begins here. */
#define HELP_COLUMN 26
#define HELP_WIDTH 72

static void print_wrapped(const char *text) {
    size_t column = 0;
    while (*text != '\0') {
        size_t length = strcspn(text, " ");
        if (column > 0 && column + 1 + length > HELP_WIDTH) {
            printf("\n%*s", HELP_COLUMN, "");
            column = 0;
        } else if (column > 0) {
            putchar(' ');
            column++;
        }
        printf("%.*s", (int)length, text);
        column += length;
        text += length;
        text += *text == ' ';
    }
    putchar('\n');
}

void options_print(const struct option_group *groups, size_t num_groups) {
    for (size_t group = 0; group < num_groups; group++) {
        printf("\n%s:\n", groups[group].title);
        for (const struct option *option = groups[group].options; option->name != NULL; option++) {
            int width = printf("  %s%s%s", option->name, option->metavar != NULL ? " " : "",
                               option->metavar != NULL ? option->metavar : "");
            if (width >= HELP_COLUMN)
                printf("\n%*s", HELP_COLUMN, "");
            else
                printf("%*s", HELP_COLUMN - width, "");
            print_wrapped(option->help);
        }
    }
}
