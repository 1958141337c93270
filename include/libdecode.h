/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libdecode: LLM decode attention with kernels compiled ahead of time.
 *
 * Three steps, each usable alone:
 *
 *     libdecode_open          bundles and policy              -> libdecode_context
 *     libdecode_plan_create   a problem (shapes, no pointers) -> libdecode_plan: the kernel, its workspace, and why
 *     libdecode_plan_launch   tensors and a stream            -> one kernel launch
 *
 * and libdecode_decode, which does the last two in one call and remembers the plan.
 *
 * What is computed, for query token t of request b (S = seq_lens[b], head h reads KV head h / (num_qo_heads / num_kv_heads)):
 *
 *     z_j = bmm1_scale * sum_d q[d] * k_j[d]                for every visible KV token j
 *     out = bmm2_scale * sum_j exp(z_j) v_j / (sum_j exp(z_j) + exp(sink_h))
 *     lse = log2(sum_j exp(z_j) + exp(sink_h))              base 2; LIBDECODE_FEATURE_LSE_* have other conventions
 *
 * Token j lies at position j * position_stride + position_offset; the query token at that of token S - q_len + t (or at
 * query_positions[b] + t). Visible: position(j) <= position(query), and within the window where there is one. No visible
 * token: out = 0 and lse = -infinity (with a sink: the sink). Equal inputs give equal bits.
 *
 * At the edges
 *  - S below 0 counts as 0, S beyond the page table (or kv_capacity_tokens) as all that it has room for: nothing outside is read. There is
 *    room for 2^31 - 4096 tokens of a request at most, however wide the table.
 *  - S < q_len: the first q_len - S query tokens stand before the sequence. They see nothing, whatever a draft mask says (unless
 *    query_positions places them); bit c of the others' mask rows still means draft token c, so those bits are not looked at.
 *  - A sink of +infinity: out = 0, lse = +infinity. Of -infinity: as if there were none.
 *  - KV rows that no query token of the request sees never influence the result: NaN there does not leak. NaN in a row that one
 *    query token sees (a draft token, the edge of its window) may reach the other query tokens of that request. The same goes for
 *    infinities of bf16, fp16 and e5m2. Of V, where they are seen, they make their element of the result infinite or NaN.
 *  - bmm1_scale may have either sign; on the device it may be 0. Logits times log2(e) must lie within float32: beyond, the
 *    result is undefined.
 *
 * Batch invariance: with LIBDECODE_FEATURE_BATCH_INVARIANT the bits of a request's rows of out, out_sf and lse depend on
 *  - what is its own: query rows, KV rows, length, position, the number of its query tokens and their rows of the draft mask;
 *  - what is alike for all: sinks, slopes, scales, and the problem but for the fields named below;
 *  - the kernel, which libdecode_plan_info names with its image. It follows from the problem but for those fields, and from compute
 *    capability, bundles and kernel policy.
 * They do not depend on the other requests, on batch_size, on the request's place, on the hints max_seq_len and total_kv_tokens, on
 * num_pages, on page ids and the width of the page table (but a length beyond it is cut), on strides of query, out and lse, on what
 * offsets say, on the number of SMs, on launch flags, or on what else runs. q_len is not one of these fields: with FEATURE_RAGGED_Q give
 * the same largest number in every launch that is to agree. Units of work are then cut at fixed places, which takes somewhat longer, and
 * a workspace of 16 times the size (32 with four KV heads and fewer, 8 of MLA), and, but for MLA, 744 KiB for each SM beside where that is
 * more than 200 KiB for each. Without the feature equal bits need an equal launch on an equal GPU.
 *
 * Conventions of this header
 *  - A struct that the caller fills starts with struct_size = sizeof(the struct), as LIBDECODE_PROBLEM_INIT and its like set
 *    it in C and in C++; everything else may be left zero, which means the default named at the field. Structs grow by
 *    appending, so old callers keep working. They have no padding; a field named reserved... is 0.
 *  - Strides count elements of the tensor they belong to. 0 means the dense default.
 *  - Every function returns a libdecode_status; what went wrong, where, why and what to do is one line in
 *    libdecode_error_message(). On error nothing is written to any output.
 *  - No function aborts, exits, or prints (unless logging is asked for).
 *  - A context may be used from any number of threads at once. The current CUDA context of the calling thread is the one
 *    that is used; it must be current when a plan is prepared or launched.
 */
