/* SPDX-License-Identifier: Apache-2.0 */
/* forced_workers.c: the one place of the command that changes what selection decided. Next: check_neighbours.c, regret.c, held_sms.c. */
#include "forced_workers.h"

#include "context.h"

int32_t most_workers(const libdecode_plan *plan) {
    const struct libdecode_launch_contract *contract = &plan->selection.record->kernel->contract;
    return plan->device.sm_count * (int32_t)contract->ctas_per_sm / (int32_t)contract->cluster_size;
}

bool force_workers(libdecode_plan *plan, int32_t num_workers) {
    if (num_workers < 1 || num_workers > most_workers(plan))
        return false;
    plan->selection.num_workers = num_workers;
    return true;
}
