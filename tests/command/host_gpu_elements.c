/* SPDX-License-Identifier: Apache-2.0 */
/* host_gpu_elements.c: elements of the dtypes of kernels/abi.h in, f32 out, and what an operand of a matrix instruction keeps of f32. */
#include "host_gpu_elements.h"

#include <math.h>
#include <string.h>

#include "abi.h"
#include "element.h"
#include "host_gpu.h"

size_t element_bits(uint32_t dtype) {
    return dtype == KERNEL_DTYPE_NVFP4 ? 4 : dtype == KERNEL_DTYPE_E4M3 || dtype == KERNEL_DTYPE_E5M2 ? 8 : 16;
}

/* The upper byte of an fp16. */
static float e5m2_value(uint8_t code) {
    if (host_gpu_has_defect("e5m2_as_e4m3"))
        return (float)e4m3_decode(code);
    if (host_gpu_has_defect("e5m2_finite") && (code & 0x7c) == 0x7c)
        return ldexpf(1.0f + (float)(code & 3) / 4.0f, 16) * ((code & 0x80) != 0 ? -1.0f : 1.0f);
    return (float)fp16_decode((uint16_t)(code << 8));
}

/* Through tables, a row at a time: most of the time goes here. */
void decode_row(uint32_t dtype, const uint8_t *row, int elements, float *values) {
    static float bf16[65536], fp16[65536], e4m3[256], e5m2[256], e2m1[16];
    static int is_filled;
    for (unsigned code = 0; is_filled == 0 && code < 65536; code++) {
        fp16[code] = (float)fp16_decode((uint16_t)code);
        bf16[code] = (float)bf16_decode((uint16_t)code);
        e4m3[code % 256] = (float)e4m3_decode((uint8_t)(code % 256));
        e5m2[code % 256] = e5m2_value((uint8_t)(code % 256));
        e2m1[code % 16] = (float)e2m1_decode((uint8_t)(code % 16));
    }
    is_filled = 1;
    if (element_bits(dtype) == 4) {
        for (int element = 0; element < elements; element++)
            values[element] = e2m1[row[element / 2] >> element % 2 * 4 & 15];
    } else if (element_bits(dtype) == 8) {
        const float *const table = dtype == KERNEL_DTYPE_E5M2 ? e5m2 : e4m3;
        for (int element = 0; element < elements; element++)
            values[element] = table[row[element]];
    } else {
        const float *const table = dtype == KERNEL_DTYPE_BF16 ? bf16 : fp16;
        for (int element = 0; element < elements; element++) {
            uint16_t code;
            memcpy(&code, row + 2 * element, sizeof code);
            values[element] = table[code];
        }
    }
}

float round_operand(uint32_t kv_dtype, float value) {
    if (host_gpu_has_defect("e4m3_operands"))
        return (float)e4m3_decode(e4m3_encode((double)value * 448)) / 448;
    return (float)(kv_dtype == KERNEL_DTYPE_BF16 ? bf16_decode(bf16_encode((double)value))
                                                 : fp16_decode(fp16_encode((double)value)));
}
