/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_bundle_search.c: which places are looked into, and what happens to the odd file in one of them. Where this code was loaded
 * from, whether it is setuid and what it carries is said by the test: dladdr1, getauxval and embedded_bundles are wrapped.
 * Under test: loader/bundle_search.c, open.c.
 */
#define _GNU_SOURCE 1 /* Dl_info, mkdtemp, nftw under -std=c17 */

#include "bundle_search.h" /* before cmocka.h, which makes a macro of fail */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dlfcn.h>
#include <ftw.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bundle_fixture.h"
#include "decode_fixture.h"
#include "embedded.h"
#include "failing_malloc.h"

#define KERNEL "gqa_decode_kvbf16_d128_r8_p16_c1_o0_sm90"
#define WIDER "gqa_decode_kvbf16_d128_r32_p16_c1_o0_sm90"

static char folder[128];
static uint8_t *data, *damaged, *wider;
static size_t data_bytes, wider_bytes;

/* ------------------------------------------------------------------------------------------------- what the test says */

static char own_path[512]; /* of the library that this code pretends to be; "": the program */
static bool is_setuid;
static struct embedded_bundle carried;

int __wrap_dladdr1(const void *address, Dl_info *info, void **extra, int flags);
unsigned long __real_getauxval(unsigned long type);
unsigned long __wrap_getauxval(unsigned long type);
size_t __wrap_embedded_bundles(const struct embedded_bundle **ret_bundles);

int __wrap_dladdr1(const void *address, Dl_info *info, void **extra, int flags) {
    static struct link_map map;
    (void)address;
    (void)info;
    assert_int_equal(flags, RTLD_DL_LINKMAP);
    map.l_name = own_path;
    *extra = &map;
    return 1;
}

unsigned long __wrap_getauxval(unsigned long type) { return type == AT_SECURE ? is_setuid : __real_getauxval(type); }

size_t __wrap_embedded_bundles(const struct embedded_bundle **ret_bundles) {
    *ret_bundles = &carried;
    return carried.data != NULL;
}

/* ------------------------------------------------------------------------------------------------------------ files */

static const char *in_folder(const char *name) {
    static char path[4][1024];
    static int next;
    next = (next + 1) % 4;
    (void)snprintf(path[next], sizeof path[next], "%s/%s", folder, name);
    return path[next];
}

static void make_folders(const char *path) {
    char part[1024];
    for (size_t length = 1; length <= strlen(path); length++) {
        if (path[length] != '/' && path[length] != '\0')
            continue;
        memcpy(part, path, length);
        part[length] = '\0';
        (void)mkdir(part, 0755);
    }
}

static int remove_entry(const char *path, const struct stat *facts, int type, struct FTW *position) {
    (void)facts;
    (void)type;
    (void)position;
    return remove(path);
}

