/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_bundle_hostile.c: bundles that were made to do harm: a right root hash over one fact that is not true, a frame that is
 * not what it says. Under test: loader/bundle.c, contract.c. What merely broke: test_bundle.c.
 */
#define _POSIX_C_SOURCE 200809L /* mkstemp, truncate under -std=c17 */

#include "bundle_scene.h"
#include "workspace.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>
#include <zstd.h>

static uint8_t *honest;
static size_t honest_bytes;

static int make_honest(void **state) {
    (void)state;
    honest = fixture_bundle(scene_kernels, NUM_KERNELS, &honest_bytes);
    return 0;
}

static int remove_honest(void **state) {
    (void)state;
    free(honest);
    return 0;
}

/* One fact that is not true. 4 or 8 bytes at an offset of a table entry become `value`. */
enum table { HEADER, KERNEL, IMAGE };
struct lie {
    enum table table;
    uint32_t index;
    size_t offset, bytes;
    uint64_t value;
    const char *expected;
};
#define HEADER_LIE(field, value, expected)                                                                                       \
    { HEADER, 0, offsetof(struct bundle_header, field), sizeof(((struct bundle_header *)0)->field), value, expected }
#define KERNEL_LIE(index, field, value, expected)                                                                                \
    { KERNEL, index, offsetof(struct bundle_kernel, field), sizeof(((struct bundle_kernel *)0)->field), value, expected }
#define IMAGE_LIE(index, field, value, expected)                                                                                 \
    { IMAGE, index, offsetof(struct bundle_image, field), sizeof(((struct bundle_image *)0)->field), value, expected }
#define CONTRACT_LIE(field, value) KERNEL_LIE(0, contract.field, value, "launch contract that no kernel can have")
/* What a later kernel could say is no damage (test_contract.c), until its image is read. */
#define LATER_LIE(field, value) KERNEL_LIE(0, contract.field, value, "has another launch contract than the table says")

