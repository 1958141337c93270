/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A problem and one launch contract in, the axes that do not fit out; and over all candidates, the one error that helps most.
 * Before and next: select.c. Nothing here knows devices beyond their number and name.
 */
#include "judgement.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "bundle.h"
#include "status.h"
#include "target.h"

void judge(struct judgement *judgement, enum judgement_stage stage, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(judgement->reason, sizeof judgement->reason, format, arguments);
    va_end(arguments);
    judgement->stage = stage;
}

/* Appends, cut at the end of the buffer. */
__attribute__((format(printf, 3, 4))) static void append(char *text, size_t bytes, const char *format, ...) {
    size_t used = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text + used, bytes - used, format, arguments);
    va_end(arguments);
}

/* ------------------------------------------------------------------------------------------------------------- axes */

typedef struct libdecode_launch_contract contract_t;

#define TEXT_BYTES 96

static const struct {
    uint32_t bit;
    const char *name;
} features[] = {{LIBDECODE_FEATURE_WINDOW, "window"},
                {LIBDECODE_FEATURE_SINKS, "sinks"},
                {LIBDECODE_FEATURE_LSE, "lse"},
                {LIBDECODE_FEATURE_RAGGED_Q, "ragged_q"},
                {LIBDECODE_FEATURE_DRAFT_MASK, "draft_mask"},
                {LIBDECODE_FEATURE_V_PAGE_TABLE, "v_page_table"},
                {LIBDECODE_FEATURE_QUERY_POSITIONS, "query_positions"},
                {LIBDECODE_FEATURE_SKIP_SOFTMAX, "skip_softmax"}};

static void name_features(uint32_t bits, char *ret_text) {
    ret_text[0] = '\0';
    for (size_t i = 0; i < sizeof features / sizeof features[0]; i++)
        if (bits & features[i].bit)
            append(ret_text, TEXT_BYTES, "%s%s", ret_text[0] ? "+" : "", features[i].name);
    if (ret_text[0] == '\0')
        append(ret_text, TEXT_BYTES, "none");
}

static bool fits_query_dtype(const struct problem *problem, const contract_t *contract) {
    return contract->query_dtype == (uint32_t)problem->given.query_dtype;
}
static void asks_query_dtype(const struct problem *problem, char *ret_text) {
    append(ret_text, TEXT_BYTES, "%s", dtype_name(problem->given.query_dtype));
}
static void offers_query_dtype(const contract_t *contract, char *ret_text) {
    append(ret_text, TEXT_BYTES, "%s", dtype_name((libdecode_dtype)contract->query_dtype));
}

static bool fits_kv_dtype(const struct problem *problem, const contract_t *contract) {
    return contract->kv_dtype == (uint32_t)problem->given.kv_dtype;
}
static void asks_kv_dtype(const struct problem *problem, char *ret_text) {
    append(ret_text, TEXT_BYTES, "%s", dtype_name(problem->given.kv_dtype));
}
static void offers_kv_dtype(const contract_t *contract, char *ret_text) {
    append(ret_text, TEXT_BYTES, "%s", dtype_name((libdecode_dtype)contract->kv_dtype));
}

static bool fits_out_dtype(const struct problem *problem, const contract_t *contract) {
    return (contract->out_dtypes >> problem->given.out_dtype & 1u) != 0;
}
static void asks_out_dtype(const struct problem *problem, char *ret_text) {
    append(ret_text, TEXT_BYTES, "%s", dtype_name(problem->given.out_dtype));
}
static void offers_out_dtype(const contract_t *contract, char *ret_text) {
    for (int dtype = LIBDECODE_DTYPE_BF16; dtype <= LIBDECODE_DTYPE_NVFP4; dtype++)
        if (contract->out_dtypes >> dtype & 1u)
            append(ret_text, TEXT_BYTES, "%s%s", ret_text[0] ? "/" : "", dtype_name((libdecode_dtype)dtype));
}

