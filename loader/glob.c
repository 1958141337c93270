/* SPDX-License-Identifier: Apache-2.0 */
/* glob.c: a pattern and a name in; whether they match, or how far they are from it, out. */
#include "glob.h"

#include <stddef.h>
#include <string.h>

#define MAX_NAME_BYTES 128

/* The first `length` characters; '?' takes any. */
static bool segment_matches(const char *segment, size_t length, const char *name) {
    for (size_t i = 0; i < length; i++)
        if (segment[i] != '?' && segment[i] != name[i])
            return false;
    return true;
}

/* Where in the name the segment fits first; NULL: nowhere. */
static const char *find_segment(const char *segment, size_t length, const char *name) {
    for (size_t left = strlen(name); left >= length; name++, left--) {
        if (segment[0] != '?') {
            const char *next = memchr(name, segment[0], left);
            if (!next)
                return NULL;
            left -= (size_t)(next - name);
            name = next;
        }
        if (left >= length && segment_matches(segment, length, name))
            return name;
    }
    return NULL;
}

/* What lies between stars is taken where it fits first, what is behind the last at the end of the name: never a step back. */
bool glob_matches(const char *glob, const char *name) {
    size_t length = strcspn(glob, "*");
    if (strlen(name) < length || !segment_matches(glob, length, name))
        return false;
    for (;;) {
        name += length;
        glob += length;
        if (*glob == '\0')
            return *name == '\0';
        glob += strspn(glob, "*");
        length = strcspn(glob, "*");
        size_t left = strlen(name);
        if (glob[length] == '\0')
            return left >= length && segment_matches(glob, length, name + left - length);
        name = find_segment(glob, length, name);
        if (!name)
            return false;
    }
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