/* clang-format off: one lie a line */
static const struct lie lies[] = {
    HEADER_LIE(file_bytes, 1, "its header says 1"),
    HEADER_LIE(file_bytes, UINT64_MAX, "its header says"),
    HEADER_LIE(tables_bytes, 0, "tables of"),
    HEADER_LIE(tables_bytes, UINT64_MAX, "tables of"),
    HEADER_LIE(num_kernels, 0, "beyond the limits"),
    HEADER_LIE(num_kernels, NUM_KERNELS - 1, "tables of"),
    HEADER_LIE(num_kernels, NUM_KERNELS + 1, "tables of"),
    HEADER_LIE(num_kernels, UINT32_MAX, "beyond the limits"),
    HEADER_LIE(num_images, 0, "beyond the limits"),
    HEADER_LIE(num_images, UINT32_MAX, "beyond the limits"),
    HEADER_LIE(strings_bytes, 0, "beyond the limits"),
    HEADER_LIE(strings_bytes, UINT64_MAX, "beyond the limits"),
    HEADER_LIE(strings_bytes, UINT64_MAX - 1000, "beyond the limits"),
    HEADER_LIE(gpus, BUNDLE_GPU_SM90, "its header claims GPUs 0x1"),
    HEADER_LIE(dictionary_bytes, 8, "not where it must be"),
    HEADER_LIE(dictionary_bytes, BUNDLE_MAX_DICTIONARY_BYTES, "a dictionary of 1048576 bytes"),
    HEADER_LIE(dictionary_bytes, BUNDLE_MAX_DICTIONARY_BYTES + 1, "a dictionary of 1048577 bytes"),
    HEADER_LIE(dictionary_bytes, UINT32_MAX, "a dictionary of 4294967295 bytes"),
    {HEADER, 0, offsetof(struct bundle_header, dictionary_sha256) + 28, 4, 1, "but a dictionary of 0 bytes"},
    KERNEL_LIE(0, name, 0, "no proper name"),
    KERNEL_LIE(0, name, UINT32_MAX, "no proper name"),
    KERNEL_LIE(1, name, 1, "out of order or there twice"),
    KERNEL_LIE(0, image, NUM_IMAGES, "is in image 3 of 3"),
    KERNEL_LIE(0, image, UINT32_MAX, "of 3"),
    KERNEL_LIE(0, gpus, 0, "claims GPUs 0x0"),
    KERNEL_LIE(0, gpus, BUNDLE_GPU_SM90 | BUNDLE_GPU_SM100, "claims GPUs 0x3 with an image for sm_90"),
    KERNEL_LIE(2, gpus, 1u << 5, "claims GPUs 0x20"),
    KERNEL_LIE(0, registers, FIXTURE_REGISTERS + 1, "96 registers, the table says"),
    IMAGE_LIE(0, offset, 0, "not where it must be"),
    IMAGE_LIE(0, offset, UINT64_MAX - 7, "not where it must be"),
    IMAGE_LIE(1, offset, 128, "not where it must be"),
    IMAGE_LIE(0, frame_bytes, 0, "not where it must be"),
    IMAGE_LIE(0, frame_bytes, UINT64_MAX, "not where it must be"),
    IMAGE_LIE(0, image_bytes, 1, "zstd makes at most"),
    IMAGE_LIE(2, frame_bytes, 8, "its last image ends before"),
    IMAGE_LIE(0, image_bytes, 0, "accepted is 1 to"),
    IMAGE_LIE(0, image_bytes, (uint64_t)BUNDLE_MAX_IMAGE_BYTES + 1, "accepted is 1 to"),
    IMAGE_LIE(0, image_bytes, BUNDLE_MAX_IMAGE_BYTES, "does not announce"),
    IMAGE_LIE(0, image_bytes, 4096, "does not announce"),
    IMAGE_LIE(0, target, 80, "accepted is sm_90, sm_100 or sm_120"),
    IMAGE_LIE(0, target, 120, "with an image for sm_120"),
    IMAGE_LIE(0, num_kernels, 1, "is said to hold 1 kernels, the table has 2"),
    IMAGE_LIE(1, num_kernels, 0, "is said to hold 0"),
    IMAGE_LIE(0, sha256[0], 0, "has not the SHA-256"),
    CONTRACT_LIE(magic, 0),
    CONTRACT_LIE(abi, LIBDECODE_KERNEL_ABI + 1),
    CONTRACT_LIE(family, 0),
    CONTRACT_LIE(parameter_bytes, 0),
    LATER_LIE(parameter_bytes, sizeof(struct gqa_decode_params) - 8),
    CONTRACT_LIE(parameter_bytes, UINT32_MAX),
    CONTRACT_LIE(threads, 0),
    CONTRACT_LIE(threads, 33),
    CONTRACT_LIE(threads, 1056),
    CONTRACT_LIE(dynamic_shared_bytes, 228 * 1024 + 1),
    CONTRACT_LIE(ctas_per_sm, 0),
    CONTRACT_LIE(ctas_per_sm, 33),
    CONTRACT_LIE(cluster_size, 0),
    CONTRACT_LIE(cluster_size, 3),
    CONTRACT_LIE(cluster_size, 32),
    CONTRACT_LIE(query_dtypes, 0),
    LATER_LIE(query_dtypes, 1u << 5),
    LATER_LIE(kv_dtype, 0),
    LATER_LIE(kv_dtype, UINT32_MAX),
    CONTRACT_LIE(out_dtypes, 0),
    LATER_LIE(out_dtypes, 1),
    LATER_LIE(out_dtypes, 1u << 31),
    CONTRACT_LIE(head_dim, 0),
    LATER_LIE(head_dim, 1025),
    CONTRACT_LIE(row_tile, 0),
    CONTRACT_LIE(row_tile, 1025),
    CONTRACT_LIE(tile_tokens, 0),
    CONTRACT_LIE(tile_tokens, UINT32_MAX),
    CONTRACT_LIE(max_box_tokens, 0),
    CONTRACT_LIE(max_box_tokens, UINT32_MAX),
    LATER_LIE(max_box_tokens, 257),
    CONTRACT_LIE(stages, 0),
    CONTRACT_LIE(stages, 65),
    CONTRACT_LIE(min_page_size, 0),
    CONTRACT_LIE(min_page_size, 17),
    CONTRACT_LIE(min_page_size, 2048),
    CONTRACT_LIE(max_page_size, 0),
    LATER_LIE(max_page_size, 1u << 21),
    CONTRACT_LIE(max_q_len, 0),
    CONTRACT_LIE(max_q_len, UINT32_MAX),
    CONTRACT_LIE(record_bytes, 0),
    CONTRACT_LIE(record_bytes, 4),
    CONTRACT_LIE(record_bytes, UINT32_MAX),
    CONTRACT_LIE(scratch_bytes, 8),
    CONTRACT_LIE(scratch_bytes, (WORKSPACE_SCRATCH_BYTES_PER_SM / 2 / 16 + 1) * 16),
    CONTRACT_LIE(scratch_bytes, UINT32_MAX - 15),
    LATER_LIE(family, KERNEL_FAMILY_READ_CEILING),
    LATER_LIE(family, 77),
    LATER_LIE(stages, 4),
    CONTRACT_LIE(consumer_warps, 0),
    CONTRACT_LIE(consumer_warps, 6), /* of five */
    CONTRACT_LIE(consumer_warps, UINT32_MAX),
    LATER_LIE(consumer_warps, 5),
    LATER_LIE(reserved[0], 1),
};
/* clang-format on */

