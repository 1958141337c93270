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
 * and libdecode_decode, which does the last two in one call and remembers the plan. The fields of a problem and of its tensors, and the
 * dtypes, layouts, features and flags that they take, are described in libdecode_problem.h, which this header includes.
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
 * Conventions of this header and of libdecode_problem.h
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

#include "libdecode_problem.h"
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
 * The same operation on host memory in float64: plain and slow, for every dtype, mask and layout of libdecode_problem.h, whether or not a
 * kernel exists. Needs no context, no bundle, no GPU. Device scales are read as host pointers; workspace is not used.
 * Errors: INVALID_ARGUMENT, STRUCT_SIZE, OUT_OF_MEMORY.
 */
LIBDECODE_API libdecode_status libdecode_reference(const libdecode_problem *problem, const libdecode_tensors *tensors);

/* ------------------------------------------------------------------------------------------------------- initialisers */

/* As LIBDECODE_PROBLEM_INIT in libdecode_problem.h: struct_size set, everything else zero. */
#define LIBDECODE_OPEN_OPTIONS_INIT LIBDECODE_INIT_(libdecode_open_options)
#define LIBDECODE_DEVICE_INIT LIBDECODE_INIT_(libdecode_device)
#define LIBDECODE_STATES_INIT LIBDECODE_INIT_(libdecode_states)
#define LIBDECODE_PLAN_INFO_INIT LIBDECODE_INIT_(libdecode_plan_info)
#define LIBDECODE_KERNEL_INFO_INIT LIBDECODE_INIT_(libdecode_kernel_info)
#define LIBDECODE_BUNDLE_INFO_INIT LIBDECODE_INIT_(libdecode_bundle_info)

#ifdef __cplusplus
}
#endif
#endif
