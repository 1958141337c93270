/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_bundle_content.c: the content of a bundle in: its tables, with the images as they are in place of the frames. Around them
 * everything is made right that proves nothing: places, lengths, zstd frames, hashes, counts, and the tables' copy of what the
 * images record. So that what is tried is the audit of the images, the checks of the tables, and selection among contracts that
 * nobody has written: opening, verifying and explaining end in success or in a named error.
 * fuzz_bundle.c tries what is left out here. Run by libFuzzer (-Dfuzzing=libfuzzer), and over its corpus by replay.c.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "bundle_fixture.h"
#include "decode_fixture.h"
#include "image.h"
#include "sha256.h"

#define MOST_KERNELS 64u /* more cost time and find nothing */
#define MOST_BYTES (64u << 10)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void require(int condition) {
    if (!condition)
        abort();
}

/* Where the tables end; 0 if they do not lie within the bytes. */
static size_t tables_end(const struct bundle_header *header, size_t bytes) {
    if (header->num_kernels > MOST_KERNELS || header->num_images > MOST_KERNELS || header->num_images == 0 ||
        header->strings_bytes > bytes)
        return 0;
    uint64_t end = sizeof *header + (uint64_t)header->num_kernels * sizeof(struct bundle_kernel) +
                   (uint64_t)header->num_images * sizeof(struct bundle_image) + header->strings_bytes;
    return end <= bytes ? (size_t)end : 0;
}

/* The tables say of a kernel what its image records. */
static void copy_records(uint8_t *bundle, uint32_t image, const uint8_t *bytes, size_t num_bytes) {
    struct bundle_header *header = fixture_header(bundle);
    const char *strings = fixture_strings(bundle);
    struct image_elf elf;
    struct image_kernels recorded;
    if (image_audit(bytes, num_bytes, &elf) != LIBDECODE_OK || image_kernels_read(&elf, &recorded) != LIBDECODE_OK)
        return;
    fixture_images(bundle)[image].target = elf.sm;
    for (uint32_t index = 0; index < header->num_kernels; index++) {
        struct bundle_kernel *kernel = &fixture_kernels(bundle)[index];
        char name[BUNDLE_MAX_NAME_BYTES] = "";
        if (kernel->image != image || kernel->name >= header->strings_bytes)
            continue;
        size_t rest = (size_t)header->strings_bytes - kernel->name;
        memcpy(name, strings + kernel->name, rest < sizeof name - 1 ? rest : sizeof name - 1);
        const struct image_kernel *found = image_kernels_find(&recorded, name);
        if (!found)
            continue;
        if (found->contract_bytes == sizeof kernel->contract)
            memcpy(&kernel->contract, found->contract, sizeof kernel->contract);
        kernel->registers = found->registers;
    }
    image_kernels_free(&recorded);
}

static void count_kernels(uint8_t *bundle) {
    struct bundle_header *header = fixture_header(bundle);
    header->gpus = 0;
    for (uint32_t image = 0; image < header->num_images; image++)
        fixture_images(bundle)[image].num_kernels = 0;
    for (uint32_t index = 0; index < header->num_kernels; index++) {
        const struct bundle_kernel *kernel = &fixture_kernels(bundle)[index];
        header->gpus |= kernel->gpus;
        if (kernel->image < header->num_images)
            fixture_images(bundle)[kernel->image].num_kernels++;
    }
}

