/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The public functions that decode: a plan from a problem, a launch from a plan and tensors, and both in one call.
 * Before: open.c made the context. Here: problem.c -> select.c -> module.c -> launch.c, in this order.
 */
#include <stdlib.h>
#include <string.h>

#include "context.h"
#include "device.h"
#include "dtype.h"
#include "launch.h"

#define VERSION_TEXT_(major, minor, patch) #major "." #minor "." #patch
#define VERSION_TEXT(major, minor, patch) VERSION_TEXT_(major, minor, patch)

const char *libdecode_version(void) {
    return VERSION_TEXT(LIBDECODE_VERSION_MAJOR, LIBDECODE_VERSION_MINOR, LIBDECODE_VERSION_PATCH);
}

/* Everything about the current device, its resident clusters included. */
static libdecode_status device_current(libdecode_context *context, struct load_site site, libdecode_device *ret_device) {
    const struct driver *driver;
    const struct known_device *device;
    uint64_t context_id;
    FORWARD(driver_get(&driver));
    FORWARD(device_context_id(driver, &context_id));
    FORWARD(device_cache_get(context->devices, driver, context_id, &device));
    *ret_device = device->facts;
    residency_find(context->residency, driver, context->modules, &context->table, device, site, ret_device);
    return LIBDECODE_OK;
}

libdecode_status libdecode_device_current(libdecode_context *context, libdecode_device *ret_device) {
    libdecode_device device;
    libdecode_status status = require_pointer(context, "context");
    if (status == LIBDECODE_OK)
        status = device_current(context, no_launch, &device);
    if (status == LIBDECODE_OK)
        status = write_caller_struct(ret_device, &device, sizeof device, "libdecode_device");
    return context_result(context, status);
}

/* ------------------------------------------------------------------------------------------------------------ plans */

static void log_verdict(void *cookie, const libdecode_verdict *verdict) {
    const libdecode_context *context = cookie;
    const char *state = verdict->chosen ? "chosen" : verdict->eligible ? "loses" : "cannot";
    log_message(&context->log, LIBDECODE_LOG_DEBUG, "%s %s: %s", verdict->kernel, state, verdict->reason);
}

static void log_plan(const libdecode_plan *plan) {
    const libdecode_problem *given = &plan->problem.given;
    log_message(&plan->context->log, LIBDECODE_LOG_INFO,
                "%s, batch %d, heads %d/%d, head_dim %d, query %s, KV %s, page %d: kernel %s on sm_%d, %s",
                plan->problem.operation->name, given->batch_size, given->num_qo_heads, given->num_kv_heads, given->head_dim,
                dtype_name(given->query_dtype), dtype_name(given->kv_dtype), given->page_size, plan->selection.record->name,
                plan->device.compute_capability, plan->selection.reason);
}

/* `site`: where the GPU is asked for its facts, if there is no `device`. */
static libdecode_status plan_create(libdecode_context *context, const libdecode_problem *problem, const libdecode_device *device,
                                    struct load_site site, libdecode_plan **ret_plan) {
    struct problem checked;
    libdecode_device facts;
    struct selection selection;
    FORWARD(problem_check(problem, &checked));
    if (device)
        FORWARD(device_read(device, &facts));
    else
        FORWARD(device_current(context, site, &facts));
    libdecode_verdict_function report = log_enabled(&context->log, LIBDECODE_LOG_DEBUG) ? log_verdict : NULL;
    FORWARD(context_refusal(context,
                            select_kernel(&checked, &facts, &context->policy, &context->table, report, context, &selection)));

    libdecode_plan *plan = malloc(sizeof *plan);
    if (!plan)
        return fail(LIBDECODE_ERROR_OUT_OF_MEMORY, "no memory for a plan (%zu bytes); free memory", sizeof *plan);
    plan->context = context;
    plan->problem = checked;
    plan->device = facts;
    plan->selection = selection;
    log_plan(plan);
    *ret_plan = plan;
    return LIBDECODE_OK;
}

libdecode_status libdecode_plan_create(libdecode_context *context, const libdecode_problem *problem,
                                       const libdecode_device *device, libdecode_plan **ret_plan) {
    libdecode_status status = require_pointer(context, "context");
    if (status == LIBDECODE_OK)
        status = require_pointer(ret_plan, "ret_plan");
    if (status == LIBDECODE_OK)
        status = plan_create(context, problem, device, no_launch, ret_plan);
    return context_result(context, status);
}

void libdecode_plan_destroy(libdecode_plan *plan) { free(plan); }

