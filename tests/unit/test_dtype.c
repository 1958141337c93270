/* SPDX-License-Identifier: Apache-2.0 */
/* test_dtype.c: what dtypes are called, and the bytes of their elements. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "dtype.h"

static const struct {
    libdecode_dtype dtype;
    const char *name;
    int bits;
    size_t bytes_of_48;
} dtypes[] = {
    {LIBDECODE_DTYPE_BF16, "bf16", 16, 96}, {LIBDECODE_DTYPE_FP16, "fp16", 16, 96}, {LIBDECODE_DTYPE_FP32, "fp32", 32, 192},
    {LIBDECODE_DTYPE_E4M3, "e4m3", 8, 48},  {LIBDECODE_DTYPE_E5M2, "e5m2", 8, 48},  {LIBDECODE_DTYPE_NVFP4, "nvfp4", 4, 24},
};

static void dtypes_have_names_and_widths(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
        assert_string_equal(dtype_name(dtypes[i].dtype), dtypes[i].name);
        assert_int_equal(dtype_bits(dtypes[i].dtype), dtypes[i].bits);
        assert_int_equal(element_bytes(dtypes[i].dtype, 48), dtypes[i].bytes_of_48);
        assert_int_equal(element_bytes(dtypes[i].dtype, 0), 0);
    }
    assert_true(element_bytes(LIBDECODE_DTYPE_BF16, INT64_C(1) << 40) == (size_t)1 << 41);
}

static void a_number_that_is_no_dtype_has_neither(void **state) {
    (void)state;
    assert_string_equal(dtype_name((libdecode_dtype)77), "?");
    assert_string_equal(dtype_name(LIBDECODE_DTYPE_DEFAULT), "?");
    assert_int_equal(dtype_bits((libdecode_dtype)77), 0);
    assert_int_equal(dtype_bits(LIBDECODE_DTYPE_DEFAULT), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dtypes_have_names_and_widths),
        cmocka_unit_test(a_number_that_is_no_dtype_has_neither),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
