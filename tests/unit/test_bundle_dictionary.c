/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_bundle_dictionary.c: bundles whose images share a zstd dictionary: honest, damaged, made to do harm, and read by many
 * threads at once. Under test: loader/bundle.c. What has nothing to do with the dictionary: test_bundle.c, test_bundle_hostile.c.
 */
#define _POSIX_C_SOURCE 200809L /* mkstemp, truncate under -std=c17 */

#include "bundle_scene.h"

#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
#include <zstd.h>

#include "failing_malloc.h"
#include "sha256.h"

static struct fixture_dictionary dictionary;
static uint8_t *honest;
static size_t honest_bytes;
static char path[] = "/tmp/test_bundle_dictionary_XXXXXX";

static int make_honest(void **state) {
    (void)state;
    dictionary = fixture_dictionary();
    honest = fixture_bundle_with(&dictionary, scene_kernels, NUM_KERNELS, &honest_bytes);
    int file = mkstemp(path);
    return file < 0 ? -1 : close(file);
}

static int remove_honest(void **state) {
    (void)state;
    free(dictionary.bytes);
    free(honest);
    return unlink(path);
}

/* The header's hash of a dictionary that was altered, and the root hash. */
static void seal_dictionary(uint8_t *bundle, size_t bytes) {
    struct bundle_header *header = fixture_header(bundle);
    struct sha256 hash;
    sha256_init(&hash);
    sha256_update(&hash, fixture_dictionary_of(bundle), header->dictionary_bytes);
    sha256_finish(&hash, header->dictionary_sha256);
    fixture_seal(bundle, bytes);
}

static void assert_damaged(const uint8_t *data, size_t bytes, const char *expected) {
    assert_int_equal(open_and_read(data, bytes), LIBDECODE_ERROR_BUNDLE_DAMAGED);
    assert_message_has(expected);
}

/* ------------------------------------------------------------------------------------------------------------ honest */

static void assert_images_are_those_of_a_bundle_without(struct bundle *bundle) {
    size_t plain_bytes;
    uint8_t *plain_data = fixture_bundle(scene_kernels, NUM_KERNELS, &plain_bytes);
    struct bundle *plain = NULL;
    assert_int_equal(bundle_open_memory(plain_data, plain_bytes, "memory", &plain), LIBDECODE_OK);
    for (uint32_t image = 0; image < NUM_IMAGES; image++) {
        void *left = NULL, *right = NULL;
        assert_int_equal(bundle_read_image(bundle, image, &left), LIBDECODE_OK);
        assert_int_equal(bundle_read_image(plain, image, &right), LIBDECODE_OK);
        assert_memory_equal(left, right, (size_t)bundle_images(plain)[image].image_bytes);
        assert_true(bundle_images(bundle)[image].frame_bytes < bundle_images(plain)[image].frame_bytes);
        free(left);
        free(right);
    }
    bundle_close(plain);
    free(plain_data);
}

static void images_come_back_from_a_file_and_from_memory(void **state) {
    (void)state;
    struct bundle *bundle = NULL;
    fixture_write_file(path, honest, honest_bytes);
    assert_int_equal(bundle_open_file(path, &bundle), LIBDECODE_OK);
    assert_images_are_those_of_a_bundle_without(bundle);
    bundle_close(bundle);
    assert_int_equal(bundle_open_memory(honest, honest_bytes, "memory", &bundle), LIBDECODE_OK);
    assert_images_are_those_of_a_bundle_without(bundle);
    bundle_close(bundle);
    assert_int_equal(bundle_open_memory(honest, honest_bytes, "memory", &bundle), LIBDECODE_OK);
    bundle_close(bundle); /* never read */
}

