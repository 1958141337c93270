/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes in, their SHA-256 out (FIPS 180-4). Used by bundle.c (is this what was packed?) and gen/pack.c.
 */
#include "sha256.h"

#include <stdatomic.h>
#include <string.h>

/* Chosen at the first hash, because asking the processor costs microseconds on a virtual machine. Threads choose alike. */
static sha256_compress_function *fastest_compress(void) {
    static _Atomic(sha256_compress_function *) chosen;
    sha256_compress_function *compress = atomic_load_explicit(&chosen, memory_order_relaxed);
    if (!compress) {
        compress = sha256_compress_of_processor();
        if (!compress)
            compress = sha256_compress_portable;
        atomic_store_explicit(&chosen, compress, memory_order_relaxed);
    }
    return compress;
}

void sha256_init(struct sha256 *hash) {
    /* FIPS 180-4, 5.3.3 */
    static const uint32_t initial[8] = {
        0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
    };
    memcpy(hash->state, initial, sizeof(initial));
    hash->bytes = 0;
    hash->compress = fastest_compress();
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
        hash->compress(hash->state, hash->block, 1);
    }
    hash->compress(hash->state, next, bytes / 64);
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