#ifndef LIBDECODE_H
#define LIBDECODE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LIBDECODE_VERSION_MAJOR 0
#define LIBDECODE_VERSION_MINOR 1
#define LIBDECODE_VERSION_PATCH 0

#if defined(__GNUC__)
#define LIBDECODE_API __attribute__((visibility("default")))
#else
#define LIBDECODE_API
#endif

/*
 * The driver's CUstream, so that this header needs no CUDA header. NULL is the legacy default stream, also for a caller compiled
 * with per-thread default streams: such a caller passes CU_STREAM_PER_THREAD.
 */
typedef struct CUstream_st *libdecode_stream;

/* ------------------------------------------------------------------------------------------------------------ errors */

/* Numbers are permanent and never reused. The hundreds name the class. */
typedef enum libdecode_status {
    LIBDECODE_OK = 0,
    /* 1xx: the caller's mistake; the message names the argument, its value and what is accepted */
    LIBDECODE_ERROR_INVALID_ARGUMENT = 100,
    LIBDECODE_ERROR_STRUCT_SIZE = 101, /* struct_size is 0, too small, or carries fields this library does not know */
    LIBDECODE_ERROR_WORKSPACE_TOO_SMALL = 102,
    LIBDECODE_ERROR_WRONG_DEVICE = 103, /* the plan was made for another kind of GPU than the current one */
    /* 2xx: no kernel */
    LIBDECODE_ERROR_UNSUPPORTED = 200,   /* no kernel of libdecode does this */
    LIBDECODE_ERROR_NOT_IN_BUNDLE = 201, /* libdecode has such kernels, the bundles at hand do not hold one */
    LIBDECODE_ERROR_NO_GPU_IMAGE = 202,  /* no bundle serves this GPU */
    /* LIBDECODE_KERNEL, kernel_policy: a typo, no match, a forced kernel that cannot do it */
    LIBDECODE_ERROR_OVERRIDE = 203,
    LIBDECODE_ERROR_STRICT = 204, /* only a slower class of kernel is at hand, and strict was asked for */
    /* 3xx: bundles */
    LIBDECODE_ERROR_BUNDLE_NOT_FOUND = 300,
    LIBDECODE_ERROR_BUNDLE_DAMAGED = 301, /* truncated, altered, or incomplete */
    /* made for another version of the format or of the kernel interface, earlier or later: take bundle and library of one release */
    LIBDECODE_ERROR_BUNDLE_VERSION = 302,
    LIBDECODE_ERROR_IO = 303,
    /* 4xx: driver and GPU */
    LIBDECODE_ERROR_NO_DRIVER = 400, /* libcuda.so.1 is absent */
    LIBDECODE_ERROR_DRIVER_TOO_OLD = 401,
    LIBDECODE_ERROR_NO_DEVICE = 402, /* a driver, but no GPU or no current CUDA context */
    LIBDECODE_ERROR_CUDA = 403,      /* a driver call failed: libdecode_error_cuda_result() has its code */
    /* 5xx: state */
    /* a kernel would be loaded inside a stream capture: call libdecode_prepare before */
    LIBDECODE_ERROR_COLD_IN_CAPTURE = 500,
    /* CUDA does not survive fork(): let the process that started it launch, or fork before */
    LIBDECODE_ERROR_FORKED = 501,
    LIBDECODE_ERROR_OUT_OF_MEMORY = 502,
    LIBDECODE_ERROR_INTERNAL = 599 /* a defect of libdecode; please report the message */
} libdecode_status;

/* The enumerator's name, for instance "LIBDECODE_ERROR_NO_DRIVER"; "LIBDECODE_ERROR_?" for a number that is not one. */
LIBDECODE_API const char *libdecode_status_name(libdecode_status status);

/* The last error of the calling thread in one line: what, where, why, remedy. "" if there was none. Valid until the next
 * failing call of this thread. */
LIBDECODE_API const char *libdecode_error_message(void);

/* The CUresult behind the last LIBDECODE_ERROR_CUDA of the calling thread, else 0. */
LIBDECODE_API int libdecode_error_cuda_result(void);

/* "0.1.0" */
LIBDECODE_API const char *libdecode_version(void);

/* ----------------------------------------------------------------------------------------------------------- context */

