/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What host and device agree on: the launch contract that every kernel exports, and the parameter block of each family.
 * The one file of kernels/ that the loader and gen/pack.c include; plain C17 and CUDA C++.
 * Whoever changes a struct here raises LIBDECODE_KERNEL_ABI: bundles made before are then refused by name.
 */
#ifndef LIBDECODE_KERNELS_ABI_H
#define LIBDECODE_KERNELS_ABI_H

#include <stdint.h>

#define LIBDECODE_KERNEL_ABI 17u
#define LIBDECODE_CONTRACT_MAGIC 0x4345444cu  /* "LDEC" */
#define LIBDECODE_CONTRACT_SUFFIX "_contract" /* symbol of a kernel's contract = kernel symbol + this */

#ifdef __cplusplus
#define LIBDECODE_ALIGNAS(n) alignas(n)
#else
#define LIBDECODE_ALIGNAS(n) _Alignas(n)
#endif

/* Element types as kernels see them; the numbers of libdecode_dtype in libdecode.h. */
enum {
    KERNEL_DTYPE_BF16 = 1,
    KERNEL_DTYPE_FP16 = 2,
    KERNEL_DTYPE_E4M3 = 3,
    KERNEL_DTYPE_NVFP4 = 4,
    KERNEL_DTYPE_FP32 = 5,
    KERNEL_DTYPE_E5M2 = 6
};

/* How a latent row of MLA lies in memory: LIBDECODE_KV_ROW_* of libdecode.h. */
enum {
    KERNEL_KV_ROW_PLAIN = 0,
    KERNEL_KV_ROW_SCALED656 = 1, /* 512 e4m3, 4 float32 scales of 128 each, 64 bf16 */
    KERNEL_KV_ROW_NVFP352 =
        2 /* 512 e2m1, 64 e4m3, 32 e4m3 scales of 16 each: that of block b is byte 8 (b % 4) + b / 4 of them */
};

/* Numbers are permanent: they stand in bundles. */
enum {
    KERNEL_FAMILY_GQA_DECODE = 1,
    KERNEL_FAMILY_READ_CEILING = 2,
    KERNEL_FAMILY_MERGE_STATES = 3,
    KERNEL_FAMILY_MLA_DECODE = 4,
    KERNEL_FAMILY_SPARSE_MLA_DECODE = 5,
    KERNEL_FAMILY_LATE_COPY = 8,
    KERNEL_FAMILY_PAGE_CEILING = 9
};

/* LIBDECODE_FEATURE_* of libdecode.h, which devices do not include; axis.c asserts that the two agree. */
enum {
    CONTRACT_FEATURE_WINDOW = 1u << 0,
    CONTRACT_FEATURE_SINKS = 1u << 1,
    CONTRACT_FEATURE_LSE = 1u << 2,
    CONTRACT_FEATURE_RAGGED_Q = 1u << 3,
    CONTRACT_FEATURE_DRAFT_MASK = 1u << 4,
    CONTRACT_FEATURE_V_PAGE_TABLE = 1u << 5,
    CONTRACT_FEATURE_QUERY_POSITIONS = 1u << 6,
    CONTRACT_FEATURE_SKIP_SOFTMAX = 1u << 7, /* dense is always allowed */
    CONTRACT_FEATURE_SOFT_CAP = 1u << 8,
    CONTRACT_FEATURE_ALIBI = 1u << 9,
    CONTRACT_FEATURE_ROPE = 1u << 10,
    CONTRACT_FEATURE_LSE_NATURAL = 1u << 11,
    CONTRACT_FEATURE_BATCH_INVARIANT = 1u << 12,
    CONTRACT_FEATURE_CONTIGUOUS_KV = 1u << 13,
    CONTRACT_FEATURE_QUERY_ROPE = 1u << 14, /* the query in two tensors */
    CONTRACT_FEATURE_SPARSE_TOP_K_LENS = 1u << 15,
    CONTRACT_FEATURE_QUERY_OFFSETS = 1u << 17, /* of query and out */
    CONTRACT_FEATURE_KV_OFFSETS = 1u << 18,
    CONTRACT_FEATURE_LSE_WITHOUT_SINK = 1u << 19,
    CONTRACT_FEATURE_LSE_EMPTY_INFINITY = 1u << 20,
    CONTRACT_FEATURE_LSE_ALIBI_FROM_ZERO = 1u << 21
};

