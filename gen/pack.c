/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The manifest of one GPU family and the images that it names in, one bundle out (bundle_format.h).
 * Before: gen/grid.py wrote the manifest, nvcc the images. Next: loader/bundle.c reads the bundle.
 *
 * Every kernel's launch contract is lifted out of its image and held against what the image itself records (lift.c). Images of
 * one family are much alike: with a dictionary, which is trained on them, each is compressed to what it has of its own. The bytes
 * depend on the images, the compression level, the size of the dictionary and zstd alone: no clock, no path, no environment.
 */
#include <errno.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <zdict.h>
#include <zstd.h>

#include "bundle_format.h"
#include "family.h"
#include "image.h"
#include "lift.h"
#include "sha256.h"
#include "target.h"

struct packed_kernel {
    const char *name;
    bool may_spill;
    struct bundle_kernel record;
};

struct packed_image {
    const char *file;
    uint8_t *bytes; /* uncompressed, until the frame is there */
    uint8_t *frame;
    uint32_t family; /* of its kernels */
    struct bundle_image record;
};

struct packing {
    char *manifest;  /* cut into the names below */
    uint32_t target; /* 90, 100, 120 */
    struct packed_kernel *kernels;
    size_t num_kernels;
    struct packed_image *images;
    size_t num_images;
    uint8_t *dictionary; /* NULL: none */
    uint32_t dictionary_bytes;
};

struct options {
    const char *manifest, *images, *output, *tally;
    uint32_t toolkit; /* 13000 */
    int level;
    uint32_t dictionary_bytes; /* 0: none */
};

#define MIN_DICTIONARY_BYTES 1024 /* zstd's tables alone take some hundred */

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static uint64_t align_8(uint64_t bytes) { return (bytes + 7) & ~(uint64_t)7; }

/* ------------------------------------------------------------------------------------------------------- manifest -> packing */

/* The whole file, with a NUL behind it. */
static bool read_file(const char *path, size_t max_bytes, uint8_t **ret_bytes, size_t *ret_size) {
    FILE *file = fopen(path, "rb");
    uint8_t *bytes = NULL;
    size_t size = 0, capacity = 0;

    if (file == NULL)
        return refuse("%s: %s", path, strerror(errno));
    while (!feof(file) && !ferror(file) && size <= max_bytes) {
        if (size + 1 >= capacity) {
            capacity = capacity == 0 ? 1 << 17 : 2 * capacity;
            uint8_t *more = realloc(bytes, capacity);
            if (more == NULL)
                break;
            bytes = more;
        }
        size += fread(bytes + size, 1, capacity - 1 - size, file);
    }
    bool done = feof(file) && size <= max_bytes;
    if (!done && size > max_bytes)
        refuse("%s: more than %zu bytes", path, max_bytes);
    else if (!done)
        refuse("%s: %s", path, strerror(errno));
    fclose(file);
    if (!done) {
        free(bytes);
        return false;
    }
    bytes[size] = '\0';
    *ret_bytes = bytes;
    *ret_size = size;
    return true;
}

/* "sm_100,sm_103" to bits; `text` is cut up. */
static bool parse_gpus(const char *where, char *text, uint32_t target, uint32_t *ret_gpus) {
    uint32_t gpus = 0;

    for (char *name = text; name != NULL;) {
        char *comma = strchr(name, ',');
        if (comma != NULL)
            *comma = '\0';
        uint32_t bit = gpu_bit_of_name(name) & target_gpus(target);
        if (bit == 0)
            return refuse("%s: '%s' is no GPU that an image for sm_%u serves", where, name, target);
        gpus |= bit;
        name = comma != NULL ? comma + 1 : NULL;
    }
    *ret_gpus = gpus;
    return true;
}

