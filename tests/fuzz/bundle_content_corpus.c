/* SPDX-License-Identifier: Apache-2.0 */
/* bundle_content_corpus.c: a folder's name in; the content of small bundles in it out: what fuzz_bundle_content.c starts from. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zstd.h>

#include "bundle_fixture.h"

/* The tables, then the images as they are. */
static void write_content(const char *folder, const char *name, const struct fixture_kernel *kernels, size_t num_kernels) {
    char path[4096];
    size_t bytes, content_bytes;
    uint8_t *bundle = fixture_bundle(kernels, num_kernels, &bytes), *content = malloc(1 << 16);
    const struct bundle_header *header = fixture_header(bundle);
    content_bytes = (size_t)header->tables_bytes;
    if (!content || content_bytes > 1 << 15)
        abort();
    memcpy(content, bundle, content_bytes);
    for (uint32_t index = 0; index < header->num_images; index++) {
        const struct bundle_image *image = &fixture_images(bundle)[index];
        size_t got = ZSTD_decompress(content + content_bytes, (1 << 16) - content_bytes, bundle + image->offset,
                                     (size_t)image->frame_bytes);
        if (ZSTD_isError(got))
            abort();
        content_bytes += got;
    }
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    fixture_write_file(path, content, content_bytes);
    free(content);
    free(bundle);
}

int main(int argc, char **argv) {
    struct fixture_kernel kernels[] = {{.name = "gqa_decode_a_sm90", .target = 90, .image = 1},
                                       {.name = "gqa_decode_b_sm90", .target = 90, .image = 1},
                                       {.name = "gqa_decode_c_sm100", .target = 100},
                                       {.name = "gqa_decode_d_sm120", .target = 120, .gpus = BUNDLE_GPU_SM121},
                                       {.name = "read_ceiling_sm90", .target = 90}};
    if (argc != 2) {
        (void)fprintf(stderr, "usage: bundle_content_corpus FOLDER\n");
        return 2;
    }
    (void)mkdir(argv[1], 0777); /* it may be there */
    kernels[1].contract = fixture_contract();
    kernels[1].contract.row_tile = 32;
    kernels[1].contract.cluster_size = 8;
    kernels[4].contract = fixture_contract();
    kernels[4].contract.family = KERNEL_FAMILY_READ_CEILING;
    kernels[4].contract.parameter_bytes = sizeof(struct read_ceiling_params);
    write_content(argv[1], "one", kernels, 1);
    write_content(argv[1], "two", kernels, 2);
    write_content(argv[1], "all", kernels, 5);
    write_content(argv[1], "ceiling", kernels + 4, 1);
    return 0;
}