static void every_false_fact_under_a_right_root_hash_is_noticed(void **state) {
    (void)state;
    for (size_t index = 0; index < sizeof lies / sizeof lies[0]; index++) {
        const struct lie *lie = &lies[index];
        uint8_t *hostile = copy_of(honest, honest_bytes);
        uint8_t *entry = lie->table == HEADER   ? hostile
                         : lie->table == KERNEL ? (uint8_t *)(fixture_kernels(hostile) + lie->index)
                                                : (uint8_t *)(fixture_images(hostile) + lie->index);
        memcpy(entry + lie->offset, &lie->value, lie->bytes);
        if (entry != hostile || lie->offset != offsetof(struct bundle_header, tables_bytes))
            fixture_seal(hostile, honest_bytes);
        assert_int_equal(open_and_read(hostile, honest_bytes), LIBDECODE_ERROR_BUNDLE_DAMAGED);
        assert_message_has(lie->expected);
        free(hostile);
    }
}

static void a_wrong_root_hash_is_named(void **state) {
    (void)state;
    uint8_t *altered = copy_of(honest, honest_bytes);
    fixture_header(altered)->min_driver = 12000;
    assert_int_equal(open_and_read(altered, honest_bytes), LIBDECODE_ERROR_BUNDLE_DAMAGED);
    assert_message_has("is not the root hash in its header");
    free(altered);
}

static void names_are_lower_case_digits_and_underscores_and_end_inside_the_strings(void **state) {
    (void)state;
    static const char bad[] = {'A', '-', '.', ' ', '/', '\n', '\x7f', (char)0x80, '%'};
    for (size_t index = 0; index < sizeof bad; index++) {
        uint8_t *hostile = copy_of(honest, honest_bytes);
        fixture_strings(hostile)[fixture_kernels(hostile)[0].name + 2] = bad[index];
        fixture_seal(hostile, honest_bytes);
        assert_int_equal(open_and_read(hostile, honest_bytes), LIBDECODE_ERROR_BUNDLE_DAMAGED);
        assert_message_has("hold other than lower case, digits and underscores");
        free(hostile);
    }
    uint8_t *hostile = copy_of(honest, honest_bytes);
    fixture_strings(hostile)[0] = 'a';
    fixture_seal(hostile, honest_bytes);
    assert_int_equal(open_and_read(hostile, honest_bytes), LIBDECODE_ERROR_BUNDLE_DAMAGED);
    assert_message_has("do not begin and end with NUL");
    memcpy(hostile, honest, honest_bytes);
    memset(fixture_strings(hostile), 'a', (size_t)fixture_header(hostile)->strings_bytes);
    fixture_strings(hostile)[0] = '\0';
    fixture_seal(hostile, honest_bytes);
    assert_int_equal(open_and_read(hostile, honest_bytes), LIBDECODE_ERROR_BUNDLE_DAMAGED);
    assert_message_has("do not begin and end with NUL");
    free(hostile);
}

static void a_name_has_at_most_127_characters(void **state) {
    (void)state;
    char name[BUNDLE_MAX_NAME_BYTES + 1];
    memset(name, 'a', sizeof name);
    for (size_t length = BUNDLE_MAX_NAME_BYTES - 1; length <= BUNDLE_MAX_NAME_BYTES; length++) {
        size_t bytes;
        name[length] = '\0';
        const struct fixture_kernel kernel = {.name = name, .target = 90};
        uint8_t *bundle = fixture_bundle(&kernel, 1, &bytes);
        assert_int_equal(open_and_read(bundle, bytes),
                         length < BUNDLE_MAX_NAME_BYTES ? LIBDECODE_OK : LIBDECODE_ERROR_BUNDLE_DAMAGED);
        free(bundle);
        name[length] = 'a';
    }
}

