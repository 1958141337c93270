/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compare.c: what the reference says of a case in, how far a kernel may lie from it out. Next: check, bench and demo.
 *
 * The tolerance, derived. w_j = exp(z_j) / sum is the weight of token j; u_p is the unit roundoff of the dtype of P, which is
 * that of the query, and u_o that of out (bf16: 2^-8, fp16: 2^-11). Everything else is done in f32, and the reference does not
 * round at all. Then
 *
 *     kernel:     out = round( sum_j w_j (1 + e_j) v_j ),  |e_j| <= u_p: P is rounded before it meets V
 *     reference:  out = sum_j w_j v_j
 *
 *  - The final rounding: u_o |out|.
 *  - Errors e_j that all agree (many equal scores) scale the result: u_p |out|.
 *  - Errors e_j that do not agree add up like a random walk. Rounding errors have the standard deviation u_p / sqrt(3), so that
 *    of the sum is s = u_p / sqrt(3) * sqrt(sum_j w_j^2 v_j^2); 8 s is never reached by chance. The worst case,
 *    u_p sum_j w_j |v_j|, would be larger by the square root of the length, and would not notice a token that is missing.
 *  - fp16 alone: P below 2^-14 loses digits, each at most 2^-25 of the largest P, whose weight is at most sqrt(sum_j w_j^2):
 *    8 / sqrt(3) * 2^-25 * sqrt(sum_j w_j^2) * sqrt(tokens) * max |v|; and the results themselves may be subnormal, with a
 *    spacing of 2^-24, half of which is 2^-25.
 *  - Scores are sums of f32 over head_dim / 16 steps of up to 100 * 2^-23 each: together below 2^-12 in base 2, and so is what
 *    they change of a weight: 2^-12 |out|, which shows beside the 2^-11 of fp16.
 *
 * sum_j w_j^2 v_j^2 comes from the reference too: with logits and sinks doubled and V squared it returns
 * sum_j exp(2 z_j) v_j^2 / sum_j exp(2 z_j), and an lse2 that turns this into the sum: times 2^(lse2 - 2 lse).
 *
 * The lse is log2 of a sum that f32 holds to 2^-23 of itself, of such scores: 2^-11 is allowed; and it is a sum in f32 that is
 * rounded, of a maximum that was: two roundings, 2^-23 |lse|, which shows where scores are huge.
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
#include "reference.h"

#define SIGMAS 8.0
#define SCORE_TOLERANCE 0x1p-12
#define LSE_TOLERANCE 0x1p-11
#define LSE_ROUNDING 0x1p-23

/* The one table of tolerances. A dtype that is not in it has none derived yet. */
static const struct rounding {
    libdecode_dtype dtype;
    double unit_roundoff;
    double p_floor;   /* what rounding a tiny P may cost, relative to the largest P */
    double out_floor; /* half the spacing of the smallest results */
} roundings[] = {
    {LIBDECODE_DTYPE_BF16, 0x1p-8, 0.0, 0.0},
    {LIBDECODE_DTYPE_FP16, 0x1p-11, 0x1p-25, 0x1p-25},
};

/* Never one for another: a test with the wrong tolerance says nothing. */
static const struct rounding *rounding_of(libdecode_dtype dtype) {
    for (size_t index = 0; index < sizeof roundings / sizeof roundings[0]; index++) {
        if (roundings[index].dtype == dtype)
            return &roundings[index];
    }
    complain("internal error: loader/cli/compare.c has no tolerance for dtype %s (%d)", dtype_name(dtype), (int)dtype);
    return NULL;
}

/* The applied bmm2_scale, magnitude. */
static double bmm2_magnitude(const libdecode_tensors *tensors) {
    if (tensors->bmm2_scale_device != NULL)
        return fabs((double)*tensors->bmm2_scale_device);
    return tensors->bmm2_scale != 0.0f ? fabs((double)tensors->bmm2_scale) : 1.0;
}

/* The second run: doubled logits, squared values, no scale of the result. Doubling is exact, whichever scale applies. */
static bool run_squared(const struct expectation_input *input, double *out, double *lse) {
    libdecode_tensors tensors = *input->tensors;
    const int32_t num_heads = input->problem->num_qo_heads;
    const float one = 1.0f;
    float bmm1 = 2.0f, bmm1_log2 = 2.0f, *sinks = NULL;
    tensors.v_cache = input->v_cache_squared;
    tensors.bmm1_scale = 2.0f * (tensors.bmm1_scale != 0.0f ? tensors.bmm1_scale : 1.0f);
    if (tensors.bmm1_scale_device != NULL) {
        bmm1 *= *tensors.bmm1_scale_device;
        tensors.bmm1_scale_device = &bmm1;
    }
    if (tensors.bmm1_scale_log2_device != NULL) {
        bmm1_log2 *= *tensors.bmm1_scale_log2_device;
        tensors.bmm1_scale_log2_device = &bmm1_log2;
    }
    tensors.bmm2_scale_device = &one;
    if (tensors.sinks != NULL) {
        sinks = malloc((size_t)num_heads * sizeof sinks[0]);
        if (sinks == NULL)
            return complain("out of memory");
        for (int32_t head = 0; head < num_heads; head++)
            sinks[head] = 2.0f * tensors.sinks[head];
        tensors.sinks = sinks;
    }
    bool good = host_reference_exact(input->problem, &tensors, out, lse, NULL);
    free(sinks);
    return good;
}