/* What every kernel that decodes can say as its lse. */
enum {
    CONTRACT_LSE = CONTRACT_FEATURE_LSE | CONTRACT_FEATURE_LSE_NATURAL | CONTRACT_FEATURE_LSE_WITHOUT_SINK |
                   CONTRACT_FEATURE_LSE_EMPTY_INFINITY
};

/* What takes time of those who do not ask for it: kernels are built with all of these, with some, or with none. */
enum {
    CONTRACT_OPTIONS = CONTRACT_FEATURE_SKIP_SOFTMAX | CONTRACT_FEATURE_SOFT_CAP | CONTRACT_FEATURE_ALIBI |
                       CONTRACT_FEATURE_LSE_ALIBI_FROM_ZERO | CONTRACT_FEATURE_ROPE
};

/* Likewise, what says request by request where tensors lie. */
enum { CONTRACT_OFFSETS = CONTRACT_FEATURE_QUERY_OFFSETS | CONTRACT_FEATURE_KV_OFFSETS };

/* Query tokens of a request with a draft mask: a row's bits are kept in 64. */
enum { KERNEL_MAX_DRAFT_TOKENS = 64 };

/*
 * Chunks of a unit, where it is cut at places of its own: a lane of a warp for each; and of kernels that leave their parts in scratch, which are
 * large, as many as there is room for.
 */
enum { KERNEL_MAX_CHUNKS = 32, KERNEL_MAX_CHUNKS_IN_SCRATCH = 8 };

enum {
    CONTRACT_FLAG_MAY_SPILL = 1u << 0,   /* the grid declares, with a reason, that this variant uses local memory */
    CONTRACT_FLAG_ROW_GATHER = 1u << 1,  /* copies single rows: pages of any size, not powers of two only */
    CONTRACT_FLAG_LINE_COPIES = 1u << 2, /* copies a box line by line, each to a place of its own in the tile */
    CONTRACT_FLAG_ANY_ROWS = 1u << 3,    /* with FLAG_ROW_GATHER: rows of K and V may begin at any element */
    CONTRACT_FLAG_ONLY_ROPE = 1u << 4    /* turns query and K by their positions, whatever the launch asks for */
};

/* What the host must know to choose and launch a kernel: stated in the kernel's Traits, lifted from the image by gen/pack.c. */
struct libdecode_launch_contract {
    uint32_t magic;                /* LIBDECODE_CONTRACT_MAGIC */
    uint32_t abi;                  /* LIBDECODE_KERNEL_ABI */
    uint32_t family;               /* KERNEL_FAMILY_* */
    uint32_t parameter_bytes;      /* sizeof the family's parameter block */
    uint32_t threads;              /* per CTA */
    uint32_t dynamic_shared_bytes; /* per CTA */
    uint32_t ctas_per_sm;          /* resident at once, by shared memory and registers */
    uint32_t cluster_size;         /* CTAs that share one worker's pieces; 1: no cluster */
    uint32_t query_dtypes;         /* bit KERNEL_DTYPE_x set: can read it */
    uint32_t kv_dtype;             /* KERNEL_DTYPE_* */
    uint32_t out_dtypes;           /* bit KERNEL_DTYPE_x set: can write it */
    uint32_t head_dim;             /* the widest; narrower rows count as padded with zeros, which no copy reads */
    uint32_t row_tile;             /* query rows (q heads of one KV head x query tokens) computed in one pass over the KV */
    uint32_t tile_tokens;          /* KV tokens a pipeline stage; the unit of splitting */
    uint32_t max_box_tokens; /* KV tokens that count as one: box = min(page_size, this), what one copy brings; with rows: this */
    uint32_t stages;
    uint32_t min_page_size, max_page_size; /* powers of two, unless FLAG_ROW_GATHER */
    uint32_t max_q_len;
    uint32_t features;      /* CONTRACT_FEATURE_* that it computes */
    uint32_t flags;         /* CONTRACT_FLAG_* */
    uint32_t record_bytes;  /* of workspace for each partial result, see `records` */
    uint32_t scratch_bytes; /* likewise, see `scratch`; 0: it has none. Both take as much of a workspace for every cluster size */
    uint32_t consumer_warps; /* of the CTA's warps, those that compute; the others copy and hand out work */
    uint32_t kv_row_format;  /* KERNEL_KV_ROW_* */
    uint32_t reserved[1];
};

