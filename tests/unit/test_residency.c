/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_residency.c: how many clusters fit is asked of the driver once per GPU, with a kernel of the bundles, where one CTA fills
 * an SM; and is "not known" where there is no such kernel or no answer.
 */
#include "decode_scene.h"

#include <stdlib.h>

#include "bundle_fixture.h"

static void expect_clusters(const libdecode_device *device, int two, int four, int eight, int sixteen) {
    assert_int_equal(device->resident_clusters_2, two);
    assert_int_equal(device->resident_clusters_4, four);
    assert_int_equal(device->resident_clusters_8, eight);
    assert_int_equal(device->resident_clusters_16, sixteen);
}

static libdecode_device current(libdecode_context *of) {
    libdecode_device device = LIBDECODE_DEVICE_INIT;
    expect_ok(libdecode_device_current(of, &device));
    return device;
}

static void the_driver_is_asked_once_per_gpu_and_context_object(void **state) {
    (void)state;
    libdecode_device device = current(context);
    expect_clusters(&device, 66, 30, 15, 7); /* as the fake's H200 has it */
    assert_int_equal(fake->count("cuOccupancyMaxActiveClusters"), 4);
    assert_int_equal(fake->count("cuModuleLoadData"), 1);
    const struct fake_cuda_call *call = fake->last("cuOccupancyMaxActiveClusters");
    assert_true(call->config.shared_bytes > 233472 / 2);

    libdecode_problem problem = llama3_8b();
    libdecode_plan *plan = plan_for(&problem, NULL);
    cuda_context first = fake->context_create(0), second = fake->context_create(0);
    fake->context_set_current(first);
    device = current(context);
    expect_clusters(&device, 66, 30, 15, 7);
    fake->context_set_current(second);
    device = current(context);
    expect_clusters(&device, 66, 30, 15, 7);
    assert_int_equal(fake->count("cuOccupancyMaxActiveClusters"), 4);
    assert_int_equal(fake->count("cuModuleLoadData"), 1);

    fake->set_device_count(2);
    fake->set_device(1, 100);
    fake->context_set_current(fake->context_create(1));
    device = current(context);
    expect_clusters(&device, 74, 37, 18, 9);
    assert_int_equal(fake->count("cuOccupancyMaxActiveClusters"), 8);
    assert_non_null(strstr(call->kernel, "_sm90"));
    assert_non_null(strstr(fake->last("cuOccupancyMaxActiveClusters")->kernel, "_sm100"));
    libdecode_plan_destroy(plan);
}

static void the_kernel_that_is_asked_with_launches_as_before(void **state) {
    (void)state;
    libdecode_tensors tensors = some_tensors();
    (void)current(context);
    for (int batch = 1; batch < 300; batch *= 2) { /* clusters of every size, and none */
        libdecode_problem problem = llama3_8b();
        problem.batch_size = batch;
        expect_ok(libdecode_decode(context, &problem, &tensors, NULL));
    }
}

static void without_a_kernel_that_uses_clusters_it_is_not_known(void **state) {
    (void)state;
    const struct fixture_kernel kernel = {.name = "gqa_decode_kvbf16_d128_r8_p16_c1_o0_sm90", .target = 90};
    size_t bytes;
    uint8_t *data = fixture_bundle(&kernel, 1, &bytes);
    const libdecode_memory_bundle memory = {data, bytes};
    libdecode_open_options options = LIBDECODE_OPEN_OPTIONS_INIT;
    options.flags = LIBDECODE_OPEN_IGNORE_ENVIRONMENT | LIBDECODE_OPEN_BUNDLES_ONLY;
    options.memory_bundles = &memory;
    options.num_memory_bundles = 1;
    libdecode_context *opened;
    expect_ok(libdecode_open(&options, &opened));
    libdecode_device device = current(opened);
    expect_clusters(&device, 0, 0, 0, 0);
    assert_int_equal(fake->count("cuModuleLoadData"), 0);
    libdecode_close(opened);
    free(data);
}

static void a_driver_that_does_not_say_leaves_it_not_known_and_no_error_behind(void **state) {
    (void)state;
    libdecode_device device;
    expect_error(libdecode_device_preset("sm_1", &device), LIBDECODE_ERROR_INVALID_ARGUMENT, "'sm_1'");
    fake->fail_call("cuModuleLoadData", 2);
    device = current(context);
    expect_clusters(&device, 0, 0, 0, 0);
    assert_non_null(strstr(libdecode_error_message(), "'sm_1'"));
    fake->fail_call("cuModuleLoadData", 0); /* memory was short: asked again */
    fake->fail_call("cuOccupancyMaxActiveClusters", 1);
    device = current(context);
    expect_clusters(&device, 0, 0, 0, 0);
    assert_int_equal(fake->count("cuOccupancyMaxActiveClusters"), 4);
    fake->fail_call("cuOccupancyMaxActiveClusters", 0); /* an answer, which stays: plans do not change by the hour */
    device = current(context);
    expect_clusters(&device, 0, 0, 0, 0);
    assert_int_equal(fake->count("cuOccupancyMaxActiveClusters"), 4);
}

/* As in a part of a GPU whose SMs lie apart: no kernel in such clusters could be launched. */
static void where_no_cluster_of_a_size_fits_no_kernel_has_them(void **state) {
    (void)state;
    for (unsigned size = 2; size <= 16; size *= 2)
        fake->set_resident_clusters(0, size, size == 2 ? 9 : 0);
    libdecode_device device = current(context);
    expect_clusters(&device, 9, -1, -1, -1);
    libdecode_problem problem = llama3_8b();
    libdecode_tensors tensors = some_tensors();
    for (problem.batch_size = 1; problem.batch_size < 300; problem.batch_size *= 2) {
        libdecode_plan *plan = plan_for(&problem, NULL);
        libdecode_plan_info info = LIBDECODE_PLAN_INFO_INIT;
        expect_ok(libdecode_plan_get_info(plan, &info));
        assert_true(info.cluster_size <= 2);
        expect_ok(libdecode_plan_launch(plan, &tensors, NULL));
        libdecode_plan_destroy(plan);
    }
}

static void it_is_asked_inside_a_capture_without_harm(void **state) {
    (void)state;
    libdecode_stream stream = (libdecode_stream)(uintptr_t)0x55;
    fake->set_capture(stream, 1);
    libdecode_device device = current(context);
    expect_clusters(&device, 66, 30, 15, 7);
    assert_int_equal(fake->last("cuModuleLoadData")->capture_mode, CUDA_CAPTURE_MODE_RELAXED);
    assert_int_equal(fake->capture(stream), 1);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(the_driver_is_asked_once_per_gpu_and_context_object),
        TEST(the_kernel_that_is_asked_with_launches_as_before),
        TEST(without_a_kernel_that_uses_clusters_it_is_not_known),
        TEST(a_driver_that_does_not_say_leaves_it_not_known_and_no_error_behind),
        TEST(where_no_cluster_of_a_size_fits_no_kernel_has_them),
        TEST(it_is_asked_inside_a_capture_without_harm),
    };
    return cmocka_run_group_tests_name("residency", tests, create_grid, destroy_grid);
}
