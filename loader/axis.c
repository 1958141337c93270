/* SPDX-License-Identifier: Apache-2.0 */
/* axis.c: the axes that families share: each compares one field of the problem with one of the contract, and words both. */
#include "axis.h"

#include "contract_kv.h"
#include "dtype.h"
#include "text.h"

typedef struct libdecode_launch_contract contract_t;

_Static_assert((int)CONTRACT_FEATURE_WINDOW == (int)LIBDECODE_FEATURE_WINDOW &&
                   (int)CONTRACT_FEATURE_SINKS == (int)LIBDECODE_FEATURE_SINKS &&
                   (int)CONTRACT_FEATURE_LSE == (int)LIBDECODE_FEATURE_LSE &&
                   (int)CONTRACT_FEATURE_RAGGED_Q == (int)LIBDECODE_FEATURE_RAGGED_Q &&
                   (int)CONTRACT_FEATURE_DRAFT_MASK == (int)LIBDECODE_FEATURE_DRAFT_MASK &&
                   (int)CONTRACT_FEATURE_V_PAGE_TABLE == (int)LIBDECODE_FEATURE_V_PAGE_TABLE &&
                   (int)CONTRACT_FEATURE_QUERY_POSITIONS == (int)LIBDECODE_FEATURE_QUERY_POSITIONS &&
                   (int)CONTRACT_FEATURE_SKIP_SOFTMAX == (int)LIBDECODE_FEATURE_SKIP_SOFTMAX &&
                   (int)CONTRACT_FEATURE_SOFT_CAP == (int)LIBDECODE_FEATURE_SOFT_CAP &&
                   (int)CONTRACT_FEATURE_ALIBI == (int)LIBDECODE_FEATURE_ALIBI &&
                   (int)CONTRACT_FEATURE_LSE_NATURAL == (int)LIBDECODE_FEATURE_LSE_NATURAL &&
                   (int)CONTRACT_FEATURE_BATCH_INVARIANT == (int)LIBDECODE_FEATURE_BATCH_INVARIANT &&
                   (int)CONTRACT_FEATURE_CONTIGUOUS_KV == (int)LIBDECODE_FEATURE_CONTIGUOUS_KV &&
                   (int)CONTRACT_FEATURE_QUERY_ROPE == (int)LIBDECODE_FEATURE_QUERY_ROPE &&
                   (int)CONTRACT_FEATURE_QUERY_OFFSETS == (int)LIBDECODE_FEATURE_QUERY_OFFSETS &&
                   (int)CONTRACT_FEATURE_KV_OFFSETS == (int)LIBDECODE_FEATURE_KV_OFFSETS &&
                   (int)CONTRACT_FEATURE_LSE_WITHOUT_SINK == (int)LIBDECODE_FEATURE_LSE_WITHOUT_SINK &&
                   (int)CONTRACT_FEATURE_LSE_EMPTY_INFINITY == (int)LIBDECODE_FEATURE_LSE_EMPTY_INFINITY &&
                   (int)CONTRACT_FEATURE_LSE_ALIBI_FROM_ZERO == (int)LIBDECODE_FEATURE_LSE_ALIBI_FROM_ZERO,
               "features in kernels/abi.h and libdecode.h");
_Static_assert((int)KERNEL_DTYPE_BF16 == (int)LIBDECODE_DTYPE_BF16 && (int)KERNEL_DTYPE_FP16 == (int)LIBDECODE_DTYPE_FP16 &&
                   (int)KERNEL_DTYPE_E4M3 == (int)LIBDECODE_DTYPE_E4M3 && (int)KERNEL_DTYPE_NVFP4 == (int)LIBDECODE_DTYPE_NVFP4 &&
                   (int)KERNEL_DTYPE_E5M2 == (int)LIBDECODE_DTYPE_E5M2,
               "dtypes in kernels/abi.h and libdecode.h");

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
                {LIBDECODE_FEATURE_SKIP_SOFTMAX, "skip_softmax"},
                {LIBDECODE_FEATURE_SOFT_CAP, "soft_cap"},
                {LIBDECODE_FEATURE_ALIBI, "alibi"},
                {LIBDECODE_FEATURE_ROPE, "rope"},
                {LIBDECODE_FEATURE_LSE_NATURAL, "lse_natural"},
                {LIBDECODE_FEATURE_BATCH_INVARIANT, "batch_invariant"},
                {LIBDECODE_FEATURE_CONTIGUOUS_KV, "contiguous_kv"},
                {LIBDECODE_FEATURE_QUERY_ROPE, "query_rope"},
                {LIBDECODE_FEATURE_SPARSE_TOP_K_LENS, "sparse_top_k_lens"},
                {LIBDECODE_FEATURE_QUERY_OFFSETS, "query_offsets"},
                {LIBDECODE_FEATURE_KV_OFFSETS, "kv_offsets"},
                {LIBDECODE_FEATURE_LSE_WITHOUT_SINK, "lse_without_sink"},
                {LIBDECODE_FEATURE_LSE_EMPTY_INFINITY, "lse_empty_infinity"},
                {LIBDECODE_FEATURE_LSE_ALIBI_FROM_ZERO, "lse_alibi_from_zero"}};

