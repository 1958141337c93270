/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes in, their SHA-256 out (FIPS 180-4, sections 5 and 6.2). Used by bundle.c (is this what was packed?) and gen/pack.c.
 */
#include "sha256.h"

#include <string.h>

/* FIPS 180-4, 4.2.2: the first 32 bits of the fractional parts of the cube roots of the first 64 primes. */
static const uint32_t round_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01,
    0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc,
    0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
    0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08,
    0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotate_right(uint32_t word, int bits) { return word >> bits | word << (32 - bits); }

static uint32_t load_big_endian(const uint8_t *bytes) {
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | (uint32_t)bytes[3];
}

/* FIPS 180-4, 6.2.2, for one block of 64 bytes. The message schedule is a ring of 16 words, filled as the rounds go. */
static void compress(uint32_t state[8], const uint8_t *block) {
    uint32_t schedule[16];
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3], e = state[4], f = state[5], g = state[6], h = state[7];

    for (unsigned round = 0; round < 64; round++) {
        uint32_t *word = &schedule[round % 16];
        if (round < 16) {
            *word = load_big_endian(block + (size_t)4 * round);
        } else {
            uint32_t before_15 = schedule[(round - 15) % 16], before_2 = schedule[(round - 2) % 16];
            *word += (rotate_right(before_15, 7) ^ rotate_right(before_15, 18) ^ before_15 >> 3) + schedule[(round - 7) % 16] +
                     (rotate_right(before_2, 17) ^ rotate_right(before_2, 19) ^ before_2 >> 10);
        }
        uint32_t first = h + (rotate_right(e, 6) ^ rotate_right(e, 11) ^ rotate_right(e, 25)) + ((e & f) ^ (~e & g)) +
                         round_constants[round] + *word;
        uint32_t second = (rotate_right(a, 2) ^ rotate_right(a, 13) ^ rotate_right(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
        h = g;
        g = f;
        f = e;
        e = d + first;
        d = c;
        c = b;
        b = a;
        a = first + second;
    }
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
    state[4] += e;
    state[5] += f;
    state[6] += g;
    state[7] += h;
}

void sha256_init(struct sha256 *hash) {
    /* FIPS 180-4, 5.3.3 */
    static const uint32_t initial[8] = {
        0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
    };
    memcpy(hash->state, initial, sizeof(initial));
    hash->bytes = 0;
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
        compress(hash->state, hash->block);
    }
    for (; bytes >= 64; next += 64, bytes -= 64)
        compress(hash->state, next);
    memcpy(hash->block, next, bytes);
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
