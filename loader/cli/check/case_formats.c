/* SPDX-License-Identifier: Apache-2.0 */
/*
 * case_formats.c: what a test case leaves open, drawn from seed and name among what problem.c accepts. So every combination comes
 * up over cases and seeds, and each case still has one expectation for all kernels of a kind.
 */
#include "case_formats.h"

#include "dtype.h"
#include "problem.h"
#include "random.h"

#define NUM_DTYPES LIBDECODE_DTYPE_NVFP4

/* A dtype and a layout are possible if the smallest problem with them is, whose rows may be rotated. */
static bool is_accepted(const struct case_formats *formats, const struct test_case *test) {
    libdecode_problem problem = {.struct_size = sizeof problem,
                                 .op = formats->op,
                                 .query_dtype = formats->query_dtype,
                                 .kv_dtype = formats->kv_dtype,
                                 .out_dtype = formats->out_dtype,
                                 .batch_size = 1,
                                 .num_qo_heads = 1,
                                 .num_kv_heads = 1,
                                 .head_dim = formats->head_dim,
                                 .page_size = test->page_size,
                                 .max_seq_len = 1,
                                 .out_head_stride = (formats->head_dim + 31) / 32 * 32, /* of NVFP4: whole 16 bytes */
                                 .v_sf_layout = formats->v_sf_layout,
                                 .num_pages = formats->is_sparse ? 1 : 0,
                                 .sparse_top_k = formats->is_sparse ? 1 : 0,
                                 .kv_row_format = formats->kv_row_format};
    if (formats->kv_dtype == LIBDECODE_DTYPE_NVFP4 && formats->op != LIBDECODE_OP_MLA_DECODE) {
        problem.k_token_stride = problem.out_head_stride;
        problem.k_sf_token_stride = 32;
        problem.k_sf_token_stride = (formats->head_dim / 16 + 15) / 16 * 16; /* as any copy can take them */
        problem.features = (test->flags & CASE_ROPE) != 0 ? LIBDECODE_FEATURE_ROPE : 0;
    }
    struct problem checked;
    return problem_check(&problem, &checked) == LIBDECODE_OK;
}

/* Head dims that models have between a kernel's and the next narrower one's; then some that none has. */
static int32_t narrow_head_dim(struct random *random, const struct case_kind *kind) {
    static const struct {
        int32_t kernel, served[4];
    } narrow[] = {{64, {48, 32, 48, 32}}, {128, {80, 96, 112, 96}}, {256, {192, 192, 144, 240}}, {512, {320, 384, 448, 272}}};
    const uint32_t draw = random_below(random, 4);
    for (size_t index = 0; index < sizeof narrow / sizeof narrow[0]; index++) {
        if (narrow[index].kernel == kind->head_dim)
            return narrow[index].served[draw];
    }
    return kind->head_dim;
}

/* One of those that can be, but not `query_dtype` if `other`. */
static libdecode_dtype drawn_out_dtype(struct random *random, struct case_formats formats, const struct test_case *test,
                                       bool other) {
    libdecode_dtype possible[NUM_DTYPES];
    uint32_t count = 0;
    for (libdecode_dtype dtype = LIBDECODE_DTYPE_BF16; dtype <= LIBDECODE_DTYPE_NVFP4; dtype++) {
        formats.out_dtype = dtype;
        if (is_accepted(&formats, test) && !(other && dtype == formats.query_dtype))
            possible[count++] = dtype;
    }
    return count > 0 ? possible[random_below(random, count)] : formats.query_dtype;
}

struct case_formats draw_case_formats(const struct case_kind *kind, const struct test_case *test, uint64_t seed) {
    struct random random = random_named(test->name, seed ^ 0x5eed);
    const bool is_narrow = dtype_bits(kind->kv_dtype) < 16;
    const uint64_t out_flags = CASE_OTHER_OUT | CASE_OUT_E4M3 | CASE_OUT_NVFP4;
    struct case_formats formats = {.op = kind->op,
                                   .query_dtype = kind->kv_dtype,
                                   .kv_dtype = kind->kv_dtype,
                                   .head_dim = kind->head_dim,
                                   .is_sparse = kind->is_sparse,
                                   .kv_row_format = kind->kv_row_format};
    if (is_narrow)
        formats.query_dtype = (libdecode_dtype)(LIBDECODE_DTYPE_BF16 + (int)random_below(&random, LIBDECODE_DTYPE_E4M3));
    if (is_narrow && (test->flags & CASE_OUT_NVFP4) != 0)
        formats.query_dtype = LIBDECODE_DTYPE_E4M3;
    if (is_narrow && (test->flags & (CASE_QUERY_HUGE | CASE_QUERY_TINY)) != 0)
        formats.query_dtype = LIBDECODE_DTYPE_BF16; /* the others have no such numbers */
    if (kind->kv_row_format == LIBDECODE_KV_ROW_FP8_SCALED_656)
        formats.query_dtype = LIBDECODE_DTYPE_BF16; /* as a part of the row: kernels have no other */

    const int32_t drawn_dim = narrow_head_dim(&random, kind);
    if ((test->flags & CASE_NARROW_HEAD) != 0)
        formats.head_dim = drawn_dim;
    formats.out_dtype = LIBDECODE_DTYPE_BF16 == formats.query_dtype ? LIBDECODE_DTYPE_BF16 : LIBDECODE_DTYPE_FP16;
    if (!is_accepted(&formats, test))
        formats.head_dim = kind->head_dim == 256 ? 192 : kind->head_dim; /* rotated */
    const bool interleaved = random_below(&random, 2) == 0 || (test->flags & CASE_INTERLEAVED) != 0;
    if (kind->kv_dtype == LIBDECODE_DTYPE_NVFP4 && interleaved) {
        formats.v_sf_layout = LIBDECODE_SF_V_INTERLEAVE4;
        if (!is_accepted(&formats, test))
            formats.v_sf_layout = LIBDECODE_SF_LINEAR;
    }

    const libdecode_dtype drawn_out = drawn_out_dtype(&random, formats, test, (test->flags & out_flags) != 0);
    const bool as_query = (test->flags & (out_flags | CASE_RANDOM)) == 0 && random_below(&random, 2) == 0;
    formats.out_dtype = formats.query_dtype;
    if (!as_query || !is_accepted(&formats, test))
        formats.out_dtype = drawn_out;
    struct case_formats wanted = formats;
    wanted.out_dtype = (test->flags & CASE_OUT_NVFP4) != 0 ? LIBDECODE_DTYPE_NVFP4 : LIBDECODE_DTYPE_E4M3;
    if ((test->flags & (CASE_OUT_E4M3 | CASE_OUT_NVFP4)) != 0 && is_accepted(&wanted, test))
        return wanted;
    wanted.out_dtype = formats.query_dtype;
    if ((test->flags & CASE_PROGRAMMATIC) != 0 && is_accepted(&wanted, test))
        return wanted; /* the result of one launch is the query of the next */
    return formats;
}
