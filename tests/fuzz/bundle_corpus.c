/* SPDX-License-Identifier: Apache-2.0 */
/* bundle_corpus.c: a folder's name in; small bundles in it out: what fuzz_bundle.c starts from. Nothing of it is committed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zstd.h>

#include "bundle_fixture.h"

static const char *folder;

static void write_seed(const char *name, const uint8_t *data, size_t bytes) {
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    fixture_write_file(path, data, bytes);
}

/* An uncompressed frame: zstd stores a raw block for bytes that it is told not to compress, so a mutation hits the image. */
static void write_raw_frame(const struct fixture_kernel *kernel) {
    struct fixture_image_bytes image = {.target = kernel->target, .num_kernels = 1};
    uint8_t *bytes = fixture_image(kernel, 1, &image.num_bytes), frame[8192];
    const uint8_t head[] = {0x28, 0xb5, 0x2f, 0xfd, 0xa0}; /* magic; single segment, 4 bytes of content size */
    const uint32_t content_bytes = (uint32_t)image.num_bytes, block = content_bytes << 3 | 1; /* raw, last */
    if (image.num_bytes + 16 > sizeof frame)
        abort();
    memcpy(frame, head, sizeof head);
    memcpy(frame + sizeof head, &content_bytes, sizeof content_bytes);
    memcpy(frame + sizeof head + 4, &block, 3);
    memcpy(frame + sizeof head + 7, bytes, image.num_bytes);
    image.bytes = bytes;
    image.frame = frame;
    image.frame_bytes = sizeof head + 7 + image.num_bytes;
    size_t bundle_bytes;
    uint8_t *bundle = fixture_assemble(kernel, 1, &image, 1, &bundle_bytes);
    write_seed("raw_frame", bundle, bundle_bytes);
    free(bundle);
    free(bytes);
}

int main(int argc, char **argv) {
    const struct fixture_kernel kernels[] = {{.name = "a_sm90", .target = 90, .image = 1},
                                             {.name = "b_sm90", .target = 90, .image = 1},
                                             {.name = "c_sm100", .target = 100},
                                             {.name = "d_sm120", .target = 120, .gpus = BUNDLE_GPU_SM121}};
    if (argc != 2) {
        (void)fprintf(stderr, "usage: bundle_corpus FOLDER\n");
        return 2;
    }
    folder = argv[1];
    (void)mkdir(folder, 0777); /* it may be there */
    for (size_t count = 1; count <= 4; count++) {
        char name[16];
        size_t bytes;
        uint8_t *bundle = fixture_bundle(kernels, count, &bytes);
        (void)snprintf(name, sizeof name, "kernels_%zu", count);
        write_seed(name, bundle, bytes);
        if (count == 1) {
            write_seed("truncated", bundle, bytes / 2);
            write_seed("header_only", bundle, sizeof(struct bundle_header));
            fixture_header(bundle)->version++;
            write_seed("other_version", bundle, bytes);
        }
        free(bundle);
    }
    write_raw_frame(&kernels[0]);
    size_t bytes;
    struct fixture_dictionary dictionary = fixture_dictionary();
    uint8_t *bundle = fixture_bundle_with(&dictionary, kernels, 4, &bytes);
    write_seed("dictionary", bundle, bytes);
    free(bundle);
    free(dictionary.bytes);
    write_seed("empty", (const uint8_t *)"", 0);
    return 0;
}