typedef struct libdecode_context libdecode_context;

typedef enum libdecode_log_level {
    LIBDECODE_LOG_DEFAULT = 0, /* LIBDECODE_LOG, else nothing */
    LIBDECODE_LOG_NONE = 1,
    LIBDECODE_LOG_ERROR = 2, /* a call fails */
    LIBDECODE_LOG_WARN = 3,  /* it works, but not as well as it should */
    LIBDECODE_LOG_INFO = 4,  /* which kernel, once per plan */
    LIBDECODE_LOG_DEBUG = 5  /* and why the others lost */
} libdecode_log_level;

/* Called from any thread; `message` has no newline and dies on return. */
typedef void (*libdecode_log_function)(void *cookie, libdecode_log_level level, const char *message);

/* One bundle in memory. The bytes must stay unchanged until libdecode_close. */
typedef struct libdecode_memory_bundle {
    const void *data;
    size_t bytes;
} libdecode_memory_bundle;

typedef enum libdecode_open_flags {
    LIBDECODE_OPEN_IGNORE_ENVIRONMENT = 1u << 0, /* no LIBDECODE_* variable has any effect */
    /* only the bundles given here: neither embedded nor installed nor environment */
    LIBDECODE_OPEN_BUNDLES_ONLY = 1u << 1,
    /* more passes over the KV cache than the widest row tile of libdecode needs, and a kernel loaded inside a stream
     * capture, are errors */
    LIBDECODE_OPEN_STRICT = 1u << 2
} libdecode_open_flags;

typedef struct libdecode_open_options {
    size_t struct_size;
    uint32_t flags; /* LIBDECODE_OPEN_* */
    libdecode_log_level log_level;
    libdecode_log_function log; /* default: standard error */
    void *log_cookie;
    /* files or folders of *.bundle; later ones overlay earlier ones. A file that cannot be used is an error. In a folder it is
     * passed over with a warning, and named by the error of a problem that nothing else serves; one must be left */
    const char *const *bundle_paths;
    size_t num_bundle_paths;
    const libdecode_memory_bundle *memory_bundles; /* overlay the files */
    size_t num_memory_bundles;
    /* as LIBDECODE_KERNEL, and instead of it: "[op:]force=GLOB,prefer=GLOB,deny=GLOB"; the last item that matches a kernel
     * decides about it */
    const char *kernel_policy;
    const uint8_t (*root_hashes)[32]; /* if given, a bundle whose root hash is not among these cannot be used */
    size_t num_root_hashes;
} libdecode_open_options;

/*
 * Reads the tables of all bundles; touches no GPU, loads no driver. Bundles come, each overlaying the ones before, from:
 * the library itself (built with -Dembed=true) or else the installed folder (pkg-config --variable=bundle_dir libdecode),
 * bundle_paths, memory_bundles, LIBDECODE_BUNDLE_PATH.
 * `options` may be NULL. No bundle at all is not an error here, but of every plan. A bundle of another version (BUNDLE_VERSION)
 * is none that can be used; what a later library put into a bundle of this version, and this one does not know, is not chosen.
 * Environment, read here and never again (not at all in a setuid program, or with LIBDECODE_OPEN_IGNORE_ENVIRONMENT):
 * LIBDECODE_KERNEL, LIBDECODE_BUNDLE_PATH (files and folders with ':' between them), LIBDECODE_BUNDLE_ONLY (1: nothing but
 * that path), LIBDECODE_LOG, LIBDECODE_STRICT.
 * Errors: INVALID_ARGUMENT, STRUCT_SIZE, OVERRIDE (bad or unmatched kernel policy), BUNDLE_*, IO, OUT_OF_MEMORY.
 */
LIBDECODE_API libdecode_status libdecode_open(const libdecode_open_options *options, libdecode_context **ret_context);

/*
 * Unloads every module and frees the context; destroy its plans before. No launch may be in flight then, and no CUDA graph that has
 * captured one may be replayed afterwards: its kernels are gone with the modules. NULL is allowed.
 */
LIBDECODE_API void libdecode_close(libdecode_context *context);

/* ------------------------------------------------------------------------------------------------------------- device */

