/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_run.c: one test case and one plan in, launches with poisoned outputs and guard bands, what went wrong out.
 * Before: cases.c, compare.c. Next: check.c.
 */
#include "check_run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "context.h"
#include "dtype.h"
#include "element.h"
#include "family.h"
#include "late_rows.h"
#include "options.h"
#include "problem.h"
#include "reference.h"

#define GUARD_BYTES 4096
#define POISON_BYTE 0xff /* NaN in bf16, fp16, e4m3 and f32 */
#define LOAD_LAUNCHES 3  /* on the second stream, for every repeated launch */
#define ROW_LAUNCHES 16  /* back to back on one stream; this and the next two: as rounds_up_to says */
#define CHAIN_ROUNDS 8
#define LATE_ROUNDS 4

/* -------------------------------------------------------------------------------------------------- guarded memory */

/* Makes room for `bytes`, and poisons it and its bands. */
static bool guarded_prepare(struct gpu *gpu, struct guarded *memory, size_t bytes, const char *what) {
    if (memory->capacity < bytes + 2 * GUARD_BYTES) {
        gpu_free(gpu, &memory->base);
        memory->capacity = 0;
        if (!gpu_alloc(gpu, 2 * bytes + 2 * GUARD_BYTES, what, &memory->base))
            return false;
        memory->capacity = 2 * bytes + 2 * GUARD_BYTES;
    }
    memory->bytes = bytes;
    return gpu_fill(gpu, memory->base, POISON_BYTE, bytes + 2 * GUARD_BYTES);
}

static uint64_t guarded_address(const struct guarded *memory) { return memory->base + GUARD_BYTES; }

/* Offset of the first byte that is not poison, or `bytes`. */
static size_t first_written(const uint8_t *data, size_t bytes) {
    size_t offset = 0;
    while (offset < bytes && data[offset] == POISON_BYTE)
        offset++;
    return offset;
}

static bool grow_host(struct check_rig *rig, size_t bytes) {
    if (rig->host_bytes >= bytes)
        return true;
    free(rig->host);
    free(rig->first);
    rig->host = aligned_alloc(256, (bytes + 256) / 256 * 256);
    rig->first = aligned_alloc(256, (bytes + 256) / 256 * 256);
    rig->host_bytes = rig->host != NULL && rig->first != NULL ? bytes : 0;
    return rig->host_bytes > 0 || complain("out of memory");
}

bool check_rig_open(struct gpu *gpu, libdecode_context *context, const libdecode_device *device, struct check_rig *ret_rig) {
    *ret_rig = (struct check_rig){.gpu = gpu, .context = context};
    ret_rig->has_late_copy = instrument_open(context, device, &family_late_copy,
                                             "launches with LIBDECODE_LAUNCH_HISTORY_FINAL are not checked", &ret_rig->late_copy);
    return gpu_stream_create(gpu, &ret_rig->stream) && gpu_stream_create(gpu, &ret_rig->load_stream);
}

void check_rig_close(struct check_rig *rig) {
    struct results *both[] = {&rig->results, &rig->load};
    for (int index = 0; index < 2; index++) {
        gpu_free(rig->gpu, &both[index]->out.base);
        gpu_free(rig->gpu, &both[index]->out_sf.base);
        gpu_free(rig->gpu, &both[index]->lse.base);
        gpu_free(rig->gpu, &both[index]->workspace.base);
    }
    gpu_stream_destroy(rig->gpu, &rig->stream);
    gpu_stream_destroy(rig->gpu, &rig->load_stream);
    free(rig->host);
    free(rig->first);
    *rig = (struct check_rig){0};
}

/* ------------------------------------------------------------------------------------------------ the case on the GPU */

static void set_pointer(libdecode_tensors *tensors, size_t field, uint64_t address) {
    void *pointer = gpu_pointer(address);
    memcpy((char *)tensors + field, &pointer, sizeof pointer);
}

/* Bytes from the first to behind the last element of a tensor [tokens, heads, row]. */
static size_t extent(int64_t tokens, int64_t token_stride, int64_t heads, int64_t head_stride, int64_t row, int element_bits) {
    if (tokens == 0)
        return 0;
    return (size_t)((tokens - 1) * token_stride + (heads - 1) * head_stride + row) * (size_t)element_bits / 8;
}

