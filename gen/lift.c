/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A checked cubin and a kernel's name in, the kernel's launch contract out (kernels/abi.h), if it agrees with what the cubin
 * itself records. Whatever does not agree is refused here, once, so that the loader can trust it. Used by pack.c.
 */
#include "lift.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "bundle_format.h"
#include "contract.h"

/* What one SM of each family has: the architectural limits behind contract.ctas_per_sm. */
static const struct target_limits {
    uint32_t target, shared_bytes, max_shared_bytes, threads;
} target_limits[] = {
    {90, 228 * 1024, 227 * 1024, 2048},
    {100, 228 * 1024, 227 * 1024, 2048},
    {120, 100 * 1024, 99 * 1024, 1536},
};
#define SM_REGISTERS 65536u
#define REGISTERS_GRANULE 8u /* per thread; a warp gets whole granules */
#define WARP_THREADS 32u

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

bool refuse(const char *format, ...) {
    va_list arguments;

    fputs("pack: ", stderr);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    return false;
}

static const struct target_limits *limits_of(uint32_t target) {
    for (size_t index = 0; index < COUNT(target_limits); index++) {
        if (target_limits[index].target == target)
            return &target_limits[index];
    }
    return NULL;
}

/* The contract, as the image carries it, is one of this interface. */
static bool read_contract(const char *path, const struct image_kernel *recorded, struct libdecode_launch_contract *ret_contract) {
    char symbol[BUNDLE_MAX_NAME_BYTES + sizeof(LIBDECODE_CONTRACT_SUFFIX)];

    snprintf(symbol, sizeof(symbol), "%s" LIBDECODE_CONTRACT_SUFFIX, recorded->name);
    if (recorded->contract_bytes != sizeof(*ret_contract))
        return refuse("%s: %s has %zu bytes, struct libdecode_launch_contract %zu", path, symbol, recorded->contract_bytes,
                      sizeof(*ret_contract));
    memcpy(ret_contract, recorded->contract, sizeof(*ret_contract));
    if (ret_contract->magic != LIBDECODE_CONTRACT_MAGIC)
        return refuse("%s: %s has magic 0x%08x, not 0x%08x", path, symbol, ret_contract->magic, LIBDECODE_CONTRACT_MAGIC);
    if (ret_contract->abi != LIBDECODE_KERNEL_ABI)
        return refuse("%s: %s has kernel interface %u, this is %u", path, symbol, ret_contract->abi, LIBDECODE_KERNEL_ABI);
    return true;
}

/* The name says which family's, and the parameter block is that family's. */
static bool check_family(const char *path, const char *name, const struct libdecode_launch_contract *contract,
                         const struct image_kernel *recorded) {
    const struct family *family = family_find(contract->family);

    if (family == NULL)
        return refuse("%s: %s has the unknown family %u in its contract", path, name, contract->family);
    size_t name_bytes = strlen(family->name);
    if (strncmp(name, family->name, name_bytes) != 0 || name[name_bytes] != '_')
        return refuse("%s: %s says that it is of family %u, whose kernels are called %s_...", path, name, contract->family,
                      family->name);
    if (contract->parameter_bytes != family->parameter_bytes)
        return refuse("%s: %s has a contract for a parameter block of %u bytes, struct %s_params has %zu", path, name,
                      contract->parameter_bytes, family->name, family->parameter_bytes);
    if (recorded->parameter_bytes != contract->parameter_bytes)
        return refuse("%s: %s takes %u bytes of parameters, its contract says %u", path, name, recorded->parameter_bytes,
                      contract->parameter_bytes);
    return true;
}

