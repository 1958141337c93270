/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_batch_invariance.c: batch-invariant problems have one kernel, whatever the batch, its lengths, hints of them, and the number of SMs, among kernels
 * that are told apart by their time alone otherwise: MLA and sparse MLA of 16 and 32 rows, and NVFP4 in small pages and in large ones. (test_select.c: the
 * grid of batch decode.)
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "abi.h"
#include "bundle_fixture.h"
#include "family.h"
#include "select_scene.h"

static struct libdecode_launch_contract batch_decode(uint32_t min_page_size) {
    struct libdecode_launch_contract contract = fixture_contract();
    contract.kv_dtype = KERNEL_DTYPE_NVFP4;
    contract.query_dtypes = 1u << KERNEL_DTYPE_BF16;
    contract.ctas_per_sm = 1;
    contract.min_page_size = min_page_size;
    contract.features = CONTRACT_FEATURE_BATCH_INVARIANT;
    return contract;
}

static struct libdecode_launch_contract mla(uint32_t row_tile, uint32_t tile_tokens) {
    struct libdecode_launch_contract contract = fixture_contract();
    contract.family = KERNEL_FAMILY_MLA_DECODE;
    contract.head_dim = 576;
    contract.row_tile = row_tile;
    contract.ctas_per_sm = 1;
    contract.tile_tokens = contract.max_box_tokens = tile_tokens;
    contract.max_page_size = 1024;
    contract.features = row_tile > 32 ? 0 : CONTRACT_FEATURE_BATCH_INVARIANT;
    return contract;
}

static struct libdecode_launch_contract sparse_mla(uint32_t row_tile) {
    struct libdecode_launch_contract contract = mla(row_tile, 64);
    contract.family = KERNEL_FAMILY_SPARSE_MLA_DECODE;
    contract.max_box_tokens = 32;
    contract.min_page_size = 1;
    contract.flags = CONTRACT_FLAG_ROW_GATHER;
    return contract;
}

enum { KERNELS = 8 };
struct scene {
    struct bundle_kernel kernels[KERNELS];
    struct kernel_record records[KERNELS];
    uint32_t gpus[KERNELS];
    struct kernel_table table;
};

static void make_scene(struct scene *scene) {
    const struct {
        const char *name;
        const struct family *family;
        struct libdecode_launch_contract contract;
    } kernels[KERNELS] = {{"nvfp4_p16", &family_gqa_decode, batch_decode(16)},
                          {"nvfp4_p64", &family_gqa_decode, batch_decode(64)},
                          {"mla_r16", &family_mla_decode, mla(16, 32)},
                          {"mla_r32", &family_mla_decode, mla(32, 64)},
                          {"mla_r64", &family_mla_decode, mla(64, 64)},
                          {"sparse_r16", &family_sparse_mla_decode, sparse_mla(16)},
                          {"sparse_r32", &family_sparse_mla_decode, sparse_mla(32)},
                          {"sparse_r64", &family_sparse_mla_decode, sparse_mla(64)}};
    for (size_t i = 0; i < KERNELS; i++) {
        scene->kernels[i] = (struct bundle_kernel){.contract = kernels[i].contract};
        scene->records[i] =
            (struct kernel_record){.name = kernels[i].name, .kernel = &scene->kernels[i], .family = kernels[i].family};
        scene->gpus[i] = 0x1f;
    }
    scene->table = table_over(scene->records, scene->gpus, KERNELS);
}

/* Counts the kernels that a problem gets over batches, lengths, hints and GPUs. */
static int num_choices(const struct scene *scene, libdecode_problem problem, const char **ret_one) {
    static const int32_t batches[] = {1, 3, 16, 128, 500}, lengths[] = {1, 70, 1024, 30000, 300000}, sms[] = {8, 48, 132, 148};
    const struct policy policy = no_policy();
    bool is_chosen[KERNELS] = {false};
    for (size_t i = 0; i < 5 * 5 * 4 * 2; i++) {
        libdecode_device device = preset("sm_90");
        problem.batch_size = batches[i % 5];
        problem.max_seq_len = lengths[i / 5 % 5];
        device.sm_count = sms[i / 25 % 4];
        problem.total_kv_tokens = i / 100 == 0 ? 0 : problem.max_seq_len;
        is_chosen[expect_choice(&problem, &device, &policy, &scene->table).record - scene->records] = true;
    }
    int count = 0;
    for (size_t k = 0; k < KERNELS; k++) {
        count += is_chosen[k];
        if (is_chosen[k])
            *ret_one = scene->records[k].name;
    }
    return count;
}

static void mla_has_one_kernel_whatever_the_batch(void **state) {
    (void)state;
    struct scene scene;
    make_scene(&scene);
    static const int32_t heads[] = {1, 16, 17, 32, 64, 128};
    for (size_t i = 0; i < 6 * 2; i++) {
        const bool is_sparse = i >= 6;
        libdecode_problem problem = {.struct_size = sizeof problem,
                                     .op = LIBDECODE_OP_MLA_DECODE,
                                     .query_dtype = LIBDECODE_DTYPE_BF16,
                                     .features = LIBDECODE_FEATURE_BATCH_INVARIANT,
                                     .num_qo_heads = heads[i % 6],
                                     .head_dim = 576,
                                     .page_size = 64,
                                     .num_pages = is_sparse ? 100000 : 0,
                                     .page_table_request_stride = is_sparse ? 0 : 5000,
                                     .sparse_top_k = is_sparse ? 2048 : 0};
        const char *kernel = "";
        assert_int_equal(num_choices(&scene, problem, &kernel), 1);
        /* The fewest passes, by the narrowest rows. */
        assert_string_equal(kernel, heads[i % 6] <= 16 ? is_sparse ? "sparse_r16" : "mla_r16"
                                    : is_sparse        ? "sparse_r32"
                                                       : "mla_r32");
        problem.features = 0;
        if (heads[i % 6] == 128)
            assert_true(num_choices(&scene, problem, &kernel) > 1); /* otherwise this test could not fail */
    }
    forget_table(&scene.table);
}

static void nvfp4_has_one_kernel_whatever_the_batch(void **state) {
    (void)state;
    struct scene scene;
    make_scene(&scene);
    for (int32_t page_size = 16; page_size <= 256; page_size *= 2) {
        libdecode_problem problem = llama3_8b();
        const char *kernel = "";
        problem.kv_dtype = LIBDECODE_DTYPE_NVFP4;
        problem.page_size = page_size;
        problem.page_table_request_stride = 300000 / page_size + 1;
        problem.features = LIBDECODE_FEATURE_BATCH_INVARIANT;
        assert_int_equal(num_choices(&scene, problem, &kernel), 1);
        assert_string_equal(kernel, page_size < 64 ? "nvfp4_p16" : "nvfp4_p64");
        problem.features = 0;
        assert_int_equal(num_choices(&scene, problem, &kernel), page_size < 64 ? 1 : 2);
    }
    forget_table(&scene.table);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mla_has_one_kernel_whatever_the_batch),
        cmocka_unit_test(nvfp4_has_one_kernel_whatever_the_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