/* A bundle of one kernel whose image or frame is `altered`; what opening and reading it says. */
static libdecode_status read_with(const struct fixture_image_bytes *altered) {
    const struct fixture_kernel kernel = {.name = "alpha_sm90", .target = 90};
    size_t bytes;
    uint8_t *bundle = fixture_assemble(&kernel, 1, altered, 1, &bytes);
    libdecode_status status = open_and_read(bundle, bytes);
    free(bundle);
    return status;
}

static void assert_frame_is_refused(const struct fixture_image_bytes *image, const void *frame, size_t frame_bytes,
                                    const char *expected) {
    struct fixture_image_bytes altered = *image;
    altered.frame = frame;
    altered.frame_bytes = frame_bytes;
    assert_int_equal(read_with(&altered), LIBDECODE_ERROR_BUNDLE_DAMAGED);
    assert_message_has(expected);
}

static void only_one_plain_zstd_frame_of_the_announced_size_is_decompressed(void **state) {
    (void)state;
    struct fixture_image_bytes image = {.target = 90, .num_kernels = 1};
    uint8_t *bytes = fixture_image(scene_kernels, 1, &image.num_bytes), frame[8192] = {0}, altered[8192 * 2];
    image.bytes = bytes;
    assert_int_equal(read_with(&image), LIBDECODE_OK);
    size_t frame_bytes = ZSTD_compress(frame, sizeof frame, bytes, image.num_bytes, 3);
    assert_false(ZSTD_isError(frame_bytes));

    assert_frame_is_refused(&image, "abc", 3, "is no zstd frame");
    assert_frame_is_refused(&image, bytes, image.num_bytes, "is no zstd frame");
    assert_frame_is_refused(&image, frame, 4, "is not one zstd frame of");
    memcpy(altered, frame, frame_bytes);
    memcpy(altered + frame_bytes, frame, frame_bytes);
    assert_frame_is_refused(&image, altered, 2 * frame_bytes, "is not one zstd frame of");
    memcpy(altered, "\x50\x2a\x4d\x18\x04\x00\x00\x00skip", 12); /* a skippable frame, then an honest one */
    memcpy(altered + 12, frame, frame_bytes);
    assert_frame_is_refused(&image, altered, 12 + frame_bytes, "is no zstd frame");
    memcpy(altered, frame, frame_bytes);
    memset(altered + frame_bytes, 0, 8);
    assert_frame_is_refused(&image, altered, frame_bytes + 8, "is not one zstd frame of");

    ZSTD_CCtx *context = ZSTD_createCCtx();
    assert_non_null(context);
    assert_false(ZSTD_isError(ZSTD_CCtx_setParameter(context, ZSTD_c_contentSizeFlag, 0)));
    size_t other_bytes = ZSTD_compress2(context, altered, sizeof altered, bytes, image.num_bytes);
    assert_frame_is_refused(&image, altered, other_bytes, "does not announce");
    ZSTD_freeCCtx(context);
    other_bytes = ZSTD_compress(altered, sizeof altered, bytes, image.num_bytes - 1, 3);
    assert_frame_is_refused(&image, altered, other_bytes, "does not announce");

    /* A frame header that asks for dictionary 7: a byte for it, and the flag that announces the byte. */
    memcpy(altered, frame, 5);
    altered[4] |= 1;
    size_t window_bytes = (frame[4] & 0x20) ? 0 : 1;
    memcpy(altered + 5, frame + 5, window_bytes);
    altered[5 + window_bytes] = 7;
    memcpy(altered + 6 + window_bytes, frame + 5 + window_bytes, frame_bytes - 5 - window_bytes);
    assert_frame_is_refused(&image, altered, frame_bytes + 1, "needs zstd dictionary 7, the bundle has 0");

    /* Honest in form, other bytes inside. */
    uint8_t *other = copy_of(bytes, image.num_bytes);
    other[image.num_bytes - 1] ^= 1;
    other_bytes = ZSTD_compress(altered, sizeof altered, other, image.num_bytes, 3);
    assert_frame_is_refused(&image, altered, other_bytes, "has not the SHA-256");
    free(other);
    free(bytes);
}

