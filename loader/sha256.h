/* SPDX-License-Identifier: Apache-2.0 */
/* sha256.c: SHA-256 (FIPS 180-4), so that the loader depends on libzstd and libdl alone. */
#ifndef LIBDECODE_SHA256_H
#define LIBDECODE_SHA256_H

#include <stddef.h>
#include <stdint.h>

#include "sha256_compress.h"

struct sha256 {
    uint32_t state[8];
    uint64_t bytes;
    uint8_t block[64];
    const struct sha256_compressor *compressor; /* the fastest that this processor has */
};

void sha256_init(struct sha256 *hash);
void sha256_update(struct sha256 *hash, const void *data, size_t bytes);
void sha256_finish(struct sha256 *hash, uint8_t ret_digest[32]);

/*
 * The SHA-256 of the SHA-256s of two halves of `data`, one behind the other: the first half is bytes / 128 (rounded down) blocks
 * of 64 bytes, the second is the rest. Both are taken in at once, in hardly more time than one of them where the processor has
 * instructions for it. Binds the bytes as their SHA-256 does.
 */
void sha256_of_halves(const void *data, size_t bytes, uint8_t ret_digest[32]);

#endif
