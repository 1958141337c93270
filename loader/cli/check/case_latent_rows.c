/* SPDX-License-Identifier: Apache-2.0 */
/* case_latent_rows.c: bytes of the rows of 656 and of 352 bytes, as libdecode.h says. Before: case_cache.c, which knows where they lie. */
#include "case_latent_rows.h"

#include <math.h>
#include <string.h>

#include "element.h"

enum { LATENT_DIM = 512, ROPE_DIM = 64, SCALED_BLOCK = 128, NUM_SCALES = LATENT_DIM / SCALED_BLOCK };

struct scaled_row {
    uint8_t latent[LATENT_DIM];
    float scales[NUM_SCALES];
    uint16_t rope[ROPE_DIM];
};
_Static_assert(sizeof(struct scaled_row) == 656, "a row of 656 bytes");

struct nvfp4_row {
    uint8_t latent[LATENT_DIM / 2], rope[ROPE_DIM], scales[LATENT_DIM / NVFP4_BLOCK];
};
_Static_assert(sizeof(struct nvfp4_row) == 352, "a row of 352 bytes");

static uint8_t *scale_of(struct nvfp4_row *row, int32_t block) { return &row->scales[8 * (block % 4) + block / 4]; }

int64_t latent_row_elements(libdecode_kv_row_format format) {
    return format == LIBDECODE_KV_ROW_NVFP4_352 ? 2 * (int64_t)sizeof(struct nvfp4_row) : (int64_t)sizeof(struct scaled_row);
}

static uint16_t drawn(struct making *making, const struct palette *palette) {
    return palette->codes[random_bits(&making->random) % PALETTE_SIZE];
}

/*
 * Scales are powers of two, or any number; one in 32 is 0. Where scores are huge they must be as exact as K, so that a rounding of f32 is
 * not taken for a defect: powers of two.
 */
static float drawn_scale(struct making *making) {
    const float scale = ldexpf(1.0F, (int)random_below(&making->random, 5) - 2);
    switch (random_below(&making->random, 32)) {
    case 0:
        return 0.0F;
    case 1:
    case 2:
    case 3:
    case 4:
        return has(making, CASE_QUERY_RANGE) ? scale : scale * 1.3F;
    default:
        return scale;
    }
}

static void write_scaled_row(struct making *making, struct scaled_row *row, const struct palette *palette) {
    for (int32_t element = 0; element < LATENT_DIM; element++)
        row->latent[element] = (uint8_t)drawn(making, palette);
    for (int32_t block = 0; block < NUM_SCALES; block++)
        row->scales[block] = drawn_scale(making);
    if (has(making, CASE_SCALE_STEPS)) { /* no score shows them, so rows with the smaller ones count as much */
        const uint32_t drawn = random_below(&making->random, 512);
        const int steps = drawn == 0 ? 2 : drawn <= 2 ? 1 : 0;
        row->scales[NUM_SCALES - 1] = ldexpf(row->scales[NUM_SCALES - 1], 9 * steps - 12);
        row->scales[NUM_SCALES - 2] = ldexpf(row->scales[NUM_SCALES - 2], -24);
        /* Where a step is passed over, the largest elements show it. */
        for (int32_t element = LATENT_DIM - SCALED_BLOCK; steps > 0 && element < LATENT_DIM; element++)
            row->latent[element] = e4m3_encode(random_below(&making->random, 2) == 0 ? 448.0 : -448.0);
    }
    for (int32_t element = 0; element < ROPE_DIM; element++)
        row->rope[element] = bf16_encode(e4m3_decode((uint8_t)drawn(making, palette)));
}

static void write_nvfp4_row(struct making *making, struct nvfp4_row *row, const struct palette *palette, double factor) {
    for (int32_t byte = 0; byte < LATENT_DIM / 2; byte++)
        row->latent[byte] = (uint8_t)(drawn(making, palette) | drawn(making, palette) << 4);
    for (int32_t block = 0; block < LATENT_DIM / NVFP4_BLOCK; block++)
        *scale_of(row, block) = random_below(&making->random, 32) == 0 ? 0 : random_scale(&making->random, factor);
    for (int32_t element = 0; element < ROPE_DIM; element++)
        row->rope[element] = e4m3_encode(random_normal(&making->random));
}

void hide_last_blocks(const struct making *making, uint8_t *query, size_t element_bytes) {
    if (making->formats->kv_row_format == LIBDECODE_KV_ROW_FP8_SCALED_656)
        memset(query + (LATENT_DIM - 2 * SCALED_BLOCK) * element_bytes, 0, 2 * SCALED_BLOCK * element_bytes);
}

void write_latent_row(struct making *making, uint8_t *bytes, const struct palette *palette, double factor) {
    struct scaled_row scaled;
    struct nvfp4_row nvfp4;
    if (making->formats->kv_row_format == LIBDECODE_KV_ROW_NVFP4_352) {
        write_nvfp4_row(making, &nvfp4, palette, factor);
        memcpy(bytes, &nvfp4, sizeof nvfp4);
    } else {
        write_scaled_row(making, &scaled, palette);
        memcpy(bytes, &scaled, sizeof scaled);
    }
}

void write_latent_huge_row(libdecode_kv_row_format format, uint8_t *bytes, double step) {
    if (format == LIBDECODE_KV_ROW_NVFP4_352) {
        struct nvfp4_row row = {.latent = {e2m1_encode(1.0)}};
        row.latent[HUGE_STEP_CHANNEL / 2] = e2m1_encode(1.0);
        *scale_of(&row, 0) = e4m3_encode(HUGE_KEY);
        *scale_of(&row, HUGE_STEP_CHANNEL / NVFP4_BLOCK) = e4m3_encode(step);
        memcpy(bytes, &row, sizeof row);
    } else {
        struct scaled_row row = {.latent = {e4m3_encode(HUGE_KEY)}, .scales = {1.0F, 1.0F, 1.0F, 1.0F}};
        row.latent[HUGE_STEP_CHANNEL] = e4m3_encode(step);
        memcpy(bytes, &row, sizeof row);
    }
}

void write_latent_nan(libdecode_kv_row_format format, uint8_t *bytes, int32_t element, uint8_t code) {
    const uint16_t wide = 0x7fff;
    const int32_t rope = element - LATENT_DIM;
    if (format == LIBDECODE_KV_ROW_NVFP4_352 && rope < 0)
        *scale_of((struct nvfp4_row *)(void *)bytes, element / NVFP4_BLOCK) = code;
    else if (format == LIBDECODE_KV_ROW_NVFP4_352)
        bytes[offsetof(struct nvfp4_row, rope) + (size_t)rope] = code;
    else if (rope < 0)
        bytes[element] = code;
    else
        memcpy(bytes + offsetof(struct scaled_row, rope) + 2 * (size_t)rope, &wide, sizeof wide);
}
