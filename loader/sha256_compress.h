/* SPDX-License-Identifier: Apache-2.0 */
/* sha256_compress.c: the compression function of SHA-256, once in C and once in the instructions that processors have for it. */
#ifndef LIBDECODE_SHA256_COMPRESS_H
#define LIBDECODE_SHA256_COMPRESS_H

#include <stddef.h>
#include <stdint.h>

/* Takes `num_blocks` blocks of 64 bytes, anywhere in memory, into the state. */
typedef void sha256_compress_function(uint32_t state[8], const uint8_t *blocks, size_t num_blocks);

/* The same for two states at once, each with as many blocks of its own. */
typedef void sha256_compress_pair_function(uint32_t left_state[8], uint32_t right_state[8], const uint8_t *left,
                                           const uint8_t *right, size_t num_blocks);

struct sha256_compressor {
    sha256_compress_function *compress;
    sha256_compress_pair_function *compress_pair; /* where the processor can: side by side */
};

extern const struct sha256_compressor sha256_portable;

/* By the instructions of this processor (SHA-NI, ARMv8 SHA-2); NULL if it has none. Asks the processor at every call. */
const struct sha256_compressor *sha256_of_processor(void);

#endif
