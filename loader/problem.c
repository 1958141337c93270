/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A caller's problem in, a checked one with every default made explicit out. Pure: no CUDA, no allocation. Its tensors: tensors.c.
 * Before: libdecode.h's caller. Beside: operation.c knows what belongs to the operation; here is how the fields hang together.
 * Next: select.c (which kernel) or reference.c (the same operation on the host).
 */
#include "problem.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "dtype.h"
#include "status.h"

/* What version 0.1 of the header had; later fields are optional. */
#define PROBLEM_MINIMUM_BYTES (offsetof(libdecode_problem, total_kv_tokens) + sizeof(int64_t))

/* Elements that one axis may span: three axes of 16-bit elements then stay below 2^63 bytes. */
#define MAX_SPAN ((int64_t)1 << 60)

static bool is_16_bit(libdecode_dtype dtype) { return dtype == LIBDECODE_DTYPE_BF16 || dtype == LIBDECODE_DTYPE_FP16; }

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

static bool is_mla(const libdecode_problem *given) { return given->op == LIBDECODE_OP_MLA_DECODE; }

/* -------------------------------------------------------------------------------------------------- scalar fields */

/* The pairs are those of semantics the kernels and the reference give a meaning to; the rest is a mistake of the caller. */
static libdecode_status check_dtypes(libdecode_problem *given) {
    if (given->kv_dtype == LIBDECODE_DTYPE_DEFAULT)
        given->kv_dtype = given->query_dtype;
    if (given->out_dtype == LIBDECODE_DTYPE_DEFAULT)
        given->out_dtype = given->query_dtype;

    REQUIRE(is_16_bit(given->kv_dtype) || given->kv_dtype == LIBDECODE_DTYPE_E4M3 || given->kv_dtype == LIBDECODE_DTYPE_NVFP4 ||
                given->kv_dtype == LIBDECODE_DTYPE_E5M2,
            "problem.kv_dtype is %d: accepted are 1 to 4 and 6 (bf16, fp16, e4m3, nvfp4 and e5m2), 0 for query_dtype",
            (int)given->kv_dtype);
    REQUIRE(given->kv_dtype == given->query_dtype || !is_16_bit(given->kv_dtype),
            "problem.kv_dtype is %s with query_dtype %s: a 16-bit KV cache needs a query of its own dtype; else e4m3, e5m2 or "
            "nvfp4",
            dtype_name(given->kv_dtype), dtype_name(given->query_dtype));

    REQUIRE(given->out_dtype != LIBDECODE_DTYPE_E4M3 || given->query_dtype == LIBDECODE_DTYPE_E4M3 ||
                given->kv_dtype == LIBDECODE_DTYPE_E4M3,
            "problem.out_dtype is e4m3 with query_dtype %s and kv_dtype %s: one of the two must be e4m3; else bf16 or fp16",
            dtype_name(given->query_dtype), dtype_name(given->kv_dtype));
    REQUIRE(given->out_dtype != LIBDECODE_DTYPE_NVFP4 || given->query_dtype == LIBDECODE_DTYPE_E4M3,
            "problem.out_dtype is nvfp4 with query_dtype %s: an nvfp4 result needs an e4m3 query",
            dtype_name(given->query_dtype));
    REQUIRE(!is_mla(given) || is_16_bit(given->kv_dtype) || given->kv_dtype == LIBDECODE_DTYPE_E4M3 ||
                (given->kv_dtype == LIBDECODE_DTYPE_NVFP4 && given->kv_row_format == LIBDECODE_KV_ROW_NVFP4_352),
            "problem.kv_dtype is %s with op mla_decode: bf16, fp16 and e4m3 are accepted, and nvfp4 with kv_row_format 2 "
            "(NVFP4_352)",
            dtype_name(given->kv_dtype));
    return LIBDECODE_OK;
}

/* The rotated elements of an MLA row, behind the latent ones. */
enum { MLA_ROPE_DIM = 64 };

/* Rows of it have no rotated elements. */
enum { MLA_LATENT_HEAD_DIM = 512 };

