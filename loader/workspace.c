/* SPDX-License-Identifier: Apache-2.0 */
#include "workspace.h"

#include "status.h"

static size_t aligned(size_t bytes) {
    return (bytes + WORKSPACE_ALIGNMENT_BYTES - 1) / WORKSPACE_ALIGNMENT_BYTES * WORKSPACE_ALIGNMENT_BYTES;
}

static size_t end_of(const struct workspace_part *part) { return part->bytes > 0 ? aligned(part->offset + part->bytes) : 0; }

struct workspace_layout workspace_layout(int32_t sm_count, size_t records_bytes, size_t scratch_bytes, size_t lens_bytes) {
    const size_t scratch_offset = (size_t)sm_count * WORKSPACE_RECORDS_BYTES_PER_SM;
    const size_t scratch_end = scratch_offset + (size_t)sm_count * WORKSPACE_SCRATCH_BYTES_PER_SM;
    struct workspace_layout layout = {.records = {records_bytes <= scratch_offset ? 0 : scratch_end, records_bytes},
                                      .scratch = {scratch_offset, scratch_bytes}};
    const size_t end = end_of(&layout.records) > end_of(&layout.scratch) ? end_of(&layout.records) : end_of(&layout.scratch);
    layout.lens = (struct workspace_part){end, lens_bytes};
    layout.bytes = end + aligned(lens_bytes);
    return layout;
}

void *workspace_part_at(void *workspace, const struct workspace_part *part) {
    return part->bytes > 0 ? (char *)workspace + part->offset : NULL;
}

libdecode_status workspace_check(const char *prefix, const void *workspace, size_t given_bytes, size_t needed_bytes) {
    if (!workspace)
        return fail(LIBDECODE_ERROR_INVALID_ARGUMENT, "%sworkspace is NULL: give %zu bytes of device memory", prefix,
                    needed_bytes);
    if ((uintptr_t)workspace % WORKSPACE_ALIGNMENT_BYTES != 0)
        return fail(LIBDECODE_ERROR_INVALID_ARGUMENT, "%sworkspace is %p: it must be aligned to %u bytes", prefix, workspace,
                    WORKSPACE_ALIGNMENT_BYTES);
    if (given_bytes < needed_bytes)
        return fail(
            LIBDECODE_ERROR_WORKSPACE_TOO_SMALL,
            "%sworkspace_bytes is %zu, this needs %zu: ask libdecode_plan_workspace_bytes for every plan that shares it and take "
            "the largest",
            prefix, given_bytes, needed_bytes);
    return LIBDECODE_OK;
}
