/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libdecode_problem.h: what libdecode is given, field by field: a problem (shapes, dtypes, features, no pointers) and the tensors of one launch.
 *
 * A part of libdecode.h, which programs include. What is computed, also at the edges, and the conventions of both stand at its top.
 */
#ifndef LIBDECODE_PUBLIC_PROBLEM_H
#define LIBDECODE_PUBLIC_PROBLEM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum libdecode_dtype {
    LIBDECODE_DTYPE_DEFAULT = 0, /* what the field's comment says */
    LIBDECODE_DTYPE_BF16 = 1,
    LIBDECODE_DTYPE_FP16 = 2,
    LIBDECODE_DTYPE_E4M3 = 3,  /* 8 bits, finite, largest 448 */
    LIBDECODE_DTYPE_NVFP4 = 4, /* e2m1, two to a byte (even element in the low nibble), one e4m3 scale to 16 of head_dim */
    LIBDECODE_DTYPE_FP32 = 5,  /* of partial results only */
    LIBDECODE_DTYPE_E5M2 = 6   /* 8 bits, the upper byte of an fp16: largest 57344, infinities and NaN; of the KV cache only */
} libdecode_dtype;

typedef enum libdecode_op {
    LIBDECODE_OP_BATCH_DECODE = 1, /* GQA/MHA over paged or contiguous KV: batch decode, and single decode as a batch of 1 */
    /*
     * Paged MLA with absorbed weights, what trtllm_batch_decode_with_kv_cache_mla does: one KV head, whose cache has one row for a
     * token, latent elements first and then those of RoPE. That row is the token's K, and its first v_head_dim elements are its V:
     * there is no v_cache. head_dim / v_head_dim is 576 / 512 or 320 / 256, and with
     * sparse_top_k, where query tokens name the rows that they attend to, also 512 / 512.
     */
    LIBDECODE_OP_MLA_DECODE = 2
} libdecode_op;

typedef enum libdecode_kv_layout {
    LIBDECODE_KV_HND = 0, /* a page is [num_kv_heads, page_size, head_dim] */
    LIBDECODE_KV_NHD = 1  /* a page is [page_size, num_kv_heads, head_dim] */
} libdecode_kv_layout;

/* How the NVFP4 scales of V lie in a page and head; those of K are always linear. */
typedef enum libdecode_sf_layout {
    LIBDECODE_SF_LINEAR = 0, /* [page_size, head_dim / 16] */
    /* token t, block s at (t/4)*4*S + s*4 + t%4, S = head_dim / 16: page_size * S scales without a gap, so a page is
     * [num_kv_heads, page_size * S] in either kv_layout; page_size is a multiple of 4 */
    LIBDECODE_SF_V_INTERLEAVE4 = 1
} libdecode_sf_layout;

/* What a row of MLA's KV cache is made of. */
typedef enum libdecode_kv_row_format {
    LIBDECODE_KV_ROW_PLAIN = 0, /* head_dim elements of kv_dtype */
    /* FlashMLA's FP8 rows of 656 bytes: 512 e4m3, 4 float32 scales (of 128 each, below 2^58; as K smaller ones than 2^-60 may count as that, 0 as
     * 0), 64 bf16. As K products are not rounded; as V they may be bf16, as FlashMLA has them. kv_dtype e4m3, head_dim 576; strides count bytes */
    LIBDECODE_KV_ROW_FP8_SCALED_656 = 1,
    /* 352 bytes: 512 e2m1, 64 e4m3, 32 e4m3 scales of 16 e2m1 each; that of block b is number 8 * (b % 4) + b / 4. kv_dtype nvfp4,
     * head_dim 576; strides count elements of half a byte, so a dense row has 704 */
    LIBDECODE_KV_ROW_NVFP4_352 = 2
} libdecode_kv_row_format;