static libdecode_status check_head_dims(libdecode_problem *given) {
    const bool all_latent = problem_is_sparse(given) && given->head_dim == MLA_LATENT_HEAD_DIM;
    if (is_mla(given)) {
        REQUIRE(
            given->head_dim == 576 || given->head_dim == 320 || all_latent,
            "problem.head_dim is %d with op mla_decode: accepted are 576 and 320, the latent elements of a row and 64 of RoPE, "
            "and with sparse_top_k 512, latent elements alone",
            given->head_dim);
    } else {
        REQUIRE(given->head_dim >= 16 && given->head_dim <= 512 && given->head_dim % 16 == 0,
                "problem.head_dim is %d: accepted are the multiples of 16 from 16 to 512", given->head_dim);
    }
    const int32_t v_head_dim = given->head_dim - (is_mla(given) && !all_latent ? MLA_ROPE_DIM : 0);
    if (given->v_head_dim == 0)
        given->v_head_dim = v_head_dim;
    REQUIRE(given->v_head_dim == v_head_dim, "problem.v_head_dim is %d with head_dim %d: accepted is %d, 0 for that",
            given->v_head_dim, given->head_dim, v_head_dim);
    return LIBDECODE_OK;
}

static libdecode_status check_shape(libdecode_problem *given) {
    if (is_mla(given) && given->num_kv_heads == 0)
        given->num_kv_heads = 1;
    REQUIRE(given->num_kv_heads == 1 || !is_mla(given),
            "problem.num_kv_heads is %d with op mla_decode: accepted is 1, 0 for that", given->num_kv_heads);
    REQUIRE(
        given->num_qo_heads % given->num_kv_heads == 0,
        "problem.num_kv_heads is %d, which does not divide num_qo_heads %d: every KV head must serve equally many query heads",
        given->num_kv_heads, given->num_qo_heads);
    FORWARD(check_head_dims(given));
    if (given->q_len == 0)
        given->q_len = 1;
    REQUIRE((int64_t)given->batch_size * given->q_len <= INT32_MAX,
            "problem.q_len is %d with batch_size %d: the query tokens of a launch must be less than 2^31", given->q_len,
            given->batch_size);
    return LIBDECODE_OK;
}

static libdecode_status check_rope(const char *name, float missing, float *value) {
    if (*value == 0.0f)
        *value = missing;
    REQUIRE(isfinite(*value) && *value > 0.0f, "problem.%s is %g: it must be finite and more than 0, 0 for %g", name,
            (double)*value, (double)missing);
    return LIBDECODE_OK;
}

/* Kernels load both halves of such a row in 16 bytes, 32 elements, each. */
enum { NVFP4_ROPE_DIMS = 64 };

/* Of features that say more of another one. */
static libdecode_status check_companions(const libdecode_problem *given) {
    static const struct {
        uint32_t feature, of;
        const char *name, *name_of;
    } companions[] = {{LIBDECODE_FEATURE_LSE_NATURAL, LIBDECODE_FEATURE_LSE, "LSE_NATURAL", "LSE"},
                      {LIBDECODE_FEATURE_LSE_WITHOUT_SINK, LIBDECODE_FEATURE_LSE, "LSE_WITHOUT_SINK", "LSE"},
                      {LIBDECODE_FEATURE_LSE_EMPTY_INFINITY, LIBDECODE_FEATURE_LSE, "LSE_EMPTY_INFINITY", "LSE"},
                      {LIBDECODE_FEATURE_LSE_ALIBI_FROM_ZERO, LIBDECODE_FEATURE_LSE, "LSE_ALIBI_FROM_ZERO", "LSE"},
                      {LIBDECODE_FEATURE_LSE_ALIBI_FROM_ZERO, LIBDECODE_FEATURE_ALIBI, "LSE_ALIBI_FROM_ZERO", "ALIBI"}};
    for (size_t i = 0; i < sizeof companions / sizeof companions[0]; i++)
        REQUIRE((given->features & companions[i].feature) == 0 || (given->features & companions[i].of) != 0,
                "problem.features has LIBDECODE_FEATURE_%s without LIBDECODE_FEATURE_%s: set both, or neither",
                companions[i].name, companions[i].name_of);
    return LIBDECODE_OK;
}

