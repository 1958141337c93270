/* SPDX-License-Identifier: Apache-2.0 */
/* case_making.c: buffers full of NaN for the tensors of a test case, and which KV tokens its queries see. Next: case_cache.c. */
#include "case_making.h"

#include <stdlib.h>
#include <string.h>

void *new_buffer(struct making *making, size_t bytes, size_t field) {
    struct host_case *result = making->result;
    /* a multiple of the alignment, as aligned_alloc wants; never empty */
    void *data = aligned_alloc(256, (bytes + 256) / 256 * 256);
    if (data == NULL)
        return NULL;
    memset(data, POISON_BYTE, bytes);
    result->buffers[result->num_buffers++] = (struct case_buffer){.data = data, .bytes = bytes, .field = field};
    memcpy((char *)&result->tensors + field, &data, sizeof data);
    return data;
}

void poison_fp8(libdecode_dtype dtype, void *data, size_t bytes) {
    uint8_t *octets = data;
    for (size_t index = 0; index < bytes; index += 2)
        octets[index] = dtype == LIBDECODE_DTYPE_E5M2 ? POISON_INFINITY : POISON_OTHER_BYTE;
}

struct query_rows query_rows_of(const struct making *making, int32_t request) {
    const int32_t *cum_seq_lens_q = making->cum_seq_lens_q, q_len = making->problem->q_len;
    if (cum_seq_lens_q == NULL)
        return (struct query_rows){.first = (int64_t)request * q_len, .count = q_len};
    return (struct query_rows){.first = cum_seq_lens_q[request], .count = cum_seq_lens_q[request + 1] - cum_seq_lens_q[request]};
}

int64_t draft_mask_words(const struct making *making, int64_t query_rows) {
    return query_rows * ((making->problem->q_len + 31) / 32 * 2);
}

uint16_t *draft_mask_word(const struct making *making, int64_t query_row, int32_t draft) {
    return making->draft_mask + draft_mask_words(making, query_row) + draft / 16;
}

/* `query`: which query token of the request. */
static bool query_token_sees(const struct making *making, int32_t request, struct query_rows rows, int32_t query,
                             int32_t sequence, int32_t token) {
    const libdecode_problem *problem = making->problem;
    const int64_t stride = problem->position_stride, offset = problem->position_offset, position = token * stride + offset;
    const int32_t first_draft = making->seq_lens[sequence] - rows.count;
    int64_t query_position = (first_draft + query) * stride + offset;
    if (making->query_positions != NULL)
        query_position = (int64_t)making->query_positions[request] + query;
    else if (first_draft + query < 0)
        return false;
    if (has(making, CASE_WINDOW) && position < query_position - problem->window_left)
        return false;
    if (making->draft_mask != NULL && token >= first_draft)
        return (*draft_mask_word(making, rows.first + query, token - first_draft) >> (token - first_draft) % 16 & 1) != 0;
    return position <= query_position;
}

bool is_visible(const struct making *making, int32_t request, int32_t sequence, int32_t token) {
    const struct query_rows rows = query_rows_of(making, request);
    bool visible = false;
    if (making->named != NULL)
        return token >= 0 && making->named[request][token];
    for (int32_t query = 0; !visible && query < rows.count; query++)
        visible = query_token_sees(making, request, rows, query, sequence, token);
    return visible;
}