/* What selection must know of a GPU. May be filled by hand, for a GPU that is not there. */
typedef struct libdecode_device {
    size_t struct_size;
    char name[64];              /* for messages */
    int32_t compute_capability; /* 90, 100, 103, 120, 121 */
    int32_t sm_count;
    int32_t shared_bytes_per_sm;
    int32_t max_shared_bytes_per_block; /* opt-in limit */
    int32_t memory_bandwidth_gbps;      /* sustained read rate, GB/s = 1e9 bytes/s; 0: unknown */
    int32_t driver_version;             /* as cuDriverGetVersion, 13000 = 13.0; 0: not checked */
    /* Clusters of 2, 4, 8, 16 CTAs that are resident at once where a CTA fills an SM; 0: not known; -1: not one is. Fewer than sm_count
     * over their size, since a cluster lies within one part of the GPU. */
    int32_t resident_clusters_2, resident_clusters_4, resident_clusters_8, resident_clusters_16;
} libdecode_device;

/*
 * The device of the calling thread's current CUDA context. The first call on a GPU may load one kernel into that context, to ask the
 * driver how many clusters fit; so may libdecode_plan_create with device NULL, and libdecode_decode_workspace_bytes.
 * Errors: INVALID_ARGUMENT, STRUCT_SIZE, NO_DRIVER, DRIVER_TOO_OLD, NO_DEVICE, CUDA, FORKED, OUT_OF_MEMORY.
 */
LIBDECODE_API libdecode_status libdecode_device_current(libdecode_context *context, libdecode_device *ret_device);

/* Typical facts for "sm_90" (H200), "sm_100" (B200), "sm_103" (B300), "sm_120" (RTX 5090), "sm_121" (DGX Spark), or of a GPU by its
 * name: also "H100", "H100 NVL", "H100 PCIe", "H20", "GH200", "GB200", "GB300", "RTX 5080", "RTX PRO 6000", "GB10".
 * Errors: INVALID_ARGUMENT, STRUCT_SIZE. */
LIBDECODE_API libdecode_status libdecode_device_preset(const char *name, libdecode_device *ret_device);

/* ------------------------------------------------------------------------------------------------------------ problem */

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
    LIBDECODE_FEATURE_BATCH_INVARIANT = 1u << 12, /* the bits of a request's result do not depend on its batch: see the top */
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
    /* with FEATURE_LSE, which without these is what the top says: the sink is left out of it, out stays as it is */
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
    int32_t position_offset; /* >= 0 */
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
     * that, which in NHD is the default, and those of heads and pages are multiples of 4 */
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
     * Rows from a request's length on never influence the result; with a length beyond the capacity none behind it is read.
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
     * promise is not found: old values are read.
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

/* --------------------------------------------------------------------------------------------------------------- plan */

typedef struct libdecode_plan libdecode_plan;

/* Everything that selection decided, and its reasons. Strings live as long as the plan. */
typedef struct libdecode_plan_info {
    size_t struct_size;
    const char *kernel; /* its name, also its symbol: say this in reports */
    const char *bundle; /* where it comes from: a path, "memory" or "embedded" */
    const char *reason; /* one line: why this one */
    uint8_t image_sha256[32];
    int32_t row_passes;   /* times the KV cache is read: 1 unless there are more rows than the kernel's row tile has */
    int32_t workers;      /* CTAs or clusters that share the work */
    int32_t cluster_size; /* CTAs in a cluster; 1: none */
    int32_t predicted_ns; /* of the cost model, at max_seq_len */
    size_t workspace_bytes;
} libdecode_plan_info;

/*
 * Chooses a kernel. No GPU is touched unless `device` is NULL (then: libdecode_device_current).
 * A plan is immutable and may be used by any number of threads; it belongs to its context.
 * Fewer passes over the KV cache win, then pages copied whole, then the narrower row tile, then the kernel with the fewest options, then
 * the predicted time. Passes and tiles do not count with MLA; nor do tiles among those of 32 rows and more, and passes there that each
 * read for less than 3.5 us. The same answer on every host.
 * Errors: INVALID_ARGUMENT, STRUCT_SIZE, UNSUPPORTED, NOT_IN_BUNDLE, NO_GPU_IMAGE, DRIVER_TOO_OLD, OVERRIDE, STRICT,
 * OUT_OF_MEMORY; with device NULL also the other 4xx and FORKED.
 */
LIBDECODE_API libdecode_status libdecode_plan_create(libdecode_context *context, const libdecode_problem *problem,
                                                     const libdecode_device *device, libdecode_plan **ret_plan);