static bool fits_head_dim(const struct problem *problem, const contract_t *contract) {
    return contract->head_dim == (uint32_t)problem->given.head_dim;
}
static void asks_head_dim(const struct problem *problem, char *ret_text) {
    append(ret_text, TEXT_BYTES, "%d", problem->given.head_dim);
}
static void offers_head_dim(const contract_t *contract, char *ret_text) {
    append(ret_text, TEXT_BYTES, "%u", contract->head_dim);
}

static bool fits_page_size(const struct problem *problem, const contract_t *contract) {
    uint32_t page_size = (uint32_t)problem->given.page_size;
    return page_size >= contract->min_page_size && page_size <= contract->max_page_size;
}
static void asks_page_size(const struct problem *problem, char *ret_text) {
    append(ret_text, TEXT_BYTES, "%d", problem->given.page_size);
}
static void offers_page_size(const contract_t *contract, char *ret_text) {
    append(ret_text, TEXT_BYTES, "%u to %u", contract->min_page_size, contract->max_page_size);
}

static bool fits_q_len(const struct problem *problem, const contract_t *contract) {
    return (uint32_t)problem->given.q_len <= contract->max_q_len;
}
static void asks_q_len(const struct problem *problem, char *ret_text) {
    append(ret_text, TEXT_BYTES, "%d", problem->given.q_len);
}
static void offers_q_len(const contract_t *contract, char *ret_text) {
    append(ret_text, TEXT_BYTES, "up to %u", contract->max_q_len);
}

static bool fits_features(const struct problem *problem, const contract_t *contract) {
    return (problem->given.features & ~contract->features) == 0;
}
static void asks_features(const struct problem *problem, char *ret_text) { name_features(problem->given.features, ret_text); }
static void offers_features(const contract_t *contract, char *ret_text) { name_features(contract->features, ret_text); }

/* The copy engine takes strides below 2^40 bytes. */
#define MAX_COPY_STRIDE_BYTES ((int64_t)1 << 40)

static int64_t longest_kv_stride_bytes(const struct problem *problem) {
    const libdecode_problem *given = &problem->given;
    const int64_t strides[] = {given->k_page_stride, given->k_head_stride, given->k_token_stride,
                               given->v_page_stride, given->v_head_stride, given->v_token_stride};
    int64_t longest = 0;
    for (size_t i = 0; i < sizeof strides / sizeof strides[0]; i++)
        longest = strides[i] > longest ? strides[i] : longest;
    return longest / 8 * dtype_bits(given->kv_dtype); /* strides are multiples of 16 bytes, so of 8 elements */
}
static bool fits_strides(const struct problem *problem, const contract_t *contract) {
    (void)contract;
    return longest_kv_stride_bytes(problem) < MAX_COPY_STRIDE_BYTES;
}
static void asks_strides(const struct problem *problem, char *ret_text) {
    append(ret_text, TEXT_BYTES, "%lld bytes", (long long)longest_kv_stride_bytes(problem));
}
static void offers_strides(const contract_t *contract, char *ret_text) {
    (void)contract;
    append(ret_text, TEXT_BYTES, "less than 2^40 bytes");
}

/*
 * Kernels number what their copies bring, pieces of a page, over all units (request, KV head, row group) with 31 bits. No
 * length exceeds the width of the page table.
 */
static int64_t most_copies(const struct problem *problem, uint32_t row_tile, uint32_t max_box_tokens) {
    const libdecode_problem *given = &problem->given;
    int64_t rows = (int64_t)problem->group_size * given->q_len, row_groups = (rows + row_tile - 1) / row_tile;
    int64_t boxes = (given->page_size + (int64_t)max_box_tokens - 1) / max_box_tokens, copies;
    if (__builtin_mul_overflow((int64_t)given->batch_size * given->num_kv_heads, row_groups, &copies) ||
        __builtin_mul_overflow(copies, boxes, &copies) ||
        __builtin_mul_overflow(copies, given->page_table_request_stride, &copies))
        return INT64_MAX;
    return copies;
}
static bool fits_copies(const struct problem *problem, const contract_t *contract) {
    return most_copies(problem, contract->row_tile, contract->max_box_tokens) <= INT32_MAX;
}
static void asks_copies(const struct problem *problem, char *ret_text) {
    append(ret_text, TEXT_BYTES, "%d requests of up to %lld pages", problem->given.batch_size,
           (long long)problem->given.page_table_request_stride);
}
static void offers_copies(const contract_t *contract, char *ret_text) {
    append(ret_text, TEXT_BYTES, "less than 2^31 copies of %u tokens", contract->max_box_tokens);
}

