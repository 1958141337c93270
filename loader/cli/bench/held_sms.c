/* SPDX-License-Identifier: Apache-2.0 */
/* held_sms.c: a GPU in, some of its SMs busy for as long as another work is timed out. Before: the bundles. Next: bench_run.c. */
#include "held_sms.h"

#include <math.h>

#include "forced_workers.h"
#include "options.h"
#include "report.h"

#define HEAD_DIM 128
#define PAGE_SIZE 16
#define MAX_TOKENS (1 << 24) /* tens of milliseconds, and a page table of 4 MB */
#define TRIAL_TOKENS (1 << 15)
#define MOST_SMS 20

/* One request with a KV head for every worker, that share a row of the page table. */
static libdecode_problem held_problem(int32_t num_workers, libdecode_dtype dtype) {
    return (libdecode_problem){.struct_size = sizeof(libdecode_problem),
                               .op = LIBDECODE_OP_BATCH_DECODE,
                               .query_dtype = dtype,
                               .batch_size = 1,
                               .num_qo_heads = num_workers,
                               .num_kv_heads = num_workers,
                               .head_dim = HEAD_DIM,
                               .page_size = PAGE_SIZE,
                               .max_seq_len = MAX_TOKENS,
                               .num_pages = 1,
                               .page_table_request_stride = MAX_TOKENS / PAGE_SIZE};
}

static bool make_plan(struct held_sms *held, const libdecode_device *device) {
    const libdecode_problem bf16 = held_problem(held->num_sms, LIBDECODE_DTYPE_BF16);
    const libdecode_problem fp16 = held_problem(held->num_sms, LIBDECODE_DTYPE_FP16);
    if (libdecode_plan_create(held->context, &bf16, device, &held->plan) != LIBDECODE_OK &&
        libdecode_plan_create(held->context, &fp16, device, &held->plan) != LIBDECODE_OK)
        return complain("%s", libdecode_error_message());
    held->workspace_bytes = libdecode_plan_workspace_bytes(held->plan);
    return force_workers(held->plan, held->num_sms) || complain("no kernel at hand can hold %d SMs", held->num_sms);
}

static bool make_tensors(struct held_sms *held) {
    struct gpu *gpu = held->gpu;
    const size_t table_bytes = (size_t)MAX_TOKENS / PAGE_SIZE * sizeof(int32_t);
    const size_t row_bytes = (size_t)held->num_sms * HEAD_DIM * 2, page_bytes = PAGE_SIZE * row_bytes;
    return gpu_alloc(gpu, page_bytes, "what holds SMs", &held->pool) &&
           gpu_alloc(gpu, row_bytes, "what holds SMs", &held->query) && gpu_alloc(gpu, row_bytes, "what holds SMs", &held->out) &&
           gpu_alloc(gpu, table_bytes, "what holds SMs", &held->page_table) &&
           gpu_alloc(gpu, sizeof(int32_t), "what holds SMs", &held->seq_lens) &&
           gpu_alloc(gpu, held->workspace_bytes, "what holds SMs", &held->workspace) &&
           gpu_fill(gpu, held->query, 0, row_bytes) && gpu_fill(gpu, held->page_table, 0xff, table_bytes) && /* ids of -1 */
           gpu_stream_create(gpu, &held->stream);
}

static bool launch_held(struct held_sms *held) {
    const libdecode_tensors tensors = {.struct_size = sizeof tensors,
                                       .query = gpu_pointer(held->query),
                                       .k_cache = gpu_pointer(held->pool),
                                       .v_cache = gpu_pointer(held->pool),
                                       .page_table = gpu_pointer(held->page_table),
                                       .seq_lens = gpu_pointer(held->seq_lens),
                                       .out = gpu_pointer(held->out),
                                       .workspace = gpu_pointer(held->workspace),
                                       .workspace_bytes = held->workspace_bytes};
    return libdecode_plan_launch(held->plan, &tensors, held->stream) == LIBDECODE_OK || complain("%s", libdecode_error_message());
}

static bool set_tokens(struct held_sms *held, double tokens) {
    const int32_t seq_len = tokens < (double)MAX_TOKENS ? (int32_t)tokens : MAX_TOKENS;
    return gpu_upload(held->gpu, held->seq_lens, &seq_len, sizeof seq_len);
}

/* The second launch finds everything loaded. */
static bool calibrate(struct held_sms *held) {
    double begin = 0;
    if (!set_tokens(held, TRIAL_TOKENS))
        return false;
    for (int launch = 0; launch < 2; launch++) {
        begin = seconds_now();
        if (!launch_held(held) || !gpu_wait(held->gpu, held->stream))
            return false;
    }
    held->us_per_token = fmax(1e6 * (seconds_now() - begin) / TRIAL_TOKENS, 1e-6);
    return true;
}

bool held_sms_open(struct gpu *gpu, const struct session_args *session, const libdecode_device *device,
                   struct held_sms *ret_held) {
    struct held_sms *held = ret_held;
    *held = (struct held_sms){.gpu = gpu, .num_sms = device->sm_count / 2 < MOST_SMS ? device->sm_count / 2 : MOST_SMS};
    if (!session_open(session, "force=*_c1_*", &held->context) || !make_plan(held, device) || !make_tensors(held))
        return false;
    if (libdecode_workspace_init(held->context, gpu_pointer(held->workspace), held->workspace_bytes, held->stream) !=
        LIBDECODE_OK)
        return complain("%s", libdecode_error_message());
    return calibrate(held);
}

void held_sms_close(struct held_sms *held) {
    uint64_t *const addresses[] = {&held->pool, &held->query, &held->out, &held->page_table, &held->seq_lens, &held->workspace};
    if (held->gpu == NULL)
        return;
    for (size_t index = 0; index < sizeof addresses / sizeof addresses[0]; index++)
        gpu_free(held->gpu, addresses[index]);
    gpu_stream_destroy(held->gpu, &held->stream);
    libdecode_plan_destroy(held->plan);
    libdecode_close(held->context);
    *held = (struct held_sms){0};
}

bool held_sms_set_duration(struct held_sms *held, double us) { return set_tokens(held, us / held->us_per_token); }

static bool begin_holding(void *cookie) { return launch_held(cookie); }

static bool end_holding(void *cookie, bool *ret_lasted) {
    struct held_sms *held = cookie;
    return gpu_busy(held->gpu, held->stream, ret_lasted) && gpu_wait(held->gpu, held->stream);
}

struct company held_sms_company(struct held_sms *held) {
    return (struct company){.begin = begin_holding, .end = end_holding, .cookie = held};
}
