/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The public functions that merge partial results: a caller's libdecode_states in, checked, and one kernel enqueued, or the same
 * computed on the host in float64. Beside decode.c: no problem, no plan, no selection; there is one kernel for every GPU.
 */
#include <math.h>
#include <stdbool.h>

#include "context.h"
#include "device.h"
#include "dtype.h"
#include "element.h"
#include "families/merge_states.h"
#include "family.h"
#include "launch.h"
#include "status.h"
#include "target.h"

enum { MAX_HEADS = 65535, MAX_HEAD_DIM = 1024, HEAD_DIM_STEP = 8 };
#define MAX_SPAN ((int64_t)1 << 60)

/* --------------------------------------------------------------------------------------------------------------- checks */

static bool is_dtype(libdecode_dtype dtype) {
    return dtype == LIBDECODE_DTYPE_BF16 || dtype == LIBDECODE_DTYPE_FP16 || dtype == LIBDECODE_DTYPE_FP32;
}

static libdecode_status check_sizes(libdecode_states *states) {
    const bool is_ragged = states->state_offsets != NULL;
    REQUIRE(is_dtype(states->dtype), "states.dtype is %d: accepted are 1, 2 and 5 (bf16, fp16, fp32)", (int)states->dtype);
    if (states->out_dtype == LIBDECODE_DTYPE_DEFAULT)
        states->out_dtype = states->dtype;
    REQUIRE(is_dtype(states->out_dtype), "states.out_dtype is %d: accepted are 1, 2 and 5 (bf16, fp16, fp32), 0 for dtype",
            (int)states->out_dtype);
    REQUIRE((states->flags & ~(uint32_t)LIBDECODE_MERGE_LSE_NATURAL) == 0,
            "states.flags has unknown bits 0x%x: accepted is 0x1 (LIBDECODE_MERGE_LSE_NATURAL)",
            states->flags & ~(uint32_t)LIBDECODE_MERGE_LSE_NATURAL);
    REQUIRE((states->launch_flags & ~(uint32_t)LIBDECODE_LAUNCH_PROGRAMMATIC) == 0,
            "states.launch_flags has unknown bits 0x%x: accepted is 0x1 (LIBDECODE_LAUNCH_PROGRAMMATIC)",
            states->launch_flags & ~(uint32_t)LIBDECODE_LAUNCH_PROGRAMMATIC);
    REQUIRE(is_ragged ? states->num_states == 0 : states->num_states >= 1,
            "states.num_states is %d %s state_offsets: it must be %s", states->num_states, is_ragged ? "with" : "without",
            is_ragged ? "0, the offsets say it of every token" : "1 or more");
    REQUIRE(states->num_tokens >= 0, "states.num_tokens is %d: it must be 0 or more", states->num_tokens);
    REQUIRE(states->num_heads >= 1 && states->num_heads <= MAX_HEADS, "states.num_heads is %d: accepted are 1 to %d",
            states->num_heads, MAX_HEADS);
    REQUIRE((int64_t)states->num_tokens * states->num_heads <= INT32_MAX,
            "states.num_tokens is %d with num_heads %d: their product must be less than 2^31", states->num_tokens,
            states->num_heads);
    REQUIRE(states->head_dim >= HEAD_DIM_STEP && states->head_dim <= MAX_HEAD_DIM && states->head_dim % HEAD_DIM_STEP == 0,
            "states.head_dim is %d: accepted are the multiples of %d from %d to %d", states->head_dim, HEAD_DIM_STEP,
            HEAD_DIM_STEP, MAX_HEAD_DIM);
    return LIBDECODE_OK;
}

static libdecode_status check_pointer(const char *name, const void *pointer, bool is_needed, size_t alignment) {
    REQUIRE(pointer != NULL || !is_needed, "states.%s is NULL: it must be given", name);
    REQUIRE((uintptr_t)pointer % alignment == 0, "states.%s is %p: it must be aligned to %zu bytes", name, pointer, alignment);
    return LIBDECODE_OK;
}

static libdecode_status check_pointers(const libdecode_states *states) {
    const bool is_needed = states->num_tokens > 0;
    FORWARD(check_pointer("partial_out", states->partial_out, is_needed, ROW_ALIGNMENT_BYTES));
    FORWARD(check_pointer("partial_lse", states->partial_lse, is_needed, sizeof(float)));
    FORWARD(check_pointer("state_offsets", states->state_offsets, false, sizeof(int32_t)));
    FORWARD(check_pointer("out", states->out, is_needed, ROW_ALIGNMENT_BYTES));
    return check_pointer("lse", states->lse, false, sizeof(float));
}