/* Opening does not look at it; the first image does, and keeps it. */
static void it_is_read_once_with_the_first_image(void **state) {
    (void)state;
    struct bundle *bundle = NULL;
    uint8_t *altered = copy_of(honest, honest_bytes);
    void *bytes = NULL;
    fixture_dictionary_of(altered)[100] ^= 1;
    fixture_write_file(path, altered, honest_bytes);
    assert_int_equal(bundle_open_file(path, &bundle), LIBDECODE_OK);
    assert_int_equal(bundle_read_image(bundle, 0, &bytes), LIBDECODE_ERROR_BUNDLE_DAMAGED);
    assert_message_has("has not the SHA-256 that its header gives");
    assert_null(bytes);
    fixture_write_file(path, honest, honest_bytes); /* the same file, whole again: nothing was remembered */
    assert_int_equal(bundle_read_image(bundle, 0, &bytes), LIBDECODE_OK);
    free(bytes);
    fixture_write_file(path, altered, honest_bytes);
    assert_int_equal(read_all(bundle), LIBDECODE_OK);
    bundle_close(bundle);
    free(altered);
}

enum { NUM_THREADS = 8 };

static void *read_all_images(void *bundle) { return read_all(bundle) == LIBDECODE_OK ? bundle : NULL; }

static void threads_that_read_first_images_at_once_all_succeed(void **state) {
    (void)state;
    for (int round = 0; round < 50; round++) {
        struct bundle *bundle = NULL;
        pthread_t threads[NUM_THREADS];
        assert_int_equal(bundle_open_memory(honest, honest_bytes, "memory", &bundle), LIBDECODE_OK);
        for (size_t thread = 0; thread < NUM_THREADS; thread++)
            assert_int_equal(pthread_create(&threads[thread], NULL, read_all_images, bundle), 0);
        for (size_t thread = 0; thread < NUM_THREADS; thread++) {
            void *result = NULL;
            assert_int_equal(pthread_join(threads[thread], &result), 0);
            assert_ptr_equal(result, bundle);
        }
        bundle_close(bundle);
    }
}

/* ------------------------------------------------------------------------------------------------------------ damage */

