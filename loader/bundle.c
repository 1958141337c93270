/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bundle.c: a file or a piece of memory in; a checked table of kernels out, and on demand the checked bytes of one image.
 * Tables are copied into private memory before they are checked, and files are read, never mapped: nobody can change or
 * shorten what was checked. After the root hash matches, the rest guards against a bundle that was made to do harm.
 * Before: select.c picked a record of the table. Next: module.c hands the image to the driver.
 */
#define _POSIX_C_SOURCE 200809L /* pread, O_CLOEXEC under -std=c17 */

#include "bundle.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include "contract.h"
#include "image.h"
#include "sha256.h"
#include "status.h"
#include "target.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "bundles are little-endian and are read in place"
#endif

#define FRAME_ALIGNMENT 8u
#define IMAGE_ALIGNMENT 64u
#define IMAGE_SLACK_BYTES 64u /* zeros behind an image, should the driver read a little too far */

struct bundle {
    char *path;
    int file;              /* -1: in memory */
    const uint8_t *memory; /* NULL: in a file */
    uint64_t bytes;        /* of the file or the memory */
    uint8_t *tables;       /* private copy: header, kernels, images, strings */
    const struct bundle_kernel *kernels;
    const struct bundle_image *images;
    const char *strings;
    uint32_t *kernels_of_images;    /* indices of kernels, image after image, in each in the order of the names */
    uint32_t *first_of_image;       /* where those of an image begin; one more for the end */
    _Atomic(uint8_t *) *dictionary; /* NULL: it has none. What it points to: NULL until the first image is read */
};

#define DAMAGED(bundle, format, ...)                                                                                             \
    fail(LIBDECODE_ERROR_BUNDLE_DAMAGED, "bundle %s: " format "; the file is damaged or incomplete, install or build it again",  \
         (bundle)->path, __VA_ARGS__)

const char *bundle_path(const struct bundle *bundle) { return bundle->path; }
const struct bundle_header *bundle_header(const struct bundle *bundle) {
    return (const struct bundle_header *)(void *)bundle->tables;
}
const struct bundle_kernel *bundle_kernels(const struct bundle *bundle) { return bundle->kernels; }
const struct bundle_image *bundle_images(const struct bundle *bundle) { return bundle->images; }
const char *bundle_string(const struct bundle *bundle, uint32_t offset) { return bundle->strings + offset; }
bool bundle_runs_on(const struct bundle *bundle, int32_t driver_version) {
    return driver_version >= (int64_t)bundle_header(bundle)->min_driver;
}

static bool within(uint32_t value, uint32_t least, uint32_t most) { return value >= least && value <= most; }

static libdecode_status out_of_memory(const struct bundle *bundle, const char *what, uint64_t bytes) {
    return fail(LIBDECODE_ERROR_OUT_OF_MEMORY, "bundle %s: no memory for %s (%llu bytes); free memory and try again",
                bundle->path, what, (unsigned long long)bytes);
}

/* --------------------------------------------------------------------------------------------------------- the source */