static libdecode_status check_features(libdecode_problem *given) {
    REQUIRE(!problem_is_contiguous(given) || (given->features & LIBDECODE_FEATURE_V_PAGE_TABLE) == 0,
            "problem.features has LIBDECODE_FEATURE_V_PAGE_TABLE with LIBDECODE_FEATURE_CONTIGUOUS_KV: there is no page table, "
            "leave one of the two out");
    if (given->features & LIBDECODE_FEATURE_WINDOW) {
        REQUIRE(given->window_left >= 0,
                "problem.window_left is %d with FEATURE_WINDOW: it must be 0 or more; leave the feature out for no window",
                given->window_left);
    } else {
        REQUIRE(given->window_left == 0 || given->window_left == -1,
                "problem.window_left is %d without LIBDECODE_FEATURE_WINDOW: set the feature, or leave the field 0",
                given->window_left);
        given->window_left = -1;
    }

    float factor = given->skip_softmax_threshold_scale_factor;
    REQUIRE(isfinite(factor) && factor >= 0.0f,
            "problem.skip_softmax_threshold_scale_factor is %g: it must be finite and 0 or more", (double)factor);
    FORWARD(check_companions(given));
    REQUIRE((given->features & LIBDECODE_FEATURE_SOFT_CAP) == 0 ||
                (isfinite(given->logits_soft_cap) && given->logits_soft_cap > 0.0f),
            "problem.logits_soft_cap is %g with LIBDECODE_FEATURE_SOFT_CAP: it must be finite and more than 0",
            (double)given->logits_soft_cap);
    if (given->features & LIBDECODE_FEATURE_ROPE) {
        REQUIRE(given->kv_dtype != LIBDECODE_DTYPE_NVFP4 || given->head_dim % NVFP4_ROPE_DIMS == 0,
                "problem.features has LIBDECODE_FEATURE_ROPE with kv_dtype nvfp4 and head_dim %d: there it must be a multiple of "
                "%d, so that both halves of a row are whole 16 bytes; or leave the feature out and rotate query and K before",
                given->head_dim, NVFP4_ROPE_DIMS);
        FORWARD(check_rope("rope_scale", 1.0f, &given->rope_scale));
        FORWARD(check_rope("rope_theta", 10000.0f, &given->rope_theta));
    }
    return LIBDECODE_OK;
}

/* What has no meaning for rows that are named one by one. */
static libdecode_status check_sparse(const libdecode_problem *given) {
    static const struct {
        uint32_t feature;
        const char *name;
    } dense_features[] = {{LIBDECODE_FEATURE_WINDOW, "WINDOW"},
                          {LIBDECODE_FEATURE_DRAFT_MASK, "DRAFT_MASK"},
                          {LIBDECODE_FEATURE_QUERY_POSITIONS, "QUERY_POSITIONS"},
                          {LIBDECODE_FEATURE_SKIP_SOFTMAX, "SKIP_SOFTMAX"}};
    const bool has_lens = (given->features & LIBDECODE_FEATURE_SPARSE_TOP_K_LENS) != 0;
    REQUIRE(
        problem_is_sparse(given) || !has_lens,
        "problem.features has LIBDECODE_FEATURE_SPARSE_TOP_K_LENS with sparse_top_k 0: give the number of token ids of a query "
        "token, or leave the feature out");
    if (!problem_is_sparse(given))
        return LIBDECODE_OK;
    for (size_t i = 0; i < sizeof dense_features / sizeof dense_features[0]; i++)
        REQUIRE((given->features & dense_features[i].feature) == 0,
                "problem.features has LIBDECODE_FEATURE_%s with sparse_top_k %d: which tokens are seen is what their ids say, "
                "leave the feature out",
                dense_features[i].name, given->sparse_top_k);
    REQUIRE(
        given->position_stride <= 1 && given->position_offset == 0,
        "problem.position_stride is %d and position_offset %d with sparse_top_k %d: token ids have no positions, leave both 0",
        given->position_stride, given->position_offset, given->sparse_top_k);
    REQUIRE(!has_lens || (given->features & LIBDECODE_FEATURE_HOST_SEQ_LENS) == 0,
            "problem.features has LIBDECODE_FEATURE_HOST_SEQ_LENS with LIBDECODE_FEATURE_SPARSE_TOP_K_LENS: seq_lens is then not "
            "read, leave one of the two out");
    REQUIRE((given->features & LIBDECODE_FEATURE_QUERY_ROPE) == 0 || given->head_dim != MLA_LATENT_HEAD_DIM,
            "problem.features has LIBDECODE_FEATURE_QUERY_ROPE with head_dim 512: such rows have no RoPE part, leave it out");
    REQUIRE(given->num_pages > 0, "problem.num_pages is 0 with sparse_top_k %d: it tells which token ids are valid, give it",
            given->sparse_top_k);
    const libdecode_dtype dtype =
        given->kv_row_format == LIBDECODE_KV_ROW_NVFP4_352 ? LIBDECODE_DTYPE_NVFP4 : LIBDECODE_DTYPE_E4M3;
    REQUIRE(given->kv_row_format == LIBDECODE_KV_ROW_PLAIN || (given->kv_dtype == dtype && given->head_dim == 576),
            "problem.kv_row_format is %d with kv_dtype %s and head_dim %d: such rows are of %s and 576",
            (int)given->kv_row_format, dtype_name(given->kv_dtype), given->head_dim, dtype_name(dtype));
    return LIBDECODE_OK;
}

