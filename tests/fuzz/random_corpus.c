/* SPDX-License-Identifier: Apache-2.0 */
/* random_corpus.c: a folder's name in; files of random bytes in it out: what targets that read bytes as calls or problems start from. */
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>

#include "bundle_fixture.h"

#define NUM_FILES 40

int main(int argc, char **argv) {
    uint64_t state = 1;
    if (argc != 2) {
        (void)fprintf(stderr, "usage: random_corpus FOLDER\n");
        return 2;
    }
    (void)mkdir(argv[1], 0777); /* it may be there */
    for (size_t file = 0; file < NUM_FILES; file++) {
        uint8_t bytes[2048];
        char path[4096];
        const size_t count = 32 + file * 48;
        for (size_t index = 0; index < count; index++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            bytes[index] = (uint8_t)(state >> 56);
        }
        (void)snprintf(path, sizeof path, "%s/random_%zu", argv[1], file);
        fixture_write_file(path, bytes, count);
    }
    return 0;
}
