/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_merge.c: a case of merging in, what went wrong out. All tensors of a case lie in one block of memory with poison between
 * them: it goes to the GPU as a whole and comes back as a whole, so whatever changed beside the results is seen.
 * Before: random.c makes the data. Next: check.c.
 */
#include "check_merge.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dtype.h"
#include "element.h"
#include "options.h"
#include "random.h"

#define GAP_BYTES 4096
#define POISON_BYTE 0xff /* NaN in bf16, fp16 and f32 */
#define MASK_STEP 3      /* with MERGE_MASKED every so manieth token stays as it is */

#define BF16 LIBDECODE_DTYPE_BF16
#define FP16 LIBDECODE_DTYPE_FP16
#define FP32 LIBDECODE_DTYPE_FP32

const struct merge_case merge_cases[] = {
    {"merge_two", BF16, BF16, 5, 4, 128, 2, 0},
    {"merge_one", FP16, FP16, 3, 3, 64, 1, 0},
    {"merge_batches", BF16, BF16, 64, 32, 128, 8, 0},
    {"merge_many", FP32, FP32, 2, 5, 128, 75, 0},
    {"merge_nine", FP16, FP32, 7, 2, 256, 9, 0},
    {"merge_rounded", FP32, BF16, 9, 8, 128, 4, 0},
    {"merge_rounded_fp16", FP32, FP16, 9, 8, 80, 4, MERGE_NATURAL},
    {"merge_narrow", BF16, BF16, 33, 7, 8, 3, 0},
    {"merge_wide", BF16, BF16, 3, 2, 512, 4, 0},
    {"merge_widest", FP32, FP32, 2, 3, 1024, 3, MERGE_IN_PLACE},
    {"merge_natural", FP16, FP16, 6, 4, 128, 5, MERGE_NATURAL},
    {"merge_without_lse", BF16, FP32, 6, 4, 128, 5, MERGE_NO_LSE},
    {"merge_ragged", BF16, BF16, 40, 8, 128, 11, MERGE_RAGGED},
    {"merge_masked", BF16, BF16, 20, 8, 128, 3, MERGE_MASKED},
    {"merge_in_place", BF16, BF16, 12, 8, 128, 2, MERGE_IN_PLACE},
    {"merge_in_place_masked", FP16, FP16, 12, 3, 192, 2, MERGE_IN_PLACE | MERGE_MASKED},
    {"merge_gathered", FP16, FP16, 12, 8, 128, 4, MERGE_STATES_OUTSIDE},
    {"merge_extreme", FP32, FP32, 50, 8, 128, 6, MERGE_EXTREME},
    {"merge_extreme_natural", BF16, BF16, 50, 8, 64, 10, MERGE_EXTREME | MERGE_NATURAL},
    {"merge_extreme_ragged", BF16, FP32, 50, 3, 96, 6, MERGE_EXTREME | MERGE_RAGGED | MERGE_MASKED},
    {"merge_padded", FP16, BF16, 13, 5, 72, 3, MERGE_PADDED | MERGE_MASKED},
    {.name = "merge_random_1", .flags = MERGE_RANDOM},
    {.name = "merge_random_2", .flags = MERGE_RANDOM},
    {.name = "merge_random_3", .flags = MERGE_RANDOM},
    {.name = "merge_random_4", .flags = MERGE_RANDOM},
};
const size_t num_merge_cases = sizeof merge_cases / sizeof merge_cases[0];

/* How often each is drawn: once in so many. */
static const struct {
    unsigned flag;
    uint32_t one_in;
} drawn_flags[] = {{MERGE_RAGGED, 4},         {MERGE_MASKED, 3}, {MERGE_IN_PLACE, 4}, {MERGE_NATURAL, 3},
                   {MERGE_STATES_OUTSIDE, 4}, {MERGE_NO_LSE, 4}, {MERGE_EXTREME, 3},  {MERGE_PADDED, 3}};

/* What excludes each other. */
static unsigned reconciled(unsigned flags) {
    if ((flags & MERGE_RAGGED) != 0)
        flags &= ~(unsigned)(MERGE_IN_PLACE | MERGE_STATES_OUTSIDE); /* states have no token axis */
    if ((flags & MERGE_IN_PLACE) != 0)
        flags &= ~(unsigned)(MERGE_PADDED | MERGE_STATES_OUTSIDE);
    return flags;
}