/* To behind the row that ends last. */
static size_t out_bytes(const libdecode_problem *given, const libdecode_tensors *tensors) {
    int64_t end = 0;
    int32_t request = 0;
    for (int64_t token = 0; token < query_tokens(given, tensors->cum_seq_lens_q); token++) {
        request = request_of_token(given, tensors->cum_seq_lens_q, token, request);
        const int64_t row_end = out_element(given, tensors, request, token, given->num_qo_heads - 1) + given->v_head_dim;
        end = row_end > end ? row_end : end;
    }
    return (size_t)end * (size_t)dtype_bits(given->out_dtype) / 8;
}

size_t out_sf_columns(const libdecode_problem *problem) {
    return ((size_t)problem->num_qo_heads * (size_t)problem->v_head_dim / NVFP4_BLOCK + 3) / 4 * 4;
}

size_t out_sf_bytes(const libdecode_problem *problem, const libdecode_tensors *tensors, int64_t num_tokens) {
    if (problem->out_dtype != LIBDECODE_DTYPE_NVFP4)
        return 0;
    return (size_t)(num_tokens + tensors->out_sf_start_token + 127) / 128 * 128 * out_sf_columns(problem);
}

static size_t result_bytes(const struct device_case *device_case) {
    return device_case->out_bytes + device_case->out_sf_bytes + device_case->lse_bytes;
}

bool device_case_make(struct gpu *gpu, const struct host_case *host, const struct expectation *expectation,
                      struct device_case *ret_case) {
    struct device_case *made = ret_case;
    struct problem checked;
    *made = (struct device_case){.host = host, .expectation = expectation, .tensors = host->tensors};
    if (problem_check(&host->problem, &checked) != LIBDECODE_OK)
        return complain("%s", libdecode_error_message());
    const libdecode_problem *given = &checked.given;
    const int64_t num_tokens = query_tokens(given, host->tensors.cum_seq_lens_q);
    made->out_bytes = out_bytes(given, &host->tensors);
    made->out_sf_bytes = out_sf_bytes(given, &host->tensors, num_tokens);
    if ((given->features & LIBDECODE_FEATURE_LSE) != 0)
        made->lse_bytes = extent(num_tokens, given->lse_token_stride, given->num_qo_heads, given->lse_head_stride, 1, 32);
    const bool lens_on_host = (given->features & LIBDECODE_FEATURE_HOST_SEQ_LENS) != 0;
    for (size_t index = 0; index < host->num_buffers; index++) {
        const struct case_buffer *buffer = &host->buffers[index];
        if (!gpu_alloc(gpu, buffer->bytes, "a test case", &made->buffers[index]) ||
            !gpu_upload(gpu, made->buffers[index], buffer->data, buffer->bytes))
            return false;
        if (!lens_on_host || buffer->field != offsetof(libdecode_tensors, seq_lens))
            set_pointer(&made->tensors, buffer->field, made->buffers[index]);
        if (buffer->second_field != 0)
            set_pointer(&made->tensors, buffer->second_field, made->buffers[index] + buffer->second_offset);
    }
    return true;
}

bool device_case_unchanged(struct gpu *gpu, const struct device_case *device_case, const char **ret_field) {
    static const struct {
        size_t field;
        const char *name;
    } names[] = {
        {offsetof(libdecode_tensors, k_cache), "the KV cache"}, {offsetof(libdecode_tensors, v_cache), "the KV cache"},
        {offsetof(libdecode_tensors, k_sf), "the scales of K"}, {offsetof(libdecode_tensors, v_sf), "the scales of V"},
        {offsetof(libdecode_tensors, query), "the query"},      {offsetof(libdecode_tensors, page_table), "the page table"},
        {offsetof(libdecode_tensors, seq_lens), "the lengths"}};
    const struct host_case *host = device_case->host;
    bool same = true;
    for (size_t index = 0; same && index < host->num_buffers; index++) {
        uint8_t *now = malloc(host->buffers[index].bytes + 1);
        same = now != NULL && gpu_download(gpu, now, device_case->buffers[index], host->buffers[index].bytes) &&
               memcmp(now, host->buffers[index].data, host->buffers[index].bytes) == 0;
        free(now);
        if (same)
            continue;
        *ret_field = "an input";
        for (size_t name = 0; name < sizeof names / sizeof names[0]; name++)
            *ret_field = names[name].field == host->buffers[index].field ? names[name].name : *ret_field;
    }
    return same;
}

