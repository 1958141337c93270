/* SPDX-License-Identifier: Apache-2.0 */
/* arbitrary.c: bytes in, problems, tensors and devices out. Next: fuzz_api.c, fuzz_reference.c. */
#include "arbitrary.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "decode_fixture.h"

void require(int condition) {
    if (!condition) {
        (void)fprintf(stderr, "required of status and message: '%s'\n", libdecode_error_message());
        abort();
    }
}

int settled(libdecode_status status) {
    require(strcmp(libdecode_status_name(status), "LIBDECODE_ERROR_?") != 0);
    require(status != LIBDECODE_ERROR_INTERNAL);
    require(status == LIBDECODE_OK || libdecode_error_message()[0] != '\0');
    return status == LIBDECODE_OK;
}

uint32_t feed_byte(struct feed *feed) {
    if (feed->left == 0)
        return 0;
    feed->left--;
    return *feed->data++;
}

uint32_t feed_below(struct feed *feed, uint32_t limit) { return feed_byte(feed) % limit; }

int64_t feed_number(struct feed *feed) {
    static const int64_t borders[] = {0, -1, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, (int64_t)1 << 60, (int64_t)1 << 40};
    uint64_t number = 0;
    switch (feed_below(feed, 6)) {
    case 0:
    case 1:
        return feed_byte(feed);
    case 2:
        return borders[feed_below(feed, sizeof borders / sizeof borders[0])];
    case 3:
        return (int64_t)1 << feed_below(feed, 62);
    case 4:
        return ((int64_t)1 << feed_below(feed, 62)) + (feed_below(feed, 2) == 0 ? 1 : -1);
    default:
        for (int byte = 0; byte < 8; byte++)
            number = number << 8 | feed_byte(feed);
        return (int64_t)number;
    }
}

void feed_mutations(struct feed *feed, void *object, size_t bytes, uint32_t most) {
    for (uint32_t left = feed_below(feed, most + 1); left > 0; left--) {
        const size_t wide = feed_below(feed, 2) == 0 ? 4 : 8;
        const size_t word = (feed_byte(feed) << 8 | feed_byte(feed)) % (bytes / wide);
        const int64_t number = feed_number(feed);
        memcpy((char *)object + word * wide, &number, wide);
    }
}

/* Of a struct that begins with its struct_size: a larger one than there is memory would be the caller's lie. */
static void mutate_struct(struct feed *feed, void *object, size_t bytes, uint32_t most) {
    size_t struct_size;
    feed_mutations(feed, object, bytes, most);
    memcpy(&struct_size, object, sizeof struct_size);
    if (struct_size > bytes)
        memcpy(object, &bytes, sizeof bytes);
}

libdecode_problem arbitrary_problem(struct feed *feed) {
    static const int32_t head_dims[] = {64, 128, 128, 128}, pages[] = {16, 16, 64, 128};
    static const int32_t groups[] = {1, 4, 8, 5};
    libdecode_problem problem = llama3_8b();
    problem.query_dtype = feed_below(feed, 4) != 0 ? LIBDECODE_DTYPE_BF16 : LIBDECODE_DTYPE_FP16;
    problem.head_dim = head_dims[feed_below(feed, 4)];
    problem.page_size = pages[feed_below(feed, 4)];
    problem.num_kv_heads = 1 + (int32_t)feed_below(feed, 8);
    problem.num_qo_heads = problem.num_kv_heads * groups[feed_below(feed, 4)];
    problem.batch_size = (int32_t)feed_below(feed, 200);
    problem.features = feed_below(feed, 3) == 0 ? feed_byte(feed) & 0xe7 : 0;
    problem.features |= feed_below(feed, 6) == 0 ? LIBDECODE_FEATURE_BATCH_INVARIANT : 0u;
    if ((problem.features & LIBDECODE_FEATURE_V_PAGE_TABLE) != 0) {
        problem.page_table_v_offset = 512;
        problem.page_table_request_stride = 1024;
    }
    mutate_struct(feed, &problem, sizeof problem, 3);
    return problem;
}

libdecode_tensors arbitrary_tensors(struct feed *feed, const libdecode_problem *problem) {
    libdecode_tensors tensors = some_tensors();
    tensors.lse = (problem->features & LIBDECODE_FEATURE_LSE) != 0 ? tensors.out : NULL;
    tensors.sinks = (problem->features & LIBDECODE_FEATURE_SINKS) != 0 ? tensors.query : NULL;
    tensors.query_positions = (problem->features & LIBDECODE_FEATURE_QUERY_POSITIONS) != 0 ? tensors.seq_lens : NULL;
    tensors.cum_seq_lens_q = (problem->features & LIBDECODE_FEATURE_RAGGED_Q) != 0 ? tensors.seq_lens : NULL;
    tensors.draft_mask = (problem->features & LIBDECODE_FEATURE_DRAFT_MASK) != 0 ? tensors.query : NULL;
    mutate_struct(feed, &tensors, sizeof tensors, 2);
    return tensors;
}

libdecode_device arbitrary_device(struct feed *feed) {
    static const char *const names[] = {"sm_90", "sm_90", "sm_90", "sm_100", "sm_103", "sm_120", "sm_121"};
    libdecode_device device = preset(names[feed_below(feed, 7)]);
    mutate_struct(feed, &device, sizeof device, 2);
    return device;
}