/* Threads, shared memory and registers: ctas_per_sm CTAs of this contract fit one SM. */
static bool check_resources(const char *path, const char *name, const struct libdecode_launch_contract *contract,
                            const struct image_kernel *recorded, uint32_t target) {
    const struct target_limits *limits = limits_of(target);

    if (limits == NULL)
        return refuse("%s: %s is compiled for sm_%u, which is no target", path, name, target);
    if (recorded->max_threads == 0)
        return refuse("%s: %s has no __launch_bounds__, its contract says %u threads", path, name, contract->threads);
    if (contract->threads != recorded->max_threads)
        return refuse("%s: %s is compiled for at most %u threads, its contract says %u", path, name, recorded->max_threads,
                      contract->threads);
    if (contract->ctas_per_sm == 0 || contract->cluster_size == 0)
        return refuse("%s: %s has %u CTAs per SM and clusters of %u in its contract; both are at least 1", path, name,
                      contract->ctas_per_sm, contract->cluster_size);
    uint64_t shared = (uint64_t)contract->dynamic_shared_bytes + recorded->static_shared_bytes;
    if (shared > limits->max_shared_bytes)
        return refuse("%s: %s needs %llu bytes of shared memory, a CTA of sm_%u has at most %u", path, name,
                      (unsigned long long)shared, target, limits->max_shared_bytes);
    uint64_t ctas = contract->ctas_per_sm;
    uint64_t warps = (contract->threads + WARP_THREADS - 1) / WARP_THREADS;
    uint64_t granules = (recorded->registers + REGISTERS_GRANULE - 1) / REGISTERS_GRANULE;
    uint64_t registers = warps * WARP_THREADS * granules * REGISTERS_GRANULE;
    if (ctas * (shared + IMAGE_SYSTEM_SHARED_BYTES) > limits->shared_bytes || ctas * registers > SM_REGISTERS ||
        ctas * warps * WARP_THREADS > limits->threads)
        return refuse("%s: %s has %u CTAs per SM in its contract, but each takes %llu of %u bytes of shared memory, %llu of %u "
                      "registers and %llu of %u threads of an SM of sm_%u",
                      path, name, contract->ctas_per_sm, (unsigned long long)(shared + IMAGE_SYSTEM_SHARED_BYTES),
                      limits->shared_bytes, (unsigned long long)registers, SM_REGISTERS,
                      (unsigned long long)(warps * WARP_THREADS), limits->threads, target);
    return true;
}

static bool check_spill(const char *path, const char *name, const struct libdecode_launch_contract *contract,
                        const struct image_kernel *recorded, bool may_spill) {
    bool in_contract = (contract->flags & CONTRACT_FLAG_MAY_SPILL) != 0;

    if (recorded->local_bytes != 0 && !may_spill)
        return refuse("%s: %s spills: it uses %u bytes of local memory per thread at %u registers; give it registers, or declare "
                      "may_spill with the reason in its [[grid]]",
                      path, name, recorded->local_bytes, recorded->registers);
    if (may_spill != in_contract)
        return refuse("%s: %s %s spill by its [[grid]], but its contract says the opposite (CONTRACT_FLAG_MAY_SPILL)", path, name,
                      may_spill ? "may" : "must not");
    return true;
}

bool lift_contract(const char *path, const struct image_kernel *recorded, uint32_t target, bool may_spill,
                   struct libdecode_launch_contract *ret_contract, uint32_t *ret_registers) {
    const char *name = recorded->name;
    struct libdecode_launch_contract contract;
    char reason[FAMILY_REASON_BYTES];

    if (!read_contract(path, recorded, &contract) || !check_family(path, name, &contract, recorded) ||
        !check_spill(path, name, &contract, recorded, may_spill) || !check_resources(path, name, &contract, recorded, target))
        return false;
    if (!contract_is_sane(&contract))
        return refuse("%s: %s has a contract that the loader would refuse (loader/contract.c): %u threads, %u bytes of shared "
                      "memory, clusters of %u, head_dim %u, row tile %u, %u tokens a tile, pages of %u to %u",
                      path, name, contract.threads, contract.dynamic_shared_bytes, contract.cluster_size, contract.head_dim,
                      contract.row_tile, contract.tile_tokens, contract.min_page_size, contract.max_page_size);
    if (contract_family(&contract, reason) == NULL)
        return refuse("%s: %s %s: loader/families does not know that", path, name, reason);
    *ret_contract = contract;
    *ret_registers = recorded->registers;
    return true;
}