libdecode_status libdecode_plan_get_info(const libdecode_plan *plan, libdecode_plan_info *ret_info) {
    FORWARD(require_pointer(plan, "plan"));
    const struct selection *selection = &plan->selection;
    const struct kernel_record *record = selection->record;
    libdecode_plan_info info = {.kernel = record->name,
                                .bundle = bundle_path(record->bundle),
                                .reason = selection->reason,
                                .row_passes = selection->row_passes,
                                .workers = selection->num_workers,
                                .cluster_size = (int32_t)record->kernel->contract.cluster_size,
                                .predicted_ns = selection->predicted_ns,
                                .workspace_bytes = selection->workspace.bytes};
    memcpy(info.image_sha256, bundle_images(record->bundle)[record->kernel->image].sha256, sizeof info.image_sha256);
    return context_result(plan->context, write_caller_struct(ret_info, &info, sizeof info, "libdecode_plan_info"));
}

size_t libdecode_plan_workspace_bytes(const libdecode_plan *plan) { return plan ? plan->selection.workspace.bytes : 0; }

static libdecode_status workspace_init(void *workspace, size_t given_bytes, libdecode_stream stream) {
    const struct driver *driver;
    FORWARD(workspace_check("", workspace, given_bytes, WORKSPACE_ALIGNMENT_BYTES));
    FORWARD(driver_get(&driver));
    cuda_result result = driver->memset_d8_async((cuda_address)(uintptr_t)workspace, 0, given_bytes, stream);
    if (result != CUDA_RESULT_SUCCESS)
        return driver_fail(driver, result, "cuMemsetD8Async",
                           "the workspace cannot be cleared; is it memory of the current device?");
    return LIBDECODE_OK;
}

libdecode_status libdecode_workspace_init(libdecode_context *context, void *workspace, size_t given_bytes,
                                          libdecode_stream stream) {
    FORWARD(require_pointer(context, "context"));
    return context_result(context, workspace_init(workspace, given_bytes, stream));
}

/* --------------------------------------------------------------------------------------------------------- launches */

static libdecode_status check_device(const libdecode_plan *plan, const struct driver *driver, uint64_t context_id) {
    const struct known_device *device;
    FORWARD(device_cache_get(plan->context->devices, driver, context_id, &device));
    return device_compare(&plan->device, &device->facts);
}

static libdecode_status prepare(const libdecode_context *context, libdecode_plan *const *plans, size_t num_plans) {
    const struct driver *driver;
    uint64_t context_id;
    FORWARD(require_pointer(num_plans > 0 ? plans : (const void *)context, "plans"));
    for (size_t i = 0; i < num_plans; i++)
        if (!plans[i] || plans[i]->context != context)
            return fail(LIBDECODE_ERROR_INVALID_ARGUMENT, "plans[%zu] %s: every plan must come from this context", i,
                        plans[i] ? "belongs to another context" : "is NULL");
    FORWARD(driver_get(&driver));
    FORWARD(device_context_id(driver, &context_id));
    for (size_t i = 0; i < num_plans; i++) {
        cuda_function function;
        FORWARD(check_device(plans[i], driver, context_id));
        FORWARD(module_function(context->modules, driver, context_id, plans[i]->selection.record, no_launch, &function));
    }
    return LIBDECODE_OK;
}

libdecode_status libdecode_prepare(libdecode_context *context, libdecode_plan *const *plans, size_t num_plans) {
    FORWARD(require_pointer(context, "context"));
    return context_result(context, prepare(context, plans, num_plans));
}

static struct load_site launch_on(const libdecode_context *context, libdecode_stream stream) {
    return (struct load_site){.stream = stream, .strict = context->policy.strict};
}

/* Everything up to the launch is checked before anything is loaded. */
static libdecode_status launch(libdecode_plan *plan, const struct driver *driver, uint64_t context_id,
                               const libdecode_tensors *tensors, libdecode_stream stream) {
    const struct selection *selection = &plan->selection;
    cuda_function function;
    FORWARD(workspace_check("tensors.", tensors->workspace, tensors->workspace_bytes, selection->workspace.bytes));
    FORWARD(check_device(plan, driver, context_id));
    FORWARD(host_lens_check(driver, selection, tensors, stream));
    FORWARD(module_function(plan->context->modules, driver, context_id, selection->record, launch_on(plan->context, stream),
                            &function));
    return launch_kernel(driver, &plan->problem, selection, tensors, function, stream);
}