static libdecode_status check_layouts(const libdecode_problem *given) {
    REQUIRE(
        (given->features & LIBDECODE_FEATURE_KV_OFFSETS) == 0 || given->kv_dtype != LIBDECODE_DTYPE_NVFP4,
        "problem.features has LIBDECODE_FEATURE_KV_OFFSETS with kv_dtype nvfp4: they do not say where scales are, leave it out");
    const char *size = problem_is_contiguous(given) ? "kv_capacity_tokens" : "page_size";
    REQUIRE(given->v_sf_layout != LIBDECODE_SF_V_INTERLEAVE4 || given->page_size % 4 == 0,
            "problem.v_sf_layout is 1 (V_INTERLEAVE4) with %s %d: it must be a multiple of 4", size, given->page_size);
    return LIBDECODE_OK;
}

/* ------------------------------------------------------------------------------------------------------- strides */

/* What a stride must be a multiple of. */
struct alignment {
    int elements, bytes;
};
static const struct alignment not_aligned = {1, 0};
enum { WORD_BYTES = 4 }; /* the least that an asynchronous copy takes */
/* Kernels copy the scales of a token in units as large as divide them, 4 to 16 bytes; of no whole number of words the last one in part. */
static struct alignment scale_alignment(int32_t head_dim) {
    int row = head_dim / 16, unit = row & -row;
    unit = unit < ROW_ALIGNMENT_BYTES ? unit : ROW_ALIGNMENT_BYTES;
    unit = unit < WORD_BYTES ? WORD_BYTES : unit;
    return (struct alignment){unit, unit};
}
/* A word of those is of four tokens, however many a token has. */
static const struct alignment interleaved_scale_alignment = {WORD_BYTES, WORD_BYTES};
/* A block of 16 with a scale of its own: rows of the result are stored in small pieces, not copied. */
static const struct alignment nvfp4_out_alignment = {16, 8};

static struct alignment row_alignment(libdecode_dtype dtype) {
    return (struct alignment){ROW_ALIGNMENT_BYTES * 8 / dtype_bits(dtype), ROW_ALIGNMENT_BYTES};
}

/* 0 becomes `dense`. `count` steps of the stride stay within MAX_SPAN. */
static libdecode_status check_stride(const char *name, int64_t count, int64_t dense, struct alignment alignment,
                                     int64_t *stride) {
    REQUIRE(*stride >= 0, "problem.%s is %lld: strides are 0 (dense: %lld) or more", name, (long long)*stride, (long long)dense);
    if (*stride == 0)
        *stride = dense;
    int64_t limit = count > 1 ? MAX_SPAN / count : MAX_SPAN;
    REQUIRE(*stride <= limit, "problem.%s is %lld: %lld steps of it leave the address space, at most %lld is accepted", name,
            (long long)*stride, (long long)count, (long long)limit);
    REQUIRE(*stride % alignment.elements == 0,
            "problem.%s is %lld elements: it must be a multiple of %d elements, which are %d bytes", name, (long long)*stride,
            alignment.elements, alignment.bytes);
    return LIBDECODE_OK;
}

/* The names of three strides of K, V, or their scales: page, head, token. */
struct stride_names {
    const char *page, *head, *token;
};

/* Each stride defaults to what is dense over the ones inside it, so giving one alone is enough. */
static libdecode_status check_kv_strides(const libdecode_problem *given, libdecode_kv_layout layout,
                                         const struct stride_names *names, int64_t row, struct alignment alignment, int64_t *page,
                                         int64_t *head, int64_t *token) {
    /* 0: not known. Of contiguous KV there are as many as requests, which may be none. */
    int64_t num_pages = given->num_pages != 0 || problem_is_contiguous(given) ? given->num_pages : INT32_MAX;
    if (layout == LIBDECODE_KV_HND) {
        FORWARD(check_stride(names->token, given->page_size, row, alignment, token));
        FORWARD(check_stride(names->head, given->num_kv_heads, *token * given->page_size, alignment, head));
        return check_stride(names->page, num_pages, *head * given->num_kv_heads, alignment, page);
    }
    FORWARD(check_stride(names->head, given->num_kv_heads, row, alignment, head));
    FORWARD(check_stride(names->token, given->page_size, *head * given->num_kv_heads, alignment, token));
    return check_stride(names->page, num_pages, *token * given->page_size, alignment, page);
}

static void default_to(int64_t *stride, int64_t other) {
    if (*stride == 0)
        *stride = other;
}

enum { SCALED_656_BYTES = 656, NVFP4_352_BYTES = 352 };