/* NULL is allowed. Launches already enqueued are not affected. */
LIBDECODE_API void libdecode_plan_destroy(libdecode_plan *plan);

LIBDECODE_API libdecode_status libdecode_plan_get_info(const libdecode_plan *plan, libdecode_plan_info *ret_info);

/*
 * Bytes of device memory a launch needs; depends on the plan alone. A larger workspace will do, so one can serve many plans. On an H200 2 MB
 * for most, up to 26 MB for wide heads and many rows, and 29 to 53 MB for MLA and where a pass has 64 rows and more (several query tokens),
 * whose parts lie behind what others keep zero; of batch-invariant MLA up to 100 MB.
 */
LIBDECODE_API size_t libdecode_plan_workspace_bytes(const libdecode_plan *plan);

/*
 * Makes a workspace ready: enqueues a memset of all its bytes (256 at least). Needed once, before its first launch; every
 * launch leaves the workspace ready for the next. A launch must not be given more bytes than were made ready.
 * Errors: INVALID_ARGUMENT, WORKSPACE_TOO_SMALL, 4xx, FORKED.
 */
LIBDECODE_API libdecode_status libdecode_workspace_init(libdecode_context *context, void *workspace, size_t workspace_bytes,
                                                        libdecode_stream stream);

/*
 * Loads what the plans need into the current CUDA context, so that launches find it ready; call it before capturing.
 * Errors: INVALID_ARGUMENT, WRONG_DEVICE, BUNDLE_DAMAGED (an image fails its hash or audit), IO, 4xx, COLD_IN_CAPTURE (a capture has
 * begun already), FORKED, OUT_OF_MEMORY.
 */
LIBDECODE_API libdecode_status libdecode_prepare(libdecode_context *context, libdecode_plan *const *plans, size_t num_plans);

/*
 * Enqueues one kernel; with FEATURE_HOST_SEQ_LENS a copy before it and a memset behind it. After the first launch (or libdecode_prepare)
 * it neither allocates, locks, reads files, logs nor synchronises, and may be captured. Lengths, page table, positions and device scales are read on the device when the
 * kernel runs; the host scalars are those of this call.
 * Errors: INVALID_ARGUMENT, STRUCT_SIZE, WORKSPACE_TOO_SMALL, WRONG_DEVICE, COLD_IN_CAPTURE, 3xx, 4xx, FORKED, OUT_OF_MEMORY.
 */
LIBDECODE_API libdecode_status libdecode_plan_launch(libdecode_plan *plan, const libdecode_tensors *tensors,
                                                     libdecode_stream stream);

/*
 * libdecode_plan_create (for the current device) and libdecode_plan_launch in one; the plan is remembered in the context,
 * so later calls with an equal problem cost a hash and a comparison more than libdecode_plan_launch, and take no lock; they allocate
 * only where more threads are in this call at once than ever before. Both hints are rounded up before, so that a growing batch keeps its
 * plan: max_seq_len to a power of two, where the page table has its width given; total_kv_tokens to a quarter of one. Thousands of
 * problems are remembered; beyond that the plans of CUDA contexts that have ended make room, then the one that was used longest ago.
 * Errors: those of the two.
 */
LIBDECODE_API libdecode_status libdecode_decode(libdecode_context *context, const libdecode_problem *problem,
                                                const libdecode_tensors *tensors, libdecode_stream stream);

/*
 * Workspace that libdecode_decode needs for this problem on the current device. It changes with shapes, the batch among them, and with
 * hints, and may become smaller: for one that serves all of an engine's calls take the largest over all of them.
 * Errors: as libdecode_plan_create.
 */
LIBDECODE_API libdecode_status libdecode_decode_workspace_bytes(libdecode_context *context, const libdecode_problem *problem,
                                                                size_t *ret_bytes);

/* ---------------------------------------------------------------------------------------------------- merging of states */

typedef enum libdecode_merge_flags {
    LIBDECODE_MERGE_LSE_NATURAL = 1u << 0 /* every lse is base e, not base 2 */
} libdecode_merge_flags;

