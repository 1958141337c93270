/* SPDX-License-Identifier: Apache-2.0 */
/* options.c: argv in, fields of structs out, driven by tables; and what there is to complain of. Used by every subcommand. */
#include "options.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "glob.h"
#include "terminal.h"

#define MAX_OPTIONS 96 /* of a subcommand */

static pthread_mutex_t complaining = PTHREAD_MUTEX_INITIALIZER; /* threads of check and of the reference complain, too */
static char complaint[1024];

bool complain(const char *format, ...) {
    va_list arguments;
    pthread_mutex_lock(&complaining);
    va_start(arguments, format);
    vsnprintf(complaint, sizeof complaint, format, arguments);
    va_end(arguments);
    progress_clear();
    fflush(stdout);
    if (isatty(STDERR_FILENO))
        print_wrapped(stderr, 2, "%slibdecode:%s %s", style(stderr, STYLE_BAD), style(stderr, STYLE_PLAIN), complaint);
    else
        fprintf(stderr, "libdecode: %s\n", complaint);
    pthread_mutex_unlock(&complaining);
    return false;
}

const char *last_complaint(void) { return complaint[0] != '\0' ? complaint : NULL; }

const char *nearest_word(const char *word, const char *const *words, size_t num_words) {
    const size_t length = strlen(word + strspn(word, "-"));
    size_t nearest_distance = (length + 1) / 3 + 1; /* letters that two have changed places with each other count as two */
    const char *nearest = NULL;
    for (size_t index = 0; index < num_words; index++) {
        size_t distance = glob_distance(word, words[index]);
        if (length > 2 && strncmp(word, words[index], strlen(word)) == 0)
            distance = 0; /* the beginning of the word was typed */
        if (distance < nearest_distance) {
            nearest_distance = distance;
            nearest = words[index];
        }
    }
    return nearest;
}

static const struct option *find_option(const struct command *command, const char *name, size_t length, size_t *ret_group) {
    for (size_t group = 0; group < command->num_groups; group++) {
        for (const struct option *option = command->groups[group].options; option->name != NULL; option++) {
            if (strlen(option->name) == length && strncmp(option->name, name, length) == 0) {
                *ret_group = group;
                return option;
            }
        }
    }
    return NULL;
}

static bool unknown_option(const struct command *command, const char *name) {
    const char *words[MAX_OPTIONS];
    size_t num_words = 0;
    for (size_t group = 0; group < command->num_groups; group++) {
        for (const struct option *option = command->groups[group].options; option->name != NULL && num_words < MAX_OPTIONS;
             option++)
            words[num_words++] = option->name;
    }
    const char *near = nearest_word(name, words, num_words);
    if (near != NULL)
        return complain("%s: unknown option '%s'; did you mean '%s'? ('libdecode help %s' shows all)", command->name, name, near,
                        command->name);
    return complain("%s: unknown option '%s' ('libdecode help %s' shows all)", command->name, name, command->name);
}

void option_words(const struct option *option, void (*report)(void *cookie, const char *word, size_t length), void *cookie) {
    for (const char *word = option->metavar; option->kind == OPTION_WORD && *word != '\0';) {
        const size_t length = strcspn(word, "|");
        report(cookie, word, length);
        word += length;
        word += *word == '|';
    }
}

struct sought {
    const char *word;
    bool found;
};
static void compare_word(void *cookie, const char *word, size_t length) {
    struct sought *sought = cookie;
    sought->found = sought->found || (strlen(sought->word) == length && strncmp(sought->word, word, length) == 0);
}

/* "a, b or c" from "a|b|c". */
static void list_words(const struct option *option, char *text, size_t size) {
    size_t used = 0;
    for (const char *from = option->metavar; *from != '\0' && used + 5 < size; from++) {
        const char *separator = *from != '|' ? NULL : strchr(from + 1, '|') != NULL ? ", " : " or ";
        if (separator != NULL)
            used += (size_t)snprintf(text + used, size - used, "%s", separator);
        else
            text[used++] = *from;
    }
    text[used] = '\0';
}

static bool store_word(const char *command, const struct option *option, const char *value, const char **ret_field) {
    struct sought sought = {.word = value};
    char accepted[128];
    option_words(option, compare_word, &sought);
    list_words(option, accepted, sizeof accepted);
    *ret_field = value;
    return sought.found || complain("%s: %s %s: %s is accepted", command, option->name, value, accepted);
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
    case OPTION_WORD:
        return store_word(command, option, value, field);
    case OPTION_TEXTS:
        return store_text(command, option, value, field);
    }
    return false;
}

static bool store_positional(const char *command, const char *word, struct texts *positionals) {
    if (positionals == NULL)
        return complain("%s: '%s' is one word too many; options begin with '--'", command, word);
    if (positionals->count == TEXTS_MAX)
        return complain("%s: '%s': at most %d are accepted", command, word, TEXTS_MAX);
    positionals->items[positionals->count++] = word;
    return true;
}

bool options_parse(const struct command *command, void *const *targets, int argc, char **argv, struct texts *positionals) {
    bool ended = false; /* by "--" */
    for (int index = 0; index < argc; index++) {
        const char *word = argv[index];
        if (!ended && strcmp(word, "--") == 0) {
            ended = true;
            continue;
        }
        if (ended || word[0] != '-' || word[1] == '\0') {
            if (!store_positional(command->name, word, positionals))
                return false;
            continue;
        }
        const char *equals = strchr(word, '=');
        size_t length = equals != NULL ? (size_t)(equals - word) : strlen(word), group = 0;
        const struct option *option = find_option(command, word, length, &group);
        if (option == NULL)
            return unknown_option(command, word);
        const char *value = equals != NULL ? equals + 1 : NULL;
        if (option->kind == OPTION_FLAG && value != NULL)
            return complain("%s: %s takes no value, '%s' was given", command->name, option->name, value);
        if (option->kind != OPTION_FLAG && value == NULL) {
            if (index + 1 == argc)
                return complain("%s: %s needs a value: %s %s", command->name, option->name, option->name, option->metavar);
            value = argv[++index];
        }
        if (!store(command->name, option, targets[group], value))
            return false;
    }
    return true;
}