/* Of K, without the scales that lie elsewhere. */
static int64_t k_row_bytes(const libdecode_problem *given) {
    switch (given->kv_row_format) {
    case LIBDECODE_KV_ROW_FP8_SCALED_656:
        return SCALED_656_BYTES;
    case LIBDECODE_KV_ROW_NVFP4_352:
        return NVFP4_352_BYTES;
    case LIBDECODE_KV_ROW_PLAIN:
        break;
    }
    return (int64_t)element_bytes(given->kv_dtype, given->head_dim);
}

static libdecode_status check_kv(libdecode_problem *given) {
    static const struct stride_names k_names = {"k_page_stride", "k_head_stride", "k_token_stride"};
    static const struct stride_names v_names = {"v_page_stride", "v_head_stride", "v_token_stride"};
    /* Kernels that copy rows of whole elements in small pieces take any stride. */
    struct alignment alignment =
        is_mla(given) || given->kv_dtype == LIBDECODE_DTYPE_NVFP4 ? row_alignment(given->kv_dtype) : not_aligned;
    const int64_t row = k_row_bytes(given) * 8 / dtype_bits(given->kv_dtype);
    FORWARD(check_kv_strides(given, given->kv_layout, &k_names, row, alignment, &given->k_page_stride, &given->k_head_stride,
                             &given->k_token_stride));
    if (is_mla(given)) /* V lies in the same rows */
        return LIBDECODE_OK;
    default_to(&given->v_page_stride, given->k_page_stride);
    default_to(&given->v_head_stride, given->k_head_stride);
    default_to(&given->v_token_stride, given->k_token_stride);
    return check_kv_strides(given, given->kv_layout, &v_names, given->head_dim, alignment, &given->v_page_stride,
                            &given->v_head_stride, &given->v_token_stride);
}

static libdecode_status check_kv_scales(libdecode_problem *given) {
    static const struct stride_names k_names = {"k_sf_page_stride", "k_sf_head_stride", "k_sf_token_stride"};
    static const struct stride_names v_names = {"v_sf_page_stride", "v_sf_head_stride", "v_sf_token_stride"};
    if (given->kv_dtype != LIBDECODE_DTYPE_NVFP4 || is_mla(given))
        return LIBDECODE_OK;
    int64_t row = given->head_dim / 16, block = row * given->page_size;
    struct alignment alignment = scale_alignment(given->head_dim);
    bool interleaved = given->v_sf_layout == LIBDECODE_SF_V_INTERLEAVE4;
    struct alignment v_alignment = interleaved && row % WORD_BYTES != 0 ? not_aligned : alignment;
    FORWARD(check_kv_strides(given, given->kv_layout, &k_names, row, alignment, &given->k_sf_page_stride,
                             &given->k_sf_head_stride, &given->k_sf_token_stride));
    /* Interleaving mixes the tokens of a page and head, so their scales are one block. K's token stride does not fit that, nor
     * in NHD its head stride, since there all heads of a token come before the next token. */
    if (interleaved)
        default_to(&given->v_sf_token_stride, row);
    if (interleaved && given->kv_layout == LIBDECODE_KV_NHD)
        default_to(&given->v_sf_head_stride, block);
    default_to(&given->v_sf_page_stride, given->k_sf_page_stride);
    default_to(&given->v_sf_head_stride, given->k_sf_head_stride);
    default_to(&given->v_sf_token_stride, given->k_sf_token_stride);
    FORWARD(check_kv_strides(given, interleaved ? LIBDECODE_KV_HND : given->kv_layout, &v_names, row, v_alignment,
                             &given->v_sf_page_stride, &given->v_sf_head_stride, &given->v_sf_token_stride));
    REQUIRE(!interleaved || given->v_sf_token_stride == row,
            "problem.v_sf_token_stride is %lld with v_sf_layout V_INTERLEAVE4: it must be dense, head_dim / 16 = %lld",
            (long long)given->v_sf_token_stride, (long long)row);
    REQUIRE(!interleaved || given->num_kv_heads == 1 || given->v_sf_head_stride >= block,
            "problem.v_sf_head_stride is %lld (0 takes k_sf_head_stride in HND) with v_sf_layout V_INTERLEAVE4: a page and head "
            "is one block of page_size * head_dim / 16 scales, so it must be %lld or more",
            (long long)given->v_sf_head_stride, (long long)block);
    if (!interleaved)
        return LIBDECODE_OK;
    FORWARD(check_stride(v_names.head, given->num_kv_heads, block, interleaved_scale_alignment, &given->v_sf_head_stride));
    return check_stride(v_names.page, 1, block, interleaved_scale_alignment, &given->v_sf_page_stride);
}

