/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The places that hold bundles in, a list of open bundles out. Only names are decided here; bundle.c opens and checks.
 * Before: open.c, which knows what the caller and the environment want. Next: bundle.c.
 */
#define _GNU_SOURCE 1 /* dladdr1 */

#include "bundle_search.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#include "embedded.h"

static libdecode_status out_of_memory(const char *what) {
    return fail(LIBDECODE_ERROR_OUT_OF_MEMORY, "no memory for %s; free memory", what);
}

/* -------------------------------------------------------------------------------------------------------------- list */

static libdecode_status check_root_hash(const struct bundle_list *list, const struct bundle *bundle) {
    if (list->num_root_hashes == 0)
        return LIBDECODE_OK;
    const uint8_t *hash = bundle_header(bundle)->root_hash;
    for (size_t i = 0; i < list->num_root_hashes; i++)
        if (memcmp(hash, list->root_hashes[i], 32) == 0)
            return LIBDECODE_OK;
    return fail(LIBDECODE_ERROR_BUNDLE_DAMAGED,
                "%s: its root hash %02x%02x%02x%02x... is not among the %zu that the caller accepts; install the bundle that was "
                "meant, or correct options.root_hashes",
                bundle_path(bundle), hash[0], hash[1], hash[2], hash[3], list->num_root_hashes);
}

/* Takes the bundle, or closes it. */
static libdecode_status add(struct bundle_list *list, struct bundle *bundle) {
    libdecode_status status = check_root_hash(list, bundle);
    if (status == LIBDECODE_OK && list->count == list->capacity) {
        size_t capacity = list->capacity == 0 ? 8 : list->capacity * 2;
        struct bundle **bundles = realloc(list->bundles, capacity * sizeof *bundles);
        if (bundles) {
            list->bundles = bundles;
            list->capacity = capacity;
        } else {
            status = out_of_memory("the list of bundles");
        }
    }
    if (status == LIBDECODE_OK)
        list->bundles[list->count++] = bundle;
    else
        bundle_close(bundle);
    return status;
}

void bundle_list_close(struct bundle_list *list) {
    for (size_t i = list->count; i > 0; i--)
        bundle_close(list->bundles[i - 1]);
    free(list->bundles);
    for (size_t i = 0; i < list->num_passed_over; i++)
        free(list->passed_over[i]);
    free(list->passed_over);
    for (size_t i = 0; i < list->num_places; i++)
        free(list->places[i].path);
    free(list->places);
    *list = (struct bundle_list){.root_hashes = list->root_hashes, .num_root_hashes = list->num_root_hashes, .log = list->log};
}

/* Puts down a place before it is looked at. `path` NULL: the library itself. */
static libdecode_status note_place(struct bundle_list *list, const char *path, const char *source, bool is_there) {
    struct bundle_place *places = realloc(list->places, (list->num_places + 1) * sizeof *places);
    char *copy = path ? strdup(path) : NULL;
    list->places = places ? places : list->places;
    if (!places || (path && !copy)) {
        free(copy);
        return out_of_memory("the list of places");
    }
    list->places[list->num_places++] = (struct bundle_place){.path = copy, .source = source, .is_there = is_there};
    return LIBDECODE_OK;
}

/* What has come since `count` was found in the place that was put down last. Hands `status` on. */
static libdecode_status count_place(struct bundle_list *list, size_t count, libdecode_status status) {
    list->places[list->num_places - 1].num_bundles = list->count - count;
    return status;
}

libdecode_status bundle_list_add_memory(struct bundle_list *list, const void *data, size_t bytes, const char *name) {
    struct bundle *bundle;
    FORWARD(bundle_open_memory(data, bytes, name, &bundle));
    return add(list, bundle);
}

libdecode_status bundle_list_add_embedded(struct bundle_list *list) {
    const struct embedded_bundle *embedded = NULL;
    size_t count = embedded_bundles(&embedded), before = list->count;
    libdecode_status status = note_place(list, NULL, "embedded", count > 0);
    for (size_t i = 0; status == LIBDECODE_OK && i < count; i++)
        status = count_place(list, before, bundle_list_add_memory(list, embedded[i].data, embedded[i].bytes, "embedded"));
    return status;
}

/* ------------------------------------------------------------------------------------------------------------- files */