static libdecode_status read_bytes(const struct bundle *bundle, uint64_t offset, uint64_t bytes, uint8_t *ret) {
    if (bundle->memory) {
        memcpy(ret, bundle->memory + offset, (size_t)bytes);
        return LIBDECODE_OK;
    }
    while (bytes > 0) {
        ssize_t got = pread(bundle->file, ret, (size_t)bytes, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return fail(LIBDECODE_ERROR_IO, "bundle %s: reading at offset %llu: %s; check the file system", bundle->path,
                        (unsigned long long)offset, strerror(errno));
        if (got == 0)
            return fail(LIBDECODE_ERROR_IO,
                        "bundle %s: ends at offset %llu, it was %llu bytes long when opened; replace a bundle by renaming a new "
                        "file over it, and try again",
                        bundle->path, (unsigned long long)offset, (unsigned long long)bundle->bytes);
        ret += got;
        offset += (uint64_t)got;
        bytes -= (uint64_t)got;
    }
    return LIBDECODE_OK;
}

/* ---------------------------------------------------------------------------------------------------------- the tables */

/* The numbers that say how much to read. Everything else waits until the root hash has been compared. */
static libdecode_status check_header(const struct bundle *bundle, const struct bundle_header *header) {
    if (memcmp(header->magic, BUNDLE_MAGIC, sizeof header->magic) != 0)
        return DAMAGED(bundle, "no bundle magic in the first %zu bytes: not a bundle", sizeof header->magic);
    if (header->version != BUNDLE_VERSION)
        return fail(LIBDECODE_ERROR_BUNDLE_VERSION,
                    "bundle %s has format version %u, this libdecode reads %u; use the bundles that "
                    "belong to it",
                    bundle->path, header->version, BUNDLE_VERSION);
    if (header->kernel_abi != LIBDECODE_KERNEL_ABI)
        return fail(LIBDECODE_ERROR_BUNDLE_VERSION,
                    "bundle %s has kernels of interface %u, this libdecode calls %u; use the bundles "
                    "that belong to it",
                    bundle->path, header->kernel_abi, LIBDECODE_KERNEL_ABI);
    if (header->file_bytes != bundle->bytes)
        return DAMAGED(bundle, "%llu bytes long, its header says %llu", (unsigned long long)bundle->bytes,
                       (unsigned long long)header->file_bytes);
    if (!within(header->num_kernels, 1, BUNDLE_MAX_KERNELS) || !within(header->num_images, 1, BUNDLE_MAX_IMAGES) ||
        header->strings_bytes < 1 || header->strings_bytes > BUNDLE_MAX_STRINGS_BYTES)
        return DAMAGED(bundle, "%u kernels, %u images, %llu bytes of strings are beyond the limits", header->num_kernels,
                       header->num_images, (unsigned long long)header->strings_bytes);
    uint64_t tables_bytes = sizeof *header + (uint64_t)header->num_kernels * sizeof(struct bundle_kernel) +
                            (uint64_t)header->num_images * sizeof(struct bundle_image) + header->strings_bytes;
    if (header->tables_bytes != tables_bytes || tables_bytes > bundle->bytes)
        return DAMAGED(bundle, "tables of %llu bytes in a file of %llu, its header says %llu", (unsigned long long)tables_bytes,
                       (unsigned long long)bundle->bytes, (unsigned long long)header->tables_bytes);
    return LIBDECODE_OK;
}

static libdecode_status check_root_hash(struct bundle *bundle) {
    struct bundle_header *header = (struct bundle_header *)(void *)bundle->tables;
    uint8_t expected[sizeof header->root_hash], digest[sizeof header->root_hash];
    memcpy(expected, header->root_hash, sizeof expected);
    memset(header->root_hash, 0, sizeof header->root_hash);
    sha256_of_halves(bundle->tables, (size_t)header->tables_bytes, digest);
    memcpy(header->root_hash, expected, sizeof expected);
    if (memcmp(digest, expected, sizeof digest) != 0)
        return DAMAGED(bundle, "the SHA-256 of its tables (%llu bytes) is not the root hash in its header",
                       (unsigned long long)header->tables_bytes);
    return LIBDECODE_OK;
}

static bool is_name_character(uint8_t c) { return (uint8_t)(c - 'a') < 26 || (uint8_t)(c - '0') < 10 || c == '_'; }

/* Strings are names, each also a kernel symbol and log text: lower case, digits, underscores. */
static libdecode_status check_strings(const struct bundle *bundle) {
    const uint8_t *strings = (const uint8_t *)bundle->strings;
    size_t bytes = (size_t)bundle_header(bundle)->strings_bytes;
    uint8_t others = 0;
    for (size_t index = 0; index < bytes; index++) /* no early end, so that many are looked at in one instruction */
        others |= (uint8_t)(!is_name_character(strings[index]) & (strings[index] != '\0'));
    if (others)
        return DAMAGED(bundle, "its strings (%zu bytes) hold other than lower case, digits and underscores", bytes);
    if (strings[0] != '\0' || strings[bytes - 1] != '\0')
        return DAMAGED(bundle, "its strings (%zu bytes) do not begin and end with NUL", bytes);
    return LIBDECODE_OK;
}

/* A fair length inside the strings, whose last byte is NUL. */
static bool is_name(const struct bundle *bundle, uint32_t offset) {
    if (offset >= bundle_header(bundle)->strings_bytes)
        return false;
    size_t bytes = strnlen(bundle->strings + offset, BUNDLE_MAX_NAME_BYTES);
    return bytes > 0 && bytes < BUNDLE_MAX_NAME_BYTES;
}

static libdecode_status check_kernel(const struct bundle *bundle, uint32_t index) {
    const struct bundle_kernel *kernel = &bundle->kernels[index];
    if (!is_name(bundle, kernel->name))
        return DAMAGED(bundle, "kernel %u has no proper name at string offset %u", index, kernel->name);
    const char *name = bundle->strings + kernel->name;
    if (index > 0 && strcmp(bundle->strings + bundle->kernels[index - 1].name, name) >= 0)
        return DAMAGED(bundle, "kernel %u '%s' is out of order or there twice", index, name);
    if (kernel->image >= bundle_header(bundle)->num_images)
        return DAMAGED(bundle, "kernel '%s' is in image %u of %u", name, kernel->image, bundle_header(bundle)->num_images);
    uint32_t target = bundle->images[kernel->image].target;
    if (kernel->gpus == 0 || (kernel->gpus & ~target_gpus(target)) != 0)
        return DAMAGED(bundle, "kernel '%s' claims GPUs 0x%x with an image for sm_%u", name, kernel->gpus, target);
    if (!contract_is_sane(&kernel->contract))
        return DAMAGED(bundle, "kernel '%s' has a launch contract that no kernel can have", name);
    return LIBDECODE_OK;
}

static uint64_t aligned(uint64_t offset) { return (offset + FRAME_ALIGNMENT - 1) / FRAME_ALIGNMENT * FRAME_ALIGNMENT; }

static uint64_t dictionary_begin(const struct bundle_header *header) { return aligned(header->tables_bytes); }

static uint64_t frames_begin(const struct bundle_header *header) {
    return aligned(dictionary_begin(header) + header->dictionary_bytes);
}

/* Where the zero padding behind a frame ends. */
static uint64_t padded_end(const struct bundle *bundle, const struct bundle_image *image) {
    uint64_t end = aligned(image->offset + image->frame_bytes);
    return end < bundle->bytes ? end : bundle->bytes;
}

static libdecode_status check_dictionary_place(const struct bundle *bundle) {
    static const uint8_t zeros[sizeof((struct bundle_header *)0)->dictionary_sha256];
    const struct bundle_header *header = bundle_header(bundle);
    if (header->dictionary_bytes > BUNDLE_MAX_DICTIONARY_BYTES || frames_begin(header) > bundle->bytes)
        return DAMAGED(bundle, "a dictionary of %u bytes behind its tables in a file of %llu bytes, accepted are %u",
                       header->dictionary_bytes, (unsigned long long)bundle->bytes, BUNDLE_MAX_DICTIONARY_BYTES);
    if (header->dictionary_bytes == 0 && memcmp(header->dictionary_sha256, zeros, sizeof zeros) != 0)
        return DAMAGED(bundle, "its header has a SHA-256 of a dictionary, but a dictionary of %u bytes",
                       header->dictionary_bytes);
    return LIBDECODE_OK;
}

/* Frames follow tables, dictionary and each other without a gap: nothing of the file is unaccounted for. */
static libdecode_status check_images(const struct bundle *bundle) {
    const struct bundle_header *header = bundle_header(bundle);
    uint64_t expected_offset = frames_begin(header), all_images_bytes = 0;
    for (uint32_t index = 0; index < header->num_images; index++) {
        const struct bundle_image *image = &bundle->images[index];
        if (image->offset != expected_offset || image->offset > bundle->bytes || image->frame_bytes == 0 ||
            image->frame_bytes > bundle->bytes - image->offset)
            return DAMAGED(bundle, "image %u (%llu bytes at offset %llu) is not where it must be (%llu) in a file of %llu bytes",
                           index, (unsigned long long)image->frame_bytes, (unsigned long long)image->offset,
                           (unsigned long long)expected_offset, (unsigned long long)bundle->bytes);
        if (image->image_bytes == 0 || image->image_bytes > BUNDLE_MAX_IMAGE_BYTES)
            return DAMAGED(bundle, "image %u has %llu bytes, accepted is 1 to %u", index, (unsigned long long)image->image_bytes,
                           BUNDLE_MAX_IMAGE_BYTES);
        if (image->frame_bytes > ZSTD_COMPRESSBOUND(image->image_bytes))
            return DAMAGED(bundle, "image %u of %llu bytes has a frame of %llu, zstd makes at most %llu", index,
                           (unsigned long long)image->image_bytes, (unsigned long long)image->frame_bytes,
                           (unsigned long long)ZSTD_COMPRESSBOUND(image->image_bytes));
        all_images_bytes += image->image_bytes;
        if (all_images_bytes > BUNDLE_MAX_ALL_IMAGES_BYTES)
            return DAMAGED(bundle, "images 0 to %u have %llu bytes, accepted are %llu", index,
                           (unsigned long long)all_images_bytes, (unsigned long long)BUNDLE_MAX_ALL_IMAGES_BYTES);
        if (target_gpus(image->target) == 0)
            return DAMAGED(bundle, "image %u is for sm_%u, accepted is sm_90, sm_100 or sm_120", index, image->target);
        expected_offset = aligned(image->offset + image->frame_bytes);
    }
    if (padded_end(bundle, &bundle->images[header->num_images - 1]) != bundle->bytes)
        return DAMAGED(bundle, "%llu bytes long, its last image ends before", (unsigned long long)bundle->bytes);
    return LIBDECODE_OK;
}

/* Every image holds as many kernels as the table says, and the header's GPUs are those of the kernels. */
static libdecode_status check_counts(const struct bundle *bundle) {
    const struct bundle_header *header = bundle_header(bundle);
    uint32_t gpus = 0;
    for (uint32_t index = 0; index < header->num_kernels; index++)
        gpus |= bundle->kernels[index].gpus;
    for (uint32_t index = 0; index < header->num_images; index++) {
        uint32_t num_kernels = bundle->first_of_image[index + 1] - bundle->first_of_image[index];
        if (num_kernels == 0 || num_kernels != bundle->images[index].num_kernels)
            return DAMAGED(bundle, "image %u is said to hold %u kernels, the table has %u of it", index,
                           bundle->images[index].num_kernels, num_kernels);
    }
    if (gpus != header->gpus)
        return DAMAGED(bundle, "its header claims GPUs 0x%x, its kernels 0x%x", header->gpus, gpus);
    return LIBDECODE_OK;
}

/* So that who reads an image need not look through all kernels for its own. */
static libdecode_status group_kernels(struct bundle *bundle) {
    const struct bundle_header *header = bundle_header(bundle);
    size_t count = header->num_kernels + (size_t)header->num_images + 2;
    uint32_t *indices = calloc(count, sizeof *indices);
    if (!indices)
        return out_of_memory(bundle, "grouping its kernels", count * sizeof *indices);
    bundle->kernels_of_images = indices;
    bundle->first_of_image = indices + header->num_kernels;
    uint32_t *next = bundle->first_of_image + 1; /* of each image; when all are placed, where the next image's begin */
    for (uint32_t kernel = 0; kernel < header->num_kernels; kernel++)
        next[bundle->kernels[kernel].image + 1]++;
    for (uint32_t image = 0; image < header->num_images; image++)
        next[image + 1] += next[image];
    for (uint32_t kernel = 0; kernel < header->num_kernels; kernel++)
        indices[next[bundle->kernels[kernel].image]++] = kernel;
    return LIBDECODE_OK;
}

/* Behind the tables up to 7 zeros may stand; behind dictionary and frames as well: who reads these looks at them. */
static libdecode_status check_padding_behind_tables(const struct bundle *bundle) {
    uint8_t padding[FRAME_ALIGNMENT] = {0};
    uint64_t begin = bundle_header(bundle)->tables_bytes, end = dictionary_begin(bundle_header(bundle));
    FORWARD(read_bytes(bundle, begin, end - begin, padding)); /* frames lie behind it: inside the file */
    for (uint64_t index = 0; index < end - begin; index++)
        if (padding[index] != 0)
            return DAMAGED(bundle, "byte %llu behind its tables is not zero", (unsigned long long)(begin + index));
    return LIBDECODE_OK;
}

/* A place for it, beside the bundle, which does not change once it is open. */
static libdecode_status prepare_dictionary(struct bundle *bundle) {
    if (bundle_header(bundle)->dictionary_bytes == 0)
        return LIBDECODE_OK;
    bundle->dictionary = calloc(1, sizeof *bundle->dictionary);
    return bundle->dictionary ? LIBDECODE_OK : out_of_memory(bundle, "its dictionary", sizeof *bundle->dictionary);
}

static libdecode_status read_tables(struct bundle *bundle) {
    struct bundle_header header;
    if (bundle->bytes < sizeof header)
        return DAMAGED(bundle, "%llu bytes are too few for a bundle", (unsigned long long)bundle->bytes);
    FORWARD(read_bytes(bundle, 0, sizeof header, (uint8_t *)&header));
    FORWARD(check_header(bundle, &header));
    bundle->tables = malloc((size_t)header.tables_bytes);
    if (!bundle->tables)
        return out_of_memory(bundle, "its tables", header.tables_bytes);
    memcpy(bundle->tables, &header, sizeof header);
    FORWARD(read_bytes(bundle, sizeof header, header.tables_bytes - sizeof header, bundle->tables + sizeof header));
    FORWARD(check_root_hash(bundle));

    uint8_t *kernels = bundle->tables + sizeof header;
    uint8_t *images = kernels + header.num_kernels * sizeof(struct bundle_kernel);
    bundle->kernels = (const struct bundle_kernel *)(void *)kernels;
    bundle->images = (const struct bundle_image *)(void *)images;
    bundle->strings = (const char *)(images + header.num_images * sizeof(struct bundle_image));
    FORWARD(check_strings(bundle));
    FORWARD(check_dictionary_place(bundle));
    FORWARD(check_images(bundle));
    for (uint32_t index = 0; index < header.num_kernels; index++)
        FORWARD(check_kernel(bundle, index));
    FORWARD(group_kernels(bundle));
    FORWARD(check_counts(bundle));
    FORWARD(check_padding_behind_tables(bundle));
    return prepare_dictionary(bundle);
}

/* --------------------------------------------------------------------------------------------------- opening, closing */

static libdecode_status open_source(const char *path, int file, const void *memory, uint64_t bytes, struct bundle **ret_bundle) {
    struct bundle *bundle = calloc(1, sizeof *bundle);
    size_t path_bytes = strlen(path) + 1;
    char *path_copy = malloc(path_bytes);
    if (!bundle || !path_copy) {
        free(bundle);
        free(path_copy);
        if (file >= 0)
            (void)close(file);
        return fail(LIBDECODE_ERROR_OUT_OF_MEMORY, "bundle %s: no memory to open it; free memory and try again", path);
    }
    memcpy(path_copy, path, path_bytes);
    *bundle = (struct bundle){.path = path_copy, .file = file, .memory = memory, .bytes = bytes};
    libdecode_status status = read_tables(bundle);
    if (status != LIBDECODE_OK) {
        bundle_close(bundle);
        return status;
    }
    *ret_bundle = bundle;
    return LIBDECODE_OK;
}

libdecode_status bundle_open_file(const char *path, struct bundle **ret_bundle) {
    struct stat facts;
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK); /* non-blocking: `path` may turn out to be a FIFO */
    if (file < 0)
        return fail(errno == ENOENT || errno == ENOTDIR ? LIBDECODE_ERROR_BUNDLE_NOT_FOUND : LIBDECODE_ERROR_IO,
                    "bundle %s: %s; check the path and its permissions", path, strerror(errno));
    if (fstat(file, &facts) != 0) {
        int error = errno;
        (void)close(file);
        return fail(LIBDECODE_ERROR_IO, "bundle %s: fstat: %s; check the file system", path, strerror(error));
    }
    if (!S_ISREG(facts.st_mode)) {
        (void)close(file);
        return fail(LIBDECODE_ERROR_BUNDLE_NOT_FOUND, "bundle %s: not a regular file; give the path of a *" BUNDLE_SUFFIX " file",
                    path);
    }
    return open_source(path, file, NULL, (uint64_t)facts.st_size, ret_bundle);
}

