/* SPDX-License-Identifier: Apache-2.0 */
/* row_products.c: two rows of float64 in, sums of their products out. Used by reference.c. */
#include "row_products.h"

/* Four sums, so that the additions do not wait for each other. */
double dot(const double *a, const double *b, size_t count) {
    double sum0 = 0, sum1 = 0, sum2 = 0, sum3 = 0;
    for (size_t d = 0; d < count; d += 4) {
        sum0 += a[d] * b[d];
        sum1 += a[d + 1] * b[d + 1];
        sum2 += a[d + 2] * b[d + 2];
        sum3 += a[d + 3] * b[d + 3];
    }
    return (sum0 + sum1) + (sum2 + sum3);
}

double pair_products(const double *a, const double *b, size_t half) {
    double sum = 0;
    for (size_t i = 0; i < half; i++)
        sum += (a[i] * a[i] + a[i + half] * a[i + half]) * (b[i] * b[i] + b[i + half] * b[i + half]);
    return sum;
}