/*
 * Partial results of attention, each over KV tokens that no other one has seen: parts of a KV cache that is spread over several GPUs,
 * or a shared prefix and what follows it. Of every query token and head, over its states s:
 *
 *     w_s = 2^(lse_s - max lse),   out = sum_s w_s out_s / sum_s w_s,   lse = max lse + log2(sum_s w_s)
 *
 * in float32, in the order of the states: equal inputs give equal bits, wherever they lie and whatever else is merged.
 *
 * At the edges: a state of lse -infinity has no part in the result, NaN in its row does not leak; where all are -infinity, or there is
 * no state, out = 0 and lse = -infinity. Beside a state of lse +infinity (an infinite sink) only such states count. A NaN lse gives
 * NaN. A sink belongs to one of the partial results, not to all.
 *
 * Pointers are device memory for libdecode_merge_states, host memory for libdecode_merge_states_reference. Rows must be 16-byte
 * aligned: base addresses, and strides in bytes. Strides count elements; state strides may be negative, so two tensors anywhere are
 * two states whose stride is the difference of their addresses.
 */
typedef struct libdecode_states {
    size_t struct_size;
    libdecode_dtype dtype;     /* of partial_out: bf16, fp16, fp32; no default */
    libdecode_dtype out_dtype; /* bf16, fp16, fp32; default: dtype */
    uint32_t flags;            /* LIBDECODE_MERGE_* */
    uint32_t launch_flags;     /* LIBDECODE_LAUNCH_PROGRAMMATIC */
    int32_t num_states;        /* of every query token, at least 1; 0 with state_offsets */
    int32_t num_tokens;        /* query tokens; num_tokens * num_heads is less than 2^31 */
    int32_t num_heads;
    int32_t head_dim; /* a multiple of 8 up to 1024 */
    const void *
        partial_out; /* dtype [num_tokens, num_states, num_heads, head_dim], or with state_offsets [states, num_heads, head_dim] */
    const float *partial_lse; /* [num_tokens, num_states, num_heads], or with state_offsets [states, num_heads] */
    /* [num_tokens + 1], or NULL: the states of token t are numbers state_offsets[t] to state_offsets[t + 1] - 1 of all */
    const int32_t *state_offsets;
    const uint8_t *token_mask; /* [num_tokens], or NULL: of a token whose byte is 0, out and lse stay as they are */
    /* out_dtype [num_tokens, num_heads, head_dim]; may be where the rows of one state are, with their dtype and strides */
    void *out;
    float *lse; /* f32 [num_tokens, num_heads], or NULL; may be where the lse of that state is, with its strides */
    int64_t partial_state_stride; /* default num_heads * head_dim */
    int64_t partial_token_stride; /* default num_states * num_heads * head_dim; 0 with state_offsets */
    int64_t partial_head_stride;  /* default head_dim */
    int64_t partial_lse_state_stride, partial_lse_token_stride,
        partial_lse_head_stride;               /* default: likewise, of 1 for head_dim */
    int64_t out_token_stride, out_head_stride; /* default [num_tokens, num_heads, head_dim] */
    int64_t lse_token_stride, lse_head_stride; /* default [num_tokens, num_heads] */
} libdecode_states;

/*
 * Enqueues one kernel. The first call in a CUDA context loads it: with num_tokens 0 that is all a call does, so that a later one may
 * be captured. After that it neither allocates, locks, reads files, logs nor synchronises. No plan, no workspace; kernel policies do
 * not concern it.
 * Errors: INVALID_ARGUMENT, STRUCT_SIZE, NOT_IN_BUNDLE, COLD_IN_CAPTURE, 3xx, 4xx, FORKED, OUT_OF_MEMORY.
 */
LIBDECODE_API libdecode_status libdecode_merge_states(libdecode_context *context, const libdecode_states *states,
                                                      libdecode_stream stream);

/* The same on host memory, in float64. Needs no context, no bundle, no GPU. Errors: INVALID_ARGUMENT, STRUCT_SIZE. */
LIBDECODE_API libdecode_status libdecode_merge_states_reference(const libdecode_states *states);

/* ----------------------------------------------------------------------------------------------------- looking inside */

