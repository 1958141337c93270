/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A state and blocks in, the next state out (FIPS 180-4, 6.2.2). The portable form does some 0.2 GB/s, which for the tables of
 * 3,000 kernels is more than all the rest of libdecode_open; the processors' instructions do 1.2 GB/s or more, and wait for
 * themselves most of that time: two states side by side take hardly longer than one. No build flag is needed: each function
 * names the instructions that it is made of. Before and next: sha256.c.
 */
#include "sha256_compress.h"

#include <stdbool.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <arm_neon.h>
#include <sys/auxv.h>
#endif

/* 4.2.2: the first 32 bits of the fractional parts of the cube roots of the first 64 primes. */
static const uint32_t round_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01,
    0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc,
    0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
    0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08,
    0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

/* ---------------------------------------------------------------------------------------------------------- portable */

static uint32_t rotate_right(uint32_t word, int bits) { return word >> bits | word << (32 - bits); }

static uint32_t load_big_endian(const uint8_t *bytes) {
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | (uint32_t)bytes[3];
}

/* The message schedule is a ring of 16 words, filled as the rounds go. */
static void compress_block(uint32_t state[8], const uint8_t *block) {
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

static void compress_portably(uint32_t state[8], const uint8_t *blocks, size_t num_blocks) {
    for (size_t block = 0; block < num_blocks; block++)
        compress_block(state, blocks + 64 * block);
}

static void compress_pair_portably(uint32_t left_state[8], uint32_t right_state[8], const uint8_t *left, const uint8_t *right,
                                   size_t num_blocks) {
    compress_portably(left_state, left, num_blocks);
    compress_portably(right_state, right, num_blocks);
}

const struct sha256_compressor sha256_portable = {compress_portably, compress_pair_portably};

/* ---------------------------------------------------------------------------------------------- by the processor's own */

#if defined(__x86_64__)

#define SHA_INSTRUCTIONS __attribute__((target("sha,ssse3,sse4.1")))
typedef __m128i four_words;

/* The instructions want the state as two vectors, in this order of words from the lowest. */
struct vectors {
    four_words feba, hgdc;
};

SHA_INSTRUCTIONS static inline four_words load_words(const uint8_t *bytes) {
    const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    return _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(const void *)bytes), big_endian);
}

SHA_INSTRUCTIONS static inline struct vectors load_state(const uint32_t state[8]) {
    const __m128i *memory = (const __m128i *)(const void *)state;
    __m128i badc = _mm_shuffle_epi32(_mm_loadu_si128(memory), 0xb1), hgfe = _mm_shuffle_epi32(_mm_loadu_si128(memory + 1), 0x1b);
    return (struct vectors){_mm_alignr_epi8(badc, hgfe, 8), _mm_blend_epi16(hgfe, badc, 0xf0)};
}

SHA_INSTRUCTIONS static inline void store_state(uint32_t state[8], struct vectors now) {
    __m128i *memory = (__m128i *)(void *)state;
    __m128i abef = _mm_shuffle_epi32(now.feba, 0x1b), ghcd = _mm_shuffle_epi32(now.hgdc, 0xb1);
    _mm_storeu_si128(memory, _mm_blend_epi16(abef, ghcd, 0xf0));
    _mm_storeu_si128(memory + 1, _mm_alignr_epi8(ghcd, abef, 8));
}

SHA_INSTRUCTIONS static inline struct vectors sum_of(struct vectors a, struct vectors b) {
    return (struct vectors){_mm_add_epi32(a.feba, b.feba), _mm_add_epi32(a.hgdc, b.hgdc)};
}

/* Rounds `round` to `round` + 3 with these words of the message schedule. */
SHA_INSTRUCTIONS static inline void four_rounds(struct vectors *state, four_words words, unsigned round) {
    __m128i sum = _mm_add_epi32(words, _mm_loadu_si128((const __m128i *)(const void *)(round_constants + round)));
    state->hgdc = _mm_sha256rnds2_epu32(state->hgdc, state->feba, sum);
    state->feba = _mm_sha256rnds2_epu32(state->feba, state->hgdc, _mm_shuffle_epi32(sum, 0x0e));
}

/* The four words of the schedule after these sixteen. */
SHA_INSTRUCTIONS static inline four_words next_words(four_words w0, four_words w4, four_words w8, four_words w12) {
    return _mm_sha256msg2_epu32(_mm_add_epi32(_mm_sha256msg1_epu32(w0, w4), _mm_alignr_epi8(w12, w8, 4)), w12);
}

static bool has_sha_instructions(void) {
    unsigned eax, ebx, ecx, edx;
    if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx))
        return false;
    bool has_shuffles = (ecx & bit_SSSE3) != 0 && (ecx & bit_SSE4_1) != 0;
    if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx))
        return false;
    return has_shuffles && (ebx & bit_SHA) != 0;
}

#elif defined(__aarch64__) && defined(__linux__)

/* The four instructions by hand: <arm_neon.h> declares them only to some compilers without a build flag. */
#if defined(__clang__)
#define SHA_INSTRUCTIONS __attribute__((target("crypto")))
#else
#define SHA_INSTRUCTIONS __attribute__((target("+crypto")))
#endif
#define HWCAP_SHA2_BIT (1ul << 6) /* of AT_HWCAP: HWCAP_SHA2 of <asm/hwcap.h> */
typedef uint32x4_t four_words;

