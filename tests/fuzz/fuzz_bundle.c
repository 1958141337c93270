/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_bundle.c: any bytes in; nothing out, and nothing may happen: opening them as a bundle and reading every image ends in
 * success or in a named error, without a step outside the bytes and without a leak.
 * The bytes are tried as they are, and with their hashes made right, so that what stands behind the hashes is reached too.
 * Run by libFuzzer (-Dfuzzing=libfuzzer), and over its corpus by replay.c as an ordinary test.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "kernel_table.h"
#include "bundle_fixture.h"
#include "sha256.h"

#define LARGEST_IMAGE_BYTES (1u << 20) /* more costs time and finds nothing */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void require(int condition) {
    if (!condition)
        abort();
}

static void open_and_read(const uint8_t *data, size_t bytes) {
    struct bundle *bundle = NULL;
    struct kernel_table table = {0};
    libdecode_status status = bundle_open_memory(data, bytes, "fuzz", &bundle);
    if (status != LIBDECODE_OK) {
        require(bundle == NULL && libdecode_error_message()[0] != '\0');
        require(status == LIBDECODE_ERROR_BUNDLE_DAMAGED || status == LIBDECODE_ERROR_BUNDLE_VERSION ||
                status == LIBDECODE_ERROR_OUT_OF_MEMORY);
        return;
    }
    for (uint32_t image = 0; image < bundle_header(bundle)->num_images; image++) {
        void *image_bytes = NULL;
        if (bundle_images(bundle)[image].image_bytes > LARGEST_IMAGE_BYTES)
            continue;
        status = bundle_read_image(bundle, image, &image_bytes);
        require((status == LIBDECODE_OK) == (image_bytes != NULL));
        free(image_bytes);
    }
    if (kernel_table_build(&bundle, 1, &table) == LIBDECODE_OK)
        require(table.count == bundle_header(bundle)->num_kernels);
    kernel_table_destroy(&table);
    bundle_close(bundle);
}

static void hash_of(const uint8_t *data, size_t bytes, uint8_t ret_digest[32]) {
    struct sha256 hash;
    sha256_init(&hash);
    sha256_update(&hash, data, bytes);
    sha256_finish(&hash, ret_digest);
}

/* The dictionary and its SHA-256, if it lies inside the bytes; else nothing. */
static struct fixture_dictionary correct_dictionary_hash(uint8_t *data, size_t bytes) {
    struct bundle_header *header = fixture_header(data);
    struct fixture_dictionary dictionary = {.num_bytes = header->dictionary_bytes};
    if (dictionary.num_bytes == 0 || dictionary.num_bytes > bytes || header->tables_bytes > bytes - dictionary.num_bytes ||
        (header->tables_bytes + 7) / 8 * 8 > bytes - dictionary.num_bytes)
        return (struct fixture_dictionary){.num_bytes = 0};
    dictionary.bytes = fixture_dictionary_of(data);
    hash_of(dictionary.bytes, dictionary.num_bytes, header->dictionary_sha256);
    return dictionary;
}

/* The SHA-256 of each image that can be decompressed, where the tables lie inside the bytes. */
static void correct_image_hashes(uint8_t *data, size_t bytes, const struct fixture_dictionary *dictionary) {
    const struct bundle_header *header = fixture_header(data);
    uint64_t images_end = sizeof *header + (uint64_t)header->num_kernels * sizeof(struct bundle_kernel) +
                          (uint64_t)header->num_images * sizeof(struct bundle_image);
    ZSTD_DCtx *context = ZSTD_createDCtx();
    require(context != NULL);
    for (uint32_t index = 0; images_end <= bytes && index < header->num_images; index++) {
        struct bundle_image *image = &fixture_images(data)[index];
        if (image->image_bytes > LARGEST_IMAGE_BYTES || image->offset > bytes || image->frame_bytes > bytes - image->offset)
            continue;
        uint8_t *image_bytes = malloc((size_t)image->image_bytes + 1);
        require(image_bytes != NULL);
        size_t got = ZSTD_decompress_usingDict(context, image_bytes, (size_t)image->image_bytes, data + image->offset,
                                               (size_t)image->frame_bytes, dictionary->bytes, dictionary->num_bytes);
        if (!ZSTD_isError(got))
            hash_of(image_bytes, got, image->sha256);
        free(image_bytes);
    }
    (void)ZSTD_freeDCtx(context);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    open_and_read(data, bytes);
    if (bytes < sizeof(struct bundle_header))
        return 0;
    uint8_t *corrected = malloc(bytes);
    require(corrected != NULL);
    memcpy(corrected, data, bytes);
    fixture_header(corrected)->file_bytes = bytes;
    const struct fixture_dictionary dictionary = correct_dictionary_hash(corrected, bytes);
    correct_image_hashes(corrected, bytes, &dictionary);
    fixture_seal(corrected, bytes);
    open_and_read(corrected, bytes);
    free(corrected);
    return 0;
}