/* Says 64 MiB, is 64 KiB of zeros; and 64 MiB of zeros in a few KiB, all that a file may make us allocate. */
static void a_decompression_bomb_ends_at_the_announced_size(void **state) {
    (void)state;
    size_t capacity = ZSTD_compressBound(BUNDLE_MAX_IMAGE_BYTES);
    uint8_t *zeros = calloc(1, BUNDLE_MAX_IMAGE_BYTES + 1), *frame = malloc(capacity);
    assert_non_null(zeros);
    assert_non_null(frame);
    struct fixture_image_bytes image = {.bytes = zeros, .num_bytes = BUNDLE_MAX_IMAGE_BYTES, .target = 90, .num_kernels = 1};
    size_t frame_bytes = ZSTD_compress(frame, capacity, zeros, BUNDLE_MAX_IMAGE_BYTES, 1);
    assert_frame_is_refused(&image, frame, frame_bytes, "no fatbin header");
    image.num_bytes = 65536;
    assert_frame_is_refused(&image, frame, frame_bytes, "does not announce");
    image.num_bytes = BUNDLE_MAX_IMAGE_BYTES + 1;
    assert_frame_is_refused(&image, frame, frame_bytes, "accepted is 1 to");
    free(zeros);
    free(frame);
}

/* The headers of a bundle of `num_images` images of 64 MiB in frames of `frame_bytes`, in a file as long as they say, of holes. */
static size_t write_holes(const char *path, uint32_t num_images, uint64_t frame_bytes) {
    struct fixture_kernel *kernels = calloc(num_images, sizeof *kernels);
    struct fixture_image_bytes *images = calloc(num_images, sizeof *images);
    char(*names)[16] = calloc(num_images, sizeof *names);
    assert_true(kernels && images && names);
    for (uint32_t index = 0; index < num_images; index++) {
        (void)snprintf(names[index], sizeof names[index], "k%05u", index);
        kernels[index] = (struct fixture_kernel){.name = names[index], .target = 90, .image = index};
        images[index] = (struct fixture_image_bytes){
            .bytes = (const uint8_t *)"", .frame = (const uint8_t *)"frame..", .frame_bytes = 8, .target = 90, .num_kernels = 1};
    }
    size_t bytes;
    uint8_t *bundle = fixture_assemble(kernels, num_images, images, num_images, &bytes);
    struct bundle_header *header = fixture_header(bundle);
    for (uint32_t index = 0; index < num_images; index++) {
        struct bundle_image *image = &fixture_images(bundle)[index];
        image->offset = (header->tables_bytes + 7) / 8 * 8 + index * frame_bytes;
        image->frame_bytes = frame_bytes;
        image->image_bytes = BUNDLE_MAX_IMAGE_BYTES;
        header->file_bytes = image->offset + frame_bytes;
    }
    fixture_seal(bundle, bytes);
    size_t tables_bytes = (size_t)header->tables_bytes;
    fixture_write_file(path, bundle, tables_bytes);
    assert_int_equal(truncate(path, (off_t)header->file_bytes), 0);
    free(bundle);
    free(kernels);
    free(images);
    free(names);
    return tables_bytes;
}

/* A few hundred bytes of disk that say 6 GiB in one frame; and some KiB that say 5 GiB in frames that could be. */
static void a_small_file_cannot_ask_for_much_work(void **state) {
    (void)state;
    char path[] = "/tmp/test_bundle_hostile_XXXXXX";
    struct bundle *bundle = NULL;
    int file = mkstemp(path);
    assert_true(file >= 0);
    (void)close(file);
    assert_in_range(write_holes(path, 1, (uint64_t)6 << 30), 1, 1000);
    assert_int_equal(bundle_open_file(path, &bundle), LIBDECODE_ERROR_BUNDLE_DAMAGED);
    assert_message_has("zstd makes at most");
    assert_in_range(write_holes(path, 80, 4096), 1, 30000);
    assert_int_equal(bundle_open_file(path, &bundle), LIBDECODE_ERROR_BUNDLE_DAMAGED);
    assert_message_has("images 0 to 64 have 4362076160 bytes, accepted are 4294967296");
    (void)write_holes(path, 64, 4096);
    assert_int_equal(bundle_open_file(path, &bundle), LIBDECODE_OK);
    bundle_close(bundle);
    (void)unlink(path);
}

static double processor_seconds(void) { return (double)clock() / CLOCKS_PER_SEC; }