void draw_merge_case(struct merge_case *test, uint64_t seed) {
    enum { STEP = 8, MOST_ELEMENTS = 1 << 18 };
    static const libdecode_dtype dtypes[] = {BF16, FP16, FP32};
    struct random random = random_named(test->name, seed);
    unsigned flags = 0;
    for (size_t index = 0; index < sizeof drawn_flags / sizeof drawn_flags[0]; index++)
        flags |= random_below(&random, drawn_flags[index].one_in) == 0 ? drawn_flags[index].flag : 0;
    test->flags = flags = reconciled(flags);
    test->dtype = dtypes[random_below(&random, 3)];
    test->out_dtype = (flags & MERGE_IN_PLACE) != 0 ? test->dtype : dtypes[random_below(&random, 3)];
    test->head_dim = STEP * (1 + (int32_t)random_below(&random, random_below(&random, 4) == 0 ? 128 : 32));
    test->num_states = 1 + (int32_t)random_below(&random, random_below(&random, 4) == 0 ? 100 : 12);
    test->num_heads = 1 + (int32_t)random_below(&random, random_below(&random, 4) == 0 ? 128 : 16);
    const int32_t most_tokens = MOST_ELEMENTS / (test->head_dim * test->num_heads * test->num_states);
    test->num_tokens = 1 + (int32_t)random_below(&random, most_tokens < 1 ? 1 : most_tokens < 80 ? (uint32_t)most_tokens : 80);
}

/* ------------------------------------------------------------------------------------------------------------ the case */

enum place { PLACE_PARTIAL, PLACE_PARTIAL_LSE, PLACE_OFFSETS, PLACE_MASK, PLACE_OUT, PLACE_LSE, NUM_PLACES };

/* One case: the block on the host as it is before the launch, and where its tensors lie in it. */
struct scene {
    const struct merge_case *test;
    libdecode_states states; /* without pointers */
    uint8_t *block;
    size_t block_bytes, offset[NUM_PLACES];
    int64_t num_states; /* of all tokens together */
};

/* The pointers of a launch whose block begins at `base`. Those of `states` are only looked at for being NULL. */
static libdecode_states states_in(const struct scene *scene, uint8_t *base) {
    const unsigned flags = scene->test->flags;
    libdecode_states states = scene->states;
    states.partial_out = base + scene->offset[PLACE_PARTIAL];
    states.partial_lse = (const float *)(void *)(base + scene->offset[PLACE_PARTIAL_LSE]);
    if ((flags & MERGE_RAGGED) != 0)
        states.state_offsets = (const int32_t *)(void *)(base + scene->offset[PLACE_OFFSETS]);
    if ((flags & MERGE_MASKED) != 0)
        states.token_mask = base + scene->offset[PLACE_MASK];
    states.out = base + scene->offset[PLACE_OUT];
    if ((flags & MERGE_NO_LSE) == 0)
        states.lse = (float *)(void *)(base + scene->offset[PLACE_LSE]);
    return states;
}

