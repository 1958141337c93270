/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sharded_kv.c: one long request whose KV cache is dealt out over the GPUs of a host: rank r of N holds the tokens at positions
 * r, r + N, r + 2 N, ... so that every new token goes to the next rank, and all hold as many.
 *
 *     every rank   attention of the query over its own tokens    libdecode_plan_launch, with the lse
 *     NCCL         all partial results to all ranks              ncclAllGather
 *     every rank   merged to the result                          libdecode_merge_states
 *
 * The three are one CUDA graph on each GPU. A thread drives a GPU here; an engine has a process for each, and nothing changes but the
 * way in which ncclUniqueId gets there. The answer is compared with that of one GPU which holds all tokens, and both are timed.
 *
 *     sharded_kv [TOKENS [GPUS]]      default: 131072 tokens over all GPUs
 *     cc sharded_kv.c $(pkg-config --cflags --libs libdecode) -lcuda -lnccl -lpthread -lm -o sharded_kv
 */
#define _POSIX_C_SOURCE 200809L /* pthread_barrier_t where the compiler keeps to the standard */
#include <cuda.h>
#include <libdecode.h>
#include <math.h>
#include <nccl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A host barrier would leave the other threads waiting: whatever fails ends the program. */
#define CHECK(call, words)                                                                                                       \
    do {                                                                                                                         \
        const int error = (int)(call);                                                                                           \
        if (error != 0) {                                                                                                        \
            (void)fprintf(stderr, #call ": %d %s\n", error, words);                                                              \
            exit(1);                                                                                                             \
        }                                                                                                                        \
    } while (0)
#define CUDA(call) CHECK(call, "")
#define NCCL(call) CHECK(call, ncclGetLastError(NULL))
#define DECODE(call) CHECK(call, libdecode_error_message())

enum { HEADS = 32, KV_HEADS = 8, HEAD_DIM = 128, PAGE_SIZE = 64, MAX_GPUS = 64, STEPS = 50, WARM_STEPS = 5 };
enum { PERIOD = 8192 }; /* tokens after which the data repeats; a power of two, so that every shard's period is whole pages */

typedef uint16_t kv_rows[KV_HEADS][PAGE_SIZE][HEAD_DIM]; /* a page, fp16 */

/* What one rank hands to all: its result and, behind it, the lse. 16-byte aligned, as rows must be. */
struct partial {
    uint16_t out[HEADS][HEAD_DIM];
    float lse[HEADS];
};

/* What the ranks share. */
struct group {
    libdecode_context *decode; /* a context serves every GPU and any number of threads */
    ncclUniqueId id;
    pthread_barrier_t barrier;
    int num_ranks, num_tokens;
    const uint16_t (*tokens)[2][KV_HEADS][HEAD_DIM]; /* [PERIOD]: K and V at every position */
    const uint16_t (*query)[HEAD_DIM];               /* [HEADS] */
};

struct rank {
    struct group *group;
    int number;
    double step_us; /* of a graph, in the mean */
    struct partial result;
};

/* --------------------------------------------------------------------------------------------------------- one rank's GPU */

/* The rank's tensors on its GPU. */
struct shard {
    CUdeviceptr query, k, v, page_table, seq_lens, query_positions, workspace;
    CUdeviceptr partial; /* struct partial, what this rank computes */
    CUdeviceptr all;     /* [num_ranks] of them */
    CUdeviceptr result;  /* struct partial */
    int num_tokens, num_pages;
};

static int shard_tokens(const struct group *group, int rank) {
    return (group->num_tokens - rank + group->num_ranks - 1) / group->num_ranks;
}

static CUdeviceptr allocate(size_t bytes) {
    CUdeviceptr address;
    CUDA(cuMemAlloc(&address, bytes));
    CUDA(cuMemsetD8(address, 0, bytes));
    return address;
}

static CUdeviceptr upload(const void *data, size_t bytes) {
    const CUdeviceptr address = allocate(bytes);
    CUDA(cuMemcpyHtoD(address, data, bytes));
    return address;
}

/* Tensor 0 is K, 1 is V: the pages of one period of this shard, then copies of these. */
static CUdeviceptr make_cache(const struct rank *rank, int tensor, int num_pages) {
    const int num_ranks = rank->group->num_ranks, period_pages = PERIOD / PAGE_SIZE;
    kv_rows *const pages = malloc((size_t)period_pages * sizeof *pages);
    if (pages == NULL)
        exit(1);
    for (int token = 0; token < PERIOD; token++) {
        const int64_t position = (int64_t)token * num_ranks + rank->number;
        for (int head = 0; head < KV_HEADS; head++)
            memcpy(pages[token / PAGE_SIZE][head][token % PAGE_SIZE], rank->group->tokens[position % PERIOD][tensor][head],
                   sizeof pages[0][0][0]);
    }
    const CUdeviceptr cache = allocate((size_t)num_pages * sizeof *pages);
    for (int page = 0; page < num_pages; page += period_pages) {
        const int count = num_pages - page < period_pages ? num_pages - page : period_pages;
        if (page == 0)
            CUDA(cuMemcpyHtoD(cache, pages, (size_t)count * sizeof *pages));
        else
            CUDA(cuMemcpyDtoD(cache + (size_t)page * sizeof *pages, cache, (size_t)count * sizeof *pages));
    }
    free(pages);
    return cache;
}

static void make_shard(const struct rank *rank, struct shard *shard) {
    const struct group *group = rank->group;
    const int32_t last_position = group->num_tokens - 1;
    shard->num_tokens = shard_tokens(group, rank->number);
    shard->num_pages = (shard_tokens(group, 0) + PAGE_SIZE - 1) / PAGE_SIZE;
    int32_t *const page_table = malloc((size_t)shard->num_pages * sizeof *page_table);
    if (page_table == NULL)
        exit(1);
    for (int page = 0; page < shard->num_pages; page++)
        page_table[page] = page;
    shard->query = upload(group->query, sizeof group->query[0] * HEADS);
    shard->k = make_cache(rank, 0, shard->num_pages);
    shard->v = make_cache(rank, 1, shard->num_pages);
    shard->page_table = upload(page_table, (size_t)shard->num_pages * sizeof *page_table);
    shard->seq_lens = upload(&(int32_t){shard->num_tokens}, sizeof(int32_t));
    shard->query_positions = upload(&last_position, sizeof last_position);
    shard->partial = allocate(sizeof(struct partial));
    shard->all = allocate((size_t)group->num_ranks * sizeof(struct partial));
    shard->result = allocate(sizeof(struct partial));
    free(page_table);
}

/* Everything that one decoding step enqueues. */
struct step {
    libdecode_context *decode;
    libdecode_plan *plan;
    libdecode_tensors tensors;
    libdecode_states states;
    const struct shard *shard;
    ncclComm_t communicator; /* NULL: this GPU holds all tokens, and its result is the answer */
    CUstream stream;
};

static void *device_pointer(CUdeviceptr address, size_t offset) { return (void *)(address + offset); }

static void make_step(const struct rank *rank, const struct shard *shard, struct step *step) {
    const struct group *group = rank->group;
    libdecode_problem problem = LIBDECODE_PROBLEM_INIT;
    problem.query_dtype = LIBDECODE_DTYPE_FP16;
    problem.features = LIBDECODE_FEATURE_LSE | LIBDECODE_FEATURE_QUERY_POSITIONS;
    problem.batch_size = 1;
    problem.num_qo_heads = HEADS;
    problem.num_kv_heads = KV_HEADS;
    problem.head_dim = HEAD_DIM;
    problem.page_size = PAGE_SIZE;
    problem.num_pages = shard->num_pages;
    problem.max_seq_len = shard_tokens(group, 0);
    problem.position_stride = group->num_ranks;
    problem.position_offset = rank->number;
    DECODE(libdecode_plan_create(group->decode, &problem, NULL, &step->plan));

    const size_t workspace_bytes = libdecode_plan_workspace_bytes(step->plan);
    const CUdeviceptr workspace = allocate(workspace_bytes);
    DECODE(libdecode_workspace_init(group->decode, device_pointer(workspace, 0), workspace_bytes, step->stream));
    step->tensors = (libdecode_tensors){.struct_size = sizeof step->tensors,
                                        .query = device_pointer(shard->query, 0),
                                        .k_cache = device_pointer(shard->k, 0),
                                        .v_cache = device_pointer(shard->v, 0),
                                        .page_table = device_pointer(shard->page_table, 0),
                                        .seq_lens = device_pointer(shard->seq_lens, 0),
                                        .query_positions = device_pointer(shard->query_positions, 0),
                                        .out = device_pointer(shard->partial, offsetof(struct partial, out)),
                                        .lse = device_pointer(shard->partial, offsetof(struct partial, lse)),
                                        .workspace = device_pointer(workspace, 0),
                                        .workspace_bytes = workspace_bytes,
                                        .bmm1_scale = 1.0f / sqrtf(HEAD_DIM)};
    /* A state is what a rank has sent, its lse behind its rows. */
    step->states = (libdecode_states){.struct_size = sizeof step->states,
                                      .dtype = LIBDECODE_DTYPE_FP16,
                                      .num_states = group->num_ranks,
                                      .num_heads = HEADS,
                                      .head_dim = HEAD_DIM,
                                      .partial_out = device_pointer(shard->all, offsetof(struct partial, out)),
                                      .partial_lse = device_pointer(shard->all, offsetof(struct partial, lse)),
                                      .partial_state_stride = sizeof(struct partial) / sizeof(uint16_t),
                                      .partial_lse_state_stride = sizeof(struct partial) / sizeof(float),
                                      .out = device_pointer(shard->result, offsetof(struct partial, out)),
                                      .lse = device_pointer(shard->result, offsetof(struct partial, lse))};
    /* Both kernels are loaded before anything is captured: with no token, merging does no more. */
    DECODE(libdecode_prepare(group->decode, &step->plan, 1));
    DECODE(libdecode_merge_states(group->decode, &step->states, step->stream));
    step->states.num_tokens = 1;
    step->decode = group->decode;
    step->shard = shard;
}

static void enqueue(const struct step *step) {
    DECODE(libdecode_plan_launch(step->plan, &step->tensors, step->stream));
    if (step->communicator == NULL)
        return;
    NCCL(ncclAllGather(device_pointer(step->shard->partial, 0), device_pointer(step->shard->all, 0), sizeof(struct partial),
                       ncclUint8, step->communicator, step->stream));
    DECODE(libdecode_merge_states(step->decode, &step->states, step->stream));
}

static CUgraphExec capture(const struct step *step) {
    CUgraph graph;
    CUgraphExec executable;
    CUDA(cuStreamBeginCapture(step->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    enqueue(step);
    CUDA(cuStreamEndCapture(step->stream, &graph));
    CUDA(cuGraphInstantiate(&executable, graph, 0));
    CUDA(cuGraphDestroy(graph));
    return executable;
}

static double time_steps(CUgraphExec graph, CUstream stream, pthread_barrier_t *barrier) {
    CUevent begin, end;
    float milliseconds;
    CUDA(cuEventCreate(&begin, 0));
    CUDA(cuEventCreate(&end, 0));
    for (int i = 0; i < WARM_STEPS; i++)
        CUDA(cuGraphLaunch(graph, stream));
    CUDA(cuStreamSynchronize(stream));
    pthread_barrier_wait(barrier);
    CUDA(cuEventRecord(begin, stream));
    for (int i = 0; i < STEPS; i++)
        CUDA(cuGraphLaunch(graph, stream));
    CUDA(cuEventRecord(end, stream));
    CUDA(cuStreamSynchronize(stream));
    CUDA(cuEventElapsedTime(&milliseconds, begin, end));
    CUDA(cuEventDestroy(begin));
    CUDA(cuEventDestroy(end));
    return (double)milliseconds * 1e3 / STEPS;
}

static void *run_rank(void *argument) {
    struct rank *rank = argument;
    struct group *group = rank->group;
    struct shard shard;
    struct step step = {0};
    CUcontext cuda;
    CUDA(cuDevicePrimaryCtxRetain(&cuda, rank->number));
    CUDA(cuCtxSetCurrent(cuda));
    CUDA(cuStreamCreate(&step.stream, CU_STREAM_NON_BLOCKING));
    if (group->num_ranks > 1)
        NCCL(ncclCommInitRank(&step.communicator, group->num_ranks, group->id, rank->number));
    make_shard(rank, &shard);
    make_step(rank, &shard, &step);
    enqueue(&step); /* NCCL connects the GPUs at its first call */
    CUDA(cuStreamSynchronize(step.stream));
    CUgraphExec graph = capture(&step);
    rank->step_us = time_steps(graph, step.stream, &group->barrier);
    CUDA(cuMemcpyDtoH(&rank->result, step.communicator != NULL ? shard.result : shard.partial, sizeof rank->result));

    CUDA(cuGraphExecDestroy(graph));
    libdecode_plan_destroy(step.plan);
    if (step.communicator != NULL)
        NCCL(ncclCommDestroy(step.communicator));
    const CUdeviceptr buffers[] = {
        shard.query,           shard.k,       shard.v,   shard.page_table, shard.seq_lens,
        shard.query_positions, shard.partial, shard.all, shard.result,     (CUdeviceptr)step.tensors.workspace};
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++)
        CUDA(cuMemFree(buffers[i]));
    CUDA(cuStreamDestroy(step.stream));
    CUDA(cuDevicePrimaryCtxRelease(rank->number));
    return NULL;
}

/* ------------------------------------------------------------------------------------------------------------ the comparison */

/* Of a finite fp16. */
static float float_of(uint16_t bits) {
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    const float magnitude = exponent == 0 ? ldexpf((float)fraction, -24) : ldexpf((float)(fraction + 1024), exponent - 25);
    return bits >> 15 != 0 ? -magnitude : magnitude;
}

/* fp16 of either sign, from 2^-4 to just below 2^log2_size. */
static void fill(uint16_t *values, size_t count, int log2_size) {
    static uint32_t seed = 1;
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        const uint32_t exponent = 11 + (seed >> 19) % (uint32_t)(4 + log2_size);
        values[i] = (uint16_t)((seed >> 31) << 15 | exponent << 10 | (seed >> 8 & 1023));
    }
}

static void run(struct group *group, int num_ranks, struct rank *ranks) {
    pthread_t threads[MAX_GPUS];
    group->num_ranks = num_ranks;
    if (num_ranks > 1)
        NCCL(ncclGetUniqueId(&group->id));
    CUDA(pthread_barrier_init(&group->barrier, NULL, (unsigned)num_ranks));
    for (int number = 0; number < num_ranks; number++) {
        ranks[number] = (struct rank){.group = group, .number = number};
        CUDA(pthread_create(&threads[number], NULL, run_rank, &ranks[number]));
    }
    for (int number = 0; number < num_ranks; number++)
        CUDA(pthread_join(threads[number], NULL));
    CUDA(pthread_barrier_destroy(&group->barrier));
}

/* Of `got` beside what one GPU has computed, in units of what fp16 rounds from the largest element. */
static double largest_error(const struct partial *got, const struct partial *expected) {
    double largest = 0, error = 0;
    for (int head = 0; head < HEADS; head++) {
        for (int d = 0; d < HEAD_DIM; d++) {
            const double exact = (double)float_of(expected->out[head][d]);
            largest = fmax(largest, fabs(exact));
            error = fmax(error, fabs((double)float_of(got->out[head][d]) - exact));
        }
        if (!(fabs((double)(got->lse[head] - expected->lse[head])) < 1e-4 * fabs((double)expected->lse[head])))
            return (double)INFINITY;
    }
    return error / (largest * 0x1p-11);
}

int main(int argc, char **argv) {
    static uint16_t tokens[PERIOD][2][KV_HEADS][HEAD_DIM], query[HEADS][HEAD_DIM];
    static struct rank alone[1], together[MAX_GPUS];
    struct group group = {.num_tokens = argc > 1 ? atoi(argv[1]) : 131072, .tokens = tokens, .query = query};
    int num_gpus;
    CUDA(cuInit(0));
    CUDA(cuDeviceGetCount(&num_gpus));
    if (argc > 2)
        num_gpus = atoi(argv[2]);
    if (group.num_tokens < num_gpus || num_gpus < 1 || num_gpus > MAX_GPUS) {
        (void)fprintf(stderr, "usage: sharded_kv [TOKENS [GPUS]], with as many tokens as GPUs at least, and 1 to %d GPUs\n",
                      MAX_GPUS);
        return 2;
    }
    fill(&tokens[0][0][0][0], sizeof tokens / sizeof tokens[0][0][0][0], 0);
    fill(&query[0][0], sizeof query / sizeof query[0][0], 1);
    DECODE(libdecode_open(NULL, &group.decode));
    run(&group, 1, alone);
    printf("%d tokens on 1 GPU: %.1f us a step\n", group.num_tokens, alone[0].step_us);
    int failed = 0;
    if (num_gpus > 1) {
        run(&group, num_gpus, together);
        printf("%d tokens on %d GPUs: %.1f us a step, %.2f times as fast\n", group.num_tokens, num_gpus, together[0].step_us,
               alone[0].step_us / together[0].step_us);
        for (int number = 0; number < num_gpus; number++) {
            const double error = largest_error(&together[number].result, &alone[0].result);
            if (!(error <=
                  4.0)) /* a partial result and the merged one are rounded to fp16, and both kernels round their weights */
                failed = 1, printf("rank %d: off by %.1f roundings of fp16 from the answer of one GPU\n", number, error);
        }
        printf("%s\n", failed ? "the answers differ" : "the same answer on every rank");
    }
    libdecode_close(group.decode);
    return failed;
}