static int begin(void **state) {
    (void)state;
    struct fixture_kernel kernel = {.name = KERNEL, .target = 90};
    data = fixture_bundle(&kernel, 1, &data_bytes);
    damaged = malloc(data_bytes);
    if (!damaged)
        return -1;
    memcpy(damaged, data, data_bytes);
    damaged[sizeof(struct bundle_header)] ^= 1;
    kernel.name = WIDER;
    kernel.contract = fixture_contract();
    kernel.contract.row_tile = 32;
    wider = fixture_bundle(&kernel, 1, &wider_bytes);
    (void)snprintf(folder, sizeof folder, "/tmp/test_bundle_search_XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int end(void **state) {
    (void)state;
    free(data);
    free(damaged);
    free(wider);
    return nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static int reset(void **state) {
    (void)state;
    own_path[0] = '\0';
    is_setuid = false;
    carried = (struct embedded_bundle){NULL, 0};
    fail_allocation(0);
    return chdir("/");
}

/* ------------------------------------------------------------------------------------------- the installed folder */

static size_t num_installed(void) {
    const struct log_sink log = {.level = LIBDECODE_LOG_NONE};
    struct bundle_list list = {.log = &log};
    assert_int_equal(bundle_list_add_installed(&list), LIBDECODE_OK);
    size_t count = list.count;
    bundle_list_close(&list);
    return count;
}

/* Somewhere below the folder, with a bundle where a moved installation has it. */
static void move_installation(void) {
    char bundles[1024];
    if (strlen(LIBDECODE_BUNDLE_DIR_FROM_LIBRARY) == 0)
        skip(); /* configured outside the prefix */
    make_folders(in_folder("moved/a/b/c/d"));
    (void)snprintf(bundles, sizeof bundles, "%s/%s", in_folder("moved/a/b/c/d"), LIBDECODE_BUNDLE_DIR_FROM_LIBRARY);
    make_folders(bundles);
    (void)strcat(bundles, "/one.bundle");
    fixture_write_file(bundles, data, data_bytes);
}

static void a_moved_library_finds_the_folder_that_moved_along(void **state) {
    (void)state;
    (void)snprintf(own_path, sizeof own_path, "%s", in_folder("moved/a/b/c/d/libdecode.so.0"));
    size_t before = num_installed();
    move_installation();
    assert_int_equal(before, num_installed() - 1);
}

static void a_relative_own_path_is_not_followed(void **state) {
    (void)state;
    move_installation();
    (void)snprintf(own_path, sizeof own_path, "./moved/a/b/c/d/libdecode.so.0");
    size_t elsewhere = num_installed();
    assert_int_equal(chdir(folder), 0);
    assert_int_equal(num_installed(), elsewhere);
}

static void a_setuid_program_looks_into_the_folder_of_the_build_alone(void **state) {
    (void)state;
    move_installation();
    (void)snprintf(own_path, sizeof own_path, "./moved/a/b/c/d/libdecode.so.0");
    size_t of_the_build = num_installed();
    (void)snprintf(own_path, sizeof own_path, "%s", in_folder("moved/a/b/c/d/libdecode.so.0"));
    is_setuid = true;
    assert_int_equal(num_installed(), of_the_build);
}

static void a_library_that_carries_bundles_looks_into_no_folder(void **state) {
    (void)state;
    libdecode_open_options options = {.struct_size = sizeof options, .flags = LIBDECODE_OPEN_IGNORE_ENVIRONMENT};
    libdecode_context *context = NULL;
    libdecode_bundle_info info = {.struct_size = sizeof info};
    move_installation();
    (void)snprintf(own_path, sizeof own_path, "%s", in_folder("moved/a/b/c/d/libdecode.so.0"));
    carried = (struct embedded_bundle){data, data_bytes};
    assert_int_equal(libdecode_open(&options, &context), LIBDECODE_OK);
    assert_int_equal(libdecode_bundle_count(context), 1);
    assert_int_equal(libdecode_bundle_get_info(context, 0, &info), LIBDECODE_OK);
    assert_string_equal(info.path, "embedded");
    libdecode_close(context);
}

/* -------------------------------------------------------------------------------------------- odd files in a folder */

struct log {
    size_t warnings, others;
    char text[2048];
};

static void keep_log(void *cookie, libdecode_log_level level, const char *message) {
    struct log *log = cookie;
    if (level != LIBDECODE_LOG_WARN) {
        log->others++;
        return;
    }
    log->warnings++;
    (void)strncat(log->text, message, sizeof log->text - strlen(log->text) - 1);
}

static libdecode_open_options named(const char *const *path, struct log *log) {
    return (libdecode_open_options){.struct_size = sizeof(libdecode_open_options),
                                    .flags = LIBDECODE_OPEN_IGNORE_ENVIRONMENT | LIBDECODE_OPEN_BUNDLES_ONLY,
                                    .log_level = LIBDECODE_LOG_WARN,
                                    .log = keep_log,
                                    .log_cookie = log,
                                    .bundle_paths = path,
                                    .num_bundle_paths = 1};
}

/* One bundle that can be used, and everything else that a folder may hold. */
static const char *odd_folder(void) {
    static char path[256];
    (void)snprintf(path, sizeof path, "%s", in_folder("odd"));
    make_folders(in_folder("odd/folder.bundle"));
    fixture_write_file(in_folder("odd/notes.txt"), "no", 2);
    fixture_write_file(in_folder("odd/.hidden.bundle"), "no", 2);
    fixture_write_file(in_folder("odd/good.bundle"), data, data_bytes);
    fixture_write_file(in_folder("odd/cut.bundle"), data, data_bytes - 1);
    fixture_write_file(in_folder("odd/empty.bundle"), data, 0);
    uint8_t *other = malloc(wider_bytes);
    assert_non_null(other);
    memcpy(other, wider, wider_bytes);
    fixture_header(other)->kernel_abi = 77;
    fixture_seal(other, wider_bytes);
    fixture_write_file(in_folder("odd/later.bundle"), other, wider_bytes);
    free(other);
    (void)mkfifo(in_folder("odd/pipe.bundle"), 0600);
    (void)symlink("nowhere", in_folder("odd/dangling.bundle"));
    return path;
}

static void assert_text_has(const char *text, const char *part) {
    if (!strstr(text, part))
        fail_msg("'%s' is not in '%s'", part, text);
}

static void the_odd_file_in_a_folder_is_passed_over_with_a_warning(void **state) {
    (void)state;
    const char *path = odd_folder();
    struct log log = {0};
    libdecode_open_options options = named(&path, &log);
    libdecode_context *context = NULL;
    assert_int_equal(libdecode_open(&options, &context), LIBDECODE_OK);
    assert_int_equal(libdecode_bundle_count(context), 1);
    assert_int_equal(log.warnings, 3); /* what is no regular file, or is not called so, is none of ours */
    assert_int_equal(log.others, 0);
    assert_text_has(log.text, "passed over: options.bundle_paths: bundle ");
    assert_text_has(log.text, "odd/cut.bundle: ");
    assert_text_has(log.text, "odd/empty.bundle: 0 bytes are too few");
    assert_text_has(log.text, "odd/later.bundle has kernels of interface 77");
    libdecode_close(context);
}

static void a_refusal_names_what_was_passed_over_and_why(void **state) {
    (void)state;
    const char *path = odd_folder();
    struct log log = {0};
    libdecode_open_options options = named(&path, &log);
    libdecode_context *context = NULL;
    libdecode_problem problem = llama3_8b();
    libdecode_device device = preset("sm_90");
    libdecode_plan *plan = NULL;
    assert_int_equal(libdecode_open(&options, &context), LIBDECODE_OK);
    assert_int_equal(libdecode_plan_create(context, &problem, &device, &plan), LIBDECODE_OK);
    libdecode_plan_destroy(plan);
    device = preset("sm_120");
    assert_int_equal(libdecode_plan_create(context, &problem, &device, &plan), LIBDECODE_ERROR_NO_GPU_IMAGE);
    assert_text_has(libdecode_error_message(), "no image for sm_120");
    assert_text_has(libdecode_error_message(), "(passed over: ");
    assert_text_has(libdecode_error_message(), "odd/later.bundle has kernels of interface 77, this libdecode calls ");
    assert_int_equal(libdecode_explain(context, &problem, &device, NULL, NULL), LIBDECODE_ERROR_NO_GPU_IMAGE);
    assert_text_has(libdecode_error_message(), "odd/cut.bundle: ");
    problem.batch_size = -1; /* a mistake of the caller's has nothing to do with it */
    assert_int_equal(libdecode_plan_create(context, &problem, &device, &plan), LIBDECODE_ERROR_INVALID_ARGUMENT);
    assert_null(strstr(libdecode_error_message(), "passed over"));
    libdecode_close(context);

    options.kernel_policy = "force=" WIDER;
    assert_int_equal(libdecode_open(&options, &context), LIBDECODE_ERROR_OVERRIDE);
    assert_text_has(libdecode_error_message(), "odd/later.bundle has kernels of interface 77");
}

static void a_pinned_root_hash_passes_the_others_of_a_folder_over(void **state) {
    (void)state;
    struct log log = {0};
    make_folders(in_folder("pinned"));
    fixture_write_file(in_folder("pinned/a.bundle"), data, data_bytes);
    fixture_write_file(in_folder("pinned/b.bundle"), wider, wider_bytes);
    const char *path = in_folder("pinned");
    libdecode_open_options options = named(&path, &log);
    libdecode_context *context = NULL;
    options.root_hashes = (const uint8_t(*)[32])fixture_header(data)->root_hash;
    options.num_root_hashes = 1;
    assert_int_equal(libdecode_open(&options, &context), LIBDECODE_OK);
    assert_int_equal(libdecode_bundle_count(context), 1);
    assert_text_has(log.text, "pinned/b.bundle: its root hash");
    libdecode_close(context);
    path = in_folder("pinned/b.bundle"); /* named: an error */
    assert_int_equal(libdecode_open(&options, &context), LIBDECODE_ERROR_BUNDLE_DAMAGED);
}

static void a_named_file_or_folder_that_cannot_be_used_is_an_error(void **state) {
    (void)state;
    struct log log = {0};
    libdecode_context *context = NULL;
    const char *path = odd_folder();
    libdecode_open_options options = named(&path, &log);
    path = in_folder("odd/cut.bundle");
    assert_int_equal(libdecode_open(&options, &context), LIBDECODE_ERROR_BUNDLE_DAMAGED);
    assert_text_has(libdecode_error_message(), "odd/cut.bundle");
    path = in_folder("odd/pipe.bundle");
    assert_int_equal(libdecode_open(&options, &context), LIBDECODE_ERROR_BUNDLE_NOT_FOUND);
    assert_text_has(libdecode_error_message(), "not a regular file");

    make_folders(in_folder("useless/folder.bundle"));
    path = in_folder("useless");
    assert_int_equal(libdecode_open(&options, &context), LIBDECODE_ERROR_BUNDLE_NOT_FOUND);
    assert_text_has(libdecode_error_message(), "holds no *.bundle file");
    fixture_write_file(in_folder("useless/a.bundle"), damaged, data_bytes);
    path = in_folder("useless");
    assert_int_equal(libdecode_open(&options, &context), LIBDECODE_ERROR_BUNDLE_DAMAGED);
    assert_text_has(libdecode_error_message(), "useless holds no bundle that can be used (passed over: ");
    assert_text_has(libdecode_error_message(), "useless/a.bundle: the SHA-256");
    assert_null(context);
}

/* ----------------------------------------------------------------------------------------------------------- memory */

static void every_allocation_of_a_search_may_fail(void **state) {
    (void)state;
    struct log log = {0};
    const char *path = odd_folder();
    libdecode_open_options options = named(&path, &log);
    options.flags = LIBDECODE_OPEN_IGNORE_ENVIRONMENT;
    move_installation();
    (void)snprintf(own_path, sizeof own_path, "%s", in_folder("moved/a/b/c/d/libdecode.so.0"));
    size_t num_failures = 0;
    for (;; num_failures++) {
        libdecode_context *context = NULL;
        fail_allocation(num_failures + 1);
        libdecode_status status = libdecode_open(&options, &context);
        if (!allocation_failed()) {
            assert_int_equal(status, LIBDECODE_OK);
            libdecode_close(context);
            break;
        }
        assert_int_equal(status, LIBDECODE_ERROR_OUT_OF_MEMORY);
        assert_null(context);
    }
    assert_in_range(num_failures, 20, 100);
}

static void every_allocation_for_a_list_of_paths_may_fail(void **state) {
    (void)state;
    const struct log_sink log = {.level = LIBDECODE_LOG_NONE};
    char paths[512];
    (void)snprintf(paths, sizeof paths, ":%s:", odd_folder());
    for (size_t n = 1;; n++) {
        struct bundle_list list = {.log = &log};
        fail_allocation(n);
        libdecode_status status = bundle_list_add_paths(&list, paths, "test");
        bundle_list_close(&list);
        if (!allocation_failed()) {
            assert_int_equal(status, LIBDECODE_OK);
            assert_true(n > 5);
            break;
        }
        assert_int_equal(status, LIBDECODE_ERROR_OUT_OF_MEMORY);
    }
}

/* One that holds nothing is an error, whatever the places before it held; and so is told of it alone. */
static void every_folder_that_is_named_must_hold_a_bundle(void **state) {
    (void)state;
    const struct log_sink log = {.level = LIBDECODE_LOG_NONE};
    struct bundle_list list = {.log = &log};
    char paths[512];
    const char *odd = odd_folder();
    make_folders(in_folder("nothing"));
    (void)snprintf(paths, sizeof paths, "%s:%s", odd, in_folder("nothing"));
    assert_int_equal(bundle_list_add_paths(&list, paths, "test"), LIBDECODE_ERROR_BUNDLE_NOT_FOUND);
    assert_text_has(libdecode_error_message(), "nothing holds no *.bundle file");
    bundle_list_close(&list);

    uint8_t *other = malloc(data_bytes);
    assert_non_null(other);
    memcpy(other, data, data_bytes);
    fixture_header(other)->version = BUNDLE_VERSION + 1;
    make_folders(in_folder("bad"));
    fixture_write_file(in_folder("bad/a.bundle"), other, data_bytes);
    fixture_write_file(in_folder("bad/b.bundle"), damaged, data_bytes);
    free(other);
    (void)snprintf(paths, sizeof paths, "%s:%s", odd, in_folder("bad"));
    assert_int_equal(bundle_list_add_paths(&list, paths, "test"), LIBDECODE_ERROR_BUNDLE_VERSION); /* the first one's */
    assert_text_has(libdecode_error_message(), "bad holds no bundle that can be used (passed over: ");
    assert_text_has(libdecode_error_message(), "bad/b.bundle: ");
    assert_null(strstr(libdecode_error_message(), "odd/"));
    bundle_list_close(&list);
}

static void each_place_has_its_own_number_of_bundles(void **state) {
    (void)state;
    const struct log_sink log = {.level = LIBDECODE_LOG_NONE};
    struct bundle_list list = {.log = &log};
    char paths[512];
    const char *odd = odd_folder();
    make_folders(in_folder("two"));
    fixture_write_file(in_folder("two/a.bundle"), data, data_bytes);
    fixture_write_file(in_folder("two/b.bundle"), wider, wider_bytes);
    (void)snprintf(paths, sizeof paths, "%s:%s", in_folder("two"), odd);
    assert_int_equal(bundle_list_add_embedded(&list), LIBDECODE_OK);
    assert_int_equal(bundle_list_add_paths(&list, paths, "test"), LIBDECODE_OK);
    assert_int_equal(list.num_places, 3);
    assert_false(list.places[0].is_there);
    assert_int_equal(list.places[0].num_bundles, 0);
    assert_int_equal(list.places[1].num_bundles, 2);
    assert_int_equal(list.places[2].num_bundles, 1);
    bundle_list_close(&list);
}

static void a_pinned_root_hash_is_looked_at_to_its_last_byte(void **state) {
    (void)state;
    struct log log = {0};
    uint8_t pinned[1][32];
    fixture_write_file(in_folder("pin.bundle"), data, data_bytes);
    const char *path = in_folder("pin.bundle");
    libdecode_open_options options = named(&path, &log);
    libdecode_context *context = NULL;
    memcpy(pinned[0], fixture_header(data)->root_hash, sizeof pinned[0]);
    pinned[0][31] ^= 1;
    options.root_hashes = (const uint8_t(*)[32])pinned;
    options.num_root_hashes = 1;
    const int before = dup(0);
    assert_int_equal(libdecode_open(&options, &context), LIBDECODE_ERROR_BUNDLE_DAMAGED);
    assert_text_has(libdecode_error_message(), "its root hash");
    const int after = dup(0); /* the file is closed again */
    assert_int_equal(after, before + 1);
    (void)close(before);
    (void)close(after);
}

/* The bundles of the build are those of another installation, perhaps of another version. */
static void a_moved_installation_is_looked_into_alone(void **state) {
    (void)state;
    const struct log_sink log = {.level = LIBDECODE_LOG_NONE};
    struct bundle_list list = {.log = &log};
    move_installation();
    (void)snprintf(own_path, sizeof own_path, "%s", in_folder("moved/a/b/c/d/libdecode.so.0"));
    assert_int_equal(bundle_list_add_installed(&list), LIBDECODE_OK);
    assert_int_equal(list.num_places, 1);
    assert_int_equal(list.places[0].num_bundles, 1);
    bundle_list_close(&list);
}

/* Here since there is no descriptor left to read it by; root may read every folder. */
static void an_installed_folder_that_cannot_be_read_is_passed_over(void **state) {
    (void)state;
    const struct log_sink log = {.level = LIBDECODE_LOG_NONE};
    struct bundle_list list = {.log = &log};
    struct rlimit before, none;
    move_installation();
    (void)snprintf(own_path, sizeof own_path, "%s", in_folder("moved/a/b/c/d/libdecode.so.0"));
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    const libdecode_status status = bundle_list_add_installed(&list);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(status, LIBDECODE_OK);
    assert_int_equal(list.count, 0);
    assert_int_equal(list.num_passed_over, 1);
    assert_text_has(list.passed_over[0], "cannot be read");
    bundle_list_close(&list);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup(name, reset)
    const struct CMUnitTest tests[] = {
        TEST(a_moved_library_finds_the_folder_that_moved_along),
        TEST(a_relative_own_path_is_not_followed),
        TEST(a_setuid_program_looks_into_the_folder_of_the_build_alone),
        TEST(a_library_that_carries_bundles_looks_into_no_folder),
        TEST(the_odd_file_in_a_folder_is_passed_over_with_a_warning),
        TEST(a_refusal_names_what_was_passed_over_and_why),
        TEST(a_pinned_root_hash_passes_the_others_of_a_folder_over),
        TEST(a_named_file_or_folder_that_cannot_be_used_is_an_error),
        TEST(every_allocation_of_a_search_may_fail),
        TEST(every_allocation_for_a_list_of_paths_may_fail),
        TEST(every_folder_that_is_named_must_hold_a_bundle),
        TEST(each_place_has_its_own_number_of_bundles),
        TEST(a_pinned_root_hash_is_looked_at_to_its_last_byte),
        TEST(a_moved_installation_is_looked_into_alone),
        TEST(an_installed_folder_that_cannot_be_read_is_passed_over),
    };
    return cmocka_run_group_tests_name("bundle_search", tests, begin, end);
}