/* Steps of one stride and of the other that lie less than a row apart, so that two rows share elements. Both are checked strides. */
static bool rows_overlap(int64_t row, int64_t head_stride, int64_t heads, int64_t token_stride, int64_t tokens) {
    if (tokens == 0)
        return false;
    if ((heads > 1 && head_stride < row) || (tokens > 1 && token_stride < row))
        return true;
    if (heads <= 1 || tokens <= 1 || token_stride >= heads * head_stride || head_stride >= tokens * token_stride)
        return false;
    for (int64_t head = 1; head < heads; head++) {
        const int64_t at = head * head_stride, token = at / token_stride;
        if ((token < tokens && at - token * token_stride < row) || (token + 1 < tokens && (token + 1) * token_stride - at < row))
            return true;
    }
    return false;
}

/* Query tokens of all requests. Nobody knows here how many there are of ragged ones, two of which tell whether rows lie apart. */
static int64_t all_query_tokens(const libdecode_problem *given) {
    const int64_t tokens = (int64_t)given->batch_size * given->q_len;
    return (given->features & LIBDECODE_FEATURE_RAGGED_Q) != 0 ? smaller(tokens, 2) : tokens;
}

/* Of results, where one would be written over another. `has_offsets`: a request's first token may begin anywhere. */
static libdecode_status check_apart(const libdecode_problem *given, const char *name, int64_t row, int64_t head_stride,
                                    int64_t token_stride, bool has_offsets) {
    const int64_t tokens = has_offsets ? given->q_len : all_query_tokens(given);
    REQUIRE(!rows_overlap(row, head_stride, given->num_qo_heads, token_stride, tokens),
            "problem.%s_head_stride is %lld and %s_token_stride %lld: rows of %lld elements of %d heads and %lld tokens would be "
            "written "
            "over each other",
            name, (long long)head_stride, name, (long long)token_stride, (long long)row, given->num_qo_heads, (long long)tokens);
    return LIBDECODE_OK;
}

static libdecode_status check_row_strides(libdecode_problem *given) {
    int64_t tokens = (int64_t)given->batch_size * given->q_len;
    int64_t heads = given->num_qo_heads;
    struct alignment query = row_alignment(given->query_dtype);
    struct alignment out = given->out_dtype == LIBDECODE_DTYPE_NVFP4 ? nvfp4_out_alignment : row_alignment(given->out_dtype);
    bool is_split = (given->features & LIBDECODE_FEATURE_QUERY_ROPE) != 0;
    int64_t query_dim = is_split ? given->v_head_dim : given->head_dim, rope_dim = given->head_dim - query_dim;
    FORWARD(check_stride("query_head_stride", heads, query_dim, query, &given->query_head_stride));
    FORWARD(check_stride("query_token_stride", tokens, heads * given->query_head_stride, query, &given->query_token_stride));
    if (is_split) {
        FORWARD(check_stride("query_rope_head_stride", heads, rope_dim, query, &given->query_rope_head_stride));
        FORWARD(check_stride("query_rope_token_stride", tokens, heads * given->query_rope_head_stride, query,
                             &given->query_rope_token_stride));
    }
    FORWARD(check_stride("out_head_stride", heads, given->v_head_dim, out, &given->out_head_stride));
    FORWARD(check_stride("out_token_stride", tokens, heads * given->out_head_stride, out, &given->out_token_stride));
    FORWARD(check_apart(given, "out", given->v_head_dim, given->out_head_stride, given->out_token_stride,
                        (given->features & LIBDECODE_FEATURE_QUERY_OFFSETS) != 0));
    FORWARD(check_stride("lse_head_stride", heads, 1, not_aligned, &given->lse_head_stride));
    FORWARD(check_stride("lse_token_stride", tokens, heads * given->lse_head_stride, not_aligned, &given->lse_token_stride));
    return check_apart(given, "lse", 1, given->lse_head_stride, given->lse_token_stride, false);
}

/* Entries of a row of the page table that belong to one request, head and tensor: rows nest, so the smallest distance. */
static int64_t page_table_width(const libdecode_problem *given) {
    int64_t width = given->page_table_request_stride;
    if (given->page_table_head_stride != 0)
        width = smaller(width, given->page_table_head_stride);
    if (given->page_table_v_offset != 0)
        width = smaller(width, given->page_table_v_offset);
    return width;
}

/* A page for each request, and what is said of pages holds of requests. */
static void describe_as_pages(libdecode_problem *given) {
    given->page_size = given->kv_capacity_tokens;
    given->num_pages = given->batch_size;
    given->page_table_request_stride = 1;
    if (given->max_seq_len == 0 || given->max_seq_len > given->kv_capacity_tokens)
        given->max_seq_len = given->kv_capacity_tokens;
}