libdecode_status bundle_open_memory(const void *data, size_t bytes, const char *name, struct bundle **ret_bundle) {
    if (!data)
        return fail(LIBDECODE_ERROR_INVALID_ARGUMENT, "bundle %s: data is NULL; give the bytes of a bundle", name);
    return open_source(name, -1, data, bytes, ret_bundle);
}

void bundle_close(struct bundle *bundle) {
    if (!bundle)
        return;
    if (bundle->file >= 0)
        (void)close(bundle->file);
    if (bundle->dictionary)
        free(atomic_load_explicit(bundle->dictionary, memory_order_acquire));
    free((void *)bundle->dictionary);
    free(bundle->kernels_of_images);
    free(bundle->tables);
    free(bundle->path);
    free(bundle);
}

/* --------------------------------------------------------------------------------------------------------- dictionary */

static bool has_sha256(const uint8_t *bytes, size_t num_bytes, const uint8_t expected[32]) {
    struct sha256 hash;
    uint8_t digest[32];
    sha256_init(&hash);
    sha256_update(&hash, bytes, num_bytes);
    sha256_finish(&hash, digest);
    return memcmp(digest, expected, sizeof digest) == 0;
}

/* `bytes` are those of the dictionary and the padding behind it. */
static libdecode_status check_dictionary(const struct bundle *bundle, const uint8_t *bytes) {
    const struct bundle_header *header = bundle_header(bundle);
    uint64_t padded_bytes = frames_begin(header) - dictionary_begin(header);
    if (!has_sha256(bytes, header->dictionary_bytes, header->dictionary_sha256))
        return DAMAGED(bundle, "its dictionary (%u bytes) has not the SHA-256 that its header gives", header->dictionary_bytes);
    for (uint64_t offset = header->dictionary_bytes; offset < padded_bytes; offset++)
        if (bytes[offset] != 0)
            return DAMAGED(bundle, "byte %llu behind its dictionary is not zero",
                           (unsigned long long)(dictionary_begin(header) + offset));
    if (ZSTD_getDictID_fromDict(bytes, header->dictionary_bytes) == 0)
        return DAMAGED(bundle, "its dictionary (%u bytes) is none of zstd", header->dictionary_bytes);
    return LIBDECODE_OK;
}