/* One line of the manifest, split at its tabs. */
static bool take_line(struct packing *packing, const char *where, char *fields[4], size_t num_fields) {
    if (num_fields == 2 && strcmp(fields[0], "target") == 0 && packing->target == 0) {
        packing->target = (uint32_t)strtoul(fields[1], NULL, 10);
        return packing->target != 0 || refuse("%s: '%s' is no SM number", where, fields[1]);
    }
    if (packing->target == 0)
        return refuse("%s: the first line must be 'target <sm number>'", where);
    if (num_fields == 2 && strcmp(fields[0], "image") == 0) {
        struct packed_image *image = &packing->images[packing->num_images++];
        image->file = fields[1];
        image->record.target = packing->target;
        return true;
    }
    if (num_fields == 4 && strcmp(fields[0], "kernel") == 0 && packing->num_images > 0) {
        struct packed_kernel *kernel = &packing->kernels[packing->num_kernels++];
        kernel->name = fields[1];
        kernel->may_spill = fields[3][0] != '\0'; /* the reason stands in the grid */
        kernel->record.image = (uint32_t)(packing->num_images - 1);
        packing->images[packing->num_images - 1].record.num_kernels++;
        if (kernel->name[0] == '\0' || strlen(kernel->name) >= BUNDLE_MAX_NAME_BYTES)
            return refuse("%s: the name of a kernel has 1 to %u bytes, this one %zu", where, BUNDLE_MAX_NAME_BYTES - 1,
                          strlen(kernel->name));
        return parse_gpus(where, fields[2], packing->target, &kernel->record.gpus);
    }
    return refuse("%s: not a line of a manifest: '%s' with %zu fields", where, fields[0], num_fields);
}

static bool parse_manifest(const char *path, char *text, struct packing *packing) {
    size_t line_number = 0;

    for (char *line = text, *end; *line != '\0'; line = end + 1) {
        char where[512], *fields[4] = {line, NULL, NULL, NULL};
        size_t num_fields = 1;
        snprintf(where, sizeof(where), "%s:%zu", path, ++line_number);
        end = strchr(line, '\n');
        if (end == NULL)
            return refuse("%s: the last line has no end: the manifest is cut off", where);
        *end = '\0';
        for (char *tab = strchr(line, '\t'); tab != NULL; tab = strchr(tab + 1, '\t')) {
            if (num_fields == COUNT(fields))
                return refuse("%s: more than %zu fields", where, COUNT(fields));
            *tab = '\0';
            fields[num_fields++] = tab + 1;
        }
        if (packing->num_images >= BUNDLE_MAX_IMAGES || packing->num_kernels >= BUNDLE_MAX_KERNELS)
            return refuse("%s: a bundle holds less than %u images and kernels", where, BUNDLE_MAX_KERNELS);
        if (!take_line(packing, where, fields, num_fields))
            return false;
    }
    return packing->num_kernels > 0 || refuse("%s: names no kernel", path);
}

static bool read_manifest(const char *path, struct packing *packing) {
    uint8_t *bytes;
    size_t size, num_lines = 0;

    if (!read_file(path, BUNDLE_MAX_STRINGS_BYTES, &bytes, &size))
        return false;
    packing->manifest = (char *)bytes;
    for (size_t index = 0; index < size; index++)
        num_lines += bytes[index] == '\n';
    /* No more images and kernels than lines. */
    packing->images = calloc(num_lines + 1, sizeof(packing->images[0]));
    packing->kernels = calloc(num_lines + 1, sizeof(packing->kernels[0]));
    if (packing->images == NULL || packing->kernels == NULL)
        return refuse("%s: out of memory", path);
    return parse_manifest(path, packing->manifest, packing);
}

/* ----------------------------------------------------------------------------------------------------------- image -> frame */

static bool lift_kernels(const char *path, const struct image_kernels *recorded, struct packing *packing, size_t image) {
    for (size_t index = 0; index < packing->num_kernels; index++) {
        struct packed_kernel *kernel = &packing->kernels[index];
        if (kernel->record.image != image)
            continue;
        const struct image_kernel *found = image_kernels_find(recorded, kernel->name);
        if (found == NULL)
            return refuse("%s: the cubin holds no kernel '%s'", path, kernel->name);
        if (!lift_contract(path, found, packing->target, kernel->may_spill, &kernel->record.contract, &kernel->record.registers))
            return false;
        packing->images[image].family = kernel->record.contract.family;
    }
    return true;
}

