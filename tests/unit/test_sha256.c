/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_sha256.c: SHA-256 against the vectors of NIST (FIPS 180-4 examples, SHA256ShortMsg, the Monte Carlo test of SHAVS), in C
 * and in the instructions of this processor, and the two against each other. Under test: loader/sha256.c, sha256_compress.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "sha256.h"

/* NULL: whichever sha256_init chooses. */
static const struct sha256_compressor *compressor;

static int choose_default(void **state) {
    (void)state;
    compressor = NULL;
    return 0;
}

static int choose_portable(void **state) {
    (void)state;
    compressor = &sha256_portable;
    return 0;
}

static void begin(struct sha256 *hash) {
    sha256_init(hash);
    if (compressor)
        hash->compressor = compressor;
}

static void digest_of(const void *data, size_t bytes, uint8_t ret_digest[32]) {
    struct sha256 hash;
    begin(&hash);
    sha256_update(&hash, data, bytes);
    sha256_finish(&hash, ret_digest);
}

/* `hex` to bytes; gives how many. */
static size_t unhex(const char *hex, uint8_t *ret_bytes) {
    size_t count = strlen(hex) / 2;
    for (size_t index = 0; index < count; index++) {
        char pair[3] = {hex[2 * index], hex[2 * index + 1], '\0'};
        ret_bytes[index] = (uint8_t)strtoul(pair, NULL, 16);
    }
    return count;
}

static void assert_digest(const uint8_t digest[32], const char *expected_hex) {
    uint8_t expected[32];
    assert_int_equal(unhex(expected_hex, expected), 32);
    assert_memory_equal(digest, expected, 32);
}

static void the_published_messages_have_their_digests(void **state) {
    static const struct {
        const char *message, *digest;
    } vectors[] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
        {"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu",
         "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"},
    };
    (void)state;
    for (size_t index = 0; index < sizeof(vectors) / sizeof(vectors[0]); index++) {
        uint8_t digest[32];
        digest_of(vectors[index].message, strlen(vectors[index].message), digest);
        assert_digest(digest, vectors[index].digest);
    }
}

static void short_binary_messages_have_their_digests(void **state) {
    static const struct {
        const char *message, *digest;
    } vectors[] = {
        {"d3", "28969cdfa74a12c82f3bad960b0b000aca2ac329deea5c2328ebc6f2ba9802c1"},
        {"11af", "5ca7133fa735326081558ac312c620eeca9970d1e70a4b95533d956f072d1f98"},
        {"b4190e", "dff2e73091f6c05e528896c4c831b9448653dc2ff043528f6769437bc7b975c2"},
        {"74ba2521", "b16aa56be3880d18cd41e68384cf1ec8c17680c45a02b1575dc1518923ae8b0e"},
    };
    (void)state;
    for (size_t index = 0; index < sizeof(vectors) / sizeof(vectors[0]); index++) {
        uint8_t message[64], digest[32];
        digest_of(message, unhex(vectors[index].message, message), digest);
        assert_digest(digest, vectors[index].digest);
    }
}