/* The bundle of this content, in fresh memory; NULL if it cannot be one. */
static uint8_t *bundle_of(const uint8_t *data, size_t bytes, size_t *ret_bytes) {
    struct bundle_header header;
    if (bytes < sizeof header || bytes > MOST_BYTES)
        return NULL;
    memcpy(&header, data, sizeof header);
    size_t begin = tables_end(&header, bytes), end = (begin + 7) / 8 * 8;
    if (begin == 0)
        return NULL;
    uint8_t *bundle = calloc(1, end + header.num_images * (ZSTD_compressBound(bytes) + 8));
    require(bundle != NULL);
    memcpy(bundle, data, begin);
    for (uint32_t index = 0; index < header.num_images; index++) {
        struct bundle_image *image = &fixture_images(bundle)[index];
        size_t image_bytes = bytes - begin < image->image_bytes ? bytes - begin : (size_t)image->image_bytes;
        struct sha256 hash;
        copy_records(bundle, index, data + begin, image_bytes);
        image->offset = end;
        image->image_bytes = image_bytes;
        image->frame_bytes = ZSTD_compress(bundle + end, ZSTD_compressBound(image_bytes), data + begin, image_bytes, 1);
        require(!ZSTD_isError((size_t)image->frame_bytes));
        sha256_init(&hash);
        sha256_update(&hash, data + begin, image_bytes);
        sha256_finish(&hash, image->sha256);
        begin += image_bytes;
        end = (end + (size_t)image->frame_bytes + 7) / 8 * 8;
    }
    count_kernels(bundle);
    memcpy(fixture_header(bundle)->magic, BUNDLE_MAGIC, sizeof header.magic);
    fixture_header(bundle)->version = BUNDLE_VERSION;
    fixture_header(bundle)->kernel_abi = LIBDECODE_KERNEL_ABI;
    fixture_header(bundle)->dictionary_bytes = 0;
    memset(fixture_header(bundle)->dictionary_sha256, 0, sizeof header.dictionary_sha256);
    fixture_header(bundle)->tables_bytes = tables_end(&header, bytes);
    fixture_header(bundle)->file_bytes = end;
    fixture_seal(bundle, end);
    *ret_bytes = end;
    return bundle;
}

static void keep_verdict(void *cookie, const libdecode_verdict *verdict) {
    require(verdict->kernel != NULL && verdict->reason != NULL);
    ++*(size_t *)cookie;
}

static void explain_and_plan(libdecode_context *context, const libdecode_problem *problem, const libdecode_device *device) {
    size_t num_verdicts = 0;
    libdecode_status status = libdecode_explain(context, problem, device, keep_verdict, &num_verdicts);
    require(status == LIBDECODE_OK || status / 100 == LIBDECODE_ERROR_UNSUPPORTED / 100);
    require(num_verdicts == libdecode_kernel_count(context));
    libdecode_plan *plan = NULL;
    require(libdecode_plan_create(context, problem, device, &plan) == status);
    if (plan) {
        libdecode_plan_info info = {.struct_size = sizeof info};
        require(libdecode_plan_get_info(plan, &info) == LIBDECODE_OK && info.predicted_ns >= 0 && info.workers > 0);
    }
    libdecode_plan_destroy(plan);
}

/* On every GPU: a small problem, a large one, and one with the longest length, which no cost may overflow. */
static void explain_problems(libdecode_context *context) {
    static const char *const gpus[] = {"sm_90", "sm_100", "sm_103", "sm_120", "sm_121"};
    static const int32_t lengths[] = {1, 8192, INT32_MAX}, batch_sizes[] = {1, 64, 4096}, page_sizes[] = {16, 64, 1024};
    for (size_t gpu = 0; gpu < 5; gpu++) {
        libdecode_device device = preset(gpus[gpu]);
        for (size_t size = 0; size < 3; size++) {
            libdecode_problem problem = llama3_8b();
            problem.max_seq_len = lengths[size];
            problem.batch_size = batch_sizes[size];
            problem.page_size = page_sizes[size];
            problem.page_table_request_stride = 0;
            explain_and_plan(context, &problem, &device);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    libdecode_memory_bundle memory;
    uint8_t *bundle = bundle_of(data, bytes, &memory.bytes);
    if (!bundle)
        return 0;
    memory.data = bundle;
    libdecode_open_options options = {.struct_size = sizeof options,
                                      .flags = LIBDECODE_OPEN_IGNORE_ENVIRONMENT | LIBDECODE_OPEN_BUNDLES_ONLY,
                                      .memory_bundles = &memory,
                                      .num_memory_bundles = 1};
    libdecode_context *context = NULL;
    libdecode_status status = libdecode_open(&options, &context);
    require((status == LIBDECODE_OK) == (context != NULL));
    if (context) {
        status = libdecode_verify(context);
        require(status == LIBDECODE_OK || status == LIBDECODE_ERROR_BUNDLE_DAMAGED);
        explain_problems(context);
    } else {
        require(status == LIBDECODE_ERROR_BUNDLE_DAMAGED && libdecode_error_message()[0] != '\0');
    }
    libdecode_close(context);
    free(bundle);
    return 0;
}