static libdecode_status plan_launch(libdecode_plan *plan, const libdecode_tensors *tensors, libdecode_stream stream) {
    const struct driver *driver;
    libdecode_tensors checked;
    uint64_t context_id;
    FORWARD(tensors_check(&plan->problem, tensors, &checked));
    if (plan->problem.given.batch_size == 0)
        return LIBDECODE_OK;
    FORWARD(driver_get(&driver));
    FORWARD(device_context_id(driver, &context_id));
    return launch(plan, driver, context_id, &checked, stream);
}

libdecode_status libdecode_plan_launch(libdecode_plan *plan, const libdecode_tensors *tensors, libdecode_stream stream) {
    FORWARD(require_pointer(plan, "plan"));
    return context_result(plan->context, plan_launch(plan, tensors, stream));
}

/* ------------------------------------------------------------------------------------------------- in a single call */

/* Up to the next number with at most two bits behind its leading one: a quarter of it at most is added. */
static int64_t round_up(int64_t value) {
    int64_t step = 1;
    while (value / step >= 8)
        step *= 2;
    return (value + step - 1) / step * step;
}

/*
 * max_seq_len and total_kv_tokens are hints that grow with every generated token: rounded up, the first to a power of two, a
 * growing batch keeps its plan. Not where max_seq_len has another meaning, as the width of the page table.
 */
static void round_hints(libdecode_problem *problem) {
    int64_t rounded = 1;
    if (problem->total_kv_tokens > 0 && problem->total_kv_tokens < INT64_MAX / 2)
        problem->total_kv_tokens = round_up(problem->total_kv_tokens);
    const bool has_width =
        problem->page_table_request_stride != 0 || problem_is_contiguous(problem) || problem_is_sparse(problem);
    if (problem->max_seq_len <= 0 || !has_width)
        return;
    while (rounded < problem->max_seq_len)
        rounded *= 2;
    if (rounded <= INT32_MAX)
        problem->max_seq_len = (int32_t)rounded;
}

/* The remembered plan of a problem, or a new one, which is remembered. */
static libdecode_status find_plan(libdecode_context *context, const libdecode_problem *problem, uint64_t context_id,
                                  struct load_site site, struct plan_use *ret_use) {
    libdecode_problem key;
    libdecode_plan *created = NULL;
    FORWARD(problem_read(problem, &key));
    round_hints(&key);
    FORWARD(plan_memo_find(context->memo, &key, context_id, ret_use));
    if (ret_use->plan)
        return LIBDECODE_OK;
    FORWARD(plan_create(context, &key, NULL, site, &created));
    libdecode_status status = plan_memo_add(context->memo, &key, context_id, created, ret_use);
    if (status != LIBDECODE_OK)
        libdecode_plan_destroy(created);
    return status;
}

static libdecode_status decode(libdecode_context *context, const libdecode_problem *problem, const libdecode_tensors *tensors,
                               libdecode_stream stream) {
    const struct driver *driver;
    struct plan_use use;
    libdecode_tensors checked;
    uint64_t context_id;
    FORWARD(driver_get(&driver));
    FORWARD(device_context_id(driver, &context_id));
    FORWARD(find_plan(context, problem, context_id, launch_on(context, stream), &use));
    libdecode_status status = tensors_check(&use.plan->problem, tensors, &checked);
    if (status == LIBDECODE_OK && use.plan->problem.given.batch_size > 0)
        status = launch(use.plan, driver, context_id, &checked, stream);
    plan_memo_release(&use);
    return status;
}

libdecode_status libdecode_decode(libdecode_context *context, const libdecode_problem *problem, const libdecode_tensors *tensors,
                                  libdecode_stream stream) {
    FORWARD(require_pointer(context, "context"));
    return context_result(context, decode(context, problem, tensors, stream));
}

static libdecode_status decode_workspace_bytes(libdecode_context *context, const libdecode_problem *problem, size_t *ret_bytes) {
    const struct driver *driver;
    struct plan_use use;
    uint64_t context_id;
    FORWARD(require_pointer(ret_bytes, "ret_bytes"));
    FORWARD(driver_get(&driver));
    FORWARD(device_context_id(driver, &context_id));
    FORWARD(find_plan(context, problem, context_id, no_launch, &use));
    *ret_bytes = use.plan->selection.workspace.bytes;
    plan_memo_release(&use);
    return LIBDECODE_OK;
}

libdecode_status libdecode_decode_workspace_bytes(libdecode_context *context, const libdecode_problem *problem,
                                                  size_t *ret_bytes) {
    FORWARD(require_pointer(context, "context"));
    return context_result(context, decode_workspace_bytes(context, problem, ret_bytes));
}
