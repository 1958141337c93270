/* SPDX-License-Identifier: Apache-2.0 */
/*
 * element.c: bytes of bf16, fp16, e4m3, e5m2 and NVFP4 rows in, float64 out, and back. Exact decoding; encoding rounds once, to
 * nearest with ties to even. Used by reference.c, and by whatever fills or compares host tensors.
 */
#ifndef LIBDECODE_ELEMENT_H
#define LIBDECODE_ELEMENT_H

#include <stddef.h>
#include <stdint.h>

#include "libdecode.h"

/* head_dim elements that share one NVFP4 scale. */
#define NVFP4_BLOCK 16

double bf16_decode(uint16_t code);
double fp16_decode(uint16_t code);
double e4m3_decode(uint8_t code);
double e5m2_decode(uint8_t code);
double e2m1_decode(uint8_t code); /* the low four bits */

/* Beyond the range: bf16, fp16 and e5m2 give infinity, e4m3 (448) and e2m1 (6) saturate. NaN stays NaN; e2m1 has none and gives 6. */
uint16_t bf16_encode(double value);
uint16_t fp16_encode(double value);
uint8_t e4m3_encode(double value);
uint8_t e5m2_encode(double value);
uint8_t e2m1_encode(double value);

/* `count` adjacent elements; `dtype` is bf16, fp16, fp32, e4m3 or e5m2. Any other decodes as NaN, which agrees with nothing, and encodes
 * nothing. */
void element_decode_row(libdecode_dtype dtype, const void *row, size_t count, double *ret_values);
void element_encode_row(libdecode_dtype dtype, const double *values, size_t count, void *ret_row);

/*
 * `count` NVFP4 elements (a multiple of NVFP4_BLOCK): code * scale, exact. `scales` is the e4m3 scale of the first block, that
 * of the next lies `scale_step` bytes on.
 */
void nvfp4_decode_row(const uint8_t *codes, const uint8_t *scales, size_t scale_step, size_t count, double *ret_values);

/* Offset, inside the scales of one page and KV head, of token `token`'s first block, and the step to its next block. */
size_t nvfp4_scale_offset(libdecode_sf_layout layout, int64_t token_stride, size_t token, size_t head_dim, size_t *ret_step);

/*
 * One block: scale = e4m3(global_scale * largest magnitude / 6), codes = e2m1(value * global_scale / scale), or 0 where the
 * scale is 0. A reader gets code * scale / global_scale. A NaN among the values makes the scale NaN.
 */
uint8_t nvfp4_encode_block(const double values[NVFP4_BLOCK], double global_scale, uint8_t ret_codes[NVFP4_BLOCK / 2]);

/* Offset of a scale in the 128x4 swizzle of a scale matrix with `num_columns` columns (a multiple of 4). */
size_t nvfp4_swizzled_offset(size_t row, size_t column, size_t num_columns);

#endif
