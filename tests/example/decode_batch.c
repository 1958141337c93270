/* SPDX-License-Identifier: Apache-2.0 */
/* decode_batch.c: the README's program: two requests in pages of 16 tokens in, their attention by one kernel of the GPU out. */
#include <cuda.h>
#include <libdecode.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { BATCH = 2, PAGES = 16, PAGE_SIZE = 16, HEADS = 32, KV_HEADS = 8, HEAD_DIM = 128, ROW = KV_HEADS * HEAD_DIM };
union word { float value; uint16_t half[2]; }; /* half[1] is the value in bf16 */

#define CHECK(call) ((call) == 0 ? (void)0 : (fprintf(stderr, "%s: %s\n", #call, libdecode_error_message()), exit(1)))

static void *on_device(const void *host, size_t bytes)
{
    CUdeviceptr address;
    CHECK(cuMemAlloc(&address, bytes));
    CHECK(host != NULL ? cuMemcpyHtoD(address, host, bytes) : cuMemsetD8(address, 0, bytes));
    return (void *)(uintptr_t)address;
}

int main(void)
{
    static uint16_t v[PAGES][PAGE_SIZE][ROW], out[BATCH][HEADS][HEAD_DIM];
    const int32_t seq_lens[BATCH] = {100, 37}, page_table[BATCH][8] = {{3, 1, 4, 15, 9, 2, 6}, {5, 8, 0}};
    for (int request = 0; request < BATCH; request++)
        for (int token = 0; token < seq_lens[request]; token++)
            for (int element = 0; element < ROW; element++)
                v[page_table[request][token / PAGE_SIZE]][token % PAGE_SIZE][element] = (union word){(float)token}.half[1];
    CUcontext cuda;
    libdecode_context *decode;
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&cuda, 0));
    CHECK(cuCtxSetCurrent(cuda));
    CHECK(libdecode_open(NULL, &decode));
    const libdecode_problem problem = {.struct_size = sizeof problem, .query_dtype = LIBDECODE_DTYPE_BF16, .batch_size = BATCH,
        .num_qo_heads = HEADS, .num_kv_heads = KV_HEADS, .head_dim = HEAD_DIM, .page_size = PAGE_SIZE,
        .kv_layout = LIBDECODE_KV_NHD, .page_table_request_stride = 8};
    libdecode_tensors tensors = {.struct_size = sizeof tensors, .bmm1_scale = 0.08838835f, /* 1 / sqrt(HEAD_DIM) */
        .query = on_device(NULL, sizeof out), .out = on_device(NULL, sizeof out),
        .k_cache = on_device(NULL, sizeof v), .v_cache = on_device(v, sizeof v), /* K is zero: all tokens weigh the same */
        .page_table = on_device(page_table, sizeof page_table), .seq_lens = on_device(seq_lens, sizeof seq_lens)};
    CHECK(libdecode_batch_decode_workspace_bytes(decode, &problem, &tensors.workspace_bytes));
    tensors.workspace = on_device(NULL, tensors.workspace_bytes);
    CHECK(libdecode_workspace_init(decode, tensors.workspace, tensors.workspace_bytes, NULL));
    CHECK(libdecode_batch_decode(decode, &problem, &tensors, NULL));
    CHECK(cuMemcpyDtoH(out, (CUdeviceptr)(uintptr_t)tensors.out, sizeof out)); /* waits for the kernel */
    for (int request = 0; request < BATCH; request++)
        printf("request %d: the mean of 0 to %d is %g\n", request, seq_lens[request] - 1,
               (double)(union word){.half = {0, out[request][HEADS - 1][HEAD_DIM - 1]}}.value);
    libdecode_close(decode);
    return 0;
}