struct vectors {
    four_words abcd, efgh;
};

static inline four_words load_words(const uint8_t *bytes) { return vreinterpretq_u32_u8(vrev32q_u8(vld1q_u8(bytes))); }

static inline struct vectors load_state(const uint32_t state[8]) {
    return (struct vectors){vld1q_u32(state), vld1q_u32(state + 4)};
}

static inline void store_state(uint32_t state[8], struct vectors now) {
    vst1q_u32(state, now.abcd);
    vst1q_u32(state + 4, now.efgh);
}

static inline struct vectors sum_of(struct vectors a, struct vectors b) {
    return (struct vectors){vaddq_u32(a.abcd, b.abcd), vaddq_u32(a.efgh, b.efgh)};
}

/* Rounds `round` to `round` + 3 with these words of the message schedule. */
SHA_INSTRUCTIONS static inline void four_rounds(struct vectors *state, four_words words, unsigned round) {
    uint32x4_t sum = vaddq_u32(words, vld1q_u32(round_constants + round)), abcd = state->abcd;
    __asm__("sha256h %q0, %q1, %2.4s" : "+w"(state->abcd) : "w"(state->efgh), "w"(sum));
    __asm__("sha256h2 %q0, %q1, %2.4s" : "+w"(state->efgh) : "w"(abcd), "w"(sum));
}

/* The four words of the schedule after these sixteen. */
SHA_INSTRUCTIONS static inline four_words next_words(four_words w0, four_words w4, four_words w8, four_words w12) {
    __asm__("sha256su0 %0.4s, %1.4s" : "+w"(w0) : "w"(w4));
    __asm__("sha256su1 %0.4s, %1.4s, %2.4s" : "+w"(w0) : "w"(w8), "w"(w12));
    return w0;
}

static bool has_sha_instructions(void) { return (getauxval(AT_HWCAP) & HWCAP_SHA2_BIT) != 0; }

#endif

#ifdef SHA_INSTRUCTIONS

/* A state, the block that goes into it as four words of the schedule each, and the block after that. */
struct lane {
    struct vectors now, before;
    four_words w0, w4, w8, w12;
    const uint8_t *next;
};

SHA_INSTRUCTIONS static inline void begin_block(struct lane *lane) {
    lane->before = lane->now;
    lane->w0 = load_words(lane->next);
    lane->w4 = load_words(lane->next + 16);
    lane->w8 = load_words(lane->next + 32);
    lane->w12 = load_words(lane->next + 48);
    lane->next += 64;
}

/* One lane, or two that run through each other. `is_pair` is a constant where this is used. */
SHA_INSTRUCTIONS __attribute__((always_inline)) static inline void compress_lanes(struct lane *left, struct lane *right,
                                                                                  bool is_pair, size_t num_blocks) {
#define IN_EACH_LANE(step)                                                                                                       \
    do {                                                                                                                         \
        struct lane *lane = left;                                                                                                \
        step;                                                                                                                    \
        lane = right;                                                                                                            \
        if (is_pair)                                                                                                             \
            step;                                                                                                                \
    } while (0)
    for (size_t block = 0; block < num_blocks; block++) {
        IN_EACH_LANE(begin_block(lane));
        for (unsigned round = 0;; round += 16) {
            IN_EACH_LANE(four_rounds(&lane->now, lane->w0, round));
            IN_EACH_LANE(four_rounds(&lane->now, lane->w4, round + 4));
            IN_EACH_LANE(four_rounds(&lane->now, lane->w8, round + 8));
            IN_EACH_LANE(four_rounds(&lane->now, lane->w12, round + 12));
            if (round == 48)
                break;
            IN_EACH_LANE(lane->w0 = next_words(lane->w0, lane->w4, lane->w8, lane->w12));
            IN_EACH_LANE(lane->w4 = next_words(lane->w4, lane->w8, lane->w12, lane->w0));
            IN_EACH_LANE(lane->w8 = next_words(lane->w8, lane->w12, lane->w0, lane->w4));
            IN_EACH_LANE(lane->w12 = next_words(lane->w12, lane->w0, lane->w4, lane->w8));
        }
        IN_EACH_LANE(lane->now = sum_of(lane->now, lane->before));
    }
#undef IN_EACH_LANE
}

SHA_INSTRUCTIONS static void compress_by_instructions(uint32_t state[8], const uint8_t *blocks, size_t num_blocks) {
    struct lane lane = {.now = load_state(state), .next = blocks};
    compress_lanes(&lane, &lane, false, num_blocks);
    store_state(state, lane.now);
}

SHA_INSTRUCTIONS static void compress_pair_by_instructions(uint32_t left_state[8], uint32_t right_state[8], const uint8_t *left,
                                                           const uint8_t *right, size_t num_blocks) {
    struct lane lanes[2] = {{.now = load_state(left_state), .next = left}, {.now = load_state(right_state), .next = right}};
    compress_lanes(&lanes[0], &lanes[1], true, num_blocks);
    store_state(left_state, lanes[0].now);
    store_state(right_state, lanes[1].now);
}

const struct sha256_compressor *sha256_of_processor(void) {
    static const struct sha256_compressor by_instructions = {compress_by_instructions, compress_pair_by_instructions};
    return has_sha_instructions() ? &by_instructions : NULL;
}

#else

const struct sha256_compressor *sha256_of_processor(void) { return NULL; }

#endif