static libdecode_status add_file(struct bundle_list *list, const char *path, const char *source) {
    struct bundle *bundle;
    libdecode_status status = bundle_open_file(path, &bundle);
    if (status == LIBDECODE_OK)
        status = add(list, bundle);
    return status == LIBDECODE_OK ? LIBDECODE_OK : fail(status, "%s: %s", source, libdecode_error_message());
}

/* Keeps the present error message as the reason, for whoever misses a kernel later. */
static libdecode_status pass_over(struct bundle_list *list) {
    char **reasons = realloc(list->passed_over, (list->num_passed_over + 1) * sizeof *reasons);
    char *reason = strdup(libdecode_error_message());
    list->passed_over = reasons ? reasons : list->passed_over;
    if (!reasons || !reason) {
        free(reason);
        return out_of_memory("the names of files that are passed over");
    }
    list->passed_over[list->num_passed_over++] = reason;
    log_message(list->log, LIBDECODE_LOG_WARN, "passed over: %s", reason);
    return LIBDECODE_OK;
}

libdecode_status name_passed_over(libdecode_status status, char *const *reasons, size_t count) {
    for (size_t i = 0; i < count; i++)
        (void)fail(status, "%s (passed over: %s)", libdecode_error_message(), reasons[i]);
    return status;
}

static int is_bundle_name(const struct dirent *entry) {
    size_t length = strlen(entry->d_name), suffix = strlen(BUNDLE_SUFFIX);
    return length > suffix && entry->d_name[0] != '.' && strcmp(entry->d_name + length - suffix, BUNDLE_SUFFIX) == 0;
}

/* In the order of bytes, not of the locale: alphasort would make the overlay depend on it. */
static int by_name(const struct dirent **a, const struct dirent **b) { return strcmp((*a)->d_name, (*b)->d_name); }

static char *join(const char *folder, const char *name) {
    size_t bytes = strlen(folder) + strlen(name) + 2;
    char *path = malloc(bytes);
    if (path)
        (void)snprintf(path, bytes, "%s/%s", folder, name);
    return path;
}

/*
 * One odd file must not take the others away: what is no regular file is none of ours, and a bundle that cannot be used is
 * passed over. *ret_first_reason is the status of the first of those; LIBDECODE_OK: there was none.
 */
static libdecode_status add_found(struct bundle_list *list, const char *path, const char *source,
                                  libdecode_status *ret_first_reason) {
    libdecode_status status = path ? add_file(list, path, source) : out_of_memory("a file name");
    if (status == LIBDECODE_OK || status == LIBDECODE_ERROR_OUT_OF_MEMORY)
        return status;
    if (status == LIBDECODE_ERROR_BUNDLE_NOT_FOUND)
        return LIBDECODE_OK;
    if (*ret_first_reason == LIBDECODE_OK)
        *ret_first_reason = status;
    return pass_over(list);
}

static libdecode_status add_folder(struct bundle_list *list, const char *folder, const char *source,
                                   libdecode_status *ret_first_reason) {
    struct dirent **entries = NULL;
    int count = scandir(folder, &entries, is_bundle_name, by_name);
    if (count < 0)
        return fail(LIBDECODE_ERROR_IO, "%s: folder %s cannot be read (%s); check its permissions", source, folder,
                    strerror(errno));
    libdecode_status status = LIBDECODE_OK;
    *ret_first_reason = LIBDECODE_OK;
    for (int i = 0; i < count; i++) {
        if (status == LIBDECODE_OK) {
            char *path = join(folder, entries[i]->d_name);
            status = add_found(list, path, source, ret_first_reason);
            free(path);
        }
        free(entries[i]);
    }
    free(entries);
    return status;
}