/*
 * The dictionary, NULL if the bundle has none. The first image that is read brings it, whichever thread reads that: of two at once
 * the second takes the first one's. Kept as bytes: a ZSTD_DDict would save some 20 us an image, but does not tell a lack of memory
 * from a dictionary that is damaged.
 */
static libdecode_status get_dictionary(const struct bundle *bundle, const uint8_t **ret_dictionary) {
    const struct bundle_header *header = bundle_header(bundle);
    *ret_dictionary = NULL;
    if (!bundle->dictionary)
        return LIBDECODE_OK;
    uint8_t *there = atomic_load_explicit(bundle->dictionary, memory_order_acquire);
    if (!there) {
        uint64_t bytes = frames_begin(header) - dictionary_begin(header);
        uint8_t *read = malloc((size_t)bytes);
        if (!read)
            return out_of_memory(bundle, "its dictionary", bytes);
        libdecode_status status = read_bytes(bundle, dictionary_begin(header), bytes, read);
        if (status == LIBDECODE_OK)
            status = check_dictionary(bundle, read);
        if (status != LIBDECODE_OK) {
            free(read);
            return status;
        }
        if (atomic_compare_exchange_strong_explicit(bundle->dictionary, &there, read, memory_order_acq_rel, memory_order_acquire))
            there = read;
        else
            free(read);
    }
    *ret_dictionary = there;
    return LIBDECODE_OK;
}

