/* SPDX-License-Identifier: Apache-2.0 */
/* test_compare.c: what `libdecode check` takes for right and for wrong, at the edges of what it allows. */
#include "compare.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "element.h"

/* Two tokens of one head: query 1 in dimension 0. K: 0 and the second logit. V: 1 and 3 in every dimension. */
enum { DIM = 64, PAGE = 16 };
static _Alignas(16) uint16_t query[DIM], k[PAGE * DIM], v[PAGE * DIM], squared[PAGE * DIM], out[DIM];
static const int32_t page_table[1] = {0}, seq_lens[1] = {2};
static const float one = 1;

static libdecode_problem problem_of(libdecode_dtype dtype) {
    return (libdecode_problem){.struct_size = sizeof(libdecode_problem),
                               .query_dtype = dtype,
                               .batch_size = 1,
                               .num_qo_heads = 1,
                               .num_kv_heads = 1,
                               .head_dim = DIM,
                               .page_size = PAGE,
                               .page_table_request_stride = 1};
}

static libdecode_tensors tensors_of(libdecode_dtype dtype, double second_logit) {
    const double values[] = {1, 3, 9, second_logit};
    uint16_t codes[4] = {0};
    for (int index = 0; index < 4; index++)
        element_encode_row(dtype, &values[index], 1, &codes[index]);
    memset(query, 0, sizeof query);
    memset(k, 0, sizeof k);
    query[0] = codes[0];
    k[DIM] = codes[3];
    for (int element = 0; element < DIM; element++) {
        v[element] = squared[element] = codes[0];
        v[DIM + element] = codes[1];
        squared[DIM + element] = codes[2];
    }
    return (libdecode_tensors){.struct_size = sizeof(libdecode_tensors),
                               .query = query,
                               .k_cache = k,
                               .v_cache = v,
                               .page_table = page_table,
                               .seq_lens = seq_lens,
                               .bmm1_scale_log2_device = &one};
}

static bool expect(const libdecode_problem *problem, const libdecode_tensors *tensors, struct expectation *expectation) {
    const struct expectation_input input = {
        .problem = problem, .tensors = tensors, .v_cache_squared = squared, .largest_v = 3, .longest = 2};
    return expectation_make(&input, NULL, expectation);
}

static struct mismatch compare(const struct expectation *expectation, const libdecode_problem *problem, double value, float lse) {
    struct mismatch mismatch;
    for (int element = 0; element < DIM; element++)
        element_encode_row(problem->query_dtype, &value, 1, &out[element]);
    expectation_compare(expectation, problem, out, &lse, &mismatch);
    return mismatch;
}

static void what_rounding_explains_is_right_and_a_forgotten_token_is_not(void **state) {
    (void)state;
    for (libdecode_dtype dtype = LIBDECODE_DTYPE_BF16; dtype <= LIBDECODE_DTYPE_FP16; dtype++) {
        const double u = dtype == LIBDECODE_DTYPE_BF16 ? 0x1p-8 : 0x1p-11;
        const libdecode_problem problem = problem_of(dtype);
        const libdecode_tensors tensors = tensors_of(dtype, 0);
        struct expectation expectation;
        assert_true(expect(&problem, &tensors, &expectation));
        assert_true(expectation.out[0] == 2 && expectation.lse[0] == 1);
        assert_int_equal(compare(&expectation, &problem, 2, 1).count, 0);
        assert_int_equal(compare(&expectation, &problem, 2 * (1 + 2 * u), 1).count, 0);
        assert_int_equal(compare(&expectation, &problem, 1, 1).count, DIM);
        assert_int_equal(compare(&expectation, &problem, 3, 1).count, DIM);
        assert_int_equal(compare(&expectation, &problem, (double)NAN, 1).count, DIM);
        const struct mismatch mismatch = compare(&expectation, &problem, 2, 0.99f);
        assert_true(mismatch.count == 1 && mismatch.in_lse && mismatch.token == 0 && mismatch.head == 0);
        expectation_free(&expectation);
    }
}

static void huge_scores_keep_their_differences(void **state) {
    const libdecode_problem problem = problem_of(LIBDECODE_DTYPE_BF16);
    const libdecode_tensors tensors = tensors_of(LIBDECODE_DTYPE_BF16, 0x1p28);
    struct expectation expectation;
    (void)state;
    assert_true(expect(&problem, &tensors, &expectation));
    assert_true(expectation.out[0] == 3 && expectation.lse[0] == 0x1p28);
    assert_true(expectation.out_tolerance[0] > 0 && expectation.out_tolerance[0] < 0.2);
    assert_int_equal(compare(&expectation, &problem, 3, 0x1p28f).count, 0);
    assert_int_equal(compare(&expectation, &problem, 3, 0x1p28f + 32).count, 0); /* the next float */
    assert_int_equal(compare(&expectation, &problem, 3, 0x1p28f + 64).count, 1);
    assert_int_equal(compare(&expectation, &problem, 2, 0x1p28f).count, DIM);
    expectation_free(&expectation);
}

/* With another dtype's tolerance a comparison would say nothing. */
static void a_dtype_without_a_tolerance_is_an_error(void **state) {
    libdecode_problem problem = problem_of(LIBDECODE_DTYPE_E4M3);
    const libdecode_tensors tensors = tensors_of(LIBDECODE_DTYPE_E4M3, 0);
    struct expectation expectation = {0};
    (void)state;
    assert_false(expect(&problem, &tensors, &expectation));
    problem.out_dtype = LIBDECODE_DTYPE_BF16; /* nor has P */
    assert_false(expect(&problem, &tensors, &expectation));
    assert_null(expectation.out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_rounding_explains_is_right_and_a_forgotten_token_is_not),
        cmocka_unit_test(huge_scores_keep_their_differences),
        cmocka_unit_test(a_dtype_without_a_tolerance_is_an_error),
    };
    return cmocka_run_group_tests_name("compare", tests, NULL, NULL);
}
