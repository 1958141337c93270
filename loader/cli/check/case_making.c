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

void poison_e4m3(void *data, size_t bytes) {
    uint8_t *octets = data;
    for (size_t index = 0; index < bytes; index += 2)
        octets[index] = POISON_OTHER_BYTE;
}

bool is_visible(const struct making *making, int32_t request, int32_t sequence, int32_t token) {
    const libdecode_problem *problem = making->problem;
    int64_t stride = problem->position_stride, offset = problem->position_offset;
    int64_t position = token * stride + offset;
    int64_t query = (making->seq_lens[sequence] - 1) * stride + offset;
    if (making->query_positions != NULL)
        query = making->query_positions[request];
    return position <= query && (!has(making, CASE_WINDOW) || position >= query - problem->window_left);
}