typedef enum libdecode_features {
    LIBDECODE_FEATURE_WINDOW = 1u << 0,   /* window_left applies */
    LIBDECODE_FEATURE_SINKS = 1u << 1,    /* tensors.sinks is given */
    LIBDECODE_FEATURE_LSE = 1u << 2,      /* tensors.lse is written */
    LIBDECODE_FEATURE_RAGGED_Q = 1u << 3, /* tensors.cum_seq_lens_q is given; q_len is the largest */
    /* tensors.draft_mask replaces causality among the last q_len tokens, and kernels exist up to 64 of them */
    LIBDECODE_FEATURE_DRAFT_MASK = 1u << 4,
    LIBDECODE_FEATURE_V_PAGE_TABLE = 1u << 5,     /* V has page ids of its own, page_table_v_offset elements after K's */
    LIBDECODE_FEATURE_QUERY_POSITIONS = 1u << 6,  /* tensors.query_positions is given */
    LIBDECODE_FEATURE_SKIP_SOFTMAX = 1u << 7,     /* skip_softmax_threshold_scale_factor may be applied */
    LIBDECODE_FEATURE_SOFT_CAP = 1u << 8,         /* logits_soft_cap applies */
    LIBDECODE_FEATURE_ALIBI = 1u << 9,            /* tensors.alibi_slopes is given */
    LIBDECODE_FEATURE_ROPE = 1u << 10,            /* query and K are given unrotated; rope_scale and rope_theta apply */
    LIBDECODE_FEATURE_LSE_NATURAL = 1u << 11,     /* with FEATURE_LSE: base e instead of 2 */
    LIBDECODE_FEATURE_BATCH_INVARIANT = 1u << 12, /* the bits of a request's result do not depend on its batch: see libdecode.h */
    /* no pages: request b has kv_capacity_tokens rows of its own, one after the other */
    LIBDECODE_FEATURE_CONTIGUOUS_KV = 1u << 13,
    /* MLA_DECODE: the query comes in two tensors, its first v_head_dim elements and, as tensors.query_rope, the others */
    LIBDECODE_FEATURE_QUERY_ROPE = 1u << 14,
    /* with sparse_top_k: tensors.sparse_top_k_lens is given, and seq_lens is not read */
    LIBDECODE_FEATURE_SPARSE_TOP_K_LENS = 1u << 15,
    /*
     * tensors.seq_lens is host memory: every launch copies the lengths to the workspace before its kernel, asynchronously, and clears
     * them there after it. They lie side by side: seq_lens_request_stride 1, seq_lens_head_stride 0 or batch_size. The memory is the
     * caller's, page-locked (cuMemHostAlloc), and stays as it is until the stream has come to the kernel; of other memory the driver
     * makes a copy first, which may wait for the stream. Not into a stream that is captured, where every replay would read it. Launch
     * flags have no effect, since the copy stands between the kernels.
     */
    LIBDECODE_FEATURE_HOST_SEQ_LENS = 1u << 16,
    /* requests have places of their own: tensors.query_offsets and tensors.out_offsets may be given */
    LIBDECODE_FEATURE_QUERY_OFFSETS = 1u << 17,
    /* likewise tensors.k_offsets and tensors.v_offsets; not with nvfp4 KV, whose scales would have none */
    LIBDECODE_FEATURE_KV_OFFSETS = 1u << 18,
    /* with FEATURE_LSE, which without these is what libdecode.h says: the sink is left out of it, out stays as it is */
    LIBDECODE_FEATURE_LSE_WITHOUT_SINK = 1u << 19,
    /* where nothing is in its sum it is +infinity, not -infinity: FlashMLA's lse is this, LSE_WITHOUT_SINK and LSE_NATURAL. To
     * libdecode_merge_states such a state outweighs all others */
    LIBDECODE_FEATURE_LSE_EMPTY_INFINITY = 1u << 20,
    /* with FEATURE_ALIBI: as if slope * j were added to the logits, not slope * (j - p): slope * p more (in base 2, times log2(e)) */
    LIBDECODE_FEATURE_LSE_ALIBI_FROM_ZERO = 1u << 21
} libdecode_features;

