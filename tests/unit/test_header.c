/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_header.c: the functions that the public headers declare, those that libdecode.map lets out and those that the shared library
 * exports are the same. Arguments: the headers, the map, the library. (header_*c99.c and header_*cxx.cpp show that each header
 * stands alone in C99 and in C++.)
 */
#include <elf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_NAMES 256
#define PREFIX "libdecode_"

struct names {
    char text[MAX_NAMES][64];
    size_t count;
};

static char *read_file(const char *path, size_t *ret_bytes) {
    FILE *file = fopen(path, "rb");
    if (!file) {
        (void)fprintf(stderr, "%s cannot be opened\n", path);
        exit(1);
    }
    char *bytes = NULL;
    size_t size = 0, got;
    do {
        bytes = realloc(bytes, size + 65536 + 1);
        got = fread(bytes + size, 1, 65536, file);
        size += got;
    } while (got > 0);
    bytes[size] = '\0';
    (void)fclose(file);
    *ret_bytes = size;
    return bytes;
}

static void add(struct names *names, const char *name, size_t length) {
    if (length >= sizeof names->text[0] || names->count == MAX_NAMES)
        exit(1);
    memcpy(names->text[names->count], name, length);
    names->text[names->count++][length] = '\0';
}

static bool has(const struct names *names, const char *name) {
    for (size_t i = 0; i < names->count; i++)
        if (strcmp(names->text[i], name) == 0)
            return true;
    return false;
}

static size_t name_length(const char *at) { return strspn(at, "abcdefghijklmnopqrstuvwxyz0123456789_"); }

/* In every declaration that begins with LIBDECODE_API: the name before the first parenthesis. */
static void names_of_header(const char *text, struct names *names) {
    for (const char *at = text; (at = strstr(at, "\nLIBDECODE_API ")) != NULL;) {
        const char *end = strchr(at, '('), *name = end;
        at++;
        while (name > at && strchr("abcdefghijklmnopqrstuvwxyz0123456789_", name[-1]))
            name--;
        add(names, name, (size_t)(end - name));
    }
}

static void names_of_map(const char *text, struct names *names) {
    for (const char *at = strstr(text, "global:"); at && (at = strstr(at, PREFIX)) != NULL;) {
        size_t length = name_length(at);
        if (at[length] == ';')
            add(names, at, length);
        at += length;
    }
}

/* Everything that is defined and global in the dynamic symbol table, but the name of the version itself. */
static void names_of_library(const char *bytes, size_t size, struct names *names) {
    const Elf64_Ehdr *header = (const Elf64_Ehdr *)(const void *)bytes;
    if (size < sizeof *header || memcmp(bytes, ELFMAG, SELFMAG) != 0)
        exit(1);
    const Elf64_Shdr *sections = (const Elf64_Shdr *)(const void *)(bytes + header->e_shoff);
    for (size_t i = 0; i < header->e_shnum; i++) {
        if (sections[i].sh_type != SHT_DYNSYM)
            continue;
        const Elf64_Sym *symbols = (const Elf64_Sym *)(const void *)(bytes + sections[i].sh_offset);
        const char *strings = bytes + sections[sections[i].sh_link].sh_offset;
        for (size_t j = 0; j < sections[i].sh_size / sizeof *symbols; j++) {
            const char *name = strings + symbols[j].st_name;
            if (symbols[j].st_shndx != SHN_UNDEF && symbols[j].st_shndx != SHN_ABS &&
                ELF64_ST_BIND(symbols[j].st_info) != STB_LOCAL)
                add(names, name, strlen(name));
        }
    }
}

static int compare(const char *a_name, const struct names *a, const char *b_name, const struct names *b) {
    int missing = 0;
    for (size_t i = 0; i < a->count; i++) {
        if (!has(b, a->text[i])) {
            (void)fprintf(stderr, "%s: in %s, not in %s\n", a->text[i], a_name, b_name);
            missing++;
        }
    }
    return missing;
}

int main(int argc, char **argv) {
    static struct names headers, map, library;
    if (argc < 4) {
        (void)fprintf(stderr, "usage: test_header libdecode.h libdecode_problem.h libdecode.map libdecode.so\n");
        return 1;
    }
    size_t bytes;
    char *text;
    for (int header = 1; header < argc - 2; header++) {
        text = read_file(argv[header], &bytes);
        names_of_header(text, &headers);
        free(text);
    }
    text = read_file(argv[argc - 2], &bytes);
    names_of_map(text, &map);
    free(text);
    text = read_file(argv[argc - 1], &bytes);
    names_of_library(text, bytes, &library);
    free(text);
    int differences = compare("the headers", &headers, "the map", &map) + compare("the map", &map, "the headers", &headers) +
                      compare("the headers", &headers, "the library", &library) +
                      compare("the library", &library, "the headers", &headers);
    (void)printf("%zu functions in the headers, %zu in the map, %zu exported\n", headers.count, map.count, library.count);
    return differences == 0 && headers.count > 0 ? 0 : 1;
}
