/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What host and device agree on: the launch contract that every kernel exports, and the parameter block of each family.
 * The one file of kernels/ that the loader and gen/pack.c include; plain C17 and CUDA C++.
 * Whoever changes a struct here raises LIBDECODE_KERNEL_ABI: bundles made before are then refused by name.
 */
#ifndef LIBDECODE_KERNELS_ABI_H
#define LIBDECODE_KERNELS_ABI_H

#include <stdint.h>

#define LIBDECODE_KERNEL_ABI 1u
#define LIBDECODE_CONTRACT_MAGIC 0x4345444cu /* "LDEC" */
#define LIBDECODE_CONTRACT_SUFFIX "_contract" /* symbol of a kernel's contract = kernel symbol + this */

#ifdef __cplusplus
#define LIBDECODE_ALIGNAS(n) alignas(n)
#else
#define LIBDECODE_ALIGNAS(n) _Alignas(n)
#endif

/* Element types as kernels see them; the numbers of libdecode_dtype in libdecode.h. */
enum { KERNEL_DTYPE_BF16 = 1, KERNEL_DTYPE_FP16 = 2, KERNEL_DTYPE_E4M3 = 3, KERNEL_DTYPE_NVFP4 = 4 };

/* Numbers are permanent: they stand in bundles. */
enum { KERNEL_FAMILY_GQA_DECODE = 1, KERNEL_FAMILY_READ_CEILING = 2 };

/* LIBDECODE_FEATURE_* of libdecode.h, which devices do not include; select.c asserts that the two agree. */
enum {
    CONTRACT_FEATURE_WINDOW = 1u << 0,
    CONTRACT_FEATURE_SINKS = 1u << 1,
    CONTRACT_FEATURE_LSE = 1u << 2,
    CONTRACT_FEATURE_V_PAGE_TABLE = 1u << 5,
    CONTRACT_FEATURE_QUERY_POSITIONS = 1u << 6,
    CONTRACT_FEATURE_SKIP_SOFTMAX = 1u << 7 /* dense is always allowed */
};

enum {
    CONTRACT_FLAG_MAY_SPILL = 1u << 0 /* the grid declares, with a reason, that this variant uses local memory */
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
    uint32_t query_dtype;          /* KERNEL_DTYPE_* */
    uint32_t kv_dtype;
    uint32_t out_dtypes;           /* bit KERNEL_DTYPE_x set: can write it */
    uint32_t head_dim;
    uint32_t row_tile;             /* query rows (q heads of one KV head x query tokens) computed in one pass over the KV */
    uint32_t tile_tokens;          /* KV tokens a pipeline stage; the unit of splitting */
    uint32_t max_box_tokens;       /* KV tokens of one page that one copy brings, at most: box = min(page_size, this) */
    uint32_t stages;
    uint32_t min_page_size, max_page_size; /* powers of two */
    uint32_t max_q_len;
    uint32_t features;             /* CONTRACT_FEATURE_* that it computes */
    uint32_t flags;                /* CONTRACT_FLAG_* */
    uint32_t reserved[3];
};

/* A CUtensorMap, opaque. */
struct libdecode_tensor_map {
    LIBDECODE_ALIGNAS(64) uint64_t opaque[16];
};

/*
 * GQA decode. Tensor maps are 5-D: {64 elements, tokens of a page, head_dim / 64, KV heads, pages}, box
 * {64, box_tokens, head_dim / 64, 1, 1}, 128-byte swizzle. Strides count elements. "sequence" = one entry of seq_lens.
 */
struct gqa_decode_params {
    struct libdecode_tensor_map k_map, v_map;
    const void *query;
    void *out;
    float *lse;                          /* or NULL */
    const float *sinks;                  /* or NULL */
    const int32_t *seq_lens;
    const int32_t *page_table;
    const int32_t *query_positions;      /* or NULL */
    const float *bmm1_scale_device;      /* or NULL; natural */
    const float *bmm1_scale_log2_device; /* or NULL; wins */
    const float *bmm2_scale_device;      /* or NULL */
    uint32_t *counters;                  /* zero before and after every launch: num_workers * cluster_size of them */
    float *partials;                     /* [num_workers * cluster_size][2][partial record] */
    int64_t query_token_stride, query_head_stride;
    int64_t out_token_stride, out_head_stride;
    int64_t lse_token_stride, lse_head_stride;
    int64_t page_table_request_stride, page_table_head_stride, page_table_v_offset;
    int64_t seq_lens_request_stride, seq_lens_head_stride;
    float bmm1_scale_log2;               /* bmm1_scale * log2(e) */
    float bmm2_scale;
    int32_t batch_size;
    int32_t num_kv_heads;
    int32_t group_size;                  /* q heads of one KV head */
    int32_t row_groups;                  /* ceil(group_size / row_tile) */
    int32_t heads_per_sequence;          /* KV heads that share one entry of seq_lens: num_kv_heads, or 1 with a head stride */
    int32_t sequences_per_request;       /* num_kv_heads / heads_per_sequence */
    int32_t page_size;
    int32_t box_tokens;                  /* min(page_size, contract.max_box_tokens) */
    int32_t window_left;                 /* -1: no window */
    int32_t position_stride, position_offset;
    int32_t out_dtype;                   /* KERNEL_DTYPE_* */
    int32_t num_workers;                 /* clusters launched: grid / cluster_size */
    uint32_t min_boxes_per_worker;       /* at least 1; fewer workers take part when there is less work */
};

/* Read ceiling: every CTA streams its share of `bytes` through shared memory by 16 KiB bulk copies. */
struct read_ceiling_params {
    const void *data;  /* 16-byte aligned */
    uint64_t bytes;    /* a multiple of 16 KiB */
    uint32_t *sink;    /* one word, never written unless the data is all of one pattern that random data has not */
};

/* Floats of one partial record: [row_tile][head_dim / cluster_size] unnormalised output, then [row_tile][2] maximum and sum. */
#define GQA_PARTIAL_FLOATS(row_tile, head_dim, cluster_size) ((row_tile) * ((head_dim) / (cluster_size) + 2))

#endif
