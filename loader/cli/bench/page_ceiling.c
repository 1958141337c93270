/* SPDX-License-Identifier: Apache-2.0 */
/* page_ceiling.c: what a decode kernel takes without its arithmetic. Before: the bundles. Next: bench_run.c. */
#include "page_ceiling.h"

#include "abi.h"
#include "context.h"
#include "options.h"
#include "target.h"

static bool has_axes_of(const struct libdecode_launch_contract *ceiling, const struct libdecode_launch_contract *kernel) {
    return ceiling->family == KERNEL_FAMILY_PAGE_CEILING && ceiling->kv_dtype == kernel->kv_dtype &&
           ceiling->head_dim == kernel->head_dim && ceiling->row_tile == kernel->row_tile &&
           ceiling->min_page_size == kernel->min_page_size && ceiling->cluster_size == kernel->cluster_size;
}

static const struct kernel_record *find_record(const libdecode_plan *plan) {
    const libdecode_context *context = plan->context;
    const uint32_t bit = gpu_bit(plan->device.compute_capability);
    for (size_t index = 0; index < context->table.count; index++) {
        const struct kernel_record *record = &context->table.records[index];
        if ((context->table.gpus[index] & bit) != 0 &&
            has_axes_of(&record->kernel->contract, &plan->selection.record->kernel->contract))
            return record;
    }
    return NULL;
}

bool page_ceiling_time(struct bench_machine *machine, const struct bench_batch *batch, libdecode_context *context,
                       const struct plan_launcher *launcher, struct timing *ret_timing) {
    libdecode_plan plan = *launcher->plan, *prepared = &plan;
    struct plan_launcher copies = {.plan = &plan, .device = launcher->device};
    plan.selection.record = find_record(launcher->plan);
    if (plan.selection.record == NULL)
        return false;
    if (libdecode_prepare(context, &prepared, 1) != LIBDECODE_OK)
        return complain("%s", libdecode_error_message());
    return time_graph(&machine->gpu, machine->stream, enqueue_plan, &copies, batch->calls, ret_timing);
}