/* 16,000 kernels in one image took 20 seconds when each was looked for in all sections and symbols; now some 20 ms. */
static void many_kernels_of_one_image_are_read_in_one_pass(void **state) {
    (void)state;
    enum { MANY = 16000 };
    struct fixture_kernel *kernels = calloc(MANY, sizeof *kernels);
    char(*names)[16] = calloc(MANY, sizeof *names);
    assert_true(kernels && names);
    for (size_t index = 0; index < MANY; index++) { /* not in the order of their names */
        (void)snprintf(names[index], sizeof names[index], "k%05zu_sm90", index * 7919 % MANY);
        kernels[index] = (struct fixture_kernel){.name = names[index], .target = 90, .image = 1};
    }
    size_t bytes;
    uint8_t *bundle = fixture_bundle(kernels, MANY, &bytes);
    double begin = processor_seconds();
    assert_int_equal(open_and_read(bundle, bytes), LIBDECODE_OK);
    double seconds = processor_seconds() - begin;
    print_message("an image of %d kernels was read in %.0f ms\n", MANY, 1000 * seconds);
    assert_true(seconds < 4);
    free(bundle);
    free(kernels);
    free(names);
}

static void an_image_must_be_what_the_table_says_of_it(void **state) {
    (void)state;
    struct fixture_image_bytes image = {.target = 90, .num_kernels = 1};
    const struct {
        struct fixture_kernel kernel[2];
        size_t num_kernels;
        const char *expected;
    } rows[] = {
        {{{.name = "other_sm90", .target = 90}}, 1, "no kernel 'alpha_sm90'"},
        {{{.name = "alpha_sm90", .target = 100}}, 1, "it is for sm_100, the table says sm_90"},
        {{{.name = "alpha_sm90", .target = 90}, {.name = "zeta_sm90", .target = 90}}, 2, "it holds 2 kernels, the table says 1"},
    };
    for (size_t index = 0; index < sizeof rows / sizeof rows[0]; index++) {
        uint8_t *bytes = fixture_image(rows[index].kernel, rows[index].num_kernels, &image.num_bytes);
        image.bytes = bytes;
        assert_int_equal(read_with(&image), LIBDECODE_ERROR_BUNDLE_DAMAGED);
        assert_message_has("bundle memory, image 0: ");
        assert_message_has(rows[index].expected);
        free(bytes);
    }
}