void device_case_free(struct gpu *gpu, struct device_case *device_case) {
    for (size_t index = 0; index < CASE_MAX_BUFFERS; index++)
        gpu_free(gpu, &device_case->buffers[index]);
}

/* ---------------------------------------------------------------------------------------------------------- running */

static void fail_as(struct failure *failure, const char *what, const char *text) {
    snprintf(failure->what, sizeof failure->what, "%s", what);
    snprintf(failure->text, sizeof failure->text, "%s", text);
}

/* After a call that waits for the GPU. */
static void fail_as_lost(const struct check_rig *rig, struct failure *failure) {
    fail_as(failure, "launch",
            rig->gpu->hung ? "the kernel does not end (--patience says how long it may take)"
                           : "the kernel crashed: the GPU reported an error after it was launched");
}

static bool failed(const struct failure *failure) { return failure->what[0] != '\0'; }

/* NaN in every format: nobody knows what a launch finds there. */
static bool poison_scratch(struct check_rig *rig, const libdecode_plan *plan, const struct results *results,
                           libdecode_stream stream, struct failure *failure) {
    const struct workspace_part *scratch = &plan->selection.workspace.scratch;
    if (scratch->bytes > 0 && (!gpu_wait(rig->gpu, stream) ||
                               !gpu_fill(rig->gpu, guarded_address(&results->workspace) + scratch->offset, 0xff, scratch->bytes)))
        fail_as_lost(rig, failure);
    return !failed(failure);
}

static bool prepare_results(struct check_rig *rig, const struct device_case *device_case, libdecode_plan *plan,
                            struct results *results, libdecode_stream stream, struct failure *failure) {
    size_t workspace_bytes = libdecode_plan_workspace_bytes(plan);
    if (!guarded_prepare(rig->gpu, &results->out, device_case->out_bytes, "out") ||
        !guarded_prepare(rig->gpu, &results->out_sf, device_case->out_sf_bytes, "out_sf") ||
        !guarded_prepare(rig->gpu, &results->lse, device_case->lse_bytes, "lse") ||
        !guarded_prepare(rig->gpu, &results->workspace, workspace_bytes, "the workspace")) {
        fail_as(failure, "launch", "device memory could not be prepared");
        return false;
    }
    if (libdecode_workspace_init(rig->context, gpu_pointer(guarded_address(&results->workspace)), workspace_bytes, stream) !=
        LIBDECODE_OK) {
        fail_as(failure, "launch", libdecode_error_message());
        return false;
    }
    return poison_scratch(rig, plan, results, stream, failure);
}

static libdecode_tensors tensors_with(const struct device_case *device_case, const struct results *results) {
    libdecode_tensors tensors = device_case->tensors;
    tensors.out = gpu_pointer(guarded_address(&results->out));
    tensors.out_sf = device_case->out_sf_bytes > 0 ? gpu_pointer(guarded_address(&results->out_sf)) : NULL;
    tensors.lse = device_case->lse_bytes > 0 ? (float *)gpu_pointer(guarded_address(&results->lse)) : NULL;
    tensors.workspace = gpu_pointer(guarded_address(&results->workspace));
    tensors.workspace_bytes = results->workspace.bytes;
    return tensors;
}

static bool launch_with(libdecode_plan *plan, const libdecode_tensors *tensors, libdecode_stream stream,
                        struct failure *failure) {
    if (libdecode_plan_launch(plan, tensors, stream) != LIBDECODE_OK)
        fail_as(failure, "launch", libdecode_error_message());
    return !failed(failure);
}

static bool launch(const struct device_case *device_case, libdecode_plan *plan, const struct results *results,
                   libdecode_stream stream, struct failure *failure) {
    const libdecode_tensors tensors = tensors_with(device_case, results);
    return launch_with(plan, &tensors, stream, failure);
}