static bool check_image(const char *path, const uint8_t *bytes, size_t size, struct packing *packing, size_t image) {
    struct image_elf elf;
    struct image_kernels recorded;

    if (image_audit(bytes, size, &elf) != LIBDECODE_OK)
        return refuse("%s: %s", path, libdecode_error_message());
    if (elf.sm != packing->target)
        return refuse("%s: compiled for sm_%u, the manifest is that of sm_%u", path, elf.sm, packing->target);
    if (image_kernel_count(&elf) != packing->images[image].record.num_kernels)
        return refuse("%s: holds %zu kernels, the manifest declares %u", path, image_kernel_count(&elf),
                      packing->images[image].record.num_kernels);
    if (image_kernels_read(&elf, &recorded) != LIBDECODE_OK)
        return refuse("%s: %s", path, libdecode_error_message());
    bool done = lift_kernels(path, &recorded, packing, image);
    image_kernels_free(&recorded);
    return done;
}

static void hash_of(const void *data, size_t bytes, uint8_t ret_digest[32]) {
    struct sha256 hash;

    sha256_init(&hash);
    sha256_update(&hash, data, bytes);
    sha256_finish(&hash, ret_digest);
}

static bool read_images(const struct options *options, struct packing *packing) {
    uint64_t all_bytes = 0;

    for (size_t index = 0; index < packing->num_images; index++) {
        struct packed_image *image = &packing->images[index];
        char path[4096];
        size_t size;
        if ((size_t)snprintf(path, sizeof(path), "%s/%s", options->images, image->file) >= sizeof(path))
            return refuse("%s: the path of image '%s' is too long", options->images, image->file);
        if (!read_file(path, BUNDLE_MAX_IMAGE_BYTES, &image->bytes, &size) ||
            !check_image(path, image->bytes, size, packing, index))
            return false;
        image->record.image_bytes = size;
        hash_of(image->bytes, size, image->record.sha256);
        all_bytes += size;
        if (all_bytes > BUNDLE_MAX_ALL_IMAGES_BYTES)
            return refuse("%s: images of more than %llu bytes, which is the limit of a bundle", options->manifest,
                          (unsigned long long)BUNDLE_MAX_ALL_IMAGES_BYTES);
    }
    return true;
}

/* One sample is one image: what many of them have in common goes into the dictionary. */
static bool train_dictionary(const struct options *options, struct packing *packing) {
    size_t all_bytes = 0, next = 0;

    if (options->dictionary_bytes == 0)
        return true;
    for (size_t index = 0; index < packing->num_images; index++)
        all_bytes += packing->images[index].record.image_bytes;
    uint8_t *samples = malloc(all_bytes);
    size_t *sample_bytes = calloc(packing->num_images, sizeof(sample_bytes[0]));
    packing->dictionary = malloc(options->dictionary_bytes);
    bool done = samples != NULL && sample_bytes != NULL && packing->dictionary != NULL;
    if (!done)
        refuse("%s: out of memory for samples of %zu bytes", options->manifest, all_bytes);
    for (size_t index = 0; done && index < packing->num_images; index++) {
        sample_bytes[index] = packing->images[index].record.image_bytes;
        memcpy(samples + next, packing->images[index].bytes, sample_bytes[index]);
        next += sample_bytes[index];
    }
    if (done) {
        size_t trained = ZDICT_trainFromBuffer(packing->dictionary, options->dictionary_bytes, samples, sample_bytes,
                                               (unsigned)packing->num_images);
        done = !ZDICT_isError(trained) ||
               refuse("%s: %zu images of %zu bytes make no dictionary of %u bytes (%s); leave it out", options->manifest,
                      packing->num_images, all_bytes, options->dictionary_bytes, ZDICT_getErrorName(trained));
        packing->dictionary_bytes = (uint32_t)trained;
    }
    free(samples);
    free(sample_bytes);
    return done;
}

