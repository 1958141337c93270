/* SPDX-License-Identifier: Apache-2.0 */
/* query_rows.c: a problem and a query token in, its request and the places of its rows out. Used by reference.c and the command. */
#include "query_rows.h"

#include <stddef.h>

#include "status.h"

int64_t request_shift(const int64_t *offsets, int64_t request, int64_t first_token, int64_t token_stride) {
    return offsets != NULL ? offsets[request] - first_token * token_stride : 0;
}

int32_t request_of_token(const libdecode_problem *problem, const int32_t *cum_seq_lens_q, int64_t token, int32_t request) {
    while (cum_seq_lens_q != NULL && cum_seq_lens_q[request + 1] <= token)
        request++;
    return cum_seq_lens_q != NULL ? request : (int32_t)(token / (problem->q_len > 0 ? problem->q_len : 1));
}

int64_t out_element(const libdecode_problem *problem, const libdecode_tensors *tensors, int32_t request, int64_t token,
                    int64_t head) {
    const int32_t *begins = tensors->cum_seq_lens_q;
    const int64_t first_token = begins != NULL ? begins[request] : (int64_t)request * problem->q_len;
    return token * problem->out_token_stride + head * problem->out_head_stride +
           request_shift(tensors->out_offsets, request, first_token, problem->out_token_stride);
}

int64_t query_tokens(const libdecode_problem *problem, const int32_t *cum_seq_lens_q) {
    if (cum_seq_lens_q != NULL)
        return cum_seq_lens_q[problem->batch_size];
    return (int64_t)problem->batch_size * (problem->q_len > 0 ? problem->q_len : 1);
}

libdecode_status query_lengths_check(const libdecode_problem *problem, const int32_t *cum_seq_lens_q) {
    for (int32_t request = 0; cum_seq_lens_q != NULL && request < problem->batch_size; request++) {
        int64_t q_len = (int64_t)cum_seq_lens_q[request + 1] - cum_seq_lens_q[request];
        if (cum_seq_lens_q[request] < 0 || q_len < 0 || q_len > problem->q_len)
            return fail(LIBDECODE_ERROR_INVALID_ARGUMENT,
                        "tensors.cum_seq_lens_q gives request %d the tokens %d to %d: they must start at 0 or later, not run "
                        "backwards, and be at most problem.q_len %d",
                        request, cum_seq_lens_q[request], cum_seq_lens_q[request + 1], problem->q_len);
    }
    return LIBDECODE_OK;
}