/* --------------------------------------------------------------------------------------------------------- one image */

/* Only a single, plain zstd frame of exactly the expected size, with the bundle's dictionary; no skippable and no legacy frames. */
static libdecode_status check_frame(const struct bundle *bundle, uint32_t index, const uint8_t *frame, unsigned dictionary_id) {
    const struct bundle_image *image = &bundle->images[index];
    uint32_t magic = 0;
    if (image->frame_bytes >= sizeof magic)
        memcpy(&magic, frame, sizeof magic);
    if (magic != ZSTD_MAGICNUMBER)
        return DAMAGED(bundle, "image %u is no zstd frame", index);
    size_t frame_bytes = ZSTD_findFrameCompressedSize(frame, (size_t)image->frame_bytes);
    if (ZSTD_isError(frame_bytes) || frame_bytes != image->frame_bytes)
        return DAMAGED(bundle, "image %u is not one zstd frame of %llu bytes", index, (unsigned long long)image->frame_bytes);
    if (ZSTD_getFrameContentSize(frame, frame_bytes) != image->image_bytes)
        return DAMAGED(bundle, "image %u does not announce %llu bytes", index, (unsigned long long)image->image_bytes);
    if (ZSTD_getDictID_fromFrame(frame, frame_bytes) != dictionary_id)
        return DAMAGED(bundle, "image %u needs zstd dictionary %u, the bundle has %u (0: none)", index,
                       ZSTD_getDictID_fromFrame(frame, frame_bytes), dictionary_id);
    for (uint64_t offset = image->offset + frame_bytes; offset < padded_end(bundle, image); offset++)
        if (frame[offset - image->offset] != 0)
            return DAMAGED(bundle, "byte %llu behind image %u is not zero", (unsigned long long)offset, index);
    return LIBDECODE_OK;
}