/* The hash fits, for whoever makes the file makes the hash: what is left is the audit of the headers. */
static void every_flipped_byte_of_an_image_under_a_right_hash_leaves_the_reader_alive(void **state) {
    (void)state;
    struct fixture_image_bytes image = {.target = 90, .num_kernels = 1};
    uint8_t *bytes = fixture_image(scene_kernels, 1, &image.num_bytes);
    size_t num_refused = 0;
    image.bytes = bytes;
    for (size_t bit = 0; bit < 8 * image.num_bytes; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        libdecode_status status = read_with(&image);
        assert_true(status == LIBDECODE_OK || status == LIBDECODE_ERROR_BUNDLE_DAMAGED);
        num_refused += status != LIBDECODE_OK;
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    assert_true(num_refused > image.num_bytes);
    size_t whole_bytes = image.num_bytes;
    for (image.num_bytes = 1; image.num_bytes < whole_bytes; image.num_bytes++)
        assert_int_equal(read_with(&image), LIBDECODE_ERROR_BUNDLE_DAMAGED);
    free(bytes);
}

/* All numbers of the header agree with each other, but not with the length: nothing behind the end is read, of a file or of memory. */
static void tables_that_are_longer_than_the_bundle_are_not_read(void **state) {
    (void)state;
    uint8_t *hostile = copy_of(honest, honest_bytes);
    struct bundle_header *header = fixture_header(hostile);
    const uint64_t more = BUNDLE_MAX_STRINGS_BYTES - header->strings_bytes;
    header->strings_bytes += more;
    header->tables_bytes += more;
    assert_int_equal(open_and_read(hostile, honest_bytes), LIBDECODE_ERROR_BUNDLE_DAMAGED);
    assert_message_has("tables of");
    free(hostile);
}

/* The last frame but one ends the bundle, less than eight bytes before the offset that the last one must have. */
static void a_frame_behind_the_end_of_the_bundle_is_not_read(void **state) {
    (void)state;
    uint8_t *hostile = copy_of(honest, honest_bytes);
    struct bundle_image *last = &fixture_images(hostile)[NUM_IMAGES - 1], *before = last - 1;
    const size_t bytes = (size_t)last->offset - 3;
    struct bundle *bundle = NULL;
    before->frame_bytes = bytes - before->offset;
    fixture_header(hostile)->file_bytes = bytes;
    fixture_seal(hostile, bytes);
    assert_int_equal(bundle_open_memory(hostile, bytes, "memory", &bundle), LIBDECODE_ERROR_BUNDLE_DAMAGED);
    assert_message_has("is not where it must be");
    free(hostile);
}

static void characters_beside_letters_and_digits_are_none_of_a_name(void **state) {
    (void)state;
    static const char beside[] = {'/', ':', '`', '{', '^'};
    for (size_t index = 0; index < sizeof beside; index++) {
        uint8_t *hostile = copy_of(honest, honest_bytes);
        fixture_strings(hostile)[fixture_kernels(hostile)[0].name + 2] = beside[index];
        fixture_seal(hostile, honest_bytes);
        assert_int_equal(open_and_read(hostile, honest_bytes), LIBDECODE_ERROR_BUNDLE_DAMAGED);
        assert_message_has("hold other than lower case, digits and underscores");
        free(hostile);
    }
}

static void an_image_may_not_hold_fewer_kernels_than_the_table_says(void **state) {
    (void)state;
    const struct fixture_kernel kernels[] = {{.name = "alpha_sm90", .target = 90}, {.name = "zeta_sm90", .target = 90}};
    struct fixture_image_bytes image = {.target = 90, .num_kernels = 2};
    size_t bytes;
    uint8_t *of_one = fixture_image(kernels, 1, &image.num_bytes);
    image.bytes = of_one;
    uint8_t *bundle = fixture_assemble(kernels, 2, &image, 1, &bytes);
    assert_int_equal(open_and_read(bundle, bytes), LIBDECODE_ERROR_BUNDLE_DAMAGED);
    assert_message_has("it holds 1 kernels, the table says 2");
    free(bundle);
    free(of_one);
}

/* What the driver copies for a launch is as long as the code says, not as its launch contract does. */
static void code_that_takes_other_parameters_than_its_contract_says_is_refused(void **state) {
    (void)state;
    struct fixture_image_bytes image = {.target = 90, .num_kernels = 1};
    const uint8_t head[] = {4, 0x17, 12, 0}; /* .nv.info: one parameter */
    uint8_t *bytes = fixture_image(scene_kernels, 1, &image.num_bytes);
    size_t at = 0, num_altered = 0;
    for (; at + 16 <= image.num_bytes; at++) {
        uint32_t words[3];
        memcpy(words, bytes + at + sizeof head, sizeof words);
        if (memcmp(bytes + at, head, sizeof head) != 0 || words[2] >> 18 != sizeof(struct gqa_decode_params))
            continue;
        words[2] += 8u << 18;
        memcpy(bytes + at + sizeof head, words, sizeof words);
        num_altered++;
    }
    assert_int_equal(num_altered, 1);
    image.bytes = bytes;
    assert_int_equal(read_with(&image), LIBDECODE_ERROR_BUNDLE_DAMAGED);
    assert_message_has("bytes of parameters and 96 registers, the table says");
    free(bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_false_fact_under_a_right_root_hash_is_noticed),
        cmocka_unit_test(a_wrong_root_hash_is_named),
        cmocka_unit_test(names_are_lower_case_digits_and_underscores_and_end_inside_the_strings),
        cmocka_unit_test(a_name_has_at_most_127_characters),
        cmocka_unit_test(only_one_plain_zstd_frame_of_the_announced_size_is_decompressed),
        cmocka_unit_test(a_decompression_bomb_ends_at_the_announced_size),
        cmocka_unit_test(a_small_file_cannot_ask_for_much_work),
        cmocka_unit_test(many_kernels_of_one_image_are_read_in_one_pass),
        cmocka_unit_test(an_image_must_be_what_the_table_says_of_it),
        cmocka_unit_test(every_flipped_byte_of_an_image_under_a_right_hash_leaves_the_reader_alive),
        cmocka_unit_test(tables_that_are_longer_than_the_bundle_are_not_read),
        cmocka_unit_test(a_frame_behind_the_end_of_the_bundle_is_not_read),
        cmocka_unit_test(characters_beside_letters_and_digits_are_none_of_a_name),
        cmocka_unit_test(an_image_may_not_hold_fewer_kernels_than_the_table_says),
        cmocka_unit_test(code_that_takes_other_parameters_than_its_contract_says_is_refused),
    };
    return cmocka_run_group_tests(tests, make_honest, remove_honest);
}