/* Strides, the offsets of tensors, and how many bytes all that takes. In place the result is the last state of every token. */
static void lay_out(struct scene *scene, const int32_t *state_offsets) {
    const struct merge_case *test = scene->test;
    libdecode_states *states = &scene->states;
    const int64_t row = test->head_dim, heads = test->num_heads, tokens = test->num_tokens;
    const bool is_ragged = (test->flags & MERGE_RAGGED) != 0, is_in_place = (test->flags & MERGE_IN_PLACE) != 0;
    scene->num_states = is_ragged ? state_offsets[tokens] : tokens * test->num_states;
    *states = (libdecode_states){.struct_size = sizeof *states,
                                 .dtype = test->dtype,
                                 .out_dtype = test->out_dtype,
                                 .flags = (test->flags & MERGE_NATURAL) != 0 ? LIBDECODE_MERGE_LSE_NATURAL : 0u,
                                 .num_states = is_ragged ? 0 : test->num_states,
                                 .num_tokens = test->num_tokens,
                                 .num_heads = test->num_heads,
                                 .head_dim = test->head_dim};
    int64_t state_rows = heads;
    if ((test->flags & MERGE_STATES_OUTSIDE) != 0) {
        const int64_t gap = 2; /* rows */
        state_rows = tokens * heads + gap;
        states->partial_state_stride = state_rows * row;
        states->partial_token_stride = heads * row;
        states->partial_lse_state_stride = state_rows;
        states->partial_lse_token_stride = heads;
    }
    const int64_t num_rows =
        (test->flags & MERGE_STATES_OUTSIDE) != 0 ? test->num_states * state_rows : scene->num_states * heads;
    if (is_in_place) {
        states->out_token_stride = test->num_states * heads * row;
        states->lse_token_stride = test->num_states * heads;
    }
    const int64_t pad = (test->flags & MERGE_PADDED) != 0 ? 16 : 0; /* elements */
    if (pad != 0) {
        states->out_token_stride = heads * row + pad;
        states->lse_token_stride = heads + pad;
    }
    const size_t bytes[NUM_PLACES] = {
        [PLACE_PARTIAL] = (size_t)(num_rows * row) * element_bytes(test->dtype, 1),
        [PLACE_PARTIAL_LSE] = (size_t)num_rows * sizeof(float),
        [PLACE_OFFSETS] = (size_t)(tokens + 1) * sizeof(int32_t),
        [PLACE_MASK] = (size_t)tokens,
        [PLACE_OUT] = is_in_place ? 0 : (size_t)(tokens * (heads * row + pad)) * element_bytes(test->out_dtype, 1),
        [PLACE_LSE] = is_in_place ? 0 : (size_t)(tokens * (heads + pad)) * sizeof(float),
    };
    scene->block_bytes = GAP_BYTES;
    for (int place = 0; place < NUM_PLACES; place++) {
        scene->offset[place] = scene->block_bytes;
        scene->block_bytes += (bytes[place] + GAP_BYTES - 1) / GAP_BYTES * GAP_BYTES + GAP_BYTES;
    }
    if (is_in_place) {
        const size_t last = (size_t)((test->num_states - 1) * heads);
        scene->offset[PLACE_OUT] = scene->offset[PLACE_PARTIAL] + last * (size_t)row * element_bytes(test->dtype, 1);
        scene->offset[PLACE_LSE] = scene->offset[PLACE_PARTIAL_LSE] + last * sizeof(float);
    }
}

/* Of one state: a plain one, or with MERGE_EXTREME one of those that go wrong. */
static float random_lse(const struct merge_case *test, struct random *random) {
    const uint32_t kind = random_below(random, 8);
    const float plain = (float)(5.0 * random_normal(random));
    if ((test->flags & MERGE_EXTREME) == 0)
        return plain;
    return kind < 3 ? -INFINITY : kind == 3 ? 1e4f + plain : kind == 4 && random_below(random, 8) == 0 ? INFINITY : plain;
}

/* Fills the rows of one state and token; those of no weight with NaN, which must not be seen. */
static void fill_state(struct scene *scene, uint8_t *rows, float *lse, struct random *random) {
    const struct merge_case *test = scene->test;
    double values[1024];
    for (int32_t head = 0; head < test->num_heads; head++) {
        lse[head] = random_lse(test, random);
        for (int32_t d = 0; d < test->head_dim; d++)
            values[d] = isinf(lse[head]) && lse[head] < 0 ? (double)NAN : random_normal(random);
        element_encode_row(test->dtype, values, (size_t)test->head_dim,
                           rows + (size_t)head * (size_t)test->head_dim * element_bytes(test->dtype, 1));
    }
}

