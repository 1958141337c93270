/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compare.c: what the reference says of a case in, how far a kernel may lie from it out. Before: cases.c. Next: check.c.
 *
 * The tolerance, derived. w_j = exp(z_j) / sum is the weight of token j, u the unit roundoff of the dtype of P and of out
 * (bf16: 2^-8, fp16: 2^-11), and everything else is done in f32, whose 2^-24 does not show beside u. Then
 *
 *     kernel:     out = round( sum_j w_j (1 + e_j) v_j ),  |e_j| <= u: P is rounded to 16 bits before it meets V
 *     reference:  out = round( sum_j w_j v_j )
 *
 *  - The two final roundings differ by at most 2 u |out|.
 *  - Errors e_j that all agree (many equal scores) scale the result: u |out|.
 *  - Errors e_j that do not agree add up like a random walk. Rounding errors have the standard deviation u / sqrt(3), so that of
 *    the sum is s = u / sqrt(3) * sqrt(sum_j w_j^2 v_j^2); 8 s is never reached by chance. The worst case, u sum_j w_j |v_j|,
 *    would be larger by the square root of the length, and would not notice a token that is missing.
 *  - fp16 alone: P below 2^-14 loses digits, each at most 2^-25 of the largest P, whose weight is at most sqrt(sum_j w_j^2):
 *    8 / sqrt(3) * 2^-25 * sqrt(sum_j w_j^2) * sqrt(tokens) * max |v|; and the results themselves may be subnormal, with a
 *    spacing of 2^-24.
 *
 * sum_j w_j^2 v_j^2 comes from the reference too: with logits and sinks doubled and V squared it returns
 * sum_j exp(2 z_j) v_j^2 / sum_j exp(2 z_j), and an lse2 that turns this into the sum: times 2^(lse2 - 2 lse).
 *
 * The lse is log2 of a sum that f32 holds to 2^-23 of itself, of logits that f32 accumulates over head_dim / 16 steps of up to
 * 100 * 2^-23 each: together below 2^-12, and 2^-11 is allowed.
 */
#include "compare.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "element.h"
#include "host_reference.h"
#include "options.h"
#include "problem.h"

#define SIGMAS 8.0
#define LSE_TOLERANCE 0x1p-11

/* The one table of tolerances. */
static const struct {
    libdecode_dtype dtype; /* of P and of out */
    double unit_roundoff;
    double p_floor;   /* what rounding a tiny P may cost, relative to the largest P */
    double out_floor; /* two halves of the spacing of the smallest results */
} tolerances[] = {
    {LIBDECODE_DTYPE_BF16, 0x1p-8, 0.0, 0.0},
    {LIBDECODE_DTYPE_FP16, 0x1p-11, 0x1p-25, 0x1p-24},
};

/* One run of the reference into dense rows. */
struct dense_result {
    uint8_t *out;
    float *lse;
};

static bool run_dense(const struct expectation_input *input, const libdecode_tensors *tensors, const char *label,
                      struct dense_result *result) {
    libdecode_problem problem = *input->problem;
    libdecode_tensors dense = *tensors;
    problem.features |= LIBDECODE_FEATURE_LSE;
    problem.out_head_stride = problem.out_token_stride = problem.lse_head_stride = problem.lse_token_stride = 0;
    dense.out = result->out;
    dense.lse = result->lse;
    return host_reference(&problem, &dense, 0, problem.num_kv_heads, label);
}

