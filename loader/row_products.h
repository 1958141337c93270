/* SPDX-License-Identifier: Apache-2.0 */
/* row_products.c: see there. */
#ifndef LIBDECODE_ROW_PRODUCTS_H
#define LIBDECODE_ROW_PRODUCTS_H

#include <stddef.h>

/* `count` is a multiple of 4. */
double dot(const double *a, const double *b, size_t count);

/* Of pairs of elements half a row apart, the squares of their lengths multiplied: alike before a rotation and after it. */
double pair_products(const double *a, const double *b, size_t half);

#endif