/* The launch as the only node of a graph. */
static bool launch_in_graph(struct check_rig *rig, const struct device_case *device_case, libdecode_plan *plan,
                            struct failure *failure) {
    struct gpu *gpu = rig->gpu;
    gpu_graph graph = NULL;
    gpu_exec exec = NULL;
    bool good = gpu_capture_begin(gpu, rig->stream);
    if (good) {
        launch(device_case, plan, &rig->results, rig->stream, failure);
        good = gpu_capture_end(gpu, rig->stream, &graph) && !failed(failure) &&
               gpu_ok(gpu, gpu->call.graph_instantiate(&exec, graph, 0), "cuGraphInstantiateWithFlags") &&
               gpu_ok(gpu, gpu->call.graph_launch(exec, rig->stream), "cuGraphLaunch") && gpu_wait(gpu, rig->stream);
    }
    if (exec != NULL && !gpu->hung)
        gpu->call.exec_destroy(exec);
    if (graph != NULL && !gpu->hung)
        gpu->call.graph_destroy(graph);
    if (!good && !failed(failure))
        fail_as(failure, "launch", "the launch in a CUDA graph failed");
    return good;
}

/* Reads out, out_sf and lse, one behind the other, into `to`; all without their bands. */
static bool read_results(struct check_rig *rig, const struct results *results, uint8_t *to, struct failure *failure) {
    uint8_t *out_sf = to + results->out.bytes, *lse = out_sf + results->out_sf.bytes;
    bool good = gpu_download(rig->gpu, to, guarded_address(&results->out), results->out.bytes) &&
                gpu_download(rig->gpu, out_sf, guarded_address(&results->out_sf), results->out_sf.bytes) &&
                gpu_download(rig->gpu, lse, guarded_address(&results->lse), results->lse.bytes);
    if (!good)
        fail_as_lost(rig, failure);
    return good;
}

/* Which tensor a byte of what read_results reads belongs to; *offset becomes that inside the tensor. */
static const char *tensor_at(const struct device_case *device_case, size_t *offset) {
    if (*offset < device_case->out_bytes)
        return "out";
    *offset -= device_case->out_bytes;
    if (*offset < device_case->out_sf_bytes)
        return "out_sf";
    *offset -= device_case->out_sf_bytes;
    return "lse";
}

static bool bands_intact(struct check_rig *rig, const struct guarded *memory, const char *name, struct failure *failure) {
    uint8_t band[GUARD_BYTES];
    for (int behind = 0; behind < 2; behind++) {
        uint64_t address = behind != 0 ? guarded_address(memory) + memory->bytes : memory->base;
        if (!gpu_download(rig->gpu, band, address, sizeof band)) {
            fail_as(failure, "launch", "the guard bands could not be read back");
            return false;
        }
        size_t offset = first_written(band, sizeof band);
        if (offset < sizeof band) {
            fail_as(failure, "bounds", "");
            snprintf(failure->text, sizeof failure->text, "wrote %s %s, at byte %zu of the %d-byte band",
                     behind != 0 ? "behind" : "before", name, offset, GUARD_BYTES);
            return false;
        }
    }
    return true;
}

/*
 * A launch leaves all of its workspace but its scratch zero, as it found it: the next one may be of another plan, or read words that are left
 * as its own.
 */
static bool workspace_ready(struct check_rig *rig, const libdecode_plan *plan, const struct guarded *workspace,
                            struct failure *failure) {
    const struct workspace_part *scratch = &plan->selection.workspace.scratch;
    uint8_t *now = malloc(workspace->bytes + 1);
    if (now == NULL || !gpu_download(rig->gpu, now, guarded_address(workspace), workspace->bytes)) {
        free(now);
        fail_as_lost(rig, failure);
        return false;
    }
    size_t offset = 0;
    if (scratch->bytes > 0)
        memset(now + scratch->offset, 0, scratch->bytes);
    while (offset < workspace->bytes && now[offset] == 0)
        offset++;
    if (offset < workspace->bytes) {
        fail_as(failure, "workspace", "");
        snprintf(failure->text, sizeof failure->text,
                 "left the workspace with 0x%02x at byte %zu: a launch must leave all of it but scratch zero, for the next",
                 now[offset], offset);
    }
    free(now);
    return !failed(failure);
}