static bool compress_image(ZSTD_CCtx *compressor, struct packed_image *image) {
    size_t bytes = image->record.image_bytes, capacity = ZSTD_compressBound(bytes);

    image->frame = malloc(capacity);
    if (image->frame == NULL)
        return refuse("%s: out of memory", image->file);
    size_t frame_bytes = ZSTD_compress2(compressor, image->frame, capacity, image->bytes, bytes);
    if (ZSTD_isError(frame_bytes))
        return refuse("%s: zstd: %s", image->file, ZSTD_getErrorName(frame_bytes));
    image->record.frame_bytes = frame_bytes;
    free(image->bytes);
    image->bytes = NULL;
    return true;
}

static bool compress_images(const struct options *options, struct packing *packing) {
    ZSTD_CCtx *compressor = ZSTD_createCCtx();

    if (compressor == NULL)
        return refuse("%s: out of memory", options->manifest);
    ZSTD_CCtx_setParameter(compressor, ZSTD_c_compressionLevel, options->level);
    ZSTD_CCtx_setParameter(compressor, ZSTD_c_contentSizeFlag, 1);
    ZSTD_CCtx_setParameter(compressor, ZSTD_c_checksumFlag, 1);
    size_t result = ZSTD_CCtx_loadDictionary(compressor, packing->dictionary, packing->dictionary_bytes);
    bool done = !ZSTD_isError(result) || refuse("%s: zstd: %s", options->manifest, ZSTD_getErrorName(result));
    for (size_t index = 0; done && index < packing->num_images; index++)
        done = compress_image(compressor, &packing->images[index]);
    ZSTD_freeCCtx(compressor);
    return done;
}

/* --------------------------------------------------------------------------------------------------------- packing -> bundle */

static int compare_names(const void *left, const void *right) {
    return strcmp(((const struct packed_kernel *)left)->name, ((const struct packed_kernel *)right)->name);
}

/* Sorts by name, and refuses two records that selection could not tell apart. */
static bool sort_kernels(const struct options *options, struct packing *packing) {
    qsort(packing->kernels, packing->num_kernels, sizeof(packing->kernels[0]), compare_names);
    for (size_t index = 0; index < packing->num_kernels; index++) {
        const struct packed_kernel *kernel = &packing->kernels[index];
        for (size_t other = index + 1; other < packing->num_kernels; other++) {
            const struct packed_kernel *later = &packing->kernels[other];
            if (strcmp(kernel->name, later->name) == 0)
                return refuse("%s: two kernels are called %s", options->manifest, kernel->name);
            if ((kernel->record.gpus & later->record.gpus) != 0 &&
                memcmp(&kernel->record.contract, &later->record.contract, sizeof(later->record.contract)) == 0)
                return refuse("%s: %s and %s have one and the same contract on the same GPU: nothing tells them apart (does the "
                              "source use every axis of its grid?)",
                              options->manifest, kernel->name, later->name);
        }
    }
    return true;
}

/* Places every frame and fills the header. The strings are "" and the names, in the order of the kernels. */
static void lay_out(const struct options *options, struct packing *packing, struct bundle_header *header) {
    uint64_t strings_bytes = 1, offset;

    *header = (struct bundle_header){
        .version = BUNDLE_VERSION,
        .kernel_abi = LIBDECODE_KERNEL_ABI,
        .num_kernels = (uint32_t)packing->num_kernels,
        .num_images = (uint32_t)packing->num_images,
        .dictionary_bytes = packing->dictionary_bytes,
        .toolkit = options->toolkit,
        .min_driver = options->toolkit / 1000 * 1000, /* within a major version, any driver runs any toolkit's images */
    };
    memcpy(header->magic, BUNDLE_MAGIC, sizeof(header->magic));
    for (size_t index = 0; index < packing->num_kernels; index++) {
        packing->kernels[index].record.name = (uint32_t)strings_bytes;
        strings_bytes += strlen(packing->kernels[index].name) + 1;
        header->gpus |= packing->kernels[index].record.gpus;
    }
    header->strings_bytes = align_8(strings_bytes);
    header->tables_bytes = sizeof(*header) + packing->num_kernels * sizeof(struct bundle_kernel) +
                           packing->num_images * sizeof(struct bundle_image) + header->strings_bytes;
    if (packing->dictionary_bytes > 0)
        hash_of(packing->dictionary, packing->dictionary_bytes, header->dictionary_sha256);
    offset = header->tables_bytes + align_8(packing->dictionary_bytes);
    for (size_t index = 0; index < packing->num_images; index++) {
        packing->images[index].record.offset = offset;
        offset += align_8(packing->images[index].record.frame_bytes);
    }
    header->file_bytes = offset;
}

