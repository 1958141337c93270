/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_open.c: options, environment and bundles in files, folders and memory; what overlays what; what is logged; and the
 * functions that look inside a context. No driver is touched.
 */
#define _POSIX_C_SOURCE 200809L /* mkdtemp, setenv */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bundle_fixture.h"
#include "decode_fixture.h"

#define KERNEL "gqa_decode_kvbf16_d128_r8_p16_c1_o0_sm90"

static char folder[256];
static uint8_t *data;
static size_t data_bytes;

static void expect_ok(libdecode_status status) {
    if (status != LIBDECODE_OK)
        fail_msg("status %d: %s", (int)status, libdecode_error_message());
}

static const char *in_folder(const char *name) {
    static char path[4][512];
    static int next;
    next = (next + 1) % 4;
    (void)snprintf(path[next], sizeof path[next], "%s/%s", folder, name);
    return path[next];
}

/* A folder with two bundles (one kernel in both, one in each), an empty folder, and a file that is no bundle. */
static int create_files(void **state) {
    (void)state;
    const char *temporary = getenv("TMPDIR");
    (void)snprintf(folder, sizeof folder, "%s/libdecode-open-XXXXXX", temporary ? temporary : "/tmp");
    if (!mkdtemp(folder) || mkdir(in_folder("full"), 0755) != 0 || mkdir(in_folder("empty"), 0755) != 0)
        return -1;
    struct fixture_kernel kernels[2] = {{.name = KERNEL, .target = 90},
                                        {.name = "gqa_decode_kvbf16_d128_r16_p16_c1_o0_sm90", .target = 90}};
    kernels[1].contract = fixture_contract();
    kernels[1].contract.row_tile = 16;
    data = fixture_bundle(kernels, 2, &data_bytes);
    fixture_write_file(in_folder("full/b.bundle"), data, data_bytes);
    fixture_write_file(in_folder("full/ignored.txt"), "no", 2);
    fixture_write_file(in_folder("broken.bundle"), data, data_bytes - 1);
    kernels[1].name = "gqa_decode_kvbf16_d128_r32_p16_c1_o0_sm90";
    kernels[1].contract.row_tile = 32;
    size_t bytes;
    uint8_t *older = fixture_bundle(kernels, 2, &bytes);
    fixture_write_file(in_folder("full/a.bundle"), older, bytes);
    free(older);
    return 0;
}

