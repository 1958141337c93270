/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_neighbours.c: a batch in, random batches of its requests out of the same KV cache, launched and compared bit by bit. In pages any
 * requests make one, in any order; of contiguous KV such as lie one after the other, or that have offsets. Before: check_run.c. Next: check.c.
 */
#include "check_neighbours.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dtype.h"
#include "element.h"
#include "forced_workers.h"
#include "options.h"
#include "problem.h"
#include "random.h"
#include "reference.h"

#define MORE_REQUESTS 8 /* than the case has, at most */
#define ALIGNMENT 256
#define POISON_BYTE 0xff

/* An input that a batch has a piece of for every request, or for every query token. */
struct input {
    size_t field; /* offset of its pointer in libdecode_tensors */
    size_t unit_bytes;
    bool of_tokens;
};
#define MAX_INPUTS 11

/* What is written for a batch. */
struct result_layout {
    size_t out_bytes, out_sf_bytes, lse_bytes; /* one behind the other, aligned */
};

/* A batch of requests of the case. */
struct batch {
    libdecode_problem problem;
    int32_t *requests, *first_tokens; /* of the case; where their query tokens begin, and behind the last where they end */
    struct result_layout layout;
    uint8_t *results;
};

struct neighbours {
    struct check_rig *rig;
    const struct device_case *device_case;
    libdecode_context *variant;
    const libdecode_device *device;
    struct random random;
    struct input inputs[MAX_INPUTS];
    size_t num_inputs;
    int32_t most_requests;
    uint8_t *staging;
    uint64_t inputs_at, results_at, workspace_at;
    size_t inputs_bytes, results_bytes, workspace_bytes;
    struct batch whole, other;
    struct failure *failure;
};

static const struct host_case *host_of(const struct neighbours *run) { return run->device_case->host; }