static void fill(struct scene *scene, const int32_t *state_offsets, struct random *random) {
    const struct merge_case *test = scene->test;
    libdecode_states states = states_in(scene, scene->block);
    const int64_t row = (int64_t)test->num_heads * test->head_dim;
    const bool is_ragged = (test->flags & MERGE_RAGGED) != 0;
    const int64_t token_rows = is_ragged                          ? 0
                               : states.partial_token_stride != 0 ? states.partial_token_stride
                                                                  : row * test->num_states;
    const int64_t state_rows = states.partial_state_stride != 0 ? states.partial_state_stride : row;
    for (int32_t token = 0; token < test->num_tokens; token++) {
        const int64_t first = is_ragged ? state_offsets[token] : 0;
        const int64_t count = is_ragged ? state_offsets[token + 1] - first : test->num_states;
        for (int64_t state = first; state < first + count; state++) {
            const int64_t element = token * token_rows + state * state_rows;
            fill_state(scene, scene->block + scene->offset[PLACE_PARTIAL] + (size_t)element * element_bytes(test->dtype, 1),
                       (float *)(void *)(scene->block + scene->offset[PLACE_PARTIAL_LSE]) + element / test->head_dim, random);
        }
    }
    if (is_ragged)
        memcpy(scene->block + scene->offset[PLACE_OFFSETS], state_offsets, (size_t)(test->num_tokens + 1) * sizeof(int32_t));
    for (int32_t token = 0; token < test->num_tokens; token++)
        scene->block[scene->offset[PLACE_MASK] + (size_t)token] = token % MASK_STEP != 1;
}

static bool scene_make(const struct merge_case *test, uint64_t seed, struct scene *ret_scene) {
    struct random random = {.state = seed};
    int32_t *state_offsets = calloc((size_t)test->num_tokens + 1, sizeof *state_offsets);
    *ret_scene = (struct scene){.test = test};
    if (state_offsets == NULL)
        return complain("out of memory");
    for (int32_t token = 0; token < test->num_tokens; token++)
        state_offsets[token + 1] = state_offsets[token] + (int32_t)random_below(&random, (uint32_t)test->num_states + 1);
    lay_out(ret_scene, state_offsets);
    ret_scene->block = aligned_alloc(GAP_BYTES, ret_scene->block_bytes);
    if (ret_scene->block != NULL) {
        memset(ret_scene->block, POISON_BYTE, ret_scene->block_bytes);
        fill(ret_scene, state_offsets, &random);
    }
    free(state_offsets);
    return ret_scene->block != NULL || complain("out of memory");
}

/* ------------------------------------------------------------------------------------------------------- what is expected */

/* The block as it must be after the launch, and for the tolerance the same merge of the magnitudes of all elements, as f32. */
struct expected {
    uint8_t *block, *magnitudes;
    float *magnitude; /* [tokens][heads][head_dim] */
};

static void expected_free(struct expected *expected) {
    free(expected->block);
    free(expected->magnitudes);
    free(expected->magnitude);
}

/* Clears the sign of every element of the partial results. */
static void drop_signs(const struct scene *scene, uint8_t *block) {
    const size_t step = element_bytes(scene->test->dtype, 1);
    for (size_t byte = scene->offset[PLACE_PARTIAL] + step - 1; byte < scene->offset[PLACE_PARTIAL_LSE] - GAP_BYTES; byte += step)
        block[byte] &= 0x7fu;
}

static bool expected_make(const struct scene *scene, struct expected *ret_expected) {
    const struct merge_case *test = scene->test;
    const size_t num_elements = (size_t)test->num_tokens * (size_t)test->num_heads * (size_t)test->head_dim;
    *ret_expected = (struct expected){.block = aligned_alloc(GAP_BYTES, scene->block_bytes),
                                      .magnitudes = aligned_alloc(GAP_BYTES, scene->block_bytes),
                                      .magnitude = calloc(num_elements, sizeof(float))};
    if (ret_expected->block == NULL || ret_expected->magnitudes == NULL || ret_expected->magnitude == NULL)
        return complain("out of memory");
    memcpy(ret_expected->block, scene->block, scene->block_bytes);
    memcpy(ret_expected->magnitudes, scene->block, scene->block_bytes);
    drop_signs(scene, ret_expected->magnitudes);
    const libdecode_states states = states_in(scene, ret_expected->block);
    libdecode_states magnitudes = states_in(scene, ret_expected->magnitudes);
    magnitudes.out_dtype = FP32;
    magnitudes.out = ret_expected->magnitude;
    magnitudes.lse = NULL;
    magnitudes.out_token_stride = 0;
    return (libdecode_merge_states_reference(&states) == LIBDECODE_OK &&
            libdecode_merge_states_reference(&magnitudes) == LIBDECODE_OK) ||
           complain("%s", libdecode_error_message());
}

