/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensors.c: a caller's pointers and scales for a checked problem in, checked ones out. Before: problem.c; operation.c knows which pointers
 * belong to the operation. Next: launch.c, or reference.c.
 */
#include <math.h>
#include <stddef.h>

#include "dtype.h"
#include "problem.h"
#include "status.h"

/* What version 0.1 of the header had; later fields are optional. */
#define TENSORS_MINIMUM_BYTES (offsetof(libdecode_tensors, workspace_bytes) + sizeof(size_t))

static libdecode_status check_scale(const char *name, float *scale) {
    REQUIRE(isfinite(*scale), "tensors.%s is %g: it must be finite (0 means 1)", name, (double)*scale);
    if (*scale == 0.0f)
        *scale = 1.0f;
    return LIBDECODE_OK;
}

libdecode_status tensors_check(const struct problem *problem, const libdecode_tensors *tensors, libdecode_tensors *ret_tensors) {
    const libdecode_problem *given = &problem->given;
    libdecode_tensors checked;
    REQUIRE(tensors != NULL, "tensors is NULL: give a libdecode_tensors");
    FORWARD(read_caller_struct(&checked, sizeof checked, tensors, TENSORS_MINIMUM_BYTES, "libdecode_tensors"));
    checked.struct_size = sizeof checked;
    FORWARD(operation_check_pointers(problem->operation, problem->pointers, &checked));
    REQUIRE(
        !problem->needs_out_offsets || checked.out_offsets != NULL,
        "tensors.out_offsets is NULL, with out_head_stride %lld and out_token_stride %lld: without offsets the rows of %d heads "
        "of %d requests would be written over each other",
        (long long)given->out_head_stride, (long long)given->out_token_stride, given->num_qo_heads, given->batch_size);

    FORWARD(check_scale("bmm1_scale", &checked.bmm1_scale));
    FORWARD(check_scale("bmm2_scale", &checked.bmm2_scale));
    FORWARD(check_scale("o_scale", &checked.o_scale));
    FORWARD(check_scale("out_sf_scale", &checked.out_sf_scale));
    REQUIRE(checked.o_scale == 1.0f || dtype_bits(given->out_dtype) != 16,
            "tensors.o_scale is %g with out_dtype %s: a 16-bit result has none, leave it 0 or 1", (double)checked.o_scale,
            dtype_name(given->out_dtype));
    REQUIRE(checked.out_sf_scale == 1.0f || given->out_dtype == LIBDECODE_DTYPE_NVFP4,
            "tensors.out_sf_scale is %g with out_dtype %s: only an nvfp4 result has it, leave it 0 or 1",
            (double)checked.out_sf_scale, dtype_name(given->out_dtype));
    REQUIRE(checked.out_sf_scale > 0.0f, "tensors.out_sf_scale is %g: it must be more than 0 (0 means 1)",
            (double)checked.out_sf_scale);
    REQUIRE(checked.out_sf_start_token >= 0 && (checked.out_sf_start_token == 0 || given->out_dtype == LIBDECODE_DTYPE_NVFP4),
            "tensors.out_sf_start_token is %d with out_dtype %s: it must be 0, or with an nvfp4 result 0 or more",
            checked.out_sf_start_token, dtype_name(given->out_dtype));
    int64_t tokens = (int64_t)given->batch_size * given->q_len;
    REQUIRE(checked.out_sf_start_token <= INT32_MAX - tokens,
            "tensors.out_sf_start_token is %d with %lld query tokens: the rows of out_sf must be less than 2^31",
            checked.out_sf_start_token, (long long)tokens);
    const uint32_t known_flags = (uint32_t)LIBDECODE_LAUNCH_PROGRAMMATIC | (uint32_t)LIBDECODE_LAUNCH_HISTORY_FINAL;
    REQUIRE((checked.launch_flags & ~known_flags) == 0,
            "tensors.launch_flags has unknown bits 0x%x: accepted are 0x1 (LIBDECODE_LAUNCH_PROGRAMMATIC) and 0x2 "
            "(LIBDECODE_LAUNCH_HISTORY_FINAL)",
            checked.launch_flags & ~known_flags);
    REQUIRE(
        checked.launch_flags != LIBDECODE_LAUNCH_HISTORY_FINAL,
        "tensors.launch_flags is 0x2: LIBDECODE_LAUNCH_HISTORY_FINAL says what a launch with LIBDECODE_LAUNCH_PROGRAMMATIC may "
        "read early, give both (0x3)");
    *ret_tensors = checked;
    return LIBDECODE_OK;
}
