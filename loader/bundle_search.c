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
#include <sys/stat.h>
#include <unistd.h>

#include "embedded.h"
#include "status.h"

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
    list->bundles = NULL;
    list->count = list->capacity = 0;
}

libdecode_status bundle_list_add_memory(struct bundle_list *list, const void *data, size_t bytes, const char *name) {
    struct bundle *bundle;
    FORWARD(bundle_open_memory(data, bytes, name, &bundle));
    return add(list, bundle);
}

libdecode_status bundle_list_add_embedded(struct bundle_list *list) {
    const struct embedded_bundle *embedded = NULL;
    size_t count = embedded_bundles(&embedded);
    for (size_t i = 0; i < count; i++)
        FORWARD(bundle_list_add_memory(list, embedded[i].data, embedded[i].bytes, "embedded"));
    return LIBDECODE_OK;
}

/* ------------------------------------------------------------------------------------------------------------- files */

static libdecode_status add_file(struct bundle_list *list, const char *path, const char *source) {
    struct bundle *bundle;
    libdecode_status status = bundle_open_file(path, &bundle);
    if (status != LIBDECODE_OK)
        return fail(status, "%s: %s", source, libdecode_error_message());
    return add(list, bundle);
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

static libdecode_status add_folder(struct bundle_list *list, const char *folder, const char *source, size_t *ret_found) {
    struct dirent **entries = NULL;
    int count = scandir(folder, &entries, is_bundle_name, by_name);
    if (count < 0)
        return fail(LIBDECODE_ERROR_IO, "%s: folder %s cannot be read (%s); check its permissions", source, folder,
                    strerror(errno));
    libdecode_status status = LIBDECODE_OK;
    for (int i = 0; i < count; i++) {
        if (status == LIBDECODE_OK) {
            char *path = join(folder, entries[i]->d_name);
            status = path ? add_file(list, path, source) : out_of_memory("a file name");
            free(path);
        }
        free(entries[i]);
    }
    free(entries);
    *ret_found = (size_t)count;
    return status;
}

libdecode_status bundle_list_add_path(struct bundle_list *list, const char *path, const char *source) {
    struct stat facts;
    if (stat(path, &facts) != 0)
        return fail(LIBDECODE_ERROR_BUNDLE_NOT_FOUND, "%s: %s cannot be found (%s); name a *.bundle file or a folder of them",
                    source, path, strerror(errno));
    if (!S_ISDIR(facts.st_mode))
        return add_file(list, path, source);
    size_t found;
    FORWARD(add_folder(list, path, source, &found));
    if (found == 0)
        return fail(LIBDECODE_ERROR_BUNDLE_NOT_FOUND, "%s: folder %s holds no *.bundle file; name one that does", source, path);
    return LIBDECODE_OK;
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

/* The file that this code is in (the library, or a program such as the command), and the way from its folder to bundles. */
static char *own_file(char *buffer, size_t buffer_bytes, const char **ret_way) {
    static const char anchor; /* an object of this code: its address tells where that was loaded from */
    Dl_info info;
    struct link_map *map = NULL;
    if (dladdr1(&anchor, &info, (void **)&map, RTLD_DL_LINKMAP) == 0 || !map)
        return NULL;
    if (map->l_name[0] == '\0') { /* the program; its name may be no path at all */
        ssize_t length = readlink("/proc/self/exe", buffer, buffer_bytes - 1);
        if (length <= 0)
            return NULL;
        buffer[length] = '\0';
        *ret_way = LIBDECODE_BUNDLE_DIR_FROM_COMMAND;
    } else {
        (void)snprintf(buffer, buffer_bytes, "%s", map->l_name);
        *ret_way = "libdecode";
    }
    return buffer;
}

/* The bundles of an installation that was moved as a whole, if such a folder is there; else NULL. */
static char *folder_beside_library(void) {
    char file[PATH_MAX];
    const char *way;
    struct stat facts;
    char *slash = own_file(file, sizeof file, &way) ? strrchr(file, '/') : NULL;
    if (!slash)
        return NULL;
    *slash = '\0';
    char *folder = join(file, way);
    if (folder && (stat(folder, &facts) != 0 || !S_ISDIR(facts.st_mode))) {
        free(folder);
        return NULL;
    }
    return folder;
}

libdecode_status bundle_list_add_installed(struct bundle_list *list) {
    struct stat facts;
    size_t found;
    char *beside = folder_beside_library();
    const char *folder = beside ? beside : LIBDECODE_BUNDLE_DIR;
    libdecode_status status = LIBDECODE_OK;
    if (beside || (stat(folder, &facts) == 0 && S_ISDIR(facts.st_mode)))
        status = add_folder(list, folder, "installed bundles", &found);
    free(beside);
    return status;
}