static libdecode_status decompress(const struct bundle *bundle, uint32_t index, const uint8_t *frame, uint8_t *ret_bytes) {
    const struct bundle_image *image = &bundle->images[index];
    const uint8_t *dictionary;
    FORWARD(get_dictionary(bundle, &dictionary));
    size_t dictionary_bytes = bundle_header(bundle)->dictionary_bytes;
    FORWARD(check_frame(bundle, index, frame, dictionary ? ZSTD_getDictID_fromDict(dictionary, dictionary_bytes) : 0));
    ZSTD_DCtx *context = ZSTD_createDCtx();
    if (!context)
        return out_of_memory(bundle, "decompressing an image", image->image_bytes);
    size_t got = ZSTD_decompress_usingDict(context, ret_bytes, (size_t)image->image_bytes, frame, (size_t)image->frame_bytes,
                                           dictionary, dictionary_bytes);
    (void)ZSTD_freeDCtx(context);
    if (ZSTD_isError(got) || got != image->image_bytes)
        return DAMAGED(bundle, "image %u does not decompress: %s", index,
                       ZSTD_isError(got) ? ZSTD_getErrorName(got) : "too short");
    if (!has_sha256(ret_bytes, got, image->sha256))
        return DAMAGED(bundle, "image %u has not the SHA-256 that the table gives", index);
    return LIBDECODE_OK;
}

