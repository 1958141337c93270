/* SPDX-License-Identifier: Apache-2.0 */
/* contract.c: a launch contract in; whether a kernel of this version can have it out. Before and next: bundle.c. */
#include "contract.h"

/* What no GPU of the five exceeds; a contract beyond it is damaged. */
#define MAX_THREADS 1024u
#define WARP_THREADS 32u
#define MAX_SHARED_BYTES (228u * 1024u)
#define MAX_CTAS_PER_SM 32u
#define MAX_CLUSTER_SIZE 16u
#define MAX_PARAMETER_BYTES 32764u
#define MAX_HEAD_DIM 1024u
#define MAX_TILE 65536u
#define MAX_BOX_TOKENS 256u
#define MAX_STAGES 64u
#define MAX_RECORD_BYTES (1u << 20)
#define MAX_PAGE_SIZE (1u << 20)
#define ALL_DTYPE_BITS (1u << KERNEL_DTYPE_BF16 | 1u << KERNEL_DTYPE_FP16 | 1u << KERNEL_DTYPE_E4M3 | 1u << KERNEL_DTYPE_NVFP4)

static bool is_power_of_two(uint32_t value) { return value != 0 && (value & (value - 1)) == 0; }

static bool within(uint32_t value, uint32_t least, uint32_t most) { return value >= least && value <= most; }

/* What launch.c computes with: no zero to divide by, no size that overflows, and a parameter block of the size that it fills. */
static bool is_sane_gqa_decode(const struct libdecode_launch_contract *contract) {
    return contract->parameter_bytes == sizeof(struct gqa_decode_params) &&
           within(contract->query_dtype, KERNEL_DTYPE_BF16, KERNEL_DTYPE_NVFP4) &&
           within(contract->kv_dtype, KERNEL_DTYPE_BF16, KERNEL_DTYPE_NVFP4) && contract->out_dtypes != 0 &&
           (contract->out_dtypes & ~ALL_DTYPE_BITS) == 0 && within(contract->head_dim, 1, MAX_HEAD_DIM) &&
           contract->head_dim % contract->cluster_size == 0 && within(contract->row_tile, 1, MAX_THREADS) &&
           within(contract->tile_tokens, 1, MAX_TILE) && within(contract->max_box_tokens, 1, MAX_BOX_TOKENS) &&
           within(contract->stages, 1, MAX_STAGES) && is_power_of_two(contract->min_page_size) &&
           is_power_of_two(contract->max_page_size) && contract->min_page_size <= contract->max_page_size &&
           contract->max_page_size <= MAX_PAGE_SIZE && within(contract->max_q_len, 1, MAX_TILE) &&
           within(contract->record_bytes, 1, MAX_RECORD_BYTES) && contract->record_bytes % sizeof(uint64_t) == 0;
}

bool contract_is_sane(const struct libdecode_launch_contract *contract) {
    if (contract->magic != LIBDECODE_CONTRACT_MAGIC || contract->abi != LIBDECODE_KERNEL_ABI || contract->family == 0 ||
        !within(contract->parameter_bytes, 1, MAX_PARAMETER_BYTES) || !within(contract->threads, WARP_THREADS, MAX_THREADS) ||
        contract->threads % WARP_THREADS != 0 || contract->dynamic_shared_bytes > MAX_SHARED_BYTES ||
        !within(contract->ctas_per_sm, 1, MAX_CTAS_PER_SM) || !is_power_of_two(contract->cluster_size) ||
        contract->cluster_size > MAX_CLUSTER_SIZE)
        return false;
    switch (contract->family) {
    case KERNEL_FAMILY_GQA_DECODE:
        return is_sane_gqa_decode(contract);
    case KERNEL_FAMILY_READ_CEILING:
        return contract->parameter_bytes == sizeof(struct read_ceiling_params);
    default:
        return true; /* a family that this library does not know is never launched by it */
    }
}
