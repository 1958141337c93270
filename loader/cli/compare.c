/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compare.c: what the reference says of a case in, how far a kernel may lie from it out. Next: check, bench and demo.
 *
 * The tolerance, derived. w_j is the weight of token j: exp(z_j) over the sum of all; u_p is the unit roundoff of the dtype in
 * which P meets V, u_o that of out (bf16: 2^-8, fp16: 2^-11, e4m3: 2^-4). P has the dtype of the matrix operands: bf16 with bf16
 * KV, fp16 with every other, whatever the query is. Everything else is done in f32, and the reference does not round at all.
 * But for that V, K and V lose nothing: every e4m3 and e5m2, and every product of an e2m1 and an e4m3, is an fp16 number. Nor does the query: a
 * bf16 row for fp16 operands is multiplied by a power of two, and only elements below 2^-29 of its largest lose digits, which are
 * less than 2^-40 of that largest: nothing beside the f32 sums. Then
 *
 *     kernel:     out = round( sum_j w_j (1 + e_j) v_j ),  |e_j| <= u_p: P is rounded before it meets V
 *     reference:  out = sum_j w_j v_j
 *
 *  - Errors e_j that all agree (many equal scores) scale the result: u_p |out|.
 *  - Errors e_j that do not agree add up like a random walk. Rounding errors have the standard deviation u_p / sqrt(3), so that
 *    of the sum is s = u_p / sqrt(3) * sqrt(sum_j w_j^2 v_j^2); 8 s is never reached by chance. The worst case,
 *    u_p sum_j w_j |v_j|, would be larger by the square root of the length, and would not notice a token that is missing.
 *  - Rows of 656 bytes: V is an element times a scale of its block, in fp16 where it meets P: the scale is rounded, and then the product,
 *    each by u_p, unless the scale is a power of two. Errors that all agree: 3 u_p |out|; others: sqrt(3) s. The scale is counted in units of
 *    which the largest so far is 16 to 128: what is lost below 2^-14 of them is at most 2^-25, which is 2^-37 of the largest element there may
 *    be, and nothing beside what P loses below.
 *  - P in fp16 alone: below 2^-14 it loses digits, each at most 2^-25 of the largest P, whose weight is at most
 *    sqrt(sum_j w_j^2): 8 / sqrt(3) * 2^-25 * sqrt(sum_j w_j^2) * sqrt(tokens) * max |v|.
 *  - Kernels of MLA hand each other partial results as fp16 (kernels/pipeline/part_halves.cuh), in units of which the largest is 2^14 and more: those of
 *    CTAs in a cluster, and those of workers. Twice a part is rounded, by u_h = 2^-11: 2 u_h |out| where all parts agree, and where they do not,
 *    each is what s says of its tokens: u_h / sqrt(3) * sqrt(2) of the root in it. The last digit is 2^-38 of the largest mean there may be, which
 *    is less than twice max |v|, and a unit that is handed on is twice as large: 2^-36 max |v|.
 *  - Scores are sums of f32 over head_dim / 16 steps of up to 100 * 2^-23 each: together below 2^-12 in base 2 up to a head_dim
 *    of 256, 2^-11 above, and so is what they change of a weight: 2^-12 |out|, which shows beside the 2^-11 of fp16.
 *  - A score times its scale is rounded, or, where it goes straight into the exponent, not, as a tile has it: so tokens of one row that weigh the
 *    same may differ. What counts lies near the lse, so that a weight is off by d = ln(2) 2^-24 |lse|, which shows where scores are huge, though
 *    they be exact sums. An error that all weights share has no effect: 8 / sqrt(3) d sqrt(sum_j w_j^2 (v_j - out)^2), whose root is at most
 *    sqrt(sum_j w_j^2 v_j^2) + |out| sqrt(W), W = sum_j w_j^2; and, as |v_j - out| <= (1 - w_j) 2 max |v| and W^2 <= sum_j w_j^3,
 *    at most 2 max |v| sqrt(W (1 - W)): nothing where one token is all.
 *  - A soft cap shrinks what a score is off by. Its own steps in f32 (two divisions and products, tanh to two units of its last
 *    place) are off by 2^-21 of what they leave, which is at most the cap and the 100 that scores reach: 2^-21 min(cap, 100).
 *  - ALiBi adds a bias in f32: four roundings of 2^-24, of numbers up to the bias and of their sum. What tokens that count at all
 *    come to lies near the lse, so the bias is at most |lse| + 100 of the score: 2^-22 (|lse| + 100). Unlike the errors of the scores
 *    this may be more than u_p, so it counts for the random walk, too.
 *  - RoPE rounds what it has turned: K to P's dtype, and the query. Of a pair of dims that is x cos - y sin, in bf16 one rounding of
 *    the result, in fp16 three more, of the cosine, the sine and y sin; u_p is that of each. With |q_i| and |k_i| the lengths of pair
 *    i of the query and the key, errors of the score that do not agree have the standard deviation
 *    s = |bmm1_scale| * u_p / sqrt(3) * sqrt((3 + 1) sum_i |q_i|^2 |k_i|^2), the largest of any token that the row sees, and so have
 *    those of a weight: 8 s (sqrt(sum_j w_j^2 v_j^2) + |out| sqrt(sum_j w_j^2)), since an error that all weights share has no
 *    effect. The lse may share it. Angles are off by less than 2^-17, which does not show beside u_p.
 *  - MLA of e4m3 with e4m3: the tensor core of Hopper multiplies them exactly and cuts what it adds, 32 products and the sum so far, to 14 bits of
 *    the largest of them. A cut of so many terms has the standard deviation sqrt(33 / 12) * 2^-13 of that largest, 18 of them sqrt(18) times as
 *    much, 7 * 2^-13; and the sum so far is about N = |bmm1_scale| sqrt(sum_i q_i^2 k_i^2), which is 1 / sqrt(2) of the root that RoPE has
 *    above, with its pairs. So the errors of scores have 2^-10.7 of that root, as much as RoPE's in fp16 have: they count as those do.
 *  - The final rounding: u_o |out|, and where results are subnormal half their spacing: 2^-25 of fp16, 2^-10 of e4m3. bf16 ends
 *    where f32 does: what lies below 2^-126 may become 0. e4m3 saturates at 448: so does the expectation, and saturating makes
 *    no difference larger.
 *  - A row's sums, of P that is at most 1, are multiplied by a factor in f32, the smaller the farther its sink lies above its
 *    scores. Below 2^-126 it may become 0, and with it a result of up to 2^-126 sum_j |v_j|, which is at most
 *    2^-126 * tokens * max |v|: 2^-110 sqrt(tokens) max |v| for fewer than 2^32 tokens.
 *
 *  - Skip-softmax may pass over tokens whose weight is less than factor / S of the largest kept one, S tokens of the sequence: all
 *    of them together weigh less than d = factor of what is kept. What is kept is divided by a sum that lacks them:
 *    out moves by at most 2 d max |v|, and the lse falls by at most log2(1 + d).
 *
 * All but the final rounding say how far the value may lie that an NVFP4 result is made of: t. Rounding is monotonic, so what becomes of
 * the ends of [x - t, x + t] encloses what may become of x, and no roundoff has to be estimated:
 *
 *  - A block's scale is e4m3(out_sf_scale * largest / 6): any from that of the largest |x| - t to that of the largest |x| + t.
 *  - With the scale s that it has, a code may be any from e2m1((x - t) * out_sf_scale / s) to e2m1((x + t) * out_sf_scale / s): the
 *    code of x, and where x lies near the border of two codes the other one. f32 arithmetic on the way is within t.
 *
 * The lse is log2 of a sum that f32 holds to 2^-23 of itself, of such scores: 2^-11 is allowed, twice as much above a head_dim of
 * 256; and it is a sum in f32 that is rounded, of a maximum that was: two roundings, 2^-23 |lse|, which shows where scores are
 * huge; two more where the scale of the scores is not given in base 2, and where base e is asked for. What a soft cap and ALiBi do
 * to a score, they do to the lse. What is added where biases count from position 0 is a product of a slope, log2(e) and a position,
 * four roundings of f32 at most, 2^-22 of itself, and a further term of the last sum.
 */