/* Whether anything but the rows of the results was written; spoils `data`. */
static bool gaps_intact(const struct device_case *device_case, uint8_t *data, struct failure *failure) {
    struct problem checked;
    if (problem_check(&device_case->host->problem, &checked) != LIBDECODE_OK)
        return true; /* it was launched, so it is good */
    const libdecode_problem *given = &checked.given;
    const size_t bits = (size_t)dtype_bits(given->out_dtype), columns = out_sf_columns(given);
    const int64_t num_tokens = query_tokens(given, device_case->host->tensors.cum_seq_lens_q);
    uint8_t *out_sf = data + device_case->out_bytes, *lse = out_sf + device_case->out_sf_bytes;
    int32_t request = 0;
    for (int64_t token = 0; token < num_tokens; token++) {
        request = request_of_token(given, device_case->host->tensors.cum_seq_lens_q, token, request);
        for (int64_t head = 0; head < given->num_qo_heads; head++) {
            int64_t row = out_element(given, &device_case->host->tensors, request, token, head);
            memset(data + (size_t)row * bits / 8, POISON_BYTE, (size_t)given->v_head_dim * bits / 8);
            row = token * given->lse_token_stride + head * given->lse_head_stride;
            if (device_case->lse_bytes > 0)
                memset(lse + (size_t)row * sizeof(float), POISON_BYTE, sizeof(float));
        }
        const size_t scale_row = (size_t)token + (size_t)device_case->host->tensors.out_sf_start_token;
        for (size_t column = 0; device_case->out_sf_bytes > 0 && column < columns; column++)
            out_sf[nvfp4_swizzled_offset(scale_row, column, columns)] = POISON_BYTE;
    }
    size_t bytes = result_bytes(device_case), offset = first_written(data, bytes);
    if (offset == bytes)
        return true;
    const char *tensor = tensor_at(device_case, &offset);
    fail_as(failure, "bounds", "");
    snprintf(failure->text, sizeof failure->text, "wrote between the rows of %s, at byte %zu", tensor, offset);
    return false;
}

static bool compare_results(struct check_rig *rig, const struct device_case *device_case, struct failure *failure,
                            double *ret_worst) {
    const struct host_case *host = device_case->host;
    if (device_case->out_bytes == 0)
        return true;
    /* lse behind the others may be misaligned for a float */
    float *lse = malloc(device_case->lse_bytes + 1);
    if (lse == NULL) {
        fail_as(failure, "launch", "out of memory");
        return false;
    }
    memcpy(lse, rig->first + device_case->out_bytes + device_case->out_sf_bytes, device_case->lse_bytes);
    libdecode_tensors results = host->tensors;
    results.out = rig->first;
    results.out_sf = rig->first + device_case->out_bytes;
    results.lse = device_case->lse_bytes > 0 ? lse : NULL;
    struct mismatch mismatch = {0};
    expectation_compare(device_case->expectation, &host->problem, &results, &mismatch);
    free(lse);
    *ret_worst = mismatch.worst_ratio;
    if (mismatch.count == 0)
        return true;
    failure->mismatch = mismatch;
    fail_as(failure, "wrong", "");
    mismatch_describe(&mismatch, failure->text, sizeof failure->text);
    return false;
}

static bool same_bits(struct check_rig *rig, const struct device_case *device_case, const struct results *results,
                      const char *when, struct failure *failure) {
    const size_t bytes = result_bytes(device_case);
    if (!read_results(rig, results, rig->host, failure))
        return false;
    if (memcmp(rig->host, rig->first, bytes) == 0)
        return true;
    size_t offset = 0;
    while (rig->host[offset] == rig->first[offset])
        offset++;
    const uint8_t is = rig->host[offset], was = rig->first[offset];
    const char *tensor = tensor_at(device_case, &offset);
    fail_as(failure, "bits", "");
    snprintf(failure->text, sizeof failure->text,
             "%s gave other bits than the first launch: byte %zu of %s is 0x%02x, was 0x%02x", when, offset, tensor, is, was);
    return false;
}

static bool poison_results(struct check_rig *rig, struct results *results, struct failure *failure) {
    if (gpu_fill(rig->gpu, guarded_address(&results->out), POISON_BYTE, results->out.bytes) &&
        gpu_fill(rig->gpu, guarded_address(&results->out_sf), POISON_BYTE, results->out_sf.bytes) &&
        gpu_fill(rig->gpu, guarded_address(&results->lse), POISON_BYTE, results->lse.bytes))
        return true;
    fail_as(failure, "launch", "device memory could not be prepared");
    return false;
}

