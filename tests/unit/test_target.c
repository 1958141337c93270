/* SPDX-License-Identifier: Apache-2.0 */
/* test_target.c: the five GPUs by number, by name and by bit, and which of them an image serves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "bundle_format.h"
#include "decode_fixture.h"
#include "target.h"

static const char *const names[] = {"sm_90", "sm_100", "sm_103", "sm_120", "sm_121"};

static void gpus_have_names_and_bits(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        uint32_t bit = gpu_bit(preset(names[i]).compute_capability);
        assert_int_equal(bit, 1u << i);
        assert_int_equal(gpu_bit_of_name(names[i]), bit);
        assert_string_equal(gpu_name(bit), names[i]);
    }
    assert_int_equal(gpu_bit(89), 0);
    assert_int_equal(gpu_bit_of_name("sm_9"), 0);
    assert_string_equal(gpu_name(0), "?");
    assert_string_equal(gpu_name(1u << 5), "?");
}

static void an_image_serves_its_whole_family_and_every_gpu_one_target(void **state) {
    (void)state;
    assert_int_equal(target_gpus(90), BUNDLE_GPU_SM90);
    assert_int_equal(target_gpus(100), BUNDLE_GPU_SM100 | BUNDLE_GPU_SM103);
    assert_int_equal(target_gpus(120), BUNDLE_GPU_SM120 | BUNDLE_GPU_SM121);
    assert_int_equal(target_gpus(103), 0);
    assert_int_equal(target_gpus(0), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpus_have_names_and_bits),
        cmocka_unit_test(an_image_serves_its_whole_family_and_every_gpu_one_target),
    };
    return cmocka_run_group_tests_name("target", tests, NULL, NULL);
}