typedef struct libdecode_problem {
    size_t struct_size;
    libdecode_op op;             /* default: LIBDECODE_OP_BATCH_DECODE */
    libdecode_dtype query_dtype; /* bf16, fp16, e4m3; no default */
    libdecode_dtype kv_dtype;    /* the query's (default), e4m3, and not with MLA_DECODE e5m2 or (but for kv_row_format) nvfp4 */
    libdecode_dtype out_dtype;   /* bf16, fp16, e4m3, nvfp4; default: query_dtype */
    uint32_t features;           /* LIBDECODE_FEATURE_* */
    int32_t batch_size;          /* requests; 0: nothing is launched */
    int32_t num_qo_heads;
    int32_t num_kv_heads; /* divides num_qo_heads; MLA_DECODE: 1, and by default */
    /* a multiple of 16 up to 512; kernels exist up to 256 with NVFP4 and e5m2 KV. NVFP4 with FEATURE_ROPE: a multiple of 64.
     * MLA_DECODE: 576 or 320, and with sparse_top_k also 512, whose rows have nothing but V */
    int32_t head_dim;
    int32_t page_size;   /* KV tokens a page: 1 to 1024; powers of two from 16 on are copied whole, others row by row */
    int32_t q_len;       /* query tokens a request; default 1, and kernels exist up to 1024 */
    int32_t max_seq_len; /* a hint for the choice of kernel; default: what the page table or kv_capacity_tokens has room for */
    int32_t window_left; /* with FEATURE_WINDOW: the query's own position and this many before it; >= 0 */
    int32_t position_stride; /* default 1 */
    int32_t position_offset; /* >= 0; positions of all tokens that a request has room for must be less than 2^31 */
    /*
     * With FEATURE_SKIP_SOFTMAX, >= 0; 0: dense. Tokens whose weights lie below factor / S of a larger one before them may count as
     * not seen, S = the sequence's length, and their rows of V are then not read, or read in vain: kernels pass over some tokens of a
     * tile at a time, where no row wants one of them. All that is lost of a row weighs less than `factor` of what is kept. With
     * factor >= S everything counts. libdecode_reference is dense.
     */
    float skip_softmax_threshold_scale_factor;
    /* in the pool: ids outside give zero rows; default (not with sparse_top_k): not known, ids are valid or negative */
    int64_t num_pages;
    libdecode_kv_layout kv_layout;                 /* names the default strides of K and V, nothing else */
    libdecode_sf_layout v_sf_layout;               /* NVFP4 only */
    int64_t query_token_stride, query_head_stride; /* default [tokens, num_qo_heads, head_dim]; FEATURE_QUERY_ROPE: v_head_dim */
    int64_t out_token_stride, out_head_stride;     /* default [tokens, num_qo_heads, v_head_dim] */
    int64_t lse_token_stride, lse_head_stride;     /* default [tokens, num_qo_heads] */
    /*
     * Default: kv_layout, dense over the strides inside; in elements. Multiples of 16 bytes; of BATCH_DECODE also any others, but not
     * with nvfp4, whose rows of a head_dim that is no multiple of 32 need a gap behind them. Kernels of their own serve those, bf16, fp16
     * and e4m3 of head_dim up to 256, and copy rows in pieces of as many bytes as strides allow: the fewer, the slower.
     */
    int64_t k_page_stride, k_head_stride, k_token_stride;
    int64_t v_page_stride, v_head_stride, v_token_stride; /* default: as K's */
    /* NVFP4 scales; default as kv_layout, dense. Multiples of 8 scales (which are bytes) for head_dim 128, of 16 for 256, of 4 for all
     * others, of which those of a head_dim that is no multiple of 64 need a gap behind them: 5 of 80 lie 8 apart, say */
    int64_t k_sf_page_stride, k_sf_head_stride, k_sf_token_stride;
    /* likewise; default: as K's; V_INTERLEAVE4: the token stride is head_dim / 16, by default, the head stride at least page_size times
     * that, which in NHD is the default, and those of heads and pages are multiples as K's */
    int64_t v_sf_page_stride, v_sf_head_stride, v_sf_token_stride;
    /* width of a row; default: max_seq_len / page_size rounded up (one of the two must be given); no default with a head
     * stride or a V offset */
    int64_t page_table_request_stride;
    int64_t page_table_head_stride;  /* 0: all KV heads share the row */
    int64_t page_table_v_offset;     /* with FEATURE_V_PAGE_TABLE: >= 1, n for a table [batch_size, 2, n] */
    int64_t seq_lens_request_stride; /* default 1 */
    int64_t seq_lens_head_stride;    /* 0: all KV heads share the length */
    /* a hint as max_seq_len: the sum of the lengths. Default: not known, all are taken for as long as the longest */
    int64_t total_kv_tokens;
    float logits_soft_cap; /* with FEATURE_SOFT_CAP: > 0; the logit z becomes logits_soft_cap * tanh(z / logits_soft_cap) */
    /*
     * With FEATURE_ROPE, both > 0. Of a row x at position p, with h = head_dim / 2 and for every i < h, where
     * a = p / rope_scale * rope_theta^(-i / h): x[i] becomes x[i] cos a - x[i + h] sin a, and x[i + h] becomes
     * x[i + h] cos a + x[i] sin a. Kernels round what comes out to 16 bits: bf16 with bf16 KV, else fp16.
     */
    float rope_scale; /* default 1 */
    float rope_theta; /* default 10000 */
    /* elements of a row of V and of out; default head_dim, MLA_DECODE: head_dim - 64 (512 of 512); nothing else is accepted */
    int32_t v_head_dim;
    int64_t query_rope_token_stride, query_rope_head_stride; /* default [tokens, num_qo_heads, head_dim - v_head_dim] */
    /*
     * With FEATURE_CONTIGUOUS_KV, 0 to 2^31 - 4096: the KV tokens that each request has room for, any number. The cache is then
     * [batch_size, num_kv_heads, kv_capacity_tokens, head_dim], or in NHD [batch_size, kv_capacity_tokens, num_kv_heads, head_dim]:
     * what is said of a page is so of a request, k_page_stride is its stride, and page_size, num_pages and page_table... stay 0.
     * Rows from a request's length on never influence the result; with a length beyond the capacity none behind it is read. With 0
     * k_cache and v_cache, and their scales, may be NULL.
     * With pages, >= 0: no request has more KV tokens, whatever its length; 0: what its row of the page table has room for, which it
     * may not exceed.
     */
    int32_t kv_capacity_tokens;
    /*
     * MLA_DECODE: 0 for all KV tokens of a request, or sparse: how many token ids each query token has in tensors.sparse_token_ids. A
     * token id says where a row lies, page * page_size + token of the page, whoever's it is. Query token t of request b attends to the
     * rows of the first n ids of its own, n = min(max(S - q_len + t + 1, 0), sparse_top_k), or what tensors.sparse_top_k_lens says;
     * ids below 0, or not below num_pages * page_size (which must be given), count as not seen, and nothing is read for them. An id
     * that comes twice counts twice. There is no page table, nothing that goes by positions (window, draft mask, query positions) and
     * no skip-softmax.
     */
    int32_t sparse_top_k;
    int64_t sparse_token_ids_stride;       /* of a query token's ids; default sparse_top_k */
    libdecode_kv_row_format kv_row_format; /* with sparse_top_k */
    uint32_t reserved;                     /* 0 */
} libdecode_problem;

