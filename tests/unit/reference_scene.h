/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reference_scene.h: a small decode problem whose result can be worked out by hand. For test_reference.c, test_reference_data.c and
 * test_reference_dtypes.c.
 *
 * Every query row is 1 in dimension 0 and 0 elsewhere, and the logits are taken in base 2 (bmm1_scale_log2_device = 1), so that
 * a KV token weighs 2^k[0]. V rows carry two numbers, in dimensions 0 and 1. Whatever a test does not set is poison: K and V are
 * NaN, page ids lead out of the address space, out and lse hold a pattern.
 */
#ifndef LIBDECODE_TESTS_REFERENCE_SCENE_H
#define LIBDECODE_TESTS_REFERENCE_SCENE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "element.h"
#include "libdecode.h"

enum { D = 16, PAGE = 4, PAGES = 8, KV_HEADS = 2, Q_HEADS = 4, TOKENS = 40, TABLE = 16 };
#define POISON_PAGE INT32_MAX
#define POISON_LSE (-12345.0f)
#define POISON_OUT 0x4d4d
#define BF16_NAN 0x7fff

struct scene {
    libdecode_problem problem;
    libdecode_tensors tensors;
    _Alignas(16) uint16_t query[TOKENS * Q_HEADS * D];
    _Alignas(16) uint16_t out[TOKENS * Q_HEADS * D];
    _Alignas(16) uint16_t k[PAGES * KV_HEADS * PAGE * D]; /* HND */
    _Alignas(16) uint16_t v[PAGES * KV_HEADS * PAGE * D];
    float lse[TOKENS * Q_HEADS];
    float sinks[Q_HEADS];
    int32_t page_table[4 * TABLE];
    int32_t seq_lens[8];
    int32_t cum_seq_lens_q[8];
    int32_t query_positions[4];
    uint16_t draft_mask[TOKENS * 4];
};

static const float one = 1;
static struct scene scene;

/* One request of one query token with one head; the first pages of the pool in order are the caller's to enter. */
static inline void scene_begin(int32_t seq_len) {
    memset(&scene, 0, sizeof scene);
    scene.problem = (libdecode_problem){.struct_size = sizeof scene.problem,
                                        .query_dtype = LIBDECODE_DTYPE_BF16,
                                        .features = LIBDECODE_FEATURE_LSE,
                                        .batch_size = 1,
                                        .num_qo_heads = 1,
                                        .num_kv_heads = 1,
                                        .head_dim = D,
                                        .page_size = PAGE,
                                        .page_table_request_stride = TABLE};
    scene.tensors = (libdecode_tensors){.struct_size = sizeof scene.tensors,
                                        .query = scene.query,
                                        .k_cache = scene.k,
                                        .v_cache = scene.v,
                                        .page_table = scene.page_table,
                                        .seq_lens = scene.seq_lens,
                                        .out = scene.out,
                                        .lse = scene.lse,
                                        .bmm1_scale_log2_device = &one};
    for (size_t row = 0; row < TOKENS * Q_HEADS; row++)
        scene.query[row * D] = bf16_encode(1);
    for (size_t element = 0; element < sizeof scene.k / 2; element++)
        scene.k[element] = scene.v[element] = BF16_NAN;
    for (size_t element = 0; element < sizeof scene.out / 2; element++)
        scene.out[element] = POISON_OUT;
    for (size_t row = 0; row < sizeof scene.lse / sizeof scene.lse[0]; row++)
        scene.lse[row] = POISON_LSE;
    for (size_t entry = 0; entry < sizeof scene.page_table / sizeof scene.page_table[0]; entry++)
        scene.page_table[entry] = POISON_PAGE;
    for (size_t entry = 0; entry < 8; entry++)
        scene.seq_lens[entry] = seq_len;
}

/* A KV row: the weight is 2^logit. */
static inline void put(int32_t page, int32_t kv_head, int32_t slot, double logit, double v0, double v1) {
    size_t row = (size_t)((page * scene.problem.num_kv_heads + kv_head) * PAGE + slot) * D;
    memset(scene.k + row, 0, D * 2);
    memset(scene.v + row, 0, D * 2);
    scene.k[row] = bf16_encode(logit);
    scene.v[row] = bf16_encode(v0);
    scene.v[row + 1] = bf16_encode(v1);
}

/* `count` tokens of head 0 in pages 0, 1, ... with logit 0; token j has the values 2^j and 1, so that v0 tells who was seen. */
static inline void put_tokens(int32_t count) {
    for (int32_t token = 0; token < count; token++) {
        scene.page_table[token / PAGE] = token / PAGE;
        put(token / PAGE, 0, token % PAGE, 0, ldexp(1, token), 1);
    }
}

static inline void run(void) {
    libdecode_status status = libdecode_reference(&scene.problem, &scene.tensors);
    if (status != LIBDECODE_OK)
        fail_msg("%s: %s", libdecode_status_name(status), libdecode_error_message());
}

static inline double out_at(int32_t token, int32_t head, int32_t d) {
    return bf16_decode(scene.out[(token * scene.problem.num_qo_heads + head) * D + d]);
}

static inline void expect(int32_t token, int32_t head, double v0, double v1, double lse) {
    float actual_lse = scene.lse[token * scene.problem.num_qo_heads + head];
    if (out_at(token, head, 0) != v0 || out_at(token, head, 1) != v1 || out_at(token, head, 2) != 0 || actual_lse != (float)lse)
        fail_msg("token %d head %d: got (%g, %g, %g) lse %g, expected (%g, %g, 0) lse %g", token, head, out_at(token, head, 0),
                 out_at(token, head, 1), out_at(token, head, 2), (double)actual_lse, v0, v1, lse);
}

/* With put_tokens: the row is the mean over exactly the tokens of `mask`. */
static inline void expect_seen(int32_t token, uint32_t mask) {
    int count = 0;
    for (uint32_t rest = mask; rest != 0; rest &= rest - 1)
        count++;
    if (count == 0)
        expect(token, 0, 0, 0, -(double)INFINITY);
    else
        expect(token, 0, bf16_decode(bf16_encode((double)mask / count)), 1, log2(count));
}

#endif
