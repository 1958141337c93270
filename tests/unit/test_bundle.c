/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_bundle.c: honest bundles and damaged ones: a flipped bit, a cut, a file that is something else; and how bundles overlay
 * each other. Under test: loader/bundle.c, kernel_table.c. What is made to do harm: test_bundle_hostile.c.
 */
#define _POSIX_C_SOURCE 200809L /* mkdtemp, truncate under -std=c17 */

#include "bundle_scene.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "failing_malloc.h"

static uint8_t *honest;
static size_t honest_bytes;
static char folder[64], path[128];

static int make_honest(void **state) {
    (void)state;
    honest = fixture_bundle(scene_kernels, NUM_KERNELS, &honest_bytes);
    (void)snprintf(folder, sizeof folder, "/tmp/test_bundle_XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    (void)snprintf(path, sizeof path, "%s/test.bundle", folder);
    return 0;
}

static int remove_honest(void **state) {
    (void)state;
    free(honest);
    (void)unlink(path);
    return rmdir(folder);
}

/* ------------------------------------------------------------------------------------------------------------ honest */

static void assert_is_honest(struct bundle *bundle) {
    assert_int_equal(bundle_header(bundle)->num_kernels, NUM_KERNELS);
    assert_int_equal(bundle_header(bundle)->num_images, NUM_IMAGES);
    for (uint32_t index = 0; index < NUM_KERNELS; index++) {
        const struct bundle_kernel *kernel = &bundle_kernels(bundle)[index];
        struct libdecode_launch_contract contract = fixture_contract();
        assert_string_equal(bundle_string(bundle, kernel->name), scene_kernels[index].name);
        assert_int_equal(bundle_images(bundle)[kernel->image].target, scene_kernels[index].target);
        assert_int_equal(kernel->registers, FIXTURE_REGISTERS);
        assert_memory_equal(&kernel->contract, &contract, sizeof contract);
    }
    assert_int_equal(bundle_kernels(bundle)[3].gpus, BUNDLE_GPU_SM121);
    assert_string_equal(bundle_string(bundle, 0), "");
}

static void a_bundle_in_memory_gives_its_tables_and_the_images_that_went_in(void **state) {
    (void)state;
    struct bundle *bundle = NULL;
    size_t expected_bytes;
    uint8_t *expected = fixture_image(scene_kernels, 2, &expected_bytes);
    void *bytes = NULL;
    assert_int_equal(bundle_open_memory(honest, honest_bytes, "memory", &bundle), LIBDECODE_OK);
    assert_string_equal(bundle_path(bundle), "memory");
    assert_is_honest(bundle);
    assert_int_equal(bundle_images(bundle)[0].image_bytes, expected_bytes);
    assert_int_equal(bundle_read_image(bundle, 0, &bytes), LIBDECODE_OK);
    assert_memory_equal(bytes, expected, expected_bytes);
    assert_int_equal((uintptr_t)bytes % 64, 0);
    for (size_t index = 0; index < 64; index++)
        assert_int_equal(((uint8_t *)bytes)[expected_bytes + index], 0);
    free(bytes);
    free(expected);
    assert_int_equal(read_all(bundle), LIBDECODE_OK);
    bundle_close(bundle);
}

static void a_bundle_in_a_file_is_the_same_and_its_descriptor_is_not_inherited(void **state) {
    (void)state;
    struct bundle *bundle = NULL;
    struct stat facts, other;
    int num_descriptors = 0;
    fixture_write_file(path, honest, honest_bytes);
    assert_int_equal(bundle_open_file(path, &bundle), LIBDECODE_OK);
    assert_string_equal(bundle_path(bundle), path);
    assert_is_honest(bundle);
    assert_int_equal(read_all(bundle), LIBDECODE_OK);
    assert_int_equal(stat(path, &facts), 0);
    for (int descriptor = 0; descriptor < 64; descriptor++) {
        if (fstat(descriptor, &other) != 0 || other.st_ino != facts.st_ino || other.st_dev != facts.st_dev)
            continue;
        num_descriptors++;
        assert_true(fcntl(descriptor, F_GETFD) & FD_CLOEXEC);
    }
    assert_int_equal(num_descriptors, 1);
    bundle_close(bundle);
}

static void a_bundle_in_memory_need_not_be_aligned(void **state) {
    (void)state;
    uint8_t *moved = malloc(honest_bytes + 1);
    assert_non_null(moved);
    memcpy(moved + 1, honest, honest_bytes);
    assert_int_equal(open_and_read(moved + 1, honest_bytes), LIBDECODE_OK);
    free(moved);
}

static void strings_need_not_end_on_eight_bytes_nor_the_last_frame(void **state) {
    (void)state;
    const struct fixture_kernel one = {.name = "a", .target = 90};
    size_t bytes;
    uint8_t *bundle = fixture_bundle(&one, 1, &bytes);
    struct bundle_header *header = fixture_header(bundle);
    size_t frame_end = (size_t)(fixture_images(bundle)->offset + fixture_images(bundle)->frame_bytes);
    assert_int_equal(header->strings_bytes, 8); /* NUL, "a", NUL, and padding that may as well belong to the gap */
    header->strings_bytes -= 5;
    header->tables_bytes -= 5;
    header->file_bytes = frame_end;
    fixture_seal(bundle, frame_end);
    assert_int_equal(open_and_read(bundle, frame_end), LIBDECODE_OK);
    bundle[header->tables_bytes + 1] = 1;
    assert_int_equal(open_and_read(bundle, frame_end), LIBDECODE_ERROR_BUNDLE_DAMAGED);
    assert_message_has("behind its tables is not zero");
    free(bundle);
}

/* ------------------------------------------------------------------------------------------------------------ damage */

/* Damage to a frame may be without effect; then the image must be what it was. */
static bool images_are_unchanged(const uint8_t *data, size_t bytes) {
    struct bundle *bundle = NULL, *original = NULL;
    bool equal = true;
    assert_int_equal(bundle_open_memory(data, bytes, "memory", &bundle), LIBDECODE_OK);
    assert_int_equal(bundle_open_memory(honest, honest_bytes, "memory", &original), LIBDECODE_OK);
    for (uint32_t image = 0; image < NUM_IMAGES; image++) {
        void *left = NULL, *right = NULL;
        assert_int_equal(bundle_read_image(bundle, image, &left), LIBDECODE_OK);
        assert_int_equal(bundle_read_image(original, image, &right), LIBDECODE_OK);
        equal = equal && memcmp(left, right, (size_t)bundle_images(original)[image].image_bytes) == 0;
        free(left);
        free(right);
    }
    bundle_close(bundle);
    bundle_close(original);
    return equal;
}

static void every_flipped_bit_is_noticed(void **state) {
    (void)state;
    size_t num_unchanged = 0, tables_bytes = (size_t)fixture_header(honest)->tables_bytes;
    uint8_t *damaged = copy_of(honest, honest_bytes);
    for (size_t bit = 0; bit < 8 * honest_bytes; bit++) {
        damaged[bit / 8] ^= (uint8_t)(1u << bit % 8);
        libdecode_status status = open_and_read(damaged, honest_bytes);
        if (status == LIBDECODE_OK) {
            assert_true(bit / 8 >= tables_bytes);
            assert_true(images_are_unchanged(damaged, honest_bytes));
            num_unchanged++;
        } else if (status == LIBDECODE_ERROR_BUNDLE_VERSION) {
            assert_in_range(bit / 8, offsetof(struct bundle_header, version), offsetof(struct bundle_header, file_bytes) - 1);
        } else {
            assert_int_equal(status, LIBDECODE_ERROR_BUNDLE_DAMAGED);
        }
        damaged[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    /* zstd has bits that do not matter: in the frame header, in how a table is written. Here 2 %; many would be a check left out.
     */
    assert_in_range(num_unchanged, 0, 8 * (honest_bytes - tables_bytes) / 20);
    free(damaged);
}

static void every_flipped_byte_of_a_file_is_noticed(void **state) {
    (void)state;
    uint8_t *damaged = copy_of(honest, honest_bytes);
    for (size_t offset = 0; offset < honest_bytes; offset++) {
        struct bundle *bundle = NULL;
        damaged[offset] = (uint8_t)~damaged[offset];
        fixture_write_file(path, damaged, honest_bytes);
        libdecode_status status = bundle_open_file(path, &bundle);
        if (status == LIBDECODE_OK) {
            status = read_all(bundle);
            bundle_close(bundle);
        }
        assert_true(status == LIBDECODE_ERROR_BUNDLE_DAMAGED || status == LIBDECODE_ERROR_BUNDLE_VERSION);
        damaged[offset] = (uint8_t)~damaged[offset];
    }
    free(damaged);
}

static void a_bundle_cut_anywhere_is_damaged(void **state) {
    (void)state;
    fixture_write_file(path, honest, honest_bytes);
    for (size_t bytes = honest_bytes; bytes-- > 0;) {
        struct bundle *bundle = NULL;
        uint8_t *cut = copy_of(honest, bytes);
        assert_int_equal(open_and_read(cut, bytes), LIBDECODE_ERROR_BUNDLE_DAMAGED);
        free(cut);
        assert_int_equal(truncate(path, (off_t)bytes), 0);
        assert_int_equal(bundle_open_file(path, &bundle), LIBDECODE_ERROR_BUNDLE_DAMAGED);
    }
}

/* Cut before the end of the last frame, and the header made to agree. (The padding behind it may be left out.) */
static void a_bundle_cut_anywhere_with_a_matching_header_is_damaged(void **state) {
    (void)state;
    const struct bundle_image *last = &fixture_images(honest)[NUM_IMAGES - 1];
    for (size_t bytes = sizeof(struct bundle_header); bytes < last->offset + last->frame_bytes; bytes++) {
        uint8_t *cut = copy_of(honest, bytes);
        fixture_header(cut)->file_bytes = bytes;
        fixture_seal(cut, bytes);
        assert_int_equal(open_and_read(cut, bytes), LIBDECODE_ERROR_BUNDLE_DAMAGED);
        free(cut);
    }
}

static void bytes_after_the_end_are_damage(void **state) {
    (void)state;
    for (size_t more = 1; more <= 16; more++) {
        uint8_t *longer = calloc(1, honest_bytes + more);
        assert_non_null(longer);
        memcpy(longer, honest, honest_bytes);
        assert_int_equal(open_and_read(longer, honest_bytes + more), LIBDECODE_ERROR_BUNDLE_DAMAGED);
        fixture_header(longer)->file_bytes = honest_bytes + more;
        fixture_seal(longer, honest_bytes + more);
        assert_int_equal(open_and_read(longer, honest_bytes + more), LIBDECODE_ERROR_BUNDLE_DAMAGED);
        free(longer);
    }
}

static void a_file_that_shrinks_after_it_was_opened_cannot_be_read(void **state) {
    (void)state;
    struct bundle *bundle = NULL;
    void *bytes = NULL;
    fixture_write_file(path, honest, honest_bytes);
    assert_int_equal(bundle_open_file(path, &bundle), LIBDECODE_OK);
    assert_int_equal(truncate(path, (off_t)honest_bytes - 16), 0);
    assert_int_equal(bundle_read_image(bundle, NUM_IMAGES - 1, &bytes), LIBDECODE_ERROR_IO);
    assert_message_has("bytes long when opened");
    assert_null(bytes);
    assert_is_honest(bundle);
    bundle_close(bundle);
}

static void what_is_no_bundle_file_is_said_to_be_so(void **state) {
    (void)state;
    struct bundle *bundle = NULL;
    (void)unlink(path);
    assert_int_equal(bundle_open_file(path, &bundle), LIBDECODE_ERROR_BUNDLE_NOT_FOUND);
    assert_message_has(path);
    assert_int_equal(bundle_open_file("", &bundle), LIBDECODE_ERROR_BUNDLE_NOT_FOUND);
    assert_int_equal(bundle_open_file(folder, &bundle), LIBDECODE_ERROR_BUNDLE_NOT_FOUND);
    assert_message_has("not a regular file");
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(bundle_open_file(path, &bundle), LIBDECODE_ERROR_BUNDLE_NOT_FOUND); /* and does not wait for a writer */
    (void)unlink(path);
    assert_int_equal(symlink(path, path), 0);
    assert_int_equal(bundle_open_file(path, &bundle), LIBDECODE_ERROR_IO);
    (void)unlink(path);
    fixture_write_file(
        path,
        "PK\x03\x04, or any other file of more than one hundred and twenty-eight bytes, which is what the header of "
        "a bundle has, so that the magic is looked at and not the size",
        160);
    assert_int_equal(bundle_open_file(path, &bundle), LIBDECODE_ERROR_BUNDLE_DAMAGED);
    assert_message_has("not a bundle");
    assert_int_equal(bundle_open_memory(NULL, 0, "memory", &bundle), LIBDECODE_ERROR_INVALID_ARGUMENT);
    assert_null(bundle);
    bundle_close(NULL);
}

static void another_version_is_named_with_ours(void **state) {
    (void)state;
    uint8_t *other = copy_of(honest, honest_bytes);
    fixture_header(other)->version = 7;
    fixture_seal(other, honest_bytes);
    assert_int_equal(open_and_read(other, honest_bytes), LIBDECODE_ERROR_BUNDLE_VERSION);
    assert_message_has("format version 7, this libdecode reads 2");
    fixture_header(other)->version = BUNDLE_VERSION;
    fixture_header(other)->kernel_abi = LIBDECODE_KERNEL_ABI + 1;
    fixture_seal(other, honest_bytes);
    assert_int_equal(open_and_read(other, honest_bytes), LIBDECODE_ERROR_BUNDLE_VERSION);
    char message[64];
    (void)snprintf(message, sizeof message, "interface %u, this libdecode calls %u", LIBDECODE_KERNEL_ABI + 1,
                   LIBDECODE_KERNEL_ABI);
    assert_message_has(message);
    free(other);
}

/* ------------------------------------------------------------------------------------------------------------ memory */

static libdecode_status open_read_and_list(void) {
    struct bundle *bundle = NULL;
    struct kernel_table table = {0};
    libdecode_status status = bundle_open_file(path, &bundle);
    if (status != LIBDECODE_OK)
        return status;
    status = read_all(bundle);
    if (status == LIBDECODE_OK)
        status = kernel_table_build(&bundle, 1, &table);
    kernel_table_destroy(&table);
    bundle_close(bundle);
    return status;
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    fixture_write_file(path, honest, honest_bytes);
    /* bundle, path, tables, counts; frame, image, zstd and list of kernels for each image; five of the table.
     * 0: not linked with --wrap */
    assert_int_equal(fail_each_allocation(open_read_and_list), 4 + 4 * NUM_IMAGES + 5);
}

/* ----------------------------------------------------------------------------------------------------------- overlay */

struct overlay_bundle {
    struct fixture_kernel kernels[3];
    size_t num_kernels;
};

static struct bundle *open_overlay(const struct overlay_bundle *overlay) {
    size_t bytes;
    struct bundle *bundle = NULL;
    uint8_t *data = fixture_bundle(overlay->kernels, overlay->num_kernels, &bytes);
    fixture_write_file(path, data, bytes);
    free(data);
    assert_int_equal(bundle_open_file(path, &bundle), LIBDECODE_OK);
    (void)unlink(path); /* the open file is enough */
    return bundle;
}

static void a_newer_bundle_hides_an_older_kernel_only_where_it_serves_the_same_gpu(void **state) {
    (void)state;
    const struct overlay_bundle layers[] = {
        {{{.name = "a_sm100", .target = 100}, {.name = "b_sm100", .target = 100}, {.name = "c_sm90", .target = 90}}, 3},
        {{{.name = "a_sm100", .target = 100, .gpus = BUNDLE_GPU_SM103}, {.name = "d_sm90", .target = 90}}, 2},
        {{{.name = "b_sm100", .target = 100}}, 1},
    };
    static const struct {
        const char *name;
        uint32_t rank, gpus;
    } expected[] = {
        {"a_sm100", 1, BUNDLE_GPU_SM103}, {"a_sm100", 0, BUNDLE_GPU_SM100}, {"b_sm100", 2, BUNDLE_GPU_SM100 | BUNDLE_GPU_SM103},
        {"c_sm90", 0, BUNDLE_GPU_SM90},   {"d_sm90", 1, BUNDLE_GPU_SM90},
    };
    struct bundle *bundles[3];
    struct kernel_table table;
    for (size_t rank = 0; rank < 3; rank++)
        bundles[rank] = open_overlay(&layers[rank]);
    assert_int_equal(kernel_table_build(bundles, 3, &table), LIBDECODE_OK);
    assert_int_equal(table.count, sizeof expected / sizeof expected[0]);
    for (size_t index = 0; index < table.count; index++) {
        assert_string_equal(table.records[index].name, expected[index].name);
        assert_int_equal(table.records[index].bundle_rank, expected[index].rank);
        assert_ptr_equal(table.records[index].bundle, bundles[expected[index].rank]);
        assert_string_equal(bundle_string(table.records[index].bundle, table.records[index].kernel->name), expected[index].name);
        assert_int_equal(table.gpus[index], expected[index].gpus);
    }
    kernel_table_destroy(&table);
    assert_int_equal(table.count, 0);
    for (size_t rank = 0; rank < 3; rank++)
        bundle_close(bundles[rank]);
}

static void no_bundles_make_an_empty_table(void **state) {
    (void)state;
    struct kernel_table table;
    assert_int_equal(kernel_table_build(NULL, 0, &table), LIBDECODE_OK);
    assert_int_equal(table.count, 0);
    kernel_table_destroy(&table);
}

static void an_older_version_is_named_like_a_newer_one(void **state) {
    (void)state;
    uint8_t *other = copy_of(honest, honest_bytes);
    fixture_header(other)->version = BUNDLE_VERSION - 1;
    fixture_seal(other, honest_bytes);
    assert_int_equal(open_and_read(other, honest_bytes), LIBDECODE_ERROR_BUNDLE_VERSION);
    assert_message_has("format version 1, this libdecode reads 2");
    fixture_header(other)->version = BUNDLE_VERSION;
    fixture_header(other)->kernel_abi = LIBDECODE_KERNEL_ABI - 1;
    fixture_seal(other, honest_bytes);
    assert_int_equal(open_and_read(other, honest_bytes), LIBDECODE_ERROR_BUNDLE_VERSION);
    assert_message_has("use the bundles that belong to it");
    free(other);
}

/* The lowest that is free. */
static int next_descriptor(void) {
    const int file = open("/dev/null", O_RDONLY);
    assert_true(file >= 0);
    assert_int_equal(close(file), 0);
    return file;
}

static void a_bundle_that_is_refused_or_closed_leaves_no_descriptor(void **state) {
    (void)state;
    struct bundle *bundle = NULL;
    const int before = next_descriptor();
    assert_int_equal(bundle_open_file(folder, &bundle), LIBDECODE_ERROR_BUNDLE_NOT_FOUND);
    fixture_write_file(path, honest, honest_bytes / 2);
    assert_int_equal(bundle_open_file(path, &bundle), LIBDECODE_ERROR_BUNDLE_DAMAGED);
    fixture_write_file(path, honest, honest_bytes);
    assert_int_equal(bundle_open_file(path, &bundle), LIBDECODE_OK);
    bundle_close(bundle);
    assert_int_equal(next_descriptor(), before);
}

static void a_file_in_a_file_is_not_found(void **state) {
    (void)state;
    struct bundle *bundle = NULL;
    assert_int_equal(bundle_open_file("/dev/null/no.bundle", &bundle), LIBDECODE_ERROR_BUNDLE_NOT_FOUND);
}

/* The driver may read a little too far: zeros, whatever the memory held before. */
static void zeros_follow_an_image(void **state) {
    (void)state;
    struct bundle *bundle = NULL;
    void *bytes = NULL;
    assert_int_equal(bundle_open_memory(honest, honest_bytes, "memory", &bundle), LIBDECODE_OK);
    for (int round = 0; round < 2; round++) { /* the second into memory that the first has left full */
        const size_t image_bytes = (size_t)bundle_images(bundle)[0].image_bytes;
        assert_int_equal(bundle_read_image(bundle, 0, &bytes), LIBDECODE_OK);
        for (size_t i = image_bytes; i < image_bytes + 64; i++)
            assert_int_equal(((const uint8_t *)bytes)[i], 0);
        memset(bytes, 0xa5, image_bytes + 64);
        free(bytes);
    }
    bundle_close(bundle);
}

/* ---------------------------------------------------------------------------------------------------------- short reads */

/* As network file systems read, and what a signal interrupts. glibc calls pread64 where a program is built with 64-bit offsets. */
static bool reads_in_pieces;
ssize_t __real_pread64(int file, void *buffer, size_t bytes, off_t offset);
ssize_t __wrap_pread64(int file, void *buffer, size_t bytes, off_t offset);
ssize_t __wrap_pread64(int file, void *buffer, size_t bytes, off_t offset) {
    static unsigned calls;
    if (reads_in_pieces && ++calls % 2 == 0) {
        errno = EINTR;
        return -1;
    }
    return __real_pread64(file, buffer, reads_in_pieces && bytes > 100 ? 100 : bytes, offset);
}

static void reads_may_be_interrupted_and_short(void **state) {
    (void)state;
    struct bundle *bundle = NULL;
    fixture_write_file(path, honest, honest_bytes);
    reads_in_pieces = true;
    assert_int_equal(bundle_open_file(path, &bundle), LIBDECODE_OK);
    assert_is_honest(bundle);
    assert_int_equal(read_all(bundle), LIBDECODE_OK);
    reads_in_pieces = false;
    bundle_close(bundle);
}

/* The GPU that two newer bundles share between them is left to neither of the older ones. */
static void a_kernel_is_hidden_by_all_newer_bundles_together(void **state) {
    (void)state;
    static const uint32_t gpus[] = {BUNDLE_GPU_SM100, BUNDLE_GPU_SM103, BUNDLE_GPU_SM100};
    struct bundle *bundles[3];
    struct kernel_table table;
    for (size_t i = 0; i < 3; i++) {
        const struct overlay_bundle overlay = {.kernels = {{.name = "alpha_sm100", .target = 100, .gpus = gpus[i]}},
                                               .num_kernels = 1};
        bundles[i] = open_overlay(&overlay);
    }
    assert_int_equal(kernel_table_build(bundles, 3, &table), LIBDECODE_OK);
    assert_int_equal(table.count, 2); /* the first one's is hidden by the third one's */
    assert_int_equal(table.gpus[0], BUNDLE_GPU_SM100);
    assert_ptr_equal(table.records[0].bundle, bundles[2]);
    assert_int_equal(table.gpus[1], BUNDLE_GPU_SM103);
    assert_ptr_equal(table.records[1].bundle, bundles[1]);
    kernel_table_destroy(&table);
    for (size_t i = 0; i < 3; i++)
        bundle_close(bundles[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bundle_in_memory_gives_its_tables_and_the_images_that_went_in),
        cmocka_unit_test(a_bundle_in_a_file_is_the_same_and_its_descriptor_is_not_inherited),
        cmocka_unit_test(a_bundle_in_memory_need_not_be_aligned),
        cmocka_unit_test(strings_need_not_end_on_eight_bytes_nor_the_last_frame),
        cmocka_unit_test(every_flipped_bit_is_noticed),
        cmocka_unit_test(every_flipped_byte_of_a_file_is_noticed),
        cmocka_unit_test(a_bundle_cut_anywhere_is_damaged),
        cmocka_unit_test(a_bundle_cut_anywhere_with_a_matching_header_is_damaged),
        cmocka_unit_test(bytes_after_the_end_are_damage),
        cmocka_unit_test(a_file_that_shrinks_after_it_was_opened_cannot_be_read),
        cmocka_unit_test(what_is_no_bundle_file_is_said_to_be_so),
        cmocka_unit_test(another_version_is_named_with_ours),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(a_newer_bundle_hides_an_older_kernel_only_where_it_serves_the_same_gpu),
        cmocka_unit_test(no_bundles_make_an_empty_table),
        cmocka_unit_test(an_older_version_is_named_like_a_newer_one),
        cmocka_unit_test(a_bundle_that_is_refused_or_closed_leaves_no_descriptor),
        cmocka_unit_test(a_file_in_a_file_is_not_found),
        cmocka_unit_test(zeros_follow_an_image),
        cmocka_unit_test(reads_may_be_interrupted_and_short),
        cmocka_unit_test(a_kernel_is_hidden_by_all_newer_bundles_together),
    };
    return cmocka_run_group_tests(tests, make_honest, remove_honest);
}
