/* SPDX-License-Identifier: Apache-2.0 */
/*
 * image.c: walks a fatbin and the cubin (ELF) inside it within bounds, and reads what a cubin says of its kernels.
 * Shared by bundle.c (the driver crashes on damaged headers, so they are audited before every load) and gen/pack.c
 * (which lifts the contract and compares it with the ELF). No CUDA.
 */
#ifndef LIBDECODE_IMAGE_H
#define LIBDECODE_IMAGE_H

#include <stdbool.h>
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

/* Number of kernels (global entry functions) in the cubin. */
size_t image_kernel_count(const struct image_elf *elf);

/* What the cubin holds and records of one of its kernels. */
struct image_kernel {
    const char *name;        /* at most 127 characters */
    const uint8_t *contract; /* the initial value of the object <name>_contract */
    size_t contract_bytes;
    uint32_t parameter_bytes; /* .nv.info: size of the parameter block */
    uint32_t registers;
    uint32_t max_threads;
    uint32_t local_bytes; /* stack frame: not 0 when registers spill */
    uint32_t static_shared_bytes;
    uint32_t symbol;           /* index in the symbol table */
    bool has_info, has_shared; /* whether the sections .nv.info.<name> and .nv.shared.<name> were seen */
};

/* All of them, sorted by name. They point into the image. */
struct image_kernels {
    struct image_kernel *kernels;
    size_t count;
};

/* In n log n steps, however the image was made. Errors: BUNDLE_DAMAGED (a kernel without a contract, or without its
 * records), OUT_OF_MEMORY. Ends with image_kernels_free. */
libdecode_status image_kernels_read(const struct image_elf *elf, struct image_kernels *ret_kernels);
/* NULL: no such kernel. */
const struct image_kernel *image_kernels_find(const struct image_kernels *kernels, const char *name);
void image_kernels_free(struct image_kernels *kernels);

#endif
