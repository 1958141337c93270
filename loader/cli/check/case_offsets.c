/* SPDX-License-Identifier: Apache-2.0 */
/* case_offsets.c: requests of a test case in, places in no order for them out. Before: case_query_tokens.c. Next: cases.c, case_cache.c. */
#include "case_offsets.h"

#include <stdlib.h>

static int64_t *new_offsets(struct making *making, size_t field, int32_t **ret_order) {
    const size_t count = (size_t)making->problem->batch_size;
    int64_t *offsets = new_buffer(making, count * sizeof offsets[0], field);
    *ret_order = malloc((count + 1) * sizeof **ret_order);
    if (offsets == NULL || *ret_order == NULL)
        return NULL;
    random_permutation(&making->random, *ret_order, count);
    return offsets;
}

int64_t make_row_offsets(struct making *making, int64_t token_stride, int64_t unit, size_t field) {
    const int32_t batch_size = making->problem->batch_size;
    const struct query_rows last = query_rows_of(making, batch_size - 1);
    int32_t *order = NULL;
    if (!has(making, CASE_QUERY_OFFSETS))
        return (last.first + last.count) * token_stride;
    int64_t *offsets = new_offsets(making, field, &order), end = 0;
    for (int32_t place = 0; offsets != NULL && place < batch_size; place++) {
        end += unit * (1 + (int64_t)random_below(&making->random, 4));
        offsets[order[place]] = end;
        end += query_rows_of(making, order[place]).count * token_stride;
    }
    free(order);
    return end;
}

bool make_kv_offsets(struct making *making, int64_t page_stride, size_t field) {
    int32_t *order = NULL;
    if (!has(making, CASE_KV_OFFSETS))
        return true;
    int64_t *offsets = new_offsets(making, field, &order);
    for (int32_t request = 0; offsets != NULL && request < making->problem->batch_size; request++) {
        const int64_t unit = INT64_C(1) << random_below(&making->random, 5); /* so that rows come in pieces of every size */
        offsets[request] = (int64_t)random_below(&making->random, KV_OFFSET_ROOM + 1) & -unit;
        if (has(making, CASE_CONTIGUOUS))
            offsets[request] += order[request] * page_stride;
    }
    free(order);
    return offsets != NULL;
}

int64_t kv_shift(const int64_t *offsets, bool is_contiguous, int32_t request, int64_t page_stride) {
    if (offsets == NULL)
        return 0;
    return is_contiguous ? offsets[request] - request * page_stride : offsets[request];
}