static libdecode_status check_page_table(libdecode_problem *given) {
    REQUIRE(
        (given->features & LIBDECODE_FEATURE_V_PAGE_TABLE) == 0 ||
            (given->page_table_v_offset >= 1 && given->page_table_v_offset <= MAX_SPAN),
        "problem.page_table_v_offset is %lld with LIBDECODE_FEATURE_V_PAGE_TABLE: it must be the distance from K's entries to "
        "V's, 1 to 2^60 (n for a table [batch_size, 2, n])",
        (long long)given->page_table_v_offset);
    FORWARD(check_stride("page_table_head_stride", given->num_kv_heads, 0, not_aligned, &given->page_table_head_stride));

    int64_t pages = given->max_seq_len / given->page_size + (given->max_seq_len % given->page_size != 0);
    if (given->page_table_request_stride == 0) {
        REQUIRE(pages > 0,
                "problem.page_table_request_stride and max_seq_len are both 0: give the width of a row of the page table, or "
                "the longest sequence");
        REQUIRE(given->page_table_head_stride == 0 && given->page_table_v_offset == 0,
                "problem.page_table_request_stride is 0 with page_table_head_stride %lld and page_table_v_offset %lld: with "
                "either of "
                "these it has no default, give it",
                (long long)given->page_table_head_stride, (long long)given->page_table_v_offset);
    }
    FORWARD(check_stride("page_table_request_stride", given->batch_size, pages, not_aligned, &given->page_table_request_stride));
    const int64_t room = smaller(smaller(page_table_width(given), INT32_MAX) * given->page_size, INT32_MAX);
    REQUIRE(given->kv_capacity_tokens <= room,
            "problem.kv_capacity_tokens is %d with rows of the page table of %lld pages of %d tokens: at most %lld is accepted, "
            "0 for that",
            given->kv_capacity_tokens, (long long)page_table_width(given), given->page_size, (long long)room);
    if (given->max_seq_len == 0)
        given->max_seq_len = given->kv_capacity_tokens != 0 ? given->kv_capacity_tokens : (int32_t)room;
    return LIBDECODE_OK;
}

/* In place of a page table. */
static libdecode_status check_token_ids(libdecode_problem *given) {
    const int64_t tokens = (int64_t)given->batch_size * given->q_len;
    FORWARD(check_stride("sparse_token_ids_stride", tokens, given->sparse_top_k, not_aligned, &given->sparse_token_ids_stride));
    if (given->max_seq_len == 0)
        given->max_seq_len = given->kv_capacity_tokens != 0 ? given->kv_capacity_tokens
                                                            : (int32_t)smaller(given->num_pages * given->page_size, INT32_MAX);
    return LIBDECODE_OK;
}

static libdecode_status check_lengths(libdecode_problem *given) {
    const bool on_host = (given->features & LIBDECODE_FEATURE_HOST_SEQ_LENS) != 0;
    FORWARD(check_stride("seq_lens_request_stride", given->batch_size, 1, not_aligned, &given->seq_lens_request_stride));
    FORWARD(check_stride("seq_lens_head_stride", given->num_kv_heads, 0, not_aligned, &given->seq_lens_head_stride));
    REQUIRE(!on_host || given->seq_lens_request_stride == 1,
            "problem.seq_lens_request_stride is %lld with LIBDECODE_FEATURE_HOST_SEQ_LENS: lengths on the host are copied as one "
            "piece, 1 is accepted, 0 for that",
            (long long)given->seq_lens_request_stride);
    REQUIRE(
        !on_host || given->seq_lens_head_stride == 0 || given->seq_lens_head_stride == given->batch_size,
        "problem.seq_lens_head_stride is %lld with LIBDECODE_FEATURE_HOST_SEQ_LENS and batch_size %d: lengths on the host are "
        "copied as one piece, 0 (one for all KV heads) and batch_size are accepted",
        (long long)given->seq_lens_head_stride, given->batch_size);
    return LIBDECODE_OK;
}

/* Of a request: what its row of the page table has room for, or its capacity. */
static int32_t max_tokens(const libdecode_problem *given) {
    if (given->kv_capacity_tokens != 0)
        return given->kv_capacity_tokens;
    if (problem_is_sparse(given)) /* of which sparse_top_k at most are counted */
        return INT32_MAX;
    return (int32_t)smaller(smaller(page_table_width(given), INT32_MAX) * given->page_size, PROBLEM_MAX_TOKENS);
}

