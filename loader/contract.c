/* SPDX-License-Identifier: Apache-2.0 */
/*
 * contract.c: a launch contract in; whether a kernel can have it, and which family of this library launches it, out.
 * Before: bundle.c read the record. Next: kernel_table.c keeps the family beside it.
 */
#include "contract.h"

#include "contract_kv.h"
#include "text.h"
#include "workspace.h"

/* What no GPU of the five exceeds, and no kernel comes near to. */
#define MAX_THREADS 1024u
#define WARP_THREADS 32u
#define MAX_SHARED_BYTES (228u * 1024u)
#define MAX_CTAS_PER_SM 32u
#define MAX_CLUSTER_SIZE 16u
#define MAX_PARAMETER_BYTES 32764u
#define MAX_TILE 65536u
#define MAX_STAGES 64u
#define MAX_RECORD_BYTES (1u << 20)

static bool is_power_of_two(uint32_t value) { return value != 0 && (value & (value - 1)) == 0; }

static bool within(uint32_t value, uint32_t least, uint32_t most) { return value >= least && value <= most; }

static bool has_sane_page_sizes(const struct libdecode_launch_contract *contract) {
    if (!contract_copies_rows(contract) &&
        (!is_power_of_two(contract->min_page_size) || !is_power_of_two(contract->max_page_size)))
        return false;
    return contract->min_page_size != 0 && contract->min_page_size <= contract->max_page_size;
}

/* As much as workspace.c has room for. */
static bool has_sane_scratch(const struct libdecode_launch_contract *contract) {
    const uint32_t chunks = (contract->features & CONTRACT_FEATURE_BATCH_INVARIANT) != 0 ? KERNEL_MAX_CHUNKS_IN_SCRATCH : 1;
    return contract->scratch_bytes % 16 == 0 &&
           contract->scratch_bytes <= WORKSPACE_SCRATCH_BYTES_PER_SM / 2 / chunks / contract->ctas_per_sm;
}

/* What cost.c and every family that decodes compute with: no zero to divide by, no product that overflows. */
static bool has_sane_tiles(const struct libdecode_launch_contract *contract) {
    return within(contract->row_tile, 1, MAX_THREADS) && within(contract->tile_tokens, 1, MAX_TILE) &&
           within(contract->max_box_tokens, 1, MAX_TILE) && within(contract->stages, 1, MAX_STAGES) &&
           has_sane_page_sizes(contract) && within(contract->max_q_len, 1, MAX_TILE) && contract->head_dim != 0 &&
           contract->query_dtypes != 0 && contract->out_dtypes != 0 && within(contract->record_bytes, 1, MAX_RECORD_BYTES) &&
           contract->record_bytes % sizeof(uint64_t) == 0 && has_sane_scratch(contract) &&
           within(contract->consumer_warps, 1, contract->threads / WARP_THREADS);
}

bool contract_is_sane(const struct libdecode_launch_contract *contract) {
    if (contract->magic != LIBDECODE_CONTRACT_MAGIC || contract->abi != LIBDECODE_KERNEL_ABI || contract->family == 0 ||
        !within(contract->parameter_bytes, 1, MAX_PARAMETER_BYTES) || !within(contract->threads, WARP_THREADS, MAX_THREADS) ||
        contract->threads % WARP_THREADS != 0 || contract->dynamic_shared_bytes > MAX_SHARED_BYTES ||
        !within(contract->ctas_per_sm, 1, MAX_CTAS_PER_SM) || !is_power_of_two(contract->cluster_size) ||
        contract->cluster_size > MAX_CLUSTER_SIZE)
        return false;
    const struct family *family = family_find(contract->family);
    return !family || family->op == 0 || has_sane_tiles(contract); /* of an unknown family nothing else is ever used */
}

/* False: it says something that the family does not know; appends what. */
static bool within_reach(const struct family *family, const struct libdecode_launch_contract *contract, char *reason) {
    const struct libdecode_launch_contract *reach = &family->reach;
    if (contract->parameter_bytes != family->parameter_bytes)
        text_append(reason, FAMILY_REASON_BYTES, "takes a parameter block of %u bytes, %s has %zu", contract->parameter_bytes,
                    family->name, family->parameter_bytes);
    else if (contract->flags & ~reach->flags)
        text_append(reason, FAMILY_REASON_BYTES, "has flags 0x%x", contract->flags & ~reach->flags);
    else if (contract->features & ~reach->features)
        text_append(reason, FAMILY_REASON_BYTES, "computes features 0x%x", contract->features & ~reach->features);
    else if (family->op == 0)
        return true;
    else if (contract->query_dtypes & ~reach->query_dtypes)
        text_append(reason, FAMILY_REASON_BYTES, "reads queries of dtypes 0x%x", contract->query_dtypes & ~reach->query_dtypes);
    else if (contract->out_dtypes & ~reach->out_dtypes)
        text_append(reason, FAMILY_REASON_BYTES, "writes dtypes 0x%x", contract->out_dtypes & ~reach->out_dtypes);
    else if (contract->max_q_len > reach->max_q_len)
        text_append(reason, FAMILY_REASON_BYTES, "computes up to %u query tokens", contract->max_q_len);
    else
        return true;
    return false;
}

static bool has_reserved_words(const struct libdecode_launch_contract *contract) {
    for (size_t i = 0; i < sizeof contract->reserved / sizeof contract->reserved[0]; i++)
        if (contract->reserved[i] != 0)
            return true;
    return false;
}

const struct family *contract_family(const struct libdecode_launch_contract *contract, char ret_reason[FAMILY_REASON_BYTES]) {
    const struct family *family = family_find(contract->family);
    ret_reason[0] = '\0';
    if (!family)
        text_append(ret_reason, FAMILY_REASON_BYTES, "is of family %u", contract->family);
    else if (has_reserved_words(contract))
        text_append(ret_reason, FAMILY_REASON_BYTES, "says something in reserved words of its contract");
    else if (within_reach(family, contract, ret_reason) && (!family->serves || family->serves(contract, ret_reason)))
        return family;
    return NULL;
}