/* A CUtensorMap, opaque. */
struct libdecode_tensor_map {
    LIBDECODE_ALIGNAS(64) uint64_t opaque[16];
};

/* For a division on the device by a number that the host knows. */
struct libdecode_divisor {
    uint32_t value;      /* at least 1 */
    uint32_t reciprocal; /* UINT32_MAX / value */
};

/*
 * The sub-structs that the parameter block of every decoding family is made of. Strides count elements.
 * "sequence" = one entry of seq_lens: a request, or one KV head of a request when lengths have a head stride.
 */

/* Of schedule_params.rare: what most launches do without. */
enum {
    SCHEDULE_EXACT_RANGES = 1u << 0, /* positions or the number of its query tokens say what a request sees */
    SCHEDULE_FIXED_CHUNKS = 1u << 1, /* units are cut at places of their own, not where the ranges of workers end */
    /* lengths, page table, query_positions, cum_seq_lens_q and all but the newest q_len rows are final before the kernel ahead ends */
    SCHEDULE_HISTORY_FINAL = 1u << 2,
    SCHEDULE_LETS_NEXT_BEGIN = 1u << 3, /* what is launched behind this one, programmatic, may begin on SMs that it has left */
    /*
     * One sequence; workers are clusters. Of batch decode with as many units as there are workers, of MLA with 32 at most. Without any of
     * SCHEDULE_EXACT_RANGES, _FIXED_CHUNKS and _UNIT_MARGINS.
     */
    SCHEDULE_ONE_REQUEST = 1u << 4,
    SCHEDULE_UNIT_MARGINS = 1u << 5 /* unit_margin_boxes is not 0; for MLA, and without SCHEDULE_FIXED_CHUNKS */
};

/* What is read of every sequence, and how the work is cut. */
struct schedule_params {
    /* What is read before the first copy can start: two lines of 64 bytes. An SM fetches parameters by such lines, and waits. */
    const int32_t *seq_lens;   /* or NULL: every sequence has max_tokens */
    const int32_t *page_table; /* or NULL: page b is all that request b has, and page_size is 1 << 31 */
    int32_t row_passes;        /* ceil(q_len * group_size / row_tile) */
    uint32_t rare;             /* SCHEDULE_* */
    int64_t seq_lens_request_stride, seq_lens_head_stride;
    int64_t page_table_request_stride, page_table_head_stride, page_table_v_offset;
    int32_t batch_size;
    int32_t heads_per_sequence;                     /* KV heads that share an entry of seq_lens: all, or 1 with a head stride */
    struct libdecode_divisor sequences_per_request; /* num_kv_heads / heads_per_sequence */
    struct libdecode_divisor heads_per_worker;      /* heads_per_sequence >> head_shift */
    struct libdecode_divisor num_workers;           /* of every KV head: grid / cluster_size >> head_shift */
    uint32_t min_boxes_per_worker;                  /* at least 1; fewer workers take part when there is less work */
    struct libdecode_divisor page_size;
    int32_t box_tokens;     /* as contract.max_box_tokens says */
    int32_t max_tokens;     /* of a sequence, by the width of the page table or the capacity: longer ones count as this */
    int32_t window_reach;   /* tokens before the newest that the first of q_len query tokens sees, or INT32_MAX */
    int32_t copies_per_box; /* 1, or the kernel's lines of a row */
    int32_t head_shift;     /* workers come in groups of 1 << head_shift, which share every range of work: a KV head each */

    /* Where queries stand, and what each sees. Rows of a unit are the query tokens of a request, and of each its q heads. */
    const int32_t *query_positions;      /* or NULL */
    const int32_t *cum_seq_lens_q;       /* or NULL: every request has q_len query tokens */
    const uint16_t *draft_mask;          /* or NULL; with it q_len is KERNEL_MAX_DRAFT_TOKENS at most */
    struct libdecode_divisor group_size; /* q heads of one KV head */
    struct libdecode_divisor position_stride;
    int32_t q_len;       /* query tokens of a request, at most */
    int32_t window_left; /* in positions; -1: no window */
    int32_t position_offset;
    int32_t row_tile; /* the contract's */

    /* With SCHEDULE_FIXED_CHUNKS: a unit has a chunk for every so many boxes, but no more than max_chunks. */
    uint32_t min_chunk_boxes; /* at least 1 */
    uint32_t max_chunks;      /* 1 to KERNEL_MAX_CHUNKS */