/* out_tolerance and lse_tolerance hold what the second run gave, and get the tolerances. */
static bool set_tolerances(const struct expectation_input *input, struct expectation *expectation) {
    struct problem checked;
    if (problem_check(input->problem, &checked) != LIBDECODE_OK)
        return complain("%s", libdecode_error_message());
    const struct rounding *p = rounding_of(checked.given.query_dtype), *out = rounding_of(checked.given.out_dtype);
    if (p == NULL || out == NULL)
        return false;
    const size_t row = (size_t)expectation->head_dim;
    const double bmm2 = bmm2_magnitude(input->tensors);
    const double p_floor = p->p_floor * sqrt((double)input->longest) * input->largest_v * bmm2;
    for (size_t index = 0; index < expectation->num_rows; index++) {
        /* the sum of the squared weights; NaN where no token is visible, as both lse are -infinity then */
        const double squared_weights = exp2(expectation->lse_tolerance[index] - 2.0 * expectation->lse[index]);
        const double lse = fabs(expectation->lse[index]);
        expectation->lse_tolerance[index] = LSE_TOLERANCE + (isfinite(lse) ? LSE_ROUNDING * lse : 0.0);
        for (size_t element = index * row; element < (index + 1) * row; element++) {
            double magnitude = fabs(expectation->out[element]);
            double spread = sqrt(fmax(expectation->out_tolerance[element], 0.0) * squared_weights) * bmm2;
            double floor = out->out_floor + SIGMAS / sqrt(3.0) * p_floor * sqrt(squared_weights);
            double tolerance = (p->unit_roundoff + out->unit_roundoff + SCORE_TOLERANCE) * magnitude +
                               SIGMAS / sqrt(3.0) * p->unit_roundoff * spread + floor;
            expectation->out_tolerance[element] = isfinite(squared_weights) ? tolerance : 0.0;
        }
    }
    return true;
}

bool expectation_make(const struct expectation_input *input, const char *label, struct expectation *ret_expectation) {
    const libdecode_problem *problem = input->problem;
    struct expectation expectation = {.head_dim = problem->head_dim, .num_qo_heads = problem->num_qo_heads};
    expectation.num_rows = (size_t)query_tokens(problem, input->tensors->cum_seq_lens_q) * (size_t)problem->num_qo_heads;
    const size_t elements = expectation.num_rows * (size_t)problem->head_dim;
    expectation.out = malloc((elements + 1) * sizeof(double));
    expectation.out_tolerance = malloc((elements + 1) * sizeof(double));
    expectation.lse = malloc((expectation.num_rows + 1) * sizeof(double));
    expectation.lse_tolerance = malloc((expectation.num_rows + 1) * sizeof(double));
    bool good = (expectation.out != NULL && expectation.out_tolerance != NULL && expectation.lse != NULL &&
                 expectation.lse_tolerance != NULL) ||
                complain("out of memory");
    good = good && host_reference_exact(problem, input->tensors, expectation.out, expectation.lse, label) &&
           run_squared(input, expectation.out_tolerance, expectation.lse_tolerance) && set_tolerances(input, &expectation);
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
    free(expectation->lse_tolerance);
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
    mismatch->token = position[0];
    mismatch->head = position[1];
    mismatch->element = position[2];
    mismatch->got = got;
    mismatch->expected = expected;
    mismatch->tolerance = tolerance;
}

void expectation_compare(const struct expectation *expectation, const libdecode_problem *problem, const void *out,
                         const float *lse, struct mismatch *ret_mismatch) {
    struct problem checked;
    struct mismatch mismatch = {0};
    double values[512];
    if (problem_check(problem, &checked) != LIBDECODE_OK)
        return; /* the caller has launched with it, so it is good */
    const libdecode_dtype dtype = checked.given.out_dtype;
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
        note(&mismatch, true, position, (double)lse[offset], expectation->lse[index], expectation->lse_tolerance[index]);
    }
    *ret_mismatch = mismatch;
}

void mismatch_describe(const struct mismatch *mismatch, char *text, size_t size) {
    char element[32] = "";
    if (!mismatch->in_lse)
        snprintf(element, sizeof element, ", element %zu", mismatch->element);
    snprintf(text, size, "%s[token %zu, head %zu%s] is %.7g, expected %.7g, off by %.3g, allowed %.3g; %zu of %zu are off",
             mismatch->in_lse ? "lse" : "out", mismatch->token, mismatch->head, element, mismatch->got, mismatch->expected,
             fabs(mismatch->got - mismatch->expected), mismatch->tolerance, mismatch->count, mismatch->compared);
}
