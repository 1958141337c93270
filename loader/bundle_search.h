/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bundle_search.c: where bundles come from: the library itself, the folder beside it, paths, memory. Paths in, a list of open
 * bundles out, each overlaying those before it. Next: bundle.c's kernel_table_build.
 */
#ifndef LIBDECODE_BUNDLE_SEARCH_H
#define LIBDECODE_BUNDLE_SEARCH_H

#include "bundle.h"
#include "status.h"

/* Where bundles were looked for. */
struct bundle_place {
    char *path;         /* NULL: the library itself */
    const char *source; /* who names it: "installed bundles", "LIBDECODE_BUNDLE_PATH" */
    bool is_there;
    size_t num_bundles; /* that were found there and can be used */
};

struct bundle_list {
    struct bundle **bundles;
    size_t count, capacity;
    const uint8_t (*root_hashes)[32]; /* if there are any, a bundle whose root hash is not among them is refused */
    size_t num_root_hashes;
    const struct log_sink *log;
    struct bundle_place *places; /* in the order in which they were looked at */
    size_t num_places;
    char **passed_over; /* the reason for each file that was found and cannot be used */
    size_t num_passed_over;
};

/*
 * A file that was named and cannot be used is an error. In a folder, what is no regular file *.bundle is none of ours, and a
 * bundle that cannot be used is passed over with a warning; a folder that was named must hold one that can.
 * On an error the bundles before stay in the list. Errors: BUNDLE_*, IO, OUT_OF_MEMORY.
 */
libdecode_status bundle_list_add_embedded(struct bundle_list *list);
/* The folder chosen at build time, or that of an installation that was moved as a whole: as far from this library as there.
 * Not so in a setuid program. The folder need not exist. */
libdecode_status bundle_list_add_installed(struct bundle_list *list);
/* A file, or a folder of *.bundle in the order of their names. `source` names the path in messages. */
libdecode_status bundle_list_add_path(struct bundle_list *list, const char *path, const char *source);
/* Paths with ':' between them; empty ones are skipped, as PATH="$MORE:/x" makes one. */
libdecode_status bundle_list_add_paths(struct bundle_list *list, const char *paths, const char *source);
libdecode_status bundle_list_add_memory(struct bundle_list *list, const void *data, size_t bytes, const char *name);

/* Hands `status` on; behind its message it adds " (passed over: REASON)" for each of the reasons. */
libdecode_status name_passed_over(libdecode_status status, char *const *reasons, size_t count);

void bundle_list_close(struct bundle_list *list);

#endif