const char *feature_name(uint32_t bit) {
    for (size_t i = 0; i < sizeof features / sizeof features[0]; i++)
        if (features[i].bit == bit)
            return features[i].name;
    return NULL;
}

static void name_features(uint32_t bits, char *text) {
    const char *separator = "";
    if (bits == 0)
        text_append(text, AXIS_TEXT_BYTES, "none");
    for (size_t i = 0; i < sizeof features / sizeof features[0]; i++) {
        if ((bits & features[i].bit) == 0)
            continue;
        text_append(text, AXIS_TEXT_BYTES, "%s%s", separator, features[i].name);
        separator = "+";
    }
}

/* "bf16/e4m3": those of a mask. */
static void name_dtypes(uint32_t mask, char *text) {
    const char *separator = "";
    for (int dtype = LIBDECODE_DTYPE_BF16; dtype <= LIBDECODE_DTYPE_NVFP4; dtype++) {
        if ((mask >> dtype & 1u) == 0)
            continue;
        text_append(text, AXIS_TEXT_BYTES, "%s%s", separator, dtype_name((libdecode_dtype)dtype));
        separator = "/";
    }
}

static bool fits_query_dtype(const struct problem *problem, const contract_t *contract) {
    return (contract->query_dtypes >> problem->given.query_dtype & 1u) != 0;
}
static void asks_query_dtype(const struct problem *problem, char *text) {
    text_append(text, AXIS_TEXT_BYTES, "%s", dtype_name(problem->given.query_dtype));
}
static void offers_query_dtype(const contract_t *contract, char *text) { name_dtypes(contract->query_dtypes, text); }
const struct axis axis_query_dtype = {"query_dtype", fits_query_dtype, asks_query_dtype, offers_query_dtype};

static bool fits_kv_dtype(const struct problem *problem, const contract_t *contract) {
    return contract->kv_dtype == (uint32_t)problem->given.kv_dtype;
}
static void asks_kv_dtype(const struct problem *problem, char *text) {
    text_append(text, AXIS_TEXT_BYTES, "%s", dtype_name(problem->given.kv_dtype));
}
static void offers_kv_dtype(const contract_t *contract, char *text) {
    text_append(text, AXIS_TEXT_BYTES, "%s", dtype_name((libdecode_dtype)contract->kv_dtype));
}
const struct axis axis_kv_dtype = {"kv_dtype", fits_kv_dtype, asks_kv_dtype, offers_kv_dtype};

static bool fits_out_dtype(const struct problem *problem, const contract_t *contract) {
    return (contract->out_dtypes >> problem->given.out_dtype & 1u) != 0;
}
static void asks_out_dtype(const struct problem *problem, char *text) {
    text_append(text, AXIS_TEXT_BYTES, "%s", dtype_name(problem->given.out_dtype));
}
static void offers_out_dtype(const contract_t *contract, char *text) { name_dtypes(contract->out_dtypes, text); }
const struct axis axis_out_dtype = {"out_dtype", fits_out_dtype, asks_out_dtype, offers_out_dtype};

enum { NARROWEST_HEAD_DIM = 64 };

uint32_t kernel_head_dim(int32_t head_dim) {
    uint32_t kernel = NARROWEST_HEAD_DIM;
    while (kernel < (uint32_t)head_dim)
        kernel *= 2;
    return kernel;
}

uint32_t problem_kernel_head_dim(const struct problem *problem) {
    if (problem->given.op == LIBDECODE_OP_MLA_DECODE)
        return (uint32_t)problem->qk_dim;
    return kernel_head_dim(problem->qk_dim);
}