static const struct {
    const char *name;
    bool (*fits)(const struct problem *problem, const contract_t *contract);
    void (*asks)(const struct problem *problem, char *ret_text); /* appends what the problem wants */
    void (*offers)(const contract_t *contract, char *ret_text);  /* appends what the kernel has */
} axes[] = {{"query_dtype", fits_query_dtype, asks_query_dtype, offers_query_dtype},
            {"kv_dtype", fits_kv_dtype, asks_kv_dtype, offers_kv_dtype},
            {"out_dtype", fits_out_dtype, asks_out_dtype, offers_out_dtype},
            {"head_dim", fits_head_dim, asks_head_dim, offers_head_dim},
            {"page_size", fits_page_size, asks_page_size, offers_page_size},
            {"q_len", fits_q_len, asks_q_len, offers_q_len},
            {"features", fits_features, asks_features, offers_features},
            {"K and V strides", fits_strides, asks_strides, offers_strides},
            {"size of the batch", fits_copies, asks_copies, offers_copies}};
#define NUM_AXES (sizeof axes / sizeof axes[0])
_Static_assert(NUM_AXES <= MAX_AXES, "raise MAX_AXES in judgement.h");

void judge_problem(const struct problem *problem, const contract_t *contract, struct judgement *judgement) {
    for (size_t i = 0; i < NUM_AXES; i++) {
        if (axes[i].fits(problem, contract))
            continue;
        if (judgement->failing_axes == 0) {
            char asked[TEXT_BYTES] = "", offered[TEXT_BYTES] = "";
            axes[i].asks(problem, asked);
            axes[i].offers(contract, offered);
            judge(judgement, JUDGED_PROBLEM, "%s %s, the problem has %s", axes[i].name, offered, asked);
        }
        judgement->failing_axes |= 1u << i;
    }
}

/* ---------------------------------------------------------------------------------------------------------- refusal */

void refusal_begin(struct refusal *ret_refusal) { memset(ret_refusal, 0, sizeof *ret_refusal); }

/* Later stage, then fewer failing axes, then the name, so that the order of records does not matter. */
static bool nearer(const struct judgement *a, const struct judgement *b) {
    if (!b->record)
        return true;
    if (a->stage != b->stage)
        return a->stage > b->stage;
    int a_axes = __builtin_popcount(a->failing_axes), b_axes = __builtin_popcount(b->failing_axes);
    return a_axes != b_axes ? a_axes < b_axes : strcmp(a->record->name, b->record->name) < 0;
}

/* Adds a value to "64, 128" unless it is there. */
static void add_value(char *list, const char *value) {
    size_t length = strlen(value);
    for (const char *found = strstr(list, value); found; found = strstr(found + 1, value))
        if ((found == list || found[-1] == ' ') && (found[length] == '\0' || found[length] == ','))
            return;
    append(list, TEXT_BYTES, "%s%s", list[0] ? ", " : "", value);
}

void refusal_note(struct refusal *refusal, const struct judgement *judgement, uint32_t gpus) {
    if (judgement->stage == JUDGED_FAMILY)
        return;
    if (nearer(judgement, &refusal->nearest))
        refusal->nearest = *judgement;
    if (judgement->verb == POLICY_FORCE && nearer(judgement, &refusal->nearest_forced))
        refusal->nearest_forced = *judgement;
    if (judgement->failing_axes == 0)
        refusal->gpus |= gpus;
    refusal->num_denied += judgement->stage == JUDGED_POLICY;
    for (size_t i = 0; i < NUM_AXES; i++) {
        if ((judgement->failing_axes >> i & 1u) == 0)
            refusal->covered_axes |= 1u << i;
        char value[TEXT_BYTES] = "";
        axes[i].offers(&judgement->record->kernel->contract, value);
        add_value(refusal->offered[i].text, value);
    }
}

