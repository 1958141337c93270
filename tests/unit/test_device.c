/* SPDX-License-Identifier: Apache-2.0 */
/* test_device.c: what is known of a GPU: of the current one, by its attributes on the fake libcuda.so.1, by name, and filled in by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "decode_scene.h"
#include "device.h"

static void the_current_device_is_described_by_its_attributes(void **state) {
    (void)state;
    libdecode_device device = {.struct_size = sizeof device}, h200 = preset("sm_90");
    fake->set_device_name(0, "Some H200");
    expect_ok(libdecode_device_current(context, &device));
    assert_string_equal(device.name, "Some H200");
    assert_int_equal(device.compute_capability, 90);
    assert_int_equal(device.sm_count, h200.sm_count);
    assert_int_equal(device.shared_bytes_per_sm, h200.shared_bytes_per_sm);
    assert_int_equal(device.max_shared_bytes_per_block, h200.max_shared_bytes_per_block);
    assert_int_equal(device.driver_version, 13000);
    assert_in_range(device.memory_bandwidth_gbps, h200.memory_bandwidth_gbps - 50, h200.memory_bandwidth_gbps + 50);
    assert_int_equal(device.resident_clusters_2, h200.resident_clusters_2);
    assert_int_equal(device.resident_clusters_4, h200.resident_clusters_4);
    assert_int_equal(device.resident_clusters_8, h200.resident_clusters_8);
    assert_int_equal(device.resident_clusters_16, h200.resident_clusters_16);
    fake->set_device_attribute(0, 36, 0); /* a GPU that does not know its memory clock; a context keeps its device */
    fake->context_set_current(fake->context_create(0));
    expect_ok(libdecode_device_current(context, &device));
    assert_int_equal(device.memory_bandwidth_gbps, 0);
    fake->context_set_current(NULL);
    expect_error(libdecode_device_current(context, &device), LIBDECODE_ERROR_NO_DEVICE, "no current CUDA context");
}

static void gpus_are_known_by_their_names(void **state) {
    (void)state;
    static const struct {
        const char *given, *name;
        int32_t compute_capability, sm_count, memory_bandwidth_gbps;
    } rows[] = {{"sm_90", "H200", 90, 132, 4670},
                {"H200", "H200", 90, 132, 4670},
                {"h100", "H100", 90, 132, 3182},
                {"H100-PCIe", "H100 PCIe", 90, 114, 1937},
                {"GB300", "GB300", 103, 148, 7600},
                {"rtx 5090", "RTX 5090", 120, 170, 1702},
                {"RTX_PRO_6000", "RTX PRO 6000", 120, 188, 1702},
                {"dgx spark", "DGX Spark", 121, 48, 259}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        libdecode_device device = preset(rows[i].given);
        assert_string_equal(device.name, rows[i].name);
        assert_int_equal(device.compute_capability, rows[i].compute_capability);
        assert_int_equal(device.sm_count, rows[i].sm_count);
        assert_int_equal(device.memory_bandwidth_gbps, rows[i].memory_bandwidth_gbps);
        assert_int_equal(device_is_fitted(&device), strcmp(rows[i].name, "H200") == 0);
    }
    size_t count = 0;
    for (; device_preset_name(count); count++)
        (void)preset(device_preset_name(count));
    assert_true(count > DEVICE_NUM_CAPABILITIES);
    libdecode_device device = preset("H200");
    static const char *const strangers[] = {"H2000", "", "200", "sm-90", "H200x", "H 2 0 0 1"};
    for (size_t i = 0; i < sizeof strangers / sizeof strangers[0]; i++)
        expect_error(libdecode_device_preset(strangers[i], &device), LIBDECODE_ERROR_INVALID_ARGUMENT, "names of GPUs like H200");
    strcpy(device.name, "NVIDIA H200");
    assert_true(device_is_fitted(&device));
    strcpy(device.name, "NVIDIA GH200 480GB");
    assert_false(device_is_fitted(&device));
}

static void a_device_filled_in_by_hand_is_checked(void **state) {
    (void)state;
    libdecode_problem problem = llama3_8b();
    libdecode_plan *plan = NULL;
    const libdecode_status invalid = LIBDECODE_ERROR_INVALID_ARGUMENT;
    libdecode_device device = preset("sm_90");
    expect_error(libdecode_device_preset("sm_80", &device), invalid, "'sm_80'");
    device.sm_count = 0;
    expect_error(libdecode_plan_create(context, &problem, &device, &plan), invalid, "device.sm_count is 0");
    device = preset("sm_90");
    device.compute_capability = 0;
    expect_error(libdecode_plan_create(context, &problem, &device, &plan), invalid, "device.compute_capability is 0");
    device = preset("sm_90");
    device.shared_bytes_per_sm = -1;
    expect_error(libdecode_plan_create(context, &problem, &device, &plan), invalid, "device.shared_bytes_per_sm is -1");
    device = preset("sm_90");
    device.max_shared_bytes_per_block = 0;
    expect_error(libdecode_plan_create(context, &problem, &device, &plan), invalid, "device.max_shared_bytes_per_block is 0");
    device = preset("sm_90");
    device.memory_bandwidth_gbps = -1;
    expect_error(libdecode_plan_create(context, &problem, &device, &plan), invalid, "device.memory_bandwidth_gbps is -1");
    device = preset("sm_90");
    device.driver_version = -1;
    expect_error(libdecode_plan_create(context, &problem, &device, &plan), invalid, "device.driver_version is -1");
    device = preset("sm_90");
    memset(device.name, 'x', sizeof device.name);
    expect_error(libdecode_plan_create(context, &problem, &device, &plan), invalid, "device.name does not end");
    device.struct_size = 0;
    expect_error(libdecode_plan_create(context, &problem, &device, &plan), LIBDECODE_ERROR_STRUCT_SIZE, "libdecode_device");
    assert_null(plan);
}

