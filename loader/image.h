/* SPDX-License-Identifier: Apache-2.0 */
/*
 * image.c: walks a fatbin and the cubin (ELF) inside it within bounds, and reads what a cubin says of its kernels.
 * Shared by bundle.c (the driver crashes on damaged headers, so they are audited before every load) and gen/pack.c
 * (which lifts the contract and compares it with the ELF). No allocation, no CUDA.
 */
#ifndef LIBDECODE_IMAGE_H
#define LIBDECODE_IMAGE_H

#include <stddef.h>
#include <stdint.h>

#include "abi.h"
#include "libdecode.h"

/* sm_90 and later reserve this at the front of every CTA's shared memory. */
#define IMAGE_SYSTEM_SHARED_BYTES 1024u

/* A checked cubin: every header, section, string and symbol lies inside `bytes`. */
struct image_elf {
    const uint8_t *bytes;
    size_t size;
    uint32_t sm; /* 90, 100, 120: from e_flags */
};

/*
 * Audits `image` (a fatbin of exactly one uncompressed cubin, made with --compress-mode=none) and gives the cubin.
 * BUNDLE_DAMAGED with a message that says what and at which offset.
 */
libdecode_status image_audit(const void *image, size_t image_bytes, struct image_elf *ret_elf);

/* What the cubin itself records of a kernel. */
struct image_kernel {
    uint32_t parameter_bytes; /* .nv.info: size of the parameter block */
    uint32_t registers;
    uint32_t max_threads;
    uint32_t local_bytes; /* stack frame: not 0 when registers spill */
    uint32_t static_shared_bytes;
};

/* Errors: BUNDLE_DAMAGED (no such kernel, or its records are malformed). */
libdecode_status image_kernel_info(const struct image_elf *elf, const char *kernel, struct image_kernel *ret_kernel);

/* Bytes of an initialised object symbol; *ret_size from the symbol table. BUNDLE_DAMAGED if it is not there. */
libdecode_status image_symbol(const struct image_elf *elf, const char *symbol, const uint8_t **ret_bytes, size_t *ret_size);

/* Number of kernels (global entry functions) in the cubin. */
size_t image_kernel_count(const struct image_elf *elf);

#endif
