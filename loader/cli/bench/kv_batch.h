/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_batch.c: a workload in, a batch with a KV cache of any size out, on the host and on the device.
 *
 * Gigabytes of random KV are made of one block of some 32 MB of K and one of V, repeated all over the device's pool: page p of
 * the pool holds the bytes of page p mod block_pages of the block. So the host holds everything there is to know in two
 * blocks, and the reference runs on them with folded page ids.
 * Before: problem_args.c. Next: bench.c and demo.c.
 */
#ifndef LIBDECODE_CLI_KV_BATCH_H
#define LIBDECODE_CLI_KV_BATCH_H

#include "compare.h"
#include "gpu.h"
#include "problem_args.h"

struct kv_batch {
    const struct workload *workload;
    /*
     * The workload's, with the pool's size, every default explicit. Contiguous KV is made as a page for each request, of its capacity and
     * in the order of the requests; launch_problem is the one without the words of pages, and without those of a page table where
     * token ids stand in its place.
     */
    libdecode_problem problem, launch_problem;
    int32_t regions; /* disjoint sets of pages; calls that take turns do not find each other's KV in the L2 cache */
    int64_t num_pages;
    int64_t pages_per_region, shared_pages; /* shared: pages that a request did not need because another one had them */
    int32_t *page_table;                    /* [regions][request][page_table_request_stride] */
    int32_t *folded_table;                  /* the same, ids modulo block_pages */
    int32_t *token_ids, *folded_ids;        /* [regions][query token][sparse_top_k] likewise; NULL where it is not sparse */
    size_t page_bytes;                      /* of K; V has as many */
    size_t scale_page_bytes;                /* of K's NVFP4 scales, likewise; else 0 */
    int32_t block_pages;
    uint8_t *k_block, *v_block;
    uint8_t *k_scale_block, *v_scale_block; /* NVFP4 only */
    uint8_t *query;
    float *sinks;        /* NULL without */
    float *alibi_slopes; /* likewise */
    float bmm1_scale;
};

/* Whether V is a tensor of its own: of MLA it is not. */
bool has_v(const libdecode_problem *problem);

/* With `share_prefixes`, prompt blocks of equal id share their pages (the workload needs a trace). Prints and returns false. */
bool kv_batch_make(const struct workload *workload, bool share_prefixes, int32_t regions, struct kv_batch *ret_batch);
void kv_batch_free(struct kv_batch *batch);

/* As many regions as keep 200 MB between two reads of the same KV, up to 128: below 1.6 MB a call may find some in the L2 cache. */
int32_t kv_batch_regions(uint64_t kv_bytes);

/* What the reference takes: requests [first, first + count) of one region; of contiguous KV one request at a time. */
struct kv_part {
    libdecode_problem problem;
    libdecode_tensors tensors; /* out, out_sf and lse are not set */
};
void kv_batch_part(const struct kv_batch *batch, int32_t region, int32_t first, int32_t count, struct kv_part *ret_part);
bool kv_batch_expect(const struct kv_batch *batch, int32_t region, int32_t first, int32_t count, const char *label,
                     struct expectation *ret_expectation);

/* The batch in device memory. */
struct device_batch {
    const struct kv_batch *batch;
    uint64_t pool; /* K's pages, V's, then the scales of both; at least `pool_bytes` */
    size_t pool_bytes;
    uint64_t page_table, token_ids, seq_lens, query, out, out_sf, lse, sinks, alibi_slopes, workspace;
    size_t out_bytes, out_sf_bytes, lse_bytes, workspace_bytes;
};
bool device_batch_make(struct gpu *gpu, const struct kv_batch *batch, struct device_batch *ret_device);
void device_batch_free(struct gpu *gpu, struct device_batch *device);
/* Room for this plan's workspace, made ready. */
bool device_batch_workspace(struct gpu *gpu, struct device_batch *device, libdecode_context *context, const libdecode_plan *plan,
                            libdecode_stream stream);
/* What libdecode_plan_launch takes. */
libdecode_tensors device_batch_tensors(const struct device_batch *device, int32_t region);

/* How far a result lies from the float64 reference, over the root mean square of the result. */
struct accuracy {
    double largest_error, rms_error;
};

/*
 * Reads the result back: every element must be finite, and requests [first, first + count) must agree with the reference on
 * `region`. Prints what is wrong and returns false. `ret_accuracy` is of these requests, and may be NULL.
 */
bool device_batch_check(struct gpu *gpu, const struct device_batch *device, int32_t region, int32_t first, int32_t count,
                        const struct expectation *expectation, struct accuracy *ret_accuracy);

#endif