/* The image's own word on one of its kernels against the table's. */
static libdecode_status check_image_kernel(const struct bundle *bundle, const struct bundle_kernel *kernel,
                                           const struct image_kernel *recorded) {
    const char *name = bundle->strings + kernel->name;
    if (strcmp(recorded->name, name) != 0)
        return fail(LIBDECODE_ERROR_BUNDLE_DAMAGED, "it holds no kernel '%s', which the table says, but '%s'", name,
                    recorded->name);
    if (recorded->contract_bytes != sizeof kernel->contract ||
        memcmp(recorded->contract, &kernel->contract, sizeof kernel->contract) != 0)
        return fail(LIBDECODE_ERROR_BUNDLE_DAMAGED, "kernel '%s' has another launch contract than the table says", name);
    if (recorded->parameter_bytes != kernel->contract.parameter_bytes || recorded->registers != kernel->registers)
        return fail(LIBDECODE_ERROR_BUNDLE_DAMAGED,
                    "kernel '%s' takes %u bytes of parameters and %u registers, the table says %u and %u", name,
                    recorded->parameter_bytes, recorded->registers, kernel->contract.parameter_bytes, kernel->registers);
    return LIBDECODE_OK;
}

static libdecode_status check_image(const struct bundle *bundle, uint32_t index, const uint8_t *bytes) {
    const struct bundle_image *image = &bundle->images[index];
    struct image_elf elf = {0};
    struct image_kernels recorded;
    FORWARD(image_audit(bytes, (size_t)image->image_bytes, &elf));
    if (elf.sm != image->target)
        return fail(LIBDECODE_ERROR_BUNDLE_DAMAGED, "it is for sm_%u, the table says sm_%u", elf.sm, image->target);
    if (image_kernel_count(&elf) != image->num_kernels)
        return fail(LIBDECODE_ERROR_BUNDLE_DAMAGED, "it holds %zu kernels, the table says %u", image_kernel_count(&elf),
                    image->num_kernels);
    FORWARD(image_kernels_read(&elf, &recorded));
    const uint32_t *kernels = bundle->kernels_of_images + bundle->first_of_image[index];
    libdecode_status status = LIBDECODE_OK;
    for (size_t kernel = 0; kernel < recorded.count && status == LIBDECODE_OK; kernel++) /* both are sorted by name */
        status = check_image_kernel(bundle, &bundle->kernels[kernels[kernel]], &recorded.kernels[kernel]);
    image_kernels_free(&recorded);
    return status;
}