    /*
     * Not 0: sparse. A query token of a request is a sequence of its own, and its tokens are the first columns of its row of ids: with
     * SCHEDULE_EXACT_RANGES as many as this query token sees of the length, but at most top_k, and sequences_per_request is q_len;
     * without, lengths are of query tokens, and requests are such.
     */
    int32_t top_k;

    /* What beginning and ending a piece takes, by half, in boxes of a worker: with SCHEDULE_UNIT_MARGINS. */
    uint32_t unit_margin_boxes;
    const int32_t *top_k_lens; /* with SCHEDULE_EXACT_RANGES, by query token, in place of what lengths say; or NULL */
};

struct query_params {
    const void *rows;
    int64_t token_stride, head_stride;
    const float *bmm1_scale_device;      /* or NULL; natural */
    const float *bmm1_scale_log2_device; /* or NULL; wins */
    const float *alibi_slopes;           /* or NULL */
    float bmm1_scale_log2;               /* bmm1_scale * log2(e) */
    float soft_cap;                      /* of natural logits; 0: none */
    float skip_factor;                   /* skip_softmax_threshold_scale_factor; 0: no tile is passed over */
    int32_t dtype;                       /* KERNEL_DTYPE_* */
    int32_t head_dim;                    /* of query, K, V and out; at most the kernel's */
    int32_t rotates;                     /* not 0: query and K are rotated by their positions */
    double rope_frequency;               /* of the first pair of dims, in revolutions a position */
    double rope_ratio;                   /* of a pair's frequency to that of the pair before it */
};

struct output_params {
    void *rows;
    int64_t token_stride, head_stride;
    float *lse; /* or NULL */
    int64_t lse_token_stride, lse_head_stride;
    const float *sinks;             /* or NULL */
    const float *bmm2_scale_device; /* or NULL */
    float bmm2_scale;
    float lse_factor; /* 1, or ln(2) for base e */

    /* NVFP4: data is two elements a byte, strides count elements; scales lie in 128x4 swizzle. */
    uint8_t *scales;
    float scale_factor;      /* the global factor, out_sf_scale */
    int32_t first_scale_row; /* of token 0 */
    int32_t scale_columns;   /* num_qo_heads * head_dim / 16; the next multiple of 4 are written, the rest as zeros */
    int32_t dtype;           /* KERNEL_DTYPE_* */
    uint32_t lse_features;   /* of the launch: CONTRACT_FEATURE_LSE_* */
};

/* Rows of K or V, or their NVFP4 scales, where a kernel computes addresses itself. Strides in bytes. */
struct row_source {
    const uint8_t *rows;
    int64_t page_stride, head_stride, token_stride;
};

/*
 * GQA decode. A line is 128 bytes of a row, or the whole row where the kernel's rows are shorter; the swizzle is as wide. Tensor maps
 * are 5-D: {elements of a line, tokens of a page, lines, KV heads, pages}, box {a line, box_tokens, lines of the kernel's rows, 1, 1}.
 * Where a row is no whole number of lines: {elements of a row, tokens, 1, KV heads, pages}, box {a line, box_tokens, 1, 1, 1}, a
 * copy for every line of the kernel's rows; outside the tensor come zeros.
 * With FLAG_ROW_GATHER there are no maps: rows come one by one from k_rows and v_rows.
 */
struct gqa_decode_params {
    LIBDECODE_ALIGNAS(64) struct schedule_params schedule;
    struct query_params query;
    struct libdecode_tensor_map k_map, v_map; /* zero with FLAG_ROW_GATHER */
    struct output_params output;
    void *records;                    /* of contract.record_bytes, zero between launches: [CTAs][2], or [CTAs][2][max_chunks] */
    int32_t num_pages;                /* page ids from here on give zero rows, as negative ones do */
    struct row_source k_rows, v_rows; /* FLAG_ROW_GATHER only */
    struct row_source k_scales, v_scales; /* NVFP4 only: head_dim / 16 bytes a token */
    int32_t v_scales_interleaved; /* LIBDECODE_SF_V_INTERLEAVE4: token_stride is head_dim / 16, bytes permuted within 4 tokens */
    int32_t scale_blocks; /* not 0: the NVFP4 scales of a page's tokens lie without a gap, from multiples of 16 bytes on */
    /*
     * Of kernels with offsets only, each or NULL: by request, the element at which its query tokens begin in query and out, and the
     * element from which its pages count in K and V, or where there is no page table its rows.
     */
    const int64_t *query_offsets, *out_offsets, *k_offsets, *v_offsets;
    void *scratch; /* of contract.scratch_bytes beside each record; between launches nobody knows what lies there */
};