/* Kernels compute them in 32 bits: those of all tokens that there is room for, since max_seq_len is but a hint. */
static libdecode_status check_positions(libdecode_problem *given) {
    if (given->position_stride == 0)
        given->position_stride = 1;
    const int32_t tokens = max_tokens(given), most = (INT32_MAX - given->position_offset) / given->position_stride;
    REQUIRE(tokens - 1 <= most,
            "problem.position_stride is %d and position_offset %d with room for %d tokens of a request: positions must be less "
            "than 2^31, so at most %d tokens are accepted, which kv_capacity_tokens may say",
            given->position_stride, given->position_offset, tokens, most + 1);
    return LIBDECODE_OK;
}

libdecode_status problem_read(const libdecode_problem *problem, libdecode_problem *ret_problem) {
    REQUIRE(problem != NULL, "problem is NULL: give a libdecode_problem");
    return read_caller_struct(ret_problem, sizeof *ret_problem, problem, PROBLEM_MINIMUM_BYTES, "libdecode_problem");
}

/* Read for one token and KV head: rows of K and V, with the scales of NVFP4. */
static int64_t token_bytes(const libdecode_problem *given) {
    const int64_t scales = given->kv_dtype == LIBDECODE_DTYPE_NVFP4 ? given->head_dim / 16 : 0;
    return k_row_bytes(given) + (is_mla(given) ? 0 : (int64_t)element_bytes(given->kv_dtype, given->v_head_dim) + 2 * scales);
}

#define TWO_PI 6.283185307179586476925

static void derive_rope(struct problem *problem) {
    const libdecode_problem *given = &problem->given;
    if ((given->features & LIBDECODE_FEATURE_ROPE) == 0)
        return;
    problem->rope_frequency = 1.0 / (TWO_PI * (double)given->rope_scale);
    problem->rope_ratio = pow((double)given->rope_theta, -2.0 / (double)problem->qk_dim);
}

/* What follows from a problem whose every field is explicit. */
static void derive(struct problem *problem) {
    const libdecode_problem *given = &problem->given;
    int64_t most_tokens = (int64_t)given->batch_size * given->max_seq_len;
    problem->pointers = operation_pointers(problem->operation, given);
    problem->group_size = given->num_qo_heads / given->num_kv_heads;
    problem->heads_per_sequence = given->seq_lens_head_stride != 0 ? 1 : given->num_kv_heads;
    problem->qk_dim = given->head_dim;
    problem->v_dim = given->v_head_dim;
    problem->query_dim = (given->features & LIBDECODE_FEATURE_QUERY_ROPE) != 0 ? given->v_head_dim : given->head_dim;
    derive_rope(problem);
    problem->kv_token_bytes = token_bytes(given);
    problem->page_table_width = page_table_width(given);
    problem->max_tokens = max_tokens(given);
    problem->needs_out_offsets = (given->features & LIBDECODE_FEATURE_QUERY_OFFSETS) != 0 &&
                                 rows_overlap(given->v_head_dim, given->out_head_stride, given->num_qo_heads,
                                              given->out_token_stride, all_query_tokens(given));
    if ((given->features & LIBDECODE_FEATURE_HOST_SEQ_LENS) != 0)
        problem->host_lens_bytes =
            (int64_t)given->batch_size * (given->seq_lens_head_stride != 0 ? given->num_kv_heads : 1) * (int64_t)sizeof(int32_t);
    problem->planned_kv_tokens = given->total_kv_tokens != 0 ? smaller(given->total_kv_tokens, most_tokens) : most_tokens;
}

libdecode_status problem_check(const libdecode_problem *problem, struct problem *ret_problem) {
    struct problem checked;
    memset(&checked, 0, sizeof checked);
    libdecode_problem *given = &checked.given;
    FORWARD(problem_read(problem, given));
    FORWARD(operation_find(given->op, &checked.operation));
    given->op = checked.operation->op;
    FORWARD(operation_check_fields(checked.operation, given));
    FORWARD(check_shape(given));
    FORWARD(check_dtypes(given));
    FORWARD(check_features(given));
    FORWARD(check_sparse(given));
    if (problem_is_contiguous(given))
        describe_as_pages(given);
    FORWARD(check_layouts(given));
    FORWARD(check_row_strides(given));
    FORWARD(check_kv(given));
    FORWARD(check_kv_scales(given));
    if (problem_is_sparse(given))
        FORWARD(check_token_ids(given));
    else if (!problem_is_contiguous(given))
        FORWARD(check_page_table(given));
    FORWARD(check_lengths(given));
    FORWARD(check_positions(given));
    derive(&checked);
    *ret_problem = checked;
    return LIBDECODE_OK;
}