bool is_kernel_head_dim(uint32_t head_dim) {
    return head_dim >= NARROWEST_HEAD_DIM && head_dim <= PROBLEM_MAX_HEAD_DIM && kernel_head_dim((int32_t)head_dim) == head_dim;
}

static bool fits_head_dim(const struct problem *problem, const contract_t *contract) {
    return contract->head_dim == kernel_head_dim(problem->given.head_dim);
}
static void asks_head_dim(const struct problem *problem, char *text) {
    text_append(text, AXIS_TEXT_BYTES, "%d", problem->given.head_dim);
}
static void offers_head_dim(const contract_t *contract, char *text) {
    uint32_t narrower = contract->head_dim > NARROWEST_HEAD_DIM ? contract->head_dim / 2 : 0;
    text_append(text, AXIS_TEXT_BYTES, "%u to %u", narrower + 16, contract->head_dim);
}
const struct axis axis_head_dim = {"head_dim", fits_head_dim, asks_head_dim, offers_head_dim};

static bool fits_page_size(const struct problem *problem, const contract_t *contract) {
    uint32_t page_size = (uint32_t)problem->given.page_size;
    if (problem_is_contiguous(&problem->given))
        return true; /* as axis_features says */
    if (page_size < contract->min_page_size || page_size > contract->max_page_size)
        return false;
    return contract_copies_rows(contract) || (page_size & (page_size - 1)) == 0;
}
static void asks_page_size(const struct problem *problem, char *text) {
    text_append(text, AXIS_TEXT_BYTES, "%d", problem->given.page_size);
}
static void offers_page_size(const contract_t *contract, char *text) {
    bool any_size = contract_copies_rows(contract);
    text_append(text, AXIS_TEXT_BYTES, "%s%u to %u", any_size ? "" : "powers of two from ", contract->min_page_size,
                contract->max_page_size);
}
const struct axis axis_page_size = {"page_size", fits_page_size, asks_page_size, offers_page_size};

static bool fits_q_len(const struct problem *problem, const contract_t *contract) {
    return (uint32_t)problem->given.q_len <= contract->max_q_len;
}
static void asks_q_len(const struct problem *problem, char *text) {
    text_append(text, AXIS_TEXT_BYTES, "%d", problem->given.q_len);
}
static void offers_q_len(const contract_t *contract, char *text) {
    text_append(text, AXIS_TEXT_BYTES, "up to %u", contract->max_q_len);
}
const struct axis axis_q_len = {"q_len", fits_q_len, asks_q_len, offers_q_len};

/* What kernels do nothing for: launch.c does. */
#define FEATURES_OF_LAUNCHES ((uint32_t)LIBDECODE_FEATURE_HOST_SEQ_LENS)

static uint32_t missing_features(const struct problem *problem, const contract_t *contract) {
    return problem->given.features & ~FEATURES_OF_LAUNCHES & ~contract->features;
}
static bool fits_features(const struct problem *problem, const contract_t *contract) {
    return missing_features(problem, contract) == 0;
}
static void asks_features(const struct problem *problem, char *text) {
    name_features(problem->given.features & ~FEATURES_OF_LAUNCHES, text);
}
static void offers_features(const contract_t *contract, char *text) { name_features(contract->features, text); }
const struct axis axis_features = {"features", fits_features, asks_features, offers_features};

void name_missing_features(const struct problem *problem, const contract_t *contract, char *text) {
    name_features(missing_features(problem, contract), text);
}

static bool is_only_for_rope(const contract_t *contract) { return (contract->flags & CONTRACT_FLAG_ONLY_ROPE) != 0; }
static bool asks_for_rope(const struct problem *problem) { return (problem->given.features & LIBDECODE_FEATURE_ROPE) != 0; }

static bool fits_rotation(const struct problem *problem, const contract_t *contract) {
    return asks_for_rope(problem) || !is_only_for_rope(contract);
}
static void asks_rotation(const struct problem *problem, char *text) {
    text_append(text, AXIS_TEXT_BYTES, "%s", asks_for_rope(problem) ? "rope" : "none");
}
static void offers_rotation(const contract_t *contract, char *text) {
    text_append(text, AXIS_TEXT_BYTES, "%s", is_only_for_rope(contract) ? "rope only" : "any");
}
const struct axis axis_rotation = {"rotation", fits_rotation, asks_rotation, offers_rotation};