/* Merging of states: libdecode_states of libdecode.h, its defaults made explicit. Strides count elements. */
struct merge_states_params {
    const void *partial_out;
    const float *partial_lse;
    const int32_t *state_offsets; /* or NULL: every token has num_states */
    const uint8_t *token_mask;    /* or NULL: all tokens are merged */
    void *out;
    float *lse; /* or NULL */
    int64_t partial_state_stride, partial_token_stride, partial_head_stride;
    int64_t partial_lse_state_stride, partial_lse_token_stride, partial_lse_head_stride;
    int64_t out_token_stride, out_head_stride;
    int64_t lse_token_stride, lse_head_stride;
    struct libdecode_divisor num_heads;
    uint32_t num_rows; /* num_tokens * num_heads */
    int32_t num_states;
    int32_t head_dim;               /* a multiple of 8 */
    int32_t log2_lanes;             /* of a warp, 1 << log2_lanes lanes share a row */
    int32_t dtype, out_dtype;       /* KERNEL_DTYPE_BF16, _FP16 or _FP32 */
    float lse_to_log2, log2_to_lse; /* 1 and 1, or log2(e) and ln(2) where the lse is base e */
};

/*
 * MLA decode. The map is one of struct gqa_decode_params, of rows that are K and, but for their last 64 elements, V; a line is the
 * widest of 128, 64 and 32 bytes that divides the kernel's rows; with FLAG_LINE_COPIES a box has one of them. Where a query token has more heads than rows fit a pass, the schedule
 * may count heads in several groups as if each had a KV head of its own: all read the same rows.
 */
struct mla_decode_params {
    LIBDECODE_ALIGNAS(64) struct schedule_params schedule;
    struct query_params query;
    struct libdecode_tensor_map map;
    struct output_params output;
    void *records; /* as of struct gqa_decode_params */
    void *scratch; /* likewise */
    /* The elements of a query row from query_dim on, where they do not lie behind the others; else query_dim is query.head_dim. */
    const void *query_rope;
    int64_t query_rope_token_stride, query_rope_head_stride;
    int32_t query_dim;
    int32_t v_head_dim; /* of V and out */
};

/* Which rows the query tokens attend to, by physical ids: page * page_size + token of the page. Others than below num_tokens: none. */
struct sparse_params {
    const int32_t *token_ids; /* a row for each query token, of schedule.top_k columns */
    int64_t token_ids_stride;
    struct row_source rows;
    struct libdecode_divisor page_size;
    uint32_t num_tokens; /* of all pages, at most 2^31 */
};

/* Sparse MLA decode: as struct mla_decode_params, with rows gathered one by one. */
struct sparse_mla_decode_params {
    LIBDECODE_ALIGNAS(64) struct schedule_params schedule;
    struct query_params query;
    struct output_params output;
    void *records, *scratch; /* as of struct mla_decode_params */
    const void *query_rope;
    int64_t query_rope_token_stride, query_rope_head_stride;
    int32_t query_dim;
    int32_t v_head_dim;
    struct sparse_params sparse;
};

/* Read ceiling: every CTA streams its share of `bytes` through shared memory by 16 KiB bulk copies. */
struct read_ceiling_params {
    const void *data; /* 16-byte aligned */
    uint64_t bytes;   /* a multiple of 16 KiB */
    uint32_t *sink;   /* one word, never written unless the data is all of one pattern that random data has not */
};

/* Late copy: what was launched behind it may begin at once; `delay_clocks` of an SM later it copies the ranges, one after the other. */
struct late_copy_range {
    const uint8_t *source; /* 16-byte aligned, both */
    uint8_t *destination;
    uint64_t bytes;
};
enum { LATE_COPY_MAX_RANGES = 18 };
struct late_copy_params {
    struct late_copy_range ranges[LATE_COPY_MAX_RANGES];
    uint32_t num_ranges;
    uint32_t delay_clocks;
};

#endif
