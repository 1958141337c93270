/* SPDX-License-Identifier: Apache-2.0 */
/* case_latent_rows.c: rows of MLA's cache of a format of their own (libdecode_kv_row_format), as a test case wants them. */
#ifndef LIBDECODE_CLI_CASE_LATENT_ROWS_H
#define LIBDECODE_CLI_CASE_LATENT_ROWS_H

#include "case_making.h"

/* Elements that strides count, of a dense row of that format. */
int64_t latent_row_elements(libdecode_kv_row_format format);

/* Draws the row; `palette` and `factor` are those of its elements, and of the scales of NVFP4. */
void write_latent_row(struct making *making, uint8_t *row, const struct palette *palette, double factor);

/* A query row, of elements of that size, whose scores do not show the blocks that CASE_SCALE_STEPS is about. */
void hide_last_blocks(const struct making *making, uint8_t *query, size_t element_bytes);

/* The row whose element `channel` is 256 and element HUGE_STEP_CHANNEL `step`, every other one 0. */
void write_latent_huge_row(libdecode_kv_row_format format, uint8_t *row, double step);

/* NaN in that element. `code`: of e4m3. */
void write_latent_nan(libdecode_kv_row_format format, uint8_t *row, int32_t element, uint8_t code);

#endif