/*
 * How far an element may lie from the reference. In units of 2^-23 of sum_s w_s |v_s| / sum_s w_s: a rounding for every state, weights
 * that are exact to some 16 of these (exp2f, and the difference of two lse that matters, at most 24), and base e what rounding lse *
 * log2(e) makes of a weight: the lse itself. Then both are rounded to their dtype.
 */
static double element_tolerance(const struct merge_case *test, double magnitude, double largest_lse, double expected) {
    static const double steps[] = {[BF16] = 0x1p-7, [FP16] = 0x1p-10, [FP32] = 0x1p-23};
    const double of_lse = (test->flags & MERGE_NATURAL) != 0 ? 2.0 * fabs(largest_lse) : 0.0;
    const double least = test->out_dtype == FP16 ? 0x1p-24 : 0x1p-126;
    return magnitude * (test->num_states + 16 + of_lse) * 0x1p-23 + fabs(expected) * steps[test->out_dtype] + least;
}

static double lse_tolerance(double expected) { return fabs(expected) * 0x1p-21 + 0x1p-20; }

/* Error over tolerance: 0 if both are NaN or the same infinity. */
static double ratio_of(double got, double expected, double tolerance) {
    if ((isnan(got) && isnan(expected)) || got == expected)
        return 0.0;
    const double ratio = fabs(got - expected) / tolerance;
    return isnan(ratio) ? (double)INFINITY : ratio;
}

static void note_mismatch(struct failure *failure, const char *tensor, int64_t token, int64_t head, int64_t element, double got,
                          double expected, double tolerance) {
    struct mismatch *mismatch = &failure->mismatch;
    if (mismatch->count++ > 0)
        return;
    mismatch->tensor = tensor;
    mismatch->token = (size_t)token;
    mismatch->head = (size_t)head;
    mismatch->element = (size_t)element;
    mismatch->got = got;
    mismatch->expected = expected;
    mismatch->tolerance = tolerance;
}

/* Compares one row, and where it agrees makes it equal, so that all that still differs was not to be written. */
static void compare_row(const struct scene *scene, const struct expected *expected, uint8_t *block, int64_t token, int64_t head,
                        struct failure *failure, double *worst) {
    const struct merge_case *test = scene->test;
    libdecode_states got = states_in(scene, block), wanted = states_in(scene, expected->block);
    const int64_t out_token = got.out_token_stride != 0 ? got.out_token_stride : (int64_t)test->num_heads * test->head_dim;
    const int64_t lse_token = got.lse_token_stride != 0 ? got.lse_token_stride : test->num_heads;
    const size_t at = (size_t)(token * out_token + head * test->head_dim) * element_bytes(test->out_dtype, 1);
    const int64_t lse_at = token * lse_token + head;
    const double lse = wanted.lse != NULL ? (double)wanted.lse[lse_at] : 1e4;
    double values[1024], exact[1024];
    element_decode_row(test->out_dtype, (uint8_t *)got.out + at, (size_t)test->head_dim, values);
    element_decode_row(test->out_dtype, (uint8_t *)wanted.out + at, (size_t)test->head_dim, exact);
    for (int32_t d = 0; d < test->head_dim; d++) {
        const double magnitude = (double)expected->magnitude[(token * test->num_heads + head) * test->head_dim + d];
        const double tolerance = element_tolerance(test, magnitude, isfinite(lse) ? lse : 0.0, exact[d]);
        const double ratio = ratio_of(values[d], exact[d], tolerance);
        *worst = fmax(*worst, ratio);
        failure->mismatch.compared++;
        if (ratio > 1.0)
            note_mismatch(failure, "out", token, head, d, values[d], exact[d], tolerance);
    }
    memcpy((uint8_t *)got.out + at, (uint8_t *)wanted.out + at, (size_t)test->head_dim * element_bytes(test->out_dtype, 1));
    if (got.lse == NULL)
        return;
    const double ratio = ratio_of((double)got.lse[lse_at], lse, lse_tolerance(lse));
    *worst = fmax(*worst, ratio);
    if (ratio > 1.0)
        note_mismatch(failure, "lse", token, head, 0, (double)got.lse[lse_at], lse, lse_tolerance(lse));
    got.lse[lse_at] = wanted.lse[lse_at];
}