static void every_flipped_bit_between_tables_and_frames_is_noticed(void **state) {
    (void)state;
    const struct bundle_header *header = fixture_header(honest);
    uint8_t *damaged = copy_of(honest, honest_bytes);
    for (size_t bit = 8 * (size_t)header->tables_bytes; bit < 8 * (size_t)fixture_images(honest)[0].offset; bit++) {
        damaged[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_equal(open_and_read(damaged, honest_bytes), LIBDECODE_ERROR_BUNDLE_DAMAGED);
        damaged[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    free(damaged);
}

static void a_bundle_cut_inside_is_damaged_whatever_its_header_says(void **state) {
    (void)state;
    for (size_t bytes = (size_t)fixture_header(honest)->tables_bytes; bytes < fixture_images(honest)[0].offset; bytes++) {
        uint8_t *cut = copy_of(honest, bytes);
        assert_int_equal(open_and_read(cut, bytes), LIBDECODE_ERROR_BUNDLE_DAMAGED);
        fixture_header(cut)->file_bytes = bytes;
        fixture_seal(cut, bytes);
        assert_damaged(cut, bytes, "a dictionary of");
        free(cut);
    }
}

static void a_file_that_shrinks_cannot_be_read_and_then_can(void **state) {
    (void)state;
    struct bundle *bundle = NULL;
    fixture_write_file(path, honest, honest_bytes);
    assert_int_equal(bundle_open_file(path, &bundle), LIBDECODE_OK);
    assert_int_equal(truncate(path, (off_t)fixture_header(honest)->tables_bytes + 100), 0);
    void *bytes = NULL;
    assert_int_equal(bundle_read_image(bundle, 0, &bytes), LIBDECODE_ERROR_IO);
    fixture_write_file(path, honest, honest_bytes);
    assert_int_equal(read_all(bundle), LIBDECODE_OK);
    bundle_close(bundle);
}

/* ----------------------------------------------------------------------------------------------------------- hostile */

static void another_length_than_it_has_is_noticed(void **state) {
    (void)state;
    static const struct {
        uint32_t bytes;
        const char *expected;
    } lies[] = {
        {0, "but a dictionary of 0 bytes"},
        {1, "not where it must be"},
        {UINT32_MAX, "a dictionary of 4294967295 bytes"},
        {BUNDLE_MAX_DICTIONARY_BYTES + 1, "a dictionary of 1048577 bytes"},
    };
    uint8_t *hostile = copy_of(honest, honest_bytes);
    for (size_t index = 0; index < sizeof lies / sizeof lies[0]; index++) {
        fixture_header(hostile)->dictionary_bytes = lies[index].bytes;
        fixture_seal(hostile, honest_bytes);
        assert_damaged(hostile, honest_bytes, lies[index].expected);
    }
    fixture_header(hostile)->dictionary_bytes = (uint32_t)dictionary.num_bytes - 1; /* the frames begin where they did */
    fixture_seal(hostile, honest_bytes);
    assert_int_equal(open_and_read(hostile, honest_bytes), LIBDECODE_ERROR_BUNDLE_DAMAGED);
    fixture_header(hostile)->dictionary_bytes = 0; /* and no hash of one: the frames come too late */
    memset(fixture_header(hostile)->dictionary_sha256, 0, 32);
    fixture_seal(hostile, honest_bytes);
    assert_damaged(hostile, honest_bytes, "not where it must be");
    free(hostile);
}

static void what_is_no_dictionary_is_refused_under_a_right_hash(void **state) {
    (void)state;
    uint8_t *hostile = copy_of(honest, honest_bytes), *bytes = fixture_dictionary_of(hostile);
    bytes[0] ^= 1; /* its magic number */
    seal_dictionary(hostile, honest_bytes);
    assert_damaged(hostile, honest_bytes, "is none of zstd");
    bytes[0] ^= 1;
    memset(bytes + 4, 0, 4); /* dictionary 0 is what frames without one name */
    seal_dictionary(hostile, honest_bytes);
    assert_damaged(hostile, honest_bytes, "is none of zstd");
    bytes[4] = 9; /* not the one that the frames were made with */
    seal_dictionary(hostile, honest_bytes);
    assert_damaged(hostile, honest_bytes, "the bundle has 9 (0: none)");
    memcpy(bytes + 4, dictionary.bytes + 4, 4);
    memset(bytes + 8, 0xff, 64); /* its entropy tables */
    seal_dictionary(hostile, honest_bytes);
    assert_damaged(hostile, honest_bytes, "does not decompress");
    free(hostile);
}

/* A dictionary of a few bytes that are not even a magic number. */
static void a_dictionary_of_any_length_leaves_the_reader_alive(void **state) {
    (void)state;
    for (size_t length = 1; length < dictionary.num_bytes; length += length < 300 ? 1 : 97) {
        size_t bytes;
        struct fixture_dictionary cut = {.bytes = dictionary.bytes, .num_bytes = length};
        uint8_t *hostile = fixture_bundle_with(&dictionary, scene_kernels, 1, &bytes);
        size_t frame_bytes = (size_t)fixture_images(hostile)->frame_bytes;
        uint8_t *frame = copy_of(hostile + fixture_images(hostile)->offset, frame_bytes);
        struct fixture_image_bytes image = {.frame = frame, .frame_bytes = frame_bytes, .target = 90, .num_kernels = 1};
        uint8_t *image_bytes = fixture_image(scene_kernels, 1, &image.num_bytes);
        struct fixture_kernel kernel = scene_kernels[0];
        kernel.image = 0;
        image.bytes = image_bytes;
        free(hostile);
        hostile = fixture_assemble_with(&cut, &kernel, 1, &image, 1, &bytes);
        assert_int_equal(open_and_read(hostile, bytes), LIBDECODE_ERROR_BUNDLE_DAMAGED);
        free(hostile);
        free(image_bytes);
        free(frame);
    }
}

static void every_flipped_bit_under_right_hashes_leaves_the_reader_alive(void **state) {
    (void)state;
    size_t num_refused = 0;
    uint8_t *hostile = copy_of(honest, honest_bytes);
    for (size_t bit = 0; bit < 8 * dictionary.num_bytes; bit++) {
        fixture_dictionary_of(hostile)[bit / 8] ^= (uint8_t)(1u << bit % 8);
        seal_dictionary(hostile, honest_bytes);
        libdecode_status status = open_and_read(hostile, honest_bytes);
        assert_true(status == LIBDECODE_OK || status == LIBDECODE_ERROR_BUNDLE_DAMAGED);
        num_refused += status != LIBDECODE_OK;
        fixture_dictionary_of(hostile)[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    assert_true(num_refused > dictionary.num_bytes);
    free(hostile);
}

static void a_frame_without_the_dictionary_is_refused(void **state) {
    (void)state;
    struct fixture_kernel kernel = scene_kernels[0];
    struct fixture_image_bytes image = {.target = 90, .num_kernels = 1};
    uint8_t *bytes = fixture_image(scene_kernels, 1, &image.num_bytes), frame[8192];
    size_t bundle_bytes;
    kernel.image = 0;
    image.bytes = bytes;
    image.frame = frame;
    image.frame_bytes = ZSTD_compress(frame, sizeof frame, bytes, image.num_bytes, 3);
    uint8_t *bundle = fixture_assemble_with(&dictionary, &kernel, 1, &image, 1, &bundle_bytes);
    assert_damaged(bundle, bundle_bytes, "image 0 needs zstd dictionary 0, the bundle has");
    free(bundle);
    free(bytes);
}

/* ------------------------------------------------------------------------------------------------------------ memory */

static libdecode_status read_file_again(void) {
    struct bundle *bundle = NULL;
    libdecode_status status = bundle_open_file(path, &bundle);
    if (status != LIBDECODE_OK)
        return status;
    status = read_all(bundle);
    bundle_close(bundle);
    return status;
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    fixture_write_file(path, honest, honest_bytes);
    /* bundle, path, tables, counts, the dictionary's place and the dictionary; frame, image, zstd and kernels for each image */
    assert_int_equal(fail_each_allocation(read_file_again), 6 + 4 * NUM_IMAGES);
}

/* Between a dictionary whose length is no multiple of eight and the first frame stand zeros. */
static void what_lies_behind_the_dictionary_is_looked_at(void **state) {
    (void)state;
    struct fixture_dictionary odd = dictionary;
    size_t bytes;
    if (odd.num_bytes % 8 == 0)
        odd.num_bytes -= 3;
    uint8_t *bundle = fixture_bundle_with(&odd, scene_kernels, NUM_KERNELS, &bytes);
    assert_int_equal(open_and_read(bundle, bytes), LIBDECODE_OK);
    fixture_dictionary_of(bundle)[odd.num_bytes] = 1;
    assert_damaged(bundle, bytes, "behind its dictionary is not zero");
    free(bundle);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(images_come_back_from_a_file_and_from_memory),
        cmocka_unit_test(it_is_read_once_with_the_first_image),
        cmocka_unit_test(threads_that_read_first_images_at_once_all_succeed),
        cmocka_unit_test(every_flipped_bit_between_tables_and_frames_is_noticed),
        cmocka_unit_test(a_bundle_cut_inside_is_damaged_whatever_its_header_says),
        cmocka_unit_test(a_file_that_shrinks_cannot_be_read_and_then_can),
        cmocka_unit_test(another_length_than_it_has_is_noticed),
        cmocka_unit_test(what_is_no_dictionary_is_refused_under_a_right_hash),
        cmocka_unit_test(a_dictionary_of_any_length_leaves_the_reader_alive),
        cmocka_unit_test(every_flipped_bit_under_right_hashes_leaves_the_reader_alive),
        cmocka_unit_test(a_frame_without_the_dictionary_is_refused),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(what_lies_behind_the_dictionary_is_looked_at),
    };
    return cmocka_run_group_tests(tests, make_honest, remove_honest);
}
