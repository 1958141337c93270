/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_contract.c: contracts that say what this library does not know, or does not put into a parameter block: the bundle opens,
 * the kernel is never chosen, and its verdict says why. (What no kernel can have is damage: test_bundle_hostile.c.)
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "abi.h"
#include "axis.h"
#include "bundle_fixture.h"
#include "contract.h"
#include "select_scene.h"

#define LATER "gqa_decode_later_sm90"

/* In refusals, and in what `libdecode list` prints. */
static void every_feature_of_a_kernel_has_a_name_of_its_own(void **state) {
    (void)state;
    for (uint32_t bit = LIBDECODE_FEATURE_WINDOW; bit <= LIBDECODE_FEATURE_LSE_ALIBI_FROM_ZERO; bit <<= 1) {
        if (bit == LIBDECODE_FEATURE_HOST_SEQ_LENS) { /* the loader's own */
            assert_null(feature_name(bit));
            continue;
        }
        assert_non_null(feature_name(bit));
        for (uint32_t other = LIBDECODE_FEATURE_WINDOW; other < bit; other <<= 1)
            if (other != LIBDECODE_FEATURE_HOST_SEQ_LENS)
                assert_string_not_equal(feature_name(bit), feature_name(other));
    }
}

/* One word of a contract, and what the verdict says of it. */
static const struct {
    size_t offset;
    uint32_t value;
    const char *reason;
} sayings[] = {
#define SAYING(field, value, reason)                                                                                             \
    { offsetof(struct libdecode_launch_contract, field), value, reason }
    SAYING(family, 77, "is of family 77"),
    SAYING(parameter_bytes, sizeof(struct gqa_decode_params) + 64, "takes a parameter block of"),
    SAYING(reserved[0], 1, "reserved words"),
    SAYING(flags, CONTRACT_FLAG_MAY_SPILL | 1u << 2, "has flags 0x4"),
    SAYING(features, CONTRACT_FEATURE_LSE | 1u << 14, "computes features 0x4000"),
    SAYING(out_dtypes, 1u << KERNEL_DTYPE_BF16 | 1u << 5, "writes dtypes 0x20"),
    SAYING(out_dtypes, 1u << 31, "writes dtypes 0x80000000"),
    SAYING(max_q_len, 1025, "up to 1025 query tokens"),
    SAYING(query_dtypes, 1u << KERNEL_DTYPE_BF16 | 1u << KERNEL_DTYPE_NVFP4, "queries of dtypes 0x10"),
    SAYING(kv_dtype, 0, "KV rows of 128 elements of dtype 0"),
    SAYING(kv_dtype, 5, "KV rows of 128 elements of dtype 5"), /* not to be copied as if it were another */
    SAYING(kv_dtype, UINT32_MAX, "of dtype 4294967295"),
    SAYING(head_dim, 80, "KV rows of 80 elements"),   /* no whole number of swizzle rows */
    SAYING(head_dim, 192, "KV rows of 192 elements"), /* a problem of that head_dim runs on 256 */
    SAYING(head_dim, 1024, "KV rows of 1024 elements"),
    SAYING(max_box_tokens, 48, "boxes of 48 tokens"),
    SAYING(max_box_tokens, 512, "boxes of 512 tokens"),
    SAYING(max_box_tokens, 128, "boxes of 128 tokens to tiles of 64"),
    SAYING(min_page_size, 8, "pages of 8 tokens"), /* a matrix instruction would straddle two boxes */
};
#define NUM_SAYINGS (sizeof sayings / sizeof sayings[0])

struct scene {
    uint8_t *data;
    struct bundle *bundle;
    struct kernel_table table;
};

static struct libdecode_launch_contract contract_saying(size_t saying) {
    struct libdecode_launch_contract contract = fixture_contract();
    memcpy((char *)&contract + sayings[saying].offset, &sayings[saying].value, sizeof sayings[saying].value);
    return contract;
}

