/* SPDX-License-Identifier: Apache-2.0 */
/* contract_kv.h: what several files ask of the KV that a launch contract is for. */
#ifndef LIBDECODE_CONTRACT_KV_H
#define LIBDECODE_CONTRACT_KV_H

#include <stdbool.h>

#include "abi.h"

/* Row by row, wherever each lies: pages of any size. Else pages are copied whole. */
static inline bool contract_copies_rows(const struct libdecode_launch_contract *contract) {
    return (contract->flags & CONTRACT_FLAG_ROW_GATHER) != 0;
}

/* bf16 or fp16: multiplied as it lies in memory, by queries of the same dtype. */
static inline bool contract_has_16_bit_kv(const struct libdecode_launch_contract *contract) {
    return contract->kv_dtype == KERNEL_DTYPE_BF16 || contract->kv_dtype == KERNEL_DTYPE_FP16;
}

#endif