/* One kernel of the bundles at hand. Strings live as long as the context. */
typedef struct libdecode_kernel_info {
    size_t struct_size;
    const char *name;
    const char *bundle;
    libdecode_op op;
    uint32_t query_dtypes; /* bit LIBDECODE_DTYPE_x set: can read it */
    libdecode_dtype kv_dtype;
    int32_t head_dim, row_tile, cluster_size, threads, shared_bytes, registers;
    uint32_t gpus;     /* bit 0: sm_90, 1: sm_100, 2: sm_103, 3: sm_120, 4: sm_121 */
    uint32_t features; /* LIBDECODE_FEATURE_* that it can do; never HOST_SEQ_LENS, which a launch does with any kernel */
    uint32_t reserved0;
    uint64_t image_bytes, compressed_bytes;
    uint8_t image_sha256[32];
} libdecode_kernel_info;

/* Kernels of all bundles, after overlaying, sorted by name. */
LIBDECODE_API size_t libdecode_kernel_count(const libdecode_context *context);
LIBDECODE_API libdecode_status libdecode_kernel_get_info(const libdecode_context *context, size_t index,
                                                         libdecode_kernel_info *ret_info);

/* One bundle of the context, as `doctor` shows it. */
typedef struct libdecode_bundle_info {
    size_t struct_size;
    const char *path; /* or "memory", "embedded" */
    uint32_t gpus;    /* as libdecode_kernel_info.gpus */
    uint32_t num_kernels, num_images;
    uint32_t reserved0;
    uint64_t file_bytes;
    uint8_t root_hash[32];
} libdecode_bundle_info;
LIBDECODE_API size_t libdecode_bundle_count(const libdecode_context *context);
LIBDECODE_API libdecode_status libdecode_bundle_get_info(const libdecode_context *context, size_t index,
                                                         libdecode_bundle_info *ret_info);

/* Decompresses, hashes and audits every image of every bundle; no GPU needed. Errors: BUNDLE_DAMAGED, IO, OUT_OF_MEMORY. */
LIBDECODE_API libdecode_status libdecode_verify(libdecode_context *context);

/* What selection says of one candidate. `reason` dies on return. */
typedef struct libdecode_verdict {
    const char *kernel;
    const char *reason; /* why it was chosen, lost ("predicted 41 us, the choice 37 us"), or cannot do it */
    int32_t eligible;   /* 0: cannot do this problem on this GPU */
    int32_t chosen;
    int32_t predicted_ns; /* 0 if not eligible */
    uint32_t reserved0;
} libdecode_verdict;
typedef void (*libdecode_verdict_function)(void *cookie, const libdecode_verdict *verdict);

/*
 * Reports every kernel of the bundles with its verdict for this problem on this GPU. Pure: needs neither GPU nor driver.
 * Returns what libdecode_plan_create would.
 */
LIBDECODE_API libdecode_status libdecode_explain(libdecode_context *context, const libdecode_problem *problem,
                                                 const libdecode_device *device, libdecode_verdict_function report, void *cookie);

/* ---------------------------------------------------------------------------------------------------------- reference */

/*
 * The same operation on host memory in float64: plain and slow, for every dtype, mask and layout above, whether or not a
 * kernel exists. Needs no context, no bundle, no GPU. Device scales are read as host pointers; workspace is not used.
 * Errors: INVALID_ARGUMENT, STRUCT_SIZE, OUT_OF_MEMORY.
 */
LIBDECODE_API libdecode_status libdecode_reference(const libdecode_problem *problem, const libdecode_tensors *tensors);

/* ------------------------------------------------------------------------------------------------------- initialisers */

/* `libdecode_problem problem = LIBDECODE_PROBLEM_INIT;`: struct_size set, everything else zero. */
#define LIBDECODE_OPEN_OPTIONS_INIT LIBDECODE_INIT_(libdecode_open_options)
#define LIBDECODE_DEVICE_INIT LIBDECODE_INIT_(libdecode_device)
#define LIBDECODE_PROBLEM_INIT LIBDECODE_INIT_(libdecode_problem)
#define LIBDECODE_TENSORS_INIT LIBDECODE_INIT_(libdecode_tensors)
#define LIBDECODE_STATES_INIT LIBDECODE_INIT_(libdecode_states)
#define LIBDECODE_PLAN_INFO_INIT LIBDECODE_INIT_(libdecode_plan_info)
#define LIBDECODE_KERNEL_INFO_INIT LIBDECODE_INIT_(libdecode_kernel_info)
#define LIBDECODE_BUNDLE_INFO_INIT LIBDECODE_INIT_(libdecode_bundle_info)

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
