/* SPDX-License-Identifier: Apache-2.0 */
/* dtype.c: what a dtype is called, and how many bytes its elements fill. */
#ifndef LIBDECODE_DTYPE_H
#define LIBDECODE_DTYPE_H

#include <stddef.h>
#include <stdint.h>

#include "libdecode.h"

/* "bf16"; "?" for a number that is no dtype. Bits per element: 16, 8, 4. */
const char *dtype_name(libdecode_dtype dtype);
int dtype_bits(libdecode_dtype dtype);

/* Of so many adjacent elements, that fill whole bytes. */
size_t element_bytes(libdecode_dtype dtype, int64_t elements);

#endif
