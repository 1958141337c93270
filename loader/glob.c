/* SPDX-License-Identifier: Apache-2.0 */
/* glob.c: a pattern and a name in; whether they match, or how far they are from it, out. */
#include "glob.h"

#include <stddef.h>
#include <string.h>

#define MAX_NAME_BYTES 128

/* Backtracks to the last '*' only: linear in practice, at worst glob length times name length. */
bool glob_matches(const char *glob, const char *name) {
    const char *star = NULL, *star_name = NULL;
    while (*name) {
        if (*glob == '*') {
            star = glob++;
            star_name = name;
        } else if (*glob == '?' || *glob == *name) {
            glob++;
            name++;
        } else if (star) {
            glob = star + 1;
            name = ++star_name;
        } else {
            return false;
        }
    }
    while (*glob == '*')
        glob++;
    return *glob == '\0';
}

unsigned glob_distance(const char *glob, const char *name) {
    unsigned row[MAX_NAME_BYTES + 1];
    size_t length = strlen(name);
    if (length > MAX_NAME_BYTES)
        length = MAX_NAME_BYTES;
    for (size_t j = 0; j <= length; j++)
        row[j] = (unsigned)j;
    for (; *glob; glob++) {
        unsigned diagonal = row[0]; /* of the row before */
        if (*glob != '*')
            row[0]++;
        for (size_t j = 1; j <= length; j++) {
            unsigned above = row[j], best;
            if (*glob == '*') {
                best = above < row[j - 1] ? above : row[j - 1];
            } else {
                best = diagonal + (*glob != '?' && *glob != name[j - 1]);
                best = above + 1 < best ? above + 1 : best;
                best = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
            }
            diagonal = above;
            row[j] = best;
        }
    }
    return row[length];
}
