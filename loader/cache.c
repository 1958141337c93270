/* SPDX-License-Identifier: Apache-2.0 */
/* A cache and the place of a row in it in, the row's elements out. Before: reference.c walks the tokens. */
#include "cache.h"

#include <string.h>

#include "dtype.h"
#include "element.h"

struct cache cache_of_k(const struct problem *problem, const libdecode_tensors *tensors) {
    const libdecode_problem *given = &problem->given;
    return (struct cache){.rows = tensors->k_cache,
                          .scales = tensors->k_sf,
                          .page_stride = given->k_page_stride,
                          .head_stride = given->k_head_stride,
                          .token_stride = given->k_token_stride,
                          .sf_page_stride = given->k_sf_page_stride,
                          .sf_head_stride = given->k_sf_head_stride,
                          .sf_token_stride = given->k_sf_token_stride,
                          .dtype = given->kv_dtype,
                          .sf_layout = LIBDECODE_SF_LINEAR,
                          .row_format = given->kv_row_format,
                          .offsets = tensors->k_offsets,
                          .dim = (size_t)problem->qk_dim};
}

struct cache cache_of_v(const struct problem *problem, const libdecode_tensors *tensors) {
    const libdecode_problem *given = &problem->given;
    if (given->op == LIBDECODE_OP_MLA_DECODE) { /* V has no strides of its own: its rows are K's */
        struct cache cache = cache_of_k(problem, tensors);
        cache.dim = (size_t)problem->v_dim;
        return cache;
    }
    return (struct cache){.rows = tensors->v_cache,
                          .scales = tensors->v_sf,
                          .page_stride = given->v_page_stride,
                          .head_stride = given->v_head_stride,
                          .token_stride = given->v_token_stride,
                          .sf_page_stride = given->v_sf_page_stride,
                          .sf_head_stride = given->v_sf_head_stride,
                          .sf_token_stride = given->v_sf_token_stride,
                          .dtype = given->kv_dtype,
                          .sf_layout = given->v_sf_layout,
                          .page_table_offset = given->page_table_v_offset,
                          .offsets = tensors->v_offsets,
                          .dim = (size_t)problem->v_dim};
}

/* The latent elements of a row of MLA, and those behind them. */
enum { LATENT_DIM = 512, SCALED_BLOCK = 128, NUM_SCALED_BLOCKS = LATENT_DIM / SCALED_BLOCK };

static void decode_scaled_656(const uint8_t *row, size_t dim, double *ret_row) {
    float scales[NUM_SCALED_BLOCKS];
    memcpy(scales, row + LATENT_DIM, sizeof scales);
    element_decode_row(LIBDECODE_DTYPE_E4M3, row, LATENT_DIM, ret_row);
    for (size_t d = 0; d < LATENT_DIM; d++)
        ret_row[d] *= (double)scales[d / SCALED_BLOCK];
    if (dim > LATENT_DIM)
        element_decode_row(LIBDECODE_DTYPE_BF16, row + LATENT_DIM + sizeof scales, dim - LATENT_DIM, ret_row + LATENT_DIM);
}

static void decode_nvfp4_352(const uint8_t *row, size_t dim, double *ret_row) {
    enum { ROPE_OFFSET = LATENT_DIM / 2, SCALE_OFFSET = ROPE_OFFSET + 64 };
    for (size_t block = 0; block < LATENT_DIM / NVFP4_BLOCK; block++)
        nvfp4_decode_row(row + block * NVFP4_BLOCK / 2, row + SCALE_OFFSET + 8 * (block % 4) + block / 4, 0, NVFP4_BLOCK,
                         ret_row + block * NVFP4_BLOCK);
    if (dim > LATENT_DIM)
        element_decode_row(LIBDECODE_DTYPE_E4M3, row + ROPE_OFFSET, dim - LATENT_DIM, ret_row + LATENT_DIM);
}

void cache_decode_row(const struct cache *cache, int64_t page, int64_t kv_head, int64_t page_token, int64_t shift,
                      double *ret_row) {
    int64_t element = page * cache->page_stride + kv_head * cache->head_stride + page_token * cache->token_stride + shift;
    const uint8_t *row = cache->rows + element_bytes(cache->dtype, element);
    if (cache->row_format == LIBDECODE_KV_ROW_FP8_SCALED_656) {
        decode_scaled_656(row, cache->dim, ret_row);
    } else if (cache->row_format == LIBDECODE_KV_ROW_NVFP4_352) {
        decode_nvfp4_352(row, cache->dim, ret_row);
    } else if (cache->dtype == LIBDECODE_DTYPE_NVFP4) {
        size_t scale_step;
        const uint8_t *scales = cache->scales + page * cache->sf_page_stride + kv_head * cache->sf_head_stride;
        scales += nvfp4_scale_offset(cache->sf_layout, cache->sf_token_stride, (size_t)page_token, cache->dim, &scale_step);
        nvfp4_decode_row(row, scales, scale_step, cache->dim, ret_row);
    } else {
        element_decode_row(cache->dtype, row, cache->dim, ret_row);
    }
}