/* 0 becomes `dense`; `step`: elements that it must be a multiple of. */
static libdecode_status check_stride(const char *name, int64_t *stride, int64_t count, int64_t dense, int64_t step) {
    if (*stride == 0)
        *stride = dense;
    const int64_t most = MAX_SPAN / (count > 1 ? count : 1);
    REQUIRE(*stride >= -most && *stride <= most,
            "states.%s is %lld: %lld steps of it leave the address space, at most %lld to either side is accepted", name,
            (long long)*stride, (long long)count, (long long)most);
    REQUIRE(*stride % step == 0, "states.%s is %lld elements: it must be a multiple of %lld elements, which are %d bytes", name,
            (long long)*stride, (long long)step, ROW_ALIGNMENT_BYTES);
    return LIBDECODE_OK;
}

/* Of rows of `row` elements: those of the partial results, or their lse (1). */
static libdecode_status check_partial_strides(const libdecode_states *states, const char *const names[3], int64_t row,
                                              int64_t step, int64_t *state, int64_t *token, int64_t *head) {
    const bool is_ragged = states->state_offsets != NULL;
    REQUIRE(!is_ragged || *token == 0, "states.%s is %lld with state_offsets: it must be 0, states have no token axis", names[1],
            (long long)*token);
    FORWARD(check_stride(names[2], head, states->num_heads, row, step));
    FORWARD(check_stride(names[0], state, is_ragged ? INT32_MAX : states->num_states, row * states->num_heads, step));
    return check_stride(names[1], token, states->num_tokens, row * states->num_heads * states->num_states, step);
}

static int64_t row_step(libdecode_dtype dtype) { return ROW_ALIGNMENT_BYTES * 8 / dtype_bits(dtype); }

static libdecode_status check_strides(libdecode_states *states) {
    static const char *const row_names[] = {"partial_state_stride", "partial_token_stride", "partial_head_stride"};
    static const char *const lse_names[] = {"partial_lse_state_stride", "partial_lse_token_stride", "partial_lse_head_stride"};
    const int64_t row = states->head_dim, heads = states->num_heads, tokens = states->num_tokens;
    FORWARD(check_partial_strides(states, row_names, row, row_step(states->dtype), &states->partial_state_stride,
                                  &states->partial_token_stride, &states->partial_head_stride));
    FORWARD(check_partial_strides(states, lse_names, 1, 1, &states->partial_lse_state_stride, &states->partial_lse_token_stride,
                                  &states->partial_lse_head_stride));
    FORWARD(check_stride("out_head_stride", &states->out_head_stride, heads, row, row_step(states->out_dtype)));
    FORWARD(check_stride("out_token_stride", &states->out_token_stride, tokens, row * heads, row_step(states->out_dtype)));
    FORWARD(check_stride("lse_head_stride", &states->lse_head_stride, heads, 1, 1));
    return check_stride("lse_token_stride", &states->lse_token_stride, tokens, heads, 1);
}

/* With every default made explicit. */
static libdecode_status states_check(const libdecode_states *states, libdecode_states *ret_states) {
    REQUIRE(states != NULL, "states is NULL: give a libdecode_states");
    FORWARD(read_caller_struct(ret_states, sizeof *ret_states, states, sizeof *ret_states, "libdecode_states"));
    FORWARD(check_sizes(ret_states));
    FORWARD(check_pointers(ret_states));
    return check_strides(ret_states);
}

/* --------------------------------------------------------------------------------------------------------- on the device */

static libdecode_status find_kernel(const libdecode_context *context, const struct known_device *device,
                                    const struct kernel_record **ret_record) {
    const int32_t compute_capability = device->facts.compute_capability;
    *ret_record = kernel_table_find(&context->table, &family_merge_states, gpu_bit(compute_capability));
    if (*ret_record == NULL)
        return context_refusal(context, fail(LIBDECODE_ERROR_NOT_IN_BUNDLE,
                                             "merge_states: the bundles at hand hold no kernel for sm_%d; install libdecode's "
                                             "bundles, or name one with LIBDECODE_BUNDLE_PATH (libdecode doctor shows where it "
                                             "looks)",
                                             compute_capability));
    return LIBDECODE_OK;
}