typedef enum libdecode_launch_flags {
    LIBDECODE_LAUNCH_PROGRAMMATIC = 1u << 0, /* may begin before the preceding kernel ends; reads nothing before it has */
    /*
     * With LAUNCH_PROGRAMMATIC, a promise: seq_lens, page_table, cum_seq_lens_q, query_positions, offsets and all KV rows with their
     * scales, but those of the last q_len tokens of each sequence (problem.q_len, also with FEATURE_RAGGED_Q), were written by what had
     * ended when the preceding kernel began. They are then read before it ends, the other rows after. As without the flag it may write
     * the query, the newest rows, scales on the device, sinks, slopes and masks, and use out, out_sf, lse and the workspace. A broken
     * promise is not found: old values are read. Not all kernels make use of it: with sparse_top_k, whose token ids the preceding kernel
     * may write, and with 64 rows and more in one pass (query tokens times group) that are copied one by one, or beside scales that are,
     * everything is read after it.
     */
    LIBDECODE_LAUNCH_HISTORY_FINAL = 1u << 1
} libdecode_launch_flags;

/*
 * Pointers, for one launch. Device memory for libdecode_plan_launch (but seq_lens with FEATURE_HOST_SEQ_LENS), host memory for
 * libdecode_reference.
 * All KV rows, the query, out and the scales of NVFP4 must be 16-byte aligned: base addresses, and strides of rows (NVFP4 out:
 * strides of 8 bytes, which are 16 elements; scales, and strides of K and V: as libdecode_problem says). With FEATURE_KV_OFFSETS, and
 * where strides of K or V are no multiples of 16 bytes, k_cache and v_cache may be any element's address.
 * tokens = batch_size * q_len, or cum_seq_lens_q[batch_size].
 */