/* The second run: doubled logits, squared values. */
static bool run_squared(const struct expectation_input *input, struct dense_result *result) {
    libdecode_tensors tensors = *input->tensors;
    const int32_t num_heads = input->problem->num_qo_heads;
    float *sinks = NULL;
    tensors.v_cache = input->v_cache_squared;
    tensors.bmm1_scale = 2.0f * input->bmm1_scale;
    tensors.bmm2_scale = 1.0f;
    tensors.bmm1_scale_device = tensors.bmm1_scale_log2_device = tensors.bmm2_scale_device = NULL;
    if (tensors.sinks != NULL) {
        sinks = malloc((size_t)num_heads * sizeof sinks[0]);
        if (sinks == NULL)
            return complain("out of memory");
        for (int32_t head = 0; head < num_heads; head++)
            sinks[head] = 2.0f * tensors.sinks[head];
        tensors.sinks = sinks;
    }
    bool good = run_dense(input, &tensors, NULL, result);
    free(sinks);
    return good;
}

static void set_tolerances(const struct expectation_input *input, const struct dense_result *squared,
                           struct expectation *expectation, double *row_squared) {
    const libdecode_dtype dtype = input->problem->query_dtype;
    const size_t row = (size_t)expectation->head_dim, row_bytes = row * (size_t)dtype_bits(dtype) / 8;
    size_t rule = 0;
    while (rule + 1 < sizeof tolerances / sizeof tolerances[0] && tolerances[rule].dtype != dtype)
        rule++;
    const double u = tolerances[rule].unit_roundoff, bmm2 = fabs((double)input->bmm2_scale);
    const double p_floor = tolerances[rule].p_floor * sqrt((double)input->longest) * input->largest_v * bmm2;
    for (size_t index = 0; index < expectation->num_rows; index++) {
        element_decode_row(dtype, squared->out + index * row_bytes, row, row_squared);
        /* the sum of the squared weights; NaN where no token is visible, as both lse are -infinity then */
        const double squared_weights = exp2((double)squared->lse[index] - 2.0 * expectation->lse[index]);
        for (size_t element = 0; element < row; element++) {
            double magnitude = fabs(expectation->out[index * row + element]);
            double spread = sqrt(fmax(row_squared[element], 0.0) * squared_weights) * bmm2;
            double floor = tolerances[rule].out_floor + SIGMAS / sqrt(3.0) * p_floor * sqrt(squared_weights);
            expectation->out_tolerance[index * row + element] =
                isfinite(squared_weights) ? 3.0 * u * magnitude + SIGMAS / sqrt(3.0) * u * spread + floor : 0.0;
        }
    }
}

static bool fill_expectation(const struct expectation_input *input, const char *label, struct expectation *expectation,
                             struct dense_result *result, double *scratch) {
    const libdecode_dtype dtype = input->problem->query_dtype;
    const size_t row = (size_t)expectation->head_dim, row_bytes = row * (size_t)dtype_bits(dtype) / 8;
    if (!run_dense(input, input->tensors, label, result))
        return false;
    for (size_t index = 0; index < expectation->num_rows; index++) {
        element_decode_row(dtype, result->out + index * row_bytes, row, expectation->out + index * row);
        expectation->lse[index] = (double)result->lse[index];
    }
    if (!run_squared(input, result))
        return false;
    set_tolerances(input, result, expectation, scratch);
    return true;
}

bool expectation_make(const struct expectation_input *input, const char *label, struct expectation *ret_expectation) {
    const libdecode_problem *problem = input->problem;
    struct expectation expectation = {.head_dim = problem->head_dim, .num_qo_heads = problem->num_qo_heads};
    expectation.num_rows = (size_t)problem->batch_size * (size_t)problem->num_qo_heads;
    expectation.lse_tolerance = LSE_TOLERANCE;
    const size_t elements = expectation.num_rows * (size_t)problem->head_dim;
    expectation.out = malloc((elements + 1) * sizeof(double));
    expectation.out_tolerance = malloc((elements + 1) * sizeof(double));
    expectation.lse = malloc((expectation.num_rows + 1) * sizeof(double));
    struct dense_result result = {.out = aligned_alloc(16, (elements * 2 + 16) / 16 * 16),
                                  .lse = malloc((expectation.num_rows + 1) * sizeof(float))};
    double *scratch = malloc((size_t)problem->head_dim * sizeof(double));
    bool good = expectation.out != NULL && expectation.out_tolerance != NULL && expectation.lse != NULL && result.out != NULL &&
                result.lse != NULL && scratch != NULL;
    good = good ? fill_expectation(input, label, &expectation, &result, scratch) : complain("out of memory");
    free(result.out);
    free(result.lse);
    free(scratch);
    if (good)
        *ret_expectation = expectation;
    else
        expectation_free(&expectation);
    return good;
}