/* The frame with its padding; *ret_owned is to be freed, NULL for a bundle in memory, which is used in place. */
static libdecode_status read_frame(const struct bundle *bundle, uint32_t index, const uint8_t **ret_frame, uint8_t **ret_owned) {
    const struct bundle_image *image = &bundle->images[index];
    if (bundle->memory) {
        *ret_frame = bundle->memory + image->offset;
        *ret_owned = NULL;
        return LIBDECODE_OK;
    }
    uint64_t bytes = padded_end(bundle, image) - image->offset;
    uint8_t *frame = malloc((size_t)bytes);
    if (!frame)
        return out_of_memory(bundle, "a compressed image", bytes);
    libdecode_status status = read_bytes(bundle, image->offset, bytes, frame);
    if (status != LIBDECODE_OK) {
        free(frame);
        return status;
    }
    *ret_frame = *ret_owned = frame;
    return LIBDECODE_OK;
}

libdecode_status bundle_read_image(const struct bundle *bundle, uint32_t image, void **ret_bytes) {
    if (image >= bundle_header(bundle)->num_images)
        return fail(LIBDECODE_ERROR_INTERNAL, "bundle %s: image %u of %u was asked for; please report this", bundle->path, image,
                    bundle_header(bundle)->num_images);
    const uint8_t *frame = NULL;
    uint8_t *owned_frame = NULL;
    FORWARD(read_frame(bundle, image, &frame, &owned_frame));
    size_t image_bytes = (size_t)bundle->images[image].image_bytes;
    size_t buffer_bytes = (image_bytes + IMAGE_SLACK_BYTES + IMAGE_ALIGNMENT - 1) / IMAGE_ALIGNMENT * IMAGE_ALIGNMENT;
    uint8_t *bytes = aligned_alloc(IMAGE_ALIGNMENT, buffer_bytes);
    libdecode_status status = bytes ? decompress(bundle, image, frame, bytes) : out_of_memory(bundle, "an image", buffer_bytes);
    free(owned_frame);
    if (status == LIBDECODE_OK) {
        memset(bytes + image_bytes, 0, buffer_bytes - image_bytes);
        status = check_image(bundle, image, bytes);
        if (status == LIBDECODE_ERROR_BUNDLE_DAMAGED)
            status = fail(status, "bundle %s, image %u: %s; the file is damaged, install or build it again", bundle->path, image,
                          libdecode_error_message());
    }
    if (status != LIBDECODE_OK) {
        free(bytes);
        return status;
    }
    *ret_bytes = bytes;
    return LIBDECODE_OK;
}