typedef struct libdecode_tensors {
    size_t struct_size;
    const void *query;       /* query_dtype [tokens, num_qo_heads, head_dim], or v_head_dim with FEATURE_QUERY_ROPE */
    const void *k_cache;     /* kv_dtype [pages, num_kv_heads, page_size, head_dim] (or by strides) */
    const void *v_cache;     /* likewise; may lie in the same pool. MLA_DECODE: NULL */
    const void *k_sf, *v_sf; /* NVFP4: e4m3 [pages, num_kv_heads, page_size, head_dim / 16] */
    /* [batch_size, page_table_request_stride]; a negative id gives zero rows; entries past the last live page are never
     * read */
    const int32_t *page_table; /* NULL with FEATURE_CONTIGUOUS_KV, and with sparse_top_k */
    /* [batch_size] KV tokens of each request, the q_len new ones included. With FEATURE_CONTIGUOUS_KV, or with kv_capacity_tokens above 0,
     * it may be NULL: every request has kv_capacity_tokens of them, and no length is read. With FEATURE_SPARSE_TOP_K_LENS it may be NULL, too.
     * With FEATURE_HOST_SEQ_LENS host memory */
    const int32_t *seq_lens;
    void *out; /* out_dtype [tokens, num_qo_heads, v_head_dim] */
    /* NVFP4 out: e4m3 scales, 128x4 swizzle, [round_up(tokens, 128), round_up(num_qo_heads * v_head_dim / 16, 4)] */
    void *out_sf;
    float *lse;                     /* f32 [tokens, num_qo_heads], as FEATURE_LSE_* say */
    const float *sinks;             /* f32 [num_qo_heads], finished natural-log logits */
    const int32_t *cum_seq_lens_q;  /* [batch_size + 1] */
    const int32_t *query_positions; /* [batch_size] position of each request's first query token */
    const uint16_t *draft_mask;     /* [tokens, 2 * ceil(q_len / 32)]: bit c of row t = draft token t sees draft token c */
    /* multiplies the logits (q_scale * k_scale * sm_scale; usually 1/sqrt(head_dim)); default 1 */
    float bmm1_scale;
    float bmm2_scale;                    /* multiplies the result; default 1 */
    float o_scale;                       /* no effect, bmm2_scale already holds 1/o_scale; default 1, 16-bit out requires 1 */
    float out_sf_scale;                  /* NVFP4 out: the global factor; default 1 */
    int32_t out_sf_start_token;          /* NVFP4 out: first row of out_sf; rows are less than 2^31 */
    uint32_t launch_flags;               /* LIBDECODE_LAUNCH_* */
    const float *bmm1_scale_device;      /* if given, read on the device instead of bmm1_scale */
    const float *bmm1_scale_log2_device; /* likewise, already multiplied by log2(e); wins over both */
    const float *bmm2_scale_device;
    /* libdecode_plan_workspace_bytes, 256-byte aligned, initialised once; one for each stream that runs at the same time */
    void *workspace;
    size_t workspace_bytes;
    /* f32 [num_qo_heads]: of a KV token at position j and a query at p, slope * (j - p) is added to the natural-log logit, after
     * the soft cap */
    const float *alibi_slopes;
    const void *query_rope;          /* query_dtype [tokens, num_qo_heads, head_dim - v_head_dim] */
    const int32_t *sparse_token_ids; /* with sparse_top_k: [tokens, sparse_top_k] */
    const int32_t
        *sparse_top_k_lens; /* [tokens]: ids that count of each query token, from 0 (or below) to sparse_top_k (or more) */
    /*
     * With FEATURE_QUERY_OFFSETS, each may be NULL: [batch_size] the element of query, and of out, at which a request's first query
     * token begins, from 0 on and as aligned as strides are; its others follow by the token stride. Rows of lse, out_sf and draft_mask
     * stay where they are. Offsets on the device are not checked: one that is misaligned ends the CUDA context.
     */
    const int64_t *query_offsets, *out_offsets;
    /*
     * With FEATURE_KV_OFFSETS, each may be NULL: [batch_size] an element of k_cache, and of v_cache, any from 0 on: where with
     * FEATURE_CONTIGUOUS_KV a request's rows begin, in place of the request times k_page_stride; and with pages what is added to where
     * those of a request lie.
     */
    const int64_t *k_offsets, *v_offsets;
} libdecode_tensors;

/* ------------------------------------------------------------------------------------------------------- initialisers */

/* `libdecode_problem problem = LIBDECODE_PROBLEM_INIT;`: struct_size set, everything else zero. */
#define LIBDECODE_PROBLEM_INIT LIBDECODE_INIT_(libdecode_problem)
#define LIBDECODE_TENSORS_INIT LIBDECODE_INIT_(libdecode_tensors)

#ifdef __cplusplus
}

extern "C++" template <typename sized_struct>
inline sized_struct libdecode_init_() {
    sized_struct value = sized_struct();
    value.struct_size = sizeof value;
    return value;
}
#define LIBDECODE_INIT_(type) libdecode_init_<type>()
#else
#define LIBDECODE_INIT_(type)                                                                                                    \
    { .struct_size = sizeof(type) }
#endif
#endif