void expectation_free(struct expectation *expectation) {
    free(expectation->out);
    free(expectation->out_tolerance);
    free(expectation->lse);
    *expectation = (struct expectation){0};
}

/* Equal infinities agree; NaN never does. */
static double error_of(double got, double expected) {
    if (got == expected)
        return 0.0;
    double error = fabs(got - expected);
    return isnan(error) ? (double)INFINITY : error;
}

static void note(struct mismatch *mismatch, bool in_lse, size_t position[3], double got, double expected, double tolerance) {
    double error = error_of(got, expected);
    mismatch->compared++;
    if (error > 0)
        mismatch->worst_ratio = fmax(mismatch->worst_ratio, tolerance > 0 ? error / tolerance : (double)INFINITY);
    if (error <= tolerance)
        return;
    if (mismatch->count++ > 0)
        return;
    mismatch->in_lse = in_lse;
    mismatch->request = position[0];
    mismatch->head = position[1];
    mismatch->element = position[2];
    mismatch->got = got;
    mismatch->expected = expected;
    mismatch->tolerance = tolerance;
}

void expectation_compare(const struct expectation *expectation, const libdecode_problem *problem, const void *out,
                         const float *lse, struct mismatch *ret_mismatch) {
    const libdecode_dtype dtype = problem->query_dtype;
    struct problem checked;
    struct mismatch mismatch = {0};
    double values[512];
    if (problem_check(problem, &checked) != LIBDECODE_OK)
        return; /* the caller has launched with it, so it is good */
    for (size_t index = 0; index < expectation->num_rows; index++) {
        size_t position[3] = {index / (size_t)expectation->num_qo_heads, index % (size_t)expectation->num_qo_heads, 0};
        size_t offset =
            position[0] * (size_t)checked.given.out_token_stride + position[1] * (size_t)checked.given.out_head_stride;
        element_decode_row(dtype, (const char *)out + offset * (size_t)dtype_bits(dtype) / 8, (size_t)expectation->head_dim,
                           values);
        const size_t first = index * (size_t)expectation->head_dim;
        for (; position[2] < (size_t)expectation->head_dim; position[2]++)
            note(&mismatch, false, position, values[position[2]], expectation->out[first + position[2]],
                 expectation->out_tolerance[first + position[2]]);
    }
    for (size_t index = 0; lse != NULL && index < expectation->num_rows; index++) {
        size_t position[3] = {index / (size_t)expectation->num_qo_heads, index % (size_t)expectation->num_qo_heads, 0};
        size_t offset =
            position[0] * (size_t)checked.given.lse_token_stride + position[1] * (size_t)checked.given.lse_head_stride;
        note(&mismatch, true, position, (double)lse[offset], expectation->lse[index], expectation->lse_tolerance);
    }
    *ret_mismatch = mismatch;
}

void mismatch_describe(const struct mismatch *mismatch, char *text, size_t size) {
    char element[32] = "";
    if (!mismatch->in_lse)
        snprintf(element, sizeof element, ", element %zu", mismatch->element);
    snprintf(text, size, "%s[request %zu, head %zu%s] is %.7g, expected %.7g, off by %.3g, allowed %.3g; %zu of %zu are off",
             mismatch->in_lse ? "lse" : "out", mismatch->request, mismatch->head, element, mismatch->got, mismatch->expected,
             fabs(mismatch->got - mismatch->expected), mismatch->tolerance, mismatch->count, mismatch->compared);
}