/* The same launch over and over, while a second stream runs others of its kind on a workspace of their own. */
static void repeat_under_load(struct check_rig *rig, const struct device_case *device_case, libdecode_plan *plan, int repeats,
                              struct failure *failure) {
    if (!prepare_results(rig, device_case, plan, &rig->load, rig->load_stream, failure))
        return;
    for (int repeat = 0; repeat < repeats && !failed(failure); repeat++) {
        char when[48];
        snprintf(when, sizeof when, "repeat %d of %d under load", repeat + 1, repeats);
        for (int launches = 0; launches < LOAD_LAUNCHES && !failed(failure); launches++)
            launch(device_case, plan, &rig->load, rig->load_stream, failure);
        if (!failed(failure) && launch(device_case, plan, &rig->results, rig->stream, failure) && gpu_wait(rig->gpu, rig->stream))
            same_bits(rig, device_case, &rig->results, when, failure);
    }
    if (gpu_wait(rig->gpu, rig->load_stream) && !failed(failure))
        same_bits(rig, device_case, &rig->load, "the load on a second stream", failure);
    if (!failed(failure))
        bands_intact(rig, &rig->load.workspace, "the workspace of the load", failure);
}

/* Who asks for few repeats has a device that computes slowly. */
static int rounds_up_to(int most, int repeats) {
    const int wanted = repeats < 1 ? 2 : 2 * repeats;
    return wanted < most ? wanted : most;
}

/* Launches that none waits for, with the results of two in turn and one workspace: each begins as soon as it may. */
static void run_in_a_row(struct check_rig *rig, const struct device_case *device_case, libdecode_plan *plan, int repeats,
                         struct failure *failure) {
    if (!prepare_results(rig, device_case, plan, &rig->load, rig->stream, failure) ||
        !poison_results(rig, &rig->results, failure))
        return;
    struct results in_turn[] = {rig->results, rig->load};
    in_turn[1].workspace = rig->results.workspace;
    for (int launches = 0; launches < rounds_up_to(ROW_LAUNCHES, repeats) && !failed(failure); launches++)
        launch(device_case, plan, &in_turn[launches % 2], rig->stream, failure);
    if (gpu_wait(rig->gpu, rig->stream) && !failed(failure) &&
        same_bits(rig, device_case, &rig->results, "launches back to back", failure))
        same_bits(rig, device_case, &rig->load, "launches back to back", failure);
}

/* A launch that reads more than the history before the kernel ahead has written it gives other bits, or NaN. */
static void run_behind_late_rows(struct check_rig *rig, const struct device_case *device_case, libdecode_plan *plan, int repeats,
                                 struct failure *failure) {
    struct late_rows rows;
    libdecode_tensors tensors = tensors_with(device_case, &rig->results);
    tensors.launch_flags = LIBDECODE_LAUNCH_PROGRAMMATIC | LIBDECODE_LAUNCH_HISTORY_FINAL;
    bool good = late_rows_make(rig->gpu, device_case->host, device_case->buffers, &rows);
    for (int round = 0; good && round < rounds_up_to(LATE_ROUNDS, repeats) && !failed(failure); round++) {
        good = poison_results(rig, &rig->results, failure) && late_rows_spoil(rig->gpu, &rows, &rig->late_copy, rig->stream) &&
               late_rows_write(rig->gpu, &rows, &rig->late_copy, rig->stream) &&
               launch_with(plan, &tensors, rig->stream, failure) && gpu_wait(rig->gpu, rig->stream);
        if (good)
            same_bits(rig, device_case, &rig->results, "a launch that was promised a final history", failure);
    }
    if (!good && !failed(failure))
        fail_as(failure, "launch", "inputs could not be written late");
    late_rows_free(rig->gpu, &rows);
}

/* Two launches, the second with the result of the first as its query. */
static bool launch_chain(struct check_rig *rig, const struct device_case *device_case, libdecode_plan *plan,
                         uint32_t launch_flags, struct failure *failure) {
    libdecode_tensors first = tensors_with(device_case, &rig->results), second = tensors_with(device_case, &rig->load);
    first.launch_flags = second.launch_flags = launch_flags;
    second.query = first.out;
    second.workspace = first.workspace;
    return poison_results(rig, &rig->results, failure) && poison_results(rig, &rig->load, failure) &&
           launch_with(plan, &first, rig->stream, failure) && launch_with(plan, &second, rig->stream, failure) &&
           gpu_wait(rig->gpu, rig->stream);
}