libdecode_status bundle_list_add_path(struct bundle_list *list, const char *path, const char *source) {
    struct stat facts;
    const bool is_there = stat(path, &facts) == 0;
    const int error = errno;
    FORWARD(note_place(list, path, source, is_there));
    if (!is_there)
        return fail(LIBDECODE_ERROR_BUNDLE_NOT_FOUND, "%s: %s cannot be found (%s); name a *.bundle file or a folder of them",
                    source, path, strerror(error));
    size_t count = list->count, others = list->num_passed_over;
    if (!S_ISDIR(facts.st_mode))
        return count_place(list, count, add_file(list, path, source));
    libdecode_status first_reason;
    FORWARD(count_place(list, count, add_folder(list, path, source, &first_reason)));
    if (list->count > count)
        return LIBDECODE_OK;
    if (first_reason != LIBDECODE_OK)
        return name_passed_over(fail(first_reason, "%s: folder %s holds no bundle that can be used", source, path),
                                list->passed_over + others, list->num_passed_over - others);
    return fail(LIBDECODE_ERROR_BUNDLE_NOT_FOUND, "%s: folder %s holds no *.bundle file; name one that does", source, path);
}

libdecode_status bundle_list_add_paths(struct bundle_list *list, const char *paths, const char *source) {
    char *copy = strdup(paths), *rest = copy, *path;
    if (!copy)
        return out_of_memory(source);
    libdecode_status status = LIBDECODE_OK;
    while (status == LIBDECODE_OK && (path = strsep(&rest, ":")) != NULL)
        if (*path)
            status = bundle_list_add_path(list, path, source);
    free(copy);
    return status;
}

/* -------------------------------------------------------------------------------------------------------- installation */

/*
 * The file that this code is in (the library, or a program such as the command), by an absolute path, and the way from its
 * folder to the bundles. False if there is no such path: a relative one means another file once the process has changed its
 * folder.
 */
static bool own_file(char *buffer, size_t buffer_bytes, const char **ret_way) {
    static const char anchor; /* an object of this code: its address tells where that was loaded from */
    Dl_info info;
    struct link_map *map = NULL;
    if (dladdr1(&anchor, &info, (void **)&map, RTLD_DL_LINKMAP) == 0 || !map)
        return false;
    if (map->l_name[0] == '\0') { /* the program; its name may be no path at all */
        ssize_t length = readlink("/proc/self/exe", buffer, buffer_bytes);
        if (length <= 0 || (size_t)length == buffer_bytes)
            return false;
        buffer[length] = '\0';
        *ret_way = LIBDECODE_BUNDLE_DIR_FROM_COMMAND;
    } else {
        if (strlen(map->l_name) >= buffer_bytes)
            return false;
        (void)strcpy(buffer, map->l_name);
        *ret_way = LIBDECODE_BUNDLE_DIR_FROM_LIBRARY;
    }
    return buffer[0] == '/';
}

static bool is_folder(const char *path) {
    struct stat facts;
    return stat(path, &facts) == 0 && S_ISDIR(facts.st_mode);
}

/* Where the bundles of an installation lie that was moved as a whole; NULL: this one cannot have been. */
static libdecode_status folder_of_moved_installation(char **ret_folder) {
    char file[PATH_MAX];
    const char *way;
    *ret_folder = NULL;
    if (getauxval(AT_SECURE) != 0)
        return LIBDECODE_OK; /* whoever can link a setuid program into a folder of his must not choose what it loads */
    if (!own_file(file, sizeof file, &way) || *way == '\0')
        return LIBDECODE_OK;
    *strrchr(file, '/') = '\0';
    *ret_folder = join(file, way);
    return *ret_folder ? LIBDECODE_OK : out_of_memory("the name of the bundle folder");
}

/* The bundles of that folder, if it is there. */
static libdecode_status add_installed_folder(struct bundle_list *list, const char *folder, bool *ret_is_there) {
    static const char source[] = "installed bundles";
    libdecode_status first_reason;
    const size_t count = list->count;
    *ret_is_there = is_folder(folder);
    FORWARD(note_place(list, folder, source, *ret_is_there));
    if (!*ret_is_there)
        return LIBDECODE_OK;
    libdecode_status status = count_place(list, count, add_folder(list, folder, source, &first_reason));
    return status == LIBDECODE_ERROR_IO ? pass_over(list) : status; /* the folder itself: nobody has named it */
}

libdecode_status bundle_list_add_installed(struct bundle_list *list) {
    char *moved;
    bool is_there = false;
    FORWARD(folder_of_moved_installation(&moved));
    libdecode_status status = moved ? add_installed_folder(list, moved, &is_there) : LIBDECODE_OK;
    free(moved);
    return status != LIBDECODE_OK || is_there ? status : add_installed_folder(list, LIBDECODE_BUNDLE_DIR, &is_there);
}
