/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes in, their SHA-256 out (FIPS 180-4). Used by bundle.c (is this what was packed?) and gen/pack.c.
 */
#include "sha256.h"

#include <stdatomic.h>
#include <string.h>

/* Chosen at the first hash, because asking the processor costs microseconds on a virtual machine. Threads choose alike. */
static const struct sha256_compressor *fastest_compressor(void) {
    static _Atomic(const struct sha256_compressor *) chosen;
    const struct sha256_compressor *compressor = atomic_load_explicit(&chosen, memory_order_relaxed);
    if (!compressor) {
        compressor = sha256_of_processor();
        if (!compressor)
            compressor = &sha256_portable;
        atomic_store_explicit(&chosen, compressor, memory_order_relaxed);
    }
    return compressor;
}

void sha256_init(struct sha256 *hash) {
    /* FIPS 180-4, 5.3.3 */
    static const uint32_t initial[8] = {
        0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
    };
    memcpy(hash->state, initial, sizeof(initial));
    hash->bytes = 0;
    hash->compressor = fastest_compressor();
}

void sha256_update(struct sha256 *hash, const void *data, size_t bytes) {
    const uint8_t *next = data;
    size_t held = (size_t)(hash->bytes % 64);

    if (bytes == 0)
        return; /* `data` may be NULL then */
    hash->bytes += bytes;
    if (held != 0) {
        size_t taken = bytes < 64 - held ? bytes : 64 - held;
        memcpy(hash->block + held, next, taken);
        next += taken;
        bytes -= taken;
        if (held + taken < 64)
            return;
        hash->compressor->compress(hash->state, hash->block, 1);
    }
    hash->compressor->compress(hash->state, next, bytes / 64);
    memcpy(hash->block, next + bytes / 64 * 64, bytes % 64);
}

void sha256_finish(struct sha256 *hash, uint8_t ret_digest[32]) {
    static const uint8_t padding[64] = {0x80};
    uint64_t bits = hash->bytes * 8;
    size_t held = (size_t)(hash->bytes % 64);
    uint8_t length[8];

    for (unsigned byte = 0; byte < 8; byte++)
        length[byte] = (uint8_t)(bits >> (56 - 8 * byte));
    sha256_update(hash, padding, held < 56 ? 56 - held : 120 - held);
    sha256_update(hash, length, sizeof(length));
    for (size_t word = 0; word < 8; word++) {
        for (size_t byte = 0; byte < 4; byte++)
            ret_digest[4 * word + byte] = (uint8_t)(hash->state[word] >> (24 - 8 * byte));
    }
}

void sha256_of_halves(const void *data, size_t bytes, uint8_t ret_digest[32]) {
    const uint8_t *left = data;
    size_t left_bytes = bytes / 128 * 64;
    struct sha256 halves[2], both;
    uint8_t digests[2][32];

    for (size_t half = 0; half < 2; half++)
        sha256_init(&halves[half]);
    halves[0].compressor->compress_pair(halves[0].state, halves[1].state, left, left + left_bytes, left_bytes / 64);
    halves[0].bytes = halves[1].bytes = left_bytes;
    sha256_update(&halves[1], left + 2 * left_bytes, bytes - 2 * left_bytes);
    for (size_t half = 0; half < 2; half++)
        sha256_finish(&halves[half], digests[half]);
    sha256_init(&both);
    sha256_update(&both, digests, sizeof(digests));
    sha256_finish(&both, ret_digest);
}
