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
static sha256_compress_function *compress;

static int choose_default(void **state) {
    (void)state;
    compress = NULL;
    return 0;
}

static int choose_portable(void **state) {
    (void)state;
    compress = sha256_compress_portable;
    return 0;
}

static void begin(struct sha256 *hash) {
    sha256_init(hash);
    if (compress)
        hash->compress = compress;
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
    sha256_compress_function *of_processor = sha256_compress_of_processor();
    print_message("SHA-256 in the instructions of this processor: %s\n", of_processor ? "yes" : "no");
    assert_true(hash.compress == (of_processor ? of_processor : sha256_compress_portable));
}

/* Any state, any number of blocks, any alignment; nothing is read or written beside them. */
static void the_processor_compresses_as_the_portable_function_does(void **state) {
    (void)state;
    sha256_compress_function *of_processor = sha256_compress_of_processor();
    if (!of_processor)
        skip();
    uint64_t sequence = 0x9e3779b97f4a7c15u;
    for (size_t round = 0; round < 2000; round++) {
        size_t num_blocks = round % 9, offset = round / 9 % 16;
        uint32_t left[8], right[8];
        uint8_t *bytes = malloc(offset + 64 * num_blocks + 1); /* a sanitizer sees a step beyond */
        assert_non_null(bytes);
        for (size_t byte = 0; byte < offset + 64 * num_blocks; byte++) {
            sequence = sequence * 6364136223846793005u + 1442695040888963407u;
            bytes[byte] = (uint8_t)(sequence >> 56);
        }
        for (size_t word = 0; word < 8; word++) {
            sequence = sequence * 6364136223846793005u + 1442695040888963407u;
            left[word] = right[word] = (uint32_t)(sequence >> 32);
        }
        sha256_compress_portable(left, bytes + offset, num_blocks);
        of_processor(right, bytes + offset, num_blocks);
        assert_memory_equal(left, right, sizeof left);
        free(bytes);
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