/* A device made of a preset with fewer SMs has clusters that no longer fit, and more workers than a launch may wait for. */
static void a_device_has_no_more_clusters_than_its_sms_hold(void **state) {
    (void)state;
    static const struct {
        size_t offset;
        int32_t most;
        const char *name;
    } fields[] = {{offsetof(libdecode_device, resident_clusters_2), 66, "device.resident_clusters_2 is 67: accepted are"},
                  {offsetof(libdecode_device, resident_clusters_4), 33, "device.resident_clusters_4 is 34: accepted are"},
                  {offsetof(libdecode_device, resident_clusters_8), 16, "device.resident_clusters_8 is 17: accepted are"},
                  {offsetof(libdecode_device, resident_clusters_16), 8, "device.resident_clusters_16 is 9: accepted are"},
                  {offsetof(libdecode_device, sm_count), 4096, "device.sm_count is 4097"},
                  {offsetof(libdecode_device, compute_capability), 999, "device.compute_capability is 1000"}};
    const libdecode_problem problem = llama3_8b();
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        libdecode_device device = preset("sm_90");
        libdecode_plan *plan = NULL;
        memcpy((char *)&device + fields[i].offset, &fields[i].most, sizeof fields[i].most);
        const libdecode_status status = libdecode_plan_create(context, &problem, &device, &plan);
        assert_true(status != LIBDECODE_ERROR_INVALID_ARGUMENT); /* sm_999 has no kernels */
        libdecode_plan_destroy(plan);
        const int32_t more = fields[i].most + 1;
        memcpy((char *)&device + fields[i].offset, &more, sizeof more);
        expect_error(libdecode_plan_create(context, &problem, &device, &plan), LIBDECODE_ERROR_INVALID_ARGUMENT, fields[i].name);
    }
}

static void gpus_for_desktops_have_less_shared_memory(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int32_t of_sm, of_block;
    } rows[] = {{"sm_90", 233472, 232448},
                {"sm_100", 233472, 232448},
                {"sm_103", 233472, 232448},
                {"sm_120", 102400, 101376},
                {"sm_121", 102400, 101376}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const libdecode_device device = preset(rows[i].name);
        assert_int_equal(device.shared_bytes_per_sm, rows[i].of_sm);
        assert_int_equal(device.max_shared_bytes_per_block, rows[i].of_block);
    }
}

/* An H200 but for its compute capability: what a device is called decides which kernels it runs. */
static void the_minor_number_of_a_compute_capability_counts(void **state) {
    (void)state;
    static const struct {
        int major, minor, capability;
    } gpus[] = {{9, 0, 90}, {10, 0, 100}, {10, 3, 103}, {12, 0, 120}, {12, 1, 121}};
    libdecode_device planned = preset("sm_90");
    const libdecode_problem problem = llama3_8b();
    const libdecode_tensors tensors = some_tensors();
    libdecode_plan *plan = plan_for(&problem, &planned);
    for (size_t i = 0; i < sizeof gpus / sizeof gpus[0]; i++) {
        libdecode_device device = {.struct_size = sizeof device};
        fake->set_device_attribute(0, 75, gpus[i].major);
        fake->set_device_attribute(0, 76, gpus[i].minor);
        fake->context_set_current(fake->context_create(0));
        expect_ok(libdecode_device_current(context, &device));
        assert_int_equal(device.compute_capability, gpus[i].capability);
        if (gpus[i].capability != 90) /* with as many SMs */
            expect_error(libdecode_plan_launch(plan, &tensors, NULL), LIBDECODE_ERROR_WRONG_DEVICE, "the current GPU is sm_1");
    }
    libdecode_plan_destroy(plan);
}

/* More contexts than the cache of devices has lists: none gets the facts of another one's GPU. */
static void many_contexts_keep_their_own_devices(void **state) {
    (void)state;
    libdecode_device device = {.struct_size = sizeof device};
    fake->set_device_count(2);
    fake->set_device(1, 100);
    const cuda_context first = fake->context_create(0);
    fake->context_set_current(first);
    expect_ok(libdecode_device_current(context, &device));
    for (int i = 0; i < 130; i++) {
        const cuda_context other = fake->context_create(1);
        fake->context_set_current(other);
        expect_ok(libdecode_device_current(context, &device));
        assert_int_equal(device.compute_capability, 100);
        fake->context_set_current(first);
        expect_ok(libdecode_device_current(context, &device));
        assert_int_equal(device.compute_capability, 90);
        fake->context_destroy(other);
    }
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(the_current_device_is_described_by_its_attributes),
        TEST(gpus_are_known_by_their_names),
        TEST(a_device_filled_in_by_hand_is_checked),
        TEST(a_device_has_no_more_clusters_than_its_sms_hold),
        TEST(gpus_for_desktops_have_less_shared_memory),
        TEST(the_minor_number_of_a_compute_capability_counts),
        TEST(many_contexts_keep_their_own_devices),
    };
    return cmocka_run_group_tests_name("device", tests, create_grid, destroy_grid);
}