/* Which axes no kernel at hand covers: then it is libdecode that lacks it; else only the combination is not at hand. */
static libdecode_status fail_problem(const struct refusal *refusal, const struct problem *problem) {
    char missing[400] = "";
    for (size_t i = 0; i < NUM_AXES; i++) {
        if (refusal->covered_axes >> i & 1u)
            continue;
        char asked[TEXT_BYTES] = "";
        axes[i].asks(problem, asked);
        append(missing, sizeof missing, "%s%s %s (built: %s)", missing[0] ? "; " : "", axes[i].name, asked,
               refusal->offered[i].text);
    }
    if (missing[0])
        return fail(
            LIBDECODE_ERROR_UNSUPPORTED,
            "batch_decode: no kernel at hand does %s; nearest is %s; change the problem, or use libdecode_reference on the host",
            missing, refusal->nearest.record->name);
    return fail(
        LIBDECODE_ERROR_NOT_IN_BUNDLE,
        "batch_decode: no kernel at hand has this combination; nearest is %s: %s; install a bundle that holds it (libdecode list "
        "shows what is there)",
        refusal->nearest.record->name, refusal->nearest.reason);
}

static libdecode_status fail_gpu(const struct refusal *refusal, const libdecode_device *device) {
    char served[TEXT_BYTES] = "";
    for (uint32_t bit = BUNDLE_GPU_SM90; bit <= BUNDLE_GPU_SM121; bit <<= 1)
        if (refusal->gpus & bit)
            append(served, sizeof served, "%s%s", served[0] ? ", " : "", gpu_name(bit));
    return fail(LIBDECODE_ERROR_NO_GPU_IMAGE, "no image for sm_%d (%s): the bundles at hand serve %s; %s",
                device->compute_capability, device->name[0] ? device->name : "unnamed GPU", served,
                gpu_bit(device->compute_capability) ? "install the bundle of this GPU, or see libdecode doctor"
                                                    : "libdecode is built for sm_90, sm_100, sm_103, sm_120 and sm_121 only");
}

libdecode_status refusal_fail(const struct refusal *refusal, const struct problem *problem, const libdecode_device *device,
                              bool forcing) {
    const struct judgement *nearest = &refusal->nearest;
    if (!nearest->record)
        return fail(LIBDECODE_ERROR_NOT_IN_BUNDLE,
                    "batch_decode: the bundles at hand hold no kernel for it; install libdecode's bundles, or name one with "
                    "LIBDECODE_BUNDLE_PATH (libdecode doctor shows where it looks)");
    if (forcing)
        return fail(LIBDECODE_ERROR_OVERRIDE, "the kernel policy forces %s, which cannot do this: %s; change or unset the policy",
                    refusal->nearest_forced.record->name, refusal->nearest_forced.reason);
    switch (nearest->stage) {
    case JUDGED_POLICY:
        return fail(LIBDECODE_ERROR_OVERRIDE,
                    "the kernel policy denies every kernel that could do this (%zu, %s among them); change or "
                    "unset the policy",
                    refusal->num_denied, nearest->record->name);
    case JUDGED_DEVICE:
        if (nearest->driver_too_old)
            return fail(LIBDECODE_ERROR_DRIVER_TOO_OLD, "%s %s; install a newer NVIDIA driver", nearest->record->name,
                        nearest->reason);
        return fail(LIBDECODE_ERROR_NO_GPU_IMAGE, "no kernel fits sm_%d (%s): %s %s", device->compute_capability,
                    device->name[0] ? device->name : "unnamed GPU", nearest->record->name, nearest->reason);
    case JUDGED_GPU:
        return fail_gpu(refusal, device);
    case JUDGED_PROBLEM:
        return fail_problem(refusal, problem);
    case JUDGED_FAMILY:
    case JUDGED_ELIGIBLE:
        break;
    }
    return fail(LIBDECODE_ERROR_INTERNAL, "selection refused %s without a reason; please report this", nearest->record->name);
}