static void a_million_letters_have_their_digest_in_pieces_of_any_size(void **state) {
    static const size_t piece_sizes[] = {1, 7, 55, 56, 63, 64, 65, 1000, 4096};
    uint8_t letters[4096];
    (void)state;
    memset(letters, 'a', sizeof(letters));
    for (size_t index = 0; index < sizeof(piece_sizes) / sizeof(piece_sizes[0]); index++) {
        struct sha256 hash;
        uint8_t digest[32];
        begin(&hash);
        for (size_t left = 1000000; left > 0;) {
            size_t piece = left < piece_sizes[index] ? left : piece_sizes[index];
            sha256_update(&hash, letters, piece);
            left -= piece;
        }
        sha256_finish(&hash, digest);
        assert_digest(digest, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    }
}

/* SHAVS 6.4: each digest is of the three before it; the first checkpoint, after 1000 rounds. */
static void the_monte_carlo_test_reaches_its_first_checkpoint(void **state) {
    uint8_t last[3][32], message[96];
    (void)state;
    unhex("6d1e72ad03ddeb5de891e572e2396f8da015d899ef0e79503152d6010a3fe691", last[0]);
    memcpy(last[1], last[0], 32);
    memcpy(last[2], last[0], 32);
    for (int round = 0; round < 1000; round++) {
        memcpy(message, last, sizeof(message));
        memmove(last[0], last[1], 64);
        digest_of(message, sizeof(message), last[2]);
    }
    assert_digest(last[2], "e93c330ae5447738c8aa85d71a6c80f2a58381d05872d26bdd39f1fcd4f2b788");
}

static void no_bytes_change_nothing_even_without_a_pointer(void **state) {
    struct sha256 hash;
    uint8_t digest[32];
    (void)state;
    begin(&hash);
    sha256_update(&hash, "ab", 2);
    sha256_update(&hash, NULL, 0);
    sha256_update(&hash, "c", 1);
    sha256_finish(&hash, digest);
    assert_digest(digest, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

static void the_processor_is_asked_and_what_it_has_is_used(void **state) {
    (void)state;
    struct sha256 hash;
    sha256_init(&hash);
    const struct sha256_compressor *of_processor = sha256_of_processor();
    print_message("SHA-256 in the instructions of this processor: %s\n", of_processor ? "yes" : "no");
    assert_ptr_equal(hash.compressor, of_processor ? of_processor : &sha256_portable);
}

/* Any state, any number of blocks, any alignment; nothing is read or written beside them. */
static void the_processor_compresses_as_the_portable_function_does(void **state) {
    (void)state;
    const struct sha256_compressor *of_processor = sha256_of_processor();
    if (!of_processor)
        skip();
    uint64_t sequence = 0x9e3779b97f4a7c15u;
    for (size_t round = 0; round < 2000; round++) {
        size_t num_blocks = round % 9, offset = round / 9 % 16, right = 64 * num_blocks;
        uint32_t portable[3][8], processor[3][8];        /* of the left blocks alone; of left and right at once */
        uint8_t *bytes = malloc(offset + 2 * right + 1); /* a sanitizer sees a step beyond */
        assert_non_null(bytes);
        for (size_t byte = 0; byte < offset + 2 * right; byte++) {
            sequence = sequence * 6364136223846793005u + 1442695040888963407u;
            bytes[byte] = (uint8_t)(sequence >> 56);
        }
        for (size_t word = 0; word < 3 * 8; word++) {
            sequence = sequence * 6364136223846793005u + 1442695040888963407u;
            portable[word / 8][word % 8] = processor[word / 8][word % 8] = (uint32_t)(sequence >> 32);
        }
        sha256_portable.compress(portable[0], bytes + offset, num_blocks);
        sha256_portable.compress(portable[1], bytes + offset, num_blocks);
        sha256_portable.compress(portable[2], bytes + offset + right, num_blocks);
        of_processor->compress(processor[0], bytes + offset, num_blocks);
        of_processor->compress_pair(processor[1], processor[2], bytes + offset, bytes + offset + right, num_blocks);
        assert_memory_equal(portable, processor, sizeof portable);
        free(bytes);
    }
}

static void a_portable_pair_is_two_alone(void **state) {
    (void)state;
    uint8_t bytes[4 * 64];
    uint32_t alone[2][8], pair[2][8];
    for (size_t byte = 0; byte < sizeof bytes; byte++)
        bytes[byte] = (uint8_t)(7 * byte);
    for (size_t word = 0; word < 2 * 8; word++)
        alone[word / 8][word % 8] = pair[word / 8][word % 8] = (uint32_t)word;
    sha256_portable.compress(alone[0], bytes, 2);
    sha256_portable.compress(alone[1], bytes + 2 * 64, 2);
    sha256_portable.compress_pair(pair[0], pair[1], bytes, bytes + 2 * 64, 2);
    assert_memory_equal(alone, pair, sizeof alone);
}

/* By Python: sha256(sha256(b[:n]).digest() + sha256(b[n:]).digest()) with n = len(b) // 128 * 64. */
static void the_hash_of_halves_is_that_of_their_digests(void **state) {
    (void)state;
    static const struct {
        size_t bytes;
        const char *digest;
    } vectors[] = {
        {0, "2dba5dbc339e7316aea2683faf839c1b7b1ee2313db792112588118df066aa35"},
        {1, "e34d11e6492b90493922a430f217cd993ad07e705b5dceee604ce2201c0b3013"},
        {63, "3d79c2206163fa285b5709b98f5fc261eade43e6781037994de6cbccac3295f3"},
        {64, "d96893450eab1cdb0300e7938b3b2422a8e7a95ef480a5177fb2ed4fbe6cd598"},
        {127, "22e65bc323fe55573d5df606f845762d65685e2fc8272f92998575531d0856a6"},
        {128, "8f41ba55794368ae0261e50a82532c1f385feddfed0b9884c44eeda56bb5939c"},
        {129, "d1f74789dc3dc638418e0b612189ac87060c426946b2d312bd263c37c81994db"},
        {191, "d604a4a3690d8aafde7ad793b47dada58cd57ba39bf99fc1585ad8a97271a193"},
        {192, "8004cc8027c99785fcd42993aaf32578ece7b5f08405a789f32bc9f6573068e8"},
        {255, "9c97c95820dc396d7423068a92b06be44136910dba7f6e9e9209f09cb17ebf2b"},
        {256, "163f31114fca71f993a436f82326a8e4ce4371abf7740605c2b950e38d576d8f"},
        {1000, "065d83782f515b9c68e8fe966c80566b3f50584bea20fef1e7b0771e64f3c1fb"},
        {100000, "b7176648cf2f4bf79878be435b77c7595d94e394b1001ae3c8a260666afb6b53"},
    };
    for (size_t index = 0; index < sizeof vectors / sizeof vectors[0]; index++) {
        uint8_t digest[32], *bytes = malloc(vectors[index].bytes + 1);
        assert_non_null(bytes);
        for (size_t byte = 0; byte < vectors[index].bytes; byte++)
            bytes[byte] = (uint8_t)(31 * byte + byte / 256);
        sha256_of_halves(bytes, vectors[index].bytes, digest);
        assert_digest(digest, vectors[index].digest);
        free(bytes);
    }
}

static void every_bit_changes_the_hash_of_halves(void **state) {
    (void)state;
    uint8_t bytes[300] = {0}, first[32], digest[32];
    sha256_of_halves(bytes, sizeof bytes, first);
    for (size_t bit = 0; bit < 8 * sizeof bytes; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        sha256_of_halves(bytes, sizeof bytes, digest);
        assert_memory_not_equal(digest, first, sizeof digest);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    for (size_t num_bytes = 0; num_bytes < sizeof bytes; num_bytes++) {
        sha256_of_halves(bytes, num_bytes, digest);
        assert_memory_not_equal(digest, first, sizeof digest);
    }
}

int main(void) {
#define BOTH_WAYS(name) cmocka_unit_test_setup(name, choose_default), cmocka_unit_test_setup(name, choose_portable)
    const struct CMUnitTest tests[] = {
        BOTH_WAYS(the_published_messages_have_their_digests),
        BOTH_WAYS(short_binary_messages_have_their_digests),
        BOTH_WAYS(a_million_letters_have_their_digest_in_pieces_of_any_size),
        BOTH_WAYS(the_monte_carlo_test_reaches_its_first_checkpoint),
        BOTH_WAYS(no_bytes_change_nothing_even_without_a_pointer),
        cmocka_unit_test(the_processor_is_asked_and_what_it_has_is_used),
        cmocka_unit_test(the_processor_compresses_as_the_portable_function_does),
        cmocka_unit_test(a_portable_pair_is_two_alone),
        cmocka_unit_test(the_hash_of_halves_is_that_of_their_digests),
        cmocka_unit_test(every_bit_changes_the_hash_of_halves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
