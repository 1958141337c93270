/* SPDX-License-Identifier: Apache-2.0 */
/* glob.c: a pattern and a name in; whether they match, or how far they are from it, out. For policy.c and the command. */
#ifndef LIBDECODE_GLOB_H
#define LIBDECODE_GLOB_H

#include <stdbool.h>

/* '*' and '?' as in a shell; the whole name must match. */
bool glob_matches(const char *glob, const char *name);

/*
 * Edits that turn the name into something the glob matches: '*' takes any run of characters for nothing, everything else
 * as in an edit distance. So a glob with one wrong digit is near to the names with the right one. Looks at the first 128
 * characters of the name.
 */
unsigned glob_distance(const char *glob, const char *name);

#endif
