/* SPDX-License-Identifier: Apache-2.0 */
/* host_gpu_elements.c: see there. `dtype`: KERNEL_DTYPE_*. */
#ifndef LIBDECODE_TESTS_HOST_GPU_ELEMENTS_H
#define LIBDECODE_TESTS_HOST_GPU_ELEMENTS_H

#include <stddef.h>
#include <stdint.h>

size_t element_bits(uint32_t dtype);

/* NVFP4: the codes, without their scales. */
void decode_row(uint32_t dtype, const uint8_t *row, int elements, float *values);

/* To the dtype of the matrix operands. */
float round_operand(uint32_t kv_dtype, float value);

#endif