static void compare(const struct scene *scene, const struct expected *expected, uint8_t *block, struct failure *failure,
                    double *worst) {
    for (int64_t token = 0; token < scene->test->num_tokens; token++) {
        if ((scene->test->flags & MERGE_MASKED) != 0 && token % MASK_STEP == 1)
            continue;
        for (int64_t head = 0; head < scene->test->num_heads; head++)
            compare_row(scene, expected, block, token, head, failure, worst);
    }
    if (failure->mismatch.count > 0) {
        snprintf(failure->what, sizeof failure->what, "wrong");
        mismatch_describe(&failure->mismatch, failure->text, sizeof failure->text);
        return;
    }
    for (size_t byte = 0; byte < scene->block_bytes; byte++) {
        if (block[byte] == expected->block[byte])
            continue;
        snprintf(failure->what, sizeof failure->what, "bounds");
        snprintf(failure->text, sizeof failure->text, "byte %zu of the %zu around the tensors was changed, which is no result",
                 byte, scene->block_bytes);
        return;
    }
}

/* ------------------------------------------------------------------------------------------------------------- the launches */

/* The block goes up, is merged, and comes back to `block`. */
static bool launch(struct gpu *gpu, libdecode_context *context, const struct scene *scene, uint64_t device_block,
                   libdecode_stream stream, uint8_t *block, struct failure *failure) {
    const libdecode_states states = states_in(scene, gpu_pointer(device_block));
    if (!gpu_upload(gpu, device_block, scene->block, scene->block_bytes))
        return false;
    if (libdecode_merge_states(context, &states, stream) != LIBDECODE_OK) {
        snprintf(failure->what, sizeof failure->what, "launch");
        snprintf(failure->text, sizeof failure->text, "%s", libdecode_error_message());
        return true;
    }
    return gpu_wait(gpu, stream) && gpu_download(gpu, block, device_block, scene->block_bytes);
}

static bool run(struct gpu *gpu, libdecode_context *context, const struct scene *scene, const struct expected *expected,
                int repeats, uint8_t *first, uint8_t *again, struct failure *failure, double *worst) {
    libdecode_stream stream = NULL;
    uint64_t device_block = 0;
    bool good = gpu_stream_create(gpu, &stream) && gpu_alloc(gpu, scene->block_bytes, "a case of merging", &device_block) &&
                launch(gpu, context, scene, device_block, stream, first, failure);
    for (int repeat = 0; good && failure->what[0] == '\0' && repeat < repeats; repeat++) {
        good = launch(gpu, context, scene, device_block, stream, again, failure);
        if (good && failure->what[0] == '\0' && memcmp(first, again, scene->block_bytes) != 0) {
            snprintf(failure->what, sizeof failure->what, "bits");
            snprintf(failure->text, sizeof failure->text, "launch %d gave other bits than the first one", repeat + 2);
        }
    }
    if (good && failure->what[0] == '\0')
        compare(scene, expected, first, failure, worst);
    gpu_free(gpu, &device_block);
    gpu_stream_destroy(gpu, &stream);
    return good;
}

bool check_merge(struct gpu *gpu, libdecode_context *context, const struct merge_case *test, uint64_t seed, int repeats,
                 struct failure *ret_failure, double *ret_worst) {
    struct scene scene;
    struct expected expected = {0};
    *ret_failure = (struct failure){0};
    bool good = scene_make(test, seed, &scene);
    uint8_t *first = good ? aligned_alloc(GAP_BYTES, scene.block_bytes) : NULL;
    uint8_t *again = good ? aligned_alloc(GAP_BYTES, scene.block_bytes) : NULL;
    good = good && ((first != NULL && again != NULL) || complain("out of memory")) && expected_make(&scene, &expected) &&
           run(gpu, context, &scene, &expected, repeats, first, again, ret_failure, ret_worst);
    expected_free(&expected);
    free(first);
    free(again);
    free(scene.block);
    return good;
}
