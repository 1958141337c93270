/* SPDX-License-Identifier: Apache-2.0 */
/* tensor_map.h: what the host GPU's cuTensorMapEncodeTiled leaves in a map: what the driver was told. Strides in bytes, of axes 1 to 4. */
#ifndef LIBDECODE_PLAYED_TENSOR_MAP_H
#define LIBDECODE_PLAYED_TENSOR_MAP_H

#include <stdint.h>

struct played_tensor_map {
    uint64_t address, dims[5], strides_bytes[4];
    uint32_t box[5], element_bytes, swizzle_bytes;
};

#endif