static bool out_can_be_a_query(const libdecode_problem *problem) {
    return (problem->features & LIBDECODE_FEATURE_QUERY_OFFSETS) == 0 && problem->out_dtype == problem->query_dtype &&
           problem->out_token_stride == problem->query_token_stride && problem->out_head_stride == problem->query_head_stride;
}

/* A launch that begins before the one it depends on has written its query gives other bits than a plain one. */
static void run_chain(struct check_rig *rig, const struct device_case *device_case, libdecode_plan *plan, int repeats,
                      struct failure *failure) {
    if (!out_can_be_a_query(&device_case->host->problem))
        return;
    if (!launch_chain(rig, device_case, plan, 0, failure) || !read_results(rig, &rig->load, rig->first, failure))
        return;
    for (int round = 0; round < rounds_up_to(CHAIN_ROUNDS, repeats) && !failed(failure); round++) {
        if (launch_chain(rig, device_case, plan, LIBDECODE_LAUNCH_PROGRAMMATIC, failure))
            same_bits(rig, device_case, &rig->load, "a programmatic launch behind the one that wrote its query", failure);
    }
}

static void run_steps(struct check_rig *rig, const struct device_case *device_case, libdecode_plan *plan, int repeats,
                      struct failure *failure, double *ret_worst) {
    const uint64_t flags = device_case->host->drawn.flags;
    if (!grow_host(rig, result_bytes(device_case) + 1)) {
        fail_as(failure, "launch", "out of memory");
        return;
    }
    if (!prepare_results(rig, device_case, plan, &rig->results, rig->stream, failure))
        return;
    bool launched = (flags & CASE_GRAPH) != 0 ? launch_in_graph(rig, device_case, plan, failure)
                                              : launch(device_case, plan, &rig->results, rig->stream, failure);
    if (!launched)
        return;
    if (!gpu_wait(rig->gpu, rig->stream) || !read_results(rig, &rig->results, rig->first, failure)) {
        fail_as_lost(rig, failure);
        return;
    }
    if (!compare_results(rig, device_case, failure, ret_worst) || !workspace_ready(rig, plan, &rig->results.workspace, failure))
        return;
    if (!poison_results(rig, &rig->results, failure) || !launch(device_case, plan, &rig->results, rig->stream, failure) ||
        !gpu_wait(rig->gpu, rig->stream) || !same_bits(rig, device_case, &rig->results, "a second launch", failure))
        return;
    if (repeats > 0 && (flags & CASE_REPEAT) != 0)
        repeat_under_load(rig, device_case, plan, repeats, failure);
    if (failed(failure) || !bands_intact(rig, &rig->results.out, "out", failure) ||
        !bands_intact(rig, &rig->results.out_sf, "out_sf", failure) || !bands_intact(rig, &rig->results.lse, "lse", failure) ||
        !bands_intact(rig, &rig->results.workspace, "the workspace", failure))
        return;
    if (!gaps_intact(device_case, rig->host, failure)) /* same_bits left what was read last */
        return;
    if ((flags & CASE_PROGRAMMATIC) != 0) {
        run_in_a_row(rig, device_case, plan, repeats, failure);
        if (!failed(failure) && rig->has_late_copy && !problem_is_sparse(&device_case->host->problem))
            run_behind_late_rows(rig, device_case, plan, repeats, failure);
        if (!failed(failure)) /* as the last step: it reads other results than the first launch's */
            run_chain(rig, device_case, plan, repeats, failure);
    }
}

void check_run(struct check_rig *rig, const struct device_case *device_case, libdecode_plan *plan, int repeats,
               struct failure *ret_failure, double *ret_worst) {
    *ret_failure = (struct failure){0};
    *ret_worst = 0;
    run_steps(rig, device_case, plan, repeats, ret_failure, ret_worst);
    if (rig->gpu->broken && !failed(ret_failure))
        fail_as_lost(rig, ret_failure);
}
