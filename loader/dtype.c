/* SPDX-License-Identifier: Apache-2.0 */
/* A dtype in; its name and its size out. Used by whoever names one in a message, or counts bytes. */
#include "dtype.h"

const char *dtype_name(libdecode_dtype dtype) {
    switch (dtype) {
    case LIBDECODE_DTYPE_BF16:
        return "bf16";
    case LIBDECODE_DTYPE_FP16:
        return "fp16";
    case LIBDECODE_DTYPE_E4M3:
        return "e4m3";
    case LIBDECODE_DTYPE_NVFP4:
        return "nvfp4";
    case LIBDECODE_DTYPE_FP32:
        return "fp32";
    case LIBDECODE_DTYPE_E5M2:
        return "e5m2";
    case LIBDECODE_DTYPE_DEFAULT:
        break;
    }
    return "?";
}

int dtype_bits(libdecode_dtype dtype) {
    switch (dtype) {
    case LIBDECODE_DTYPE_FP32:
        return 32;
    case LIBDECODE_DTYPE_BF16:
    case LIBDECODE_DTYPE_FP16:
        return 16;
    case LIBDECODE_DTYPE_E4M3:
    case LIBDECODE_DTYPE_E5M2:
        return 8;
    case LIBDECODE_DTYPE_NVFP4:
        return 4;
    case LIBDECODE_DTYPE_DEFAULT:
        break;
    }
    return 0;
}

size_t element_bytes(libdecode_dtype dtype, int64_t elements) {
    int bits = dtype_bits(dtype);
    return bits >= 8 ? (size_t)elements * (size_t)(bits / 8) : (size_t)elements / (size_t)(8 / bits);
}