/* All bytes of the bundle, in fresh memory. */
static uint8_t *build_bundle(const struct packing *packing, struct bundle_header *header) {
    uint8_t *bytes = calloc(1, header->file_bytes), *next = bytes;

    if (bytes == NULL)
        return NULL;
    memcpy(next, header, sizeof(*header));
    next += sizeof(*header);
    for (size_t index = 0; index < packing->num_kernels; index++, next += sizeof(struct bundle_kernel))
        memcpy(next, &packing->kernels[index].record, sizeof(struct bundle_kernel));
    for (size_t index = 0; index < packing->num_images; index++, next += sizeof(struct bundle_image))
        memcpy(next, &packing->images[index].record, sizeof(struct bundle_image));
    for (size_t index = 0; index < packing->num_kernels; index++)
        memcpy(next + packing->kernels[index].record.name, packing->kernels[index].name, strlen(packing->kernels[index].name));
    if (packing->dictionary_bytes > 0)
        memcpy(bytes + header->tables_bytes, packing->dictionary, packing->dictionary_bytes);
    for (size_t index = 0; index < packing->num_images; index++) {
        const struct packed_image *image = &packing->images[index];
        memcpy(bytes + image->record.offset, image->frame, image->record.frame_bytes);
    }
    sha256_of_halves(bytes, header->tables_bytes, header->root_hash);
    memcpy(bytes, header, sizeof(*header));
    return bytes;
}

/* What tally.py makes a table of. Kernels of one family have names that begin alike, so they stand together. */
static void print_tally(const struct packing *packing, const struct bundle_header *header, FILE *file) {
    fprintf(file, "bundle\t%u\t%llu\t%llu\t%u\n", packing->target, (unsigned long long)header->file_bytes,
            (unsigned long long)header->tables_bytes, header->dictionary_bytes);
    for (size_t first = 0, end; first < packing->num_kernels; first = end) {
        uint32_t family = packing->kernels[first].record.contract.family;
        uint64_t num_images = 0, image_bytes = 0, frame_bytes = 0;
        for (end = first; end < packing->num_kernels && packing->kernels[end].record.contract.family == family; end++)
            continue;
        for (size_t image = 0; image < packing->num_images; image++) {
            if (packing->images[image].family != family)
                continue;
            num_images++;
            image_bytes += packing->images[image].record.image_bytes;
            frame_bytes += packing->images[image].record.frame_bytes;
        }
        fprintf(file, "family\t%s\t%u\t%zu\t%llu\t%llu\t%llu\n", family_find(family)->name, packing->target, end - first,
                (unsigned long long)num_images, (unsigned long long)image_bytes, (unsigned long long)frame_bytes);
    }
}

static bool write_tally(const struct options *options, const struct packing *packing, const struct bundle_header *header) {
    if (options->tally == NULL)
        return true;
    FILE *file = fopen(options->tally, "w");
    if (file != NULL)
        print_tally(packing, header, file);
    bool done = file != NULL && !ferror(file);
    done = file != NULL && fclose(file) == 0 && done;
    return done || refuse("%s: %s", options->tally, strerror(errno));
}

static bool write_bundle(const struct options *options, struct packing *packing) {
    struct bundle_header header;

    lay_out(options, packing, &header);
    if (header.strings_bytes > BUNDLE_MAX_STRINGS_BYTES)
        return refuse("%s: %llu bytes of names, at most %u are allowed", options->manifest,
                      (unsigned long long)header.strings_bytes, BUNDLE_MAX_STRINGS_BYTES);
    if (!write_tally(options, packing, &header))
        return false;
    uint8_t *bytes = build_bundle(packing, &header);
    if (bytes == NULL)
        return refuse("%s: out of memory for %llu bytes", options->output, (unsigned long long)header.file_bytes);
    FILE *file = fopen(options->output, "wb");
    bool done = file != NULL && fwrite(bytes, 1, header.file_bytes, file) == header.file_bytes;
    done = file != NULL && fclose(file) == 0 && done;
    free(bytes);
    if (!done) {
        refuse("%s: %s", options->output, strerror(errno));
        if (file != NULL)
            remove(options->output); /* half a bundle must not look like a built one */
    }
    return done;
}

