/* SPDX-License-Identifier: Apache-2.0 */
/* decode_batch.c: the README's program: two requests in pages of 16 tokens in, their attention by one kernel out. */
#include <cuda.h>
#include <libdecode.h>
#include <stdio.h>
#define CHECK(call)                                                                                                              \
    do                                                                                                                           \
        if ((error = (int)(call)))                                                                                               \
            return fprintf(stderr, #call ": %d %s\n", error, libdecode_error_message()), 1;                                      \
    while (0)
enum { BATCH = 2, HEADS = 32, KV_HEADS = 8, HEAD_DIM = 128, PAIRS = HEAD_DIM / 2, PAGES = 16, PAGE_SIZE = 16, MAX_LEN = 128 };
union pair { /* two neighbours; where the first is 0, value is the second */
    uint16_t bf16[2];
    float value;
};
static struct batch { /* Q and K are zero: all tokens of a request weigh the same */
    _Alignas(256) union pair query[BATCH][HEADS][PAIRS], out[BATCH][HEADS][PAIRS], kv[2][PAGES][KV_HEADS][PAGE_SIZE][PAIRS];
    int32_t page_table[BATCH][MAX_LEN / PAGE_SIZE], seq_lens[BATCH];
} host = {.page_table = {{3, 1, 4, 15, 9, 2, 6}, {5, 8, 0}}, .seq_lens = {100, 37}};

int main(void) {
    for (int request = 0; request < BATCH; request++) /* one element of V in token t is t */
        for (int token = 0; token < host.seq_lens[request]; token++)
            host.kv[1][host.page_table[request][token / PAGE_SIZE]][0][token % PAGE_SIZE][0].value = (float)token;
    CUcontext cuda;
    CUdeviceptr memory;
    libdecode_context *decode;
    size_t workspace_bytes;
    int error;
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&cuda, 0));
    CHECK(cuCtxSetCurrent(cuda));
    CHECK(libdecode_open(NULL, &decode));
    const libdecode_problem problem = {.struct_size = sizeof problem,
                                       .query_dtype = LIBDECODE_DTYPE_BF16,
                                       .batch_size = BATCH,
                                       .num_qo_heads = HEADS,
                                       .num_kv_heads = KV_HEADS,
                                       .head_dim = HEAD_DIM,
                                       .page_size = PAGE_SIZE,
                                       .max_seq_len = MAX_LEN};
    CHECK(libdecode_decode_workspace_bytes(decode, &problem, &workspace_bytes));
    CHECK(cuMemAlloc(&memory, sizeof host + workspace_bytes));
    CHECK(cuMemcpyHtoD(memory, &host, sizeof host));
    struct batch *gpu = (void *)memory;
    const libdecode_tensors tensors = {.struct_size = sizeof tensors,
                                       .query = gpu->query,
                                       .out = gpu->out,
                                       .k_cache = gpu->kv[0],
                                       .v_cache = gpu->kv[1],
                                       .page_table = gpu->page_table[0],
                                       .seq_lens = gpu->seq_lens,
                                       .workspace = gpu + 1,
                                       .workspace_bytes = workspace_bytes,
                                       .bmm1_scale = 0.08838835f /* 1 / sqrt(HEAD_DIM) */};
    CHECK(libdecode_workspace_init(decode, gpu + 1, workspace_bytes, NULL));
    CHECK(libdecode_decode(decode, &problem, &tensors, NULL));
    CHECK(cuMemcpyDtoH(&host, memory, sizeof host)); /* waits for the kernel */
    printf("mean of 0 to 99: %g\nmean of 0 to 36: %g\n", (double)host.out[0][0][0].value, (double)host.out[1][0][0].value);
    libdecode_close(decode);
}