#include "compare.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dtype.h"
#include "element.h"
#include "host_reference.h"
#include "options.h"
#include "problem.h"
#include "reference.h"

#define SIGMAS 8.0
#define SCORE_TOLERANCE 0x1p-12
#define LARGEST_SCORE 100.0
#define SCALED_SCORE_ROUNDING 0x1p-24
#define SOFT_CAP_ROUNDING 0x1p-21
#define ALIBI_ROUNDING 0x1p-22
#define FACTOR_FLOOR 0x1p-110
#define HALVES_ROUNDINGS 2.0
#define HALVES_FLOOR 0x1p-36
#define LSE_TOLERANCE 0x1p-11
#define LSE_ROUNDING 0x1p-23
#define MAX_HEAD_DIM 1024
#define LN_2 0.6931471805599453

/* The one table of tolerances. A dtype that is not in it has none derived yet. */
static const struct rounding {
    libdecode_dtype dtype;
    double unit_roundoff;
    double floor;   /* what may be lost of the smallest results */
    double largest; /* results saturate there */
} roundings[] = {
    {LIBDECODE_DTYPE_BF16, 0x1p-8, 0x1p-126, (double)INFINITY},
    {LIBDECODE_DTYPE_FP16, 0x1p-11, 0x1p-25, (double)INFINITY},
    {LIBDECODE_DTYPE_E4M3, 0x1p-4, 0x1p-10, 448.0},
    {LIBDECODE_DTYPE_NVFP4, 0.0, 0.0, (double)INFINITY}, /* compare_block rounds the ends instead */
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

/* What a soft cap and ALiBi add to the error of a score, of a row with this lse. */
static double bias_tolerance(const libdecode_problem *given, double lse) {
    const double cap = (double)given->logits_soft_cap, size = isfinite(lse) ? fabs(lse) : 0.0;
    double tolerance = 0;
    if ((given->features & LIBDECODE_FEATURE_SOFT_CAP) != 0)
        tolerance += SOFT_CAP_ROUNDING * (cap < LARGEST_SCORE ? cap : LARGEST_SCORE);
    if ((given->features & LIBDECODE_FEATURE_ALIBI) != 0)
        tolerance += ALIBI_ROUNDING * (size + LARGEST_SCORE);
    return tolerance;
}

/* Of the weight of what a row keeps, that of the tokens that may be passed over: none where the threshold is 1 and more. */
static double skipped_weight(const struct problem *problem, const libdecode_tensors *tensors, int32_t request, int64_t head) {
    const libdecode_problem *given = &problem->given;
    const double factor = (double)given->skip_softmax_threshold_scale_factor;
    if (!(factor > 0))
        return 0.0;
    const int64_t most = problem->max_tokens;
    int64_t length = most;
    if (tensors->seq_lens != NULL)
        length =
            tensors
                ->seq_lens[request * given->seq_lens_request_stride + head / problem->group_size * given->seq_lens_head_stride];
    return factor < (double)(length < most ? length : most) ? factor : 0.0;
}

/* `exact` writes to expectation->out and ->lse; here out saturates, and the tolerances follow. */
static bool set_tolerances(const struct problem *problem, const libdecode_tensors *tensors, const struct exact_results *exact,
                           struct expectation *expectation) {
    const bool scales_v = problem->given.kv_row_format == LIBDECODE_KV_ROW_FP8_SCALED_656; /* with any float */
    const double p_roundings = scales_v ? 3.0 : 1.0;                                       /* with those of V */
    const libdecode_dtype p_dtype = problem->given.kv_dtype == LIBDECODE_DTYPE_BF16 ? LIBDECODE_DTYPE_BF16 : LIBDECODE_DTYPE_FP16;
    const struct rounding *p = rounding_of(p_dtype), *out = rounding_of(problem->given.out_dtype);
    const struct rounding *fp16 = rounding_of(LIBDECODE_DTYPE_FP16);
    if (p == NULL || out == NULL || fp16 == NULL)
        return false;
    const bool has_halves = problem->given.op == LIBDECODE_OP_MLA_DECODE;
    const double halves = has_halves ? fp16->unit_roundoff : 0.0, halves_floor = has_halves ? HALVES_FLOOR : 0.0;
    const size_t row = (size_t)expectation->head_dim;
    const double random_roundings = sqrt(p_roundings * p->unit_roundoff * p->unit_roundoff + HALVES_ROUNDINGS * halves * halves);
    const double deep = problem->qk_dim > 256 ? 2.0 : 1.0; /* sums of more steps */
    const bool is_natural = (problem->given.features & LIBDECODE_FEATURE_LSE_NATURAL) != 0;
    const double lse_unit = is_natural ? LN_2 : 1.0;
    const double lse_rounding = LSE_ROUNDING * ((tensors->bmm1_scale_log2_device != NULL ? 1.0 : 2.0) + (is_natural ? 1.0 : 0.0));
    int32_t request = 0;
    for (size_t index = 0; index < expectation->num_rows; index++) {
        const int64_t num_heads = problem->given.num_qo_heads, token = (int64_t)index / num_heads;
        request = request_of_token(&problem->given, tensors->cum_seq_lens_q, token, request);
        const double skipped = skipped_weight(problem, tensors, request, (int64_t)index % num_heads);
        const double shift = fabs(exact->shift[index]), lse = fabs(exact->lse[index] - exact->shift[index]);
        const double weight = exact->weight[index], bias = bias_tolerance(&problem->given, lse);
        const double scaled = isfinite(lse) ? LN_2 * SCALED_SCORE_ROUNDING * lse : 0.0;
        /* An infinite |v| excuses no other element. */
        const double largest = isfinite(exact->largest[index]) ? exact->largest[index] : 0.0;
        const double most_apart =
            isfinite(exact->largest[index]) ? 2 * largest * weight * sqrt(fmax(1 - weight * weight, 0.0)) : (double)INFINITY;
        const double turned = 2.0 * p->unit_roundoff * exact->turned[index];
        const double row_floor = (SIGMAS / sqrt(3.0) * p->floor * weight + FACTOR_FLOOR) * sqrt(exact->tokens[index]) * largest +
                                 (halves_floor + 2 * skipped) * largest;
        expectation->lse[index] = lse_unit * exact->lse[index];
        expectation->lse_tolerance[index] =
            lse_unit * (deep * LSE_TOLERANCE + bias + log2(1 + skipped) + SIGMAS / sqrt(3.0) * turned / LN_2 +
                        (isfinite(lse) ? lse_rounding * (lse + shift) + ALIBI_ROUNDING * shift : 0.0));
        for (size_t element = index * row; element < (index + 1) * row; element++) {
            const double magnitude = fabs(exact->out[element]);
            const double rounded = magnitude > out->largest ? out->largest : magnitude;
            expectation->num_nan += isnan(magnitude) != 0;
            expectation->out[element] = copysign(rounded, exact->out[element]);
            const double apart =
                scaled > 0 ? fmin(exact->spread[element] + weight * magnitude, most_apart) : 0.0; /* of infinity, too */
            const double tolerance =
                (p_roundings * p->unit_roundoff + HALVES_ROUNDINGS * halves + deep * SCORE_TOLERANCE + bias) * magnitude +
                SIGMAS / sqrt(3.0) * (random_roundings + bias + turned) * exact->spread[element] +
                SIGMAS / sqrt(3.0) * (turned * weight * magnitude + scaled * apart) + row_floor + out->unit_roundoff * rounded +
                out->floor;
            expectation->out_tolerance[element] = weight > 0 ? tolerance : 0.0; /* no token is visible: 0, exactly */
        }
    }
    return true;
}

bool expectation_make(const libdecode_problem *problem, const libdecode_tensors *tensors, int num_threads, const char *label,
                      struct expectation *ret_expectation) {
    struct problem checked;
    if (problem_check(problem, &checked) != LIBDECODE_OK)
        return complain("%s", libdecode_error_message());
    struct expectation expectation = {.head_dim = checked.v_dim, .num_qo_heads = problem->num_qo_heads};
    expectation.num_rows = (size_t)query_tokens(problem, tensors->cum_seq_lens_q) * (size_t)problem->num_qo_heads;
    const size_t rows = expectation.num_rows, elements = rows * (size_t)checked.v_dim;
    expectation.out = malloc((elements + 1) * sizeof(double));
    expectation.out_tolerance = malloc((elements + 1) * sizeof(double));
    expectation.lse = malloc((rows + 1) * sizeof(double));
    expectation.lse_tolerance = malloc((rows + 1) * sizeof(double));
    double *measures = malloc((elements + 5 * rows + 1) * sizeof(double));
    const struct exact_results exact = {.out = expectation.out,
                                        .lse = expectation.lse,
                                        .spread = measures,
                                        .weight = measures + elements,
                                        .tokens = measures + elements + rows,
                                        .largest = measures + elements + 2 * rows,
                                        .turned = measures + elements + 3 * rows,
                                        .shift = measures + elements + 4 * rows};
    bool good = (expectation.out != NULL && expectation.out_tolerance != NULL && expectation.lse != NULL &&
                 expectation.lse_tolerance != NULL && measures != NULL) ||
                complain("out of memory");
    good = good && host_reference_exact(problem, tensors, &exact, num_threads, label) &&
           set_tolerances(&checked, tensors, &exact, &expectation);
    free(measures);
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

/* Where an element stands, and what may be found there. */
struct place {
    const char *tensor;
    size_t token, head, element;
};

/* Equal infinities agree, and NaN with NaN; else NaN never does. */
static double error_of(double got, double expected) {
    if (got == expected || (isnan(got) && isnan(expected)))
        return 0.0;
    double error = fabs(got - expected);
    return isnan(error) ? (double)INFINITY : error;
}

static void note(struct mismatch *mismatch, struct place place, double got, double expected, double tolerance) {
    double error = error_of(got, expected);
    mismatch->compared++;
    if (error > 0)
        mismatch->worst_ratio = fmax(mismatch->worst_ratio, tolerance > 0 ? error / tolerance : (double)INFINITY);
    if (error <= tolerance || error == 0)
        return;
    if (mismatch->count++ > 0)
        return;
    mismatch->tensor = place.tensor;
    mismatch->token = place.token;
    mismatch->head = place.head;
    mismatch->element = place.element;
    mismatch->got = got;
    mismatch->expected = expected;
    mismatch->tolerance = tolerance;
}

static double larger(double a, double b) { return a > b ? a : b; }

static double scale_of(double largest, double factor) { return e4m3_decode(e4m3_encode(factor * larger(largest, 0.0) / 6.0)); }

/* What a value that lies between two others may become, as a reader of codes with this scale sees it. */
static double block_tolerance(double expected, double tolerance, double scale, double factor) {
    const double unit = scale / factor;
    if (!(unit > 0))
        return fabs(expected); /* all codes read as 0; whether the scale may be 0 has been looked at */
    const double low = e2m1_decode(e2m1_encode((expected - tolerance) / unit)) * unit;
    const double high = e2m1_decode(e2m1_encode((expected + tolerance) / unit)) * unit;
    /* what a reader computes of the same code may differ in the last digits of float64 */
    return larger(fabs(high - expected), fabs(low - expected)) + 1e-12 * (fabs(low) + fabs(high));
}

/* 16 elements from `place` on and their scale; ret_values gets what a reader makes of them. */
static void compare_block(const double *expected, const double *tolerance, const uint8_t *codes, uint8_t scale_code,
                          double factor, struct place place, struct mismatch *mismatch, double *ret_values) {
    const double scale = e4m3_decode(scale_code);
    double largest = 0, low = 0, high = 0;
    bool is_nan = false;
    nvfp4_decode_row(codes, &scale_code, 1, NVFP4_BLOCK, ret_values);
    for (size_t d = 0; d < NVFP4_BLOCK; d++) {
        is_nan = is_nan || isnan(expected[d]);
        largest = larger(fabs(expected[d]), largest);
        low = larger(fabs(expected[d]) - tolerance[d], low);
        high = larger(fabs(expected[d]) + tolerance[d], high);
        ret_values[d] /= factor;
    }
    const double expected_scale = is_nan ? (double)NAN : scale_of(largest, factor);
    const double above = scale_of(high, factor) - expected_scale, below = expected_scale - scale_of(low, factor);
    const struct place scale_place = {
        .tensor = "out_sf", .token = place.token, .head = place.head, .element = place.element / NVFP4_BLOCK};
    note(mismatch, scale_place, scale, expected_scale, larger(above, below));
    for (size_t d = 0; d < NVFP4_BLOCK; d++, place.element++)
        note(mismatch, place, ret_values[d], is_nan ? (double)NAN : expected[d],
             block_tolerance(expected[d], tolerance[d], scale, factor));
}

static void compare_nvfp4_row(const struct expectation *expectation, const libdecode_tensors *results, const uint8_t *codes,
                              size_t first, struct place place, struct mismatch *mismatch, double *ret_values) {
    const size_t blocks = (size_t)expectation->head_dim / NVFP4_BLOCK, used = (size_t)expectation->num_qo_heads * blocks;
    const size_t num_columns = (used + 3) / 4 * 4, scale_row = place.token + (size_t)results->out_sf_start_token;
    const double factor = results->out_sf_scale != 0.0f ? (double)results->out_sf_scale : 1.0;
    const uint8_t *scales = results->out_sf;
    for (size_t block = 0; block < blocks; block++) {
        const size_t d = block * NVFP4_BLOCK;
        place.element = d;
        compare_block(expectation->out + first + d, expectation->out_tolerance + first + d, codes + d / 2,
                      scales[nvfp4_swizzled_offset(scale_row, place.head * blocks + block, num_columns)], factor, place, mismatch,
                      ret_values + d);
    }
    if (place.head + 1 != (size_t)expectation->num_qo_heads)
        return;
    place.tensor = "out_sf";
    for (size_t column = used; column < num_columns; column++) { /* of padding */
        place.element = column - place.head * blocks;
        note(mismatch, place, (double)scales[nvfp4_swizzled_offset(scale_row, column, num_columns)], 0.0, 0.0);
    }
}

void expectation_compare(const struct expectation *expectation, const libdecode_problem *problem,
                         const libdecode_tensors *results, struct mismatch *ret_mismatch) {
    struct problem checked;
    struct mismatch mismatch = {.tensor = "out"};
    double values[MAX_HEAD_DIM], squares = 0, squared_errors = 0;
    const size_t row = (size_t)expectation->head_dim, num_heads = (size_t)expectation->num_qo_heads;
    if (problem_check(problem, &checked) != LIBDECODE_OK)
        return; /* the caller has launched with it, so it is good */
    const libdecode_problem *given = &checked.given;
    int32_t request = 0;
    for (size_t index = 0; index < expectation->num_rows; index++) {
        struct place place = {.tensor = "out", .token = index / num_heads, .head = index % num_heads};
        request = request_of_token(given, results->cum_seq_lens_q, (int64_t)place.token, request);
        const int64_t offset = out_element(given, results, request, (int64_t)place.token, (int64_t)place.head);
        const uint8_t *out = (const uint8_t *)results->out + (size_t)offset * (size_t)dtype_bits(given->out_dtype) / 8;
        const size_t first = index * row;
        if (given->out_dtype == LIBDECODE_DTYPE_NVFP4)
            compare_nvfp4_row(expectation, results, out, first, place, &mismatch, values);
        else
            element_decode_row(given->out_dtype, out, row, values);
        for (; place.element < row; place.element++) {
            const double expected = expectation->out[first + place.element], got = values[place.element];
            if (given->out_dtype != LIBDECODE_DTYPE_NVFP4)
                note(&mismatch, place, got, expected, expectation->out_tolerance[first + place.element]);
            if (isnan(expected))
                continue;
            squares += expected * expected;
            squared_errors += (got - expected) * (got - expected);
            mismatch.largest_error = larger(fabs(got - expected), mismatch.largest_error);
        }
    }
    const double elements = (double)(expectation->num_rows * row), rms = sqrt(squares / elements);
    mismatch.largest_error = rms > 0 ? mismatch.largest_error / rms : 0.0;
    mismatch.rms_error = rms > 0 ? sqrt(squared_errors / elements) / rms : 0.0;
    for (size_t index = 0; results->lse != NULL && index < expectation->num_rows; index++) {
        struct place place = {.tensor = "lse", .token = index / num_heads, .head = index % num_heads};
        const size_t offset = place.token * (size_t)given->lse_token_stride + place.head * (size_t)given->lse_head_stride;
        note(&mismatch, place, (double)results->lse[offset], expectation->lse[index], expectation->lse_tolerance[index]);
    }
    *ret_mismatch = mismatch;
}

void mismatch_describe(const struct mismatch *mismatch, char *text, size_t size) {
    char element[32] = "";
    if (strcmp(mismatch->tensor, "lse") != 0)
        snprintf(element, sizeof element, ", %s %zu", strcmp(mismatch->tensor, "out") == 0 ? "element" : "block",
                 mismatch->element);
    snprintf(text, size, "%s[token %zu, head %zu%s] is %.7g, expected %.7g, off by %.3g, allowed %.3g; %zu of %zu are off",
             mismatch->tensor, mismatch->token, mismatch->head, element, mismatch->got, mismatch->expected,
             fabs(mismatch->got - mismatch->expected), mismatch->tolerance, mismatch->count, mismatch->compared);
}