/* -------------------------------------------------------------------------------------------------------------- command line */

static const char usage[] = "usage: pack --manifest FILE --images FOLDER --toolkit MAJOR.MINOR --level N [--dictionary BYTES]\n"
                            "            [--tally FILE] --output FILE\n"
                            "Checks the images that the manifest names and packs them into one bundle.\n"
                            "  --toolkit     version of the nvcc that made the images, 13.0\n"
                            "  --level       of zstd, 1 to 22\n"
                            "  --dictionary  size of the zstd dictionary that the images share; 0, the default: none\n"
                            "  --tally       where to write what the bundle holds, for tally.py\n";

static bool parse_options(int argc, char **argv, struct options *ret_options) {
    static const struct option known[] = {
        {"manifest", required_argument, NULL, 'm'}, {"images", required_argument, NULL, 'i'},
        {"output", required_argument, NULL, 'o'},   {"toolkit", required_argument, NULL, 't'},
        {"level", required_argument, NULL, 'l'},    {"dictionary", required_argument, NULL, 'd'},
        {"tally", required_argument, NULL, 'y'},    {NULL, 0, NULL, 0},
    };
    struct options options = {0};
    unsigned major = 0, minor = 0;
    long dictionary_bytes = 0;

    for (int option; (option = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        switch (option) {
        case 'm':
            options.manifest = optarg;
            break;
        case 'i':
            options.images = optarg;
            break;
        case 'o':
            options.output = optarg;
            break;
        case 'l':
            options.level = (int)strtol(optarg, NULL, 10);
            break;
        case 'y':
            options.tally = optarg;
            break;
        case 'd':
            if (sscanf(optarg, "%ld", &dictionary_bytes) != 1)
                return refuse("--dictionary %s is no number of bytes", optarg);
            break;
        case 't':
            if (sscanf(optarg, "%u.%u", &major, &minor) != 2 || major > 1000 || minor > 99)
                return refuse("--toolkit %s is not MAJOR.MINOR", optarg);
            break;
        default:
            return false;
        }
    }
    options.toolkit = major * 1000 + minor * 10;
    if (optind != argc || options.manifest == NULL || options.images == NULL || options.output == NULL || options.toolkit == 0)
        return false;
    if (options.level < 1 || options.level > ZSTD_maxCLevel())
        return refuse("--level %d: accepted are 1 to %d", options.level, ZSTD_maxCLevel());
    if (dictionary_bytes != 0 &&
        (dictionary_bytes < MIN_DICTIONARY_BYTES || dictionary_bytes > (long)BUNDLE_MAX_DICTIONARY_BYTES))
        return refuse("--dictionary %ld: accepted are 0 and %d to %u", dictionary_bytes, MIN_DICTIONARY_BYTES,
                      BUNDLE_MAX_DICTIONARY_BYTES);
    options.dictionary_bytes = (uint32_t)dictionary_bytes;
    *ret_options = options;
    return true;
}

static void destroy(struct packing *packing) {
    for (size_t index = 0; index < packing->num_images; index++) {
        free(packing->images[index].bytes);
        free(packing->images[index].frame);
    }
    free(packing->dictionary);
    free(packing->manifest);
    free(packing->kernels);
    free(packing->images);
}

int main(int argc, char **argv) {
    struct options options;
    struct packing packing = {0};

    if (!parse_options(argc, argv, &options)) {
        fputs(usage, stderr);
        return 2;
    }
    bool done = read_manifest(options.manifest, &packing) && read_images(&options, &packing) &&
                sort_kernels(&options, &packing) && train_dictionary(&options, &packing) && compress_images(&options, &packing) &&
                write_bundle(&options, &packing);
    destroy(&packing);
    return done ? 0 : 1;
}