static size_t aligned(size_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

static bool fail_with(struct neighbours *run, const char *what, const char *text) {
    snprintf(run->failure->what, sizeof run->failure->what, "%s", what);
    snprintf(run->failure->text, sizeof run->failure->text, "%s", text);
    return false;
}

static int32_t query_tokens_of(const struct neighbours *run, int32_t request) {
    const int32_t *begins = host_of(run)->tensors.cum_seq_lens_q;
    return begins != NULL ? begins[request + 1] - begins[request] : host_of(run)->problem.q_len;
}

/* -------------------------------------------------------------------------------------------------------------- batches */

static void add_input(struct neighbours *run, size_t field, size_t unit_bytes, bool of_tokens) {
    const void *pointer;
    memcpy(&pointer, (const char *)&host_of(run)->tensors + field, sizeof pointer);
    if (pointer != NULL)
        run->inputs[run->num_inputs++] = (struct input){field, unit_bytes, of_tokens};
}

static void find_inputs(struct neighbours *run) {
    const libdecode_problem *problem = &host_of(run)->problem;
    const size_t lengths = problem->seq_lens_request_stride > 0 ? (size_t)problem->seq_lens_request_stride : 1;
    const size_t mask_words = (size_t)(problem->q_len + 31) / 32 * 2;
    add_input(run, offsetof(libdecode_tensors, seq_lens), lengths * sizeof(int32_t), false);
    add_input(run, offsetof(libdecode_tensors, page_table), (size_t)problem->page_table_request_stride * sizeof(int32_t), false);
    add_input(run, offsetof(libdecode_tensors, query_positions), sizeof(int32_t), false);
    add_input(run, offsetof(libdecode_tensors, draft_mask), mask_words * sizeof(uint16_t), true);
    add_input(run, offsetof(libdecode_tensors, sparse_token_ids), (size_t)problem->sparse_token_ids_stride * sizeof(int32_t),
              true);
    add_input(run, offsetof(libdecode_tensors, sparse_top_k_lens), sizeof(int32_t), true);
    add_input(run, offsetof(libdecode_tensors, query_offsets), sizeof(int64_t), false);
    add_input(run, offsetof(libdecode_tensors, k_offsets), sizeof(int64_t), false);
    add_input(run, offsetof(libdecode_tensors, v_offsets), sizeof(int64_t), false);
    if (host_of(run)->tensors.query_offsets == NULL) /* else the rows stay where they are */
        add_input(run, offsetof(libdecode_tensors, query),
                  (size_t)problem->query_token_stride * (size_t)dtype_bits(problem->query_dtype) / 8, true);
    add_input(run, offsetof(libdecode_tensors, query_rope),
              (size_t)problem->query_rope_token_stride * (size_t)dtype_bits(problem->query_dtype) / 8, true);
}

static struct result_layout layout_of(const libdecode_problem *problem, const libdecode_tensors *tensors, int64_t tokens) {
    const size_t rows = (size_t)tokens;
    return (struct result_layout){
        .out_bytes = aligned(rows * (size_t)problem->out_token_stride * (size_t)dtype_bits(problem->out_dtype) / 8),
        .out_sf_bytes = aligned(out_sf_bytes(problem, tensors, tokens)),
        .lse_bytes = aligned(rows * (size_t)problem->num_qo_heads * sizeof(float))};
}

static size_t bytes_of(const struct result_layout *layout) {
    return layout->out_bytes + layout->out_sf_bytes + layout->lse_bytes;
}

/* Finishes a batch whose requests are chosen. */
static void settle(struct neighbours *run, struct batch *batch, int32_t count) {
    const struct host_case *host = host_of(run);
    batch->problem = host->problem;
    batch->problem.batch_size = count;
    batch->problem.lse_token_stride = batch->problem.lse_head_stride = 0;
    batch->first_tokens[0] = 0;
    for (int32_t place = 0; place < count; place++)
        batch->first_tokens[place + 1] = batch->first_tokens[place] + query_tokens_of(run, batch->requests[place]);
    batch->layout = layout_of(&batch->problem, &host->tensors, batch->first_tokens[count]);
}

static void choose_all(struct neighbours *run) {
    const int32_t count = host_of(run)->problem.batch_size;
    for (int32_t request = 0; request < count; request++)
        run->whole.requests[request] = request;
    settle(run, &run->whole, count);
}

static void set_pointer(libdecode_tensors *tensors, size_t field, uint64_t address) {
    void *pointer = gpu_pointer(address);
    memcpy((char *)tensors + field, &pointer, sizeof pointer);
}

/* Of contiguous KV: the rows and scales of a batch begin with those of its first request. */
static void begin_cache_at(const libdecode_problem *problem, int32_t request, libdecode_tensors *tensors) {
    const struct {
        size_t field;
        int64_t stride;
        int bits;
    } caches[] = {{offsetof(libdecode_tensors, k_cache), problem->k_page_stride, dtype_bits(problem->kv_dtype)},
                  {offsetof(libdecode_tensors, v_cache), problem->v_page_stride, dtype_bits(problem->kv_dtype)},
                  {offsetof(libdecode_tensors, k_sf), problem->k_sf_page_stride, 8},
                  {offsetof(libdecode_tensors, v_sf), problem->v_sf_page_stride, 8}};
    for (size_t index = 0; index < sizeof caches / sizeof caches[0]; index++) {
        const uint8_t *begin;
        memcpy(&begin, (const char *)tensors + caches[index].field, sizeof begin);
        if (begin != NULL)
            set_pointer(tensors, caches[index].field,
                        (uintptr_t)begin + (uint64_t)(request * caches[index].stride * caches[index].bits / 8));
    }
}

static bool must_lie_in_a_row(const struct neighbours *run) {
    return problem_is_contiguous(&host_of(run)->problem) && host_of(run)->tensors.k_offsets == NULL;
}

/* Whether a batch may begin there: rows or scales of a request may lie at multiples of less than what a tensor must be aligned to. */
static bool may_begin_at(const struct neighbours *run, int32_t request) {
    const libdecode_problem *problem = &host_of(run)->problem;
    const int64_t rows = (int64_t)(element_bytes(problem->kv_dtype, problem->k_page_stride) |
                                   element_bytes(problem->kv_dtype, problem->v_page_stride));
    return request * (rows | problem->k_sf_page_stride | problem->v_sf_page_stride) % ROW_ALIGNMENT_BYTES == 0;
}

static int32_t choose_in_a_row(struct neighbours *run, uint32_t most) {
    const uint32_t batch_size = (uint32_t)host_of(run)->problem.batch_size;
    int32_t first = (int32_t)random_below(&run->random, batch_size);
    while (!may_begin_at(run, first))
        first--;
    const uint32_t left = batch_size - (uint32_t)first;
    const int32_t count = 1 + (int32_t)random_below(&run->random, most < left ? most : left);
    for (int32_t place = 0; place < count; place++)
        run->other.requests[place] = first + place;
    return count;
}

static int32_t choose_any(struct neighbours *run, uint32_t most) {
    const int32_t count = 1 + (int32_t)random_below(&run->random, most);
    for (int32_t place = 0; place < count; place++)
        run->other.requests[place] = (int32_t)random_below(&run->random, (uint32_t)host_of(run)->problem.batch_size);
    return count;
}

/* One batch in three is a request alone. */
static void choose_some(struct neighbours *run) {
    const libdecode_problem *given = &host_of(run)->problem;
    struct random *random = &run->random;
    const uint32_t most = random_below(random, 3) == 0 ? 1 : (uint32_t)run->most_requests;
    settle(run, &run->other, must_lie_in_a_row(run) ? choose_in_a_row(run, most) : choose_any(run, most));
    run->other.problem.max_seq_len = 1 + (int32_t)random_below(random, (uint32_t)given->max_seq_len);
    run->other.problem.total_kv_tokens = random_below(random, 2) == 0 ? 0 : 1 + (int64_t)random_below(random, 1000000);
}

/* Host bytes of an input's units from `first` on. */
static const uint8_t *units_at(const struct neighbours *run, const struct input *input, int64_t first) {
    const uint8_t *units;
    memcpy(&units, (const char *)&host_of(run)->tensors + input->field, sizeof units);
    return units + (size_t)first * input->unit_bytes;
}

/* Gathers the inputs of the batch's requests, and says where on the device they come to lie. Their bytes. */
static size_t gather(const struct neighbours *run, const struct batch *batch, libdecode_tensors *tensors) {
    const int32_t count = batch->problem.batch_size, *begins = host_of(run)->tensors.cum_seq_lens_q;
    size_t offset = 0;
    if (must_lie_in_a_row(run))
        begin_cache_at(&batch->problem, batch->requests[0], tensors);
    for (size_t index = 0; index < run->num_inputs; index++) {
        const struct input *input = &run->inputs[index];
        set_pointer(tensors, input->field, run->inputs_at + offset);
        for (int32_t place = 0; place < count; place++) {
            const int32_t request = batch->requests[place], tokens = query_tokens_of(run, request);
            const int64_t first_token = begins != NULL ? begins[request] : (int64_t)request * host_of(run)->problem.q_len;
            const size_t bytes = (input->of_tokens ? (size_t)tokens : 1) * input->unit_bytes;
            memcpy(run->staging + offset, units_at(run, input, input->of_tokens ? first_token : request), bytes);
            offset += bytes;
        }
        offset = aligned(offset);
    }
    if (begins != NULL) {
        set_pointer(tensors, offsetof(libdecode_tensors, cum_seq_lens_q), run->inputs_at + offset);
        memcpy(run->staging + offset, batch->first_tokens, (size_t)(count + 1) * sizeof(int32_t));
        offset += (size_t)(count + 1) * sizeof(int32_t);
    }
    return offset;
}

/* ------------------------------------------------------------------------------------------------------------ launches */

static libdecode_plan *plan_of(struct neighbours *run, const struct batch *batch) {
    libdecode_plan *plan = NULL;
    if (libdecode_plan_create(run->variant, &batch->problem, run->device, &plan) != LIBDECODE_OK) {
        fail_with(run, "launch", libdecode_error_message());
        return NULL;
    }
    if (random_below(&run->random, 2) == 0)
        (void)force_workers(plan, 1 + (int32_t)random_below(&run->random, (uint32_t)most_workers(plan)));
    if (libdecode_plan_workspace_bytes(plan) <= run->workspace_bytes)
        return plan;
    libdecode_plan_destroy(plan);
    fail_with(run, "launch", "the workspace of a batch-invariant problem grew with its batch");
    return NULL;
}

/* Launches the batch and reads its results; NaN where nothing was written. */
static bool decode(struct neighbours *run, struct batch *batch) {
    struct check_rig *rig = run->rig;
    libdecode_tensors tensors = run->device_case->tensors;
    const size_t input_bytes = gather(run, batch, &tensors), results = bytes_of(&batch->layout);
    tensors.out = gpu_pointer(run->results_at);
    tensors.out_offsets = NULL; /* one request behind the other */
    if (batch->problem.out_dtype == LIBDECODE_DTYPE_NVFP4)
        tensors.out_sf = gpu_pointer(run->results_at + batch->layout.out_bytes);
    if ((batch->problem.features & LIBDECODE_FEATURE_LSE) != 0)
        tensors.lse = (float *)gpu_pointer(run->results_at + batch->layout.out_bytes + batch->layout.out_sf_bytes);
    tensors.workspace = gpu_pointer(run->workspace_at);
    tensors.workspace_bytes = run->workspace_bytes;
    libdecode_plan *plan = plan_of(run, batch);
    if (plan == NULL)
        return false;
    bool good = gpu_upload(rig->gpu, run->inputs_at, run->staging, input_bytes) &&
                gpu_fill(rig->gpu, run->results_at, POISON_BYTE, results);
    if (good && libdecode_plan_launch(plan, &tensors, rig->stream) != LIBDECODE_OK)
        good = fail_with(run, "launch", libdecode_error_message());
    good = good && gpu_wait(rig->gpu, rig->stream) && gpu_download(rig->gpu, batch->results, run->results_at, results);
    libdecode_plan_destroy(plan);
    return good || run->failure->what[0] != '\0' || fail_with(run, "launch", "the GPU reported an error after the launch");
}

/* ----------------------------------------------------------------------------------------------------------- comparison */

/* Of one query token of each batch; NULL, or the tensor that differs. */
static const char *differing(const struct neighbours *run, const struct batch *a, int64_t a_token, const struct batch *b,
                             int64_t b_token) {
    const libdecode_problem *problem = &host_of(run)->problem;
    const size_t bits = (size_t)dtype_bits(problem->out_dtype), heads = (size_t)problem->num_qo_heads;
    const size_t row_bytes = (size_t)problem->v_head_dim * bits / 8, columns = out_sf_columns(problem);
    for (size_t head = 0; head < heads; head++) {
        const int64_t in_token = (int64_t)head * problem->out_head_stride;
        const size_t at_a = (size_t)(a_token * problem->out_token_stride + in_token) * bits / 8;
        const size_t at_b = (size_t)(b_token * problem->out_token_stride + in_token) * bits / 8;
        if (memcmp(a->results + at_a, b->results + at_b, row_bytes) != 0)
            return "out";
    }
    const size_t first_row = (size_t)host_of(run)->tensors.out_sf_start_token;
    for (size_t column = 0; problem->out_dtype == LIBDECODE_DTYPE_NVFP4 && column < columns; column++) {
        const size_t at_a = nvfp4_swizzled_offset(first_row + (size_t)a_token, column, columns);
        const size_t at_b = nvfp4_swizzled_offset(first_row + (size_t)b_token, column, columns);
        if (a->results[a->layout.out_bytes + at_a] != b->results[b->layout.out_bytes + at_b])
            return "out_sf";
    }
    const size_t lse_bytes = heads * sizeof(float);
    const uint8_t *a_lse = a->results + a->layout.out_bytes + a->layout.out_sf_bytes;
    const uint8_t *b_lse = b->results + b->layout.out_bytes + b->layout.out_sf_bytes;
    return memcmp(a_lse + (size_t)a_token * lse_bytes, b_lse + (size_t)b_token * lse_bytes, lse_bytes) != 0 ? "lse" : NULL;
}

static bool compare(struct neighbours *run) {
    const struct batch *whole = &run->whole, *other = &run->other;
    for (int32_t place = 0; place < other->problem.batch_size; place++) {
        const int32_t request = other->requests[place];
        for (int32_t token = 0; token < query_tokens_of(run, request); token++) {
            const char *tensor =
                differing(run, whole, whole->first_tokens[request] + token, other, other->first_tokens[place] + token);
            if (tensor == NULL)
                continue;
            fail_with(run, "neighbours", "");
            snprintf(
                run->failure->text, sizeof run->failure->text,
                "%s of request %d, query token %d, has other bits at place %d of a batch of %d than in that of all %d requests",
                tensor, request, token, place, other->problem.batch_size, whole->problem.batch_size);
            return false;
        }
    }
    return true;
}

/* ---------------------------------------------------------------------------------------------------------------- a run */

static bool allocate(struct neighbours *run) {
    const struct host_case *host = host_of(run);
    const libdecode_problem *problem = &host->problem;
    struct gpu *gpu = run->rig->gpu;
    const int32_t most = problem->batch_size + MORE_REQUESTS;
    const int64_t most_tokens = (int64_t)most * problem->q_len;
    const struct result_layout layout = layout_of(problem, &host->tensors, most_tokens);
    libdecode_plan *plan = NULL;
    run->most_requests = most;
    run->inputs_bytes = aligned((size_t)(most + 1) * sizeof(int32_t));
    for (size_t index = 0; index < run->num_inputs; index++)
        run->inputs_bytes +=
            aligned((run->inputs[index].of_tokens ? (size_t)most_tokens : (size_t)most) * run->inputs[index].unit_bytes);
    run->results_bytes = bytes_of(&layout);
    if (libdecode_plan_create(run->variant, problem, run->device, &plan) != LIBDECODE_OK)
        return fail_with(run, "launch", libdecode_error_message());
    run->workspace_bytes = libdecode_plan_workspace_bytes(plan);
    libdecode_plan_destroy(plan);
    run->staging = malloc(run->inputs_bytes);
    struct batch *const batches[] = {&run->whole, &run->other};
    bool good = run->staging != NULL;
    for (int index = 0; index < 2; index++) {
        batches[index]->requests = malloc((size_t)most * sizeof(int32_t));
        batches[index]->first_tokens = malloc((size_t)(most + 1) * sizeof(int32_t));
        batches[index]->results = malloc(run->results_bytes);
        good =
            good && batches[index]->requests != NULL && batches[index]->first_tokens != NULL && batches[index]->results != NULL;
    }
    if (!good)
        return fail_with(run, "launch", "out of memory");
    if (!gpu_alloc(gpu, run->inputs_bytes, "a batch of neighbours", &run->inputs_at) ||
        !gpu_alloc(gpu, run->results_bytes, "its results", &run->results_at) ||
        !gpu_alloc(gpu, run->workspace_bytes, "the workspace", &run->workspace_at))
        return fail_with(run, "launch", "device memory could not be prepared");
    if (libdecode_workspace_init(run->rig->context, gpu_pointer(run->workspace_at), run->workspace_bytes, run->rig->stream) !=
        LIBDECODE_OK)
        return fail_with(run, "launch", libdecode_error_message());
    return true;
}

static void free_all(struct neighbours *run) {
    struct batch *const batches[] = {&run->whole, &run->other};
    for (int index = 0; index < 2; index++) {
        free(batches[index]->requests);
        free(batches[index]->first_tokens);
        free(batches[index]->results);
    }
    free(run->staging);
    gpu_free(run->rig->gpu, &run->inputs_at);
    gpu_free(run->rig->gpu, &run->results_at);
    gpu_free(run->rig->gpu, &run->workspace_at);
}

void check_neighbours(struct check_rig *rig, const struct device_case *device_case, libdecode_context *variant,
                      const libdecode_device *device, int count, struct failure *ret_failure) {
    struct neighbours run = {.rig = rig,
                             .device_case = device_case,
                             .variant = variant,
                             .device = device,
                             .random = {device_case->host->seed ^ 0x6e656967},
                             .failure = ret_failure};
    find_inputs(&run);
    bool good = allocate(&run);
    if (good) {
        choose_all(&run);
        good = decode(&run, &run.whole);
    }
    for (int number = 0; good && number < count; number++) {
        choose_some(&run);
        good = decode(&run, &run.other) && compare(&run);
    }
    free_all(&run);
}