static libdecode_status merge_states(libdecode_context *context, const libdecode_states *states, libdecode_stream stream) {
    const struct driver *driver;
    const struct known_device *device;
    const struct kernel_record *record;
    struct merge_states_params params;
    libdecode_states checked;
    cuda_function function;
    uint64_t context_id;
    FORWARD(states_check(states, &checked));
    FORWARD(driver_get(&driver));
    FORWARD(device_context_id(driver, &context_id));
    FORWARD(device_cache_get(context->devices, driver, context_id, &device));
    FORWARD(find_kernel(context, device, &record));
    FORWARD(module_function(context->modules, driver, context_id, record,
                            (struct load_site){.stream = stream, .strict = context->policy.strict}, &function));
    if (checked.num_tokens == 0)
        return LIBDECODE_OK;
    const uint32_t num_ctas = merge_states_fill(&checked, record->kernel->contract.threads, &params);
    return launch_block(driver, record, num_ctas, checked.launch_flags, &params, function, stream);
}

libdecode_status libdecode_merge_states(libdecode_context *context, const libdecode_states *states, libdecode_stream stream) {
    FORWARD(require_pointer(context, "context"));
    return context_result(context, merge_states(context, states, stream));
}

/* ------------------------------------------------------------------------------------------------------------- reference */

/* The states of one token and head: where the elements and the lse of the first one lie. */
struct row {
    const uint8_t *elements;
    const float *lse;
    int64_t num_states;
};

static struct row find_row(const libdecode_states *states, int64_t token, int64_t head) {
    int64_t first_state = 0, own_token = token, num_states = states->num_states;
    if (states->state_offsets != NULL) {
        first_state = states->state_offsets[token];
        num_states = states->state_offsets[token + 1] - first_state;
        own_token = 0;
    }
    const int64_t element = first_state * states->partial_state_stride + own_token * states->partial_token_stride +
                            head * states->partial_head_stride;
    return (struct row){.elements = (const uint8_t *)states->partial_out + element * dtype_bits(states->dtype) / 8,
                        .lse = states->partial_lse + first_state * states->partial_lse_state_stride +
                               own_token * states->partial_lse_token_stride + head * states->partial_lse_head_stride,
                        .num_states = num_states};
}

/* The largest lse, NaN if one is. */
static double largest_lse(const libdecode_states *states, const struct row *row) {
    double largest = -INFINITY;
    for (int64_t state = 0; state < row->num_states; state++) {
        const double lse = (double)row->lse[state * states->partial_lse_state_stride];
        if (isnan(lse))
            return lse;
        largest = lse > largest ? lse : largest;
    }
    return largest;
}

/* `ret_values`: of head_dim elements. Returns the lse. */
static double merge_row(const libdecode_states *states, const struct row *row, double *ret_values) {
    const bool is_natural = (states->flags & LIBDECODE_MERGE_LSE_NATURAL) != 0;
    const double largest = largest_lse(states, row);
    double sum = 0, elements[MAX_HEAD_DIM];
    for (int32_t d = 0; d < states->head_dim; d++)
        ret_values[d] = isnan(largest) ? largest : 0.0;
    if (isnan(largest) || largest == -INFINITY)
        return largest;
    for (int64_t state = 0; state < row->num_states; state++) {
        const double lse = (double)row->lse[state * states->partial_lse_state_stride];
        const double weight = lse == largest ? 1.0 : is_natural ? exp(lse - largest) : exp2(lse - largest);
        if (weight == 0.0)
            continue;
        element_decode_row(states->dtype, row->elements + state * states->partial_state_stride * dtype_bits(states->dtype) / 8,
                           (size_t)states->head_dim, elements);
        sum += weight;
        for (int32_t d = 0; d < states->head_dim; d++)
            ret_values[d] += weight * elements[d];
    }
    for (int32_t d = 0; d < states->head_dim; d++)
        ret_values[d] /= sum;
    return largest + (is_natural ? log(sum) : log2(sum));
}

libdecode_status libdecode_merge_states_reference(const libdecode_states *states) {
    libdecode_states checked;
    FORWARD(states_check(states, &checked));
    for (int64_t token = 0; token < checked.num_tokens; token++) {
        if (checked.token_mask != NULL && checked.token_mask[token] == 0)
            continue;
        for (int64_t head = 0; head < checked.num_heads; head++) {
            double values[MAX_HEAD_DIM];
            const struct row row = find_row(&checked, token, head);
            const double lse = merge_row(&checked, &row, values);
            const int64_t element = token * checked.out_token_stride + head * checked.out_head_stride;
            element_encode_row(checked.out_dtype, values, (size_t)checked.head_dim,
                               (uint8_t *)checked.out + element * dtype_bits(checked.out_dtype) / 8);
            if (checked.lse != NULL)
                checked.lse[token * checked.lse_token_stride + head * checked.lse_head_stride] = (float)lse;
        }
    }
    return LIBDECODE_OK;
}