static int remove_files(void **state) {
    (void)state;
    static const char *const names[] = {"full/a.bundle", "full/b.bundle", "full/ignored.txt", "broken.bundle"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        (void)unlink(in_folder(names[i]));
    (void)rmdir(in_folder("full"));
    (void)rmdir(in_folder("empty"));
    (void)rmdir(folder);
    free(data);
    return 0;
}

static int clear_environment(void **state) {
    (void)state;
    static const char *const names[] = {"LIBDECODE_KERNEL", "LIBDECODE_BUNDLE_PATH", "LIBDECODE_BUNDLE_ONLY", "LIBDECODE_LOG",
                                        "LIBDECODE_STRICT"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        (void)unsetenv(names[i]);
    return 0;
}

static libdecode_open_options no_environment(void) {
    return (libdecode_open_options){.struct_size = sizeof(libdecode_open_options),
                                    .flags = LIBDECODE_OPEN_IGNORE_ENVIRONMENT | LIBDECODE_OPEN_BUNDLES_ONLY};
}

static libdecode_context *opened(const libdecode_open_options *options) {
    libdecode_context *context = NULL;
    expect_ok(libdecode_open(options, &context));
    assert_non_null(context);
    return context;
}

static void expect_refused(const libdecode_open_options *options, libdecode_status expected, const char *first,
                           const char *second) {
    libdecode_context *context = (libdecode_context *)(uintptr_t)0x1234;
    libdecode_status status = libdecode_open(options, &context);
    if (status != expected || !strstr(libdecode_error_message(), first) || !strstr(libdecode_error_message(), second))
        fail_msg("status %d, message '%s', expected %d with '%s' and '%s'", (int)status, libdecode_error_message(), (int)expected,
                 first, second);
    assert_ptr_equal(context, (void *)(uintptr_t)0x1234);
}

static const char *bundle_of(const libdecode_context *context, const char *kernel) {
    libdecode_kernel_info info = {.struct_size = sizeof info};
    for (size_t i = 0; i < libdecode_kernel_count(context); i++) {
        expect_ok(libdecode_kernel_get_info(context, i, &info));
        if (strcmp(info.name, kernel) == 0)
            return info.bundle;
    }
    return "none";
}

/* --------------------------------------------------------------------------------------------------------- options */

static void wrong_options_are_named(void **state) {
    (void)state;
    const libdecode_status invalid = LIBDECODE_ERROR_INVALID_ARGUMENT;
    libdecode_open_options options = no_environment();
    assert_int_equal(libdecode_open(&options, NULL), invalid);
    options.struct_size = 8;
    expect_refused(&options, LIBDECODE_ERROR_STRUCT_SIZE, "libdecode_open_options", "8");
    options = no_environment();
    options.flags = 8;
    expect_refused(&options, invalid, "options.flags has unknown bits 0x8", "0x7");
    options = no_environment();
    options.log_level = (libdecode_log_level)6;
    expect_refused(&options, invalid, "options.log_level is 6", "0 (default) to 5");
    options = no_environment();
    options.num_bundle_paths = 1;
    expect_refused(&options, invalid, "options.bundle_paths is NULL", "1");
    const char *nothing = NULL;
    options.bundle_paths = &nothing;
    expect_refused(&options, invalid, "options.bundle_paths[0] is NULL", "file or a folder");
    options = no_environment();
    options.num_memory_bundles = 2;
    expect_refused(&options, invalid, "options.memory_bundles is NULL", "2");
    libdecode_memory_bundle memory = {NULL, 10};
    options.memory_bundles = &memory;
    options.num_memory_bundles = 1;
    expect_refused(&options, invalid, "options.memory_bundles[0].data is NULL", "bytes");
    options = no_environment();
    options.num_root_hashes = 1;
    expect_refused(&options, invalid, "options.root_hashes is NULL", "1");
}

static void a_context_without_bundles_opens_and_every_plan_says_what_is_missing(void **state) {
    (void)state;
    libdecode_open_options options = no_environment();
    libdecode_context *context = opened(&options);
    libdecode_problem problem = llama3_8b();
    libdecode_device device = preset("sm_90");
    libdecode_plan *plan = NULL;
    assert_int_equal(libdecode_kernel_count(context), 0);
    assert_int_equal(libdecode_bundle_count(context), 0);
    assert_int_equal(libdecode_plan_create(context, &problem, &device, &plan), LIBDECODE_ERROR_NOT_IN_BUNDLE);
    assert_non_null(strstr(libdecode_error_message(), "LIBDECODE_BUNDLE_PATH"));
    libdecode_close(context);
    libdecode_context *defaults = opened(NULL); /* nothing installed is no error either */
    libdecode_close(defaults);
}

static void later_bundles_overlay_earlier_ones_and_hide_nothing_else(void **state) {
    (void)state;
    libdecode_open_options options = no_environment();
    const char *paths[] = {in_folder("full")};
    options.bundle_paths = paths;
    options.num_bundle_paths = 1;
    libdecode_context *context = opened(&options);
    assert_int_equal(libdecode_bundle_count(context), 2); /* not the .txt */
    assert_int_equal(libdecode_kernel_count(context), 3);
    assert_string_equal(bundle_of(context, KERNEL), in_folder("full/b.bundle"));
    assert_string_equal(bundle_of(context, "gqa_decode_kvbf16_d128_r32_p16_c1_o0_sm90"), in_folder("full/a.bundle"));
    libdecode_close(context);

    libdecode_memory_bundle memory = {data, data_bytes};
    options.memory_bundles = &memory;
    options.num_memory_bundles = 1;
    context = opened(&options);
    assert_string_equal(bundle_of(context, KERNEL), "memory");
    libdecode_close(context);
}

static void a_path_that_leads_nowhere_is_an_error_that_names_it(void **state) {
    (void)state;
    libdecode_open_options options = no_environment();
    const char *path = in_folder("absent.bundle");
    options.bundle_paths = &path;
    options.num_bundle_paths = 1;
    expect_refused(&options, LIBDECODE_ERROR_BUNDLE_NOT_FOUND, "options.bundle_paths", path);
    path = in_folder("empty");
    expect_refused(&options, LIBDECODE_ERROR_BUNDLE_NOT_FOUND, "holds no *.bundle", path);
    path = in_folder("broken.bundle");
    expect_refused(&options, LIBDECODE_ERROR_BUNDLE_DAMAGED, "options.bundle_paths", path);
}

static void a_bundle_with_another_root_hash_than_pinned_is_refused(void **state) {
    (void)state;
    libdecode_open_options options = no_environment();
    libdecode_memory_bundle memory = {data, data_bytes};
    uint8_t hashes[2][32] = {{0}};
    options.memory_bundles = &memory;
    options.num_memory_bundles = 1;
    options.root_hashes = (const uint8_t(*)[32])hashes;
    options.num_root_hashes = 2;
    expect_refused(&options, LIBDECODE_ERROR_BUNDLE_DAMAGED, "root hash", "2 that the caller accepts");
    memcpy(hashes[1], fixture_header(data)->root_hash, 32);
    libdecode_close(opened(&options));
}

/* ------------------------------------------------------------------------------------------------------ environment */

static void the_environment_adds_bundles_on_top(void **state) {
    (void)state;
    char list[1200];
    (void)snprintf(list, sizeof list, "%s::%s:", in_folder("full/b.bundle"), in_folder("full/a.bundle"));
    (void)setenv("LIBDECODE_BUNDLE_PATH", list, 1);
    libdecode_memory_bundle memory = {data, data_bytes};
    libdecode_open_options options = {.struct_size = sizeof options, .memory_bundles = &memory, .num_memory_bundles = 1};
    libdecode_context *context = opened(&options);
    size_t with_memory = libdecode_bundle_count(context);
    assert_string_equal(bundle_of(context, KERNEL), in_folder("full/a.bundle"));
    libdecode_close(context);

    (void)setenv("LIBDECODE_BUNDLE_ONLY", "1", 1);
    context = opened(&options);
    assert_int_equal(libdecode_bundle_count(context), 2);
    assert_true(with_memory >= 3);
    libdecode_close(context);

    options.flags = LIBDECODE_OPEN_BUNDLES_ONLY; /* the caller's word against the environment's */
    context = opened(&options);
    assert_int_equal(libdecode_bundle_count(context), 1);
    assert_string_equal(bundle_of(context, KERNEL), "memory");
    libdecode_close(context);
    (void)unsetenv("LIBDECODE_BUNDLE_PATH"); /* nobody asks for it */
    libdecode_close(opened(&options));
}

static void a_wrong_variable_is_an_error_unless_the_environment_is_ignored(void **state) {
    (void)state;
    static const struct {
        const char *name, *value;
        libdecode_status status;
    } wrong[] = {{"LIBDECODE_BUNDLE_PATH", "/does/not/exist", LIBDECODE_ERROR_BUNDLE_NOT_FOUND},
                 {"LIBDECODE_BUNDLE_ONLY", "1", LIBDECODE_ERROR_INVALID_ARGUMENT}, /* and no path */
                 {"LIBDECODE_LOG", "loud", LIBDECODE_ERROR_INVALID_ARGUMENT},
                 {"LIBDECODE_STRICT", "yes", LIBDECODE_ERROR_INVALID_ARGUMENT},
                 {"LIBDECODE_KERNEL", "force=*_sm91", LIBDECODE_ERROR_OVERRIDE},
                 {"LIBDECODE_KERNEL", "fore=*", LIBDECODE_ERROR_OVERRIDE}};
    libdecode_memory_bundle memory = {data, data_bytes};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        libdecode_open_options options = {.struct_size = sizeof options, .memory_bundles = &memory, .num_memory_bundles = 1};
        (void)setenv(wrong[i].name, wrong[i].value, 1);
        expect_refused(&options, wrong[i].status, wrong[i].name, "");
        options.flags = LIBDECODE_OPEN_IGNORE_ENVIRONMENT;
        libdecode_close(opened(&options));
        (void)unsetenv(wrong[i].name);
    }
}

static void bundles_only_of_a_path_without_any_name_is_an_error(void **state) {
    (void)state;
    (void)setenv("LIBDECODE_BUNDLE_ONLY", "1", 1);
    (void)setenv("LIBDECODE_BUNDLE_PATH", "::", 1);
    expect_refused(NULL, LIBDECODE_ERROR_INVALID_ARGUMENT, "LIBDECODE_BUNDLE_ONLY is 1", "LIBDECODE_BUNDLE_PATH is '::'");
}

static void a_policy_comes_from_the_environment_or_instead_from_the_caller(void **state) {
    (void)state;
    libdecode_memory_bundle memory = {data, data_bytes};
    libdecode_open_options options = {.struct_size = sizeof options, .memory_bundles = &memory, .num_memory_bundles = 1};
    libdecode_problem problem = llama3_8b();
    libdecode_device device = preset("sm_90");
    libdecode_plan_info info = {.struct_size = sizeof info};
    libdecode_plan *plan;
    const char *expected[] = {"_r16_", "_r8_"};
    (void)setenv("LIBDECODE_KERNEL", "batch_decode:force=*_r16_*", 1);
    for (size_t i = 0; i < 2; i++) {
        libdecode_context *context = opened(&options);
        expect_ok(libdecode_plan_create(context, &problem, &device, &plan));
        expect_ok(libdecode_plan_get_info(plan, &info));
        assert_non_null(strstr(info.kernel, expected[i]));
        libdecode_plan_destroy(plan);
        libdecode_close(context);
        options.kernel_policy = "deny=*_r16_*";
    }
    options.kernel_policy = "deny=*_r17_*";
    expect_refused(&options, LIBDECODE_ERROR_OVERRIDE, "options.kernel_policy, item 1", "nearest: ");
}

static void strict_comes_from_the_environment_or_from_a_flag(void **state) {
    (void)state;
    libdecode_memory_bundle memory = {data, data_bytes};
    libdecode_open_options options = {.struct_size = sizeof options, .memory_bundles = &memory, .num_memory_bundles = 1};
    libdecode_problem problem = llama3_8b();
    libdecode_device device = preset("sm_90");
    problem.num_kv_heads = 1; /* 32 rows, and the bundle has tiles of 8 and 16 */
    for (int i = 0; i < 3; i++) {
        libdecode_plan *plan = NULL;
        options.flags = i == 1 ? LIBDECODE_OPEN_STRICT : 0;
        (void)setenv("LIBDECODE_STRICT", i == 2 ? "1" : "0", 1);
        libdecode_context *context = opened(&options);
        assert_int_equal(libdecode_plan_create(context, &problem, &device, &plan),
                         i == 0 ? LIBDECODE_OK : LIBDECODE_ERROR_STRICT);
        libdecode_plan_destroy(plan);
        libdecode_close(context);
    }
}

/* ------------------------------------------------------------------------------------------------------------ logging */

struct log {
    size_t lines[6];
    char last[6][512];
};

static void keep_log(void *cookie, libdecode_log_level level, const char *message) {
    struct log *log = cookie;
    log->lines[level]++;
    (void)snprintf(log->last[level], sizeof log->last[level], "%s", message);
}

static void each_log_level_says_its_part(void **state) {
    (void)state;
    libdecode_memory_bundle memory = {data, data_bytes};
    libdecode_problem problem = llama3_8b(), bad = llama3_8b();
    libdecode_device device = preset("sm_90");
    bad.q_len = 2000;
    for (int level = LIBDECODE_LOG_DEFAULT; level <= LIBDECODE_LOG_DEBUG; level++) {
        struct log log = {0};
        libdecode_open_options options = no_environment();
        options.memory_bundles = &memory;
        options.num_memory_bundles = 1;
        options.log_level = (libdecode_log_level)level;
        options.log = keep_log;
        options.log_cookie = &log;
        libdecode_context *context = opened(&options);
        libdecode_plan *plan;
        expect_ok(libdecode_plan_create(context, &problem, &device, &plan));
        libdecode_plan_destroy(plan);
        assert_int_equal(libdecode_plan_create(context, &bad, &device, &plan), LIBDECODE_ERROR_UNSUPPORTED);
        assert_int_equal(log.lines[LIBDECODE_LOG_ERROR], level >= LIBDECODE_LOG_ERROR ? 1 : 0);
        assert_int_equal(log.lines[LIBDECODE_LOG_INFO], level >= LIBDECODE_LOG_INFO ? 1 : 0);
        assert_int_equal(log.lines[LIBDECODE_LOG_DEBUG] >= 4, level == LIBDECODE_LOG_DEBUG); /* a verdict per kernel and plan */
        if (level >= LIBDECODE_LOG_ERROR)
            assert_non_null(strstr(log.last[LIBDECODE_LOG_ERROR], "LIBDECODE_ERROR_UNSUPPORTED: batch_decode: no kernel"));
        if (level >= LIBDECODE_LOG_INFO)
            assert_non_null(strstr(log.last[LIBDECODE_LOG_INFO], "kernel " KERNEL " on sm_90, predicted"));
        libdecode_close(context);
    }
    struct log log = {0};
    libdecode_open_options options = {
        .struct_size = sizeof options, .log = keep_log, .log_cookie = &log, .memory_bundles = &memory, .num_memory_bundles = 1};
    (void)setenv("LIBDECODE_LOG", "info", 1);
    libdecode_context *context = opened(&options);
    libdecode_plan *plan;
    expect_ok(libdecode_plan_create(context, &problem, &device, &plan));
    assert_int_equal(log.lines[LIBDECODE_LOG_INFO], 1);
    libdecode_plan_destroy(plan);
    libdecode_close(context);
}

/* --------------------------------------------------------------------------------------------------- looking inside */

static void kernels_and_bundles_describe_themselves(void **state) {
    (void)state;
    libdecode_memory_bundle memory = {data, data_bytes};
    libdecode_open_options options = no_environment();
    options.memory_bundles = &memory;
    options.num_memory_bundles = 1;
    libdecode_context *context = opened(&options);
    libdecode_kernel_info kernel = {.struct_size = sizeof kernel};
    libdecode_bundle_info bundle = {.struct_size = sizeof bundle};
    assert_int_equal(libdecode_kernel_count(context), 2);
    expect_ok(libdecode_kernel_get_info(context, 1, &kernel));
    assert_string_equal(kernel.name, KERNEL);
    assert_int_equal(kernel.op, LIBDECODE_OP_BATCH_DECODE);
    assert_int_equal(kernel.query_dtypes, 1u << LIBDECODE_DTYPE_BF16);
    assert_int_equal(kernel.kv_dtype, LIBDECODE_DTYPE_BF16);
    assert_int_equal(kernel.head_dim, 128);
    assert_int_equal(kernel.row_tile, 8);
    assert_int_equal(kernel.cluster_size, 1);
    assert_int_equal(kernel.threads, 160);
    assert_int_equal(kernel.shared_bytes, 102400);
    assert_int_equal(kernel.registers, FIXTURE_REGISTERS);
    assert_int_equal(kernel.gpus, BUNDLE_GPU_SM90);
    assert_int_equal(kernel.image_bytes, fixture_images(data)[fixture_kernels(data)[1].image].image_bytes);
    assert_true(kernel.compressed_bytes > 0);
    expect_ok(libdecode_bundle_get_info(context, 0, &bundle));
    assert_string_equal(bundle.path, "memory");
    assert_int_equal(bundle.gpus, BUNDLE_GPU_SM90);
    assert_int_equal(bundle.num_kernels, 2);
    assert_int_equal(bundle.num_images, 2);
    assert_int_equal(bundle.file_bytes, data_bytes);
    assert_memory_equal(bundle.root_hash, fixture_header(data)->root_hash, 32);

    const libdecode_status invalid = LIBDECODE_ERROR_INVALID_ARGUMENT;
    assert_int_equal(libdecode_kernel_get_info(context, 2, &kernel), invalid);
    assert_non_null(strstr(libdecode_error_message(), "index is 2: this context has 2 kernels"));
    assert_int_equal(libdecode_bundle_get_info(context, 1, &bundle), invalid);
    assert_int_equal(libdecode_kernel_get_info(NULL, 0, &kernel), invalid);
    assert_int_equal(libdecode_bundle_get_info(NULL, 0, &bundle), invalid);
    assert_int_equal(libdecode_verify(NULL), invalid);
    assert_int_equal(libdecode_kernel_count(NULL), 0);
    assert_int_equal(libdecode_bundle_count(NULL), 0);
    expect_ok(libdecode_verify(context));
    libdecode_close(context);
}

static void count_verdict(void *cookie, const libdecode_verdict *verdict) {
    (void)verdict;
    ++*(size_t *)cookie;
}

static void explain_answers_as_a_plan_would(void **state) {
    (void)state;
    libdecode_memory_bundle memory = {data, data_bytes};
    libdecode_open_options options = no_environment();
    options.memory_bundles = &memory;
    options.num_memory_bundles = 1;
    libdecode_context *context = opened(&options);
    libdecode_problem problem = llama3_8b();
    libdecode_device device = preset("sm_90");
    size_t verdicts = 0;
    expect_ok(libdecode_explain(context, &problem, &device, count_verdict, &verdicts));
    assert_int_equal(verdicts, 2);
    device = preset("sm_100");
    assert_int_equal(libdecode_explain(context, &problem, &device, count_verdict, &verdicts), LIBDECODE_ERROR_NO_GPU_IMAGE);
    assert_int_equal(verdicts, 4);
    problem.page_size = 1025;
    assert_int_equal(libdecode_explain(context, &problem, &device, count_verdict, &verdicts), LIBDECODE_ERROR_INVALID_ARGUMENT);
    assert_int_equal(verdicts, 4);
    libdecode_close(context);
}

static void the_version_is_that_of_the_header(void **state) {
    (void)state;
    char text[32];
    (void)snprintf(text, sizeof text, "%d.%d.%d", LIBDECODE_VERSION_MAJOR, LIBDECODE_VERSION_MINOR, LIBDECODE_VERSION_PATCH);
    assert_string_equal(libdecode_version(), text);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, clear_environment, clear_environment)
    const struct CMUnitTest tests[] = {
        TEST(wrong_options_are_named),
        TEST(a_context_without_bundles_opens_and_every_plan_says_what_is_missing),
        TEST(later_bundles_overlay_earlier_ones_and_hide_nothing_else),
        TEST(a_path_that_leads_nowhere_is_an_error_that_names_it),
        TEST(a_bundle_with_another_root_hash_than_pinned_is_refused),
        TEST(the_environment_adds_bundles_on_top),
        TEST(a_wrong_variable_is_an_error_unless_the_environment_is_ignored),
        TEST(bundles_only_of_a_path_without_any_name_is_an_error),
        TEST(a_policy_comes_from_the_environment_or_instead_from_the_caller),
        TEST(strict_comes_from_the_environment_or_from_a_flag),
        TEST(each_log_level_says_its_part),
        TEST(kernels_and_bundles_describe_themselves),
        TEST(explain_answers_as_a_plan_would),
        TEST(the_version_is_that_of_the_header),
    };
    return cmocka_run_group_tests_name("open", tests, create_files, remove_files);
}
