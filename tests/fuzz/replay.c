/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replay.c: files and folders in; each file once through a fuzz target, without libFuzzer. Linked with fuzz_<target>.c, and
 * run by every `meson test`, so that what fuzzing once found stays found.
 * With --mutate N every file also runs N times with a few bytes changed: the same changes every time.
 */
#define _POSIX_C_SOURCE 200809L /* opendir, stat under -std=c17 */

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static size_t num_files, num_mutations;

/* xorshift64*: a fixed seed, so that a failure comes again. */
static uint64_t random_number(void) {
    static uint64_t state = 0x9e3779b97f4a7c15ull;
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return state * 0x2545f4914f6cdd1dull;
}

/* Into a block of its own size, so that a sanitizer sees every step beyond the end. */
static void run(const uint8_t *data, size_t bytes, size_t num_changes) {
    uint8_t *copy = malloc(bytes ? bytes : 1);
    if (!copy)
        abort();
    memcpy(copy, data, bytes);
    for (size_t change = 0; change < num_changes && bytes > 0; change++)
        copy[random_number() % bytes] = (uint8_t)random_number();
    (void)LLVMFuzzerTestOneInput(copy, bytes);
    free(copy);
}

static int run_file(const char *path) {
    struct stat facts;
    FILE *file = fopen(path, "rb");
    if (!file || stat(path, &facts) != 0) {
        (void)fprintf(stderr, "replay: cannot read %s\n", path);
        return 1;
    }
    size_t bytes = (size_t)facts.st_size;
    uint8_t *data = malloc(bytes + 1);
    if (!data || fread(data, 1, bytes, file) != bytes)
        abort();
    (void)fclose(file);
    run(data, bytes, 0);
    for (size_t mutation = 0; mutation < num_mutations; mutation++)
        run(data, bytes, 1 + mutation % 4);
    free(data);
    num_files++;
    return 0;
}

static int run_path(const char *path) {
    DIR *folder = opendir(path);
    if (!folder)
        return run_file(path);
    int failed = 0;
    for (struct dirent *entry = readdir(folder); entry; entry = readdir(folder)) {
        char file[4096];
        if (entry->d_name[0] == '.')
            continue;
        (void)snprintf(file, sizeof file, "%s/%s", path, entry->d_name);
        failed |= run_file(file);
    }
    (void)closedir(folder);
    return failed;
}

int main(int argc, char **argv) {
    int failed = 0, first = 1;
    if (argc > 2 && strcmp(argv[1], "--mutate") == 0) {
        num_mutations = strtoul(argv[2], NULL, 10);
        first = 3;
    }
    for (int index = first; index < argc; index++)
        failed |= run_path(argv[index]);
    (void)printf("replay: %zu files, %zu mutations of each\n", num_files, num_mutations);
    return failed || num_files == 0;
}