/* A kernel of that contract, and if wanted one that says nothing new. */
static struct scene open_with(size_t saying, size_t num_kernels) {
    struct fixture_kernel kernels[2] = {{.name = LATER, .target = 90, .contract = contract_saying(saying)},
                                        {.name = "gqa_decode_plain_sm90", .target = 90}};
    struct scene scene = {.data = NULL};
    size_t bytes;
    scene.data = fixture_bundle(kernels, num_kernels, &bytes);
    if (bundle_open_memory(scene.data, bytes, "memory", &scene.bundle) != LIBDECODE_OK)
        fail_msg("'%s': %s", sayings[saying].reason, libdecode_error_message());
    for (uint32_t image = 0; image < bundle_header(scene.bundle)->num_images; image++) {
        void *image_bytes = NULL;
        assert_int_equal(bundle_read_image(scene.bundle, image, &image_bytes), LIBDECODE_OK);
        free(image_bytes);
    }
    assert_int_equal(kernel_table_build(&scene.bundle, 1, &scene.table), LIBDECODE_OK);
    return scene;
}

static void close_scene(struct scene *scene) {
    kernel_table_destroy(&scene->table);
    bundle_close(scene->bundle);
    free(scene->data);
}

struct found {
    char reason[256];
    int eligible;
};

static void find_verdict(void *cookie, const libdecode_verdict *verdict) {
    struct found *found = cookie;
    if (strcmp(verdict->kernel, LATER) != 0)
        return;
    (void)strncpy(found->reason, verdict->reason, sizeof found->reason - 1);
    found->eligible = verdict->eligible;
}

static void what_this_library_does_not_know_is_not_chosen_and_says_so(void **state) {
    (void)state;
    libdecode_device device = preset("sm_90");
    libdecode_problem problem = llama3_8b();
    struct policy policy = no_policy();
    struct problem checked;
    assert_int_equal(problem_check(&problem, &checked), LIBDECODE_OK);
    for (size_t i = 0; i < NUM_SAYINGS; i++) {
        struct scene scene = open_with(i, 2);
        struct selection selection;
        struct found found = {.eligible = -1};
        assert_int_equal(select_kernel(&checked, &device, &policy, &scene.table, find_verdict, &found, &selection), LIBDECODE_OK);
        assert_string_equal(selection.record->name, "gqa_decode_plain_sm90");
        assert_int_equal(found.eligible, 0);
        if (!strstr(found.reason, sayings[i].reason) || !strstr(found.reason, "this libdecode does not know that"))
            fail_msg("'%s' is not in '%s'", sayings[i].reason, found.reason);
        close_scene(&scene);
    }
}

static void where_nothing_else_is_at_hand_the_error_says_why(void **state) {
    (void)state;
    libdecode_device device = preset("sm_90");
    libdecode_problem problem = llama3_8b();
    struct policy policy = no_policy();
    for (size_t i = 0; i < NUM_SAYINGS; i++) {
        struct scene scene = open_with(i, 1);
        expect_refusal(LIBDECODE_ERROR_NOT_IN_BUNDLE, LATER, sayings[i].reason, &problem, &device, &policy, &scene.table);
        close_scene(&scene);
    }
}

static void what_it_knows_has_a_family(void **state) {
    (void)state;
    char reason[FAMILY_REASON_BYTES];
    struct libdecode_launch_contract contract = fixture_contract();
    assert_ptr_equal(contract_family(&contract, reason), family_find(KERNEL_FAMILY_GQA_DECODE));
    assert_string_equal(reason, "");
    contract.head_dim = 256; /* no variant of the grid, yet the launch serves it: a later bundle may have it */
    contract.row_tile = 64;
    contract.cluster_size = 16;
    contract.flags = CONTRACT_FLAG_MAY_SPILL;
    assert_non_null(contract_family(&contract, reason));
    contract.kv_dtype = KERNEL_DTYPE_NVFP4;
    contract.query_dtypes = 1u << KERNEL_DTYPE_E4M3;
    assert_non_null(contract_family(&contract, reason));
    contract.flags |= CONTRACT_FLAG_ROW_GATHER; /* pages of 8 are too small for boxes, not for rows */
    contract.min_page_size = 8;
    assert_non_null(contract_family(&contract, reason));
    for (size_t i = 0; i < grid->table.count; i++)
        assert_non_null(grid->table.records[i].family);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_feature_of_a_kernel_has_a_name_of_its_own),
        cmocka_unit_test(what_this_library_does_not_know_is_not_chosen_and_says_so),
        cmocka_unit_test(where_nothing_else_is_at_hand_the_error_says_why),
        cmocka_unit_test(what_it_knows_has_a_family),
    };
    return cmocka_run_group_tests_name("contract", tests, create_grid, destroy_grid);
}
